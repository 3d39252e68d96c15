/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor.h - weights as other engines' kernels read them: a set of named tensors per expert, and back.
 *
 * A vendor layout is a table (MOX_VENDOR_LAYOUT in layouts.def). Each of its tensors is a part of an expert that goes
 * through the steps below. Every step has an inverse, so unpacking takes the same steps backwards.
 *
 *     grids of the expert, any packing
 *        |  dense rows         used where they lie, or copied to scratch              (vendor_source.c)
 *        |  columns            codes in act order (GPTQ): columns sorted by group     (vendor_columns.c)
 *        |  halved groups      scales and zero points repeated; only on request       (vendor_groups.c)
 *        |  padding            zero rows after gate and after up, zero columns; only on request
 *        v
 *     rows      mox_vendor_rows   which row of [gate | up] becomes row r              (vendor_rows.c)
 *        v
 *     code      mox_vendor_code   conversion of the bits of each element              (vendor_codes*.c)
 *        v
 *     order     mox_vendor_order  where the bytes of rows lie in the tensor           (vendor_orders*.c)
 *        v
 *     tensor of one expert; files stack them [E, ...]
 *
 * Numbers that the target derives (alphas, reciprocals) are constants. The numbers that they derive from are stored in
 * moxie.* tensors, so nothing is lost.
 *
 * In the flow: checkpoint views -> [tensors] -> file (ckpt) -> another engine; and back.
 * Sources of the layouts: named in each file; memory is drawn in docs/formats/.
 */
#ifndef MOX_VENDOR_H
#define MOX_VENDOR_H

#include "base/executor.h"
#include "pack/layout.h"

enum { MOX_VENDOR_BLOCK = 256, MOX_VENDOR_PARTS = 16, MOX_VENDOR_CONSTANTS = 12, MOX_VENDOR_LIMITS = 6 };
/* Tensors of one expert at most: parts, constants, four for act order, MOX_VENDOR_SCALARS. */
enum { MOX_VENDOR_TENSORS = MOX_VENDOR_PARTS + MOX_VENDOR_CONSTANTS + 4 + 1 };

typedef enum mox_vendor_projection { MOX_VENDOR_W13, MOX_VENDOR_W2 } mox_vendor_projection;
typedef enum mox_vendor_of { MOX_VENDOR_CODES, MOX_VENDOR_SCALES, MOX_VENDOR_ZEROS, MOX_VENDOR_BIAS } mox_vendor_of;

/* ---- the steps ------------------------------------------------------------------------------------ */

/* Row r of the tensor is row source(r, rows) of [gate | up], or of the projection when that is a single matrix. */
typedef struct mox_vendor_rows {
    const char *name;
    int64_t (*source)(int64_t r, int64_t rows);
    int32_t multiple; /* `rows` must be a multiple of it: rows are permuted in blocks of this size; 1: any */
    int64_t (*single)(int64_t r, int64_t rows); /* the same for a projection that is a single matrix; NULL: `source` */
} mox_vendor_rows;

/* What constants need to know about the layer. Zero: plain SiLU; static activation scales multiply, or divide, as the
 * global scale of the weights does. */
typedef struct mox_vendor_use {
    moxie_activation activation; /* scalars; arrays per expert are rejected */
    moxie_quant a13, a2;
    bool symmetric; /* the checkpoint's configuration says that all zero points are the middle of the codes */
} mox_vendor_use;

/* Facts about a whole layer, collected by mox_vendor_survey() before its first expert is packed. */
typedef struct mox_vendor_facts {
    float scale_max[2], scale_min[2]; /* decoded scales of W13 and W2: the largest, and the smallest above zero */
    float a13_max, a2_max; /* largest static activation scales, as multipliers of codes; 0: the layer has none */
} mox_vendor_facts;

typedef struct mox_vendor_code mox_vendor_code;

/* What a conversion may depend on besides the element. */
typedef struct mox_vendor_context {
    const mox_vendor_code *code;         /* the code itself: one function serves several codes */
    const mox_vendor_facts *facts, *own; /* of the layer; of this expert, for layouts that measure experts */
    mox_vendor_projection projection;
    float zero_add; /* of the matrix: the checkpoint's reader adds it to stored zero points */
    /* For parts with MOX_VENDOR_BY_ZEROS: the stored zero points of the row, elements of the dtype of the codes, low
     * bits first; and the columns that share one. */
    const uint8_t *zeros;
    int64_t group;
} mox_vendor_context;

/* A conversion element by element. `count` elements lie densely, low bits first, in whole bytes. `in` and `out` do not
 * overlap. Elements of a dtype that neither the code nor one of its fallbacks is for pass unchanged. */
struct mox_vendor_code {
    const char *name;
    moxie_dtype of;
    int32_t in_bits, out_bits; /* bits of an element before and after */
    uint8_t padding;           /* the byte that padding consists of in the tensor */
    /* Called only for elements that `reject` lets pass. */
    void (*forward)(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out);
    /* NULL when undo does not read the part. */
    void (*backward)(const mox_vendor_context *context, const uint8_t *in, int64_t count, uint8_t *out);
    /* NULL, or a sentence why these elements cannot be converted without loss; asked before `forward`. No function: all
     * can. */
    const char *(*reject)(const mox_vendor_context *context, const uint8_t *in, int64_t count);
    const mox_vendor_code *fallback; /* the code for elements of another dtype */
    moxie_dtype to;                  /* parameters of the functions */
    float factor;
};

/* A matrix on its way: `rows` rows of `row_bytes` bytes, elements of `bits` bits, padding included. */
typedef struct mox_vendor_matrix {
    int64_t rows, cols, row_bytes;
    int32_t bits, item_bytes; /* bits of an element; bytes of an item of the tensor's dtype */
} mox_vendor_matrix;

/* Where the bytes of rows lie in the tensor of one expert. Rows are passed `step` at a time, or a multiple of it. */
typedef struct mox_vendor_order {
    const char *name;
    int32_t step, bytes_multiple; /* rows and row_bytes must be multiples of these */
    int32_t pad_rows, pad_cols; /* padding of the order itself, with zeros: rows and elements are padded to multiples of
                                   these; 1: none */
    /* Shape of the tensor in items of its dtype; returns the rank. NULL: [rows, row_bytes / item_bytes]. */
    int32_t (*shape)(const mox_vendor_matrix *m, int64_t shape[MOXIE_MAX_RANK]);
    /* Bytes of the tensor; NULL: rows * row_bytes. */
    uint64_t (*bytes)(const mox_vendor_matrix *m);
    /* Stores rows row .. row + count - 1, which are at rows[0], rows[1], ..., in the tensor, or loads them. Every byte
     * of these rows is written. Rows and tensor do not overlap. No alignment is needed. */
    void (*put)(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows, uint8_t *tensor);
    void (*get)(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows, const uint8_t *tensor);
} mox_vendor_order;

/* ---- a layout ------------------------------------------------------------------------------------- */

/* How a part differs from elements that are moved once: a sum of these. */
enum {
    MOX_VENDOR_DERIVED = 1,     /* undo does not read it, since another part stores the elements unchanged */
    MOX_VENDOR_SPREAD = 2,      /* scales: each is repeated for all rows of its group. The part is also derived */
    MOX_VENDOR_PATCH = 4,       /* undo reads it last: its code's backward changes elements that another part wrote */
    MOX_VENDOR_BY_ZEROS = 8,    /* its code depends on the zero points of the row, so undo reads it after them */
    MOX_VENDOR_AS_STORED = 16,  /* w13: gate's and up's rows alternate where they do in the checkpoint (`pairs`) */
    MOX_VENDOR_ASYMMETRIC = 32, /* left out when `use.symmetric` */
    MOX_VENDOR_SYMMETRIC = 64   /* there only when `use.symmetric`; groups are not halved */
};

/* One tensor. `rows` and `code` may be NULL: no change. Parts that the experts lack (bias, zeros) are left out. Parts
 * that only undo reads are named moxie.something. */
typedef struct mox_vendor_part {
    const char *name; /* the name of vLLM's parameter */
    uint8_t projection, of;
    moxie_dtype dtype; /* of the tensor; NONE: the dtype of the elements */
    const mox_vendor_rows *rows;
    const mox_vendor_code *code;
    const mox_vendor_order *order;
    int32_t how;
} mox_vendor_part;

struct mox_vendor_plan;

/* One f32 per expert that the caller of the target's kernel passes along. */
typedef struct mox_vendor_constant {
    const char *name;
    float (*value)(const struct mox_vendor_plan *plan, const moxie_expert *expert);
    bool (*has)(const mox_vendor_use *use); /* false: this layer has none; NULL: every layer has it */
} mox_vendor_constant;

/* For columns in act order: names of the i32 tensors [columns] of W13 and W2. `groups`: the group of each column of the
 * target, ascending. `order`: which column of the checkpoint it is. Layouts without names accept columns in natural
 * order only. */
typedef struct mox_vendor_act_order {
    const char *groups[2], *order[2];
} mox_vendor_act_order;

typedef enum mox_vendor_extent { MOX_VENDOR_HIDDEN, MOX_VENDOR_INTERMEDIATE } mox_vendor_extent;

/* `extent` must be a multiple of `multiple`. `pads`: the loader of the target pads up to it, so our caller may ask for
 * padding, too. */
typedef struct mox_vendor_limit {
    mox_vendor_extent extent;
    int32_t multiple;
    bool pads;
    const char *why; /* "rows are shuffled in blocks of 128" */
    int32_t ungated; /* the multiple when W13 is a single matrix (ungated); 0: the same */
} mox_vendor_limit;

/* Which weights a layout accepts. Lists end with 0. */
typedef struct mox_vendor_accepts {
    moxie_dtype elements[4], scales[4];
    int32_t group_cols[6]; /* -1: the whole row */
    int32_t group_rows[4]; /* 1, 128 or -1; none listed: 1 */
    bool whole_groups;     /* the number of columns must be a multiple of the group */
    int32_t min_group; /* not 0: the loader of the target halves groups, down to this size, until they divide a row */
    bool zeros, no_zeros;  /* accepts weights with, without zero points. Zero points have the dtype of the codes */
    bool bias, ungated;    /* accepts biases; accepts experts without a gate */
    moxie_dtype biases[4]; /* empty: any */
    moxie_global_kind
        global;       /* a global scale per weight matrix, MULTIPLY or DIVIDE (its reciprocal): both are accepted */
    bool static_acts; /* requires static activation scales */
} mox_vendor_accepts;

typedef struct mox_vendor_layout {
    const char *name, *summary;
    const char *caller; /* the kernel that reads it, and how it is called */
    mox_vendor_accepts accepts;
    bool surveys;  /* constants or codes need facts about all experts: call mox_vendor_survey() first */
    bool measures; /* codes need facts about the single expert */
    /* False, with a sentence in `reason`, when the target cannot represent this expert although its shape is accepted.
     * NULL: every expert. */
    bool (*holds)(const struct mox_vendor_plan *plan, const moxie_expert *expert, char *reason, size_t size);
    mox_vendor_limit limits[MOX_VENDOR_LIMITS];
    mox_vendor_part parts[MOX_VENDOR_PARTS];
    mox_vendor_constant constants[MOX_VENDOR_CONSTANTS];
    mox_vendor_act_order act_order;
} mox_vendor_layout;

const mox_vendor_layout *mox_vendor_at(int32_t i); /* NULL past the last */
/* The newest version of a layout, or the version for a release; NULL when there is none. `release` NULL: the newest. */
const mox_vendor_layout *mox_vendor_by_name(const char *name);
const mox_vendor_layout *mox_vendor_find(const char *name, const char *release);
/* The columns of the list: the newest release that a layout is for, and older ones, separated by spaces. */
const char *mox_vendor_release(const mox_vendor_layout *layout);
const char *mox_vendor_also(const mox_vendor_layout *layout);

/* Which weights it accepts, in one line (vendor_describe.c). Returns `buffer`. */
const char *mox_vendor_describe(const mox_vendor_layout *layout, char *buffer, size_t size);

/* ---- a layout for one shape ----------------------------------------------------------------------- */

/* What a tensor holds. */
typedef enum mox_vendor_kind {
    MOX_VENDOR_PART,
    MOX_VENDOR_CONSTANT,
    MOX_VENDOR_GROUPS,       /* act order: the group of each column, i32 */
    MOX_VENDOR_ORDER,        /* act order: the column of the checkpoint, i32 */
    MOX_VENDOR_SCALAR_VALUES /* MOX_VENDOR_SCALARS */
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
    mox_vendor_projection projection; /* of GROUPS and ORDER */
    mox_vendor_matrix matrix;         /* of a part */
    int64_t half_rows;                /* of a part: rows of gate (as many as of up), or of the only matrix */
} mox_vendor_tensor;

/* The scalars of an expert that undo needs and no part holds: f32 [8] of the globals of gate, up and down; the static
 * activation scales a13, a2; and the scales of gate, up and down where a matrix has only one. 0: none. The name is part
 * of the file format. */
#define MOX_VENDOR_SCALARS "moxie.kept"
enum { MOX_VENDOR_SCALAR_COUNT = 8 };

typedef struct mox_vendor_plan {
    const mox_vendor_layout *layout;
    mox_vendor_use use;
    mox_record_shape shape; /* of the weights */
    moxie_dtype zero[2],
        bias[2]; /* dtypes of zero points and biases of W13 and W2 in the checkpoint; NONE: there are none */
    int64_t hidden, intermediate; /* padded */
    bool act_order;               /* some matrix of the example has columns in act order */
    bool pairs; /* the example's rows of gate and up alternate in memory, and its activation is the one for which vLLM
                   reads them so (gpt-oss) */
    int32_t repeat; /* halved groups: columns of scales in the target per column in the checkpoint; 1: not halved */
    mox_vendor_facts facts;
    int32_t count; /* of tensors: parts, constants, act order, scalars */
    mox_vendor_tensor tensors[MOX_VENDOR_TENSORS];
} mox_vendor_plan;

/* Plans a layout for one shape. `use` NULL: all zero. `example`: any expert of the layer; it decides what a shape
 * leaves open (dtypes of biases and zero points, act order). `pad`: extents may be padded, and groups halved, where the
 * target does so. MOXIE_ERR_UNSUPPORTED names the rule that is broken and the nearest shapes that would do. */
moxie_status mox_vendor_plan_make(const mox_vendor_layout *layout, const mox_record_shape *shape,
                                  const mox_vendor_use *use, const moxie_expert *example, bool pad,
                                  mox_vendor_plan *out, moxie_error *error);
/* The views have this shape. */
moxie_status mox_vendor_check_views(const mox_record_shape *shape, const moxie_expert *expert, moxie_error *error);
/* The views have the shape of the plan, and the target can represent the expert. Survey and pack ask it, too. */
moxie_status mox_vendor_check(const mox_vendor_plan *plan, const moxie_expert *expert, moxie_error *error);
/* Checks that facts are finite and not negative, and that a smallest scale has a largest one that is no smaller.
 * `code`: the status on failure. */
moxie_status mox_vendor_check_facts(const mox_vendor_facts *facts, moxie_status code, moxie_error *error);
/* Adds the facts of one expert to the plan; call it for all experts of a layer before the first is packed. Needed only
 * when the layout surveys. On failure the facts in the plan stay as they were. */
moxie_status mox_vendor_survey(mox_vendor_plan *plan, const moxie_expert *expert, moxie_error *error);
/* Packs one expert. tensors[i] points to plan->tensors[i].bytes bytes of any alignment. Views are checked first.
 * Memory: for grids without dense rows as much as the grid, else little. MOXIE_ERR_UNSUPPORTED: the target cannot
 * represent this expert; the text says why, and the tensors hold anything. */
moxie_status mox_vendor_pack(const mox_vendor_plan *plan, const moxie_expert *expert, void *const *tensors,
                             const moxie_executor *executor, moxie_error *error);
/* The inverse: writes every element through the writable grids in `out`, which have the shapes of the packed ones. */
moxie_status mox_vendor_unpack(const mox_vendor_plan *plan, void *const *tensors, moxie_expert *out,
                               const moxie_executor *executor, moxie_error *error);

#endif
