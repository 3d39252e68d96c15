/* SPDX-License-Identifier: Apache-2.0
 *
 * py_module.c - the module moxie._moxie: its types and functions, and how a failure of the library becomes an
 * exception.
 */
#include "py_store.h"

#include <stdarg.h>
#include <string.h>

PyObject *mpy_import(const char *module, const char *name)
{
    PyObject *m = PyImport_ImportModule(module);
    PyObject *object = m == NULL ? NULL : PyObject_GetAttrString(m, name);
    Py_XDECREF(m);
    return object;
}

/* ---- errors --------------------------------------------------------------------------------- */

static void raise_with(moxie_status status, PyObject *text, const char *file, int64_t offset)
{
    PyObject *make = text == NULL ? NULL : mpy_import("moxie.errors", "_make");
    PyObject *name = make == NULL ? NULL : PyUnicode_DecodeUTF8(file, (Py_ssize_t)strlen(file), "surrogateescape");
    PyObject *error =
        name == NULL ? NULL
                     : PyObject_CallFunction(make, "sOOL", moxie_status_name(status), text, name, (long long)offset);
    if (error != NULL)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
    Py_XDECREF(name);
    Py_XDECREF(make);
}

void mpy_raise(const moxie_error *error)
{
    if (PyErr_Occurred()) /* of a callback, which made the library stop */
        return;
    PyObject *text = PyUnicode_DecodeUTF8(error->text, (Py_ssize_t)strlen(error->text), "replace");
    raise_with(error->code, text, error->file, error->offset);
    Py_XDECREF(text);
}

void mpy_fail(moxie_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    PyErr_Clear();
    PyObject *text = PyUnicode_FromFormatV(format, list);
    va_end(list);
    raise_with(status, text, "", -1);
    Py_XDECREF(text);
}

/* ---- the module ----------------------------------------------------------------------------- */

static PyObject *version(PyObject *module, PyObject *none)
{
    (void)module, (void)none;
    return PyUnicode_FromString(moxie_version());
}

/* For the test that compares the tables with moxie.records. */
static PyObject *record_fields(PyObject *module, PyObject *none)
{
    (void)module, (void)none;
    PyObject *all = PyDict_New();
    for (const mpy_record *const *r = mpy_records; all != NULL && *r != NULL; r++) {
        PyObject *names = PyList_New(0);
        for (const mpy_field *f = (*r)->fields; names != NULL && f->name != NULL; f++) {
            PyObject *name = PyUnicode_FromString(f->name);
            if (name == NULL || PyList_Append(names, name) < 0)
                Py_CLEAR(names);
            Py_XDECREF(name);
        }
        if (names == NULL || PyDict_SetItemString(all, (*r)->class_name, names) < 0)
            Py_CLEAR(all);
        Py_XDECREF(names);
    }
    return all;
}

static PyObject *new_array(PyObject *module, PyObject *args)
{
    PyObject *axes;
    const char *name;
    int64_t shape[MPY_MAX_AXES];
    (void)module;
    if (!PyArg_ParseTuple(args, "Os", &axes, &name))
        return NULL;
    const Py_ssize_t n = PyTuple_Size(axes);
    for (Py_ssize_t i = 0; i < n && i < MPY_MAX_AXES; i++)
        shape[i] = PyLong_AsLongLong(PyTuple_GetItem(axes, i));
    const moxie_dtype dtype = moxie_dtype_from_name(name);
    if (dtype == MOXIE_DTYPE_NONE || n > MPY_MAX_AXES)
        mpy_fail(MOXIE_ERR_ARGUMENT, "there is no array of %zd axes of \"%s\"", n, name);
    return PyErr_Occurred() ? NULL : mpy_array_new(dtype, (int32_t)n, shape);
}

/* Weights of models are made in C, and are of the package's class. */
static PyObject *use_weights_class(PyObject *module, PyObject *type)
{
    (void)module;
    Py_XDECREF(mpy_weights_class);
    mpy_weights_class = Py_NewRef(type);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    { "_use_weights_class", use_weights_class, METH_O, "The class of the Weights that Model.load() returns." },
    { "version", version, METH_NOARGS,
      "version()\n--\n\nThe version of the C library, \"major.minor.patch\", and its commit if it is known." },
    { "_new_array", new_array, METH_VARARGS, "A new Array of a shape and a dtype." },
    { "_record_fields", record_fields, METH_NOARGS, "Names of the fields of every C struct that Python sees." },
    { NULL, NULL, 0, NULL }
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "moxie._moxie", "The C part of the package moxie.", -1, functions, NULL, NULL, NULL, NULL
};

static int add_type(PyObject *module, PyType_Spec *spec, const char *name, PyObject **out)
{
    *out = PyType_FromSpec(spec);
    if (*out == NULL)
        return -1;
    return PyModule_AddObjectRef(module, name, *out);
}

PyMODINIT_FUNC PyInit__moxie(void);
PyMODINIT_FUNC PyInit__moxie(void)
{
    PyObject *m = PyModule_Create(&definition);
    if (m == NULL)
        return NULL;
    if (add_type(m, &mpy_array_spec, "Array", &mpy_array_type) == 0 &&
        add_type(m, &mpy_executor_spec, "Executor", &mpy_executor_type) == 0 &&
        add_type(m, &mpy_model_spec, "Model", &mpy_model_type) == 0 &&
        add_type(m, &mpy_weights_spec, "Weights", &mpy_weights_type) == 0 &&
        add_type(m, &mpy_layer_spec, "Layer", &mpy_layer_type) == 0 &&
        add_type(m, &mpy_plan_spec, "Plan", &mpy_plan_type) == 0 &&
        add_type(m, &mpy_comm_spec, "Comm", &mpy_comm_type) == 0 &&
        add_type(m, &mpy_workspace_spec, "Workspace", &mpy_workspace_type) == 0 &&
        add_type(m, &mpy_mover_spec, "Mover", &mpy_mover_type) == 0 &&
        add_type(m, &mpy_adapters_spec, "Adapters", &mpy_adapters_type) == 0 &&
        add_type(m, &mpy_expert_file_spec, "ExpertFile", &mpy_expert_file_type) == 0 &&
        add_type(m, &mpy_store_spec, "Store", &mpy_store_type) == 0 &&
        PyModule_AddFunctions(m, mpy_list_functions) == 0 && PyModule_AddFunctions(m, mpy_scheme_functions) == 0 &&
        PyModule_AddFunctions(m, mpy_checkpoint_functions) == 0 &&
        PyModule_AddFunctions(m, mpy_quantize_functions) == 0 && PyModule_AddFunctions(m, mpy_comm_functions) == 0 &&
        PyModule_AddFunctions(m, mpy_parallel_functions) == 0 && PyModule_AddFunctions(m, mpy_slice_functions) == 0 &&
        PyModule_AddFunctions(m, mpy_trace_functions) == 0 && PyModule_AddFunctions(m, mpy_store_functions) == 0 &&
        PyModule_AddStringConstant(m, "header_version", MOXIE_VERSION_STRING) == 0 && mpy_run_init() == 0)
        return m;
    Py_DECREF(m);
    return NULL;
}
