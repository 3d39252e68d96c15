/* SPDX-License-Identifier: Apache-2.0
 *
 * synth_model.c - a preset cut down to what a caller asked for: its format, fewer layers or experts, smaller sizes.
 */
#include "ckpt/synth/synth_model.h"

#include <stdio.h>
#include <string.h>

#include "base/sizes.h"

/* An unknown format. The error lists all, since --list shows only what was released. */
static moxie_status no_such_format(const char *id, const mox_preset *preset, moxie_error *error)
{
    char names[640] = "", escaped[64];
    size_t used = 0;
    const mox_hf_quant *known_format;
    for (int32_t i = 0; (known_format = mox_hf_quant_at(i)) != NULL && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, " %s", known_format->id);
    return mox_fail(MOXIE_ERR_ARGUMENT, error, "there is no format \"%s\"; %s was released as %s, all formats are:%s",
                    mox_escape(escaped, sizeof escaped, id), preset->name, preset->formats[0], names);
}

static moxie_status choose_formats(const char *format, mox_synth_model *m, moxie_error *error)
{
    const char *id = format ? format : m->preset->formats[0];
    m->recipe = mox_gguf_recipe_by_id(id);
    m->routed = mox_hf_quant_by_id(m->recipe ? "bf16" : id);
    if (!m->routed)
        return no_such_format(id, m->preset, error);
    m->shared = m->routed;
    if (m->preset->shared_format && !mox_quant_is_plain(&m->routed->weight))
        m->shared = mox_hf_quant_by_id(m->preset->shared_format);
    MOX_FAIL_IF(!m->shared, MOXIE_ERR_UNSUPPORTED, error,
                "preset %s: the format %s of its shared expert is not in hf_quant.def", m->preset->name,
                m->preset->shared_format);
    return MOXIE_OK;
}

static moxie_status reduce_layers(int64_t layers, mox_synth_model *m, moxie_error *error)
{
    MOX_FAIL_IF(layers < 0 || layers > m->preset->dims.layers, MOXIE_ERR_ARGUMENT, error,
                "%lld layers were asked for; %s has %lld with experts: give 1 to %lld", (long long)layers,
                m->preset->name, (long long)m->preset->dims.layers, (long long)m->preset->dims.layers);
    m->layers = layers > 0 ? layers : m->preset->dims.layers;
    m->dims.layers = mox_preset_layer(m->preset, m->layers - 1) + 1;
    return MOXIE_OK;
}

static moxie_status reduce_experts(int64_t experts, mox_synth_model *m, moxie_error *error)
{
    if (experts == 0)
        return MOXIE_OK;
    const mox_dims *d = &m->preset->dims;
    MOX_FAIL_IF(experts < d->top_k || experts > MOXIE_MAX_EXPERTS, MOXIE_ERR_ARGUMENT, error,
                "%lld expert%s asked for; %s chooses %lld a token, so give %lld to %d", (long long)experts,
                experts == 1 ? " was" : "s were", m->preset->name, (long long)d->top_k, (long long)d->top_k,
                MOXIE_MAX_EXPERTS);
    if (d->n_group > 1) {
        /* A group is scored by its two best experts, and the selected groups must hold top_k. */
        const int64_t min_per_group = mox_max_i64(2, mox_ceil_div(d->top_k, d->topk_group));
        MOX_FAIL_IF(experts % d->n_group != 0 || experts / d->n_group < min_per_group, MOXIE_ERR_ARGUMENT, error,
                    "%lld experts do not fill the %lld groups of %s; give a multiple of %lld, %lld at least",
                    (long long)experts, (long long)d->n_group, m->preset->name, (long long)d->n_group,
                    (long long)(min_per_group * d->n_group));
    }
    m->dims.experts = experts;
    return MOXIE_OK;
}

/* Shared width and latent width keep their ratio to the sizes that change. */
static moxie_status reduce_sizes(int64_t hidden, int64_t intermediate, mox_synth_model *m, moxie_error *error)
{
    const mox_dims *d = &m->preset->dims;
    const int64_t limit = INT64_C(1) << 24;
    MOX_FAIL_IF(hidden < 0 || intermediate < 0 || hidden > limit || intermediate > limit, MOXIE_ERR_ARGUMENT, error,
                "hidden %lld and intermediate %lld must be from 1 to %lld, 0 for the real size", (long long)hidden,
                (long long)intermediate, (long long)limit);
    m->dims.hidden = hidden > 0 ? hidden : d->hidden;
    m->dims.intermediate = intermediate > 0 ? intermediate : d->intermediate;
    m->dims.shared_intermediate = m->dims.intermediate * d->shared_intermediate / d->intermediate;
    const int64_t width = d->expert_width > 0 ? d->expert_width : d->hidden;
    MOX_FAIL_IF(m->dims.hidden * width % d->hidden != 0, MOXIE_ERR_ARGUMENT, error,
                "hidden %lld: the experts of %s are %lld wide for %lld, give a multiple of %lld", (long long)hidden,
                m->preset->name, (long long)width, (long long)d->hidden, (long long)(d->hidden / width));
    m->dims.expert_width = m->dims.hidden * width / d->hidden;
    return MOXIE_OK;
}

moxie_status mox_synth_resolve(const char *preset, const moxie_synth_options *options, mox_synth_model *out,
                               moxie_error *error)
{
    const moxie_synth_options defaults = MOXIE_SYNTH_OPTIONS_INIT;
    const moxie_synth_options *o = options ? options : &defaults;
    mox_synth_model m = { .preset = mox_preset_by_name(preset), .seed = o->seed };
    char escaped[96];
    MOX_FAIL_IF(!m.preset, MOXIE_ERR_ARGUMENT, error, "there is no preset \"%s\"; `moxie synth --list` shows them",
                mox_escape(escaped, sizeof escaped, preset));
    m.dims = m.preset->dims;
    m.family = mox_family_by_id(m.preset->family);
    MOX_FAIL_IF(!m.family, MOXIE_ERR_UNSUPPORTED, error, "preset %s: its family %s is not in families.def", preset,
                m.preset->family);
    MOX_TRY(choose_formats(o->format, &m, error));
    MOX_TRY(reduce_layers(o->layers, &m, error));
    MOX_TRY(reduce_experts(o->experts, &m, error));
    MOX_TRY(reduce_sizes(o->hidden, o->intermediate, &m, error));
    *out = m;
    return MOXIE_OK;
}
