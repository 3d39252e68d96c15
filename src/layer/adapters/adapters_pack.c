/* SPDX-License-Identifier: Apache-2.0
 *
 * adapters_pack.c - one adapter: reads the caller's views, checks their shapes against the layer, and packs the factors
 * of this rank's experts into one block (cpu/lora/lora_args.h).
 *
 *     a [E, r, K] -> slot after slot [r, K rounded up to 16]        b [E, N, r] -> slot after slot [panels, r, 16]
 *
 * bf16 stays as it is; f16 becomes f32, which is exact. A factor that all experts share is packed once. So is one A of
 * gate and up. A tensor parallel rank packs the rows of B that belong to its rows of the matrices.
 */
#include <stdio.h>

#include "base/carver.h"
#include "layer/adapters/adapters.h"
#include "layer/config/reserved.h"
#include "layer/config/struct_size.h"

/* A factor as a view of three axes; expert_stride 0: all experts share it. Strides are in elements. */
typedef struct factor {
    const char *data;
    moxie_dtype dtype;
    int64_t rows, cols, expert_stride, row_stride, col_stride;
} factor;

/* One matrix of the layer and its pair of factors. */
typedef struct pair {
    const char *name; /* for texts: "gate" */
    const moxie_tensor *tensor_a, *tensor_b;
    float scale;
    int64_t rows, cols; /* N, K */
    factor a, b;        /* b: the rows of this tensor parallel rank, once they are checked */
} pair;

/* ---- reading --------------------------------------------------------------------------------------- */

static moxie_status check_tensor(const moxie_tensor *t, const char *name, char which, moxie_error *error)
{
    char where[32];
    snprintf(where, sizeof where, "%s_%c", name, which);
    MOX_RESERVED(moxie_tensor, t, where, error);
    MOX_FAIL_IF(t->device != 0, MOXIE_ERR_UNSUPPORTED, error, "adapter: %s is on device %d; it must be host memory",
                where, (int)t->device);
    MOX_FAIL_IF(t->dtype != MOXIE_F32 && t->dtype != MOXIE_F16 && t->dtype != MOXIE_BF16, MOXIE_ERR_UNSUPPORTED, error,
                "adapter: %s is %s; factors are f32, f16 or bf16", where, mox_dtype_name(t->dtype));
    MOX_FAIL_IF(t->rank != 2 && t->rank != 3, MOXIE_ERR_ARGUMENT, error,
                "adapter: %s has %d axes; it needs two, or three with one for the experts", where, (int)t->rank);
    return MOXIE_OK;
}

static bool is_contiguous(const moxie_tensor *t)
{
    for (int32_t i = 0; i < t->rank; i++)
        if (t->strides[i] != 0)
            return false;
    return true;
}

static factor view(const moxie_tensor *t)
{
    const int32_t last = t->rank - 1;
    factor f = { .data = t->data, .dtype = t->dtype, .rows = t->shape[last - 1], .cols = t->shape[last] };
    if (is_contiguous(t)) {
        f.row_stride = f.cols;
        f.col_stride = 1;
        f.expert_stride = t->rank == 3 ? f.rows * f.cols : 0;
        return f;
    }
    f.row_stride = t->strides[last - 1];
    f.col_stride = t->strides[last];
    f.expert_stride = t->rank == 3 ? t->strides[0] : 0;
    return f;
}

static moxie_status check_experts(const moxie_layer *layer, const moxie_tensor *t, const char *name, char which,
                                  moxie_error *error)
{
    MOX_FAIL_IF(t->rank == 3 && t->shape[0] != layer->config.experts, MOXIE_ERR_MISMATCH, error,
                "adapter: %s_%c has %lld experts, the layer has %lld", name, which, (long long)t->shape[0],
                (long long)layer->config.experts);
    return MOXIE_OK;
}

/* Of B a rank needs the rows that its records have of the matrix. */
static void cut(const moxie_layer *layer, int matrix, factor *b)
{
    const moxie_layer_config *c = &layer->config;
    if (!layer->routed_shape.cut || b->data == NULL)
        return;
    const mox_tp_rows own = matrix == MOX_LORA_DOWN ? mox_tp_rows2(c, c->tp_rank) : mox_tp_rows13(c, c->tp_rank);
    b->data += own.first * b->row_stride * mox_dtype_bytes(b->dtype);
    b->rows = own.count;
}

/* Reads both views of a pair; without data the pair keeps rank 0. */
static moxie_status read_pair(const moxie_layer *layer, pair *p, moxie_error *error)
{
    const moxie_tensor *a = p->tensor_a, *b = p->tensor_b;
    if (a->data == NULL && b->data == NULL)
        return MOXIE_OK;
    MOX_FAIL_IF(a->data == NULL || b->data == NULL, MOXIE_ERR_ARGUMENT, error,
                "adapter: %s has %s but no %s: set both, or none where it does not change the projection", p->name,
                a->data != NULL ? "an A" : "a B", a->data != NULL ? "B" : "A");
    MOX_TRY(check_tensor(a, p->name, 'a', error));
    MOX_TRY(check_tensor(b, p->name, 'b', error));
    MOX_TRY(check_experts(layer, a, p->name, 'a', error));
    MOX_TRY(check_experts(layer, b, p->name, 'b', error));
    p->a = view(a);
    p->b = view(b);
    MOX_FAIL_IF(p->a.rows < 1 || p->a.rows > MOXIE_MAX_ADAPTER_RANK || p->a.rows != p->b.cols, MOXIE_ERR_MISMATCH,
                error, "adapter: %s has an A with %lld rows and a B with %lld columns; both must be its rank, 1 to %d",
                p->name, (long long)p->a.rows, (long long)p->b.cols, MOXIE_MAX_ADAPTER_RANK);
    MOX_FAIL_IF(p->a.cols != p->cols || p->b.rows != p->rows, MOXIE_ERR_MISMATCH, error,
                "adapter: B A of %s is [%lld, %lld], but the layer's matrix is [%lld, %lld]", p->name,
                (long long)p->b.rows, (long long)p->a.cols, (long long)p->rows, (long long)p->cols);
    MOX_FAIL_IF(!isfinite(p->scale), MOXIE_ERR_ARGUMENT, error, "adapter: the scale of %s is not finite", p->name);
    return MOXIE_OK;
}

static moxie_status read_pairs(const moxie_layer *layer, const moxie_lora *l, pair out[MOX_LORA_MATRICES],
                               moxie_error *error)
{
    const moxie_layer_config *c = &layer->config;
    const pair pairs[MOX_LORA_MATRICES] = {
        [MOX_LORA_GATE] = { "gate", &l->gate_a, &l->gate_b, l->gate_scale, c->intermediate, c->hidden, { 0 }, { 0 } },
        [MOX_LORA_UP] = { "up", &l->up_a, &l->up_b, l->up_scale, c->intermediate, c->hidden, { 0 }, { 0 } },
        [MOX_LORA_DOWN] = { "down", &l->down_a, &l->down_b, l->down_scale, c->hidden, c->intermediate, { 0 }, { 0 } },
    };
    int present = 0;
    for (int m = 0; m < MOX_LORA_MATRICES; m++) {
        out[m] = pairs[m];
        MOX_TRY(read_pair(layer, &out[m], error));
        cut(layer, m, &out[m].b);
        present += out[m].a.data != NULL;
    }
    MOX_FAIL_IF(present == 0, MOXIE_ERR_ARGUMENT, error, "adapter: it has no factors: set those of a projection");
    MOX_FAIL_IF(out[MOX_LORA_GATE].a.data != NULL && !layer->routed_shape.gated, MOXIE_ERR_MISMATCH, error,
                "adapter: it has factors of the gate, but the layer's activation is ungated: give them as up");
    return MOXIE_OK;
}

/* ---- packing --------------------------------------------------------------------------------------- */

static moxie_dtype stored_dtype(moxie_dtype dtype)
{
    return dtype == MOXIE_BF16 ? MOXIE_BF16 : MOXIE_F32;
}

static void put(const factor *f, int64_t expert, int64_t row, int64_t col, char *to)
{
    const int64_t bytes = mox_dtype_bytes(f->dtype);
    const char *from = f->data + (expert * f->expert_stride + row * f->row_stride + col * f->col_stride) * bytes;
    if (f->dtype == MOXIE_BF16) {
        memcpy(to, from, 2);
        return;
    }
    const float value = mox_load(f->dtype, from);
    memcpy(to, &value, sizeof value);
}

/* One expert; the block is zeroed. */
static void pack_a(const factor *f, int64_t expert, char *to)
{
    const int64_t bytes = mox_dtype_bytes(stored_dtype(f->dtype)), padded = mox_lora_padded(f->cols);
    for (int64_t i = 0; i < f->rows; i++)
        for (int64_t k = 0; k < f->cols; k++)
            put(f, expert, i, k, to + (i * padded + k) * bytes);
}

static void pack_b(const factor *f, int64_t expert, char *to)
{
    const int64_t bytes = mox_dtype_bytes(stored_dtype(f->dtype));
    for (int64_t n = 0; n < f->rows; n++)
        for (int64_t i = 0; i < f->cols; i++) {
            const int64_t panel = n / MOX_LORA_LANES, lane = n % MOX_LORA_LANES;
            put(f, expert, n, i, to + ((panel * f->cols + i) * MOX_LORA_LANES + lane) * bytes);
        }
}

/* Bytes of one expert's factor: rows and columns padded as lora_args.h draws them. */
static int64_t expert_bytes(const factor *f, bool is_a)
{
    const int64_t padded = is_a ? f->rows * mox_lora_padded(f->cols) : mox_lora_padded(f->rows) * f->cols;
    return padded * mox_dtype_bytes(stored_dtype(f->dtype));
}

static const void *pack_factor(mox_carver *carver, const moxie_layer *layer, const factor *f, bool is_a, int64_t *step)
{
    const bool shared = f->expert_stride == 0;
    const int64_t bytes = expert_bytes(f, is_a), copies = shared ? 1 : layer->slots;
    char *at = mox_carve(carver, (uint64_t)copies, (uint64_t)bytes);
    *step = shared ? 0 : bytes;
    for (int64_t s = 0; at != NULL && s < copies; s++) {
        const int64_t expert = shared ? 0 : layer->expert_of[s];
        if (is_a)
            pack_a(f, expert, at + s * bytes);
        else
            pack_b(f, expert, at + s * bytes);
    }
    return at;
}

static bool same_view(const factor *a, const factor *b)
{
    return a->data != NULL && a->data == b->data && a->dtype == b->dtype && a->rows == b->rows &&
           a->expert_stride == b->expert_stride && a->row_stride == b->row_stride && a->col_stride == b->col_stride;
}

/* Gate and up share u when they have one A and one scale. */
static bool has_one_a(const pair pairs[MOX_LORA_MATRICES])
{
    const pair *gate = &pairs[MOX_LORA_GATE], *up = &pairs[MOX_LORA_UP];
    return same_view(&gate->a, &up->a) && gate->scale == up->scale;
}

/* Lays the factors out; packs them, unless the carver only measures. */
static void pack(mox_carver *carver, const moxie_layer *layer, const pair pairs[MOX_LORA_MATRICES],
                 mox_lora_adapter *out)
{
    out->one_a = has_one_a(pairs);
    for (int m = 0; m < MOX_LORA_MATRICES; m++) {
        const pair *p = &pairs[m];
        mox_lora_matrix *to = &out->matrix[m];
        if (p->a.data == NULL)
            continue;
        *to = (mox_lora_matrix) { .rank = (int32_t)p->a.rows,
                                  .scale = p->scale != 0 ? p->scale : 1,
                                  .a_dtype = stored_dtype(p->a.dtype),
                                  .b_dtype = stored_dtype(p->b.dtype) };
        if (m == MOX_LORA_UP && out->one_a) {
            to->a = out->matrix[MOX_LORA_GATE].a;
            to->a_expert_bytes = out->matrix[MOX_LORA_GATE].a_expert_bytes;
        } else {
            to->a = pack_factor(carver, layer, &p->a, true, &to->a_expert_bytes);
        }
        to->b = pack_factor(carver, layer, &p->b, false, &to->b_expert_bytes);
    }
}

moxie_status mox_adapter_make(const moxie_layer *layer, const moxie_lora *lora, mox_adapter **out, moxie_error *error)
{
    moxie_lora read;
    pair pairs[MOX_LORA_MATRICES];
    mox_lora_adapter unused = { 0 };
    MOX_TRY(mox_struct_read(lora, &read, MOX_STRUCT(moxie_lora), error));
    MOX_TRY(read_pairs(layer, &read, pairs, error));
    mox_carver carver = mox_carver_of(NULL);
    pack(&carver, layer, pairs, &unused);
    mox_adapter *adapter = mox_calloc(1, sizeof *adapter);
    void *block = adapter != NULL ? mox_alloc_pages(carver.used) : NULL;
    if (block == NULL) {
        mox_free(adapter);
        return mox_fail(MOXIE_ERR_MEMORY, error, "no memory for an adapter of %llu bytes",
                        (unsigned long long)carver.used);
    }
    adapter->block = block;
    adapter->bytes = carver.used;
    adapter->enabled = true;
    adapter->generation = layer->config.slot_map != NULL ? layer->config.slot_map->generation : 0;
    carver = mox_carver_of(block);
    pack(&carver, layer, pairs, &adapter->factors);
    for (int m = 0; m < MOX_LORA_MATRICES; m++)
        if (adapter->factors.matrix[m].rank > adapter->rank)
            adapter->rank = adapter->factors.matrix[m].rank;
    *out = adapter;
    return MOXIE_OK;
}

void mox_adapter_free(mox_adapter *adapter)
{
    if (adapter == NULL)
        return;
    mox_free_pages(adapter->block);
    mox_free(adapter);
}
