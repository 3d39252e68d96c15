/* SPDX-License-Identifier: Apache-2.0
 *
 * py_executor.c - moxie.Executor, a pool of threads, and the options that calls have in common.
 *
 * `threads` of a call is None (one thread per processor), a number, or an Executor. Pools are made once for each number
 * and kept: plans of one process then share their threads, and their loops run one after the other.
 */
#include "py_moxie.h"

#include <string.h>

typedef struct executor {
    PyObject_HEAD moxie_executor *executor; /* NULL: one thread */
} executor;

PyObject *mpy_executor_type;
static PyObject *pools; /* {number of threads: Executor} */

static PyObject *executor_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = { "threads", NULL };
    int threads = 0;
    moxie_error error = { 0 };
    if (!PyArg_ParseTupleAndKeywords(args, named, "|i", names, &threads))
        return NULL;
    executor *self = (executor *)PyType_GenericAlloc(type, 0);
    if (self == NULL || threads == 1)
        return (PyObject *)self;
    moxie_status status;
    Py_BEGIN_ALLOW_THREADS status = moxie_executor_create(threads, &self->executor, &error);
    Py_END_ALLOW_THREADS if (status == MOXIE_OK) return (PyObject *)self;
    Py_DECREF(self);
    mpy_raise(&error);
    return NULL;
}

static void executor_free(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    moxie_executor_destroy(((executor *)object)->executor);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *get_threads(PyObject *object, void *none)
{
    const moxie_executor *e = ((executor *)object)->executor;
    (void)none;
    return PyLong_FromLong(e == NULL ? 1 : e->workers);
}

static PyGetSetDef attributes[] = { { "threads", get_threads, NULL, "How many threads, the caller's included.", NULL },
                                    { NULL, NULL, NULL, NULL, NULL } };
static PyType_Slot slots[] = {
    { Py_tp_doc, "Executor(threads=0)\n--\n\n"
                 "A pool of threads, the caller's included; 0 means one per processor that this process may use.\n\n"
                 "Layers and plans take it, or just a number, as `threads`. Calls that share a pool at the same time\n"
                 "take turns loop by loop, so Python threads that shall not wait for each other need threads=1 or a\n"
                 "pool each." },
    { Py_tp_new, executor_new },
    { Py_tp_dealloc, executor_free },
    { Py_tp_getset, attributes },
    { 0, NULL }
};
PyType_Spec mpy_executor_spec = { "moxie.Executor", sizeof(executor), 0, Py_TPFLAGS_DEFAULT, slots };

/* ---- options -------------------------------------------------------------------------------- */

/* A new reference to the pool for `threads`. */
static PyObject *executor_for(PyObject *threads)
{
    if (threads != NULL && Py_TYPE(threads) == (PyTypeObject *)mpy_executor_type) {
        Py_INCREF(threads);
        return threads;
    }
    PyObject *number = threads == NULL || threads == Py_None ? PyLong_FromLong(0) : PyNumber_Index(threads);
    if (number == NULL)
        return NULL;
    if (pools == NULL)
        pools = PyDict_New();
    PyObject *found = pools == NULL ? NULL : PyDict_GetItemWithError(pools, number);
    Py_XINCREF(found);
    if (found == NULL && !PyErr_Occurred()) {
        found = PyObject_CallFunction(mpy_executor_type, "O", number);
        if (found != NULL && PyDict_SetItem(pools, number, found) < 0)
            Py_CLEAR(found);
    }
    Py_DECREF(number);
    return found;
}

static int copy_name(const char *what, const char *from, char *to, size_t size)
{
    if (strlen(from) < size) {
        memcpy(to, from, strlen(from) + 1);
        return 0;
    }
    mpy_fail(MOXIE_ERR_ARGUMENT, "%s: there is no \"%s\"", what, from);
    return -1;
}

/* What concerns other ranks, adapters and graphs of calls. */
static int ranks_get(const mpy_option_args *args, mpy_options *out)
{
    out->c.max_adapter_rank = args->max_adapter_rank;
    out->c.exchange_capacity = args->exchange_capacity;
    out->c.spare_slots = args->spare_slots;
    out->c.exchange_chunk = args->exchange_chunk;
    out->c.exchange_streams = args->exchange_streams;
    out->c.call_graphs = args->call_graphs;
    if (args->token_layout != NULL &&
        mpy_choice_value(mpy_token_layouts, "token_layout", args->token_layout, &out->c.token_layout) < 0)
        return -1;
    if (args->degraded != NULL && mpy_choice_value(mpy_degraded, "degraded", args->degraded, &out->c.degraded) < 0)
        return -1;
    if (args->comm == NULL || args->comm == Py_None)
        return 0;
    out->c.comm = mpy_comm_get(args->comm);
    if (out->c.comm == NULL)
        return -1;
    out->comm = args->comm;
    mpy_comm_use((mpy_comm *)out->comm, 1);
    return 0;
}

int mpy_options_get(const mpy_option_args *args, mpy_options *out)
{
    *out = (mpy_options) { .c = MOXIE_OPTIONS_INIT };
    if (args->backend != NULL && mpy_choice_value(mpy_backends, "backend", args->backend, &out->c.backend) < 0)
        return -1;
    if (args->mode != NULL && mpy_choice_value(mpy_modes, "mode", args->mode, &out->c.mode) < 0)
        return -1;
    if (args->isa != NULL && copy_name("isa", args->isa, out->isa, sizeof out->isa) < 0)
        return -1;
    if (args->device != NULL && copy_name("device", args->device, out->device, sizeof out->device) < 0)
        return -1;
    out->executor = executor_for(args->threads);
    if (out->executor == NULL)
        return -1;
    out->c.executor = ((executor *)out->executor)->executor;
    out->c.isa = args->isa == NULL ? NULL : out->isa;
    out->c.device = args->device == NULL ? NULL : out->device;
    out->c.max_tokens = args->max_tokens;
    if (args->progress != NULL && args->progress != Py_None) {
        out->c.progress = mpy_progress;
        out->c.progress_user = out->progress = args->progress;
    }
    return ranks_get(args, out);
}

void mpy_options_release(mpy_options *options)
{
    Py_CLEAR(options->executor);
    mpy_comm_use((mpy_comm *)options->comm, -1);
    options->comm = NULL;
}

int mpy_size_get(PyObject *object, void *out)
{
    PyObject *whole = PyNumber_Index(object);
    if (whole == NULL)
        return 0;
    *(unsigned long long *)out = PyLong_AsUnsignedLongLong(whole);
    Py_DECREF(whole);
    return PyErr_Occurred() == NULL;
}

int mpy_path_or_none(PyObject *object, void *out)
{
    return object == Py_None ? 1 : PyUnicode_FSConverter(object, out);
}

int mpy_progress(void *user, int64_t done, int64_t total)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *answer = PyObject_CallFunction(user, "LL", (long long)done, (long long)total);
    int stop = answer == NULL ? 1 : PyObject_IsTrue(answer) != 0;
    Py_XDECREF(answer);
    if (stop == 0 && PyErr_CheckSignals() < 0)
        stop = 1;
    PyGILState_Release(gil);
    return stop;
}
