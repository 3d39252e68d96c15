/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_arrays.h - what kernels read of a layer besides its records, in the memory where they run: slot map, arrays of
 * routing and activation, static scales, plain matrices, tables of number formats (struct mox_layer_arrays, layer.h).
 *
 * In the flow: layer -> [layer_arrays] -> run.
 */
#ifndef MOX_LAYER_LAYER_ARRAYS_H
#define MOX_LAYER_LAYER_ARRAYS_H

#include "layer/weights/layer.h"

/* Makes the arrays. The layer has its device and all its arrays on the host; arrays that depend on weights need a
 * refresh later. */
moxie_status mox_layer_arrays_create(moxie_layer *layer, moxie_error *error);
void mox_layer_arrays_destroy(moxie_layer *layer);
/* Copies static scales and plain matrices to the device again, after they changed on the host. */
moxie_status mox_layer_arrays_refresh(moxie_layer *layer, moxie_error *error);
/* The values of a format's codes, [256]; NULL for a format of more than 8 bits, and for no format. */
const float *mox_layer_table(const moxie_layer *layer, moxie_dtype dtype);

#endif
