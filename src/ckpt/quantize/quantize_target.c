/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_target.c - which family a quantized directory is written for (quantize_target.h).
 */
#include "ckpt/quantize/quantize_target.h"

#include <stdio.h>
#include <string.h>

#include "ckpt/families/layer_difference.h"
#include "ckpt/gguf/gguf_keys.h"
#include "ckpt/gguf/gguf_target.h"
#include "ckpt/model/model.h"
#include "ckpt/model/model_scan.h"

/* ---- one family -------------------------------------------------------------------------------------- */

/* The sizes in GGUF's metadata, as the family's config.json says them. */
static mox_dims dims_for(const mox_family *family, mox_dims dims, const moxie_layer_config *layer)
{
    dims.norm_topk = mox_routing_form_of(&layer->routing).normalised;
    dims.shared_intermediate = layer->shared.intermediate;
    if (dims.n_group <= 1 && family->default_n_group != MOX_REQUIRED)
        dims.n_group = dims.topk_group = 0;
    return dims;
}

/* What the family has no place for, or has and the file has not; NULL: nothing. */
static const char *missing_part(const mox_family *family, const mox_dims *dims, const moxie_layer_config *source)
{
    const bool has_bias = source->routing.bias != NULL;
    if (family->other_has_images || family->names.table || family->names.per_expert_scale ||
        family->names.router_scale || family->names.expert_norm)
        return "tensors of the router";
    if ((has_bias && !family->names.correction_bias) || (!has_bias && family->correction_always))
        return "the bias that experts are chosen with";
    if (source->router_has_bias && !family->names.router_bias)
        return "the router's bias";
    if ((dims->logit_factor != 0 && dims->logit_factor != 1) || (dims->shared_scale != 0 && dims->shared_scale != 1))
        return "a factor of logits, or of the shared expert";
    return NULL;
}

/* The family's layer of this config.json, compared with the file's. NULL: it computes the same. */
static const char *compare(const mox_family *family, const json_t *config, const moxie_model_layer *source)
{
    moxie_layer_config made = MOXIE_LAYER_CONFIG_INIT;
    const moxie_layer_config *from = &source->config;
    const mox_hf_quant *bf16 = mox_hf_quant_by_id("bf16");
    mox_dims dims;
    moxie_error ignored = { 0 };
    if (mox_config_layer(family, config, "config.json", source->info.layer, &dims, &made, &ignored) != MOXIE_OK)
        return "a key of its configuration that metadata does not have";
    const int64_t shared = from->shared.intermediate;
    const char *found = missing_part(family, &dims, from);
    if (!found && dims.shared_intermediate != shared && dims.shared_intermediate != MOX_SHARED_UNKNOWN)
        found = "the size of the shared expert";
    dims.shared_intermediate = shared;
    mox_layer_config_formats(family, &dims, bf16, bf16, &made);
    made.router_has_bias = made.router_has_bias || (family->names.router_bias && from->router_has_bias);
    return found ? found : mox_layer_difference(from, &made);
}

static moxie_status try_family(const moxie_model *model, const mox_family *family, const char *model_type,
                               json_t **config, const char **difference, moxie_error *error)
{
    moxie_layer_config ignored = MOXIE_LAYER_CONFIG_INIT;
    mox_dims dims;
    json_t *made = NULL;
    moxie_status status = MOXIE_OK;
    *difference = NULL;
    for (int64_t i = 0; i < model->n_places && status == MOXIE_OK && !*difference; i++) {
        moxie_model_layer *layer = NULL;
        const int64_t number = model->places[i].layer;
        status = mox_model_load_layer(model, number, &layer, error);
        if (status == MOXIE_OK && !made) {
            status = mox_config_layer(model->family, model->config, model->config_path, number, &dims, &ignored, error);
            dims = dims_for(family, dims, &layer->config);
            made = status == MOXIE_OK ? mox_family_config_json(family, &dims, model_type) : NULL;
            if (status == MOXIE_OK && !made)
                status = mox_fail(MOXIE_ERR_MEMORY, error, "no memory for config.json");
        }
        if (status == MOXIE_OK)
            *difference = compare(family, made, layer);
        mox_model_layer_free(layer);
    }
    if (status == MOXIE_OK && !*difference)
        *config = made;
    else
        json_decref(made);
    return status;
}

/* ---- the families of an architecture ----------------------------------------------------------------- */

static moxie_status find_family(const moxie_model *model, mox_quantize_target *out, moxie_error *error)
{
    const char *id, *type, *architecture, *difference = NULL, *tried = NULL;
    for (int32_t i = 0; mox_gguf_family_row(i, &id, &type, &architecture); i++) {
        const mox_family *family = mox_family_by_id(id);
        if (!architecture || strcmp(architecture, model->model_type) != 0 || !family)
            continue;
        MOX_TRY(try_family(model, family, type, &out->made, &difference, error));
        tried = id;
        if (!difference) {
            out->family = family;
            out->config = out->made;
            out->config_path = "config.json";
            MOX_FAIL_IF(!mox_gguf_keys_to_config(model->model_type, model->set, out->made), MOXIE_ERR_MEMORY, error,
                        "no memory for config.json");
            return MOXIE_OK;
        }
    }
    if (!tried)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, model->config_path, -1,
                             "no family of checkpoint directories is known for the architecture %s: choose a gguf "
                             "format",
                             model->model_type);
    return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, model->config_path, -1,
                         "checkpoint directories of family %s have no place for %s as this file of architecture %s "
                         "has it: choose a gguf format",
                         tried, difference, model->model_type);
}

moxie_status mox_quantize_target_open(const moxie_model *model, mox_quantize_target *out, moxie_error *error)
{
    *out =
        (mox_quantize_target) { .family = model->family, .config = model->config, .config_path = model->config_path };
    return model->gguf ? find_family(model, out, error) : MOXIE_OK;
}

void mox_quantize_target_close(mox_quantize_target *target)
{
    json_decref(target->made);
    *target = (mox_quantize_target) { 0 };
}

moxie_status mox_quantize_target_layer(const mox_quantize_target *target, const moxie_model *model, int64_t layer,
                                       mox_family *family, mox_dims *dims, moxie_error *error)
{
    const mox_layer_place *place = NULL;
    moxie_layer_config ignored = MOXIE_LAYER_CONFIG_INIT;
    MOX_TRY(mox_model_find_place(model, layer, &place, error));
    *family = *target->family;
    if (!target->made) {
        family->prefixes[0] = family->prefixes[place->prefix];
        if (place->other)
            family->names = family->other_names;
    }
    return mox_config_layer(target->family, target->config, target->config_path, layer, dims, &ignored, error);
}
