/* SPDX-License-Identifier: Apache-2.0
 *
 * ct_presets.c - config groups of compressed-tensors that only name their scheme, written out:
 *
 *     "w4a16": ["Linear"]   ->   "w4a16": { "targets": ["Linear"], "weights": {...}, "input_activations": null }
 *
 * In the flow: once, when a model's configuration has been read; everything after it sees described groups only.
 * Source: compressed-tensors, QuantizationConfig.model_post_init and preset_name_to_scheme.
 */
#include "ckpt/formats/ct_presets.h"

#include <ctype.h>
#include <string.h>

typedef struct preset {
    const char *name, *weights, *inputs;
} preset;

static const preset presets[] = {
#define MOX_CT_PRESET(name, weights, inputs) { name, weights, inputs },
#include "ckpt/formats/ct_presets.def"
#undef MOX_CT_PRESET
};

/* Names are compared in upper case. */
static bool same_name(const char *upper, const char *name)
{
    while (*upper && *upper == toupper((unsigned char)*name))
        upper++, name++;
    return *upper == *name;
}

static const preset *find(const char *name)
{
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++)
        if (same_name(presets[i].name, name))
            return &presets[i];
    return NULL;
}

static json_t *side(const char *text)
{
    return *text ? json_loads(text, 0, NULL) : json_null();
}

bool mox_ct_expand_presets(json_t *quant_config)
{
    const char *method = json_string_value(json_object_get(quant_config, "quant_method"));
    json_t *groups = json_object_get(quant_config, "config_groups");
    if (!method || strcmp(method, "compressed-tensors") != 0)
        return true;
    for (void *i = json_object_iter(groups); i; i = json_object_iter_next(groups, i)) {
        json_t *targets = json_object_iter_value(i);
        const preset *named = json_is_array(targets) ? find(json_object_iter_key(i)) : NULL;
        if (!named)
            continue;
        json_t *group = json_pack("{s:O, s:o, s:o}", "targets", targets, "weights", side(named->weights),
                                  "input_activations", side(named->inputs));
        if (!group || json_object_iter_set_new(groups, i, group) != 0)
            return false;
    }
    return true;
}
