/* SPDX-License-Identifier: Apache-2.0
 *
 * py_comm.h - ranks: moxie.Comm (py_comm.c, its operations in py_comm_calls.c), and the transport whose functions are
 * those of a Python object (py_transport.c).
 */
#ifndef PY_COMM_H
#define PY_COMM_H

#include "py_moxie.h"

#include <pthread.h>

#include <moxie/moxie_comm.h>

enum { MPY_OPEN_REQUESTS = 8 }; /* as many as moxie_transport promises */

/* What the transport's functions get as `self`. It lies in its Comm. */
typedef struct mpy_transport {
    PyObject *object;                      /* a reference; NULL: a transport of libmoxie */
    PyObject *requests[MPY_OPEN_REQUESTS]; /* references; NULL: the number is free; None: done already */
    PyObject *raised;                      /* the first exception of the object since the last one was taken */
    int32_t ranks, rank;
} mpy_transport;

/* Fills the table from the object's attributes. `self` keeps a reference to it until it is destroyed. */
int mpy_transport_fill(mpy_transport *self, PyObject *object, moxie_transport *table);

struct mpy_comm {
    PyObject_HEAD moxie_comm *comm; /* NULL after close() */
    bool closing;                   /* close() waits for its turn, or is done */
    mpy_transport transport;
    char name[64];
    pthread_mutex_t lock; /* one operation at a time */
    bool has_lock;
    int32_t users; /* plans and movers, and calls under way that were given it */
};

/* Methods of Comm that exchange something (py_comm_calls.c). */
PyObject *mpy_comm_counts(PyObject *self, PyObject *args, PyObject *named);
PyObject *mpy_comm_alltoallv(PyObject *self, PyObject *args, PyObject *named);
PyObject *mpy_comm_allgatherv(PyObject *self, PyObject *args, PyObject *named);
PyObject *mpy_comm_reduce_scatter(PyObject *self, PyObject *args, PyObject *named);
PyObject *mpy_comm_allreduce(PyObject *self, PyObject *args, PyObject *named);
PyObject *mpy_comm_barrier(PyObject *self, PyObject *none);
/* The C comm; NULL with an exception after close(). */
moxie_comm *mpy_comm_open(mpy_comm *self);
/* Waits for this call's turn; without the GIL. MOXIE_ERR_ARGUMENT when close() was served before. In both cases
 * mpy_comm_unlock() ends it. */
moxie_status mpy_comm_turn(mpy_comm *self, moxie_error *error);

#endif /* PY_COMM_H */
