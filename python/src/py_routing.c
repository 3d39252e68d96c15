/* SPDX-License-Identifier: Apache-2.0
 *
 * py_routing.c - routing by a Python callable: Routing.custom.
 *
 *     libmoxie, without the GIL  ->  route(user, T, logits, ids, weights)  ->  (ids, weights) = custom(logits)
 *
 * The callable gets a copy of the logits, a moxie.Array [T, E] of float32, which it may keep. What it returns is
 * checked and copied. An exception makes the run fail and stays pending until the run's caller raises it.
 */
#include "py_moxie.h"

#include <string.h>

/* custom_user: lies in a moxie.Array that the layer keeps. */
typedef struct route_user {
    PyObject *callable; /* borrowed; the layer keeps it, too */
    int64_t experts, top_k;
} route_user;

/* Copies one of the two results, [T, K] of `dtype`; ids may be int64 as well, which torch prefers. */
static int copy_result(const char *name, PyObject *object, moxie_dtype dtype, int64_t tokens, int64_t top_k, void *to)
{
    mpy_view v;
    if (mpy_view_get(object, name, false, 0, &v) < 0)
        return -1;
    const bool wide = dtype == MOXIE_I32 && v.dtype == MOXIE_I64;
    const bool fits = v.axes == 2 && v.shape[0] == tokens && v.shape[1] == top_k && !mpy_view_on_gpu(&v) &&
                      mpy_view_contiguous(&v) && (wide || v.dtype == dtype);
    if (!fits) {
        PyObject *words = mpy_view_words(&v);
        mpy_fail(MOXIE_ERR_ARGUMENT, "routing.custom returned %s that are %V; %s [%lld, %lld] is wanted, contiguous",
                 name, words, "?", moxie_dtype_name(dtype), (long long)tokens, (long long)top_k);
        Py_XDECREF(words);
    } else if (wide) {
        for (int64_t i = 0; i < tokens * top_k; i++) {
            const int64_t id = ((const int64_t *)v.data)[i];
            ((int32_t *)to)[i] = id < 0 || id > INT32_MAX ? -1 : (int32_t)id;
        }
    } else if (tokens * top_k > 0) {
        memcpy(to, v.data, (size_t)(tokens * top_k) * 4);
    }
    mpy_view_release(&v);
    return fits ? 0 : -1;
}

static int call(const route_user *user, int64_t tokens, const float *logits, int32_t *ids, float *weights)
{
    const int64_t shape[2] = { tokens, user->experts };
    PyObject *copy = mpy_array_new(MOXIE_F32, 2, shape);
    if (copy == NULL)
        return -1;
    if (tokens > 0)
        memcpy(mpy_array_data(copy), logits, (size_t)(tokens * user->experts) * 4);
    PyObject *pair = PyObject_CallFunctionObjArgs(user->callable, copy, NULL);
    Py_DECREF(copy);
    if (pair == NULL)
        return -1;
    int failed = -1;
    if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2)
        mpy_fail(MOXIE_ERR_ARGUMENT, "routing.custom returns a tuple (ids, weights)");
    else
        failed = copy_result("ids", PyTuple_GetItem(pair, 0), MOXIE_I32, tokens, user->top_k, ids) < 0 ||
                 copy_result("weights", PyTuple_GetItem(pair, 1), MOXIE_F32, tokens, user->top_k, weights) < 0;
    Py_DECREF(pair);
    return failed;
}

static int route(void *user, int64_t tokens, const float *logits, int32_t *ids, float *weights)
{
    const PyGILState_STATE gil = PyGILState_Ensure();
    const int failed = PyErr_Occurred() != NULL || call(user, tokens, logits, ids, weights) != 0;
    PyGILState_Release(gil);
    return failed;
}

int mpy_route_set(moxie_routing *routing, PyObject *callable, PyObject *keep)
{
    if (callable == Py_None)
        return 0;
    if (!PyCallable_Check(callable)) {
        PyErr_Format(PyExc_TypeError, "custom: a callable is wanted, not %R", callable);
        return -1;
    }
    const int64_t bytes = sizeof(route_user);
    PyObject *holder = mpy_array_new(MOXIE_U8, 1, &bytes);
    if (holder == NULL || PyList_Append(keep, holder) < 0 || PyList_Append(keep, callable) < 0) {
        Py_XDECREF(holder);
        return -1;
    }
    route_user *user = mpy_array_data(holder);
    *user = (route_user) { .callable = callable };
    routing->custom = route;
    routing->custom_user = user;
    Py_DECREF(holder); /* `keep` has it */
    return 0;
}

void mpy_route_sizes(moxie_routing *routing, const moxie_layer_config *config)
{
    if (routing->custom != route)
        return;
    route_user *user = routing->custom_user;
    user->experts = config->experts + config->routing.zero_experts;
    user->top_k = config->top_k;
}

PyObject *mpy_route_get(const moxie_routing *routing)
{
    return routing->custom == route ? ((const route_user *)routing->custom_user)->callable : Py_None;
}
