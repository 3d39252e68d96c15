/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_job.h - one call of row amx_bf16: its two panels, its rows and its scratch (expert_gemm_amx.c has the whole).
 *
 *     mox_amx_form     constants of one format, at every call: what the code is instantiated for
 *     mox_amx_stream   a panel: codes, scales, and where its decoded lines lie
 *     mox_amx_job      both panels, the activations, segments
 *
 *     scratch   | 4 C tiles | panel 0: scales, codes of scales, lines | panel 1: the same | digits | raised rows |
 *
 * For files compiled with AMX bf16, AVX-512 VBMI and FP16.
 */
#ifndef MOX_CPU_AMX_JOB_H
#define MOX_CPU_AMX_JOB_H

#include "cpu/expert_gemm/avx512/panel_decode_avx512.h"
#include "cpu/expert_gemm/panel_kernel.h"

enum {
    MOX_AMX_LINE = 64,         /* bytes of a pair line, and of a step of a row of activations */
    MOX_AMX_LINES = 1024,      /* bytes of a step's pair lines */
    MOX_AMX_LEAD = 2,          /* steps between decoding and product */
    MOX_AMX_RING = 4,          /* steps of lines that are kept when a panel is decoded as it goes by */
    MOX_AMX_SPAN = 8,          /* steps that one pair of row tiles after the other is multiplied with */
    MOX_AMX_CHUNK = 4,         /* steps that are decoded together where rows are many and segments short */
    MOX_AMX_TOP = 124,         /* 2^TOP times the largest code of 4 bits is still a number */
    MOX_AMX_TILE = 256,        /* numbers of a C tile */
    MOX_AMX_NARROW = 8,        /* rows of the narrow way */
    MOX_AMX_SQUARE_STEPS = 4,  /* of a segment that the square way is worth while for */
    MOX_AMX_DIGITS = 3,        /* rows, at most, that are multiplied in integers */
    MOX_AMX_DIGITS_BYTES = 128 /* of a step and row */
};

/* Ways through a panel pair (amx_multiply.h). */
typedef enum mox_amx_way { MOX_AMX_WAY_NARROW, MOX_AMX_WAY_TALL, MOX_AMX_WAY_SQUARE } mox_amx_way;

/* What becomes of a scale: it ends a segment, or is folded into lines; of 4-bit integers that rounds (row amx_folded).
 */
typedef enum mox_amx_folding {
    MOX_AMX_DRAINED,
    MOX_AMX_DRAINED_HALF, /* codes of 8-bit integers become bf16 by way of f16 */
    MOX_AMX_FOLD_E8M0,
    MOX_AMX_FOLD_E4M3,
    MOX_AMX_FOLD_INTS
} mox_amx_folding;

MOX_KERNEL_INLINE bool mox_amx_is_drained(mox_amx_folding fold)
{
    return fold == MOX_AMX_DRAINED || fold == MOX_AMX_DRAINED_HALF;
}

/* f4_e2m1 times E4M3 is exact in f16 and has at most 6 significant bits, 2^-10 to 2688. Moved to where bf16 has them,
 * its exponent as it is, that is 2^-112 of the value, and zero stays zero. Activations are raised by 2^RAISE for it, if
 * all of them stay finite; products are then 2^-16 of what they should be. */
enum { MOX_AMX_RAISE = 96 };
#define MOX_AMX_HALF_END 0x1p16f

/* Integers times any scales go the same way: the scales of a row, times a power of two, are f16 of at most 2^11, the
 * products are rounded to the 8 significant bits of bf16, and the power ends the sum. */
MOX_KERNEL_INLINE bool mox_amx_is_half(mox_amx_folding fold)
{
    return fold == MOX_AMX_FOLD_E4M3 || fold == MOX_AMX_FOLD_INTS;
}

/* Integers of 8 bits are 2^8 times their value in f16, so this much makes up for 2^-112, and sums are as they are
 * without. */
enum { MOX_AMX_RAISE_BYTES = 104 };

/* Exponents that activations are raised by; 0: they are not. */
MOX_KERNEL_INLINE int mox_amx_raise_of(mox_amx_folding fold)
{
    return mox_amx_is_half(fold) ? MOX_AMX_RAISE : fold == MOX_AMX_DRAINED_HALF ? MOX_AMX_RAISE_BYTES : 0;
}

/* Formats of one order differ in their tables only; `like` stands for all of them in the code. */
typedef struct mox_amx_form {
    moxie_dtype like;
    bool zeros;
    mox_amx_folding fold;
} mox_amx_form;

/* One of the two panels. */
typedef struct mox_amx_stream {
    const uint8_t *codes, *next; /* this panel's, and where step 0 would be if those of the panel after the pair were
                                    this one's steps from `steps` on */
    const uint8_t *next_scales;  /* of that panel */
    const uint8_t *zero;         /* [groups][16] or NULL */
    const uint8_t *folded;       /* [groups][16] codes of scales that are folded; of integers f16 */
    const float *scale;          /* [groups][16] those that are not */
    uint8_t *lines;              /* [steps], or the ring; bf16: in the record */
    uint8_t least, most;         /* codes of folded scales, without their signs */
    bool wide;                   /* folded scales leave the range of the fast way */
    float end[MOX_PANEL_ROWS];   /* what folding left out, powers of two */
} mox_amx_stream;

/* What is known of the rows' steps. */
typedef struct mox_amx_found {
    int64_t kinds[3]; /* how many are multiplied in two digits, in three, in floats */
    bool in_range;    /* mox_int_dot_in_range() of those in floats */
} mox_amx_found;

/* In scratch: digits [steps][rows][128], and by step how it is multiplied. */
typedef struct mox_amx_digits {
    uint8_t *digits, *kinds;
    mox_amx_found *found;
} mox_amx_digits;

/* Rows times a power of two, in scratch: as the activations lie. */
typedef enum mox_amx_raising { MOX_AMX_NOT_RAISED, MOX_AMX_RAISED, MOX_AMX_TOO_LARGE } mox_amx_raising;
typedef struct mox_amx_raised {
    uint8_t *rows;
    mox_amx_raising *state;
} mox_amx_raised;

typedef struct mox_amx_job {
    const uint8_t *a;
    const float *a_scales; /* NULL: none */
    int64_t rows, a_scale_stride;
    mox_pair_tables tables;
    __m512i halves; /* upper bytes of codes of 4 bits as f16, four times over; the lower ones are zero */
    mox_amx_stream panel[2];
    int panels;
    int64_t steps, step_bytes, scale_lines; /* cache lines of scales a panel */
    int64_t lines_mask;                     /* step s is at lines + (s & lines_mask) * LINES */
    int64_t slots, block;                   /* square: ... at lines + s % slots * LINES; steps that passes share */
    int64_t segment_steps, segments;        /* of what is drained */
    int64_t groups;                         /* of weights */
    int64_t group_steps, act_steps;         /* of a weight group and of an activation group */
    uint64_t group_inverse;                 /* 2^40 / group_steps, rounded up */
    bool scaled;                            /* segments have scales of weights */
    mox_amx_way way;
    bool kept;     /* all lines are decoded before the product begins */
    float *buffer; /* [BLOCK / 32][4][16][16] */
    float *owed;   /* [4][16][16] (amx_square.h) */
    float *c;      /* [rows][32] */
    mox_amx_digits digits;
    mox_amx_raised raised;
} mox_amx_job;

/* Everything that a product needs before it begins; `j` and what it points to are valid while the arguments are. */
void mox_amx_prepare(mox_amx_job *j, mox_amx_folding fold, const mox_panel_matrix *m, const moxie_quant *weight,
                     int64_t panel, int panels, const mox_panel_rows *a, float *c, void *scratch);
/* Of a matrix with `steps` steps of 32 columns and `groups` groups of columns. */
uint64_t mox_amx_scratch_bytes(mox_amx_folding fold, int64_t steps, int64_t groups);

/* Exchanges the rows for ones that are raised as `fold` has it. Where some would become infinite, all lines are to be
 * made beforehand, at what they lack then, for rows as they are. */
void mox_amx_raise(mox_amx_job *j, mox_amx_folding fold);

/* Lines of step s of panel p, its folded scales outside what the fast way can add to exponents. */
void mox_amx_decode_any_wide(const mox_amx_job *j, int p, moxie_dtype like, mox_amx_folding fold, int64_t s,
                             uint8_t *to);

#endif
