/* SPDX-License-Identifier: Apache-2.0
 *
 * test_store_ranks.c - stores with LoRA adapters, and stores of ranks: each rank reads its own experts when rows come
 * that need them. The output has the bytes of one rank with all experts in memory.
 *
 *     random layers, 2 to 4 ranks: sharded, replicated, scattered tokens; linear, round robin, slot maps with replicas
 *     files of all experts and files of a rank's own; a slot for each layer and two read buffers; several runs
 *
 * MOXIE_TEST_SEED repeats a layer, MOXIE_TEST_CONFIGS sets how many there are.
 */
#include "test_adapter_set.h"
#include "test_ranks.h"
#include "test_store.h"

#include <fcntl.h>
#include <unistd.h>

#include "store/expert_file.h"

enum { MAX_RANKS = 4 };

static moxie_store *stores[MAX_RANKS];
static bool shared_files; /* the first folder's files have all experts */
static int64_t waits, hits;

/* The layer of a rank, out of a store of its own with the fewest slots. */
static moxie_status open_rank(int32_t rank, const moxie_layer_config *config, const moxie_options *options,
                              moxie_layer **out, moxie_error *error)
{
    const char *folder = test_store_rank_folders[shared_files ? 0 : rank];
    moxie_store_options o = MOXIE_STORE_OPTIONS_INIT;
    o.ram_bytes = test_store_budget(folder, 1, 2);
    o.verify = 1;
    const moxie_status status = moxie_store_open(&folder, 1, &o, &stores[rank], error);
    return status == MOXIE_OK ? moxie_store_layer(stores[rank], 3, config, options, out, error) : status;
}

static void close_stores(void)
{
    for (int r = 0; r < MAX_RANKS; r++) {
        moxie_store_counters c = MOXIE_STORE_COUNTERS_INIT;
        if (stores[r] != NULL && moxie_store_get_counters(stores[r], -1, 0, &c, NULL) == MOXIE_OK) {
            waits += c.waits;
            hits += c.hits;
            assert_int_equal(c.failed_reads, 0);
        }
        moxie_store_close(stores[r]);
        stores[r] = NULL;
    }
}

static void remove_files(void)
{
    char path[600];
    for (int r = 0; r < MAX_RANKS; r++) {
        snprintf(path, sizeof path, "%s/layer-3.moxie", test_store_rank_folders[r]);
        (void)unlink(path);
    }
}

/* Files of the layer for `spec`: one of all experts, or one for each rank. */
static void write_files(test_layer *layer, const test_ranks_spec *spec)
{
    const moxie_layer_config whole = layer->config;
    if (shared_files)
        test_store_write(test_store_rank_folders[0], 3, layer, "moxie-cpu");
    for (int32_t r = 0; r < spec->ranks && !shared_files; r++) {
        layer->config.ep_size = spec->ranks;
        layer->config.ep_rank = r;
        layer->config.ep_map = spec->ep_map;
        test_store_write(test_store_rank_folders[r], 3, layer, "moxie-cpu");
    }
    layer->config = whole;
}

/* The layer's plan with all experts in memory, and its output; *given are the adapters. */
static char *run_from_memory(test_layer *layer, const moxie_options *options, const test_adapter_set *adapters,
                             moxie_adapters **given)
{
    moxie_error error = { 0 };
    test_layer_plan(layer, options);
    if (adapters != NULL)
        assert_ok(test_adapter_set_give(adapters, layer->built, given, &error), &error);
    layer->args.adapters = *given;
    return test_layer_output(layer, layer->plan);
}

static uint64_t first_seed;
static int64_t config_count(void)
{
    first_seed = test_seed(30700);
    return test_env("MOXIE_TEST_CONFIGS", test_quick() || test_sanitized() || test_emulated() ? 12 : 120);
}

/* ---- adapters ---------------------------------------------------------------------------------------- */

static void compare_adapted(test_layer *layer, const moxie_options *options, const test_adapter_set *adapters)
{
    moxie_adapters *given = NULL, *stored = NULL;
    moxie_layer *opened = NULL;
    moxie_plan *plan = NULL;
    moxie_error error = { 0 };
    char *want = run_from_memory(layer, options, adapters, &given);
    assert_ok(open_rank(0, &layer->config, options, &opened, &error), &error);
    assert_ok(moxie_plan_create(opened, options, &plan, &error), &error);
    assert_ok(test_adapter_set_give(adapters, opened, &stored, &error), &error);
    test_layer_workspace(layer, plan);
    memset(layer->args.workspace, 0xee, layer->args.workspace_bytes);
    layer->args.adapters = stored;
    for (int i = 0; i < 2; i++) {
        char *got = test_layer_output(layer, plan);
        if (memcmp(got, want, test_layer_output_bytes(layer)) != 0)
            fail_msg("run %d with adapters differs: %s", i, layer->text);
        free(got);
    }
    free(want);
    moxie_adapters_destroy(stored);
    moxie_adapters_destroy(given);
    moxie_plan_destroy(plan);
    moxie_layer_destroy(opened);
    close_stores();
}

static void test_adapters(void **state)
{
    (void)state;
    const int64_t configs = config_count();
    waits = hits = 0;
    for (int64_t i = 0; i < configs; i++) {
        const test_layer_limits limits = { .tokens = -1, .largest = 80, .rounds = true, .no_parallel = i % 2 == 0 };
        test_adapter_set adapters;
        test_layer layer;
        moxie_options options = MOXIE_OPTIONS_INIT;
        test_store_make(&layer, first_seed + 1000 * (uint64_t)i, &limits);
        test_rng rng = { first_seed + (uint64_t)i };
        test_adapter_set_assign(&adapters, &layer, &rng);
        options.backend = MOXIE_BACKEND_CPU;
        options.max_adapter_rank = adapters.max_rank;
        options.max_tokens = test_below(&rng, 3) == 0 ? layer.args.tokens + 1 : 0;
        shared_files = true;
        test_store_write(test_store_rank_folders[0], 3, &layer, "moxie-cpu");
        compare_adapted(&layer, &options, &adapters);
        test_adapter_set_free(&adapters);
        test_layer_free(&layer);
        remove_files();
    }
    assert_true(waits > 0);
}

/* ---- ranks --------------------------------------------------------------------------------------------- */

static test_ranks_spec any_spec(test_layer *layer, test_rng *rng, moxie_slot_map *map)
{
    test_ranks_spec spec = { .ranks = (int32_t)test_range(rng, 2, MAX_RANKS),
                             .ep_map = (int32_t)test_below(rng, 2),
                             .layout = (moxie_token_layout)test_below(rng, 3),
                             .chunk = test_below(rng, 2) == 0 ? 0 : test_range(rng, 1, 5),
                             .runs = test_below(rng, 2) == 0 ? 2 : 1,
                             .options = MOXIE_OPTIONS_INIT,
                             .open = open_rank };
    spec.options.backend = MOXIE_BACKEND_CPU;
    test_ranks_cut(&spec, rng, layer->args.tokens);
    if (test_below(rng, 3) == 0)
        spec.options.exchange_capacity = test_ranks_own(&spec, layer->args.tokens) + (int64_t)test_below(rng, 3);
    *map = test_ranks_map(layer, rng, spec.ranks);
    shared_files = test_below(rng, 2) == 0;
    if (shared_files && test_below(rng, 2) == 0)
        spec.map = map;
    return spec;
}

static void compare_ranks(test_layer *layer, test_ranks_spec *spec)
{
    test_rank_result results[TEST_MAX_RANKS];
    moxie_adapters *given = NULL;
    moxie_options options = spec->options;
    options.max_tokens = layer->args.tokens + 1;
    char *want = run_from_memory(layer, &options, spec->adapters, &given);
    char *got = calloc(test_layer_output_bytes(layer) + 1, 1);
    const moxie_status status = test_ranks_run(layer, spec, got, results);
    for (int32_t r = 0; r < spec->ranks && status != MOXIE_OK; r++)
        print_error("rank %d: %s: %s\n", (int)r, moxie_status_name(results[r].status), results[r].error.text);
    if (status != MOXIE_OK || memcmp(got, want, test_layer_output_bytes(layer)) != 0)
        fail_msg("%d ranks, layout %d, %s files%s, capacity %lld: %s: %s", (int)spec->ranks, (int)spec->layout,
                 shared_files ? "shared" : "own", spec->map != NULL ? ", slot map" : "",
                 (long long)spec->options.exchange_capacity, status == MOXIE_OK ? "other bytes" : "failed",
                 layer->text);
    free(want);
    free(got);
    moxie_adapters_destroy(given);
    close_stores();
}

static void test_ranks(void **state)
{
    (void)state;
    const int64_t configs = config_count();
    waits = hits = 0;
    for (int64_t i = 0; i < configs; i++) {
        const bool sharded = i % 3 == 0;
        const test_layer_limits limits = {
            .tokens = -1, .largest = 80, .rounds = true, .no_parallel = true, .plain_routing = sharded
        };
        test_layer layer;
        moxie_slot_map map;
        test_adapter_set adapters = { .max_rank = 0 };
        test_store_make(&layer, first_seed + 500 + 1000 * (uint64_t)i, &limits);
        test_rng rng = { first_seed + 7 * (uint64_t)i };
        test_ranks_spec spec = any_spec(&layer, &rng, &map);
        if (!sharded && spec.layout == MOXIE_TOKENS_SHARDED)
            spec.layout = MOXIE_TOKENS_REPLICATED;
        if (test_below(&rng, 3) == 0) {
            test_adapter_set_assign(&adapters, &layer, &rng);
            spec.adapters = &adapters;
            spec.options.max_adapter_rank = adapters.max_rank;
        }
        write_files(&layer, &spec);
        compare_ranks(&layer, &spec);
        test_adapter_set_free(&adapters);
        test_layer_free(&layer);
        remove_files();
    }
    assert_true(waits > 0 && hits > 0);
}

/* Changes a byte in each routed record of a rank's file. */
static void damage_records(int32_t rank)
{
    char path[600];
    moxie_expert_file *file = NULL;
    moxie_error error;
    snprintf(path, sizeof path, "%s/layer-3.moxie", test_store_rank_folders[rank]);
    assert_ok(moxie_expert_file_open(path, NULL, &file, &error), &error);
    const int fd = open(path, O_RDWR);
    for (int64_t e = 0; e < file->header.experts; e++) {
        const mox_expert_range *range = &mox_expert_entry_of(file, e)->range;
        const int64_t at = (int64_t)(range->offset + range->bytes / 2);
        uint8_t byte;
        if (range->bytes == 0)
            continue;
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 0x40;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    close(fd);
    moxie_expert_file_close(file);
}

/* A rank that reads a damaged record fails and names it; the others say that a rank gave up. */
static void test_damage(void **state)
{
    (void)state;
    enum { RANKS = 3, DAMAGED = 1 };
    const test_layer_limits limits = {
        .tokens = 40, .experts = 12, .top_k = 4, .largest = 64, .no_parallel = true, .plain_routing = true
    };
    test_rank_result results[TEST_MAX_RANKS];
    test_layer layer;
    test_ranks_spec spec = {
        .ranks = RANKS, .layout = MOXIE_TOKENS_REPLICATED, .options = MOXIE_OPTIONS_INIT, .open = open_rank
    };
    spec.options.backend = MOXIE_BACKEND_CPU;
    test_store_make(&layer, 30900, &limits);
    char *output = calloc(test_layer_output_bytes(&layer) + 1, 1);
    shared_files = false;
    write_files(&layer, &spec);
    damage_records(DAMAGED);
    assert_int_not_equal(test_ranks_run(&layer, &spec, output, results), MOXIE_OK);
    for (int r = 0; r < RANKS; r++) {
        assert_int_not_equal(results[r].status, MOXIE_OK);
        if (strstr(results[r].error.text, r == DAMAGED ? "the record of layer 3, expert " : " gave up") == NULL)
            fail_msg("rank %d: %s", r, results[r].error.text);
    }
    for (int r = 0; r < MAX_RANKS; r++) {
        moxie_store_close(stores[r]);
        stores[r] = NULL;
    }
    free(output);
    test_layer_free(&layer);
    remove_files();
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_adapters), cmocka_unit_test(test_ranks),
                                        cmocka_unit_test(test_damage) };
    return cmocka_run_group_tests(tests, test_store_begin_ranks, test_store_end_ranks);
}
