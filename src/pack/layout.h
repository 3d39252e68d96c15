/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.h - weights in a kernel's order, and back. Every layout is an entry of layouts.def.
 *
 * A record is everything that one expert owns, contiguous and 64-byte aligned, ready to move to a slot, a rank or a
 * file:
 *
 *     +--------------------+----------------------------------------------------------+
 *     | mox_record_header  | sections of the layout: codes, scales, zeros, biases ...  |
 *     +--------------------+----------------------------------------------------------+
 *
 * Its size and the offsets of its sections are a pure function of the shape, never of the weights. pack() and unpack()
 * are inverse to each other for every shape that reject() lets pass and every expert that accepts() accepts.
 */
#ifndef MOX_PACK_LAYOUT_H
#define MOX_PACK_LAYOUT_H

#include <stddef.h>

#include "quant/quant.h"

#define MOX_RECORD_ALIGN 64
#define MOX_RECORD_PART  (512 << 10) /* bytes; a good size for a part: it stays well inside an L2 cache */

/* What determines the size and the sections of a record. A record holds whole rows: all of them, or in tensor parallel
 * the rows of one rank. `hidden` is the number of columns of W13, `intermediate` that of W2. */
typedef struct mox_record_shape {
    int64_t hidden, intermediate;
    bool gated;
    moxie_quant w13, w2;
    bool bias13, bias2;
    bool cut;              /* the record has rows13 rows of gate and of up each, and rows2 of down; may be 0 */
    int64_t rows13, rows2; /* read when `cut` */
} mox_record_shape;

/* Rows of gate, and of up, that a record holds; rows of down. */
static inline int64_t mox_shape_rows13(const mox_record_shape *shape)
{
    return shape->cut ? shape->rows13 : shape->intermediate;
}
static inline int64_t mox_shape_rows2(const mox_record_shape *shape)
{
    return shape->cut ? shape->rows2 : shape->hidden;
}

typedef struct mox_record_header {
    uint32_t magic;    /* MOX_RECORD_MAGIC */
    uint32_t layout;   /* mox_layout.number */
    int64_t expert;    /* global index; -1 for a shared expert */
    uint64_t bytes;    /* of the whole record */
    uint64_t checksum; /* XXH3-64 of the parts' XXH3-64s, then this header with this field zero */
    float a13_scale, a2_scale;
    uint32_t flags; /* the layout's own meaning */
    uint8_t reserved[20];
} mox_record_header;
_Static_assert(sizeof(mox_record_header) == 64, "records begin with one cache line");
#define MOX_RECORD_MAGIC 0x3152584du /* "MXR1" */

typedef struct mox_layout {
    uint32_t number; /* stored in records, never reused */
    const char *name;
    const char *summary; /* one line for `moxie explain` and docs */
    /* NULL when the layout can hold the shape, else a sentence (in `buffer`) saying which limit the shape breaks. */
    const char *(*reject)(const mox_record_shape *shape, char *buffer, size_t size);
    /* False, with a sentence in `reason`, when the layout holds the shape but not this expert. It may depend on zero
     * points, the order of columns and scales; it looks at codes only where it must, so it is cheap. Views were checked
     * before. NULL: every expert is accepted. */
    bool (*accepts)(const mox_record_shape *shape, const moxie_expert *expert, char *reason, size_t size);
    /* The layout to use for experts that accepts() turns down; it holds every shape that this one holds. NULL:
     * rowmajor. */
    const struct mox_layout *fallback;
    /* Where records begin with one of this layout, and columns are sorted by group (order/column_order.h): its kernels
     * read them. NULL: kernels name this layout itself. */
    const struct mox_layout *base;
    /* A multiple of MOX_RECORD_ALIGN. False when the size does not fit in 64 bits. */
    bool (*record_bytes)(const mox_record_shape *shape, uint64_t *out);
    /* `record` has record_bytes, zeroed. The views passed mox_matrix_check() and the expert passed accepts(). Of the
     * header, only `flags` is written. NULL when the layout packs in parts. */
    moxie_status (*pack)(const mox_record_shape *shape, const moxie_expert *expert, void *record, moxie_error *error);
    /* Packing in parts. Several threads fill one record, which is not zeroed before. Each sums the part that it wrote
     * while that is still in its cache (about MOX_RECORD_PART bytes). Part i covers the bytes from part_at(i) to
     * part_at(i + 1); part 0 begins behind the header, and part_at(parts) is record_bytes. The checksum depends on
     * where parts are cut, so the cut is as stable as the number of the layout. pack_part() writes every byte of its
     * part and no other byte. Part 0 may also write `flags` of the header, which is 0 before. NULL when there is
     * pack(): the record is one part. */
    int64_t (*parts)(const mox_record_shape *shape);
    uint64_t (*part_at)(const mox_record_shape *shape, int64_t part);
    moxie_status (*pack_part)(const mox_record_shape *shape, const moxie_expert *expert, int64_t part, void *record,
                              moxie_error *error);
    /* For records that a device packs: what is no code, end to end in the order of the record, from the header on (its
     * bytes are 0). A device gets that rest and the checkpoint's codes. pack_rest() writes what lies in a part; views
     * as for pack_part(). NULL: no device packs this layout. */
    uint64_t (*rest_bytes)(const mox_record_shape *shape);
    void (*pack_rest)(const mox_record_shape *shape, const moxie_expert *expert, int64_t part, void *rest);
    /* Writes every element through the writable grids in `out`. They have the shapes, dtypes and zero_add that pack()
     * read. A group_index that is not NULL is written too, through a cast: it is the caller's writable memory. Numbers
     * that a record holds as f32 (zero, global, bias) come back by value; NaN payloads of 16-bit ones are lost. */
    moxie_status (*unpack)(const mox_record_shape *shape, const void *record, moxie_expert *out, moxie_error *error);
} mox_layout;

const mox_layout *mox_layout_at(int32_t i); /* NULL past the last */
const mox_layout *mox_layout_by_name(const char *name);
/* Whether kernels that name layout `kernel` read records of this one. */
bool mox_layout_is_read_by(const mox_layout *layout, const char *kernel);

/* The steps of mox_record_pack(), for several threads: check once; pack every part with its sum, in any order, by any
 * thread; then seal with the sums in order. Until it is sealed the record is invalid. */
moxie_status mox_record_check(const mox_layout *layout, const mox_record_shape *shape, int64_t expert_index,
                              const moxie_expert *expert, moxie_error *error);
/* The same without accepts(), for experts that it has accepted. */
moxie_status mox_record_check_views(const mox_layout *layout, const mox_record_shape *shape, int64_t expert_index,
                                    const moxie_expert *expert, moxie_error *error);
int64_t mox_record_parts(const mox_layout *layout, const mox_record_shape *shape);
uint64_t mox_record_part_at(const mox_layout *layout, const mox_record_shape *shape, int64_t part);
moxie_status mox_record_pack_part(const mox_layout *layout, const mox_record_shape *shape, const moxie_expert *expert,
                                  int64_t part, void *record, uint64_t *sum, moxie_error *error);
void mox_record_seal(const mox_layout *layout, const mox_record_shape *shape, int64_t expert_index,
                     const moxie_expert *expert, void *record, const uint64_t *sums);
/* Checks the views, packs, fills the header and seals it with the checksum. `record` may hold anything before. */
moxie_status mox_record_pack(const mox_layout *layout, const mox_record_shape *shape, int64_t expert_index,
                             const moxie_expert *expert, void *record, moxie_error *error);
/* Checks magic, layout, size, expert and checksum. The text of an error names the expert. */
moxie_status mox_record_verify(const mox_layout *layout, const mox_record_shape *shape, int64_t expert_index,
                               const void *record, moxie_error *error);

/* ---- the rowmajor layout, read by the portable kernels (layout_rowmajor.c) ---------------------- */

/* Header flags: the projection has an act order, that is a group_index other than column / group_cols. */
#define MOX_ROWMAJOR_ORDER_GATE 1u
#define MOX_ROWMAJOR_ORDER_UP   2u
#define MOX_ROWMAJOR_ORDER_DOWN 4u

/* One projection of a record, as pointers into it. Codes are dense rows (mox_grid_dense); scales keep their dtype;
 * zero, global and bias are f32, and zero includes zero_add. NULL where absent. */
typedef struct mox_rowmajor_matrix {
    int64_t rows, cols;
    const uint8_t *codes;
    uint64_t row_bytes;
    const void *scale;          /* [scale_rows, scale_cols] of quant.scale */
    const float *zero;          /* [scale_rows, scale_cols] */
    const float *global;        /* [rows], broadcast when the checkpoint has one */
    const float *bias;          /* [rows] */
    const int32_t *group_index; /* [cols]: group of each column (act order); NULL: column / group_cols */
    const int32_t *visit;       /* [cols]: columns sorted by group, stable; NULL when group_index is */
    int64_t scale_rows, scale_cols, group_rows, group_cols;
} mox_rowmajor_matrix;

typedef struct mox_rowmajor_record {
    mox_rowmajor_matrix gate, up, down; /* gate.codes NULL when ungated */
} mox_rowmajor_record;

/* The same as byte offsets from the start of the record, 0 where absent: a function of the shape alone. group_index and
 * visit are valid only in records whose flags have order_flag. */
typedef struct mox_rowmajor_place {
    int64_t rows, cols;
    uint64_t codes, row_bytes, scale, zero, global, bias, group_index, visit;
    uint32_t order_flag;
    int64_t scale_rows, scale_cols, group_rows, group_cols;
} mox_rowmajor_place;

typedef struct mox_rowmajor_places {
    mox_rowmajor_place gate, up, down; /* gate.rows 0 when ungated */
} mox_rowmajor_places;

extern const mox_layout mox_layout_rowmajor, mox_layout_panel16_order;
void mox_rowmajor_locate(const mox_record_shape *shape, mox_rowmajor_places *out);
/* Finds the sections of a sealed record. */
void mox_rowmajor_open(const mox_record_shape *shape, const void *record, mox_rowmajor_record *out);
/* The record as views like those of a checkpoint, without a copy: the oracle reads them. */
void mox_rowmajor_view(const mox_record_shape *shape, const void *record, moxie_expert *out);

#endif
