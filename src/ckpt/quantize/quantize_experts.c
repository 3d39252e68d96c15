/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_experts.c - a layer's file, one expert a task (quantize_layer.h):
 *
 *     expert e:  gate, up -> f32 [gate; up] -> each stored matrix -> its pieces in the file
 *                down     -> f32 [down]     -> likewise
 *
 * A worker has memory for one expert's W13 in f32, the codes of one matrix, and one piece. Pieces have their places in
 * the file, and sums are made expert by expert; so nothing depends on which worker does an expert, or when.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/executor.h"
#include "base/sizes.h"
#include "ckpt/quantize/quantize_failure.h"
#include "ckpt/quantize/quantize_layer.h"
#include "ckpt/safetensors/seal.h"
#include "quant/matrix_row.h"

typedef struct worker {
    float *w, *scale, *zero, *importance[3]; /* importances by projection, where there are any */
    uint8_t *codes, *piece;
    mox_quantize_failure failure;
} worker;

typedef struct run {
    mox_quantize_layer *layer;
    mox_sealed_writer *writer;
    worker *workers;
    int64_t first; /* expert of task 0 */
} run;

/* ---- memory ------------------------------------------------------------------------------------------ */

static void free_workers(worker *workers, int32_t count)
{
    for (int32_t i = 0; workers && i < count; i++) {
        mox_free(workers[i].w);
        mox_free(workers[i].scale);
        mox_free(workers[i].zero);
        for (int j = 0; j < 3; j++)
            mox_free(workers[i].importance[j]);
        mox_free(workers[i].codes);
        mox_free(workers[i].piece);
    }
    mox_free(workers);
}

static moxie_status make_workers(const mox_quantize_layer *l, int32_t count, worker **out, moxie_error *error)
{
    const moxie_layer_config *c = &l->loaded->config;
    uint64_t codes = 0, groups = 0, piece = 0;
    for (int64_t i = 0; i < l->n_stored; i++) {
        const mox_quantize_stored *s = &l->stored[i];
        const moxie_quant quant = mox_hf_quant_weight(l->how.format, s->cols);
        const uint64_t n = (uint64_t)(mox_scale_rows(&quant, s->rows) * mox_scale_cols(&quant, s->cols));
        codes = s->rows * s->cols > (int64_t)codes ? (uint64_t)(s->rows * s->cols) : codes;
        groups = n > groups ? n : groups;
    }
    for (int64_t i = 0; i < l->n_specs; i++)
        piece = mox_quantize_piece_bytes(&l->specs[i]) > piece ? mox_quantize_piece_bytes(&l->specs[i]) : piece;
    const uint64_t weights = (uint64_t)c->hidden * (uint64_t)c->intermediate * 2;
    worker *workers = mox_calloc((uint64_t)count, sizeof *workers);
    bool fine = workers != NULL;
    for (int32_t i = 0; fine && i < count; i++) {
        workers[i].w = mox_calloc(weights, sizeof(float));
        workers[i].scale = mox_calloc(groups, sizeof(float));
        workers[i].zero = mox_calloc(groups, sizeof(float));
        workers[i].codes = mox_calloc(codes, 1);
        workers[i].piece = mox_calloc(piece, 1);
        fine = workers[i].w && workers[i].scale && workers[i].zero && workers[i].codes && workers[i].piece;
        for (int j = 0; j < 3 && l->imatrix; j++) {
            const int64_t cols = j == MOXIE_PROJECTION_DOWN ? c->intermediate : c->hidden;
            workers[i].importance[j] = mox_calloc((uint64_t)cols, sizeof(float));
            fine = fine && workers[i].importance[j];
        }
    }
    if (!fine) {
        free_workers(workers, count);
        return mox_fail(MOXIE_ERR_MEMORY, error,
                        "no memory for one expert of %llu weights in each of %d threads; use "
                        "fewer threads",
                        (unsigned long long)weights, (int)count);
    }
    *out = workers;
    return MOXIE_OK;
}

/* ---- one expert -------------------------------------------------------------------------------------- */

/* The largest magnitude that the result can hold: scales make room for any, plain floats do not. */
static float limit_of(const mox_quantize_layer *l)
{
    const moxie_quant *quant = &l->how.format->weight;
    return mox_quant_is_plain(quant) ? mox_format_of(quant->element)->max : FLT_MAX;
}

static moxie_status check_row(const mox_quantize_layer *l, int64_t e, const char *name, int64_t r, const float *w,
                              int64_t cols, moxie_error *error)
{
    const float limit = limit_of(l);
    for (int64_t c = 0; c < cols; c++) {
        MOX_FAIL_IF(!(fabsf(w[c]) <= FLT_MAX), MOXIE_ERR_FORMAT, error,
                    "layer %lld, expert %lld, %s: weight [%lld, %lld] is %g, which no quantized format stores",
                    (long long)l->layer, (long long)e, name, (long long)r, (long long)c, (double)w[c]);
        MOX_FAIL_IF(fabsf(w[c]) > limit, MOXIE_ERR_UNSUPPORTED, error,
                    "layer %lld, expert %lld, %s: weight [%lld, %lld] is %g, and the largest number of %s is %g: use "
                    "bf16 or f32",
                    (long long)l->layer, (long long)e, name, (long long)r, (long long)c, (double)w[c],
                    l->how.format->id, (double)limit);
    }
    return MOXIE_OK;
}

static moxie_status read_matrix(const mox_quantize_layer *l, int64_t e, const moxie_matrix *source,
                                const moxie_quant *quant, const char *name, float *w, mox_weight_range *range,
                                moxie_error *error)
{
    const int64_t rows = source->codes.rows, cols = source->codes.cols;
    const float limit = limit_of(l);
    for (int64_t r = 0; r < rows; r++) {
        mox_matrix_row(source, quant, r, w + r * cols);
        const mox_weight_range part = l->how.loops->range(w + r * cols, cols);
        if (!part.finite || fmaxf(-part.low, part.high) > limit)
            MOX_TRY(check_row(l, e, name, r, w + r * cols, cols, error));
        range->low = fminf(range->low, part.low);
        range->high = fmaxf(range->high, part.high);
        range->squares += part.squares;
    }
    return MOXIE_OK;
}

/* Whether products of codes and scales have 24 bits or fewer. */
static bool is_exact(const moxie_quant *quant)
{
    return mox_quant_is_plain(quant) ||
           (!mox_quant_is_block(quant) && quant->global == MOXIE_GLOBAL_NONE && quant->scale != MOXIE_F32);
}

static moxie_status put_matrix(const run *x, int64_t e, const mox_quantize_stored *s, const mox_quantize_matrix *m,
                               uint8_t *piece, moxie_error *error)
{
    for (int64_t i = s->first; i < s->first + s->count; i++) {
        const mox_tensor_spec *spec = &x->layer->specs[i];
        MOX_TRY(mox_quantize_store(m, spec, piece, mox_quantize_piece_bytes(spec), error));
        MOX_TRY(mox_sealed_writer_put(x->writer, i, spec->stacked > 0 ? e : 0, piece, error));
    }
    return MOXIE_OK;
}

/* Reads the importances of the projections from .. to into the worker's; out[i] NULL where there are none. */
static moxie_status read_importances(const mox_quantize_layer *l, int64_t e, const moxie_matrix *const sources[3],
                                     int from, int to, const worker *k, const float *out[3], moxie_error *error)
{
    for (int i = from; i <= to && l->imatrix; i++) {
        bool found = false;
        MOX_TRY(mox_quantize_importance(l, i, e, sources[i]->codes.cols, k->importance[i], &found, error));
        out[i] = found ? k->importance[i] : NULL;
    }
    return MOXIE_OK;
}

/* All stored matrices of W13 (`second` false) or of W2. */
static moxie_status do_product(const run *x, int64_t e, bool second, worker *k, moxie_error *error)
{
    mox_quantize_layer *l = x->layer;
    const moxie_expert *expert = &l->loaded->weights.experts[e];
    const moxie_quant *quant = second ? &l->loaded->config.w2 : &l->loaded->config.w13;
    static const char *const names[] = { "gate", "up", "down" };
    const moxie_matrix *const sources[3] = { &expert->gate, &expert->up, &expert->down };
    const int from = second                    ? MOXIE_PROJECTION_DOWN
                     : expert->gate.codes.data ? MOXIE_PROJECTION_GATE
                                               : MOXIE_PROJECTION_UP;
    const int to = second ? MOXIE_PROJECTION_DOWN : MOXIE_PROJECTION_UP;
    mox_weight_range all = { 0 };
    float *w = k->w;
    const float *importance[3] = { NULL };
    MOX_TRY(read_importances(l, e, sources, from, to, k, importance, error));
    for (int i = from; i <= to; i++) {
        mox_weight_range range = { 0 };
        moxie_quantize_error *out = &l->errors[3 * e + i];
        MOX_TRY(read_matrix(l, e, sources[i], quant, names[i], w, &range, error));
        *out = (moxie_quantize_error) {
            .layer = l->layer, .expert = (int32_t)e, .projection = i, .weight_squares = range.squares, .exact = 1
        };
        all.low = fminf(all.low, range.low);
        all.high = fmaxf(all.high, range.high);
        w += sources[i]->codes.rows * sources[i]->codes.cols;
    }
    for (int64_t i = 0; i < l->n_stored; i++) {
        const mox_quantize_stored *s = &l->stored[i];
        if ((s->kind == MOX_TENSOR_DOWN) != second || (s->expert >= 0 && s->expert != e))
            continue;
        mox_quantize_matrix m = { .how = &l->how,
                                  .kind = s->kind,
                                  .rows = s->rows,
                                  .cols = s->cols,
                                  .interleaved = s->interleaved,
                                  .ungated = from == MOXIE_PROJECTION_UP,
                                  .from_codes = !mox_quant_is_plain(quant),
                                  .exact_source = is_exact(quant),
                                  .w = k->w,
                                  .range = all,
                                  .input_amax = l->input_amax[second],
                                  .importance = { importance[0], importance[1], importance[2] },
                                  .codes = k->codes,
                                  .scale = k->scale,
                                  .zero = k->zero,
                                  .errors = &l->errors[3 * e] };
        MOX_TRY(mox_quantize_rule(&l->how, s->cols, &m.rule, error));
        if (mox_quant_is_plain(&m.rule.quant))
            mox_quantize_matrix_narrow(&m);
        else if (!mox_quantize_matrix_repack(&m, sources, quant))
            mox_quantize_matrix_run(&m);
        MOX_TRY(put_matrix(x, e, s, &m, k->piece, error));
    }
    return MOXIE_OK;
}

static void do_expert(void *context, int64_t task, int32_t number)
{
    const run *x = context;
    worker *k = &x->workers[number];
    const int64_t e = x->first + task;
    if (k->failure.status != MOXIE_OK)
        return;
    moxie_error error = { 0 };
    moxie_status status = do_product(x, e, false, k, &error);
    if (status == MOXIE_OK)
        status = do_product(x, e, true, k, &error);
    if (status != MOXIE_OK)
        k->failure = (mox_quantize_failure) { status, e, error };
}

/* ---- the layer --------------------------------------------------------------------------------------- */

static moxie_status do_experts(run *x, const moxie_executor *executor, mox_quantize_progress progress, void *user,
                               moxie_error *error)
{
    const moxie_weights *weights = &x->layer->loaded->weights;
    const uint64_t bytes = x->layer->loaded->info.expert_bytes;
    const int64_t count = x->layer->n_experts, at_once = 4 * (int64_t)executor->workers;
    moxie_status status = MOXIE_OK;
    for (x->first = 0; x->first < count && status == MOXIE_OK; x->first += at_once) {
        const int64_t end = mox_min_i64(x->first + at_once, count);
        mox_parallel(executor, end - x->first, do_expert, x);
        for (int64_t e = x->first; e < end && weights->done; e++)
            weights->done(weights->done_user, &weights->experts[e]);
        status = mox_quantize_first_failure(&x->workers->failure, sizeof *x->workers, executor->workers, error);
        if (status == MOXIE_OK)
            status = progress(
                user, bytes * (uint64_t)end / (uint64_t)count - bytes * (uint64_t)x->first / (uint64_t)count, error);
    }
    return status;
}

static moxie_status open_writer(const mox_quantize_layer *l, const char *path, mox_sealed_writer **out,
                                moxie_error *error)
{
    static const char *const metadata[] = { "format", "pt" };
    moxie_sealed_tensor *tensors = mox_calloc((uint64_t)l->n_specs, sizeof *tensors);
    MOX_FAIL_IF(!tensors, MOXIE_ERR_MEMORY, error, "no memory for %lld tensors", (long long)l->n_specs);
    for (int64_t i = 0; i < l->n_specs; i++) {
        const mox_tensor_spec *spec = &l->specs[i];
        tensors[i] = (moxie_sealed_tensor) {
            .name = spec->name, .dtype = spec->dtype, .rank = spec->rank, .pieces = mox_max_i64(spec->stacked, 1)
        };
        memcpy(tensors[i].shape, spec->shape, sizeof tensors[i].shape);
    }
    const moxie_status status = mox_sealed_writer_open(path, tensors, l->n_specs, metadata, 1, out, error);
    mox_free(tensors);
    return status;
}

moxie_status mox_quantize_layer_write(mox_quantize_layer *layer, const char *path, const moxie_executor *executor,
                                      mox_quantize_progress progress, void *user, moxie_error *error)
{
    run x = { .layer = layer };
    MOX_TRY(make_workers(layer, executor->workers, &x.workers, error));
    moxie_status status = open_writer(layer, path, &x.writer, error);
    if (status == MOXIE_OK)
        status = do_experts(&x, executor, progress, user, error);
    if (status == MOXIE_OK)
        status = mox_sealed_writer_finish(x.writer, error);
    else
        mox_sealed_writer_abandon(x.writer);
    free_workers(x.workers, executor->workers);
    return status;
}
