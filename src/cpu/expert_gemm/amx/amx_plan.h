/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_plan.h - what a plan knows of the AMX kernels: their variants, and how a call cuts its scratch. Plain C: a plan
 * may be made on a processor without AMX, so the functions here are compiled without its flags (amx_plan.c).
 *
 *     amx_plan.c                            which problems the kernels accept, bytes of scratch      no flags
 *     expert_gemm_*_amx.c, amx_*_amx.c      the kernels                                              flags of AMX
 */
#ifndef MOX_CPU_AMX_PLAN_H
#define MOX_CPU_AMX_PLAN_H

#include "base/carver.h"
#include "cpu/expert_gemm/panel_kernel.h"

/* ---- amx_bf16 ------------------------------------------------------------------------------------ */

enum {
    MOX_AMX_LINE_BYTES = 64,         /* of a pair line, and of a step of a row of activations */
    MOX_AMX_STEP_LINES_BYTES = 1024, /* of a step's 16 pair lines */
    MOX_AMX_TILE_FLOATS = 256,       /* of a C tile */
    MOX_AMX_BLOCK_STEPS = 8,         /* steps that all pairs of row tiles multiply in turn (amx_square.h) */
    MOX_AMX_INT_DOT_ROWS = 3,        /* max rows that are multiplied in integers (amx_int_dot.h) */
    MOX_AMX_LIMB_BYTES = 128         /* of a step and row */
};

/* Where the scale of a weight is applied. */
typedef enum mox_amx_scaling {
    MOX_AMX_SCALE_PER_SEGMENT,
    MOX_AMX_SCALE_PER_SEGMENT_F16, /* the same; codes of 8-bit integers become bf16 by way of f16 */
    MOX_AMX_E8M0_IN_WEIGHT,
    MOX_AMX_E4M3_IN_WEIGHT
} mox_amx_scaling;

/* E4M3_IN_WEIGHT: f4_e2m1 times E4M3 is exact in f16, has at most 6 significant bits, and is 0 or 2^-10 to 2688. Its
 * bits, moved to where bf16 has them, are a bf16 of 2^-112 of the value. To make up for most of that, activations are
 * multiplied by 2^96 beforehand ("prescaled"), if all of them stay finite. Products are then 2^-16 of their value, and
 * E4M3_END is a factor of the finished sum. */
enum { MOX_AMX_PRESCALE_E4M3 = 96 };
#define MOX_AMX_E4M3_END 0x1p16f

/* SCALE_PER_SEGMENT_F16: integers of 8 bits are 2^8 times their value in f16, so 2^104 makes up for all of 2^-112. */
enum { MOX_AMX_PRESCALE_I8 = 104 };

/* The power of two that activations are multiplied by; 0: they are not prescaled. */
MOX_KERNEL_INLINE int mox_amx_prescale_of(mox_amx_scaling scaling)
{
    return scaling == MOX_AMX_E4M3_IN_WEIGHT          ? MOX_AMX_PRESCALE_E4M3
           : scaling == MOX_AMX_SCALE_PER_SEGMENT_F16 ? MOX_AMX_PRESCALE_I8
                                                      : 0;
}

/* The functions of one format, by where its scales are applied; NULL: there is none. */
typedef struct mox_amx_format {
    moxie_dtype element;
    bool zeros;
    mox_amx_scaling scaling; /* of per_segment */
    mox_panel_multiply_fn per_segment, e8m0_in_weight, e4m3_in_weight;
} mox_amx_format;
typedef struct mox_amx_formats {
    const mox_amx_format *of;
    size_t count;
} mox_amx_formats;
/* Empty: not in this build. */
extern const mox_amx_formats mox_amx_bf16_formats;

/* How the steps of the activations can be multiplied without tiles (amx_int_dot.h). */
typedef struct mox_amx_limb_stats {
    int64_t kinds[3]; /* number of steps with two limbs, with three, in floats */
    bool in_range;    /* every step in floats is in the range of mox_int_dot_in_range() */
} mox_amx_limb_stats;

/* In scratch: the activations as limbs (bytes of an integer), [steps][rows][LIMB_BYTES], and each step's kind. */
typedef struct mox_amx_limbs {
    uint8_t *limbs, *kinds;
    mox_amx_limb_stats *stats;
} mox_amx_limbs;

/* In scratch: the activations times a power of two, in the order of the activations. */
typedef enum mox_amx_prescale_state {
    MOX_AMX_NOT_PRESCALED,
    MOX_AMX_PRESCALED,
    MOX_AMX_TOO_LARGE /* some activation would become infinite */
} mox_amx_prescale_state;
typedef struct mox_amx_prescaled {
    uint8_t *rows;
    mox_amx_prescale_state *state;
} mox_amx_prescaled;

/* Scratch that holds the scales of a panel. */
typedef struct mox_amx_scale_space {
    float *scale;   /* [groups][16] */
    uint8_t *codes; /* [groups][16], used when the rows of a panel share a scale */
} mox_amx_scale_space;

/* amx_job.h describes the arrays. */
typedef struct mox_amx_scratch {
    float *buffer, *pending;
    mox_amx_scale_space space[2];
    uint8_t *lines[2];
    mox_amx_limbs limbs;
    mox_amx_prescaled prescaled;
} mox_amx_scratch;
/* For a matrix with `steps` steps of 32 columns and `groups` groups of columns. */
void mox_amx_lay_out(mox_carver *carver, mox_amx_scaling scaling, uint64_t steps, uint64_t groups,
                     mox_amx_scratch *out);

/* ---- amx_int8 ------------------------------------------------------------------------------------ */

enum { MOX_AMX_I8_STEP = 64, MOX_AMX_I8_STEP_BYTES = 1024 }; /* columns of a step, and bytes of its weights */

/* NULL: not in this build. */
extern const mox_panel_multiply_fn mox_amx_int8_multiply;

/* amx_job.h describes the arrays. */
typedef struct mox_amx_int8_scratch {
    float *buffer, *pending;
    float *scale[2];  /* [groups][16] */
    uint8_t *last[2]; /* [MOX_AMX_I8_STEP_BYTES] */
} mox_amx_int8_scratch;
void mox_amx_int8_lay_out(mox_carver *carver, int64_t groups, mox_amx_int8_scratch *out);

#endif
