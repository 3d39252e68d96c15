/* SPDX-License-Identifier: Apache-2.0
 *
 * py_layer.c - Layer: the experts of a layer, packed for the kernels of this machine.
 *
 * The making of its plans and their runs share it; prepare and update_expert wait until none is under way. Who waits
 * does not hold the GIL.
 */
#include "py_store.h"

#include <pthread.h>

PyObject *mpy_layer_type;

struct mpy_layer {
    PyObject_HEAD moxie_layer *layer;
    PyObject *config; /* a LayerConfig */
    PyObject *keep;   /* a list: what the C config points to, for routing by a callable */
    PyObject *source; /* the ExpertFile or Store that has its experts; NULL: the layer has them */
    mpy_sizes sizes;
    pthread_rwlock_t lock;
    bool has_lock, on_gpu;
};

mpy_sizes mpy_sizes_of(const moxie_layer_config *config)
{
    return (mpy_sizes) { .dtype = config->dtype,
                         .experts = config->experts + config->routing.zero_experts,
                         .top_k = config->top_k,
                         .hidden = config->hidden,
                         .router_width = config->router_width };
}

const moxie_layer *mpy_layer_get(const mpy_layer *layer)
{
    return layer->layer;
}

const mpy_sizes *mpy_layer_sizes(const mpy_layer *layer)
{
    return &layer->sizes;
}

moxie_layer *mpy_layer_change(mpy_layer *layer)
{
    return layer->layer;
}

void mpy_layer_alone(mpy_layer *layer)
{
    pthread_rwlock_wrlock(&layer->lock);
}

void mpy_layer_share(mpy_layer *layer)
{
    pthread_rwlock_rdlock(&layer->lock);
}

void mpy_layer_done(mpy_layer *layer)
{
    pthread_rwlock_unlock(&layer->lock);
}

/* Whoever changes experts goes before runs that come later: plans that run all the time would never let it in. */
static bool make_lock(pthread_rwlock_t *lock)
{
#ifdef __GLIBC__
    pthread_rwlockattr_t kind;
    bool made = pthread_rwlockattr_init(&kind) == 0;
    if (made) {
        (void)pthread_rwlockattr_setkind_np(&kind, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
        made = pthread_rwlock_init(lock, &kind) == 0;
        (void)pthread_rwlockattr_destroy(&kind);
    }
    return made;
#else
    return pthread_rwlock_init(lock, NULL) == 0;
#endif
}

static int create(mpy_layer *self, PyObject *config, const mpy_options *options)
{
    moxie_layer_config c;
    moxie_error error = { 0 };
    moxie_status status = MOXIE_OK;
    self->keep = PyList_New(0);
    const int failed = self->keep == NULL || mpy_config_from_python(config, &c, self->keep) < 0;
    if (!failed) {
        Py_BEGIN_ALLOW_THREADS status = moxie_layer_create(&c, &options->c, &self->layer, &error);
        Py_END_ALLOW_THREADS if (status != MOXIE_OK) mpy_raise(&error);
        self->sizes = mpy_sizes_of(&c);
    }
    return failed || status != MOXIE_OK ? -1 : 0;
}

/* A layer without experts and configuration yet. */
static mpy_layer *begin(PyTypeObject *type, const mpy_options *options)
{
    mpy_layer *self = (mpy_layer *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->on_gpu = options->c.backend == MOXIE_BACKEND_CUDA;
    self->has_lock = make_lock(&self->lock);
    if (!self->has_lock) {
        PyErr_NoMemory();
        Py_CLEAR(self);
    }
    return self;
}

static PyObject *layer_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = { "config", MPY_OPTION_KEYWORDS, NULL };
    mpy_option_args o = { 0 };
    mpy_options options;
    PyObject *config;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O|$" MPY_OPTION_FORMATS, names, &config, MPY_OPTION_TARGETS(o)))
        return NULL;
    mpy_layer *self = mpy_options_get(&o, &options) < 0 ? NULL : begin(type, &options);
    if (self != NULL && create(self, config, &options) < 0)
        Py_CLEAR(self);
    if (self != NULL)
        self->config = Py_NewRef(config);
    mpy_options_release(&options);
    return (PyObject *)self;
}

/* A layer of an expert file or of a store; `config` None: the file's. */
static int open_stored(mpy_layer *self, long long number, PyObject *config, const mpy_options *options)
{
    moxie_layer_config changed;
    moxie_error error = { 0 };
    moxie_status status;
    const moxie_expert_file *file = mpy_stored_file(self->source, number);
    self->keep = PyList_New(0);
    if (file == NULL || self->keep == NULL ||
        (config != Py_None && mpy_config_from_python(config, &changed, self->keep) < 0))
        return -1;
    const moxie_layer_config *c = config != Py_None ? &changed : NULL, *used = c ? c : moxie_expert_file_config(file);
    Py_BEGIN_ALLOW_THREADS status = mpy_stored_layer(self->source, number, c, &options->c, &self->layer, &error);
    Py_END_ALLOW_THREADS if (status != MOXIE_OK)
    {
        mpy_raise(&error);
        return -1;
    }
    self->sizes = mpy_sizes_of(used);
    self->config = c ? Py_NewRef(config) : mpy_record_to_python(&mpy_layer_config_record, used, used, NULL);
    return self->config == NULL ? -1 : 0;
}

static PyObject *stored(PyObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = { "source", "number", "config", MPY_OPTION_KEYWORDS, NULL };
    mpy_option_args o = { 0 };
    mpy_options options;
    PyObject *source, *config;
    long long number;
    if (!PyArg_ParseTupleAndKeywords(args, named, "OLO|$" MPY_OPTION_FORMATS, names, &source, &number, &config,
                                     MPY_OPTION_TARGETS(o)))
        return NULL;
    mpy_layer *self = mpy_options_get(&o, &options) < 0 ? NULL : begin((PyTypeObject *)type, &options);
    if (self != NULL) {
        self->source = Py_NewRef(source);
        if (open_stored(self, number, config, &options) < 0)
            Py_CLEAR(self);
    }
    mpy_options_release(&options);
    return (PyObject *)self;
}

static void layer_free(PyObject *object)
{
    mpy_layer *self = (mpy_layer *)object;
    PyTypeObject *type = Py_TYPE(object);
    moxie_layer_destroy(self->layer);
    if (self->has_lock)
        pthread_rwlock_destroy(&self->lock);
    Py_XDECREF(self->config);
    Py_XDECREF(self->keep);
    Py_XDECREF(self->source); /* after the layer */
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static int is_weights(PyObject *object)
{
    if (PyObject_IsInstance(object, mpy_weights_type) == 1)
        return 1;
    PyErr_Format(PyExc_TypeError, "a moxie.Weights is wanted, not %R", object);
    return 0;
}

static PyObject *prepare(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = { "weights", "threads", "progress", NULL };
    mpy_layer *self = (mpy_layer *)object;
    mpy_option_args o = { 0 };
    mpy_options options = { 0 };
    PyObject *weights;
    moxie_error error = { 0 };
    if (!PyArg_ParseTupleAndKeywords(args, named, "O|$OO", names, &weights, &o.threads, &o.progress) ||
        !is_weights(weights) || mpy_options_get(&o, &options) < 0) {
        mpy_options_release(&options);
        return NULL;
    }
    moxie_status status;
    const moxie_weights *w = ((mpy_weights *)weights)->weights;
    Py_BEGIN_ALLOW_THREADS pthread_rwlock_wrlock(&self->lock);
    status = moxie_layer_prepare(self->layer, w, &options.c, &error);
    pthread_rwlock_unlock(&self->lock);
    Py_END_ALLOW_THREADS mpy_options_release(&options);
    if (status == MOXIE_OK)
        Py_RETURN_NONE;
    mpy_raise(&error);
    return NULL;
}

static PyObject *update_expert(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = { "expert", "weights", "source", NULL };
    mpy_layer *self = (mpy_layer *)object;
    long long expert, source = -1;
    PyObject *weights;
    moxie_error error = { 0 };
    if (!PyArg_ParseTupleAndKeywords(args, named, "LO|L", names, &expert, &weights, &source) || !is_weights(weights))
        return NULL;
    const moxie_weights *w = ((mpy_weights *)weights)->weights;
    source = source < 0 ? expert : source;
    if (source < 0 || source >= w->n_experts) {
        mpy_fail(MOXIE_ERR_ARGUMENT, "update_expert: the weights have no expert %lld; there are %lld", source,
                 (long long)w->n_experts);
        return NULL;
    }
    moxie_status status;
    Py_BEGIN_ALLOW_THREADS pthread_rwlock_wrlock(&self->lock);
    status = moxie_layer_update_expert(self->layer, expert, &w->experts[source], &error);
    pthread_rwlock_unlock(&self->lock);
    Py_END_ALLOW_THREADS if (status == MOXIE_OK) Py_RETURN_NONE;
    mpy_raise(&error);
    return NULL;
}

static PyObject *verify(PyObject *object, PyObject *none)
{
    mpy_layer *self = (mpy_layer *)object;
    moxie_error error = { 0 };
    moxie_status status;
    (void)none;
    Py_BEGIN_ALLOW_THREADS mpy_layer_share(self);
    status = moxie_layer_verify(self->layer, &error);
    mpy_layer_done(self);
    Py_END_ALLOW_THREADS if (status == MOXIE_OK) Py_RETURN_NONE;
    mpy_raise(&error);
    return NULL;
}

static PyObject *record(PyObject *object, PyObject *number)
{
    mpy_layer *self = (mpy_layer *)object;
    const long long expert = PyLong_AsLongLong(number);
    const void *data;
    uint64_t bytes;
    moxie_error error = { 0 };
    if (expert == -1 && PyErr_Occurred())
        return NULL;
    if (moxie_layer_record(self->layer, expert, &data, &bytes, &error) != MOXIE_OK) {
        mpy_raise(&error);
        return NULL;
    }
    if (data == NULL)
        Py_RETURN_NONE;
    const int64_t shape = (int64_t)bytes;
    return mpy_array_view(MOXIE_U8, 1, &shape, data, ((mpy_layer *)object)->on_gpu, object);
}

static PyObject *get_bytes(PyObject *object, void *none)
{
    (void)none;
    return PyLong_FromUnsignedLongLong(moxie_layer_bytes(((mpy_layer *)object)->layer));
}

static PyObject *get_config(PyObject *object, void *none)
{
    PyObject *config = ((mpy_layer *)object)->config;
    (void)none;
    Py_INCREF(config);
    return config;
}

static PyObject *get_source(PyObject *object, void *none)
{
    PyObject *source = ((mpy_layer *)object)->source;
    (void)none;
    return Py_NewRef(source == NULL ? Py_None : source);
}

static PyMethodDef methods[] = {
    { "prepare", (PyCFunction)(void (*)(void))prepare, METH_VARARGS | METH_KEYWORDS,
      "prepare($self, weights, *, threads=None, progress=None)\n--\n\n"
      "Packs every local expert, as many at a time as there are threads. The weights may go afterwards.\n\n"
      "progress(done, total) is called between experts; if it returns true, the call raises moxie.TimedOut.\n"
      "When it fails the layer holds no expert." },
    { "update_expert", (PyCFunction)(void (*)(void))update_expert, METH_VARARGS | METH_KEYWORDS,
      "update_expert($self, expert, weights, source=None)\n--\n\n"
      "Replaces one local expert, a global index, by expert `source` (None: the same index) of the weights.\n"
      "It waits for runs that are under way. Plans stay valid. When it fails the old expert stays." },
    { "verify", verify, METH_NOARGS,
      "verify($self)\n--\n\nComputes the checksum of every expert again; raises moxie.Mismatch for a damaged one." },
    { "record", record, METH_O,
      "record($self, expert, /)\n--\n\nThe packed bytes of an expert: a read-only moxie.Array of uint8, valid until "
      "the\n"
      "expert is replaced; None if it is not local. Of a layer on a GPU only its address (data_ptr) can be had, a "
      "device "
      "address." },
    { "_stored", (PyCFunction)(void (*)(void))stored, METH_VARARGS | METH_KEYWORDS | METH_CLASS,
      "A layer of an ExpertFile, or the one with this number of a Store." },
    { NULL, NULL, 0, NULL }
};
static PyGetSetDef attributes[] = {
    { "config", get_config, NULL, "The LayerConfig that it was made with.", NULL },
    { "source", get_source, NULL, "The ExpertFile or Store whose experts it runs; None: it has its own.", NULL },
    { "nbytes", get_bytes, NULL, "Bytes of all packed experts, router and shared expert included.", NULL },
    { NULL, NULL, NULL, NULL, NULL }
};
static PyType_Slot slots[] = { { Py_tp_new, layer_new },
                               { Py_tp_dealloc, layer_free },
                               { Py_tp_methods, methods },
                               { Py_tp_getset, attributes },
                               { 0, NULL } };
PyType_Spec mpy_layer_spec = { "moxie._moxie.Layer", sizeof(mpy_layer), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                               slots };
