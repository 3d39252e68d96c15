/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_run.h - what `moxie run` was asked for and what came out of it: cmd_run.c runs, run_report.c prints.
 */
#ifndef MOXIE_CMD_RUN_H
#define MOXIE_CMD_RUN_H

#include "cli_adapters.h"
#include "cli_ranks.h"
#include "preset_layer.h"

typedef struct run_arguments {
    cli_layer_options layer;
    preset_choice preset; /* without a name: a directory's layer */
    const char *input, *output;
    uint64_t seed;
    cli_states states;
    bool random;   /* an option for random hidden states was given */
    bool has_seed; /* --seed was given */
    cli_ranks_options ranks;
    cli_adapters adapters;
} run_arguments;

/* The arrays that a run fills, and what ran: of many ranks the first one's plan. */
typedef struct run_results {
    void *output;
    int32_t *ids;
    float *weights, *logits;
    double seconds, prepare_seconds;
    const moxie_plan *plan;
    uint64_t record_bytes;
} run_results;

/* ranks->ranks is 0 when the layer ran on one. */
void run_print_text(const run_arguments *args, const cli_layer *layer, const cli_input *input, const run_results *r,
                    const cli_ranks *ranks);
void run_print_json(const run_arguments *args, const cli_layer *layer, const cli_input *input, const run_results *r,
                    const cli_ranks *ranks);

#endif
