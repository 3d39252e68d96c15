/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_marlin.c - integer weights as vLLM's Marlin MoE kernel and its moe_wna16 kernel read them. Float weights are
 * in vendor_marlin_floats.c.
 *
 *     layout                    weights            scales                      zero points
 *     marlin-gptq, marlin-ct    tiles, 16-bit act  [G][N] permuted             none; the checkpoint's are for undo
 *     marlin-awq                the same           the same                    permuted, words of N
 *     marlin-gptq-fp8           tiles, 8-bit act   times 512                   none
 *     marlin-gptq-int8          tiles, 8-bit act   int16, factor in a constant none
 *     marlin-gptq-int8-channel  tiles, 8-bit act   [1][N] permuted             none
 *     marlin-ct-fp8, -int8      as for gptq        as for gptq                 none
 *     marlin-awq-fp8            tiles, 8-bit act   times 512                   permuted, words of N
 *     marlin-awq-int8           tiles, 8-bit act   int16, factor in a constant permuted, words of N
 *     moe-wna16                 rows of bytes      [N][G]                      bytes of two rows; groups may be halved
 *
 * Rows of w13 are gate's, then up's. Memory is drawn in docs/formats/marlin.md.
 * Source: vLLM's GPTQMarlinMoEMethod, AWQMarlinMoEMethod, CompressedTensorsWNA16MarlinMoEMethod and MoeWNA16Method
 * after process_weights_after_loading (names, shapes, dtypes).
 */
#include <stdio.h>

#include "vendor/vendor_parts.h"

#define MARLIN_LIMITS                                                                                                  \
    {                                                                                                                  \
        { MOX_VENDOR_HIDDEN, 128, false, "Marlin's thread blocks work on 128 of K and 64 of N" },                      \
        {                                                                                                              \
            MOX_VENDOR_INTERMEDIATE, 64, false, "Marlin's thread blocks work on 64 of K and 64 of N"                   \
        }                                                                                                              \
    }
#define HALVES                                                                                                         \
    {                                                                                                                  \
        MOXIE_F16, MOXIE_BF16                                                                                          \
    }

/* The same part for both projections; their names are w13_ and w2_ with `name`. */
#define BOTH_HOW(name, of, dtype, code, order, how)                                                                    \
    { "w13_" name, MOX_VENDOR_W13, of, dtype, NULL, code, order, how },                                                \
    {                                                                                                                  \
        "w2_" name, MOX_VENDOR_W2, of, dtype, NULL, code, order, how                                                   \
    }
#define BOTH(name, of, dtype, code, order)         BOTH_HOW(name, of, dtype, code, order, 0)
#define BOTH_DERIVED(name, of, dtype, code, order) BOTH_HOW(name, of, dtype, code, order, MOX_VENDOR_DERIVED)
/* The elements of the checkpoint, stored unchanged for undo. */
#define BOTH_FOR_UNDO(name, of, code)                                                                                  \
    { "moxie.w13_" name, MOX_VENDOR_W13, of, MOXIE_DTYPE_NONE, NULL, code, &mox_order_plain, 0 },                      \
    {                                                                                                                  \
        "moxie.w2_" name, MOX_VENDOR_W2, of, MOXIE_DTYPE_NONE, NULL, code, &mox_order_plain, 0                         \
    }
#define BIASES BOTH("bias", MOX_VENDOR_BIAS, MOXIE_DTYPE_NONE, NULL, &mox_order_marlin_bias)
/* GPTQ files have zero points even when all are the middle of the codes. Marlin reads none. */
#define SYMMETRIC_ZEROS BOTH_FOR_UNDO("qzeros", MOX_VENDOR_ZEROS, &mox_code_zeros_symmetric)

/* ---- 16-bit activations --------------------------------------------------------------------------- */

/* Act order is for the version of vLLM 0.18: newer ones reject such checkpoints. */
#define GPTQ(also)                                                                                                     \
    .name = "marlin-gptq",                                                                                             \
    .summary = "Marlin tiles of 4- or 8-bit codes without zero points, 16-bit scales and activations" also,            \
    .caller = "vLLM fused_marlin_moe, parameters of gptq_marlin",                                                      \
    .accepts = { .elements = { MOXIE_U4B8, MOXIE_U8B128, MOXIE_I4 },                                                   \
                 .scales = HALVES,                                                                                     \
                 .group_cols = { 128, 64, 32, -1 },                                                                    \
                 .whole_groups = true,                                                                                 \
                 .zeros = true,                                                                                        \
                 .no_zeros = true,                                                                                     \
                 .bias = true,                                                                                         \
                 .biases = HALVES },                                                                                   \
    .limits = MARLIN_LIMITS,                                                                                           \
    .parts = { BOTH("qweight", MOX_VENDOR_CODES, MOXIE_I32, &mox_code_i4_to_u4b8, &mox_order_marlin),                  \
               BOTH("scales", MOX_VENDOR_SCALES, MOXIE_DTYPE_NONE, NULL, &mox_order_marlin_scales), SYMMETRIC_ZEROS,   \
               BIASES }

const mox_vendor_layout mox_vendor_marlin_gptq = { GPTQ("") };
const mox_vendor_layout mox_vendor_marlin_gptq_act_order = {
    GPTQ(", also in act order"),
    .act_order = { { "w13_g_idx", "w2_g_idx" }, { "w13_g_idx_sort_indices", "w2_g_idx_sort_indices" } }
};

#define CT(also)                                                                                                       \
    .name = "marlin-ct",                                                                                               \
    .summary = "Marlin tiles of 4- or 8-bit codes without zero points, under compressed-tensors' names" also,          \
    .caller = "vLLM fused_marlin_moe, parameters of compressed-tensors wNa16",                                         \
    .accepts = { .elements = { MOXIE_U4B8, MOXIE_U8B128, MOXIE_I4 },                                                   \
                 .scales = HALVES,                                                                                     \
                 .group_cols = { 32, 64, 128, -1 },                                                                    \
                 .whole_groups = true,                                                                                 \
                 .no_zeros = true,                                                                                     \
                 .ungated = true },                                                                                    \
    .limits = MARLIN_LIMITS,                                                                                           \
    .parts = { BOTH("weight_packed", MOX_VENDOR_CODES, MOXIE_I32, &mox_code_i4_to_u4b8, &mox_order_marlin),            \
               BOTH("weight_scale", MOX_VENDOR_SCALES, MOXIE_DTYPE_NONE, NULL, &mox_order_marlin_scales) }

const mox_vendor_layout mox_vendor_marlin_ct = { CT("") };
const mox_vendor_layout mox_vendor_marlin_ct_act_order = {
    CT(", also in act order"),
    .act_order = { { "w13_weight_g_idx", "w2_weight_g_idx" }, { "w13_g_idx_sort_indices", "w2_g_idx_sort_indices" } }
};

const mox_vendor_layout mox_vendor_marlin_awq = {
    .name = "marlin-awq",
    .summary = "Marlin tiles of 4-bit codes with zero points, 16-bit scales and activations",
    .caller = "vLLM fused_marlin_moe, parameters of awq_marlin",
    .accepts = { .elements = { MOXIE_U4B8, MOXIE_I4 },
                 .scales = HALVES,
                 .group_cols = { 128, 64, 32, -1 },
                 .whole_groups = true,
                 .zeros = true,
                 .bias = true,
                 .biases = HALVES },
    .limits = MARLIN_LIMITS,
    .parts = { BOTH("qweight", MOX_VENDOR_CODES, MOXIE_I32, &mox_code_i4_to_u4b8, &mox_order_marlin),
               BOTH("scales", MOX_VENDOR_SCALES, MOXIE_DTYPE_NONE, NULL, &mox_order_marlin_scales),
               BOTH("qzeros", MOX_VENDOR_ZEROS, MOXIE_I32, &mox_code_zeros_plus, &mox_order_marlin_zeros), BIASES },
};

/* ---- 8-bit activations ---------------------------------------------------------------------------- */

const mox_vendor_layout mox_vendor_marlin_gptq_fp8 = {
    .name = "marlin-gptq-fp8",
    .summary = "Marlin tiles of int4 for FP8 activations, scales times 512",
    .caller = "vLLM fused_marlin_moe, parameters of gptq_marlin, input_dtype float8_e4m3fn",
    .accepts = { .elements = { MOXIE_U4B8 },
                 .scales = HALVES,
                 .group_cols = { 128, 64, 32, -1 },
                 .whole_groups = true,
                 .zeros = true,
                 .no_zeros = true,
                 .bias = true,
                 .biases = HALVES },
    .limits = MARLIN_LIMITS,
    .parts = { BOTH("qweight", MOX_VENDOR_CODES, MOXIE_I32, &mox_code_u4b8_to_s4m, &mox_order_marlin_a8),
               BOTH("scales", MOX_VENDOR_SCALES, MOXIE_DTYPE_NONE, &mox_code_times_512, &mox_order_marlin_single),
               SYMMETRIC_ZEROS, BIASES },
};

static bool has_groups(const mox_vendor_plan *plan, const moxie_expert *expert, char *reason, size_t size)
{
    if (expert->up.scale.cols > 1 && expert->down.scale.cols > 1)
        return true;
    snprintf(reason, size,
             "a row of %s is one group, and the target makes integers of scales of several groups only; "
             "marlin-gptq-int8-channel is for whole rows",
             expert->up.scale.cols > 1 ? "w2" : "w13");
    (void)plan;
    return false;
}

static float input_factor_13(const mox_vendor_plan *plan, const moxie_expert *expert)
{
    (void)expert;
    return plan->facts.scale_max[MOX_VENDOR_W13] / 4096;
}

static float input_factor_2(const mox_vendor_plan *plan, const moxie_expert *expert)
{
    (void)expert;
    return plan->facts.scale_max[MOX_VENDOR_W2] / 4096;
}

const mox_vendor_layout mox_vendor_marlin_gptq_int8 = {
    .name = "marlin-gptq-int8",
    .summary = "Marlin tiles of int4 for INT8 activations, scales as int16 fractions of the layer's largest",
    .caller = "vLLM fused_marlin_moe, parameters of gptq_marlin, input_dtype int8",
    .accepts = { .elements = { MOXIE_U4B8, MOXIE_I4 },
                 .scales = HALVES,
                 .group_cols = { 128, 64, 32 },
                 .whole_groups = true,
                 .zeros = true,
                 .no_zeros = true,
                 .bias = true,
                 .biases = HALVES },
    .surveys = true,
    .holds = has_groups,
    .limits = MARLIN_LIMITS,
    .parts = { BOTH("qweight", MOX_VENDOR_CODES, MOXIE_I32, &mox_code_i4_to_u4b8, &mox_order_marlin_a8),
               BOTH_DERIVED("scales", MOX_VENDOR_SCALES, MOXIE_DTYPE_NONE, &mox_code_int8_scales,
                            &mox_order_marlin_single),
               BOTH_FOR_UNDO("scales", MOX_VENDOR_SCALES, NULL), SYMMETRIC_ZEROS, BIASES },
    .constants = { { "w13_input_global_scale", input_factor_13, NULL },
                   { "w2_input_global_scale", input_factor_2, NULL } },
};

const mox_vendor_layout mox_vendor_marlin_gptq_int8_channel = {
    .name = "marlin-gptq-int8-channel",
    .summary = "Marlin tiles of int4 for INT8 activations, one scale for each row",
    .caller = "vLLM fused_marlin_moe, parameters of gptq_marlin, input_dtype int8",
    .accepts = { .elements = { MOXIE_U4B8, MOXIE_I4 },
                 .scales = HALVES,
                 .group_cols = { -1 },
                 .zeros = true,
                 .no_zeros = true,
                 .bias = true,
                 .biases = HALVES },
    .limits = MARLIN_LIMITS,
    .parts = { BOTH("qweight", MOX_VENDOR_CODES, MOXIE_I32, &mox_code_i4_to_u4b8, &mox_order_marlin_a8),
               BOTH("scales", MOX_VENDOR_SCALES, MOXIE_DTYPE_NONE, NULL, &mox_order_marlin_single), SYMMETRIC_ZEROS,
               BIASES },
};

/* ---- 8-bit activations, compressed-tensors and AWQ ------------------------------------------------------ */

const mox_vendor_layout mox_vendor_marlin_ct_fp8 = {
    .name = "marlin-ct-fp8",
    .summary = "Marlin tiles of int4 for FP8 activations, scales times 512, under compressed-tensors' names",
    .caller = "vLLM fused_marlin_moe, parameters of compressed-tensors wNa16, input_dtype float8_e4m3fn",
    .accepts = { .elements = { MOXIE_U4B8 },
                 .scales = HALVES,
                 .group_cols = { 32, 64, 128, -1 },
                 .whole_groups = true,
                 .no_zeros = true,
                 .ungated = true },
    .limits = MARLIN_LIMITS,
    .parts = { BOTH("weight_packed", MOX_VENDOR_CODES, MOXIE_I32, &mox_code_u4b8_to_s4m, &mox_order_marlin_a8),
               BOTH("weight_scale", MOX_VENDOR_SCALES, MOXIE_DTYPE_NONE, &mox_code_times_512,
                    &mox_order_marlin_single) },
};

const mox_vendor_layout mox_vendor_marlin_ct_int8 = {
    .name = "marlin-ct-int8",
    .summary = "Marlin tiles of int4 for INT8 activations, scales as int16 fractions, under compressed-tensors' names",
    .caller = "vLLM fused_marlin_moe, parameters of compressed-tensors wNa16, input_dtype int8",
    .accepts = { .elements = { MOXIE_U4B8, MOXIE_I4 },
                 .scales = HALVES,
                 .group_cols = { 32, 64, 128 },
                 .whole_groups = true,
                 .no_zeros = true,
                 .ungated = true },
    .surveys = true,
    .holds = has_groups,
    .limits = MARLIN_LIMITS,
    .parts = { BOTH("weight_packed", MOX_VENDOR_CODES, MOXIE_I32, &mox_code_i4_to_u4b8, &mox_order_marlin_a8),
               BOTH_DERIVED("weight_scale", MOX_VENDOR_SCALES, MOXIE_DTYPE_NONE, &mox_code_int8_scales,
                            &mox_order_marlin_single),
               BOTH_FOR_UNDO("weight_scale", MOX_VENDOR_SCALES, NULL) },
    .constants = { { "w13_input_global_scale", input_factor_13, NULL },
                   { "w2_input_global_scale", input_factor_2, NULL } },
};

const mox_vendor_layout mox_vendor_marlin_awq_fp8 = {
    .name = "marlin-awq-fp8",
    .summary = "Marlin tiles of int4 with zero points for FP8 activations, scales times 512",
    .caller = "vLLM fused_marlin_moe, parameters of awq_marlin, input_dtype float8_e4m3fn",
    .accepts = { .elements = { MOXIE_U4B8, MOXIE_I4 },
                 .scales = HALVES,
                 .group_cols = { 128, 64, 32, -1 },
                 .whole_groups = true,
                 .zeros = true,
                 .bias = true,
                 .biases = HALVES },
    .limits = MARLIN_LIMITS,
    .parts = { BOTH_HOW("qweight", MOX_VENDOR_CODES, MOXIE_I32, &mox_code_u4_to_s4m_of, &mox_order_marlin_a8,
                        MOX_VENDOR_BY_ZEROS),
               BOTH("scales", MOX_VENDOR_SCALES, MOXIE_DTYPE_NONE, &mox_code_times_512, &mox_order_marlin_single),
               BOTH("qzeros", MOX_VENDOR_ZEROS, MOXIE_I32, &mox_code_zeros_plus, &mox_order_marlin_zeros_a8), BIASES },
};

const mox_vendor_layout mox_vendor_marlin_awq_int8 = {
    .name = "marlin-awq-int8",
    .summary = "Marlin tiles of int4 with zero points for INT8 activations, scales as int16 fractions",
    .caller = "vLLM fused_marlin_moe, parameters of awq_marlin, input_dtype int8",
    .accepts = { .elements = { MOXIE_U4B8, MOXIE_I4 },
                 .scales = HALVES,
                 .group_cols = { 128, 64, 32 },
                 .whole_groups = true,
                 .zeros = true,
                 .bias = true,
                 .biases = HALVES },
    .surveys = true,
    .holds = has_groups,
    .limits = MARLIN_LIMITS,
    .parts = { BOTH("qweight", MOX_VENDOR_CODES, MOXIE_I32, &mox_code_i4_to_u4b8, &mox_order_marlin_a8),
               BOTH_DERIVED("scales", MOX_VENDOR_SCALES, MOXIE_DTYPE_NONE, &mox_code_int8_scales,
                            &mox_order_marlin_single),
               BOTH_FOR_UNDO("scales", MOX_VENDOR_SCALES, NULL),
               BOTH("qzeros", MOX_VENDOR_ZEROS, MOXIE_I32, &mox_code_zeros_plus, &mox_order_marlin_zeros_a8), BIASES },
    .constants = { { "w13_input_global_scale", input_factor_13, NULL },
                   { "w2_input_global_scale", input_factor_2, NULL } },
};

/* ---- moe_wna16 ------------------------------------------------------------------------------------ */

#define WNA16_WHY "scales are for 32, 64 or 128 columns"

/* A symmetric GPTQ file has zero points, and vLLM's layer then has none. */
#define SYMMETRIC_WNA16                                                                                                \
    { "moxie.w13_qzeros",        MOX_VENDOR_W13,   MOX_VENDOR_ZEROS,    MOXIE_DTYPE_NONE, NULL,                        \
      &mox_code_zeros_symmetric, &mox_order_plain, MOX_VENDOR_SYMMETRIC },                                             \
    {                                                                                                                  \
        "moxie.w2_qzeros", MOX_VENDOR_W2, MOX_VENDOR_ZEROS, MOXIE_DTYPE_NONE, NULL, &mox_code_zeros_symmetric,         \
            &mox_order_plain, MOX_VENDOR_SYMMETRIC                                                                     \
    }

/* vLLM loads scales for a part of a group, but its tensor for w2's zero points has no room for one. */
static bool holds_whole_zeros(const mox_vendor_plan *plan, const moxie_expert *expert, char *reason, size_t size)
{
    const int64_t group = plan->shape.w2.group_cols, cols = plan->intermediate;
    if (plan->repeat == 1 || plan->use.symmetric || expert->down.zero.data == NULL || cols % group == 0)
        return true;
    snprintf(reason, size,
             "intermediate is %lld, no multiple of the group, %lld, and vLLM's w2_qzeros have no room for the zero "
             "points of a part of a group",
             (long long)cols, (long long)group);
    return false;
}

const mox_vendor_layout mox_vendor_moe_wna16 = {
    .name = "moe-wna16",
    .summary = "rows of 4- or 8-bit codes, zero points of two rows in a byte",
    .caller = "vLLM fused_moe with moe_wna16 (Triton and CUDA)",
    .accepts = { .elements = { MOXIE_U4B8, MOXIE_U8B128, MOXIE_I4 },
                 .scales = HALVES,
                 .group_cols = { 128, 64, 32 },
                 .whole_groups = true,
                 .min_group = 32,
                 .zeros = true,
                 .no_zeros = true },
    .holds = holds_whole_zeros,
    .limits = { { MOX_VENDOR_HIDDEN, 32, false, WNA16_WHY }, { MOX_VENDOR_INTERMEDIATE, 32, false, WNA16_WHY } },
    .parts = { BOTH("qweight", MOX_VENDOR_CODES, MOXIE_U8, &mox_code_i4_to_u4b8, &mox_order_plain),
               BOTH("scales", MOX_VENDOR_SCALES, MOXIE_DTYPE_NONE, NULL, &mox_order_plain),
               BOTH_HOW("qzeros", MOX_VENDOR_ZEROS, MOXIE_U8, &mox_code_zeros_plus, &mox_order_row_pairs,
                        MOX_VENDOR_ASYMMETRIC),
               SYMMETRIC_WNA16 },
};
