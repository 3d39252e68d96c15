/* SPDX-License-Identifier: Apache-2.0
 *
 * mma_args.h - arguments of the Hopper kernels of family expert_gemm, in device pointers. Plain C that CUDA C++
 * includes.
 *
 *     out[p, n] = sum_k w[n, k] a[p, k]      weights in a layout of pack/hopper/hopper.h, p over the pairs of each slot
 *
 * How the work is cut. By columns: the tokens of a slot are split evenly into token tiles of up to `max_columns`. While
 * routing is even, nearly all slots have at most `usual_columns`. Where it is not, wider tiles keep the weights of a
 * slot from being read and dequantized once more for every few of its tokens. By rows: a product has `tiles` row tiles
 * of 128 rows. A *job* is one row tile times one token tile, over all of K. Jobs are ordered by slot, then row tile,
 * then token tile: jobs that run at the same time share weights and tokens in L2.
 *
 *     work list (expert_gemm_list.cu)           entry | slot, first pair, tokens, ... |  one for every slot with tokens
 *
 * With few pairs every block computes the list from the routing (mma_inline_routing.cuh), and fetches weights at once.
 *
 * Pairs of blocks. `paired` blocks are a cluster with two neighbouring row tiles of one token tile. Each fetches half
 * of the tokens and multicasts it to both; where they quantize, they combine the maxima of both.
 *
 * Split-K. Blocks (or pairs), one or two a multiprocessor, take jobs in turn while more than two rounds are left. The
 * chunks of the remaining jobs are dealt out evenly, so that one block may begin a job and the next block end it. The
 * second resumes from the first one's accumulators (`state`). A block begins such a job first and resumes one last, so
 * it hardly ever waits. Each accumulator travels in one word with a tag that says it has arrived: a fence would wait
 * for the bulk copies in flight. So a dot product is one chain of additions in the order of K: its bits depend neither
 * on the cut nor, on Hopper's tensor cores, on the width of the token tile. Chunks that have one sum (`sum_shift`) are
 * not dealt out to two blocks.
 *
 * Tiled activations: token tile by token tile, chunk by chunk, as a bulk copy brings them to shared memory. A gather
 * makes them from rows; W13 with a fused activation writes W2's directly.
 *
 *     token tile of w columns (a multiple of 8), first row r
 *         elements    r * chunks * 128 + k * w * 128 for chunk k; row i at 128 i in it, swizzled
 *         scales      f32, of elements with token scales, one for the columns of a chunk: at r * chunks + k * w + i
 *         sums        of elements with minimums, 64 bytes a token and 256 columns: at (r * blocks + b * w) * 64 for
 *                     block b of `blocks`, as operand B of two MMAs without swizzle: eight tokens by | MMA | half |
 *                     token | 16 bytes |. Each sum, of 32 columns, is three bf16, which add up to 2^-5 times it,
 *                     and a zero
 */
#ifndef MOX_CUDA_SM90_ARGS_H
#define MOX_CUDA_SM90_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include <moxie/moxie.h>

/* Columns of the widest token tile, by the lists of widths in mma_shape.h. */
#define MOX_SM90_MAX_COLUMNS_W16A16         288 /* four stages of the ring then fit */
#define MOX_SM90_MAX_COLUMNS_DEQUANT        256 /* dequantizing needs registers, too */
#define MOX_SM90_MAX_COLUMNS_INT8           256 /* as one MMA */
#define MOX_SM90_MAX_COLUMNS_FP8            176 /* a second set of accumulators needs registers */
#define MOX_SM90_MAX_COLUMNS_DEQUANT_CHUNKS 144 /* so do both together */
#define MOX_SM90_MAX_COLUMNS                MOX_SM90_MAX_COLUMNS_W16A16 /* of all */

/* Token tiles of up to so many columns have a kernel of their own; the second, where weights become 16 bits. */
#define MOX_SM90_NARROW_COLUMNS         32
#define MOX_SM90_NARROW_COLUMNS_DEQUANT 64

#define MOX_SM90_GROUPS 2 /* consumer warpgroups of a block, 64 rows each */

#define MOX_SM90_INLINE_PAIRS 64   /* pairs up to which every block computes the list: two a lane */
#define MOX_SM90_LIST_PAIRS   8192 /* pairs up to which the list is made from the routing: eight a thread */

/* Stages of the ring with inline routing. More stages would only lengthen DRAM's queue, in which everything else that
 * is read has to wait, the kernel's own code too; a short kernel cannot make up for that. */
#define MOX_SM90_INLINE_STAGES 6

/* A slot that has tokens. 32 bytes, two loads. */
typedef struct mox_sm90_entry {
    int32_t slot, pair, tokens;
    int32_t first; /* token tiles of all entries before this one */
    int32_t row;   /* rows of tiled activations before this entry: tokens, each entry's rounded up to 8 */
    int32_t tiles; /* token tiles of this entry */
    int32_t used;  /* while inline routing counts: bit b of entry w says that slot 32 w + b has tokens */
    int32_t padding;
} mox_sm90_entry;

/* Eight rows of tiled activations. */
typedef struct mox_sm90_octet {
    int32_t pair, columns; /* pair of the first row; how many of the eight are tokens */
    int32_t row, rows;     /* of its token tile: first row, rows */
} mox_sm90_octet;

/* entries[count] follows. */
typedef struct mox_sm90_list {
    int32_t count;
    int32_t widest; /* columns of the widest token tile, rounded up to 8 */
    int32_t tiles;  /* token tiles in all */
    int32_t padding[5];
} mox_sm90_list;

/* The top-k of each pair, as permute reads it; ids NULL: use the list. */
typedef struct mox_sm90_routing {
    const int32_t *ids;     /* [pairs] experts; others than 0 .. experts - 1 are skipped */
    const int32_t *slot_of; /* [experts], -1: none */
    int32_t pairs, experts;
} mox_sm90_routing;

/* Weights that are dequantized in registers come last. */
typedef enum mox_sm90_element {
#define MOX_SM90_ELEMENT(name, ...) MOX_SM90_##name,
#include "cuda/expert_gemm/tensor_cores/mma_elements.def"
#undef MOX_SM90_ELEMENT
    MOX_SM90_FIRST_CODES,
    MOX_SM90_BEFORE_CODES = MOX_SM90_FIRST_CODES - 1,
#define MOX_SM90_CODES(name, ...) MOX_SM90_##name,
#include "cuda/expert_gemm/tensor_cores/mma_elements.def"
#undef MOX_SM90_CODES
    MOX_SM90_ELEMENTS
} mox_sm90_element;

/* Weights that are dequantized in registers, and those of them that become e4m3. */
#define MOX_SM90_DECODES(element) ((element) >= MOX_SM90_FIRST_CODES)
#define MOX_SM90_TO_FP8(element)  (MOX_SM90_DECODES(element) && mox_sm90_token_bytes(element) == 1)
/* Those whose chunks start from zero, so that each sum of a chunk can be scaled or added in fp32: they come last. */
#define MOX_SM90_BY_CHUNK(element) (MOX_SM90_TO_FP8(element) || (element) >= MOX_SM90_W8_BLOCKS)

/* Where C has a function, kernels have constants. */
#ifdef __cplusplus
#define MOX_SM90_CONSTEXPR static constexpr int32_t
#else
#define MOX_SM90_CONSTEXPR static inline int32_t
#endif

/* Columns of mma_elements.def, each a function of the element. */
MOX_SM90_CONSTEXPR mox_sm90_chunk_bytes(int32_t element)
{
    switch (element) {
#define MOX_SM90_ELEMENT(name, file, bytes, ...)                                                                       \
    case MOX_SM90_##name:                                                                                              \
        return bytes;
#define MOX_SM90_CODES MOX_SM90_ELEMENT
#include "cuda/expert_gemm/tensor_cores/mma_elements.def"
#undef MOX_SM90_ELEMENT
    }
    return 0;
}

MOX_SM90_CONSTEXPR mox_sm90_token_bytes(int32_t element)
{
    switch (element) {
#define MOX_SM90_ELEMENT(name, file, bytes, size, ...)                                                                 \
    case MOX_SM90_##name:                                                                                              \
        return size;
#include "cuda/expert_gemm/tensor_cores/mma_elements.def"
#undef MOX_SM90_ELEMENT
    }
    return 0;
}

MOX_SM90_CONSTEXPR mox_sm90_token_scales(int32_t element)
{
    switch (element) {
#define MOX_SM90_ELEMENT(name, file, bytes, size, scales, ...)                                                         \
    case MOX_SM90_##name:                                                                                              \
        return scales;
#include "cuda/expert_gemm/tensor_cores/mma_elements.def"
#undef MOX_SM90_CODES
#undef MOX_SM90_ELEMENT
    }
    return 0;
}

/* Does a token have a factor that its sums are multiplied by? */
MOX_SM90_CONSTEXPR mox_sm90_has_factors(int32_t element)
{
    return MOX_SM90_DECODES(element) || element == MOX_SM90_INT8;
}

/* 6-bit codes: which bits of the planes make a pair of bf16 (mma_decode_mxfp6.cuh). */
typedef struct mox_sm90_w6_format {
    uint32_t mask4, mask2; /* bits from the first plane's word, and from the second's, which is */
    int32_t rotate[2][4];  /* rotated left by so many: [every other 16 columns][register] */
} mox_sm90_w6_format;

/* 8-bit codes: which bits of a word make a pair of bf16, and where a pair of rows has the multipliers of a chunk, two
 * each (mma_decode_w8.cuh). */
typedef struct mox_sm90_w8_format {
    uint32_t first_mask;     /* bits of a word's first code */
    int32_t rotate[2];       /* its second code: the word rotated left by so many, */
    uint32_t second_mask[2]; /* and these bits of it */
    uint32_t zero_point;     /* a pair of bf16: what codes count from; times the multiplier it is added. 0: none */
    int32_t high_word;       /* index of the word with the multipliers of row r + 8; row r has word 0 */
    uint32_t select[2][2];   /* bytes of that word for [rows r, r + 8][columns 0-31, 32-63]; */
    uint32_t widen;          /* times this they are a pair of bf16 */
    uint32_t unit;           /* of floats: a pair of bf16 that makes a code its value */
} mox_sm90_w8_format;

/* Integers whose sums are multiplied by scales: how a word's scale moves to an f32's places (mma_decode_ints.cuh). */
typedef struct mox_sm90_int_format {
    int32_t scale_shift;
    uint32_t scale_mask;
    float scale_unit; /* times this it is what multiplies the sums */
} mox_sm90_int_format;

/* Block types (mma_decode_gguf.cuh). Decoded codes are levels, less an offset, over `unit`. */
typedef struct mox_sm90_block_format {
    int32_t row_bytes;   /* of a row in a block of scales: d, m, integers */
    int32_t chunk_shift; /* the integers of a chunk are 1 << chunk_shift bytes of them */
    uint32_t offset;     /* a pair of bf16 that is added to decoded codes */
    float unit;          /* d as an f32 in the places of an f16, times s and this, multiplies sums of codes */
    float minimum_unit;  /* m likewise, times this, multiplies sums of minimums */
} mox_sm90_block_format;

/* Block types with minimums, which multiply sums of the tokens: bytes of these, for a token and 256 columns. */
#define MOX_SM90_SUM_COLUMNS 256
MOX_SM90_CONSTEXPR mox_sm90_token_sum_bytes(int32_t element)
{
    return element == MOX_SM90_GGUF4 || element == MOX_SM90_GGUF5 ? MOX_SM90_SUM_COLUMNS / 32 * 8 : 0;
}

/* Columns of the token tiles that have a kernel of their own. Codes of 8 bits whose chunks start from zero wait longer
 * for memory, and one sum of two chunks needs more registers than that kernel has. */
MOX_SM90_CONSTEXPR mox_sm90_narrow_columns(int32_t element)
{
    const bool pairs = element == MOX_SM90_INT4_BLOCKS_LONG;
    const bool wide = !MOX_SM90_BY_CHUNK(element) || (element >= MOX_SM90_INT4_BLOCKS_SHORT && !pairs);
    return MOX_SM90_DECODES(element) && wide ? MOX_SM90_NARROW_COLUMNS_DEQUANT : MOX_SM90_NARROW_COLUMNS;
}

/* Blocks of a multiprocessor. Dequantizing keeps it busy only with four warps a scheduler; narrow tiles leave the
 * registers for two blocks. */
MOX_SM90_CONSTEXPR mox_sm90_blocks_per_sm(int32_t element, int32_t max_columns)
{
    return MOX_SM90_DECODES(element) && max_columns <= mox_sm90_narrow_columns(element) ? 2 : 1;
}

/* Those of them that have one scale a row in a chunk, or none: wide tiles are multiplied in halves of their columns.
 * One half is scaled and added while the other is multiplied. */
#define MOX_SM90_IN_HALVES(element)                                                                                    \
    ((element) == MOX_SM90_W8_BLOCKS || (element) == MOX_SM90_W8_BLOCKS_QACT ||                                        \
     (element) == MOX_SM90_INT4_BLOCKS_LONG || MOX_SM90_TO_FP8(element))

/* Those of them whose scales may be for 128 columns and more: one sum of two chunks is then scaled and added. */
#define MOX_SM90_SUMS_PAIRS(element)                                                                                   \
    ((MOX_SM90_IN_HALVES(element) && !MOX_SM90_TO_FP8(element)) || (element) == MOX_SM90_INT8_BLOCKS)

/* Chunks of a stage. Codes come several chunks at a time where tokens leave room: fewer barriers. Where each chunk or
 * group starts from zero, a second chunk in the code of a stage would else take the registers of wide tiles; two chunks
 * that may have one sum lie in one stage. */
MOX_SM90_CONSTEXPR mox_sm90_chunks_per_stage(int32_t element, int32_t max_columns)
{
    const bool narrow = max_columns <= MOX_SM90_NARROW_COLUMNS;
    if (!MOX_SM90_DECODES(element))
        return 1;
    if (MOX_SM90_BY_CHUNK(element) && !narrow)
        return MOX_SM90_IN_HALVES(element) || MOX_SM90_SUMS_PAIRS(element) ? 2 : 1;
    return (narrow ? 16384 : 8192) / mox_sm90_chunk_bytes(element);
}

/* The words of `state` that must be zero before the first product. Those of the usual columns are zeroed in any case,
 * while the list is made; those of wider token tiles by the gather, and only where the list has such tiles. */
typedef struct mox_sm90_clear {
    uint64_t *state;
    int32_t places;                     /* of one warpgroup each: [max_columns / 2][128] */
    int32_t usual_columns, max_columns; /* multiples of 8 */
} mox_sm90_clear;

/* Makes the list and zeroes words of `state`. */
typedef struct mox_sm90_list_args {
    mox_sm90_routing routing; /* ids NULL: unknown, or kernels before permute may still run */
    const int64_t *offsets;   /* [slots + 1] pairs, as permute counts them */
    int64_t slots;
    /* Columns of a token tile, multiples of 8: max_columns where half of the slots that have tokens have more than
     * even_columns, which is not more; else even_columns. A few wide tiles among many others would end last. */
    int32_t even_columns, max_columns;
    mox_sm90_list *list;
    mox_sm90_octet *octets; /* [octet_count], all of them are written */
    int64_t octet_count;    /* enough for any routing */
    mox_sm90_clear clear;
    int32_t multiprocessors;
} mox_sm90_list_args;

/* How codes of activations become bf16, each times the scale of its group where bf16 holds that; else the scale becomes
 * a token scale of each chunk. bf16 does not hold the scale of a row or a
 * global scale exactly: those go to the row's factor. So does a power of two by which power-of-two scales are made
 * smaller: without it numbers next to 2^128 would round up to it, and infinities would become the largest code. */
typedef struct mox_sm90_acts {
    int32_t bits;       /* of a code; 0: rows are gathered as they are */
    int32_t shift;      /* a code's magnitude, shifted left by so many, is an f32; */
    float rebias;       /* times this it is the code's value (it corrects the exponent's bias) */
    uint32_t max_code;  /* larger magnitudes are infinities or NaN */
    int32_t group;      /* columns of a scale, a multiple of 8; 0: one scale a row, or token scales */
    float scale_factor; /* scales of groups are multiplied by this power of two, */
    float row_factor;   /* and the sums of a row by its reciprocal */
    int32_t global_divides;
    const float *global; /* [rows of a] or NULL */
    int32_t integer;     /* codes are 8-bit integers; shift, rebias and max_code are unused */
} mox_sm90_acts;

#define MOX_SM90_ONE_SCALE 31 /* a shift behind which every chunk is chunk 0 */

/* Gathers rows into tiled activations. With inline routing there is no list kernel, so this one zeroes all of `state`.
 */
typedef struct mox_sm90_gather_args {
    mox_sm90_routing inline_routing;
    int32_t max_columns;          /* of a token tile */
    int32_t blocks;               /* that run at the same time */
    int32_t streams;              /* the output is larger than L2, which should rather keep the rows that are read */
    const mox_sm90_octet *octets; /* of the list */
    int64_t octet_count;
    const uint8_t *a; /* rows of 16-bit elements or of codes; address and stride are multiples of 16 bytes */
    int64_t a_stride; /* bytes */
    int32_t a_bytes;  /* of a gathered row; the rest of its last chunk becomes zero */
    mox_sm90_acts acts;
    int32_t chunks;
    const int64_t *a_row; /* row of pair p; NULL: p */
    const float *a_scale; /* of codes; else NULL */
    int64_t a_scale_stride;
    int32_t scales;      /* of a token in a chunk: 0 or 1 */
    int32_t scale_shift; /* chunk k has scale k >> scale_shift of the row; MOX_SM90_ONE_SCALE: one for all */
    int32_t a_tiled;     /* `a` holds tiled activations: only sums are made */
    uint8_t *to;
    float *to_scale;
    uint8_t *to_sums;     /* sums of the rows of elements with minimums; NULL: none */
    float *to_factor;     /* [rows of the tiled activations] factor of each row; NULL: none */
    mox_sm90_clear clear; /* places 0: an earlier gather has done it */
    /* Rows of 16-bit elements may be gathered in the order of the columns of their slot's record. */
    const mox_sm90_list *list; /* not read with inline routing */
    const uint8_t *records;
    uint64_t record_bytes, order_at; /* i32 [columns] in a record; column i of `to` is column order[i] of the row */
    uint32_t order_flag;             /* of records that have an order; 0: none has */
} mox_sm90_gather_args;

/* Which blocks share a multiprocessor. With one block of each product, W2 fetches weights before W13 has ended. */
typedef enum mox_sm90_co_residency {
    MOX_SM90_EXCLUSIVE = 0,   /* blocks of one product, as many as fit */
    MOX_SM90_CO_RESIDENT_W13, /* W13's block: more than half of the shared memory */
    MOX_SM90_CO_RESIDENT_W2   /* W2's block, in the rest of the shared memory */
} mox_sm90_co_residency;

typedef enum mox_sm90_output {
    MOX_SM90_OUT_F32 = 0, /* out[p, n]; gated: [gate I | up I] */
    MOX_SM90_ACT_F32,     /* out[p, i] = act(gate, up) */
    MOX_SM90_ACT_BF16,    /* next[p, i], rounded once; columns up to next_stride are zero */
    MOX_SM90_ACT_F16,
    MOX_SM90_ACT_E4M3, /* next[p, i] and next_scale[p, i / 128], by the rule of quant/act_quant.c; gated: paired only */
    MOX_SM90_ACT_MX    /* next[p, i]: quantized with a power of two for every 32, and dequantized by next_acts */
} mox_sm90_output;

typedef struct mox_sm90_args {
    mox_sm90_routing inline_routing;
    const mox_sm90_list *list;
    /* weights: records end to end, offsets as in mox_hopper_matrix */
    const uint8_t *records;
    uint64_t record_bytes, tiles_at, tile_bytes, row_scale_at, bias_at;
    int32_t tiles, chunks, last_rows;
    int32_t scale_bytes, scale_shift; /* of 128 rows in a block of scales; chunk k uses block k >> shift */
    int32_t factor_divides;           /* a row's factor divides its sums instead of multiplying them */
    mox_sm90_w8_format w8;            /* of 8-bit codes */
    mox_sm90_w6_format w6;            /* of MOX_SM90_MXFP6 */
    mox_sm90_int_format ints;         /* of integers whose sums are multiplied by scales */
    mox_sm90_block_format block;      /* of block types */
    int32_t rows;                     /* outputs of one matrix: I or H */
    int32_t gated;
    int32_t paired;        /* blocks work in pairs */
    int32_t co_resident;   /* mox_sm90_co_residency */
    int32_t mma_sync;      /* the kernels of sm80/ run it; neither pairs nor co-residents */
    uint32_t shared_bytes; /* that one block may use, with mma_sync */
    int32_t max_columns;   /* columns of a token tile, */
    int32_t usual_columns; /* and of nearly all while routing is even */
    int32_t l2_prefetch;   /* chunks that a block asks L2 for once its ring is full */
    int32_t sum_shift;     /* 1 << sum_shift chunks have one sum that is scaled, where scales multiply sums */
    /* tokens: tiled activations */
    const uint8_t *a;
    const float *a_scale;  /* of elements with token scales */
    const uint8_t *a_sums; /* of elements with minimums */
    const float *a_factor; /* [rows of the tiled activations] multiplies their sums; NULL: a_uniform_factor does */
    float a_uniform_factor;
    /* jobs that one block begins and the next one ends */
    uint64_t *state; /* [blocks][2][max_columns / 2][128]: low half an accumulator, high half its tag */
    uint32_t tag;    /* not 0; no other product has used it since the words were zeroed */
    /* the epilogue */
    int32_t output;
    int32_t next_rule;           /* moxie_scale_rule of next's scales */
    mox_sm90_acts next_acts;     /* of MOX_SM90_ACT_MX */
    moxie_activation activation; /* its arrays in device memory */
    const int64_t *expert_of;    /* [slots] global expert, where the activation has parameters by expert; else NULL */
    const float *change;         /* [pairs, gate I | up I] (ungated: I) is added before the activation; NULL: nothing */
    float *kept_act;             /* [p, i] gets f32 activations besides what `output` says; NULL: nobody reads them */
    float *out;
    int64_t out_stride;
    void *next;          /* tiled activations */
    int64_t next_stride; /* elements: a multiple of 128 bytes */
    float *next_scale;
    /* the ring in shared memory, which the launcher fills in */
    int32_t stages, chunks_per_stage; /* 1; more where weights are codes */
    uint32_t stage_bytes, tokens_at;
    /* Token tiles of up to so many columns have more chunks in a stage of the same ring; -1: none has */
    int32_t few_columns, few_chunks;
    uint32_t few_tokens_at;
} mox_sm90_args;

#ifdef __cplusplus
extern "C" {
#endif

/* Launchers; `stream` is a cudaStream_t. `dependent`: the kernel before may still run (programmatic dependent launch).
 * They return a cudaError_t, and neither allocate nor wait. */
int mox_sm90_launch_list(const mox_sm90_list_args *args, int dependent, void *stream);
int mox_sm90_launch_gather(const mox_sm90_gather_args *args, int dependent, void *stream);
int mox_sm90_launch_gemm(mox_sm90_element element, const mox_sm90_args *args, int32_t blocks, int dependent,
                         void *stream);
int mox_sm80_launch_gemm(mox_sm90_element element, const mox_sm90_args *args, int32_t blocks, int dependent,
                         void *stream); /* args->mma_sync */

#ifdef __cplusplus
}
#endif

#endif
