/* SPDX-License-Identifier: Apache-2.0
 *
 * act_quant.c - quantizes activations to codes and scales, bit by bit as docs/quantizers.md defines.
 *
 *     row x [cols]  ->  codes [cols], one per byte;  scales [ceil(cols / group_cols)], decoded to f32
 *
 * The rules are in act_rules.h, which CUDA kernels compile, too; the loops are in act_codes.h. A row of `quantizers`
 * states which moxie_quant a rule is for. A rule sees one group of one row; for per-tensor and per-token rules the
 * group is the whole row.
 */
#include "quant/quant.h"

#include <float.h>

#include "base/sizes.h"
#include "quant/act_codes.h"

typedef enum granularity { PER_TENSOR, PER_TOKEN, PER_GROUP, OTHER } granularity;

/* By the description, not by the extents: a group that covers the whole row is still PER_GROUP. */
static granularity granularity_of(const moxie_quant *quant)
{
    const bool one_row = quant->group_rows == 0 || quant->group_rows == 1;
    if (quant->group_cols > 0)
        return one_row ? PER_GROUP : OTHER;
    return one_row ? PER_TOKEN : quant->group_rows == -1 ? PER_TENSOR : OTHER;
}

float mox_amax(const float *x, int64_t count)
{
    return mox_act_loops_best()->amax(x, count);
}

/* ---- the list ---------------------------------------------------------------------------------------- */

#define BIT(i)       (1u << (i))
#define FP8_ELEMENTS (BIT(MOXIE_F8_E4M3) | BIT(MOXIE_F8_E5M2))
#define MX_ELEMENTS  (FP8_ELEMENTS | BIT(MOXIE_F6_E3M2) | BIT(MOXIE_F6_E2M3) | BIT(MOXIE_F4_E2M1))
#define ROUND_EVEN   BIT(MOXIE_ROUND_EVEN)
#define ROUND_ANY    (ROUND_EVEN | BIT(MOXIE_ROUND_AWAY) | BIT(MOXIE_ROUND_TRUNCATE))
#define RULE_AMAX    (BIT(MOXIE_RULE_DEFAULT) | BIT(MOXIE_RULE_AMAX))
#define RULE_MX                                                                                                        \
    (BIT(MOXIE_RULE_DEFAULT) | BIT(MOXIE_RULE_CEIL) | BIT(MOXIE_RULE_QUARK_EVEN) | BIT(MOXIE_RULE_OCP_FLOOR))
#define GLOBAL_NONE BIT(MOXIE_GLOBAL_NONE)
#define GLOBAL_ANY  (GLOBAL_NONE | BIT(MOXIE_GLOBAL_MULTIPLY) | BIT(MOXIE_GLOBAL_DIVIDE))

/* Sets of values: bit i stands for value i of the enumeration in moxie.h. */
typedef struct quantizer_row {
    mox_act_rule rule;
    uint32_t elements;
    moxie_dtype scale;
    granularity granularity;
    uint32_t statics; /* bit 0: dynamic, bit 1: static */
    uint32_t rules, roundings, globals;
} quantizer_row;

static const quantizer_row quantizers[] = {
    { MOX_ACT_FP8_TENSOR_STATIC, FP8_ELEMENTS, MOXIE_F32, PER_TENSOR, BIT(1), RULE_AMAX, ROUND_EVEN, GLOBAL_NONE },
    { MOX_ACT_FP8_TENSOR_DYNAMIC, FP8_ELEMENTS, MOXIE_F32, PER_TENSOR, BIT(0), RULE_AMAX, ROUND_EVEN, GLOBAL_NONE },
    { MOX_ACT_FP8_TOKEN, FP8_ELEMENTS, MOXIE_F32, PER_TOKEN, BIT(0), RULE_AMAX, ROUND_EVEN, GLOBAL_NONE },
    { MOX_ACT_FP8_GROUP, FP8_ELEMENTS, MOXIE_F32, PER_GROUP, BIT(0), RULE_AMAX | BIT(MOXIE_RULE_UE8M0), ROUND_EVEN,
      GLOBAL_NONE },
    { MOX_ACT_INT8_TENSOR_STATIC, BIT(MOXIE_I8), MOXIE_F32, PER_TENSOR, BIT(1), RULE_AMAX, ROUND_ANY, GLOBAL_NONE },
    { MOX_ACT_INT8_TENSOR_DYNAMIC, BIT(MOXIE_I8), MOXIE_F32, PER_TENSOR, BIT(0), RULE_AMAX, ROUND_ANY, GLOBAL_NONE },
    { MOX_ACT_INT8_TOKEN, BIT(MOXIE_I8), MOXIE_F32, PER_TOKEN, BIT(0), RULE_AMAX, ROUND_ANY, GLOBAL_NONE },
    { MOX_ACT_INT8_GROUP, BIT(MOXIE_I8), MOXIE_F32, PER_GROUP, BIT(0), RULE_AMAX, ROUND_ANY, GLOBAL_NONE },
    { MOX_ACT_MX_GROUP, MX_ELEMENTS, MOXIE_F8_E8M0, PER_GROUP, BIT(0), RULE_MX, ROUND_EVEN, GLOBAL_NONE },
    { MOX_ACT_MX_GROUP, BIT(MOXIE_F8_E4M3), MOXIE_F8_E8M0, PER_GROUP, BIT(0), BIT(MOXIE_RULE_VLLM_FLOOR), ROUND_EVEN,
      GLOBAL_NONE },
    { MOX_ACT_NVFP4_GROUP, BIT(MOXIE_F4_E2M1), MOXIE_F8_E4M3, PER_GROUP, BIT(0) | BIT(1), RULE_AMAX, ROUND_EVEN,
      GLOBAL_ANY },
    { MOX_ACT_INT8_HALF, BIT(MOXIE_I8), MOXIE_F16, PER_GROUP, BIT(0), RULE_AMAX, ROUND_EVEN, GLOBAL_NONE },
    { MOX_ACT_INT8_INVERSE, BIT(MOXIE_I8), MOXIE_F32, PER_GROUP, BIT(0), BIT(MOXIE_RULE_INVERSE), ROUND_EVEN,
      GLOBAL_NONE },
};

static bool in_set(uint32_t set, int32_t number)
{
    return number >= 0 && number < 32 && (set >> number & 1);
}

static const quantizer_row *find_row(const moxie_quant *quant)
{
    for (size_t i = 0; i < sizeof quantizers / sizeof quantizers[0]; i++) {
        const quantizer_row *row = &quantizers[i];
        if (in_set(row->elements, quant->element) && row->scale == quant->scale &&
            row->granularity == granularity_of(quant) && in_set(row->statics, quant->is_static != 0) &&
            in_set(row->rules, quant->rule) && in_set(row->roundings, quant->rounding) &&
            in_set(row->globals, quant->global) && !quant->has_zero)
            return row;
    }
    return NULL;
}

int32_t mox_act_quant_rule(const moxie_quant *quant)
{
    return (int32_t)find_row(quant)->rule;
}

bool mox_act_quant_is_defined(const moxie_quant *quant)
{
    return find_row(quant) != NULL;
}

bool mox_act_quant_needs_amax(const moxie_quant *quant)
{
    return quant->element != MOXIE_DTYPE_NONE && granularity_of(quant) == PER_TENSOR && !quant->is_static;
}

bool mox_act_quant_needs_static_scale(const moxie_quant *quant)
{
    return quant->global != MOXIE_GLOBAL_NONE || (quant->is_static && granularity_of(quant) == PER_TENSOR);
}

int64_t mox_act_group_cols(const moxie_quant *quant, int64_t cols)
{
    return mox_group_cols(quant, cols);
}

void mox_act_quant_row(const mox_act_quantizer *quantizer, const float *x, int64_t cols, uint8_t *codes, float *scales)
{
    const moxie_quant *quant = quantizer->quant;
    const mox_act_groups groups = { .rule = find_row(quant)->rule,
                                    .input = { .scale_rule = quant->rule,
                                               .global = quant->global,
                                               .largest = mox_format_of(quant->element)->max,
                                               .static_scale = quantizer->static_scale,
                                               .batch_amax = quantizer->amax },
                                    .whole = granularity_of(quant) == PER_TENSOR,
                                    .element = quant->element,
                                    .rounding = quant->rounding,
                                    .cols = cols,
                                    .group = mox_act_group_cols(quant, cols) };
    mox_act_loops_best()->row(&groups, x, codes, scales);
}

void mox_act_quant_values(const moxie_quant *quant, const uint8_t *codes, int64_t cols, float *values)
{
    mox_act_loops_best()->values(quant->element, codes, cols, values);
}

moxie_status mox_act_quant_check_static_scale(const moxie_quant *quant, float static_scale, const char *what,
                                              moxie_error *error)
{
    const bool usable = static_scale >= FLT_MIN && static_scale <= 1.0f / FLT_MIN;
    MOX_FAIL_IF(mox_act_quant_needs_static_scale(quant) && !usable, MOXIE_ERR_ARGUMENT, error,
                "%s: the %s of the activations is %g; it must be a normal number from 2^-126 to 2^126", what,
                quant->global != MOXIE_GLOBAL_NONE ? "global" : "static scale", (double)static_scale);
    return MOXIE_OK;
}

moxie_status mox_quantize_activations(const moxie_quant *quant, const float *x, int64_t rows, int64_t cols,
                                      float static_scale, uint8_t *codes, float *scales, moxie_error *error)
{
    const char *what = "quantize activations";
    uint64_t count;
    MOX_TRY(mox_quant_check_act(quant, what, error));
    MOX_FAIL_IF(mox_quant_is_none(quant), MOXIE_ERR_UNSUPPORTED, error,
                "%s: element NONE means that they pass as they come; there are no codes to make", what);
    MOX_TRY(mox_act_quant_check_static_scale(quant, static_scale, what, error));
    MOX_FAIL_IF(rows < 0 || cols < 0 || !mox_mul_u64((uint64_t)rows, (uint64_t)cols, &count) || count > INT64_MAX / 4,
                MOXIE_ERR_ARGUMENT, error, "%s: [%lld, %lld] is no shape that memory can hold", what, (long long)rows,
                (long long)cols);
    MOX_FAIL_IF(count > 0 && (!x || !codes || !scales), MOXIE_ERR_ARGUMENT, error,
                "%s: x, codes or scales is NULL for [%lld, %lld]", what, (long long)rows, (long long)cols);
    const bool whole = granularity_of(quant) == PER_TENSOR;
    const mox_act_quantizer quantizer = {
        .quant = quant,
        .static_scale = static_scale,
        .amax = mox_act_quant_needs_amax(quant) ? mox_amax(x, (int64_t)count) : 0,
    };
    const int64_t scale_cols = mox_scale_cols(quant, cols);
    for (int64_t r = 0; r < rows; r++)
        mox_act_quant_row(&quantizer, x + r * cols, cols, codes + r * cols, whole ? scales : scales + r * scale_cols);
    return MOXIE_OK;
}
