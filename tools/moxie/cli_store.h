/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_store.h - experts that are read when a run needs them (docs/store.md): options of run, diff and bench, the store,
 * and its counters as a table or JSON.
 */
#ifndef MOXIE_CLI_STORE_H
#define MOXIE_CLI_STORE_H

#include "cli.h"

/* A child parser for --budget-ram, --budget-gpu, --cpu-experts, --policy, --max-inserts, --warm; its input is
 * a cli_layer_options. */
extern const struct argp cli_store_argp;
/* Refuses options that do not go with a store; `other` is one of them that was given, or NULL. --budget-gpu makes the
 * back end cuda. */
void cli_store_check(struct argp_state *state, cli_layer_options *options, const char *other);
/* Refuses --warm where it has no effect. A command that only plans calls it itself, unless it counts hits behind these
 * steps. */
void cli_store_check_warm(struct argp_state *state, const cli_layer_options *options);

/* Opens a store of one layer's file, or with layer -1 of all files of options->dir. */
moxie_status cli_store_open(const cli_layer_options *options, int64_t layer, moxie_store **out, moxie_error *error);
/* What a store of all files of options->dir would make of the budget; nothing is read. */
moxie_status cli_store_describe(const cli_layer_options *options, moxie_store_info *out, moxie_error *error);
/* What it made of the budget, and counters for each layer. */
void cli_store_print(moxie_store *store);
json_t *cli_store_json(moxie_store *store);

#endif
