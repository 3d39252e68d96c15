/* SPDX-License-Identifier: Apache-2.0
 *
 * routing_types.c - which number a routing has in vLLM and FlashInfer. Engines use it to choose a fused kernel that
 * routes by itself, so a routing that no such kernel computes is Unspecified.
 *
 *     scoring function, renormalisation, groups, bias -> method of routing_methods.def -> number
 *
 * Source: get_routing_method_type() of vLLM 0.33 (fused_moe/config.py), and of the releases before it adopted
 * FlashInfer's numbers; the routers of fused_moe/router for what that function is not asked about.
 */
#include "route/route.h"

typedef struct query {
    int32_t score; /* moxie_score; LOGIT: another one */
    int64_t top_k;
    bool renormalize, grouped, biased;
} query;

/* The method of vLLM 0.33, or NULL. */
static const char *newest(const query *q)
{
    switch (q->score) {
    case MOXIE_SCORE_SQRTSOFTPLUS: return q->renormalize ? "deepseek_v4" : NULL;
    case MOXIE_SCORE_SIGMOID:
        if (!q->biased)
            return q->renormalize ? "sigmoid_renorm" : "sigmoid";
        return !q->renormalize ? NULL : q->grouped ? "deepseek_v3" : "minimax2";
    case MOXIE_SCORE_SOFTMAX: return q->biased ? NULL : q->renormalize ? "renormalize_naive" : "default";
    default: return NULL;
    }
}

static const char *oldest(const query *q)
{
    if (q->score == MOXIE_SCORE_SIGMOID)
        return q->biased ? (q->grouped ? "deepseek_v3" : NULL) : q->top_k == 1 ? "llama4" : NULL;
    return q->score != MOXIE_SCORE_SOFTMAX || q->biased ? NULL : q->renormalize ? "renormalize" : "default";
}

/* NULL, and a method without a number, are Unspecified. */
static int32_t number_or_unspecified(const char *method, moxie_routing_numbering numbering)
{
    static const int32_t unspecified[] = { 8, 9, 10 };
    const int32_t number = method != NULL ? mox_routing_number(method, numbering) : -1;
    return number >= 0 ? number : unspecified[numbering];
}

static int32_t answer(const query *q, moxie_routing_numbering numbering)
{
    return number_or_unspecified(numbering == MOXIE_NUMBERING_VLLM_OLD ? oldest(q) : newest(q), numbering);
}

int32_t mox_routing_method_type(const char *scoring_func, int64_t top_k, bool renormalize, int32_t groups, bool biased,
                                moxie_routing_numbering numbering)
{
    static const char *const names[] = { "", "softmax", "sigmoid", "sqrtsoftplus" }; /* by moxie_score */
    query q = { MOXIE_SCORE_LOGIT, top_k, renormalize, groups > 0, biased };
    for (int32_t i = MOXIE_SCORE_SOFTMAX; scoring_func != NULL && i <= MOXIE_SCORE_SQRTSOFTPLUS; i++)
        if (strcmp(scoring_func, names[i]) == 0)
            q.score = i;
    return answer(&q, numbering);
}

/* The method of a routing that is no score function with a renormalisation; NULL for those. */
static const char *special(const moxie_routing *r)
{
    if (r->select == MOXIE_SELECT_CUSTOM || r->select == MOXIE_SELECT_SPARSEMIXER)
        return "custom";
    if (r->select == MOXIE_SELECT_SIM_UNIFORM || r->select == MOXIE_SELECT_SIM_NORMAL)
        return "sim_uniform";
    if (r->score != MOXIE_SCORE_LOGIT)
        return NULL;
    if (r->weight == MOXIE_WEIGHT_SIGMOID_SELECTED)
        return r->on_input ? "llama4" : "topk_sigmoid";
    return r->weight == MOXIE_WEIGHT_SOFTMAX_SELECTED ? "renormalize" : "topk";
}

int32_t mox_routing_number_of(const moxie_routing *routing, int64_t top_k, moxie_routing_numbering numbering)
{
    const char *method = special(routing);
    const query q = { routing->score, top_k, routing->norm != MOXIE_NORM_NONE, routing->n_group > 0,
                      routing->bias != NULL };
    if (routing->zero_experts > 0 || routing->norm == MOXIE_NORM_ROOT_SQUARES ||
        (routing->score == MOXIE_SCORE_LOGIT && routing->bias != NULL))
        return number_or_unspecified(NULL, numbering);
    return method != NULL ? number_or_unspecified(method, numbering) : answer(&q, numbering);
}
