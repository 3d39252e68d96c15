/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_weights.c - records of an expert file back into views: through the caller's, or into memory of the file's.
 *
 *     record -> layout's unpack() -> codes, scales, zero points, globals, biases, order of columns
 *
 * Zero points, globals and biases are f32 there: records hold them so, and every value of a checkpoint is exact in f32.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/carver.h"
#include "base/executor.h"
#include "pack/order/column_order.h"
#include "store/expert_file.h"

static moxie_status need_record(const moxie_expert_file *file, int64_t expert, moxie_error *error)
{
    MOX_FAIL_IF(expert < -1 || expert >= file->header.experts || mox_expert_entry_of(file, expert)->range.bytes == 0,
                MOXIE_ERR_ARGUMENT, error, "expert %lld is not in the file, which has %lld of %lld experts%s",
                (long long)expert, (long long)file->header.held, (long long)file->header.experts,
                file->header.shared_bytes > 0 ? " and the shared one (-1)" : "");
    return MOXIE_OK;
}

moxie_status mox_expert_file_unpack(const moxie_expert_file *file, int64_t expert, moxie_expert *views,
                                    moxie_error *error)
{
    MOX_TRY(need_record(file, expert, error));
    const mox_expert_kind kind = mox_expert_kind_of(expert);
    const mox_layout *layout = file->layouts[kind];
    const void *record = file->data + mox_expert_entry_of(file, expert)->range.offset;
    MOX_TRY(mox_record_verify(layout, &file->shapes.mine[kind], expert, record, error));
    /* Layout rowmajor takes every expert, so this checks the views alone. */
    moxie_expert mine;
    MOX_TRY(mox_record_check(&mox_layout_rowmajor, &file->shapes.whole[kind], expert, views, error));
    MOX_TRY(mox_tp_slice_expert(&file->config, kind, file->shapes.cut[kind], views, &mine, error));
    MOX_TRY(layout->unpack(&file->shapes.mine[kind], record, &mine, error));
    views->a13_scale = mine.a13_scale;
    views->a2_scale = mine.a2_scale;
    return MOXIE_OK;
}

/* ---- all of them ------------------------------------------------------------------------------------------- */

static moxie_grid carve_grid(mox_carver *carver, moxie_dtype dtype, int64_t rows, int64_t cols)
{
    const void *data = mox_carve(carver, mox_dense_bytes(dtype, rows, cols), 1);
    return data != NULL ? mox_grid_dense(data, dtype, rows, cols) : (moxie_grid) { 0 };
}

static void carve_matrix(mox_carver *carver, const moxie_quant *q, int64_t rows, int64_t cols, bool bias, bool ordered,
                         moxie_matrix *out)
{
    const int64_t scale_rows = mox_scale_rows(q, rows), scale_cols = mox_scale_cols(q, cols);
    *out = (moxie_matrix) { .codes = carve_grid(carver, q->element, rows, cols) };
    if (q->scale != MOXIE_DTYPE_NONE)
        out->scale = carve_grid(carver, q->scale, scale_rows, scale_cols);
    if (q->has_zero)
        out->zero = carve_grid(carver, MOXIE_F32, scale_rows, scale_cols);
    if (q->global != MOXIE_GLOBAL_NONE)
        out->global = carve_grid(carver, MOXIE_F32, rows, 1);
    if (bias)
        out->bias = carve_grid(carver, MOXIE_F32, rows, 1);
    if (ordered)
        out->group_index = mox_carve(carver, (uint64_t)cols, sizeof(int32_t));
}

static uint32_t order_flags(const moxie_expert_file *file, int64_t expert)
{
    return mox_record_act_order(file->layouts[mox_expert_kind_of(expert)],
                                file->data + mox_expert_entry_of(file, expert)->range.offset);
}

static void carve_expert(mox_carver *carver, const moxie_expert_file *file, int64_t expert, moxie_expert *out)
{
    const mox_record_shape *s = &file->shapes.mine[mox_expert_kind_of(expert)];
    *out = (moxie_expert) { .a13_scale = mox_expert_entry_of(file, expert)->a13_scale,
                            .a2_scale = mox_expert_entry_of(file, expert)->a2_scale };
    if (mox_expert_entry_of(file, expert)->range.bytes == 0)
        return;
    const uint32_t order = order_flags(file, expert);
    if (s->gated)
        carve_matrix(carver, &s->w13, s->intermediate, s->hidden, s->bias13, order & MOX_ROWMAJOR_ORDER_GATE,
                     &out->gate);
    carve_matrix(carver, &s->w13, s->intermediate, s->hidden, s->bias13, order & MOX_ROWMAJOR_ORDER_UP, &out->up);
    carve_matrix(carver, &s->w2, s->hidden, s->intermediate, s->bias2, order & MOX_ROWMAJOR_ORDER_DOWN, &out->down);
}

/* On a carver without memory: measures. */
static void carve_all(mox_carver *carver, const moxie_expert_file *file, moxie_expert *experts)
{
    for (int64_t e = 0; e <= file->header.experts; e++)
        carve_expert(carver, file, e < file->header.experts ? e : -1, &experts[e]);
}

typedef struct unpack_work {
    const moxie_expert_file *file;
    moxie_expert *experts;
    _Atomic bool failed;
} unpack_work;

static void unpack_one(void *context, int64_t e, int32_t worker)
{
    unpack_work *w = context;
    (void)worker;
    if (w->file->index[e].range.bytes != 0 &&
        mox_expert_file_unpack(w->file, w->file->index[e].expert, &w->experts[e], NULL) != MOXIE_OK)
        atomic_store_explicit(&w->failed, true, memory_order_relaxed);
}

static moxie_status unpack_all(const moxie_expert_file *file, moxie_expert *experts, const moxie_executor *executor,
                               moxie_error *error)
{
    unpack_work w = { .file = file, .experts = experts };
    mox_parallel(executor != NULL ? executor : &mox_executor_serial, file->header.experts + 1, unpack_one, &w);
    for (int64_t e = 0; w.failed && e <= file->header.experts; e++) /* for the text of the error */
        if (file->index[e].range.bytes != 0)
            MOX_TRY(mox_expert_file_unpack(file, file->index[e].expert, &experts[e], error));
    return MOXIE_OK;
}

static moxie_status make(moxie_expert_file *file, moxie_weights *weights, moxie_expert *experts,
                         const moxie_executor *executor, moxie_error *error)
{
    const int64_t count = file->header.experts;
    mox_carver measure = mox_carver_of(NULL);
    carve_all(&measure, file, experts);
    void *memory = measure.used != MOX_CARVED_TOO_MUCH ? mox_alloc_pages(measure.used) : NULL;
    if (memory == NULL)
        return mox_fail_file(MOXIE_ERR_MEMORY, error, file->path, -1, "no memory for its weights: %llu bytes",
                             (unsigned long long)measure.used);
    mox_carver carver = mox_carver_of(memory);
    carve_all(&carver, file, experts);
    *weights = (moxie_weights)MOXIE_WEIGHTS_INIT;
    weights->n_experts = count;
    weights->experts = experts;
    weights->shared = file->header.shared_bytes > 0 ? &experts[count] : NULL;
    moxie_status status = mox_expert_take_matrices(file, &file->config, weights, error);
    /* A norm's weight_add is added when the layer reads it, here as from the checkpoint. */
    if (status == MOXIE_OK)
        status = unpack_all(file, experts, executor, error);
    if (status != MOXIE_OK) {
        mox_free_pages(memory);
        return status;
    }
    file->weights_memory = memory;
    file->weights = weights;
    return MOXIE_OK;
}

moxie_status mox_expert_file_weights(moxie_expert_file *file, const moxie_executor *executor, const moxie_weights **out,
                                     moxie_error *error)
{
    if (file->config.tp_size > 1)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, file->path, -1,
                             "its records are the rows of tensor parallel rank %d of %d, of which whole weights cannot "
                             "be made: take the checkpoint, or files of whole experts",
                             (int)file->config.tp_rank, (int)file->config.tp_size);
    if (file->weights == NULL) {
        moxie_weights *weights = mox_arena_alloc(&file->arena, sizeof *weights);
        moxie_expert *experts = mox_arena_calloc(&file->arena, (uint64_t)file->header.experts + 1, sizeof *experts);
        MOX_FAIL_IF(weights == NULL || experts == NULL, MOXIE_ERR_MEMORY, error, "no memory for views of a layer");
        MOX_TRY(make(file, weights, experts, executor, error));
    }
    *out = file->weights;
    return MOXIE_OK;
}
