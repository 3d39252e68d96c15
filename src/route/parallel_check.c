/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel_check.c - what vLLM checks and derives for one MoE layer: FusedMoEConfig's own checks, and those of
 * ParallelConfig and of the layer that makes it, as far as they read the same fields.
 *
 * A rule is a row: the condition under which vLLM refuses, its words, and what moxie does instead. Each local rank's
 * count of experts and the placement follow vLLM's expert maps.
 * Source: vLLM 0.33, fused_moe/config.py, layer.py and expert_map_manager.py, config/parallel.py and vllm.py.
 */
#include "route/parallel.h"

enum { DEFAULT_MAX_TOKENS = 256 };

/* ---- names ----------------------------------------------------------------------------------------- */

/* vLLM's activations. One that ends in _no_mul has no gate. */
static const char *const activations[] = { "silu",        "gelu",        "gelu_tanh",   "gelu_pytorch_tanh",
                                           "relu2",       "swigluoai",   "situ",        "swigluoai_uninterleave",
                                           "swiglustep",  "silu_no_mul", "gelu_no_mul", "gelu_tanh_no_mul",
                                           "relu2_no_mul" };

static bool is_activation(const char *name)
{
    for (size_t i = 0; i < sizeof activations / sizeof activations[0]; i++)
        if (!strcmp(activations[i], name))
            return true;
    return false;
}

static const char *activation_of(const moxie_fused_moe_args *args)
{
    return args->activation ? args->activation : "silu";
}

static bool is_gated(const moxie_fused_moe_args *args)
{
    return strstr(activation_of(args), "_no_mul") == NULL;
}

static moxie_status read_placement(const moxie_fused_moe_args *args, int32_t *asked, moxie_error *error)
{
    const char *name = args->expert_placement_strategy ? args->expert_placement_strategy : "linear";
    const bool round_robin = !strcmp(name, "round_robin");
    char shown[96];
    MOX_FAIL_IF(!round_robin && strcmp(name, "linear") != 0, MOXIE_ERR_ARGUMENT, error,
                "no expert placement strategy is called \"%s\"; give linear or round_robin",
                mox_escape(shown, sizeof shown, name));
    *asked = round_robin ? MOXIE_MAP_ROUND_ROBIN : MOXIE_MAP_LINEAR;
    return MOXIE_OK;
}

/* ---- sizes ----------------------------------------------------------------------------------------- */

static moxie_status check_sizes(const moxie_fused_moe_args *args, moxie_error *error)
{
    const struct {
        const char *name;
        int64_t value, low;
    } sizes[] = {
        { "num_logical_experts", args->num_logical_experts, 1 },
        { "num_redundant_experts", args->num_redundant_experts, 0 },
        { "experts_per_token", args->experts_per_token, 1 },
        { "hidden_dim", args->hidden_dim, 1 },
        { "intermediate_size", args->intermediate_size, 1 },
        { "num_expert_group", args->num_expert_group, 0 },
        { "hidden_dim_unpadded", args->hidden_dim_unpadded, 0 },
        { "intermediate_size_per_partition_unpadded", args->intermediate_size_per_partition_unpadded, 0 },
        { "tp_in_ep", args->tp_in_ep, 0 },
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        MOX_FAIL_IF(sizes[i].value < sizes[i].low, MOXIE_ERR_ARGUMENT, error, "%s is %lld; it must be %lld or more",
                    sizes[i].name, (long long)sizes[i].value, (long long)sizes[i].low);
    MOX_FAIL_IF(args->num_logical_experts > MOXIE_MAX_EXPERTS, MOXIE_ERR_ARGUMENT, error,
                "num_logical_experts is %d; it must be at most %d", (int)args->num_logical_experts, MOXIE_MAX_EXPERTS);
    MOX_FAIL_IF(args->num_redundant_experts > MOXIE_MAX_EXPERTS * 1024, MOXIE_ERR_ARGUMENT, error,
                "num_redundant_experts is %d; it must be at most %d", (int)args->num_redundant_experts,
                MOXIE_MAX_EXPERTS * 1024);
    return MOXIE_OK;
}

moxie_status mox_fused_moe_read(const moxie_parallel *parallel, const moxie_fused_moe_args *args, moxie_error *error)
{
    char shown[96];
    int32_t asked;
    MOX_TRY(mox_parallel_read(parallel, error));
    MOX_TRY(check_sizes(args, error));
    MOX_FAIL_IF(!is_activation(activation_of(args)), MOXIE_ERR_ARGUMENT, error,
                "vLLM has no activation \"%s\"; names are silu, gelu, gelu_tanh, relu2, swigluoai, situ, "
                "swigluoai_uninterleave, swiglustep, and silu, gelu, gelu_tanh, relu2 with _no_mul",
                mox_escape(shown, sizeof shown, activation_of(args)));
    MOX_FAIL_IF(args->platform < MOXIE_VLLM_CUDA || args->platform > MOXIE_VLLM_CPU, MOXIE_ERR_ARGUMENT, error,
                "platform %d is none of moxie_vllm_platform", (int)args->platform);
    return read_placement(args, &asked, error);
}

/* ---- placement ------------------------------------------------------------------------------------- */

/* Why vLLM replaces round robin by linear placement; "" where it does not. */
static const char *why_not_round_robin(const moxie_parallel *p, const moxie_fused_moe_args *args)
{
    if (p->ep_size == 1)
        return "all experts are on each rank, so there is nothing to place";
    if (args->num_expert_group < 2)
        return "vLLM places round robin only for routing with expert groups, two or more";
    if (args->num_redundant_experts > 0)
        return "vLLM places redundant experts linearly";
    if (p->enable_eplb)
        return "vLLM places experts linearly where EPLB is enabled";
    if (mox_parallel_predicate(p, "use_all2all_kernels") == 1 &&
        mox_parallel_predicate(p, "needs_round_robin_routing_tables") != 1)
        return "of vLLM's all2all back ends only deepep_low_latency and nixl_ep have the tables for round robin";
    return "";
}

moxie_status mox_parallel_placement(const moxie_parallel *parallel, const moxie_fused_moe_args *args,
                                    int32_t *placement, const char **reason, moxie_error *error)
{
    int32_t asked;
    MOX_TRY(read_placement(args, &asked, error));
    *placement = asked;
    *reason = "";
    if (asked == MOXIE_MAP_ROUND_ROBIN)
        *reason = why_not_round_robin(parallel, args);
    if (**reason)
        *placement = MOXIE_MAP_LINEAR;
    return MOXIE_OK;
}

/* ---- vLLM's rules ---------------------------------------------------------------------------------- */

typedef struct rule {
    bool broken;
    const char *text, *instead;
} rule;

static moxie_status check_rules(const rule *rules, size_t count, moxie_error *error)
{
    for (size_t i = 0; i < count; i++)
        MOX_FAIL_IF(rules[i].broken, MOXIE_ERR_UNSUPPORTED, error, "vLLM refuses: %s; in moxie, %s", rules[i].text,
                    rules[i].instead);
    return MOXIE_OK;
}

static moxie_status check_vllm(const moxie_parallel *p, const moxie_fused_moe_args *args, moxie_error *error)
{
    const bool rocm = args->platform == MOXIE_VLLM_ROCM && is_gated(args);
    const bool moonep = !strcmp(p->all2all_backend, "moonep");
    const bool mori = mox_parallel_predicate(p, "use_mori_kernels") == 1;
    const int64_t experts = (int64_t)args->num_logical_experts + args->num_redundant_experts;
    int32_t asked, placed;
    const char *reason;
    MOX_TRY(read_placement(args, &asked, error));
    MOX_TRY(mox_parallel_placement(p, args, &placed, &reason, error));
    const char *anywhere = "the exchange runs on any machine";
    const rule rules[] = {
        { !mox_all2all_find(p->all2all_backend)->vllm_name, "release 0.33 does not know this all2all back end",
          "it is the sharded exchange" },
        { p->enable_eplb && args->platform == MOXIE_VLLM_CPU, "EPLB needs CUDA, ROCm or XPU", "it runs on CPUs" },
        { p->enable_eplb && !p->use_ep, "EPLB needs expert parallelism over two devices or more",
          "it has nothing to balance there either, and is ignored" },
        { !p->enable_eplb && args->num_redundant_experts > 0, "redundant experts need EPLB",
          "a slot map may hold replicas at any time" },
        { p->enable_eplb && p->use_ep && experts % p->ep_size != 0,
          "EPLB needs as many experts, redundant ones included, on each rank", "ranks may have uneven shares" },
        { args->intermediate_size % p->tp_size != 0, "intermediate_size is no multiple of tp_size",
          "ranks may have uneven shares of rows" },
        { args->max_num_tokens < 0, "max_num_tokens is below 1", "a plan has max_tokens, 0 or more" },
        { mori && !(rocm && args->aiter_fmoe), "MoRI needs ROCm's AITER for the experts", anywhere },
        { mori && rocm && args->aiter_shared_expert, "MoRI does not go with a shared expert inside AITER", anywhere },
        { !is_gated(args) && args->platform == MOXIE_VLLM_CPU, "experts without a gate need CUDA, ROCm or XPU",
          "they run on CPUs" },
        { placed == MOXIE_MAP_ROUND_ROBIN && p->ep_rank > experts,
          "round robin placement fails on a rank past the experts", "a rank may have no experts" },
        { moonep && args->in_dtype != MOXIE_BF16, "moonep needs bf16", "the exchange takes any type" },
        { moonep && p->enable_eplb, "moonep does not go with EPLB", "EPLB goes with every exchange" },
        { moonep && asked == MOXIE_MAP_ROUND_ROBIN, "moonep needs linear placement",
          "round robin goes with every exchange" },
    };
    return check_rules(rules, sizeof rules / sizeof rules[0], error);
}

/* ---- what is derived ------------------------------------------------------------------------------- */

static int32_t or_else(int32_t given, int32_t usual)
{
    return given ? given : usual;
}

moxie_status mox_fused_moe_check(const moxie_parallel *p, const moxie_fused_moe_args *args, moxie_fused_moe *out,
                                 moxie_error *error)
{
    moxie_fused_moe made = { .struct_size = sizeof made };
    MOX_TRY(mox_fused_moe_read(p, args, error));
    MOX_TRY(check_vllm(p, args, error));
    MOX_TRY(mox_parallel_placement(p, args, &made.placement, &made.placement_reason, error));
    made.num_logical_experts = args->num_logical_experts;
    made.num_experts = args->num_logical_experts + args->num_redundant_experts;
    made.num_local_experts = made.num_experts / p->ep_size + (p->ep_rank < made.num_experts % p->ep_size);
    made.intermediate_size_per_partition = args->intermediate_size / p->tp_size;
    made.intermediate_size_per_partition_unpadded =
        or_else(args->intermediate_size_per_partition_unpadded, made.intermediate_size_per_partition);
    made.hidden_dim_unpadded = or_else(args->hidden_dim_unpadded, args->hidden_dim);
    made.is_act_and_mul = is_gated(args);
    made.w13_num_shards = made.is_act_and_mul ? 2 : 1;
    made.max_num_tokens = or_else(args->max_num_tokens, DEFAULT_MAX_TOKENS);
    made.router_logits_dtype = or_else(args->router_logits_dtype, args->in_dtype);
    made.use_deferred_moe_finalize = args->defer_moe_finalize && p->tp_size > 1 && p->dp_size == 1 && p->ep_size == 1 &&
                                     p->pcp_size == 1 && p->sp_size == 1 &&
                                     args->hidden_dim == made.hidden_dim_unpadded;
    *out = made;
    return MOXIE_OK;
}
