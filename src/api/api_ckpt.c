/* SPDX-License-Identifier: Apache-2.0
 *
 * api_ckpt.c - the calls of moxie_ckpt.h about model directories, moxie_model_*.
 *
 * Each checks its pointers and the sizes of structs, then calls src/ckpt, which knows only this library's structs:
 *
 *     caller's options -> known, as long as this library's -> src/ckpt -> known -> caller's result
 */
#include "ckpt/model/config_alone.h"
#include "ckpt/model/model.h"
#include "layer/config/reserved.h"
#include "layer/config/struct_size.h"

moxie_status moxie_model_open(const char *dir, const moxie_model_options *options, moxie_model **out,
                              moxie_error *error)
{
    MOX_FAIL_IF(!dir || !out, MOXIE_ERR_ARGUMENT, error, "moxie_model_open: dir or out is NULL");
    moxie_model_options known = MOXIE_MODEL_OPTIONS_INIT;
    if (options)
        MOX_TRY(mox_struct_read(options, &known, MOX_STRUCT(moxie_model_options), error));
    for (int64_t i = 0; known.tensors && i < known.n_tensors; i++) {
        MOX_RESERVED(moxie_named_tensor, &known.tensors[i], "options.tensors", error);
        MOX_RESERVED(moxie_tensor, &known.tensors[i].tensor, "options.tensors", error);
    }
    return mox_model_open(dir, &known, out, error);
}

void moxie_model_close(moxie_model *model)
{
    mox_model_close(model);
}

moxie_status moxie_model_get_info(const moxie_model *model, moxie_model_info *info, moxie_error *error)
{
    MOX_FAIL_IF(!model || !info, MOXIE_ERR_ARGUMENT, error, "moxie_model_get_info: model or info is NULL");
    MOX_TRY(mox_struct_check(info, MOX_STRUCT(moxie_model_info), error));
    moxie_model_info known;
    mox_model_get_info(model, &known);
    mox_struct_write(&known, info, MOX_STRUCT(moxie_model_info));
    return MOXIE_OK;
}

const char *moxie_model_warning(const moxie_model *model, int64_t index)
{
    return mox_model_warning(model, index);
}

const char *moxie_model_unread_key(const moxie_model *model, int64_t index)
{
    return mox_model_unread_key(model, index);
}

moxie_status moxie_model_describe_layer(const moxie_model *model, int64_t i, moxie_model_layer_info *info,
                                        moxie_error *error)
{
    MOX_FAIL_IF(!model || !info, MOXIE_ERR_ARGUMENT, error, "moxie_model_describe_layer: model or info is NULL");
    MOX_TRY(mox_struct_check(info, MOX_STRUCT(moxie_model_layer_info), error));
    moxie_model_layer_info known;
    MOX_TRY(mox_model_describe_layer(model, i, &known, error));
    mox_struct_write(&known, info, MOX_STRUCT(moxie_model_layer_info));
    return MOXIE_OK;
}

moxie_status moxie_model_load_layer(const moxie_model *model, int64_t layer, moxie_model_layer **out,
                                    moxie_error *error)
{
    MOX_FAIL_IF(!model || !out, MOXIE_ERR_ARGUMENT, error, "moxie_model_load_layer: model or out is NULL");
    return mox_model_load_layer(model, layer, out, error);
}

moxie_status moxie_config_layer(const char *dir, int64_t layer, const char *format, moxie_layer_config *out,
                                moxie_error *error)
{
    MOX_FAIL_IF(!dir || !out, MOXIE_ERR_ARGUMENT, error, "moxie_config_layer: dir or out is NULL");
    MOX_TRY(mox_struct_check(out, MOX_STRUCT(moxie_layer_config), error));
    moxie_layer_config known;
    MOX_TRY(mox_config_alone(dir, layer, format, &known, error));
    mox_struct_write(&known, out, MOX_STRUCT(moxie_layer_config));
    return MOXIE_OK;
}

void moxie_model_layer_free(moxie_model_layer *layer)
{
    mox_model_layer_free(layer);
}

const moxie_layer_config *moxie_model_layer_config(const moxie_model_layer *layer)
{
    return layer != NULL ? mox_model_layer_config(layer) : NULL;
}

const char *moxie_model_layer_unread(const moxie_model_layer *layer, int64_t index)
{
    return layer != NULL ? mox_model_layer_unread(layer, index) : NULL;
}

const moxie_weights *moxie_model_layer_weights(const moxie_model_layer *layer)
{
    return layer != NULL ? mox_model_layer_weights(layer) : NULL;
}

moxie_status moxie_model_visit_experts(const moxie_model *model, int64_t layer, moxie_tensor_fn visit, void *user,
                                       moxie_error *error)
{
    MOX_FAIL_IF(!model || !visit, MOXIE_ERR_ARGUMENT, error, "moxie_model_visit_experts: model or visit is NULL");
    return mox_model_visit_experts(model, layer, visit, user, error);
}

moxie_status moxie_model_expert_prefix(const moxie_model *model, int64_t layer, char *buffer, size_t size,
                                       moxie_error *error)
{
    MOX_FAIL_IF(!model || !buffer, MOXIE_ERR_ARGUMENT, error, "moxie_model_expert_prefix: model or buffer is NULL");
    return mox_model_expert_prefix(model, layer, buffer, size, error);
}
