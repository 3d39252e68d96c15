/* SPDX-License-Identifier: Apache-2.0
 *
 * tables.h - what checkpoints look like, as data: families.def and families_2026.def (names and config keys of each
 * model family), hf_quant.def (tensors of each number format), presets.def and presets_2026.def (sizes of real models).
 *
 *     family + format + layer  ->  mox_enumerate_layer()  ->  mox_tensor_spec: name, dtype, shape of every tensor
 *
 * Reading and writing use the same entries: the loader looks for exactly the tensors that mox_enumerate_layer() lists,
 * and the generator writes exactly those.
 */
#ifndef MOX_CKPT_TABLES_H
#define MOX_CKPT_TABLES_H

#include "ckpt/json.h"
#include "ckpt/safetensors/tensors.h"
#include "quant/quant.h"

/* ---- formats ------------------------------------------------------------------------------------ */

typedef enum mox_part_role {
    MOX_PART_NONE = 0,
    MOX_PART_CODES,
    MOX_PART_SCALE,
    MOX_PART_ZERO,
    MOX_PART_GLOBAL,
    MOX_PART_INPUT_SCALE, /* static activation scale, or global scale of activations */
    MOX_PART_GROUP_INDEX, /* g_idx [K] */
    MOX_PART_SHAPE        /* weight_shape [2] = {N, K} */
} mox_part_role;

typedef enum mox_part_form {
    MOX_FORM_MATRIX,    /* [N, K] in words of the packing */
    MOX_FORM_BLOCKS,    /* gpt-oss: [N, K/32, 16] bytes */
    MOX_FORM_GROUPS,    /* the scale grid [ceil(N/gr), ceil(K/gc)], in words of the packing */
    MOX_FORM_GROUPS_4D, /* the same as [ceil(N/gr), 1, ceil(K/gc), 1] */
    MOX_FORM_SCALAR,    /* [] or [1] */
    MOX_FORM_ROWS,      /* [N] or [N,1] */
    MOX_FORM_COLUMNS,   /* [K] */
    MOX_FORM_PAIR       /* [2] */
} mox_part_form;

#define MOX_MAX_PART_DTYPES 4
#define MOX_MAX_PARTS       8

/* One of the tensors that store a matrix M. Its name is the name of M + suffix. */
typedef struct mox_part {
    mox_part_role role;
    const char *suffix;       /* ".weight_scale_inv" */
    const char *fused_suffix; /* suffix on a stacked tensor ("", "_blocks"); NULL: the same. Readers accept both */
    moxie_dtype file[MOX_MAX_PART_DTYPES]; /* accepted dtypes; the first is the one that releases have */
    moxie_dtype value;                     /* what the bits mean; NONE: the file's dtype */
    mox_part_form form;
    moxie_packing packing; /* zero: one element a word */
    int32_t at;            /* in tensors of a block type: the byte of a block at which the part begins */
    bool transposed;       /* stored [K.., N..] */
    bool trailing_one;     /* ROWS as [N,1], SCALAR as [1] when written */
    bool optional;         /* readers accept that it is absent */
    bool unwritten;        /* the generator does not write it */
} mox_part;

typedef struct mox_hf_quant {
    const char *id;     /* "fp8-block": the CLI's name */
    const char *method; /* quantization_config.quant_method; "" for none */
    const char *summary;
    moxie_quant weight;            /* group_cols -2: read from the scale's shape */
    moxie_quant act;               /* quantization of activations; element NONE: 16-bit */
    mox_part parts[MOX_MAX_PARTS]; /* ends at role NONE */
    float zero_add;
    /* Set by resolve(): why activations cannot be quantized as the configuration says, as the end of a sentence about
     * it. NULL: they can. Then a layer is refused, unless the caller asks for 16-bit activations. */
    const char *act_problem;
    bool unlikely;    /* set by resolve(): the configuration describes other weights. Errors name such formats last */
    const char *note; /* what readers do with the numbers beyond viewing them, for moxie inspect; NULL: nothing */
    int64_t default_group;     /* group size that the generator writes for group_cols -2 */
    const char *without_input; /* id of the format to use when no expert has an INPUT_SCALE; NULL: this one */
    /* Resolves what tensors cannot tell (GPTQ v1 or v2, dynamic or static activations): adjusts `weight`, `act` and
     * `zero_add` from quantization_config. False when the config rules this format out. NULL: nothing to resolve. */
    bool (*resolve)(const json_t *quant_config, const json_t *config, struct mox_hf_quant *format);
    /* quantization_config as releases write it (NULL: none). `ignore`: names of modules that are not quantized. The
     * caller owns the result. */
    json_t *(*write_config)(const struct mox_hf_quant *format, const char *const *ignore, int64_t n_ignore);
} mox_hf_quant;

const mox_hf_quant *mox_hf_quant_at(int32_t i);
const mox_hf_quant *mox_hf_quant_by_id(const char *id);
/* Bits of a code in the file: those of the element, or fewer where readers widen. */
int32_t mox_hf_quant_stored_bits(const mox_hf_quant *format);

/* ---- families ----------------------------------------------------------------------------------- */

#define MOX_MAX_SPELLINGS 6

/* Name templates: {L} layer, {e} expert, relative to a prefix. NULL: the family has no such tensor. Matrices are named
 * without the suffix of a part ("mlp.experts.{e}.gate_proj"), all else in full. */
typedef struct mox_names {
    const char *router; /* "mlp.gate.weight" */
    const char *router_bias, *correction_bias, *table, *per_expert_scale;
    const char *correction_bias_alt;        /* the second bias that some tokens take: "ffn.gate.bias_vl" */
    const char *gate, *up, *down;           /* per expert; DBRX and Step: without {e}, one tensor for all */
    const char *fused_gate_up, *fused_down; /* stacked: "mlp.experts.gate_up_proj" */
    const char *fused_gate_up_bias, *fused_down_bias;
    const char *shared_gate, *shared_up, *shared_down;
    const char *shared_gate_up;                       /* gate rows, then up rows, in one matrix [2S, H] */
    const char *shared_expert_gate;                   /* "mlp.shared_expert_gate.weight" */
    const char *router_scale;                         /* [H] weight of the norm of the router's input (router_norm) */
    const char *expert_norm;                          /* [H] weight of the norm of experts' results (expert_norm) */
    const char *latent_in, *latent_out, *latent_norm; /* [X, H], [H, X], [X] when X is not H */
} mox_names;

typedef enum mox_fused_order {
    MOX_FUSED_NONE = 0,
    MOX_FUSED_OUT_IN,       /* [E, 2I, H], [E, H, I]: gate rows first */
    MOX_FUSED_IN_OUT,       /* [E, H, 2I], [E, I, H] */
    MOX_FUSED_STACKED_ROWS, /* DBRX: w1, v1, w2 each [E*I, H]; w2 is [I, H] per expert */
    MOX_FUSED_STACKS        /* Step: gate, up and down each in a stack of their own, [E, N, K], in every format */
} mox_fused_order;

/* mox_dims.shared_intermediate: config.json does not say whether there is a shared expert; its tensors decide. */
#define MOX_SHARED_UNKNOWN (-1)

/* The numbers of one model, from config.json or a preset. */
typedef struct mox_dims {
    int64_t layers, experts, top_k, hidden, intermediate;
    int64_t shared_intermediate; /* 0: config.json says that there is none, or the family has none */
    int64_t
        expert_width; /* X: input and output width of the routed experts; equals hidden unless the layer is latent */
    int64_t vocab, n_hash_layers;
    int64_t n_group, topk_group;
    float routed_scale;
    bool norm_topk;
    float swiglu_limit, swiglu_alpha; /* 0: those of the family's activation */
    int64_t zero_experts;             /* Z: experts without weights; router and bias have E + Z rows */
    int32_t zero_kind;                /* moxie_zero_kind */
    float softcap;                    /* of the router's logits; 0: none */
    bool bias_alt;                    /* the router has a second bias: names.correction_bias_alt */
    float logit_factor;               /* multiplies the router's logits; 0: 1 */
    float shared_scale;               /* multiplies the shared expert's result; 0: 1 */
    int32_t norm_order;               /* of the family's norm_is_order: 1, or 2 for the root of squares; 0: 1 */
} mox_dims;

/* A default of mox_family: config.json must have the key. */
#define MOX_REQUIRED (-1)

typedef struct mox_family {
    const char *id;
    const char *model_types[MOX_MAX_SPELLINGS];
    const char *architecture;                /* written to config.json */
    const char *prefixes[MOX_MAX_SPELLINGS]; /* "model.layers.{L}."; the first is written */
    const char *config_section;              /* "text_config", dots descend; NULL: top level (readers accept both) */
    mox_names names, other_names;            /* a second spelling that exists; all NULL when there is none */
    const char *shared_gate_saved; /* the shared expert's gate as transformers saves it; NULL: under the names above */
    mox_fused_order fused;         /* how the 16-bit primary release stacks experts; NONE: a tensor per expert */
    bool always_fused;             /* stacked in quantized formats too; else those have a tensor per expert */
    bool fused_dot_weight;         /* Granite: stacked tensors carry ".weight" */
    bool interleaved;              /* gate and up rows alternate */
    bool expert_bias, router_bias_always;
    moxie_dtype router_dtype, bias_dtype; /* as released */
    bool correction_2d;                   /* ERNIE: [1, E] */
    bool correction_always;               /* the router always has its correction bias: absent is refused */
    bool correction_unwritten;            /* releases have none, but readers accept one */
    /* keys of config.json, in order of preference; dots descend ("ffn_config.moe_top_k"); NULL ends the list. Those of
     * key_experts and of key_top_k are spellings of the same (transformers' attribute_map), so they may not differ. */
    const char *key_experts[4], *key_top_k[4], *key_intermediate[4], *key_shared[4], *key_scale[3], *key_norm[3];
    /* Lists of one limit a layer for MOXIE_ACT_SWIGLU_STEP, of routed experts and of the shared one; 0, null and layers
     * past the end: silu without a limit. NULL: the family has none. */
    const char *key_limits, *key_limits_shared;
    /* Norms of the router's input and of experts' results, with the eps that config.json replaces (rms_norm_eps, or
     * key_expert_eps). `router_root`: the router's factor is H^-1/2. */
    moxie_row_norm router_norm, expert_norm;
    bool router_root;
    const char *key_expert_eps;
    const char *key_logit_factor; /* of the factor of the router's logits; absent: logit_factor. NULL: there is none */
    float logit_factor;
    /* What the model computes around the layer, for readers of `moxie inspect`; NULL: nothing that surprises. */
    const char *outside;
    const char *key_shared_width; /* the width of the shared expert where key_shared is a count; NULL: no such key */
    const char *key_latent;       /* expert width X; NULL: experts work on the hidden size */
    const char *key_group;        /* another spelling of "n_group", which is written; NULL: none */
    bool norm_is_order;           /* key_norm holds the order of the norm: 1, 2 or null (DBRX) */
    bool shared_is_count;         /* key_shared is a number of experts of width I; else it is a width */
    const char *routing;          /* for moxie_routing_by_name */
    bool always_norm;             /* renormalises regardless of norm_topk_prob */
    /* Values of keys that config.json does not have: those of the model's configuration class. A null is not absent. */
    bool default_norm;               /* of key_norm; null is false there, as in the models' code */
    bool norm_unclear;               /* key_norm true is refused: the libraries disagree on what it means */
    float default_scale, null_scale; /* of key_scale. 0: absent is refused, and so is null. No key_scale: factor 1 */
    int32_t default_n_group, default_topk_group; /* 0: experts have no groups. MOX_REQUIRED: absent is refused */
    bool null_n_group;                           /* n_group null: no groups; else it is refused */
    const char *default_topk_method; /* DeepSeek-V2: "greedy" uses no groups. NULL: groups do not depend on it */
    bool fixed_activation;           /* the model's code reads no hidden_act */
    bool shared_unclamped;           /* the limits of `activation` are the routed experts' alone */
    /* Under other_names, a layer holds a second set of experts, for image tokens. They are numbered on from the first
     * and have the second row of the correction bias [2, E]. Both routers are [H, E]. The layer is the text's. */
    bool other_has_images;
    moxie_activation activation; /* alpha and limits are the defaults of swiglu_alpha and swiglu_limit where not 0 */
    moxie_routing route; /* the routing without groups, scale and arrays; its norm applies when dims.norm_topk */
    /* Reads keys that only this family has: adjusts dims, routing or activation. NULL: nothing. */
    moxie_status (*adjust)(const json_t *config, const char *file, mox_dims *dims, int64_t layer,
                           moxie_layer_config *out, moxie_error *error);
    /* Adds keys that only this family has to a config.json; false when out of memory. NULL: nothing. */
    bool (*write_config)(json_t *config, const mox_dims *dims);
} mox_family;

const mox_family *mox_family_at(int32_t i);
const mox_family *mox_family_by_id(const char *id);
const mox_family *mox_family_by_model_type(const char *model_type);
/* Why models of this model_type are refused although it is known; NULL when no row of families_refused.def names it. */
const char *mox_family_refused(const char *model_type);

/* ---- one layer's tensors ------------------------------------------------------------------------ */

typedef enum mox_tensor_kind {
    MOX_TENSOR_ROUTER,
    MOX_TENSOR_ROUTER_BIAS,
    MOX_TENSOR_CORRECTION_BIAS,
    MOX_TENSOR_TABLE,
    MOX_TENSOR_PER_EXPERT_SCALE,
    MOX_TENSOR_GATE,
    MOX_TENSOR_UP,
    MOX_TENSOR_DOWN,
    MOX_TENSOR_GATE_UP,
    MOX_TENSOR_GATE_UP_BIAS,
    MOX_TENSOR_DOWN_BIAS,
    MOX_TENSOR_SHARED_GATE_UP, /* the shared expert: from here .. */
    MOX_TENSOR_SHARED_GATE,
    MOX_TENSOR_SHARED_UP,
    MOX_TENSOR_SHARED_DOWN, /* .. to here */
    MOX_TENSOR_SHARED_EXPERT_GATE,
    MOX_TENSOR_CORRECTION_BIAS_ALT,
    MOX_TENSOR_OTHER,     /* other plain tensors: weights of norms, latent projections */
    MOX_TENSOR_GATE_BIAS, /* [E, I], beside stacks of gate and up; GGUF */
    MOX_TENSOR_UP_BIAS
} mox_tensor_kind;

/* One tensor of a layer of `family` in `format`. */
typedef struct mox_tensor_spec {
    char name[256];
    moxie_dtype dtype;
    int32_t rank;
    int64_t shape[MOXIE_MAX_RANK];
    mox_tensor_kind kind;
    const mox_part *part;       /* the part of the matrix that it stores; NULL for plain tensors */
    const mox_hf_quant *format; /* of the matrix */
    int64_t expert;             /* -1: all experts, stacked, or no expert */
    int64_t rows, cols;         /* N, K of the (one) matrix; GATE_UP: 2I, H */
    int64_t stacked;            /* experts in this tensor; 0: it holds one matrix */
    bool in_out;                /* stacked as [.., K, N] regardless of the part */
    bool interleaved;           /* GATE_UP and its bias: even rows are gate, odd ones up */
} mox_tensor_spec;

/* Calls visit() for every tensor of checkpoint layer L, in the order in which the generator writes them. Stops at the
 * first failure and returns it. `shared` may be another format than `routed`. */
moxie_status mox_enumerate_layer(const mox_family *family, const mox_dims *dims, const mox_hf_quant *routed,
                                 const mox_hf_quant *shared, int64_t layer,
                                 moxie_status (*visit)(void *user, const mox_tensor_spec *spec, moxie_error *error),
                                 void *user, moxie_error *error);

/* Prefix and name template joined, with {L} and {e} filled in. False when it does not fit. */
bool mox_expand_name(char *buffer, size_t size, const char *prefix, const char *name, int64_t layer, int64_t expert);
/* Stored shape of a part of an [n, k] matrix. `experts` > 0: stacked, with a leading E. `in_out` stores K before N
 * regardless of the part. The group extents of `weight` are resolved (no -2). */
moxie_status mox_part_shape(const mox_part *part, const moxie_quant *weight, int64_t n, int64_t k, int64_t experts,
                            bool in_out, int32_t *rank, int64_t shape[MOXIE_MAX_RANK], moxie_error *error);
/* The weight of the format, with group_cols -2 replaced by what the generator writes for K columns. */
moxie_quant mox_hf_quant_weight(const mox_hf_quant *format, int64_t k);
/* The [rows, cols] grid of one expert in `data`, a buffer with the whole tensor `spec` (a part of spec->format): codes
 * [N, K]; scales and zero points [ceil(N/gr), ceil(K/gc)]; scalars [1, 1]; ROWS [N, 1]. `expert` counts within a
 * stacked tensor, else it is 0. mox_grid_store() and mox_grid_code() then reach every element of every packing. */
moxie_status mox_spec_grid(const mox_tensor_spec *spec, void *data, int64_t expert, moxie_grid *out,
                           moxie_error *error);

/* The layer configuration of these sizes and formats, without arrays (biases, tables). */
moxie_status mox_family_layer_config(const mox_family *family, const mox_dims *dims, const mox_hf_quant *routed,
                                     const mox_hf_quant *shared, int64_t layer, moxie_layer_config *out,
                                     moxie_error *error);

/* config.json of a whole model with `dims`, without quantization_config: model_type (NULL: the first of the family),
 * architectures, and every key that the reader needs, in config_section where there is one. The caller owns it; NULL
 * when out of memory. */
json_t *mox_family_config_json(const mox_family *family, const mox_dims *dims, const char *model_type);

/* ---- presets ------------------------------------------------------------------------------------ */

typedef struct mox_preset {
    const char *name;
    const char *family;     /* families.def id */
    const char *model_type; /* written to config.json; NULL: the family's first */
    mox_dims dims;
    int64_t first_layer;     /* index of the first MoE layer in the real model */
    int64_t layer_step;      /* Llama-4 Maverick: 2; else 0 or 1 */
    const char *formats[12]; /* ids of hf_quant.def; [0] is the primary one; the first n_native are public releases */
    int32_t n_native;
    const char
        *shared_format; /* format of the shared expert; NULL: that of the routed experts; "bf16": not quantized */
    uint64_t native_bytes_per_layer; /* published, or computed from headers: a test compares it; 0: unknown */
} mox_preset;

const mox_preset *mox_preset_at(int32_t i);
const mox_preset *mox_preset_by_name(const char *name);
/* The layer number, in the names of the checkpoint, of the i-th MoE layer of the preset. */
int64_t mox_preset_layer(const mox_preset *preset, int64_t i);
/* Keys of config.json that follow from no table, as JSON text. */
const char *mox_preset_config_text(const mox_preset *preset);

#endif
