/* SPDX-License-Identifier: Apache-2.0
 *
 * py_parallel.c - moxie_parallel.h: slot maps with replicas, expert load balancing, and vLLM's parallel configs. The
 * functions here take plain arguments; moxie/parallel.py gives them their Python form.
 */
#include "py_moxie.h"

#include <string.h>

/* ---- slot maps ------------------------------------------------------------------------------ */

/* A moxie.Array of int32 with an attribute's numbers, which `keep` holds. */
static const int32_t *numbers_of(PyObject *object, const char *name, PyObject *keep, int64_t *length)
{
    PyObject *value = PyObject_GetAttrString(object, name);
    PyObject *array = value == NULL ? NULL : mpy_array_from(value, name, MOXIE_I32);
    const int64_t *shape;
    const int32_t *data = NULL;
    if (array != NULL && mpy_array_shape(array, &shape) != 1)
        mpy_fail(MOXIE_ERR_ARGUMENT, "%s: one axis is wanted", name);
    else if (array != NULL && PyList_Append(keep, array) == 0) {
        *length = shape[0];
        data = mpy_array_data(array);
    }
    Py_XDECREF(array);
    Py_XDECREF(value);
    return data;
}

static int integer_of(PyObject *object, const char *name, uint64_t *out)
{
    PyObject *value = PyObject_GetAttrString(object, name);
    *out = value == NULL ? 0 : PyLong_AsUnsignedLongLong(value);
    Py_XDECREF(value);
    return PyErr_Occurred() ? -1 : 0;
}

const moxie_slot_map *mpy_slot_map_from(PyObject *object, PyObject *keep)
{
    int64_t slots = 0, firsts = 0;
    uint64_t experts, generation;
    const int32_t *expert_of = numbers_of(object, "expert_of", keep, &slots);
    const int32_t *first_slot = expert_of == NULL ? NULL : numbers_of(object, "first_slot", keep, &firsts);
    if (first_slot == NULL || integer_of(object, "experts", &experts) < 0 ||
        integer_of(object, "generation", &generation) < 0)
        return NULL;
    if (firsts < 2 || slots > MOXIE_MAX_SLOTS || firsts > MOXIE_MAX_RANKS + 1 || first_slot[firsts - 1] != slots ||
        experts > MOXIE_MAX_EXPERTS) {
        mpy_fail(MOXIE_ERR_ARGUMENT,
                 "slot map: first_slot has ranks + 1 numbers, of which the last one is the number of slots, %lld",
                 (long long)slots);
        return NULL;
    }
    const int64_t bytes = sizeof(moxie_slot_map);
    PyObject *holder = mpy_array_new(MOXIE_U8, 1, &bytes);
    if (holder == NULL || PyList_Append(keep, holder) < 0) {
        Py_XDECREF(holder);
        return NULL;
    }
    moxie_slot_map *map = mpy_array_data(holder);
    *map = (moxie_slot_map) { .struct_size = sizeof *map,
                              .ranks = (int32_t)(firsts - 1),
                              .experts = (int32_t)experts,
                              .slots = (int32_t)slots,
                              .expert_of = expert_of,
                              .first_slot = first_slot,
                              .generation = generation };
    Py_DECREF(holder);
    return map;
}

static PyObject *tuple_of(const int32_t *from, int64_t count)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)count);
    for (int64_t i = 0; tuple != NULL && i < count; i++)
        if (PyTuple_SetItem(tuple, (Py_ssize_t)i, PyLong_FromLong(from[i])) < 0)
            Py_CLEAR(tuple);
    return tuple;
}

static PyObject *make_map(const int32_t *expert_of, int64_t slots, const int32_t *first_slot, int64_t ranks,
                          int64_t experts, uint64_t generation)
{
    PyObject *type = mpy_import("moxie.parallel", "SlotMap");
    PyObject *map =
        type == NULL ? NULL
                     : PyObject_CallFunction(type, "NNLK", tuple_of(expert_of, slots), tuple_of(first_slot, ranks + 1),
                                             (long long)experts, (unsigned long long)generation);
    Py_XDECREF(type);
    return map;
}

PyObject *mpy_slot_map_to(const moxie_slot_map *map)
{
    if (map == NULL)
        Py_RETURN_NONE;
    return make_map(map->expert_of, map->slots, map->first_slot, map->ranks, map->experts, map->generation);
}

/* Runs `body` with the map that is the first of `count` arguments; raises where the body's status is a failure. */
typedef PyObject *(*with_map)(const moxie_slot_map *map, PyObject *arguments, moxie_error *error);

static PyObject *on_map(PyObject *args, Py_ssize_t count, with_map body)
{
    moxie_error error = { 0 };
    if (PyTuple_Size(args) != count)
        return PyErr_Format(PyExc_TypeError, "%zd arguments are wanted, not %zd", count, PyTuple_Size(args));
    PyObject *keep = PyList_New(0), *out = NULL;
    const moxie_slot_map *map = keep == NULL ? NULL : mpy_slot_map_from(PyTuple_GetItem(args, 0), keep);
    if (map != NULL)
        out = body(map, args, &error);
    if (map != NULL && out == NULL && !PyErr_Occurred())
        mpy_raise(&error);
    Py_XDECREF(keep);
    return out;
}

static PyObject *check_body(const moxie_slot_map *map, PyObject *args, moxie_error *error)
{
    (void)args;
    return moxie_slot_map_check(map, error) == MOXIE_OK ? Py_NewRef(Py_None) : NULL;
}

/* [E] counts, and [E, width] slots with -1 behind the last. */
static PyObject *replicas_body(const moxie_slot_map *map, PyObject *args, moxie_error *error)
{
    const int64_t experts = map->experts;
    PyObject *counts = mpy_array_new(MOXIE_I32, 1, &experts), *slots = NULL, *both = NULL;
    (void)args;
    if (counts == NULL || moxie_slot_map_replicas(map, 0, mpy_array_data(counts), NULL, error) != MOXIE_OK)
        goto out;
    int64_t shape[2] = { experts, 1 };
    for (int64_t e = 0; e < experts; e++)
        if (((const int32_t *)mpy_array_data(counts))[e] > shape[1])
            shape[1] = ((const int32_t *)mpy_array_data(counts))[e];
    slots = mpy_array_new(MOXIE_I32, 2, shape);
    if (slots != NULL &&
        moxie_slot_map_replicas(map, (int32_t)shape[1], NULL, mpy_array_data(slots), error) == MOXIE_OK)
        both = PyTuple_Pack(2, counts, slots);
out:
    Py_XDECREF(slots);
    Py_XDECREF(counts);
    return both;
}

static PyObject *loads_body(const moxie_slot_map *map, PyObject *args, moxie_error *error)
{
    const int64_t ranks = map->ranks;
    PyObject *loads = mpy_array_of_numbers(PyTuple_GetItem(args, 1), "loads", MOXIE_F64, map->experts), *out = NULL;
    PyObject *each = loads == NULL ? NULL : mpy_array_new(MOXIE_F64, 1, &ranks);
    if (each != NULL && moxie_slot_map_loads(map, mpy_array_data(loads), mpy_array_data(each), error) == MOXIE_OK)
        out = Py_BuildValue("(Nd)", PyObject_CallMethod(each, "tolist", NULL),
                            moxie_balancedness(mpy_array_data(each), (int32_t)ranks));
    Py_XDECREF(each);
    Py_XDECREF(loads);
    return out;
}

static PyObject *without_body(const moxie_slot_map *map, PyObject *args, moxie_error *error)
{
    PyObject *dead = mpy_array_from(PyTuple_GetItem(args, 1), "dead", MOXIE_I32), *out = NULL;
    PyObject *given = PyTuple_GetItem(args, 2);
    PyObject *loads =
        dead == NULL || given == Py_None ? NULL : mpy_array_of_numbers(given, "loads", MOXIE_F64, map->experts);
    const int64_t *shape, ranks = map->ranks + 1, slots = map->slots;
    PyObject *expert_of = mpy_array_new(MOXIE_I32, 1, &slots), *first = mpy_array_new(MOXIE_I32, 1, &ranks);
    int32_t used = 0;
    if (dead != NULL && !PyErr_Occurred() && expert_of != NULL && first != NULL) {
        (void)mpy_array_shape(dead, &shape);
        if (moxie_slot_map_without(map, mpy_array_data(dead), (int32_t)shape[0],
                                   loads == NULL ? NULL : mpy_array_data(loads), mpy_array_data(expert_of),
                                   mpy_array_data(first), &used, error) == MOXIE_OK)
            out = make_map(mpy_array_data(expert_of), used, mpy_array_data(first), map->ranks - shape[0], map->experts,
                           map->generation + 1);
    }
    Py_XDECREF(first);
    Py_XDECREF(expert_of);
    Py_XDECREF(loads);
    Py_XDECREF(dead);
    return out;
}

static PyObject *map_check(PyObject *module, PyObject *args)
{
    (void)module;
    return on_map(args, 1, check_body);
}

static PyObject *map_replicas(PyObject *module, PyObject *args)
{
    (void)module;
    return on_map(args, 1, replicas_body);
}

static PyObject *map_loads(PyObject *module, PyObject *args)
{
    (void)module;
    return on_map(args, 2, loads_body);
}

static PyObject *map_without(PyObject *module, PyObject *args)
{
    (void)module;
    return on_map(args, 3, without_body);
}

static PyObject *map_default(PyObject *module, PyObject *args)
{
    const char *kind_name;
    int experts, slots, ranks;
    int32_t kind = 0, *expert_of, first_slot[MOXIE_MAX_RANKS + 1];
    moxie_error error = { 0 };
    PyObject *map = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "siii", &kind_name, &experts, &slots, &ranks) ||
        mpy_choice_value(mpy_expert_maps, "kind", kind_name, &kind) < 0)
        return NULL;
    if (ranks > MOXIE_MAX_RANKS || slots < 0 || slots > MOXIE_MAX_SLOTS)
        return mpy_fail(MOXIE_ERR_ARGUMENT, "slot map: %d ranks and %d slots; at most %d and %d are possible", ranks,
                        slots, MOXIE_MAX_RANKS, MOXIE_MAX_SLOTS),
               NULL;
    expert_of = PyMem_Malloc((size_t)(slots + 1) * 4);
    if (expert_of == NULL)
        return PyErr_NoMemory();
    if (moxie_slot_map_default((moxie_expert_map_kind)kind, experts, slots, ranks, expert_of, first_slot, &error) ==
        MOXIE_OK)
        map = make_map(expert_of, slots, first_slot, ranks, experts, 0);
    else
        mpy_raise(&error);
    PyMem_Free(expert_of);
    return map;
}

/* ---- load balancing ------------------------------------------------------------------------- */

typedef struct eplb {
    moxie_eplb_config config;
    PyObject *loads; /* a reference */
} eplb;

static int eplb_from(PyObject *args, PyObject *named, eplb *out)
{
    static char *names[] = { "loads", "layers", "experts", "slots", "ranks", "nodes", "groups", "distinct", NULL };
    PyObject *loads;
    out->config = (moxie_eplb_config)MOXIE_EPLB_CONFIG_INIT;
    moxie_eplb_config *c = &out->config;
    if (!PyArg_ParseTupleAndKeywords(args, named, "Oiiii|iip", names, &loads, &c->layers, &c->experts, &c->slots,
                                     &c->ranks, &c->nodes, &c->groups, &c->distinct))
        return -1;
    if (c->layers < 1 || c->experts < 1 || c->slots < 1 || c->slots > MOXIE_MAX_SLOTS || c->ranks < 1 ||
        c->ranks > MOXIE_MAX_RANKS)
        return mpy_fail(MOXIE_ERR_ARGUMENT, "eplb: %d layers, %d experts, %d slots and %d ranks; all are 1 or more",
                        c->layers, c->experts, c->slots, c->ranks),
               -1;
    out->loads = mpy_array_of_numbers(loads, "loads", MOXIE_F64, (int64_t)c->layers * c->experts);
    return out->loads == NULL ? -1 : 0;
}

static PyObject *eplb_balance(PyObject *module, PyObject *args, PyObject *named)
{
    eplb e;
    moxie_error error = { 0 };
    moxie_status status;
    (void)module;
    if (eplb_from(args, named, &e) < 0)
        return NULL;
    const int64_t all = (int64_t)e.config.layers * e.config.slots, slots = e.config.slots, ranks = e.config.ranks;
    int32_t first_slot[MOXIE_MAX_RANKS + 1];
    PyObject *expert_of = mpy_array_new(MOXIE_I32, 1, &all), *maps = NULL;
    if (expert_of != NULL) {
        const double *loads = mpy_array_data(e.loads);
        int32_t *out = mpy_array_data(expert_of);
        Py_BEGIN_ALLOW_THREADS status = moxie_eplb_balance(&e.config, loads, out, first_slot, NULL, &error);
        Py_END_ALLOW_THREADS if (status != MOXIE_OK) mpy_raise(&error);
        else maps = PyList_New(0);
        for (int32_t l = 0; maps != NULL && l < e.config.layers; l++) {
            PyObject *map = make_map(out + l * slots, slots, first_slot, ranks, e.config.experts, 0);
            if (map == NULL || PyList_Append(maps, map) < 0)
                Py_CLEAR(maps);
            Py_XDECREF(map);
        }
    }
    Py_XDECREF(expert_of);
    Py_DECREF(e.loads);
    return maps;
}

/* The numbers of `new` in an order that keeps those of `old` in place, rank by rank. */
static PyObject *keep_slots(PyObject *module, PyObject *args)
{
    PyObject *first, *second, *out = NULL;
    moxie_error error = { 0 };
    (void)module;
    if (!PyArg_ParseTuple(args, "OO", &first, &second))
        return NULL;
    PyObject *keep = PyList_New(0);
    const moxie_slot_map *old = keep == NULL ? NULL : mpy_slot_map_from(first, keep);
    const moxie_slot_map *new = old == NULL ? NULL : mpy_slot_map_from(second, keep);
    if (new != NULL && (old->slots != new->slots || old->ranks != new->ranks ||
                        memcmp(old->first_slot, new->first_slot, sizeof(int32_t) * ((size_t)old->ranks + 1)) != 0)) {
        mpy_fail(MOXIE_ERR_MISMATCH, "keep_slots: the two maps have other slots on their ranks");
        new = NULL;
    }
    if (new != NULL) {
        int32_t *order = PyMem_Malloc(((size_t) new->slots + 1) * 4);
        if (order == NULL)
            PyErr_NoMemory();
        else {
            memcpy(order, new->expert_of, (size_t) new->slots * 4);
            if (moxie_eplb_keep_slots(1, new->slots, new->ranks, new->first_slot, old->expert_of, order, &error) ==
                MOXIE_OK)
                out = make_map(order, new->slots, new->first_slot, new->ranks, new->experts, new->generation);
            else
                mpy_raise(&error);
        }
        PyMem_Free(order);
    }
    Py_XDECREF(keep);
    return out;
}

/* ---- vLLM's parallel configs ---------------------------------------------------------------- */

/* moxie_parallel from ParallelArgs, for one of the functions below. */
static int parallel_from(PyObject *object, PyObject *keep, moxie_parallel *out)
{
    moxie_parallel_args args = MOXIE_PARALLEL_ARGS_INIT;
    moxie_error error = { 0 };
    *out = (moxie_parallel)MOXIE_PARALLEL_INIT;
    if (mpy_record_from_python(&mpy_parallel_args_record, object, &args, keep) < 0)
        return -1;
    if (moxie_parallel_make(&args, out, &error) == MOXIE_OK)
        return 0;
    mpy_raise(&error);
    return -1;
}

/* (ParallelArgs) -> Parallel; (ParallelArgs, FusedMoEArgs, vllm) -> FusedMoE or ParallelLayer. */
static PyObject *parallel(PyObject *module, PyObject *args)
{
    PyObject *given, *layer = Py_None, *keep = PyList_New(0), *out = NULL;
    int vllm = 0;
    moxie_parallel made;
    moxie_error error = { 0 };
    (void)module;
    if (keep == NULL || !PyArg_ParseTuple(args, "O|Op", &given, &layer, &vllm) || parallel_from(given, keep, &made) < 0)
        goto out;
    if (layer == Py_None) {
        out = mpy_record_to_python(&mpy_parallel_record, &made, NULL, NULL);
        goto out;
    }
    moxie_fused_moe_args fused = MOXIE_FUSED_MOE_ARGS_INIT;
    moxie_fused_moe checked = MOXIE_FUSED_MOE_INIT;
    moxie_parallel_layer plan = MOXIE_PARALLEL_LAYER_INIT;
    if (mpy_record_from_python(&mpy_fused_moe_args_record, layer, &fused, keep) < 0)
        goto out;
    const moxie_status status = vllm ? moxie_fused_moe_check(&made, &fused, &checked, &error)
                                     : moxie_parallel_plan(&made, &fused, &plan, &error);
    if (status != MOXIE_OK)
        mpy_raise(&error);
    else
        out = vllm ? mpy_record_to_python(&mpy_fused_moe_record, &checked, NULL, NULL)
                   : mpy_record_to_python(&mpy_parallel_layer_record, &plan, NULL, NULL);
out:
    Py_XDECREF(keep);
    return out;
}

static PyObject *parallel_predicate(PyObject *module, PyObject *args)
{
    PyObject *given, *keep = PyList_New(0);
    const char *name;
    moxie_parallel made;
    int answer = -1;
    (void)module;
    if (keep != NULL && PyArg_ParseTuple(args, "Os", &given, &name) && parallel_from(given, keep, &made) == 0) {
        answer = moxie_parallel_predicate(&made, name);
        if (answer < 0)
            mpy_fail(MOXIE_ERR_ARGUMENT, "there is no predicate \"%s\"; moxie.parallel.predicates() lists them", name);
    }
    Py_XDECREF(keep);
    return answer < 0 ? NULL : PyBool_FromLong(answer);
}

static PyObject *parallel_predicates(PyObject *module, PyObject *none)
{
    PyObject *list = PyList_New(0);
    const char *name;
    (void)module, (void)none;
    for (int32_t i = 0; list != NULL && (name = moxie_parallel_predicate_at(i)) != NULL; i++) {
        PyObject *text = PyUnicode_FromString(name);
        if (text == NULL || PyList_Append(list, text) < 0)
            Py_CLEAR(list);
        Py_XDECREF(text);
    }
    return list;
}

static PyObject *all2all_backends(PyObject *module, PyObject *none)
{
    PyObject *list = PyList_New(0);
    moxie_all2all_backend backend = MOXIE_ALL2ALL_BACKEND_INIT;
    (void)module, (void)none;
    for (int32_t i = 0; list != NULL && moxie_all2all_backend_at(i, &backend, NULL) == MOXIE_OK; i++) {
        PyObject *item = mpy_record_to_python(&mpy_all2all_record, &backend, NULL, NULL);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

PyMethodDef mpy_parallel_functions[] = {
    { "_map_default", map_default, METH_VARARGS, "SlotMap.default()." },
    { "_map_check", map_check, METH_VARARGS, "SlotMap.check()." },
    { "_map_replicas", map_replicas, METH_VARARGS, "SlotMap.replicas()." },
    { "_map_loads", map_loads, METH_VARARGS, "SlotMap.loads(), and the balancedness of them." },
    { "_map_without", map_without, METH_VARARGS, "SlotMap.without()." },
    { "_map_keep_slots", keep_slots, METH_VARARGS, "SlotMap.keep_slots()." },
    { "_eplb_balance", (PyCFunction)(void (*)(void))eplb_balance, METH_VARARGS | METH_KEYWORDS, "balance()." },
    { "_parallel", parallel, METH_VARARGS, "make(), check_vllm() and plan()." },
    { "_parallel_predicate", parallel_predicate, METH_VARARGS, "predicate()." },
    { "_parallel_predicates", parallel_predicates, METH_NOARGS, "predicates()." },
    { "_all2all_backends", all2all_backends, METH_NOARGS, "all2all_backends()." },
    { NULL, NULL, 0, NULL }
};
