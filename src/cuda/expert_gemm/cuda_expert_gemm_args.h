/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_expert_gemm_args.h - what a launcher of family expert_gemm gets: one of the two products of every expert, from
 * records that lie end to end in device memory (mathematics: cpu/expert_gemm/expert_gemm.h).
 *
 *     records | record of slot 0 | record of slot 1 | ...        each record_bytes, in the row's layout
 *     pairs of slot s: rows offsets[s] .. offsets[s+1] of out; how many there are only the device knows, at most
 * max_pairs
 *
 * Pointers are device memory unless said otherwise. A launcher neither allocates nor waits, so it can be captured into
 * a graph; its grid follows from max_pairs, slots and the shape alone.
 *
 * Rows of the portable layout find their sections through `matrix`; rows of their own layout compute theirs from the
 * shape, which is here by value.
 */
#ifndef MOX_CUDA_CUDA_EXPERT_GEMM_ARGS_H
#define MOX_CUDA_CUDA_EXPERT_GEMM_ARGS_H

#include "cpu/activations.h"
#include "cpu/expert_gemm/product_trace.h"
#include "cpu/glu/glu_args.h"

/* What rows for W13 do besides the product (cuda_expert_gemm.h). */
enum { MOX_FUSES_GLU = 1, MOX_FUSES_ACT = 2 };

#define MOX_CUDA_HEADER_FLAGS 40 /* where a record's header has its flags: mox_record_header */

/* Sections of one matrix of a rowmajor record: byte offsets from the record's start, 0 where absent. */
typedef struct mox_cuda_matrix {
    int64_t rows, cols;
    uint64_t codes, row_bytes, scale, zero, global, bias;
    uint64_t group_index, visit; /* read only when the record's header flags have order_flag */
    uint32_t order_flag;
    int64_t scale_rows, scale_cols, group_rows, group_cols;
} mox_cuda_matrix;

/* The product in a record of a layout of pack/hopper/hopper.h: byte offsets from the record's start, 0 where absent. */
typedef struct mox_cuda_tiles {
    uint64_t tiles, tile_bytes, row_scale, bias;
    int32_t count, chunks, last_rows;
    int32_t scale_bytes, scale_shift;
} mox_cuda_tiles;

typedef struct mox_cuda_expert_gemm_args {
    int32_t projection; /* mox_projection: 0 is W13, 1 is W2 */
    uint32_t fuses;     /* of the row: MOX_FUSES_... */
    int32_t gated;      /* W13 is two matrices; out rows are [gate I | up I] */
    int64_t hidden, intermediate;
    moxie_quant weight, act;
    int32_t element_bits; /* of weight.element */
    moxie_dtype dtype;    /* of activations that are not quantized */
    int32_t has_bias;

    const uint8_t *records;
    uint64_t record_bytes;
    int64_t slots;
    mox_cuda_matrix matrix[2]; /* gate, up; or the only one; of rowmajor records */
    mox_cuda_tiles tiles;      /* of records of pack/hopper/hopper.h */
    moxie_dtype elements[2];   /* of the weights of both products of these records */
    int32_t decoded;           /* kernels decode these records to 16 bits: hopper_codes */
    const float *table;        /* [256] values of weight.element's codes when it has 8 bits or fewer; else NULL */

    const float *scale_table; /* the same of weight.scale */
    const int64_t *offsets;   /* [slots+1] */
    const int32_t *ids;       /* [max_pairs] the choices that offsets were made from, skipped ones too; NULL: of none */
    const int32_t *slot_of;   /* [experts] for those */
    int64_t experts;
    int64_t max_pairs;       /* at most so many pairs: T * K of this pass */
    int64_t tokens;          /* T of this pass */
    int32_t multiprocessors; /* of the device: what scratch_bytes counted with */
    const int64_t *act_row;  /* [pairs] row of the operand; NULL: identity */
    mox_activations a;

    float *out; /* [pairs, n_out]; not of rows that leave the operand of W2; of MOX_FUSES_ACT the activations */
    int64_t n_out;

    /* Rows that fuse the activation (MOX_FUSES_GLU) write this instead of `out`: the second product's operand, in
     * the kind that the plan's row for it reads. */
    mox_glu_args glu;
    mox_activations next;
    moxie_quant next_quant;
    mox_product_trace trace;

    void *scratch; /* scratch_bytes of the row, 256-byte aligned */
} mox_cuda_expert_gemm_args;

#endif
