/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_internal.h - what the files of vendor/ offer one another; callers include vendor.h.
 *
 *   vendor_plan.c    -> vendor_groups.c
 *   vendor_check.c   -> vendor_columns.c
 *   vendor_survey.c  -> vendor_check.c
 *   vendor_move.c    -> all of them, vendor_source.c, vendor_scalars.c
 */
#ifndef MOX_VENDOR_INTERNAL_H
#define MOX_VENDOR_INTERNAL_H

#include "vendor/vendor.h"

/* ---- an expert against the plan (vendor_check.c) ---------------------------------------------------- */

/* The views have the shapes and dtypes of the expert that the plan was made with. mox_vendor_check() asks this first.
 */
moxie_status mox_vendor_check_planned(const mox_vendor_plan *plan, const moxie_expert *expert, moxie_error *error);

/* ---- the range of an expert's scales (vendor_survey.c) -------------------------------------------------- */

/* Widens the ranges in `facts`, which start as zeros, by the scales of this expert. */
void mox_vendor_measure(const moxie_expert *expert, mox_vendor_facts *facts);

/* ---- one scale for a whole matrix (vendor_plan.c) -------------------------------------------------------- */

bool mox_vendor_has_scalar(const mox_record_shape *shape, mox_vendor_projection which);

/* ---- the code of a part for elements of a dtype (vendor_plan.c) --------------------------------------------- */

/* The code itself, or the one of its fallbacks that is for `dtype`. */
const mox_vendor_code *mox_vendor_code_for(const mox_vendor_code *code,
                                           moxie_dtype dtype); /* NULL: elements pass unchanged */

/* ---- MOX_VENDOR_SCALARS of an expert, and back into one (vendor_scalars.c) ----------------------------------- */

void mox_vendor_scalars_write(const mox_record_shape *shape, const moxie_expert *expert, void *to);
void mox_vendor_scalars_restore(const mox_record_shape *shape, const void *tensor, moxie_expert *out);

/* ---- columns in act order (vendor_columns.c) ----------------------------------------------- */

/* For W13 and W2: the column of the checkpoint that becomes each column of the target, and its group. NULL where the
 * plan has no act order. */
typedef struct mox_columns {
    int32_t *order[2], *groups[2];
} mox_columns;

/* Both allocate; free with mox_columns_free(). The second fails with MOXIE_ERR_FORMAT when a tensor is no
 * permutation. */
moxie_status mox_columns_of_expert(const mox_vendor_plan *plan, const moxie_expert *expert, mox_columns *out,
                                   moxie_error *error);
moxie_status mox_columns_of_tensors(const mox_vendor_plan *plan, void *const *tensors, mox_columns *out,
                                    moxie_error *error);
void mox_columns_free(mox_columns *columns);
/* Writes every group_index that is not NULL; in natural order when the plan has no act order. */
void mox_columns_restore(const mox_vendor_plan *plan, const mox_columns *columns, const moxie_expert *out);
/* Checks that gate and up have the same act order: they are one matrix in the target. */
moxie_status mox_columns_check_halves(const mox_vendor_plan *plan, const moxie_expert *expert, moxie_error *error);
/* Gather: out[k] = row[order[k]]. Scatter: out[order[k]] = row[k]. Elements of 4 or 8 bits, an even number of them.
 * bytes: scratch [cols]. */
void mox_columns_gather(const int32_t *order, int64_t cols, int32_t bits, const uint8_t *row, uint8_t *bytes,
                        uint8_t *out);
void mox_columns_scatter(const int32_t *order, int64_t cols, int32_t bits, const uint8_t *row, uint8_t *bytes,
                         uint8_t *out);

/* ---- groups that do not divide a row (vendor_groups.c) -------------------------------------- */

/* Checks that groups divide the rows where the layout requires it; `pad` allows them to be halved until they do. Reads
 * the extents of the plan and sets its `repeat`. */
moxie_status mox_groups_resolve(mox_vendor_plan *plan, bool pad, moxie_error *error);
/* Columns of scales or zero points of a part, of a matrix of `cols` columns. Halved groups: one for each smaller group,
 * which leaves out the copies of the last group that stand for columns past the row's end. */
int64_t mox_vendor_scale_cols(const mox_vendor_plan *plan, const mox_vendor_part *part, int64_t cols);
/* Columns of the tensor per column of the checkpoint. */
int32_t mox_vendor_times(const mox_vendor_plan *plan, const mox_vendor_part *part);
/* Repeat: each element of 4, 8 or 16 bits `times` times, an even number. Merge is the inverse; false when copies of an
 * element differ. */
void mox_groups_repeat(int64_t cols, int32_t bits, int32_t times, const uint8_t *row, uint8_t *out);
bool mox_groups_merge(int64_t cols, int32_t bits, int32_t times, const uint8_t *row, uint8_t *out);

/* ---- one grid as dense rows (vendor_source.c) ---------------------------------------------- */

/* Dense rows of one grid: row r is at data + r * stride. `owned`: the scratch that holds them, or NULL when they lie in
 * the grid. */
typedef struct mox_vendor_source {
    const moxie_grid *grid;
    uint8_t *data, *owned;
    int64_t stride;
} mox_vendor_source;

/* `read`: the rows are filled with the elements of the grid; else they are only written. Parallel over rows. */
moxie_status mox_vendor_source_open(const moxie_grid *grid, bool read, const moxie_executor *executor,
                                    mox_vendor_source *out, moxie_error *error);
/* Copies rows that were written to the grid. */
void mox_vendor_source_flush(const mox_vendor_source *source, const moxie_executor *executor);
void mox_vendor_source_close(mox_vendor_source *source);

#endif
