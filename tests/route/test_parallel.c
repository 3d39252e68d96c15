/* SPDX-License-Identifier: Apache-2.0
 *
 * test_parallel.c - parallel configs by vLLM's names: sizes and ranks of the docstring of FusedMoEParallelConfig.make,
 * predicates of every back end from a table made by hand, vLLM's refusals, and what moxie makes of each config.
 */
#include "test_support.h"

#include <moxie/moxie_parallel.h>

static moxie_parallel made(int32_t tp, int32_t tp_rank, int32_t dp, int32_t dp_rank, int ep, const char *backend)
{
    moxie_parallel_args args = MOXIE_PARALLEL_ARGS_INIT;
    moxie_parallel out = MOXIE_PARALLEL_INIT;
    moxie_error error;
    args.tp_size = tp;
    args.tp_rank = tp_rank;
    args.dp_size = dp;
    args.dp_rank = dp_rank;
    args.enable_expert_parallel = ep;
    args.all2all_backend = backend;
    assert_ok(moxie_parallel_make(&args, &out, &error), &error);
    return out;
}

/* A layer that vLLM takes in every config of this file: 16 experts, 2880 = 2^6 x 45. */
static moxie_fused_moe_args layer(void)
{
    moxie_fused_moe_args args = MOXIE_FUSED_MOE_ARGS_INIT;
    args.num_logical_experts = 16;
    args.experts_per_token = 2;
    args.hidden_dim = 2880;
    args.intermediate_size = 2880;
    args.in_dtype = MOXIE_BF16;
    return args;
}

/* ---- sizes and ranks ------------------------------------------------------------------------------- */

static void test_docstring(void **state)
{
    (void)state;
    static const struct {
        int32_t tp, dp, ep;  /* asked */
        int32_t ranks[4][6]; /* of each device: TP size and rank, DP size and rank, EP size and rank */
    } cases[] = {
        { 1, 1, 0, { { 1, 0, 1, 0, 1, 0 } } },
        { 1, 1, 1, { { 1, 0, 1, 0, 1, 0 } } },
        { 2, 1, 0, { { 2, 0, 1, 0, 1, 0 }, { 2, 1, 1, 0, 1, 0 } } },
        { 1, 2, 0, { { 2, 0, 2, 0, 1, 0 }, { 2, 1, 2, 1, 1, 0 } } },
        { 2, 2, 0, { { 4, 0, 2, 0, 1, 0 }, { 4, 1, 2, 0, 1, 0 }, { 4, 2, 2, 1, 1, 0 }, { 4, 3, 2, 1, 1, 0 } } },
        { 2, 1, 1, { { 1, 0, 1, 0, 2, 0 }, { 1, 0, 1, 0, 2, 1 } } },
        { 1, 2, 1, { { 1, 0, 2, 0, 2, 0 }, { 1, 0, 2, 1, 2, 1 } } },
        { 2, 2, 1, { { 1, 0, 2, 0, 4, 0 }, { 1, 0, 2, 0, 4, 1 }, { 1, 0, 2, 1, 4, 2 }, { 1, 0, 2, 1, 4, 3 } } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int32_t device = 0; device < cases[i].tp * cases[i].dp; device++) {
            const int32_t tp = cases[i].tp, *is = cases[i].ranks[device];
            const moxie_parallel p = made(tp, device % tp, cases[i].dp, device / tp, cases[i].ep, NULL);
            const int32_t got[] = { p.tp_size, p.tp_rank, p.dp_size, p.dp_rank, p.ep_size, p.ep_rank };
            assert_memory_equal(got, is, sizeof got);
            assert_int_equal(p.use_ep, cases[i].ep && tp * cases[i].dp > 1);
            assert_int_equal(p.pcp_size, 1);
            assert_string_equal(p.all2all_backend, "allgather_reducescatter");
        }
}

/* PCP lies between DP and TP: device (dp 1, pcp 1, tp 1) of 2 x 3 x 2 is 1 * 6 + 1 * 2 + 1. */
static void test_flattened_with_pcp(void **state)
{
    (void)state;
    moxie_parallel_args args = MOXIE_PARALLEL_ARGS_INIT;
    moxie_parallel p = MOXIE_PARALLEL_INIT;
    moxie_error error;
    args.dp_size = 2;
    args.dp_rank = 1;
    args.pcp_size = 3;
    args.pcp_rank = 1;
    args.tp_size = 2;
    args.tp_rank = 1;
    args.enable_expert_parallel = args.enable_eplb = 1;
    assert_ok(moxie_parallel_make(&args, &p, &error), &error);
    assert_int_equal(p.ep_size, 12);
    assert_int_equal(p.ep_rank, 9);
    assert_int_equal(p.pcp_rank, 1);
    assert_int_equal(p.sp_size, 2); /* sequence parallel: expert parallel with TP and DP */
    assert_int_equal(p.enable_eplb, 1);
    args.sp_size = 1;
    assert_ok(moxie_parallel_make(&args, &p, &error), &error);
    assert_int_equal(p.sp_size, 1);
}

static void test_no_parallel(void **state)
{
    (void)state;
    moxie_parallel p = MOXIE_PARALLEL_INIT;
    moxie_error error;
    assert_ok(moxie_parallel_make_no_parallel(&p, &error), &error);
    const moxie_parallel same = made(1, 0, 1, 0, 0, NULL);
    assert_memory_equal(&p, &same, sizeof p);
}

static void test_wrong_args(void **state)
{
    (void)state;
    static const struct {
        moxie_parallel_args args;
        const char *text;
    } cases[] = {
        { { .tp_size = -1 }, "tp_size is -1" },
        { { .tp_size = 2, .tp_rank = 2 }, "tp_rank is 2; with tp_size 2 it must be from 0 to 1" },
        { { .dp_rank = 1 }, "dp_rank is 1" },
        { { .pcp_size = 2, .pcp_rank = -1 }, "pcp_rank is -1" },
        { { .tp_size = 2000000000, .dp_size = 2000000000 }, "more than 1024 devices" },
        { { .sp_size = -1 }, "sp_size is -1" },
        { { .all2all_backend = "deepep" }, "\"deepep\"; the names are: allgather_reducescatter, naive," },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        moxie_parallel_args args = cases[i].args;
        moxie_parallel out = MOXIE_PARALLEL_INIT, before = out;
        moxie_error error;
        args.struct_size = sizeof args;
        assert_int_equal(moxie_parallel_make(&args, &out, &error), MOXIE_ERR_ARGUMENT);
        assert_non_null(strstr(error.text, cases[i].text));
        assert_memory_equal(&out, &before, sizeof out);
    }
}

/* ---- back ends and predicates ---------------------------------------------------------------------- */

/* For each name: what vLLM 0.33 calls it (NULL: it does not), and which of these hold with all2all kernels, by hand:
 * H deepep_ht, L deepep_ll, V deepep_v2, T two-sided, O one-sided, A ag_rs, M mori, N nixl_ep, E moonep, P passthrough,
 * B batched format and round robin tables, S sequence parallel MoE. */
static const struct backend {
    const char *name, *vllm, *holds;
} backends[] = {
    { "allgather_reducescatter", "allgather_reducescatter", "AS" },
    { "naive", "allgather_reducescatter", "AS" },
    { "pplx", "allgather_reducescatter", "AS" },
    { "deepep_high_throughput", "deepep_high_throughput", "HS" },
    { "deepep_low_latency", "deepep_low_latency", "LBS" },
    { "deepep_v2", "deepep_v2", "VS" },
    { "mori", NULL, "M" },
    { "mori_high_throughput", "mori_high_throughput", "MS" },
    { "mori_low_latency", "mori_low_latency", "MS" },
    { "moonep", "moonep", "E" },
    { "nixl_ep", "nixl_ep", "NBS" },
    { "flashinfer_all2allv", "flashinfer_all2allv", "T" },
    { "flashinfer_nvlink_two_sided", "flashinfer_nvlink_two_sided", "T" },
    { "flashinfer_nvlink_one_sided", "flashinfer_nvlink_one_sided", "OS" },
    { "passthrough", "passthrough", "PS" },
};
#define BACKENDS (sizeof backends / sizeof backends[0])

static const struct {
    char letter;
    const char *name;
} letters[] = {
    { 'H', "use_deepep_ht_kernels" },
    { 'L', "use_deepep_ll_kernels" },
    { 'V', "use_deepep_v2_kernels" },
    { 'T', "use_fi_nvl_two_sided_kernels" },
    { 'T', "use_fi_all2allv_kernels" },
    { 'O', "use_fi_nvl_one_sided_kernels" },
    { 'A', "use_ag_rs_all2all_kernels" },
    { 'A', "use_naive_all2all_kernels" },
    { 'M', "use_mori_kernels" },
    { 'N', "use_nixl_ep_kernels" },
    { 'E', "use_moonep_kernels" },
    { 'P', "use_passthrough_all2all" },
    { 'B', "use_batched_activation_format" },
    { 'B', "needs_round_robin_routing_tables" },
    { 'B', "use_batched_dp_moe" },
};

static void test_every_backend(void **state)
{
    (void)state;
    for (size_t b = 0; b < BACKENDS; b++) {
        moxie_all2all_backend row = MOXIE_ALL2ALL_BACKEND_INIT;
        moxie_error error;
        assert_ok(moxie_all2all_backend_at((int32_t)b, &row, &error), &error);
        assert_string_equal(row.name, backends[b].name);
        assert_true(row.vllm_name ? !strcmp(row.vllm_name, backends[b].vllm) : !backends[b].vllm);
        assert_in_range(row.exchange, MOXIE_EXCHANGE_SHARDED, MOXIE_EXCHANGE_CAPACITY);
        assert_true(strlen(row.differs) > 20);
        const moxie_parallel dp = made(1, 0, 2, 1, 1, row.name), tp = made(2, 1, 1, 0, 1, row.name);
        const moxie_parallel grid = made(2, 1, 2, 1, 1, row.name), no_ep = made(1, 0, 2, 1, 0, row.name);
        for (size_t i = 0; i < sizeof letters / sizeof letters[0]; i++) {
            const bool is = strchr(backends[b].holds, letters[i].letter) != NULL;
            assert_int_equal(moxie_parallel_predicate(&dp, letters[i].name), is);
            assert_int_equal(moxie_parallel_predicate(&tp, letters[i].name), is && letters[i].letter == 'P');
            assert_int_equal(moxie_parallel_predicate(&no_ep, letters[i].name), is && letters[i].letter == 'P');
        }
        assert_int_equal(moxie_parallel_predicate(&grid, "use_sequence_parallel_moe"),
                         strchr(backends[b].holds, 'S') != NULL);
        assert_int_equal(grid.sp_size, strchr(backends[b].holds, 'S') ? 2 : 1);
    }
    moxie_all2all_backend past = MOXIE_ALL2ALL_BACKEND_INIT;
    assert_int_equal(moxie_all2all_backend_at((int32_t)BACKENDS, &past, NULL), MOXIE_ERR_ARGUMENT);
}

static void test_predicates_of_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int alone, tp_ep, dp_ep, dp_tp_ep, dp; /* values in the five configs below */
    } cases[] = {
        { "is_sequence_parallel", 0, 0, 0, 1, 0 },      { "use_all2all_kernels", 0, 0, 1, 1, 0 },
        { "use_sequence_parallel_moe", 0, 0, 0, 1, 0 }, { "use_all2all", 0, 0, 1, 1, 1 },
        { "no_such_predicate", -1, -1, -1, -1, -1 },
    };
    const moxie_parallel alone = made(1, 0, 1, 0, 1, NULL), tp_ep = made(2, 0, 1, 0, 1, NULL);
    const moxie_parallel dp_ep = made(1, 0, 2, 0, 1, NULL), both = made(2, 0, 2, 0, 1, NULL);
    const moxie_parallel dp = made(1, 0, 2, 0, 0, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(moxie_parallel_predicate(&alone, cases[i].name), cases[i].alone);
        assert_int_equal(moxie_parallel_predicate(&tp_ep, cases[i].name), cases[i].tp_ep);
        assert_int_equal(moxie_parallel_predicate(&dp_ep, cases[i].name), cases[i].dp_ep);
        assert_int_equal(moxie_parallel_predicate(&both, cases[i].name), cases[i].dp_tp_ep);
        assert_int_equal(moxie_parallel_predicate(&dp, cases[i].name), cases[i].dp);
    }
    int32_t count = 0;
    while (moxie_parallel_predicate_at(count))
        assert_in_range(moxie_parallel_predicate(&both, moxie_parallel_predicate_at(count++)), 0, 1);
    assert_int_equal(count, 19);
    assert_int_equal(moxie_parallel_predicate(NULL, "use_all2all"), -1);
    const moxie_parallel empty = MOXIE_PARALLEL_INIT;
    assert_int_equal(moxie_parallel_predicate(&empty, "use_all2all"), -1);
}

/* ---- vLLM's checks --------------------------------------------------------------------------------- */

static void test_derived_numbers(void **state)
{
    (void)state;
    moxie_fused_moe out = MOXIE_FUSED_MOE_INIT;
    moxie_fused_moe_args args = layer();
    moxie_error error;
    const moxie_parallel tp = made(4, 1, 1, 0, 0, NULL), ep = made(3, 0, 1, 0, 1, NULL),
                         last = made(3, 2, 1, 0, 1, NULL);
    assert_ok(moxie_fused_moe_check(&tp, &args, &out, &error), &error);
    assert_int_equal(out.intermediate_size_per_partition, 720);
    assert_int_equal(out.intermediate_size_per_partition_unpadded, 720);
    assert_int_equal(out.hidden_dim_unpadded, 2880);
    assert_int_equal(out.num_local_experts, 16);
    assert_int_equal(out.max_num_tokens, 256);
    assert_int_equal(out.router_logits_dtype, MOXIE_BF16);
    assert_int_equal(out.w13_num_shards, 2);
    assert_int_equal(out.use_deferred_moe_finalize, 0);
    args.defer_moe_finalize = 1;
    args.router_logits_dtype = MOXIE_F32;
    args.activation = "relu2_no_mul";
    args.max_num_tokens = 8;
    assert_ok(moxie_fused_moe_check(&tp, &args, &out, &error), &error);
    assert_int_equal(out.use_deferred_moe_finalize, 1);
    assert_int_equal(out.router_logits_dtype, MOXIE_F32);
    assert_int_equal(out.w13_num_shards, 1);
    assert_int_equal(out.max_num_tokens, 8);
    args.hidden_dim_unpadded = 2879; /* a padded layer does not defer */
    assert_ok(moxie_fused_moe_check(&tp, &args, &out, &error), &error);
    assert_int_equal(out.use_deferred_moe_finalize, 0);
    /* 16 experts on 3 ranks: 6, 5, 5. */
    assert_ok(moxie_fused_moe_check(&ep, &args, &out, &error), &error);
    assert_int_equal(out.num_local_experts, 6);
    assert_int_equal(out.use_deferred_moe_finalize, 0);
    assert_ok(moxie_fused_moe_check(&last, &args, &out, &error), &error);
    assert_int_equal(out.num_local_experts, 5);
}

/* Changes one field of a layer that vLLM takes. */
typedef struct change {
    int32_t tp, dp, ep, eplb;
    const char *backend;
    moxie_fused_moe_args with; /* fields that are not zero replace the layer's */
    const char *text;
} change;

static moxie_fused_moe_args changed(const moxie_fused_moe_args *with)
{
    moxie_fused_moe_args args = layer();
    args.num_redundant_experts = with->num_redundant_experts;
    args.platform = with->platform;
    args.aiter_fmoe = with->aiter_fmoe;
    args.aiter_shared_expert = with->aiter_shared_expert;
    args.activation = with->activation;
    args.max_num_tokens = with->max_num_tokens;
    args.num_expert_group = with->num_expert_group;
    args.expert_placement_strategy = with->expert_placement_strategy;
    args.in_dtype = with->in_dtype ? with->in_dtype : args.in_dtype;
    args.intermediate_size = with->intermediate_size ? with->intermediate_size : args.intermediate_size;
    args.num_logical_experts = with->num_logical_experts ? with->num_logical_experts : args.num_logical_experts;
    return args;
}

static const change refused[] = {
    { 1, 2, 1, 0, "mori", { 0 }, "does not know this all2all back end" },
    { 2, 1, 1, 1, NULL, { .platform = MOXIE_VLLM_CPU }, "EPLB needs CUDA" },
    { 2, 1, 0, 1, NULL, { 0 }, "EPLB needs expert parallelism" },
    { 1, 1, 1, 1, NULL, { 0 }, "EPLB needs expert parallelism" },
    { 2, 1, 1, 0, NULL, { .num_redundant_experts = 2 }, "redundant experts need EPLB" },
    { 2, 1, 1, 1, NULL, { .num_redundant_experts = 1 }, "as many experts" },
    { 7, 1, 0, 0, NULL, { 0 }, "no multiple of tp_size" },
    { 1, 1, 0, 0, NULL, { .max_num_tokens = -1 }, "max_num_tokens" },
    { 1, 2, 1, 0, "mori_low_latency", { 0 }, "ROCm's AITER" },
    { 1, 2, 1, 0, "mori_low_latency", { .platform = MOXIE_VLLM_ROCM }, "ROCm's AITER" },
    { 1,
      2,
      1,
      0,
      "mori_low_latency",
      { .platform = MOXIE_VLLM_ROCM, .aiter_fmoe = 1, .aiter_shared_expert = 1 },
      "shared expert" },
    { 1, 1, 0, 0, NULL, { .platform = MOXIE_VLLM_CPU, .activation = "silu_no_mul" }, "without a gate" },
    { 1, 2, 1, 0, "moonep", { .in_dtype = MOXIE_F16 }, "moonep needs bf16" },
    { 1, 2, 1, 1, "moonep", { 0 }, "moonep does not go with EPLB" },
    { 1, 2, 1, 0, "moonep", { .expert_placement_strategy = "round_robin" }, "moonep needs linear" },
    { 4,
      1,
      1,
      0,
      NULL,
      { .num_logical_experts = 2, .num_expert_group = 2, .expert_placement_strategy = "round_robin" },
      "past the experts" },
};

static moxie_parallel parallel_of(const change *c)
{
    moxie_parallel p = made(c->tp, c->tp - 1, c->dp, c->dp - 1, c->ep, c->backend);
    p.enable_eplb = c->eplb;
    return p;
}

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        const moxie_parallel p = parallel_of(&refused[i]);
        const moxie_fused_moe_args args = changed(&refused[i].with);
        moxie_fused_moe out = MOXIE_FUSED_MOE_INIT, before = out;
        moxie_parallel_layer plan = MOXIE_PARALLEL_LAYER_INIT;
        moxie_error error;
        assert_int_equal(moxie_fused_moe_check(&p, &args, &out, &error), MOXIE_ERR_UNSUPPORTED);
        assert_non_null(strstr(error.text, refused[i].text));
        assert_non_null(strstr(error.text, "in moxie, "));
        assert_memory_equal(&out, &before, sizeof out);
        if (args.num_redundant_experts && !p.use_ep)
            continue;
        assert_ok(moxie_parallel_plan(&p, &args, &plan, &error), &error);
        assert_int_equal(plan.vllm_accepts, 0);
    }
}

static const change taken[] = {
    { 2, 1, 1, 1, NULL, { .num_redundant_experts = 2 }, "" },
    { 1, 2, 1, 0, "mori_low_latency", { .platform = MOXIE_VLLM_ROCM, .aiter_fmoe = 1 }, "" },
    { 2, 1, 1, 0, "mori_low_latency", { 0 }, "" }, /* no all2all without DP */
    { 1, 1, 0, 0, NULL, { .platform = MOXIE_VLLM_XPU, .activation = "gelu_no_mul" }, "" },
    { 1, 2, 1, 0, "moonep", { .in_dtype = MOXIE_BF16 }, "" },
    { 3, 1, 1, 0, NULL, { 0 }, "" }, /* 16 experts on 3 ranks without EPLB */
};

static void test_taken(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
        const moxie_parallel p = parallel_of(&taken[i]);
        const moxie_fused_moe_args args = changed(&taken[i].with);
        moxie_fused_moe out = MOXIE_FUSED_MOE_INIT;
        moxie_parallel_layer plan = MOXIE_PARALLEL_LAYER_INIT;
        moxie_error error;
        assert_ok(moxie_fused_moe_check(&p, &args, &out, &error), &error);
        assert_ok(moxie_parallel_plan(&p, &args, &plan, &error), &error);
        assert_int_equal(plan.vllm_accepts, 1);
        assert_int_equal(plan.slots, out.num_experts);
    }
}

static void test_no_layer(void **state)
{
    (void)state;
    const moxie_parallel p = made(2, 0, 1, 0, 1, NULL);
    moxie_fused_moe_args cases[9];
    for (int i = 0; i < 9; i++)
        cases[i] = layer();
    cases[0].num_logical_experts = 0;
    cases[1].num_redundant_experts = -1;
    cases[2].experts_per_token = 0;
    cases[3].hidden_dim = -5;
    cases[4].intermediate_size = 0;
    cases[5].activation = "swish";
    cases[6].expert_placement_strategy = "random";
    cases[7].platform = 4;
    cases[8].tp_in_ep = -1;
    for (int i = 0; i < 9; i++) {
        moxie_fused_moe out = MOXIE_FUSED_MOE_INIT;
        moxie_parallel_layer plan = MOXIE_PARALLEL_LAYER_INIT;
        assert_int_equal(moxie_fused_moe_check(&p, &cases[i], &out, NULL), MOXIE_ERR_ARGUMENT);
        assert_int_equal(moxie_parallel_plan(&p, &cases[i], &plan, NULL), MOXIE_ERR_ARGUMENT);
    }
    moxie_fused_moe_args args = layer();
    moxie_parallel by_hand = p;
    by_hand.tp_size = 2;
    assert_int_equal(moxie_parallel_placement(&by_hand, &args, NULL, NULL, NULL), MOXIE_ERR_ARGUMENT);
}

/* ---- placement ------------------------------------------------------------------------------------- */

static void test_placement(void **state)
{
    (void)state;
    static const struct {
        change at;
        const char *reason; /* "": round robin stays */
    } cases[] = {
        { { 2, 1, 1, 0, NULL, { .num_expert_group = 8 }, "" }, "" },
        { { 1, 2, 1, 0, "deepep_low_latency", { .num_expert_group = 2 }, "" }, "" },
        { { 1, 2, 1, 0, "nixl_ep", { .num_expert_group = 2 }, "" }, "" },
        { { 1, 2, 1, 0, "deepep_high_throughput", { .num_expert_group = 8 }, "" }, "tables" },
        { { 2, 1, 1, 0, NULL, { .num_expert_group = 1 }, "" }, "groups" },
        { { 2, 1, 1, 0, NULL, { 0 }, "" }, "groups" },
        { { 2, 1, 1, 1, NULL, { .num_expert_group = 8, .num_redundant_experts = 2 }, "" }, "redundant" },
        { { 2, 1, 1, 1, NULL, { .num_expert_group = 8 }, "" }, "EPLB" },
        { { 2, 1, 0, 0, NULL, { .num_expert_group = 8 }, "" }, "all experts are on each rank" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const moxie_parallel p = parallel_of(&cases[i].at);
        moxie_fused_moe_args args = changed(&cases[i].at.with);
        const bool stays = !*cases[i].reason;
        int32_t placement = -1;
        const char *reason = NULL;
        moxie_error error;
        args.expert_placement_strategy = "round_robin";
        assert_ok(moxie_parallel_placement(&p, &args, &placement, &reason, &error), &error);
        assert_int_equal(placement, stays ? MOXIE_MAP_ROUND_ROBIN : MOXIE_MAP_LINEAR);
        assert_true(stays ? !*reason : strstr(reason, cases[i].reason) != NULL);
        args.expert_placement_strategy = "linear";
        assert_ok(moxie_parallel_placement(&p, &args, &placement, &reason, &error), &error);
        assert_int_equal(placement, MOXIE_MAP_LINEAR);
        assert_string_equal(reason, "");
    }
}

/* ---- what moxie makes of it ------------------------------------------------------------------------ */

/* From config to ranks, by hand; the device is the last one of each. */
static void test_plans(void **state)
{
    (void)state;
    static const struct {
        int32_t tp, dp, ep, sp, tp_in_ep; /* sp: the given sp_size, 0 the derived one */
        int32_t ep_size, ep_rank, tp_size, tp_rank, layout, parts, part, exchange;
    } cases[] = {
        { 1, 1, 1, 0, 0, 1, 0, 1, 0, MOXIE_TOKENS_SHARDED, 1, 0, MOXIE_EXCHANGE_LOCAL },
        { 4, 1, 0, 0, 0, 1, 0, 4, 3, MOXIE_TOKENS_REPLICATED, 1, 0, MOXIE_EXCHANGE_REPLICATED },
        { 4, 1, 1, 0, 0, 4, 3, 1, 0, MOXIE_TOKENS_REPLICATED, 1, 0, MOXIE_EXCHANGE_REPLICATED },
        { 4, 1, 1, 0, 2, 2, 1, 2, 1, MOXIE_TOKENS_REPLICATED, 1, 0, MOXIE_EXCHANGE_REPLICATED },
        { 1, 3, 1, 0, 0, 3, 2, 1, 0, MOXIE_TOKENS_SHARDED, 1, 0, MOXIE_EXCHANGE_SHARDED },
        { 1, 3, 0, 0, 0, 1, 0, 3, 2, MOXIE_TOKENS_SHARDED, 1, 0, MOXIE_EXCHANGE_SHARDED },
        { 2, 2, 1, 0, 0, 4, 3, 1, 0, MOXIE_TOKENS_SHARDED, 1, 0, MOXIE_EXCHANGE_SHARDED }, /* sequence parallel */
        { 2, 2, 1, 1, 0, 4, 3, 1, 0, MOXIE_TOKENS_SHARDED, 2, 1, MOXIE_EXCHANGE_SHARDED },
        { 2, 2, 0, 0, 0, 1, 0, 4, 3, MOXIE_TOKENS_SHARDED, 2, 1, MOXIE_EXCHANGE_SHARDED },
        { 2, 4, 1, 0, 4, 2, 1, 4, 3, MOXIE_TOKENS_SHARDED, 1, 0, MOXIE_EXCHANGE_SHARDED },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        moxie_parallel p = made(cases[i].tp, cases[i].tp - 1, cases[i].dp, cases[i].dp - 1, cases[i].ep, NULL);
        moxie_fused_moe_args args = layer();
        moxie_parallel_layer plan = MOXIE_PARALLEL_LAYER_INIT;
        moxie_error error;
        p.sp_size = cases[i].sp ? cases[i].sp : p.sp_size;
        args.tp_in_ep = cases[i].tp_in_ep;
        assert_ok(moxie_parallel_plan(&p, &args, &plan, &error), &error);
        const int32_t got[] = { plan.ep_size,      plan.ep_rank,     plan.tp_size,    plan.tp_rank,
                                plan.token_layout, plan.token_parts, plan.token_part, plan.exchange };
        assert_memory_equal(got, &cases[i].ep_size, sizeof got);
        assert_int_equal(plan.ranks, cases[i].tp * cases[i].dp);
        assert_int_equal(plan.rank, plan.ep_rank * plan.tp_size + plan.tp_rank);
        assert_int_equal(*plan.differs != 0, plan.ranks > 1);
    }
}

static void test_plans_of_other_backends(void **state)
{
    (void)state;
    const moxie_fused_moe_args args = layer();
    moxie_parallel_layer plan = MOXIE_PARALLEL_LAYER_INIT;
    moxie_error error;
    const moxie_parallel low = made(1, 0, 2, 0, 1, "deepep_low_latency"),
                         tp = made(2, 0, 1, 0, 1, "deepep_low_latency");
    assert_ok(moxie_parallel_plan(&low, &args, &plan, &error), &error);
    assert_int_equal(plan.exchange, MOXIE_EXCHANGE_CAPACITY);
    assert_non_null(strstr(plan.differs, "one row for each choice"));
    assert_ok(moxie_parallel_plan(&tp, &args, &plan, &error), &error);
    assert_int_equal(plan.exchange, MOXIE_EXCHANGE_REPLICATED);
    assert_non_null(strstr(plan.differs, "all-reduce"));
}

static void test_plans_that_cannot_be(void **state)
{
    (void)state;
    moxie_fused_moe_args args = layer();
    moxie_parallel_layer plan = MOXIE_PARALLEL_LAYER_INIT, before = plan;
    moxie_error error;
    const moxie_parallel ep = made(4, 0, 1, 0, 1, NULL), tp = made(4, 0, 1, 0, 0, NULL);
    args.tp_in_ep = 3;
    assert_int_equal(moxie_parallel_plan(&ep, &args, &plan, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "tp_in_ep is 3, which does not divide 4 ranks"));
    args.tp_in_ep = 2;
    assert_int_equal(moxie_parallel_plan(&tp, &args, &plan, &error), MOXIE_ERR_UNSUPPORTED);
    /* 16 experts in two groups of ranks: at most 16 more. */
    args.num_redundant_experts = 17;
    assert_int_equal(moxie_parallel_plan(&ep, &args, &plan, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "room for 16"));
    assert_memory_equal(&plan, &before, sizeof plan);
    args.num_redundant_experts = 16;
    assert_ok(moxie_parallel_plan(&ep, &args, &plan, &error), &error);
    assert_int_equal(plan.slots, 32);
    /* Experts with room for more slots than a map may have. */
    const moxie_parallel many = made(128, 0, 1, 0, 1, NULL);
    moxie_fused_moe_args large = layer();
    large.num_logical_experts = 1024;
    large.num_redundant_experts = MOXIE_MAX_SLOTS - 1024;
    assert_ok(moxie_parallel_plan(&many, &large, &plan, &error), &error);
    assert_int_equal(plan.slots, MOXIE_MAX_SLOTS);
    large.num_redundant_experts++;
    assert_int_equal(moxie_parallel_plan(&many, &large, &plan, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "65537 slots"));
}

/* What a plan says is a layer config that moxie takes: uneven sizes included. */
static void test_a_plan_makes_a_config(void **state)
{
    (void)state;
    const moxie_parallel p = made(3, 2, 1, 0, 1, NULL);
    const moxie_fused_moe_args args = layer();
    moxie_parallel_layer plan = MOXIE_PARALLEL_LAYER_INIT;
    moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
    moxie_error error;
    assert_ok(moxie_parallel_plan(&p, &args, &plan, &error), &error);
    config.dtype = MOXIE_BF16;
    config.experts = args.num_logical_experts;
    config.top_k = args.experts_per_token;
    config.hidden = args.hidden_dim;
    config.intermediate = args.intermediate_size;
    assert_ok(moxie_routing_by_name("renormalize", &config.routing, &error), &error);
    config.w13.element = config.w2.element = MOXIE_BF16;
    config.ep_size = plan.ep_size;
    config.ep_rank = plan.ep_rank;
    config.ep_map = plan.ep_map;
    config.tp_size = plan.tp_size;
    config.tp_rank = plan.tp_rank;
    assert_ok(moxie_layer_config_check(&config, &error), &error);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_docstring),
        cmocka_unit_test(test_flattened_with_pcp),
        cmocka_unit_test(test_no_parallel),
        cmocka_unit_test(test_wrong_args),
        cmocka_unit_test(test_every_backend),
        cmocka_unit_test(test_predicates_of_sizes),
        cmocka_unit_test(test_derived_numbers),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_taken),
        cmocka_unit_test(test_no_layer),
        cmocka_unit_test(test_placement),
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_plans_of_other_backends),
        cmocka_unit_test(test_plans_that_cannot_be),
        cmocka_unit_test(test_a_plan_makes_a_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
