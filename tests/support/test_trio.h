/* SPDX-License-Identifier: Apache-2.0
 *
 * test_trio.h - one random layer three times: all on the GPU, all on the CPU, and in a store whose CPU computes experts
 * where they lie. Its files are layer 7 of two folders. With the launch table of test_cuda_table.h.
 */
#ifndef TEST_TRIO_H
#define TEST_TRIO_H

#include "test_store_gpu.h"

/* Folders of the files for either processor. */
extern char test_trio_gpu[64], test_trio_cpu[64];
/* Makes the folders and, without a GPU, the launch table of a card `preset`: "sm_80" or "sm_90". */
int test_trio_begin(void **state, const char *preset);
int test_trio_end(void **state);

typedef struct test_trio {
    test_layer t; /* t.plan: all on the GPU */
    moxie_expert_file *file;
    moxie_layer *cpu_layer;
    moxie_plan *cpu;
    void *cpu_space, *gpu_space;
    uint64_t cpu_bytes, gpu_bytes;
    moxie_store *store;
    moxie_layer *layer;
    moxie_plan *plan;
    int32_t *ids;
} test_trio;

moxie_options test_trio_options(int32_t backend);
/* Makes the layer, its files, both plans, and random ids. `target`: of the GPU. False for a layer that a store on a GPU
 * cannot have. test_trio_free() in any case. */
bool test_trio_make(test_trio *x, uint64_t seed, const test_layer_limits *limits, const char *target);
void test_trio_free(test_trio *x);
/* Bytes of a record in a folder. */
uint64_t test_trio_record(const char *folder, uint64_t align);
/* So many slots on the GPU, and in RAM for the CPU. */
moxie_store_options test_trio_store(const test_trio *x, int64_t slots, int64_t ram_slots);
/* The store, its layer and plan, and a workspace for it. */
void test_trio_open(test_trio *x, const moxie_store_options *options);
void test_trio_close(test_trio *x);
/* A run of the store's plan; the caller frees the output. */
void *test_trio_output(test_trio *x, int64_t tokens);

#endif
