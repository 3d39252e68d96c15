/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_features.c - the feature flags of each compute capability, and the presets for plans without a GPU.
 */
#include "cuda/cuda_features.h"

#include <stdio.h>
#include <string.h>

typedef struct flag {
    const char *name;
    int32_t first, last; /* first and last compute capability that have it */
} flag;

/* By bit. */
static const flag flags_by_bit[] = {
    { "mma_bf16", 80, INT32_MAX },  { "mma_fp8", 89, INT32_MAX }, { "bulk_copy", 90, INT32_MAX },
    { "dependent", 90, INT32_MAX }, { "wgmma", 90, 90 },
};

enum { FLAGS = sizeof flags_by_bit / sizeof flags_by_bit[0] };

uint32_t mox_cuda_flags_of(int32_t sm)
{
    uint32_t flags = 0;
    for (int i = 0; i < FLAGS; i++)
        if (sm >= flags_by_bit[i].first && sm <= flags_by_bit[i].last)
            flags |= 1u << i;
    return flags;
}

const char *mox_cuda_flag_names(uint32_t flags, char *buffer, uint64_t size)
{
    uint64_t used = 0;
    buffer[0] = '\0';
    for (int i = 0; i < FLAGS; i++)
        if (flags >> i & 1) {
            const int n = snprintf(buffer + used, size - used, "%s%s", used > 0 ? " " : "", flags_by_bit[i].name);
            if (n < 0 || (uint64_t)n >= size - used)
                break;
            used += (uint64_t)n;
        }
    return buffer;
}

bool mox_cuda_preset(const char *name, mox_cuda_features *out)
{
    static const mox_cuda_features presets[] = {
        { .name = "sm_80",
          .sm = 80,
          .multiprocessors = 108,
          .shared_bytes = 166912,
          .l2_bytes = 40u << 20,
          .memory_bytes = UINT64_C(80) << 30 },
        { .name = "sm_86",
          .sm = 86,
          .multiprocessors = 72,
          .shared_bytes = 101376,
          .l2_bytes = 6u << 20,
          .memory_bytes = UINT64_C(24) << 30 },
        { .name = "sm_89",
          .sm = 89,
          .multiprocessors = 142,
          .shared_bytes = 101376,
          .l2_bytes = 96u << 20,
          .memory_bytes = UINT64_C(48) << 30 },
        { .name = "sm_90",
          .sm = 90,
          .multiprocessors = 132,
          .shared_bytes = 232448,
          .l2_bytes = 50u << 20,
          .memory_bytes = UINT64_C(141) << 30 },
        { .name = "sm_100",
          .sm = 100,
          .multiprocessors = 148,
          .shared_bytes = 232448,
          .l2_bytes = 126u << 20,
          .memory_bytes = UINT64_C(180) << 30 },
        { .name = "sm_120",
          .sm = 120,
          .multiprocessors = 170,
          .shared_bytes = 101376,
          .l2_bytes = 96u << 20,
          .memory_bytes = UINT64_C(32) << 30 },
    };
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++)
        if (strcmp(presets[i].name, name) == 0) {
            *out = presets[i];
            out->flags = mox_cuda_flags_of(out->sm);
            return true;
        }
    return false;
}

const char *mox_cuda_preset_names(void)
{
    return "sm_80, sm_86, sm_89, sm_90, sm_100, sm_120";
}
