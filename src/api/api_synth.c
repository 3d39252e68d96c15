/* SPDX-License-Identifier: Apache-2.0
 *
 * api_synth.c - the calls of moxie_ckpt.h about families, formats, presets and synthetic checkpoints:
 * moxie_family_at, moxie_checkpoint_format_*, moxie_dtype_block, moxie_preset_*, moxie_synth_write. Each checks its
 * arguments; src/ckpt does the work.
 */
#include <moxie/moxie_ckpt.h>

#include "activation/activation.h"
#include "ckpt/synth/synth.h"
#include "ckpt/synth/synth_gguf.h"
#include "ckpt/synth/synth_model.h"
#include "format/block.h"
#include "layer/config/struct_size.h"

static const char *gguf_architecture(const mox_preset *p)
{
    const bool latent = p->dims.expert_width > 0 && p->dims.expert_width != p->dims.hidden;
    return latent ? NULL : mox_gguf_architecture_of(mox_family_by_id(p->family), p->model_type);
}

int moxie_preset_at(int32_t i, moxie_preset_info *out)
{
    const mox_preset *p = mox_preset_at(i);
    if (!p || !out || mox_struct_check(out, MOX_STRUCT(moxie_preset_info), NULL) != MOXIE_OK)
        return 0;
    int32_t n_formats = 0;
    while (n_formats < (int32_t)(sizeof p->formats / sizeof p->formats[0]) && p->formats[n_formats])
        n_formats++;
    const moxie_preset_info info = { .name = p->name,
                                     .family = p->family,
                                     .experts = p->dims.experts,
                                     .top_k = p->dims.top_k,
                                     .hidden = p->dims.expert_width > 0 ? p->dims.expert_width : p->dims.hidden,
                                     .intermediate = p->dims.intermediate,
                                     .shared_intermediate = p->dims.shared_intermediate,
                                     .router_width = p->dims.hidden,
                                     .layers = p->dims.layers,
                                     .activation =
                                         mox_activation_of_kind(mox_family_by_id(p->family)->activation.kind)->name,
                                     .n_formats = n_formats,
                                     .formats = p->formats,
                                     .n_native = p->n_native,
                                     .layer_bytes = p->native_bytes_per_layer,
                                     .gguf_architecture = gguf_architecture(p) };
    mox_struct_write(&info, out, MOX_STRUCT(moxie_preset_info));
    return 1;
}

int moxie_family_at(int32_t i, moxie_family_info *out)
{
    const mox_family *f = mox_family_at(i);
    if (!f || !out || mox_struct_check(out, MOX_STRUCT(moxie_family_info), NULL) != MOXIE_OK)
        return 0;
    int32_t n_model_types = 0;
    while (n_model_types < MOX_MAX_SPELLINGS && f->model_types[n_model_types])
        n_model_types++;
    const moxie_family_info info = { .name = f->id,
                                     .model_types = f->model_types,
                                     .n_model_types = n_model_types,
                                     .architecture = f->architecture,
                                     .routing = f->routing,
                                     .activation = mox_activation_of_kind(f->activation.kind)->name };
    mox_struct_write(&info, out, MOX_STRUCT(moxie_family_info));
    return 1;
}

int32_t moxie_dtype_block(moxie_dtype dtype, int32_t *bytes)
{
    const mox_block *block = bytes ? mox_block_of(dtype) : NULL;
    if (!block)
        return 0;
    *bytes = block->bytes;
    return block->weights;
}

/* Formats of directories, then those of GGUF files. */
static const mox_hf_quant *format_at(int32_t i, const mox_gguf_recipe **recipe)
{
    int32_t n = 0;
    if (mox_hf_quant_at(i) || i < 0)
        return mox_hf_quant_at(i);
    while (mox_hf_quant_at(n))
        n++;
    *recipe = mox_gguf_recipe_at(i - n);
    return NULL;
}

int moxie_checkpoint_format_info_at(int32_t i, moxie_checkpoint_format_info *out)
{
    const mox_gguf_recipe *recipe = NULL;
    const mox_hf_quant *f = format_at(i, &recipe);
    if ((!f && !recipe) || !out || mox_struct_check(out, MOX_STRUCT(moxie_checkpoint_format_info), NULL) != MOXIE_OK)
        return 0;
    const moxie_checkpoint_format_info info = { .name = f ? f->id : recipe->id,
                                                .quant_method = f ? f->method : "gguf",
                                                .summary = f ? f->summary : recipe->summary };
    mox_struct_write(&info, out, MOX_STRUCT(moxie_checkpoint_format_info));
    return 1;
}

const char *moxie_checkpoint_format_at(int32_t i)
{
    const mox_gguf_recipe *recipe = NULL;
    const mox_hf_quant *row = format_at(i, &recipe);
    return row ? row->id : recipe ? recipe->id : NULL;
}

moxie_status moxie_synth_write(const char *preset, const char *dir, const moxie_synth_options *options,
                               moxie_error *error)
{
    MOX_FAIL_IF(!preset || !dir, MOXIE_ERR_ARGUMENT, error, "a preset's name and a directory are needed");
    moxie_synth_options known = MOXIE_SYNTH_OPTIONS_INIT;
    if (options)
        MOX_TRY(mox_struct_read(options, &known, MOX_STRUCT(moxie_synth_options), error));
    moxie_executor *executor = NULL;
    MOX_TRY(mox_executor_create(0, &executor, error));
    const moxie_status status = mox_synth_write(preset, dir, &known, executor, error);
    mox_executor_destroy(executor);
    return status;
}

static moxie_status gguf_config(const mox_synth_model *m, int64_t layer, moxie_layer_config *out, moxie_error *error)
{
    mox_gguf_target target;
    moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
    moxie_status status = mox_synth_gguf_target(m, &target, error);
    if (status == MOXIE_OK)
        status = mox_gguf_target_config(&target, layer, &config, error);
    mox_gguf_target_close(&target);
    if (status == MOXIE_OK)
        mox_struct_write(&config, out, MOX_STRUCT(moxie_layer_config));
    return status;
}

/* The configuration of the last layer. Models with hash routing have it in their first layers; the last one routes as
 * most layers do. */
moxie_status moxie_preset_config(const char *preset, const char *format, moxie_layer_config *out, moxie_error *error)
{
    MOX_FAIL_IF(!preset || !out, MOXIE_ERR_ARGUMENT, error, "a preset's name and a result are needed");
    MOX_TRY(mox_struct_check(out, MOX_STRUCT(moxie_layer_config), error));
    moxie_synth_options options = MOXIE_SYNTH_OPTIONS_INIT;
    options.format = format;
    mox_synth_model m;
    MOX_TRY(mox_synth_resolve(preset, &options, &m, error));
    const int64_t last = mox_preset_layer(m.preset, m.layers - 1);
    if (m.recipe)
        return gguf_config(&m, last, out, error);
    moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
    MOX_TRY(mox_family_layer_config(m.family, &m.dims, m.routed, m.shared, last, &config, error));
    mox_struct_write(&config, out, MOX_STRUCT(moxie_layer_config));
    return MOXIE_OK;
}
