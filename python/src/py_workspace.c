/* SPDX-License-Identifier: Apache-2.0
 *
 * py_workspace.c - moxie.Workspace: host memory that plans of several layers use in turn. It is as large as the plan
 * that needs most, so a model's layers take that much once instead of each.
 */
#include "py_moxie.h"

#include <pthread.h>
#include <stdlib.h>

PyObject *mpy_workspace_type;

struct mpy_workspace {
    PyObject_HEAD void *memory;
    uint64_t bytes;
    pthread_mutex_t lock; /* held while a plan runs in it */
    bool has_lock;
};

int mpy_workspace_reserve(mpy_workspace *self, uint64_t bytes)
{
    bool failed = false;
    Py_BEGIN_ALLOW_THREADS pthread_mutex_lock(&self->lock);
    if (bytes > self->bytes) {
        void *larger = aligned_alloc(256, (size_t)(bytes + 255) / 256 * 256);
        failed = larger == NULL;
        if (!failed) {
            free(self->memory);
            self->memory = larger;
            self->bytes = bytes;
        }
    }
    pthread_mutex_unlock(&self->lock);
    Py_END_ALLOW_THREADS if (failed) PyErr_NoMemory();
    return failed ? -1 : 0;
}

void *mpy_workspace_lock(mpy_workspace *self)
{
    pthread_mutex_lock(&self->lock);
    return self->memory;
}

void mpy_workspace_unlock(mpy_workspace *self)
{
    pthread_mutex_unlock(&self->lock);
}

static PyObject *workspace_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = { NULL };
    if (!PyArg_ParseTupleAndKeywords(args, named, "", names))
        return NULL;
    mpy_workspace *self = (mpy_workspace *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->has_lock = pthread_mutex_init(&self->lock, NULL) == 0;
    if (self->has_lock)
        return (PyObject *)self;
    Py_DECREF(self);
    return PyErr_NoMemory();
}

static void workspace_free(PyObject *object)
{
    mpy_workspace *self = (mpy_workspace *)object;
    PyTypeObject *type = Py_TYPE(object);
    free(self->memory);
    if (self->has_lock)
        pthread_mutex_destroy(&self->lock);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *get_bytes(PyObject *object, void *none)
{
    (void)none;
    return PyLong_FromUnsignedLongLong(((mpy_workspace *)object)->bytes);
}

static PyGetSetDef attributes[] = { { "nbytes", get_bytes, NULL, "Bytes that it has now.", NULL },
                                    { NULL, NULL, NULL, NULL, NULL } };
static PyType_Slot slots[] = { { Py_tp_doc,
                                 "Workspace()\n--\n\n"
                                 "Host memory that plans share: layer.plan(workspace=w) for each. It grows to\n"
                                 "what the largest one needs. Their runs take turns, also in several threads,\n"
                                 "so a plan on several ranks cannot use one." },
                               { Py_tp_new, workspace_new },
                               { Py_tp_dealloc, workspace_free },
                               { Py_tp_getset, attributes },
                               { 0, NULL } };
PyType_Spec mpy_workspace_spec = { "moxie.Workspace", sizeof(mpy_workspace), 0, Py_TPFLAGS_DEFAULT, slots };
