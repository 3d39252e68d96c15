/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_prepare.h - fills a layer's slots from views of a checkpoint, and replaces single experts.
 *
 * In the flow: ckpt (views) -> [layer_prepare] -> records in slots.
 */
#ifndef MOX_LAYER_LAYER_PREPARE_H
#define MOX_LAYER_LAYER_PREPARE_H

#include "layer/weights/layer.h"

/* Bodies of moxie_layer_prepare and _update_expert. */
moxie_status mox_layer_prepare(moxie_layer *layer, const moxie_weights *weights, const moxie_options *options,
                               moxie_error *error);
moxie_status mox_layer_update_expert(moxie_layer *layer, int64_t expert, const moxie_expert *weights,
                                     moxie_error *error);

/* Packs one expert, of which this rank holds all rows or some, into `record`. */
moxie_status mox_layer_pack_alone(const moxie_layer *layer, int64_t expert, const moxie_expert *weights, void *record,
                                  moxie_error *error);
/* What a layer reads of weights besides records: static scales, router, norms; of the shared expert scales and gate. */
moxie_status mox_layer_read_numbers(moxie_layer *layer, const moxie_weights *weights, moxie_error *error);
moxie_status mox_layer_read_shared_numbers(moxie_layer *layer, const moxie_weights *weights, moxie_error *error);
/* After a change of static scales or of slots. */
moxie_status mox_layer_resolve_scales(moxie_layer *layer, moxie_error *error);

#endif
