/* SPDX-License-Identifier: Apache-2.0
 *
 * preset_layer.h - a layer of a preset: the options that choose it, and its configuration.
 */
#ifndef MOXIE_PRESET_LAYER_H
#define MOXIE_PRESET_LAYER_H

#include "cli.h"

typedef struct preset_choice {
    const char *name, *format, *acts_of; /* NULL: not given */
    int64_t experts;                     /* 0: all */
    bool no_shared;
} preset_choice;

/* A child parser for --preset, --format, --experts, --acts-of and --no-shared; its input is a preset_choice. */
extern const struct argp preset_argp;
/* Checks that the layer comes from a directory or from a preset, with matching options; or argp_error. */
void preset_check(struct argp_state *state, const preset_choice *choice, const cli_layer_options *layer);
/* "mxfp4-gptoss": the chosen format, or the preset's first. */
const char *preset_format(const preset_choice *choice);
/* The chosen configuration. Arrays that its routing may need (bias, table) are absent. */
moxie_status preset_config(const preset_choice *choice, const cli_layer_options *layer, moxie_layer_config *out,
                           moxie_error *error);

#endif
