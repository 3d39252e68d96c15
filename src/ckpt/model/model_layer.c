/* SPDX-License-Identifier: Apache-2.0
 *
 * model_layer.c - loads one layer: configuration, experts, router, and the arrays that the routing needs.
 *
 *     correction bias [E] or [1, E], any float    -> f32 [E]
 *     tid2eid I64 [vocab, K]                      -> i32, every id checked against E
 *     per-expert scale [E]                        -> f32 [E]
 *     router [E, H], router bias [E], shared gate [1, H], weights of norms [N]    views
 *     router [H, E] and bias [2, E] of ERNIE's text and images                    the text's half
 *
 * The number of experts in config.json and in the router's tensor must agree: nothing is allocated from the
 * configuration alone. In latent layers (Nemotron-3 Super, Kimi-K3) experts work on another width: `hidden` is that
 * width, router_width is the model's, and the latent projections and the shared expert are not part of the layer.
 */
#include <stdio.h>
#include <string.h>

#include "base/sizes.h"
#include "ckpt/families/config_keys.h"
#include "ckpt/model/model.h"
#include "ckpt/model/model_expert.h"
#include "ckpt/model/model_scan.h"
#include "ckpt/model/model_shared.h"
#include "ckpt/model/unread.h"

/* ---- routing ------------------------------------------------------------------------------------ */

/* `count` floats. `sets`: of so many rows [sets, count] the first. */
static moxie_status widen_first(mox_layer_reader *reader, const mox_file_tensor *tensor, int64_t sets, int64_t count,
                                const float **out)
{
    moxie_grid grid;
    MOX_TRY(sets > 1 ? mox_layer_floats(reader, tensor, sets, count, &grid)
                     : mox_layer_floats(reader, tensor, count, 1, &grid));
    float *values = mox_arena_calloc(reader->arena, (uint64_t)count, sizeof *values);
    MOX_FAIL_IF(!values, MOXIE_ERR_MEMORY, reader->error, "no memory for %lld numbers", (long long)count);
    mox_widen(grid.dtype, grid.data, values, count);
    reader->out->info.total_bytes += tensor->bytes;
    *out = values;
    return MOXIE_OK;
}

static moxie_status widen(mox_layer_reader *reader, const mox_file_tensor *tensor, int64_t count, const float **out)
{
    return widen_first(reader, tensor, 1, count, out);
}

static int64_t table_entry(const mox_file_tensor *tensor, uint64_t i)
{
    int64_t wide;
    int32_t narrow;
    if (tensor->view.dtype == MOXIE_I64) {
        memcpy(&wide, (const char *)tensor->view.data + i * sizeof wide, sizeof wide);
        return wide;
    }
    memcpy(&narrow, (const char *)tensor->view.data + i * sizeof narrow, sizeof narrow);
    return narrow;
}

static moxie_status read_table(mox_layer_reader *reader, const mox_file_tensor *tensor, moxie_layer_config *config)
{
    char name[200];
    const moxie_tensor *view = &tensor->view;
    if ((view->dtype != MOXIE_I64 && view->dtype != MOXIE_I32) || view->rank != 2 || view->shape[1] != config->top_k ||
        view->shape[0] < 1)
        return mox_layer_fail_tensor(reader, tensor, MOXIE_ERR_MISMATCH, "I64 [vocabulary, K]");
    const uint64_t count = (uint64_t)view->shape[0] * (uint64_t)view->shape[1];
    int32_t *table = mox_arena_calloc(reader->arena, count, sizeof *table);
    MOX_FAIL_IF(!table, MOXIE_ERR_MEMORY, reader->error, "no memory for a table of %llu ids",
                (unsigned long long)count);
    for (uint64_t i = 0; i < count; i++) {
        const int64_t id = table_entry(tensor, i);
        if (id < 0 || id >= config->experts)
            return mox_fail_file(MOXIE_ERR_FORMAT, reader->error,
                                 mox_tensor_set_file_name(reader->model->set, tensor->file), (int64_t)tensor->offset,
                                 "%s[%llu] is %lld, expected an expert from 0 to %lld",
                                 mox_escape(name, sizeof name, tensor->name), (unsigned long long)i, (long long)id,
                                 (long long)config->experts - 1);
        table[i] = (int32_t)id;
    }
    mox_layer_mark(reader, tensor);
    reader->out->info.total_bytes += tensor->bytes;
    config->routing.table = table;
    config->routing.table_rows = view->shape[0];
    return MOXIE_OK;
}

/* Experts with and without weights: rows of the router, entries of its biases. */
static int64_t routed_rows(const mox_layer_reader *reader)
{
    return reader->dims.experts + reader->dims.zero_experts;
}

/* The second bias is for tokens that a run names; in a layer that routes by table, those choose by key. */
static moxie_status read_bias_alt(mox_layer_reader *reader, moxie_layer_config *config)
{
    const mox_file_tensor *alt = mox_layer_find(reader, reader->names->correction_bias_alt);
    if (!alt)
        return reader->dims.bias_alt ? mox_layer_fail_absent(reader, reader->names->correction_bias_alt,
                                                             "but config.json says that the model sees images")
                                     : MOXIE_OK;
    return widen(reader, alt, routed_rows(reader), &config->routing.bias_alt);
}

static moxie_status read_selection(mox_layer_reader *reader, moxie_layer_config *config)
{
    const mox_names *names = reader->names;
    const mox_file_tensor *table = mox_layer_find(reader, names->table);
    const mox_file_tensor *bias = mox_layer_find(reader, names->correction_bias);
    const mox_file_tensor *scale = mox_layer_find(reader, names->per_expert_scale);
    if (config->routing.select == MOXIE_SELECT_TABLE && !table)
        return mox_layer_fail_absent(reader, names->table,
                                     "but config.json says that this layer routes by table (num_hash_layers)");
    if (bias && mox_config_denies_bias(reader->model->config))
        return mox_layer_fail_tensor(reader, bias, MOXIE_ERR_MISMATCH,
                                     "none: config.json says that experts are chosen without a bias");
    if (table) {
        config->routing.select = MOXIE_SELECT_TABLE;
        MOX_TRY(read_table(reader, table, config));
    } else if (bias) {
        MOX_TRY(widen_first(reader, bias, mox_layer_has_images(reader) ? 2 : 1, routed_rows(reader),
                            &config->routing.bias));
    } else if (names->correction_bias &&
               (reader->model->family->correction_always || mox_config_promises_bias(reader->model->config))) {
        return mox_layer_fail_absent(reader, names->correction_bias,
                                     "but experts of this model are chosen with a bias");
    }
    MOX_TRY(read_bias_alt(reader, config));
    if (names->per_expert_scale && !scale)
        return mox_layer_fail_absent(reader, names->per_expert_scale, "which the routing of this family needs");
    return scale ? widen(reader, scale, config->experts, &config->routing.per_expert_scale) : MOXIE_OK;
}

/* Replaces the view of the router by a copy in f32 that is `factor` as large: then so are the logits. */
static moxie_status multiply_router(mox_layer_reader *reader, float factor, moxie_grid *codes)
{
    const int64_t rows = codes->rows, cols = codes->cols;
    float *copy = mox_arena_calloc(reader->arena, (uint64_t)(rows * cols), sizeof *copy);
    MOX_FAIL_IF(!copy, MOXIE_ERR_MEMORY, reader->error, "no memory for a router of %lld x %lld", (long long)rows,
                (long long)cols);
    for (int64_t n = 0; n < rows; n++)
        for (int64_t k = 0; k < cols; k++)
            copy[n * cols + k] = (float)mox_grid_value(codes, n, k) * factor;
    *codes = mox_grid_dense(copy, MOXIE_F32, rows, cols);
    return MOXIE_OK;
}

/* The router's matrix [E, H], which some releases store as [H, E]. */
static moxie_status router_matrix(mox_layer_reader *reader, const mox_file_tensor *tensor, moxie_grid *out)
{
    const int64_t rows = routed_rows(reader), cols = reader->dims.hidden;
    if (!mox_layer_has_images(reader))
        return mox_layer_floats(reader, tensor, rows, cols, out);
    moxie_grid grid;
    MOX_TRY(mox_layer_floats(reader, tensor, cols, rows, &grid));
    *out = grid;
    out->rows = rows, out->cols = cols;
    out->row_stride = grid.col_stride, out->col_stride = grid.row_stride;
    return MOXIE_OK;
}

static moxie_status read_router(mox_layer_reader *reader)
{
    moxie_layer_config *config = &reader->out->config;
    moxie_matrix *router = &reader->out->weights.router;
    const mox_file_tensor *tensor = mox_layer_find(reader, reader->names->router);
    const mox_file_tensor *bias = mox_layer_find(reader, reader->names->router_bias);
    if (!tensor)
        return mox_layer_fail_absent(reader, reader->names->router, "but experts of this layer exist");
    MOX_TRY(router_matrix(reader, tensor, &router->codes));
    reader->out->info.total_bytes += tensor->bytes;
    config->router_width = reader->dims.hidden;
    if (reader->dims.logit_factor != 0 && reader->dims.logit_factor != 1)
        MOX_TRY(multiply_router(reader, reader->dims.logit_factor, &router->codes));
    if (!bias && reader->model->family->router_bias_always)
        return mox_layer_fail_absent(reader, reader->names->router_bias, "which the routers of this family have");
    if (bias) {
        MOX_TRY(mox_layer_floats(reader, bias, routed_rows(reader), 1, &router->bias));
        reader->out->info.total_bytes += bias->bytes;
        config->router_has_bias = 1;
    }
    return MOXIE_OK;
}

/* The weight of a norm that the family has. */
static moxie_status read_norm(mox_layer_reader *reader, const moxie_row_norm *norm, const char *name, int64_t cols,
                              moxie_matrix *out)
{
    if (!norm->has_weight)
        return MOXIE_OK;
    const mox_file_tensor *tensor = mox_layer_find(reader, name);
    if (!tensor)
        return mox_layer_fail_absent(reader, name, "which a norm of this family needs");
    MOX_TRY(mox_layer_floats(reader, tensor, 1, cols, &out->codes));
    reader->out->info.total_bytes += tensor->bytes;
    return MOXIE_OK;
}

static moxie_status read_norms(mox_layer_reader *reader)
{
    const moxie_layer_config *config = &reader->out->config;
    moxie_weights *weights = &reader->out->weights;
    MOX_TRY(read_norm(reader, &config->router_norm, reader->names->router_scale, reader->dims.hidden,
                      &weights->router_norm));
    return read_norm(reader, &config->expert_norm, reader->names->expert_norm, reader->dims.expert_width,
                     &weights->expert_norm);
}

/* What the model computes around the layer. In latent layers the layer is what lies between the projections. */
static const char *outside(const mox_layer_reader *reader)
{
    if (reader->model->family->outside)
        return reader->model->family->outside;
    if (reader->dims.expert_width == reader->dims.hidden)
        return "";
    return reader->names->latent_norm
               ? "hidden states are the latent ones (the model's go to router_hidden); the latent projections, the "
                 "norm "
                 "of the sum before the second one, and the shared expert are the model's"
               : "hidden states are the latent ones (the model's go to router_hidden); the latent projections and the "
                 "shared expert are the model's";
}

/* The name of the routing method. The configuration may have changed the normalisation of the family. */
static const char *routing_name(const mox_family *family, const moxie_routing *routing)
{
    if (routing->select == MOXIE_SELECT_TABLE)
        return "hash";
    if (routing->select == MOXIE_SELECT_TOPK && routing->score == MOXIE_SCORE_SOFTMAX)
        return routing->norm == MOXIE_NORM_NONE ? "default" : "renormalize_naive";
    if (routing->score == MOXIE_SCORE_LOGIT && !routing->on_input && routing->weight != MOXIE_WEIGHT_SCORE)
        return routing->weight == MOXIE_WEIGHT_SOFTMAX_SELECTED ? "renormalize" : "topk_sigmoid";
    return family->routing;
}

/* ---- experts ------------------------------------------------------------------------------------ */

static moxie_status read_experts(mox_layer_reader *reader)
{
    moxie_layer_config *config = &reader->out->config;
    moxie_weights *weights = &reader->out->weights;
    mox_expert_set set;
    MOX_TRY(mox_read_routed(reader, &set));
    config->w13 = set.w13, config->w2 = set.w2;
    config->a13 = set.a13, config->a2 = set.a2;
    config->bias13 = config->bias2 = set.bias;
    weights->experts = set.experts;
    weights->n_experts = set.count;
    reader->out->info.format = set.format;
    reader->out->info.format_note = set.note ? set.note : "";
    reader->out->info.merged_input_scales += set.merged;
    reader->out->info.expert_bytes = set.bytes;
    reader->out->info.total_bytes += set.bytes;
    return MOXIE_OK;
}

static moxie_status read_shared(mox_layer_reader *reader)
{
    moxie_layer_config *config = &reader->out->config;
    mox_expert_set set;
    if (reader->dims.expert_width != reader->dims.hidden)
        return MOXIE_OK;
    MOX_TRY(mox_find_shared_width(reader));
    if (reader->dims.shared_intermediate <= 0)
        return MOXIE_OK;
    MOX_TRY(mox_read_shared(reader, &set));
    config->shared = (moxie_shared_config) { .intermediate = reader->dims.shared_intermediate,
                                             .w13 = set.w13,
                                             .w2 = set.w2,
                                             .a13 = set.a13,
                                             .a2 = set.a2,
                                             .bias13 = set.shared_bias[0],
                                             .bias2 = set.shared_bias[1],
                                             .scale = reader->dims.shared_scale };
    reader->out->weights.shared = set.experts;
    reader->out->info.shared_format = set.format;
    reader->out->info.merged_input_scales += set.merged;
    reader->out->info.shared_intermediate = reader->dims.shared_intermediate;
    reader->out->info.total_bytes += set.bytes;
    const char *gate_name = reader->names->shared_expert_gate;
    const mox_file_tensor *gate = mox_layer_find(reader, gate_name);
    if (!gate_name)
        return MOXIE_OK;
    if (!gate)
        return mox_layer_fail_absent(reader, gate_name, "which scales the shared expert");
    MOX_TRY(mox_layer_floats(reader, gate, 1, reader->dims.hidden, &reader->out->weights.shared_gate.codes));
    reader->out->info.total_bytes += gate->bytes;
    config->shared.has_gate = 1;
    return MOXIE_OK;
}

/* ---- the layer ---------------------------------------------------------------------------------- */

static moxie_status read_layer(mox_layer_reader *reader)
{
    const moxie_model *model = reader->model;
    moxie_layer_config *config = &reader->out->config;
    moxie_model_layer_info *info = &reader->out->info;
    MOX_TRY(mox_config_layer(model->family, model->config, model->config_path, reader->layer, &reader->dims, config,
                             reader->error));
    MOX_TRY(mox_matcher_create(model->set, model->quant_config, model->config, reader->arena, &reader->matcher,
                               reader->error));
    config->experts = reader->dims.experts;
    config->top_k = reader->dims.top_k;
    config->hidden = reader->dims.expert_width;
    config->intermediate = reader->dims.intermediate;
    *info = (moxie_model_layer_info) { .layer = reader->layer,
                                       .shared_format = "",
                                       .outside = outside(reader),
                                       .experts = config->experts,
                                       .top_k = config->top_k,
                                       .hidden = config->hidden,
                                       .intermediate = config->intermediate,
                                       .router_width = reader->dims.hidden };
    if (!model->experts_only)
        MOX_TRY(read_router(reader));
    MOX_TRY(read_experts(reader));
    if (model->experts_only)
        config->router_norm = config->expert_norm = (moxie_row_norm) { 0 };
    if (!model->experts_only) {
        MOX_TRY(read_shared(reader));
        MOX_TRY(read_selection(reader, config));
        MOX_TRY(read_norms(reader));
    }
    info->routing = routing_name(model->family, &config->routing);
    return mox_check_unread(reader);
}

/* ---- dropping pages of experts ----------------------------------------------------------------------- */

/* Drops the pages from the first element of a grid to the last, or slightly more: where the elements of a word lie
 * along rows or columns, its stride is counted for each of them. The bytes that exist are the limit. */
static void drop_grid(const mox_tensor_set *set, const moxie_grid *grid)
{
    const uint64_t span =
        (uint64_t)grid->rows * (uint64_t)grid->row_stride + (uint64_t)grid->cols * (uint64_t)grid->col_stride;
    if (grid->data)
        mox_tensor_set_drop(set, grid->data, span < grid->bytes ? span : grid->bytes);
}

/* moxie_weights.done */
static void drop_expert(void *user, const moxie_expert *expert)
{
    const moxie_matrix *const matrices[] = { &expert->gate, &expert->up, &expert->down };
    for (int i = 0; i < 3; i++) {
        drop_grid(user, &matrices[i]->codes);
        drop_grid(user, &matrices[i]->scale);
        drop_grid(user, &matrices[i]->zero);
        drop_grid(user, &matrices[i]->global);
        drop_grid(user, &matrices[i]->bias);
    }
}

/* ---- loading ------------------------------------------------------------------------------------- */

static moxie_status load_layer(const moxie_model *model, int64_t layer, bool look, moxie_model_layer **out,
                               moxie_error *error)
{
    const mox_layer_place *place = NULL;
    MOX_TRY(mox_model_find_place(model, layer, &place, error));
    MOX_TRY(mox_tensor_set_check(model->set, error));
    moxie_model_layer *result = mox_alloc(sizeof *result);
    MOX_FAIL_IF(!result, MOXIE_ERR_MEMORY, error, "no memory for a layer");
    result->weights = (moxie_weights)MOXIE_WEIGHTS_INIT;
    result->weights.done = drop_expert;
    result->weights.done_user = model->set;
    mox_layer_reader reader = { .model = model,
                                .names = place->other ? &model->family->other_names : &model->family->names,
                                .prefix = model->family->prefixes[place->prefix],
                                .layer = layer,
                                .look = look,
                                .arena = &result->arena,
                                .out = result,
                                .error = error };
    reader.read = result->read = mox_calloc((uint64_t)mox_tensor_set_count(model->set), 1);
    const moxie_status status =
        reader.read ? read_layer(&reader) : mox_fail(MOXIE_ERR_MEMORY, error, "no memory to read a layer");
    if (status == MOXIE_OK)
        *out = result;
    else
        mox_model_layer_free(result);
    return status;
}

moxie_status mox_model_load_layer(const moxie_model *model, int64_t layer, moxie_model_layer **out, moxie_error *error)
{
    return load_layer(model, layer, false, out, error);
}

moxie_status mox_model_describe_layer(const moxie_model *model, int64_t i, moxie_model_layer_info *info,
                                      moxie_error *error)
{
    MOX_FAIL_IF(i < 0 || i >= model->n_places, MOXIE_ERR_ARGUMENT, error,
                "layer number %lld: there are %lld, counted from 0", (long long)i, (long long)model->n_places);
    moxie_model_layer *layer;
    MOX_TRY(load_layer(model, model->places[i].layer, true, &layer, error));
    *info = layer->info;
    mox_model_layer_free(layer);
    return MOXIE_OK;
}

void mox_model_layer_free(moxie_model_layer *layer)
{
    if (!layer)
        return;
    mox_arena_free(&layer->arena);
    mox_free(layer->read);
    mox_free(layer);
}

const moxie_layer_config *mox_model_layer_config(const moxie_model_layer *layer)
{
    return &layer->config;
}

const char *mox_model_layer_unread(const moxie_model_layer *layer, int64_t i)
{
    return i >= 0 && i < layer->info.n_unread ? layer->unread[i] : NULL;
}

const moxie_weights *mox_model_layer_weights(const moxie_model_layer *layer)
{
    return &layer->weights;
}
