/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare_problem.h - for tests of moxie_prepare.h: the configuration of a layer of random experts, options of one
 * rank, two workers, and memory for the tensors of one expert, which ends at an inaccessible page.
 */
#ifndef PREPARE_PROBLEM_H
#define PREPARE_PROBLEM_H

#include <moxie/moxie_prepare.h>

#include "test_problem.h"

static inline moxie_layer_config config_of(const test_expert_spec *spec)
{
    moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
    config.experts = 10;
    config.top_k = 2;
    config.hidden = spec->hidden;
    config.intermediate = spec->intermediate;
    config.activation.kind = spec->gated ? MOXIE_ACT_SILU : MOXIE_ACT_RELU2_NO_MUL;
    config.w13 = spec->w13->quant;
    config.w2 = spec->w2->quant;
    config.bias13 = spec->bias13;
    config.bias2 = spec->bias2;
    return config;
}

static inline moxie_preparation_options options_of(const char *layout, int32_t rank, int32_t ranks)
{
    moxie_preparation_options options = MOXIE_PREPARATION_OPTIONS_INIT;
    options.layout = layout;
    options.tp_rank = rank;
    options.tp_size = ranks;
    return options;
}

static moxie_executor *pool; /* two workers */

static inline int make_pool(void **state)
{
    (void)state;
    return moxie_executor_create(2, &pool, NULL);
}

static inline int free_pool(void **state)
{
    (void)state;
    moxie_executor_destroy(pool);
    return 0;
}

/* ---- memory of one expert's tensors ---- */

enum { MAX_TENSORS = 64 };
typedef struct tensors {
    void *data[MAX_TENSORS];
    size_t bytes[MAX_TENSORS];
    int count;
} tensors;

static inline void make_tensors(const moxie_preparation *preparation, tensors *t)
{
    moxie_prepared_tensor tensor = MOXIE_PREPARED_TENSOR_INIT;
    for (t->count = 0; moxie_preparation_tensor_at(preparation, t->count, &tensor); t->count++) {
        t->bytes[t->count] = (size_t)tensor.bytes;
        t->data[t->count] = test_guarded((size_t)tensor.bytes);
        memset(t->data[t->count], 0xa5, (size_t)tensor.bytes);
    }
}

static inline void free_tensors(tensors *t)
{
    for (int i = 0; i < t->count; i++)
        test_guarded_free(t->data[i], t->bytes[i]);
}

/* ---- copies ---- */

static inline void copy_codes(const moxie_grid *from, int64_t row, int64_t col, const moxie_grid *to)
{
    for (int64_t r = 0; to->data && r < to->rows; r++)
        for (int64_t c = 0; c < to->cols; c++)
            mox_grid_store(to, r, c, mox_grid_code(from, row + r, col + c));
}

/* A copy of rows `row` .. of a vector, as a vector [rows, 1] with memory of its own. */
static inline moxie_grid copy_vector(const moxie_grid *from, int64_t row, int64_t rows, void **memory)
{
    if (!from->data)
        return (moxie_grid) { 0 };
    *memory = calloc((size_t)rows, sizeof(float));
    const moxie_grid to = mox_grid_dense(*memory, from->dtype, rows, 1);
    copy_codes(from, row, 0, &to);
    return to;
}

#endif
