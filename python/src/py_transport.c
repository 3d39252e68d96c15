/* SPDX-License-Identifier: Apache-2.0
 *
 * py_transport.c - a moxie_transport whose functions are methods of a Python object.
 *
 *     libmoxie, without the GIL  ->  counts(self, ...)  ->  object.counts(send, recv, each)  ->  request, or None: done
 *                                    progress(number)   ->  object.progress(request)         ->  true: done
 *
 * Memory goes to Python as memoryviews, rows as a moxie.comm.Rows. Requests are any objects; their numbers are indices
 * of mpy_transport.requests. An exception becomes a status and a text for libmoxie. It is kept as well, so that the
 * call that fails because of it can name it as its cause.
 */
#include "py_comm.h"

#include <string.h>

/* ---- entering and leaving Python ------------------------------------------------------------ */

/* An exception may be pending already, for example that of a routing callback while the run is given up. */
typedef struct visit {
    PyGILState_STATE gil;
    PyObject *type, *value, *trace;
} visit;

static visit enter(void)
{
    visit v = { .gil = PyGILState_Ensure() };
    PyErr_Fetch(&v.type, &v.value, &v.trace);
    return v;
}

static void leave(const visit *v)
{
    PyErr_Restore(v->type, v->value, v->trace);
    PyGILState_Release(v->gil);
}

static bool is_a(PyObject *value, PyObject *type)
{
    return PyErr_GivenExceptionMatches(value, type) != 0;
}

/* Statuses by exceptions. What says that another rank is dead or late is a timeout; so is what the user interrupts. */
static moxie_status status_of(PyObject *value)
{
    static const moxie_status named[] = { MOXIE_ERR_UNSUPPORTED, MOXIE_ERR_FORMAT, MOXIE_ERR_MISMATCH };
    PyObject *status = PyObject_GetAttrString(value, "status");
    const char *name = status == NULL || !PyUnicode_Check(status) ? NULL : PyUnicode_AsUTF8AndSize(status, NULL);
    moxie_status found = MOXIE_ERR_IO;
    for (size_t i = 0; name != NULL && i < sizeof named / sizeof named[0]; i++)
        if (strcmp(name, moxie_status_name(named[i])) == 0)
            found = named[i];
    Py_XDECREF(status);
    PyErr_Clear();
    if (is_a(value, PyExc_MemoryError))
        return MOXIE_ERR_MEMORY;
    if (is_a(value, PyExc_TimeoutError) || is_a(value, PyExc_ConnectionError) || !is_a(value, PyExc_Exception))
        return MOXIE_ERR_TIMEOUT;
    return found;
}

/* The pending exception for libmoxie, and kept for the caller. */
static moxie_status failed(mpy_transport *self, const char *what, moxie_error *error)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace != NULL)
        PyException_SetTraceback(value, trace);
    *error = (moxie_error) { .code = status_of(value), .offset = -1 };
    PyObject *name = PyType_GetName(Py_TYPE(value)), *words = PyObject_Str(value);
    PyObject *text =
        name == NULL || words == NULL ? NULL : PyUnicode_FromFormat("%s() raised %U: %U", what, name, words);
    const char *utf8 = text == NULL ? NULL : PyUnicode_AsUTF8AndSize(text, NULL);
    PyOS_snprintf(error->text, sizeof error->text, "%s", utf8 == NULL ? "an exception of the transport" : utf8);
    Py_XDECREF(text);
    Py_XDECREF(words);
    Py_XDECREF(name);
    PyErr_Clear();
    if (self->raised == NULL)
        self->raised = Py_NewRef(value);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return error->code;
}

/* ---- memory --------------------------------------------------------------------------------- */

/* Bytes as a memoryview, of the struct format `format` if it is not NULL. */
static PyObject *view_of(const void *data, int64_t bytes, bool writable, const char *format)
{
    static char nothing[1];
    char *at = nothing;
    if (bytes > 0)
        memcpy(&at, &data, sizeof at); /* const goes; the view is read-only then */
    PyObject *view = PyMemoryView_FromMemory(at, (Py_ssize_t)bytes, writable ? PyBUF_WRITE : PyBUF_READ);
    if (view == NULL || format == NULL)
        return view;
    PyObject *typed = PyObject_CallMethod(view, "cast", "s", format);
    Py_DECREF(view);
    return typed;
}

static PyObject *numbers(const int64_t *from, int32_t count)
{
    PyObject *list = PyList_New(count);
    for (int32_t i = 0; list != NULL && i < count; i++)
        if (PyList_SetItem(list, i, PyLong_FromLongLong(from[i])) < 0)
            Py_CLEAR(list);
    return list;
}

/* The end of the last range that has rows. */
static int64_t end_of(const int64_t *rows, const int64_t *at, int32_t count)
{
    int64_t end = 0;
    for (int32_t i = 0; i < count; i++)
        if (rows[i] > 0 && at[i] + rows[i] > end)
            end = at[i] + rows[i];
    return end;
}

/* A moxie.comm.Rows. `senders`: how many entries of send_rows are read. `reduced`: reduce_scatter, whose `send` has the
 * rows of all ranks and whose `recv` has this rank's. */
static PyObject *rows_object(const mpy_transport *self, const moxie_comm_rows *rows, int32_t senders, bool reduced)
{
    const int64_t bytes = (int64_t)rows->row_bytes;
    const int64_t all = end_of(rows->recv_rows, rows->recv_at, self->ranks);
    const int64_t send = reduced ? all : end_of(rows->send_rows, rows->send_at, senders);
    const int64_t recv = reduced ? rows->recv_rows[self->rank] : all;
    PyObject *type = mpy_import("moxie.comm", "Rows");
    PyObject *made =
        type == NULL
            ? NULL
            : PyObject_CallFunction(type, "NNLNNNN", view_of(rows->send, send * bytes, false, NULL),
                                    view_of(rows->recv, recv * bytes, true, NULL), (long long)bytes,
                                    numbers(rows->send_rows, reduced ? 0 : senders),
                                    numbers(rows->send_at, reduced ? 0 : senders),
                                    numbers(rows->recv_rows, self->ranks), numbers(rows->recv_at, self->ranks));
    Py_XDECREF(type);
    return made;
}

/* ---- operations ----------------------------------------------------------------------------- */

/* Calls object.NAME(*arguments) and keeps what it returns as an open request; takes the reference to `arguments`. */
static moxie_status start(mpy_transport *self, const char *name, PyObject *arguments, int64_t *request,
                          moxie_error *error)
{
    int free = 0;
    while (free < MPY_OPEN_REQUESTS && self->requests[free] != NULL)
        free++;
    PyObject *method = arguments == NULL ? NULL : PyObject_GetAttrString(self->object, name);
    PyObject *made = method == NULL ? NULL : PyObject_CallObject(method, arguments);
    Py_XDECREF(method);
    Py_XDECREF(arguments);
    if (made != NULL && free == MPY_OPEN_REQUESTS) {
        Py_CLEAR(made);
        PyErr_SetString(PyExc_RuntimeError, "too many requests are open");
    }
    if (made == NULL)
        return failed(self, name, error);
    self->requests[free] = made;
    *request = free;
    return MOXIE_OK;
}

static moxie_status counts(void *object, const int64_t *send, int64_t *recv, int64_t each, int64_t *request,
                           moxie_error *error)
{
    mpy_transport *self = object;
    const visit v = enter();
    const int64_t bytes = 8 * each * self->ranks;
    PyObject *arguments =
        Py_BuildValue("(NNL)", view_of(send, bytes, false, "q"), view_of(recv, bytes, true, "q"), (long long)each);
    const moxie_status status = start(self, "counts", arguments, request, error);
    leave(&v);
    return status;
}

static moxie_status start_rows(mpy_transport *self, const char *name, const moxie_comm_rows *rows, int32_t senders,
                               bool reduced, int64_t *request, moxie_error *error)
{
    const visit v = enter();
    PyObject *object = rows_object(self, rows, senders, reduced);
    PyObject *arguments = object == NULL ? NULL : Py_BuildValue("(N)", object);
    const moxie_status status = start(self, name, arguments, request, error);
    leave(&v);
    return status;
}

static moxie_status alltoallv(void *self, const moxie_comm_rows *rows, int64_t *request, moxie_error *error)
{
    return start_rows(self, "alltoallv", rows, ((mpy_transport *)self)->ranks, false, request, error);
}

static moxie_status allgatherv(void *self, const moxie_comm_rows *rows, int64_t *request, moxie_error *error)
{
    return start_rows(self, "allgatherv", rows, 1, false, request, error);
}

static moxie_status reduce_scatter(void *self, const moxie_comm_rows *rows, int64_t *request, moxie_error *error)
{
    return start_rows(self, "reduce_scatter", rows, 0, true, request, error);
}

static moxie_status allreduce(void *self, void *values, int64_t n, moxie_comm_sum how, int64_t *request,
                              moxie_error *error)
{
    static const char *const names[] = { "sum_i64", "max_i64", "max_f32" };
    const bool f32 = how == MOXIE_COMM_MAX_F32;
    const visit v = enter();
    PyObject *arguments = Py_BuildValue("(Ns)", view_of(values, n * (f32 ? 4 : 8), true, f32 ? "f" : "q"), names[how]);
    const moxie_status status = start(self, "allreduce", arguments, request, error);
    leave(&v);
    return status;
}

static moxie_status barrier(void *self, int64_t *request, moxie_error *error)
{
    const visit v = enter();
    const moxie_status status = start(self, "barrier", PyTuple_New(0), request, error);
    leave(&v);
    return status;
}

static moxie_status progress(void *object, int64_t request, int32_t *done, moxie_error *error)
{
    mpy_transport *self = object;
    const visit v = enter();
    PyObject *open = self->requests[request];
    int finished = 1;
    if (self->raised != NULL) { /* by wait(), which cannot fail itself */
        PyErr_SetObject((PyObject *)Py_TYPE(self->raised), self->raised);
        finished = -1;
    } else if (open != Py_None) {
        PyObject *answer = PyObject_CallMethod(self->object, "progress", "(O)", open);
        finished = answer == NULL ? -1 : PyObject_IsTrue(answer);
        Py_XDECREF(answer);
    }
    const moxie_status status = finished < 0 ? failed(self, "progress", error) : MOXIE_OK;
    if (finished == 1)
        Py_CLEAR(self->requests[request]);
    if (status == MOXIE_OK)
        *done = finished;
    leave(&v);
    return status;
}

static int32_t late(void *object, int64_t request)
{
    mpy_transport *self = object;
    const visit v = enter();
    PyObject *open = self->requests[request] == NULL ? Py_None : self->requests[request];
    PyObject *answer = PyObject_CallMethod(self->object, "late", "(O)", open);
    long rank = answer == NULL ? -1 : PyLong_AsLong(answer);
    Py_XDECREF(answer);
    if (PyErr_Occurred())
        rank = -1;
    PyErr_Clear();
    leave(&v);
    return rank < 0 || rank >= self->ranks ? -1 : (int32_t)rank;
}

static void drop_requests(mpy_transport *self)
{
    for (int i = 0; i < MPY_OPEN_REQUESTS; i++)
        Py_CLEAR(self->requests[i]);
}

/* Calls a method that cannot fail. */
static void tell(mpy_transport *self, const char *name)
{
    PyObject *answer = PyObject_CallMethod(self->object, name, NULL);
    if (answer == NULL)
        PyErr_WriteUnraisable(self->object);
    Py_XDECREF(answer);
}

static void cancel(void *self)
{
    const visit v = enter();
    tell(self, "cancel");
    drop_requests(self);
    leave(&v);
}

static void destroy(void *object)
{
    mpy_transport *self = object;
    const visit v = enter();
    tell(self, "destroy");
    drop_requests(self);
    Py_CLEAR(self->object);
    leave(&v);
}

static void wait_for(void *object, int64_t request, int32_t ms)
{
    mpy_transport *self = object;
    const visit v = enter();
    PyObject *open = self->requests[request] == NULL ? Py_None : self->requests[request];
    PyObject *answer = PyObject_CallMethod(self->object, "wait", "(Oi)", open, (int)ms);
    moxie_error unused;
    if (answer == NULL)
        (void)failed(self, "wait", &unused); /* the next progress() says so */
    Py_XDECREF(answer);
    leave(&v);
}

static moxie_status mask(void *object, int32_t rank, moxie_error *error)
{
    mpy_transport *self = object;
    const visit v = enter();
    PyObject *answer = PyObject_CallMethod(self->object, "mask", "i", (int)rank);
    const moxie_status status = answer == NULL ? failed(self, "mask", error) : MOXIE_OK;
    Py_XDECREF(answer);
    leave(&v);
    return status;
}

/* ---- the table ------------------------------------------------------------------------------ */

static int number_of(PyObject *object, const char *name, int32_t *out)
{
    PyObject *value = PyObject_GetAttrString(object, name);
    const long number = value == NULL ? -1 : PyLong_AsLong(value);
    Py_XDECREF(value);
    if (PyErr_Occurred())
        return -1;
    *out = number < INT32_MIN || number > INT32_MAX ? -1 : (int32_t)number;
    return 0;
}

/* Whether it has a method; None stands for a method that a subclass takes away. */
static bool has(PyObject *object, const char *name)
{
    PyObject *method = PyObject_GetAttrString(object, name);
    const bool there = method != NULL && method != Py_None;
    Py_XDECREF(method);
    PyErr_Clear();
    return there;
}

int mpy_transport_fill(mpy_transport *self, PyObject *object, moxie_transport *table)
{
    static const char *const needed[] = { "counts",  "alltoallv", "allgatherv", "reduce_scatter", "allreduce",
                                          "barrier", "progress",  "late",       "cancel",         "destroy" };
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
        if (!has(object, needed[i])) {
            PyErr_Format(PyExc_TypeError, "a transport has a method %s; %R does not: see moxie.comm.Transport",
                         needed[i], object);
            return -1;
        }
    *table = (moxie_transport) { .struct_size = sizeof *table,
                                 .self = self,
                                 .counts = counts,
                                 .alltoallv = alltoallv,
                                 .allgatherv = allgatherv,
                                 .reduce_scatter = reduce_scatter,
                                 .allreduce = allreduce,
                                 .barrier = barrier,
                                 .progress = progress,
                                 .late = late,
                                 .cancel = cancel,
                                 .destroy = destroy,
                                 .wait = has(object, "wait") ? wait_for : NULL,
                                 .mask = has(object, "mask") ? mask : NULL };
    if (number_of(object, "ranks", &table->ranks) < 0 || number_of(object, "rank", &table->rank) < 0)
        return -1;
    self->ranks = table->ranks;
    self->rank = table->rank;
    self->object = Py_NewRef(object);
    return 0;
}
