/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor.h - weights as other engines' kernels want them: a set of named tensors for each expert, and back.
 *
 * A vendor layout is a table (a row of layouts.def, MOX_VENDOR_LAYOUT). Every tensor of it is a part of an expert that
 * goes through at most three changes, each an object of a small list, each with its inverse:
 *
 *     expert's grids, any packing
 *        |  dense rows            where they lie, or turned over once into scratch        (vendor_source.c)
 *        |  columns               of codes in act order, brought together by group         (vendor_columns.c)
 *        |  halved groups         scales and zero points repeated; only where the caller asked (vendor_groups.c)
 *        |  padding               zero rows after gate and after up, zero columns; only where the caller asked
 *        v
 *     rows       mox_vendor_rows   which row of [gate | up] is row r of the tensor         (vendor_rows.c)
 *        v
 *     code       mox_vendor_code   what becomes of an element's bits, element by element   (vendor_codes.c)
 *        v
 *     order      mox_vendor_order  where the bytes of some rows lie in the tensor          (vendor_orders*.c)
 *        v
 *     tensor of one expert; files stack them [E, ...]
 *
 * Numbers that a target derives (alphas, reciprocals) are constants; what they were derived from is kept beside them,
 * so that nothing is lost. Because every change has an inverse, unpacking is the same walk the other way.
 *
 * In the flow: checkpoint views -> [tensors] -> file (ckpt) -> another engine; and back.
 * Sources of the layouts: spec of each row's file; the descriptions in docs/formats/.
 */
#ifndef MOX_PACK_VENDOR_H
#define MOX_PACK_VENDOR_H

#include "base/executor.h"
#include "pack/layout.h"

enum { MOX_VENDOR_BLOCK = 256, MOX_VENDOR_PARTS = 16, MOX_VENDOR_CONSTANTS = 12, MOX_VENDOR_LIMITS = 6 };
/* Of one expert, at most: parts, constants, what act order adds, what is kept. */
enum { MOX_VENDOR_TENSORS = MOX_VENDOR_PARTS + MOX_VENDOR_CONSTANTS + 4 + 1 };

typedef enum mox_vendor_projection { MOX_VENDOR_W13, MOX_VENDOR_W2 } mox_vendor_projection;
typedef enum mox_vendor_of { MOX_VENDOR_CODES, MOX_VENDOR_SCALES, MOX_VENDOR_ZEROS, MOX_VENDOR_BIAS } mox_vendor_of;

/* ---- the changes ---------------------------------------------------------------------------------- */

/* Row r of the tensor is row source(r, rows) of [gate | up], or of the projection when it is one matrix. */
typedef struct mox_vendor_rows {
    const char *name;
    int64_t (*source)(int64_t r, int64_t rows);
    int32_t multiple;                           /* of `rows`, which it permutes in blocks of so many; 1: any */
    int64_t (*single)(int64_t r, int64_t rows); /* of a projection that is one matrix; NULL: as `source` */
} mox_vendor_rows;

/* What a layer does with its experts, for constants. Zero: plain SiLU, static scales of activations of the weights'
 * kind. */
typedef struct mox_vendor_use {
    moxie_activation activation; /* scalars; arrays per expert are refused */
    moxie_quant a13, a2;
} mox_vendor_use;

/* What is known of a layer before its first expert is packed: the survey. */
typedef struct mox_vendor_facts {
    float scale_most[2], scale_least[2]; /* decoded scales of W13 and W2: the largest, and the smallest above zero */
    float a13_most, a2_most;             /* static activation scales that multiply codes; 0: none given */
} mox_vendor_facts;

typedef struct mox_vendor_code mox_vendor_code;

/* What a code may depend on besides the element. */
typedef struct mox_vendor_context {
    const mox_vendor_code *code;         /* itself: one function serves codes that differ in numbers */
    const mox_vendor_facts *facts, *own; /* of the layer; of the expert, when the layout measures it */
    mox_vendor_projection projection;
    float zero_add; /* of the matrix: what its reader adds to stored zero points */
    /* Of parts that say MOX_VENDOR_BY_ZEROS: the row's stored zero points, elements of the codes' own dtype, low bits
     * first; and the columns that share one. */
    const uint8_t *zeros;
    int64_t group;
} mox_vendor_context;

/* Element by element; `count` elements lie densely, low bits first, in whole bytes. `in` is not `out`. Elements of
 * dtypes that neither the code nor one `otherwise` is for pass unchanged. */
struct mox_vendor_code {
    const char *name;
    moxie_dtype of;
    int32_t in_bits, out_bits; /* of an element before and after */
    uint8_t padding;           /* what bytes of zeros that pad become */
    /* Only elements that `refuse` lets pass. */
    void (*forward)(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out);
    /* NULL where undo does not read the part back. */
    void (*backward)(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out);
    /* What keeps elements from being changed without loss, in words, or NULL; asked before forward. NULL: nothing. */
    const char *(*refuse)(const mox_vendor_context *context, const uint8_t *in, int64_t count);
    const mox_vendor_code *otherwise; /* for elements of another dtype */
    moxie_dtype to;                   /* numbers of the functions' own */
    float factor;
};

/* A matrix on its way: `rows` rows of `row_bytes`, elements of `bits`, padding included. */
typedef struct mox_vendor_matrix {
    int64_t rows, cols, row_bytes;
    int32_t bits, item_bytes; /* of an element; of the tensor's dtype */
} mox_vendor_matrix;

/* Where the bytes of rows lie in the tensor of one expert. Rows come `step` at a time or a multiple of it. */
typedef struct mox_vendor_order {
    const char *name;
    int32_t step, bytes_multiple; /* what rows and row_bytes must be multiples of */
    int32_t pad_rows, pad_cols;   /* the order's own padding, with zeros, to multiples in rows and elements; 1 */
    /* Shape of the tensor in items of its dtype; NULL: [rows, row_bytes / item_bytes]. Returns the rank. */
    int32_t (*shape)(const mox_vendor_matrix *m, int64_t shape[MOXIE_MAX_RANK]);
    /* Bytes of the tensor; NULL: rows * row_bytes. */
    uint64_t (*bytes)(const mox_vendor_matrix *m);
    /* Rows row .. row + count - 1, at rows[0], rows[1] ..., into the tensor; every byte that is theirs is written.
     * Memory of rows and tensor does not overlap; no alignment. */
    void (*put)(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows, uint8_t *tensor);
    void (*get)(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows, const uint8_t *tensor);
} mox_vendor_order;

/* ---- a layout ------------------------------------------------------------------------------------- */

/* How a part differs from its elements moved once: a sum of these. */
enum {
    MOX_VENDOR_DERIVED = 1, /* undo does not read it: another part keeps the elements as they were */
    MOX_VENDOR_SPREAD = 2,  /* of scales: each is repeated for all rows of its group. A derived part */
    MOX_VENDOR_PATCH = 4,   /* undo reads it last: its code's backward changes elements that another part wrote */
    MOX_VENDOR_BY_ZEROS = 8 /* its code goes by the row's zero points, so undo reads it after theirs */
};

/* One tensor. rows and code NULL: unchanged. Parts that the expert has not (bias, zeros) are left out. Parts that only
 * undo reads are named moxie.something. */
typedef struct mox_vendor_part {
    const char *name; /* as the target's caller names it: vLLM's parameter */
    uint8_t projection, of;
    moxie_dtype dtype; /* of the tensor; NONE: that of the elements */
    const mox_vendor_rows *rows;
    const mox_vendor_code *code;
    const mox_vendor_order *order;
    int32_t how;
} mox_vendor_part;

struct mox_vendor_plan;

/* One f32 per expert that the target's caller passes along. */
typedef struct mox_vendor_constant {
    const char *name;
    float (*value)(const struct mox_vendor_plan *plan, const moxie_expert *expert);
    bool (*has)(const mox_vendor_use *use); /* false: the caller passes none; NULL: always */
} mox_vendor_constant;

/* For columns in act order: names of i32 tensors [columns], of W13 and of W2. The group of each column of the target,
 * ascending; and which column of the checkpoint it is. Layouts without names take columns in natural order alone. */
typedef struct mox_vendor_act_order {
    const char *groups[2], *order[2];
} mox_vendor_act_order;

typedef enum mox_vendor_extent { MOX_VENDOR_HIDDEN, MOX_VENDOR_INTERMEDIATE } mox_vendor_extent;

/* hidden or intermediate must be a multiple. `pads`: the target's loader pads up to it, so the caller may ask for it.
 */
typedef struct mox_vendor_limit {
    mox_vendor_extent extent;
    int32_t multiple;
    bool pads;
    const char *why; /* "rows are shuffled in blocks of 128" */
    int32_t ungated; /* the multiple where W13 is one matrix; 0: the same */
} mox_vendor_limit;

/* What weights a layout takes; lists end with 0. */
typedef struct mox_vendor_accepts {
    moxie_dtype elements[4], scales[4];
    int32_t group_cols[6];    /* -1: the whole row */
    int32_t group_rows[4];    /* 1, 128 or -1; none listed: 1 */
    bool whole_groups;        /* columns are a multiple of the group's */
    int32_t least_group;      /* 0, or the target's loader halves groups, down to this, until columns are a multiple */
    bool zeros, no_zeros;     /* with zero points, without; both when either will do. In the element's own code */
    bool bias, ungated;       /* may have */
    moxie_dtype biases[4];    /* none listed: any */
    moxie_global_kind global; /* of weights, one per matrix; both kinds are the same numbers, one the reciprocal */
    bool static_acts;         /* needs static scales of activations */
} mox_vendor_accepts;

typedef struct mox_vendor_layout {
    const char *name, *summary;
    const char *caller; /* whose kernel, called how */
    mox_vendor_accepts takes;
    bool surveys;  /* constants or codes need facts of all experts */
    bool measures; /* codes need facts of the expert */
    /* False, and `reason` says why, when the target has no way to hold this expert although it takes its shape. NULL:
     * any. */
    bool (*holds)(const struct mox_vendor_plan *plan, const moxie_expert *expert, char *reason, size_t size);
    mox_vendor_limit limits[MOX_VENDOR_LIMITS];
    mox_vendor_part parts[MOX_VENDOR_PARTS];
    mox_vendor_constant constants[MOX_VENDOR_CONSTANTS];
    mox_vendor_act_order act_order;
} mox_vendor_layout;

const mox_vendor_layout *mox_vendor_at(int32_t i); /* NULL past the last */
const mox_vendor_layout *mox_vendor_by_name(const char *name);

/* What it takes, in one line (vendor_describe.c). Returns `buffer`. */
const char *mox_vendor_describe(const mox_vendor_layout *layout, char *buffer, size_t size);

/* ---- a layout for one shape ----------------------------------------------------------------------- */

/* What a tensor is made of. */
typedef enum mox_vendor_kind {
    MOX_VENDOR_PART,
    MOX_VENDOR_CONSTANT,
    MOX_VENDOR_GROUPS, /* of columns in act order, i32 */
    MOX_VENDOR_ORDER,  /* and which they were */
    MOX_VENDOR_NUMBERS /* MOX_VENDOR_KEPT */
} mox_vendor_kind;

typedef struct mox_vendor_tensor {
    const char *name;
    mox_vendor_kind kind;
    moxie_dtype dtype;
    int32_t rank; /* 0: one value */
    int64_t shape[MOXIE_MAX_RANK];
    uint64_t bytes;
    const mox_vendor_part *part; /* or NULL */
    const mox_vendor_constant *constant;
    mox_vendor_projection projection; /* of groups and order */
    mox_vendor_matrix matrix;         /* of a part */
    int64_t half_rows;                /* of a part: rows of gate, or of up, or of the only matrix */
} mox_vendor_tensor;

/* What undoing needs and no part holds: f32 [8] of gate's, up's and down's global, a13's and a2's scale, and gate's,
 * up's and down's scale where it is one per matrix. 0: none. */
#define MOX_VENDOR_KEPT "moxie.kept"
enum { MOX_VENDOR_KEPT_COUNT = 8 };

typedef struct mox_vendor_plan {
    const mox_vendor_layout *layout;
    mox_vendor_use use;
    mox_record_shape shape;       /* of the weights */
    moxie_dtype zero[2], bias[2]; /* of W13 and W2, as the checkpoint stores them; NONE: there are none */
    int64_t hidden, intermediate; /* padded */
    bool act_order;               /* columns of some matrix of the example are not in natural order */
    int32_t repeat;               /* scales and zero points of the target for one of the checkpoint, along columns */
    mox_vendor_facts facts;
    int32_t count; /* of tensors: parts, constants, act order, kept */
    mox_vendor_tensor tensors[MOX_VENDOR_TENSORS];
} mox_vendor_plan;

/* `use` NULL: as a zero one. `example`: any expert of the layer, for what a shape leaves open. `pad`: extents may be
 * padded where a limit says so, and groups halved where the target does. MOXIE_ERR_UNSUPPORTED names the rule that is
 * broken and the nearest shapes that would do. */
moxie_status mox_vendor_plan_make(const mox_vendor_layout *layout, const mox_record_shape *shape,
                                  const mox_vendor_use *use, const moxie_expert *example, bool pad,
                                  mox_vendor_plan *out, moxie_error *error);
/* The views are an expert of this shape. */
moxie_status mox_vendor_check_views(const mox_record_shape *shape, const moxie_expert *expert, moxie_error *error);
/* The views have the plan's shape, and the target can hold them; survey and pack ask it too. */
moxie_status mox_vendor_check(const mox_vendor_plan *plan, const moxie_expert *expert, moxie_error *error);
/* Facts are finite and not negative; a smallest scale comes with a largest one, and is no larger. `code`: of a failure.
 */
moxie_status mox_vendor_check_facts(const mox_vendor_facts *facts, moxie_status code, moxie_error *error);
/* Takes one expert's facts into the plan; all experts of the layer before the first is packed. Only when the layout
 * surveys. On failure the plan's facts stay. */
moxie_status mox_vendor_survey(mox_vendor_plan *plan, const moxie_expert *expert, moxie_error *error);
/* tensors[i]: memory of plan->tensors[i].bytes, no alignment. Views are checked first. Allocates: for grids whose rows
 * are not dense as much as the grid, else little. MOXIE_ERR_UNSUPPORTED: the target cannot represent this expert; the
 * text says what, and the tensors hold anything. */
moxie_status mox_vendor_pack(const mox_vendor_plan *plan, const moxie_expert *expert, void *const *tensors,
                             const moxie_executor *executor, moxie_error *error);
/* Writes every element through the writable grids in `out`, shaped as those that were packed. */
moxie_status mox_vendor_unpack(const mox_vendor_plan *plan, void *const *tensors, moxie_expert *out,
                               const moxie_executor *executor, moxie_error *error);

#endif
