/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_ranks.c - ranks on GPUs. Skipped without one; tests/CMakeLists.txt runs it without a GPU too, on a launch
 * table in plain C and a stub of NCCL, with several devices.
 *
 *     nccl       one rank over NCCL (all rows go to itself), then as many ranks as devices: bytes of one GPU alone
 *     local      ranks that share devices, rows through pinned memory: the same
 *     mixed      ranks on the host and on devices: each result is its back end's, each sum its token's rank's
 *     absent     a rank that leaves is named, within the deadline
 *     killed     of processes over NCCL, one is killed; the others end within the deadline
 *
 * MOXIE_TEST_SEED repeats a layer.
 */
#include "device_support.h"
#include "quant/quant.h"
#include "test_ranks.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_DEVICES = 8 };

static const mox_cuda_table *table;
static int32_t devices;
static const char *const names[MAX_DEVICES] = { "0", "1", "2", "3", "4", "5", "6", "7" };

/* ---- layers -------------------------------------------------------------------------------------------- */

static const test_layer_limits kinds[] = {
    { .tokens = 33, .largest = 200, .plain_acts = true, .plain_routing = true, .no_parallel = true },
    { .tokens = 65, .largest = 600, .plain_acts = true, .plain_routing = true, .no_parallel = true, .mma = true },
    { .tokens = 65, .largest = 600, .plain_acts = true, .plain_routing = true, .no_parallel = true, .decoded = true },
    { .tokens = 40, .largest = 400, .plain_routing = true, .no_parallel = true },
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* One scale for the rows of all ranks, which ranks on devices refuse. */
static bool has_batch_scale(const moxie_layer_config *c)
{
    const bool shared = mox_act_quant_needs_amax(&c->shared.a13) || mox_act_quant_needs_amax(&c->shared.a2);
    return mox_act_quant_needs_amax(&c->a13) || mox_act_quant_needs_amax(&c->a2) ||
           (c->shared.intermediate > 0 && shared);
}

static void make_layer(test_layer *layer, uint64_t seed, int kind)
{
    test_rng rng = { seed };
    test_layer_make(layer, &rng, &kinds[kind]);
    if (!has_batch_scale(&layer->config))
        return;
    test_layer_free(layer);
    make_layer(layer, seed + 1000003, kind);
}

/* The output of one device alone. */
static char *alone(test_layer *layer)
{
    moxie_options options = device_options(layer->args.tokens + 1);
    test_layer_plan(layer, &options);
    return test_layer_output(layer, layer->plan);
}

/* ---- ranks --------------------------------------------------------------------------------------------- */

static void on_devices(int32_t rank, moxie_layer_config *config, moxie_options *options, moxie_run_args *args)
{
    (void)config, (void)args;
    options->backend = MOXIE_BACKEND_CUDA;
    options->device = names[rank % devices];
}

/* Odd ranks on devices, even ones on the host. */
static void on_both(int32_t rank, moxie_layer_config *config, moxie_options *options, moxie_run_args *args)
{
    if (rank % 2 == 1)
        on_devices(rank, config, options, args);
}

static moxie_comm *over_nccl(moxie_comm *local, moxie_error *error)
{
    moxie_nccl_options nccl = MOXIE_NCCL_OPTIONS_INIT;
    moxie_comm_options options = MOXIE_COMM_OPTIONS_INIT;
    moxie_comm *comm = NULL;
    nccl.over = local;
    nccl.device = names[moxie_comm_rank(local) % devices];
    options.deadline_ms = 20000;
    return moxie_comm_nccl_create(&nccl, &options, &comm, error) == MOXIE_OK ? comm : NULL;
}

static test_ranks_spec any_spec(test_layer *layer, uint64_t seed, int32_t ranks, moxie_slot_map *map)
{
    test_rng rng = { seed * 7 + 1 };
    test_ranks_spec spec = { .ranks = ranks,
                             .ep_map = (int32_t)(seed % 2),
                             .layout = (moxie_token_layout)(seed % 3),
                             .chunk = seed % 2 == 0 ? 0 : test_range(&rng, 1, 9),
                             .runs = seed % 4 == 0 ? 2 : 1,
                             .change = on_devices,
                             .options = MOXIE_OPTIONS_INIT };
    test_ranks_cut(&spec, &rng, layer->args.tokens);
    if (seed / 2 % 2 == 1)
        spec.options.exchange_capacity = test_ranks_own(&spec, layer->args.tokens);
    *map = test_ranks_map(layer, &rng, ranks);
    if (seed % 3 == 1)
        spec.map = map;
    return spec;
}

static void run_ranks(const test_layer *layer, test_ranks_spec *spec, char *output)
{
    test_rank_result results[TEST_MAX_RANKS];
    memset(output, 0xee, test_layer_output_bytes(layer));
    if (test_ranks_run(layer, spec, output, results) == MOXIE_OK)
        return;
    print_error("%s, %d ranks, layout %d\n", layer->text, (int)spec->ranks, (int)spec->layout);
    for (int32_t r = 0; r < spec->ranks; r++)
        print_error("  rank %d: %s: %s\n", (int)r, moxie_status_name(results[r].status), results[r].error.text);
    fail();
}

static void same_bytes(uint64_t seed, int kind, int32_t ranks, moxie_comm *(*over)(moxie_comm *, moxie_error *))
{
    test_layer layer;
    moxie_slot_map map;
    make_layer(&layer, seed, kind);
    char *want = alone(&layer), *got = malloc(test_layer_output_bytes(&layer) + 1);
    test_ranks_spec spec = any_spec(&layer, seed, ranks, &map);
    spec.over = over;
    run_ranks(&layer, &spec, got);
    if (memcmp(want, got, test_layer_output_bytes(&layer)) != 0)
        fail_msg("%s: %d ranks give other bytes than one (MOXIE_TEST_SEED=%llu)", layer.text, (int)ranks,
                 (unsigned long long)seed);
    free(want);
    free(got);
    test_layer_free(&layer);
}

/* ---- nccl ---------------------------------------------------------------------------------------------- */

static bool has_nccl(void)
{
    char id[MOXIE_NCCL_ID_BYTES];
    moxie_error error = { 0 };
    if (moxie_comm_nccl_id(id, &error) == MOXIE_OK)
        return true;
    print_message("without NCCL: %s\n", error.text);
    return false;
}

static void one_rank_over_nccl(void **state)
{
    (void)state;
    if (!has_nccl())
        skip();
    for (uint64_t i = 0; i < 6; i++)
        same_bytes(test_seed(26000) + i, (int)(i % KINDS), 1, over_nccl);
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
            same_bytes(test_seed(26100) + i, (int)(i % KINDS), ranks, over_nccl);
}

/* ---- local --------------------------------------------------------------------------------------------- */

static void local_ranks_on_devices(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 12; i++)
        same_bytes(test_seed(26200) + i, (int)(i % KINDS), 1 + (int32_t)(i % 4), NULL);
}

/* ---- mixed --------------------------------------------------------------------------------------------- */

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

/* Tokens' ids and weights, so that both back ends have the same. */
static void fix_routing(test_layer *layer)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    const size_t choices = (size_t)(layer->args.tokens * layer->config.top_k);
    int32_t *ids = test_layer_own(layer, choices * sizeof *ids + 1);
    float *weights = test_layer_own(layer, choices * sizeof *weights + 1);
    options.max_tokens = layer->args.tokens;
    test_layer_plan(layer, &options);
    layer->args.ids_out = ids;
    layer->args.weights_out = weights;
    free(test_layer_output(layer, layer->plan));
    layer->args.ids_out = NULL;
    layer->args.weights_out = NULL;
    layer->args.ids = ids;
    layer->args.weights = weights;
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

/* ---- absent -------------------------------------------------------------------------------------------- */

static void an_absent_rank(moxie_comm *(*over)(moxie_comm *, moxie_error *), int32_t ranks, bool mixed)
{
    test_layer layer;
    moxie_slot_map map;
    test_rank_result results[TEST_MAX_RANKS];
    make_layer(&layer, 26401, 0);
    test_ranks_spec spec = any_spec(&layer, 3, ranks, &map);
    spec.over = over;
    spec.absent = ranks;
    spec.deadline_ms = 2000;
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
    an_absent_rank(NULL, 2, true);
    an_absent_rank(NULL, 2, false);
}

static void a_rank_that_leaves_nccl_is_named(void **state)
{
    (void)state;
    if (devices < 2 || !has_nccl())
        skip();
    an_absent_rank(over_nccl, 2, false);
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
    nccl.device = names[nccl.rank % devices];
    nccl.file = file;
    options.deadline_ms = KILLED_DEADLINE;
    spec.runs = 1;
    moxie_status status = moxie_comm_nccl_create(&nccl, &options, &comm, &error);
    for (int i = 0; status == MOXIE_OK; i++) {
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
        cmocka_unit_test(local_ranks_on_devices),
        cmocka_unit_test(ranks_on_the_host_and_on_devices),
        cmocka_unit_test(a_rank_that_leaves_is_named),
        cmocka_unit_test(a_rank_that_leaves_nccl_is_named),
        cmocka_unit_test(a_killed_process_does_not_hang_the_others),
    };
    const int skipped = find_devices();
    if (skipped != 0)
        return skipped;
    if (argc == 4)
        return run_until_failure(argv[1], argv[2], argv[3]);
    print_message("%d device(s)\n", (int)devices);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
