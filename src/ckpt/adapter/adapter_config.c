/* SPDX-License-Identifier: Apache-2.0
 *
 * adapter_config.c - reads PEFT's adapter_config.json (adapter_files.h). A setting that changes what an adapter
 * computes is read or refused; one that only says how it was trained is ignored.
 */
#include <math.h>
#include <string.h>

#include "ckpt/adapter/adapter_files.h"
#include "ckpt/json.h"

#define MAX_CONFIG_BYTES (UINT64_C(16) << 20)

/* Keys with which an adapter is more than s B A, unless their value is off. */
static const struct {
    const char *key, *means;
} refused[] = {
    { "use_dora", "DoRA scales the columns of the changed weight" },
    { "use_qalora", "QA-LoRA pools the input" },
    { "use_bdlora", "block-diagonal factors" },
    { "lora_bias", "a bias in B" },
    { "fan_in_fan_out", "transposed weights" },
    { "layer_replication", "layers that are used twice" },
    { "alora_invocation_tokens", "an adapter that begins at a token" },
    { "alpha_pattern", "an alpha for each module" },
    { "rank_pattern", "a rank for each module" },
    { "megatron_config", "Megatron's layers" },
    { "velora_config", "VeLoRA's factors" },
    { "arrow_config", "routing between adapters" },
};

static bool is_off(const json_t *value)
{
    return value == NULL || json_is_null(value) || json_is_false(value) ||
           (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0);
}

static moxie_status check(const json_t *config, const char *path, moxie_error *error)
{
    const char *type, *bias;
    MOX_TRY(mox_json_string(config, "peft_type", "LORA", path, &type, error));
    MOX_TRY(mox_json_string(config, "bias", "none", path, &bias, error));
    if (strcmp(type, "LORA") != 0)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, path, -1,
                             "peft_type is \"%.40s\"; adapters of type LORA can be read", type);
    if (strcmp(bias, "none") != 0)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, path, -1,
                             "bias is \"%.40s\": the adapter changes biases; moxie reads adapters with bias \"none\"",
                             bias);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (!is_off(json_object_get(config, refused[i].key)))
            return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, path, -1,
                                 "%s is set (%s); moxie reads adapters that are B A times one scale: merge this one "
                                 "into the weights",
                                 refused[i].key, refused[i].means);
    return MOXIE_OK;
}

static moxie_status read_numbers(const json_t *config, const char *path, mox_adapter_config *out, moxie_error *error)
{
    const json_t *rank = json_object_get(config, "r"), *alpha = json_object_get(config, "lora_alpha");
    if (!json_is_integer(rank) || json_integer_value(rank) < 1 || json_integer_value(rank) > MOXIE_MAX_ADAPTER_RANK)
        return mox_fail_file(MOXIE_ERR_FORMAT, error, path, -1, "r must be a whole number from 1 to %d",
                             MOXIE_MAX_ADAPTER_RANK);
    if (!json_is_number(alpha) || !isfinite(json_number_value(alpha)) || json_number_value(alpha) == 0)
        return mox_fail_file(MOXIE_ERR_FORMAT, error, path, -1, "lora_alpha must be a finite number other than 0");
    out->rank = json_integer_value(rank);
    out->alpha = json_number_value(alpha);
    out->rank_stabilised = json_is_true(json_object_get(config, "use_rslora"));
    return MOXIE_OK;
}

moxie_status mox_adapter_config_read(const char *dir, mox_adapter_config *out, moxie_error *error)
{
    mox_arena arena = { 0 };
    json_t *config = NULL;
    const char *path = mox_arena_printf(&arena, "%s/adapter_config.json", dir);
    moxie_status status = path != NULL ? mox_json_load(path, MAX_CONFIG_BYTES, true, &config, error)
                                       : mox_fail(MOXIE_ERR_MEMORY, error, "no memory for a path");
    if (status == MOXIE_OK && !json_is_object(config))
        status = mox_fail_file(MOXIE_ERR_FORMAT, error, path, -1, "the file holds no JSON object");
    if (status == MOXIE_OK)
        status = check(config, path, error);
    if (status == MOXIE_OK)
        status = read_numbers(config, path, out, error);
    json_decref(config);
    mox_arena_free(&arena);
    return status;
}
