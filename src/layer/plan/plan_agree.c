/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_agree.c - the handshake of plan creation: all ranks compare what must be the same on all of them (plan_ranks.h).
 *
 * Each rank sends a list of numbers to all others. A number that stands for several fields is a hash of them. A rank
 * whose plan could not be made sends its status, so that the others do not wait for it.
 */
#include <string.h>

#include "layer/plan/plan_ranks.h"
#include "layer/weights/static_scale.h"

typedef struct field {
    const char *name;
    int64_t value;
} field;

/* A rank that no value disturbs. */
#define ANY INT64_MIN

enum { MAX_FIELDS = 56 };

typedef struct field_list {
    field items[MAX_FIELDS];
    int64_t count, same; /* the first `same` must be the same on all ranks */
} field_list;

static void add(field_list *list, const char *name, int64_t value)
{
    list->items[list->count++] = (field) { name, value };
}

/* FNV-1a over the numbers, below 2^53 so that a text shows all of it. */
static int64_t hash(const int64_t *numbers, int64_t count)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (int64_t i = 0; i < count; i++)
        for (int byte = 0; byte < 8; byte++)
            h = (h ^ ((uint64_t)numbers[i] >> (8 * byte) & 255)) * UINT64_C(0x100000001b3);
    return (int64_t)(h >> 11);
}

static int64_t quant_hash(const moxie_quant *q)
{
    const int64_t numbers[] = { q->element, q->scale,     q->group_rows, q->group_cols, q->has_zero,
                                q->global,  q->is_static, q->rule,       q->rounding };
    return hash(numbers, sizeof numbers / sizeof numbers[0]);
}

static int64_t number_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

#define HASH(...) hash((const int64_t[]) { __VA_ARGS__ }, sizeof((const int64_t[]) { __VA_ARGS__ }) / sizeof(int64_t))

static int64_t activation_hash(const moxie_activation *a)
{
    return HASH(a->kind, number_of(a->alpha), number_of(a->beta), number_of(a->gate_limit), number_of(a->up_limit),
                a->expert_alpha != NULL, a->expert_beta != NULL, a->expert_limit != NULL);
}

static int64_t norm_hash(const moxie_row_norm *n)
{
    return HASH(n->kind, n->has_weight, number_of(n->eps), number_of(n->weight_add), number_of(n->factor));
}

/* Not its arrays, which may be large: they come from the same checkpoint. */
static int64_t routing_hash(const moxie_routing *r)
{
    return HASH(r->score, r->select, r->weight, r->norm, number_of(r->norm_eps), number_of(r->scale), r->n_group,
                r->topk_group, r->group_score, r->group_fill_zero, r->on_input, r->round_logits_bf16,
                r->round_weights_bf16, number_of(r->jitter), r->bias != NULL, r->per_expert_scale != NULL,
                r->table_rows, (int64_t)r->seed, number_of(r->softcap), r->zero_experts, r->zero_kind,
                r->topk_per_group, r->bias_alt != NULL);
}

static int64_t shared_hash(const moxie_layer_config *c)
{
    const moxie_shared_config *s = &c->shared;
    return HASH(quant_hash(&s->w13), quant_hash(&s->w2), quant_hash(&s->a13), quant_hash(&s->a2), s->has_gate,
                s->bias13, s->bias2, number_of(s->scale), c->has_shared_activation,
                c->has_shared_activation ? activation_hash(&c->shared_activation) : 0);
}

static int64_t placement_hash(const moxie_plan *plan)
{
    const mox_ranks *x = plan->ranks;
    int64_t h = 0;
    for (int32_t i = 0; i < x->first_replica[plan->config.experts]; i++)
        h = hash((const int64_t[]) { h, x->replica[i] }, 2);
    for (int64_t e = 0; e <= plan->config.experts; e++)
        h = hash((const int64_t[]) { h, x->first_replica[e] }, 2);
    return h;
}

/* Each rank packs its own experts, and a layout may not fit some weights; then other kernels read the rank's
 * records. Where ranks sum parts of different lengths, each part may have its own order. */
static int64_t sum_of(const moxie_plan *plan, mox_projection p)
{
    if (plan->layer->slots == 0 || (p == MOX_W2 && plan->tp_cut == MOX_TP_SUMS))
        return ANY;
    return (int64_t)plan->backend->sum(plan->kernels.experts[MOX_ROUTED].product[p]);
}

/* Tensor parallel ranks are all on the host or all on GPUs. A whole shared expert has the order of the token's rank. */
static int64_t shared_sum_of(const moxie_plan *plan, mox_projection p)
{
    if (plan->shared_cut == MOX_TP_WHOLE)
        return ANY;
    return (int64_t)plan->backend->sum(plan->kernels.experts[MOX_SHARED_EXPERT].product[p]);
}

static float float_of(int64_t number)
{
    const uint32_t bits = (uint32_t)number;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The most cautious static scale of this rank's own experts; and what those without one use, ANY if there are none. */
static void add_static_scale(const moxie_plan *plan, mox_projection p, field_list *list)
{
    const moxie_layer *layer = plan->layer;
    const mox_static_scale *scale = &layer->static_scale[p];
    const moxie_quant *quant = p == MOX_W13 ? &plan->config.a13 : &plan->config.a2;
    float best = 0;
    int64_t fallback = ANY;
    for (int32_t s = 0; s < layer->slots && scale->needed; s++) {
        const float raw = scale->raw[layer->expert_of[s]];
        best = mox_static_scale_cautious(quant, best, raw);
        if (raw == 0)
            fallback = number_of(scale->resolved[s]);
    }
    add(list, "", number_of(best));
    add(list, "", fallback);
}

/* What the scale of W13's activations is for all of this rank's experts; ANY: it has none; MANY: they differ. */
#define MANY (INT64_MIN + 1)

static int64_t one_scale13(const moxie_plan *plan)
{
    const mox_static_scale *scale = &plan->layer->static_scale[MOX_W13];
    if (plan->layer->slots == 0)
        return ANY;
    return !scale->uniform ? MANY : scale->needed ? number_of(scale->resolved[0]) : 0;
}

static void list_fields(const moxie_plan *plan, field_list *list)
{
    const moxie_layer_config *c = &plan->config;
    const bool on_device = plan->backend->on_device; /* ranks may mix: bits are then those of the placement */
    add(list, "experts", c->experts);
    add(list, "top_k", c->top_k);
    add(list, "hidden", c->hidden);
    add(list, "intermediate", c->intermediate);
    add(list, "dtype", c->dtype);
    add(list, "w13 (a hash of its fields)", quant_hash(&c->w13));
    add(list, "w2 (a hash of its fields)", quant_hash(&c->w2));
    add(list, "a13 (a hash of its fields)", quant_hash(&c->a13));
    add(list, "a2 (a hash of its fields)", quant_hash(&c->a2));
    add(list, "activation.kind", c->activation.kind);
    add(list, "round_results", c->round_results);
    add(list, "routing.on_input", c->routing.on_input);
    add(list, "routing.zero_experts", c->routing.zero_experts);
    add(list, "shared.intermediate", c->shared.intermediate);
    add(list, "expert_norm.kind", c->expert_norm.kind);
    add(list, "activation (a hash of its fields)", activation_hash(&c->activation));
    add(list, "routing (a hash of its fields)", routing_hash(&c->routing));
    add(list, "shared (a hash of its fields)", c->shared.intermediate > 0 ? shared_hash(c) : 0);
    add(list, "expert_norm (a hash of its fields)", norm_hash(&c->expert_norm));
    add(list, "max_tokens", plan->max_tokens);
    add(list, "options.max_adapter_rank", plan->max_adapter_rank);
    add(list, "token_layout", plan->ranks->layout);
    add(list, "exchange_capacity", plan->ranks->capacity);
    add(list, "mode", plan->mode);
    add(list, "tp_size", plan->ranks->tp_size);
    add(list, "how tensor parallel ranks cut W2", plan->tp_cut);
    add(list, "how tensor parallel ranks cut the shared expert", plan->shared_cut);
    /* The host knows how many pairs a group gathers, a device does not. */
    add(list, "where tensor parallel ranks compute (0: the host, 1: a GPU)", plan->ranks->tp_size > 1 ? on_device : 0);
    /* Other memory means other messages. */
    add(list, "whether rows of the comm are in a GPU's memory", on_device && !plan->ranks->staged);
    add(list, "the tokens of a pass of tensor parallel ranks", plan->ranks->tp_size > 1 ? plan->pass_limit : 0);
    add(list, "degraded", plan->ranks->degraded);
    add(list, "slot_map.generation", plan->ranks->generation);
    add(list, "the slots of slot_map and options.spare_slots", c->slot_map != NULL ? c->slot_map->slots : 0);
    add(list, "the experts' placement (a hash of it)", placement_hash(plan));
    add(list, "the order of summation of w13's kernel on the host", on_device ? ANY : sum_of(plan, MOX_W13));
    add(list, "the order of summation of w2's kernel on the host", on_device ? ANY : sum_of(plan, MOX_W2));
    add(list, "the order of summation of w13's kernel on a device", on_device ? sum_of(plan, MOX_W13) : ANY);
    add(list, "the order of summation of w2's kernel on a device", on_device ? sum_of(plan, MOX_W2) : ANY);
    add(list, "the order of summation of the shared expert's w13 kernel", shared_sum_of(plan, MOX_W13));
    add(list, "the order of summation of the shared expert's w2 kernel", shared_sum_of(plan, MOX_W2));
    list->same = list->count;
    for (int p = MOX_W13; p <= MOX_W2; p++)
        add_static_scale(plan, (mox_projection)p, list);
    add(list, "", plan->ranks->coded ? one_scale13(plan) : MANY);
    add(list, "", plan->ranks->chunk_tokens);
}

/* Field i of rank r in what all ranks sent; before them comes its status. */
static int64_t value_of(const int64_t *all, int32_t r, int64_t i)
{
    return all[(int64_t)r * (MAX_FIELDS + 1) + 1 + i];
}

/* All ranks must have one value. The text is about this rank's, or another's where it has none. */
static moxie_status compare_field(const int64_t *all, int64_t i, const char *name, int32_t ranks, int32_t rank,
                                  moxie_error *error)
{
    int32_t first = rank;
    for (int32_t r = 0; r < ranks && value_of(all, first, i) == ANY; r++)
        first = r;
    for (int32_t r = 0; r < ranks; r++)
        MOX_FAIL_IF(value_of(all, r, i) != ANY && value_of(all, r, i) != value_of(all, first, i), MOXIE_ERR_MISMATCH,
                    error, "rank %d has %lld for %s, but rank %d has %lld: all ranks must make the same plan", (int)r,
                    (long long)value_of(all, r, i), name, (int)first, (long long)value_of(all, first, i));
    return MOXIE_OK;
}

/* Experts without a static scale use the most cautious one of all experts. A rank that was given its own experts alone
 * knows no others', and would use another scale than one rank. */
static moxie_status compare_static_scale(const moxie_plan *plan, const int64_t *all, int64_t i, int32_t ranks,
                                         mox_projection p, moxie_error *error)
{
    const moxie_quant *quant = p == MOX_W13 ? &plan->config.a13 : &plan->config.a2;
    float best = 0;
    for (int32_t r = 0; r < ranks; r++)
        best = mox_static_scale_cautious(quant, best, float_of(value_of(all, r, i)));
    for (int32_t r = 0; r < ranks; r++) {
        const int64_t fallback = value_of(all, r, i + 1);
        MOX_FAIL_IF(fallback != ANY && float_of(fallback) != best, MOXIE_ERR_MISMATCH, error,
                    "rank %d uses %g as the %s of experts that have none, but with the experts of all ranks it is %g: "
                    "give moxie_layer_prepare the scales of all experts on every rank",
                    (int)r, (double)float_of(fallback), p == MOX_W13 ? "a13_scale" : "a2_scale", (double)best);
    }
    return MOXIE_OK;
}

/* Status first: a rank that failed has no list. */
static moxie_status compare(const moxie_plan *plan, const field_list *own, const int64_t *all, int32_t ranks,
                            int32_t rank, moxie_error *error)
{
    for (int32_t r = 0; r < ranks; r++)
        MOX_FAIL_IF(value_of(all, r, -1) != MOXIE_OK, MOXIE_ERR_MISMATCH, error,
                    "rank %d could not make its plan (%s): see the error of its call", (int)r,
                    mox_status_name((moxie_status)value_of(all, r, -1)));
    for (int64_t i = 0; i < own->same; i++)
        MOX_TRY(compare_field(all, i, own->items[i].name, ranks, rank, error));
    for (int p = MOX_W13; p <= MOX_W2; p++)
        if (plan->layer->static_scale[p].needed)
            MOX_TRY(compare_static_scale(plan, all, own->same + 2 * p, ranks, (mox_projection)p, error));
    return MOXIE_OK;
}

/* Passes, and so chunks, are as large as a rank's kernels like them; those of unlike processors may differ. */
static void set_smallest_chunk(moxie_plan *plan, const field_list *own, const int64_t *all, int32_t ranks)
{
    for (int32_t r = 0; r < ranks; r++)
        mox_plan_ranks_limit_chunk(plan, value_of(all, r, own->count - 1));
}

/* One row serves all experts of all ranks only if they quantize it with one scale. */
static void set_codes(moxie_plan *plan, const field_list *own, const int64_t *all, int32_t ranks)
{
    mox_ranks *x = plan->ranks;
    int64_t one = ANY;
    for (int32_t r = 0; r < ranks; r++) {
        const int64_t theirs = value_of(all, r, own->count - 2);
        if (theirs == MANY || (theirs != ANY && one != ANY && theirs != one))
            x->coded = false;
        one = theirs != ANY ? theirs : one;
    }
    x->static_scale = one != ANY && one != MANY ? float_of(one) : 0;
    mox_plan_ranks_set_row(plan);
}

moxie_status mox_plan_ranks_agree(moxie_plan *plan, moxie_comm *comm, moxie_status status, moxie_error *error)
{
    field_list own = { .count = 0 };
    moxie_error other;
    const int32_t ranks = mox_comm_ranks(comm), rank = mox_comm_rank(comm);
    const uint64_t each = MAX_FIELDS + 1;
    int64_t *send = mox_calloc((uint64_t)ranks * each, sizeof *send),
            *recv = mox_calloc((uint64_t)ranks * each, sizeof *recv);
    if (status == MOXIE_OK && (send == NULL || recv == NULL))
        status = mox_fail(MOXIE_ERR_MEMORY, error, "no memory to compare the plans of %d ranks", (int)ranks);
    if (send == NULL || recv == NULL) { /* the others learn at once that this rank does not come */
        (void)mox_fail(MOXIE_ERR_MEMORY, &other, "rank %d has no memory to compare the plans of %d ranks", (int)rank,
                       (int)ranks);
        mox_comm_break(comm, &other);
        goto out;
    }
    if (status == MOXIE_OK)
        list_fields(plan, &own);
    for (int32_t r = 0; r < ranks; r++) {
        send[(uint64_t)r * each] = status;
        for (int64_t i = 0; i < own.count; i++)
            send[(uint64_t)r * each + 1 + (uint64_t)i] = own.items[i].value;
    }
    mox_comm_request request;
    moxie_status met = mox_comm_start_counts(comm, send, recv, (int64_t)each, &request, &other);
    if (met == MOXIE_OK)
        met = mox_comm_wait(comm, request, &other);
    if (met == MOXIE_OK && status == MOXIE_OK)
        met = compare(plan, &own, recv, ranks, rank, &other);
    if (met == MOXIE_OK && status == MOXIE_OK) {
        set_smallest_chunk(plan, &own, recv, ranks);
        set_codes(plan, &own, recv, ranks);
        plan->ranks->number = (int64_t)mox_comm_operations(comm);
    }
    if (status == MOXIE_OK && met != MOXIE_OK) {
        status = met;
        if (error != NULL)
            *error = other;
    }
out:
    mox_free(send);
    mox_free(recv);
    return status;
}
