/* SPDX-License-Identifier: Apache-2.0
 *
 * bake_layer.c - the experts of one layer with their adapters merged (bake.h).
 *
 *     exact = w + sum over adapters  s sum_i B[n,i] A[i,k]     in double
 *     stored = exact, rounded to f32 and then to the tensor's type
 *
 * A matrix's views point into the files. So its elements in a piece are found by their distance from the piece's first
 * byte, whatever their order there: rows, columns, alternating rows of gate and up.
 */
#include "bake.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the model ------------------------------------------------------------------------------------------- */

/* Names of adapters' tensors say which layers and modules they are of. */
static moxie_status read_names(bake *b, int32_t adapter, moxie_error *error)
{
    char path[4096], part[64];
    moxie_tensor_file *file = NULL;
    const char *name;
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", b->adapters->item[adapter].dir);
    const moxie_status status = moxie_tensor_file_open(path, 0, &file, error);
    for (int64_t i = 0; status == MOXIE_OK && i < moxie_tensor_file_count(file); i++) {
        if (moxie_tensor_file_at(file, i, &name, NULL) != MOXIE_OK)
            continue;
        const bool experts = strstr(name, ".experts.") != NULL;
        bool other = true;
        for (int64_t l = 0; experts && l < b->n_layers; l++) {
            snprintf(part, sizeof part, "layers.%lld.", (long long)b->layers[l]);
            const char *found = strstr(name, part);
            if (!found || (found != name && found[-1] != '.'))
                continue;
            b->changed[l] = b->has[l][adapter] = true;
            other = false;
        }
        b->other_tensors += other;
    }
    moxie_tensor_file_close(file);
    return status;
}

static moxie_status find_layers(bake *b, moxie_error *error)
{
    moxie_model_info info = MOXIE_MODEL_INFO_INIT;
    moxie_model_layer_info layer = MOXIE_MODEL_LAYER_INFO_INIT;
    moxie_status status = moxie_model_get_info(b->model, &info, error);
    b->n_layers = info.n_layers;
    b->layers = calloc((size_t)info.n_layers + 1, sizeof *b->layers);
    b->changed = calloc((size_t)info.n_layers + 1, sizeof *b->changed);
    b->has = calloc((size_t)info.n_layers + 1, sizeof *b->has);
    b->matrices = calloc((size_t)info.n_layers + 1, sizeof *b->matrices);
    b->due = calloc((size_t)info.n_layers + 1, sizeof *b->due);
    b->prefixes = calloc((size_t)info.n_layers + 1, sizeof *b->prefixes);
    if (!b->layers || !b->changed || !b->has || !b->matrices || !b->due || !b->prefixes)
        return cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for %lld layers", (long long)info.n_layers);
    for (int64_t i = 0; i < info.n_layers && status == MOXIE_OK; i++) {
        status = moxie_model_describe_layer(b->model, i, &layer, error);
        b->layers[i] = layer.layer;
        if (status == MOXIE_OK)
            status = moxie_model_expert_prefix(b->model, layer.layer, b->prefixes[i], sizeof b->prefixes[i], error);
    }
    return status;
}

moxie_status bake_open(bake *b, moxie_error *error)
{
    moxie_model_options options = MOXIE_MODEL_OPTIONS_INIT;
    bool any = false;
    b->at = -1;
    moxie_status status = moxie_model_open(b->dir, &options, &b->model, error);
    if (status == MOXIE_OK)
        status = cli_refuse_gguf(b->model, b->dir, "GGUF files are not written: merge into", error);
    if (status == MOXIE_OK)
        status = find_layers(b, error);
    for (int32_t i = 0; i < b->adapters->count && status == MOXIE_OK; i++) {
        status = moxie_adapter_files_open(b->adapters->item[i].dir, &b->adapters->item[i].files, error);
        if (status == MOXIE_OK)
            status = read_names(b, i, error);
    }
    for (int64_t l = 0; l < b->n_layers; l++)
        any = any || (status == MOXIE_OK && b->changed[l]);
    if (status == MOXIE_OK && !any)
        status = cli_error(MOXIE_ERR_MISMATCH, error, b->adapters->item[0].dir,
                           "no adapter has factors for routed experts of a layer that the model has");
    return status;
}

static void drop_layer(bake *b)
{
    moxie_model_layer_free(b->loaded);
    b->loaded = NULL;
    b->at = -1;
    b->n_tensors = 0;
}

void bake_close(bake *b)
{
    drop_layer(b);
    moxie_model_close(b->model);
    free(b->tensors);
    free(b->layers);
    free(b->changed);
    free(b->has);
    free(b->matrices);
    free(b->due);
    free(b->prefixes);
}

int64_t bake_layer_of(const bake *b, const char *tensor)
{
    for (int64_t l = 0; l < b->n_layers; l++)
        if (b->changed[l] && strncmp(tensor, b->prefixes[l], strlen(b->prefixes[l])) == 0)
            return l;
    return -1;
}

/* ---- a layer --------------------------------------------------------------------------------------------- */

static int note_tensor(void *user, const char *name, const moxie_tensor *tensor)
{
    bake *b = user;
    b->tensors = cli_realloc(b->tensors, (size_t)(b->n_tensors + 1) * sizeof *b->tensors);
    b->tensors[b->n_tensors++] = (bake_tensor) { name, tensor->data };
    return 0;
}

static bool is_plain(const moxie_quant *quant)
{
    return quant->scale == MOXIE_DTYPE_NONE &&
           (quant->element == MOXIE_BF16 || quant->element == MOXIE_F16 || quant->element == MOXIE_F32);
}

/* B A must have the shape of the layer's matrix. */
static moxie_status check_pair(const bake *b, int32_t adapter, const char *name, const moxie_tensor *lora_a,
                               const moxie_tensor *lora_b, int64_t rows, int64_t cols, moxie_error *error)
{
    if (!lora_a->data)
        return MOXIE_OK;
    const int64_t *a = lora_a->shape + lora_a->rank - 2, *of_b = lora_b->shape + lora_b->rank - 2;
    if (a[1] == cols && of_b[0] == rows && a[0] == of_b[1])
        return MOXIE_OK;
    return cli_error(
        MOXIE_ERR_MISMATCH, error, b->adapters->item[adapter].dir,
        "layer %lld: B [%lld, %lld] times A [%lld, %lld] of %s is no change of the layer's matrix, which is "
        "[%lld, %lld]: is the adapter for this model?",
        (long long)b->layers[b->at], (long long)of_b[0], (long long)of_b[1], (long long)a[0], (long long)a[1], name,
        (long long)rows, (long long)cols);
}

static moxie_status load_adapter(bake *b, int32_t i, const moxie_layer_config *c, moxie_error *error)
{
    moxie_lora *lora = &b->adapters->item[i].lora;
    *lora = (moxie_lora)MOXIE_LORA_INIT;
    moxie_status status =
        moxie_adapter_files_load(b->adapters->item[i].files, b->model, b->loaded, b->layers[b->at], lora, error);
    if (status == MOXIE_OK)
        status = check_pair(b, i, "gate", &lora->gate_a, &lora->gate_b, c->intermediate, c->hidden, error);
    if (status == MOXIE_OK)
        status = check_pair(b, i, "up", &lora->up_a, &lora->up_b, c->intermediate, c->hidden, error);
    if (status == MOXIE_OK)
        status = check_pair(b, i, "down", &lora->down_a, &lora->down_b, c->hidden, c->intermediate, error);
    return status;
}

/* Factors of all adapters that have some for the layer, and how many matrices they change. */
static moxie_status load_factors(bake *b, const moxie_layer_config *c, moxie_error *error)
{
    bool gate = false, up = false, down = false;
    for (int32_t i = 0; i < b->adapters->count; i++) {
        const moxie_lora *lora = &b->adapters->item[i].lora;
        if (!b->has[b->at][i])
            continue;
        const moxie_status status = load_adapter(b, i, c, error);
        if (status != MOXIE_OK)
            return status;
        gate = gate || lora->gate_a.data;
        up = up || lora->up_a.data;
        down = down || lora->down_a.data;
    }
    b->sums.layers += b->due[b->at] == 0;
    b->due[b->at] = c->experts * (gate + up + down);
    return MOXIE_OK;
}

static moxie_status load_layer(bake *b, int64_t layer, moxie_error *error)
{
    drop_layer(b);
    b->at = layer;
    moxie_status status = moxie_model_load_layer(b->model, b->layers[layer], &b->loaded, error);
    if (status != MOXIE_OK)
        return status;
    const moxie_layer_config *c = moxie_model_layer_config(b->loaded);
    if (!is_plain(&c->w13) || !is_plain(&c->w2))
        return cli_error(
            MOXIE_ERR_UNSUPPORTED, error, b->dir,
            "the experts of layer %lld are quantized, and adapters are merged into bf16, f16 and f32 only: "
            "give the unquantized checkpoint, or keep the adapter beside it (moxie run --adapter)",
            (long long)b->layers[layer]);
    status = moxie_model_visit_experts(b->model, b->layers[layer], note_tensor, b, error);
    if (status == MOXIE_OK)
        status = load_factors(b, c, error);
    return status;
}

moxie_status bake_end(bake *b, moxie_error *error)
{
    for (int64_t l = 0; l < b->n_layers; l++)
        if (b->changed[l] && (b->due[l] == 0 || b->matrices[l] != b->due[l]))
            return cli_error(
                MOXIE_ERR_UNSUPPORTED, error, b->dir,
                "%lld of the %lld matrices of layer %lld that adapters change were found in its tensors: the others "
                "are not stored as they are read",
                (long long)b->matrices[l], (long long)b->due[l], (long long)b->layers[l]);
    return MOXIE_OK;
}

/* ---- a matrix -------------------------------------------------------------------------------------------- */

static float factor_at(const moxie_tensor *t, int64_t expert, int64_t row, int64_t col)
{
    const int64_t last = t->rank - 1, width = moxie_dtype_bits(t->dtype) / 8;
    bool packed = true;
    for (int32_t i = 0; i < t->rank; i++)
        packed = packed && t->strides[i] == 0;
    const int64_t row_step = packed ? t->shape[last] : t->strides[last - 1], col_step = packed ? 1 : t->strides[last];
    const int64_t expert_step = t->rank == 2 ? 0 : packed ? t->shape[1] * t->shape[2] : t->strides[0];
    uint32_t code = 0;
    memcpy(&code, (const char *)t->data + (expert * expert_step + row * row_step + col * col_step) * width,
           (size_t)width);
    return moxie_decode(t->dtype, code);
}

/* One adapter's part of a matrix. */
typedef struct addend {
    const moxie_tensor *b;
    double scale;
    int64_t rank;
    float *a; /* [rank, K] */
} addend;

typedef struct matrix_job {
    const moxie_grid *grid;
    int64_t expert;
    int32_t count;
    addend parts[CLI_MAX_ADAPTERS];
    double *row; /* [K] */
} matrix_job;

static void add_row(const matrix_job *m, int64_t n)
{
    memset(m->row, 0, (size_t)m->grid->cols * sizeof *m->row);
    for (int32_t j = 0; j < m->count; j++)
        for (int64_t i = 0; i < m->parts[j].rank; i++) {
            const double factor = m->parts[j].scale * (double)factor_at(m->parts[j].b, m->expert, n, i);
            const float *a = m->parts[j].a + i * m->grid->cols;
            for (int64_t k = 0; k < m->grid->cols; k++)
                m->row[k] += factor * (double)a[k];
        }
}

/* Changes the matrix, whose first element is at `to`. */
static void change(bake *b, const matrix_job *m, char *to)
{
    const moxie_grid *g = m->grid;
    const size_t width = (size_t)moxie_dtype_bits(g->dtype) / 8;
    for (int64_t n = 0; n < g->rows; n++) {
        add_row(m, n);
        for (int64_t k = 0; k < g->cols; k++) {
            char *at = to + n * g->row_stride + k * g->col_stride;
            uint32_t code = 0;
            memcpy(&code, at, width);
            const double exact = (double)moxie_decode(g->dtype, code) + m->row[k];
            code = moxie_encode(g->dtype, (float)exact);
            memcpy(at, &code, width);
            const double error = (double)moxie_decode(g->dtype, code) - exact;
            b->sums.change += m->row[k] * m->row[k];
            b->sums.error += error * error;
        }
    }
    b->matrices[b->at]++;
    b->sums.matrices++;
}

static float *widen(const moxie_tensor *a, int64_t expert, int64_t rank, int64_t cols)
{
    float *wide = cli_alloc((size_t)(rank * cols) * sizeof *wide);
    for (int64_t i = 0; i < rank; i++)
        for (int64_t k = 0; k < cols; k++)
            wide[i * cols + k] = factor_at(a, expert, i, k);
    return wide;
}

typedef enum which { GATE, UP, DOWN, MATRICES } which;

static void add_part(matrix_job *m, const moxie_lora *lora, which matrix)
{
    const moxie_tensor *const a[] = { &lora->gate_a, &lora->up_a, &lora->down_a };
    const moxie_tensor *const b[] = { &lora->gate_b, &lora->up_b, &lora->down_b };
    const float scales[] = { lora->gate_scale, lora->up_scale, lora->down_scale };
    if (!a[matrix]->data)
        return;
    const int64_t rank = a[matrix]->shape[a[matrix]->rank - 2];
    m->parts[m->count++] = (addend) { .b = b[matrix],
                                      .scale = scales[matrix] != 0 ? (double)scales[matrix] : 1,
                                      .rank = rank,
                                      .a = widen(a[matrix], m->expert, rank, m->grid->cols) };
}

/* Changes a matrix if its elements lie in the piece, which holds bytes [from, from + bytes) of the files. */
static void change_matrix(bake *b, const moxie_expert *e, int64_t expert, which matrix, const char *from,
                          uint64_t bytes, char *piece)
{
    const moxie_matrix *const matrices[] = { &e->gate, &e->up, &e->down };
    matrix_job m = { .grid = &matrices[matrix]->codes, .expert = expert };
    const char *data = m.grid->data;
    if (!data || data < from || data >= from + bytes)
        return;
    for (int32_t i = 0; i < b->adapters->count; i++)
        if (b->has[b->at][i])
            add_part(&m, &b->adapters->item[i].lora, matrix);
    m.row = cli_alloc((size_t)m.grid->cols * sizeof *m.row);
    if (m.count > 0)
        change(b, &m, piece + (data - from));
    for (int32_t i = 0; i < m.count; i++)
        free(m.parts[i].a);
    free(m.row);
}

moxie_status bake_piece(bake *b, int64_t layer, const char *name, uint64_t first, uint64_t bytes, char *piece,
                        moxie_error *error)
{
    const moxie_status status = layer == b->at ? MOXIE_OK : load_layer(b, layer, error);
    if (status != MOXIE_OK)
        return status;
    const moxie_weights *weights = moxie_model_layer_weights(b->loaded);
    const int64_t experts = moxie_model_layer_config(b->loaded)->experts;
    for (int64_t i = 0; i < b->n_tensors; i++) {
        if (strcmp(b->tensors[i].name, name) != 0)
            continue;
        for (int64_t e = 0; e < experts; e++)
            for (int matrix = GATE; matrix < MATRICES; matrix++)
                change_matrix(b, &weights->experts[e], e, (which)matrix, b->tensors[i].data + first, bytes, piece);
    }
    return MOXIE_OK;
}
