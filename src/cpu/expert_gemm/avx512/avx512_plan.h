/* SPDX-License-Identifier: Apache-2.0
 *
 * avx512_plan.h - what a plan knows of the AVX-512 kernels: their variants, and how a call cuts its scratch. Plain C: a
 * plan may be made on a processor without AVX-512, so the functions are compiled without its flags (avx512_plan.c).
 *
 *     avx512_plan.c             which problems the kernels accept, bytes of scratch         no flags
 *     expert_gemm_*_avx512*.c   the kernels                                                 flags of AVX-512
 */
#ifndef MOX_CPU_AVX512_PLAN_H
#define MOX_CPU_AVX512_PLAN_H

#include "base/carver.h"
#include "cpu/expert_gemm/panel_kernel.h"

/* Empty, or NULL: not in this build. */
extern const mox_panel_variants mox_avx512_fma_variants;
extern const mox_panel_variants mox_avx512_fma_vbmi_variants;   /* the same kernel, on processors with VBMI */
extern const mox_panel_variants mox_avx512_fma_vnni_variants;   /* likewise, with VNNI */
extern const mox_panel_variants mox_avx512_fma_blocks_variants; /* likewise, of block types */
extern const mox_panel_variants mox_avx512_bytes_variants;
extern const mox_panel_variants mox_avx512_block_int8_variants, mox_avx512_block_bytes_variants;
extern const mox_panel_variants mox_avx512_block_levels_variants;
extern const mox_panel_variants mox_avx512_bf16_variants;
extern const mox_panel_multiply_fn mox_avx512_vnni_multiply;

/* In what follows `scale` is [2][groups][16], the weights' matrix has `cols` columns in `groups` groups, and a call has
 * `rows` rows at most. */

/* ---- avx512_fma (panel_fma_avx512.h) ------------------------------------------------------------- */

enum { MOX_FMA_SLAB = 4 };

typedef struct mox_fma_scratch {
    float *scale, *slab, *part; /* part: [MOX_PANEL_BLOCK][2][16] */
} mox_fma_scratch;
void mox_fma_lay_out(mox_carver *carver, int64_t groups, mox_fma_scratch *out);

/* ---- avx512_fma with VNNI, avx512_bytes (int_dot_panels_avx512.h) --------------------------------- */

enum {
    MOX_INT_DOT_LIMB_ROWS = 3,      /* max rows as limbs */
    MOX_INT_DOT_LIMBS_STEP = 128,   /* bytes of a row's step */
    MOX_INT_DOT_BYTES_STEP = 64,    /* the same as bytes */
    MOX_INT_DOT_FORMAT_BYTES = 192, /* of a mox_int_dot_format */
};

/* Constants of an instance. Limbs come with Q = 4 only: with many rows, or with groups of 16 columns, multiply-adds
 * are as fast. */
typedef struct mox_int_dot_variant {
    bool bytes, zeros; /* zeros: weights have zero points */
    int Q;             /* quarters (8 columns) of a step */
} mox_int_dot_variant;

static inline int64_t mox_int_dot_order_bytes(int64_t rows)
{
    return rows + 2;
}

static inline int64_t mox_int_dot_step_bytes(mox_int_dot_variant f)
{
    return f.bytes ? MOX_INT_DOT_BYTES_STEP : MOX_INT_DOT_LIMBS_STEP;
}

typedef struct mox_int_dot_scratch {
    mox_fma_scratch fma;
    void *format; /* a mox_int_dot_format */
    uint8_t *limbs, *order;
    int64_t *float_steps;
} mox_int_dot_scratch;
void mox_int_dot_lay_out(mox_carver *carver, mox_int_dot_variant f, int64_t cols, int64_t groups, int64_t rows,
                         mox_int_dot_scratch *out);

/* ---- avx512_fma with VNNI, more rows than limbs serve (int_dot_words_avx512.h) -------------------- */

enum { MOX_WORDS_ROW_BYTES = 96, MOX_WORDS_SLAB_BYTES = MOX_PANEL_STEP / 2 * 2 * 64 };

struct mox_words_row;
typedef struct mox_words_scratch {
    mox_fma_scratch fma;
    void *format;               /* a mox_int_dot_format */
    struct mox_words_row *rows; /* [steps][rows] */
    uint8_t *order, *slab;
    int64_t *float_steps;
} mox_words_scratch;
void mox_words_lay_out(mox_carver *carver, int64_t steps, int64_t groups, int64_t rows, mox_words_scratch *out);

/* ---- avx512_bytes on 8-bit integers (panel_quad_bytes_avx512.h) ------------------------------------ */

struct mox_bytes_line;
typedef struct mox_quad_bytes_scratch {
    mox_fma_scratch fma;
    struct mox_bytes_line *lines; /* [steps][rows] */
    int64_t *floats;              /* how many lines are multiplied as floats */
} mox_quad_bytes_scratch;
void mox_quad_bytes_lay_out(mox_carver *carver, int64_t cols, int64_t groups, int64_t rows,
                            mox_quad_bytes_scratch *out);

/* ---- avx512_block_int8, avx512_block_bytes (block_bytes_avx512.h) --------------------------------- */

typedef struct mox_block_bytes_scratch {
    mox_fma_scratch fma;
    struct mox_bytes_line *lines; /* [steps][rows] */
    uint8_t *slab;
    float *scales;
    int64_t *floats; /* how many lines are multiplied as floats */
} mox_block_bytes_scratch;
void mox_block_bytes_lay_out(mox_carver *carver, int64_t cols, int64_t groups, int64_t rows,
                             mox_block_bytes_scratch *out);

/* ---- avx512_block_levels (block_levels_avx512.h, block_levels_narrow_avx512.h) --------------------- */

enum { MOX_BLOCK_LEVELS_NARROW = 3 }; /* max rows as limbs */

/* A step of activations A unit: A as limbs of 8 bits, and offset * sum of A of each run. */
typedef struct mox_levels_line {
    int8_t limb[3][MOX_PANEL_STEP];
    float unit;
    int32_t offset[2];
    int32_t unused[5];
} mox_levels_line;
_Static_assert(sizeof(mox_levels_line) == 128, "a line is two cache lines");

typedef struct mox_block_levels_scratch {
    mox_fma_scratch fma;
    float *scales;
    mox_levels_line *lines; /* [steps][rows], of few rows */
    uint8_t *kinds;         /* [steps] */
} mox_block_levels_scratch;
void mox_block_levels_lay_out(mox_carver *carver, int64_t cols, int64_t groups, mox_block_levels_scratch *out);

/* ---- avx512_bf16 --------------------------------------------------------------------------------- */

enum { MOX_DOT_SLAB = 8, MOX_DOT_LINE = 64 };

typedef struct mox_dot_scratch {
    float *scale, *part; /* part: [MOX_PANEL_BLOCK][2][16] */
    uint8_t *slab;
} mox_dot_scratch;
void mox_dot_lay_out(mox_carver *carver, int64_t groups, mox_dot_scratch *out);

/* ---- avx512_vnni --------------------------------------------------------------------------------- */

enum { MOX_VNNI_BLOCK = 6 }; /* rows that are multiplied at once */

typedef struct mox_vnni_scratch {
    float *scale;
    uint8_t *copy;           /* [MOX_VNNI_BLOCK][bytes of a row of activations] */
    int32_t *sums, *offsets; /* [MOX_VNNI_BLOCK][segments], [2][segments][16] */
} mox_vnni_scratch;
void mox_vnni_lay_out(mox_carver *carver, int64_t cols, int64_t groups, mox_vnni_scratch *out);

#endif
