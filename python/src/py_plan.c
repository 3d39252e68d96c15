/* SPDX-License-Identifier: Apache-2.0
 *
 * py_plan.c - Plan: the kernels chosen for a layer, with the memory that its runs need. The runs are in py_run.c.
 *
 * Plan(layer, ...) can run; Plan(config, ...) only says what would be chosen. The workspace of host plans is allocated
 * here, once; the pages of it that no run touches cost nothing.
 */
#include "py_store.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

PyObject *mpy_plan_type;

void *mpy_plan_workspace(uint64_t bytes)
{
    void *memory = aligned_alloc(256, (size_t)(bytes + 255) / 256 * 256 + 256);
    if (memory == NULL)
        PyErr_NoMemory();
    return memory;
}

static int make_lock(mpy_plan *self)
{
    pthread_mutex_t *lock = malloc(sizeof *lock);
    if (lock == NULL || pthread_mutex_init(lock, NULL) != 0) {
        free(lock);
        PyErr_NoMemory();
        return -1;
    }
    self->lock = lock;
    return 0;
}

static int create(mpy_plan *self, const mpy_options *options)
{
    moxie_error error = { 0 };
    moxie_status status;
    const moxie_layer *layer = mpy_layer_get(self->layer);
    self->comm = (mpy_comm *)Py_XNewRef(options->comm);
    mpy_comm_use(self->comm, 1);
    Py_BEGIN_ALLOW_THREADS mpy_comm_lock(self->comm);
    mpy_layer_share(self->layer);
    status = moxie_plan_create(layer, &options->c, &self->plan, &error);
    mpy_layer_done(self->layer);
    mpy_comm_unlock(self->comm);
    Py_END_ALLOW_THREADS if (status != MOXIE_OK)
    {
        mpy_comm_raise(self->comm, &error);
        return -1;
    }
    self->sizes = *mpy_layer_sizes(self->layer);
    self->device = options->c.device == NULL ? 0 : (int32_t)strtol(options->c.device, NULL, 10);
    self->workspace_bytes = moxie_plan_workspace_bytes(self->plan);
    for (int32_t i = 0; i < moxie_plan_step_count(self->plan); i++) {
        const moxie_plan_step *step = moxie_plan_step_at(self->plan, i);
        self->on_gpu = self->on_gpu || (step->chosen && strncmp(step->isa, "cuda", 4) == 0);
    }
    if (self->on_gpu && self->shared == NULL)
        return make_lock(self);
    if (self->shared != NULL)
        return mpy_workspace_reserve(self->shared, self->workspace_bytes) < 0 ? -1 : make_lock(self);
    self->host_workspace = mpy_plan_workspace(self->workspace_bytes);
    return self->host_workspace == NULL ? -1 : make_lock(self);
}

/* Of a LayerConfig, or of an ExpertFile: then kernels that read another layout are rejected. */
static int explain(mpy_plan *self, PyObject *object, const mpy_options *options)
{
    moxie_layer_config c;
    moxie_error error = { 0 };
    moxie_status status = MOXIE_OK;
    PyObject *keep = PyList_New(0);
    const bool of_file = PyObject_TypeCheck(object, (PyTypeObject *)mpy_expert_file_type);
    int failed = keep == NULL || (!of_file && mpy_config_from_python(object, &c, keep) < 0);
    if (!failed)
        status = of_file ? moxie_expert_file_explain(mpy_stored_file(object, 0), NULL, &options->c, &self->plan, &error)
                         : moxie_plan_explain(&c, &options->c, &self->plan, &error);
    if (status != MOXIE_OK)
        mpy_raise(&error);
    Py_XDECREF(keep);
    return failed || status != MOXIE_OK ? -1 : make_lock(self);
}

static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = { "layer", MPY_OPTION_KEYWORDS, "workspace", NULL };
    mpy_option_args o = { 0 };
    mpy_options options = { 0 };
    PyObject *layer, *workspace = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O|$" MPY_OPTION_FORMATS "O", names, &layer, MPY_OPTION_TARGETS(o),
                                     &workspace))
        return NULL;
    mpy_plan *self = mpy_options_get(&o, &options) < 0 ? NULL : (mpy_plan *)PyType_GenericAlloc(type, 0);
    if (self == NULL) {
        mpy_options_release(&options);
        return NULL;
    }
    self->executor = Py_NewRef(options.executor);
    const int runs = PyObject_IsInstance(layer, mpy_layer_type);
    if (runs == 1) {
        self->layer = (mpy_layer *)layer;
        Py_INCREF(layer);
    }
    if (Py_TYPE(workspace) == (PyTypeObject *)mpy_workspace_type)
        self->shared = (mpy_workspace *)Py_NewRef(workspace);
    else if (workspace != Py_None)
        self->gpu_workspace = Py_NewRef(workspace);
    if (self->shared != NULL && options.comm != NULL) {
        mpy_fail(MOXIE_ERR_ARGUMENT, "workspace: ranks of one process would wait for each other in a shared workspace");
        Py_CLEAR(self);
    } else if (runs < 0 || (runs ? create(self, &options) : explain(self, layer, &options)) < 0)
        Py_CLEAR(self);
    mpy_options_release(&options);
    return (PyObject *)self;
}

static void plan_free(PyObject *object)
{
    mpy_plan *self = (mpy_plan *)object;
    PyTypeObject *type = Py_TYPE(object);
    moxie_plan_destroy(self->plan);
    mpy_comm_use(self->comm, -1);
    Py_XDECREF((PyObject *)self->comm);
    free(self->host_workspace);
    Py_XDECREF(self->gpu_workspace);
    Py_XDECREF((PyObject *)self->shared);
    Py_XDECREF((PyObject *)self->layer);
    Py_XDECREF(self->executor);
    if (self->lock != NULL)
        pthread_mutex_destroy(self->lock);
    free(self->lock);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *get_steps(PyObject *object, void *none)
{
    const moxie_plan *plan = ((mpy_plan *)object)->plan;
    PyObject *list = PyList_New(0);
    (void)none;
    for (int32_t i = 0; list != NULL && i < moxie_plan_step_count(plan); i++) {
        PyObject *step = mpy_record_to_python(&mpy_step_record, moxie_plan_step_at(plan, i), NULL, NULL);
        if (step == NULL || PyList_Append(list, step) < 0)
            Py_CLEAR(list);
        Py_XDECREF(step);
    }
    return list;
}

static PyObject *get_losses(PyObject *object, void *none)
{
    moxie_losses losses = MOXIE_LOSSES_INIT;
    moxie_error error = { 0 };
    (void)none;
    if (moxie_plan_losses(((mpy_plan *)object)->plan, &losses, &error) == MOXIE_OK)
        return mpy_record_to_python(&mpy_losses_record, &losses, NULL, NULL);
    mpy_raise(&error);
    return NULL;
}

static PyObject *phases(PyObject *object, PyObject *args)
{
    int worker = 0;
    moxie_plan_phase phase = MOXIE_PLAN_PHASE_INIT;
    PyObject *list = PyArg_ParseTuple(args, "|i", &worker) ? PyList_New(0) : NULL;
    for (int32_t i = 0; list != NULL && moxie_plan_phase_at(((mpy_plan *)object)->plan, worker, i, &phase); i++) {
        PyObject *item = mpy_record_to_python(&mpy_phase_record, &phase, NULL, NULL);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *get_workspace_bytes(PyObject *object, void *none)
{
    (void)none;
    return PyLong_FromUnsignedLongLong(((mpy_plan *)object)->workspace_bytes);
}

static PyObject *get_on_gpu(PyObject *object, void *none)
{
    (void)none;
    return PyBool_FromLong(((mpy_plan *)object)->on_gpu);
}

static PyObject *get_layer(PyObject *object, void *none)
{
    PyObject *layer = (PyObject *)((mpy_plan *)object)->layer;
    (void)none;
    layer = layer == NULL ? Py_None : layer;
    Py_INCREF(layer);
    return layer;
}

#define CALL(f) (PyCFunction)(void (*)(void))(f), METH_FASTCALL | METH_KEYWORDS

static PyMethodDef methods[] = {
    { "run", CALL(mpy_plan_run),
      "run($self, hidden, *, out=None, ids=None, weights=None, logits=None, router_hidden=None,\n"
      "    token_ids=None, ids_out=None, weights_out=None, logits_out=None, padding=None,\n"
      "    bias_choice=None, adapters=None, adapter_ids=None, stream=None)\n--\n\n"
      "Runs the layer on T tokens: router, experts, weighted sum. Returns `out`.\n\n"
      "hidden         [T, H] of the layer's dtype\n"
      "out            [T, H] likewise; None: a new array of the kind that `hidden` is. It may not overlap an input\n"
      "ids, weights   [T, K] int32 and float32: the experts of each token, when the caller chose them. An id below 0 "
      "or\n"
      "               not below E is skipped\n"
      "logits         [T, E] float32, bfloat16 or float16, from which to choose; else the layer's own router runs\n"
      "router_hidden  [T, router_width] what the router reads; None: hidden\n"
      "token_ids      [T] int32, where a table of token ids chooses\n"
      "ids_out, weights_out, logits_out   [T, K] int32, [T, K] float32, [T, E] float32: filled when given\n"
      "padding        [T] uint8 or bool: tokens that are padding, which choose no expert\n"
      "bias_choice    [T] uint8 or bool: tokens that choose with routing.bias_alt\n"
      "adapters, adapter_ids   a moxie.Adapters of the layer, and each token's adapter: [T] int32, -1 for none\n"
      "stream         CUDA stream: an int, or an object with cuda_stream, ptr or __cuda_stream__; None: torch's "
      "current\n"
      "               stream for torch tensors, else the default stream\n\n"
      "Arrays are contiguous. For a plan on a GPU they are all on its device, or all on the host; then they are "
      "copied\n"
      "and the call waits. One run of a plan at a time: others wait. Other Python threads go on meanwhile." },
    { "route", CALL(mpy_plan_route),
      "route($self, hidden=None, *, logits=None, router_hidden=None, token_ids=None, ids_out=None,\n"
      "      weights_out=None, logits_out=None, padding=None, bias_choice=None)\n--\n\n"
      "The first part of a run: chooses experts. Returns (ids, weights), [T, K] int32 and float32." },
    { "experts", CALL(mpy_plan_experts),
      "experts($self, hidden, ids, weights, *, out=None, adapters=None, adapter_ids=None)\n--\n\n"
      "The second part: [T, K, H] float32, the result of each choice, not yet weighted; 0 where a choice is skipped." },
    { "lookahead", CALL(mpy_plan_lookahead),
      "lookahead($self, hidden=None, *, logits=None, router_hidden=None, token_ids=None, padding=None,\n"
      "          bias_choice=None)\n--\n\n"
      "Of a layer of a Store: starts to read the experts that its router chooses for these tokens, those of the layer\n"
      "before, say, so that the next run waits less. It does not wait for them." },
    { "combine", CALL(mpy_plan_combine),
      "combine($self, rows, ids, weights, *, hidden=None, out=None)\n--\n\n"
      "The third part: the weighted sum of rows [T, K, H] float32 over each token's choices, [T, H], without the "
      "shared\n"
      "expert. `hidden` is read where the routing has identity experts." },
    { "check", CALL(mpy_plan_check),
      "check($self, weights, hidden, **arguments)\n--\n\n"
      "Runs the plan and compares every element of every stage with the oracle, in double precision, straight from\n"
      "`weights`. Returns a list of StageReport; the run is right when each worst_ratio is at most 1. Slow. The "
      "arguments\n"
      "are those of run()." },
    { "phases", phases, METH_VARARGS,
      "phases($self, worker=0, /)\n--\n\nWhere the time of its runs went so far: a list of PlanPhase, of one worker." },
    { "run_pointers", CALL(mpy_plan_run_pointers),
      "run_pointers($self, tokens, hidden, output, ids=0, weights=0, logits=0, logits_dtype=\"f32\",\n"
      "             ids_out=0, weights_out=0, logits_out=0, router_hidden=0, token_ids=0, padding=0,\n"
      "             workspace=0, stream=0, bias_choice=0, adapters=None, adapter_ids=0)\n--\n\n"
      "run() on addresses, for adapters that have checked their arrays: nothing is checked here. For a plan on a GPU "
      "all\n"
      "are device addresses, `workspace` of workspace_bytes at a multiple of 256, and the call only enqueues on "
      "`stream`." },
    { NULL, NULL, 0, NULL }
};
static PyGetSetDef attributes[] = {
    { "steps", get_steps, NULL,
      "A list of Step, in the order they run; before each come the better kernels that were rejected for it.", NULL },
    { "workspace_bytes", get_workspace_bytes, NULL, "Bytes of memory that a run needs besides its arrays.", NULL },
    { "losses", get_losses, NULL, "Losses of the last run, of a plan with `degraded`.", NULL },
    { "on_gpu", get_on_gpu, NULL, "Whether its kernels run on a CUDA device.", NULL },
    { "layer", get_layer, NULL, "Its Layer; None for a plan that only explains.", NULL },
    { NULL, NULL, NULL, NULL, NULL }
};
static PyType_Slot slots[] = { { Py_tp_new, plan_new },
                               { Py_tp_dealloc, plan_free },
                               { Py_tp_methods, methods },
                               { Py_tp_getset, attributes },
                               { 0, NULL } };
PyType_Spec mpy_plan_spec = { "moxie._moxie.Plan", sizeof(mpy_plan), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                              slots };
