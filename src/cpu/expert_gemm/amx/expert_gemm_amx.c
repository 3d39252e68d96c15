/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_amx.c - row amx_bf16: panels decoded to bf16 tiles between the tile operations that consume them.
 *
 *     step      A tile [rows, 32 columns] x B tile [16 pair lines of a panel] -> C tile [rows, 16] f32
 *     segment   C from zero over its steps, stored, then  sum[r] = fma(C[r] * sa[r], sw, sum[r])  in vector registers
 *
 * Scales that leave codes exact in bf16 (E8M0, and E4M3 on f4_e2m1) are folded into the decoded lines, and C stays in
 * its tile along the whole row: storing a tile costs as much as multiplying one. Others end segments.
 *
 *     B lines   codes -> registers -> a ring of 4 steps in the first-level cache -> tile; bf16 weights load from the
 *               record. Long segments are decoded anew for every two tiles of rows, short ones once, to scratch.
 *
 *     amx_job.h       what a call works on              amx_job_amx.c   ... and how it is set up
 *     amx_lines.h     codes to B lines
 *     amx_segments.h  narrow, tall: short segments      amx_square.h    long segments
 *     amx_digits.h    few rows times 4 bits, in integers
 *     amx_multiply.h  a format's product                amx_*_amx.c     its instances
 *
 * Row amx_folded is the same, but in fast mode folds scales of 4-bit integers, too, which rounds
 * (amx_ints_amx.c).
 *
 * Tile loads and stores are inline assembly to the compiler without memory operands: fences keep its order. Every way
 * through a panel pair is the same arithmetic (fold32, panel_kernel.h). Here is what the rows can multiply.
 */
#include "cpu/expert_gemm/panel_kernel.h"

#if defined(__AMX_BF16__) && defined(__AVX512VBMI__) && defined(__AVX512FP16__)

#include "base/sizes.h"
#include "cpu/expert_gemm/amx/amx_forms.h"
#include "cpu/expert_gemm/amx/amx_job.h"

/* What becomes of the scale chooses the product; NULL: no such form. `drain`: how segments that end are decoded. */
typedef struct amx_format {
    moxie_dtype element;
    bool zeros;
    mox_amx_folding drain;
    mox_panel_multiply_fn drained, e8m0, e4m3;
} amx_format;

static const amx_format formats[] = {
    { MOXIE_BF16, false, MOX_AMX_DRAINED, mox_amx_times_pairs, NULL, NULL },
    { MOXIE_F8_E4M3, false, MOX_AMX_DRAINED, mox_amx_times_zipped, mox_amx_times_zipped_e8m0, NULL },
    { MOXIE_F8_E5M2, false, MOX_AMX_DRAINED, mox_amx_times_zipped, mox_amx_times_zipped_e8m0, NULL },
    { MOXIE_F6_E3M2, false, MOX_AMX_DRAINED, mox_amx_times_planes, mox_amx_times_planes_e8m0, NULL },
    { MOXIE_F6_E2M3, false, MOX_AMX_DRAINED, mox_amx_times_planes, mox_amx_times_planes_e8m0, NULL },
    { MOXIE_F4_E2M1, false, MOX_AMX_DRAINED, mox_amx_times_nibbles, mox_amx_times_nibbles_e8m0,
      mox_amx_times_nibbles_e4m3 },
    { MOXIE_I4, false, MOX_AMX_DRAINED, mox_amx_times_nibbles, mox_amx_times_nibbles_e8m0, NULL },
    { MOXIE_U4B8, false, MOX_AMX_DRAINED, mox_amx_times_nibbles, mox_amx_times_nibbles_e8m0, NULL },
    { MOXIE_I4, true, MOX_AMX_DRAINED, mox_amx_times_i4_zeros, NULL, NULL },
    { MOXIE_U4B8, true, MOX_AMX_DRAINED, mox_amx_times_u4b8_zeros, NULL, NULL },
    { MOXIE_I8, false, MOX_AMX_DRAINED_HALF, mox_amx_times_i8, NULL, NULL },
    { MOXIE_I8, true, MOX_AMX_DRAINED, mox_amx_times_i8_zeros, NULL, NULL },
    { MOXIE_U8B128, false, MOX_AMX_DRAINED_HALF, mox_amx_times_u8b128, NULL, NULL },
    { MOXIE_U8B128, true, MOX_AMX_DRAINED, mox_amx_times_u8b128_zeros, NULL, NULL },
};

static const amx_format *format_of(const moxie_quant *weight)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (formats[i].element == weight->element && formats[i].zeros == (weight->has_zero != 0))
            return &formats[i];
    return NULL;
}

static bool is_by_16(const moxie_quant *weight, int64_t cols)
{
    return mox_scale_cols(weight, cols) > 1 && mox_group_cols(weight, cols) < MOX_PANEL_STEP;
}

/* What the row does with the scales of a problem. */
static mox_panel_multiply_fn form_of(const amx_format *format, const moxie_quant *weight, int64_t cols)
{
    const bool by_16 = is_by_16(weight, cols);
    if (weight->scale == MOXIE_F8_E8M0 && format->e8m0 != NULL)
        return by_16 ? NULL : format->e8m0;
    if (weight->scale == MOXIE_F8_E4M3 && by_16)
        return format->e4m3;
    return by_16 ? NULL : format->drained;
}

mox_panel_multiply_fn mox_expert_gemm_amx_bf16_bind(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const moxie_quant *weight = problem->weight;
    const int64_t cols = mox_expert_gemm_cols(problem);
    if (!mox_cpu()->avx512_fp16 || !mox_cpu()->avx512_vnni) {
        mox_reject(why, "use the avx512 rows", "needs AVX-512 FP16 and VNNI beside AMX");
        return NULL;
    }
    if (!mox_panel_admit_bf16(problem, why))
        return NULL;
    const amx_format *format = format_of(weight);
    const mox_panel_multiply_fn found = format != NULL ? form_of(format, weight, cols) : NULL;
    if (found == NULL)
        mox_reject(why, "quantize the weights in groups of 32 columns or more, or store them in bf16",
                   "decodes to bf16, and has no form for %s%s in these groups", mox_quant_dtype_name(weight->element),
                   weight->has_zero ? " with zero points" : "");
    return found;
}

mox_panel_multiply_fn mox_expert_gemm_amx_folded_bind(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const moxie_quant *weight = problem->weight;
    const bool ints = weight->element == MOXIE_I4 || weight->element == MOXIE_U4B8;
    if (mox_expert_gemm_amx_bf16_bind(problem, why) == NULL)
        return NULL;
    if (!ints || weight->has_zero || weight->scale == MOXIE_F8_E8M0 ||
        mox_scale_cols(weight, mox_expert_gemm_cols(problem)) < 2) {
        mox_reject(why, "nothing is to be gained: amx_bf16 folds these scales exactly, or needs to fold none",
                   "folds scales of 4-bit integers without zero points, in groups of columns");
        return NULL;
    }
    return mox_amx_times_ints_folded;
}

uint64_t mox_expert_gemm_amx_folded_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    const int64_t cols = mox_expert_gemm_cols(problem);
    return mox_amx_scratch_bytes(MOX_AMX_FOLD_INTS, mox_ceil_div(cols, MOX_PANEL_STEP),
                                 mox_scale_cols(problem->weight, cols));
}

uint64_t mox_expert_gemm_amx_bf16_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    const moxie_quant *weight = problem->weight;
    const int64_t cols = mox_expert_gemm_cols(problem);
    const amx_format *format = format_of(weight);
    if (format == NULL)
        return 0;
    /* Of the foldings those ask for more that raise activations. */
    const mox_amx_folding fold = is_by_16(weight, cols) ? MOX_AMX_FOLD_E4M3 : format->drain;
    return mox_amx_scratch_bytes(fold, mox_ceil_div(cols, MOX_PANEL_STEP), mox_scale_cols(weight, cols));
}

#else

MOX_PANEL_GEMM_ABSENT(amx_bf16, "x86-64 with AMX")
MOX_PANEL_GEMM_ABSENT(amx_folded, "x86-64 with AMX")

#endif
