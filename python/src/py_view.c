/* SPDX-License-Identifier: Apache-2.0
 *
 * py_view.c - somebody's array, without a copy: pointer, type, shape, strides, device.
 *
 *     1. the buffer protocol      NumPy, bytes, memoryview, moxie.Array
 *     2. __dlpack__               torch, CuPy, JAX; host and device. CuPy has the buffer protocol too, and refuses it
 *     3. x.view(unsigned), 1, 2   what those cannot say: NumPy's bfloat16 and FP8 (ml_dtypes), FP8 of older torch.
 *                                 The type is then read from the name of x.dtype.
 *
 * The structs of DLPack are those of its specification, versions 0 and 1:
 * https://dmlc.github.io/dlpack/latest/c_api.html
 */
#include "py_moxie.h"

#include <string.h>

/* ---- DLPack --------------------------------------------------------------------------------- */

typedef struct dl_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t axes;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides; /* strides count elements; NULL means contiguous */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
} dl_managed;

typedef struct dl_managed_versioned {
    struct {
        uint32_t major, minor;
    } version;
    void *context;
    void (*deleter)(struct dl_managed_versioned *self);
    uint64_t flags; /* bit 0: read-only */
    dl_tensor tensor;
} dl_managed_versioned;

static const struct {
    uint8_t code, bits;
    moxie_dtype dtype;
} dl_types[] = { { 2, 32, MOXIE_F32 },     { 2, 16, MOXIE_F16 },     { 4, 16, MOXIE_BF16 },    { 2, 64, MOXIE_F64 },
                 { 10, 8, MOXIE_F8_E4M3 }, { 12, 8, MOXIE_F8_E5M2 }, { 14, 8, MOXIE_F8_E8M0 }, { 0, 8, MOXIE_I8 },
                 { 1, 8, MOXIE_U8 },       { 0, 16, MOXIE_I16 },     { 1, 16, MOXIE_U16 },     { 0, 32, MOXIE_I32 },
                 { 1, 32, MOXIE_U32 },     { 0, 64, MOXIE_I64 },     { 1, 64, MOXIE_U64 },     { 6, 8, MOXIE_BOOL } };

static int dl_fill(const dl_tensor *t, const char *name, mpy_view *out)
{
    out->dtype = MOXIE_DTYPE_NONE;
    for (size_t i = 0; i < sizeof dl_types / sizeof dl_types[0]; i++)
        if (dl_types[i].code == t->dtype.code && dl_types[i].bits == t->dtype.bits)
            out->dtype = dl_types[i].dtype;
    if (out->dtype == MOXIE_DTYPE_NONE || t->dtype.lanes != 1 || t->axes > MPY_MAX_AXES) {
        mpy_fail(MOXIE_ERR_ARGUMENT, "%s: a DLPack type of code %d, %d bits, %d lanes, %d axes is not known here", name,
                 t->dtype.code, t->dtype.bits, t->dtype.lanes, (int)t->axes);
        return -1;
    }
    if (t->device.type != MPY_HOST && t->device.type != MPY_CUDA && t->device.type != MPY_CUDA_HOST &&
        t->device.type != MPY_CUDA_MANAGED) {
        mpy_fail(MOXIE_ERR_ARGUMENT,
                 "%s: it lies on a device of DLPack's kind %d; arrays on the host and on CUDA devices "
                 "are taken: copy it to one of them",
                 name, (int)t->device.type);
        return -1;
    }
    out->data = t->data == NULL ? NULL : (char *)t->data + t->byte_offset;
    out->axes = t->axes;
    out->item_bytes = t->dtype.bits / 8;
    out->device_type = t->device.type;
    out->device = t->device.id;
    int64_t step = out->item_bytes;
    for (int i = t->axes - 1; i >= 0; i--) {
        out->shape[i] = t->shape[i];
        out->strides[i] = t->strides != NULL ? t->strides[i] * out->item_bytes : step;
        step *= t->shape[i];
    }
    return 0;
}

static int dl_take(PyObject *capsule, const char *name, bool writable, mpy_view *out)
{
    const char *kind = PyCapsule_GetName(capsule);
    if (kind != NULL && strcmp(kind, "dltensor") == 0) {
        const dl_managed *managed = PyCapsule_GetPointer(capsule, kind);
        return dl_fill(&managed->tensor, name, out);
    }
    if (kind != NULL && strcmp(kind, "dltensor_versioned") == 0) {
        const dl_managed_versioned *managed = PyCapsule_GetPointer(capsule, kind);
        if (managed->version.major != 1) {
            mpy_fail(MOXIE_ERR_ARGUMENT, "%s: DLPack version %d is not known here", name, (int)managed->version.major);
            return -1;
        }
        if (writable && (managed->flags & 1) != 0) {
            mpy_fail(MOXIE_ERR_ARGUMENT, "%s: the array is read-only", name);
            return -1;
        }
        return dl_fill(&managed->tensor, name, out);
    }
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s: __dlpack__ gave something that is no DLPack capsule", name);
    return -1;
}

/* object.__dlpack__(...), for device memory on `stream`. Whoever writes asks for the newer capsule, which says whether
 * the array is read-only; producers that do not know it get the plain call. */
static PyObject *dl_export(PyObject *object, bool writable, int64_t stream)
{
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__");
    PyObject *where = method == NULL ? NULL : PyObject_CallMethod(object, "__dlpack_device__", NULL);
    PyObject *named = where == NULL ? NULL : PyDict_New(), *none = named == NULL ? NULL : PyTuple_New(0);
    PyObject *capsule = NULL, *version = NULL;
    int type = 0, id = 0;
    if (none == NULL || !PyArg_ParseTuple(where, "ii", &type, &id))
        goto out;
    if (type == MPY_CUDA || type == MPY_CUDA_MANAGED) {
        PyObject *number = PyLong_FromLongLong(stream == 0 ? 1 : stream); /* 1: the legacy default stream */
        const int failed = number == NULL || PyDict_SetItemString(named, "stream", number) < 0;
        Py_XDECREF(number);
        if (failed)
            goto out;
    }
    if (writable) {
        version = Py_BuildValue("(ii)", 1, 0);
        if (version == NULL || PyDict_SetItemString(named, "max_version", version) < 0)
            goto out;
        capsule = PyObject_Call(method, none, named);
        if (capsule != NULL || !PyErr_ExceptionMatches(PyExc_TypeError))
            goto out;
        PyErr_Clear();
        PyDict_DelItemString(named, "max_version");
    }
    capsule = PyObject_Call(method, none, named);
out:
    Py_XDECREF(version);
    Py_XDECREF(none);
    Py_XDECREF(named);
    Py_XDECREF(where);
    Py_XDECREF(method);
    return capsule;
}

/* ---- the buffer protocol -------------------------------------------------------------------- */

/* The type of a struct-module format. Sizes decide between letters, since "l" has eight bytes here and four after
 * "<". */
static moxie_dtype buffer_dtype(const char *format, Py_ssize_t item_bytes)
{
    if (format == NULL)
        return MOXIE_U8;
    if (*format == '<' || *format == '=' || *format == '@' || (*format == '>' && item_bytes == 1))
        format++;
    if (format[0] == 0 || format[1] != 0)
        return MOXIE_DTYPE_NONE;
    const int size = item_bytes == 1 ? 0 : item_bytes == 2 ? 1 : item_bytes == 4 ? 2 : item_bytes == 8 ? 3 : -1;
    static const moxie_dtype integers[] = { MOXIE_I8, MOXIE_I16, MOXIE_I32, MOXIE_I64 };
    static const moxie_dtype naturals[] = { MOXIE_U8, MOXIE_U16, MOXIE_U32, MOXIE_U64 };
    static const moxie_dtype floats[] = { MOXIE_DTYPE_NONE, MOXIE_F16, MOXIE_F32, MOXIE_F64 };
    if (size < 0)
        return MOXIE_DTYPE_NONE;
    if (*format == '?')
        return MOXIE_BOOL;
    if (strchr("bhilqn", *format) != NULL)
        return integers[size];
    if (strchr("BHILQNc", *format) != NULL)
        return naturals[size];
    return strchr("efd", *format) != NULL ? floats[size] : MOXIE_DTYPE_NONE;
}

static int buffer_fill(const char *name, mpy_view *out)
{
    const Py_buffer *b = &out->buffer;
    out->dtype = buffer_dtype(b->format, b->itemsize);
    if (out->dtype == MOXIE_DTYPE_NONE || b->ndim > MPY_MAX_AXES) {
        mpy_fail(MOXIE_ERR_ARGUMENT, "%s: a buffer of format \"%s\" with %d axes is not known here", name,
                 b->format == NULL ? "B" : b->format, b->ndim);
        return -1;
    }
    out->data = b->buf;
    out->axes = b->ndim;
    out->item_bytes = (int32_t)b->itemsize;
    out->device_type = MPY_HOST;
    for (int i = 0; i < b->ndim; i++) {
        out->shape[i] = b->shape[i];
        out->strides[i] = b->strides[i];
    }
    return 0;
}

/* ---- names of types ------------------------------------------------------------------------- */

static const struct {
    const char *name;
    moxie_dtype dtype;
} named_types[] = { { "bfloat16", MOXIE_BF16 },
                    { "float8_e4m3fn", MOXIE_F8_E4M3 },
                    { "float8_e5m2", MOXIE_F8_E5M2 },
                    { "float8_e8m0fnu", MOXIE_F8_E8M0 },
                    { "float4_e2m1fn_x2", MOXIE_U8 } };

/* The type that x.dtype names ("torch.float8_e4m3fn", "bfloat16"), or NONE. */
static moxie_dtype named_dtype(PyObject *object)
{
    PyObject *dtype = PyObject_GetAttrString(object, "dtype");
    PyObject *text = dtype == NULL ? NULL : PyObject_Str(dtype);
    const char *name = text == NULL ? NULL : PyUnicode_AsUTF8AndSize(text, NULL);
    moxie_dtype found = MOXIE_DTYPE_NONE;
    if (name != NULL && strrchr(name, '.') != NULL)
        name = strrchr(name, '.') + 1;
    for (size_t i = 0; name != NULL && i < sizeof named_types / sizeof named_types[0]; i++)
        if (strcmp(name, named_types[i].name) == 0)
            found = named_types[i].dtype;
    Py_XDECREF(text);
    Py_XDECREF(dtype);
    PyErr_Clear();
    return found;
}

/* object.view(unsigned integers of the same size); NumPy takes a name, torch its dtype object. */
static PyObject *as_unsigned(PyObject *object, moxie_dtype dtype)
{
    const bool two = moxie_dtype_bits(dtype) == 16;
    PyObject *view = PyObject_CallMethod(object, "view", "s", two ? "u2" : "u1");
    if (view != NULL)
        return view;
    PyErr_Clear();
    PyObject *type = mpy_import("torch", two ? "uint16" : "uint8");
    view = type == NULL ? NULL : PyObject_CallMethod(object, "view", "O", type);
    Py_XDECREF(type);
    return view;
}

/* ---- all together --------------------------------------------------------------------------- */

static int by_dlpack(PyObject *object, const char *name, bool writable, int64_t stream, mpy_view *out)
{
    out->capsule = dl_export(object, writable, stream);
    if (out->capsule == NULL)
        return -1;
    if (dl_take(out->capsule, name, writable, out) == 0)
        return 0;
    mpy_view_release(out);
    return -1;
}

static int by_buffer(PyObject *object, const char *name, bool writable, mpy_view *out)
{
    if (PyObject_GetBuffer(object, &out->buffer, PyBUF_FORMAT | PyBUF_STRIDES | (writable ? PyBUF_WRITABLE : 0)) < 0)
        return -1;
    out->has_buffer = true;
    if (buffer_fill(name, out) == 0)
        return 0;
    mpy_view_release(out);
    return -1;
}

static int by_name(PyObject *object, const char *name, bool writable, int64_t stream, mpy_view *out)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    moxie_dtype dtype = named_dtype(object);
    if (dtype == MOXIE_BF16 && !PyObject_CheckBuffer(object))
        dtype = MOXIE_DTYPE_NONE; /* DLPack knows bf16, so the producer has another reason */
    PyObject *codes = dtype == MOXIE_DTYPE_NONE ? NULL : as_unsigned(object, dtype);
    if (codes == NULL) {
        PyErr_Clear();
        PyErr_Restore(type, value, trace);
        return -1;
    }
    const int failed = PyObject_CheckBuffer(codes) ? by_buffer(codes, name, writable, out)
                                                   : by_dlpack(codes, name, writable, stream, out);
    Py_DECREF(codes);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    if (!failed)
        out->dtype = dtype;
    return failed;
}

/* The producers' own errors (NumPy: "buffer source array is read-only") do not say which argument it was. */
static void name_error(const char *name)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *text = PyObject_Str(value), *start = PyUnicode_FromFormat("%s: ", name);
    if (text == NULL || start == NULL || PyUnicode_Tailmatch(text, start, 0, PY_SSIZE_T_MAX, -1) == 1) {
        PyErr_Restore(type, value, trace);
    } else {
        mpy_fail(MOXIE_ERR_ARGUMENT, "%s: %U", name, text);
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(trace);
    }
    Py_XDECREF(start);
    Py_XDECREF(text);
}

/* Whether an array is in no memory of the host. Keeps the error that is set. */
static bool on_a_device(PyObject *object)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *where = PyObject_CallMethod(object, "__dlpack_device__", NULL);
    PyObject *kind = where == NULL ? NULL : PySequence_GetItem(where, 0);
    const bool away = kind != NULL && PyLong_AsLong(kind) != MPY_HOST;
    Py_XDECREF(kind);
    Py_XDECREF(where);
    PyErr_Clear();
    PyErr_Restore(type, value, trace);
    return away;
}

int mpy_view_get(PyObject *object, const char *name, bool writable, int64_t stream, mpy_view *out)
{
    out->capsule = NULL;
    out->has_buffer = false;
    out->device = 0;
    int failed;
    if (PyObject_CheckBuffer(object)) {
        failed = by_buffer(object, name, writable, out);
        if (failed && on_a_device(object)) {
            PyErr_Clear();
            failed = by_dlpack(object, name, writable, stream, out);
        }
    } else if (PyObject_HasAttrString(object, "__dlpack__")) {
        failed = by_dlpack(object, name, writable, stream, out);
    } else {
        PyObject *class_name = PyType_GetName(Py_TYPE(object));
        PyErr_Format(PyExc_TypeError, "%s: an array is wanted (buffer protocol or DLPack), not %U", name, class_name);
        Py_XDECREF(class_name);
        return -1;
    }
    if (failed && !PyErr_ExceptionMatches(PyExc_MemoryError))
        failed = by_name(object, name, writable, stream, out);
    if (failed && !PyErr_ExceptionMatches(PyExc_MemoryError))
        name_error(name);
    return failed;
}

void mpy_view_release(mpy_view *view)
{
    if (view->has_buffer)
        PyBuffer_Release(&view->buffer);
    Py_CLEAR(view->capsule); /* not renamed to "used_...", so its own destructor frees the array */
    view->has_buffer = false;
}

bool mpy_view_contiguous(const mpy_view *view)
{
    int64_t step = view->item_bytes;
    for (int i = view->axes - 1; i >= 0; i--) {
        if (view->shape[i] == 0)
            return true;
        if (view->shape[i] > 1 && view->strides[i] != step)
            return false;
        step *= view->shape[i];
    }
    return true;
}

bool mpy_view_holds(const mpy_view *view, moxie_dtype dtype)
{
    if (view->dtype == dtype)
        return true;
    if (moxie_dtype_bits(dtype) != view->item_bytes * 8)
        return false;
    const moxie_dtype codes = view->dtype;
    return codes == MOXIE_U8 || codes == MOXIE_U16 || (codes == MOXIE_BOOL && dtype == MOXIE_U8);
}

bool mpy_view_on_gpu(const mpy_view *view)
{
    return view->device_type == MPY_CUDA || view->device_type == MPY_CUDA_MANAGED;
}

PyObject *mpy_view_words(const mpy_view *view)
{
    PyObject *words = PyUnicode_FromFormat("%s [", moxie_dtype_name(view->dtype));
    for (int i = 0; words != NULL && i < view->axes; i++) {
        PyObject *longer = PyUnicode_FromFormat("%U%s%lld", words, i == 0 ? "" : ", ", (long long)view->shape[i]);
        Py_DECREF(words);
        words = longer;
    }
    char place[32] = "the host";
    if (mpy_view_on_gpu(view))
        PyOS_snprintf(place, sizeof place, "CUDA device %d", (int)view->device);
    PyObject *all = words == NULL ? NULL : PyUnicode_FromFormat("%U] on %s", words, place);
    Py_XDECREF(words);
    return all;
}
