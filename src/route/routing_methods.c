/* SPDX-License-Identifier: Apache-2.0
 *
 * routing_methods.c - routing methods by name and by the numbers of other projects, and the description of a routing
 * for plans.
 *
 * A method is a starting point: a row of routing_methods.def sets its fields, and the caller adds bias, groups, scale
 * and tables. After that only the fields count, not the name.
 */
#include "route/route.h"

#include <stdio.h>

typedef struct method {
    const char *name;
    int32_t score, select, weight, norm, on_input;
    int32_t numbers[3]; /* by moxie_routing_numbering */
} method;

#define MOX_ROUTING_METHOD(name, score, select, weight, norm, on_input, vllm_old, vllm, flashinfer)                    \
    { name,                                                                                                            \
      MOXIE_SCORE_##score,                                                                                             \
      MOXIE_SELECT_##select,                                                                                           \
      MOXIE_WEIGHT_##weight,                                                                                           \
      MOXIE_NORM_##norm,                                                                                               \
      (on_input),                                                                                                      \
      { (vllm_old), (vllm), (flashinfer) } },
static const method methods[] = {
#include "route/routing_methods.def"
};
#undef MOX_ROUTING_METHOD

#define METHODS ((int32_t)(sizeof methods / sizeof methods[0]))

const char *mox_routing_name_at(int32_t i)
{
    return i >= 0 && i < METHODS ? methods[i].name : NULL;
}

static const method *find(const char *name)
{
    for (int32_t i = 0; i < METHODS; i++)
        if (name && !strcmp(methods[i].name, name))
            return &methods[i];
    return NULL;
}

static moxie_status fail_unknown(const char *name, moxie_error *error)
{
    char names[512] = "", shown[96];
    size_t length = 0;
    for (int32_t i = 0; i < METHODS && length < sizeof names; i++)
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%s", i ? ", " : "", methods[i].name);
    return mox_fail(MOXIE_ERR_ARGUMENT, error, "no routing method is called \"%s\"; the methods are: %s",
                    mox_escape(shown, sizeof shown, name ? name : ""), names);
}

moxie_status mox_routing_by_name(const char *name, moxie_routing *routing, moxie_error *error)
{
    const method *m = find(name);
    if (!m)
        return fail_unknown(name, error);
    *routing = (moxie_routing) {
        .score = m->score,
        .select = m->select,
        .weight = m->weight,
        .norm = m->norm,
        .on_input = m->on_input,
    };
    return MOXIE_OK;
}

int32_t mox_routing_number(const char *name, moxie_routing_numbering numbering)
{
    const method *m = find(name);
    return m ? m->numbers[numbering] : -1;
}

const char *mox_routing_name_of(int32_t number, moxie_routing_numbering numbering)
{
    for (int32_t i = 0; i < METHODS && number >= 0; i++)
        if (methods[i].numbers[numbering] == number)
            return methods[i].name;
    return NULL;
}

/* ---- in words ----------------------------------------------------------------------------------- */

typedef struct text {
    char *buffer;
    size_t size;
} text;

__attribute__((format(printf, 2, 3))) static void add(text *t, const char *format, ...)
{
    const size_t length = strlen(t->buffer);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(t->buffer + length, t->size - length, format, arguments);
    va_end(arguments);
}

static void describe_selection(text *t, const moxie_routing *r, long long experts, long long k)
{
    static const char *const scores[] = { "logit", "softmax", "sigmoid", "sqrt(softplus)" };
    switch (r->select) {
    case MOXIE_SELECT_TABLE:
        add(t, "%s, ids from a table by token id, %lld of %lld", scores[r->score], k, experts);
        break;
    case MOXIE_SELECT_SPARSEMIXER: add(t, "sparsemixer top-2 of %lld", experts); break;
    case MOXIE_SELECT_CUSTOM: add(t, "custom callback, %lld of %lld", k, experts); break;
    case MOXIE_SELECT_SIM_UNIFORM: add(t, "simulated uniform, %lld of %lld", k, experts); break;
    case MOXIE_SELECT_SIM_NORMAL: add(t, "simulated normal, %lld of %lld", k, experts); break;
    default:
        add(t, "%s%s top-%lld of %lld", scores[r->score], r->bias ? " + bias" : "", k, experts);
        if (r->topk_per_group > 0)
            add(t, ", %d in each of %d groups", (int)r->topk_per_group, (int)r->n_group);
        else if (r->n_group > 1)
            add(t, " in the best %d of %d groups", (int)r->topk_group, (int)r->n_group);
    }
}

const char *mox_routing_describe(const moxie_routing *routing, int64_t experts, int64_t top_k, char *buffer,
                                 size_t size)
{
    text t = { buffer, size };
    buffer[0] = '\0';
    describe_selection(&t, routing, experts, top_k);
    if (routing->zero_experts > 0)
        add(&t, ", beside them %d %s expert(s)", (int)routing->zero_experts,
            routing->zero_kind == MOXIE_ZERO_NULL ? "null" : "identity");
    if (routing->bias_alt)
        add(&t, ", a second bias for some tokens");
    if (routing->softcap != 0)
        add(&t, ", soft cap %g", (double)routing->softcap);
    if (routing->weight == MOXIE_WEIGHT_SOFTMAX_SELECTED)
        add(&t, ", softmax over the chosen");
    if (routing->weight == MOXIE_WEIGHT_SIGMOID_SELECTED)
        add(&t, ", sigmoid of the chosen");
    if (routing->norm != MOXIE_NORM_NONE)
        add(&t, routing->norm == MOXIE_NORM_ROOT_SQUARES ? ", renormalised by the root of squares" : ", renormalised");
    if (routing->scale != 0 && routing->scale != 1)
        add(&t, ", times %g", (double)routing->scale);
    if (routing->per_expert_scale)
        add(&t, ", times a scale per expert");
    if (routing->on_input)
        add(&t, ", applied to the input");
    return buffer;
}
