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
/* The same for `count` folders. */
void test_store_folders(char (*folders)[64], int count);
void test_store_remove_all(char (*folders)[64], int count);
/* Whether an expert file can hold the layer. */
bool test_store_fits(const test_layer *t);
/* The first layer from `seed` on that a file can hold. */
void test_store_make(test_layer *t, uint64_t seed, const test_layer_limits *limits);
/* Writes FOLDER/layer-NUMBER.moxie. */
void test_store_write(const char *folder, int64_t number, const test_layer *t, const char *target);
/* The budget of a store of these files with so many slots for each layer, and so many buffers for reads. */
uint64_t test_store_budget(const char *folder, int64_t slots, int64_t reads);
/* Opens the folder; options->ram_bytes is set. `reader` may be NULL. A failure fails the test. */
moxie_store *test_store_open(const char *folder, const moxie_store_options *options, const mox_reader_options *reader);

#endif
