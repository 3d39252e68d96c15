/* SPDX-License-Identifier: Apache-2.0
 *
 * moxie.h - quantized fused mixture-of-experts layers: configurations, layers, plans, runs, checks.
 *
 * The other headers: moxie_ckpt.h (checkpoints, safetensors), moxie_prepare.h (weights for other engines' kernels),
 * moxie_scheme.h (vLLM's quantization schemes), moxie_lint.h (what is wrong in a checkpoint), moxie_cuda.h (NVIDIA
 * GPUs), moxie_adapters.h (LoRA), moxie_store.h (expert files), moxie_version.h (version numbers).
 *
 *     y[t] = sum_{j<K} w[t,j] * ( W2[e] . act( W13[e] . x[t] + b13[e] ) + b2[e] ),   e = ids[t,j]
 *
 * Letters: T tokens, E experts, K chosen experts per token, H hidden size, I intermediate size per expert, G
 * quantization group. W13 is gate stacked on up; the gate gets the non-linearity. Shapes are written [rows, columns],
 * rows are contiguous unless a stride says otherwise. Sizes count elements unless the name ends in `bytes`.
 *
 * From a checkpoint directory to an answer:
 *
 *     moxie_model_open -> moxie_model_load_layer -> moxie_layer_create -> moxie_layer_prepare
 *                      -> moxie_plan_create -> moxie_plan_run
 *
 * Calls. Every call that can fail returns moxie_status. Results come by out-parameter and are untouched on failure. A
 * `moxie_error *` may be NULL; it is filled on failure and untouched on success. Pointers must not be NULL unless the
 * declaration says so; most calls answer NULL with MOXIE_ERR_ARGUMENT. Destroy functions accept NULL. Nothing prints,
 * aborts or exits.
 *
 * Threads. Every declaration names its rule:
 *     immutable               changes nothing: call it from any thread at any time, as long as its arguments live
 *     thread-safe             changes something, and guards that itself
 *     one-thread-at-a-time    no other thread may use the object meanwhile; other objects do not matter
 *
 * Structs grow in three ways, so that a program built with an older header runs on a newer library:
 *   - A struct with `struct_size`, which you fill or which a call fills for you: set it by its MOXIE_..._INIT macro.
 *     Zero in any other field means its default. Fields are only appended. A size at which no field ends is
 *     MOXIE_ERR_ARGUMENT; so is a field behind the library's last one that is not zero.
 *   - A struct that lies inside another one or in an array keeps its size. Its `reserved` words turn into fields later.
 *     They must be zero until then, else MOXIE_ERR_ARGUMENT names the struct; in results they are zero.
 *   - A struct that an accessor returns by const pointer (moxie_plan_step_at, moxie_check_report_stage_at): fields are
 *     appended. Read it through the pointer; another one does not begin sizeof bytes behind it.
 */
#ifndef MOXIE_H
#define MOXIE_H

#include <stddef.h>
#include <stdint.h>

#include <moxie/moxie_version.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MOXIE_API __attribute__((visibility("default")))
#else
#define MOXIE_API
#endif

/* What the MOXIE_..._INIT macros expand to: struct_size is set, all other fields are zero. C++17 has no designated
 * initialisers, hence the function there. */
#ifdef __cplusplus
#define MOXIE_INIT(type)                                                                                               \
    ([] {                                                                                                              \
        type s = {};                                                                                                   \
        s.struct_size = sizeof(type);                                                                                  \
        return s;                                                                                                      \
    }())
#else
#define MOXIE_INIT(type)                                                                                               \
    {                                                                                                                  \
        .struct_size = sizeof(type)                                                                                    \
    }
#endif

/* ------------------------------------------------------------------------------------------- */
/* Status and errors                                                                           */
/* ------------------------------------------------------------------------------------------- */

typedef enum moxie_status {
    MOXIE_OK = 0,
    MOXIE_ERR_ARGUMENT = 1,    /* the caller broke a rule stated in this header */
    MOXIE_ERR_UNSUPPORTED = 2, /* well formed, but nothing here can run it; the text says what would */
    MOXIE_ERR_MEMORY = 3,      /* an allocation failed or a buffer handed in is too small */
    MOXIE_ERR_IO = 4,          /* the system refused to open, read, write or rename a file */
    MOXIE_ERR_FORMAT = 5,      /* a file's content is malformed or contradicts itself */
    MOXIE_ERR_MISMATCH = 6,    /* two things that must agree do not: shape, dtype, checksum */
    MOXIE_ERR_TIMEOUT = 7      /* a callback of the caller's ended the call, or another rank is late or dead */
} moxie_status;

/* What went wrong: what was asked, what was found, which limit failed, what to try. `file` is empty and `offset` is -1
 * when no file is concerned. Calls only write it, so it needs no initialisation. Both texts end with a zero byte. */
typedef struct moxie_error {
    moxie_status code;
    int64_t offset; /* byte offset in `file`, or -1 */
    char file[256];
    char text[768];
    uint32_t reserved[8]; /* zero after a failure */
} moxie_error;

/* The status as one lower-case word, for example "unsupported". Immutable. */
MOXIE_API const char *moxie_status_name(moxie_status status);

/* The library's version, "major.minor.patch". The commit that it was built from follows if it is known: "0.1.0
 * (8ecf564a1b2c)", or "0.1.0 (8ecf564a1b2c-dirty)" when files differed from that commit. Immutable. */
MOXIE_API const char *moxie_version(void);

typedef enum moxie_log_level { MOXIE_LOG_ERROR = 1, MOXIE_LOG_WARN, MOXIE_LOG_INFO, MOXIE_LOG_DEBUG } moxie_log_level;
typedef void (*moxie_log_fn)(void *user, moxie_log_level level, const char *text);

/* Sends messages up to `level` to `fn`; NULL, the default, drops them. Several threads may call `fn` at once. `text` is
 * valid during the call only. Thread-safe: a call that is already logging may still use the previous callback, so keep
 * its `user` alive until the process ends. */
MOXIE_API void moxie_set_log(moxie_log_fn fn, void *user, moxie_log_level level);

/* Replaces malloc() and mmap() for the host memory that the library itself allocates: records, lists, objects. It does
 * not cover mapped files, nor what other libraries allocate (the JSON parser, threads, stdio, the CUDA driver). Device
 * memory: moxie_cuda.h. Both functions are called from any thread, several at once. */
typedef struct moxie_allocator {
    uint32_t struct_size;
    int32_t zeroed; /* 1: allocate() returns zeroed memory, as calloc and mmap do; 0: the library clears it */
    void *self;     /* the first argument of both functions; the caller's */
    /* Returns `bytes` (1 or more) bytes at a multiple of `align`, a power of two from 16 to 2 MB; NULL if it cannot. */
    void *(*allocate)(void *self, uint64_t bytes, uint64_t align);
    /* `memory` came from allocate() for the same `bytes`; never NULL. */
    void (*release)(void *self, void *memory, uint64_t bytes);
} moxie_allocator;
#define MOXIE_ALLOCATOR_INIT MOXIE_INIT(moxie_allocator)

/* Sets the allocator of the whole process; NULL restores the default. The struct is copied. Call it while the library
 * holds no memory (before anything is created, or after everything was destroyed), else it fails with
 * MOXIE_ERR_ARGUMENT. One-thread-at-a-time, and no other thread may be inside the library meanwhile. */
MOXIE_API moxie_status moxie_set_allocator(const moxie_allocator *allocator, moxie_error *error);

/* ------------------------------------------------------------------------------------------- */
/* Number formats                                                                              */
/* ------------------------------------------------------------------------------------------- */

/* The numbers are part of the ABI. A format that is newer than this header is found by moxie_dtype_from_name(). From
 * 128 on are the block types of GGUF files, 128 plus the type's number there: "q4_k", "iq4_xs", ... Their neighbours
 * share bytes, so a code by itself is the 32 bits of the f32 that a weight is. */
typedef int32_t moxie_dtype;
enum {
    MOXIE_DTYPE_NONE = 0,
    MOXIE_F32 = 1,
    MOXIE_F16 = 2,
    MOXIE_BF16 = 3,
    MOXIE_F8_E4M3 = 4, /* the "fn" variant: no infinities, 0x7f and 0xff are NaN, largest 448 */
    MOXIE_F8_E5M2 = 5,
    MOXIE_F8_E8M0 = 6, /* 2^(code-127), 255 is NaN, there is no zero and no sign */
    MOXIE_F6_E3M2 = 7,
    MOXIE_F6_E2M3 = 8,
    MOXIE_F4_E2M1 = 9,
    MOXIE_I8 = 10,
    MOXIE_I4 = 11,     /* two's complement */
    MOXIE_U4B8 = 12,   /* value = code - 8 */
    MOXIE_U8B128 = 13, /* value = code - 128 */
    /* Containers: types of tensors in files; no weight has elements of these types. */
    MOXIE_U8 = 32,
    MOXIE_I16 = 33,
    MOXIE_U16 = 34,
    MOXIE_I32 = 35,
    MOXIE_U32 = 36,
    MOXIE_I64 = 37,
    MOXIE_U64 = 38,
    MOXIE_F64 = 39,
    MOXIE_BOOL = 40
};

/* "f8_e4m3", "bf16", ...; "?" for an unknown number. Static. Immutable. */
MOXIE_API const char *moxie_dtype_name(moxie_dtype dtype);
/* The dtype with this name (lower case), or MOXIE_DTYPE_NONE. Immutable. */
MOXIE_API moxie_dtype moxie_dtype_from_name(const char *name);
/* Bits of one element, 4 to 64; 0 for an unknown number. Immutable. */
MOXIE_API int32_t moxie_dtype_bits(moxie_dtype dtype);
/* The value of a code (its low bits; higher bits are ignored). NaN codes give a NaN. Immutable. */
MOXIE_API float moxie_decode(moxie_dtype dtype, uint32_t code);
/* The code nearest to `value`, ties to even. Values out of range, infinities included, become the largest finite value;
 * only f32, f16, bf16 and f8_e5m2 keep an infinity, and only from infinite input. NaN becomes the format's NaN, else
 * its largest positive value, in integers zero. Immutable. */
MOXIE_API uint32_t moxie_encode(moxie_dtype dtype, float value);

/* ------------------------------------------------------------------------------------------- */
/* Tensors: views of the caller's memory                                                       */
/* ------------------------------------------------------------------------------------------- */

#define MOXIE_MAX_RANK 5

/* A view of a dense tensor in host memory; `data` needs no alignment. */
typedef struct moxie_tensor {
    void *data;
    moxie_dtype dtype;
    int32_t rank;                    /* 0: one element */
    int64_t shape[MOXIE_MAX_RANK];   /* of the first `rank` axes */
    int64_t strides[MOXIE_MAX_RANK]; /* in elements; all zero means contiguous, last axis fastest */
    int32_t device;                  /* 0: host memory */
    uint32_t reserved[5];            /* zero */
} moxie_tensor;

/* How elements lie in words: `per_word` neighbours along one axis share a little-endian word of `word_bytes` bytes.
 * Element i of the word has the bits [p * bits, p * bits + bits), where p = i for LINEAR; for AWQ, with eight elements
 * to a word, p = 0, 4, 1, 5, 2, 6, 3, 7 for i = 0 ... 7. */
typedef enum moxie_pack_order { MOXIE_ORDER_LINEAR = 0, MOXIE_ORDER_AWQ = 1 } moxie_pack_order;
typedef struct moxie_packing {
    int8_t word_bytes;  /* 1, 2, 3, 4 or 8 */
    int8_t per_word;    /* 1, 2, 4 or 8 */
    int8_t along_rows;  /* 0: the elements of a word are neighbours in a row; 1: in a column */
    int8_t order;       /* moxie_pack_order */
    int8_t reserved[4]; /* zero */
} moxie_packing;

/* A two-dimensional view [rows, cols] of numbers in any packing. The word that holds element (r, c) begins at byte
 *     data + r * row_stride + (c / per_word) * col_stride       (along_rows == 0)
 *     data + (r / per_word) * row_stride + c * col_stride       (along_rows == 1)
 * Both strides are in bytes; they may be zero (a broadcast) but not negative. No alignment is required. `bytes` says
 * how many bytes from `data` on may be read. data == NULL: the grid is absent. */
typedef struct moxie_grid {
    const void *data;
    uint64_t bytes;
    int64_t rows, cols;
    int64_t row_stride, col_stride;
    moxie_dtype dtype;
    moxie_packing packing;
    uint32_t reserved[3]; /* zero */
} moxie_grid;

/* ------------------------------------------------------------------------------------------- */
/* Quantization                                                                                */
/* ------------------------------------------------------------------------------------------- */

/* How a scale is computed from amax, the largest magnitude of its group, when activations (or synthetic weights) are
 * quantized. MOXIE_RULE_DEFAULT is the usual rule of the element type (docs/quantizers.md). */
typedef enum moxie_scale_rule {
    MOXIE_RULE_DEFAULT = 0,
    MOXIE_RULE_AMAX = 1,       /* amax / largest code, floored as the granularity says */
    MOXIE_RULE_CEIL = 2,       /* E8M0: 2^ceil(log2(amax / largest)) */
    MOXIE_RULE_QUARK_EVEN = 3, /* E8M0: amax rounded at its quarter bit, then floor */
    MOXIE_RULE_OCP_FLOOR = 4,  /* E8M0: 2^(floor(log2 amax) - emax) */
    MOXIE_RULE_VLLM_FLOOR = 5, /* E8M0 for f8_e4m3 without the emax term: 2^floor(log2 amax) */
    MOXIE_RULE_UE8M0 = 6,      /* float scale rounded up to a power of two (scale_fmt "ue8m0") */
    MOXIE_RULE_INVERSE = 7     /* i8: 1 / (largest code / amax), as llama.cpp's Q8_K */
} moxie_scale_rule;

typedef enum moxie_rounding {
    MOXIE_ROUND_EVEN = 0,
    MOXIE_ROUND_AWAY = 1,    /* halves away from zero */
    MOXIE_ROUND_TRUNCATE = 2 /* toward zero */
} moxie_rounding;

typedef enum moxie_global_kind {
    MOXIE_GLOBAL_NONE = 0,
    MOXIE_GLOBAL_MULTIPLY = 1, /* value = code * scale * global */
    MOXIE_GLOBAL_DIVIDE = 2    /* value = code * scale / global */
} moxie_global_kind;

/* How one tensor is quantized: a weight projection, or the activations that enter it.
 *     value[r,c] = (code[r,c] - zero) * scale[r / group_rows, c / group_cols] (* or /) global
 * is meant as an exact real product. An unquantized tensor has a 16- or 32-bit float element and no scale. Rows of
 * activations are tokens; their element NONE means that they are not quantized. */
typedef struct moxie_quant {
    moxie_dtype element;
    moxie_dtype scale;    /* NONE: no scale. F32, F16, BF16, F8_E4M3 or F8_E8M0 */
    int32_t group_rows;   /* rows that share a scale; -1: all; 0 means 1 */
    int32_t group_cols;   /* columns that share a scale; -1: all; 0 means -1 */
    int32_t has_zero;     /* zero points are present (integers only) */
    int32_t global;       /* moxie_global_kind: one f32 per tensor, or per row */
    int32_t is_static;    /* activations: the scale (or global) comes with the weights */
    int32_t rule;         /* moxie_scale_rule */
    int32_t rounding;     /* moxie_rounding, integers only */
    uint32_t reserved[7]; /* zero */
} moxie_quant;

/* ------------------------------------------------------------------------------------------- */
/* Activation functions                                                                        */
/* ------------------------------------------------------------------------------------------- */

/* g is the gate, u the up half, s(x) = 1/(1+e^-x). Kinds from MOXIE_ACT_SILU_NO_MUL on are ungated: W13 has I rows, and
 * the function is applied to its result. */
typedef enum moxie_act_kind {
    MOXIE_ACT_SILU = 0,        /* g' s(alpha g') (u' + beta), g' = min(g, gate_limit), u' = clamp(u, +-up_limit) */
    MOXIE_ACT_GELU_ERF = 1,    /* 0.5 g (1 + erf(g / sqrt 2)) u */
    MOXIE_ACT_GELU_TANH = 2,   /* 0.5 g (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3))) u */
    MOXIE_ACT_SWIGLU_STEP = 3, /* min(g s(g), gate_limit) * clamp(u, +-up_limit) */
    MOXIE_ACT_SITU = 4,        /* a tanh(g/a) s(g) * (b > 0 ? b tanh(u/b) : u), a = alpha, b = beta */
    MOXIE_ACT_RELU2 = 5,       /* max(g,0)^2 u */
    MOXIE_ACT_RELU = 6,        /* max(g,0) u */
    MOXIE_ACT_SILU_NO_MUL = 16,
    MOXIE_ACT_GELU_ERF_NO_MUL = 17,
    MOXIE_ACT_GELU_TANH_NO_MUL = 18,
    MOXIE_ACT_RELU2_NO_MUL = 19, /* max(x,0)^2 */
    MOXIE_ACT_RELU_NO_MUL = 20,
    MOXIE_ACT_IDENTITY_NO_MUL = 21
} moxie_act_kind;

/* The "swigluoai" of gpt-oss is SILU with alpha 1.702, beta 1 and both limits 7. A zero alpha means 1 (SITU: 4), a zero
 * limit means none. An array that is not NULL holds one f32 per expert ([E], global index) and replaces the scalar. The
 * arrays are the caller's; moxie_layer_create copies them. */
typedef struct moxie_activation {
    int32_t kind; /* moxie_act_kind */
    float alpha, beta, gate_limit, up_limit;
    const float *expert_alpha, *expert_beta, *expert_limit; /* expert_limit sets both limits */
    uint32_t reserved[8];                                   /* zero */
} moxie_activation;

/* 1 when W13 has 2I rows (gate and up), 0 when it has I. Immutable. */
MOXIE_API int moxie_act_is_gated(int32_t kind);
/* The i-th activation by name: returns the name and sets *out to its kind with the parameters that are usual for it.
 * NULL past the last. Immutable. */
MOXIE_API const char *moxie_activation_at(int32_t i, moxie_activation *out);

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
     * and the whole shared expert. moxie_layer_prepare gets views of whole experts. Rank ep_rank * tp_size + tp_rank
     * of the comm is this one. Plans need options.comm; moxie_plan_experts is collective as well, and all ranks of a
     * group pass it the same tokens. */
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

/* ------------------------------------------------------------------------------------------- */
/* Executor                                                                                    */
/* ------------------------------------------------------------------------------------------- */

typedef void (*moxie_task_fn)(void *context, int64_t task, int32_t worker);

/* A parallel loop. run() calls fn(context, i, worker) once for each i in [0, tasks), with worker in [0, workers), and
 * returns when all calls have returned. No worker runs two tasks at a time. A host engine can pass its own executor;
 * `self` is the first argument of run() and the caller's.
 *
 * Plans, preparations and checks may share an executor. Those that run at the same time, on several threads of the
 * caller's, call run() at the same time. The pool of moxie_executor_create() then runs one loop after the other; an
 * executor of the caller's must allow for it, or its users take turns. A task may not start a loop on the executor that
 * runs it. */
typedef struct moxie_executor {
    void *self;
    int32_t workers;
    void (*run)(void *self, int64_t tasks, moxie_task_fn fn, void *context);
    uint32_t reserved[6]; /* zero */
} moxie_executor;

/* Makes a thread pool of `threads` workers, the caller's thread included; 0 means one per processor that this process
 * may use, 1 starts no thread. MOXIE_ERR_MEMORY says how many threads the system would start when they are too few. The
 * call tries this first; if another process uses up the limit in between, the call may wait for ever. A pool that is
 * used in a forked child starts its threads again there, in its first loop, which must be alone. If they do not start,
 * its loops run on the calling thread. Loops on the pool are thread-safe, one after the other. Thread-safe. */
MOXIE_API moxie_status moxie_executor_create(int32_t threads, moxie_executor **out, moxie_error *error);
/* No loop may be running on it. One-thread-at-a-time. */
MOXIE_API void moxie_executor_destroy(moxie_executor *executor);

/* ------------------------------------------------------------------------------------------- */
/* Layer: slots that hold prepared experts                                                     */
/* ------------------------------------------------------------------------------------------- */

typedef enum moxie_backend {
    MOXIE_BACKEND_AUTO = 0,
    MOXIE_BACKEND_REF = 1,
    MOXIE_BACKEND_CPU = 2,
    MOXIE_BACKEND_CUDA = 3
} moxie_backend;
/* Which kernels a plan may choose from.
 *     EXACT   those that round nothing beyond the numeric contract: classes EXACT and W16
 *     FAST    also class TOL, which round more, each within a stated bound (docs/accuracy.md), where they are faster
 * In both modes a token's output bits depend only on its own hidden state, ids and weights, and on the plan. They do
 * not depend on T, on other tokens, on threads or on placement. The one exception is a scheme that itself takes one
 * activation scale over the whole batch; the plan says so. A plan may use its max_tokens to choose kernels; a run
 * chooses nothing. */
typedef enum moxie_mode { MOXIE_MODE_EXACT = 0, MOXIE_MODE_FAST = 1 } moxie_mode;

typedef struct moxie_layer moxie_layer;
typedef struct moxie_plan moxie_plan;

/* Called between experts while a layer is prepared, on the caller's thread; `done` of `total` experts are packed.
 * Non-zero cancels: the call returns MOXIE_ERR_TIMEOUT. */
typedef int (*moxie_progress_fn)(void *user, int64_t done, int64_t total);

/* Whose tokens a run with a comm has. Rank r of R.
 *     SHARDED      each rank has tokens of its own, as many as it likes; it gets their outputs
 *     REPLICATED   all ranks have the same T tokens, ids and weights; each gets all outputs
 *     SCATTERED    the same, but rank r gets only the outputs of tokens [r T / R, (r+1) T / R), at row 0 of `output`;
 *                  ids_out, weights_out and logits_out have all T rows */
typedef enum moxie_token_layout {
    MOXIE_TOKENS_SHARDED = 0,
    MOXIE_TOKENS_REPLICATED = 1,
    MOXIE_TOKENS_SCATTERED = 2
} moxie_token_layout;

/* What a run with a comm does when another rank is dead, has left, or is late past the deadline.
 *     NONE         it fails with MOXIE_ERR_TIMEOUT, and the comm is broken
 *     KEEP         it ends with MOXIE_OK without the results of that rank: a choice whose result is lost counts zero.
 *                  moxie_plan_losses (moxie_comm.h) counts these choices
 *     RENORMALIZE  the same, but in a token with lost choices the others' weights w become w s / k; s is the sum of
 *                  the weights of all its choices, k that of the others, both in slot order in fp32; w where k is 0
 * Every rank decides from what it has received when its own deadline ends, so ranks may lose different choices. A rank
 * counts as lost from the chunk of the batch on in which it is missed, and in later runs too, until plans are made with
 * a new comm. Where tokens are SHARDED, experts with a replica on another rank are computed there. Tokens of a lost
 * rank are not computed; where tokens are REPLICATED, their outputs are zero. A scale of the whole batch covers the
 * tokens of the ranks that are left. A transport without mask() (moxie_comm.h) loses all other ranks at once.
 * All ranks must choose the same. */
typedef enum moxie_degraded {
    MOXIE_DEGRADED_NONE = 0,
    MOXIE_DEGRADED_KEEP = 1,
    MOXIE_DEGRADED_RENORMALIZE = 2
} moxie_degraded;

/* Wherever a function takes `moxie_options *`, NULL means all defaults. */
typedef struct moxie_options {
    uint32_t struct_size;
    int32_t backend; /* moxie_backend */
    int32_t mode;    /* moxie_mode */
    /* The largest instruction set to use; NULL: what this machine has. "scalar", "avx2", "avx512", "amx" on x86-64,
     * "scalar", "neon" on 64-bit ARM; any other name is MOXIE_ERR_ARGUMENT. */
    const char *isa;
    int64_t max_tokens; /* the largest T of a run; 0 means 4096 */
    /* NULL: this thread alone. A plan copies the struct; `self` must outlive the plan. */
    const moxie_executor *executor;
    moxie_progress_fn progress; /* NULL: none */
    void *progress_user;
    /* For the cuda back end (moxie_cuda.h). The device: "0" (the default), "1", ...; moxie_plan_explain also accepts
     * "sm_80", "sm_86", "sm_89", "sm_90", "sm_100" and "sm_120", which need no GPU, and for the cpu back end a name of
     * `isa`: the usual processor of that class, which this machine need not be. "0:sm80" runs the kernels of that
     * generation only. Then where device memory comes from; NULL: the CUDA runtime. */
    const char *device;
    const struct moxie_cuda_allocator *device_memory;
    /* The ep_size * tp_size ranks that compute a layer together (moxie_comm.h); it must outlive the plans. NULL: this
     * rank alone, whose output is its experts' share. moxie_plan_create and moxie_plan_run are collective: all ranks
     * make the same calls in the same order, with one max_tokens. Plans may share a comm; they run one at a time. */
    struct moxie_comm *comm;
    int32_t token_layout; /* moxie_token_layout; read with a comm */
    /* The largest rank of the LoRA adapters that runs may name (moxie_adapters.h), up to MOXIE_MAX_ADAPTER_RANK; 0:
     * runs have none. The workspace grows with it. */
    int32_t max_adapter_rank;
    /* With a comm: the most tokens that one rank owns in a run (of SHARDED tokens its own, else its part of them). Then
     * ranks exchange no counts: every message has room for so many, and there is one exchange each way. For few tokens.
     * A rank with more fails with MOXIE_ERR_ARGUMENT, the others with MOXIE_ERR_MISMATCH. The same on all ranks.
     * 0: counts, and batches of any size. MOXIE_ERR_UNSUPPORTED with `degraded`. */
    int64_t exchange_capacity;
    /* moxie_degraded; read with a comm. MOXIE_ERR_UNSUPPORTED with tp_size > 1, where a group of ranks cannot compute
     * without one of them, and RENORMALIZE with weights on the input (routing.on_input). */
    int32_t degraded;
    /* Read by moxie_layer_create: so many slots more than config.slot_map says, for experts that a moxie_mover brings
     * (moxie_comm.h). The same on all ranks. 0: the layer's experts stay. */
    int32_t spare_slots;
} moxie_options;
#define MOXIE_OPTIONS_INIT MOXIE_INIT(moxie_options)

/* Makes a layer without weights: chooses the kernels, hence the weight layout, and allocates one slot per local expert.
 * Copies `config` and every array that it points to. Thread-safe. */
MOXIE_API moxie_status moxie_layer_create(const moxie_layer_config *config, const moxie_options *options,
                                          moxie_layer **out, moxie_error *error);
/* After its plans. One-thread-at-a-time. */
MOXIE_API void moxie_layer_destroy(moxie_layer *layer);

/* Packs every local expert into its slot, as many at a time as options->executor has workers; the workers are the first
 * to touch the slots' memory. On failure the layer holds no expert. `weights` may be freed afterwards. Of `options`
 * only executor and progress are used. One-thread-at-a-time. */
MOXIE_API moxie_status moxie_layer_prepare(moxie_layer *layer, const moxie_weights *weights,
                                           const moxie_options *options, moxie_error *error);

/* Replaces one local expert, with its static scales; `expert` is its global index. On failure the old one stays;
 * only where a copy to a device fails is its record undefined. Plans stay valid; none of them may be running.
 * One-thread-at-a-time. */
MOXIE_API moxie_status moxie_layer_update_expert(moxie_layer *layer, int64_t expert, const moxie_expert *weights,
                                                 moxie_error *error);

/* Computes the checksum of every record again; MOXIE_ERR_MISMATCH names the first damaged expert. Immutable. */
MOXIE_API moxie_status moxie_layer_verify(const moxie_layer *layer, moxie_error *error);

/* The record of an expert (global index), for example to send it elsewhere; *data is NULL and *bytes 0 if the expert is
 * not local. The record is the layer's and valid until the expert is replaced. Immutable. */
MOXIE_API moxie_status moxie_layer_record(const moxie_layer *layer, int64_t expert, const void **data, uint64_t *bytes,
                                          moxie_error *error);
/* Bytes of all records, router and shared expert included. Immutable. */
MOXIE_API uint64_t moxie_layer_bytes(const moxie_layer *layer);

/* ------------------------------------------------------------------------------------------- */
/* Plan and run                                                                                */
/* ------------------------------------------------------------------------------------------- */

/* Chooses a kernel for every step, among those that read the layout of the layer's records. `layer` must outlive the
 * plan, and be prepared before its first run. Plans of one layer may run at the same time, each with its own workspace;
 * a plan runs one-thread-at-a-time. This call: thread-safe. */
MOXIE_API moxie_status moxie_plan_create(const moxie_layer *layer, const moxie_options *options, moxie_plan **out,
                                         moxie_error *error);
/* One-thread-at-a-time. */
MOXIE_API void moxie_plan_destroy(moxie_plan *plan);

/* Bytes that a run needs at `workspace`: a multiple of 64, as aligned_alloc(64, bytes) wants it; a multiple of 256 for
 * a plan of the cuda back end. It depends on the plan only. Immutable. */
MOXIE_API uint64_t moxie_plan_workspace_bytes(const moxie_plan *plan);

/* One step of a plan, or one kernel that was rejected for the step that follows. The struct and its strings live as
 * long as the plan. */
typedef struct moxie_plan_step {
    const char *family; /* "topk", "expert_gemm", ... */
    const char *role;   /* "w13", "w2", "shared w13", "router" or "" */
    const char *kernel; /* its name */
    const char *isa;
    const char *layout;    /* layout of the weights that it reads, or "" */
    const char *exactness; /* its class: "EXACT", "W16", "TOL" */
    int32_t chosen;        /* 1: this kernel runs; 0: it was rejected */
    const char *reason;    /* rejected: the limit that failed; chosen: "" or a remark on its results */
    const char *remedy;    /* rejected: the smallest change with which it would be accepted, or "" */
} moxie_plan_step;

/* How many there are. Immutable. */
MOXIE_API int32_t moxie_plan_step_count(const moxie_plan *plan);
/* Step `index`, in the order they run; before each step come the better kernels that were rejected for it. NULL past
 * the last. Immutable. */
MOXIE_API const moxie_plan_step *moxie_plan_step_at(const moxie_plan *plan, int32_t index);

/* Where the time of a plan's runs went: seconds of one worker in one phase, over all runs that ended well since the
 * plan was made. The phases of a worker add up to the time of the runs. */
typedef struct moxie_plan_phase {
    uint32_t struct_size;
    const char *name; /* "route", "permute", "gather", "w13", "activation", "w2", "combine", "exchange", "wait", "idle",
                       * "dispatch", "return"; static */
    double seconds;
    uint64_t sent_bytes; /* "exchange" of worker 0: bytes to other ranks; else 0 */
} moxie_plan_phase;
#define MOXIE_PLAN_PHASE_INIT MOXIE_INIT(moxie_plan_phase)

/* Fills `out` with phase `index`, counted from 0, of worker `worker` of the plan's executor. Returns 0 behind the last
 * phase or worker, or when `plan` or `out` is NULL.
 *
 * Worker 0 also times the stages that are not fused, whoever works on them; the other workers are "idle" then. Where
 * both products are fused, "w13" includes the activation. "exchange" is work on rows for and from other ranks, "wait"
 * the time in which nothing came from them. On a device the times are of enqueueing; but after moxie_cuda_time_runs()
 * of a plan with a comm they are a run's, and "dispatch" and "return" are apart. Not while the plan runs. */
MOXIE_API int moxie_plan_phase_at(const moxie_plan *plan, int32_t worker, int32_t index, moxie_plan_phase *out);

/* The plan that a configuration would get. It needs no weights and no routing table, and cannot run. Thread-safe. */
MOXIE_API moxie_status moxie_plan_explain(const moxie_layer_config *config, const moxie_options *options,
                                          moxie_plan **out, moxie_error *error);

/* What a run reads and writes. Rows are contiguous. Pointers are host memory, for moxie_cuda_plan_run device memory.
 * The experts are given by `ids` and `weights`, else chosen from `logits`, else from the logits of the layer's own
 * router. */
typedef struct moxie_run_args {
    uint32_t struct_size;
    int64_t tokens;            /* T, 0 allowed */
    const void *hidden;        /* [T,H], config.dtype */
    const void *router_hidden; /* [T,router_width], config.dtype; NULL: hidden, when the widths agree */
    const void *logits;        /* [T,E] or NULL */
    moxie_dtype logits_dtype;  /* F32, BF16 or F16; 0 means F32 */
    const int32_t *token_ids;  /* [T] for table routing */
    const int32_t *ids;        /* [T,K] or NULL; an id below 0, or not below E (with zero experts E + Z), is skipped */
    const float *weights;      /* [T,K] */
    void *output;              /* [T,H], config.dtype; may not overlap an input */
    int32_t *ids_out;          /* [T,K] or NULL */
    float *weights_out;        /* [T,K] or NULL */
    float *logits_out;         /* [T,E] or NULL; written when the layer's router runs or logits are given */
    void *workspace;           /* of moxie_plan_workspace_bytes, aligned to 64 bytes; its content does not matter */
    uint64_t workspace_bytes;
    /* [T] or NULL: a token whose byte is not 0 is padding. No expert is chosen for it: its ids are -1, its weights 0,
     * so its output is the shared expert's alone, or 0. Its row of logits_out is computed. Other tokens get the bits
     * that they get without the mark, save where one activation scale covers the whole batch. With a callback the
     * marks take effect after it. Read where experts are chosen; beside `ids`, moxie_plan_run answers
     * MOXIE_ERR_ARGUMENT. */
    const uint8_t *padding;
    /* [T] or NULL: routing.bias_alt is the bias of a token whose byte is not 0, routing.bias that of the others. With
     * MOXIE_SELECT_TABLE such a token chooses the K largest keys, and its token id is not read. NULL: no such token.
     * Read where experts are chosen; an error without bias_alt, and beside `ids` as with `padding`. */
    const uint8_t *bias_choice;
    /* LoRA adapters of the plan's layer, and the adapter of each token, [T]; -1: none. A disabled adapter is none, too.
     * Both NULL: no token has one. Read where experts are computed; a plan needs max_adapter_rank. */
    const struct moxie_adapters *adapters;
    const int32_t *adapter_ids;
} moxie_run_args;
#define MOXIE_RUN_ARGS_INIT MOXIE_INIT(moxie_run_args)

/* Runs the whole layer: router, experts, combine. It allocates nothing, except for a plan of the cuda back end: there
 * this call and the next three allocate device and host memory in every run, for what they copy. moxie_cuda_plan_run
 * allocates nothing. One-thread-at-a-time per plan. */
MOXIE_API moxie_status moxie_plan_run(moxie_plan *plan, const moxie_run_args *args, moxie_error *error);

/* The same in three parts, for engines that move tokens between them. Each is one-thread-at-a-time per plan.
 *     route      logits (or the router's) -> ids_out, weights_out
 *     experts    hidden, ids, weights -> rows [T,K,H] f32: the result of each choice, normed (expert_norm) but not yet
 *                weighted; 0 if skipped, and for zero experts
 *     combine    rows [T,K,H] f32, ids, weights -> output, without the shared expert; with identity experts also
 *                hidden, and their part is in the output */
MOXIE_API moxie_status moxie_plan_route(moxie_plan *plan, const moxie_run_args *args, moxie_error *error);
MOXIE_API moxie_status moxie_plan_experts(moxie_plan *plan, const moxie_run_args *args, float *rows,
                                          moxie_error *error);
MOXIE_API moxie_status moxie_plan_combine(moxie_plan *plan, const moxie_run_args *args, const float *rows,
                                          moxie_error *error);

/* ------------------------------------------------------------------------------------------- */
/* Checking a plan against the oracle                                                          */
/* ------------------------------------------------------------------------------------------- */

/* One stage of a run beside the oracle. Its worst element is the one with the largest |got - want| / bound. The root
 * mean squares are taken over all finite elements. The struct lives as long as its report; `stage` is static. */
typedef struct moxie_stage_report {
    const char *stage;  /* "router norm", "router", "topk", "permute", "quant13", "gemm13", "glu", "quant2", "gemm2",
                         * "expert norm", "combine"; of the shared expert "shared quant13", ..., "shared gemm2",
                         * "shared gate" */
    int64_t elements;   /* compared */
    int64_t beyond;     /* of these, outside the bound */
    double worst_ratio; /* <= 1 passes; infinity where a wrong element has no distance (codes, ids) */
    double got, want, bound;                           /* of the worst element */
    int64_t token, slot, expert, column, column_block; /* where it is; -1 where meaningless; blocks of 32 columns */
    double rms_error, rms_want, rms_bound;             /* root mean square of got - want, of want, of bound */
} moxie_stage_report;

typedef struct moxie_check_report moxie_check_report;

/* Runs `plan` on `args` and compares every element of every stage with the oracle: double precision, from the inputs
 * that the stage's kernel had, straight from the checkpoint views in `weights` (never from packed records). MOXIE_OK
 * means that it ran; moxie_check_report_worst() says whether it is right. It is slow, and allocates room for every
 * stage. MOXIE_ERR_UNSUPPORTED for a plan with options.comm (docs/ranks.md says why). One-thread-at-a-time per plan. */
MOXIE_API moxie_status moxie_plan_check(moxie_plan *plan, const moxie_weights *weights, const moxie_run_args *args,
                                        moxie_check_report **out, moxie_error *error);
/* The largest worst_ratio of all stages: up to 1 every element is within its bound. Immutable. */
MOXIE_API double moxie_check_report_worst(const moxie_check_report *report);
/* How many stages were compared. Immutable. */
MOXIE_API int32_t moxie_check_report_stage_count(const moxie_check_report *report);
/* Stage `index`, in the order they ran; NULL past the last. Immutable. */
MOXIE_API const moxie_stage_report *moxie_check_report_stage_at(const moxie_check_report *report, int32_t index);
/* One-thread-at-a-time. */
MOXIE_API void moxie_check_report_destroy(moxie_check_report *report);

/* Where two sets of weights of one configuration first differ, and how often. Strings are static. */
typedef struct moxie_weights_difference {
    uint32_t struct_size;
    int64_t expert;         /* -1: equal, or with `projection` not empty a part outside the experts */
    const char *projection; /* "gate", "up", "down", "shared gate", ..., "shared expert gate", "router", "router norm",
                             * "expert norm"; "": equal */
    const char *part;       /* "codes", "scale", "zero", "global", "bias", "group index", "input scale" */
    int64_t row, column;    /* of the part: codes by element, scale and zero by group */
    int64_t row_block, column_block; /* in quantization groups */
    int64_t count;                   /* elements that differ, over all experts; 0: the weights are equal */
    int64_t experts;                 /* experts that differ */
} moxie_weights_difference;
#define MOXIE_WEIGHTS_DIFFERENCE_INIT MOXIE_INIT(moxie_weights_difference)
/* Compares values and codes; how they lie in memory does not matter. It compares all experts, whatever the rank.
 * Immutable. */
MOXIE_API moxie_status moxie_weights_compare(const moxie_layer_config *config, const moxie_weights *a,
                                             const moxie_weights *b, moxie_weights_difference *out, moxie_error *error);

/* ------------------------------------------------------------------------------------------- */
/* The machine                                                                                 */
/* ------------------------------------------------------------------------------------------- */

typedef struct moxie_machine {
    uint32_t struct_size;
    int32_t processors;      /* how many this process may use */
    char cpu[64];            /* brand string */
    const char *isa_found;   /* the largest instruction set of processor and system: "scalar", "neon", "avx2", "avx512",
                              * "amx". Static, as the other two */
    const char *isa_allowed; /* the same under MOXIE_MAX_ISA */
    char features[512];      /* names of the features found, with a space between two */
    const char *amx;         /* "absent"; "disabled": the system does not save tiles; "refused": the system denied this
                              * process the use of them; "permitted" */
} moxie_machine;
#define MOXIE_MACHINE_INIT MOXIE_INIT(moxie_machine)
/* The environment variable MOXIE_MAX_ISA is read once per process. When it names no instruction set of this
 * architecture, this call and every other one that chooses kernels fails with MOXIE_ERR_ARGUMENT. Thread-safe. */
MOXIE_API moxie_status moxie_machine_info(moxie_machine *out, moxie_error *error);

/* One kernel of the library. Strings are static; they mean what those of moxie_plan_step mean. */
typedef struct moxie_kernel_info {
    uint32_t struct_size;
    int32_t runnable; /* on this machine, under MOXIE_MAX_ISA */
    const char *family, *name, *isa, *layout, *exactness;
} moxie_kernel_info;
#define MOXIE_KERNEL_INFO_INIT MOXIE_INIT(moxie_kernel_info)
/* CPU kernel `index`; returns 0 past the last, or when out->struct_size is wrong. `out` may be NULL. Immutable. */
MOXIE_API int moxie_kernel_at(int32_t index, moxie_kernel_info *out);

/* ------------------------------------------------------------------------------------------- */
/* Limits                                                                                      */
/* ------------------------------------------------------------------------------------------- */

/* The measured limits of the machine, all workers of an executor together. GB and TFLOP are powers of ten. They give
 * the least time that a layer can take: max(weight bytes / read_gb_s, operations / bf16_tflop_s). The `how` strings
 * name the probe that was best; they are static. */
typedef struct moxie_limits {
    uint32_t struct_size;
    int32_t workers;
    const char *isa;      /* instruction set of the probes: the machine's, under MOXIE_MAX_ISA and `isa_cap` */
    double read_gb_s;     /* reading from memory, every byte once, pages of 2 MB */
    double copy_gb_s;     /* bytes copied from memory to memory */
    double l2_read_gb_s;  /* reading what fits in each core's L2 */
    double f32_tflop_s;   /* f32 multiply-adds, two operations each, registers only */
    double bf16_tflop_s;  /* bf16 products added in f32, likewise; f32_tflop_s where nothing is faster */
    double int8_top_s;    /* int8 products added in int32, likewise; 0 when there is no instruction for it */
    uint64_t l2_bytes;    /* of one core */
    uint64_t cache_bytes; /* of the last level, all its instances together, as the system reports them */
    const char *read_how, *copy_how, *l2_read_how, *f32_how, *bf16_how, *int8_how;
    int32_t disturbed;  /* how many figures are rough, because other work kept disturbing the workers */
    double fp8_tflop_s; /* FP8 products added in f32; 0 when there is no instruction for it */
    const char *fp8_how;
} moxie_limits;
#define MOXIE_LIMITS_INIT MOXIE_INIT(moxie_limits)

/* Measures the limits in about a second. Meanwhile it needs 1 GB of memory, or twice the caches if that is more;
 * without it the call fails with MOXIE_ERR_MEMORY. Other work on the machine lowers the figures, so measure right
 * before and after what you compare with them. `executor` NULL: one thread. `isa_cap`: as `isa` of moxie_options.
 * One-thread-at-a-time per executor. */
MOXIE_API moxie_status moxie_measure_limits(const moxie_executor *executor, const char *isa_cap, moxie_limits *out,
                                            moxie_error *error);

#ifdef __cplusplus
}
#endif

#endif /* MOXIE_H */
