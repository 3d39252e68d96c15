/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare_source.c - where one layer's experts lie in its tensors, found by address.
 *
 *     tensor [E, 2I, H/2]   |  expert 0  |  expert 1  | ...     pieces E: each expert's grids cover one piece
 *     tensor [H, I/8]       |  expert 3  |                      pieces 1
 *     weight_shape [2], a scale for the whole stack             kept: no grid, or shared, or bits that no element has
 *
 * A GGUF file's tensors are neither held nor kept: there is no way back to it. An expert's source are then the bytes of
 * its grids.
 */
#include "prepare.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- tensors ---------------------------------------------------------------------------------------- */

static int add_tensor(void *user, const char *name, const moxie_tensor *tensor)
{
    prepare_source *s = user;
    if ((s->count & (s->count - 1)) == 0) {
        const size_t room = s->count > 0 ? 2 * (size_t)s->count : 1;
        prepare_tensor *grown = realloc(s->tensors, room * sizeof *grown);
        if (!grown)
            return 1;
        s->tensors = grown;
    }
    uint64_t bits = (uint64_t)moxie_dtype_bits(tensor->dtype);
    for (int32_t i = 0; i < tensor->rank; i++)
        bits *= (uint64_t)tensor->shape[i];
    char *copy = strdup(name);
    if (!copy)
        return 1;
    s->tensors[s->count++] = (prepare_tensor) { .name = copy, .view = *tensor, .bytes = bits / 8 };
    return 0;
}

static int by_address(const void *a, const void *b, void *user)
{
    const prepare_source *s = user;
    const prepare_tensor *x = &s->tensors[*(const int64_t *)a], *y = &s->tensors[*(const int64_t *)b];
    const uintptr_t p = (uintptr_t)x->view.data, q = (uintptr_t)y->view.data;
    if (p != q)
        return p < q ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty ones first */
}

/* The tensor that an address lies in, or -1. */
static int64_t find_tensor(const prepare_source *s, const void *data)
{
    int64_t low = 0, high = s->count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if ((uintptr_t)s->tensors[s->by_address[middle]].view.data <= (uintptr_t)data)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return -1;
    const prepare_tensor *t = &s->tensors[s->by_address[low - 1]];
    return (uintptr_t)data - (uintptr_t)t->view.data < t->bytes ? s->by_address[low - 1] : -1;
}

/* ---- an expert's grids in them ------------------------------------------------------------------------ */

/* The bytes of one tensor that one expert covers. */
typedef struct cover {
    int64_t tensor;
    uint64_t begin, end; /* bytes of the tensor */
    uint64_t bits;       /* of all elements between */
} cover;

uint64_t prepare_grid_extent(const moxie_grid *g)
{
    const int64_t per = g->packing.per_word;
    const uint64_t whole_rows = (uint64_t)(g->rows * g->row_stride);
    if (per == 0) /* blocks of a GGUF file, which fill their rows */
        return whole_rows < g->bytes ? whole_rows : g->bytes;
    const int64_t down = g->packing.along_rows ? (g->rows + per - 1) / per : g->rows;
    const int64_t across = g->packing.along_rows ? g->cols : (g->cols + per - 1) / per;
    return (uint64_t)((down - 1) * g->row_stride + (across - 1) * g->col_stride + g->packing.word_bytes);
}

static int add_grid(const prepare_source *s, const moxie_grid *g, cover covers[PREPARE_SPANS], int count)
{
    if (!g->data || g->rows == 0 || g->cols == 0)
        return count;
    const int64_t tensor = find_tensor(s, g->data);
    if (tensor < 0)
        return count;
    int i = 0;
    while (i < count && covers[i].tensor != tensor)
        i++;
    const uint64_t begin = (uint64_t)((uintptr_t)g->data - (uintptr_t)s->tensors[tensor].view.data);
    const uint64_t end = begin + prepare_grid_extent(g);
    if (i == count)
        covers[count++] = (cover) { tensor, begin, end, 0 };
    cover *c = &covers[i];
    c->begin = begin < c->begin ? begin : c->begin;
    c->end = end > c->end ? end : c->end;
    c->bits += (uint64_t)(g->rows * g->cols) * (uint64_t)moxie_dtype_bits(g->dtype);
    return count;
}

static int cover_expert(const prepare_source *s, const moxie_expert *expert, cover covers[PREPARE_SPANS])
{
    const moxie_matrix *const matrices[] = { &expert->gate, &expert->up, &expert->down };
    int count = 0;
    for (int m = 0; m < 3; m++) {
        count = add_grid(s, &matrices[m]->codes, covers, count);
        count = add_grid(s, &matrices[m]->scale, covers, count);
        count = add_grid(s, &matrices[m]->zero, covers, count);
        count = add_grid(s, &matrices[m]->bias, covers, count);
    }
    return count;
}

/* Counts the pieces of every tensor that the experts cover without a gap, each piece by one expert. */
static void find_held(prepare_source *s, const moxie_weights *weights, uint64_t *bits)
{
    for (int64_t e = 0; e < weights->n_experts; e++) {
        cover covers[PREPARE_SPANS];
        const int count = cover_expert(s, &weights->experts[e], covers);
        for (int i = 0; i < count; i++) {
            const cover *c = &covers[i];
            prepare_tensor *t = &s->tensors[c->tensor];
            const uint64_t length = c->end - c->begin;
            const int64_t pieces = t->bytes % length == 0 ? (int64_t)(t->bytes / length) : -1;
            const bool whole = c->bits == 8 * length && c->begin % length == 0;
            if (t->pieces == 0)
                t->pieces = whole ? pieces : -1;
            else if (!whole || t->pieces != pieces)
                t->pieces = -1;
            bits[c->tensor] += c->bits;
        }
    }
    for (int64_t i = 0; i < s->count; i++)
        if (s->tensors[i].pieces < 0 || bits[i] != 8 * s->tensors[i].bytes)
            s->tensors[i].pieces = 0;
}

moxie_status prepare_source_read(const moxie_model *model, int64_t layer, const moxie_weights *weights,
                                 prepare_source *out, moxie_error *error)
{
    *out = (prepare_source) { .gguf = cli_is_gguf(model) };
    if (out->gguf)
        return MOXIE_OK;
    moxie_status status = moxie_model_visit_experts(model, layer, add_tensor, out, error);
    if (status != MOXIE_OK)
        return status == MOXIE_ERR_TIMEOUT ? cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for a list of tensors")
                                           : status;
    uint64_t *bits = calloc((size_t)out->count + 1, sizeof *bits);
    out->by_address = calloc((size_t)out->count + 1, sizeof *out->by_address);
    if (!bits || !out->by_address) {
        free(bits);
        return cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for a list of %lld tensors", (long long)out->count);
    }
    for (int64_t i = 0; i < out->count; i++)
        out->by_address[i] = i;
    qsort_r(out->by_address, (size_t)out->count, sizeof *out->by_address, by_address, out);
    find_held(out, weights, bits);
    free(bits);
    return MOXIE_OK;
}

void prepare_source_free(prepare_source *source)
{
    for (int64_t i = 0; i < source->count; i++)
        free(source->tensors[i].name);
    free(source->tensors);
    free(source->by_address);
    *source = (prepare_source) { 0 };
}

/* The bytes of an expert of a GGUF file. */
static int spans_of_grids(const moxie_expert *expert, prepare_span spans[PREPARE_SPANS])
{
    const moxie_matrix *const matrices[] = { &expert->gate, &expert->up, &expert->down };
    int count = 0;
    for (int m = 0; m < 3; m++) {
        const moxie_grid *const grids[] = { &matrices[m]->codes, &matrices[m]->scale, &matrices[m]->zero,
                                            &matrices[m]->bias };
        for (int i = 0; i < 4; i++)
            if (grids[i]->data && grids[i]->rows > 0 && grids[i]->cols > 0)
                spans[count++] = (prepare_span) { .data = (unsigned char *)(uintptr_t)grids[i]->data,
                                                  .bytes = prepare_grid_extent(grids[i]) };
    }
    return count;
}

int prepare_source_spans(const prepare_source *source, const moxie_expert *expert, prepare_span spans[PREPARE_SPANS])
{
    if (source->gguf)
        return spans_of_grids(expert, spans);
    cover covers[PREPARE_SPANS];
    const int covered = cover_expert(source, expert, covers);
    int count = 0;
    for (int i = 0; i < covered; i++) {
        const prepare_tensor *t = &source->tensors[covers[i].tensor];
        if (t->pieces == 0)
            continue;
        int at = count++;
        while (at > 0 && spans[at - 1].tensor > covers[i].tensor) {
            spans[at] = spans[at - 1];
            at--;
        }
        const uint64_t length = covers[i].end - covers[i].begin;
        spans[at] = (prepare_span) { .tensor = covers[i].tensor,
                                     .piece = (int64_t)(covers[i].begin / length),
                                     .data = (unsigned char *)t->view.data + covers[i].begin,
                                     .bytes = length };
    }
    return count;
}

uint64_t prepare_span_hash(const prepare_span *spans, int count)
{
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_64bits_reset(&state);
    for (int i = 0; i < count; i++)
        XXH3_64bits_update(&state, spans[i].data, spans[i].bytes);
    return XXH3_64bits_digest(&state);
}

uint64_t prepare_source_expert_bytes(const prepare_source *source, const moxie_expert *expert)
{
    prepare_span spans[PREPARE_SPANS];
    const int count = prepare_source_spans(source, expert, spans);
    uint64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += spans[i].bytes;
    return bytes;
}

static json_t *describe(const prepare_tensor *t)
{
    json_t *shape = json_array();
    bool fine = shape != NULL;
    for (int32_t axis = 0; fine && axis < t->view.rank; axis++)
        fine = json_array_append_new(shape, json_integer((json_int_t)t->view.shape[axis])) == 0;
    if (fine)
        return json_pack("[s, s, o, I]", t->name, moxie_dtype_name(t->view.dtype), shape, (json_int_t)t->pieces);
    json_decref(shape);
    return NULL;
}

char *prepare_source_text(const prepare_source *source)
{
    json_t *list = json_array();
    bool fine = list != NULL;
    for (int64_t i = 0; fine && i < source->count; i++)
        fine = json_array_append_new(list, describe(&source->tensors[i])) == 0;
    if (fine)
        return cli_json_text(list, JSON_COMPACT);
    json_decref(list);
    return NULL;
}

bool prepare_kept_name(const char *name, char buffer[PREPARE_NAME])
{
    return snprintf(buffer, PREPARE_NAME, "%s%s", PREPARE_SOURCE, name) < PREPARE_NAME;
}
