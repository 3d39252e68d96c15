/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_levels_avx2.c - the variants of kernels avx2_fma, avx2_block_int8 and avx2_block_bytes for the rows of
 * block_levels.def (panel_levels_avx2.h). expert_gemm_avx2.c calls them.
 */
#include "cpu/expert_gemm/avx2/avx2_plan.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "cpu/expert_gemm/avx2/panel_levels_avx2.h"
#include "format/block_rows.h"

/* Fields that stand for a row: signed levels of so many bits, without minimums. */
#define MOX_BLOCK_LEVELS(id, type, d_at, run_cols, width)                                                              \
    static const mox_block_fields fields_##id = {                                                                      \
        .low = { 0, width, 1 }, .m_at = -1, .run = run_cols, .levels = MOX_BYTES_LEVELS                                \
    };                                                                                                                 \
    static __attribute__((noinline)) void half_##id(const mox_ymm_job *j, int p, int64_t step, int half, __m256i w[8], \
                                                    __m256 scale[2])                                                   \
    {                                                                                                                  \
        mox_levels_half(mox_block_##id##_step, MOX_WEIGHTS_##id, MOX_BYTES_##id, j, p, step, half, w, scale);          \
    }                                                                                                                  \
    static void expand_##id(const mox_ymm_job *j, int p, const mox_ymm_pos *start, int64_t count)                      \
    {                                                                                                                  \
        mox_levels_expand(half_##id, j, p, start->step, count);                                                        \
    }                                                                                                                  \
    static void expand_bytes_##id(const mox_ymm_job *j, int p, int64_t first, int64_t count)                           \
    {                                                                                                                  \
        mox_levels_expand_bytes(half_##id, 32 / run_cols, j, p, first, count);                                         \
    }                                                                                                                  \
    static void float_step_##id(const mox_ymm_job *j, const mox_ymm_pos *at, int p, int64_t row)                       \
    {                                                                                                                  \
        mox_levels_float_step(half_##id, j, at, p, row);                                                               \
    }                                                                                                                  \
    static void bytes_##id(const mox_ymm_job *j, bool floats)                                                          \
    {                                                                                                                  \
        static const mox_bytes_type ways = { expand_bytes_##id, float_step_##id };                                     \
        mox_bytes_wide(&fields_##id, &ways, j, floats);                                                                \
    }
#include "format/block_levels.def"
#undef MOX_BLOCK_LEVELS

typedef struct levels_variant {
    mox_ymm_block_variant floats;
    mox_ymm_block_bytes_fn bytes;
} levels_variant;

#define MOX_BLOCK_LEVELS(id, type, ...) { { .element = MOX_BLOCK_DTYPE + type, .expand = expand_##id }, bytes_##id },
static const levels_variant variants[] = {
#include "format/block_levels.def"
};
#undef MOX_BLOCK_LEVELS

static const levels_variant *find(moxie_dtype element)
{
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++)
        if (variants[i].floats.element == element)
            return &variants[i];
    return NULL;
}

const mox_ymm_block_variant *mox_ymm_levels_variant_of(moxie_dtype element)
{
    const levels_variant *v = find(element);
    return v != NULL ? &v->floats : NULL;
}

mox_ymm_block_bytes_fn mox_ymm_levels_bytes_of(moxie_dtype element)
{
    const levels_variant *v = find(element);
    return v != NULL ? v->bytes : NULL;
}

#endif
