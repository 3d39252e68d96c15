/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_job.h - one call of kernel amx_bf16 or amx_int8: its two panels, its rows and its scratch. expert_gemm_amx.c and
 * expert_gemm_int8_amx.c describe the kernels.
 *
 *     mox_amx_variant   what the code is instantiated for: constants of one weight format
 *     mox_amx_stream    one of the two panels: codes, scales, decoded lines
 *     mox_amx_job       both panels, the activations, the segments
 *
 *     a line     64 bytes: of 16 rows of weights the bf16 pair of columns 2i and 2i + 1. A B tile is the 16 lines of a
 *                step of 32 columns.
 *                For amx_int8: the four columns 4i to 4i + 3, and a step is 64 columns.
 *     scratch    | C tiles | panel 0: scales, codes of scales, lines | panel 1 | limbs | prescaled rows |
 *
 * A weight's scale is applied in one of two ways. Per segment: a segment of the sum ends where the scale changes, and
 * its C tile is multiplied by the scale. In the weight: where the product of code and scale is exact in bf16, it is
 * made while decoding, and no segment ends.
 *
 * For files compiled with AMX bf16, AVX-512 VBMI and FP16.
 */
#ifndef MOX_CPU_AMX_JOB_H
#define MOX_CPU_AMX_JOB_H

#include "cpu/expert_gemm/amx/amx_plan.h"
#include "cpu/expert_gemm/avx512/panel_decode_avx512.h"

enum {
    MOX_AMX_DECODE_LEAD = 2,      /* steps from decoding to the product */
    MOX_AMX_RING_STEPS = 4,       /* steps of lines that are kept when each step is decoded just before its product */
    MOX_AMX_CHUNK_STEPS = 4,      /* steps that are decoded once for all row tiles (tall, amx_segments.h) */
    MOX_AMX_NARROW_ROWS = 8,      /* max rows of strategy narrow */
    MOX_AMX_SQUARE_MIN_STEPS = 4, /* min steps of a segment for strategy square, with more than NARROW_ROWS rows */
    MOX_AMX_TABLE_EXPONENT = 124  /* tables hold 2^124 times a 4-bit code's value: the largest is still finite */
};

/* Loops over rows, panels and steps (amx_multiply.h). */
typedef enum mox_amx_strategy {
    MOX_AMX_STRATEGY_NARROW,
    MOX_AMX_STRATEGY_TALL,
    MOX_AMX_STRATEGY_SQUARE
} mox_amx_strategy;

MOX_KERNEL_INLINE bool mox_amx_is_per_segment(mox_amx_scaling scaling)
{
    return scaling == MOX_AMX_SCALE_PER_SEGMENT || scaling == MOX_AMX_SCALE_PER_SEGMENT_F16;
}

/* Formats of one decode class differ in their tables only, and share the code of the format that names the class. */
typedef struct mox_amx_variant {
    moxie_dtype decode_class;
    bool zeros; /* the weights have zero points */
    mox_amx_scaling scaling;
    bool ints; /* kernel amx_int8: C tiles are int32; strategy square alone */
} mox_amx_variant;

/* One of the two panels. */
typedef struct mox_amx_stream {
    const uint8_t *codes;             /* [steps] of step_bytes */
    const uint8_t *next;              /* for prefetching: next + steps * step_bytes is the panel after this pair */
    const uint8_t *next_scales;       /* of that panel */
    const uint8_t *zero;              /* [groups][16], or NULL */
    const uint8_t *scale_codes;       /* [groups][16] of scales that are applied in the weight */
    const float *scale;               /* [groups][16] of scales that are applied per segment */
    uint8_t *lines;                   /* [steps] of STEP_LINES_BYTES, or a ring; or the record's own (direct) */
    const uint8_t *last;              /* the last step's lines, where they do not lie behind the others; or NULL */
    uint8_t min_code, max_code;       /* of scale_codes, signs left out */
    bool wide_scales;                 /* some scale_codes need the slow way to decode (amx_shared_amx.c) */
    float end_factor[MOX_PANEL_ROWS]; /* of the finished sum: powers of two that the weights were divided by */
} mox_amx_stream;

typedef struct mox_amx_job {
    const uint8_t *a;
    const float *a_scales; /* NULL: none */
    int64_t rows, a_scale_stride;
    mox_pair_tables tables;
    __m512i f16_codes; /* upper bytes of the 16 codes' values as f16, four times over; the lower bytes are zero */
    mox_amx_stream panel[2];
    int panels;
    int64_t steps, step_bytes;
    int64_t scale_lines; /* cache lines of a panel's scales */
    int64_t lines_mask;  /* narrow, tall: step s lies at lines + (s & lines_mask) * STEP_BYTES */
    int64_t slots;       /* square: at lines + s % slots * STEP_BYTES */
    int64_t block;       /* square: steps that all passes multiply in turn */
    int64_t segment_steps, segments;
    int64_t groups;                 /* of weights */
    int64_t group_steps, act_steps; /* of a weight group and of an activation group */
    uint64_t group_inverse;         /* 2^40 / group_steps, rounded up */
    bool scaled;                    /* segments have scales of weights */
    mox_amx_strategy strategy;
    bool predecoded; /* all lines are decoded before the product begins */
    float *buffer;   /* [MOX_PANEL_BLOCK / 32][4][16][16] C tiles */
    float *pending;  /* [4][16][16] C tiles that are not yet added to c (amx_square.h) */
    float *c;        /* [rows][32] */
    mox_amx_limbs limbs;
    mox_amx_prescaled prescaled;
} mox_amx_job;

/* Sets up everything that a product needs. `j` and its pointers are valid as long as the arguments are. */
void mox_amx_prepare(mox_amx_job *j, mox_amx_scaling scaling, const mox_panel_matrix *m, const moxie_quant *weight,
                     int64_t panel, int panels, const mox_panel_rows *a, float *c, void *scratch);

/* Replaces the activations by prescaled ones. Where some would become infinite, the activations stay, and the job
 * becomes predecoded: the lines then carry the power of two that the activations lack. */
void mox_amx_prescale(mox_amx_job *j, mox_amx_scaling scaling);

/* Decodes step s of panel p to `to`, whatever the scales in the weight are. */
void mox_amx_decode_any_scale(const mox_amx_job *j, int p, moxie_dtype decode_class, mox_amx_scaling scaling, int64_t s,
                              uint8_t *to);

#endif
