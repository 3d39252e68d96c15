/* SPDX-License-Identifier: Apache-2.0
 *
 * panel.h - layout "panel16": weights in panels of 16 rows, the order in which vector units and tile units read
 * them (layout_panel.c packs and unpacks).
 *
 *     record | header | W13 panels | W13 rows | W2 panels | W2 rows |       every | begins on 64 bytes
 *
 *     panel  | codes: step 0, step 1, ... | scales: group 0, group 1, ... | zero points |   each part on 64 bytes
 *     step     16 rows x 32 columns (the last step of a panel is filled up with code 0)
 *     rows     one f32 a panel row, padded with 0: globals, then biases; absent when the projection has none
 *
 * Gated W13: panel 2b holds gate rows 16b.., panel 2b+1 the up rows with the same numbers, so that one task finds
 * both halves of its activation. W2 and ungated W13: panel p holds rows 16p... Rows past the last are code 0,
 * scale bits 0 and zero point 0.
 *
 * A step lies as tile units want their second operand: lane n (32 bits) of a 64-byte line belongs to row n, and
 * a line of "pairs" is [16 rows][2 columns] of 16 bits, 16 lines a step. How narrow codes are kept so that a few
 * instructions make those lines (k: column within the step):
 *
 *     PAIRS   16 bits  1024 B  line j: lane n = (k=2j, k=2j+1)                                bf16
 *     HALVES  16 bits  1024 B  line j: 16 rows of k=2j, then 16 rows of k=2j+1                f16
 *     QUADS    8 bits   512 B  line q: lane n = bytes k=4q .. 4q+3                            i8, u8b128
 *     ZIPPED   8 bits   512 B  line q: each 16-byte quarter m holds rows 4m..4m+3:            f8
 *                              8 bytes (row, k=4q, 4q+1) x 4 rows, 8 bytes (row, k=4q+2, 4q+3) x 4 rows
 *     NIBBLES  4 bits   256 B  line q: lane n = two 16-bit words; word p, nibble i (bits 4i..4i+3) = k = 8q + 2i + p
 *     PLANES   6 bits   384 B  the low 4 bits of the codes as NIBBLES (256 B), then the high 2 bits (128 B):
 *                              line h: lane n = two 16-bit words; word p, bits 2i..2i+1 = k = 16h + 2i + p
 *
 * Scales keep the checkpoint's dtype. group g: 16 of them, one a panel row, or a single one when scale_lanes is 1
 * (the checkpoint's row groups are multiples of 16, so all rows of a panel share it). Zero points: u8, 16 a group,
 * counted from the element's least value as unsigned codes are: zero + 8 for 4-bit integers, 0 to 16; zero + 128 for
 * 8-bit ones, 0 to 255.
 *
 * Sources: the operand order of TDPBF16PS and TDPBSSD, Intel 64 and IA-32 Architectures Software Developer's Manual.
 */
#ifndef MOX_PACK_PANEL_H
#define MOX_PACK_PANEL_H

#include "pack/layout.h"

#define MOX_PANEL_ROWS 16
#define MOX_PANEL_STEP 32

typedef enum mox_panel_order {
    MOX_PANEL_NONE = 0, /* the layout does not hold this element */
    MOX_PANEL_PAIRS,
    MOX_PANEL_HALVES,
    MOX_PANEL_QUADS,
    MOX_PANEL_ZIPPED,
    MOX_PANEL_NIBBLES,
    MOX_PANEL_PLANES
} mox_panel_order;

/* How codes of `element` are kept. */
mox_panel_order mox_panel_order_of(moxie_dtype element);

/* One projection of a record as kernels read it. Panel p: codes at panels + p * panel_bytes. */
typedef struct mox_panel_matrix {
    int64_t rows;        /* of one matrix: I or H */
    int64_t cols;        /* K */
    int64_t count;       /* of panels */
    int64_t steps;       /* ceil(cols / 32) */
    int64_t groups;      /* of columns; 1 without a scale */
    int64_t group_cols;  /* a multiple of 32, or 16, or cols when groups is 1 */
    int32_t scale_lanes; /* 16, 1, or 0 without a scale */
    bool gated;          /* panels alternate: gate, up */
    const uint8_t *panels;
    uint64_t panel_bytes, step_bytes, scale_at, zero_at; /* offsets within a panel; zero_at 0: no zero points */
    const float *global;                                 /* [count * 16] or NULL */
    const float *bias;                                   /* [count * 16] or NULL */
} mox_panel_matrix;

typedef struct mox_panel_record {
    mox_panel_matrix w13, w2;
} mox_panel_record;

extern const mox_layout mox_layout_panel16;

/* Pointers into a sealed record; with record NULL the shape alone (panels, global, bias then mean nothing). The
 * shape must be one that the layout accepts. Cheap: called per task. */
void mox_panel_open(const mox_record_shape *shape, const void *record, mox_panel_record *out);

#endif
