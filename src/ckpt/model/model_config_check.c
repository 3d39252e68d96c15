/* SPDX-License-Identifier: Apache-2.0
 *
 * model_config_check.c - reads a config.json or a quantization configuration in full, without tensors: for fuzzing and
 * linting.
 */
#include "ckpt/families/family_config.h"
#include "ckpt/formats/hf_quant_config.h"
#include "ckpt/formats/module_rules.h"
#include "ckpt/formats/quant_keys.h"
#include "ckpt/model/model.h"

static moxie_status check_config(const json_t *config, moxie_error *error)
{
    const mox_family *family;
    const char *type;
    MOX_TRY(mox_config_family(config, "config.json", &family, &type, error));
    const int64_t layers[] = { 0, 1, 61 };
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        mox_dims dims;
        moxie_layer_config layer;
        MOX_TRY(mox_config_layer(family, config, "config.json", layers[i], &dims, &layer, error));
    }
    return MOXIE_OK;
}

#define MODULE "model.layers.3.mlp.experts.7.gate_proj"

/* The rules for a module and the list of keys must accept any text. *own: the configuration of the module, to be
 * released; a pattern that is not understood gives that of no module. */
static moxie_status check_rules(const json_t *quant_config, mox_arena *arena, json_t **own, moxie_error *error)
{
    mox_module_rules rules;
    mox_module_choice choice;
    const char **keys;
    int64_t count;
    MOX_TRY(mox_quant_unread_keys(quant_config, arena, &keys, &count, error));
    MOX_TRY(mox_module_rules_create(quant_config, arena, &rules, error));
    if (mox_module_rules_choose(&rules, MODULE, false, &choice, NULL) != MOXIE_OK)
        choice = (mox_module_choice) { .absent = true };
    *own = mox_module_rules_config(&rules, &choice);
    MOX_FAIL_IF(!*own, MOXIE_ERR_MEMORY, error, "no memory for the configuration of a module");
    return MOXIE_OK;
}

/* resolve() of every format must accept any text, and its result must still be a valid quantization. */
static moxie_status check_formats(const json_t *quant_config, const json_t *config, moxie_error *error)
{
    for (int32_t i = 0; mox_hf_quant_at(i); i++) {
        mox_hf_quant format = *mox_hf_quant_at(i);
        if (format.resolve && !format.resolve(quant_config, config, &format))
            continue;
        const moxie_quant weight = mox_hf_quant_weight(&format, 4096);
        MOX_TRY(mox_quant_check_weight(&weight, format.id, error));
        MOX_TRY(mox_quant_check_act(&format.act, format.id, error));
    }
    return MOXIE_OK;
}

static moxie_status check_quant_config(const json_t *quant_config, const json_t *config, moxie_error *error)
{
    char text[256];
    mox_arena arena = { 0 };
    json_t *own = NULL;
    mox_quant_config_describe(quant_config, text, sizeof text);
    mox_quant_config_excludes(quant_config, MODULE);
    moxie_status status = check_rules(quant_config, &arena, &own, error);
    if (status == MOXIE_OK)
        status = check_formats(quant_config, config, error);
    if (status == MOXIE_OK)
        status = check_formats(own, config, error);
    json_decref(own);
    mox_arena_free(&arena);
    return status;
}

moxie_status mox_model_config_check_text(const char *text, uint64_t size, moxie_error *error)
{
    json_t *config;
    MOX_TRY(mox_json_parse(text, size, true, "config.json", &config, error));
    moxie_status status = check_config(config, error);
    if (status == MOXIE_OK)
        status = check_quant_config(mox_quant_config_find(config), config, error);
    json_decref(config);
    return status;
}

moxie_status mox_quant_config_check_text(const char *text, uint64_t size, moxie_error *error)
{
    json_t *file;
    MOX_TRY(mox_json_parse(text, size, true, "hf_quant_config.json", &file, error));
    const moxie_status status = check_quant_config(mox_quant_config_from_file(file), NULL, error);
    json_decref(file);
    return status;
}
