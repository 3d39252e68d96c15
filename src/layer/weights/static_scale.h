/* SPDX-License-Identifier: Apache-2.0
 *
 * static_scale.h - static scales and globals of the activations, which a checkpoint stores with each expert's weights.
 *
 * A checkpoint calibrates them by running data through the model. An expert that no calibration token visited may have
 * none. It gets the most cautious value of the layer's experts, the one for the largest activations: the largest scale,
 * or the smallest global that divides. All E experts count, on every rank, so the choice does not depend on the
 * placement.
 */
#ifndef MOX_LAYER_STATIC_SCALE_H
#define MOX_LAYER_STATIC_SCALE_H

#include "layer/weights/layer.h"

/* Stores one expert's scale; 0: it has none. `what` names it in an error: "expert 3 a13_scale". */
moxie_status mox_static_scale_set(mox_static_scale *scale, const moxie_quant *quant, int64_t expert, float value,
                                  const char *what, moxie_error *error);
/* The more cautious of two scales; 0: there is none. */
float mox_static_scale_cautious(const moxie_quant *quant, float best, float value);
/* Resolves every slot after experts changed; fails when no expert has a scale. `what`: "a13_scale". */
moxie_status mox_static_scale_resolve(mox_static_scale *scale, const moxie_quant *quant, const moxie_layer *layer,
                                      const char *what, moxie_error *error);

#endif
