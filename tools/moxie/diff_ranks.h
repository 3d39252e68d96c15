/* SPDX-License-Identifier: Apache-2.0
 *
 * diff_ranks.h - `moxie diff DIR --ranks N`.
 */
#ifndef MOXIE_DIFF_RANKS_H
#define MOXIE_DIFF_RANKS_H

#include "cli_ranks.h"

typedef struct diff_ranks_arguments {
    cli_layer_options layer; /* with the back end that both use */
    cli_ranks_options ranks;
    uint64_t seed;
    cli_states states;
} diff_ranks_arguments;

/* Compares N ranks with one, and prints what differs. Returns the exit code. */
int diff_ranks(const diff_ranks_arguments *args);

#endif
