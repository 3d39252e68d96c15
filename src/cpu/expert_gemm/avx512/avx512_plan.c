/* SPDX-License-Identifier: Apache-2.0
 *
 * avx512_plan.c - what a plan asks of the AVX-512 kernels: whether they accept a problem, and how much scratch they
 * need (avx512_plan.h). Compiled for any processor.
 */
#include "cpu/expert_gemm/avx512/avx512_plan.h"

#include "base/sizes.h"
#include "cpu/expert_gemm/block_bytes.h"
#include "pack/panel/element_traits.h"

/* Number of floats in `scale`. */
static uint64_t scale_count(int64_t groups)
{
    return 2 * (uint64_t)groups * MOX_PANEL_ROWS;
}

static int64_t groups_of(const mox_expert_gemm_problem *problem)
{
    return mox_scale_cols(problem->weight, mox_expert_gemm_cols(problem));
}

/* ---- avx512_fma ---------------------------------------------------------------------------------- */

/* NULL, too, where the processor lacks VNNI, or the values are no small integers. */
static mox_panel_multiply_fn int_dot_variant(const moxie_quant *weight, int64_t cols)
{
    mox_panel_counts unused;
    if (!mox_cpu()->avx512_vnni || !mox_panel_count(weight->element, weight->has_zero != 0, &unused))
        return NULL;
    return mox_panel_variant_of(&mox_avx512_fma_vnni_variants, weight, cols);
}

/* The variant that makes the most of the processor. */
static mox_panel_multiply_fn fma_variant(const moxie_quant *weight, int64_t cols)
{
    mox_panel_multiply_fn found = int_dot_variant(weight, cols);
    if (found == NULL && mox_cpu()->avx512_vbmi)
        found = mox_panel_variant_of(&mox_avx512_fma_vbmi_variants, weight, cols);
    if (found == NULL)
        found = mox_panel_variant_of(&mox_avx512_fma_variants, weight, cols);
    return found != NULL ? found : mox_panel_variant_of(&mox_avx512_fma_blocks_variants, weight, cols);
}

mox_panel_multiply_fn mox_expert_gemm_avx512_fma_bind(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const moxie_quant *weight = problem->weight;
    if (mox_avx512_fma_variants.count == 0)
        return mox_panel_absent(why, "x86-64 with AVX-512");
    if (!mox_panel_admit_floats(problem, why))
        return NULL;
    const mox_panel_multiply_fn found = fma_variant(weight, mox_expert_gemm_cols(problem));
    if (found == NULL)
        mox_reject(why, "quantize the weights to a format of panels", "has no variant for %s%s in these groups",
                   mox_quant_dtype_name(weight->element), weight->has_zero ? " with zero points" : "");
    return found;
}

void mox_fma_lay_out(mox_carver *carver, int64_t groups, mox_fma_scratch *out)
{
    out->scale = mox_carve(carver, scale_count(groups), sizeof *out->scale);
    out->slab = mox_carve(carver, MOX_FMA_SLAB * MOX_PANEL_STEP * 2 * MOX_PANEL_ROWS, sizeof *out->slab);
    out->part = mox_carve(carver, MOX_PANEL_BLOCK * 2 * MOX_PANEL_ROWS, sizeof *out->part);
}

/* Of a problem whose matrix is multiplied as variant `f` says. */
static uint64_t int_dot_scratch_bytes(mox_int_dot_variant f, const mox_expert_gemm_problem *problem)
{
    mox_carver carver = mox_carver_of(NULL);
    mox_int_dot_scratch unused;
    mox_int_dot_lay_out(&carver, f, mox_expert_gemm_cols(problem), groups_of(problem), mox_panel_max_rows(problem),
                        &unused);
    return carver.used;
}

void mox_words_lay_out(mox_carver *carver, int64_t steps, int64_t groups, int64_t rows, mox_words_scratch *out)
{
    mox_fma_lay_out(carver, groups, &out->fma);
    out->format = mox_carve(carver, 1, MOX_INT_DOT_FORMAT_BYTES);
    out->rows = mox_carve(carver, (uint64_t)(steps * rows), MOX_WORDS_ROW_BYTES);
    out->order = mox_carve(carver, (uint64_t)steps, (uint64_t)mox_int_dot_order_bytes(rows));
    out->slab = mox_carve(carver, MOX_WORDS_SLAB_BYTES, 1);
    out->float_steps = mox_carve(carver, 1, sizeof *out->float_steps);
}

/* A call of few rows wants limbs, one of many words. */
static uint64_t limbs_or_words_bytes(const mox_expert_gemm_problem *problem)
{
    const int64_t steps = mox_ceil_div(mox_expert_gemm_cols(problem), MOX_PANEL_STEP);
    const uint64_t limbs = int_dot_scratch_bytes((mox_int_dot_variant) { .Q = 4 }, problem);
    mox_carver carver = mox_carver_of(NULL);
    mox_words_scratch unused;
    mox_words_lay_out(&carver, steps, groups_of(problem), mox_panel_max_rows(problem), &unused);
    return carver.used > limbs ? carver.used : limbs;
}

uint64_t mox_expert_gemm_avx512_fma_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    mox_carver carver = mox_carver_of(NULL);
    mox_fma_scratch unused;
    if (int_dot_variant(problem->weight, mox_expert_gemm_cols(problem)) != NULL)
        return limbs_or_words_bytes(problem);
    mox_fma_lay_out(&carver, groups_of(problem), &unused);
    return carver.used;
}

/* ---- avx512_bytes -------------------------------------------------------------------------------- */

void mox_int_dot_lay_out(mox_carver *carver, mox_int_dot_variant f, int64_t cols, int64_t groups, int64_t rows,
                         mox_int_dot_scratch *out)
{
    const int64_t steps = mox_ceil_div(cols, 8 * f.Q);
    const int64_t limb_rows = f.bytes ? rows : mox_min_i64(rows, MOX_INT_DOT_LIMB_ROWS);
    mox_fma_lay_out(carver, groups, &out->fma);
    out->format = mox_carve(carver, 1, MOX_INT_DOT_FORMAT_BYTES);
    out->limbs = mox_carve(carver, (uint64_t)(steps * limb_rows), (uint64_t)mox_int_dot_step_bytes(f));
    out->order = mox_carve(carver, (uint64_t)steps, (uint64_t)mox_int_dot_order_bytes(limb_rows));
    out->float_steps = mox_carve(carver, 1, sizeof *out->float_steps);
}

mox_panel_multiply_fn mox_expert_gemm_avx512_bytes_bind(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    if (mox_avx512_bytes_variants.count == 0)
        return mox_panel_absent(why, "x86-64 with AVX512-VNNI");
    if (!mox_cpu()->avx512_vnni) {
        mox_reject(why, "run on a processor that has it", "needs AVX512-VNNI");
        return NULL;
    }
    if (!mox_panel_admit_bytes(problem, why))
        return NULL;
    return mox_panel_variant_of(&mox_avx512_bytes_variants, problem->weight, mox_expert_gemm_cols(problem));
}

void mox_quad_bytes_lay_out(mox_carver *carver, int64_t cols, int64_t groups, int64_t rows, mox_quad_bytes_scratch *out)
{
    const int64_t steps = mox_ceil_div(cols, MOX_PANEL_STEP);
    mox_fma_lay_out(carver, groups, &out->fma);
    out->lines = mox_carve(carver, (uint64_t)(steps * rows), sizeof *out->lines);
    out->floats = mox_carve(carver, 1, sizeof *out->floats);
}

static uint64_t quad_bytes_scratch(const mox_expert_gemm_problem *problem)
{
    mox_carver carver = mox_carver_of(NULL);
    mox_quad_bytes_scratch unused;
    mox_quad_bytes_lay_out(&carver, mox_expert_gemm_cols(problem), groups_of(problem), mox_panel_max_rows(problem),
                           &unused);
    return carver.used;
}

uint64_t mox_expert_gemm_avx512_bytes_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    if (mox_panel_order_of(problem->weight->element) == MOX_PANEL_QUADS)
        return quad_bytes_scratch(problem);
    const int64_t step_cols = mox_panel_step_cols(problem->weight, mox_expert_gemm_cols(problem));
    return int_dot_scratch_bytes((mox_int_dot_variant) { .bytes = true, .Q = (int)step_cols / 8 }, problem);
}

/* ---- avx512_block_int8, avx512_block_bytes --------------------------------------------------------- */

static mox_panel_multiply_fn block_variant(const mox_panel_variants *variants, const mox_expert_gemm_problem *problem,
                                           mox_rejection *why)
{
    if (variants->count == 0)
        return mox_panel_absent(why, "x86-64 with AVX512-VNNI");
    if (!mox_cpu()->avx512_vnni) {
        mox_reject(why, "run on a processor that has it", "needs AVX512-VNNI");
        return NULL;
    }
    return mox_panel_variant_of(variants, problem->weight, mox_expert_gemm_cols(problem));
}

mox_panel_multiply_fn mox_expert_gemm_avx512_block_int8_bind(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    return mox_panel_admit_block_int8(problem, why) ? block_variant(&mox_avx512_block_int8_variants, problem, why)
                                                    : NULL;
}

mox_panel_multiply_fn mox_expert_gemm_avx512_block_bytes_bind(const mox_expert_gemm_problem *problem,
                                                              mox_rejection *why)
{
    if (!mox_panel_admit_blocks(problem, why))
        return NULL;
    if (problem->act->element == MOXIE_I8 && !problem->act->is_static)
        return block_variant(&mox_avx512_block_int8_variants, problem, why);
    return mox_panel_admit_rounding(problem->act, why) ? block_variant(&mox_avx512_block_bytes_variants, problem, why)
                                                       : NULL;
}

void mox_block_bytes_lay_out(mox_carver *carver, int64_t cols, int64_t groups, int64_t rows,
                             mox_block_bytes_scratch *out)
{
    mox_fma_lay_out(carver, groups, &out->fma);
    out->lines = mox_carve(carver, (uint64_t)(cols / MOX_PANEL_STEP * rows), sizeof *out->lines);
    out->slab = mox_carve(carver, MOX_FMA_SLAB, 2 * MOX_PANEL_ROWS * MOX_PANEL_STEP);
    out->scales = mox_carve(carver, MOX_FMA_SLAB * 8 * MOX_PANEL_ROWS, sizeof *out->scales);
    out->floats = mox_carve(carver, 1, sizeof *out->floats);
}

static uint64_t block_bytes_scratch(const mox_expert_gemm_problem *problem)
{
    mox_carver carver = mox_carver_of(NULL);
    mox_block_bytes_scratch unused;
    mox_block_bytes_lay_out(&carver, mox_expert_gemm_cols(problem), groups_of(problem), mox_panel_max_rows(problem),
                            &unused);
    return carver.used;
}

uint64_t mox_expert_gemm_avx512_block_int8_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    return block_bytes_scratch(problem);
}

uint64_t mox_expert_gemm_avx512_block_bytes_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    return block_bytes_scratch(problem);
}

/* ---- avx512_block_levels --------------------------------------------------------------------------- */

mox_panel_multiply_fn mox_expert_gemm_avx512_block_levels_bind(const mox_expert_gemm_problem *problem,
                                                               mox_rejection *why)
{
    const moxie_dtype element = problem->weight->element;
    if (!mox_panel_admit_blocks(problem, why) || !mox_panel_admit_floats(problem, why))
        return NULL;
    if (mox_block_has_minimums(element)) {
        mox_reject(why, "use fast mode, whose kernels for blocks take them",
                   "would subtract %s's minimums after the sum, which rounds more", mox_quant_dtype_name(element));
        return NULL;
    }
    const mox_panel_variants *variants = &mox_avx512_block_levels_variants;
    if (variants->count > 0 && mox_panel_variant_of(variants, problem->weight, mox_expert_gemm_cols(problem)) == NULL) {
        mox_reject(why, "use kernel avx512_fma", "has no variant for %s", mox_quant_dtype_name(element));
        return NULL;
    }
    return block_variant(variants, problem, why);
}

void mox_block_levels_lay_out(mox_carver *carver, int64_t cols, int64_t groups, mox_block_levels_scratch *out)
{
    const uint64_t steps = (uint64_t)(cols / MOX_PANEL_STEP);
    mox_fma_lay_out(carver, groups, &out->fma);
    out->scales = mox_carve(carver, MOX_FMA_SLAB * 4 * MOX_PANEL_ROWS, sizeof *out->scales);
    out->lines = mox_carve(carver, MOX_BLOCK_LEVELS_NARROW * steps, sizeof *out->lines);
    out->kinds = mox_carve(carver, steps, sizeof *out->kinds);
}

uint64_t mox_expert_gemm_avx512_block_levels_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    mox_carver carver = mox_carver_of(NULL);
    mox_block_levels_scratch unused;
    mox_block_levels_lay_out(&carver, mox_expert_gemm_cols(problem), groups_of(problem), &unused);
    return carver.used;
}

/* ---- avx512_bf16 --------------------------------------------------------------------------------- */

mox_panel_multiply_fn mox_expert_gemm_avx512_bf16_bind(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const moxie_quant *weight = problem->weight;
    if (mox_avx512_bf16_variants.count == 0)
        return mox_panel_absent(why, "x86-64 with AVX-512 BF16 and VBMI");
    if (!mox_cpu()->full_rate_bf16 || !mox_cpu()->avx512_vbmi) {
        mox_reject(why, "use kernel avx512_fma",
                   "is for processors whose VDPBF16PS takes no longer than a multiply-add");
        return NULL;
    }
    if (!mox_panel_admit_bf16(problem, why))
        return NULL;
    const mox_panel_multiply_fn found =
        mox_panel_variant_of(&mox_avx512_bf16_variants, weight, mox_expert_gemm_cols(problem));
    if (found == NULL)
        mox_reject(why, "quantize the weights in groups of 32 columns or more, or store them in bf16",
                   "decodes to bf16, and has no variant for %s%s in these groups",
                   mox_quant_dtype_name(weight->element), weight->has_zero ? " with zero points" : "");
    return found;
}

void mox_dot_lay_out(mox_carver *carver, int64_t groups, mox_dot_scratch *out)
{
    out->scale = mox_carve(carver, scale_count(groups), sizeof *out->scale);
    out->slab = mox_carve(carver, MOX_DOT_SLAB * MOX_PANEL_STEP / 2, MOX_DOT_LINE);
    out->part = mox_carve(carver, MOX_PANEL_BLOCK * 2 * MOX_PANEL_ROWS, sizeof *out->part);
}

uint64_t mox_expert_gemm_avx512_bf16_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    mox_carver carver = mox_carver_of(NULL);
    mox_dot_scratch unused;
    mox_dot_lay_out(&carver, groups_of(problem), &unused);
    return carver.used;
}

/* ---- avx512_vnni --------------------------------------------------------------------------------- */

/* Columns of a segment whose sum fits int32 (expert_gemm_avx512_vnni.c). */
enum { MAX_SEGMENT = 131071 };

mox_panel_multiply_fn mox_expert_gemm_avx512_vnni_bind(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const moxie_quant *weight = problem->weight, *act = problem->act;
    const int64_t cols = mox_expert_gemm_cols(problem);
    if (mox_avx512_vnni_multiply == NULL)
        return mox_panel_absent(why, "x86-64 with AVX512-VNNI");
    if (!mox_cpu()->avx512_vnni) {
        mox_reject(why, "run on a processor that has it", "needs AVX512-VNNI");
        return NULL;
    }
    if (mox_quant_is_none(act) || act->element != MOXIE_I8) {
        mox_reject(why, "quantize the activations to i8", "multiplies int8 activations, these are %s",
                   mox_quant_is_none(act) ? "not quantized" : mox_quant_dtype_name(act->element));
        return NULL;
    }
    if (mox_format_of(weight->element)->kind != MOX_KIND_INTEGER) {
        mox_reject(why, "quantize the weights to i4, u4b8, i8 or u8b128",
                   "multiplies integer weights within int8, these are %s", mox_quant_dtype_name(weight->element));
        return NULL;
    }
    const int64_t segment = mox_min_i64(mox_group_cols(weight, cols), mox_act_group_cols(act, cols));
    const int64_t max_segment = weight->has_zero ? MAX_SEGMENT / 2 : MAX_SEGMENT;
    if (segment > max_segment) {
        mox_reject(why, "quantize weights or activations in shorter groups",
                   "sums groups of at most %lld columns exactly in int32, these have %lld", (long long)max_segment,
                   (long long)segment);
        return NULL;
    }
    return mox_avx512_vnni_multiply;
}

void mox_vnni_lay_out(mox_carver *carver, int64_t cols, int64_t groups, mox_vnni_scratch *out)
{
    const uint64_t segments = (uint64_t)mox_ceil_div(cols, 16); /* at most: they have 32 columns, or groups of 16 */
    out->scale = mox_carve(carver, scale_count(groups), sizeof *out->scale);
    out->offsets = mox_carve(carver, 2 * segments * MOX_PANEL_ROWS, sizeof *out->offsets);
    out->copy = mox_carve(carver, MOX_VNNI_BLOCK, mox_act_order_row_bytes(MOX_ACT_ORDER_I8, cols));
    out->sums = mox_carve(carver, MOX_VNNI_BLOCK * segments, sizeof *out->sums);
}

uint64_t mox_expert_gemm_avx512_vnni_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    mox_carver carver = mox_carver_of(NULL);
    mox_vnni_scratch unused;
    mox_vnni_lay_out(&carver, mox_expert_gemm_cols(problem), groups_of(problem), &unused);
    return carver.used;
}
