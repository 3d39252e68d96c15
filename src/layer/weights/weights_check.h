/* SPDX-License-Identifier: Apache-2.0
 *
 * weights_check.h - checks the views of a whole layer against its configuration: every matrix has the shape, dtype and
 * companions (scales, zero points, bias) that it must have.
 *
 * Packing checks each expert again; this is for code that reads views directly (check, weights_compare).
 */
#ifndef MOX_LAYER_WEIGHTS_CHECK_H
#define MOX_LAYER_WEIGHTS_CHECK_H

#include "layer/config/config.h"

/* Checks the experts with slot_of[e] >= 0 (all when slot_of is NULL), and router, shared expert and its gate where the
 * configuration has them. `has_comm`: as for mox_config_computes_shared. */
moxie_status mox_weights_check(const moxie_layer_config *config, const moxie_weights *weights, const int32_t *slot_of,
                               bool has_comm, moxie_error *error);

#endif
