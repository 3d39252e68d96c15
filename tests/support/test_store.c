/* SPDX-License-Identifier: Apache-2.0
 *
 * test_store.c - expert files of random layers (test_store.h).
 */
#include "test_store.h"

#include <dirent.h>
#include <unistd.h>

#include "layer/weights/layer.h"
#include "store/store.h"

void test_store_folder(char folder[64])
{
    snprintf(folder, 64, "/tmp/moxie-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
}

void test_store_remove(const char *folder)
{
    DIR *stream = opendir(folder);
    const struct dirent *entry;
    assert_non_null(stream);
    while ((entry = readdir(stream)) != NULL) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.')
            assert_int_equal(unlink(path), 0);
    }
    closedir(stream);
    assert_int_equal(rmdir(folder), 0);
}

char test_store_rank_folders[TEST_STORE_RANKS][64];

int test_store_begin_ranks(void **state)
{
    (void)state;
    for (int r = 0; r < TEST_STORE_RANKS; r++)
        test_store_folder(test_store_rank_folders[r]);
    return 0;
}

int test_store_end_ranks(void **state)
{
    (void)state;
    for (int r = 0; r < TEST_STORE_RANKS; r++)
        test_store_remove(test_store_rank_folders[r]);
    return 0;
}

bool test_store_fits(const test_layer *t)
{
    return t->config.routing.select != MOXIE_SELECT_CUSTOM && t->config.tp_size <= 1;
}

void test_store_make(test_layer *t, uint64_t seed, const test_layer_limits *limits)
{
    for (uint64_t more = 0;; more++) {
        test_rng rng = { test_seed(seed) + more };
        test_layer_make(t, &rng, limits);
        if (test_store_fits(t))
            return;
        test_layer_free(t);
    }
}

void test_store_write(const char *folder, int64_t number, const test_layer *t, const char *target)
{
    moxie_expert_writer_options options = MOXIE_EXPERT_WRITER_OPTIONS_INIT;
    const moxie_layer_config *c = &t->config;
    moxie_expert_writer *writer = NULL;
    int32_t local[MOXIE_MAX_EXPERTS], count;
    char path[128];
    moxie_error error;
    snprintf(path, sizeof path, "%s/layer-%lld.moxie", folder, (long long)number);
    options.target = target;
    options.layer = number;
    assert_ok(moxie_expert_writer_open(path, c, &t->weights, &options, &writer, &error), &error);
    assert_ok(moxie_expert_map((moxie_expert_map_kind)c->ep_map, (int32_t)c->experts, c->ep_size > 1 ? c->ep_size : 1,
                               c->ep_rank, local, &count, &error),
              &error);
    for (int64_t e = 0; e < c->experts; e++)
        if (local[e] >= 0)
            assert_ok(moxie_expert_writer_put(writer, e, 1, &error), &error);
    assert_ok(moxie_expert_writer_finish(writer, &error), &error);
}

bool test_store_has_layouts(const char *folder, int64_t number, const test_layer *t, const moxie_options *options)
{
    moxie_expert_file *file = NULL;
    moxie_layer *layer = NULL;
    char path[128];
    moxie_error error;
    snprintf(path, sizeof path, "%s/layer-%lld.moxie", folder, (long long)number);
    assert_ok(moxie_expert_file_open(path, NULL, &file, &error), &error);
    const bool same = moxie_layer_open_file(file, NULL, options, &layer, &error) == MOXIE_OK &&
                      layer->layouts[MOX_ROUTED] == t->built->layouts[MOX_ROUTED] &&
                      layer->layouts[MOX_SHARED_EXPERT] == t->built->layouts[MOX_SHARED_EXPERT];
    moxie_layer_destroy(layer);
    moxie_expert_file_close(file);
    return same;
}

moxie_run_args test_store_args(const moxie_run_args *from, const int32_t *ids, const float *weights, void *output)
{
    moxie_run_args args = *from;
    args.ids = ids;
    args.weights = weights;
    args.padding = NULL;
    args.bias_choice = NULL;
    args.ids_out = NULL;
    args.weights_out = args.logits_out = NULL;
    args.output = output;
    return args;
}

int32_t *test_store_choose(test_layer *t, uint64_t seed)
{
    const size_t choices = (size_t)(t->args.tokens * t->config.top_k);
    int32_t *ids = test_layer_own(t, choices * sizeof *ids);
    float *weights = test_layer_own(t, choices * sizeof *weights);
    test_rng rng = { seed };
    for (size_t i = 0; i < choices; i++) {
        ids[i] = (int32_t)test_below(&rng, (uint64_t)t->config.experts + 1) - 1;
        weights[i] = test_uniform(&rng);
    }
    t->args = test_store_args(&t->args, ids, weights, t->args.output);
    return ids;
}

uint64_t test_store_budget(const char *folder, int64_t slots, int64_t reads)
{
    DIR *stream = opendir(folder);
    const struct dirent *entry;
    uint64_t record = 0, shared = 0, layers = 0;
    assert_non_null(stream);
    while ((entry = readdir(stream)) != NULL) {
        moxie_expert_file_info info = MOXIE_EXPERT_FILE_INFO_INIT;
        moxie_expert_file *file = NULL;
        moxie_error error;
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (strstr(entry->d_name, ".moxie") == NULL)
            continue;
        assert_ok(moxie_expert_file_open(path, NULL, &file, &error), &error);
        assert_ok(moxie_expert_file_get_info(file, &info, &error), &error);
        const uint64_t padded = (info.record_bytes + 4095) / 4096 * 4096;
        record = padded > record ? padded : record;
        shared += (info.shared_bytes + 4095) / 4096 * 4096;
        layers++;
        moxie_expert_file_close(file);
    }
    closedir(stream);
    return shared + (layers * (uint64_t)slots + (uint64_t)reads) * record;
}

moxie_store *test_store_open(const char *folder, const moxie_store_options *options, const mox_reader_options *reader)
{
    moxie_store *store = NULL;
    moxie_error error;
    assert_ok(mox_store_open(&folder, 1, options, reader, &store, &error), &error);
    return store;
}

moxie_store_counters test_store_counters(moxie_store *store)
{
    moxie_store_counters c = MOXIE_STORE_COUNTERS_INIT;
    assert_int_equal(moxie_store_get_counters(store, -1, 0, &c, NULL), MOXIE_OK);
    return c;
}
