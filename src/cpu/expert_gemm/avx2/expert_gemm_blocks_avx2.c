/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_blocks_avx2.c - the variants of kernel avx2_fma for block types: one for each row of block_fields.def
 * (panel_block_avx2.h). expert_gemm_avx2.c calls them.
 */
#include "cpu/expert_gemm/avx2/avx2_plan.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "cpu/expert_gemm/avx2/panel_levels_avx2.h"
#include "format/block_rows.h"

#define MOX_BLOCK_FIELDS(id, ...)                                                                                      \
    static void one_##id(const mox_ymm_job *j)                                                                         \
    {                                                                                                                  \
        mox_ymm_block_narrow(&mox_fields_##id, MOX_WEIGHTS_##id, 1, j);                                                \
    }                                                                                                                  \
    static void two_##id(const mox_ymm_job *j)                                                                         \
    {                                                                                                                  \
        mox_ymm_block_narrow(&mox_fields_##id, MOX_WEIGHTS_##id, 2, j);                                                \
    }                                                                                                                  \
    static void expand_##id(const mox_ymm_job *j, int p, const mox_ymm_pos *start, int64_t count)                      \
    {                                                                                                                  \
        mox_ymm_block_expand(&mox_fields_##id, MOX_WEIGHTS_##id, j, p, start, count);                                  \
    }
#include "format/block_fields.def"
#undef MOX_BLOCK_FIELDS

#define MOX_BLOCK_FIELDS(id, type, ...) { MOX_BLOCK_DTYPE + type, one_##id, two_##id, expand_##id },
static const mox_ymm_block_variant variants[] = {
#include "format/block_fields.def"
};
#undef MOX_BLOCK_FIELDS

const mox_ymm_block_variant *mox_ymm_block_variant_of(moxie_dtype element)
{
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++)
        if (variants[i].element == element)
            return &variants[i];
    return mox_ymm_levels_variant_of(element);
}

#endif
