/* SPDX-License-Identifier: Apache-2.0
 *
 * py_call.c - the arguments of a run: found, viewed, checked, and put where the library wants them.
 *
 *     arguments (positional or by name)  ->  operands[]: one row says name, type, shape, where the pointer goes
 *                                        ->  views, checked against the row  ->  moxie_run_args
 *
 * A call costs about a microsecond besides the run. So arguments are found by comparing interned names, views lie on
 * the stack, and only an output that the caller did not give is made by Python code (moxie._arrays).
 */
#include "py_call.h"

#include <string.h>

/* ---- operands ------------------------------------------------------------------------------- */

typedef enum width { ONE, WIDTH_H, WIDTH_ROUTER, WIDTH_E, WIDTH_K, WIDTH_KH } width;

/* dtype 0: the layer's; -1: f32, bf16 or f16. */
static const struct {
    const char *name;
    size_t offset;
    moxie_dtype dtype;
    width width;
    bool written;
} operands[N_OPERANDS] = {
    [HIDDEN] = { "hidden", offsetof(moxie_run_args, hidden), 0, WIDTH_H, false },
    [ROUTER_HIDDEN] = { "router_hidden", offsetof(moxie_run_args, router_hidden), 0, WIDTH_ROUTER, false },
    [LOGITS] = { "logits", offsetof(moxie_run_args, logits), -1, WIDTH_E, false },
    [TOKEN_IDS] = { "token_ids", offsetof(moxie_run_args, token_ids), MOXIE_I32, ONE, false },
    [IDS] = { "ids", offsetof(moxie_run_args, ids), MOXIE_I32, WIDTH_K, false },
    [WEIGHTS] = { "weights", offsetof(moxie_run_args, weights), MOXIE_F32, WIDTH_K, false },
    [OUT] = { "out", offsetof(moxie_run_args, output), 0, WIDTH_H, true },
    [IDS_OUT] = { "ids_out", offsetof(moxie_run_args, ids_out), MOXIE_I32, WIDTH_K, true },
    [WEIGHTS_OUT] = { "weights_out", offsetof(moxie_run_args, weights_out), MOXIE_F32, WIDTH_K, true },
    [LOGITS_OUT] = { "logits_out", offsetof(moxie_run_args, logits_out), MOXIE_F32, WIDTH_E, true },
    [PADDING] = { "padding", offsetof(moxie_run_args, padding), MOXIE_U8, ONE, false },
    [BIAS_CHOICE] = { "bias_choice", offsetof(moxie_run_args, bias_choice), MOXIE_U8, ONE, false },
    [ADAPTER_IDS] = { "adapter_ids", offsetof(moxie_run_args, adapter_ids), MOXIE_I32, ONE, false },
    [ROWS] = { "rows", 0, MOXIE_F32, WIDTH_KH, false },
};

static PyObject *names[N_ARGUMENTS]; /* interned */
static PyObject *new_array;          /* moxie._arrays.new */
static PyObject *stream_of;          /* moxie._arrays.stream_of */

int mpy_run_init(void)
{
    for (int i = 0; i < N_ARGUMENTS; i++) {
        names[i] = PyUnicode_InternFromString(i == STREAM ? "stream" : i == ADAPTERS ? "adapters" : operands[i].name);
        if (names[i] == NULL)
            return -1;
    }
    return 0;
}

int mpy_call_arguments(mpy_call *c, PyObject *const *args, Py_ssize_t n, PyObject *keywords, const mpy_operand *order,
                       int n_order, uint32_t allowed)
{
    if (n > n_order) {
        PyErr_Format(PyExc_TypeError, "%d positional arguments at most, not %zd", n_order, n);
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        c->given[order[i]] = args[i];
    const Py_ssize_t n_keywords = keywords == NULL ? 0 : PyTuple_Size(keywords);
    for (Py_ssize_t i = 0; i < n_keywords; i++) {
        PyObject *keyword = PyTuple_GetItem(keywords, i);
        int found = 0;
        while (found < N_ARGUMENTS && names[found] != keyword)
            found++;
        if (found == N_ARGUMENTS) /* not interned, or unknown */
            for (found = 0; found < N_ARGUMENTS && PyUnicode_Compare(names[found], keyword) != 0;)
                found++;
        if (found == N_ARGUMENTS || ((allowed >> found) & 1) == 0 || c->given[found] != NULL) {
            PyErr_Format(PyExc_TypeError, "an argument that is unknown here, or given twice: %R", keyword);
            return -1;
        }
        c->given[found] = args[n + i];
    }
    for (int i = 0; i < N_ARGUMENTS; i++)
        if (c->given[i] == Py_None)
            c->given[i] = NULL;
    return 0;
}

/* ---- views ---------------------------------------------------------------------------------- */

static moxie_dtype dtype_of(const mpy_call *c, int id)
{
    return operands[id].dtype == 0 ? c->plan->sizes.dtype : operands[id].dtype;
}

/* Axes behind the tokens. */
static int shape_of(const mpy_sizes *s, int id, int64_t shape[2])
{
    switch (operands[id].width) {
    case ONE: return 0;
    case WIDTH_H: shape[0] = s->hidden; return 1;
    case WIDTH_ROUTER: shape[0] = s->router_width; return 1;
    case WIDTH_E: shape[0] = s->experts; return 1;
    case WIDTH_K: shape[0] = s->top_k; return 1;
    case WIDTH_KH:
        shape[0] = s->top_k;
        shape[1] = s->hidden;
        return 2;
    }
    return 0;
}

static bool fits(const mpy_call *c, int id, const mpy_view *v)
{
    int64_t shape[2] = { 0 };
    const int axes = shape_of(&c->plan->sizes, id, shape);
    const bool any_float = operands[id].dtype == -1;
    if (any_float ? v->dtype != MOXIE_F32 && v->dtype != MOXIE_BF16 && v->dtype != MOXIE_F16
                  : !mpy_view_holds(v, dtype_of(c, id)))
        return false;
    if (v->axes != axes + 1 || (c->args.tokens >= 0 && v->shape[0] != c->args.tokens))
        return false;
    for (int i = 0; i < axes; i++)
        if (v->shape[1 + i] != shape[i])
            return false;
    return mpy_view_contiguous(v);
}

static int misfit(const mpy_call *c, int id, const mpy_view *v)
{
    int64_t shape[2] = { 0 };
    const int axes = shape_of(&c->plan->sizes, id, shape);
    PyObject *words = mpy_view_words(v), *tokens = NULL, *want = NULL;
    tokens =
        c->args.tokens < 0 ? PyUnicode_FromString("tokens") : PyUnicode_FromFormat("%lld", (long long)c->args.tokens);
    if (tokens != NULL)
        want = axes == 0   ? PyUnicode_FromFormat("[%U]", tokens)
               : axes == 1 ? PyUnicode_FromFormat("[%U, %lld]", tokens, (long long)shape[0])
                           : PyUnicode_FromFormat("[%U, %lld, %lld]", tokens, (long long)shape[0], (long long)shape[1]);
    const char *type = operands[id].dtype == -1 ? "f32, bf16 or f16" : moxie_dtype_name(dtype_of(c, id));
    if (words != NULL && want != NULL)
        mpy_fail(MOXIE_ERR_ARGUMENT, "%s: the plan takes %s %U, contiguous; this is %U%s", operands[id].name, type,
                 want, words, mpy_view_contiguous(v) ? "" : ", not contiguous");
    Py_XDECREF(want);
    Py_XDECREF(tokens);
    Py_XDECREF(words);
    return -1;
}

/* Not where the first array is, or where no array of this plan may be. */
static bool elsewhere(const mpy_call *c, const mpy_view *v)
{
    const bool device = mpy_view_on_gpu(v);
    return device != c->on_device || (device && !c->plan->on_gpu) ||
           (v->device_type == MPY_CUDA && v->device != c->plan->device);
}

static int misplaced(const mpy_call *c, int id, const mpy_view *v)
{
    char place[32] = "the host";
    if (c->plan->on_gpu)
        PyOS_snprintf(place, sizeof place, "CUDA device %d", (int)c->plan->device);
    PyObject *words = mpy_view_words(v);
    mpy_fail(MOXIE_ERR_ARGUMENT, "%s: this is %V; the plan runs on %s, and all arrays of a call are in one place",
             operands[id].name, words, "?", place);
    Py_XDECREF(words);
    return -1;
}

/* Views argument `id`, checks it, and puts its pointer where the library wants it. */
static int take(mpy_call *c, int id, PyObject *object)
{
    mpy_view *v = &c->views[id];
    const bool written = id == ROWS ? c->rows_written : operands[id].written;
    if (mpy_view_get(object, operands[id].name, written, c->stream, v) < 0)
        return -1;
    c->used[c->n_used++] = id;
    if (!fits(c, id, v))
        return misfit(c, id, v);
    if (v->data == NULL && v->shape[0] != 0)
        return mpy_fail(MOXIE_ERR_ARGUMENT, "%s: the array has no memory", operands[id].name), -1;
    if (c->n_used == 1) {
        c->on_device = mpy_view_on_gpu(v);
        c->args.tokens = v->shape[0];
    }
    if (elsewhere(c, v))
        return misplaced(c, id, v);
    if (id == ROWS)
        c->rows = v->data;
    else
        *(void **)((char *)&c->args + operands[id].offset) = v->data;
    if (id == LOGITS)
        c->args.logits_dtype = v->dtype;
    return 0;
}

/* An output that was not given: of the kind of `like`; hidden states have the layer's dtype, however they say it. */
static PyObject *make(mpy_call *c, int id, PyObject *like)
{
    int64_t shape[3] = { c->args.tokens };
    const int axes = 1 + shape_of(&c->plan->sizes, id, shape + 1);
    if (new_array == NULL)
        new_array = mpy_import("moxie._arrays", "new");
    const bool same = operands[id].dtype == 0 && like == c->given[HIDDEN];
    const char *dtype = moxie_dtype_name(same ? c->views[HIDDEN].dtype : dtype_of(c, id));
    if (new_array != NULL)
        c->made[id] = axes == 2 ? PyObject_CallFunction(new_array, "O(LL)si", like, (long long)shape[0],
                                                        (long long)shape[1], dtype, same)
                                : PyObject_CallFunction(new_array, "O(LLL)si", like, (long long)shape[0],
                                                        (long long)shape[1], (long long)shape[2], dtype, same);
    return c->made[id];
}

static int take_stream(mpy_call *c, PyObject *like)
{
    PyObject *given = c->given[STREAM];
    if (given != NULL && PyLong_Check(given)) {
        c->stream = (int64_t)PyLong_AsLongLong(given);
        return PyErr_Occurred() ? -1 : 0;
    }
    if (stream_of == NULL)
        stream_of = mpy_import("moxie._arrays", "stream_of");
    PyObject *number =
        stream_of == NULL ? NULL : PyObject_CallFunctionObjArgs(stream_of, like, given == NULL ? Py_None : given, NULL);
    if (number == NULL)
        return -1;
    c->stream = (int64_t)PyLong_AsLongLong(number);
    Py_DECREF(number);
    return PyErr_Occurred() ? -1 : 0;
}

int mpy_call_take(mpy_call *c, mpy_operand first)
{
    mpy_plan *plan = c->plan;
    if (plan->layer == NULL) {
        mpy_fail(MOXIE_ERR_ARGUMENT, "this plan only explains; layer.plan() makes one that runs");
        return -1;
    }
    if (c->given[first] == NULL) {
        PyErr_Format(PyExc_TypeError, "%s is missing", operands[first].name);
        return -1;
    }
    c->args = (moxie_run_args)MOXIE_RUN_ARGS_INIT;
    c->args.tokens = -1;
    if ((c->given[STREAM] != NULL || plan->on_gpu) && take_stream(c, c->given[first]) < 0)
        return -1;
    if (take(c, first, c->given[first]) < 0)
        return -1;
    if (c->given[ADAPTERS] != NULL && (c->args.adapters = mpy_adapters_get(c->given[ADAPTERS])) == NULL)
        return -1;
    for (int id = 0; id < N_OPERANDS; id++)
        if (id != (int)first && c->given[id] != NULL && take(c, id, c->given[id]) < 0)
            return -1;
    return 0;
}

void mpy_call_release(mpy_call *c)
{
    for (int i = 0; i < c->n_used; i++)
        mpy_view_release(&c->views[c->used[i]]);
    for (int i = 0; i < N_OPERANDS; i++)
        Py_XDECREF(c->made[i]);
}

PyObject *mpy_call_output(mpy_call *c, mpy_operand id, PyObject *like)
{
    if (c->given[id] != NULL)
        return c->given[id];
    PyObject *made = make(c, id, like);
    return made == NULL || take(c, id, made) < 0 ? NULL : made;
}

/* ---- workspace ------------------------------------------------------------------------------ */

/* Runs of a plan on a GPU with arrays on the host need a workspace that is not NULL. Nothing is stored in it: the
 * library copies the arrays to the device. */
static int host_workspace(mpy_call *c)
{
    c->plan->host_workspace = mpy_plan_workspace(c->plan->workspace_bytes);
    c->args.workspace = c->plan->host_workspace;
    return c->args.workspace == NULL ? -1 : 0;
}

/* Another thread's first run may make one meanwhile: its array stays, which may be in use. */
static int make_gpu_workspace(mpy_plan *plan, PyObject *like)
{
    PyObject *make_bytes = mpy_import("moxie._arrays", "device_bytes");
    if (make_bytes == NULL)
        return -1;
    PyObject *made = PyObject_CallFunction(make_bytes, "OK", like, (unsigned long long)plan->workspace_bytes);
    Py_DECREF(make_bytes);
    if (made == NULL)
        return -1;
    if (plan->gpu_workspace == NULL)
        plan->gpu_workspace = made;
    else
        Py_DECREF(made);
    return 0;
}

int mpy_call_workspace(mpy_call *c, PyObject *like)
{
    mpy_plan *plan = c->plan;
    c->args.workspace_bytes = plan->workspace_bytes;
    c->args.workspace = plan->host_workspace;
    if (!c->on_device)
        return plan->host_workspace != NULL || plan->shared != NULL ? 0 : host_workspace(c);
    if (plan->gpu_workspace == NULL && make_gpu_workspace(plan, like) < 0)
        return -1;
    mpy_view v;
    if (mpy_view_get(plan->gpu_workspace, "workspace", true, c->stream, &v) < 0)
        return -1;
    c->args.workspace = v.data;
    c->args.workspace_bytes = (uint64_t)v.item_bytes;
    for (int i = 0; i < v.axes; i++)
        c->args.workspace_bytes *= (uint64_t)v.shape[i];
    const bool usable = mpy_view_on_gpu(&v);
    mpy_view_release(&v); /* the plan keeps the array itself */
    if (usable)
        return 0;
    mpy_fail(MOXIE_ERR_ARGUMENT, "workspace: device memory is wanted, as the other arrays are");
    return -1;
}
