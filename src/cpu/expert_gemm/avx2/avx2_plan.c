/* SPDX-License-Identifier: Apache-2.0
 *
 * avx2_plan.c - what a plan asks of the AVX2 kernels: whether they accept a problem, and how much scratch they need
 * (avx2_plan.h). Compiled for any processor.
 */
#include "cpu/expert_gemm/avx2/avx2_plan.h"

#include "base/sizes.h"
#include "pack/panel/block_panel.h"
#include "pack/panel/element_traits.h"

#define TARGET "x86-64 with AVX2, FMA and F16C"

/* ---- avx2_fma, avx2_bytes ------------------------------------------------------------------------ */

bool mox_ymm_has_vnni(void)
{
    return mox_cpu()->avx_vnni && mox_ymm_int_dot_avxvnni != NULL;
}

/* Limbs without AVX-VNNI: only as many rows as are multiplied while decoding. */
int64_t mox_ymm_int_dot_max_rows(bool bytes)
{
    return mox_ymm_has_vnni() || bytes ? MOX_PANEL_BLOCK : MOX_YMM_NARROW;
}

/* Upper limit of the steps in a row; 0 for formats that are never multiplied as integers. */
static int64_t int_dot_max_steps(moxie_dtype element, int64_t cols)
{
    return mox_panel_order_of(element) == MOX_PANEL_NIBBLES ? mox_ceil_div(cols, MOX_PANEL_STEP / 2) : 0;
}

/* Bytes of the lines of bytes or limbs of a call. */
static uint64_t limb_bytes(mox_ymm_acts acts, mox_panel_order order, int64_t cols, int64_t steps, int64_t rows)
{
    if (order == MOX_PANEL_BLOCKS || order == MOX_PANEL_QUADS)
        return acts == MOX_YMM_ACTS_EXACT ? 0
                                          : (uint64_t)(mox_ceil_div(cols, MOX_PANEL_STEP) * rows) * MOX_YMM_BYTES_LINE;
    return (uint64_t)(rows * steps) * 2 * MOX_YMM_INT_DOT_LINE;
}

void mox_ymm_lay_out(mox_carver *carver, mox_ymm_acts acts, moxie_dtype element, int64_t cols, int64_t groups,
                     int64_t rows, mox_ymm_scratch *out)
{
    const mox_panel_order order = mox_panel_order_of(element);
    const bool blocks = order == MOX_PANEL_BLOCKS;
    const int64_t scales = blocks ? 1 + cols / mox_block_panel_cols(element) : groups;
    const uint64_t floats = 2 * (uint64_t)scales * MOX_PANEL_ROWS;
    const int64_t steps = (int_dot_max_steps(element, cols) + 1) / 2 * 2; /* whole steps of 32 columns */
    const int64_t limb_rows = mox_min_i64(rows, mox_ymm_int_dot_max_rows(acts != MOX_YMM_ACTS_EXACT));
    out->head = mox_carve(carver, 1, sizeof *out->head);
    out->limbs = mox_carve(carver, limb_bytes(acts, order, cols, steps, limb_rows), 1);
    out->order = mox_carve(carver, (uint64_t)steps, (uint64_t)mox_ymm_int_dot_order_bytes(limb_rows));
    out->slab = mox_carve(carver, MOX_YMM_SLAB * 2 * MOX_YMM_HALF, sizeof *out->slab);
    out->part = mox_carve(carver, MOX_PANEL_BLOCK * MOX_YMM_WIDTH, sizeof *out->part);
    out->scale = mox_carve(carver, floats, sizeof *out->scale);
    out->zero = mox_carve(carver, floats, sizeof *out->zero);
}

mox_panel_multiply_fn mox_expert_gemm_avx2_fma_bind(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    if (mox_avx2_fma_multiply == NULL)
        return mox_panel_absent(why, TARGET);
    if (mox_panel_order_of(problem->weight->element) == MOX_PANEL_NONE) {
        mox_reject(why, "quantize the weights, or store them in 16 bits", "cannot decode %s",
                   mox_quant_dtype_name(problem->weight->element));
        return NULL;
    }
    return mox_panel_admit_floats(problem, why) ? mox_avx2_fma_multiply : NULL;
}

mox_panel_multiply_fn mox_expert_gemm_avx2_bytes_bind(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    if (mox_avx2_bytes_multiply == NULL)
        return mox_panel_absent(why, TARGET);
    return mox_panel_admit_bytes(problem, why) ? mox_avx2_bytes_multiply : NULL;
}

/* ---- avx2_block_int8, avx2_block_bytes ------------------------------------------------------------- */

mox_panel_multiply_fn mox_expert_gemm_avx2_block_int8_bind(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    if (mox_avx2_block_int8_multiply == NULL)
        return mox_panel_absent(why, TARGET);
    return mox_panel_admit_block_int8(problem, why) ? mox_avx2_block_int8_multiply : NULL;
}

mox_panel_multiply_fn mox_expert_gemm_avx2_block_bytes_bind(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    if (mox_avx2_block_bytes_multiply == NULL)
        return mox_panel_absent(why, TARGET);
    if (!mox_panel_admit_blocks(problem, why))
        return NULL;
    if (problem->act->element == MOXIE_I8 && !problem->act->is_static)
        return mox_avx2_block_int8_multiply;
    return mox_panel_admit_rounding(problem->act, why) ? mox_avx2_block_bytes_multiply : NULL;
}

/* ---- scratch --------------------------------------------------------------------------------------- */

static uint64_t bytes_of_scratch(mox_ymm_acts acts, const mox_expert_gemm_problem *problem)
{
    const int64_t cols = mox_expert_gemm_cols(problem);
    mox_carver carver = mox_carver_of(NULL);
    mox_ymm_scratch unused;
    mox_ymm_lay_out(&carver, acts, problem->weight->element, cols, mox_scale_cols(problem->weight, cols),
                    mox_panel_max_rows(problem), &unused);
    return carver.used;
}

uint64_t mox_expert_gemm_avx2_fma_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    return bytes_of_scratch(MOX_YMM_ACTS_EXACT, problem);
}

uint64_t mox_expert_gemm_avx2_bytes_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    return bytes_of_scratch(MOX_YMM_ACTS_ROUNDED, problem);
}

uint64_t mox_expert_gemm_avx2_block_int8_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    return bytes_of_scratch(MOX_YMM_ACTS_CODES, problem);
}

uint64_t mox_expert_gemm_avx2_block_bytes_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    return bytes_of_scratch(MOX_YMM_ACTS_ROUNDED, problem);
}

/* ---- avx2_int8 ----------------------------------------------------------------------------------- */

/* Columns of a segment: columns * 255 * 128 must stay below 2^31. */
enum { MAX_COLS = 65536 };

void mox_int8_lay_out(mox_carver *carver, int64_t groups, int64_t segments, mox_int8_scratch *out)
{
    const uint64_t values = 2 * (uint64_t)groups * MOX_PANEL_ROWS;
    out->scale = mox_carve(carver, values, sizeof *out->scale);
    out->zero = mox_carve(carver, values, sizeof *out->zero);
    out->sums = mox_carve(carver, MOX_PANEL_BLOCK * (uint64_t)segments, sizeof *out->sums);
}

/* Columns of a segment. */
static int64_t segment_cols(const mox_expert_gemm_problem *problem)
{
    const int64_t cols = mox_expert_gemm_cols(problem), weight = mox_group_cols(problem->weight, cols);
    const bool grouped = mox_panel_act_scaling(problem->act, cols) == MOX_ACT_GROUPED;
    return grouped ? mox_min_i64(weight, mox_act_group_cols(problem->act, cols)) : weight;
}

mox_panel_multiply_fn mox_expert_gemm_avx2_int8_bind(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const moxie_quant *weight = problem->weight, *act = problem->act;
    if (mox_avx2_int8_multiply == NULL)
        return mox_panel_absent(why, TARGET);
    if (mox_panel_order_of(weight->element) != MOX_PANEL_QUADS) {
        mox_reject(why, "quantize the weights to i8 or u8b128", "multiplies 8-bit integer weights, these are %s",
                   mox_quant_dtype_name(weight->element));
        return NULL;
    }
    if (mox_quant_is_none(act) || act->element != MOXIE_I8) {
        mox_reject(why, "quantize the activations to i8", "multiplies int8 activations, these are %s",
                   mox_quant_is_none(act) ? "not quantized" : mox_quant_dtype_name(act->element));
        return NULL;
    }
    if (segment_cols(problem) > MAX_COLS) {
        mox_reject(why, "quantize weights or activations in shorter groups",
                   "sums groups of at most %d columns exactly in int32, these have %lld", MAX_COLS,
                   (long long)segment_cols(problem));
        return NULL;
    }
    return mox_avx2_int8_multiply;
}

uint64_t mox_expert_gemm_avx2_int8_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    const int64_t cols = mox_expert_gemm_cols(problem);
    mox_carver carver = mox_carver_of(NULL);
    mox_int8_scratch unused;
    mox_int8_lay_out(&carver, mox_scale_cols(problem->weight, cols), mox_ceil_div(cols, segment_cols(problem)),
                     &unused);
    return carver.used;
}
