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

/* ---- the range of an expert's scales, into facts that hold others' or zeros (vendor_survey.c) ---- */

void mox_vendor_measure(const moxie_expert *expert, mox_vendor_facts *facts);

/* ---- one scale for a whole matrix (vendor_plan.c) -------------------------------------------- */

bool mox_vendor_has_scalar(const mox_record_shape *shape, mox_vendor_projection which);

/* ---- which of a part's codes is for elements of this dtype (vendor_plan.c) ----------------- */

const mox_vendor_code *mox_vendor_code_for(const mox_vendor_code *code, moxie_dtype dtype); /* NULL: none */

/* ---- MOX_VENDOR_KEPT of an expert, and back into one (vendor_kept.c) ------------------------ */

void mox_kept_write(const mox_record_shape *shape, const moxie_expert *expert, void *to);
void mox_kept_restore(const mox_record_shape *shape, const void *tensor, moxie_expert *out);

/* ---- columns in act order (vendor_columns.c) ----------------------------------------------- */

/* Of W13 and of W2: which column of the checkpoint each of the target is, and its group. NULLs where the plan has no
 * act order. */
typedef struct mox_columns {
    int32_t *order[2], *groups[2];
} mox_columns;

/* To be freed. The second fails with MOXIE_ERR_FORMAT when a tensor holds no permutation. */
moxie_status mox_columns_of_expert(const mox_vendor_plan *plan, const moxie_expert *expert, mox_columns *out,
                                   moxie_error *error);
moxie_status mox_columns_of_tensors(const mox_vendor_plan *plan, void *const *tensors, mox_columns *out,
                                    moxie_error *error);
void mox_columns_free(mox_columns *columns);
/* Writes every group_index that there is; natural ones without act order. */
void mox_columns_restore(const mox_vendor_plan *plan, const mox_columns *columns, const moxie_expert *out);
/* Gate and up are one matrix of the target, with one order of columns. */
moxie_status mox_columns_check_halves(const mox_vendor_plan *plan, const moxie_expert *expert, moxie_error *error);
/* Elements of 4 or 8 bits, an even number: out[k] = row[order[k]], and out[order[k]] = row[k]. bytes: [cols], scratch.
 */
void mox_columns_take(const int32_t *order, int64_t cols, int32_t bits, const uint8_t *row, uint8_t *bytes,
                      uint8_t *out);
void mox_columns_give(const int32_t *order, int64_t cols, int32_t bits, const uint8_t *row, uint8_t *bytes,
                      uint8_t *out);

/* ---- groups that do not divide a row (vendor_groups.c) -------------------------------------- */

/* Whole groups, where the layout wants them: as they are, or halved when `pad` says that they may be. Extents are the
 * plan's; sets its `repeat`. */
moxie_status mox_groups_resolve(mox_vendor_plan *plan, bool pad, moxie_error *error);
/* Elements of 4, 8 or 16 bits: each `times` times, an even number; and back. False: some that should be the same are
 * not. */
void mox_groups_repeat(int64_t cols, int32_t bits, int32_t times, const uint8_t *row, uint8_t *out);
bool mox_groups_merge(int64_t cols, int32_t bits, int32_t times, const uint8_t *row, uint8_t *out);

/* ---- one grid as dense rows (vendor_source.c) ---------------------------------------------- */

/* Rows of one grid, dense: row r at data + r * stride. `owned` is scratch that holds them, or NULL. */
typedef struct mox_vendor_source {
    const moxie_grid *grid;
    uint8_t *data, *owned;
    int64_t stride;
} mox_vendor_source;

/* `read`: the grid's elements are wanted in the rows; else rows are for writing. Parallel over rows. */
moxie_status mox_vendor_source_open(const moxie_grid *grid, bool read, const moxie_executor *executor,
                                    mox_vendor_source *out, moxie_error *error);
/* Rows that were written, to the grid. */
void mox_vendor_source_flush(const mox_vendor_source *source, const moxie_executor *executor);
void mox_vendor_source_close(mox_vendor_source *source);

#endif
