/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_given.h - a layer whose records exist already, packed: those of an expert file.
 *
 *     on the host     slots point to the given records: nothing is copied, packed or summed
 *     on a GPU        the records go to the slab in device memory through pinned memory (device_fill.h)
 *
 * In the flow: store (expert file) -> [given] -> run.
 */
#ifndef MOX_LAYER_LAYER_GIVEN_H
#define MOX_LAYER_LAYER_GIVEN_H

#include "layer/weights/given_records.h"

/* Makes a layer of them, ready for plans. The records outlive it. MOXIE_ERR_UNSUPPORTED when no kernel of the options
 * reads their layouts, MOXIE_ERR_MISMATCH when an expert of this rank is not given. */
moxie_status mox_layer_open_given(const moxie_layer_config *config, const moxie_options *options,
                                  const mox_given_records *given, moxie_layer **out, moxie_error *error);

#endif
