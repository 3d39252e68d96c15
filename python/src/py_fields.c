/* SPDX-License-Identifier: Apache-2.0
 *
 * py_fields.c - C structs to Python objects and back, each by its table (py_tables.c).
 *
 *     moxie_routing  <->  moxie.Routing       a record: one dataclass of moxie.records, whose fields have the names and
 *                                             the order of the table
 *     int32_t score  <->  "softmax"           a choice: names instead of numbers
 *     const float *  <->  moxie.Array, None   arrays: copies; going to C, any array or sequence of numbers will do
 */
#include "py_moxie.h"

#include <string.h>

/* ---- to Python ------------------------------------------------------------------------------ */

static PyObject *choice_name(const mpy_choice *list, int32_t value)
{
    for (; list->name != NULL; list++)
        if (list->value == value)
            return PyUnicode_FromString(list->name);
    return PyLong_FromLong(value);
}

static PyObject *texts(const char *const *list, int32_t count)
{
    PyObject *tuple = PyTuple_New(count);
    for (int32_t i = 0; tuple != NULL && i < count; i++)
        if (PyTuple_SetItem(tuple, i, PyUnicode_FromString(list[i])) < 0)
            Py_CLEAR(tuple);
    return tuple;
}

static PyObject *array_copy(const void *data, const mpy_array_kind *kind, const moxie_layer_config *config)
{
    if (data == NULL || config == NULL)
        Py_RETURN_NONE;
    int64_t shape[2] = { 0, config->top_k };
    int32_t axes = 1;
    if (kind->length != NULL) {
        shape[0] = kind->length(config);
    } else { /* the table: [table_rows, K] */
        shape[0] = config->routing.table_rows;
        axes = 2;
    }
    PyObject *copy = mpy_array_new(kind->dtype, axes, shape);
    if (copy != NULL)
        memcpy(mpy_array_data(copy), data, (size_t)(shape[0] * (axes == 2 ? shape[1] : 1)) * 4);
    return copy;
}

/* The double with the fewest digits that is this float: 1.702, not 1.7020000219345093. */
static PyObject *short_float(float value)
{
    char text[32];
    for (int digits = 6; digits < 9; digits++) {
        PyOS_snprintf(text, sizeof text, "%.*g", digits, (double)value);
        const double near = PyOS_string_to_double(text, NULL, NULL);
        if ((float)near == value)
            return PyFloat_FromDouble(near);
    }
    return PyFloat_FromDouble((double)value);
}

static PyObject *field_to_python(const mpy_field *f, const char *base, const moxie_layer_config *config)
{
    const void *at = base + f->offset;
    switch (f->kind) {
    case MPY_I32: return PyLong_FromLong(*(const int32_t *)at);
    case MPY_I64: return PyLong_FromLongLong(*(const int64_t *)at);
    case MPY_U64: return PyLong_FromUnsignedLongLong(*(const uint64_t *)at);
    case MPY_F32: return short_float(*(const float *)at);
    case MPY_F64: return PyFloat_FromDouble(*(const double *)at);
    case MPY_FLAG: return PyBool_FromLong(*(const int32_t *)at);
    case MPY_DTYPE:
        return PyUnicode_FromString(*(const moxie_dtype *)at == 0 ? "" : moxie_dtype_name(*(const moxie_dtype *)at));
    case MPY_CHOICE: return choice_name(f->more, *(const int32_t *)at);
    case MPY_TEXT: {
        const char *text = *(const char *const *)at;
        return PyUnicode_DecodeUTF8(text == NULL ? "" : text, text == NULL ? 0 : (Py_ssize_t)strlen(text), "replace");
    }
    case MPY_CHARS: return PyUnicode_DecodeUTF8(at, (Py_ssize_t)strlen(at), "replace");
    case MPY_TEXTS: return texts(*(const char *const *const *)at, *(const int32_t *)(base + f->count));
    case MPY_PAIR: return Py_BuildValue("(ii)", ((const int32_t *)at)[0], ((const int32_t *)at)[1]);
    case MPY_STRUCT: return mpy_record_to_python(f->more, at, config, NULL);
    case MPY_ARRAY: return array_copy(*(const void *const *)at, f->more, config);
    case MPY_ROUTE: return Py_NewRef(mpy_route_get((const moxie_routing *)base));
    case MPY_SLOT_MAP: return mpy_slot_map_to(*(const moxie_slot_map *const *)at);
    }
    return PyErr_Format(PyExc_SystemError, "a field of unknown kind");
}

PyObject *mpy_record_to_python(const mpy_record *record, const void *data, const moxie_layer_config *config,
                               PyObject *extra)
{
    Py_ssize_t n = 0;
    while (record->fields[n].name != NULL)
        n++;
    PyObject *type = mpy_import("moxie.records", record->class_name);
    PyObject *values = type == NULL ? NULL : PyTuple_New(n + (extra != NULL)), *made = NULL;
    for (Py_ssize_t i = 0; values != NULL && i < n; i++) {
        PyObject *value = field_to_python(&record->fields[i], data, config);
        if (value == NULL || PyTuple_SetItem(values, i, value) < 0)
            Py_CLEAR(values);
    }
    if (values != NULL && extra != NULL) {
        Py_INCREF(extra);
        PyTuple_SetItem(values, n, extra);
    }
    if (values != NULL)
        made = PyObject_CallObject(type, values);
    Py_XDECREF(extra);
    Py_XDECREF(values);
    Py_XDECREF(type);
    return made;
}

/* ---- from Python ---------------------------------------------------------------------------- */

int mpy_choice_value(const mpy_choice *list, const char *what, const char *name, int32_t *out)
{
    PyObject *names = PyUnicode_FromString("");
    for (const mpy_choice *c = list; c->name != NULL; c++) {
        if (strcmp(c->name, name) == 0) {
            *out = c->value;
            Py_XDECREF(names);
            return 0;
        }
        PyObject *longer = names == NULL ? NULL : PyUnicode_FromFormat("%U%s%s", names, c == list ? "" : ", ", c->name);
        Py_XDECREF(names);
        names = longer;
    }
    if (names != NULL)
        mpy_fail(MOXIE_ERR_ARGUMENT, "%s: there is no \"%s\"; the names are %U", what, name, names);
    Py_XDECREF(names);
    return -1;
}

static int dtype_value(const char *what, const char *name, moxie_dtype *out)
{
    *out = *name == 0 ? MOXIE_DTYPE_NONE : moxie_dtype_from_name(name);
    if (*name == 0 || *out != MOXIE_DTYPE_NONE)
        return 0;
    mpy_fail(MOXIE_ERR_ARGUMENT, "%s: there is no number format \"%s\"; moxie.dtypes() lists them", what, name);
    return -1;
}

static int number_from_python(const mpy_field *f, PyObject *value, void *at)
{
    if (f->kind == MPY_F32) {
        *(float *)at = (float)PyFloat_AsDouble(value);
    } else if (f->kind == MPY_U64) {
        *(uint64_t *)at = PyLong_AsUnsignedLongLong(value);
    } else {
        const long long number = f->kind == MPY_FLAG ? PyObject_IsTrue(value) : PyLong_AsLongLong(value);
        if (f->kind == MPY_I64)
            *(int64_t *)at = number;
        else if (number > INT32_MAX || number < INT32_MIN)
            PyErr_Format(PyExc_OverflowError, "%R does not fit in 32 bits", value);
        else
            *(int32_t *)at = (int32_t)number;
    }
    if (PyErr_Occurred() == NULL)
        return 0;
    if (PyErr_ExceptionMatches(PyExc_TypeError))
        PyErr_Format(PyExc_TypeError, "%s: a number is wanted, not %R", f->name, value);
    return -1;
}

static int array_from_python(const mpy_field *f, PyObject *value, void *at, PyObject *keep)
{
    if (value == Py_None)
        return 0;
    PyObject *copy = mpy_array_from(value, f->name, ((const mpy_array_kind *)f->more)->dtype);
    const int failed = copy == NULL || PyList_Append(keep, copy) < 0;
    if (!failed)
        *(const void **)at = mpy_array_data(copy);
    Py_XDECREF(copy); /* `keep` has it */
    return failed ? -1 : 0;
}

static int field_from_python(const mpy_field *f, PyObject *value, void *at, PyObject *keep)
{
    if (f->kind == MPY_STRUCT)
        return value == Py_None ? 0 : mpy_record_from_python(f->more, value, at, keep);
    if (f->kind == MPY_ARRAY)
        return array_from_python(f, value, at, keep);
    if (f->kind == MPY_ROUTE)
        return mpy_route_set((moxie_routing *)((char *)at - f->offset), value, keep);
    if (f->kind == MPY_SLOT_MAP) {
        const moxie_slot_map *map = value == Py_None ? NULL : mpy_slot_map_from(value, keep);
        *(const moxie_slot_map **)at = map;
        return map == NULL && value != Py_None ? -1 : 0;
    }
    if (f->kind == MPY_PAIR)
        return PyArg_ParseTuple(value, "ii", (int32_t *)at, (int32_t *)at + 1) ? 0 : -1;
    const bool named = f->kind == MPY_CHOICE || f->kind == MPY_DTYPE || f->kind == MPY_TEXT;
    if (!named || (f->kind == MPY_CHOICE && PyLong_Check(value)))
        return number_from_python(f, value, at);
    const char *text = value == Py_None ? "" : PyUnicode_AsUTF8AndSize(value, NULL);
    if (text == NULL)
        return PyErr_Format(PyExc_TypeError, "%s: a name is wanted, not %R", f->name, value), -1;
    if (f->kind == MPY_CHOICE)
        return mpy_choice_value(f->more, f->name, text, at);
    if (f->kind == MPY_DTYPE)
        return dtype_value(f->name, text, at);
    *(const char **)at = value == Py_None ? NULL : text; /* lives as long as `value`, which `keep` holds */
    return PyList_Append(keep, value);
}

int mpy_record_from_python(const mpy_record *record, PyObject *object, void *data, PyObject *keep)
{
    PyObject *type = mpy_import("moxie.records", record->class_name);
    const int fits = type == NULL ? -1 : PyObject_IsInstance(object, type);
    Py_XDECREF(type);
    if (fits == 0)
        PyErr_Format(PyExc_TypeError, "a moxie.%s is wanted, not %R", record->class_name, object);
    if (fits <= 0)
        return -1;
    for (const mpy_field *f = record->fields; f->name != NULL; f++) {
        PyObject *value = PyObject_GetAttrString(object, f->name);
        const int failed = value == NULL || field_from_python(f, value, (char *)data + f->offset, keep) < 0;
        Py_XDECREF(value);
        if (failed)
            return -1;
    }
    return 0;
}

/* The arrays in `record` have the lengths that `config` asks for. The library only gets pointers, and cannot tell. */
static int check_arrays(const mpy_record *record, const char *base, moxie_layer_config *config, PyObject *keep)
{
    for (const mpy_field *f = record->fields; f->name != NULL; f++) {
        if (f->kind == MPY_STRUCT && check_arrays(f->more, base + f->offset, config, keep) < 0)
            return -1;
        const void *data = f->kind == MPY_ARRAY ? *(const void *const *)(base + f->offset) : NULL;
        const mpy_array_kind *kind = f->more;
        for (Py_ssize_t i = 0; data != NULL && i < PyList_Size(keep); i++) {
            PyObject *array = PyList_GetItem(keep, i);
            const int64_t *shape;
            if (Py_TYPE(array) != (PyTypeObject *)mpy_array_type || mpy_array_data(array) != data)
                continue;
            const int32_t axes = mpy_array_shape(array, &shape);
            if (kind->length == NULL && axes == 2 && shape[1] == config->top_k) {
                config->routing.table_rows = shape[0];
            } else if (kind->length == NULL) {
                mpy_fail(MOXIE_ERR_ARGUMENT, "%s: [rows, %lld] is wanted", f->name, (long long)config->top_k);
                return -1;
            } else if (axes != 1 || shape[0] != kind->length(config)) {
                mpy_fail(MOXIE_ERR_ARGUMENT, "%s: [%lld] is wanted, one entry an expert; there are %lld", f->name,
                         (long long)kind->length(config), axes > 0 ? (long long)shape[0] : 0LL);
                return -1;
            }
        }
    }
    return 0;
}

int mpy_config_from_python(PyObject *object, moxie_layer_config *config, PyObject *keep)
{
    *config = (moxie_layer_config)MOXIE_LAYER_CONFIG_INIT;
    if (mpy_record_from_python(&mpy_layer_config_record, object, config, keep) < 0)
        return -1;
    mpy_route_sizes(&config->routing, config);
    return check_arrays(&mpy_layer_config_record, (const char *)config, config, keep);
}
