/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_features.h - what a GPU can do, as feature flags. A kernel asks for flags, never for an architecture's number,
 * so it runs on every GPU that has the instructions it uses. Plain C: a preset ("sm_90") has the same flags as the
 * device itself, so a plan can be explained on a machine without a GPU.
 *
 *     flag       first    what it is
 *     mma_bf16   sm_80    mma.sync of bf16, cp.async: every device that moxie supports
 *     mma_fp8    sm_89    mma.sync of FP8
 *     bulk_copy  sm_90    cp.async.bulk with mbarriers, contiguous memory in units of 16 bytes
 *     dependent  sm_90    programmatic dependent launch (griddepcontrol)
 *     wgmma      sm_90    warpgroup MMA: sm_90 only, later generations replace it
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
    int32_t sm;    /* 10 * major + minor: for messages, and to find `flags` */
    uint32_t flags;
    int32_t multiprocessors;
    int64_t shared_bytes; /* shared memory that one block may use */
    uint64_t l2_bytes, memory_bytes;
} mox_cuda_features;

/* The flags of compute capability `sm`. Immutable. */
uint32_t mox_cuda_flags_of(int32_t sm);
/* "mma_bf16 bulk_copy": the names of `flags`, space separated. Returns `buffer`. */
const char *mox_cuda_flag_names(uint32_t flags, char *buffer, uint64_t size);
/* A preset by name, as the usual chip of that kind: "sm_80" (A100), "sm_86" (A10), "sm_89" (L40S), "sm_90" (H200),
 * "sm_100" (B200), "sm_120" (RTX 5090). False when there is no such preset. Immutable. */
bool mox_cuda_preset(const char *name, mox_cuda_features *out);
/* Names of all presets, comma separated. Immutable. */
const char *mox_cuda_preset_names(void);

#endif
