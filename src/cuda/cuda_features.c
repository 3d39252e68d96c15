/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_features.c - words of a compute capability, and the presets for plans without a GPU.
 */
#include "cuda/cuda_features.h"

#include <stdio.h>
#include <string.h>

typedef struct word {
    const char *name;
    int32_t first, last; /* compute capabilities that have it */
} word;

/* By bit. */
static const word words_by_bit[] = {
    { "mma_bf16", 80, INT32_MAX },  { "mma_fp8", 89, INT32_MAX }, { "bulk_copy", 90, INT32_MAX },
    { "dependent", 90, INT32_MAX }, { "wgmma", 90, 90 },
};

enum { WORDS = sizeof words_by_bit / sizeof words_by_bit[0] };

uint32_t mox_cuda_words_of(int32_t sm)
{
    uint32_t words = 0;
    for (int i = 0; i < WORDS; i++)
        if (sm >= words_by_bit[i].first && sm <= words_by_bit[i].last)
            words |= 1u << i;
    return words;
}

const char *mox_cuda_word_names(uint32_t words, char *buffer, uint64_t size)
{
    uint64_t used = 0;
    buffer[0] = '\0';
    for (int i = 0; i < WORDS; i++)
        if (words >> i & 1) {
            const int n = snprintf(buffer + used, size - used, "%s%s", used > 0 ? " " : "", words_by_bit[i].name);
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
    };
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++)
        if (strcmp(presets[i].name, name) == 0) {
            *out = presets[i];
            out->words = mox_cuda_words_of(out->sm);
            return true;
        }
    return false;
}

const char *mox_cuda_preset_names(void)
{
    return "sm_80, sm_90, sm_100";
}
