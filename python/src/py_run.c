/* SPDX-License-Identifier: Apache-2.0
 *
 * py_run.c - the runs of a Plan: whole, in three parts, beside the oracle, and on bare addresses.
 */
#include "py_call.h"

#include <moxie/moxie_cuda.h>
#include <moxie/moxie_store.h>

#include <pthread.h>
#include <string.h>

/* ---- the calls ------------------------------------------------------------------------------ */

typedef enum what { RUN, ROUTE, EXPERTS, COMBINE, LOOKAHEAD } what;

static moxie_status perform(mpy_call *c, what w, moxie_error *error)
{
    moxie_plan *p = c->plan->plan;
    switch (w) {
    case RUN:
        return c->on_device ? moxie_cuda_plan_run(p, &c->args, (void *)(intptr_t)c->stream, error)
                            : moxie_plan_run(p, &c->args, error);
    case ROUTE: return moxie_plan_route(p, &c->args, error);
    case EXPERTS: return moxie_plan_experts(p, &c->args, c->rows, error);
    case COMBINE: return moxie_plan_combine(p, &c->args, c->rows, error);
    case LOOKAHEAD: return moxie_store_lookahead(p, &c->args, error);
    }
    return MOXIE_ERR_ARGUMENT;
}

/* A shared workspace is this run's alone; on a GPU it is not used, and host runs there copy. */
static void enter_workspace(mpy_call *c)
{
    if (c->plan->shared != NULL && !c->on_device)
        c->args.workspace = mpy_workspace_lock(c->plan->shared);
}

static void leave_workspace(const mpy_call *c)
{
    if (c->plan->shared != NULL && !c->on_device)
        mpy_workspace_unlock(c->plan->shared);
}

/* One run of a plan at a time. */
static int release_gil_and_run(mpy_call *c, what w)
{
    moxie_error error = { 0 };
    moxie_status status;
    mpy_comm *comm = c->plan->comm;
    Py_BEGIN_ALLOW_THREADS pthread_mutex_lock(c->plan->lock);
    mpy_comm_lock(comm);
    enter_workspace(c);
    mpy_layer_share(c->plan->layer);
    status = perform(c, w, &error);
    mpy_layer_done(c->plan->layer);
    leave_workspace(c);
    mpy_comm_unlock(comm);
    pthread_mutex_unlock(c->plan->lock);
    Py_END_ALLOW_THREADS if (status == MOXIE_OK)
    {
        mpy_comm_forget(comm); /* what a degraded run went without */
        return 0;
    }
    mpy_comm_raise(comm, &error);
    return -1;
}

static int execute(mpy_call *c, what w, PyObject *like)
{
    if (w != RUN && c->on_device) {
        mpy_fail(MOXIE_ERR_UNSUPPORTED, "the parts of a run take arrays on the host; run() takes those on a device");
        return -1;
    }
    return mpy_call_workspace(c, like) < 0 ? -1 : release_gil_and_run(c, w);
}

#define BIT(id) (1u << (id))
static const uint32_t routing_inputs = BIT(ROUTER_HIDDEN) | BIT(LOGITS) | BIT(TOKEN_IDS) | BIT(IDS_OUT) |
                                       BIT(WEIGHTS_OUT) | BIT(LOGITS_OUT) | BIT(PADDING) | BIT(BIAS_CHOICE) |
                                       BIT(STREAM);

static const uint32_t lora_inputs = BIT(ADAPTERS) | BIT(ADAPTER_IDS);

/* The library reads weights beside ids alone. */
static bool choices_are_whole(const mpy_call *c)
{
    if (c->given[WEIGHTS] != NULL && c->given[IDS] == NULL)
        mpy_fail(MOXIE_ERR_ARGUMENT, "weights are given, and no ids: give both, or neither where the router chooses");
    return c->given[WEIGHTS] == NULL || c->given[IDS] != NULL;
}

PyObject *mpy_plan_run(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords)
{
    static const mpy_operand order[] = { HIDDEN };
    mpy_call c;
    memset(&c, 0, offsetof(mpy_call, views));
    c.n_used = 0, c.on_device = c.rows_written = false, c.stream = 0, c.rows = NULL;
    c.plan = (mpy_plan *)self;
    PyObject *out = NULL;
    if (mpy_call_arguments(&c, args, n, keywords, order, 1,
                           routing_inputs | lora_inputs | BIT(HIDDEN) | BIT(OUT) | BIT(IDS) | BIT(WEIGHTS)) == 0 &&
        choices_are_whole(&c) && mpy_call_take(&c, HIDDEN) == 0)
        out = mpy_call_output(&c, OUT, c.given[HIDDEN]);
    if (out != NULL && execute(&c, RUN, c.given[HIDDEN]) < 0)
        out = NULL;
    Py_XINCREF(out);
    mpy_call_release(&c);
    return out;
}

/* What of the operands a router reads. */
static int routed_by(const mpy_call *c)
{
    return c->given[HIDDEN] != NULL ? HIDDEN : c->given[ROUTER_HIDDEN] != NULL ? ROUTER_HIDDEN : LOGITS;
}

PyObject *mpy_plan_route(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords)
{
    static const mpy_operand order[] = { HIDDEN };
    mpy_call c = { .plan = (mpy_plan *)self };
    PyObject *ids = NULL, *weights = NULL, *both = NULL;
    if (mpy_call_arguments(&c, args, n, keywords, order, 1, routing_inputs | BIT(HIDDEN)) == 0) {
        const int first = routed_by(&c);
        if (mpy_call_take(&c, first) == 0 && (ids = mpy_call_output(&c, IDS_OUT, c.given[first])) != NULL &&
            (weights = mpy_call_output(&c, WEIGHTS_OUT, c.given[first])) != NULL &&
            execute(&c, ROUTE, c.given[first]) == 0)
            both = Py_BuildValue("(OO)", ids, weights);
    }
    mpy_call_release(&c);
    return both;
}

PyObject *mpy_plan_lookahead(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords)
{
    static const mpy_operand order[] = { HIDDEN };
    mpy_call c = { .plan = (mpy_plan *)self };
    const uint32_t allowed =
        BIT(HIDDEN) | BIT(LOGITS) | BIT(ROUTER_HIDDEN) | BIT(TOKEN_IDS) | BIT(PADDING) | BIT(BIAS_CHOICE);
    int failed =
        mpy_call_arguments(&c, args, n, keywords, order, 1, allowed) < 0 || mpy_call_take(&c, routed_by(&c)) < 0;
    failed = failed || execute(&c, LOOKAHEAD, c.given[routed_by(&c)]) < 0;
    mpy_call_release(&c);
    return failed ? NULL : Py_NewRef(Py_None);
}

PyObject *mpy_plan_experts(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords)
{
    static const mpy_operand order[] = { HIDDEN, IDS, WEIGHTS };
    mpy_call c = { .plan = (mpy_plan *)self };
    PyObject *rows = NULL;
    if (mpy_call_arguments(&c, args, n, keywords, order, 3,
                           lora_inputs | BIT(HIDDEN) | BIT(IDS) | BIT(WEIGHTS) | BIT(OUT)) == 0) {
        c.given[ROWS] = c.given[OUT]; /* what `out` is here */
        c.given[OUT] = NULL;
        c.rows_written = true;
        if (mpy_call_take(&c, HIDDEN) == 0)
            rows = mpy_call_output(&c, ROWS, c.given[HIDDEN]);
    }
    if (rows != NULL && execute(&c, EXPERTS, c.given[HIDDEN]) < 0)
        rows = NULL;
    Py_XINCREF(rows);
    mpy_call_release(&c);
    return rows;
}

PyObject *mpy_plan_combine(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords)
{
    static const mpy_operand order[] = { ROWS, IDS, WEIGHTS };
    mpy_call c = { .plan = (mpy_plan *)self };
    PyObject *out = NULL;
    const uint32_t allowed = BIT(ROWS) | BIT(IDS) | BIT(WEIGHTS) | BIT(OUT) | BIT(HIDDEN);
    if (mpy_call_arguments(&c, args, n, keywords, order, 3, allowed) == 0 && mpy_call_take(&c, ROWS) == 0) {
        out = mpy_call_output(&c, OUT, c.given[HIDDEN] == NULL ? c.given[ROWS] : c.given[HIDDEN]);
        if (out != NULL && execute(&c, COMBINE, c.given[ROWS]) < 0)
            out = NULL;
    }
    Py_XINCREF(out);
    mpy_call_release(&c);
    return out;
}

/* ---- against the oracle --------------------------------------------------------------------- */

static PyObject *reports(moxie_check_report *report)
{
    PyObject *list = PyList_New(0);
    for (int32_t i = 0; list != NULL && i < moxie_check_report_stage_count(report); i++) {
        PyObject *stage = mpy_record_to_python(&mpy_stage_record, moxie_check_report_stage_at(report, i), NULL, NULL);
        if (stage == NULL || PyList_Append(list, stage) < 0)
            Py_CLEAR(list);
        Py_XDECREF(stage);
    }
    return list;
}

static PyObject *check(mpy_call *c, const moxie_weights *weights)
{
    moxie_error error = { 0 };
    moxie_check_report *report = NULL;
    moxie_status status;
    if (c->on_device) {
        mpy_fail(MOXIE_ERR_UNSUPPORTED, "check takes arrays on the host");
        return NULL;
    }
    if (mpy_call_output(c, OUT, c->given[HIDDEN]) == NULL || mpy_call_workspace(c, c->given[HIDDEN]) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS pthread_mutex_lock(c->plan->lock);
    enter_workspace(c);
    mpy_layer_share(c->plan->layer);
    status = moxie_plan_check(c->plan->plan, weights, &c->args, &report, &error);
    mpy_layer_done(c->plan->layer);
    leave_workspace(c);
    pthread_mutex_unlock(c->plan->lock);
    Py_END_ALLOW_THREADS if (status != MOXIE_OK)
    {
        mpy_raise(&error);
        return NULL;
    }
    PyObject *list = reports(report);
    moxie_check_report_destroy(report);
    return list;
}

PyObject *mpy_plan_check(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords)
{
    static const mpy_operand order[] = { HIDDEN };
    mpy_call c = { .plan = (mpy_plan *)self };
    PyObject *list = NULL;
    if (n < 1 || PyObject_IsInstance(args[0], mpy_weights_type) != 1)
        return PyErr_Format(PyExc_TypeError, "check: the first argument is the layer's moxie.Weights");
    const uint32_t allowed = routing_inputs | lora_inputs | BIT(HIDDEN) | BIT(OUT) | BIT(IDS) | BIT(WEIGHTS);
    if (mpy_call_arguments(&c, args + 1, n - 1, keywords, order, 1, allowed) == 0 && choices_are_whole(&c) &&
        mpy_call_take(&c, HIDDEN) == 0)
        list = check(&c, ((mpy_weights *)args[0])->weights);
    mpy_call_release(&c);
    return list;
}

/* ---- addresses ------------------------------------------------------------------------------ */

static const char *const pointer_names[] = { "tokens",        "hidden",       "output",     "ids",         "weights",
                                             "logits",        "logits_dtype", "ids_out",    "weights_out", "logits_out",
                                             "router_hidden", "token_ids",    "padding",    "workspace",   "stream",
                                             "bias_choice",   "adapters",     "adapter_ids" };
enum {
    N_POINTERS = sizeof pointer_names / sizeof pointer_names[0],
    TOKENS = 0,
    LOGITS_DTYPE = 6,
    AT_WORKSPACE = 13,
    AT_STREAM = 14,
    BIAS_CHOICES = 15,
    ADAPTERS_OBJECT = 16,
    ADAPTER_NUMBERS = 17
};

static int find_pointers(PyObject *const *args, Py_ssize_t n, PyObject *keywords, PyObject *given[N_POINTERS])
{
    const Py_ssize_t named = keywords == NULL ? 0 : PyTuple_Size(keywords);
    for (Py_ssize_t i = 0; i < n + named; i++) {
        Py_ssize_t at = i;
        if (i >= n) {
            PyObject *name = PyTuple_GetItem(keywords, i - n);
            for (at = 0; at < N_POINTERS && PyUnicode_CompareWithASCIIString(name, pointer_names[at]) != 0;)
                at++;
        }
        if (at >= N_POINTERS || given[at] != NULL) {
            PyErr_SetString(PyExc_TypeError, "run_pointers: an argument that is unknown, or given twice");
            return -1;
        }
        given[at] = args[i];
    }
    return 0;
}

PyObject *mpy_plan_run_pointers(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords)
{
    mpy_call c = { .plan = (mpy_plan *)self, .args = MOXIE_RUN_ARGS_INIT };
    PyObject *given[N_POINTERS] = { NULL };
    void *at[N_POINTERS] = { NULL };
    if (c.plan->layer == NULL)
        return mpy_fail(MOXIE_ERR_ARGUMENT, "this plan only explains; layer.plan() makes one that runs"), NULL;
    if (find_pointers(args, n, keywords, given) < 0)
        return NULL;
    for (int i = 0; i < N_POINTERS; i++)
        if (given[i] != NULL && i != TOKENS && i != LOGITS_DTYPE && i != ADAPTERS_OBJECT)
            at[i] = PyLong_AsVoidPtr(given[i]);
    c.args.tokens = given[TOKENS] == NULL ? 0 : PyLong_AsLongLong(given[TOKENS]);
    if (given[LOGITS_DTYPE] != NULL) {
        const char *name = PyUnicode_AsUTF8AndSize(given[LOGITS_DTYPE], NULL);
        c.args.logits_dtype = name == NULL ? 0 : moxie_dtype_from_name(name);
    }
    if (given[ADAPTERS_OBJECT] != NULL && given[ADAPTERS_OBJECT] != Py_None)
        c.args.adapters = mpy_adapters_get(given[ADAPTERS_OBJECT]);
    if (PyErr_Occurred())
        return NULL;
    c.args.bias_choice = at[BIAS_CHOICES], c.args.adapter_ids = at[ADAPTER_NUMBERS];
    c.args.hidden = at[1], c.args.output = at[2], c.args.ids = at[3], c.args.weights = at[4], c.args.logits = at[5];
    c.args.ids_out = at[7], c.args.weights_out = at[8], c.args.logits_out = at[9], c.args.router_hidden = at[10];
    c.args.token_ids = at[11], c.args.padding = at[12];
    c.on_device = c.plan->on_gpu;
    c.stream = (int64_t)(intptr_t)at[AT_STREAM];
    c.args.workspace = c.on_device ? at[AT_WORKSPACE] : c.plan->host_workspace;
    c.args.workspace_bytes = c.plan->workspace_bytes;
    return release_gil_and_run(&c, RUN) < 0 ? NULL : Py_NewRef(Py_None);
}
