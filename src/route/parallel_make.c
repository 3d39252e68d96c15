/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel_make.c - vLLM's FusedMoEParallelConfig: all devices of TP, PCP and DP become ranks that cut experts, or
 * ranks that share them out.
 *
 *     N = dp pcp tp,  r = (dp_rank pcp + pcp_rank) tp + tp_rank
 *     expert parallel and N > 1:  tp = (1, 0), ep = (N, r)          else:  tp = (N, r), ep = (1, 0)
 *
 * Back ends and predicates are lists (all2all_backends.def, parallel_predicates.def).
 * Source: vLLM 0.33, FusedMoEParallelConfig.make and ParallelConfig.
 */
#include "route/parallel.h"

#include <moxie/moxie_comm.h>
#include <stdio.h>

/* ---- back ends ------------------------------------------------------------------------------------- */

#define MOX_ALL2ALL_BACKEND(name, vllm_name, exchange, differs)                                                        \
    { sizeof(moxie_all2all_backend), MOXIE_EXCHANGE_##exchange, (name), (vllm_name), (differs) },
static const moxie_all2all_backend backends[] = {
#include "route/all2all_backends.def"
};
#undef MOX_ALL2ALL_BACKEND
#define BACKENDS ((int32_t)(sizeof backends / sizeof backends[0]))

const moxie_all2all_backend *mox_all2all_at(int32_t i)
{
    return i >= 0 && i < BACKENDS ? &backends[i] : NULL;
}

const moxie_all2all_backend *mox_all2all_find(const char *name)
{
    for (int32_t i = 0; i < BACKENDS; i++)
        if (name && !strcmp(backends[i].name, name))
            return &backends[i];
    return NULL;
}

static moxie_status fail_unknown(const char *name, moxie_error *error)
{
    char names[400] = "", shown[96];
    size_t length = 0;
    for (int32_t i = 0; i < BACKENDS && length < sizeof names; i++)
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%s", i ? ", " : "", backends[i].name);
    return mox_fail(MOXIE_ERR_ARGUMENT, error, "no all2all back end is called \"%s\"; the names are: %s",
                    mox_escape(shown, sizeof shown, name ? name : ""), names);
}

/* ---- sizes and ranks ------------------------------------------------------------------------------- */

typedef struct axis {
    const char *name;
    int32_t size, rank;
} axis;

static int32_t size_of(int32_t given)
{
    return given == 0 ? 1 : given;
}

static moxie_status check_axes(const axis *axes, int count, moxie_error *error)
{
    int64_t devices = 1;
    for (int i = 0; i < count; i++) {
        const axis *a = &axes[i];
        MOX_FAIL_IF(a->size < 1, MOXIE_ERR_ARGUMENT, error, "%s_size is %d; it must be 1 or more, or 0 for 1", a->name,
                    (int)a->size);
        MOX_FAIL_IF(a->rank < 0 || a->rank >= a->size, MOXIE_ERR_ARGUMENT, error,
                    "%s_rank is %d; with %s_size %d it must be from 0 to %d", a->name, (int)a->rank, a->name,
                    (int)a->size, (int)a->size - 1);
        devices *= a->size <= MOXIE_MAX_RANKS ? a->size : MOXIE_MAX_RANKS + 1;
        MOX_FAIL_IF(devices > MOXIE_MAX_RANKS, MOXIE_ERR_ARGUMENT, error,
                    "the sizes of TP, PCP and DP make more than %d devices; give fewer", MOXIE_MAX_RANKS);
    }
    return MOXIE_OK;
}

/* vLLM's layers make sp_size tp_size where use_sequence_parallel_moe holds, else 1. */
static int32_t usual_sp_size(const moxie_parallel *made)
{
    return mox_parallel_predicate(made, "use_sequence_parallel_moe") == 1 ? mox_parallel_engine_tp(made) : 1;
}

moxie_status mox_parallel_make(const moxie_parallel_args *args, moxie_parallel *out, moxie_error *error)
{
    const axis tp = { "tp", size_of(args->tp_size), args->tp_rank };
    const axis pcp = { "pcp", size_of(args->pcp_size), args->pcp_rank };
    const axis dp = { "dp", size_of(args->dp_size), args->dp_rank };
    const char *name = args->all2all_backend ? args->all2all_backend : "allgather_reducescatter";
    const moxie_all2all_backend *backend = mox_all2all_find(name);
    MOX_TRY(check_axes((const axis[]) { tp, pcp, dp }, 3, error));
    MOX_FAIL_IF(args->sp_size < 0, MOXIE_ERR_ARGUMENT, error,
                "sp_size is %d; it must be 1 or more, or 0 for what vLLM derives", (int)args->sp_size);
    if (!backend)
        return fail_unknown(name, error);
    const int32_t devices = dp.size * pcp.size * tp.size;
    const int32_t device = (dp.rank * pcp.size + pcp.rank) * tp.size + tp.rank;
    mox_parallel_none(out);
    out->use_ep = devices > 1 && args->enable_expert_parallel != 0;
    *(out->use_ep ? &out->ep_size : &out->tp_size) = devices;
    *(out->use_ep ? &out->ep_rank : &out->tp_rank) = device;
    out->pcp_size = pcp.size;
    out->pcp_rank = pcp.rank;
    out->dp_size = dp.size;
    out->dp_rank = dp.rank;
    out->enable_eplb = args->enable_eplb != 0;
    out->all2all_backend = backend->vllm_name ? backend->vllm_name : backend->name;
    out->sp_size = args->sp_size ? args->sp_size : usual_sp_size(out);
    return MOXIE_OK;
}

void mox_parallel_none(moxie_parallel *out)
{
    *out = (moxie_parallel) { .struct_size = sizeof *out,
                              .tp_size = 1,
                              .pcp_size = 1,
                              .dp_size = 1,
                              .ep_size = 1,
                              .sp_size = 1,
                              .all2all_backend = "allgather_reducescatter" };
}

moxie_status mox_parallel_read(const moxie_parallel *p, moxie_error *error)
{
    const axis axes[] = { { "tp", p->tp_size, p->tp_rank }, { "ep", p->ep_size, p->ep_rank } };
    const axis engine[] = { { "dp", p->dp_size, p->dp_rank }, { "pcp", p->pcp_size, p->pcp_rank } };
    MOX_TRY(check_axes(axes, 2, error));
    MOX_TRY(check_axes(engine, 2, error));
    MOX_FAIL_IF(p->use_ep ? p->tp_size > 1 : p->ep_size > 1, MOXIE_ERR_ARGUMENT, error,
                "tp_size %d and ep_size %d do not go with use_ep %d; fill the struct with moxie_parallel_make",
                (int)p->tp_size, (int)p->ep_size, (int)p->use_ep);
    MOX_FAIL_IF(mox_parallel_ranks(p) % (p->dp_size * p->pcp_size) != 0, MOXIE_ERR_ARGUMENT, error,
                "%d devices are no multiple of dp_size %d times pcp_size %d; fill the struct with moxie_parallel_make",
                (int)mox_parallel_ranks(p), (int)p->dp_size, (int)p->pcp_size);
    MOX_FAIL_IF(p->sp_size < 1, MOXIE_ERR_ARGUMENT, error, "sp_size is %d; it must be 1 or more", (int)p->sp_size);
    return mox_all2all_find(p->all2all_backend) ? MOXIE_OK : fail_unknown(p->all2all_backend, error);
}

int32_t mox_parallel_ranks(const moxie_parallel *p)
{
    return p->tp_size * p->ep_size;
}

int32_t mox_parallel_rank(const moxie_parallel *p)
{
    return p->use_ep ? p->ep_rank : p->tp_rank;
}

int32_t mox_parallel_engine_tp(const moxie_parallel *p)
{
    return mox_parallel_ranks(p) / (p->dp_size * p->pcp_size);
}

/* ---- predicates ------------------------------------------------------------------------------------ */

typedef enum condition { SEQUENCE, ALL2ALL, ALWAYS, EP_DP, EP_DP_TP, DP_OR_PCP } condition;

static const struct predicate {
    const char *name;
    condition condition;
    const char *backends;
} predicates[] = {
#define MOX_PARALLEL_PREDICATE(name, condition, backends) { (name), condition, (backends) },
#include "route/parallel_predicates.def"
#undef MOX_PARALLEL_PREDICATE
};
#define PREDICATES ((int32_t)(sizeof predicates / sizeof predicates[0]))

static bool holds(const moxie_parallel *p, condition when)
{
    const bool sequence = p->sp_size > 1, ep = p->use_ep != 0;
    switch (when) {
    case SEQUENCE: return sequence;
    case ALL2ALL: return ep && (p->dp_size > 1 || p->pcp_size > 1 || sequence);
    case EP_DP: return ep && p->dp_size > 1;
    case EP_DP_TP: return ep && p->dp_size > 1 && mox_parallel_engine_tp(p) > 1;
    case DP_OR_PCP: return p->dp_size > 1 || (ep && p->pcp_size > 1);
    case ALWAYS: break;
    }
    return true;
}

/* Whether `name` is a word of `list`, which begins and ends with a blank. */
static bool lists(const char *list, const char *name)
{
    char word[64];
    snprintf(word, sizeof word, " %s ", name);
    return !strcmp(list, " ") || strstr(list, word) != NULL;
}

int mox_parallel_predicate(const moxie_parallel *parallel, const char *name)
{
    for (int32_t i = 0; i < PREDICATES; i++)
        if (!strcmp(predicates[i].name, name))
            return holds(parallel, predicates[i].condition) && lists(predicates[i].backends, parallel->all2all_backend);
    return -1;
}

const char *mox_parallel_predicate_at(int32_t i)
{
    return i >= 0 && i < PREDICATES ? predicates[i].name : NULL;
}
