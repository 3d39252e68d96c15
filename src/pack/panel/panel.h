/* SPDX-License-Identifier: Apache-2.0
 *
 * panel.h - layout "panel16": weights in panels of 16 rows, in the order in which vector and tile units read them
 * (layout_panel.c packs and unpacks).
 *
 *     record | header | W13 panels | W13 rows | W2 panels | W2 rows |       each part starts on 64 bytes
 *
 *     panel  | codes: step 0, step 1, ... | scales: group 0, group 1, ... | zero points |   each starts on 64 bytes
 *     step     16 rows x 32 columns; the last step of a panel is filled up with code 0
 *     rows     one f32 per panel row, padded with 0: globals, then biases; absent when the projection has none
 *
 * Gated W13: panel 2 b holds gate rows 16 b .., panel 2 b + 1 the up rows with the same numbers, so that one task finds
 * both inputs of its activation. W2 and ungated W13: panel p holds rows 16 p ... Rows past the last have code 0, scale
 * bits 0 and zero point 0.
 *
 * A step lies as tile units want operand B: lane n (32 bits) of a 64-byte line belongs to row n. A line of pairs is
 * [16 rows][2 columns] of 16 bits; a step has 16 such lines. Narrow codes are stored so that a few instructions make
 * those lines (k: column within the step):
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
 * Block types (format/block.h) have their scales among their codes: block_panel.h draws their panels.
 *
 * Scales keep the dtype of the checkpoint. Group g has 16 scales, one per panel row, or a single one when scale_lanes
 * is 1: then row groups of the checkpoint are multiples of 16, and all rows of a panel share a scale. Zero points: u8,
 * 16 per group, counted from the smallest value of the element: zero + 8 for 4-bit integers (0 to 16), zero + 128 for
 * 8-bit ones (0 to 255).
 *
 * Source: the operand order of TDPBF16PS and TDPBSSD, Intel 64 and IA-32 Architectures Software Developer's Manual.
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
    MOX_PANEL_PLANES,
    MOX_PANEL_BLOCKS /* of a block type: block_panel.h */
} mox_panel_order;

/* The order of codes of `element`; MOX_PANEL_NONE when panels do not hold it. */
mox_panel_order mox_panel_order_of(moxie_dtype element);

/* One product of a record as kernels read it. The codes of panel p start at panels + p * panel_bytes. */
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

/* Finds the parts of a sealed record. With record NULL only sizes and offsets are valid (not panels, global, bias). The
 * layout accepts the shape. Cheap: called per task. */
void mox_panel_open(const mox_record_shape *shape, const void *record, mox_panel_record *out);

#endif
