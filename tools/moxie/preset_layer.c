/* SPDX-License-Identifier: Apache-2.0
 *
 * preset_layer.c - a layer without a checkpoint, as `--preset NAME` and its options choose it.
 *
 *     preset, format  ->  configuration  ->  fewer experts, other activations, no shared expert
 */
#include "preset_layer.h"

#include <string.h>

enum { OPT_PRESET = 1200, OPT_FORMAT, OPT_EXPERTS, OPT_ACTS_OF, OPT_NO_SHARED };

static const struct argp_option options[] = {
    { "preset", OPT_PRESET, "NAME", 0, "a model of `moxie synth --list`", 0 },
    { "format", OPT_FORMAT, "NAME", 0, "number format of the preset (default: its first)", 0 },
    { "experts", OPT_EXPERTS, "N", 0, "only N experts of the preset", 0 },
    { "acts-of", OPT_ACTS_OF, "NAME", 0,
      "the preset's activations quantized as one of vLLM's scheme constructors does it: mxfp4_mxfp8, fp8_w8a8, ...",
      0 },
    { "no-shared", OPT_NO_SHARED, NULL, 0, "the preset without its shared expert: the routed experts alone", 0 },
    { 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    preset_choice *choice = state->input;
    switch (key) {
    case OPT_PRESET:
        cli_parse_name(state, &cli_presets, arg);
        choice->name = arg;
        return 0;
    case OPT_FORMAT:
        cli_parse_name(state, &cli_formats, arg);
        choice->format = arg;
        return 0;
    case OPT_ACTS_OF:
        cli_parse_name(state, &cli_schemes, arg);
        choice->acts_of = arg;
        return 0;
    case OPT_EXPERTS: choice->experts = cli_parse_int(state, "--experts", arg, 1, MOXIE_MAX_EXPERTS); return 0;
    case OPT_NO_SHARED: choice->no_shared = true; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

const struct argp preset_argp = { options, parse, NULL, NULL, NULL, NULL, NULL };

void preset_check(struct argp_state *state, const preset_choice *choice, const cli_layer_options *layer)
{
    const char *lone = choice->format      ? "--format"
                       : choice->experts   ? "--experts"
                       : choice->acts_of   ? "--acts-of"
                       : choice->no_shared ? "--no-shared"
                                           : NULL;
    if (layer->dir && choice->name)
        argp_error(state,
                   "a directory and --preset exclude each other, for one layer is meant: leave \"%s\" or --preset "
                   "%s out",
                   cli_printable(layer->dir), choice->name);
    if (choice->name && layer->access != MOXIE_EXPERT_MAP)
        argp_error(state, "--load is for a directory of expert files, and --preset makes a layer up in memory");
    if (!choice->name && lone)
        argp_error(state, "%s goes with --preset NAME, which is not given%s", lone,
                   layer->dir ? "; a checkpoint has its own" : "");
    if (!choice->name && !layer->dir)
        argp_error(state,
                   "one layer is needed, and none is named: give a checkpoint's directory, or --preset NAME (`moxie "
                   "synth --list` lists them)");
    cli_check_checkpoint(state, layer);
    if (choice->name && layer->layer >= 0)
        argp_error(state, "--layer goes with a directory; the layers of a preset are alike: leave --layer out");
}

static moxie_preset_info find(const char *name)
{
    moxie_preset_info info = MOXIE_PRESET_INFO_INIT;
    for (int32_t i = 0; moxie_preset_at(i, &info) && strcmp(info.name, name) != 0;)
        i++;
    return info;
}

const char *preset_format(const preset_choice *choice)
{
    return choice->format ? choice->format : find(choice->name).formats[0];
}

/* Replaces the format's activations of the routed experts by those of the options. */
static moxie_status choose_activations(const char *acts_of, int32_t activations, moxie_layer_config *config,
                                       moxie_error *error)
{
    const moxie_scheme_args nothing = MOXIE_SCHEME_ARGS_INIT;
    moxie_scheme scheme = MOXIE_SCHEME_INIT;
    if (activations == MOXIE_ACTIVATIONS_16BIT)
        config->a13 = config->a2 = config->shared.a13 = config->shared.a2 = (moxie_quant) { 0 };
    if (activations == MOXIE_ACTIVATIONS_GGML) {
        snprintf(error->text, sizeof error->text, "activations as ggml quantizes them are for GGUF files");
        return MOXIE_ERR_ARGUMENT;
    }
    if (!acts_of)
        return MOXIE_OK;
    const moxie_status status = moxie_scheme_make(acts_of, &nothing, &scheme, error);
    if (status == MOXIE_OK) {
        config->a13 = scheme.a13;
        config->a2 = scheme.act2;
    }
    return status;
}

moxie_status preset_config(const preset_choice *choice, const cli_layer_options *layer, moxie_layer_config *out,
                           moxie_error *error)
{
    *out = (moxie_layer_config)MOXIE_LAYER_CONFIG_INIT;
    moxie_status status = moxie_preset_config(choice->name, choice->format, out, error);
    if (status == MOXIE_OK)
        status = choose_activations(choice->acts_of, layer->activations, out, error);
    if (status != MOXIE_OK)
        return status;
    if (choice->no_shared && out->shared.intermediate == 0)
        return cli_error(MOXIE_ERR_ARGUMENT, error, "", "preset %s has no shared expert: leave --no-shared out",
                         choice->name);
    if (choice->no_shared)
        out->shared = (moxie_shared_config) { 0 };
    if (choice->experts)
        out->experts = choice->experts;
    out->round_results = layer->round_results;
    return MOXIE_OK;
}
