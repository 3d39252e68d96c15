/* SPDX-License-Identifier: Apache-2.0
 *
 * moxie_scheme.h - the vocabulary of vLLM's fused-MoE quantization configs, by the same names and with
 * the same answers, so that an engine can translate one to one: constructors, predicates,
 * config_name, scale shapes and the OCP-MX scheme names; and the activation quantizers, bit-defined.
 *
 * A descriptor here says what vLLM's says (a dtype or a string, a group shape or none). What moxie
 * computes with is moxie_quant (moxie.h); moxie_scheme carries both.
 */
#ifndef MOXIE_SCHEME_H
#define MOXIE_SCHEME_H

#include <moxie/moxie.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a descriptor's scale is: vLLM's gpt-oss Triton path keeps a PrecisionConfig object in its place. */
typedef enum moxie_scheme_scale {
    MOXIE_SCHEME_SCALE_NONE = 0,
    MOXIE_SCHEME_SCALE_TENSOR = 1,
    MOXIE_SCHEME_SCALE_PRECISION = 2
} moxie_scheme_scale;

/* "" stands for none. A shape of {0,0} is none, -1 is the whole extent. */
typedef struct moxie_scheme_desc {
    /* "", "float8_e4m3fn", "int8", "nvfp4", "mxfp4", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp8", "int4", "fp8" */
    const char *dtype;
    int32_t dtype_is_string; /* vLLM keeps it as a string, not as a torch dtype */
    int32_t shape[2];
    int32_t has_scale;                      /* moxie_scheme_scale */
    int32_t has_gscale, has_zero, has_bias; /* gscale: of weights, vLLM's alphas */
} moxie_scheme_desc;

/* Arguments of a constructor; those that a constructor does not take must be zero. */
typedef struct moxie_scheme_args {
    uint32_t struct_size;
    int32_t per_act_token, per_out_ch;
    int32_t block[2];         /* {0,0}: none; mxfp4_mxfp8 and mxfp4_w4a8 take one and drop it, as vLLM does */
    int32_t bits;             /* gptq_marlin, awq_marlin: 4 or 8 */
    int32_t group_size;       /* gptq_marlin, awq_marlin; -1: per channel */
    const char *quant_dtype;  /* make, ocp_mx */
    const char *weight_dtype; /* make, ocp_mx; NULL: as quant_dtype */
    int32_t has_zero, has_bias, has_a_scale, has_gscale;
    int32_t scale_format;    /* moxie_dtype of weight scales where the constructor leaves it open; 0: its usual */
    int32_t scale_linear;    /* nvfp4: block scales in plain rows, vLLM's is_nvfp4_scale_swizzled = False */
    int32_t scale_precision; /* mxfp4_w4a16: weight scales are PrecisionConfig objects */
} moxie_scheme_args;
#define MOXIE_SCHEME_ARGS_INIT MOXIE_INIT(moxie_scheme_args)

typedef struct moxie_scheme {
    const char *constructor; /* row of schemes.def, or "combined" */
    moxie_scheme_desc a1, a2, w1, w2;
    int32_t scale_swizzled;   /* vLLM's is_nvfp4_scale_swizzled */
    moxie_quant a13, act2;    /* what moxie computes for the same scheme: activations into W13 and W2 */
    moxie_quant w13, weight2; /* element NONE: unquantized, to be set to the model's dtype */
} moxie_scheme;

/* Constructor i of schemes.def by name; NULL past the last. Immutable. */
MOXIE_API const char *moxie_scheme_constructor_at(int32_t i);
/* Builds a scheme with one of the 17 constructors. Illegal combinations are MOXIE_ERR_ARGUMENT with the rule
 * that was broken. Immutable. */
MOXIE_API moxie_status moxie_scheme_make(const char *constructor, const moxie_scheme_args *args, moxie_scheme *out,
                                         moxie_error *error);
/* w13 from one scheme, w2 from another (activation descriptors likewise). */
MOXIE_API moxie_status moxie_scheme_combine(const moxie_scheme *for_w13, const moxie_scheme *for_w2, moxie_scheme *out,
                                            moxie_error *error);

/* vLLM's a1_scale, w1_scale, ... (kind TENSOR) and w1_precision, ... (kind PRECISION): *present says whether `operand`
 * ("a1", "a2", "w1", "w2") has a scale; MOXIE_ERR_ARGUMENT when it has one of the other kind. Immutable. */
MOXIE_API moxie_status moxie_scheme_read_scale(const moxie_scheme *scheme, const char *operand, moxie_scheme_scale kind,
                                               int *present, moxie_error *error);

/* Predicates by vLLM's names, from the descriptors of W13's side: is_quantized, per_act_token_quant,
 * is_per_act_token, per_out_ch_quant, is_per_tensor, is_block_quantized, is_nvfp4_scale_swizzled, use_fp8_w8a8,
 * use_int8_w8a8, use_int8_w8a16, use_fp8_w8a16, use_int4_w4a16, use_nvfp4_w4a16, use_mxfp4_w4a16, use_mxfp4_w4a4,
 * use_nvfp4_w4a4, use_mxfp4_w4a8; -1 for an unknown name. Immutable. */
MOXIE_API int moxie_scheme_predicate(const moxie_scheme *scheme, const char *name);
/* 0 when there is no block shape. */
MOXIE_API int moxie_scheme_block_shape(const moxie_scheme *scheme, int32_t block[2]);
/* Name of vLLM's tuning file entry, or NULL. `dtype` is that of the hidden states. */
MOXIE_API const char *moxie_scheme_config_name(const moxie_scheme *scheme, moxie_dtype dtype);
/* The OCP-MX scheme name, or NULL; *unknown_pair (may be NULL) is set to 1 when a type is an OCP type but the pair
 * has no name (where vLLM logs a warning), else to 0. */
MOXIE_API const char *moxie_scheme_ocp_name(const moxie_scheme *scheme, int *unknown_pair);
/* vLLM's shapes of the activations' scales, which are (1,1) for nvfp4 and the mx formats too (moxie's own block scales
 * are [rows, ceil(cols/group)]). Return 0 when the activations are not quantized. */
MOXIE_API int moxie_scheme_scale_shape(const moxie_scheme *scheme, int64_t max_tokens, int64_t hidden,
                                       int64_t shape[2]);
MOXIE_API int moxie_scheme_batched_scale_shape(const moxie_scheme *scheme, int64_t experts, int64_t max_tokens,
                                               int64_t hidden, int64_t shape[3]);

/* Quantizes rows of activations, bit by bit as documented in docs/quantizers.md, the same on every backend.
 *   x [rows, cols] f32 (exact widenings of the hidden dtype), row stride cols
 *   codes [rows, cols] one code per byte
 *   scales [ceil(rows/group_rows), ceil(cols/group_cols)] f32: the decoded scale of each group
 *   given: the static scale, or the nvfp4 global, of quant.is_static / quant.global; ignored otherwise
 * MOXIE_ERR_UNSUPPORTED for a quant that no quantizer defines. Immutable. */
MOXIE_API moxie_status moxie_quantize_activations(const moxie_quant *quant, const float *x, int64_t rows, int64_t cols,
                                                  float given, uint8_t *codes, float *scales, moxie_error *error);

#ifdef __cplusplus
}
#endif

#endif /* MOXIE_SCHEME_H */
