/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.h - weights in a kernel's order, and back: every layout is a row of layouts.def.
 *
 * A record is everything one expert owns, contiguous and 64-byte aligned, ready to move to a slot, a
 * rank or a file:
 *
 *     +--------------------+----------------------------------------------------------+
 *     | mox_record_header  | sections of the layout: codes, scales, zeros, biases ...  |
 *     +--------------------+----------------------------------------------------------+
 *
 * Its size and section offsets are a pure function of the shape, never of the weights. pack() and unpack()
 * are each other's inverse for every shape that refuse() accepts and every expert that takes() takes.
 */
#ifndef MOX_PACK_LAYOUT_H
#define MOX_PACK_LAYOUT_H

#include <stddef.h>

#include "quant/quant.h"

#define MOX_RECORD_ALIGN 64
#define MOX_RECORD_PART  (512 << 10) /* a good size for a layout's parts: well inside an L2 */

/* What fixes a record's form. */
typedef struct mox_record_shape {
    int64_t hidden, intermediate;
    bool gated;
    moxie_quant w13, w2;
    bool bias13, bias2;
} mox_record_shape;

typedef struct mox_record_header {
    uint32_t magic;    /* MOX_RECORD_MAGIC */
    uint32_t layout;   /* number of the layout's row */
    int64_t expert;    /* global index; -1 for a shared expert */
    uint64_t bytes;    /* of the whole record */
    uint64_t checksum; /* XXH3-64 of the parts' XXH3-64s, then this header with this field zero */
    float a13_scale, a2_scale;
    uint32_t flags; /* the layout's own */
    uint8_t reserved[20];
} mox_record_header;
_Static_assert(sizeof(mox_record_header) == 64, "records begin with one cache line");
#define MOX_RECORD_MAGIC 0x3152584du /* "MXR1" */

typedef struct mox_layout {
    uint32_t number; /* in the record; stable */
    const char *name;
    const char *summary; /* one line for `moxie explain` and docs */
    /* NULL when the shape can be held, else a sentence saying which limit it breaks (in `buffer`). */
    const char *(*refuse)(const mox_record_shape *shape, char *buffer, size_t size);
    /* False, and `reason` says why, when this expert cannot be held although its shape can: what depends on the
     * weights (zero points, order of columns), on the codes only where it has to, so it is cheap. Views were checked.
     * NULL: takes every expert. */
    bool (*takes)(const mox_record_shape *shape, const moxie_expert *expert, char *reason, size_t size);
    /* What holds every shape that this does, and more of their experts; NULL: rowmajor. */
    const struct mox_layout *instead;
    /* A multiple of MOX_RECORD_ALIGN. False when the size does not fit in 64 bits. */
    bool (*record_bytes)(const mox_record_shape *shape, uint64_t *out);
    /* `record` has record_bytes, zeroed. Views were checked by mox_matrix_check, and takes() took the expert. Of the
     * header only `flags` is the layout's to write. NULL when the layout packs in parts. */
    moxie_status (*pack)(const mox_record_shape *shape, const moxie_expert *expert, void *record, moxie_error *error);
    /* Packing in parts: several threads fill one record, none of them zeroes it first, and each sums what it wrote
     * while that is in its cache (about MOX_RECORD_PART bytes). Part i is the bytes from part_at(i) to part_at(i + 1);
     * part 0 begins behind the header and part_at(parts) is record_bytes. The checksum depends on the cut, so it is as
     * stable as the layout's number. pack_part() writes every byte of its part and no other, except that part 0 may
     * write the header's `flags`, found 0; the record holds anything else. NULL when there is pack(): one part. */
    int64_t (*parts)(const mox_record_shape *shape);
    uint64_t (*part_at)(const mox_record_shape *shape, int64_t part);
    moxie_status (*pack_part)(const mox_record_shape *shape, const moxie_expert *expert, int64_t part, void *record,
                              moxie_error *error);
    /* Writes every element through the writable grids in `out`, which have the shapes, dtypes and zero_add that
     * pack() read from; group_index, when not NULL, is written too (through a cast: it is the caller's writable
     * memory). Numbers that a record holds as f32 (zero, global, bias) come back by value: NaN payloads of 16-bit
     * ones are not kept. */
    moxie_status (*unpack)(const mox_record_shape *shape, const void *record, moxie_expert *out, moxie_error *error);
} mox_layout;

const mox_layout *mox_layout_at(int32_t i); /* NULL past the last */
const mox_layout *mox_layout_by_name(const char *name);

/* The steps of mox_record_pack(), for several threads: check once; then every part in any order, by any thread, with
 * its sum; then seal with the sums in order. Until then the record is none. */
moxie_status mox_record_check(const mox_layout *layout, const mox_record_shape *shape, int64_t expert_index,
                              const moxie_expert *expert, moxie_error *error);
int64_t mox_record_parts(const mox_layout *layout, const mox_record_shape *shape);
moxie_status mox_record_pack_part(const mox_layout *layout, const mox_record_shape *shape, const moxie_expert *expert,
                                  int64_t part, void *record, uint64_t *sum, moxie_error *error);
void mox_record_seal(const mox_layout *layout, const mox_record_shape *shape, int64_t expert_index,
                     const moxie_expert *expert, void *record, const uint64_t *sums);
/* Checks the views, packs, fills the header and seals it with the checksum. `record` may hold anything. */
moxie_status mox_record_pack(const mox_layout *layout, const mox_record_shape *shape, int64_t expert_index,
                             const moxie_expert *expert, void *record, moxie_error *error);
/* Right magic, layout, size and checksum; the text names the expert. */
moxie_status mox_record_verify(const mox_layout *layout, const mox_record_shape *shape, int64_t expert_index,
                               const void *record, moxie_error *error);

/* ---- the rowmajor layout, read by the portable kernels (layout_rowmajor.c) ---------------------- */

/* Header flags: the projection has an act order, that is a group_index other than column / group_cols. */
#define MOX_ROWMAJOR_ORDER_GATE 1u
#define MOX_ROWMAJOR_ORDER_UP   2u
#define MOX_ROWMAJOR_ORDER_DOWN 4u

/* Pointers into a record: one projection. codes are dense rows (mox_grid_dense); scale grids keep their dtype;
 * zero, global and bias are f32 (zero includes zero_add). NULL where absent. */
typedef struct mox_rowmajor_matrix {
    int64_t rows, cols;
    const uint8_t *codes;
    uint64_t row_bytes;
    const void *scale;          /* [scale_rows, scale_cols] of quant.scale */
    const float *zero;          /* [scale_rows, scale_cols] */
    const float *global;        /* [rows], broadcast when the checkpoint has one */
    const float *bias;          /* [rows] */
    const int32_t *group_index; /* [cols]: group of each column (act order); NULL: column / group_cols */
    const int32_t *visit;       /* [cols]: columns sorted by group, stable; NULL with group_index */
    int64_t scale_rows, scale_cols, group_rows, group_cols;
} mox_rowmajor_matrix;

typedef struct mox_rowmajor_record {
    mox_rowmajor_matrix gate, up, down; /* gate.codes NULL when ungated */
} mox_rowmajor_record;

/* The same as byte offsets from the record's start, 0 where absent: a function of the shape alone. group_index and
 * visit count only in records whose flags have order_flag. */
typedef struct mox_rowmajor_place {
    int64_t rows, cols;
    uint64_t codes, row_bytes, scale, zero, global, bias, group_index, visit;
    uint32_t order_flag;
    int64_t scale_rows, scale_cols, group_rows, group_cols;
} mox_rowmajor_place;

typedef struct mox_rowmajor_places {
    mox_rowmajor_place gate, up, down; /* gate.rows 0 when ungated */
} mox_rowmajor_places;

extern const mox_layout mox_layout_rowmajor;
void mox_rowmajor_locate(const mox_record_shape *shape, mox_rowmajor_places *out);
/* Pointers to the sections of a sealed record. */
void mox_rowmajor_open(const mox_record_shape *shape, const void *record, mox_rowmajor_record *out);
/* The record as checkpoint-style views (nothing copied), for the oracle as a backend. */
void mox_rowmajor_view(const mox_record_shape *shape, const void *record, moxie_expert *out);

#endif
