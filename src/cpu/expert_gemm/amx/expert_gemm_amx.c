/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_amx.c - kernel amx_bf16: weights of any format, decoded to bf16 tiles between the tile products that use
 * them. This file says which problems it accepts, and which variant multiplies them.
 *
 *     step      A tile [rows, 32 columns] x B tile [16 pair lines of a panel] -> C tile [rows, 16] f32
 *     segment   C from zero over its steps, stored, then  sum[r] = fma(C[r] * sa[r], sw, sum[r])  in vector registers
 *
 * Storing a tile takes as long as multiplying one. So scales that leave codes exact in bf16 (E8M0, and E4M3 of f4_e2m1)
 * are multiplied into the decoded weights, and C stays in its tile along the whole row. Other scales end segments.
 *
 *     B lines   codes -> registers -> a ring of 4 steps in the first-level cache -> B tile; bf16 weights are loaded
 *               from the record
 *
 *     amx_job.h       what a call works on              amx_job_amx.c   ... and how it is set up
 *     amx_lines.h     codes to B lines                  amx_int_dot.h   few rows times 4 bits, in integers
 *     amx_segments.h  narrow, tall: short segments      amx_square.h    long segments
 *     amx_multiply.h  a format's product                amx_*_amx.c     its instances
 *
 * All strategies are the same arithmetic (SCALE_IN_WEIGHT, panel_kernel.h).
 */
#include "cpu/expert_gemm/panel_kernel.h"

#if defined(__AMX_BF16__) && defined(__AVX512VBMI__) && defined(__AVX512FP16__)

#include "base/sizes.h"
#include "cpu/expert_gemm/amx/amx_variants.h"
#include "cpu/expert_gemm/amx/amx_job.h"

/* The functions of one format, by where its scales are applied; NULL: there is none. */
typedef struct amx_format {
    moxie_dtype element;
    bool zeros;
    mox_amx_scaling scaling; /* of per_segment */
    mox_panel_multiply_fn per_segment, e8m0_in_weight, e4m3_in_weight;
} amx_format;

static const amx_format formats[] = {
    { MOXIE_BF16, false, MOX_AMX_SCALE_PER_SEGMENT, mox_amx_times_pairs, NULL, NULL },
    { MOXIE_F8_E4M3, false, MOX_AMX_SCALE_PER_SEGMENT, mox_amx_times_zipped, mox_amx_times_zipped_e8m0, NULL },
    { MOXIE_F8_E5M2, false, MOX_AMX_SCALE_PER_SEGMENT, mox_amx_times_zipped, mox_amx_times_zipped_e8m0, NULL },
    { MOXIE_F6_E3M2, false, MOX_AMX_SCALE_PER_SEGMENT, mox_amx_times_planes, mox_amx_times_planes_e8m0, NULL },
    { MOXIE_F4_E2M1, false, MOX_AMX_SCALE_PER_SEGMENT, mox_amx_times_nibbles, mox_amx_times_nibbles_e8m0,
      mox_amx_times_nibbles_e4m3 },
    { MOXIE_I4, true, MOX_AMX_SCALE_PER_SEGMENT, mox_amx_times_i4_zeros, NULL, NULL },
    { MOXIE_U4B8, true, MOX_AMX_SCALE_PER_SEGMENT, mox_amx_times_u4b8_zeros, NULL, NULL },
    { MOXIE_I8, false, MOX_AMX_SCALE_PER_SEGMENT_F16, mox_amx_times_i8, NULL, NULL },
    { MOXIE_I8, true, MOX_AMX_SCALE_PER_SEGMENT, mox_amx_times_i8_zeros, NULL, NULL },
    { MOXIE_U8B128, false, MOX_AMX_SCALE_PER_SEGMENT_F16, mox_amx_times_u8b128, NULL, NULL },
    { MOXIE_U8B128, true, MOX_AMX_SCALE_PER_SEGMENT, mox_amx_times_u8b128_zeros, NULL, NULL },
};

static const amx_format *format_of(const moxie_quant *weight)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (formats[i].zeros == (weight->has_zero != 0) &&
            mox_element_decodes_as(weight->element, formats[i].zeros, formats[i].element))
            return &formats[i];
    return NULL;
}

static bool is_by_16(const moxie_quant *weight, int64_t cols)
{
    return mox_scale_cols(weight, cols) > 1 && mox_group_cols(weight, cols) < MOX_PANEL_STEP;
}

/* The function for a problem's scales. */
static mox_panel_multiply_fn variant_of(const amx_format *format, const moxie_quant *weight, int64_t cols)
{
    const bool by_16 = is_by_16(weight, cols);
    if (weight->scale == MOXIE_F8_E8M0 && format->e8m0_in_weight != NULL)
        return by_16 ? NULL : format->e8m0_in_weight;
    if (weight->scale == MOXIE_F8_E4M3 && by_16)
        return weight->element == format->element ? format->e4m3_in_weight : NULL;
    return by_16 ? NULL : format->per_segment;
}

mox_panel_multiply_fn mox_expert_gemm_amx_bf16_bind(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const moxie_quant *weight = problem->weight;
    const int64_t cols = mox_expert_gemm_cols(problem);
    if (!mox_cpu()->avx512_fp16 || !mox_cpu()->avx512_vnni) {
        mox_reject(why, "use the avx512 kernels", "needs AVX-512 FP16 and VNNI beside AMX");
        return NULL;
    }
    if (!mox_panel_admit_bf16(problem, why))
        return NULL;
    const amx_format *format = format_of(weight);
    const mox_panel_multiply_fn found = format != NULL ? variant_of(format, weight, cols) : NULL;
    if (found == NULL)
        mox_reject(why, "quantize the weights in groups of 32 columns or more, or store them in bf16",
                   "decodes to bf16, and has no variant for %s%s in these groups",
                   mox_quant_dtype_name(weight->element), weight->has_zero ? " with zero points" : "");
    return found;
}

uint64_t mox_expert_gemm_amx_bf16_scratch_bytes(const mox_expert_gemm_problem *problem)
{
    const moxie_quant *weight = problem->weight;
    const int64_t cols = mox_expert_gemm_cols(problem);
    const amx_format *format = format_of(weight);
    if (format == NULL)
        return 0;
    /* The variants that prescale activations need more than the others. */
    const mox_amx_scaling scaling = is_by_16(weight, cols) ? MOX_AMX_E4M3_IN_WEIGHT : format->scaling;
    return mox_amx_scratch_bytes(scaling, mox_ceil_div(cols, MOX_PANEL_STEP), mox_scale_cols(weight, cols));
}

#else

MOX_PANEL_GEMM_ABSENT(amx_bf16, "x86-64 with AMX")

#endif
