/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_blocks.c - makes a layer's tensors for a GGUF file (quantize_blocks.h):
 *
 *     expert e, each matrix:   row -> f32 -> importances -> blocks -> decoded again: the error -> piece e of its tensor
 *     others                   quantize_plain.c
 *
 * A worker has memory for one matrix in blocks and two rows. Pieces have their places in the file, and sums are made
 * row by row; so nothing depends on which worker does an expert, or when.
 */
#include "ckpt/quantize/quantize_blocks.h"

#include <math.h>
#include <string.h>

#include "base/sizes.h"
#include "ckpt/quantize/quantize_failure.h"
#include "ckpt/quantize/quantize_plain.h"
#include "quant/block_encode.h"
#include "quant/matrix_row.h"
#include "quant/weight_codes.h"

typedef struct worker {
    float *w, *q, *importance; /* rows */
    uint8_t *piece;
    mox_quantize_failure failure;
} worker;

typedef struct run {
    const mox_quantize_blocks *layer;
    mox_sealed_writer *writer;
    worker *workers;
    const mox_weight_loops *loops;
    int64_t first; /* expert of task 0 */
} run;

uint64_t mox_quantize_blocks_bytes(const mox_tensor_spec *spec)
{
    uint64_t rows = 1;
    for (int32_t i = 0; i < spec->rank - 1; i++)
        rows *= (uint64_t)spec->shape[i];
    return rows * mox_block_row_bytes(spec->dtype, spec->shape[spec->rank - 1]);
}

static int64_t pieces_of(const mox_tensor_spec *spec)
{
    return mox_quantize_is_routed(spec) ? spec->stacked : 1;
}

/* ---- memory ------------------------------------------------------------------------------------------ */

static void free_workers(worker *workers, int32_t count)
{
    for (int32_t i = 0; workers && i < count; i++) {
        mox_free(workers[i].w);
        mox_free(workers[i].q);
        mox_free(workers[i].importance);
        mox_free(workers[i].piece);
    }
    mox_free(workers);
}

static moxie_status make_workers(const mox_quantize_blocks *l, int32_t count, worker **out, moxie_error *error)
{
    uint64_t cols = 1, piece = 1;
    for (int64_t i = 0; i < l->n_specs; i++) {
        const mox_tensor_spec *spec = &l->specs[i];
        if (!mox_quantize_is_routed(spec))
            continue;
        const uint64_t bytes = mox_quantize_blocks_bytes(spec) / (uint64_t)pieces_of(spec);
        const uint64_t row = (uint64_t)spec->shape[spec->rank - 1];
        piece = bytes > piece ? bytes : piece;
        cols = row > cols ? row : cols;
    }
    worker *workers = mox_calloc((uint64_t)count, sizeof *workers);
    bool fine = workers != NULL;
    for (int32_t i = 0; fine && i < count; i++) {
        workers[i].w = mox_calloc(cols, sizeof(float));
        workers[i].q = mox_calloc(cols, sizeof(float));
        workers[i].importance = mox_calloc(cols, sizeof(float));
        workers[i].piece = mox_calloc(piece, 1);
        fine = workers[i].w && workers[i].q && workers[i].importance && workers[i].piece;
    }
    if (!fine) {
        free_workers(workers, count);
        return mox_fail(MOXIE_ERR_MEMORY, error, "no memory for a matrix of %llu bytes in each of %d threads",
                        (unsigned long long)piece, (int)count);
    }
    *out = workers;
    return MOXIE_OK;
}

/* ---- one matrix of one expert ------------------------------------------------------------------------ */

static moxie_status check_row(const run *x, const mox_tensor_spec *spec, int64_t e, int64_t r, const float *w,
                              mox_weight_range *range, moxie_error *error)
{
    const float limit = mox_block_largest(spec->dtype);
    *range = x->loops->range(w, spec->cols);
    for (int64_t c = 0; c < spec->cols && (!range->finite || fmaxf(-range->low, range->high) > limit); c++)
        MOX_FAIL_IF(
            !(fabsf(w[c]) <= limit), isfinite(w[c]) ? MOXIE_ERR_UNSUPPORTED : MOXIE_ERR_FORMAT, error,
            "layer %lld, expert %lld, %s: weight [%lld, %lld] is %g, and the type of the result holds up to %g: "
            "use gguf-bf16 or gguf-f32",
            (long long)x->layer->layer, (long long)e, spec->name, (long long)r, (long long)c, (double)w[c],
            (double)limit);
    return MOXIE_OK;
}

static void add_error(const float *w, const float *q, int64_t row, int64_t cols, moxie_quantize_error *out)
{
    double squares[8] = { 0 };
    float worst[8] = { 0 };
    for (int64_t c = 0; c + 8 <= cols; c += 8)
        for (int j = 0; j < 8; j++) {
            const float difference = fabsf(q[c + j] - w[c + j]);
            squares[j] += (double)difference * (double)difference;
            worst[j] = difference > worst[j] ? difference : worst[j];
        }
    for (int64_t c = cols / 8 * 8; c < cols; c++) {
        const float difference = fabsf(q[c] - w[c]);
        squares[0] += (double)difference * (double)difference;
        worst[0] = difference > worst[0] ? difference : worst[0];
    }
    out->squares += mox_weight_lanes(squares);
    float largest = 0;
    for (int j = 0; j < 8; j++)
        largest = worst[j] > largest ? worst[j] : largest;
    if (!((double)largest > out->worst))
        return;
    out->worst = (double)largest;
    out->worst_row = row;
    for (int64_t c = 0; c < cols; c++)
        if (fabsf(q[c] - w[c]) == largest) {
            out->worst_col = c;
            return;
        }
}

static void decode_row(moxie_dtype dtype, const uint8_t *from, int64_t cols, float *out)
{
    const mox_block *block = mox_block_of(dtype);
    if (block)
        mox_block_decode_run(block, from, 0, cols, out);
    else
        mox_widen(dtype, from, out, cols);
}

/* Whether every weight of the source is an f32 number. */
static bool is_exact_source(const moxie_quant *quant)
{
    return (mox_quant_is_plain(quant) && !mox_quant_is_block(quant)) ||
           (!mox_quant_is_block(quant) && quant->global == MOXIE_GLOBAL_NONE && quant->scale != MOXIE_F32);
}

static moxie_status do_matrix(const run *x, int64_t i, int64_t e, worker *k, moxie_error *error)
{
    const mox_quantize_blocks *l = x->layer;
    const mox_tensor_spec *spec = &l->specs[i];
    const moxie_expert *expert = &l->loaded->weights.experts[e];
    const bool down = spec->kind == MOX_TENSOR_DOWN, up = spec->kind == MOX_TENSOR_UP;
    const moxie_matrix *source = down ? &expert->down : up ? &expert->up : &expert->gate;
    const moxie_quant *quant = down ? &l->loaded->config.w2 : &l->loaded->config.w13;
    const int32_t projection = down ? MOXIE_PROJECTION_DOWN : up ? MOXIE_PROJECTION_UP : MOXIE_PROJECTION_GATE;
    moxie_quantize_error *out = &l->errors[3 * e + projection];
    const uint64_t row_bytes = mox_block_row_bytes(spec->dtype, spec->cols);
    bool weighted = false;
    *out = (moxie_quantize_error) { .layer = l->layer, .expert = (int32_t)e, .projection = projection };
    if (l->imatrix)
        MOX_TRY(
            mox_imatrix_columns(l->imatrix, spec->name, e, spec->stacked, spec->cols, k->importance, &weighted, error));
    const bool repacked = mox_quantize_blocks_repack(spec, source, quant, k->piece);
    for (int64_t r = 0; r < spec->rows; r++) {
        mox_weight_range range;
        uint8_t *bytes = k->piece + (uint64_t)r * row_bytes;
        mox_matrix_row(source, quant, r, k->w);
        MOX_TRY(check_row(x, spec, e, r, k->w, &range, error));
        if (!repacked)
            mox_block_encode_row(spec->dtype, k->w, weighted ? k->importance : NULL, spec->cols, l->search, bytes);
        decode_row(spec->dtype, bytes, spec->cols, k->q);
        add_error(k->w, k->q, r, spec->cols, out);
        out->weight_squares += range.squares;
    }
    out->exact = out->worst == 0 && (is_exact_source(quant) || out->weight_squares == 0);
    return mox_sealed_writer_put(x->writer, i, e, k->piece, error);
}

static void do_expert(void *context, int64_t task, int32_t number)
{
    const run *x = context;
    worker *k = &x->workers[number];
    const int64_t e = x->first + task;
    moxie_error error = { 0 };
    moxie_status status = MOXIE_OK;
    if (k->failure.status != MOXIE_OK)
        return;
    for (int64_t i = 0; i < x->layer->n_specs && status == MOXIE_OK; i++)
        if (mox_quantize_is_routed(&x->layer->specs[i]))
            status = do_matrix(x, i, e, k, &error);
    if (status != MOXIE_OK)
        k->failure = (mox_quantize_failure) { status, e, error };
}

static moxie_status do_experts(run *x, const moxie_executor *executor,
                               moxie_status (*progress)(void *user, uint64_t bytes, moxie_error *error), void *user,
                               moxie_error *error)
{
    const moxie_weights *weights = &x->layer->loaded->weights;
    const uint64_t bytes = x->layer->loaded->info.expert_bytes;
    const int64_t count = x->layer->n_experts, at_once = 4 * (int64_t)executor->workers;
    for (x->first = 0; x->first < count; x->first += at_once) {
        const int64_t end = mox_min_i64(x->first + at_once, count);
        mox_parallel(executor, end - x->first, do_expert, x);
        for (int64_t e = x->first; e < end && weights->done; e++)
            weights->done(weights->done_user, &weights->experts[e]);
        MOX_TRY(mox_quantize_first_failure(&x->workers->failure, sizeof *x->workers, executor->workers, error));
        MOX_TRY(progress(user, bytes * (uint64_t)end / (uint64_t)count - bytes * (uint64_t)x->first / (uint64_t)count,
                         error));
    }
    return MOXIE_OK;
}

/* ---- other tensors ----------------------------------------------------------------------------------- */

static moxie_status do_others(const run *x, moxie_error *error)
{
    for (int64_t i = 0; i < x->layer->n_specs; i++)
        if (!mox_quantize_is_routed(&x->layer->specs[i]))
            MOX_TRY(mox_quantize_plain_write(x->layer->loaded, &x->layer->specs[i], i, x->writer, error));
    return MOXIE_OK;
}

/* ---- the layer --------------------------------------------------------------------------------------- */

static moxie_status open_writer(const mox_quantize_blocks *l, const char *path, mox_sealed_writer **out,
                                moxie_error *error)
{
    moxie_sealed_tensor *tensors = mox_calloc((uint64_t)l->n_specs, sizeof *tensors);
    MOX_FAIL_IF(!tensors, MOXIE_ERR_MEMORY, error, "no memory for %lld tensors", (long long)l->n_specs);
    for (int64_t i = 0; i < l->n_specs; i++) {
        const mox_tensor_spec *spec = &l->specs[i];
        tensors[i] = (moxie_sealed_tensor) { .name = spec->name,
                                             .dtype = MOXIE_U8,
                                             .rank = 1,
                                             .shape = { (int64_t)mox_quantize_blocks_bytes(spec) },
                                             .pieces = pieces_of(spec) };
    }
    const moxie_status status = mox_sealed_writer_open(path, tensors, l->n_specs, NULL, 0, out, error);
    mox_free(tensors);
    return status;
}

moxie_status mox_quantize_blocks_write(const mox_quantize_blocks *layer, const char *path,
                                       const moxie_executor *executor,
                                       moxie_status (*progress)(void *user, uint64_t bytes, moxie_error *error),
                                       void *user, moxie_error *error)
{
    run x = { .layer = layer, .loops = mox_weight_loops_best() };
    MOX_TRY(make_workers(layer, executor->workers, &x.workers, error));
    moxie_status status = open_writer(layer, path, &x.writer, error);
    if (status == MOXIE_OK)
        status = do_experts(&x, executor, progress, user, error);
    if (status == MOXIE_OK)
        status = do_others(&x, error);
    if (status == MOXIE_OK)
        status = mox_sealed_writer_finish(x.writer, error);
    else
        mox_sealed_writer_abandon(x.writer);
    free_workers(x.workers, executor->workers);
    return status;
}
