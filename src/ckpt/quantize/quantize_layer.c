/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_layer.c - which tensors a layer's routed experts become (quantize_layer.h). mox_enumerate_layer() lists them
 * for the family and the new format. Their names are the source's; where that is a GGUF file, the family's.
 */
#include "ckpt/quantize/quantize_layer.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

#include "base/sizes.h"
#include "ckpt/model/model.h"
#include "ckpt/quantize/quantize_plain.h"

static moxie_status count_spec(void *user, const mox_tensor_spec *spec, moxie_error *error)
{
    (void)error;
    mox_quantize_layer *l = user;
    l->room += mox_quantize_is_routed(spec);
    return MOXIE_OK;
}

/* Parts of one matrix come one after the other, its codes first. */
static moxie_status add_spec(void *user, const mox_tensor_spec *spec, moxie_error *error)
{
    (void)error;
    mox_quantize_layer *l = user;
    if (!mox_quantize_is_routed(spec))
        return MOXIE_OK;
    if (spec->part->role == MOX_PART_CODES)
        l->stored[l->n_stored++] = (mox_quantize_stored) { .kind = spec->kind,
                                                           .expert = spec->expert,
                                                           .rows = spec->rows,
                                                           .cols = spec->cols,
                                                           .first = l->n_specs,
                                                           .interleaved = spec->interleaved };
    l->specs[l->n_specs++] = *spec;
    l->stored[l->n_stored - 1].count++;
    return MOXIE_OK;
}

static moxie_status list_tensors(const moxie_model *model, const mox_quantize_target *target, mox_quantize_layer *l,
                                 moxie_error *error)
{
    mox_family family;
    mox_dims dims;
    MOX_TRY(mox_quantize_target_layer(target, model, l->layer, &family, &dims, error));
    dims.experts = l->n_experts;
    dims.shared_intermediate = 0;
    const mox_hf_quant *format = l->how.format;
    MOX_TRY(mox_enumerate_layer(&family, &dims, format, format, l->layer, count_spec, l, error));
    l->specs = mox_arena_calloc(&l->arena, (uint64_t)l->room, sizeof *l->specs);
    l->stored = mox_arena_calloc(&l->arena, (uint64_t)l->room, sizeof *l->stored);
    MOX_FAIL_IF(!l->specs || !l->stored, MOXIE_ERR_MEMORY, error, "no memory for a list of %lld tensors",
                (long long)l->room);
    return mox_enumerate_layer(&family, &dims, format, format, l->layer, add_spec, l, error);
}

/* ---- activations ------------------------------------------------------------------------------------- */

/* The magnitude that the source's static scale stands for, the largest of all experts; 0: it has none. */
static double source_amax(const moxie_quant *act, const moxie_weights *weights, bool second)
{
    double largest = 0;
    if (!act->is_static)
        return 0;
    const bool blocks = act->global != MOXIE_GLOBAL_NONE && act->scale != MOXIE_DTYPE_NONE;
    const double codes =
        (double)mox_format_of(act->element)->max * (blocks ? (double)mox_format_of(act->scale)->max : 1.0);
    for (int64_t e = 0; e < weights->n_experts; e++) {
        const double scale = (double)(second ? weights->experts[e].a2_scale : weights->experts[e].a13_scale);
        if (scale > 0)
            largest = fmax(largest, act->global == MOXIE_GLOBAL_DIVIDE ? codes / scale : codes * scale);
    }
    return largest;
}

bool mox_quantize_has_static_scales(const mox_hf_quant *format)
{
    for (int i = 0; i < MOX_MAX_PARTS && format->parts[i].role != MOX_PART_NONE; i++)
        if (format->parts[i].role == MOX_PART_INPUT_SCALE && !format->parts[i].unwritten)
            return true;
    return false;
}

static moxie_status check_activations(const mox_quantize_layer *l, moxie_error *error)
{
    const mox_hf_quant *format = l->how.format;
    MOX_FAIL_IF(mox_quantize_has_static_scales(format) && !(l->input_amax[0] > 0 && l->input_amax[1] > 0),
                MOXIE_ERR_ARGUMENT, error,
                "%s has static scales of activations, and the source has none: give the largest magnitudes of hidden "
                "states and of W2's activations (moxie quantize --input-amax)%s%s",
                format->id, format->without_input ? ", or use " : "",
                format->without_input ? format->without_input : "");
    for (int i = 0; i < 2 && mox_quantize_has_static_scales(format); i++) {
        const float scale = mox_quantize_input_scale(&format->act, l->input_amax[i]);
        MOX_FAIL_IF(!(scale >= FLT_MIN && scale <= FLT_MAX), MOXIE_ERR_ARGUMENT, error,
                    "the largest magnitude of %s is %g, and the static scale for it, %g, is no normal f32: give "
                    "another one (moxie quantize --input-amax)",
                    i == 0 ? "hidden states" : "W2's activations", l->input_amax[i], (double)scale);
    }
    return MOXIE_OK;
}

/* ---- importances ------------------------------------------------------------------------------------- */

bool mox_quantize_importance_name(const mox_imatrix *imatrix, int64_t layer, int32_t projection,
                                  char name[MOX_IMPORTANCE_NAME])
{
    static const char *const stems[3][2] = { [MOXIE_PROJECTION_GATE] = { "ffn_gate_exps", "ffn_gate_up_exps" },
                                             [MOXIE_PROJECTION_UP] = { "ffn_up_exps", "ffn_gate_up_exps" },
                                             [MOXIE_PROJECTION_DOWN] = { "ffn_down_exps", "ffn_down_exps" } };
    for (int i = 0; i < 2; i++) {
        snprintf(name, MOX_IMPORTANCE_NAME, "blk.%lld.%s.weight", (long long)layer, stems[projection][i]);
        if (mox_imatrix_has(imatrix, name))
            return true;
    }
    snprintf(name, MOX_IMPORTANCE_NAME, "blk.%lld.%s.weight", (long long)layer, stems[projection][0]);
    return false;
}

moxie_status mox_quantize_importance(const mox_quantize_layer *layer, int32_t projection, int64_t expert, int64_t cols,
                                     float *out, bool *found, moxie_error *error)
{
    char name[MOX_IMPORTANCE_NAME];
    (void)mox_quantize_importance_name(layer->imatrix, layer->layer, projection, name);
    return mox_imatrix_columns(layer->imatrix, name, expert, layer->n_experts, cols, out, found, error);
}

/* ---- its life ---------------------------------------------------------------------------------------- */

moxie_status mox_quantize_layer_open(const moxie_model *model, const mox_quantize_target *target, int64_t layer,
                                     const mox_quantize_how *how, const double input_amax[2], mox_quantize_layer *out,
                                     moxie_error *error)
{
    *out = (mox_quantize_layer) { .how = *how, .layer = layer };
    MOX_TRY(mox_model_load_layer(model, layer, &out->loaded, error));
    const moxie_layer_config *config = &out->loaded->config;
    const moxie_weights *weights = &out->loaded->weights;
    out->n_experts = weights->n_experts;
    out->input_amax[0] = input_amax[0] > 0 ? input_amax[0] : source_amax(&config->a13, weights, false);
    out->input_amax[1] = input_amax[1] > 0 ? input_amax[1] : source_amax(&config->a2, weights, true);
    MOX_TRY(check_activations(out, error));
    MOX_TRY(list_tensors(model, target, out, error));
    out->errors = mox_arena_calloc(&out->arena, (uint64_t)out->n_experts * 3, sizeof *out->errors);
    MOX_FAIL_IF(!out->errors, MOXIE_ERR_MEMORY, error, "no memory for the errors of %lld experts",
                (long long)out->n_experts);
    return MOXIE_OK;
}

void mox_quantize_layer_close(mox_quantize_layer *layer)
{
    mox_model_layer_free(layer->loaded);
    mox_arena_free(&layer->arena);
    *layer = (mox_quantize_layer) { 0 };
}

uint64_t mox_quantize_tensor_bytes(const mox_tensor_spec *spec)
{
    uint64_t bits = (uint64_t)mox_dtype_bits(spec->dtype);
    for (int32_t i = 0; i < spec->rank; i++)
        bits *= (uint64_t)spec->shape[i];
    return bits / 8;
}

uint64_t mox_quantize_piece_bytes(const mox_tensor_spec *spec)
{
    return mox_quantize_tensor_bytes(spec) / (uint64_t)mox_max_i64(spec->stacked, 1);
}
