/* SPDX-License-Identifier: Apache-2.0
 *
 * py_comm_calls.c - the operations of a moxie.Comm for the caller's own use: arrays are viewed, checked against the
 * numbers of rows, and handed to libmoxie without the GIL.
 */
#include "py_comm.h"

#include <string.h>

/* ---- arguments ------------------------------------------------------------------------------ */

/* Where each rank's rows begin: given, or one behind the other. */
static PyObject *starts_from(PyObject *object, const char *name, PyObject *rows, int64_t count)
{
    if (object != NULL && object != Py_None)
        return mpy_array_of_numbers(object, name, MOXIE_I64, count);
    PyObject *out = mpy_array_new(MOXIE_I64, 1, &count);
    int64_t at = 0;
    for (int64_t i = 0; out != NULL && i < count; i++) {
        ((int64_t *)mpy_array_data(out))[i] = at;
        at += ((const int64_t *)mpy_array_data(rows))[i];
    }
    return out;
}

/* One operation on rows: the views, the numbers, and what the library gets. */
typedef struct rows_call {
    mpy_view send, recv;
    bool has_send, has_recv;
    PyObject *send_rows, *send_at, *recv_rows, *recv_at; /* references */
    moxie_comm_rows rows;
} rows_call;

static void release(rows_call *c)
{
    if (c->has_send)
        mpy_view_release(&c->send);
    if (c->has_recv)
        mpy_view_release(&c->recv);
    Py_XDECREF(c->send_rows);
    Py_XDECREF(c->send_at);
    Py_XDECREF(c->recv_rows);
    Py_XDECREF(c->recv_at);
}

static int64_t row_bytes(const mpy_view *v)
{
    int64_t bytes = v->item_bytes;
    for (int i = 1; i < v->axes; i++)
        bytes *= v->shape[i];
    return bytes;
}

static int view_rows(const char *name, PyObject *object, bool writable, mpy_view *view, bool *has)
{
    if (mpy_view_get(object, name, writable, 0, view) < 0)
        return -1;
    *has = true;
    if (view->axes >= 1 && mpy_view_contiguous(view) && !mpy_view_on_gpu(view))
        return 0;
    PyObject *words = mpy_view_words(view);
    mpy_fail(MOXIE_ERR_ARGUMENT, "%s: a contiguous array on the host is wanted, whose first axis is rows, not %V", name,
             words, "?");
    Py_XDECREF(words);
    return -1;
}

/* No range goes beyond its array. */
static int check_ranges(const char *name, const mpy_view *view, const int64_t *rows, const int64_t *at, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (rows[i] < 0 || at[i] < 0 || rows[i] > view->shape[0] || at[i] > view->shape[0] - rows[i]) {
            mpy_fail(MOXIE_ERR_ARGUMENT, "%s: it has %lld rows; those of rank %lld are %lld from row %lld on", name,
                     (long long)view->shape[0], (long long)i, (long long)rows[i], (long long)at[i]);
            return -1;
        }
    return 0;
}

static int take_rows(rows_call *c, PyObject *send, PyObject *recv)
{
    if (view_rows("send", send, false, &c->send, &c->has_send) < 0 ||
        view_rows("recv", recv, true, &c->recv, &c->has_recv) < 0)
        return -1;
    if (row_bytes(&c->send) != row_bytes(&c->recv))
        return mpy_fail(MOXIE_ERR_ARGUMENT, "a row of send has %lld bytes, one of recv %lld",
                        (long long)row_bytes(&c->send), (long long)row_bytes(&c->recv)),
               -1;
    c->rows.send = c->send.data, c->rows.recv = c->recv.data;
    c->rows.row_bytes = (uint64_t)row_bytes(&c->send);
    return 0;
}

static int take_numbers(rows_call *c, PyObject *recv_rows, PyObject *recv_at, int64_t ranks)
{
    c->recv_rows = mpy_array_of_numbers(recv_rows, "recv_rows", MOXIE_I64, ranks);
    c->recv_at = c->recv_rows == NULL ? NULL : starts_from(recv_at, "recv_at", c->recv_rows, ranks);
    if (c->recv_at == NULL)
        return -1;
    c->rows.recv_rows = mpy_array_data(c->recv_rows), c->rows.recv_at = mpy_array_data(c->recv_at);
    c->rows.send_rows = mpy_array_data(c->send_rows), c->rows.send_at = mpy_array_data(c->send_at);
    return 0;
}

/* ---- operations ----------------------------------------------------------------------------- */

typedef moxie_status (*rows_operation)(moxie_comm *comm, const moxie_comm_rows *rows, moxie_error *error);

static PyObject *perform(mpy_comm *self, rows_call *c, rows_operation operation)
{
    moxie_error error = { 0 };
    moxie_status status;
    Py_BEGIN_ALLOW_THREADS status = mpy_comm_turn(self, &error);
    if (status == MOXIE_OK)
        status = operation(self->comm, &c->rows, &error);
    mpy_comm_unlock(self);
    Py_END_ALLOW_THREADS if (status == MOXIE_OK) Py_RETURN_NONE;
    mpy_comm_raise(self, &error);
    return NULL;
}

PyObject *mpy_comm_alltoallv(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = { "send", "recv", "send_rows", "recv_rows", "send_at", "recv_at", NULL };
    mpy_comm *self = (mpy_comm *)object;
    PyObject *send, *recv, *send_rows, *recv_rows, *send_at = NULL, *recv_at = NULL, *done = NULL;
    rows_call c = { 0 };
    if (!PyArg_ParseTupleAndKeywords(args, named, "OOOO|$OO", names, &send, &recv, &send_rows, &recv_rows, &send_at,
                                     &recv_at) ||
        mpy_comm_open(self) == NULL)
        return NULL;
    const int64_t ranks = moxie_comm_ranks(self->comm);
    c.send_rows = mpy_array_of_numbers(send_rows, "send_rows", MOXIE_I64, ranks);
    c.send_at = c.send_rows == NULL ? NULL : starts_from(send_at, "send_at", c.send_rows, ranks);
    if (c.send_at != NULL && take_rows(&c, send, recv) == 0 && take_numbers(&c, recv_rows, recv_at, ranks) == 0 &&
        check_ranges("send", &c.send, c.rows.send_rows, c.rows.send_at, ranks) == 0 &&
        check_ranges("recv", &c.recv, c.rows.recv_rows, c.rows.recv_at, ranks) == 0)
        done = perform(self, &c, moxie_comm_alltoallv);
    release(&c);
    return done;
}

/* send, recv, recv_rows, recv_at of the other two: all rows of `send` are sent. */
static int take_common(mpy_comm *self, rows_call *c, PyObject *args, PyObject *named)
{
    static char *names[] = { "send", "recv", "recv_rows", "recv_at", NULL };
    PyObject *send, *recv, *recv_rows, *recv_at = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, named, "OOO|$O", names, &send, &recv, &recv_rows, &recv_at) ||
        mpy_comm_open(self) == NULL || take_rows(c, send, recv) < 0)
        return -1;
    const int64_t ranks = moxie_comm_ranks(self->comm);
    c->send_rows = mpy_array_new(MOXIE_I64, 1, &ranks);
    c->send_at = mpy_array_new(MOXIE_I64, 1, &ranks);
    if (c->send_rows == NULL || c->send_at == NULL)
        return -1;
    for (int64_t i = 0; i < ranks; i++) {
        ((int64_t *)mpy_array_data(c->send_rows))[i] = c->send.shape[0];
        ((int64_t *)mpy_array_data(c->send_at))[i] = 0;
    }
    return take_numbers(c, recv_rows, recv_at, ranks);
}

PyObject *mpy_comm_allgatherv(PyObject *object, PyObject *args, PyObject *named)
{
    mpy_comm *self = (mpy_comm *)object;
    rows_call c = { 0 };
    PyObject *done = NULL;
    if (take_common(self, &c, args, named) == 0 &&
        check_ranges("recv", &c.recv, c.rows.recv_rows, c.rows.recv_at, moxie_comm_ranks(self->comm)) == 0)
        done = perform(self, &c, moxie_comm_allgatherv);
    release(&c);
    return done;
}

PyObject *mpy_comm_reduce_scatter(PyObject *object, PyObject *args, PyObject *named)
{
    mpy_comm *self = (mpy_comm *)object;
    rows_call c = { 0 };
    PyObject *done = NULL;
    const int64_t none = 0;
    if (take_common(self, &c, args, named) == 0 && mpy_comm_open(self) != NULL) {
        if (c.send.dtype != MOXIE_F32 || c.recv.dtype != MOXIE_F32)
            mpy_fail(MOXIE_ERR_ARGUMENT, "reduce_scatter: rows of f32 are wanted");
        else if (check_ranges("send", &c.send, c.rows.recv_rows, c.rows.recv_at, moxie_comm_ranks(self->comm)) == 0 &&
                 check_ranges("recv", &c.recv, &c.rows.recv_rows[moxie_comm_rank(self->comm)], &none, 1) == 0)
            done = perform(self, &c, moxie_comm_reduce_scatter);
    }
    release(&c);
    return done;
}

PyObject *mpy_comm_counts(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = { "send", NULL };
    mpy_comm *self = (mpy_comm *)object;
    PyObject *given, *out = NULL;
    moxie_error error = { 0 };
    if (!PyArg_ParseTupleAndKeywords(args, named, "O", names, &given) || mpy_comm_open(self) == NULL)
        return NULL;
    const int64_t ranks = moxie_comm_ranks(self->comm), count = PySequence_Size(given);
    if (count < 0)
        return NULL;
    if (count % ranks != 0)
        return mpy_fail(MOXIE_ERR_ARGUMENT, "counts: %lld numbers are no multiple of %lld ranks", (long long)count,
                        (long long)ranks),
               NULL;
    PyObject *send = mpy_array_of_numbers(given, "counts", MOXIE_I64, count), *recv = NULL;
    if (send != NULL && (recv = mpy_array_new(MOXIE_I64, 1, &count)) != NULL) {
        moxie_status status;
        Py_BEGIN_ALLOW_THREADS status = mpy_comm_turn(self, &error);
        if (status == MOXIE_OK)
            status = moxie_comm_counts(self->comm, mpy_array_data(send), mpy_array_data(recv), count / ranks, &error);
        mpy_comm_unlock(self);
        Py_END_ALLOW_THREADS if (status != MOXIE_OK) mpy_comm_raise(self, &error);
        else out = PyObject_CallMethod(recv, "tolist", NULL);
    }
    Py_XDECREF(recv);
    Py_XDECREF(send);
    return out;
}

static const mpy_choice sums[] = {
    { "sum_i64", MOXIE_COMM_SUM_I64 }, { "max_i64", MOXIE_COMM_MAX_I64 }, { "max_f32", MOXIE_COMM_MAX_F32 }, { NULL, 0 }
};

PyObject *mpy_comm_allreduce(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = { "values", "how", NULL };
    mpy_comm *self = (mpy_comm *)object;
    PyObject *given;
    const char *name = "sum_i64";
    int32_t how = 0;
    mpy_view values;
    moxie_error error = { 0 };
    moxie_status status = MOXIE_OK;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O|s", names, &given, &name) || mpy_comm_open(self) == NULL ||
        mpy_choice_value(sums, "how", name, &how) < 0 || mpy_view_get(given, "values", true, 0, &values) < 0)
        return NULL;
    const moxie_dtype wanted = how == MOXIE_COMM_MAX_F32 ? MOXIE_F32 : MOXIE_I64;
    if (values.axes != 1 || values.dtype != wanted || !mpy_view_contiguous(&values) || mpy_view_on_gpu(&values)) {
        PyObject *words = mpy_view_words(&values);
        mpy_fail(MOXIE_ERR_ARGUMENT, "values: %s [n] on the host is wanted, not %V", moxie_dtype_name(wanted), words,
                 "?");
        Py_XDECREF(words);
    } else {
        Py_BEGIN_ALLOW_THREADS status = mpy_comm_turn(self, &error);
        if (status == MOXIE_OK)
            status = moxie_comm_allreduce(self->comm, values.data, values.shape[0], (moxie_comm_sum)how, &error);
        mpy_comm_unlock(self);
        Py_END_ALLOW_THREADS if (status != MOXIE_OK) mpy_comm_raise(self, &error);
    }
    mpy_view_release(&values);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

PyObject *mpy_comm_barrier(PyObject *object, PyObject *none)
{
    mpy_comm *self = (mpy_comm *)object;
    moxie_error error = { 0 };
    moxie_status status;
    (void)none;
    if (mpy_comm_open(self) == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = mpy_comm_turn(self, &error);
    if (status == MOXIE_OK)
        status = moxie_comm_barrier(self->comm, &error);
    mpy_comm_unlock(self);
    Py_END_ALLOW_THREADS if (status == MOXIE_OK) Py_RETURN_NONE;
    mpy_comm_raise(self, &error);
    return NULL;
}
