/* SPDX-License-Identifier: Apache-2.0
 *
 * scheme_query.c - what vLLM's FusedMoEQuantConfig says about a scheme: predicates, block shape, the name in tuning
 * files, OCP-MX scheme names, shapes of activation scales. As in vLLM, the answers depend only on the descriptors of
 * W13. So two schemes with equal descriptors get equal answers, even misleading ones: int4 weights with fp8 activations
 * are use_fp8_w8a8. Source: vLLM model_executor/layers/fused_moe/config.py and quantization/utils/ocp_mx_utils.py.
 */
#include "quant/scheme.h"

#include <string.h>

#include "base/sizes.h"
#include "base/status.h"

static bool is(const char *dtype, const char *name)
{
    return strcmp(dtype, name) == 0;
}

/* ---- predicates --------------------------------------------------------------------------------- */

/* use_*: the dtypes that the activation and the weight must have. ANY: the predicate accepts all. */
static const char ANY[] = "*";
static const struct {
    const char *name, *activation, *weight;
} uses[] = {
    { "use_fp8_w8a8", "float8_e4m3fn", ANY }, { "use_int8_w8a8", "int8", ANY },
    { "use_int8_w8a16", "", "int8" },         { "use_fp8_w8a16", "", "float8_e4m3fn" },
    { "use_int4_w4a16", "", "int4" },         { "use_nvfp4_w4a16", "", "nvfp4" },
    { "use_mxfp4_w4a16", "", "mxfp4" },       { "use_mxfp4_w4a4", "mxfp4", "mxfp4" },
    { "use_nvfp4_w4a4", "nvfp4", ANY },       { "use_mxfp4_w4a8", "fp8", "mxfp4" },
};

static bool is_quantized(const moxie_scheme *s)
{
    return !is(s->a1.dtype, "");
}

static bool is_per_token(const moxie_scheme *s)
{
    return mox_scheme_shape_is(&s->a1, 1, -1);
}

static bool is_per_out_ch(const moxie_scheme *s)
{
    return mox_scheme_shape_is(&s->w1, 1, -1);
}

static bool is_per_tensor(const moxie_scheme *s)
{
    return mox_scheme_shape_is(&s->a1, -1, -1);
}

static bool is_block(const moxie_scheme *s)
{
    return !mox_scheme_shape_is(&s->a1, 0, 0) && !is_per_tensor(s) && !is_per_token(s);
}

static bool is_swizzled(const moxie_scheme *s)
{
    return s->scale_swizzled != 0;
}

static bool is_transposed(const moxie_scheme *s)
{
    return s->scale_transposed != 0;
}

static const struct {
    const char *name;
    bool (*holds)(const moxie_scheme *scheme);
} properties[] = {
    { "is_quantized", is_quantized },           { "per_act_token_quant", is_per_token },
    { "is_per_act_token", is_per_token },       { "per_out_ch_quant", is_per_out_ch },
    { "is_per_tensor", is_per_tensor },         { "is_block_quantized", is_block },
    { "is_nvfp4_scale_swizzled", is_swizzled }, { "is_scale_swizzled", is_swizzled },
    { "is_scale_transposed", is_transposed },
};

int mox_scheme_predicate(const moxie_scheme *scheme, const char *name)
{
    for (size_t i = 0; i < sizeof properties / sizeof properties[0]; i++)
        if (is(properties[i].name, name))
            return properties[i].holds(scheme);
    for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++)
        if (is(uses[i].name, name))
            return is(uses[i].activation, scheme->a1.dtype) &&
                   (uses[i].weight == ANY || is(uses[i].weight, scheme->w1.dtype));
    return -1;
}

int mox_scheme_block_shape(const moxie_scheme *scheme, int32_t block[2])
{
    if (!is_block(scheme))
        return 0;
    block[0] = scheme->a1.shape[0];
    block[1] = scheme->a1.shape[1];
    return 1;
}

/* ---- names ---------------------------------------------------------------------------------------- */

static const struct {
    const char *weight, *activation, *name;
} ocp_schemes[] = {
    { "mxfp4", "", "w_mxfp4" },
    { "mxfp4", "mxfp4", "w_mxfp4_a_mxfp4" },
    { "mxfp4", "mxfp6_e3m2", "w_mxfp4_a_mxfp6_e3m2" },
    { "mxfp4", "mxfp6_e2m3", "w_mxfp4_a_mxfp6_e2m3" },
    { "mxfp4", "fp8", "w_mxfp4_a_fp8" },
    { "mxfp6_e3m2", "", "w_mxfp6_e3m2" },
    { "mxfp6_e3m2", "mxfp6_e3m2", "w_mxfp6_e3m2_a_mxfp6_e3m2" },
    { "mxfp6_e3m2", "fp8", "w_mxfp6_e3m2_a_fp8" },
    { "mxfp6_e2m3", "", "w_mxfp6_e2m3" },
    { "mxfp6_e2m3", "mxfp6_e2m3", "w_mxfp6_e2m3_a_mxfp6_e2m3" },
    { "mxfp6_e2m3", "fp8", "w_mxfp6_e2m3_a_fp8" },
};

/* The OCP types that a descriptor can hold. (Its "mxfp8" is not the OCP name "mxfp8_e4m3".) */
static bool is_ocp_type(const char *dtype)
{
    return is(dtype, "mxfp4") || is(dtype, "mxfp6_e3m2") || is(dtype, "mxfp6_e2m3");
}

/* A torch dtype: present, and not a string. vLLM then looks for no OCP scheme and does not warn. */
static bool is_torch_type(const moxie_scheme_desc *desc)
{
    return !is(desc->dtype, "") && !desc->dtype_is_string;
}

const char *mox_scheme_ocp_name(const moxie_scheme *scheme, int *unknown_pair)
{
    const char *activation = scheme->a1.dtype, *weight = scheme->w1.dtype;
    const char *name = NULL;
    const bool asked = !is_torch_type(&scheme->a1) && !is_torch_type(&scheme->w1);
    for (size_t i = 0; asked && i < sizeof ocp_schemes / sizeof ocp_schemes[0]; i++)
        if (is(ocp_schemes[i].weight, weight) && is(ocp_schemes[i].activation, activation))
            name = ocp_schemes[i].name;
    if (unknown_pair)
        *unknown_pair = asked && !name && (is_ocp_type(activation) || is_ocp_type(weight));
    return name;
}

/* No entry for int8_w8a8: vLLM has no tuning name for it. */
const char *mox_scheme_config_name(const moxie_scheme *scheme, moxie_dtype dtype)
{
    static const char *const names[][2] = { { "use_fp8_w8a8", "fp8_w8a8" },
                                            { "use_fp8_w8a16", "fp8_w8a16" },
                                            { "use_int8_w8a16", "int8_w8a16" },
                                            { "use_int4_w4a16", "int4_w4a16" } };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (mox_scheme_predicate(scheme, names[i][0]) == 1)
            return names[i][1];
    if (mox_scheme_ocp_name(scheme, NULL))
        return NULL;
    return dtype == MOXIE_F32 ? "float32" : NULL;
}

/* ---- scales ----------------------------------------------------------------------------------------- */

int mox_scheme_scale_shape(const moxie_scheme *scheme, int64_t max_tokens, int64_t hidden, int64_t shape[2])
{
    if (!is_quantized(scheme))
        return 0;
    const int64_t block_cols = scheme->a1.shape[1];
    const bool block = is_block(scheme);
    shape[0] = block || is_per_token(scheme) ? max_tokens : 1;
    shape[1] = block && block_cols > 0 ? mox_ceil_div(hidden, block_cols) : 1;
    return 1;
}

int mox_scheme_batched_scale_shape(const moxie_scheme *scheme, int64_t experts, int64_t max_tokens, int64_t hidden,
                                   int64_t shape[3])
{
    int64_t each[2];
    if (!mox_scheme_scale_shape(scheme, max_tokens, hidden, each))
        return 0;
    shape[0] = experts;
    shape[1] = each[0];
    shape[2] = each[1];
    return 1;
}

moxie_status mox_scheme_read_scale(const moxie_scheme *scheme, const char *tensor, moxie_scheme_scale kind,
                                   int *present, moxie_error *error)
{
    const moxie_scheme_desc *desc = is(tensor, "a1")   ? &scheme->a1
                                    : is(tensor, "a2") ? &scheme->a2
                                    : is(tensor, "w1") ? &scheme->w1
                                    : is(tensor, "w2") ? &scheme->w2
                                                       : NULL;
    MOX_FAIL_IF(!desc, MOXIE_ERR_ARGUMENT, error, "tensor \"%s\" is unknown; the tensors are a1, a2, w1, w2", tensor);
    MOX_FAIL_IF(kind != MOXIE_SCHEME_SCALE_TENSOR && kind != MOXIE_SCHEME_SCALE_PRECISION, MOXIE_ERR_ARGUMENT, error,
                "scale kind %d is unknown; read a scale as a tensor (1) or as a PrecisionConfig (2)", (int)kind);
    MOX_FAIL_IF(desc->has_scale != MOXIE_SCHEME_SCALE_NONE && desc->has_scale != (int32_t)kind, MOXIE_ERR_ARGUMENT,
                error, "the scale of %s is a %s and cannot be read as a %s", tensor,
                kind == MOXIE_SCHEME_SCALE_TENSOR ? "PrecisionConfig" : "tensor",
                kind == MOXIE_SCHEME_SCALE_TENSOR ? "tensor" : "PrecisionConfig");
    *present = desc->has_scale != MOXIE_SCHEME_SCALE_NONE;
    return MOXIE_OK;
}
