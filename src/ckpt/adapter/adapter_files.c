/* SPDX-License-Identifier: Apache-2.0
 *
 * adapter_files.c - from the tensors of an adapter's file to the views of one layer's projections (adapter_files.h).
 *
 *     names -> found[place] (one tensor for all experts, or one for each) -> A [E, r, K], B [E, N, r] -> gate, up, down
 *
 * Tensors of single experts are copied to one block, since a view has one stride from expert to expert. All others are
 * views of the file.
 */
#include "ckpt/adapter/adapter_files.h"

#include <math.h>
#include <string.h>

#include "base/sizes.h"
#include "format/format.h"

/* The tensors of one place: [0] A, [1] B. */
typedef struct found {
    const mox_file_tensor *whole[2];
    const mox_file_tensor **single[2]; /* [E], NULL: there are none */
} found;

typedef struct reader {
    moxie_adapter_files *files;
    const moxie_layer_config *config;
    bool alternate; /* gate and up rows alternate */
    int64_t layer;
    found found[MOX_ADAPTER_PLACES];
    moxie_error *error;
} reader;

/* A and B of all experts: three axes, with strides. */
typedef struct pair {
    moxie_tensor a, b;
} pair;

static moxie_status refuse(const reader *r, moxie_status status, const char *name, const char *why)
{
    char shown[160];
    return mox_fail_file(status, r->error, mox_tensor_set_file_name(r->files->set, 0), -1,
                         "layer %lld, tensor \"%s\": %s", (long long)r->layer, mox_escape(shown, sizeof shown, name),
                         why);
}

/* ---- finding --------------------------------------------------------------------------------------- */

static moxie_status put(reader *r, const mox_file_tensor *t, const mox_adapter_name *name)
{
    found *f = &r->found[name->place];
    const int64_t experts = r->config->experts;
    if (t->view.dtype != MOXIE_F32 && t->view.dtype != MOXIE_F16 && t->view.dtype != MOXIE_BF16)
        return refuse(r, MOXIE_ERR_UNSUPPORTED, t->name, "factors are f32, f16 or bf16");
    if (name->expert < 0) {
        if (f->whole[name->is_b] != NULL)
            return refuse(r, MOXIE_ERR_FORMAT, t->name, "another tensor has its place");
        f->whole[name->is_b] = t;
        return MOXIE_OK;
    }
    if (name->expert >= experts)
        return refuse(r, MOXIE_ERR_MISMATCH, t->name, "the layer has no such expert");
    if (f->single[name->is_b] == NULL)
        f->single[name->is_b] = mox_arena_calloc(&r->files->arena, (uint64_t)experts, sizeof *f->single[0]);
    MOX_FAIL_IF(f->single[name->is_b] == NULL, MOXIE_ERR_MEMORY, r->error, "no memory for an adapter's tensors");
    if (f->single[name->is_b][name->expert] != NULL)
        return refuse(r, MOXIE_ERR_FORMAT, t->name, "another tensor has its place");
    f->single[name->is_b][name->expert] = t;
    return MOXIE_OK;
}

static moxie_status find_all(reader *r)
{
    for (int64_t i = 0; i < mox_tensor_set_count(r->files->set); i++) {
        const mox_file_tensor *t = mox_tensor_set_at(r->files->set, i);
        mox_adapter_name name;
        switch (mox_adapter_name_read(t->name, r->layer, &name)) {
        case MOX_ADAPTER_ELSEWHERE: break;
        case MOX_ADAPTER_FACTOR: MOX_TRY(put(r, t, &name)); break;
        case MOX_ADAPTER_ROUTER:
            return refuse(r, MOXIE_ERR_UNSUPPORTED, t->name,
                          "it changes the router, and adapters are for routed experts: merge it into the router");
        case MOX_ADAPTER_SHARED_EXPERT:
            return refuse(r, MOXIE_ERR_UNSUPPORTED, t->name,
                          "it changes the shared expert, and adapters are for routed experts: merge it");
        case MOX_ADAPTER_UNKNOWN:
            return refuse(r, MOXIE_ERR_FORMAT, t->name, "it belongs to the experts, but is no factor that moxie knows");
        }
    }
    return MOXIE_OK;
}

/* ---- one tensor for all experts -------------------------------------------------------------------- */

static moxie_tensor axes(const mox_file_tensor *t, int64_t experts, int64_t rows, int64_t cols, int64_t expert_stride,
                         int64_t row_stride, int64_t col_stride)
{
    return (moxie_tensor) { .data = t->view.data,
                            .dtype = t->view.dtype,
                            .rank = 3,
                            .shape = { experts, rows, cols },
                            .strides = { expert_stride, row_stride, col_stride } };
}

/* A 3-D tensor; a first axis of one is shared by all experts. */
static moxie_status stacked(const reader *r, const mox_file_tensor *t, moxie_tensor *out)
{
    const int64_t *shape = t->view.shape, experts = r->config->experts;
    if (t->view.rank != 3 || (shape[0] != experts && shape[0] != 1))
        return refuse(r, MOXIE_ERR_MISMATCH, t->name, "it must have three axes, the first with one or all experts");
    *out = axes(t, experts, shape[1], shape[2], shape[0] == 1 ? 0 : shape[1] * shape[2], shape[2], 1);
    return MOXIE_OK;
}

static moxie_status pair_of_whole(const reader *r, const mox_file_tensor *a, const mox_file_tensor *b, pair *out)
{
    const int64_t experts = r->config->experts, rows = a->view.shape[0], cols = a->view.shape[1];
    if (a->view.rank != 2 || b->view.rank != 2) {
        MOX_TRY(stacked(r, a, &out->a));
        return stacked(r, b, &out->b);
    }
    if (rows != b->view.shape[1])
        return refuse(r, MOXIE_ERR_MISMATCH, a->name, "its rows and the columns of its B differ");
    const int64_t n = b->view.shape[0];
    if (rows == r->files->config.rank) { /* one A and one B for all */
        out->a = axes(a, experts, rows, cols, 0, cols, 1);
        out->b = axes(b, experts, n, rows, 0, rows, 1);
        return MOXIE_OK;
    }
    if (rows != r->files->config.rank * experts)
        return refuse(r, MOXIE_ERR_MISMATCH, a->name,
                      "its rows are neither r of the configuration nor r for each expert");
    /* PEFT: A is expert after expert, B's columns are rank after rank with the experts inside. */
    const int64_t rank = rows / experts;
    out->a = axes(a, experts, rank, cols, rank * cols, cols, 1);
    out->b = axes(b, experts, n, rank, 1, rows, experts);
    return MOXIE_OK;
}

/* ---- a tensor for each expert ---------------------------------------------------------------------- */

/* Copies the experts' tensors to one block; an expert without one gets zeros. */
static moxie_status gather(reader *r, const mox_file_tensor **single, moxie_tensor *out)
{
    const mox_file_tensor *first = NULL;
    const int64_t experts = r->config->experts;
    for (int64_t e = 0; e < experts && first == NULL; e++)
        first = single[e];
    const int64_t rows = first->view.shape[0], cols = first->view.shape[1];
    const int64_t bytes = rows * cols * mox_dtype_bytes(first->view.dtype);
    char *block = mox_arena_calloc(&r->files->arena, (uint64_t)experts, (uint64_t)bytes);
    MOX_FAIL_IF(block == NULL, MOXIE_ERR_MEMORY, r->error, "no memory for the factors of %lld experts",
                (long long)experts);
    for (int64_t e = 0; e < experts; e++) {
        const mox_file_tensor *t = single[e];
        if (t == NULL)
            continue;
        if (t->view.rank != 2 || t->view.shape[0] != rows || t->view.shape[1] != cols ||
            t->view.dtype != first->view.dtype)
            return refuse(r, MOXIE_ERR_MISMATCH, t->name, "its shape or dtype differs from another expert's");
        memcpy(block + e * bytes, t->view.data, (size_t)bytes);
    }
    *out = (moxie_tensor) { .data = block,
                            .dtype = first->view.dtype,
                            .rank = 3,
                            .shape = { experts, rows, cols },
                            .strides = { rows * cols, cols, 1 } };
    return MOXIE_OK;
}

static moxie_status check_singles(const reader *r, const found *f)
{
    for (int64_t e = 0; e < r->config->experts; e++) {
        const mox_file_tensor *a = f->single[0] != NULL ? f->single[0][e] : NULL;
        const mox_file_tensor *b = f->single[1] != NULL ? f->single[1][e] : NULL;
        if ((a == NULL) != (b == NULL))
            return refuse(r, MOXIE_ERR_FORMAT, a != NULL ? a->name : b->name, "its A or its B is missing");
    }
    return MOXIE_OK;
}

/* ---- places to projections ------------------------------------------------------------------------- */

static bool is_empty(const found *f)
{
    return f->whole[0] == NULL && f->whole[1] == NULL && f->single[0] == NULL && f->single[1] == NULL;
}

static moxie_status read_pair(reader *r, const found *f, pair *out)
{
    if (f->single[0] != NULL || f->single[1] != NULL) {
        for (int i = 0; i < 2; i++)
            if (f->whole[i] != NULL)
                return refuse(r, MOXIE_ERR_FORMAT, f->whole[i]->name,
                              "single experts have tensors of its projection, too");
        MOX_TRY(check_singles(r, f));
        MOX_TRY(gather(r, f->single[0], &out->a));
        return gather(r, f->single[1], &out->b);
    }
    if (f->whole[0] == NULL || f->whole[1] == NULL)
        return refuse(r, MOXIE_ERR_FORMAT, f->whole[f->whole[0] == NULL]->name, "its A or its B is missing");
    return pair_of_whole(r, f->whole[0], f->whole[1], out);
}

static float scale_of(const reader *r, const pair *p)
{
    const double rank = (double)p->a.shape[1];
    const mox_adapter_config *c = &r->files->config;
    return (float)(c->alpha / (c->rank_stabilised ? sqrt(rank) : rank));
}

/* Gate and up of a B with the rows of both. */
static void split(const reader *r, const pair *p, moxie_lora *lora)
{
    const int64_t half = p->b.shape[1] / 2, bytes = mox_dtype_bytes(p->b.dtype);
    lora->gate_a = lora->up_a = p->a;
    lora->gate_b = lora->up_b = p->b;
    lora->gate_b.shape[1] = lora->up_b.shape[1] = half;
    lora->up_b.data = (char *)p->b.data + (r->alternate ? 1 : half) * p->b.strides[1] * bytes;
    if (r->alternate)
        lora->gate_b.strides[1] = lora->up_b.strides[1] = 2 * p->b.strides[1];
    lora->gate_scale = lora->up_scale = scale_of(r, p);
}

/* Which projection a pair of a 3-D parameter changes, by its shape. */
static moxie_status place_nested(const reader *r, const found *f, const pair *p, mox_adapter_place *place)
{
    const moxie_layer_config *c = r->config;
    const bool gated = moxie_act_is_gated(c->activation.kind) != 0;
    const int64_t in = p->a.shape[2], out = p->b.shape[1];
    if (in == c->hidden && out == (gated ? 2 : 1) * c->intermediate)
        *place = gated ? MOX_ADAPTER_GATE_UP : MOX_ADAPTER_UP;
    else if (in == c->intermediate && out == c->hidden)
        *place = MOX_ADAPTER_DOWN;
    else
        return refuse(r, MOXIE_ERR_MISMATCH, f->whole[0]->name, "its shape is none of the layer's projections");
    return MOXIE_OK;
}

static moxie_status assign(const reader *r, const found *f, mox_adapter_place place, const pair *p, moxie_lora *lora)
{
    moxie_tensor *const a[] = { &lora->gate_a, &lora->up_a, &lora->down_a };
    moxie_tensor *const b[] = { &lora->gate_b, &lora->up_b, &lora->down_b };
    float *const scale[] = { &lora->gate_scale, &lora->up_scale, &lora->down_scale };
    const mox_adapter_place first = place == MOX_ADAPTER_GATE_UP ? MOX_ADAPTER_GATE : place;
    const char *name = f->whole[0] != NULL ? f->whole[0]->name : "of single experts";
    if (a[first]->data != NULL || (place == MOX_ADAPTER_GATE_UP && lora->up_a.data != NULL))
        return refuse(r, MOXIE_ERR_FORMAT, name, "the projection has factors under two names");
    if (place == MOX_ADAPTER_GATE_UP) {
        if (p->b.shape[1] != 2 * r->config->intermediate)
            return refuse(r, MOXIE_ERR_MISMATCH, name, "its B does not have the rows of gate and up");
        split(r, p, lora);
        return MOXIE_OK;
    }
    *a[place] = p->a;
    *b[place] = p->b;
    *scale[place] = scale_of(r, p);
    return MOXIE_OK;
}

static moxie_status read_layer(reader *r, moxie_lora *lora)
{
    int present = 0;
    MOX_TRY(find_all(r));
    for (int i = 0; i < MOX_ADAPTER_PLACES; i++) {
        const found *f = &r->found[i];
        mox_adapter_place place = (mox_adapter_place)i;
        pair p;
        if (is_empty(f))
            continue;
        MOX_TRY(read_pair(r, f, &p));
        if (place >= MOX_ADAPTER_NESTED)
            MOX_TRY(place_nested(r, f, &p, &place));
        MOX_TRY(assign(r, f, place, &p, lora));
        present++;
    }
    if (present == 0)
        return mox_fail_file(MOXIE_ERR_MISMATCH, r->error, mox_tensor_set_file_name(r->files->set, 0), -1,
                             "the adapter has no factors for the experts of layer %lld", (long long)r->layer);
    return MOXIE_OK;
}

moxie_status mox_adapter_files_load(moxie_adapter_files *files, const moxie_layer_config *config, bool alternate,
                                    int64_t layer, moxie_lora *lora, moxie_error *error)
{
    reader r = { .files = files, .config = config, .alternate = alternate, .layer = layer, .error = error };
    moxie_lora read = MOXIE_LORA_INIT;
    MOX_TRY(mox_tensor_set_check(files->set, error));
    MOX_TRY(read_layer(&r, &read));
    *lora = read;
    return MOXIE_OK;
}

/* ---- opening --------------------------------------------------------------------------------------- */

moxie_status mox_adapter_files_open(const char *dir, moxie_adapter_files **out, moxie_error *error)
{
    moxie_adapter_files *files = mox_calloc(1, sizeof *files);
    MOX_FAIL_IF(files == NULL, MOXIE_ERR_MEMORY, error, "no memory to open an adapter");
    moxie_status status = mox_adapter_config_read(dir, &files->config, error);
    const char *path = mox_arena_printf(&files->arena, "%s/adapter_model.safetensors", dir);
    if (status == MOXIE_OK)
        status = path != NULL ? mox_tensor_set_open_file(path, false, &files->set, error)
                              : mox_fail(MOXIE_ERR_MEMORY, error, "no memory for a path");
    for (int64_t i = 0; status == MOXIE_OK && i < mox_tensor_set_count(files->set); i++)
        status = mox_file_tensor_check(files->set, mox_tensor_set_at(files->set, i), error);
    if (status != MOXIE_OK) {
        mox_adapter_files_close(files);
        return status;
    }
    *out = files;
    return MOXIE_OK;
}

void mox_adapter_files_close(moxie_adapter_files *files)
{
    if (files == NULL)
        return;
    mox_tensor_set_close(files->set);
    mox_arena_free(&files->arena);
    mox_free(files);
}
