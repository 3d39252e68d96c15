/* SPDX-License-Identifier: Apache-2.0
 *
 * py_lists.c - functions without an object: presets, families, formats, kernels, number formats, this machine.
 */
#include "py_moxie.h"

#include <moxie/moxie_cuda.h>

/* Appends the Python object of a struct to a list; on failure the list is gone. */
static void append(PyObject **list, const mpy_record *record, const void *data)
{
    PyObject *item = mpy_record_to_python(record, data, NULL, NULL);
    if (item == NULL || PyList_Append(*list, item) < 0)
        Py_CLEAR(*list);
    Py_XDECREF(item);
}

static void append_text(PyObject **list, const char *text)
{
    PyObject *item = PyUnicode_FromString(text);
    if (item == NULL || PyList_Append(*list, item) < 0)
        Py_CLEAR(*list);
    Py_XDECREF(item);
}

#define LIST(function, type, init, at, record)                                                                         \
    static PyObject *function(PyObject *module, PyObject *none)                                                        \
    {                                                                                                                  \
        type info = init;                                                                                              \
        PyObject *list = PyList_New(0);                                                                                \
        (void)module, (void)none;                                                                                      \
        for (int32_t i = 0; list != NULL && at(i, &info); i++)                                                         \
            append(&list, &record, &info);                                                                             \
        return list;                                                                                                   \
    }
LIST(presets, moxie_preset_info, MOXIE_PRESET_INFO_INIT, moxie_preset_at, mpy_preset_record)
LIST(families, moxie_family_info, MOXIE_FAMILY_INFO_INIT, moxie_family_at, mpy_family_record)
LIST(formats, moxie_checkpoint_format_info, MOXIE_CHECKPOINT_FORMAT_INFO_INIT, moxie_checkpoint_format_info_at,
     mpy_format_record)
LIST(kernels, moxie_kernel_info, MOXIE_KERNEL_INFO_INIT, moxie_kernel_at, mpy_kernel_record)
LIST(cuda_kernels, moxie_kernel_info, MOXIE_KERNEL_INFO_INIT, moxie_cuda_kernel_at, mpy_kernel_record)

static PyObject *dtypes(PyObject *module, PyObject *none)
{
    PyObject *list = PyList_New(0);
    (void)module, (void)none;
    for (int32_t i = 1; list != NULL && i < 64; i++)
        if (moxie_dtype_bits(i) != 0)
            append_text(&list, moxie_dtype_name(i));
    return list;
}

static PyObject *routing_names(PyObject *module, PyObject *none)
{
    PyObject *list = PyList_New(0);
    (void)module, (void)none;
    for (int32_t i = 0; list != NULL && moxie_routing_name_at(i) != NULL; i++)
        append_text(&list, moxie_routing_name_at(i));
    return list;
}

static PyObject *routing(PyObject *module, PyObject *name)
{
    moxie_routing r = { 0 };
    moxie_error error = { 0 };
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    (void)module;
    if (text == NULL)
        return NULL;
    if (moxie_routing_by_name(text, &r, &error) == MOXIE_OK)
        return mpy_record_to_python(&mpy_routing_record, &r, NULL, NULL);
    mpy_raise(&error);
    return NULL;
}

static PyObject *activations(PyObject *module, PyObject *none)
{
    moxie_activation a = { 0 };
    const char *name;
    PyObject *all = PyDict_New();
    (void)module, (void)none;
    for (int32_t i = 0; all != NULL && (name = moxie_activation_at(i, &a)) != NULL; i++) {
        PyObject *item = mpy_record_to_python(&mpy_activation_record, &a, NULL, NULL);
        if (item == NULL || PyDict_SetItemString(all, name, item) < 0)
            Py_CLEAR(all);
        Py_XDECREF(item);
    }
    return all;
}

static PyObject *preset_config(PyObject *module, PyObject *args)
{
    const char *preset, *format = NULL;
    moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
    moxie_error error = { 0 };
    (void)module;
    if (!PyArg_ParseTuple(args, "s|z", &preset, &format))
        return NULL;
    if (moxie_preset_config(preset, format, &config, &error) == MOXIE_OK)
        return mpy_record_to_python(&mpy_layer_config_record, &config, &config, NULL);
    mpy_raise(&error);
    return NULL;
}

static PyObject *hf_config(PyObject *module, PyObject *args)
{
    PyObject *dir = NULL;
    long long layer;
    const char *format = NULL;
    moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
    moxie_error error = { 0 };
    (void)module;
    if (!PyArg_ParseTuple(args, "O&L|z", PyUnicode_FSConverter, &dir, &layer, &format))
        return NULL;
    const moxie_status status = moxie_config_layer(PyBytes_AsString(dir), layer, format, &config, &error);
    Py_DECREF(dir);
    if (status == MOXIE_OK)
        return mpy_record_to_python(&mpy_layer_config_record, &config, &config, NULL);
    mpy_raise(&error);
    return NULL;
}

static PyObject *check_config(PyObject *module, PyObject *object)
{
    moxie_layer_config config;
    moxie_error error = { 0 };
    PyObject *keep = PyList_New(0);
    (void)module;
    int failed = keep == NULL || mpy_config_from_python(object, &config, keep) < 0;
    if (!failed && moxie_layer_config_check(&config, &error) != MOXIE_OK) {
        mpy_raise(&error);
        failed = 1;
    }
    Py_XDECREF(keep);
    return failed ? NULL : Py_NewRef(Py_None);
}

/* For the test that every field goes to C and comes back. */
static PyObject *round_trip(PyObject *module, PyObject *object)
{
    moxie_layer_config config;
    PyObject *keep = PyList_New(0), *back = NULL;
    (void)module;
    if (keep != NULL && mpy_config_from_python(object, &config, keep) == 0)
        back = mpy_record_to_python(&mpy_layer_config_record, &config, &config, NULL);
    Py_XDECREF(keep);
    return back;
}

static PyObject *decode(PyObject *module, PyObject *args)
{
    const char *name;
    unsigned long code;
    (void)module;
    if (!PyArg_ParseTuple(args, "sk", &name, &code))
        return NULL;
    return PyFloat_FromDouble((double)moxie_decode(moxie_dtype_from_name(name), (uint32_t)code));
}

static PyObject *encode(PyObject *module, PyObject *args)
{
    const char *name;
    float value;
    (void)module;
    if (!PyArg_ParseTuple(args, "sf", &name, &value))
        return NULL;
    return PyLong_FromUnsignedLong(moxie_encode(moxie_dtype_from_name(name), value));
}

static PyObject *dtype_bits(PyObject *module, PyObject *name)
{
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    (void)module;
    return text == NULL ? NULL : PyLong_FromLong(moxie_dtype_bits(moxie_dtype_from_name(text)));
}

static PyObject *machine(PyObject *module, PyObject *none)
{
    moxie_machine info = MOXIE_MACHINE_INIT;
    moxie_error error = { 0 };
    (void)module, (void)none;
    if (moxie_machine_info(&info, &error) == MOXIE_OK)
        return mpy_record_to_python(&mpy_machine_record, &info, NULL, NULL);
    mpy_raise(&error);
    return NULL;
}

static PyObject *measure_limits(PyObject *module, PyObject *args, PyObject *named)
{
    static char *names[] = { "threads", "isa", NULL };
    mpy_option_args o = { 0 };
    mpy_options options = { 0 };
    moxie_limits limits = MOXIE_LIMITS_INIT;
    moxie_error error = { 0 };
    moxie_status status;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, named, "|$Oz", names, &o.threads, &o.isa) ||
        mpy_options_get(&o, &options) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = moxie_measure_limits(options.c.executor, options.c.isa, &limits, &error);
    Py_END_ALLOW_THREADS mpy_options_release(&options);
    if (status == MOXIE_OK)
        return mpy_record_to_python(&mpy_limits_record, &limits, NULL, NULL);
    mpy_raise(&error);
    return NULL;
}

static PyObject *cuda_info(PyObject *module, PyObject *none)
{
    moxie_cuda_info info = MOXIE_CUDA_INFO_INIT;
    moxie_error error = { 0 };
    (void)module, (void)none;
    if (moxie_cuda_get_info(&info, &error) == MOXIE_OK)
        return mpy_record_to_python(&mpy_cuda_info_record, &info, NULL, NULL);
    mpy_raise(&error);
    return NULL;
}

static PyObject *cuda_devices(PyObject *module, PyObject *none)
{
    moxie_cuda_info info = MOXIE_CUDA_INFO_INIT;
    moxie_cuda_device device = MOXIE_CUDA_DEVICE_INIT;
    moxie_error error = { 0 };
    PyObject *list = PyList_New(0);
    (void)module, (void)none;
    if (list != NULL && moxie_cuda_get_info(&info, &error) != MOXIE_OK)
        info.devices = 0;
    for (int32_t i = 0; list != NULL && i < info.devices; i++)
        if (moxie_cuda_device_at(i, &device, &error) == MOXIE_OK)
            append(&list, &mpy_cuda_device_record, &device);
    return list;
}

PyMethodDef mpy_list_functions[] = {
    { "presets", presets, METH_NOARGS, "presets()\n--\n\nThe models whose shapes moxie knows: a list of Preset." },
    { "families", families, METH_NOARGS, "families()\n--\n\nThe model families that it reads: a list of Family." },
    { "formats", formats, METH_NOARGS, "formats()\n--\n\nHow checkpoints store weights: a list of CheckpointFormat." },
    { "kernels", kernels, METH_NOARGS, "kernels()\n--\n\nEvery CPU kernel of the library: a list of Kernel." },
    { "cuda_kernels", cuda_kernels, METH_NOARGS, "cuda_kernels()\n--\n\nEvery CUDA kernel: a list of Kernel." },
    { "dtypes", dtypes, METH_NOARGS, "dtypes()\n--\n\nNames of the number formats." },
    { "dtype_bits", dtype_bits, METH_O, "dtype_bits(name, /)\n--\n\nBits of one element; 0 for an unknown name." },
    { "decode", decode, METH_VARARGS,
      "decode(dtype, code, /)\n--\n\nThe value of a code of a number format of up to 32 bits." },
    { "encode", encode, METH_VARARGS, "encode(dtype, value, /)\n--\n\nThe code nearest to a value, ties to even." },
    { "routing_names", routing_names, METH_NOARGS, "routing_names()\n--\n\nNames that Routing.by_name() knows." },
    { "routing", routing, METH_O, "routing(name, /)\n--\n\nThe Routing that engines call by this name." },
    { "activations", activations, METH_NOARGS,
      "activations()\n--\n\nActivation functions by name, with the parameters that are usual: a dict of Activation." },
    { "preset_config", preset_config, METH_VARARGS,
      "preset_config(preset, format=None, /)\n--\n\nThe LayerConfig of a preset in a checkpoint format." },
    { "hf_config", hf_config, METH_VARARGS, "hf_config(dir, layer, format=None, /)\n--\n\nSee LayerConfig.from_hf()." },
    { "check_config", check_config, METH_O,
      "check_config(config, /)\n--\n\nRaises for a LayerConfig that breaks a rule." },
    { "_round_trip", round_trip, METH_O, "A LayerConfig by way of its C struct." },
    { "machine", machine, METH_NOARGS, "machine()\n--\n\nProcessor, instruction sets, processors to use: a Machine." },
    { "measure_limits", (PyCFunction)(void (*)(void))measure_limits, METH_VARARGS | METH_KEYWORDS,
      "measure_limits(*, threads=None, isa=None)\n--\n\nMeasures what this machine can do at most, in about a second "
      "and\n"
      "with 1 GB of memory: Limits." },
    { "cuda_info", cuda_info, METH_NOARGS, "cuda_info()\n--\n\nWhat libmoxie_cuda and the driver are: a CudaInfo." },
    { "cuda_devices", cuda_devices, METH_NOARGS, "cuda_devices()\n--\n\nThe NVIDIA GPUs: a list of CudaDevice." },
    { NULL, NULL, 0, NULL }
};
