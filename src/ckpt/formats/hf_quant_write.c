/* SPDX-License-Identifier: Apache-2.0
 *
 * hf_quant_write.c - quantization_config as the releases of each format write it. Each family of tools has its own key
 * for the list of modules that are not quantized.
 */
#include <string.h>

#include "ckpt/formats/hf_quant_config.h"

/* Sets `key`; owns `object` and `value`, either of which may be NULL. NULL when out of memory. */
static json_t *with_key(json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) == 0)
        return object;
    json_decref(object);
    return NULL;
}

/* Adds `key`: [names]. Frees `config` and returns NULL when out of memory. */
static json_t *with_ignore(json_t *config, const char *key, const char *const *ignore, int64_t n_ignore)
{
    json_t *list = json_array();
    bool fine = config && list;
    for (int64_t i = 0; fine && i < n_ignore; i++)
        fine = json_array_append_new(list, json_string(ignore[i])) == 0;
    if (fine && n_ignore > 0)
        fine = json_object_set(config, key, list) == 0;
    json_decref(list);
    if (fine)
        return config;
    json_decref(config);
    return NULL;
}

json_t *mox_write_fp8_block(const mox_hf_quant *format, const char *const *ignore, int64_t n_ignore)
{
    json_t *config =
        json_pack("{s:s, s:s, s:s, s:[i,i]}", "activation_scheme", "dynamic", "fmt", "e4m3", "quant_method", "fp8",
                  "weight_block_size", (int)format->weight.group_rows, (int)format->weight.group_cols);
    return with_ignore(config, "modules_to_not_convert", ignore, n_ignore);
}

/* DeepSeek-V4's file does not mention the e2m1 of the experts: it has the blocks of the dense part. */
json_t *mox_write_fp8_block_ue8m0(const mox_hf_quant *format, const char *const *ignore, int64_t n_ignore)
{
    const int block = format->act.group_cols == 32 ? 32 : 128;
    json_t *config = json_pack("{s:s, s:s, s:s, s:s, s:[i,i]}", "activation_scheme", "dynamic", "fmt", "e4m3",
                               "quant_method", "fp8", "scale_fmt", "ue8m0", "weight_block_size", block, block);
    return with_ignore(config, "modules_to_not_convert", ignore, n_ignore);
}

json_t *mox_write_fp8_static(const mox_hf_quant *format, const char *const *ignore, int64_t n_ignore)
{
    (void)format;
    return with_ignore(json_pack("{s:s, s:s}", "activation_scheme", "static", "quant_method", "fp8"), "ignored_layers",
                       ignore, n_ignore);
}

json_t *mox_write_fp8_dynamic(const mox_hf_quant *format, const char *const *ignore, int64_t n_ignore)
{
    (void)format;
    return with_ignore(json_pack("{s:s, s:s}", "activation_scheme", "dynamic", "quant_method", "fp8"), "ignored_layers",
                       ignore, n_ignore);
}

json_t *mox_write_mxfp8(const mox_hf_quant *format, const char *const *ignore, int64_t n_ignore)
{
    (void)format;
    json_t *config = json_pack("{s:s, s:s, s:[i,i]}", "quant_method", "mxfp8", "activation_scheme", "dynamic",
                               "weight_block_size", 1, 32);
    return with_ignore(config, "ignored_layers", ignore, n_ignore);
}

json_t *mox_write_mxfp4(const mox_hf_quant *format, const char *const *ignore, int64_t n_ignore)
{
    (void)format;
    return with_ignore(json_pack("{s:s}", "quant_method", "mxfp4"), "modules_to_not_convert", ignore, n_ignore);
}

static const char *modelopt_algorithm(const mox_hf_quant *format)
{
    const moxie_quant *weight = &format->weight;
    if (weight->element == MOXIE_F4_E2M1)
        return format->act.element == MOXIE_DTYPE_NONE ? "W4A16_NVFP4" : "NVFP4";
    if (weight->element == MOXIE_I4)
        return "W4A16_AWQ";
    if (weight->scale == MOXIE_F8_E8M0)
        return "MXFP8";
    if (weight->group_rows > 1)
        return "FP8_PB_WO";
    return weight->group_rows == 1 ? "FP8_PER_CHANNEL_PER_TOKEN" : "FP8";
}

json_t *mox_write_modelopt(const mox_hf_quant *format, const char *const *ignore, int64_t n_ignore)
{
    json_t *config = json_pack("{s:s, s:s, s:{s:s, s:s}}", "quant_algo", modelopt_algorithm(format), "quant_method",
                               "modelopt", "producer", "name", "modelopt", "version", "0.41.0");
    const int64_t group = format->default_group ? format->default_group : format->weight.group_cols;
    if (group > 0)
        config = with_key(config, "group_size", json_integer(group));
    return with_ignore(config, "ignore", ignore, n_ignore);
}

/* Weights or activations of a compressed-tensors config group; JSON null when not quantized. */
static json_t *ct_side(const moxie_quant *quant, int32_t bits, int64_t group, bool dynamic)
{
    if (quant->element == MOXIE_DTYPE_NONE)
        return json_null();
    const bool real = mox_format_of(quant->element)->kind == MOX_KIND_FLOAT;
    const char *strategy = quant->global             ? "tensor_group"
                           : quant->group_rows > 1   ? "block"
                           : group > 0               ? "group"
                           : quant->group_rows == -1 ? "tensor"
                           : dynamic                 ? "token"
                                                     : "channel";
    json_t *side = json_pack("{s:n, s:n, s:b, s:n, s:i, s:s, s:s, s:b, s:s}", "actorder", "block_structure", "dynamic",
                             (int)dynamic, "group_size", "num_bits", (int)bits, "observer", "minmax", "strategy",
                             strategy, "symmetric", (int)!quant->has_zero, "type", real ? "float" : "int");
    if (quant->scale == MOXIE_F8_E8M0)
        side = with_key(side, "scale_dtype", json_string("torch.uint8"));
    if (quant->group_rows > 1)
        return with_key(side, "block_structure", json_pack("[i,i]", (int)quant->group_rows, (int)group));
    return group > 0 ? with_key(side, "group_size", json_integer(group)) : side;
}

static const char *ct_format(const moxie_quant *weight)
{
    switch (weight->element) {
    case MOXIE_F8_E4M3: return "float-quantized";
    case MOXIE_I8: return "int-quantized";
    case MOXIE_F6_E2M3: return "mxfp6-pack-quantized";
    case MOXIE_F4_E2M1: return weight->global ? "nvfp4-pack-quantized" : "mxfp4-pack-quantized";
    default: return "pack-quantized";
    }
}

json_t *mox_write_ct(const mox_hf_quant *format, const char *const *ignore, int64_t n_ignore)
{
    const int64_t group = format->default_group ? format->default_group : format->weight.group_cols;
    json_t *weights = ct_side(&format->weight, mox_hf_quant_stored_bits(format), group, false);
    /* NVFP4 activations have static globals and dynamic block scales: "local". */
    json_t *inputs =
        ct_side(&format->act, mox_dtype_bits(format->act.element), format->act.group_cols, !format->act.is_static);
    if (format->act.global)
        inputs = with_key(inputs, "dynamic", json_string("local"));
    json_t *config = json_pack("{s:{s:{s:o, s:n, s:[s], s:o}}, s:s, s:n, s:s, s:s}", "config_groups", "group_0",
                               "input_activations", inputs, "output_activations", "targets", "Linear", "weights",
                               weights, "format", ct_format(&format->weight), "kv_cache_scheme", "quant_method",
                               "compressed-tensors", "quantization_status", "compressed");
    return with_ignore(config, "ignore", ignore, n_ignore);
}

static json_t *quark_side(const moxie_quant *quant, int64_t group, bool dynamic)
{
    const char *dtype = quant->element == MOXIE_F4_E2M1   ? "fp4"
                        : quant->element == MOXIE_F6_E3M2 ? "fp6_e3m2"
                        : quant->element == MOXIE_F6_E2M3 ? "fp6_e2m3"
                        : quant->element == MOXIE_U4B8    ? "uint4"
                                                          : NULL;
    if (quant->element == MOXIE_F8_E4M3 && quant->is_static)
        return json_pack("{s:s, s:s, s:b}", "dtype", "fp8_e4m3", "qscheme", "per_tensor", "is_dynamic", 0);
    if (!dtype)
        return json_null();
    const bool mx = quant->scale == MOXIE_F8_E8M0;
    return json_pack("{s:s, s:s, s:I, s:i, s:s, s:s, s:b}", "dtype", dtype, "qscheme", "per_group", "group_size",
                     (json_int_t)group, "ch_axis", -1, "scale_format", mx ? "e8m0" : "float", "scale_type", "float",
                     "is_dynamic", (int)dynamic);
}

json_t *mox_write_quark(const mox_hf_quant *format, const char *const *ignore, int64_t n_ignore)
{
    const int64_t group = format->default_group ? format->default_group : format->weight.group_cols;
    json_t *config =
        json_pack("{s:s, s:{s:o, s:o}, s:{}, s:{s:s, s:s, s:[]}}", "quant_method", "quark", "global_quant_config",
                  "weight", quark_side(&format->weight, group, false), "input_tensors",
                  quark_side(&format->act, format->act.group_cols, true), "layer_quant_config", "export",
                  "weight_format", "real_quantized", "pack_method", "reorder", "kv_cache_group");
    return with_ignore(config, "exclude", ignore, n_ignore);
}

json_t *mox_write_ascend(const mox_hf_quant *format, const char *const *ignore, int64_t n_ignore)
{
    (void)format;
    return with_ignore(json_pack("{s:s, s:s}", "quant_method", "ascend", "model_quant_type", "W8A8_DYNAMIC"), "ignore",
                       ignore, n_ignore);
}

json_t *mox_write_w4afp8(const mox_hf_quant *format, const char *const *ignore, int64_t n_ignore)
{
    json_t *config = json_pack("{s:s, s:s}", "quant_method", "w4afp8", "activation_scheme",
                               format->act.is_static ? "static" : "dynamic");
    return with_ignore(config, "ignored_layers", ignore, n_ignore);
}

json_t *mox_write_awq(const mox_hf_quant *format, const char *const *ignore, int64_t n_ignore)
{
    json_t *config = json_pack("{s:i, s:I, s:s, s:s, s:b}", "bits", 4, "group_size", (json_int_t)format->default_group,
                               "quant_method", "awq", "version", "gemm", "zero_point", 1);
    return with_ignore(config, "modules_to_not_convert", ignore, n_ignore);
}

/* GPTQ has no plain list of modules: what is not quantized follows from the model class. */
json_t *mox_write_gptq(const mox_hf_quant *format, const char *const *ignore, int64_t n_ignore)
{
    (void)ignore, (void)n_ignore;
    return json_pack("{s:i, s:s, s:b, s:I, s:b, s:s, s:b, s:b, s:b, s:s}", "bits",
                     (int)mox_hf_quant_stored_bits(format), "checkpoint_format",
                     format->zero_add > 0 ? "gptq" : "gptq_v2", "desc_act", 0, "group_size",
                     (json_int_t)format->default_group, "lm_head", 0, "quant_method", "gptq", "static_groups", 0, "sym",
                     1, "true_sequential", 1, "pack_dtype", "int32");
}
