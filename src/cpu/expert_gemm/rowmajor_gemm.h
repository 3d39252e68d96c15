/* SPDX-License-Identifier: Apache-2.0
 *
 * rowmajor_gemm.h - what the kernels that read layout rowmajor share (folder scalar): how a product is cut into
 * tasks and segments, how codes become numbers, and what is applied to a finished sum.
 *
 *     task = (slot, panel)          panel = MOX_GEMM_PANEL neighbouring rows of one matrix, all of K
 *     segment = a run of columns, in visiting order, inside one weight group, one activation group and
 *               one multiple of `longest`
 *
 * Visiting order is natural, or the record's visit[] under act order. In a panel row every segment starts
 * at a multiple of MOX_GEMM_LANES and is padded with zeros, so that lane l always holds the columns l,
 * l + LANES, ... of its segment; the padding adds +0 to sums that are never -0, and changes no bit.
 */
#ifndef MOX_CPU_ROWMAJOR_GEMM_H
#define MOX_CPU_ROWMAJOR_GEMM_H

#include "cpu/expert_gemm/expert_gemm.h"

#define MOX_GEMM_LANES 16
#define MOX_GEMM_PANEL 8

typedef struct mox_gemm_segment {
    int64_t first, count; /* columns, counted in visiting order */
    int64_t at;           /* where it starts in a panel row */
    int64_t weight_group, act_group;
} mox_gemm_segment;

/* Maxima for one product, from its shape alone. */
typedef struct mox_gemm_extent {
    int64_t cols;
    int64_t act_group_cols; /* at least cols when the activations are not quantized */
    int64_t longest;        /* max columns of a segment: MOX_SEGMENT, or INT64_MAX */
    int64_t segments;       /* max number */
    int64_t stride;         /* max length of a panel row */
} mox_gemm_extent;

mox_gemm_extent mox_gemm_extent_of(const moxie_quant *weight, int64_t cols, int64_t act_group_cols, int64_t longest);
/* K of the product, and the columns that share an activation scale. */
int64_t mox_gemm_problem_act_group(const mox_expert_gemm_problem *problem);

/* The same for a problem; scratch is sized by it. */
mox_gemm_extent mox_gemm_problem_extent(const mox_expert_gemm_problem *problem, int64_t longest);

/* One task: some rows of a matrix, and the pairs that they are multiplied by. */
typedef struct mox_gemm_panel {
    const moxie_quant *quant;
    mox_rowmajor_matrix matrix;
    int64_t row, rows;   /* of the matrix; rows <= MOX_GEMM_PANEL */
    int64_t column;      /* of args->out where `row` goes */
    int64_t pair, pairs; /* of args->out's rows */
} mox_gemm_panel;

/* Number of tasks of a whole product. */
int64_t mox_gemm_tasks(const mox_expert_gemm_args *args);
/* False when the task's expert has no pairs. */
bool mox_gemm_panel_of(const mox_expert_gemm_args *args, int64_t task, mox_gemm_panel *out);

/* Cuts the columns of `matrix` into segments, and returns their number. *in_place: every column's place in a panel row
 * is the column itself, so activations can be read where they lie. */
int64_t mox_gemm_cut(const mox_rowmajor_matrix *matrix, const mox_gemm_extent *extent, mox_gemm_segment *segments,
                     bool *in_place);
/* Length of a panel row: the end of its last segment, padding included. */
int64_t mox_gemm_length(const mox_gemm_segment *segments, int64_t count);
/* Copies a row of columns to the order of a panel row; padding becomes zero. */
void mox_gemm_arrange(const mox_rowmajor_matrix *matrix, const mox_gemm_segment *segments, int64_t count,
                      const float *row, float *out);

/* Converts codes of any format to numbers: by blocks, by pairs (4 bits), by table (up to 8 bits), by widening, or one
 * by one. */
typedef struct mox_gemm_decoder {
    const mox_block *block; /* NULL: the element is no block type */
    const mox_format *format;
    const float *table;  /* NULL above 8 bits */
    float pairs[256][2]; /* 4 bits: both elements of a byte */
} mox_gemm_decoder;
void mox_gemm_decoder_init(mox_gemm_decoder *decoder, moxie_dtype element);
void mox_gemm_decode(const mox_gemm_decoder *decoder, const uint8_t *codes, int64_t cols, float *out);

/* What the tasks of one product share. */
typedef struct mox_gemm_job {
    const mox_expert_gemm_args *args;
    mox_gemm_extent extent;
    mox_gemm_decoder decoder;
    uint64_t scratch_bytes; /* of a worker; the kernel sets it */
} mox_gemm_job;
void mox_gemm_job_init(mox_gemm_job *job, const mox_expert_gemm_args *args, int64_t longest);

/* Scale of matrix row n in weight group g; 1 without a scale. */
float mox_gemm_weight_scale(const mox_gemm_panel *panel, int64_t n, int64_t group);
float mox_gemm_zero(const mox_gemm_panel *panel, int64_t n, int64_t group);
/* True when scales change along a row. Those that do not are applied once, to the finished sum. */
static inline bool mox_gemm_weight_grouped(const mox_gemm_panel *panel)
{
    return panel->matrix.scale != NULL && panel->matrix.scale_cols > 1;
}
static inline bool mox_gemm_act_grouped(const mox_activations *a)
{
    return a->scales != NULL && a->scale_cols > 1;
}

/* Row of the activations that pair p multiplies. */
static inline int64_t mox_gemm_act_row(const mox_expert_gemm_args *args, int64_t p)
{
    return args->act_row != NULL ? args->act_row[p] : p;
}
/* Stores out[panel pair p][panel row r] from its finished sum: row-constant scales, globals, bias, in this order. */
void mox_gemm_finish(const mox_expert_gemm_args *args, const mox_gemm_panel *panel, int64_t p, int64_t r, float sum);

#endif
