/* SPDX-License-Identifier: Apache-2.0
 *
 * py_expert_file.c - ExpertFile: one layer's experts on disk, as kernels read them (docs/expert-file.md).
 *
 *     ExpertFile(path) -> info, config, record(e), section(name), verify(), weights()
 *
 * Layers, weights and arrays of it hold a reference, so the file is closed after the last of them.
 */
#include "py_store.h"

#include <pthread.h>
#include <string.h>

PyObject *mpy_expert_file_type;

typedef struct expert_file {
    PyObject_HEAD moxie_expert_file *file;
    pthread_mutex_t lock; /* weights() unpacks once */
    bool has_lock;
} expert_file;

static const mpy_choice accesses[] = {
    { "map", MOXIE_EXPERT_MAP }, { "read", MOXIE_EXPERT_READ }, { "direct", MOXIE_EXPERT_DIRECT }, { NULL, 0 }
};

const moxie_expert_file *mpy_stored_file(PyObject *source, int64_t layer)
{
    if (PyObject_IsInstance(source, mpy_expert_file_type) == 1)
        return ((expert_file *)source)->file;
    if (PyObject_IsInstance(source, mpy_store_type) != 1) {
        PyErr_Format(PyExc_TypeError, "a moxie.ExpertFile or a moxie.Store is wanted, not %R", source);
        return NULL;
    }
    const moxie_expert_file *file = moxie_store_file(mpy_store_get(source), layer);
    if (file == NULL)
        mpy_fail(MOXIE_ERR_ARGUMENT, "the store has no layer %lld; Store.layers lists them", (long long)layer);
    return file;
}

moxie_status mpy_stored_layer(PyObject *source, int64_t layer, const moxie_layer_config *config,
                              const moxie_options *options, moxie_layer **out, moxie_error *error)
{
    if (PyObject_TypeCheck(source, (PyTypeObject *)mpy_expert_file_type))
        return moxie_layer_open_file(((expert_file *)source)->file, config, options, out, error);
    return moxie_store_layer(mpy_store_get(source), layer, config, options, out, error);
}

/* ---- opening -------------------------------------------------------------------------------- */

static int open_file(expert_file *self, const char *path, moxie_expert_file_options *options, PyObject *threads)
{
    mpy_option_args common = { .threads = threads };
    mpy_options pool = { 0 };
    moxie_error error = { 0 };
    moxie_status status;
    if (mpy_options_get(&common, &pool) < 0) {
        mpy_options_release(&pool);
        return -1;
    }
    options->executor = pool.c.executor;
    Py_BEGIN_ALLOW_THREADS status = moxie_expert_file_open(path, options, &self->file, &error);
    Py_END_ALLOW_THREADS mpy_options_release(&pool);
    if (status == MOXIE_OK)
        return 0;
    mpy_raise(&error);
    return -1;
}

static PyObject *file_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = { "path",   "load", "verify", "threads", "read_engine", "read_depth", "read_chunk_bytes",
                             "mirror", NULL };
    moxie_expert_file_options options = MOXIE_EXPERT_FILE_OPTIONS_INIT;
    PyObject *path = NULL, *mirror = NULL, *threads = NULL;
    const char *load = "map";
    expert_file *self = NULL;
    unsigned long long chunk = 0;
    int verify = 0;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O&|$spOziO&O&", names, PyUnicode_FSConverter, &path, &load, &verify,
                                     &threads, &options.read_engine, &options.read_depth, mpy_size_get, &chunk,
                                     mpy_path_or_none, &mirror))
        return NULL;
    options.verify = verify;
    options.read_chunk_bytes = chunk;
    options.mirror = mirror != NULL ? PyBytes_AsString(mirror) : NULL;
    if (mpy_choice_value(accesses, "load", load, &options.access) == 0)
        self = (expert_file *)PyType_GenericAlloc(type, 0);
    if (self != NULL) {
        self->has_lock = pthread_mutex_init(&self->lock, NULL) == 0;
        if (!self->has_lock)
            PyErr_NoMemory();
        if (!self->has_lock || open_file(self, PyBytes_AsString(path), &options, threads) < 0)
            Py_CLEAR(self);
    }
    Py_DECREF(path);
    Py_XDECREF(mirror);
    return (PyObject *)self;
}

static void file_free(PyObject *object)
{
    expert_file *self = (expert_file *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->file != NULL)
        moxie_expert_file_close(self->file);
    if (self->has_lock)
        pthread_mutex_destroy(&self->lock);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* ---- what is in it -------------------------------------------------------------------------- */

static PyObject *get_info(PyObject *object, void *none)
{
    moxie_expert_file_info info = MOXIE_EXPERT_FILE_INFO_INIT;
    moxie_error error = { 0 };
    (void)none;
    if (moxie_expert_file_get_info(((expert_file *)object)->file, &info, &error) == MOXIE_OK)
        return mpy_record_to_python(&mpy_expert_file_info_record, &info, NULL, NULL);
    mpy_raise(&error);
    return NULL;
}

static PyObject *get_config(PyObject *object, void *none)
{
    const moxie_layer_config *config = moxie_expert_file_config(((expert_file *)object)->file);
    (void)none;
    return mpy_record_to_python(&mpy_layer_config_record, config, config, NULL);
}

static PyObject *bytes_of(PyObject *object, const void *data, uint64_t bytes)
{
    const int64_t shape = (int64_t)bytes;
    return mpy_array_view(MOXIE_U8, 1, &shape, data, false, object);
}

static PyObject *record(PyObject *object, PyObject *number)
{
    moxie_expert_record found = MOXIE_EXPERT_RECORD_INIT;
    moxie_error error = { 0 };
    const long long expert = PyLong_AsLongLong(number);
    if (expert == -1 && PyErr_Occurred())
        return NULL;
    if (moxie_expert_file_record(((expert_file *)object)->file, expert, &found, &error) != MOXIE_OK) {
        mpy_raise(&error);
        return NULL;
    }
    if (found.data == NULL)
        Py_RETURN_NONE;
    PyObject *view = bytes_of(object, found.data, found.bytes);
    return view == NULL ? NULL : mpy_record_to_python(&mpy_expert_record_record, &found, NULL, view);
}

static PyObject *section(PyObject *object, PyObject *given)
{
    const char *name = PyUnicode_AsUTF8AndSize(given, NULL);
    uint64_t bytes = 0;
    if (name == NULL)
        return NULL;
    const void *data = moxie_expert_file_section(((expert_file *)object)->file, name, &bytes);
    return data == NULL ? Py_NewRef(Py_None) : bytes_of(object, data, bytes);
}

/* ---- all its bytes -------------------------------------------------------------------------- */

typedef moxie_status whole_fn(expert_file *self, const moxie_executor *executor, void *out, moxie_error *error);

/* Calls `fn` on the threads of the only keyword. */
static int on_threads(PyObject *object, PyObject *args, PyObject *named, whole_fn *fn, void *out)
{
    static char *names[] = { "threads", NULL };
    mpy_option_args common = { 0 };
    mpy_options pool = { 0 };
    moxie_error error = { 0 };
    moxie_status status;
    if (!PyArg_ParseTupleAndKeywords(args, named, "|$O", names, &common.threads) ||
        mpy_options_get(&common, &pool) < 0) {
        mpy_options_release(&pool);
        return -1;
    }
    Py_BEGIN_ALLOW_THREADS status = fn((expert_file *)object, pool.c.executor, out, &error);
    Py_END_ALLOW_THREADS mpy_options_release(&pool);
    if (status == MOXIE_OK)
        return 0;
    mpy_raise(&error);
    return -1;
}

static moxie_status do_verify(expert_file *self, const moxie_executor *executor, void *none, moxie_error *error)
{
    (void)none;
    return moxie_expert_file_verify(self->file, executor, error);
}

static PyObject *verify(PyObject *object, PyObject *args, PyObject *named)
{
    return on_threads(object, args, named, do_verify, NULL) < 0 ? NULL : Py_NewRef(Py_None);
}

static moxie_status do_weights(expert_file *self, const moxie_executor *executor, void *out, moxie_error *error)
{
    pthread_mutex_lock(&self->lock);
    const moxie_status status = moxie_expert_file_weights(self->file, executor, out, error);
    pthread_mutex_unlock(&self->lock);
    return status;
}

static PyObject *weights(PyObject *object, PyObject *args, PyObject *named)
{
    const moxie_weights *unpacked = NULL;
    if (on_threads(object, args, named, do_weights, &unpacked) < 0)
        return NULL;
    return mpy_weights_of(object, unpacked, moxie_expert_file_config(((expert_file *)object)->file));
}

#define NAMED(f) (PyCFunction)(void (*)(void))(f), METH_VARARGS | METH_KEYWORDS

static PyMethodDef methods[] = {
    { "record", record, METH_O,
      "record($self, expert, /)\n--\n\nThe ExpertRecord of an expert, -1: of the shared one; None if the file does not "
      "have it.\n"
      "Its `data` is a view of the file." },
    { "section", section, METH_O,
      "section($self, name, /)\n--\n\nThe bytes of a section, \"router\" or \"x.source\" say: a read-only moxie.Array "
      "of "
      "uint8, or None." },
    { "verify", NAMED(verify),
      "verify($self, *, threads=None)\n--\n\nReads every record and checks it; raises moxie.Mismatch for the first "
      "that "
      "is damaged or in\n"
      "another's place." },
    { "weights", NAMED(weights),
      "weights($self, *, threads=None)\n--\n\nThe Weights of the whole layer, unpacked into memory, for checks and for "
      "kernels that read another\n"
      "layout. The first call unpacks. Experts that the file does not have are absent." },
    { "write", (PyCFunction)(void (*)(void))mpy_expert_file_write, METH_VARARGS | METH_KEYWORDS | METH_STATIC,
      "write(path, weights, config=None, *, target=None, mode=None, layer=0, source_hashes=None, extras=None,\n"
      "      threads=None, progress=None)\n--\n\n"
      "Packs a layer's Weights into an expert file, one expert in memory at a time. It gets its name when it is "
      "whole.\n\n"
      "config         None for that of the weights, or a copy with another share (ep_size, ep_rank), whose experts "
      "the\n"
      "               file then has\n"
      "target         a name of moxie.expert_targets(): whose kernels read it; None: this machine's\n"
      "mode           \"exact\", \"fast\": whose kernels choose the layout\n"
      "layer          the layer's number in the checkpoint; a Store tells layers apart by it\n"
      "source_hashes  [E] whole numbers that stay beside the records: fingerprints of what they were made of\n"
      "extras         {name: bytes} sections of yours; names begin with \"x.\"\n"
      "progress(done, total) is called between experts; if it returns true, the call raises moxie.TimedOut. When it\n"
      "fails, no file is left." },
    { "replace", (PyCFunction)(void (*)(void))mpy_expert_file_replace, METH_VARARGS | METH_KEYWORDS | METH_STATIC,
      "replace(path, expert, weights, *, source=None, source_hash=0, threads=None)\n--\n\n"
      "Replaces one expert of a file by expert `source` (None: the same number) of the weights. Whoever has the file "
      "open\n"
      "keeps the old one; a crash leaves the old one or the new." },
    { NULL, NULL, 0, NULL }
};
static PyGetSetDef attributes[] = {
    { "info", get_info, NULL, "Sizes, layout and generation: an ExpertFileInfo.", NULL },
    { "config", get_config, NULL, "The configuration that it was written with: a new LayerConfig each time.", NULL },
    { NULL, NULL, NULL, NULL, NULL }
};
static PyType_Slot slots[] = { { Py_tp_new, file_new },
                               { Py_tp_dealloc, file_free },
                               { Py_tp_methods, methods },
                               { Py_tp_getset, attributes },
                               { 0, NULL } };
PyType_Spec mpy_expert_file_spec = { "moxie._moxie.ExpertFile", sizeof(expert_file), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots };
