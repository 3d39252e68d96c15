/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_arrays.c - what a layer has besides records and numbers, as sections of an expert file:
 *
 *     routing.bias .. act.limit    arrays of the configuration, f32; routing.table i32 [rows, K]
 *     router .. expert.norm        matrices, f32, row by row; widened from the checkpoint's type, which is exact
 *
 * In the flow: configuration, weights -> [sections] -> configuration, views.
 */
#include <string.h>

#include "base/sizes.h"
#include "layer/weights/dense_matrix.h"
#include "store/expert_file.h"

/* ---- arrays of the configuration ------------------------------------------------------------------- */

typedef enum extent { CANDIDATES, EXPERTS, TABLE } extent;

typedef struct array {
    const char *name;
    size_t at; /* of the pointer in moxie_layer_config */
    extent extent;
} array;

static const array arrays[] = {
    { "routing.bias", offsetof(moxie_layer_config, routing.bias), CANDIDATES },
    { "routing.bias_alt", offsetof(moxie_layer_config, routing.bias_alt), CANDIDATES },
    { "routing.scales", offsetof(moxie_layer_config, routing.per_expert_scale), CANDIDATES },
    { "routing.table", offsetof(moxie_layer_config, routing.table), TABLE },
    { "act.alpha", offsetof(moxie_layer_config, activation.expert_alpha), EXPERTS },
    { "act.beta", offsetof(moxie_layer_config, activation.expert_beta), EXPERTS },
    { "act.limit", offsetof(moxie_layer_config, activation.expert_limit), EXPERTS },
};
enum { ARRAYS = sizeof arrays / sizeof arrays[0] };

/* Elements are 4 bytes each. False when the size does not fit. */
static bool array_bytes(const array *a, const moxie_layer_config *c, uint64_t *bytes)
{
    const int64_t rows = a->extent == TABLE        ? c->routing.table_rows
                         : a->extent == CANDIDATES ? mox_config_candidates(c)
                                                   : c->experts;
    return rows >= 0 && mox_mul_u64((uint64_t)rows, a->extent == TABLE ? (uint64_t)c->top_k : 1, bytes) &&
           mox_mul_u64(*bytes, 4, bytes);
}

const mox_expert_section *mox_expert_find_section(const mox_expert_header *header, const char *name)
{
    for (uint32_t i = 0; i < header->n_sections; i++)
        if (strcmp(header->sections[i].name, name) == 0)
            return &header->sections[i];
    return NULL;
}

moxie_status mox_expert_take_arrays(moxie_expert_file *file, moxie_error *error)
{
    for (int i = 0; i < ARRAYS; i++) {
        const mox_expert_section *s = mox_expert_find_section(&file->header, arrays[i].name);
        uint64_t want = 0;
        if (s == NULL)
            continue;
        if (!array_bytes(&arrays[i], &file->config, &want) || want != s->range.bytes)
            return mox_fail_file(MOXIE_ERR_FORMAT, error, file->path, (int64_t)s->range.offset,
                                 "its section %s has %llu bytes, by its configuration it has %llu", arrays[i].name,
                                 (unsigned long long)s->range.bytes, (unsigned long long)want);
        const void *data = file->data + s->range.offset;
        memcpy((char *)&file->config + arrays[i].at, &data, sizeof data);
    }
    return MOXIE_OK;
}

/* ---- matrices --------------------------------------------------------------------------------------- */

typedef struct matrix {
    const char *name, *bias_name;
    size_t at; /* in moxie_weights */
} matrix;

static const matrix matrices[] = {
    { "router", "router.bias", offsetof(moxie_weights, router) },
    { "shared.gate", NULL, offsetof(moxie_weights, shared_gate) },
    { "router.norm", NULL, offsetof(moxie_weights, router_norm) },
    { "expert.norm", NULL, offsetof(moxie_weights, expert_norm) },
};
enum { ROUTER, SHARED_GATE, ROUTER_NORM, EXPERT_NORM, MATRICES };

/* The size of a matrix; rows 0 where the configuration has none. */
static mox_dense_matrix matrix_size(int i, const moxie_layer_config *c)
{
    const bool router = c->router_width > 0, gate = c->shared.intermediate > 0 && c->shared.has_gate;
    const mox_dense_matrix sizes[] = {
        [ROUTER] = { router ? mox_config_candidates(c) : 0, c->router_width, NULL, NULL },
        [SHARED_GATE] = { gate ? 1 : 0, c->hidden, NULL, NULL },
        [ROUTER_NORM] = { router && c->router_norm.has_weight ? 1 : 0, c->router_width, NULL, NULL },
        [EXPERT_NORM] = { c->expert_norm.has_weight ? 1 : 0, c->hidden, NULL, NULL },
    };
    return sizes[i];
}

static moxie_status matrix_parts(int i, const moxie_layer_config *c, const moxie_weights *weights, mox_arena *arena,
                                 mox_expert_part *parts, int *count, moxie_error *error)
{
    mox_dense_matrix dense = matrix_size(i, c);
    const bool has_bias = i == ROUTER && c->router_has_bias;
    const moxie_matrix *view = (const moxie_matrix *)(const void *)((const char *)weights + matrices[i].at);
    if (dense.rows == 0)
        return MOXIE_OK;
    dense.weight = mox_arena_calloc(arena, (uint64_t)dense.rows * (uint64_t)dense.cols, sizeof *dense.weight);
    dense.bias = has_bias ? mox_arena_calloc(arena, (uint64_t)dense.rows, sizeof *dense.bias) : NULL;
    MOX_FAIL_IF(dense.weight == NULL || (has_bias && dense.bias == NULL), MOXIE_ERR_MEMORY, error,
                "no memory to widen the %s", matrices[i].name);
    MOX_TRY(mox_dense_matrix_read(&dense, view, matrices[i].name, error));
    parts[(*count)++] = (mox_expert_part) { matrices[i].name, dense.weight,
                                            (uint64_t)dense.rows * (uint64_t)dense.cols * sizeof *dense.weight };
    if (has_bias)
        parts[(*count)++] =
            (mox_expert_part) { matrices[i].bias_name, dense.bias, (uint64_t)dense.rows * sizeof *dense.bias };
    return MOXIE_OK;
}

int mox_expert_parts(const moxie_layer_config *config, const moxie_weights *weights, mox_arena *arena,
                     mox_expert_part parts[MOX_EXPERT_PARTS], moxie_error *error)
{
    int count = 0;
    for (int i = 0; i < ARRAYS; i++) {
        const void *data;
        uint64_t bytes = 0;
        memcpy(&data, (const char *)config + arrays[i].at, sizeof data);
        if (data != NULL && array_bytes(&arrays[i], config, &bytes))
            parts[count++] = (mox_expert_part) { arrays[i].name, data, bytes };
    }
    for (int i = 0; i < MATRICES; i++)
        if (matrix_parts(i, config, weights, arena, parts, &count, error) != MOXIE_OK)
            return -1;
    return count;
}

/* A section as a grid of f32. */
static moxie_status take_grid(const moxie_expert_file *file, const char *name, int64_t rows, int64_t cols,
                              moxie_grid *out, moxie_error *error)
{
    const mox_expert_section *s = mox_expert_find_section(&file->header, name);
    const uint64_t want = mox_dense_bytes(MOXIE_F32, rows, cols);
    if (s == NULL || s->range.bytes != want)
        return mox_fail_file(MOXIE_ERR_MISMATCH, error, file->path, s != NULL ? (int64_t)s->range.offset : -1,
                             "its section %s has %llu bytes; the configuration needs %llu of f32 [%lld, %lld]", name,
                             (unsigned long long)(s != NULL ? s->range.bytes : 0), (unsigned long long)want,
                             (long long)rows, (long long)cols);
    *out = mox_grid_dense(file->data + s->range.offset, MOXIE_F32, rows, cols);
    return MOXIE_OK;
}

moxie_status mox_expert_take_matrices(const moxie_expert_file *file, const moxie_layer_config *config,
                                      moxie_weights *out, moxie_error *error)
{
    for (int i = 0; i < MATRICES; i++) {
        const mox_dense_matrix size = matrix_size(i, config);
        moxie_matrix *view = (moxie_matrix *)(void *)((char *)out + matrices[i].at);
        if (size.rows == 0)
            continue;
        MOX_TRY(take_grid(file, matrices[i].name, size.rows, size.cols, &view->codes, error));
        if (i == ROUTER && config->router_has_bias)
            MOX_TRY(take_grid(file, matrices[i].bias_name, size.rows, 1, &view->bias, error));
    }
    return MOXIE_OK;
}
