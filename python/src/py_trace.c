/* SPDX-License-Identifier: Apache-2.0
 *
 * py_trace.c - routing traces: a whole file to arrays, arrays to a file, caches of experts on a trace. moxie/trace.py
 * makes classes of it.
 */
#include "py_moxie.h"

#include <stdio.h>
#include <string.h>

#include <moxie/moxie_trace.h>

/* ---- reading ------------------------------------------------------------------------------------------ */

/* All tokens of a trace; arrays are NULL where it has none. */
typedef struct whole {
    PyObject *ids, *weights, *requests, *steps;
    int64_t done; /* tokens so far */
} whole;

static int begin(const moxie_trace_info *info, whole *w)
{
    const int64_t shape[] = { info->tokens, info->layers, info->top_k };
    w->ids = mpy_array_new(MOXIE_I32, 3, shape);
    w->weights = info->has_weights ? mpy_array_new(MOXIE_F32, 3, shape) : Py_NewRef(Py_None);
    w->requests = info->has_requests ? mpy_array_new(MOXIE_I64, 1, shape) : Py_NewRef(Py_None);
    w->steps = PyList_New(0);
    return w->ids && w->weights && w->requests && w->steps ? 0 : -1;
}

static int take_step(const moxie_trace_info *info, const moxie_trace_step *step, whole *w)
{
    const size_t row = (size_t)info->layers * (size_t)info->top_k, count = (size_t)step->tokens * row;
    const size_t at = (size_t)w->done * row;
    if (step->tokens > info->tokens - w->done) {
        mpy_fail(MOXIE_ERR_IO, "the trace changed while it was read");
        return -1;
    }
    if (count > 0)
        memcpy((int32_t *)mpy_array_data(w->ids) + at, step->ids, 4 * count);
    if (step->weights && count > 0)
        memcpy((float *)mpy_array_data(w->weights) + at, step->weights, 4 * count);
    if (step->requests && count > 0)
        memcpy((int64_t *)mpy_array_data(w->requests) + w->done, step->requests, 8 * (size_t)step->tokens);
    w->done += step->tokens;
    PyObject *pair = Py_BuildValue("(Li)", (long long)step->tokens, (int)step->phase);
    const int failed = pair == NULL || PyList_Append(w->steps, pair) < 0;
    Py_XDECREF(pair);
    return failed ? -1 : 0;
}

static PyObject *layer_numbers(const moxie_trace_info *info)
{
    PyObject *list = PyList_New(0);
    for (int32_t l = 0; list != NULL && l < info->layers; l++) {
        PyObject *number = PyLong_FromLong(info->layer_numbers[l]);
        if (number == NULL || PyList_Append(list, number) < 0)
            Py_CLEAR(list);
        Py_XDECREF(number);
    }
    return list;
}

static PyObject *read_all(moxie_trace *trace, const moxie_trace_info *info)
{
    moxie_error error = { 0 };
    whole w = { .done = 0 };
    PyObject *numbers = layer_numbers(info), *out = NULL;
    int failed = numbers == NULL || begin(info, &w) < 0;
    for (int64_t i = 0; !failed && i < info->steps; i++) {
        moxie_trace_step step = MOXIE_TRACE_STEP_INIT;
        if (moxie_trace_read(trace, i, &step, &error) != MOXIE_OK) {
            mpy_raise(&error);
            failed = 1;
        } else {
            failed = take_step(info, &step, &w) < 0;
        }
    }
    if (!failed)
        out = Py_BuildValue("(OOOOOiisK)", w.ids, w.weights, w.requests, w.steps, numbers, (int)info->experts,
                            (int)info->zero_experts, info->model, (unsigned long long)info->fingerprint);
    Py_XDECREF(numbers);
    Py_XDECREF(w.ids);
    Py_XDECREF(w.weights);
    Py_XDECREF(w.requests);
    Py_XDECREF(w.steps);
    return out;
}

static PyObject *trace_read(PyObject *module, PyObject *args)
{
    PyObject *path = NULL, *out = NULL;
    moxie_trace *trace = NULL;
    moxie_trace_info info = MOXIE_TRACE_INFO_INIT;
    moxie_error error = { 0 };
    (void)module;
    if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &path))
        return NULL;
    moxie_status status = moxie_trace_open(PyBytes_AsString(path), &trace, &error);
    if (status == MOXIE_OK)
        status = moxie_trace_get_info(trace, &info, &error);
    if (status != MOXIE_OK)
        mpy_raise(&error);
    else
        out = read_all(trace, &info);
    moxie_trace_close(trace);
    Py_DECREF(path);
    return out;
}

/* ---- writing ------------------------------------------------------------------------------------------ */

/* A view of a contiguous array on the host; `like`: of this shape, if it is not NULL. None has no data. */
static int view_of(PyObject *object, const char *name, moxie_dtype dtype, int32_t axes, const mpy_view *like,
                   mpy_view *out)
{
    memset(out, 0, sizeof *out);
    if (object == Py_None)
        return 0;
    if (mpy_view_get(object, name, false, 0, out) < 0)
        return -1;
    bool fits = mpy_view_holds(out, dtype) && out->axes == axes && mpy_view_contiguous(out) && !mpy_view_on_gpu(out);
    for (int i = 0; like && fits && i < axes; i++)
        fits = out->shape[i] == like->shape[i];
    if (fits)
        return 0;
    mpy_fail(MOXIE_ERR_ARGUMENT, "%s: a contiguous array of %s on the host with %d axes is wanted%s", name,
             moxie_dtype_name(dtype), (int)axes, like ? ", of as many tokens as ids" : "");
    return -1;
}

/* The views of a trace that is written. */
typedef struct given {
    mpy_view ids, weights, requests;
} given;

static int add_steps(moxie_trace_writer *writer, PyObject *steps, const given *g)
{
    const int64_t row = g->ids.shape[1] * g->ids.shape[2];
    moxie_error error = { 0 };
    int64_t done = 0;
    for (Py_ssize_t i = 0; i < PyList_Size(steps); i++) {
        moxie_trace_step step = MOXIE_TRACE_STEP_INIT;
        long long tokens;
        int phase;
        if (!PyArg_ParseTuple(PyList_GetItem(steps, i), "Li", &tokens, &phase))
            return -1;
        if (tokens < 0 || tokens > g->ids.shape[0] - done) {
            mpy_fail(MOXIE_ERR_ARGUMENT, "steps: they have more tokens than ids, or fewer than 0");
            return -1;
        }
        step.tokens = tokens;
        step.phase = phase;
        step.ids = (const int32_t *)g->ids.data + done * row;
        step.weights = g->weights.data ? (const float *)g->weights.data + done * row : NULL;
        step.requests = g->requests.data ? (const uint64_t *)g->requests.data + done : NULL;
        if (moxie_trace_writer_add(writer, &step, &error) != MOXIE_OK) {
            mpy_raise(&error);
            return -1;
        }
        done += tokens;
    }
    if (done == g->ids.shape[0])
        return 0;
    mpy_fail(MOXIE_ERR_ARGUMENT, "steps: they have %lld tokens, and ids %lld", (long long)done,
             (long long)g->ids.shape[0]);
    return -1;
}

static int write_all(const char *path, moxie_trace_info *info, PyObject *numbers, PyObject *steps, const given *g)
{
    moxie_trace_writer *writer = NULL;
    moxie_error error = { 0 };
    int32_t of[MOXIE_TRACE_MAX_LAYERS];
    const Py_ssize_t n = PyList_Size(numbers);
    if (n != g->ids.shape[1] || n > MOXIE_TRACE_MAX_LAYERS) {
        mpy_fail(MOXIE_ERR_ARGUMENT, "layers: %lld numbers are wanted, one for each layer of ids, at most %d",
                 (long long)g->ids.shape[1], MOXIE_TRACE_MAX_LAYERS);
        return -1;
    }
    for (Py_ssize_t l = 0; l < n; l++)
        of[l] = (int32_t)PyLong_AsLong(PyList_GetItem(numbers, l));
    if (PyErr_Occurred())
        return -1;
    info->layers = (int32_t)n;
    info->top_k = g->ids.shape[2] > MOXIE_MAX_TOP_K ? -1 : (int32_t)g->ids.shape[2];
    info->has_weights = g->weights.data != NULL;
    info->has_requests = g->requests.data != NULL;
    info->layer_numbers = of;
    int failed = 1;
    if (moxie_trace_writer_create(path, info, &writer, &error) != MOXIE_OK)
        mpy_raise(&error);
    else if (add_steps(writer, steps, g) == 0 && moxie_trace_writer_finish(writer, &error) == MOXIE_OK)
        failed = 0;
    else if (!PyErr_Occurred())
        mpy_raise(&error);
    moxie_trace_writer_destroy(writer);
    return failed ? -1 : 0;
}

static PyObject *trace_write(PyObject *module, PyObject *args)
{
    PyObject *path = NULL, *ids, *weights, *requests, *steps, *numbers;
    const char *model;
    unsigned long long fingerprint;
    given g = { .ids = { .data = NULL } };
    moxie_trace_info info = MOXIE_TRACE_INFO_INIT;
    (void)module;
    if (!PyArg_ParseTuple(args, "O&OOOO!O!iisK", PyUnicode_FSConverter, &path, &ids, &weights, &requests, &PyList_Type,
                          &steps, &PyList_Type, &numbers, &info.experts, &info.zero_experts, &model, &fingerprint))
        return NULL;
    info.model = model;
    info.fingerprint = fingerprint;
    int failed = view_of(ids, "ids", MOXIE_I32, 3, NULL, &g.ids) < 0 ||
                 view_of(weights, "weights", MOXIE_F32, 3, &g.ids, &g.weights) < 0 ||
                 view_of(requests, "requests", MOXIE_I64, 1, &g.ids, &g.requests) < 0;
    failed = failed || write_all(PyBytes_AsString(path), &info, numbers, steps, &g) < 0;
    mpy_view_release(&g.requests);
    mpy_view_release(&g.weights);
    mpy_view_release(&g.ids);
    Py_DECREF(path);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- simulation --------------------------------------------------------------------------------------- */

/* Whether the census is [layers, experts] of the trace. */
static moxie_status check_census(const moxie_trace *trace, const mpy_view *census, moxie_error *error)
{
    moxie_trace_info info = MOXIE_TRACE_INFO_INIT;
    const moxie_status status = moxie_trace_get_info(trace, &info, error);
    if (status != MOXIE_OK || !census->data || (census->shape[0] == info.layers && census->shape[1] == info.experts))
        return status;
    *error = (moxie_error) { .code = MOXIE_ERR_MISMATCH, .offset = -1 };
    snprintf(error->text, sizeof error->text, "the census is [%lld, %lld], and the trace has %d layers and %d experts",
             (long long)census->shape[0], (long long)census->shape[1], info.layers, info.experts);
    return MOXIE_ERR_MISMATCH;
}

static moxie_status simulate(const char *path, moxie_cache_config *config, const mpy_view *census, moxie_cache_hits *h,
                             moxie_error *error)
{
    moxie_trace *trace = NULL;
    moxie_status status = moxie_trace_open(path, &trace, error);
    if (status == MOXIE_OK)
        status = check_census(trace, census, error);
    config->census = census->data;
    if (status == MOXIE_OK)
        status = moxie_trace_simulate(trace, config, h, NULL, error);
    moxie_trace_close(trace);
    return status;
}

static PyObject *trace_simulate(PyObject *module, PyObject *args)
{
    PyObject *path = NULL, *given_census, *out = NULL;
    moxie_cache_config config = MOXIE_CACHE_CONFIG_INIT;
    moxie_cache_hits h = MOXIE_CACHE_HITS_INIT;
    moxie_error error = { 0 };
    mpy_view census;
    (void)module;
    if (!PyArg_ParseTuple(args, "O&iziidiO", PyUnicode_FSConverter, &path, &config.slots, &config.policy,
                          &config.max_inserts, &config.warm_steps, &config.half_life, &config.with_best, &given_census))
        return NULL;
    if (view_of(given_census, "census", MOXIE_F64, 2, NULL, &census) == 0) {
        moxie_status status;
        Py_BEGIN_ALLOW_THREADS status = simulate(PyBytes_AsString(path), &config, &census, &h, &error);
        Py_END_ALLOW_THREADS if (status != MOXIE_OK) mpy_raise(&error);
        else out =
            Py_BuildValue("{s:i,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L}", "slots", (int)h.slots, "steps", (long long)h.steps,
                          "tokens", (long long)h.tokens, "uses", (long long)h.uses, "hits", (long long)h.hits,
                          "inserts", (long long)h.inserts, "decode_uses", (long long)h.decode_uses, "decode_hits",
                          (long long)h.decode_hits, "best_hits", (long long)h.best_hits);
    }
    mpy_view_release(&census);
    Py_DECREF(path);
    return out;
}

static PyObject *cache_policies(PyObject *module, PyObject *none)
{
    PyObject *list = PyList_New(0);
    (void)module, (void)none;
    for (int32_t i = 0; list != NULL && moxie_cache_policy_at(i, NULL) != NULL; i++) {
        PyObject *name = PyUnicode_FromString(moxie_cache_policy_at(i, NULL));
        if (name == NULL || PyList_Append(list, name) < 0)
            Py_CLEAR(list);
        Py_XDECREF(name);
    }
    return list;
}

PyMethodDef mpy_trace_functions[] = { { "_trace_read", trace_read, METH_VARARGS, "trace_read()." },
                                      { "_trace_write", trace_write, METH_VARARGS, "trace_write()." },
                                      { "_trace_simulate", trace_simulate, METH_VARARGS, "trace_simulate()." },
                                      { "_cache_policies", cache_policies, METH_NOARGS, "cache_policies()." },
                                      { NULL, NULL, 0, NULL } };
