/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_tp.h - what a plan fixes for tensor parallel ranks: the pieces of act and y that travel between the ranks of a
 * group, and their buffers. layer/run/run_tp.c uses them.
 *
 * A rank's columns of act or y travel in pieces of MOX_TP_UNIT columns, the last one padded with zeros: so the pieces
 * of all ranks have one size.
 */
#ifndef MOX_LAYER_PLAN_TP_H
#define MOX_LAYER_PLAN_TP_H

#include "base/carver.h"
#include "layer/config/tp_slice.h"
#include "layer/plan/plan.h"

/* Makes room in the workspace for a pass. */
void mox_tp_carve(mox_carver *carver, moxie_plan *plan);

/* Whether the device's kernels multiply the rows that this rank has. */
moxie_status mox_tp_check(const moxie_plan *plan, moxie_error *error);

/* Appends steps that say how W2 is cut, and the shared expert, if ranks are tensor parallel. */
moxie_status mox_tp_add_steps(moxie_plan *plan, moxie_error *error);

/* The columns of act (W13's rows) or of y (W2's rows) of rank `rank` of the group. */
mox_tp_rows mox_tp_columns(const moxie_plan *plan, mox_expert_kind kind, mox_projection projection, int32_t rank);

/* Pieces of so many columns. */
int64_t mox_tp_pieces(int64_t columns);

/* The type in which act or y travel. An act that is not quantized: the type to which it is rounded for W2, so nothing
 * is lost; else f32. */
moxie_dtype mox_tp_dtype(const moxie_plan *plan, mox_expert_kind kind, mox_projection projection);

#endif
