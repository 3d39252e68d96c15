/* SPDX-License-Identifier: Apache-2.0
 *
 * lint_layer.h - one MoE layer while it is checked: its stored matrices, each with the format that its tensors have.
 *
 *     spelling      stored matrices, in this order
 *     per expert    gate, up, down of expert 0, then of expert 1, ...
 *     fused         gate_up, down              (all experts in one tensor)
 *     stacks        gate, up, down             (likewise)
 *     then, if the layer has a shared expert, its gate, up, down
 */
#ifndef MOX_LINT_LAYER_H
#define MOX_LINT_LAYER_H

#include "ckpt/model/layer_reader.h"
#include "ckpt/model/model_matrix.h"
#include "lint/lint_state.h"

typedef enum mox_lint_projection { MOX_LINT_GATE, MOX_LINT_UP, MOX_LINT_DOWN, MOX_LINT_GATE_UP } mox_lint_projection;
enum { MOX_LINT_PROJECTIONS = 3 };

/* One stored matrix, of one expert or stacked over all. */
typedef struct mox_lint_stored {
    const char *name; /* in full, without the suffix of a part */
    mox_wanted wanted;
    mox_match match;
    mox_lint_projection projection;
    int64_t expert; /* -1: all */
    bool shared, matched;
} mox_lint_stored;

typedef struct mox_lint_layer {
    mox_lint *lint;
    int64_t layer;
    mox_arena arena;
    moxie_layer_config config; /* sizes and activation; what tensors decide is not in it */
    mox_layer_reader reader;   /* its errors go to `error` */
    moxie_error error;
    mox_lint_stored *stored;
    int64_t n_stored, first_shared;
    bool fused;
    bool unknown; /* some matrix has no known format: what else lies below its name cannot be judged */
} mox_lint_layer;

/* Which projection of one expert: `expert` -1 is the shared one. */
typedef struct mox_lint_choice {
    int64_t expert;
    mox_lint_projection projection;
} mox_lint_choice;

/* Lists the layer's matrices and finds their formats. False when config.json cannot describe the layer (a finding). */
bool mox_lint_layer_open(mox_lint *lint, const mox_layer_place *place, mox_lint_layer *out);
void mox_lint_layer_close(mox_lint_layer *layer);

/* The stored matrix that holds a projection, and where in it; NULL when there is none, or its format is unknown. */
const mox_lint_stored *mox_lint_find_stored(const mox_lint_layer *layer, mox_lint_choice choice, mox_part_place *place,
                                            mox_part_rows *rows);
/* A tensor of a stored matrix by its role; NULL: none. */
const mox_file_tensor *mox_lint_part(const mox_lint_stored *stored, mox_part_role role);
/* The layer's router as a grid of floats. False when it is absent or quantized. */
bool mox_lint_router(mox_lint_layer *layer, moxie_grid *out);

/* ---- checks of one layer ------------------------------------------------------------------------------ */

/* A quantization_config that does not mention experts' modules as excluded, and experts that are not quantized. */
void mox_lint_quantized(mox_lint_layer *layer);
/* Headers: names, shapes, formats (lint_tensors.c); groups (lint_scales.c); input scales (lint_calibration.c). */
void mox_lint_tensors(mox_lint_layer *layer);
void mox_lint_groups(mox_lint_layer *layer);
void mox_lint_inputs_present(mox_lint_layer *layer);
/* Loads the layer as moxie would: the last word on what is refused; then asks the layouts (lint_layouts.c). */
void mox_lint_load(mox_lint_layer *layer);
/* Numbers (lint_numbers.c). MOXIE_ERR_TIMEOUT when the caller's progress function ends it. */
moxie_status mox_lint_numbers(mox_lint_layer *layer, moxie_error *error);

#endif
