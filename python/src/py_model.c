/* SPDX-License-Identifier: Apache-2.0
 *
 * py_model.c - Model: a checkpoint directory, or tensors in memory with a directory's config.json.
 *
 *     Model(path) -> info, describe(i), load(layer) -> Weights
 */
#include "py_moxie.h"

#include <stdlib.h>
#include <string.h>

typedef struct model {
    PyObject_HEAD moxie_model *model;
    mpy_view *views; /* of tensors in memory */
    Py_ssize_t n_views;
    PyObject *names;
} model;

PyObject *mpy_model_type;

const moxie_model *mpy_model_get(PyObject *object)
{
    return ((model *)object)->model;
}

/* Views of a mapping {name: array} as named tensors, which the model copies. */
static int take_tensors(model *self, PyObject *tensors, moxie_named_tensor **out)
{
    PyObject *names = PyMapping_Keys(tensors);
    const Py_ssize_t n = names == NULL ? -1 : PyList_Size(names);
    self->names = names;
    self->views = n < 0 ? NULL : calloc((size_t)n + 1, sizeof *self->views);
    *out = n < 0 ? NULL : calloc((size_t)n + 1, sizeof **out);
    if (n >= 0 && (self->views == NULL || *out == NULL))
        PyErr_NoMemory();
    if (self->views == NULL || *out == NULL)
        return -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        const char *name = PyUnicode_AsUTF8AndSize(PyList_GetItem(names, i), NULL);
        PyObject *array = name == NULL ? NULL : PyObject_GetItem(tensors, PyList_GetItem(names, i));
        mpy_view *view = &self->views[i];
        const int failed = array == NULL || mpy_view_get(array, name, false, 0, view) < 0;
        Py_XDECREF(array);
        if (failed)
            return -1;
        self->n_views = i + 1;
        if (view->axes > MOXIE_MAX_RANK || mpy_view_on_gpu(view) || !mpy_view_contiguous(view)) {
            PyObject *words = mpy_view_words(view);
            mpy_fail(MOXIE_ERR_ARGUMENT, "%s: a contiguous tensor of at most %d axes on the host is wanted, not %V",
                     name, MOXIE_MAX_RANK, words, "?");
            Py_XDECREF(words);
            return -1;
        }
        (*out)[i] = (moxie_named_tensor) { .name = name,
                                           .tensor = { .data = view->data, .dtype = view->dtype, .rank = view->axes } };
        memcpy((*out)[i].tensor.shape, view->shape, (size_t)view->axes * sizeof view->shape[0]);
    }
    return 0;
}

static const mpy_choice activations[] = { { "checkpoint", MOXIE_ACTIVATIONS_CHECKPOINT },
                                          { "16bit", MOXIE_ACTIVATIONS_16BIT },
                                          { "ggml", MOXIE_ACTIVATIONS_GGML },
                                          { NULL, 0 } };

static int open_model(model *self, PyObject *path, PyObject *tensors, moxie_model_options *options)
{
    moxie_named_tensor *list = NULL;
    PyObject *bytes = NULL;
    moxie_error error = { 0 };
    moxie_status status;
    int failed = -1;
    if (!PyUnicode_FSConverter(path, &bytes))
        return -1;
    if (tensors != Py_None) {
        if (take_tensors(self, tensors, &list) < 0)
            goto out;
        options->tensors = list;
        options->n_tensors = self->n_views;
    }
    const char *dir = PyBytes_AsString(bytes);
    Py_BEGIN_ALLOW_THREADS status = moxie_model_open(dir, options, &self->model, &error);
    Py_END_ALLOW_THREADS failed = status == MOXIE_OK ? 0 : -1;
    if (failed)
        mpy_raise(&error);
out:
    free(list);
    Py_XDECREF(bytes);
    return failed;
}

static PyObject *model_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = { "path", "tensors", "mmap", "activations", "experts_only", "allow_unread", NULL };
    moxie_model_options options = MOXIE_MODEL_OPTIONS_INIT;
    PyObject *path, *tensors = Py_None;
    const char *chosen = "checkpoint";
    int mapped = 1, experts_only = 0, allow_unread = 0;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O|O$pspp", names, &path, &tensors, &mapped, &chosen, &experts_only,
                                     &allow_unread) ||
        mpy_choice_value(activations, "activations", chosen, &options.activations) < 0)
        return NULL;
    options.no_mmap = !mapped;
    options.experts_only = experts_only;
    options.allow_unread = allow_unread;
    model *self = (model *)PyType_GenericAlloc(type, 0);
    if (self != NULL && open_model(self, path, tensors, &options) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void model_free(PyObject *object)
{
    model *self = (model *)object;
    PyTypeObject *type = Py_TYPE(object);
    moxie_model_close(self->model);
    for (Py_ssize_t i = 0; i < self->n_views; i++)
        mpy_view_release(&self->views[i]);
    free(self->views);
    Py_XDECREF(self->names);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *get_info(PyObject *object, void *none)
{
    moxie_model_info info = MOXIE_MODEL_INFO_INIT;
    moxie_error error = { 0 };
    (void)none;
    if (moxie_model_get_info(((model *)object)->model, &info, &error) == MOXIE_OK)
        return mpy_record_to_python(&mpy_model_info_record, &info, NULL, NULL);
    mpy_raise(&error);
    return NULL;
}

static PyObject *text_list(PyObject *object, const char *(*at)(const moxie_model *, int64_t))
{
    PyObject *list = PyList_New(0);
    const char *text;
    for (int64_t i = 0; list != NULL && (text = at(((model *)object)->model, i)) != NULL; i++) {
        PyObject *item = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *get_warnings(PyObject *object, void *none)
{
    (void)none;
    return text_list(object, moxie_model_warning);
}

static PyObject *get_unread_keys(PyObject *object, void *none)
{
    (void)none;
    return text_list(object, moxie_model_unread_key);
}

static PyObject *describe(PyObject *object, PyObject *index)
{
    moxie_model_layer_info info = MOXIE_MODEL_LAYER_INFO_INIT;
    moxie_error error = { 0 };
    const moxie_model *opened = ((model *)object)->model;
    const long long i = PyLong_AsLongLong(index);
    moxie_status status;
    if (i == -1 && PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = moxie_model_describe_layer(opened, i, &info, &error);
    Py_END_ALLOW_THREADS if (status == MOXIE_OK) return mpy_record_to_python(&mpy_layer_info_record, &info, NULL, NULL);
    mpy_raise(&error);
    return NULL;
}

static PyObject *load(PyObject *object, PyObject *number)
{
    moxie_model_layer *loaded = NULL;
    moxie_error error = { 0 };
    const moxie_model *opened = ((model *)object)->model;
    const long long layer = PyLong_AsLongLong(number);
    moxie_status status;
    if (layer == -1 && PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = moxie_model_load_layer(opened, layer, &loaded, &error);
    Py_END_ALLOW_THREADS if (status == MOXIE_OK) return mpy_weights_of_model(object, loaded);
    mpy_raise(&error);
    return NULL;
}

static PyObject *expert_prefix(PyObject *object, PyObject *number)
{
    char buffer[512];
    moxie_error error = { 0 };
    const long long layer = PyLong_AsLongLong(number);
    if (layer == -1 && PyErr_Occurred())
        return NULL;
    if (moxie_model_expert_prefix(((model *)object)->model, layer, buffer, sizeof buffer, &error) == MOXIE_OK)
        return PyUnicode_DecodeUTF8(buffer, (Py_ssize_t)strlen(buffer), "replace");
    mpy_raise(&error);
    return NULL;
}

static PyMethodDef methods[] = {
    { "describe", describe, METH_O,
      "describe($self, index, /)\n--\n\nWhat the index-th MoE layer found is: a LayerInfo. index is in [0, "
      "n_layers)." },
    { "load", load, METH_O,
      "load($self, layer, /)\n--\n\nThe configuration and weights of checkpoint layer `layer`, which is the number in "
      "the\n"
      "tensors' names (LayerInfo.layer). The Weights are views of the files; the numbers are not read yet." },
    { "expert_prefix", expert_prefix, METH_O,
      "expert_prefix($self, layer, /)\n--\n\nHow the names of the layer's expert tensors begin." },
    { NULL, NULL, 0, NULL }
};
static PyGetSetDef attributes[] = {
    { "info", get_info, NULL, "The model as a whole: a ModelInfo.", NULL },
    { "warnings", get_warnings, NULL, "Contradictions in the files that were tolerated: a list of str.", NULL },
    { "unread_keys", get_unread_keys, NULL,
      "Keys of config.json that could matter to a MoE layer and that moxie does not know: a list of str.", NULL },
    { NULL, NULL, NULL, NULL, NULL }
};
static PyType_Slot slots[] = { { Py_tp_new, model_new },
                               { Py_tp_dealloc, model_free },
                               { Py_tp_methods, methods },
                               { Py_tp_getset, attributes },
                               { 0, NULL } };
PyType_Spec mpy_model_spec = { "moxie._moxie.Model", sizeof(model), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                               slots };
