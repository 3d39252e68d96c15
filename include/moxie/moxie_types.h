/* SPDX-License-Identifier: Apache-2.0
 *
 * moxie_types.h - the values that all other headers speak of: status and errors, number formats, tensors, quantization,
 * activation functions. moxie.h includes it, and has the rules about calls, threads and structs.
 */
#ifndef MOXIE_TYPES_H
#define MOXIE_TYPES_H

#include <stddef.h>
#include <stdint.h>

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

#ifdef __cplusplus
}
#endif

#endif /* MOXIE_TYPES_H */
