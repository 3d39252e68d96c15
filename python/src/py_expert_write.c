/* SPDX-License-Identifier: Apache-2.0
 *
 * py_expert_write.c - ExpertFile.write() and replace(): a layer's weights to an expert file, one expert of a file.
 */
#include "py_store.h"

#include <stdlib.h>
#include <string.h>

/* ---- what the file gets besides ------------------------------------------------------------- */

/* Sections of the caller's: names and bytes are borrowed from `items` and the views. */
typedef struct extras {
    PyObject *items; /* a list of (name, bytes) */
    moxie_expert_extra *c;
    mpy_view *views;
    Py_ssize_t n;
} extras;

static int extra_get(PyObject *item, moxie_expert_extra *out, mpy_view *view)
{
    PyObject *name = PyTuple_GetItem(item, 0);
    out->name = name == NULL ? NULL : PyUnicode_AsUTF8AndSize(name, NULL);
    if (out->name == NULL || mpy_view_get(PyTuple_GetItem(item, 1), out->name, false, 0, view) < 0)
        return -1;
    uint64_t bytes = (uint64_t)view->item_bytes;
    for (int i = 0; i < view->axes; i++)
        bytes *= (uint64_t)view->shape[i];
    out->data = view->data;
    out->bytes = bytes;
    if (mpy_view_contiguous(view) && !mpy_view_on_gpu(view))
        return 0;
    mpy_fail(MOXIE_ERR_ARGUMENT, "extras: %s must be contiguous, on the host", out->name);
    mpy_view_release(view);
    return -1;
}

static int extras_get(PyObject *object, extras *out)
{
    *out = (extras) { .n = 0 };
    if (object == Py_None)
        return 0;
    out->items = PyMapping_Items(object);
    const Py_ssize_t n = out->items == NULL ? -1 : PyList_Size(out->items);
    if (n < 0)
        return -1;
    out->c = calloc((size_t)n + 1, sizeof *out->c);
    out->views = calloc((size_t)n + 1, sizeof *out->views);
    if (out->c == NULL || out->views == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (; out->n < n; out->n++)
        if (extra_get(PyList_GetItem(out->items, out->n), &out->c[out->n], &out->views[out->n]) < 0)
            return -1;
    return 0;
}

static void extras_release(extras *e)
{
    for (Py_ssize_t i = 0; i < e->n; i++)
        mpy_view_release(&e->views[i]);
    free(e->c);
    free(e->views);
    Py_XDECREF(e->items);
}

/* ---- writing -------------------------------------------------------------------------------- */

typedef struct work {
    const char *path;
    const moxie_layer_config *config;
    const moxie_weights *weights;
    moxie_expert_writer_options options;
    const uint64_t *hashes; /* [E], or NULL */
    PyObject *progress;     /* borrowed; NULL: none */
    int32_t local[MOXIE_MAX_EXPERTS], held;
} work;

/* The experts of the configuration's share, each once, ascending. */
static moxie_status find_local(work *w, moxie_error *error)
{
    const moxie_layer_config *c = w->config;
    const moxie_slot_map *map = c->slot_map;
    const int32_t rank = c->ep_size > 1 ? c->ep_rank : 0;
    int32_t slot_of[MOXIE_MAX_EXPERTS], held;
    for (int32_t e = 0; e < c->experts; e++)
        slot_of[e] = -1;
    if (map != NULL) {
        for (int32_t s = map->first_slot[rank]; s < map->first_slot[rank + 1]; s++)
            if (map->expert_of[s] >= 0 && map->expert_of[s] < c->experts)
                slot_of[map->expert_of[s]] = s;
    } else {
        const moxie_status status = moxie_expert_map((moxie_expert_map_kind)c->ep_map, (int32_t)c->experts,
                                                     c->ep_size > 1 ? c->ep_size : 1, rank, slot_of, &held, error);
        if (status != MOXIE_OK)
            return status;
    }
    for (int32_t e = 0; e < c->experts; e++)
        if (slot_of[e] >= 0)
            w->local[w->held++] = e;
    return MOXIE_OK;
}

static moxie_status stopped(int32_t done, int32_t held, moxie_error *error)
{
    *error = (moxie_error) { .code = MOXIE_ERR_TIMEOUT, .offset = -1 };
    PyOS_snprintf(error->text, sizeof error->text, "progress ended it after %d of %d experts", (int)done, (int)held);
    return MOXIE_ERR_TIMEOUT;
}

static moxie_status put_all(work *w, moxie_expert_writer *writer, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    for (int32_t i = 0; status == MOXIE_OK && i < w->held; i++) {
        const int32_t e = w->local[i];
        status = moxie_expert_writer_put(writer, e, w->hashes != NULL ? w->hashes[e] : 0, error);
        if (status == MOXIE_OK && w->weights->done != NULL)
            w->weights->done(w->weights->done_user, &w->weights->experts[e]);
        if (status == MOXIE_OK && w->progress != NULL && mpy_progress(w->progress, i + 1, w->held))
            status = stopped(i + 1, w->held, error);
    }
    return status;
}

static moxie_status write_file(work *w, moxie_error *error)
{
    moxie_expert_writer *writer = NULL;
    moxie_status status = moxie_layer_config_check(w->config, error);
    if (status == MOXIE_OK)
        status = find_local(w, error);
    if (status == MOXIE_OK)
        status = moxie_expert_writer_open(w->path, w->config, w->weights, &w->options, &writer, error);
    if (status != MOXIE_OK)
        return status;
    status = put_all(w, writer, error);
    if (status == MOXIE_OK)
        return moxie_expert_writer_finish(writer, error);
    moxie_expert_writer_abandon(writer);
    return status;
}

static PyObject *hashes_get(PyObject *object, const moxie_layer_config *config)
{
    PyObject *list = PySequence_List(object), *out = NULL;
    const int64_t n = config->experts;
    if (list != NULL && PyList_Size(list) != n)
        mpy_fail(MOXIE_ERR_ARGUMENT, "source_hashes: %lld numbers are wanted, one an expert, not %zd", (long long)n,
                 PyList_Size(list));
    else if (list != NULL)
        out = mpy_array_new(MOXIE_U64, 1, &n);
    for (int64_t e = 0; out != NULL && e < n; e++) {
        ((uint64_t *)mpy_array_data(out))[e] = PyLong_AsUnsignedLongLong(PyList_GetItem(list, (Py_ssize_t)e));
        if (PyErr_Occurred())
            Py_CLEAR(out);
    }
    Py_XDECREF(list);
    return out;
}

static int write_work(work *w, PyObject *hashes, PyObject *extra, mpy_option_args *common)
{
    moxie_error error = { 0 };
    mpy_options pool = { 0 };
    extras e = { .n = 0 };
    PyObject *array = hashes == Py_None ? Py_NewRef(Py_None) : hashes_get(hashes, w->config);
    int failed = array == NULL || extras_get(extra, &e) < 0 || mpy_options_get(common, &pool) < 0;
    if (!failed) {
        w->hashes = array == Py_None ? NULL : mpy_array_data(array);
        w->progress = pool.progress;
        w->options.executor = pool.c.executor;
        w->options.mode = pool.c.mode;
        w->options.extras = e.c;
        w->options.n_extras = e.n;
        moxie_status status;
        Py_BEGIN_ALLOW_THREADS status = write_file(w, &error);
        Py_END_ALLOW_THREADS failed = status != MOXIE_OK;
        if (failed)
            mpy_raise(&error);
    }
    mpy_options_release(&pool);
    extras_release(&e);
    Py_XDECREF(array);
    return failed ? -1 : 0;
}

static const mpy_weights *weights_get(PyObject *object)
{
    if (PyObject_IsInstance(object, mpy_weights_type) == 1)
        return (const mpy_weights *)object;
    PyErr_Format(PyExc_TypeError, "weights: a moxie.Weights is wanted, not %R", object);
    return NULL;
}

PyObject *mpy_expert_file_write(PyObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = { "path",          "weights", "config",  "target",   "mode", "layer",
                             "source_hashes", "extras",  "threads", "progress", NULL };
    work w = { .options = MOXIE_EXPERT_WRITER_OPTIONS_INIT };
    mpy_option_args common = { 0 };
    moxie_layer_config given;
    PyObject *path = NULL, *weights, *config = Py_None, *hashes = Py_None, *extra = Py_None;
    long long layer = 0;
    (void)type;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O&O|O$zzLOOOO", names, PyUnicode_FSConverter, &path, &weights,
                                     &config, &w.options.target, &common.mode, &layer, &hashes, &extra, &common.threads,
                                     &common.progress))
        return NULL;
    const mpy_weights *from = weights_get(weights);
    PyObject *keep = PyList_New(0);
    int failed = from == NULL || keep == NULL;
    if (!failed && config != Py_None)
        failed = mpy_config_from_python(config, &given, keep) < 0;
    if (!failed) {
        w.path = PyBytes_AsString(path);
        w.weights = from->weights;
        w.config = config != Py_None ? &given : from->config;
        w.options.layer = layer;
        failed = write_work(&w, hashes, extra, &common) < 0;
    }
    Py_XDECREF(keep);
    Py_DECREF(path);
    return failed ? NULL : Py_NewRef(Py_None);
}

/* ---- replacing one -------------------------------------------------------------------------- */

static int replace_work(const char *path, long long expert, const moxie_expert *weights, uint64_t hash,
                        mpy_option_args *common)
{
    mpy_options pool = { 0 };
    moxie_error error = { 0 };
    moxie_status status = MOXIE_OK;
    int failed = mpy_options_get(common, &pool) < 0;
    if (!failed) {
        Py_BEGIN_ALLOW_THREADS status = moxie_expert_file_replace(path, expert, weights, hash, pool.c.executor, &error);
        Py_END_ALLOW_THREADS failed = status != MOXIE_OK;
        if (failed)
            mpy_raise(&error);
    }
    mpy_options_release(&pool);
    return failed ? -1 : 0;
}

PyObject *mpy_expert_file_replace(PyObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = { "path", "expert", "weights", "source", "source_hash", "threads", NULL };
    mpy_option_args common = { 0 };
    PyObject *path = NULL, *weights, *source = Py_None;
    long long expert;
    unsigned long long hash = 0;
    (void)type;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O&LO|$OO&O", names, PyUnicode_FSConverter, &path, &expert, &weights,
                                     &source, mpy_size_get, &hash, &common.threads))
        return NULL;
    const mpy_weights *from = weights_get(weights);
    const long long at = source == Py_None ? expert : PyLong_AsLongLong(source);
    int failed = from == NULL || PyErr_Occurred() != NULL;
    if (!failed && (at < 0 || at >= from->weights->n_experts)) {
        mpy_fail(MOXIE_ERR_ARGUMENT, "replace: the weights have no expert %lld; there are %lld", at,
                 (long long)from->weights->n_experts);
        failed = 1;
    }
    if (!failed)
        failed = replace_work(PyBytes_AsString(path), expert, &from->weights->experts[at], hash, &common) < 0;
    Py_DECREF(path);
    return failed ? NULL : Py_NewRef(Py_None);
}
