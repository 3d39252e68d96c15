/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_features.h - what a GPU can do, as words. Rows of kernel lists ask for words, never for an architecture's
 * number, so that a row runs on every GPU that has what it uses. Plain C: a preset ("sm_90") has the same words as the
 * device itself, and a plan can be explained where there is no GPU.
 *
 *     word       first    what it is
 *     mma_bf16   sm_80    mma.sync of bf16, cp.async: every device that moxie runs on
 *     mma_fp8    sm_89    mma.sync of FP8
 *     bulk_copy  sm_90    cp.async.bulk with mbarriers, 16-byte pieces of contiguous memory
 *     dependent  sm_90    programmatic dependent launch (griddepcontrol)
 *     wgmma      sm_90    warpgroup MMA: sm_90 alone; its successors have another instruction
 */
#ifndef MOX_CUDA_CUDA_FEATURES_H
#define MOX_CUDA_CUDA_FEATURES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum {
    MOX_CUDA_MMA_BF16 = 1 << 0,
    MOX_CUDA_MMA_FP8 = 1 << 1,
    MOX_CUDA_BULK_COPY = 1 << 2,
    MOX_CUDA_DEPENDENT = 1 << 3,
    MOX_CUDA_WGMMA = 1 << 4,
    MOX_CUDA_HOPPER = MOX_CUDA_WGMMA | MOX_CUDA_BULK_COPY | MOX_CUDA_DEPENDENT
};

typedef struct mox_cuda_features {
    char name[64]; /* "NVIDIA H200", or "sm_90" of a preset */
    int32_t sm;    /* 10 * major + minor: for people, and for `words` */
    uint32_t words;
    int32_t multiprocessors;
    int64_t shared_bytes; /* that a block may ask for */
    uint64_t l2_bytes, memory_bytes;
} mox_cuda_features;

/* The words of compute capability `sm`. Immutable. */
uint32_t mox_cuda_words_of(int32_t sm);
/* "mma_bf16 bulk_copy": the names of `words`, space separated. Returns `buffer`. */
const char *mox_cuda_word_names(uint32_t words, char *buffer, uint64_t size);
/* A preset by name: "sm_80", "sm_90", "sm_100", as the usual chip of that kind (A100, H200, B200). False when `name` is
 * none. Immutable. */
bool mox_cuda_preset(const char *name, mox_cuda_features *out);
/* Names of all presets, comma separated. Immutable. */
const char *mox_cuda_preset_names(void);

#endif
