/* SPDX-License-Identifier: Apache-2.0
 *
 * test_expert_shares.c - expert files of tensor parallel shares: each rank has a file of its rows alone. The output has
 * the bytes of one rank that has the whole experts of the checkpoint.
 *
 *     random layers, tp_size 2 to 4, ep_size 1 or 2; sharded, replicated, scattered tokens; exact and fast mode
 *
 * MOXIE_TEST_SEED repeats a layer, MOXIE_TEST_CONFIGS sets how many there are.
 */
#include "test_cuda_table.h"
#include "test_ranks.h"
#include "test_store.h"

#include <unistd.h>

#include "layer/weights/layer.h"
#include "store/expert_file.h"

static moxie_expert_file *files[TEST_STORE_RANKS];

static char *path_of(int32_t rank, char path[600])
{
    snprintf(path, 600, "%s/layer-3.moxie", test_store_rank_folders[rank]);
    return path;
}

static moxie_status open_file(int32_t rank, moxie_error *error)
{
    moxie_expert_file_options options = MOXIE_EXPERT_FILE_OPTIONS_INIT;
    char path[600];
    options.verify = 1;
    return moxie_expert_file_open(path_of(rank, path), &options, &files[rank], error);
}

static moxie_status open_rank(int32_t rank, const moxie_layer_config *config, const moxie_options *options,
                              moxie_layer **out, moxie_error *error)
{
    const moxie_status status = open_file(rank, error);
    return status == MOXIE_OK ? moxie_layer_open_file(files[rank], config, options, out, error) : status;
}

static void remove_files(void)
{
    char path[600];
    for (int r = 0; r < TEST_STORE_RANKS; r++) {
        moxie_expert_file_close(files[r]);
        files[r] = NULL;
        (void)unlink(path_of(r, path));
    }
}

static void write_share_for(test_layer *layer, int32_t rank, const test_ranks_spec *spec, const char *target)
{
    const moxie_layer_config whole = layer->config;
    layer->config.ep_size = spec->ranks / spec->tp;
    layer->config.ep_rank = rank / spec->tp;
    layer->config.ep_map = spec->ep_map;
    layer->config.tp_size = spec->tp;
    layer->config.tp_rank = rank % spec->tp;
    test_store_write(test_store_rank_folders[rank], 3, layer, target);
    layer->config = whole;
}

static void write_share(test_layer *layer, int32_t rank, const test_ranks_spec *spec)
{
    write_share_for(layer, rank, spec, "moxie-cpu");
}

/* Puts an expert's own weights in its place once more: each file takes its rows of them. */
static void replace_expert(const test_layer *layer, const test_ranks_spec *spec)
{
    char path[600];
    moxie_error error;
    for (int32_t r = 0; r < spec->ranks; r++) {
        assert_ok(open_file(r, &error), &error);
        const bool held = mox_expert_entry_of(files[r], 0)->range.bytes != 0;
        moxie_expert_file_close(files[r]);
        files[r] = NULL;
        if (held)
            assert_ok(moxie_expert_file_replace(path_of(r, path), 0, &layer->weights.experts[0], 7, NULL, &error),
                      &error);
    }
}

static test_ranks_spec any_spec(const test_layer *layer, test_rng *rng)
{
    test_ranks_spec spec = { .tp = (int32_t)test_range(rng, 2, 4),
                             .ep_map = (int32_t)test_below(rng, 2),
                             .layout = (moxie_token_layout)test_below(rng, 3),
                             .options = MOXIE_OPTIONS_INIT,
                             .open = open_rank };
    spec.ranks = spec.tp * (layer->config.experts > 1 ? (int32_t)test_range(rng, 1, 2) : 1);
    spec.options.backend = MOXIE_BACKEND_CPU;
    spec.options.mode = test_below(rng, 3) == 0 ? MOXIE_MODE_FAST : MOXIE_MODE_EXACT;
    test_ranks_cut(&spec, rng, layer->args.tokens);
    return spec;
}

static void compare(test_layer *layer, test_ranks_spec *spec)
{
    test_rank_result results[TEST_MAX_RANKS];
    moxie_options options = spec->options;
    options.max_tokens = layer->args.tokens + 1;
    test_layer_plan(layer, &options);
    char *want = test_layer_output(layer, layer->plan);
    char *got = calloc(test_layer_output_bytes(layer) + 1, 1);
    const moxie_status status = test_ranks_run(layer, spec, got, results);
    for (int32_t r = 0; r < spec->ranks && status != MOXIE_OK; r++)
        print_error("rank %d: %s: %s\n", (int)r, moxie_status_name(results[r].status), results[r].error.text);
    if (status != MOXIE_OK || memcmp(got, want, test_layer_output_bytes(layer)) != 0)
        fail_msg("%d ranks, tp %d, layout %d: %s: %s", (int)spec->ranks, (int)spec->tp, (int)spec->layout,
                 status == MOXIE_OK ? "other bytes" : "failed", layer->text);
    free(want);
    free(got);
}

static void test_shares(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(31700);
    const int64_t configs =
        test_env("MOXIE_TEST_CONFIGS", test_quick() || test_sanitized() || test_emulated() ? 16 : 150);
    for (int64_t i = 0; i < configs; i++) {
        const bool sharded = i % 3 == 0;
        const test_layer_limits limits = {
            .tokens = -1, .largest = 160, .rounds = true, .no_parallel = true, .plain_routing = sharded
        };
        test_layer layer;
        test_store_make(&layer, seed + 1000 * (uint64_t)i, &limits);
        test_rng rng = { seed + 7 * (uint64_t)i };
        test_ranks_spec spec = any_spec(&layer, &rng);
        if (!sharded && spec.layout == MOXIE_TOKENS_SHARDED)
            spec.layout = MOXIE_TOKENS_REPLICATED;
        for (int32_t r = 0; r < spec.ranks; r++)
            write_share(&layer, r, &spec);
        if (i % 4 == 0)
            replace_expert(&layer, &spec);
        compare(&layer, &spec);
        test_layer_free(&layer);
        remove_files();
    }
}

/* ---- on a GPU (test_cuda_table.h stands for one) --------------------------------------------------------- */

/* The records of rank `rank` in device memory are those that a layer of the checkpoint packs there. */
static void compare_records(const test_layer *layer, int32_t rank, moxie_comm *comm)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_layer *opened = NULL, *packed = NULL;
    moxie_error error;
    options.backend = MOXIE_BACKEND_CUDA;
    options.comm = comm;
    assert_ok(open_rank(rank, NULL, &options, &opened, &error), &error);
    assert_ok(moxie_layer_create(moxie_expert_file_config(files[rank]), &options, &packed, &error), &error);
    assert_ok(moxie_layer_prepare(packed, &layer->weights, &options, &error), &error);
    assert_int_equal(opened->slots, packed->slots);
    for (int32_t s = 0; s < packed->slots; s++)
        assert_memory_equal(opened->records[s], packed->records[s], packed->record_bytes);
    assert_int_equal(opened->shared_bytes, packed->shared_bytes);
    if (packed->shared_record != NULL)
        assert_memory_equal(opened->shared_record, packed->shared_record, packed->shared_bytes);
    moxie_layer_destroy(opened);
    moxie_layer_destroy(packed);
}

static void test_device(void **state)
{
    (void)state;
    static const char *const devices[][2] = { { "sm_80", "moxie-sm80" }, { "sm_90", "moxie-sm90" } };
    const test_layer_limits limits = { .largest = 160, .decoded = true, .no_parallel = true, .plain_routing = true };
    const test_ranks_spec spec = { .ranks = 3, .tp = 3 };
    for (uint64_t seed = 0; seed < 16; seed++) {
        test_layer layer;
        moxie_comm *comms[3];
        moxie_error error;
        test_store_make(&layer, 32000 + 100 * seed, &limits);
        test_cuda_set_device(devices[seed % 2][0]);
        assert_ok(moxie_comm_local_create(spec.ranks, NULL, comms, &error), &error);
        for (int32_t r = 0; r < spec.ranks; r++) {
            write_share_for(&layer, r, &spec, devices[seed % 2][1]);
            compare_records(&layer, r, comms[r]);
            moxie_comm_destroy(comms[r]);
        }
        test_layer_free(&layer);
        remove_files();
    }
}

/* ---- one layer of two ranks ------------------------------------------------------------------------------ */

static const test_layer_limits even = { .tokens = 8,
                                        .experts = 4,
                                        .largest = 160,
                                        .no_parallel = true,
                                        .plain_routing = true,
                                        .plain_acts = true,
                                        .mma = true,
                                        .weight = NULL };

static moxie_expert_file_info info_of(int32_t rank)
{
    moxie_expert_file_info info = MOXIE_EXPERT_FILE_INFO_INIT;
    moxie_error error;
    assert_ok(open_file(rank, &error), &error);
    assert_ok(moxie_expert_file_get_info(files[rank], &info, &error), &error);
    return info;
}

/* A share has the bytes of its rows; where it does not fit it is refused in words. */
static void test_refusals(void **state)
{
    (void)state;
    const test_ranks_spec two = { .ranks = 2, .tp = 2 };
    test_layer_limits limits = even;
    test_layer layer;
    moxie_layer *opened = NULL;
    moxie_store *store = NULL;
    moxie_error error;
    moxie_options plain = MOXIE_OPTIONS_INIT;
    moxie_store_options budget = MOXIE_STORE_OPTIONS_INIT;
    const moxie_weights *weights = NULL;
    const char *folder = test_store_rank_folders[1];
    limits.weight = test_weight_quant_named("bf16");
    plain.backend = MOXIE_BACKEND_CPU;
    budget.ram_bytes = UINT64_C(1) << 30;
    uint64_t seed = 31900;
    test_layer_make_large(&layer, &limits, &seed); /* it has rows for both */
    for (; !test_store_fits(&layer); test_layer_make_large(&layer, &limits, &seed))
        test_layer_free(&layer);
    write_share(&layer, 0, &two);
    write_share(&layer, 1, &two);
    test_store_write(test_store_rank_folders[2], 3, &layer, "moxie-cpu");
    const uint64_t whole = info_of(2).record_bytes, parts = info_of(0).record_bytes + info_of(1).record_bytes;
    assert_true(parts < whole + whole / 4);
    assert_int_equal(moxie_expert_file_config(files[1])->tp_size, 2);
    assert_int_equal(moxie_expert_file_config(files[1])->tp_rank, 1);
    assert_int_equal(moxie_layer_open_file(files[1], NULL, &plain, &opened, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "rank 1 of 2, and options.comm is NULL"));
    moxie_layer_config other = *moxie_expert_file_config(files[1]);
    other.tp_rank = 0;
    assert_int_equal(moxie_layer_open_file(files[1], &other, &plain, &opened, &error), MOXIE_ERR_MISMATCH);
    assert_non_null(strstr(error.text, "rank 0 of 2, its records of rank 1 of 2"));
    assert_int_equal(moxie_layer_open_file(files[2], &other, &plain, &opened, &error), MOXIE_ERR_MISMATCH);
    assert_non_null(strstr(error.text, "which are whole experts"));
    assert_int_equal(moxie_expert_file_weights(files[1], NULL, &weights, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "tensor parallel rank 1 of 2"));
    assert_int_equal(moxie_store_open(&folder, 1, &budget, &store, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "a store reads whole experts"));
    test_layer_free(&layer);
    remove_files();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),
        cmocka_unit_test_setup_teardown(test_device, test_cuda_begin, test_cuda_end),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, test_store_begin_ranks, test_store_end_ranks);
}
