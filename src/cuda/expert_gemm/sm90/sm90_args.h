/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_args.h - what the Hopper kernels of family expert_gemm get, in device pointers. Plain C that CUDA C++ includes
 * too.
 *
 *     out[p, n] = sum_k w[n, k] a[p, k]      weights in a layout of pack/hopper/hopper.h, p over the pairs of each slot
 *
 * One product is cut twice. By columns: the tokens of a slot are split evenly into token tiles of at most `most`
 * columns. By rows: a product has `tiles` row tiles of 128 rows. A *job* is one row tile times one token tile over all
 * of K; jobs are ordered by slot, then row tile, then token tile, so that what runs at one time shares weights and
 * tokens in L2. Blocks work alone or in pairs (`paired`, a cluster): a pair has two neighbouring row tiles of one token
 * tile, whose tokens each block fetches half of, for both; and quantizes outputs of both.
 *
 *     work list (expert_gemm_sm90_list.cu)      entry | slot, first pair, tokens, ... |  one for every slot with tokens
 *
 * Of few pairs, every block makes the list from the choices themselves (sm90_inline_routing.cuh), and so need not wait
 * for anyone before its weights are on their way.
 *
 * The blocks (or pairs) of a launch, one or two for each multiprocessor, take jobs in turn while more than two rounds
 * are left; the chunks of the last jobs are then dealt out evenly, so that a job may be begun by one and ended by the
 * next. Who ends it goes on from the very accumulators of who began it (`state`), and does so last, when that one,
 * which did so first, is long done. Each accumulator travels in one word with a tag that says it is there: a fence
 * would wait for the bulk copies under way in its block, and there are always some. So a dot product is one chain of
 * additions in the order of K, whoever computes which part of it: its bits depend neither on the cut, nor (hopper
 * tensor cores) on the width of the token tile.
 *
 * Tokens come as a tiled operand: token tile by token tile, chunk by chunk, just as a bulk copy brings it to shared
 * memory. W13 with its activation leaves W2's operand so, quantized with powers of two what a gather would make of the
 * codes; rows are gathered into one.
 *
 *     tile of w columns (a multiple of 8), first row r:   codes at r * chunks * 128 + k * w * 128 for chunk k, row i in
 * it at 128 i, swizzled; scales of 8-bit elements, f32, one for a chunk's 128 columns: at r * chunks + k * w + i
 */
#ifndef MOX_CUDA_SM90_ARGS_H
#define MOX_CUDA_SM90_ARGS_H

#include <stdint.h>

#include <moxie/moxie.h>

#define MOX_SM90_MAX_COLUMNS            288 /* of a token tile; four stages of the ring then fit */
#define MOX_SM90_MAX_COLUMNS_DEQUANT    256 /* with codes, whose decoding needs registers too, and with integers */
#define MOX_SM90_MAX_COLUMNS_FP8        176 /* with 8-bit elements, which need a second set of accumulators */
#define MOX_SM90_MAX_COLUMNS_MXFP4_FP8  144 /* with codes that become such, which need both */
#define MOX_SM90_NARROW_COLUMNS         32  /* of token tiles that have a kernel of their own, */
#define MOX_SM90_NARROW_COLUMNS_DEQUANT 64  /* where weights are decoded to 16 bits */
#define MOX_SM90_GROUPS                 2   /* consumer warpgroups: 64 rows each */

#define MOX_SM90_INLINE_PAIRS 64   /* whose list every block makes: two a lane */
#define MOX_SM90_LIST_PAIRS   8192 /* whose list is made from the choices, eight a thread */

/* Stages of the ring for those. More than keep DRAM busy make its queue longer, in which all that is read besides
 * weights, the kernel's code too, has to wait; and what little runs then cannot make up for it. */
#define MOX_SM90_INLINE_STAGES 6

/* A slot that has tokens. 32 bytes, so that two loads get it. */
typedef struct mox_sm90_entry {
    int32_t slot, pair, tokens;
    int32_t first; /* token tiles of all entries before */
    int32_t row;   /* rows of a tiled operand before: their tokens, each rounded up to 8 */
    int32_t tiles; /* its own token tiles */
    int32_t used;  /* while a list of few is made: bit b of entry w says that slot 32 w + b has tokens */
    int32_t padding;
} mox_sm90_entry;

/* Eight rows of a tiled operand. */
typedef struct mox_sm90_octet {
    int32_t pair, columns; /* the first one's pair, how many of them are tokens (from 0 on) */
    int32_t row, rows;     /* of its token tile: first row, rows */
} mox_sm90_octet;

/* entries[count] follows. */
typedef struct mox_sm90_list {
    int32_t count, max_columns;
    int32_t tiles; /* token tiles in all */
    int32_t padding[5];
} mox_sm90_list;

/* What permute works from, for few pairs; ids NULL: there is a list. */
typedef struct mox_sm90_routing {
    const int32_t *ids;     /* [pairs] experts; what is none is skipped */
    const int32_t *slot_of; /* [experts], -1: none */
    int32_t pairs, experts;
} mox_sm90_routing;

/* Weights that are decoded in registers come last. */
typedef enum mox_sm90_element {
#define MOX_SM90_ELEMENT(name, ...) MOX_SM90_##name,
#include "cuda/expert_gemm/sm90/sm90_elements.def"
#undef MOX_SM90_ELEMENT
    MOX_SM90_FIRST_CODES,
    MOX_SM90_BEFORE_CODES = MOX_SM90_FIRST_CODES - 1,
#define MOX_SM90_CODES(name, ...) MOX_SM90_##name,
#include "cuda/expert_gemm/sm90/sm90_elements.def"
#undef MOX_SM90_CODES
    MOX_SM90_ELEMENTS
} mox_sm90_element;

#define MOX_SM90_DECODES(element) ((element) >= MOX_SM90_FIRST_CODES)
#define MOX_SM90_TO_FP8(element)  ((element) == MOX_SM90_MXFP4_FP8)

/* Where C has a function, kernels have constants. */
#ifdef __cplusplus
#define MOX_SM90_CONSTEXPR static constexpr int32_t
#else
#define MOX_SM90_CONSTEXPR static inline int32_t
#endif

/* Columns of the list. */
MOX_SM90_CONSTEXPR mox_sm90_chunk_bytes(int32_t element)
{
    switch (element) {
#define MOX_SM90_ELEMENT(name, file, bytes, ...)                                                                       \
    case MOX_SM90_##name:                                                                                              \
        return bytes;
#define MOX_SM90_CODES MOX_SM90_ELEMENT
#include "cuda/expert_gemm/sm90/sm90_elements.def"
#undef MOX_SM90_ELEMENT
    }
    return 0;
}

MOX_SM90_CONSTEXPR mox_sm90_token_bytes(int32_t element)
{
    switch (element) {
#define MOX_SM90_ELEMENT(name, file, bytes, size, scales)                                                              \
    case MOX_SM90_##name:                                                                                              \
        return size;
#include "cuda/expert_gemm/sm90/sm90_elements.def"
#undef MOX_SM90_ELEMENT
    }
    return 0;
}

MOX_SM90_CONSTEXPR mox_sm90_token_scales(int32_t element)
{
    switch (element) {
#define MOX_SM90_ELEMENT(name, file, bytes, size, scales)                                                              \
    case MOX_SM90_##name:                                                                                              \
        return scales;
#include "cuda/expert_gemm/sm90/sm90_elements.def"
#undef MOX_SM90_CODES
#undef MOX_SM90_ELEMENT
    }
    return 0;
}

/* Whose sums the token may have a factor for. */
MOX_SM90_CONSTEXPR mox_sm90_has_factors(int32_t element)
{
    return MOX_SM90_DECODES(element) || element == MOX_SM90_INT8;
}

/* What codes of 6 bits are (sm90_decode_mxfp6.cuh). Bits are those of a pair of bf16. */
typedef struct mox_sm90_w6_format {
    uint32_t mask4, mask2; /* bits from the first plane's word, from the second's, */
    int32_t rotate[2][4];  /* turned left by so many: [every other 16 columns][register] */
} mox_sm90_w6_format;

/* What codes of 8 bits are, and how a pair of rows has its multipliers of a chunk, two each (sm90_decode_w8.cuh).
 * Bits are those of a pair of bf16. */
typedef struct mox_sm90_w8_format {
    uint32_t first_mask;          /* bits of a word's first code */
    int32_t rotate[2];            /* of its second: turned left by so many, */
    uint32_t second_mask[2];      /* these */
    uint32_t zero_point;          /* times the multiplier is added: what codes count from, or 0 */
    int32_t high_word;            /* word of row r + 8's multipliers, row r's being 0 */
    uint32_t select[2][2], widen; /* [rows r, r + 8][columns 0-31, 32-63]: bytes of the word; times this */
} mox_sm90_w8_format;

/* Columns of token tiles that have a kernel of their own. */
MOX_SM90_CONSTEXPR mox_sm90_narrow_columns(int32_t element)
{
    return MOX_SM90_DECODES(element) && !MOX_SM90_TO_FP8(element) ? MOX_SM90_NARROW_COLUMNS_DEQUANT
                                                                  : MOX_SM90_NARROW_COLUMNS;
}

/* Blocks that fit a multiprocessor. Decoding keeps it busy only with four warps a scheduler, and narrow tiles leave the
 * registers for them. */
MOX_SM90_CONSTEXPR mox_sm90_blocks(int32_t element, int32_t max_columns)
{
    return MOX_SM90_DECODES(element) && max_columns <= mox_sm90_narrow_columns(element) ? 2 : 1;
}

/* Chunks of a stage: several where they are decoded and tokens leave room for that, since a barrier less a chunk is
 * much. */
MOX_SM90_CONSTEXPR mox_sm90_chunks_per_stage(int32_t element, int32_t max_columns)
{
    if (!MOX_SM90_DECODES(element))
        return 1;
    return (max_columns <= MOX_SM90_NARROW_COLUMNS ? 16384 : 8192) / mox_sm90_chunk_bytes(element);
}

/* Makes the list, and zeroes the words of `state`. */
typedef struct mox_sm90_list_args {
    mox_sm90_routing routing; /* ids NULL: they are not known, or kernels before permute may still run */
    const int64_t *offsets;   /* [slots + 1] pairs, when permute has found them */
    int64_t slots;
    int32_t max_columns; /* columns of a token tile: a multiple of 8, up to 256 */
    mox_sm90_list *list;
    mox_sm90_octet *octets; /* [octet_count], all of them written */
    int64_t octet_count;    /* as many as any routing takes */
    uint64_t *state;
    int64_t state_words; /* even */
    int32_t multiprocessors;
} mox_sm90_list_args;

/* Codes of activations that become bf16, which holds each times its group's scale. What it does not hold, the scale of
 * a whole row or a global one, is left to the row's factor; so is a power of two, by which scales that are powers of
 * two are made smaller: numbers next to 2^128 are rounded up to it, and infinities become the greatest code.
 */
typedef struct mox_sm90_acts {
    int32_t bits;       /* of a code; 0: rows are gathered as they are */
    int32_t shift;      /* a code's magnitude turned left by so many is an f32, */
    float rebias;       /* times this its value, */
    uint32_t max_code;  /* past this it is no number, where there are such codes; */
    int32_t group;      /* columns of a scale, a multiple of 8; 0: all */
    float scale_factor; /* scales of groups are multiplied by this, a power of two, */
    float row_factor;   /* and so rows by this */
    int32_t global_divides;
    const float *global; /* [rows of a] or NULL */
    int32_t integer;     /* codes are integers of 8 bits; shift, up and most say nothing */
} mox_sm90_acts;

/* Rows to a tiled operand. Zeroes the words of `state` too where nobody makes a list. */
typedef struct mox_sm90_gather_args {
    mox_sm90_routing inline_routing;
    int32_t max_columns;          /* columns of a token tile */
    int32_t blocks;               /* as many as may run at one time */
    int32_t streams;              /* more is written than L2 holds, which should rather keep the rows that are read */
    const mox_sm90_octet *octets; /* of a list */
    int64_t octet_count;
    const uint8_t *a; /* rows of 16-bit elements or of codes; address and stride multiples of 16 bytes */
    int64_t a_stride; /* bytes */
    int32_t a_bytes;  /* of a row as it is gathered; what follows up to the chunk's end becomes zero */
    mox_sm90_acts acts;
    int32_t chunks;
    const int64_t *a_row; /* row of pair p; NULL: p */
    const float *a_scale; /* of codes; else NULL */
    int64_t a_scale_stride;
    int32_t scales, scale_cols; /* a token's in a chunk, 0 or 1; of a row: one for each chunk, or for all */
    uint8_t *to;
    float *to_scale;
    float *to_factor; /* of codes that become bf16, and of integers: [rows of the tiled operand] */
    uint64_t *state;
    int64_t state_words; /* even */
} mox_sm90_gather_args;

/* Whose blocks a multiprocessor has. With one of each product, W2's weights are on their way before W13 has ended. */
typedef enum mox_sm90_co_residency {
    MOX_SM90_EXCLUSIVE = 0,   /* one product's, as many as fit */
    MOX_SM90_CO_RESIDENT_W13, /* W13's, more than half of the shared memory, and W2's */
    MOX_SM90_CO_RESIDENT_W2   /* the same, of W2 */
} mox_sm90_co_residency;

typedef enum mox_sm90_output {
    MOX_SM90_ROWS_F32 = 0, /* out[p, n]; gated: [gate I | up I] */
    MOX_SM90_ACT_F32,      /* out[p, i] = act(gate, up) */
    MOX_SM90_ACT_BF16,     /* next[p, i], rounded once; zero up to next_stride */
    MOX_SM90_ACT_F16,
    MOX_SM90_ACT_E4M3, /* next[p, i] and next_scale[p, i / 128], by the rule of quant/act_quant.c; gated: paired only */
    MOX_SM90_ACT_MX    /* next[p, i], codes with a power of two for every 32 by that rule, as next_acts makes bf16 */
} mox_sm90_output;

typedef struct mox_sm90_args {
    mox_sm90_routing inline_routing;
    const mox_sm90_list *list;
    /* weights: records end to end, offsets as in mox_hopper_matrix */
    const uint8_t *records;
    uint64_t record_bytes, tiles_at, tile_bytes, row_scale_at, bias_at;
    int32_t tiles, chunks, last_rows;
    int32_t scale_bytes, scale_shift; /* of 128 rows in a block of scales; chunk k has block k >> shift */
    int32_t factor_divides;           /* rows are divided by their factors, not multiplied */
    mox_sm90_w8_format w8;            /* of MOX_SM90_W8 */
    mox_sm90_w6_format w6;            /* of MOX_SM90_MXFP6 */
    int32_t rows;                     /* of one matrix: I or H */
    int32_t gated;
    int32_t paired;      /* blocks work in pairs */
    int32_t co_resident; /* mox_sm90_co_residency */
    int32_t max_columns; /* columns of a token tile */
    int32_t l2_prefetch; /* chunks of a block that L2 is asked for when the ring is first full */
    /* tokens: a tiled operand */
    const uint8_t *a;
    const float *a_scale;  /* of 8-bit elements */
    const float *a_factor; /* [rows of the tiled operand] sums of its columns are multiplied by; NULL: all by a_times */
    float a_uniform_factor;
    /* between blocks */
    uint64_t *state; /* [blocks][2][most / 2][128]: an accumulator and, above it, the tag of who left it */
    uint32_t tag;    /* not 0, and no other product's since the words were zeroed */
    /* what becomes of it */
    int32_t output;
    int32_t next_rule;           /* moxie_scale_rule of next's scales */
    mox_sm90_acts next_acts;     /* of MOX_SM90_ACT_MX */
    moxie_activation activation; /* its arrays in device memory */
    const int64_t *expert_of;    /* [slots] global expert, for those; NULL when it has none */
    float *out;
    int64_t out_stride;
    void *next;          /* a tiled operand */
    int64_t next_stride; /* elements: a multiple of 128 bytes */
    float *next_scale;
    /* the ring in shared memory, which the launcher fills in */
    int32_t stages, chunks_per_stage; /* chunks of a stage: 1, or of codes more */
    uint32_t stage_bytes, tokens_at;
} mox_sm90_args;

#ifdef __cplusplus
extern "C" {
#endif

/* Launchers; `stream` is a cudaStream_t. `dependent`: the kernel before may still run (programmatic dependent launch).
 * Return a cudaError_t. Neither allocates nor waits. */
int mox_sm90_launch_list(const mox_sm90_list_args *args, int dependent, void *stream);
int mox_sm90_launch_gather(const mox_sm90_gather_args *args, int dependent, void *stream);
int mox_sm90_launch_gemm(mox_sm90_element element, const mox_sm90_args *args, int32_t blocks, int dependent,
                         void *stream);

#ifdef __cplusplus
}
#endif

#endif
