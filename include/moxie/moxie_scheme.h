/* SPDX-License-Identifier: Apache-2.0
 *
 * moxie_scheme.h - vLLM's fused-MoE quantization configs by vLLM's own names and with its answers, so that an engine
 * can translate one to one: constructors, predicates, config_name, scale shapes, OCP-MX scheme names. Also the
 * activation quantizers, defined bit by bit.
 *
 *     moxie_scheme_make("fp8_w8a8", args)  ->  moxie_scheme:  what vLLM says (a1, a2, w1, w2)
 *                                                             what moxie computes (a13, act2, w13, weight2)
 *
 * The rules of moxie.h about calls, threads and structs hold here too.
 */
#ifndef MOXIE_SCHEME_H
#define MOXIE_SCHEME_H

#include <moxie/moxie.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What kind of scale a descriptor has. In vLLM's Triton path for gpt-oss it is a PrecisionConfig object, not a tensor.
 */
typedef enum moxie_scheme_scale {
    MOXIE_SCHEME_SCALE_NONE = 0,
    MOXIE_SCHEME_SCALE_TENSOR = 1,
    MOXIE_SCHEME_SCALE_PRECISION = 2
} moxie_scheme_scale;

/* Which tensors of a pair there are: one for W13 and one for W2, or one for the activations into each. */
typedef enum moxie_scheme_sides {
    MOXIE_SCHEME_SIDES_USUAL = 0, /* as the constructor has it when vLLM's argument is left out */
    MOXIE_SCHEME_SIDES_BOTH = 1,
    MOXIE_SCHEME_SIDES_W13 = 2,
    MOXIE_SCHEME_SIDES_W2 = 3,
    MOXIE_SCHEME_SIDES_NONE = 4
} moxie_scheme_sides;

/* One of vLLM's descriptors. dtype "" and shape {0,0} mean none; -1 in a shape means the whole extent. The string is
 * static. */
typedef struct moxie_scheme_desc {
    /* "", "nvfp4", "mxfp4", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp8", "int4", "fp8", or the name of a torch dtype:
     * "float8_e4m3fn", "float8_e5m2", "int8", "uint8", "float16", "bfloat16", "float32" */
    const char *dtype;
    int32_t dtype_is_string; /* vLLM keeps it as a string, not as a torch dtype */
    int32_t shape[2];
    int32_t has_scale;                      /* moxie_scheme_scale */
    int32_t has_gscale, has_zero, has_bias; /* gscale: the global scale; of weights it is vLLM's alphas */
    uint32_t reserved[5];                   /* zero */
} moxie_scheme_desc;

/* Arguments of a constructor. Fields that the constructor does not use must be zero. The has_... fields are
 * moxie_scheme_sides. vLLM's gemm1_alpha, gemm1_beta and gemm1_clamp_limit are moxie_activation's, and its mx_alignment
 * is a property of a layout; neither is here. vLLM's block [0, 0], which its own scale_shape divides by, and negative
 * extents other than -1 cannot be said. */
typedef struct moxie_scheme_args {
    uint32_t struct_size;
    int32_t per_act_token, per_out_ch;
    int32_t block[2];         /* {0,0}: none; mxfp4_mxfp8 and mxfp4_w4a8 accept one and ignore it, as vLLM does */
    int32_t bits;             /* gptq_marlin, awq_marlin: 4 or 8 */
    int32_t group_size;       /* gptq_marlin, awq_marlin; -1: per channel */
    const char *quant_dtype;  /* make, ocp_mx */
    const char *weight_dtype; /* make, ocp_mx; NULL: as quant_dtype */
    int32_t has_zero, has_bias, has_a_scale, has_gscale;
    int32_t scale_format; /* moxie_dtype of weight scales where the constructor leaves it open; 0: the usual one */
    int32_t scale_linear; /* block scales in plain rows: vLLM's is_scale_swizzled (before: is_nvfp4_...) = False */
    int32_t
        scale_precision; /* mxfp4_w4a16, mxfp4_mxfp8, mxfp4_w4a8, ocp_mx, make: weight scales are PrecisionConfigs */
    int32_t has_alphas;  /* vLLM's g1_alphas, g2_alphas; 0: as has_gscale, which else is a1_gscale, a2_gscale */
    int32_t has_w_scale; /* make: w1_scale, w2_scale; 0: there are some where there is a dtype */
    int32_t scale_transposed; /* vLLM's is_scale_transposed */
} moxie_scheme_args;
#define MOXIE_SCHEME_ARGS_INIT MOXIE_INIT(moxie_scheme_args)

/* A quantization scheme. The string is static. vLLM accepts configs that nothing computes (zero points of floats, uint8
 * activations): they have its answers here, `computable` is 0, and moxie_layer_create refuses a layer with them. */
typedef struct moxie_scheme {
    uint32_t struct_size;
    const char *constructor; /* its name, or "combined" */
    moxie_scheme_desc a1, a2, w1, w2;
    int32_t scale_swizzled;   /* vLLM's is_scale_swizzled, in older releases is_nvfp4_scale_swizzled */
    moxie_quant a13, act2;    /* what moxie computes for this scheme: activations into W13 and into W2 */
    moxie_quant w13, weight2; /* weights; element NONE: unquantized, to be set to the model's dtype */
    int32_t scale_transposed; /* vLLM's is_scale_transposed */
    int32_t computable;       /* 1: a layer can have a13, act2, w13 and weight2 */
} moxie_scheme;
#define MOXIE_SCHEME_INIT MOXIE_INIT(moxie_scheme)

/* Every `moxie_scheme *` below was set by its INIT macro, every const one was filled by moxie_scheme_make or
 * moxie_scheme_combine. A wrong struct_size is answered like an unknown name. */

/* Name of constructor i; NULL past the last. Static. Immutable. */
MOXIE_API const char *moxie_scheme_constructor_at(int32_t i);
/* Builds a scheme with a constructor by its name. For arguments that contradict each other the text of
 * MOXIE_ERR_ARGUMENT names the rule that is broken. Immutable. */
MOXIE_API moxie_status moxie_scheme_make(const char *constructor, const moxie_scheme_args *args, moxie_scheme *out,
                                         moxie_error *error);
/* w13 and a1 from one scheme, w2 and a2 from another. Immutable. */
MOXIE_API moxie_status moxie_scheme_combine(const moxie_scheme *for_w13, const moxie_scheme *for_w2, moxie_scheme *out,
                                            moxie_error *error);

/* vLLM's a1_scale, w1_scale, ... (kind TENSOR) and w1_precision, ... (kind PRECISION). *present says whether `tensor`
 * ("a1", "a2", "w1" or "w2") has a scale; MOXIE_ERR_ARGUMENT when it has one of the other kind. Immutable. */
MOXIE_API moxie_status moxie_scheme_read_scale(const moxie_scheme *scheme, const char *tensor, moxie_scheme_scale kind,
                                               int *present, moxie_error *error);

/* Answers vLLM's predicates by their names, from the descriptors a1 and w1. 0 or 1; -1 for an unknown name. Immutable.
 *     is_quantized, is_per_tensor, is_block_quantized, is_scale_transposed, is_per_act_token, per_act_token_quant,
 *     per_out_ch_quant, is_scale_swizzled (also as is_nvfp4_scale_swizzled)
 *     use_fp8_w8a8, use_int8_w8a8, use_int8_w8a16, use_fp8_w8a16, use_int4_w4a16, use_nvfp4_w4a16, use_mxfp4_w4a16,
 *     use_mxfp4_w4a4, use_nvfp4_w4a4, use_mxfp4_w4a8 */
MOXIE_API int moxie_scheme_predicate(const moxie_scheme *scheme, const char *name);
/* Fills `block` and returns 1; returns 0 when there is no block shape. Immutable. */
MOXIE_API int moxie_scheme_block_shape(const moxie_scheme *scheme, int32_t block[2]);
/* The dtype part in the name of vLLM's tuning file, or NULL. `dtype` is that of the hidden states. Static. Immutable.
 */
MOXIE_API const char *moxie_scheme_config_name(const moxie_scheme *scheme, moxie_dtype dtype);
/* The OCP-MX scheme name, or NULL. *unknown_pair (may be NULL) becomes 1 when a type is an OCP type but the pair has no
 * name (vLLM logs a warning then), else 0. Static. Immutable. */
MOXIE_API const char *moxie_scheme_ocp_name(const moxie_scheme *scheme, int *unknown_pair);
/* vLLM's shapes of the activation scales. A block without columns (-1 or 0) has one scale column here, where vLLM
 * computes a negative number or divides by zero. nvfp4 and the mx formats have (1,1) there, while moxie's own block
 * scales are [rows, ceil(cols/group)]. Both return 0 when the activations are not quantized, else 1. Immutable. */
MOXIE_API int moxie_scheme_scale_shape(const moxie_scheme *scheme, int64_t max_tokens, int64_t hidden,
                                       int64_t shape[2]);
MOXIE_API int moxie_scheme_batched_scale_shape(const moxie_scheme *scheme, int64_t experts, int64_t max_tokens,
                                               int64_t hidden, int64_t shape[3]);

/* Quantizes rows of activations, bit by bit as docs/quantizers.md defines it, alike on every back end.
 *   x             [rows, cols] f32 (exact values of the hidden dtype), rows contiguous
 *   static_scale  with quant.is_static the static scale; with quant.global the nvfp4 global scale
 *   codes         [rows, cols], one code per byte
 *   scales        [ceil(rows/group_rows), ceil(cols/group_cols)] f32: the decoded scale of each group
 * Arrays must not overlap. MOXIE_ERR_UNSUPPORTED for a `quant` that no quantizer defines. Immutable. */
MOXIE_API moxie_status moxie_quantize_activations(const moxie_quant *quant, const float *x, int64_t rows, int64_t cols,
                                                  float static_scale, uint8_t *codes, float *scales,
                                                  moxie_error *error);

#ifdef __cplusplus
}
#endif

#endif /* MOXIE_SCHEME_H */
