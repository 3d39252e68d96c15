/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_tiles.c - how wide token tiles are (sm90_tiles.h). The widths are measured: docs/experiments/cuda-limits.md.
 */
#include "cuda/expert_gemm/sm90/sm90_tiles.h"

#include "base/sizes.h"
#include "cuda/expert_gemm/sm80/sm80_shape.h"

/* What the widths of token tiles depend on, of both products. */
typedef struct tile_traits {
    int32_t narrow, most; /* columns of the widest tile of the narrow kernels (0: there are none), and of any */
    bool halves, sums;    /* wide tiles of 16 bits are multiplied in halves; scales multiply sums */
    bool fours;           /* weights of four bits */
} tile_traits;

static tile_traits tile_traits_of(const mox_cuda_expert_gemm_args *a, const mox_sm90_element *elements)
{
    tile_traits t = { MOX_SM90_MAX_COLUMNS, MOX_SM90_MAX_COLUMNS, true, false, true };
    if (a->mma_sync) {
        const bool sums = a->block_scales[0] || a->block_scales[1];
        return (tile_traits) { 0, mox_sm80_max_columns(a->decoded != 0, sums, a->shared_bytes), false, sums, false };
    }
    for (int32_t i = 0; i < 2; i++) {
        const mox_sm90_element element = elements[i];
        t.narrow = (int32_t)mox_min_i64(t.narrow, mox_sm90_narrow_columns(element));
        t.most = (int32_t)mox_min_i64(t.most, mox_sm90_max_columns(element));
        t.halves = t.halves && MOX_SM90_IN_HALVES(element) && !MOX_SM90_TO_FP8(element);
        t.sums = t.sums || MOX_SM90_BY_CHUNK(element);
        t.fours = t.fours && mox_sm90_chunk_bytes(element) == 4096;
    }
    return t;
}

/* By how many standard deviations token tiles of `columns` must exceed the mean number of tokens of a slot; 0: by the
 * mean itself. Measured (docs/experiments/cuda-limits.md): more columns cost stages of the ring, and past the narrow
 * kernels another kernel; fewer cut slots. */
static int32_t deviations_of(const tile_traits *t, int32_t columns)
{
    const bool narrow_dequant = t->fours || t->narrow == MOX_SM90_NARROW_COLUMNS_DEQUANT;
    if (columns >= 128)
        return t->sums ? 4 : 2;
    if (columns == 64 && t->halves)
        return 2;
    return narrow_dequant && columns >= MOX_SM90_NARROW_COLUMNS ? 1 : 0;
}

/* Do token tiles of `columns` hold nearly every slot's tokens, if routing is even? Their number has a variance of about
 * the mean. */
static bool holds_slots(const tile_traits *t, int32_t columns, int64_t mean)
{
    const int64_t above = columns - mean, deviations = deviations_of(t, columns);
    const bool skipped = columns == MOX_SM90_NARROW_COLUMNS_DEQUANT && t->fours && t->halves;
    if (skipped) /* wider tiles are faster */
        return false;
    return 2 * mean <= columns || (deviations > 0 && above > 0 && above * above >= deviations * deviations * mean);
}

/* Index of the narrowest tiles of more than 8 tokens. With a list, and multiplied in halves where they are wide, tiles
 * of few tokens take no longer with room for more, and slots that have many tokens far less: FP8 with scales of blocks
 * in the wide kernel, 4-bit integers in the narrow one. */
static int32_t first_width(const mox_cuda_expert_gemm_args *a, const tile_traits *t)
{
    if (!t->halves || a->slots == 1 || a->max_pairs <= MOX_SM90_INLINE_PAIRS)
        return 1;
    return t->fours ? 2 : 3;
}

/* Columns of nearly all token tiles, for both products: so many that nearly every slot is one tile; not more than there
 * are tokens, nor than both kernels can run. */
static int32_t usual_columns_of(const mox_cuda_expert_gemm_args *a, const tile_traits *t)
{
    static const int32_t widths[] = {
        8, 16, 32, 64, 128, MOX_SM90_MAX_COLUMNS_FP8, MOX_SM90_MAX_COLUMNS_DEQUANT, MOX_SM90_MAX_COLUMNS
    };
    const int64_t mean = a->max_pairs / a->slots;
    int32_t i = a->tokens <= widths[0] ? 0 : first_width(a, t);
    while (widths[i] < t->most && !holds_slots(t, widths[i], mean) && widths[i] < a->tokens)
        i++;
    return (int32_t)mox_min_i64(widths[i], t->most);
}

/* Columns of the widest token tile, of slots that have more tokens. The narrow kernels run any of their tiles at no
 * cost for others; a ring of the wide ones would have fewer stages. With few pairs no slot has more. */
static int32_t max_columns_of(const tile_traits *t, int32_t usual, int64_t tokens, bool inlined)
{
    return inlined || usual >= tokens || usual >= t->narrow ? usual : t->narrow;
}

/* While few slots have more than usual. Where scales multiply sums, stages of wider tiles have one chunk, and such
 * tiles wait for memory. */
static int32_t even_columns_of(const tile_traits *t, int32_t usual, int32_t max)
{
    return (int32_t)mox_min_i64(t->sums ? usual : 2 * usual, max);
}

mox_sm90_tile_columns mox_sm90_tile_columns_of(const mox_cuda_expert_gemm_args *a, const mox_sm90_element *elements,
                                               bool inlined)
{
    const tile_traits traits = tile_traits_of(a, elements);
    const int32_t usual = usual_columns_of(a, &traits), max = max_columns_of(&traits, usual, a->tokens, inlined);
    return (mox_sm90_tile_columns) { usual, even_columns_of(&traits, usual, max), max };
}
