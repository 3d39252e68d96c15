/* SPDX-License-Identifier: Apache-2.0
 *
 * random_layers.h - walks of random layers through the cuda back end, each compared with the oracle; and how often
 * each kernel was chosen.
 *
 * MOXIE_TEST_CONFIGS sets the number of random layers of each kind (CONFIGS, in a quick run QUICK_CONFIGS; gpu-check
 * has thousands on a GPU). MOXIE_TEST_SEED repeats one layer.
 */
#ifndef TEST_RANDOM_LAYERS_H
#define TEST_RANDOM_LAYERS_H

#include <stdlib.h>
#include <string.h>

#include "cuda/expert_gemm/cuda_expert_gemm.h"
#include "test_cuda_table.h"
#include "test_layer.h"

/* The emulator takes a second for what a GPU does in a millisecond; MOXIE_TEST_ALL=1 takes all cases on it, too. */
#ifdef MOX_TEST_EMULATED
enum { CONFIGS = 9, QUICK_CONFIGS = 6, EXPERTS = 1, EMULATED = 1 };
#else
enum { CONFIGS = 60, QUICK_CONFIGS = 30, EXPERTS = 3, EMULATED = 0 };
#endif

/* Is the run quick, or on the emulator without MOXIE_TEST_ALL? */
bool few_cases(void);
int64_t random_configs(void); /* layers of a kind */

/* How often each kernel was chosen since the last memset. */
extern int times_chosen[MOX_CUDA_ROWS_expert_gemm];

/* NULL, or a text that says what is wrong. */
const char *check_layer(test_layer *layer, moxie_mode mode, moxie_error *error);

void walk_layers(const test_layer_limits *limits, uint64_t first, int64_t configs, moxie_mode mode);

/* Tests of the kernels on layouts of tiles run once for each set of them: their state is a device, on which the set's
 * kernels are the best. */
const char *set_device(void **state);

/* Random layers for the device's kernels that read `layout`, one of tiles. Most layers are such that the kernels accept
 * them.
 * `kinds`: the kinds of activations whose kernels must be chosen in six layers; where a seed's layers choose one too
 * seldom, more layers follow, up to eight times as many. */
void walk_tiles(const char *device, const test_layer_limits *limits, uint64_t first, moxie_mode mode,
                const char *layout, uint32_t kinds);

/* Checks the layer; if `wanted`, kernels of the device's set must compute both products. They decode the weights,
 * except where both weights and activations are integers. */
void check_decoded(const char *device, test_layer *layer, moxie_mode mode, bool wanted, uint64_t seed);

/* A test for each set of kernels on tiles. */
#define ON(test, device)                                                                                               \
    {                                                                                                                  \
#test " " device, test, test_cuda_begin, test_cuda_end, (void *)(uintptr_t)device                              \
    }
#define ON_BOTH(test) ON(test, "sm_90"), ON(test, "sm_80")

#endif
