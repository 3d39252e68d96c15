/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_expert_gemm_args.h - what a launcher of family expert_gemm gets: one of the two products of every expert, from
 * records that lie end to end in device memory (mathematics: cpu/expert_gemm/expert_gemm.h).
 *
 *     records          | record of slot 0 | record of slot 1 | ...      record_bytes each, in the kernel's layout
 *     pairs of slot s  rows offsets[s] .. offsets[s + 1] of out; only the device knows how many, at most max_pairs
 *
 * Pointers are device memory unless said otherwise. A launcher neither allocates nor waits, so it can be captured into
 * a graph; its grid follows from max_pairs, slots and the shape alone.
 *
 * Kernels of layout "rowmajor" find the sections of a record through `matrix`, kernels of pack/hopper through `tiles`.
 */
#ifndef MOX_CUDA_CUDA_EXPERT_GEMM_ARGS_H
#define MOX_CUDA_CUDA_EXPERT_GEMM_ARGS_H

#include "cpu/activations.h"
#include "cpu/expert_gemm/product_trace.h"
#include "cpu/glu/glu_args.h"
#include "cuda/expert_gemm/cuda_fusions.h"

#define MOX_CUDA_HEADER_FLAGS 40 /* byte offset of the flags in mox_record_header */

/* Sections of one matrix of a rowmajor record: byte offsets from the record's start; 0: there is no such section. */
typedef struct mox_cuda_matrix {
    int64_t rows, cols;
    uint64_t codes, row_bytes, scale, zero, global, bias;
    uint64_t group_index, visit; /* read only when the record's header flags have order_flag */
    uint32_t order_flag;
    int64_t scale_rows, scale_cols, group_rows, group_cols;
} mox_cuda_matrix;

/* The product in a record of pack/hopper/hopper.h: byte offsets from the record's start; 0: there is no such section.
 */
typedef struct mox_cuda_tiles {
    uint64_t tiles, tile_bytes, row_scale, bias;
    int32_t count, chunks, last_rows;
    int32_t scale_bytes, scale_shift;
} mox_cuda_tiles;

/* A block type in layout hopper_codes (pack/hopper/hopper_blocks.h); bits 0: it is none. */
typedef struct mox_cuda_block {
    int32_t bits, row_bytes; /* of a code; of a row in a block of scales */
    int32_t levels, offset;  /* are codes looked up; from where levels count */
    int32_t minimum_sign;    /* 0: the type has no minimums */
} mox_cuda_block;

typedef struct mox_cuda_expert_gemm_args {
    int32_t projection; /* mox_projection: 0 is W13, 1 is W2 */
    uint32_t fuses;     /* of the kernel: MOX_FUSES_... */
    int32_t part;       /* MOX_PRODUCT_...; kernels that fuse nothing take the whole only */
    int32_t gated;      /* W13 is two matrices; out rows are [gate I | up I] */
    int64_t hidden, intermediate;
    moxie_quant weight, act;
    int32_t element_bits; /* of weight.element */
    moxie_dtype dtype;    /* of unquantized activations */
    int32_t has_bias;

    const uint8_t *records;
    uint64_t record_bytes;
    int64_t slots;
    mox_cuda_matrix matrix[2]; /* of rowmajor records: gate and up, or the only one */
    mox_cuda_tiles tiles;      /* of records of pack/hopper/hopper.h */
    mox_cuda_block block;      /* of these records */
    moxie_dtype elements[2];   /* weights of both products of these records, */
    int32_t group_cols[2];     /* and the columns of their scales, as moxie_quant has them */
    uint64_t order_at;       /* of columns in a record, i32 [K] (pack/order), read only when its header's flags have */
    uint32_t order_flag;     /* this; 0: no record has an order */
    int32_t decoded;         /* these records are dequantized to 16 bits: layout hopper_codes */
    int32_t block_scales[2]; /* and their scales multiply sums of chunks: both products of these records */
    const float *table;      /* [256] values of the codes of weight.element; NULL where it has more than 8 bits */

    const float *scale_table; /* the same for weight.scale */
    const int64_t *offsets;   /* [slots+1] */
    const int32_t
        *ids; /* [max_pairs] experts of the top-k that offsets were made from, skipped ones too; NULL: unknown */
    const int32_t *slot_of; /* [experts] slot of each expert in ids */
    int64_t experts;
    int64_t max_pairs;       /* at least as many as there are pairs: T * K of this pass */
    int64_t tokens;          /* T of this pass */
    int32_t multiprocessors; /* of the device, as scratch_bytes() counted */
    int32_t mma_sync;        /* of the kernel: it is one of sm80/, not of sm90/ */
    int64_t shared_bytes;    /* of the device: shared memory of a block */
    const int64_t *act_row;  /* [pairs] row of `a` for each pair; NULL: the same row */
    mox_activations a;

    float *out; /* [pairs, n_out]; MOX_FUSES_ACT: the activations; MOX_FUSES_GLU: unused */
    int64_t n_out;

    /* MOX_FUSES_GLU writes these in place of `out`: the activations of W2, in the order that W2's kernel reads. */
    mox_glu_args glu;
    mox_activations next;
    moxie_quant next_quant;
    const float *change; /* [pairs, 2I or I] what adapters add before the activation: -0 where nothing; or NULL */
    float *kept_act;     /* MOX_FUSES_GLU: [pairs, I] gets the activations as F32 besides; or NULL */
    mox_product_trace trace;

    void *scratch; /* scratch_bytes() of the kernel, 256-byte aligned */
} mox_cuda_expert_gemm_args;

#endif
