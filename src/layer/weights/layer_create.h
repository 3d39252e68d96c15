/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_create.h - a layer without weights: allocated for a configuration, and freed.
 */
#ifndef MOX_LAYER_LAYER_CREATE_H
#define MOX_LAYER_LAYER_CREATE_H

#include "layer/weights/given_records.h"

/* Bodies of moxie_layer_create, _destroy and _bytes. `given`: records that exist, for mox_layer_open_given(); NULL: the
 * layer gets memory for its own. */
moxie_status mox_layer_create(const moxie_layer_config *config, const moxie_options *options,
                              const mox_given_records *given, moxie_layer **out, moxie_error *error);
void mox_layer_destroy(moxie_layer *layer);
uint64_t mox_layer_bytes(const moxie_layer *layer);

#endif
