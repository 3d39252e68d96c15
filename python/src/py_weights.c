/* SPDX-License-Identifier: Apache-2.0
 *
 * py_weights.c - Weights: a layer's configuration and views of its weights, from a model's files or from arrays.
 */
#include "py_moxie.h"

#include <stdlib.h>

PyObject *mpy_weights_type;
PyObject *mpy_weights_class; /* the subclass that the package makes of it */

PyObject *mpy_weights_of(PyObject *owner, const moxie_weights *weights, const moxie_layer_config *config)
{
    mpy_weights *self = (mpy_weights *)PyType_GenericAlloc(
        (PyTypeObject *)(mpy_weights_class != NULL ? mpy_weights_class : mpy_weights_type), 0);
    if (self == NULL)
        return NULL;
    self->weights = weights;
    self->config = config;
    self->owner = Py_NewRef(owner);
    return (PyObject *)self;
}

PyObject *mpy_weights_of_model(PyObject *model, moxie_model_layer *loaded)
{
    PyObject *self = mpy_weights_of(model, moxie_model_layer_weights(loaded), moxie_model_layer_config(loaded));
    if (self == NULL)
        moxie_model_layer_free(loaded);
    else
        ((mpy_weights *)self)->loaded = loaded;
    return self;
}

static PyObject *weights_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    PyObject *config;
    if (!PyArg_ParseTuple(args, "O", &config))
        return NULL;
    mpy_weights *self = (mpy_weights *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->keep = PyList_New(0);
    self->own = (moxie_weights)MOXIE_WEIGHTS_INIT;
    self->weights = &self->own;
    self->config = &self->own_config;
    moxie_error error = { 0 };
    PyObject *none = PyDict_New();
    int failed =
        self->keep == NULL || none == NULL || mpy_config_from_python(config, &self->own_config, self->keep) < 0;
    if (!failed && moxie_layer_config_check(&self->own_config, &error) != MOXIE_OK) {
        mpy_raise(&error);
        failed = 1;
    }
    if (failed || mpy_weights_stack(self, named == NULL ? none : named) < 0)
        Py_CLEAR(self);
    Py_XDECREF(none);
    return (PyObject *)self;
}

static void weights_free(PyObject *object)
{
    mpy_weights *self = (mpy_weights *)object;
    PyTypeObject *type = Py_TYPE(object);
    moxie_model_layer_free(self->loaded);
    for (int32_t i = 0; i < self->n_views; i++)
        mpy_view_release(&self->views[i]);
    free(self->views);
    free(self->experts);
    Py_XDECREF(self->keep);
    Py_XDECREF(self->owner);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *get_config(PyObject *object, void *none)
{
    const moxie_layer_config *config = ((mpy_weights *)object)->config;
    (void)none;
    return mpy_record_to_python(&mpy_layer_config_record, config, config, NULL);
}

static PyObject *get_n_experts(PyObject *object, void *none)
{
    (void)none;
    return PyLong_FromLongLong(((mpy_weights *)object)->weights->n_experts);
}

static PyObject *get_unread(PyObject *object, void *none)
{
    const moxie_model_layer *loaded = ((mpy_weights *)object)->loaded;
    PyObject *list = PyList_New(0);
    const char *name;
    (void)none;
    for (int64_t i = 0; list != NULL && loaded != NULL && (name = moxie_model_layer_unread(loaded, i)) != NULL; i++) {
        PyObject *item = PyUnicode_FromString(name);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *compare(PyObject *object, PyObject *other)
{
    moxie_weights_difference found = MOXIE_WEIGHTS_DIFFERENCE_INIT;
    moxie_error error = { 0 };
    moxie_status status;
    const mpy_weights *a = (mpy_weights *)object, *b = (mpy_weights *)other;
    if (PyObject_IsInstance(other, mpy_weights_type) != 1)
        return PyErr_Format(PyExc_TypeError, "compare: a Weights is wanted");
    Py_BEGIN_ALLOW_THREADS status = moxie_weights_compare(a->config, a->weights, b->weights, &found, &error);
    Py_END_ALLOW_THREADS if (status == MOXIE_OK) return mpy_record_to_python(&mpy_difference_record, &found, NULL,
                                                                             NULL);
    mpy_raise(&error);
    return NULL;
}

static PyMethodDef methods[] = { { "compare", compare, METH_O,
                                   "compare($self, other, /)\n--\n\nWhere this and other weights of the same "
                                   "configuration first differ, and how often: a\n"
                                   "WeightsDifference. Values and codes count, not how they lie in memory." },
                                 { NULL, NULL, 0, NULL } };
static PyGetSetDef attributes[] = {
    { "config", get_config, NULL, "The layer's configuration: a new LayerConfig each time.", NULL },
    { "n_experts", get_n_experts, NULL, "E, all experts whatever the rank.", NULL },
    { "unread", get_unread, NULL, "Names of tensors of the layer's MoE block that were not read: a list of str.",
      NULL },
    { NULL, NULL, NULL, NULL, NULL }
};
static PyType_Slot slots[] = { { Py_tp_new, weights_new },
                               { Py_tp_dealloc, weights_free },
                               { Py_tp_methods, methods },
                               { Py_tp_getset, attributes },
                               { 0, NULL } };
PyType_Spec mpy_weights_spec = { "moxie._moxie.Weights", sizeof(mpy_weights), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots };
