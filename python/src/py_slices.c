/* SPDX-License-Identifier: Apache-2.0
 *
 * py_slices.c - what a rank holds and sends of a layer: tensor parallel slices, bytes of exchanged rows.
 */
#include "py_moxie.h"

/* (config, tp_size, tp_rank, mode) -> (w13 range, w2 range, columns). */
static PyObject *tp_slice(PyObject *module, PyObject *args)
{
    PyObject *given, *keep = PyList_New(0), *out = NULL;
    int size, rank;
    const char *name;
    int32_t mode = 0, columns = 0;
    int64_t w13[2], w2[2];
    moxie_layer_config config;
    moxie_error error = { 0 };
    (void)module;
    if (keep == NULL || !PyArg_ParseTuple(args, "Oiis", &given, &size, &rank, &name) ||
        mpy_choice_value(mpy_modes, "mode", name, &mode) < 0 || mpy_config_from_python(given, &config, keep) < 0)
        goto out;
    if (moxie_tp_slice_in_mode(&config, (moxie_mode)mode, size, rank, w13, w2, &columns, &error) != MOXIE_OK)
        mpy_raise(&error);
    else
        out = Py_BuildValue("((LL)(LL)O)", (long long)w13[0], (long long)w13[1], (long long)w2[0], (long long)w2[1],
                            columns ? Py_True : Py_False);
out:
    Py_XDECREF(keep);
    return out;
}

/* (config, on_device, tp_size, tp_rank) -> (w13 range, w2 range, bytes here, bytes of all). */
static PyObject *tp_slice_shared(PyObject *module, PyObject *args)
{
    PyObject *given, *keep = PyList_New(0), *out = NULL;
    int on_device, size, rank;
    int64_t w13[2], w2[2];
    uint64_t bytes[2];
    moxie_layer_config config;
    moxie_error error = { 0 };
    (void)module;
    if (keep == NULL || !PyArg_ParseTuple(args, "Opii", &given, &on_device, &size, &rank) ||
        mpy_config_from_python(given, &config, keep) < 0)
        goto out;
    if (moxie_tp_slice_shared(&config, on_device, size, rank, w13, w2, bytes, &error) != MOXIE_OK)
        mpy_raise(&error);
    else
        out = Py_BuildValue("((LL)(LL)KK)", (long long)w13[0], (long long)w13[1], (long long)w2[0], (long long)w2[1],
                            (unsigned long long)bytes[0], (unsigned long long)bytes[1]);
out:
    Py_XDECREF(keep);
    return out;
}

static PyObject *exchange_row_bytes(PyObject *module, PyObject *args)
{
    PyObject *given, *keep = PyList_New(0), *out = NULL;
    const char *backend, *layout;
    uint64_t dispatch, result;
    moxie_layer_config config;
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_error error = { 0 };
    (void)module;
    if (keep == NULL || !PyArg_ParseTuple(args, "Ossi", &given, &backend, &layout, &options.max_adapter_rank) ||
        mpy_choice_value(mpy_backends, "backend", backend, &options.backend) < 0 ||
        mpy_choice_value(mpy_token_layouts, "token_layout", layout, &options.token_layout) < 0 ||
        mpy_config_from_python(given, &config, keep) < 0)
        goto out;
    if (moxie_exchange_row_bytes_with(&config, &options, &dispatch, &result, &error) == MOXIE_OK)
        out = Py_BuildValue("(KK)", (unsigned long long)dispatch, (unsigned long long)result);
    else
        mpy_raise(&error);
out:
    Py_XDECREF(keep);
    return out;
}

PyMethodDef mpy_slice_functions[] = { { "_tp_slice", tp_slice, METH_VARARGS, "tp_slice()." },
                                      { "_tp_slice_shared", tp_slice_shared, METH_VARARGS, "tp_slice_shared()." },
                                      { "_exchange_row_bytes", exchange_row_bytes, METH_VARARGS,
                                        "exchange_row_bytes()." },
                                      { NULL, NULL, 0, NULL } };
