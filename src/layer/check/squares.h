/* SPDX-License-Identifier: Apache-2.0
 *
 * squares.h - sums of squares of what each expert's products read, from a traced run:
 *
 *     x [tokens of e, H] -> W13 -> activation -> act [tokens of e, I] -> W2
 *     sum x^2 by column                          sum act^2 by column
 *
 * They weight the errors of quantized columns (docs/quantize.md).
 */
#ifndef MOX_LAYER_SQUARES_H
#define MOX_LAYER_SQUARES_H

#include "layer/plan/plan.h"

/* Body of moxie_plan_squares. */
moxie_status mox_plan_squares(const moxie_plan *plan, const moxie_run_args *args, double *squares13, double *squares2,
                              int64_t *tokens, moxie_error *error);

#endif
