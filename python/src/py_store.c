/* SPDX-License-Identifier: Apache-2.0
 *
 * py_store.c - Store: layers of expert files in less memory than they need (docs/store.md); and disks.
 *
 *     Store(paths, ram_bytes=...) -> info, layers, prefetch(layer, ids), counters(layer)
 *
 * Layers of it (Layer._stored) hold a reference, so the store is closed after the last of them.
 */
#include "py_store.h"

#include <stdlib.h>
#include <string.h>

PyObject *mpy_store_type;

typedef struct store {
    PyObject_HEAD moxie_store *store;
} store;

moxie_store *mpy_store_get(PyObject *object)
{
    return ((store *)object)->store;
}

/* ---- paths ---------------------------------------------------------------------------------- */

/* One path, or several. */
typedef struct path_list {
    PyObject *bytes;    /* a list that holds them */
    const char **texts; /* [n] */
    Py_ssize_t n;
} path_list;

static int add_path(path_list *p, PyObject *object)
{
    PyObject *bytes = NULL;
    const int failed = !PyUnicode_FSConverter(object, &bytes) || PyList_Append(p->bytes, bytes) < 0;
    if (!failed)
        p->texts[p->n++] = PyBytes_AsString(bytes);
    Py_XDECREF(bytes); /* the list has it */
    return failed ? -1 : 0;
}

static int paths_get(PyObject *object, path_list *out)
{
    const bool several = PyList_Check(object) || PyTuple_Check(object);
    const Py_ssize_t n = several ? PySequence_Size(object) : 1;
    *out = (path_list) { .bytes = PyList_New(0), .texts = calloc((size_t)n + 1, sizeof *out->texts) };
    if (out->bytes == NULL || out->texts == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = several ? PySequence_GetItem(object, i) : Py_NewRef(object);
        const int failed = item == NULL || add_path(out, item) < 0;
        Py_XDECREF(item);
        if (failed)
            return -1;
    }
    return 0;
}

static void paths_release(path_list *p)
{
    free(p->texts);
    Py_XDECREF(p->bytes);
}

/* ---- options -------------------------------------------------------------------------------- */

typedef struct given {
    path_list paths;
    moxie_store_options options;
    PyObject *census, *pinned, *mirror, *where; /* references to what the options point to */
} given;

static int census_get(given *g, PyObject *object)
{
    const int64_t *shape;
    g->census = mpy_array_from(object, "census", MOXIE_F64);
    if (g->census == NULL)
        return -1;
    if (mpy_array_shape(g->census, &shape) != 2) {
        mpy_fail(MOXIE_ERR_ARGUMENT, "census: an array [layers, experts] is wanted");
        return -1;
    }
    g->options.census = mpy_array_data(g->census);
    g->options.census_experts = shape[1];
    return 0;
}

/* The rows of the census are as many as the layers, which only the files know. */
static int census_check(const given *g, const moxie_store_info *info)
{
    const int64_t *shape;
    if (g->census == NULL)
        return 0;
    (void)mpy_array_shape(g->census, &shape);
    if (shape[0] == info->layers)
        return 0;
    mpy_fail(MOXIE_ERR_MISMATCH, "census: it has %lld rows, and the store %d layers", (long long)shape[0],
             (int)info->layers);
    return -1;
}

static int pinned_get(given *g, PyObject *object)
{
    const Py_ssize_t n = PySequence_Size(object);
    g->pinned = n < 0 ? NULL : mpy_array_of_numbers(object, "pinned", MOXIE_I64, n);
    if (g->pinned == NULL)
        return -1;
    if (n % 2 != 0) {
        mpy_fail(MOXIE_ERR_ARGUMENT, "pinned: pairs (layer, expert) are wanted");
        return -1;
    }
    g->options.pinned = mpy_array_data(g->pinned);
    g->options.n_pinned = n / 2;
    return 0;
}

static int given_get(PyObject *args, PyObject *named, given *g)
{
    static char *names[] = { "paths",     "ram_bytes", "device_bytes",     "policy",         "max_inserts",
                             "half_life", "warm_runs", "census",           "pinned",         "read_buffers",
                             "prefetch",  "verify",    "reader",           "read_depth",     "buffered",
                             "mirror",    "device",    "read_chunk_bytes", "device_buffers", "compute_where_it_lies",
                             NULL };
    moxie_store_options *o = &g->options;
    PyObject *paths, *census = Py_None, *pinned = Py_None;
    unsigned long long ram = 0, device = 0, chunk = 0;
    long long warm = 0;
    int prefetch = 1, verify = 0, buffered = 0;
    *g = (given) { .options = MOXIE_STORE_OPTIONS_INIT };
    if (!PyArg_ParseTupleAndKeywords(args, named, "OO&|$O&zidLOOippzipO&zO&iO&", names, &paths, mpy_size_get, &ram,
                                     mpy_size_get, &device, &o->policy, &o->max_inserts, &o->half_life, &warm, &census,
                                     &pinned, &o->read_buffers, &prefetch, &verify, &o->reader, &o->read_depth,
                                     &buffered, mpy_path_or_none, &g->mirror, &o->device, mpy_size_get, &chunk,
                                     &o->device_buffers, mpy_path_or_none, &g->where))
        return -1;
    o->ram_bytes = ram, o->device_bytes = device, o->read_chunk_bytes = chunk, o->warm_runs = warm;
    o->no_prefetch = !prefetch, o->verify = verify, o->buffered = buffered;
    o->mirror = g->mirror != NULL ? PyBytes_AsString(g->mirror) : NULL;
    o->compute_where_it_lies = g->where != NULL ? PyBytes_AsString(g->where) : NULL;
    if (census != Py_None && census_get(g, census) < 0)
        return -1;
    if (pinned != Py_None && pinned_get(g, pinned) < 0)
        return -1;
    return paths_get(paths, &g->paths);
}

static void given_release(given *g)
{
    paths_release(&g->paths);
    Py_XDECREF(g->census);
    Py_XDECREF(g->pinned);
    Py_XDECREF(g->mirror);
    Py_XDECREF(g->where);
}

/* What would become of the budget; without a census, whose length is checked by this. */
static int describe_given(given *g, moxie_store_info *info)
{
    moxie_error error = { 0 };
    moxie_store_options plain = g->options;
    moxie_status status;
    *info = (moxie_store_info)MOXIE_STORE_INFO_INIT;
    plain.census = NULL;
    plain.census_experts = 0;
    if (g->census != NULL && plain.warm_runs == 0)
        plain.warm_runs = 1;
    Py_BEGIN_ALLOW_THREADS status = moxie_store_describe(g->paths.texts, g->paths.n, &plain, info, &error);
    Py_END_ALLOW_THREADS if (status == MOXIE_OK) return census_check(g, info);
    mpy_raise(&error);
    return -1;
}

/* ---- the object ----------------------------------------------------------------------------- */

static PyObject *store_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    given g;
    moxie_store_info info;
    moxie_error error = { 0 };
    moxie_status status = MOXIE_OK;
    store *self = NULL;
    if (given_get(args, named, &g) == 0 && (g.census == NULL || describe_given(&g, &info) == 0))
        self = (store *)PyType_GenericAlloc(type, 0);
    if (self != NULL) {
        Py_BEGIN_ALLOW_THREADS status = moxie_store_open(g.paths.texts, g.paths.n, &g.options, &self->store, &error);
        Py_END_ALLOW_THREADS
    }
    if (status != MOXIE_OK) {
        mpy_raise(&error);
        Py_CLEAR(self);
    }
    given_release(&g);
    return (PyObject *)self;
}

static void store_free(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    moxie_store_close(((store *)object)->store);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *describe(PyObject *type, PyObject *args, PyObject *named)
{
    given g;
    moxie_store_info info;
    PyObject *made = NULL;
    (void)type;
    if (given_get(args, named, &g) == 0 && describe_given(&g, &info) == 0)
        made = mpy_record_to_python(&mpy_store_info_record, &info, NULL, NULL);
    given_release(&g);
    return made;
}

static PyObject *get_info(PyObject *object, void *none)
{
    moxie_store_info info = MOXIE_STORE_INFO_INIT;
    moxie_error error = { 0 };
    (void)none;
    if (moxie_store_get_info(mpy_store_get(object), &info, &error) == MOXIE_OK)
        return mpy_record_to_python(&mpy_store_info_record, &info, NULL, NULL);
    mpy_raise(&error);
    return NULL;
}

static PyObject *get_layers(PyObject *object, void *none)
{
    PyObject *list = PyList_New(0);
    int64_t number;
    (void)none;
    for (int64_t i = 0; list != NULL && (number = moxie_store_layer_number(mpy_store_get(object), i)) >= 0; i++) {
        PyObject *item = PyLong_FromLongLong(number);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *layer_config(PyObject *object, PyObject *number)
{
    const long long layer = PyLong_AsLongLong(number);
    if (layer == -1 && PyErr_Occurred())
        return NULL;
    const moxie_expert_file *file = mpy_stored_file(object, layer);
    if (file == NULL)
        return NULL;
    const moxie_layer_config *config = moxie_expert_file_config(file);
    return mpy_record_to_python(&mpy_layer_config_record, config, config, NULL);
}

static PyObject *prefetch(PyObject *object, PyObject *args)
{
    long long layer;
    PyObject *given_ids;
    moxie_error error = { 0 };
    const int64_t *shape;
    if (!PyArg_ParseTuple(args, "LO", &layer, &given_ids))
        return NULL;
    PyObject *ids = mpy_array_from(given_ids, "ids", MOXIE_I32);
    if (ids == NULL)
        return NULL;
    int64_t count = 1;
    for (int32_t i = mpy_array_shape(ids, &shape) - 1; i >= 0; i--)
        count *= shape[i];
    moxie_status status;
    moxie_store *self = mpy_store_get(object);
    const int32_t *data = mpy_array_data(ids);
    Py_BEGIN_ALLOW_THREADS status = moxie_store_prefetch(self, layer, data, count, &error);
    Py_END_ALLOW_THREADS Py_DECREF(ids);
    if (status == MOXIE_OK)
        Py_RETURN_NONE;
    mpy_raise(&error);
    return NULL;
}

static PyObject *counters(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = { "layer", "last_run", NULL };
    moxie_store_counters found = MOXIE_STORE_COUNTERS_INIT;
    moxie_error error = { 0 };
    PyObject *number = Py_None;
    int last = 0;
    if (!PyArg_ParseTupleAndKeywords(args, named, "|O$p", names, &number, &last))
        return NULL;
    const long long layer = number == Py_None ? -1 : PyLong_AsLongLong(number);
    if (layer == -1 && PyErr_Occurred())
        return NULL;
    if (number != Py_None && layer < 0)
        mpy_fail(MOXIE_ERR_ARGUMENT, "counters: there is no layer %lld; None is the sum over all", layer);
    else if (moxie_store_get_counters(mpy_store_get(object), layer, last, &found, &error) == MOXIE_OK)
        return mpy_record_to_python(&mpy_store_counters_record, &found, NULL, NULL);
    else
        mpy_raise(&error);
    return NULL;
}

#define NAMED(f) (PyCFunction)(void (*)(void))(f)

static PyMethodDef methods[] = {
    { "prefetch", prefetch, METH_VARARGS,
      "prefetch($self, layer, ids, /)\n--\n\nStarts to read experts that the layer's next run may use: any int32 "
      "array, "
      "or a sequence. Does\n"
      "not wait; what finds no free buffer is not read. Plan.lookahead() guesses by the layer's router." },
    { "counters", NAMED(counters), METH_VARARGS | METH_KEYWORDS,
      "counters($self, layer=None, *, last_run=False)\n--\n\nWhat runs did: a StoreCounters of a layer, None: of all "
      "together. last_run: only of the last run\n"
      "that ended." },
    { "layer_config", layer_config, METH_O,
      "layer_config($self, layer, /)\n--\n\nThe LayerConfig in the layer's file: change a copy of it for layer()." },
    { "describe", NAMED(describe), METH_VARARGS | METH_KEYWORDS | METH_STATIC,
      "describe(paths, ram_bytes, *, device_bytes=0, policy=None, max_inserts=0, half_life=0.0, warm_runs=0,\n"
      "         census=None, pinned=None, read_buffers=0, prefetch=True, verify=False, reader=None, read_depth=0,\n"
      "         buffered=False, mirror=None, device=None, read_chunk_bytes=0, device_buffers=0,\n"
      "         compute_where_it_lies=None)\n--\n\n"
      "The StoreInfo of a store that is not opened: what would become of the budget. No record is read." },
    { NULL, NULL, 0, NULL }
};
static PyGetSetDef attributes[] = { { "info", get_info, NULL, "What the store made of its budget: a StoreInfo.", NULL },
                                    { "layers", get_layers, NULL,
                                      "The checkpoint's numbers of its layers, ascending: a list of int.", NULL },
                                    { NULL, NULL, NULL, NULL, NULL } };
static PyType_Slot slots[] = { { Py_tp_new, store_new },
                               { Py_tp_dealloc, store_free },
                               { Py_tp_methods, methods },
                               { Py_tp_getset, attributes },
                               { 0, NULL } };
PyType_Spec mpy_store_spec = { "moxie._moxie.Store", sizeof(store), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                               slots };

/* ---- lists, disks --------------------------------------------------------------------------- */

static int append_record(PyObject *list, const mpy_record *record, const void *data)
{
    PyObject *item = mpy_record_to_python(record, data, NULL, NULL);
    const int failed = item == NULL || PyList_Append(list, item) < 0;
    Py_XDECREF(item);
    return failed ? -1 : 0;
}

static PyObject *expert_targets(PyObject *module, PyObject *none)
{
    moxie_expert_target target = MOXIE_EXPERT_TARGET_INIT;
    PyObject *list = PyList_New(0);
    (void)module, (void)none;
    for (int32_t i = 0; list != NULL && moxie_expert_target_at(i, &target); i++)
        if (append_record(list, &mpy_expert_target_record, &target) < 0)
            Py_CLEAR(list);
    return list;
}

static PyObject *read_engines(PyObject *module, PyObject *none)
{
    moxie_read_engine engine = MOXIE_READ_ENGINE_INIT;
    PyObject *list = PyList_New(0);
    (void)module, (void)none;
    for (int32_t i = 0; list != NULL && moxie_read_engine_at(i, &engine); i++)
        if (append_record(list, &mpy_read_engine_record, &engine) < 0)
            Py_CLEAR(list);
    return list;
}

static PyObject *measure(const path_list *paths, const path_list *mirrors, moxie_disk_options *options)
{
    moxie_disk_rate rate = MOXIE_DISK_RATE_INIT;
    moxie_error error = { 0 };
    moxie_status status;
    if (mirrors->n > 0 && mirrors->n != paths->n) {
        mpy_fail(MOXIE_ERR_ARGUMENT, "mirrors: %zd paths are wanted, one for each file, not %zd", paths->n, mirrors->n);
        return NULL;
    }
    options->mirrors = mirrors->n > 0 ? mirrors->texts : NULL;
    Py_BEGIN_ALLOW_THREADS status = moxie_disk_measure(paths->texts, (int32_t)paths->n, options, &rate, &error);
    Py_END_ALLOW_THREADS if (status == MOXIE_OK) return mpy_record_to_python(&mpy_disk_rate_record, &rate, NULL, NULL);
    mpy_raise(&error);
    return NULL;
}

static PyObject *measure_disk(PyObject *module, PyObject *args, PyObject *named)
{
    static char *names[] = {
        "paths", "engine", "depth", "chunk_bytes", "record_bytes", "milliseconds", "mirrors", NULL
    };
    moxie_disk_options options = MOXIE_DISK_OPTIONS_INIT;
    PyObject *paths, *mirrors = Py_None, *made = NULL;
    path_list files = { .n = 0 }, others = { .n = 0 };
    unsigned long long chunk = 0, record = 0;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O|$ziO&O&iO", names, &paths, &options.engine, &options.depth,
                                     mpy_size_get, &chunk, mpy_size_get, &record, &options.milliseconds, &mirrors))
        return NULL;
    options.chunk_bytes = chunk;
    options.record_bytes = record;
    if (paths_get(paths, &files) == 0 && (mirrors == Py_None || paths_get(mirrors, &others) == 0))
        made = measure(&files, &others, &options);
    paths_release(&files);
    paths_release(&others);
    return made;
}

PyMethodDef mpy_store_functions[] = {
    { "expert_targets", expert_targets, METH_NOARGS,
      "expert_targets()\n--\n\nWhose kernels expert files can be written for: a list of ExpertTarget." },
    { "read_engines", read_engines, METH_NOARGS,
      "read_engines()\n--\n\nWhat reads files past the page cache, best first: a list of ReadEngine." },
    { "measure_disk", NAMED(measure_disk), METH_VARARGS | METH_KEYWORDS,
      "measure_disk(paths, *, engine=None, depth=0, chunk_bytes=0, record_bytes=0, milliseconds=0, "
      "mirrors=None)\n--\n\n"
      "Reads pieces of files in a random order past the page cache and counts: a DiskRate. The files need not be "
      "expert\n"
      "files. 0 and None are the defaults: the best engine, 32 reads in flight, 256 KiB each, 4 MiB side by side, 1 "
      "s." },
    { NULL, NULL, 0, NULL }
};
