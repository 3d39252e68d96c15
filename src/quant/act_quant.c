/* SPDX-License-Identifier: Apache-2.0
 *
 * act_quant.c - activations to codes and scales, bit by bit as docs/quantizers.md defines.
 *
 *     row x [cols]  ->  codes [cols], one a byte;  scales [ceil(cols / group_cols)], decoded to f32
 *
 * One function per rule and one row of `quantizers` for each: which moxie_quant it serves. A function gets
 * one group of one row (per-tensor and per-token rules: the whole row). Every line is one IEEE f32
 * operation, rounded to nearest even, subnormals kept; the order is part of the definition, since another
 * one can move a value across a rounding boundary. The CUDA kernels do the same operations.
 * Sources: vLLM's fp8 and int8 kernels, FlashInfer's MX and NVFP4 quantizers (exact mode), OCP MX
 * specification 1.0; docs/quantizers.md names each.
 */
#include "quant/quant.h"

#include <float.h>

#include "base/sizes.h"
#include "quant/scale_rule.h"

typedef enum granularity { PER_TENSOR, PER_TOKEN, PER_GROUP, OTHER } granularity;

/* Extents as described, not as they turn out: a group that covers the row is still a group. */
static granularity granularity_of(const moxie_quant *quant)
{
    const bool one_row = quant->group_rows == 0 || quant->group_rows == 1;
    if (quant->group_cols > 0)
        return one_row ? PER_GROUP : OTHER;
    return one_row ? PER_TOKEN : quant->group_rows == -1 ? PER_TENSOR : OTHER;
}

float mox_amax(const float *x, int64_t count)
{
    float amax = 0;
    for (int64_t i = 0; i < count; i++) {
        const float a = fabsf(x[i]);
        if (a > amax)
            amax = a;
    }
    /* An infinity counts as the largest finite number, so that scales stay finite and it saturates. */
    return amax > FLT_MAX ? FLT_MAX : amax;
}

static float at_least(float value, float floor)
{
    return value > floor ? value : floor;
}

/* NaN passes. Infinities end here: E5M2 would keep them. */
static float clamp(float value, float limit)
{
    return value > limit ? limit : value < -limit ? -limit : value;
}

/* ---- floats: codes = rn(clamp(x * r)) or rn(clamp(x / s)) ---------------------------------------- */

typedef struct group {
    const moxie_quant *quant;
    const mox_format *element;
    const mox_act_quantizer *quantizer;
    const float *x;
    int64_t count;
    uint8_t *codes;
} group;

static void encode_product(const group *g, float factor)
{
    for (int64_t i = 0; i < g->count; i++)
        g->codes[i] = (uint8_t)g->element->encode(clamp(g->x[i] * factor, g->element->max));
}

static void encode_quotient(const group *g, float scale)
{
    for (int64_t i = 0; i < g->count; i++)
        g->codes[i] = (uint8_t)g->element->encode(clamp(g->x[i] / scale, g->element->max));
}

static float fp8_tensor_static(const group *g)
{
    const float scale = g->quantizer->given;
    encode_product(g, 1.0f / scale);
    return scale;
}

static float fp8_tensor_dynamic(const group *g)
{
    const float amax = g->quantizer->amax;
    const float scale = amax == 0 ? 1.0f : at_least(amax / g->element->max, FLT_MIN);
    encode_product(g, 1.0f / scale);
    return scale;
}

static float fp8_token(const group *g)
{
    const float floor = 1.0f / (g->element->max * 512.0f);
    const float scale = at_least(mox_amax(g->x, g->count) / g->element->max, floor);
    encode_quotient(g, scale);
    return scale;
}

static float fp8_group(const group *g)
{
    float scale = at_least(mox_amax(g->x, g->count), 1e-10f) / g->element->max;
    if (g->quant->rule == MOXIE_RULE_UE8M0)
        scale = mox_power_of_two_up(at_least(scale, 1e-10f));
    encode_quotient(g, scale);
    return scale;
}

static float mx_group(const group *g)
{
    const int32_t e = mox_scale_exponent(g->quant->rule, g->element, mox_amax(g->x, g->count));
    const float scale = mox_f8_e8m0_decode((uint32_t)(e + 127));
    encode_quotient(g, scale); /* exact, up to an underflow that rounds to zero either way */
    return scale;
}

/* gs turns values into multiples of the smallest block scale, 1 / gs turns them back. */
static float nvfp4_group(const group *g)
{
    const float given = g->quantizer->given;
    float gs = 1, inverse = 1;
    if (g->quant->global == MOXIE_GLOBAL_DIVIDE) {
        gs = given;
        inverse = 1.0f / given;
    } else if (g->quant->global == MOXIE_GLOBAL_MULTIPLY) {
        gs = 1.0f / given;
        inverse = given;
    }
    const float amax = mox_amax(g->x, g->count);
    const float product = amax * (gs * (1.0f / 6.0f));
    const float scale = mox_f8_e4m3_decode(mox_f8_e4m3_encode(product));
    float factor = 0;
    if (amax != 0) {
        const float reciprocal = 1.0f / (scale * inverse);
        factor = reciprocal > FLT_MAX ? FLT_MAX : reciprocal;
    }
    encode_product(g, factor);
    return scale;
}

/* ---- integers -------------------------------------------------------------------------------------- */

/* i8 encoding saturates, rounds halves to even and makes zero of NaN; the other roundings come before it. */
static uint8_t encode_int8(float value, int32_t rounding)
{
    if (rounding == MOXIE_ROUND_AWAY)
        value = roundf(value);
    else if (rounding == MOXIE_ROUND_TRUNCATE)
        value = truncf(value);
    return (uint8_t)mox_i8_encode(value);
}

static void encode_int8_quotient(const group *g, float scale)
{
    for (int64_t i = 0; i < g->count; i++)
        g->codes[i] = encode_int8(g->x[i] / scale, g->quant->rounding);
}

static float int8_tensor_static(const group *g)
{
    encode_int8_quotient(g, g->quantizer->given);
    return g->quantizer->given;
}

static float int8_tensor_dynamic(const group *g)
{
    const float scale = at_least(g->quantizer->amax, 1e-10f) / 127.0f;
    encode_int8_quotient(g, scale);
    return scale;
}

static float int8_token(const group *g)
{
    const float a = at_least(mox_amax(g->x, g->count), 1e-10f);
    const float factor = 127.0f / a;
    for (int64_t i = 0; i < g->count; i++)
        g->codes[i] = encode_int8(g->x[i] * factor, g->quant->rounding);
    return a / 127.0f;
}

static float int8_group(const group *g)
{
    const float scale = at_least(mox_amax(g->x, g->count), 1e-10f) / 127.0f;
    encode_int8_quotient(g, scale);
    return scale;
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

/* Sets are bits numbered as in moxie.h. */
typedef struct quantizer_row {
    float (*run)(const group *g); /* writes the codes, returns the scale */
    uint32_t elements;
    moxie_dtype scale;
    granularity granularity;
    uint32_t statics; /* bit 0: dynamic, bit 1: static */
    uint32_t rules, roundings, globals;
} quantizer_row;

static const quantizer_row quantizers[] = {
    { fp8_tensor_static, FP8_ELEMENTS, MOXIE_F32, PER_TENSOR, BIT(1), RULE_AMAX, ROUND_EVEN, GLOBAL_NONE },
    { fp8_tensor_dynamic, FP8_ELEMENTS, MOXIE_F32, PER_TENSOR, BIT(0), RULE_AMAX, ROUND_EVEN, GLOBAL_NONE },
    { fp8_token, FP8_ELEMENTS, MOXIE_F32, PER_TOKEN, BIT(0), RULE_AMAX, ROUND_EVEN, GLOBAL_NONE },
    { fp8_group, FP8_ELEMENTS, MOXIE_F32, PER_GROUP, BIT(0), RULE_AMAX | BIT(MOXIE_RULE_UE8M0), ROUND_EVEN,
      GLOBAL_NONE },
    { int8_tensor_static, BIT(MOXIE_I8), MOXIE_F32, PER_TENSOR, BIT(1), RULE_AMAX, ROUND_ANY, GLOBAL_NONE },
    { int8_tensor_dynamic, BIT(MOXIE_I8), MOXIE_F32, PER_TENSOR, BIT(0), RULE_AMAX, ROUND_ANY, GLOBAL_NONE },
    { int8_token, BIT(MOXIE_I8), MOXIE_F32, PER_TOKEN, BIT(0), RULE_AMAX, ROUND_ANY, GLOBAL_NONE },
    { int8_group, BIT(MOXIE_I8), MOXIE_F32, PER_GROUP, BIT(0), RULE_AMAX, ROUND_ANY, GLOBAL_NONE },
    { mx_group, MX_ELEMENTS, MOXIE_F8_E8M0, PER_GROUP, BIT(0), RULE_MX, ROUND_EVEN, GLOBAL_NONE },
    { mx_group, BIT(MOXIE_F8_E4M3), MOXIE_F8_E8M0, PER_GROUP, BIT(0), BIT(MOXIE_RULE_VLLM_FLOOR), ROUND_EVEN,
      GLOBAL_NONE },
    { nvfp4_group, BIT(MOXIE_F4_E2M1), MOXIE_F8_E4M3, PER_GROUP, BIT(0) | BIT(1), RULE_AMAX, ROUND_EVEN, GLOBAL_ANY },
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

bool mox_act_quant_is_defined(const moxie_quant *quant)
{
    return find_row(quant) != NULL;
}

bool mox_act_quant_needs_amax(const moxie_quant *quant)
{
    return quant->element != MOXIE_DTYPE_NONE && granularity_of(quant) == PER_TENSOR && !quant->is_static;
}

bool mox_act_quant_needs_given(const moxie_quant *quant)
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
    const quantizer_row *row = find_row(quant);
    const int64_t step = mox_act_group_cols(quant, cols);
    for (int64_t k = 0; k < cols; k += step) {
        const group g = {
            .quant = quant,
            .element = mox_format_of(quant->element),
            .quantizer = quantizer,
            .x = x + k,
            .count = mox_min_i64(step, cols - k),
            .codes = codes + k,
        };
        scales[k / step] = row->run(&g);
    }
}

moxie_status mox_act_quant_check_given(const moxie_quant *quant, float given, const char *what, moxie_error *error)
{
    const bool usable = given >= FLT_MIN && given <= 1.0f / FLT_MIN;
    MOX_FAIL_IF(mox_act_quant_needs_given(quant) && !usable, MOXIE_ERR_ARGUMENT, error,
                "%s: the %s of the activations is %g; it must be a normal number from 2^-126 to 2^126", what,
                quant->global != MOXIE_GLOBAL_NONE ? "global" : "static scale", (double)given);
    return MOXIE_OK;
}

moxie_status mox_quantize_activations(const moxie_quant *quant, const float *x, int64_t rows, int64_t cols, float given,
                                      uint8_t *codes, float *scales, moxie_error *error)
{
    const char *what = "quantize activations";
    uint64_t count;
    MOX_TRY(mox_quant_check_act(quant, what, error));
    MOX_FAIL_IF(mox_quant_is_none(quant), MOXIE_ERR_UNSUPPORTED, error,
                "%s: element NONE means that they pass as they come; there are no codes to make", what);
    MOX_TRY(mox_act_quant_check_given(quant, given, what, error));
    MOX_FAIL_IF(rows < 0 || cols < 0 || !mox_mul_u64((uint64_t)rows, (uint64_t)cols, &count) || count > INT64_MAX / 4,
                MOXIE_ERR_ARGUMENT, error, "%s: [%lld, %lld] is no shape that memory can hold", what, (long long)rows,
                (long long)cols);
    MOX_FAIL_IF(count > 0 && (!x || !codes || !scales), MOXIE_ERR_ARGUMENT, error,
                "%s: x, codes or scales is NULL for [%lld, %lld]", what, (long long)rows, (long long)cols);
    const bool whole = granularity_of(quant) == PER_TENSOR;
    const mox_act_quantizer quantizer = {
        .quant = quant,
        .given = given,
        .amax = mox_act_quant_needs_amax(quant) ? mox_amax(x, (int64_t)count) : 0,
    };
    const int64_t scale_cols = mox_scale_cols(quant, cols);
    for (int64_t r = 0; r < rows; r++)
        mox_act_quant_row(&quantizer, x + r * cols, cols, codes + r * cols, whole ? scales : scales + r * scale_cols);
    return MOXIE_OK;
}
