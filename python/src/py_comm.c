/* SPDX-License-Identifier: Apache-2.0
 *
 * py_comm.c - moxie.Comm: this rank's end of what carries rows between ranks. Made over a Python object, or by
 * libmoxie: threads of this process, MPI, NCCL.
 *
 * A comm does one thing at a time; runs of its plans and its own operations take turns. Who waits does not hold the
 * GIL.
 */
#include "py_comm.h"

#include <string.h>

PyObject *mpy_comm_type;

/* ---- what options and plans need ------------------------------------------------------------ */

moxie_comm *mpy_comm_open(mpy_comm *self)
{
    if (self->comm != NULL && !self->closing)
        return self->comm;
    mpy_fail(MOXIE_ERR_ARGUMENT, "this comm is closed");
    return NULL;
}

moxie_comm *mpy_comm_get(PyObject *object)
{
    if (PyObject_IsInstance(object, mpy_comm_type) == 1)
        return mpy_comm_open((mpy_comm *)object);
    PyErr_Format(PyExc_TypeError, "comm: a moxie.Comm is wanted, not %R", object);
    return NULL;
}

void mpy_comm_lock(mpy_comm *self)
{
    if (self != NULL)
        pthread_mutex_lock(&self->lock);
}

void mpy_comm_unlock(mpy_comm *self)
{
    if (self != NULL)
        pthread_mutex_unlock(&self->lock);
}

moxie_status mpy_comm_turn(mpy_comm *self, moxie_error *error)
{
    pthread_mutex_lock(&self->lock);
    if (self->comm != NULL)
        return MOXIE_OK;
    *error = (moxie_error) { .code = MOXIE_ERR_ARGUMENT, .offset = -1 };
    PyOS_snprintf(error->text, sizeof error->text, "another thread has closed this comm");
    return error->code;
}

void mpy_comm_use(mpy_comm *self, int32_t users)
{
    if (self != NULL)
        self->users += users;
}

/* An exception of the transport becomes the cause; what is no Exception, as KeyboardInterrupt, is raised itself. */
void mpy_comm_raise(mpy_comm *self, const moxie_error *error)
{
    PyObject *cause = self == NULL ? NULL : self->transport.raised, *type, *value, *trace;
    if (cause == NULL || PyErr_Occurred()) {
        mpy_raise(error);
        return;
    }
    self->transport.raised = NULL;
    if (!PyErr_GivenExceptionMatches(cause, PyExc_Exception)) {
        PyErr_SetObject((PyObject *)Py_TYPE(cause), cause);
        Py_DECREF(cause);
        return;
    }
    mpy_raise(error);
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyException_SetCause(value, cause); /* takes the reference */
    PyErr_Restore(type, value, trace);
}

void mpy_comm_forget(mpy_comm *self)
{
    if (self != NULL)
        Py_CLEAR(self->transport.raised);
}

/* ---- making --------------------------------------------------------------------------------- */

static mpy_comm *allocate(PyTypeObject *type)
{
    mpy_comm *self = (mpy_comm *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->has_lock = pthread_mutex_init(&self->lock, NULL) == 0;
    if (self->has_lock)
        return self;
    Py_DECREF(self);
    PyErr_NoMemory();
    return NULL;
}

static moxie_comm_options options_with(int deadline_ms)
{
    moxie_comm_options options = MOXIE_COMM_OPTIONS_INIT;
    options.deadline_ms = deadline_ms;
    return options;
}

/* The name that the table points to lives in the comm. */
static int name_of(mpy_comm *self, PyObject *object)
{
    PyObject *name = PyObject_GetAttrString(object, "name");
    const char *text = name == NULL ? NULL : PyUnicode_AsUTF8AndSize(name, NULL);
    if (text != NULL)
        PyOS_snprintf(self->name, sizeof self->name, "%s", text);
    Py_XDECREF(name);
    return text == NULL ? -1 : 0;
}

static PyObject *comm_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = { "transport", "deadline_ms", NULL };
    PyObject *object;
    int deadline = 0;
    moxie_transport table;
    moxie_error error = { 0 };
    if (!PyArg_ParseTupleAndKeywords(args, named, "O|$i", names, &object, &deadline))
        return NULL;
    mpy_comm *self = allocate(type);
    if (self == NULL || name_of(self, object) < 0 || mpy_transport_fill(&self->transport, object, &table) < 0) {
        Py_XDECREF((PyObject *)self);
        return NULL;
    }
    const moxie_comm_options options = options_with(deadline);
    moxie_status status;
    table.name = self->name;
    Py_BEGIN_ALLOW_THREADS status = moxie_comm_create(&table, &options, &self->comm, &error);
    Py_END_ALLOW_THREADS if (status == MOXIE_OK) return (PyObject *)self;
    mpy_comm_raise(self, &error);
    Py_DECREF(self);
    return NULL;
}

/* A list of comms that exist; those of `made` that find no object are destroyed. */
static PyObject *objects_of(PyTypeObject *type, moxie_comm **made, int32_t count)
{
    PyObject *list = PyList_New(count);
    for (int32_t i = 0; i < count; i++) {
        mpy_comm *self = list == NULL ? NULL : allocate(type);
        if (self == NULL) {
            moxie_comm_destroy(made[i]);
            Py_CLEAR(list);
            continue;
        }
        self->comm = made[i];
        PyList_SetItem(list, i, (PyObject *)self);
    }
    return list;
}

static PyObject *local(PyObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = { "ranks", "deadline_ms", NULL };
    int ranks, deadline = 0;
    moxie_comm *made[MOXIE_MAX_RANKS];
    moxie_error error = { 0 };
    if (!PyArg_ParseTupleAndKeywords(args, named, "i|$i", names, &ranks, &deadline))
        return NULL;
    const moxie_comm_options options = options_with(deadline);
    if (ranks <= MOXIE_MAX_RANKS && moxie_comm_local_create(ranks, &options, made, &error) == MOXIE_OK)
        return objects_of((PyTypeObject *)type, made, ranks);
    if (ranks > MOXIE_MAX_RANKS)
        mpy_fail(MOXIE_ERR_ARGUMENT, "Comm.local: %d ranks; 1 to %d are possible", ranks, MOXIE_MAX_RANKS);
    else
        mpy_raise(&error);
    return NULL;
}

static PyObject *finish(PyObject *type, moxie_status status, moxie_comm *made, const moxie_error *error)
{
    if (status != MOXIE_OK) {
        mpy_raise(error);
        return NULL;
    }
    PyObject *list = objects_of((PyTypeObject *)type, &made, 1);
    PyObject *one = list == NULL ? NULL : Py_NewRef(PyList_GetItem(list, 0));
    Py_XDECREF(list);
    return one;
}

static PyObject *mpi(PyObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = { "communicator", "deadline_ms", NULL };
    PyObject *given = Py_None;
    int deadline = 0;
    moxie_comm *made = NULL;
    moxie_error error = { 0 };
    moxie_status status;
    if (!PyArg_ParseTupleAndKeywords(args, named, "|O$i", names, &given, &deadline))
        return NULL;
    PyObject *address_of = given == Py_None ? NULL : mpy_import("moxie.comm", "_mpi_address");
    PyObject *number = address_of == NULL ? NULL : PyObject_CallFunctionObjArgs(address_of, given, NULL);
    const void *communicator = number == NULL ? NULL : PyLong_AsVoidPtr(number);
    Py_XDECREF(number);
    Py_XDECREF(address_of);
    if (PyErr_Occurred())
        return NULL;
    const moxie_comm_options options = options_with(deadline);
    Py_BEGIN_ALLOW_THREADS status = moxie_comm_mpi_create(communicator, &options, &made, &error);
    Py_END_ALLOW_THREADS return finish(type, status, made, &error);
}

/* For PyArg_Parse*: a path as bytes, or NULL for None. */
static int path_or_none(PyObject *object, void *out)
{
    return object == Py_None ? 1 : PyUnicode_FSConverter(object, out);
}

static PyObject *nccl(PyObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = { "ranks", "rank", "device", "id", "over", "file", "deadline_ms", NULL };
    moxie_nccl_options n = MOXIE_NCCL_OPTIONS_INIT;
    PyObject *over = Py_None, *file = NULL;
    const char *id = NULL;
    Py_ssize_t id_bytes = MOXIE_NCCL_ID_BYTES;
    int deadline = 0;
    moxie_comm *made = NULL;
    moxie_error error = { 0 };
    moxie_status status;
    if (!PyArg_ParseTupleAndKeywords(args, named, "|$iizz#OO&i", names, &n.ranks, &n.rank, &n.device, &id, &id_bytes,
                                     &over, path_or_none, &file, &deadline))
        return NULL;
    if (id != NULL && id_bytes != MOXIE_NCCL_ID_BYTES)
        mpy_fail(MOXIE_ERR_ARGUMENT, "Comm.nccl: id has %zd bytes; moxie.comm.nccl_id() makes one of %d", id_bytes,
                 MOXIE_NCCL_ID_BYTES);
    else if (over != Py_None)
        n.over = mpy_comm_get(over);
    PyObject *result = NULL;
    if (!PyErr_Occurred()) {
        n.id = id;
        n.file = file == NULL ? NULL : PyBytes_AsString(file);
        const moxie_comm_options options = options_with(deadline);
        Py_BEGIN_ALLOW_THREADS status = moxie_comm_nccl_create(&n, &options, &made, &error);
        Py_END_ALLOW_THREADS result = finish(type, status, made, &error);
    }
    Py_XDECREF(file);
    return result;
}

static PyObject *without(PyObject *object, PyObject *args, PyObject *named)
{
    static char *names[] = { "dead", "deadline_ms", NULL };
    mpy_comm *self = (mpy_comm *)object;
    PyObject *given, *dead;
    int deadline = 0;
    moxie_comm *made = NULL;
    moxie_error error = { 0 };
    const int64_t *shape;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O|$i", names, &given, &deadline) || mpy_comm_open(self) == NULL ||
        (dead = mpy_array_from(given, "dead", MOXIE_I32)) == NULL)
        return NULL;
    const moxie_comm_options options = options_with(deadline);
    (void)mpy_array_shape(dead, &shape);
    const moxie_status status =
        moxie_comm_local_without(self->comm, mpy_array_data(dead), (int32_t)shape[0], &options, &made, &error);
    Py_DECREF(dead);
    return finish((PyObject *)Py_TYPE(object), status, made, &error);
}

/* ---- the end -------------------------------------------------------------------------------- */

static void end(mpy_comm *self)
{
    Py_BEGIN_ALLOW_THREADS if (self->has_lock) pthread_mutex_lock(&self->lock);
    moxie_comm_destroy(self->comm);
    self->comm = NULL;
    if (self->has_lock)
        pthread_mutex_unlock(&self->lock);
    Py_END_ALLOW_THREADS Py_CLEAR(self->transport.object);
    Py_CLEAR(self->transport.raised);
}

static void comm_free(PyObject *object)
{
    mpy_comm *self = (mpy_comm *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject *pending[3];
    PyErr_Fetch(&pending[0], &pending[1], &pending[2]);
    end(self);
    PyErr_Restore(pending[0], pending[1], pending[2]);
    if (self->has_lock)
        pthread_mutex_destroy(&self->lock);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *comm_close(PyObject *object, PyObject *none)
{
    mpy_comm *self = (mpy_comm *)object;
    (void)none;
    if (self->users > 0)
        return mpy_fail(MOXIE_ERR_ARGUMENT,
                        "close: %d plans or calls under way still use this comm; end and delete them first",
                        self->users),
               NULL;
    self->closing = true; /* from now on nothing else begins to wait for its turn */
    end(self);
    Py_RETURN_NONE;
}

static PyObject *comm_enter(PyObject *object, PyObject *none)
{
    (void)none;
    return Py_NewRef(object);
}

static PyObject *comm_exit(PyObject *object, PyObject *args)
{
    (void)args;
    return comm_close(object, NULL);
}

/* ---- attributes ----------------------------------------------------------------------------- */

static PyObject *get_ranks(PyObject *object, void *none)
{
    moxie_comm *comm = mpy_comm_open((mpy_comm *)object);
    (void)none;
    return comm == NULL ? NULL : PyLong_FromLong(moxie_comm_ranks(comm));
}

static PyObject *get_rank(PyObject *object, void *none)
{
    moxie_comm *comm = mpy_comm_open((mpy_comm *)object);
    (void)none;
    return comm == NULL ? NULL : PyLong_FromLong(moxie_comm_rank(comm));
}

static PyObject *get_name(PyObject *object, void *none)
{
    moxie_comm *comm = mpy_comm_open((mpy_comm *)object);
    (void)none;
    return comm == NULL ? NULL : PyUnicode_FromString(moxie_comm_name(comm));
}

static PyObject *lost(PyObject *object, PyObject *number)
{
    moxie_comm *comm = mpy_comm_open((mpy_comm *)object);
    const long rank = PyLong_AsLong(number);
    if (comm == NULL || PyErr_Occurred())
        return NULL;
    return PyBool_FromLong(moxie_comm_lost(comm, (int32_t)rank));
}

#define NAMED(f) (PyCFunction)(void (*)(void))(f)

static PyMethodDef methods[] = {
    { "local", NAMED(local), METH_CLASS | METH_VARARGS | METH_KEYWORDS,
      "local($type, ranks, *, deadline_ms=0)\n--\n\n"
      "A list of `ranks` comms, one for each of as many threads of this process." },
    { "mpi", NAMED(mpi), METH_CLASS | METH_VARARGS | METH_KEYWORDS,
      "mpi($type, communicator=None, *, deadline_ms=0)\n--\n\n"
      "A comm over MPI, by libmoxie's module for Open MPI or MPICH. Collective. MPI must be initialised.\n\n"
      "communicator  one of mpi4py's, or the address of an MPI_Comm; None: MPI_COMM_WORLD. It is duplicated" },
    { "nccl", NAMED(nccl), METH_CLASS | METH_VARARGS | METH_KEYWORDS,
      "nccl($type, *, ranks=0, rank=0, device=None, id=None, over=None, file=None, deadline_ms=0)\n--\n\n"
      "A comm over NCCL, one rank a CUDA device. Collective. Ranks find each other by one of\n\n"
      "id    the bytes of moxie.comm.nccl_id() of one rank, which all have\n"
      "over  another comm of the same ranks, which says ranks and rank, too\n"
      "file  a path that rank 0 writes and the others wait for" },
    { "without", NAMED(without), METH_VARARGS | METH_KEYWORDS,
      "without($self, dead, *, deadline_ms=0)\n--\n\n"
      "After a failure: a comm of the ranks without those of `dead`, for a comm of Comm.local(). Each rank that is "
      "left\n"
      "calls it once, with the same list." },
    { "lost", lost, METH_O,
      "lost($self, rank, /)\n--\n\nWhether this comm gave up on a rank, or broke because of it." },
    { "counts", NAMED(mpy_comm_counts), METH_VARARGS | METH_KEYWORDS,
      "counts($self, send)\n--\n\n"
      "All-to-all of numbers: send has [ranks * n] integers, n for each rank; returns as many, n from each rank." },
    { "alltoallv", NAMED(mpy_comm_alltoallv), METH_VARARGS | METH_KEYWORDS,
      "alltoallv($self, send, recv, send_rows, recv_rows, *, send_at=None, recv_at=None)\n--\n\n"
      "Rows to and from every rank: send_rows[r] rows of `send` from row send_at[r] on go to rank r, recv_rows[r] "
      "rows\n"
      "come from there to row recv_at[r] of `recv`. None: they lie one after the other. Both arrays are contiguous, "
      "on\n"
      "the host, and have rows of the same bytes." },
    { "allgatherv", NAMED(mpy_comm_allgatherv), METH_VARARGS | METH_KEYWORDS,
      "allgatherv($self, send, recv, recv_rows, *, recv_at=None)\n--\n\n"
      "All rows of `send` go to every rank; recv_rows[r] rows come from rank r to row recv_at[r] of `recv`." },
    { "reduce_scatter", NAMED(mpy_comm_reduce_scatter), METH_VARARGS | METH_KEYWORDS,
      "reduce_scatter($self, send, recv, recv_rows, *, recv_at=None)\n--\n\n"
      "Sums float32 rows of all ranks, in rank order: `recv` gets the recv_rows[rank] rows from row recv_at[rank] "
      "on." },
    { "allreduce", NAMED(mpy_comm_allreduce), METH_VARARGS | METH_KEYWORDS,
      "allreduce($self, values, how=\"sum_i64\")\n--\n\n"
      "Replaces int64 or float32 values by their \"sum_i64\", \"max_i64\" or \"max_f32\" over all ranks." },
    { "barrier", mpy_comm_barrier, METH_NOARGS, "barrier($self)\n--\n\nReturns when all ranks have called it." },
    { "close", comm_close, METH_NOARGS,
      "close($self)\n--\n\nEnds it, as `with` does; over MPI and NCCL all ranks do it. Its plans must be gone." },
    { "__enter__", comm_enter, METH_NOARGS, "Itself." },
    { "__exit__", comm_exit, METH_VARARGS, "Closes it." },
    { NULL, NULL, 0, NULL }
};
static PyGetSetDef attributes[] = { { "ranks", get_ranks, NULL, "How many ranks there are.", NULL },
                                    { "rank", get_rank, NULL, "The number of this one.", NULL },
                                    { "name", get_name, NULL, "The transport's name: \"local\", \"mpi\", ...", NULL },
                                    { NULL, NULL, NULL, NULL, NULL } };
static PyType_Slot slots[] = {
    { Py_tp_doc,
      "Comm(transport, *, deadline_ms=0)\n--\n\n"
      "This rank's end of what carries rows between ranks. Layer(..., comm=) and layer.plan() take it.\n\n"
      "transport    an object with the methods of moxie.comm.Transport. Comm.local, Comm.mpi and Comm.nccl use\n"
      "             libmoxie's own; moxie.comm has from_mpi4py and from_torch_distributed\n"
      "deadline_ms  how long a rank waits for others in one operation; 0 means 30000\n\n"
      "A rank that is dead or late raises moxie.TimedOut, and the comm is broken then. An exception of the\n"
      "transport is the cause (__cause__) of the moxie.Error that is raised." },
    { Py_tp_new, comm_new },
    { Py_tp_dealloc, comm_free },
    { Py_tp_methods, methods },
    { Py_tp_getset, attributes },
    { 0, NULL }
};
PyType_Spec mpy_comm_spec = { "moxie.Comm", sizeof(mpy_comm), 0, Py_TPFLAGS_DEFAULT, slots };

/* ---- functions of the module ---------------------------------------------------------------- */

static PyObject *nccl_id(PyObject *module, PyObject *none)
{
    char id[MOXIE_NCCL_ID_BYTES];
    moxie_error error = { 0 };
    (void)module, (void)none;
    if (moxie_comm_nccl_id(id, &error) == MOXIE_OK)
        return PyBytes_FromStringAndSize(id, sizeof id);
    mpy_raise(&error);
    return NULL;
}

static PyObject *transports(PyObject *module, PyObject *none)
{
    PyObject *list = PyList_New(0);
    moxie_transport_info info = MOXIE_TRANSPORT_INFO_INIT;
    (void)module, (void)none;
    for (int32_t i = 0; list != NULL && moxie_transport_at(i, &info); i++) {
        PyObject *item = mpy_record_to_python(&mpy_transport_info_record, &info, NULL, NULL);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

PyMethodDef mpy_comm_functions[] = {
    { "nccl_id", nccl_id, METH_NOARGS, "nccl_id()\n--\n\nA new id, for one comm of NCCL: bytes that all ranks need." },
    { "transports", transports, METH_NOARGS,
      "transports()\n--\n\nA list of TransportInfo: what libmoxie brings, and whether it is usable here and now." },
    { NULL, NULL, 0, NULL }
};
