/* SPDX-License-Identifier: Apache-2.0
 *
 * py_array.c - moxie.Array: contiguous host memory that Python's array libraries read without a copy.
 *
 *     numpy.asarray(a)         by the buffer protocol; number formats that it lacks (bf16, FP8) appear as unsigned
 * codes     torch.from_dlpack(a)     by DLPack, with the true type
 *
 * It either owns its memory, at a multiple of 64 bytes, or views memory of another object, read-only.
 */
#include "py_moxie.h"

#include <stdlib.h>
#include <string.h>

typedef struct array {
    PyObject_HEAD void *data;
    PyObject *owner; /* NULL: the memory is the array's own */
    bool on_device;
    moxie_dtype dtype;
    int32_t axes;
    int64_t shape[MPY_MAX_AXES];
    Py_ssize_t shape_py[MPY_MAX_AXES], strides_py[MPY_MAX_AXES];
} array;

PyObject *mpy_array_type;

static Py_ssize_t item_bytes(const array *self)
{
    return moxie_dtype_bits(self->dtype) / 8;
}

static Py_ssize_t total_bytes(const array *self)
{
    Py_ssize_t bytes = item_bytes(self);
    for (int i = 0; i < self->axes; i++)
        bytes *= (Py_ssize_t)self->shape[i];
    return bytes;
}

static array *array_empty(moxie_dtype dtype, int32_t axes, const int64_t *shape)
{
    array *self = (array *)PyType_GenericAlloc((PyTypeObject *)mpy_array_type, 0);
    if (self == NULL)
        return NULL;
    self->dtype = dtype;
    self->axes = axes;
    Py_ssize_t step = item_bytes(self);
    for (int i = axes - 1; i >= 0; i--) {
        self->shape[i] = shape[i];
        self->shape_py[i] = (Py_ssize_t)shape[i];
        self->strides_py[i] = step;
        if (__builtin_mul_overflow(step, (Py_ssize_t)shape[i], &step)) {
            Py_DECREF(self);
            PyErr_NoMemory();
            return NULL;
        }
    }
    return self;
}

PyObject *mpy_array_new(moxie_dtype dtype, int32_t axes, const int64_t *shape)
{
    array *self = array_empty(dtype, axes, shape);
    if (self == NULL)
        return NULL;
    const size_t bytes = ((size_t)total_bytes(self) + 64) / 64 * 64;
    self->data = aligned_alloc(64, bytes);
    if (self->data == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

/* Element i of an array of f32, f64, i32 or i64. */
static int put_number(const array *a, int64_t i, PyObject *number)
{
    if (a->dtype == MOXIE_F32)
        ((float *)a->data)[i] = (float)PyFloat_AsDouble(number);
    else if (a->dtype == MOXIE_F64)
        ((double *)a->data)[i] = PyFloat_AsDouble(number);
    else if (a->dtype == MOXIE_I32) {
        const long long whole = PyLong_AsLongLong(number);
        if (whole < INT32_MIN || whole > INT32_MAX)
            PyErr_Format(PyExc_OverflowError, "%R does not fit in 32 bits", number);
        ((int32_t *)a->data)[i] = (int32_t)whole;
    } else
        ((int64_t *)a->data)[i] = PyLong_AsLongLong(number);
    return PyErr_Occurred() == NULL ? 0 : -1;
}

PyObject *mpy_array_of_numbers(PyObject *object, const char *name, moxie_dtype dtype, int64_t count)
{
    PyObject *list = PySequence_List(object), *out = NULL;
    if (list != NULL && PyList_Size(list) != count)
        mpy_fail(MOXIE_ERR_ARGUMENT, "%s: %lld numbers are wanted, not %zd", name, (long long)count, PyList_Size(list));
    else if (list != NULL)
        out = mpy_array_new(dtype, 1, &count);
    for (int64_t i = 0; out != NULL && i < count; i++)
        if (put_number((array *)out, i, PyList_GetItem(list, (Py_ssize_t)i)) < 0)
            Py_CLEAR(out);
    Py_XDECREF(list);
    return out;
}

PyObject *mpy_array_view(moxie_dtype dtype, int32_t axes, const int64_t *shape, const void *data, bool on_device,
                         PyObject *owner)
{
    array *self = array_empty(dtype, axes, shape);
    if (self == NULL)
        return NULL;
    memcpy(&self->data, &data, sizeof data); /* const until here; a buffer of it is read-only */
    self->on_device = on_device;
    self->owner = owner;
    Py_INCREF(owner);
    return (PyObject *)self;
}

void *mpy_array_data(PyObject *object)
{
    return ((array *)object)->data;
}

int32_t mpy_array_shape(PyObject *object, const int64_t **shape)
{
    *shape = ((array *)object)->shape;
    return ((array *)object)->axes;
}

/* ---- from other arrays and from numbers ----------------------------------------------------- */

/* Copies axis `axis` and what lies below it. */
static void copy_axes(const mpy_view *view, int axis, const char *from, char **to)
{
    if (axis == view->axes) {
        memcpy(*to, from, (size_t)view->item_bytes);
        *to += view->item_bytes;
        return;
    }
    for (int64_t i = 0; i < view->shape[axis]; i++)
        copy_axes(view, axis + 1, from + i * view->strides[axis], to);
}

static PyObject *from_view(PyObject *object, const char *name, moxie_dtype dtype)
{
    mpy_view view;
    PyObject *out = NULL;
    if (mpy_view_get(object, name, false, 0, &view) < 0)
        return NULL;
    if (mpy_view_on_gpu(&view) || !mpy_view_holds(&view, dtype)) {
        PyObject *words = mpy_view_words(&view);
        mpy_fail(MOXIE_ERR_ARGUMENT, "%s: %s on the host is wanted, not %V", name, moxie_dtype_name(dtype), words, "?");
        Py_XDECREF(words);
    } else {
        out = mpy_array_new(dtype, view.axes, view.shape);
        char *to = out == NULL ? NULL : mpy_array_data(out);
        if (out != NULL)
            copy_axes(&view, 0, view.data, &to);
    }
    mpy_view_release(&view);
    return out;
}

static PyObject *from_sequence(PyObject *object, const char *name, moxie_dtype dtype)
{
    const int64_t length = PySequence_Size(object);
    PyObject *out = length < 0 ? NULL : mpy_array_new(dtype, 1, &length);
    for (int64_t i = 0; out != NULL && i < length; i++) {
        PyObject *item = PySequence_GetItem(object, (Py_ssize_t)i);
        const int failed = item == NULL || put_number((array *)out, i, item) < 0;
        Py_XDECREF(item);
        if (failed)
            Py_CLEAR(out);
    }
    if (out == NULL && PyErr_ExceptionMatches(PyExc_TypeError))
        PyErr_Format(PyExc_TypeError, "%s: an array or a sequence of numbers is wanted", name);
    return out;
}

PyObject *mpy_array_from(PyObject *object, const char *name, moxie_dtype dtype)
{
    if (PyObject_CheckBuffer(object) || PyObject_HasAttrString(object, "__dlpack__"))
        return from_view(object, name, dtype);
    return from_sequence(object, name, dtype);
}

/* ---- the buffer protocol and DLPack --------------------------------------------------------- */

static const char *buffer_format(moxie_dtype dtype)
{
    switch (dtype) {
    case MOXIE_F32: return "f";
    case MOXIE_F64: return "d";
    case MOXIE_F16: return "e";
    case MOXIE_I32: return "i";
    case MOXIE_I64: return "q";
    case MOXIE_I8: return "b";
    case MOXIE_I16: return "h";
    default: break;
    }
    const int32_t bits = moxie_dtype_bits(dtype);
    return bits == 16 ? "H" : bits == 32 ? "I" : bits == 64 ? "Q" : "B";
}

/* -1 with an exception for memory that the host cannot read. */
static int check_host(const array *self)
{
    if (self->on_device)
        PyErr_SetString(PyExc_BufferError, "the array lies on a CUDA device; data_ptr is its address there");
    return self->on_device ? -1 : 0;
}

static int get_buffer(PyObject *object, Py_buffer *out, int flags)
{
    array *self = (array *)object;
    if (check_host(self) < 0)
        return -1;
    if ((flags & PyBUF_WRITABLE) != 0 && self->owner != NULL) {
        PyErr_SetString(PyExc_BufferError, "the array is read-only");
        return -1;
    }
    static char formats[][2] = { "f", "d", "e", "i", "q", "b", "h", "H", "I", "Q", "B" };
    char *format = formats[sizeof formats / sizeof formats[0] - 1];
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (formats[i][0] == buffer_format(self->dtype)[0])
            format = formats[i];
    *out = (Py_buffer) { .buf = self->data,
                         .obj = object,
                         .len = total_bytes(self),
                         .itemsize = item_bytes(self),
                         .readonly = self->owner != NULL,
                         .ndim = self->axes,
                         .format = (flags & PyBUF_FORMAT) != 0 ? format : NULL,
                         .shape = (flags & PyBUF_ND) != 0 ? self->shape_py : NULL,
                         .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? self->strides_py : NULL };
    Py_INCREF(object);
    return 0;
}

/* DLPack's unversioned struct; its consumers call `deleter`, which gives the reference to the array back. */
typedef struct exported {
    void *data;
    int32_t device_type, device, axes;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
    void *context;
    void (*deleter)(struct exported *self);
} exported;

static void exported_delete(exported *self)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    Py_DECREF((PyObject *)self->context);
    PyGILState_Release(gil);
    free(self);
}

static void capsule_delete(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor")) /* else a consumer took it, and renamed the capsule */
        exported_delete(PyCapsule_GetPointer(capsule, "dltensor"));
}

static int dl_code(moxie_dtype dtype)
{
    switch (dtype) {
    case MOXIE_F32:
    case MOXIE_F64:
    case MOXIE_F16: return 2;
    case MOXIE_BF16: return 4;
    case MOXIE_I8:
    case MOXIE_I16:
    case MOXIE_I32:
    case MOXIE_I64: return 0;
    case MOXIE_BOOL: return 6;
    default: return 1;
    }
}

static PyObject *array_dlpack(PyObject *object, PyObject *args, PyObject *named)
{
    array *self = (array *)object;
    (void)args, (void)named; /* stream, max_version, dl_device, copy: host memory needs none of them */
    if (self->owner != NULL)
        return PyErr_SetString(PyExc_BufferError, "a read-only array has no DLPack form"), NULL;
    exported *e = malloc(sizeof *e);
    if (e == NULL)
        return PyErr_NoMemory();
    *e = (exported) { .data = self->data,
                      .device_type = MPY_HOST,
                      .axes = self->axes,
                      .code = (uint8_t)dl_code(self->dtype),
                      .bits = (uint8_t)moxie_dtype_bits(self->dtype),
                      .lanes = 1,
                      .shape = self->shape,
                      .context = object,
                      .deleter = exported_delete };
    Py_INCREF(object);
    PyObject *capsule = PyCapsule_New(e, "dltensor", capsule_delete);
    if (capsule == NULL)
        exported_delete(e);
    return capsule;
}

static PyObject *array_dlpack_device(PyObject *object, PyObject *none)
{
    (void)object, (void)none;
    return Py_BuildValue("(ii)", MPY_HOST, 0);
}

/* ---- the type ------------------------------------------------------------------------------- */

static PyObject *get_shape(PyObject *object, void *none)
{
    const array *self = (array *)object;
    PyObject *tuple = PyTuple_New(self->axes);
    (void)none;
    for (int i = 0; tuple != NULL && i < self->axes; i++)
        if (PyTuple_SetItem(tuple, i, PyLong_FromLongLong(self->shape[i])) < 0)
            Py_CLEAR(tuple);
    return tuple;
}

static PyObject *get_dtype(PyObject *object, void *none)
{
    (void)none;
    return PyUnicode_FromString(moxie_dtype_name(((array *)object)->dtype));
}

static PyObject *get_pointer(PyObject *object, void *none)
{
    (void)none;
    return PyLong_FromVoidPtr(((array *)object)->data);
}

static PyObject *array_tolist(PyObject *object, PyObject *none)
{
    (void)none;
    PyObject *view = PyMemoryView_FromObject(object);
    PyObject *list = view == NULL ? NULL : PyObject_CallMethod(view, "tolist", NULL);
    Py_XDECREF(view);
    return list;
}

static PyObject *array_repr(PyObject *object)
{
    PyObject *shape = get_shape(object, NULL);
    PyObject *text =
        shape == NULL ? NULL
                      : PyUnicode_FromFormat("moxie.Array(%s, %R)", moxie_dtype_name(((array *)object)->dtype), shape);
    Py_XDECREF(shape);
    return text;
}

static PyObject *array_compare(PyObject *a, PyObject *b, int how)
{
    if ((how != Py_EQ && how != Py_NE) || Py_TYPE(b) != (PyTypeObject *)mpy_array_type)
        Py_RETURN_NOTIMPLEMENTED;
    const array *x = (array *)a, *y = (array *)b;
    if (check_host(x) < 0 || check_host(y) < 0)
        return NULL;
    const size_t shape = (size_t)x->axes * sizeof x->shape[0];
    const bool same = x->dtype == y->dtype && x->axes == y->axes && memcmp(x->shape, y->shape, shape) == 0 &&
                      memcmp(x->data, y->data, (size_t)total_bytes(x)) == 0;
    return PyBool_FromLong(same == (how == Py_EQ));
}

static Py_ssize_t array_length(PyObject *object)
{
    const array *self = (array *)object;
    if (self->axes == 0) {
        PyErr_SetString(PyExc_TypeError, "an array without axes has no length");
        return -1;
    }
    return self->shape_py[0];
}

static void array_free(PyObject *object)
{
    array *self = (array *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->owner == NULL)
        free(self->data);
    Py_XDECREF(self->owner);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    { "__dlpack__", (PyCFunction)(void (*)(void))array_dlpack, METH_VARARGS | METH_KEYWORDS, "A DLPack capsule." },
    { "__dlpack_device__", array_dlpack_device, METH_NOARGS, "(1, 0): host memory." },
    { "tolist", array_tolist, METH_NOARGS, "tolist()\n--\n\nThe elements as nested lists; of bf16 and FP8 the codes." },
    { NULL, NULL, 0, NULL }
};

static PyGetSetDef attributes[] = { { "shape", get_shape, NULL, "Sizes of the axes.", NULL },
                                    { "dtype", get_dtype, NULL, "Name of the number format, for example \"bf16\".",
                                      NULL },
                                    { "data_ptr", get_pointer, NULL, "Address of the first element.", NULL },
                                    { NULL, NULL, NULL, NULL, NULL } };

static PyType_Slot slots[] = {
    { Py_tp_doc,
      "Contiguous host memory that moxie made.\n\n"
      "numpy.asarray(a) and torch.from_dlpack(a) read it without a copy. NumPy has no bf16 and FP8: there it\n"
      "appears as unsigned codes, in torch as what it is." },
    { Py_tp_methods, methods },
    { Py_tp_getset, attributes },
    { Py_tp_repr, array_repr },
    { Py_tp_richcompare, array_compare },
    { Py_tp_hash, PyObject_HashNotImplemented },
    { Py_sq_length, array_length },
    { Py_tp_dealloc, array_free },
    { Py_bf_getbuffer, get_buffer },
    { 0, NULL }
};

PyType_Spec mpy_array_spec = { "moxie.Array", sizeof(array), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                               slots };
