/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_ranks.c - ranks on GPUs. Skipped without one; tests/CMakeLists.txt runs it without a GPU too, on a launch
 * table in plain C and a stub of NCCL, with several devices.
 *
 *     nccl       one rank over NCCL (all rows go to itself), then as many ranks as devices: bytes of one GPU alone
 *     local      ranks that share devices, rows through pinned memory: the same
 *     formats    the same in eleven formats as EP, TP, TP x EP and with tokens that all ranks have, over NCCL and local
 *     graph      fixed capacity over NCCL: what a captured graph computes; a capture that fails on one rank
 *                (cuda_ranks_graph.c)
 *     crowded    more tokens than a fixed capacity has room for: refused on all ranks, and the next run succeeds
 *     mixed      ranks on the host and on devices: each result is its back end's, each sum its token's rank's; which
 *                mixes are refused
 *     absent     a rank that leaves is named, within the deadline
 *     lost       runs go on without a rank (cuda_ranks_lost.c)
 *     killed     of processes over NCCL, one is killed; the others end within the deadline
 *
 * MOXIE_TEST_SEED repeats a layer.
 */
#include "cuda_ranks.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const mox_cuda_table *table;

/* With adapters in each second one of the three layouts. `streams`: options.exchange_streams; of 2 without tensor
 * parallel ranks. */
static void same_bytes(uint64_t seed, int kind, int32_t ranks, int64_t streams,
                       moxie_comm *(*over)(moxie_comm *, moxie_error *))
{
    test_layer layer;
    moxie_slot_map map;
    test_adapter_set adapters = { .max_rank = 0 };
    make_layer(&layer, seed, kind);
    test_ranks_spec spec = any_spec(&layer, seed, ranks, &map);
    if (seed / 3 % 2 == 1)
        adapt(&layer, &spec, seed, &adapters);
    char *want = alone(&layer, spec.adapters), *got = malloc(test_layer_output_bytes(&layer) + 1);
    spec.over = over;
    spec.options.exchange_streams = streams;
    if (streams > 1 && spec.tp > 1) {
        spec.tp = 0;
        spec.map = NULL;
    }
    run_ranks(&layer, &spec, got);
    if (memcmp(want, got, test_layer_output_bytes(&layer)) != 0)
        fail_msg("%s: %d ranks give other bytes than one (MOXIE_TEST_SEED=%llu)", layer.text, (int)ranks,
                 (unsigned long long)seed);
    free(want);
    free(got);
    test_adapter_set_free(&adapters);
    test_layer_free(&layer);
}

/* ---- nccl ---------------------------------------------------------------------------------------------- */

static void one_rank_over_nccl(void **state)
{
    (void)state;
    if (!has_nccl())
        skip();
    for (uint64_t i = 0; i < 6; i++)
        same_bytes(test_seed(26000) + i, (int)(i % KINDS), 1, 0, over_nccl);
}

static void many_ranks_over_nccl(void **state)
{
    (void)state;
    if (devices < 2 || !has_nccl()) {
        print_message("%d device(s): the ranks of NCCL need one each\n", (int)devices);
        skip();
    }
    for (int32_t ranks = 2; ranks <= devices; ranks += ranks < 4 ? 1 : 2)
        for (uint64_t i = 0; i < 6; i++)
            same_bytes(test_seed(26100) + i, (int)(i % KINDS), ranks, 0, over_nccl);
}

/* Kinds whose activations have no scale of the whole batch. */
static void exchanges_beside_products(void **state)
{
    (void)state;
    if (devices < 2 || !has_nccl())
        skip();
    for (int32_t ranks = 2; ranks <= devices; ranks += ranks < 4 ? 1 : 2)
        for (uint64_t i = 0; i < 8; i++)
            same_bytes(test_seed(26150) + i, (int)(i % (KINDS - 1)), ranks, 2, over_nccl);
}

/* ---- formats ------------------------------------------------------------------------------------------- */

/* Weights and activations, by their names in test_problem.c. */
static const char *const formats[][2] = {
    { "bf16", "none" },
    { "fp8 block 128x128", "fp8 1x128" },
    { "fp8 per channel", "fp8 token" },
    { "fp8 per tensor", "fp8 tensor static" },
    { "fp8 per tensor", "fp8 tensor" },
    { "mxfp4", "none" },
    { "mxfp8", "mxfp8" },
    { "nvfp4 multiply", "nvfp4 multiply" },
    { "int4 words g32", "none" },
    { "gptq", "none" },
    { "int8 per channel", "int8 token" },
};
enum { FORMATS = sizeof formats / sizeof formats[0], WAYS = 8 };

/* EP, TP, TP x EP with tokens of each rank's own, which is DP too; tokens that all ranks have. Then the same with a
 * fixed capacity. */
static void one_way(const test_layer *layer, int way, test_ranks_spec *spec)
{
    const int32_t ranks = spec->ranks, tp[] = { 1, ranks, ranks % 2 == 0 ? 2 : 1, ranks % 2 == 0 ? 2 : 1 };
    spec->map = NULL;
    spec->runs = 1;
    spec->tp = groups_of(layer, tp[way % 4]);
    spec->layout = way % 4 == 3 ? MOXIE_TOKENS_REPLICATED : MOXIE_TOKENS_SHARDED;
    spec->options.exchange_capacity = way < 4 ? 0 : test_ranks_own(spec, layer->args.tokens);
}

/* Without a GPU, where products are slow, a third of the ways for each format. */
static void in_every_way(int format, int32_t ranks, moxie_comm *(*over)(moxie_comm *, moxie_error *))
{
    const test_layer_limits limits = { .tokens = 17,
                                       .largest = 500,
                                       .plain_acts = true,
                                       .plain_routing = true,
                                       .no_parallel = true,
                                       .weight = test_weight_quant_named(formats[format][0]),
                                       .act = test_act_quant_named(formats[format][1]) };
    const int step = getenv("MOXIE_PLAIN_DEVICES") != NULL ? 3 : 1;
    test_rng rng = { test_seed(26500) + (uint64_t)format };
    test_layer layer;
    moxie_slot_map map;
    test_layer_make(&layer, &rng, &limits);
    char *want = alone(&layer, NULL), *got = malloc(test_layer_output_bytes(&layer) + 1);
    for (int way = (format + ranks) % step; way < WAYS; way += step) {
        test_ranks_spec spec = any_spec(&layer, 26500, ranks, &map);
        one_way(&layer, way, &spec);
        spec.over = over;
        run_ranks(&layer, &spec, got);
        if (memcmp(want, got, test_layer_output_bytes(&layer)) != 0)
            fail_msg("%s: way %d of %d ranks gives other bytes than one GPU", layer.text, way, (int)ranks);
    }
    free(want);
    free(got);
    test_layer_free(&layer);
}

static void eleven_formats_over_nccl(void **state)
{
    (void)state;
    if (!has_nccl())
        skip();
    for (int format = 0; format < FORMATS; format++)
        for (int32_t ranks = devices > 1 ? 2 : 1; ranks <= devices; ranks = ranks < devices ? devices : devices + 1)
            in_every_way(format, ranks, over_nccl);
}

static void eleven_formats_on_local_ranks(void **state)
{
    (void)state;
    for (int format = 0; format < FORMATS; format++)
        in_every_way(format, 4, NULL);
}

/* ---- crowded ------------------------------------------------------------------------------------------- */

/* Rank 0 has all tokens; or, where all ranks have them, rank 1 owns one more than rank 0. */
static void crowd(moxie_comm *(*over)(moxie_comm *, moxie_error *), bool sharded)
{
    const int full = sharded ? 0 : 1;
    test_layer layer;
    moxie_slot_map map;
    test_rank_result results[TEST_MAX_RANKS];
    make_layer(&layer, 26401, 0);
    test_ranks_spec spec = any_spec(&layer, 3, 2, &map);
    spec.over = over;
    spec.layout = sharded ? MOXIE_TOKENS_SHARDED : MOXIE_TOKENS_REPLICATED;
    layer.args.tokens -= layer.args.tokens % 2 == 0;
    spec.first[1] = spec.first[2] = layer.args.tokens;
    spec.map = NULL;
    spec.tp = 0;
    spec.options.exchange_capacity = sharded ? layer.args.tokens - 1 : layer.args.tokens / 2;
    char *output = malloc(test_layer_output_bytes(&layer) + 1), name[32];
    snprintf(name, sizeof name, "rank %d", full);
    assert_true(layer.args.tokens > 2);
    assert_int_not_equal(test_ranks_run(&layer, &spec, output, results), MOXIE_OK);
    assert_int_equal(results[full].status, MOXIE_ERR_ARGUMENT);
    assert_int_equal(results[1 - full].status, MOXIE_ERR_MISMATCH);
    assert_non_null(strstr(results[1 - full].error.text, name));
    free(output);
    test_layer_free(&layer);
}

static void a_crowded_rank_is_refused(void **state)
{
    (void)state;
    for (int nccl = 0; nccl < 2; nccl++) {
        if (nccl && (devices < 2 || !has_nccl()))
            continue;
        crowd(nccl ? over_nccl : NULL, true);
        crowd(nccl ? over_nccl : NULL, false);
    }
}

/* Over NCCL no host sees which adapters rows need, so ranks compare those of their runs. */
static void a_rank_without_the_adapters(void **state)
{
    (void)state;
    test_layer layer;
    moxie_slot_map map;
    test_adapter_set adapters;
    test_rank_result results[TEST_MAX_RANKS];
    if (devices < 2 || !has_nccl())
        skip();
    make_layer(&layer, 26402, 0);
    test_ranks_spec spec = any_spec(&layer, 3, 2, &map);
    adapt(&layer, &spec, 1, &adapters);
    spec.over = over_nccl;
    spec.map = NULL;
    spec.tp = 0;
    spec.layout = MOXIE_TOKENS_SHARDED;
    spec.options.exchange_capacity = 0;
    spec.lacks_adapters = 2;
    char *output = malloc(test_layer_output_bytes(&layer) + 1);
    assert_int_equal(test_ranks_run(&layer, &spec, output, results), MOXIE_ERR_MISMATCH);
    for (int r = 0; r < 2; r++)
        assert_non_null(strstr(results[r].error.text, "the adapters of the run"));
    free(output);
    test_adapter_set_free(&adapters);
    test_layer_free(&layer);
}

/* ---- local --------------------------------------------------------------------------------------------- */

static void local_ranks_on_devices(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 15; i++)
        same_bytes(test_seed(26200) + i, (int)(i % KINDS), 1 + (int32_t)(i % 4), 0, NULL);
}

/* ---- mixed --------------------------------------------------------------------------------------------- */

/* Odd ranks on devices, even ones on the host. */
static void on_both(int32_t rank, moxie_layer_config *config, moxie_options *options, moxie_run_args *args)
{
    if (rank % 2 == 1)
        on_devices(rank, config, options, args);
}

/* A layer and its plan for one rank alone. */
typedef struct lone_plan {
    moxie_layer *layer;
    moxie_plan *plan;
    void *workspace;
    moxie_run_args args;
    float *rows; /* [T, K, H] what the experts give */
} lone_plan;

static void lone_make(lone_plan *p, const test_layer *layer, const moxie_options *options)
{
    const moxie_layer_config *c = &layer->config;
    moxie_error error;
    test_layer_build(layer, options, &p->layer, &p->plan);
    p->args = layer->args;
    p->args.workspace_bytes = moxie_plan_workspace_bytes(p->plan);
    p->args.workspace = p->workspace = aligned_alloc(64, (p->args.workspace_bytes + 64) / 64 * 64);
    p->rows = calloc((size_t)(layer->args.tokens * c->top_k * c->hidden) + 1, sizeof *p->rows);
    assert_ok(moxie_plan_experts(p->plan, &p->args, p->rows, &error), &error);
}

static void lone_free(lone_plan *p)
{
    moxie_plan_destroy(p->plan);
    moxie_layer_destroy(p->layer);
    free(p->workspace);
    free(p->rows);
}

/* Token t's rank: sharded tokens. */
static int32_t owner_of(const test_ranks_spec *spec, int64_t t)
{
    int32_t r = 0;
    while (t >= spec->first[r + 1])
        r++;
    return r;
}

/* What the ranks must give: each expert's row from the back end of its rank, summed by the back end of the token's. */
static void expect_mixed(const test_layer *layer, const test_ranks_spec *spec, lone_plan backend[2], char *want)
{
    const moxie_layer_config *c = &layer->config;
    const int64_t k = c->top_k, h = c->hidden, row = h * mox_dtype_bytes(c->dtype);
    float *rows = calloc((size_t)(k * h) + 1, sizeof *rows);
    int32_t slot_of[MOXIE_MAX_EXPERTS], slots;
    moxie_error error;
    for (int64_t t = 0; t < layer->args.tokens; t++) {
        for (int64_t j = 0; j < k; j++) {
            const int32_t id = layer->args.ids[t * k + j];
            for (int32_t r = 0; r < spec->ranks && id >= 0 && id < c->experts; r++) {
                assert_ok(moxie_expert_map((moxie_expert_map_kind)spec->ep_map, (int32_t)c->experts, spec->ranks, r,
                                           slot_of, &slots, &error),
                          &error);
                if (slot_of[id] >= 0)
                    memcpy(rows + j * h, backend[r % 2].rows + (t * k + j) * h, (size_t)h * sizeof *rows);
            }
        }
        lone_plan *owner = &backend[owner_of(spec, t) % 2];
        moxie_run_args args = owner->args;
        args.tokens = 1;
        args.hidden = (const char *)args.hidden + t * row;
        args.ids += t * k;
        args.weights += t * k;
        args.output = want + t * row;
        assert_ok(moxie_plan_combine(owner->plan, &args, rows, &error), &error);
    }
    free(rows);
}

static void mixed_layer(test_layer *layer, uint64_t seed, int kind)
{
    for (;; seed += 1000003) {
        make_layer(layer, seed, kind);
        if (layer->config.shared.intermediate == 0 && layer->config.routing.zero_experts == 0)
            break;
        test_layer_free(layer);
    }
    fix_routing(layer);
}

static void ranks_on_the_host_and_on_devices(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 6; i++) {
        test_layer layer;
        moxie_slot_map map;
        lone_plan backend[2];
        moxie_options host = MOXIE_OPTIONS_INIT;
        mixed_layer(&layer, test_seed(26300) + i, (int)(i % (KINDS - 1)));
        const moxie_options device = device_options(layer.args.tokens);
        const size_t bytes = test_layer_output_bytes(&layer);
        host.max_tokens = layer.args.tokens;
        char *want = malloc(bytes + 1), *got = malloc(bytes + 1), *again = malloc(bytes + 1);
        test_ranks_spec spec = any_spec(&layer, 3 * i, 2 + (int32_t)(i % 3), &map);
        spec.layout = MOXIE_TOKENS_SHARDED;
        spec.map = NULL;
        spec.tp = 0;
        spec.change = on_both;
        lone_make(&backend[0], &layer, &host);
        lone_make(&backend[1], &layer, &device);
        expect_mixed(&layer, &spec, backend, want);
        run_ranks(&layer, &spec, got);
        run_ranks(&layer, &spec, again);
        if (memcmp(got, again, bytes) != 0)
            fail_msg("%s: two runs differ", layer.text);
        if (memcmp(want, got, bytes) != 0)
            fail_msg("%s: the ranks' results are not those of their back ends", layer.text);
        lone_free(&backend[0]);
        lone_free(&backend[1]);
        free(want);
        free(got);
        free(again);
        test_layer_free(&layer);
    }
}

/* Ranks 0 on the host and 1 on a device: not of one tensor parallel group, and not over NCCL, where rows in device
 * memory are other messages. */
static void refused_mix(moxie_comm *(*over)(moxie_comm *, moxie_error *), int32_t tp, const char *text)
{
    test_layer layer;
    moxie_slot_map map;
    test_rank_result results[TEST_MAX_RANKS];
    make_layer(&layer, 26301, 0);
    test_ranks_spec spec = any_spec(&layer, 3, 2, &map);
    spec.over = over;
    spec.map = NULL;
    spec.tp = tp;
    spec.change = on_both;
    char *output = malloc(test_layer_output_bytes(&layer) + 1);
    assert_int_equal(test_ranks_run(&layer, &spec, output, results), MOXIE_ERR_MISMATCH);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(results[r].status, MOXIE_ERR_MISMATCH);
        assert_non_null(strstr(results[r].error.text, text));
    }
    free(output);
    test_layer_free(&layer);
}

static void mixes_that_are_refused(void **state)
{
    (void)state;
    refused_mix(NULL, 2, "where tensor parallel ranks compute");
    if (devices > 1 && has_nccl())
        refused_mix(over_nccl, 0, "whether rows of the comm are in a GPU's memory");
}

/* ---- absent -------------------------------------------------------------------------------------------- */

static void an_absent_rank(moxie_comm *(*over)(moxie_comm *, moxie_error *), int32_t ranks, bool mixed, bool fixed)
{
    test_layer layer;
    moxie_slot_map map;
    test_rank_result results[TEST_MAX_RANKS];
    make_layer(&layer, 26401, 0);
    test_ranks_spec spec = any_spec(&layer, 3, ranks, &map);
    spec.over = over;
    spec.tp = 0;
    spec.absent = ranks;
    spec.deadline_ms = 20000;
    spec.options.exchange_capacity = fixed ? test_ranks_own(&spec, layer.args.tokens) : 0;
    spec.change = mixed ? on_both : on_devices;
    char *output = malloc(test_layer_output_bytes(&layer) + 1), name[32];
    snprintf(name, sizeof name, "rank %d", (int)ranks - 1);
    assert_int_equal(test_ranks_run(&layer, &spec, output, results), MOXIE_ERR_TIMEOUT);
    for (int32_t r = 0; r + 1 < ranks; r++) {
        assert_int_equal(results[r].status, MOXIE_ERR_TIMEOUT);
        if (strstr(results[r].error.text, name) == NULL && strstr(results[r].error.text, "rank 0") == NULL)
            fail_msg("rank %d does not name %s: %s", (int)r, name, results[r].error.text);
    }
    free(output);
    test_layer_free(&layer);
}

static void a_rank_that_leaves_is_named(void **state)
{
    (void)state;
    for (int fixed = 0; fixed < 2; fixed++) {
        an_absent_rank(NULL, 2, true, fixed);
        an_absent_rank(NULL, 2, false, fixed);
    }
}

static void a_rank_that_leaves_nccl_is_named(void **state)
{
    (void)state;
    if (devices < 2 || !has_nccl())
        skip();
    nccl_deadline_ms = 4000;
    an_absent_rank(over_nccl, 2, false, false);
    an_absent_rank(over_nccl, 2, false, true);
    nccl_deadline_ms = 20000;
}

/* ---- killed -------------------------------------------------------------------------------------------- */

enum { KILLED_DEADLINE = 3000 }; /* ms */

/* A rank that is a process: runs until a run fails, and prints what it is told. A '+' says that it has come through the
 * first run. */
static int run_until_failure(const char *rank, const char *ranks, const char *file)
{
    test_layer layer;
    moxie_slot_map map;
    moxie_error error = { 0 };
    moxie_comm *comm = NULL;
    moxie_nccl_options nccl = MOXIE_NCCL_OPTIONS_INIT;
    moxie_comm_options options = MOXIE_COMM_OPTIONS_INIT;
    make_layer(&layer, 26401, 0);
    test_ranks_spec spec = any_spec(&layer, 3, atoi(ranks), &map);
    char *output = malloc(test_layer_output_bytes(&layer) + 1);
    nccl.ranks = atoi(ranks);
    nccl.rank = atoi(rank);
    nccl.device = device_names[nccl.rank % devices];
    nccl.file = file;
    options.deadline_ms = KILLED_DEADLINE;
    spec.runs = 1;
    moxie_status status = moxie_comm_nccl_create(&nccl, &options, &comm, &error);
    for (int i = 0; status == MOXIE_OK; i++) {
        spec.options.exchange_capacity = i % 2 == 0 ? 0 : test_ranks_own(&spec, layer.args.tokens);
        status = test_ranks_run_one(&layer, &spec, comm, output, &error);
        if (i == 0 && status == MOXIE_OK)
            (void)!write(1, "+", 1);
    }
    dprintf(1, "%s: %s", moxie_status_name(status), error.text);
    _exit(status == MOXIE_ERR_TIMEOUT ? 0 : 1);
}

typedef struct process {
    pid_t id;
    int output;
} process;

static process start_rank(int32_t rank, int32_t ranks, const char *file)
{
    char words[2][12];
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    snprintf(words[0], sizeof words[0], "%d", (int)rank);
    snprintf(words[1], sizeof words[1], "%d", (int)ranks);
    const pid_t id = fork();
    if (id == 0) {
        dup2(ends[1], 1);
        close(ends[0]);
        execl("/proc/self/exe", "test_cuda_ranks", words[0], words[1], file, (char *)NULL);
        _exit(2);
    }
    close(ends[1]);
    return (process) { id, ends[0] };
}

/* Reads all that a rank prints; returns its exit status. */
static int end_of(process p, char *text, size_t size)
{
    size_t used = 0;
    ssize_t got;
    int status = -1;
    while (used + 1 < size && (got = read(p.output, text + used, size - 1 - used)) > 0)
        used += (size_t)got;
    text[used] = 0;
    close(p.output);
    waitpid(p.id, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void a_killed_process_does_not_hang_the_others(void **state)
{
    (void)state;
    process ranks[MAX_DEVICES];
    char file[] = "/tmp/moxie_ranks_XXXXXX", text[2000], mark;
    struct timespec begin, end;
    if (devices < 2 || getenv("MOXIE_PLAIN_DEVICES") != NULL || !has_nccl()) /* the stub's ranks are threads */
        skip();
    close(mkstemp(file));
    unlink(file);
    for (int32_t r = 0; r < devices; r++)
        ranks[r] = start_rank(r, devices, file);
    for (int32_t r = 0; r < devices; r++)
        if (read(ranks[r].output, &mark, 1) != 1 || mark != '+') {
            (void)end_of(ranks[r], text, sizeof text);
            fail_msg("rank %d does not run: %s", (int)r, text);
        }
    kill(ranks[devices - 1].id, SIGKILL);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int32_t r = 0; r + 1 < devices; r++) {
        const int code = end_of(ranks[r], text, sizeof text);
        print_message("rank %d: %s\n", (int)r, text);
        assert_int_equal(code, 0);
    }
    (void)end_of(ranks[devices - 1], text, sizeof text);
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_true(end.tv_sec - begin.tv_sec <= KILLED_DEADLINE / 1000 + 4); /* and the end of a process with CUDA */
}

static int find_devices(void)
{
    table = device_or_skip();
    if (table == NULL)
        return 77;
    assert_int_equal(table->count(&devices, NULL), MOXIE_OK);
    devices = devices > MAX_DEVICES ? MAX_DEVICES : devices;
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_over_nccl),
        cmocka_unit_test(many_ranks_over_nccl),
        cmocka_unit_test(exchanges_beside_products),
        cmocka_unit_test(eleven_formats_over_nccl),
        cmocka_unit_test(local_ranks_on_devices),
        cmocka_unit_test(eleven_formats_on_local_ranks),
        cmocka_unit_test(graphs_of_fixed_capacity),
        cmocka_unit_test(a_capture_that_fails),
        cmocka_unit_test(a_crowded_rank_is_refused),
        cmocka_unit_test(a_rank_without_the_adapters),
        cmocka_unit_test(ranks_on_the_host_and_on_devices),
        cmocka_unit_test(mixes_that_are_refused),
        cmocka_unit_test(a_lost_rank_leaves_the_rest),
        cmocka_unit_test(a_lost_rank_leaves_a_mixed_comm),
        cmocka_unit_test(ranks_over_nccl_go_on_alone),
        cmocka_unit_test(those_that_are_left_start_anew),
        cmocka_unit_test(a_rank_that_leaves_is_named),
        cmocka_unit_test(a_rank_that_leaves_nccl_is_named),
        cmocka_unit_test(a_killed_process_does_not_hang_the_others),
        cmocka_unit_test(a_graph_that_one_rank_launches),
    };
    const int skipped = find_devices();
    if (skipped != 0)
        return skipped;
    if (argc == 4)
        return run_until_failure(argv[1], argv[2], argv[3]);
    print_message("%d device(s)\n", (int)devices);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
