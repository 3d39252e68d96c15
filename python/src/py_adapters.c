/* SPDX-License-Identifier: Apache-2.0
 *
 * py_adapters.c - moxie.Adapters: LoRA adapters of a layer, by number. What changes them waits until no run of the
 * layer is under way.
 */
#include "py_moxie.h"

#include <string.h>

PyObject *mpy_adapters_type;

typedef struct adapters {
    PyObject_HEAD moxie_adapters *adapters;
    mpy_layer *layer; /* a reference */
    int32_t count;
} adapters;

const moxie_adapters *mpy_adapters_get(PyObject *object)
{
    if (PyObject_IsInstance(object, mpy_adapters_type) == 1)
        return ((adapters *)object)->adapters;
    PyErr_Format(PyExc_TypeError, "adapters: a moxie.Adapters is wanted, not %R", object);
    return NULL;
}

static PyObject *adapters_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = { "layer", "count", NULL };
    PyObject *layer;
    int count = 1;
    moxie_error error = { 0 };
    if (!PyArg_ParseTupleAndKeywords(args, named, "O!|i", names, mpy_layer_type, &layer, &count))
        return NULL;
    adapters *self = (adapters *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->layer = (mpy_layer *)Py_NewRef(layer);
    self->count = count;
    if (moxie_adapters_create(mpy_layer_get(self->layer), count, &self->adapters, &error) == MOXIE_OK)
        return (PyObject *)self;
    mpy_raise(&error);
    Py_DECREF(self);
    return NULL;
}

static void adapters_free(PyObject *object)
{
    adapters *self = (adapters *)object;
    PyTypeObject *type = Py_TYPE(object);
    moxie_adapters_destroy(self->adapters);
    Py_XDECREF((PyObject *)self->layer);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* ---- adding --------------------------------------------------------------------------------- */

static int set_alone(adapters *self, int number, const moxie_lora *lora)
{
    moxie_error error = { 0 };
    moxie_status status;
    Py_BEGIN_ALLOW_THREADS mpy_layer_alone(self->layer);
    status = moxie_adapters_set(self->adapters, number, lora, &error);
    mpy_layer_done(self->layer);
    Py_END_ALLOW_THREADS if (status == MOXIE_OK) return 0;
    mpy_raise(&error);
    return -1;
}

/* A view as the library's tensor; strides are in elements there. */
static int tensor_of(const char *name, const mpy_view *v, moxie_tensor *out)
{
    const bool fits = (v->axes == 2 || v->axes == 3) && !mpy_view_on_gpu(v);
    const bool typed =
        v->dtype == MOXIE_F32 || v->dtype == MOXIE_F16 || v->dtype == MOXIE_BF16 || v->dtype == MOXIE_U16;
    if (!fits || !typed) {
        PyObject *words = mpy_view_words(v);
        mpy_fail(MOXIE_ERR_ARGUMENT,
                 "%s: [r, columns] or [E, r, columns] of f32, f16 or bf16 on the host is wanted "
                 "(a B: [rows, r]), not %V",
                 name, words, "?");
        Py_XDECREF(words);
        return -1;
    }
    out->data = v->data;
    out->dtype = v->dtype == MOXIE_U16 ? MOXIE_BF16 : v->dtype; /* codes of bf16, as NumPy holds them */
    out->rank = v->axes;
    for (int i = 0; i < v->axes; i++) {
        out->shape[i] = v->shape[i];
        out->strides[i] = v->strides[i] / v->item_bytes;
        if (v->strides[i] % v->item_bytes != 0)
            return mpy_fail(MOXIE_ERR_ARGUMENT, "%s: a stride is no multiple of the element", name), -1;
    }
    return 0;
}

enum { FACTORS = 6 };

static PyObject *set(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = { "number", "gate_a",     "gate_b",   "up_a",       "up_b", "down_a",
                             "down_b", "gate_scale", "up_scale", "down_scale", NULL };
    adapters *self = (adapters *)object;
    PyObject *given[FACTORS] = { NULL };
    moxie_lora lora = MOXIE_LORA_INIT;
    moxie_tensor *const to[FACTORS] = {
        &lora.gate_a, &lora.gate_b, &lora.up_a, &lora.up_b, &lora.down_a, &lora.down_b
    };
    mpy_view views[FACTORS];
    int number, used = 0, failed = 0;
    if (!PyArg_ParseTupleAndKeywords(args, named, "i|$OOOOOOfff", names, &number, &given[0], &given[1], &given[2],
                                     &given[3], &given[4], &given[5], &lora.gate_scale, &lora.up_scale,
                                     &lora.down_scale))
        return NULL;
    for (int i = 0; i < FACTORS && !failed; i++) {
        if (given[i] == NULL || given[i] == Py_None)
            continue;
        failed = mpy_view_get(given[i], names[1 + i], false, 0, &views[used]) < 0;
        if (!failed)
            failed = tensor_of(names[1 + i], &views[used++], to[i]) < 0;
    }
    if (!failed)
        failed = set_alone(self, number, &lora) < 0;
    for (int i = 0; i < used; i++)
        mpy_view_release(&views[i]);
    return failed ? NULL : Py_NewRef(Py_None);
}

static PyObject *load(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = { "number", "path", "model", "layer", NULL };
    PyObject *path = NULL, *model;
    int number;
    long long layer;
    moxie_adapter_files *files = NULL;
    moxie_lora lora = MOXIE_LORA_INIT;
    moxie_error error = { 0 };
    int failed = 1;
    if (!PyArg_ParseTupleAndKeywords(args, named, "iO&O!L", names, &number, PyUnicode_FSConverter, &path,
                                     mpy_model_type, &model, &layer))
        return NULL;
    PyObject *weights = PyObject_CallMethod(model, "load", "L", layer);
    if (weights != NULL) {
        const moxie_model_layer *loaded = ((mpy_weights *)weights)->loaded;
        if (moxie_adapter_files_open(PyBytes_AsString(path), &files, &error) != MOXIE_OK ||
            moxie_adapter_files_load(files, mpy_model_get(model), loaded, layer, &lora, &error) != MOXIE_OK)
            mpy_raise(&error);
        else
            failed = set_alone((adapters *)object, number, &lora) < 0;
        moxie_adapter_files_close(files);
    }
    Py_XDECREF(weights);
    Py_DECREF(path);
    return failed ? NULL : Py_NewRef(Py_None);
}

/* ---- the rest ------------------------------------------------------------------------------- */

static PyObject *remove_one(PyObject *object, PyObject *args)
{
    adapters *self = (adapters *)object;
    int number;
    moxie_error error = { 0 };
    moxie_status status;
    if (!PyArg_ParseTuple(args, "i", &number))
        return NULL;
    Py_BEGIN_ALLOW_THREADS mpy_layer_alone(self->layer);
    status = moxie_adapters_remove(self->adapters, number, &error);
    mpy_layer_done(self->layer);
    Py_END_ALLOW_THREADS if (status == MOXIE_OK) Py_RETURN_NONE;
    mpy_raise(&error);
    return NULL;
}

static PyObject *enable(PyObject *object, PyObject *args)
{
    adapters *self = (adapters *)object;
    int number, enabled = 1;
    moxie_error error = { 0 };
    moxie_status status;
    if (!PyArg_ParseTuple(args, "i|p", &number, &enabled))
        return NULL;
    Py_BEGIN_ALLOW_THREADS mpy_layer_alone(self->layer);
    status = moxie_adapters_enable(self->adapters, number, enabled, &error);
    mpy_layer_done(self->layer);
    Py_END_ALLOW_THREADS if (status == MOXIE_OK) Py_RETURN_NONE;
    mpy_raise(&error);
    return NULL;
}

static PyObject *rank(PyObject *object, PyObject *given)
{
    const long number = PyLong_AsLong(given);
    if (PyErr_Occurred())
        return NULL;
    return PyLong_FromLong(moxie_adapters_rank(((adapters *)object)->adapters, (int32_t)number));
}

static PyObject *get_bytes(PyObject *object, void *none)
{
    (void)none;
    return PyLong_FromUnsignedLongLong(moxie_adapters_bytes(((adapters *)object)->adapters));
}

static PyObject *get_count(PyObject *object, void *none)
{
    (void)none;
    return PyLong_FromLong(((adapters *)object)->count);
}

static PyMethodDef methods[] = {
    { "set", (PyCFunction)(void (*)(void))set, METH_VARARGS | METH_KEYWORDS,
      "set($self, number, *, gate_a=None, gate_b=None, up_a=None, up_b=None, down_a=None, down_b=None,\n"
      "    gate_scale=0, up_scale=0, down_scale=0)\n--\n\n"
      "Adds adapter `number`, or replaces it, and enables it. The factors are copied; on failure the old one stays.\n\n"
      "*_a      [E, r, columns], or [r, columns] which all experts share; f32, f16, bf16 (or its codes in uint16)\n"
      "*_b      [E, rows, r], or [rows, r]. gate and up have I rows and H columns, down H rows and I columns\n"
      "*_scale  multiplies B A: alpha / r, say; 0 means 1\n\n"
      "Any strides. gate_a and up_a may be the same array; an ungated layer has up and down only." },
    { "load", (PyCFunction)(void (*)(void))load, METH_VARARGS | METH_KEYWORDS,
      "load($self, number, path, model, layer)\n--\n\n"
      "set() with what a directory of PEFT's has for layer `layer` of the model: adapter_config.json and\n"
      "adapter_model.safetensors." },
    { "remove", remove_one, METH_VARARGS, "remove($self, number, /)\n--\n\nRemoves an adapter, if it is there." },
    { "enable", enable, METH_VARARGS,
      "enable($self, number, enabled=True, /)\n--\n\nFalse: its tokens run without adapter until it is enabled "
      "again." },
    { "rank", rank, METH_O,
      "rank($self, number, /)\n--\n\nThe largest rank of an adapter's projections; 0 if it is not there." },
    { NULL, NULL, 0, NULL }
};
static PyGetSetDef attributes[] = { { "nbytes", get_bytes, NULL, "Bytes of all factors.", NULL },
                                    { "count", get_count, NULL, "How many numbers there are: 0 to count - 1.", NULL },
                                    { NULL, NULL, NULL, NULL, NULL } };
static PyType_Slot slots[] = {
    { Py_tp_doc,
      "Adapters(layer, count=1)\n--\n\n"
      "LoRA adapters of one layer, by number: room for `count` of them. set() and load() add, remove() removes,\n"
      "also between runs of plans that exist.\n\n"
      "A plan takes them when it was made with max_adapter_rank=r, the largest rank that its runs may name:\n"
      "plan.run(x, adapters=a, adapter_ids=ids), ids [T] int32, -1 for none." },
    { Py_tp_new, adapters_new },
    { Py_tp_dealloc, adapters_free },
    { Py_tp_methods, methods },
    { Py_tp_getset, attributes },
    { 0, NULL }
};
PyType_Spec mpy_adapters_spec = { "moxie.Adapters", sizeof(adapters), 0, Py_TPFLAGS_DEFAULT, slots };
