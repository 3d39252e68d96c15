/* SPDX-License-Identifier: Apache-2.0
 *
 * py_stacked.c - weights from arrays in which the experts lie one behind the other, as engines hold them.
 *
 *                  plain                      transposed (GPTQ, AWQ)          interleaved
 *     w13          [E, 2I, H / per word]      [E, H, 2I] / per word           rows gate 0, up 0, gate 1, up 1, ...
 *     w13_scale    [E, 2 rows, columns]       [E, columns, 2 rows]            of groups; alternate as the rows do
 *
 * Which axis is packed, and how many elements a word has, follows from the shape: an axis that is shorter than it
 * should be by the factor (bits of a word / bits of an element) is packed. Six-bit elements lie four to three bytes.
 */
#include "py_moxie.h"

#include <stdlib.h>
#include <string.h>

typedef struct how {
    bool transposed, interleaved, up_first;
    int8_t order;
    float zero_add;
} how;

/* One array as grids: that of expert e begins at data + e * expert_stride. */
typedef struct stack {
    const mpy_view *view;
    const char *name;
    const char *data;
    int64_t expert_stride, rows, cols, row_stride, col_stride;
    moxie_dtype dtype;
    moxie_packing packing;
} stack;

enum { N_ARRAYS = 32 };

typedef struct taken {
    mpy_weights *self;
    PyObject *arrays;
    how h;
    const int32_t *ids; /* [n] global index of each expert in the arrays; NULL: all E in order */
    int64_t n;
} taken;

static bool is_integer(moxie_dtype dtype)
{
    return dtype == MOXIE_I8 || (dtype >= MOXIE_U8 && dtype <= MOXIE_U64);
}

/* The view of an array argument, kept in self->views; *out is NULL when it is absent. */
static int take(taken *t, const char *name, const mpy_view **out)
{
    PyObject *array = PyDict_GetItemString(t->arrays, name);
    *out = NULL;
    if (array == NULL || array == Py_None)
        return 0;
    mpy_view *view = &t->self->views[t->self->n_views];
    if (mpy_view_get(array, name, false, 0, view) < 0)
        return -1;
    t->self->n_views++;
    if (mpy_view_on_gpu(view)) {
        mpy_fail(MOXIE_ERR_ARGUMENT, "%s: weights are packed from host memory; copy the array there first", name);
        return -1;
    }
    for (int i = 0; i < view->axes; i++)
        if (view->strides[i] < 0) {
            mpy_fail(MOXIE_ERR_ARGUMENT, "%s: an array with a negative stride cannot be read; copy it first", name);
            return -1;
        }
    *out = view;
    return 0;
}

static int wrong_shape(const stack *s, int64_t rows, int64_t cols, bool stacked)
{
    PyObject *words = mpy_view_words(s->view);
    mpy_fail(MOXIE_ERR_ARGUMENT,
             "%s: %s%lld rows, %lld columns of %s are wanted, or an axis packed into words; it is %V", s->name,
             stacked ? "experts, " : "", (long long)rows, (long long)cols, moxie_dtype_name(s->dtype), words, "?");
    Py_XDECREF(words);
    return -1;
}

/* Finds the packing of `s` from its extents n_rows and n_cols, for [rows, cols] elements of s->dtype. */
static bool find_packing(stack *s, int64_t n_rows, int64_t n_cols, int64_t rows, int64_t cols, int8_t order)
{
    const int32_t bits = moxie_dtype_bits(s->dtype), item = s->view->item_bytes;
    int32_t per_word = bits > 0 && bits < item * 8 ? item * 8 / bits : 1, word = item;
    s->rows = rows;
    s->cols = cols;
    if (bits == 6 && item == 1 && n_rows == rows && n_cols * 4 == cols * 3 && s->col_stride == 1) {
        s->packing = (moxie_packing) { .word_bytes = 3, .per_word = 4 };
        s->col_stride = 3;
        return true;
    }
    s->packing = (moxie_packing) { .word_bytes = (int8_t)word, .per_word = 1 };
    if (n_rows == rows && n_cols == cols)
        return bits <= item * 8;
    s->packing.per_word = (int8_t)per_word;
    s->packing.order = order;
    if (n_rows == rows && n_cols == (cols + per_word - 1) / per_word)
        return true;
    s->packing.along_rows = 1;
    return n_cols == cols && n_rows * per_word == rows;
}

/* A stack of grids [rows, cols] of `dtype`; `stacked`: the first axis counts experts. An absent last axis is 1. */
static int stack_of(const taken *t, const mpy_view *view, const char *name, moxie_dtype dtype, int64_t rows,
                    int64_t cols, bool stacked, stack *s)
{
    *s = (stack) { .view = view, .name = name, .data = view->data, .dtype = dtype };
    const int first = stacked ? 1 : 0, inner = view->axes - first;
    const bool held = mpy_view_holds(view, dtype) || (moxie_dtype_bits(dtype) <= 8 && is_integer(view->dtype));
    if (!held || inner < 0 || inner > 2 || (stacked && view->shape[0] != t->n))
        return wrong_shape(s, rows, cols, stacked);
    s->expert_stride = stacked ? view->strides[0] : 0;
    int64_t n[2] = { 1, 1 }, step[2] = { 0, 0 };
    for (int i = 0; i < inner; i++) {
        n[i] = view->shape[first + i];
        step[i] = view->strides[first + i];
    }
    const bool swap = t->h.transposed && inner == 2;
    s->row_stride = step[swap];
    s->col_stride = step[!swap];
    return find_packing(s, n[swap], n[!swap], rows, cols, t->h.order) ? 0 : wrong_shape(s, rows, cols, stacked);
}

/* Rows [begin, begin + rows) of expert e, every `step`-th. */
static moxie_grid grid_of(const stack *s, int64_t e, int64_t begin, int64_t rows, int64_t step)
{
    const int64_t per = s->packing.per_word, along = s->packing.along_rows;
    moxie_grid g = { .data = s->data + e * s->expert_stride + (along ? begin / per : begin) * s->row_stride,
                     .rows = rows,
                     .cols = s->cols,
                     .row_stride = s->row_stride * step,
                     .col_stride = s->col_stride,
                     .dtype = s->dtype,
                     .packing = s->packing };
    const int64_t r = along ? (rows - 1) / per : rows - 1, c = along ? s->cols - 1 : (s->cols - 1) / per;
    g.bytes = (uint64_t)(r * g.row_stride + c * g.col_stride + s->packing.word_bytes);
    return g;
}

/* ---- the parts of one projection ------------------------------------------------------------ */

/* W13 (halves 2 or, ungated, 1) or W2 of all experts. */
typedef struct side {
    const char *prefix; /* "w13", "shared_w2" */
    const moxie_quant *quant;
    int64_t rows, cols; /* of one half */
    int halves;
    bool stacked, bias;
} side;

static moxie_matrix *matrix_of(moxie_expert *e, const side *d, int half, const how *h)
{
    if (strstr(d->prefix, "w2") != NULL)
        return &e->down;
    return d->halves == 1 || (half == 1) != h->up_first ? &e->up : &e->gate;
}

static moxie_grid *part_of(moxie_matrix *m, int part)
{
    return part == 0 ? &m->codes : part == 1 ? &m->scale : part == 2 ? &m->zero : part == 3 ? &m->global : &m->bias;
}

static moxie_expert *expert_at(const taken *t, bool stacked, int64_t i)
{
    if (!stacked)
        return &t->self->experts[t->self->config->experts];
    return &t->self->experts[t->ids == NULL ? i : t->ids[i]];
}

/* Gives every expert its grids of one array, whose rows are those of all halves, or those of one that all share. */
static int spread(const taken *t, const side *d, const stack *s, int part)
{
    const bool shared = d->halves == 2 && part != 0 && s->rows == 1;
    const int64_t rows = shared ? 1 : s->rows / d->halves;
    const bool weave = t->h.interleaved && d->halves == 2 && !shared;
    if (s->packing.along_rows && d->halves == 2 && (weave || rows % s->packing.per_word != 0)) {
        mpy_fail(MOXIE_ERR_UNSUPPORTED, "%s: a word holds rows of the gate and of the up half", s->name);
        return -1;
    }
    for (int64_t i = 0; i < (d->stacked ? t->n : 1); i++)
        for (int half = 0; half < d->halves; half++) {
            moxie_matrix *m = matrix_of(expert_at(t, d->stacked, i), d, half, &t->h);
            const int64_t begin = shared ? 0 : weave ? half : half * rows;
            *part_of(m, part) = grid_of(s, i, begin, rows, weave ? 2 : 1);
            m->zero_add = t->h.zero_add;
        }
    return 0;
}

/* How many rows an array of scales, zeros, globals or biases has: `rows` for each half, or one for both. */
static int64_t rows_found(const taken *t, const mpy_view *view, const side *d, int64_t rows)
{
    const int first = d->stacked ? 1 : 0;
    const int axis = t->h.transposed && view->axes - first == 2 ? first + 1 : first;
    const int64_t n = view->axes > first ? view->shape[axis] : 1;
    return n == 1 ? 1 : rows * d->halves;
}

static int64_t groups(int64_t n, int32_t group, int64_t standard)
{
    const int64_t g = group == 0 ? standard : group;
    return g < 0 ? 1 : (n + g - 1) / g;
}

static int part_array(taken *t, const side *d, const char *suffix, int part, moxie_dtype dtype, int64_t rows,
                      int64_t cols, bool wanted)
{
    char name[32];
    const mpy_view *view;
    stack s;
    PyOS_snprintf(name, sizeof name, "%s%s", d->prefix, suffix);
    if (take(t, name, &view) < 0)
        return -1;
    if (view == NULL && wanted)
        mpy_fail(MOXIE_ERR_ARGUMENT, "%s: the configuration wants this array", name);
    if (view != NULL && !wanted)
        mpy_fail(MOXIE_ERR_ARGUMENT, "%s: the configuration has no use for this array", name);
    if ((view != NULL) != wanted)
        return -1;
    if (view == NULL)
        return 0;
    const bool floats = view->dtype == MOXIE_F32 || view->dtype == MOXIE_F16 || view->dtype == MOXIE_BF16;
    if ((part == 2 || part == 4) && floats)
        dtype = view->dtype; /* zero points may be floats; a bias has any float type */
    if (part == 3 && view->axes == 1 + d->stacked && view->shape[d->stacked] == d->rows * d->halves)
        rows = d->rows; /* a global for each row */
    const int64_t all = part == 0 ? rows * d->halves : rows_found(t, view, d, rows);
    if (stack_of(t, view, name, dtype, all, cols, d->stacked, &s) < 0)
        return -1;
    return spread(t, d, &s, part);
}

static int group_index(taken *t, const side *d)
{
    char name[32];
    const mpy_view *view;
    PyOS_snprintf(name, sizeof name, "%s_group_index", d->prefix);
    if (take(t, name, &view) < 0)
        return -1;
    if (view == NULL)
        return 0;
    if (view->dtype != MOXIE_I32 || view->axes != (d->stacked ? 2 : 1) || !mpy_view_contiguous(view) ||
        view->shape[view->axes - 1] != d->cols || (d->stacked && view->shape[0] != t->n)) {
        mpy_fail(MOXIE_ERR_ARGUMENT, "%s: int32 [%s%lld], contiguous, is wanted", name, d->stacked ? "experts, " : "",
                 (long long)d->cols);
        return -1;
    }
    for (int64_t i = 0; i < (d->stacked ? t->n : 1); i++)
        for (int half = 0; half < d->halves; half++)
            matrix_of(expert_at(t, d->stacked, i), d, half, &t->h)->group_index =
                (const int32_t *)view->data + i * d->cols;
    return 0;
}

static int take_side(taken *t, const side *d)
{
    const moxie_quant *q = d->quant;
    const int64_t rows = groups(d->rows, q->group_rows, 1), cols = groups(d->cols, q->group_cols, -1);
    /* A group of rows may not reach from the gate into the up half. */
    if (part_array(t, d, "", 0, q->element, d->rows, d->cols, true) < 0 ||
        part_array(t, d, "_scale", 1, q->scale, rows, cols, q->scale != MOXIE_DTYPE_NONE) < 0 ||
        part_array(t, d, "_zero", 2, q->element, rows, cols, q->has_zero != 0) < 0 ||
        part_array(t, d, "_global", 3, MOXIE_F32, 1, 1, q->global != MOXIE_GLOBAL_NONE) < 0 ||
        part_array(t, d, "_bias", 4, t->self->config->dtype, d->rows, 1, d->bias) < 0)
        return -1;
    return group_index(t, d);
}

/* ---- what a layer has once ------------------------------------------------------------------ */

static int plain_matrix(taken *t, const char *name, int64_t rows, int64_t cols, moxie_grid *out, bool wanted)
{
    const mpy_view *view;
    stack s;
    if (take(t, name, &view) < 0)
        return -1;
    if ((view != NULL) != wanted) {
        mpy_fail(MOXIE_ERR_ARGUMENT, "%s: the configuration %s", name,
                 wanted ? "wants this array" : "has no use for it");
        return -1;
    }
    if (view == NULL)
        return 0;
    const taken plain = { .self = t->self };
    mpy_view *row = (mpy_view *)&t->self->views[t->self->n_views - 1];
    if (rows == 1 && view->axes == 1) { /* a vector is a matrix of one row */
        row->shape[1] = view->shape[0];
        row->strides[1] = view->strides[0];
        row->shape[0] = 1;
        row->axes = 2;
    }
    const bool codes = is_integer(view->dtype);
    if (stack_of(&plain, view, name, codes ? t->self->config->dtype : view->dtype, rows, cols, false, &s) < 0)
        return -1;
    *out = grid_of(&s, 0, 0, rows, 1);
    return 0;
}

static int take_static_scales(taken *t, const char *name, bool second)
{
    const mpy_view *view;
    if (take(t, name, &view) < 0)
        return -1;
    if (view == NULL)
        return 0;
    if (view->dtype != MOXIE_F32 || view->axes != 1 || view->shape[0] != t->n) {
        mpy_fail(MOXIE_ERR_ARGUMENT, "%s: f32 [experts] is wanted", name);
        return -1;
    }
    for (int64_t i = 0; i < t->n; i++) {
        const float scale = *(const float *)((const char *)view->data + i * view->strides[0]);
        moxie_expert *e = expert_at(t, true, i);
        *(second ? &e->a2_scale : &e->a13_scale) = scale;
    }
    return 0;
}

static int take_once(taken *t)
{
    const moxie_layer_config *c = t->self->config;
    moxie_weights *w = &t->self->own;
    const int64_t choices = c->experts + c->routing.zero_experts;
    const bool router = c->router_width != 0;
    return plain_matrix(t, "router", choices, c->router_width, &w->router.codes, router) < 0 ||
                   plain_matrix(t, "router_bias", choices, 1, &w->router.bias, router && c->router_has_bias) < 0 ||
                   plain_matrix(t, "router_norm", 1, c->router_width, &w->router_norm.codes,
                                router && c->router_norm.kind != 0 && c->router_norm.has_weight) < 0 ||
                   plain_matrix(t, "expert_norm", 1, c->hidden, &w->expert_norm.codes,
                                c->expert_norm.kind != 0 && c->expert_norm.has_weight) < 0 ||
                   plain_matrix(t, "shared_gate", 1, c->hidden, &w->shared_gate.codes,
                                c->shared.intermediate != 0 && c->shared.has_gate) < 0
               ? -1
               : 0;
}

/* ---- arguments ------------------------------------------------------------------------------ */

static int take_ids(taken *t)
{
    PyObject *ids = PyDict_GetItemString(t->arrays, "expert_ids");
    t->n = t->self->config->experts;
    if (ids == NULL || ids == Py_None)
        return 0;
    PyObject *copy = mpy_array_from(ids, "expert_ids", MOXIE_I32);
    if (copy == NULL || PyList_Append(t->self->keep, copy) < 0) {
        Py_XDECREF(copy);
        return -1;
    }
    Py_DECREF(copy);
    const int64_t *shape;
    if (mpy_array_shape(copy, &shape) != 1)
        return mpy_fail(MOXIE_ERR_ARGUMENT, "expert_ids: one axis is wanted"), -1;
    t->n = shape[0];
    t->ids = mpy_array_data(copy);
    for (int64_t i = 0; i < t->n; i++)
        if (t->ids[i] < 0 || t->ids[i] >= t->self->config->experts) {
            mpy_fail(MOXIE_ERR_ARGUMENT, "expert_ids: %d is no expert; there are %lld", (int)t->ids[i],
                     (long long)t->self->config->experts);
            return -1;
        }
    return 0;
}

static const mpy_choice orders[] = { { "linear", MOXIE_ORDER_LINEAR }, { "awq", MOXIE_ORDER_AWQ }, { NULL, 0 } };

static int take_how(PyObject *arrays, how *h)
{
    PyObject *flag;
    bool *const flags[] = { &h->transposed, &h->interleaved, &h->up_first };
    static const char *const names[] = { "transposed", "interleaved", "up_first" };
    for (int i = 0; i < 3; i++)
        *flags[i] = (flag = PyDict_GetItemString(arrays, names[i])) != NULL && PyObject_IsTrue(flag);
    PyObject *order = PyDict_GetItemString(arrays, "order"), *add = PyDict_GetItemString(arrays, "zero_add");
    int32_t number = 0;
    if (order != NULL) {
        const char *name = PyUnicode_AsUTF8AndSize(order, NULL);
        if (name == NULL || mpy_choice_value(orders, "order", name, &number) < 0)
            return -1;
    }
    h->order = (int8_t)number;
    h->zero_add = add == NULL ? 0 : (float)PyFloat_AsDouble(add);
    return PyErr_Occurred() ? -1 : 0;
}

static int check_names(PyObject *arrays)
{
    static const char *const known[] = { "expert_ids",  "transposed", "interleaved", "up_first",    "order",
                                         "zero_add",    "router",     "router_bias", "router_norm", "expert_norm",
                                         "shared_gate", "a13_scale",  "a2_scale",    NULL };
    static const char *const sides[] = { "w13", "w2", "shared_w13", "shared_w2", NULL };
    static const char *const suffixes[] = { "", "_scale", "_zero", "_global", "_bias", "_group_index", NULL };
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(arrays, &at, &key, &value)) {
        bool found = false;
        for (int i = 0; known[i] != NULL; i++)
            found = found || PyUnicode_CompareWithASCIIString(key, known[i]) == 0;
        for (int i = 0; sides[i] != NULL; i++)
            for (int j = 0; suffixes[j] != NULL; j++) {
                char name[32];
                PyOS_snprintf(name, sizeof name, "%s%s", sides[i], suffixes[j]);
                found = found || PyUnicode_CompareWithASCIIString(key, name) == 0;
            }
        if (!found)
            return PyErr_Format(PyExc_TypeError, "Weights() has no argument %R", key), -1;
    }
    return 0;
}

int mpy_weights_stack(mpy_weights *self, PyObject *arrays)
{
    const moxie_layer_config *c = self->config;
    taken t = { .self = self, .arrays = arrays };
    self->views = calloc(N_ARRAYS + 16, sizeof *self->views);
    self->experts = calloc((size_t)c->experts + 1, sizeof *self->experts);
    if (self->views == NULL || self->experts == NULL)
        return PyErr_NoMemory(), -1;
    if (check_names(arrays) < 0 || take_how(arrays, &t.h) < 0 || take_ids(&t) < 0)
        return -1;
    self->own.n_experts = c->experts;
    self->own.experts = self->experts;
    const int halves = moxie_act_is_gated(c->activation.kind) ? 2 : 1;
    const side w13 = { "w13", &c->w13, c->intermediate, c->hidden, halves, true, c->bias13 != 0 };
    const side w2 = { "w2", &c->w2, c->hidden, c->intermediate, 1, true, c->bias2 != 0 };
    if (take_side(&t, &w13) < 0 || take_side(&t, &w2) < 0 || take_static_scales(&t, "a13_scale", false) < 0 ||
        take_static_scales(&t, "a2_scale", true) < 0 || take_once(&t) < 0)
        return -1;
    if (c->shared.intermediate == 0)
        return 0;
    const moxie_shared_config *s = &c->shared;
    const int32_t kind = c->has_shared_activation ? c->shared_activation.kind : c->activation.kind;
    const side s13 = { "shared_w13", &s->w13,       s->intermediate, c->hidden, moxie_act_is_gated(kind) ? 2 : 1,
                       false,        s->bias13 != 0 };
    const side s2 = { "shared_w2", &s->w2, c->hidden, s->intermediate, 1, false, s->bias2 != 0 };
    self->own.shared = &self->experts[c->experts];
    return take_side(&t, &s13) < 0 || take_side(&t, &s2) < 0 ? -1 : 0;
}
