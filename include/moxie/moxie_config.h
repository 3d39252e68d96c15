/* SPDX-License-Identifier: Apache-2.0
 *
 * moxie_config.h - what a layer is: routing, norms, the configuration, and views of its weights. moxie.h includes it,
 * and has the letters (T, E, K, H, I, G) and the rules about calls, threads and structs.
 */
#ifndef MOXIE_CONFIG_H
#define MOXIE_CONFIG_H

#include <moxie/moxie_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------- */
/* Routing                                                                                     */
/* ------------------------------------------------------------------------------------------- */

#define MOXIE_MAX_EXPERTS 1024
#define MOXIE_MAX_TOP_K   32

typedef enum moxie_score {
    MOXIE_SCORE_LOGIT = 0,
    MOXIE_SCORE_SOFTMAX = 1,
    MOXIE_SCORE_SIGMOID = 2,
    MOXIE_SCORE_SQRTSOFTPLUS = 3
} moxie_score;

typedef enum moxie_select {
    MOXIE_SELECT_TOPK = 0,        /* the K largest keys, key = score + bias */
    MOXIE_SELECT_TABLE = 1,       /* ids from table[token_id][0..K), weights from the scores */
    MOXIE_SELECT_SPARSEMIXER = 2, /* Phi-3.5-MoE, K = 2; also fixes the weights */
    MOXIE_SELECT_CUSTOM = 3,      /* the callback decides */
    MOXIE_SELECT_SIM_UNIFORM = 4, /* benchmark: uniform ids with replacement, weights 1 */
    MOXIE_SELECT_SIM_NORMAL = 5   /* benchmark: id = floor(s(n) E), weights |n| / sum */
} moxie_select;

typedef enum moxie_weight_from {
    MOXIE_WEIGHT_SCORE = 0,            /* the chosen expert's score, never its biased key */
    MOXIE_WEIGHT_SOFTMAX_SELECTED = 1, /* softmax over the K chosen logits */
    MOXIE_WEIGHT_SIGMOID_SELECTED = 2  /* sigmoid of the chosen logit (Llama-4) */
} moxie_weight_from;

/* Renormalisation over the K chosen weights v, where sum is their sum. With v of +inf it is the limit: they share 1
 * evenly, and the other weights become 0. */
typedef enum moxie_norm {
    MOXIE_NORM_NONE = 0,
    MOXIE_NORM_SUM_PLUS_EPS = 1, /* v / (sum + eps) */
    MOXIE_NORM_SUM = 2,          /* v / sum */
    MOXIE_NORM_MAX_SUM_EPS = 3,  /* v / max(sum, eps) */
    MOXIE_NORM_SUM_OR_ONE = 4,   /* v / (sum > 0 ? sum : 1) */
    MOXIE_NORM_ROOT_SQUARES = 5  /* v / sqrt(sum of v^2): DBRX with moe_normalize_expert_weights 2 */
} moxie_norm;

/* An expert of a dropped group is chosen only when the experts of the groups kept have lower keys, or are too few. */
typedef enum moxie_group_fill {
    MOXIE_FILL_LOWEST = 0,  /* its key is -inf */
    MOXIE_FILL_ZERO = 1,    /* its key is 0, and so is its weight when it is chosen (DeepSeek-V2 in transformers) */
    MOXIE_FILL_ZERO_KEY = 2 /* its key is 0; when it is chosen, its weight comes from its score (Mistral-4, A.X-K2) */
} moxie_group_fill;

/* What an expert without weights returns. A zero expert has an id, a logit, a bias and a weight like others, but no
 * expert_gemm reads it. Where its choice stands, combine adds weight times hidden state, or nothing, in fp32. With
 * expert parallelism rank 0 alone adds it, so the sum of all ranks' outputs holds it once. Source: LongCat-Flash. */
typedef enum moxie_zero_kind {
    MOXIE_ZERO_IDENTITY = 0, /* its input */
    MOXIE_ZERO_NULL = 1      /* zero */
} moxie_zero_kind;

typedef enum moxie_group_score { MOXIE_GROUP_TOP2_SUM = 0, MOXIE_GROUP_MAX = 1 } moxie_group_score;

/* Chooses the experts of `tokens` tokens: reads logits [T,E], writes ids [T,K] and weights [T,K]. Non-zero makes the
 * run fail. One run calls it from one thread; plans that run at the same time call it at the same time. */
typedef int (*moxie_route_fn)(void *user, int64_t tokens, const float *logits, int32_t *ids, float *weights);

/* One routing method. Zero in a field is its neutral value. The arrays are the caller's; moxie_layer_create copies
 * them. `custom_user` must outlive the layer. */
typedef struct moxie_routing {
    int32_t score;   /* moxie_score */
    int32_t select;  /* moxie_select */
    int32_t weight;  /* moxie_weight_from */
    int32_t norm;    /* moxie_norm */
    float norm_eps;  /* the eps of SUM_PLUS_EPS and MAX_SUM_EPS; 0 means 1e-20 */
    float scale;     /* multiplies every weight, after renormalisation; 0 means 1 */
    int32_t n_group; /* 0 or 1: ungrouped; else E % n_group == 0 */
    int32_t topk_group;
    int32_t group_score;     /* moxie_group_score */
    int32_t group_fill_zero; /* moxie_group_fill: what becomes of the keys of dropped groups */
    int32_t on_input;        /* weights multiply the expert's input instead of its output */
    int32_t round_logits_bf16, round_weights_bf16;
    float jitter;                  /* sparsemixer; 0 means 0.01 */
    const float *bias;             /* [E] added to the score for selection only, or NULL */
    const float *per_expert_scale; /* [E] multiplies the weight of each expert, or NULL */
    const int32_t *table;          /* [table_rows, K] for MOXIE_SELECT_TABLE */
    int64_t table_rows;
    uint64_t seed; /* simulated strategies */
    moxie_route_fn custom;
    void *custom_user;
    float softcap; /* every logit becomes softcap * tanh(logit / softcap) before it is scored; 0: none */
    /* Z: experts without weights, with ids E to E + Z - 1. Then the arrays here, logits and the router have E + Z
     * entries where this header says E, and groups divide E + Z. */
    int32_t zero_experts;
    int32_t zero_kind;      /* moxie_zero_kind, of all Z */
    int32_t topk_per_group; /* K / n_group: each group gives so many choices, group after group; 0: all compete */
    const float *bias_alt;  /* [E] a second bias, for the tokens that bias_choice of moxie_run_args marks; or NULL */
    uint32_t reserved[2];   /* zero */
} moxie_routing;

/* Fills `routing` for the method that engines call by this name: default, renormalize, renormalize_naive, deepseek_v3,
 * llama4, topk, sigmoid, sigmoid_renorm, topk_sigmoid, minimax2, deepseek_v4, hash, sparsemixer, custom, sim_uniform,
 * sim_normal. Bias, groups, scale and tables are left for the caller to set. For an unknown name the text of
 * MOXIE_ERR_ARGUMENT lists the names. Immutable. */
MOXIE_API moxie_status moxie_routing_by_name(const char *name, moxie_routing *routing, moxie_error *error);
/* Name i of the names that moxie_routing_by_name() knows; NULL past the last. Static. Immutable. */
MOXIE_API const char *moxie_routing_name_at(int32_t i);

/* Routing methods have numbers in other projects (RoutingMethodType). vLLM renumbered 6 to 8 when it adopted
 * FlashInfer's. */
typedef enum moxie_routing_numbering {
    MOXIE_NUMBERING_VLLM_OLD = 0,  /* Custom is 6, Unspecified 8 */
    MOXIE_NUMBERING_VLLM = 1,      /* of vLLM 0.33: Custom is 101, Unspecified 9 */
    MOXIE_NUMBERING_FLASHINFER = 2 /* of FlashInfer 0.7: Unspecified is 10 */
} moxie_routing_numbering;
/* The number of a method that moxie_routing_by_name() knows; -1 when it has none, or for an unknown name or numbering.
 * Immutable. */
MOXIE_API int32_t moxie_routing_number(const char *name, int32_t numbering);
/* The first method with this number; NULL when there is none: Unspecified has no name. Static. Immutable. */
MOXIE_API const char *moxie_routing_name_of(int32_t number, int32_t numbering);
/* vLLM's get_routing_method_type(). `scoring_func`: "softmax", "sigmoid" or "sqrtsoftplus"; any other, NULL too, is
 * Unspecified. `num_expert_group`: 0 for none. VLLM and FLASHINFER follow 0.33, which reads no top_k and looks at
 * groups only beside a sigmoid with a bias; VLLM_OLD follows the rules of its time. A method that has no number in the
 * numbering gives its Unspecified; an unknown numbering gives -1. Immutable. */
MOXIE_API int32_t moxie_routing_method_type(const char *scoring_func, int32_t top_k, int renormalize,
                                            int32_t num_expert_group, int has_e_score_bias, int32_t numbering);
/* The number of a routing. Where its score and weights are those of llama4, topk, topk_sigmoid or renormalize, it is
 * that method's. Callbacks and sparsemixer are Custom, simulated strategies Simulated. With zero experts, or with a
 * bias on raw logits, it is Unspecified. Any other is moxie_routing_method_type() of its fields, which does not see
 * scale, groups without a bias, a soft cap, choices per group or a second bias. Immutable. */
MOXIE_API int32_t moxie_routing_number_of(const moxie_routing *routing, int32_t top_k, int32_t numbering);

/* One choice in 32 bits, as kernels of several vendors exchange it: the id in bits 31 to 16, the weight as bf16 in bits
 * 15 to 0. A negative weight keeps its id. Immutable. */
MOXIE_API uint32_t moxie_pack_choice(int32_t id, float weight);
/* The way back; `id` and `weight` may be NULL. Immutable. */
MOXIE_API void moxie_unpack_choice(uint32_t packed, int32_t *id, float *weight);

typedef enum moxie_expert_map_kind { MOXIE_MAP_LINEAR = 0, MOXIE_MAP_ROUND_ROBIN = 1 } moxie_expert_map_kind;

/* Which of the E = `experts` experts rank `rank` of `ranks` owns: local[e] is the slot of expert e, or -1; `local` has
 * room for E numbers. The first E % ranks ranks own one expert more. *count: how many this rank owns. Immutable. */
MOXIE_API moxie_status moxie_expert_map(moxie_expert_map_kind kind, int32_t experts, int32_t ranks, int32_t rank,
                                        int32_t *local, int32_t *count, moxie_error *error);

/* Where every expert lies, with replicas: slot p of the P = `slots` slots of all ranks holds expert expert_of[p], or
 * none where that is -1; rank r has the slots [first_slot[r], first_slot[r + 1]). Every expert has one slot at least. A
 * rank may hold an expert twice: then its lowest slot computes that expert's tokens. All ranks must have the same map.
 * Its makers are in moxie_parallel.h. */
typedef struct moxie_slot_map {
    uint32_t struct_size;
    int32_t ranks, experts, slots;
    const int32_t *expert_of;  /* [slots] */
    const int32_t *first_slot; /* [ranks + 1] */
    uint64_t generation;       /* counts the maps of a layer; ranks whose maps differ answer MOXIE_ERR_MISMATCH */
} moxie_slot_map;
#define MOXIE_SLOT_MAP_INIT MOXIE_INIT(moxie_slot_map)

/* ------------------------------------------------------------------------------------------- */
/* Norms                                                                                       */
/* ------------------------------------------------------------------------------------------- */

/* The norm of each row v of N numbers, in fp32 and rounded nowhere else. w[n] = weight[n] + weight_add, or 1 without a
 * weight; eps lies inside the root. */
typedef enum moxie_row_norm_kind {
    MOXIE_ROW_NORM_NONE = 0,
    MOXIE_ROW_NORM_RMS = 1,         /* v[n] / sqrt(mean(v^2) + eps) * w[n] * factor */
    MOXIE_ROW_NORM_RMS_WEIGHTED = 2 /* u[n] / sqrt(mean(u^2) + eps) * factor, u[n] = v[n] w[n] */
} moxie_row_norm_kind;

typedef struct moxie_row_norm {
    int32_t kind;         /* moxie_row_norm_kind */
    int32_t has_weight;   /* the layer's weights have a vector for it */
    float eps;            /* 0 or more */
    float weight_add;     /* 1 where a checkpoint stores weight - 1 */
    float factor;         /* 0 means 1 */
    uint32_t reserved[5]; /* zero */
} moxie_row_norm;

/* ------------------------------------------------------------------------------------------- */
/* Layer configuration and weights                                                             */
/* ------------------------------------------------------------------------------------------- */

/* A dense expert that every token visits. A layer has one at most, for these forms of several:
 *     with one weight         One wide expert: gate and up rows are stacked, down columns lie side by side, and
 *                             `intermediate` is the sum. Checkpoints store them so.
 *     a weight for each       A layer of E + S experts and K + S choices a token, without a shared expert. The caller
 *                             gives ids and weights.
 *     slots of the routing    The same. Engines call them experts E..E+S-1. Their weight is 1, or 1 / scale where the
 *                             scale multiplies the whole sum.
 * So a shared expert needs no entry in the arrays of the routing, and no rank's share of experts has it.
 *
 * It is added after the routed sum, with weight 1, or with s(x . gate) when `has_gate` is set, times `scale`. A mean of
 * the routed sum and the shared expert is a scale of 1/2 here and in the routing. It has the layer's
 * activation without the per-expert parameters, or shared_activation of the configuration. With expert parallelism only
 * rank 0 adds it, so the sum of all ranks' outputs holds it once; other ranks need no weights for it. */
typedef struct moxie_shared_config {
    int64_t intermediate; /* 0: there is none */
    moxie_quant w13, w2;  /* weights */
    moxie_quant a13, a2;  /* activations */
    int32_t has_gate;
    int32_t bias13, bias2;
    float scale;          /* multiplies its result; finite, 0 means 1 */
    uint32_t reserved[4]; /* zero */
} moxie_shared_config;

typedef struct moxie_layer_config {
    uint32_t struct_size;
    moxie_dtype dtype; /* of hidden states, output and W2's unquantized activations: BF16, F16 or F32 */
    int64_t experts, top_k, hidden, intermediate;
    moxie_activation activation;
    moxie_routing routing;
    moxie_quant w13, w2; /* weights; independent of each other */
    moxie_quant a13, a2; /* activations into W13 and into W2 */
    int32_t bias13, bias2;
    moxie_shared_config shared;
    int64_t router_width; /* width of the router's input; 0: the layer has no router, logits are given */
    int32_t router_has_bias;
    int32_t ep_size, ep_rank, ep_map; /* expert parallel: sizes 0 and 1 mean none; moxie_expert_map_kind */
    /* Of the router's input, for the router alone (Gemma-4). It acts where the layer's own router computes the logits;
     * logits that the caller gives are taken as they are. Ignored when router_width is 0. */
    moxie_row_norm router_norm;
    moxie_row_norm expert_norm;    /* of each routed expert's result, before its routing weight multiplies it */
    int32_t has_shared_activation; /* 1: the shared expert's activation is shared_activation; ignored without one */
    moxie_activation shared_activation; /* its per-expert arrays are NULL */
    /* Tensor parallel inside an expert parallel rank; sizes 0 and 1 mean none. Of the tp_size ranks that share experts
     * this is number tp_rank: it holds a part of W13's rows and a part of W2's rows (moxie_tp_slice, docs/ranks.md),
     * and likewise of the shared expert (moxie_tp_slice_shared). moxie_layer_prepare gets views of whole experts. Rank
     * ep_rank * tp_size + tp_rank of the comm is this one. Plans need options.comm; moxie_plan_experts is collective as
     * well, and all ranks of a group pass it the same tokens. */
    int32_t tp_size, tp_rank;
    const moxie_slot_map *slot_map; /* of ep_size ranks; NULL: ep_map's. moxie_layer_create copies it */
    /* 1: each routed expert's result is rounded to dtype, BF16 or F16, before its routing weight multiplies it; after
     * expert_norm. So ranks return 16-bit rows, and one rank computes the same. The shared expert's is not rounded.
     * 0: results are f32. */
    int32_t round_results;
} moxie_layer_config;
#define MOXIE_LAYER_CONFIG_INIT MOXIE_INIT(moxie_layer_config)

/* One projection of one expert, as it lies in a checkpoint. Here N = codes.rows and K = codes.cols. Grids that the
 * quantization does not need are absent. Strides describe interleaved and transposed tensors. */
typedef struct moxie_matrix {
    moxie_grid codes;
    moxie_grid scale;           /* [ceil(N/group_rows), ceil(K/group_cols)] */
    moxie_grid zero;            /* same shape, in the element's own code or a float */
    moxie_grid global;          /* [1,1] or [N,1] */
    moxie_grid bias;            /* [N,1] */
    float zero_add;             /* added to the decoded zero (GPTQ v1 stores zero - 1: then 1) */
    const int32_t *group_index; /* [K] group of each column (GPTQ act order), or NULL */
    uint32_t reserved[6];       /* zero */
} moxie_matrix;

typedef struct moxie_expert {
    moxie_matrix gate; /* codes.data NULL when the activation is ungated */
    moxie_matrix up;   /* ungated: the only first matrix */
    moxie_matrix down;
    /* Static activation scale or global, as a13 and a2 of the configuration say. 0: none; the expert then gets the one
     * of the layer's other experts with the widest range, and it is an error when none has one. */
    float a13_scale, a2_scale;
    uint32_t reserved[6]; /* zero */
} moxie_expert;

/* One layer's weights: views that own nothing. Of an expert that another rank owns (ep_size, ep_rank) only the static
 * scales are read; its views may be absent. In a layer that was created with options.comm, zero points and the order of
 * columns are read too, where views are present: all ranks must choose one layout, or plans refuse (MISMATCH). */
typedef struct moxie_weights {
    uint32_t struct_size;
    int64_t n_experts;           /* all E, whatever the rank */
    const moxie_expert *experts; /* [n_experts], by global expert index */
    const moxie_expert *shared;  /* or NULL */
    moxie_matrix router;         /* [E, router_width], float; bias [E,1] */
    moxie_matrix shared_gate;    /* [1, H], float */
    /* May be NULL. moxie_layer_prepare calls it when it will not read an expert's views again, so that their memory can
     * be freed while the layer grows. It is called on the caller's thread; `expert` is one of the above. */
    void (*done)(void *user, const moxie_expert *expert);
    void *done_user;
    moxie_matrix router_norm; /* [1, router_width], float; where config.router_norm has a weight */
    moxie_matrix expert_norm; /* [1, H], float; where config.expert_norm has a weight */
} moxie_weights;
#define MOXIE_WEIGHTS_INIT MOXIE_INIT(moxie_weights)

/* Checks every rule of a configuration that can be checked without weights. Immutable. */
MOXIE_API moxie_status moxie_layer_config_check(const moxie_layer_config *config, moxie_error *error);

#ifdef __cplusplus
}
#endif

#endif /* MOXIE_CONFIG_H */
