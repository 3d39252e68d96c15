/* SPDX-License-Identifier: Apache-2.0
 *
 * test_store_gpu.h - a layer whose experts a store copies to the GPU when they are needed: its folder, options, store
 * and plan. Without a GPU on the launch table of test_cuda_table.h.
 * MOXIE_TEST_GPU=sm90 or sm80: on the GPU that is there, with the kernels of such cards.
 */
#ifndef TEST_STORE_GPU_H
#define TEST_STORE_GPU_H

#include "test_cuda_table.h"
#include "test_store.h"

/* The files are layer 7 of this folder. */
extern char test_store_gpu_folder[64];
/* MOXIE_TEST_GPU; NULL: there is no GPU. */
const char *test_store_on_gpu(void);
/* Makes the folder and, without a GPU, the launch table of a card `preset`: "sm_80" or "sm_90". */
int test_store_gpu_begin(void **state, const char *preset);
int test_store_gpu_end(void **state);
/* The target of expert files for the GPU, or else for `preset`. */
const char *test_store_gpu_target(const char *preset);
/* Mode fast on the GPU. */
moxie_options test_store_gpu_options(void);
/* A store with so many slots and buffers on the GPU, and slots in RAM. */
moxie_store_options test_store_gpu_store(int64_t slots, int32_t buffers, int64_t ram_slots);

/* Whether a file for `target` and a store can have the layer: writes the file, and makes the plan of the layer that is
 * all on the GPU. */
bool test_store_gpu_fits(test_layer *t, const moxie_options *options, const char *target);

typedef struct test_store_opened {
    moxie_store *store;
    moxie_layer *layer;
    moxie_plan *plan;
} test_store_opened;
/* The store's streams may be late (test_late.h), those of runs are not. */
void test_store_gpu_open(test_layer *t, const moxie_store_options *store, const moxie_options *options,
                         test_store_opened *out);
void test_store_gpu_close(test_store_opened *o);
/* The output of a run; the caller frees it. */
void *test_store_gpu_output(test_layer *t, moxie_plan *plan, int64_t tokens);
/* A check follows the stages of the layer with all experts on the GPU, then compares a run of the store. */
void test_store_gpu_check(test_layer *t, moxie_plan *plan);

#endif
