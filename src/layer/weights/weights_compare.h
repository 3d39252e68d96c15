/* SPDX-License-Identifier: Apache-2.0
 *
 * weights_compare.h - two sets of weights of one configuration, element by element: where they first differ, and in how
 * many elements. Differences of packing and stride alone do not count.
 */
#ifndef MOX_LAYER_WEIGHTS_COMPARE_H
#define MOX_LAYER_WEIGHTS_COMPARE_H

#include "base/status.h"

/* Body of moxie_weights_compare. */
moxie_status mox_weights_compare(const moxie_layer_config *config, const moxie_weights *a, const moxie_weights *b,
                                 moxie_weights_difference *out, moxie_error *error);

#endif
