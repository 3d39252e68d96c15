/* SPDX-License-Identifier: Apache-2.0
 *
 * diff_store.h - `moxie diff DIR --budget-ram BYTES`.
 */
#ifndef MOXIE_DIFF_STORE_H
#define MOXIE_DIFF_STORE_H

#include "cli.h"

/* Compares a run whose experts are read when it needs them with a run from memory, and prints what differs. Returns the
 * exit code. */
int diff_store(const cli_layer_options *options, uint64_t seed, cli_states states);

#endif
