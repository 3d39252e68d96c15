/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange_codes.h - quantizes own tokens once, for all ranks that compute one of their choices.
 *
 *     hidden states of the chunk -> W13's quantizer -> rows of codes and scales (quant/act_row.h)
 *
 * In the flow: route -> [exchange_codes] -> exchange.c, where plan->ranks->coded.
 */
#ifndef MOX_LAYER_EXCHANGE_CODES_H
#define MOX_LAYER_EXCHANGE_CODES_H

#include "layer/run/run_state.h"

/* Fills the buffer `coded`: a row for each of `tokens` own tokens from `first` on. */
void mox_exchange_quantize(const mox_run *run, int64_t first, int64_t tokens);
/* An update of an expert may have changed the static scale that the plans of all ranks agreed on. */
moxie_status mox_exchange_check_scale(const mox_run *run, moxie_error *error);

#endif
