/* SPDX-License-Identifier: Apache-2.0
 *
 * neon_plan.h - what a plan knows of the NEON kernels: their functions, and how a call cuts its scratch. Plain C: a
 * plan may be made on a processor that lacks an extension, so the functions here are compiled without its flags.
 *
 *     neon_plan.c               which problems the kernels accept, bytes of scratch         no flags
 *     expert_gemm_*_neon*.c     the kernels                                                 flags of their extension
 */
#ifndef MOX_CPU_NEON_PLAN_H
#define MOX_CPU_NEON_PLAN_H

#include "base/carver.h"
#include "cpu/expert_gemm/panel_kernel.h"

/* NULL: not in this build. */
extern const mox_panel_multiply_fn mox_neon_fma_multiply, mox_neon_bytes_multiply, mox_neon_i8_multiply;
extern const mox_panel_multiply_fn mox_neon_fma_dotprod_multiply, mox_neon_bytes_dotprod_multiply,
    mox_neon_i8_dotprod_multiply; /* on processors with SDOT */
extern const mox_panel_multiply_fn mox_neon_i8_i8mm_multiply, mox_neon_bytes_i8mm_multiply; /* with SMMLA, too */
extern const mox_panel_multiply_fn mox_neon_bf16_multiply;                                  /* with BFDOT and BFMMLA */

/* Classes of formats that are decoded by the same code: within a class only the tables differ. */
typedef enum mox_neon_class {
    MOX_NEON_PAIRS = 0,
    MOX_NEON_HALVES,
    MOX_NEON_QUADS, /* with zero points or without */
    MOX_NEON_E4M3,
    MOX_NEON_E5M2,
    MOX_NEON_NIBBLES,
    MOX_NEON_NIBBLES_ZEROS,
    MOX_NEON_PLANES,
    MOX_NEON_BLOCKS, /* block types of GGUF */
    MOX_NEON_CLASSES
} mox_neon_class;
/* MOX_NEON_CLASSES: no kernel decodes these weights. */
mox_neon_class mox_neon_class_of(moxie_dtype element, bool zeros);

enum {
    MOX_NEON_SLAB = 8,                                        /* steps that are decoded at once */
    MOX_NEON_ROWS = 4,                                        /* rows of activations that are multiplied at once */
    MOX_NEON_PLAIN_ROWS = 2,                                  /* multiplied as exact integers without SDOT */
    MOX_NEON_PREFETCH_BYTES = 2048,                           /* from the codes in use to those that are prefetched */
    MOX_NEON_STEP_BYTES = MOX_PANEL_ROWS * MOX_PANEL_STEP * 4 /* of a decoded step, at most: f32 */
};

typedef struct mox_neon_scratch {
    float *scale;     /* [groups][16] of the panel at hand */
    uint32_t *zero;   /* likewise: zero points as decoders want them */
    uint32_t *part;   /* [MOX_PANEL_BLOCK][16]: sums of the current segment */
    int32_t *sums;    /* [MOX_PANEL_BLOCK][segments] of activations; only with int8 activations and zero points */
    uint8_t *slab;    /* decoded steps */
    int64_t max_rows; /* that have limbs */
    int64_t *floats;  /* (row, step) that are multiplied as floats */
    int8_t *limbs;    /* [steps][rows]: neon_limbs.h; NULL: none */
} mox_neon_scratch;

/* What the parts of scratch depend on; 0: the part is absent. */
typedef struct mox_neon_sizes {
    int64_t groups;    /* of the weights' scales */
    int64_t segments;  /* of `sums` */
    int64_t limb_cols; /* columns, in whole steps of 32 */
    int64_t limb_rows;
} mox_neon_sizes;
/* Those of kernel neon_fma or neon_bytes (`bytes`). */
mox_neon_sizes mox_neon_float_sizes(bool bytes, moxie_dtype element, int64_t cols, int64_t groups);
void mox_neon_lay_out(mox_carver *carver, const mox_neon_sizes *sizes, mox_neon_scratch *out);

#endif
