/* SPDX-License-Identifier: Apache-2.0
 *
 * py_scheme.c - vLLM's quantization schemes by their constructors' names, and the quantizer of activations.
 *
 * A Scheme of Python is a copy of moxie_scheme. Questions about it make the struct again from its constructor and
 * arguments, which it carries, so that Python never holds a pointer into C.
 */
#include "py_moxie.h"

/* Builds the scheme of (constructor, SchemeArgs). */
static int build(const char *constructor, PyObject *arguments, moxie_scheme *out)
{
    moxie_scheme_args args = MOXIE_SCHEME_ARGS_INIT;
    moxie_error error = { 0 };
    PyObject *keep = PyList_New(0);
    *out = (moxie_scheme)MOXIE_SCHEME_INIT;
    int failed = keep == NULL || mpy_record_from_python(&mpy_scheme_args_record, arguments, &args, keep) < 0;
    if (!failed && moxie_scheme_make(constructor, &args, out, &error) != MOXIE_OK) {
        mpy_raise(&error);
        failed = 1;
    }
    Py_XDECREF(keep);
    return failed ? -1 : 0;
}

static PyObject *make(PyObject *module, PyObject *args)
{
    const char *constructor;
    PyObject *arguments;
    moxie_scheme scheme;
    (void)module;
    if (!PyArg_ParseTuple(args, "sO", &constructor, &arguments) || build(constructor, arguments, &scheme) < 0)
        return NULL;
    Py_INCREF(arguments);
    return mpy_record_to_python(&mpy_scheme_record, &scheme, NULL, arguments);
}

static PyObject *constructors(PyObject *module, PyObject *none)
{
    PyObject *list = PyList_New(0);
    (void)module, (void)none;
    for (int32_t i = 0; list != NULL && moxie_scheme_constructor_at(i) != NULL; i++) {
        PyObject *name = PyUnicode_FromString(moxie_scheme_constructor_at(i));
        if (name == NULL || PyList_Append(list, name) < 0)
            Py_CLEAR(list);
        Py_XDECREF(name);
    }
    return list;
}

static PyObject *predicate(PyObject *module, PyObject *args)
{
    const char *constructor, *name;
    PyObject *arguments;
    moxie_scheme scheme;
    (void)module;
    if (!PyArg_ParseTuple(args, "sOs", &constructor, &arguments, &name) || build(constructor, arguments, &scheme) < 0)
        return NULL;
    const int answer = moxie_scheme_predicate(&scheme, name);
    if (answer >= 0)
        return PyBool_FromLong(answer);
    mpy_fail(MOXIE_ERR_ARGUMENT, "there is no predicate \"%s\" of schemes", name);
    return NULL;
}

static PyObject *config_name(PyObject *module, PyObject *args)
{
    const char *constructor, *dtype;
    PyObject *arguments;
    moxie_scheme scheme;
    (void)module;
    if (!PyArg_ParseTuple(args, "sOs", &constructor, &arguments, &dtype) || build(constructor, arguments, &scheme) < 0)
        return NULL;
    return Py_BuildValue("z", moxie_scheme_config_name(&scheme, moxie_dtype_from_name(dtype)));
}

static PyObject *ocp_name(PyObject *module, PyObject *args)
{
    const char *constructor;
    PyObject *arguments;
    moxie_scheme scheme;
    (void)module;
    if (!PyArg_ParseTuple(args, "sO", &constructor, &arguments) || build(constructor, arguments, &scheme) < 0)
        return NULL;
    return Py_BuildValue("z", moxie_scheme_ocp_name(&scheme, NULL));
}

/* Groups along one axis. */
static int64_t groups(int64_t n, int32_t group)
{
    return group < 0 ? 1 : (n + group - 1) / (group == 0 ? 1 : group);
}

static PyObject *quantize(const moxie_quant *quant, const mpy_view *x, float static_scale)
{
    moxie_error error = { 0 };
    moxie_status status = MOXIE_OK;
    if (x->dtype != MOXIE_F32 || x->axes != 2 || mpy_view_on_gpu(x) || !mpy_view_contiguous(x)) {
        mpy_fail(MOXIE_ERR_ARGUMENT, "x: f32 [rows, columns], contiguous, on the host is wanted");
        return NULL;
    }
    const int64_t shape[] = { groups(x->shape[0], quant->group_rows),
                              groups(x->shape[1], quant->group_cols ? quant->group_cols : -1) };
    PyObject *codes = mpy_array_new(MOXIE_U8, 2, x->shape), *scales = mpy_array_new(MOXIE_F32, 2, shape);
    if (codes != NULL && scales != NULL)
        status = moxie_quantize_activations(quant, x->data, x->shape[0], x->shape[1], static_scale,
                                            mpy_array_data(codes), mpy_array_data(scales), &error);
    if (status != MOXIE_OK)
        mpy_raise(&error);
    PyObject *both = PyErr_Occurred() ? NULL : Py_BuildValue("(OO)", codes, scales);
    Py_XDECREF(codes);
    Py_XDECREF(scales);
    return both;
}

static PyObject *quantize_activations(PyObject *module, PyObject *args)
{
    PyObject *object, *array, *both = NULL, *keep = PyList_New(0);
    moxie_quant quant = { 0 };
    mpy_view view;
    float static_scale = 0;
    (void)module;
    if (keep != NULL && PyArg_ParseTuple(args, "OO|f", &object, &array, &static_scale) &&
        mpy_record_from_python(&mpy_quant_record, object, &quant, keep) == 0 &&
        mpy_view_get(array, "x", false, 0, &view) == 0) {
        both = quantize(&quant, &view, static_scale);
        mpy_view_release(&view);
    }
    Py_XDECREF(keep);
    return both;
}

PyMethodDef mpy_scheme_functions[] = {
    { "scheme_constructors", constructors, METH_NOARGS,
      "scheme_constructors()\n--\n\nNames of vLLM's constructors of quantization configs." },
    { "scheme_make", make, METH_VARARGS, "scheme_make(constructor, args, /)\n--\n\nA Scheme; see moxie.scheme()." },
    { "scheme_predicate", predicate, METH_VARARGS, "scheme_predicate(constructor, args, name, /)\n--\n\nSee Scheme." },
    { "scheme_config_name", config_name, METH_VARARGS,
      "scheme_config_name(constructor, args, dtype, /)\n--\n\nSee Scheme." },
    { "scheme_ocp_name", ocp_name, METH_VARARGS, "scheme_ocp_name(constructor, args, /)\n--\n\nSee Scheme." },
    { "quantize_activations", quantize_activations, METH_VARARGS,
      "quantize_activations(quant, x, static_scale=0.0, /)\n--\n\n"
      "Quantizes rows of activations bit by bit as every back end does (docs/quantizers.md).\n\n"
      "x is [rows, columns] float32. Returns codes [rows, columns] uint8, one a byte, and the decoded scales, float32\n"
      "[groups of rows, groups of columns], both as moxie.Array." },
    { NULL, NULL, 0, NULL }
};
