/* SPDX-License-Identifier: Apache-2.0
 *
 * config_alone.c - a layer's configuration from config.json alone:
 *
 *     config.json -> family -> sizes, activation, routing, norms     as for a model with tensors (model_layer.c)
 *     a checkpoint format's name -> quantization of weights and activations, biases     as for a preset
 */
#include "ckpt/model/config_alone.h"

#include "ckpt/families/family_config.h"
#include "ckpt/json.h"
#include "ckpt/no_model.h"

#include <string.h>
#include <unistd.h>

/* nvidia/MiniMax-M3-NVFP4's config.json has 3 MB. */
#define CONFIG_LIMIT ((uint64_t)64 << 20)

static const char *unquantized(moxie_dtype dtype)
{
    return dtype == MOXIE_F16 ? "f16" : dtype == MOXIE_F32 ? "f32" : "bf16";
}

static moxie_status read_layer(const json_t *config, const char *file, int64_t layer, const char *format,
                               moxie_layer_config *out, moxie_error *error)
{
    const mox_family *family;
    const char *type;
    mox_dims dims;
    moxie_layer_config c;
    MOX_TRY(mox_config_family(config, file, &family, &type, error));
    MOX_TRY(mox_config_layer(family, config, file, layer, &dims, &c, error));
    const mox_hf_quant *quant = mox_hf_quant_by_id(format ? format : unquantized(c.dtype));
    MOX_FAIL_IF(!quant, MOXIE_ERR_ARGUMENT, error,
                "there is no checkpoint format \"%s\": moxie_checkpoint_format_at() names them", format);
    mox_layer_config_formats(family, &dims, quant, quant, &c);
    *out = c;
    return MOXIE_OK;
}

moxie_status mox_config_alone(const char *dir, int64_t layer, const char *format, moxie_layer_config *out,
                              moxie_error *error)
{
    char path[4096];
    json_t *config = NULL;
    const int length = snprintf(path, sizeof path, "%s/config.json", dir);
    MOX_FAIL_IF(length < 0 || (size_t)length >= sizeof path, MOXIE_ERR_ARGUMENT, error,
                "the directory's name is too long");
    if (access(path, F_OK) != 0)
        return mox_no_model(dir, error);
    MOX_TRY(mox_json_load(path, CONFIG_LIMIT, true, &config, error));
    const moxie_status status = read_layer(config, path, layer, format, out, error);
    json_decref(config);
    return status;
}
