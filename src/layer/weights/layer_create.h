/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_create.h - a layer without weights: allocated for a configuration, and freed.
 */
#ifndef MOX_LAYER_LAYER_CREATE_H
#define MOX_LAYER_LAYER_CREATE_H

#include "layer/weights/layer.h"

/* Bodies of moxie_layer_create, _destroy and _bytes. */
moxie_status mox_layer_create(const moxie_layer_config *config, const moxie_options *options, moxie_layer **out,
                              moxie_error *error);
void mox_layer_destroy(moxie_layer *layer);
uint64_t mox_layer_bytes(const moxie_layer *layer);

#endif
