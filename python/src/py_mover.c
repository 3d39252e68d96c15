/* SPDX-License-Identifier: Apache-2.0
 *
 * py_mover.c - moxie.Mover: moves experts of a layer to another slot map, some with each step, between runs.
 */
#include "py_moxie.h"

PyObject *mpy_mover_type;

typedef struct mover {
    PyObject_HEAD moxie_mover *mover;
    mpy_layer *layer;  /* references */
    mpy_comm *comm;    /* or NULL */
    PyObject *weights; /* or NULL */
} mover;

static int create(mover *self, PyObject *target, moxie_mover_options *options)
{
    moxie_error error = { 0 };
    PyObject *keep = PyList_New(0);
    const moxie_slot_map *map = keep == NULL ? NULL : mpy_slot_map_from(target, keep);
    int failed = map == NULL;
    if (!failed && moxie_mover_create(mpy_layer_change(self->layer), map, options, &self->mover, &error) != MOXIE_OK) {
        mpy_raise(&error);
        failed = 1;
    }
    Py_XDECREF(keep);
    return failed ? -1 : 0;
}

static PyObject *mover_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = { "layer", "target", "comm", "weights", "max_bytes", NULL };
    PyObject *layer, *target, *comm = Py_None, *weights = Py_None;
    unsigned long long max_bytes = 0;
    moxie_mover_options options = MOXIE_MOVER_OPTIONS_INIT;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O!O|$OOK", names, mpy_layer_type, &layer, &target, &comm, &weights,
                                     &max_bytes))
        return NULL;
    options.max_bytes = max_bytes;
    if (comm != Py_None && (options.comm = mpy_comm_get(comm)) == NULL)
        return NULL;
    if (weights != Py_None && PyObject_IsInstance(weights, mpy_weights_type) != 1)
        return PyErr_Format(PyExc_TypeError, "weights: a moxie.Weights is wanted, not %R", weights);
    mover *self = (mover *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->layer = (mpy_layer *)Py_NewRef(layer);
    if (comm != Py_None)
        self->comm = (mpy_comm *)Py_NewRef(comm);
    mpy_comm_use(self->comm, 1);
    if (weights != Py_None) {
        self->weights = Py_NewRef(weights);
        options.weights = ((mpy_weights *)weights)->weights;
    }
    if (create(self, target, &options) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void mover_free(PyObject *object)
{
    mover *self = (mover *)object;
    PyTypeObject *type = Py_TYPE(object);
    moxie_mover_destroy(self->mover);
    mpy_comm_use(self->comm, -1);
    Py_XDECREF((PyObject *)self->layer);
    Py_XDECREF((PyObject *)self->comm);
    Py_XDECREF(self->weights);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *step(PyObject *object, PyObject *none)
{
    mover *self = (mover *)object;
    moxie_mover_report report = MOXIE_MOVER_REPORT_INIT;
    moxie_error error = { 0 };
    moxie_status status;
    (void)none;
    Py_BEGIN_ALLOW_THREADS mpy_comm_lock(self->comm);
    mpy_layer_alone(self->layer);
    status = moxie_mover_step(self->mover, &report, &error);
    mpy_layer_done(self->layer);
    mpy_comm_unlock(self->comm);
    Py_END_ALLOW_THREADS if (status == MOXIE_OK) return mpy_record_to_python(&mpy_mover_report_record, &report, NULL,
                                                                             NULL);
    mpy_comm_raise(self->comm, &error);
    return NULL;
}

static PyMethodDef methods[] = {
    { "step", step, METH_NOARGS,
      "step($self)\n--\n\n"
      "Moves some experts, on all ranks between two runs. Returns a MoverReport; its `left` is 0 at the end." },
    { NULL, NULL, 0, NULL }
};
static PyType_Slot slots[] = {
    { Py_tp_doc,
      "Mover(layer, target, *, comm=None, weights=None, max_bytes=0)\n--\n\n"
      "Moves a layer, made with spare_slots, to another SlotMap while it is used. Outputs keep their bytes.\n\n"
      "target     a moxie.SlotMap\n"
      "comm       records come from the ranks that have them; or\n"
      "weights    records are packed from these weights\n"
      "max_bytes  of all records of a step; 0: as many as there are spare slots for" },
    { Py_tp_new, mover_new },
    { Py_tp_dealloc, mover_free },
    { Py_tp_methods, methods },
    { 0, NULL }
};
PyType_Spec mpy_mover_spec = { "moxie.Mover", sizeof(mover), 0, Py_TPFLAGS_DEFAULT, slots };
