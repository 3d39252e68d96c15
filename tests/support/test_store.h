/* SPDX-License-Identifier: Apache-2.0
 *
 * test_store.h - folders of expert files of random layers, and stores of them.
 */
#ifndef TEST_STORE_H
#define TEST_STORE_H

#include "test_layer.h"

#include <moxie/moxie_store.h>

#include "store/record_reader.h"

/* A new folder under /tmp, and the way to remove it with its files. */
void test_store_folder(char folder[64]);
void test_store_remove(const char *folder);
/* A folder for each rank: setup and teardown of a group of tests. */
enum { TEST_STORE_RANKS = 8 };
extern char test_store_rank_folders[TEST_STORE_RANKS][64];
int test_store_begin_ranks(void **state);
int test_store_end_ranks(void **state);
/* Whether an expert file can hold the layer. */
bool test_store_fits(const test_layer *t);
/* Limits of layers for single cases: 12 experts, 4 a token, nothing that a store treats in its own way. */
#define TEST_STORE_USUAL                                                                                               \
    .experts = 12, .top_k = 4, .largest = 64, .plain_routing = true, .plain_acts = true, .no_parallel = true
/* The first layer from `seed` on that a file can hold. */
void test_store_make(test_layer *t, uint64_t seed, const test_layer_limits *limits);
/* Writes FOLDER/layer-NUMBER.moxie. */
void test_store_write(const char *folder, int64_t number, const test_layer *t, const char *target);
/* Whether that file, opened with these options, has the layouts of the layer that test_layer_plan() built. */
bool test_store_has_layouts(const char *folder, int64_t number, const test_layer *t, const moxie_options *options);
/* Gives the layer's arguments ids and weights instead of a routing: random ones, some ids -1. Returns the ids. */
int32_t *test_store_choose(test_layer *t, uint64_t seed);
/* Arguments with these ids and weights instead, without results other than `output`. */
moxie_run_args test_store_args(const moxie_run_args *from, const int32_t *ids, const float *weights, void *output);
/* The budget of a store of these files with so many slots for each layer, and so many buffers for reads. */
uint64_t test_store_budget(const char *folder, int64_t slots, int64_t reads);
/* Opens the folder; options->ram_bytes is set. `reader` may be NULL. A failure fails the test. */
moxie_store *test_store_open(const char *folder, const moxie_store_options *options, const mox_reader_options *reader);

/* The counters of all layers together. */
moxie_store_counters test_store_counters(moxie_store *store);

#endif
