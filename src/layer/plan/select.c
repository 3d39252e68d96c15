/* SPDX-License-Identifier: Apache-2.0
 *
 * select.c - walks the kernel lists for a configuration: the first kernel that admits the problem runs; refusals of
 * the kernels before it are kept for the plan.
 *
 * The kernels of one expert's two products are chosen together, because one record in one layout serves both: of all
 * admissible pairs with equal layout the one with the least sum of list positions wins, on a tie the one with the
 * better kernel for W13.
 */
#include "layer/plan/select.h"

#include <stdio.h>

/* What all choices of one plan share. */
typedef struct selector {
    const moxie_layer_config *config;
    const mox_backend *backend;
    mox_target target;
    mox_steps *steps;
    moxie_error *error;
} selector;

static bool admits(const selector *s, mox_family family, const mox_kernel *kernel, const void *problem,
                   mox_rejection *why)
{
    return s->backend->admits(&s->target, family, kernel, problem, why);
}

/* ---- steps -------------------------------------------------------------------------------------- */

static moxie_status grow(mox_steps *steps, moxie_error *error)
{
    if (steps->count < steps->capacity)
        return MOXIE_OK;
    const int32_t capacity = steps->capacity > 0 ? 2 * steps->capacity : 16;
    moxie_plan_step *items = mox_realloc(steps->items, (uint64_t)capacity * sizeof *items);
    MOX_FAIL_IF(items == NULL, MOXIE_ERR_MEMORY, error, "no memory for %d steps of a plan", (int)capacity);
    steps->items = items;
    mox_step_product *products = mox_realloc(steps->products, (uint64_t)capacity * sizeof *products);
    MOX_FAIL_IF(products == NULL, MOXIE_ERR_MEMORY, error, "no memory for %d steps of a plan", (int)capacity);
    steps->products = products;
    steps->capacity = capacity;
    return MOXIE_OK;
}

/* Appends a row: refused for `why`, or chosen with a remark when `why` is NULL. */
static moxie_status add_step(selector *s, const mox_kernel *row, const char *role, const mox_rejection *why,
                             const char *remark)
{
    MOX_TRY(grow(s->steps, s->error));
    const char *reason = remark, *remedy = "";
    if (why != NULL) {
        reason = mox_arena_strndup(&s->steps->arena, why->reason, strlen(why->reason));
        remedy = mox_arena_strndup(&s->steps->arena, why->remedy, strlen(why->remedy));
        MOX_FAIL_IF(reason == NULL || remedy == NULL, MOXIE_ERR_MEMORY, s->error,
                    "no memory for the reasons in a plan");
    }
    s->steps->products[s->steps->count] = MOX_NO_PRODUCT;
    s->steps->items[s->steps->count++] = (moxie_plan_step) { .family = row->family,
                                                             .role = role,
                                                             .kernel = row->name,
                                                             .isa = s->backend->needs(row),
                                                             .layout = row->layout,
                                                             .exactness = mox_exactness_name(row->exactness),
                                                             .chosen = why == NULL,
                                                             .reason = reason,
                                                             .remedy = remedy };
    return MOXIE_OK;
}

void mox_steps_free(mox_steps *steps)
{
    mox_free(steps->items);
    mox_free(steps->products);
    mox_arena_free(&steps->arena);
    *steps = (mox_steps) { 0 };
}

/* The first kernel of the family that admits `problem`. */
static moxie_status choose(selector *s, mox_family family, const char *role, const void *problem, const char *remark,
                           const mox_kernel **out)
{
    const mox_kernel *row = NULL;
    mox_rejection why = { "it has no kernels", "" };
    for (int32_t i = 0; (row = s->backend->kernel_at(family, i)) != NULL; i++) {
        if (admits(s, family, row, problem, &why)) {
            *out = row;
            return add_step(s, row, role, NULL, remark);
        }
        MOX_TRY(add_step(s, row, role, &why, ""));
    }
    return mox_fail(MOXIE_ERR_UNSUPPORTED, s->error, "no kernel of family %s takes this layer%s%s: the last one %s; %s",
                    s->backend->kernel_at(family, 0)->family, role[0] != '\0' ? "'s " : "", role, why.reason,
                    why.remedy);
}

/* ---- the two products of an expert --------------------------------------------------------------- */

typedef struct gemm_choice {
    mox_expert_gemm_problem problem[2]; /* by mox_projection */
    const char *role[2];
    mox_expert_kind expert_kind;
    const mox_layout *fixed; /* layout of existing records, or NULL */
    int32_t row[2];          /* chosen positions; -1: none */
} gemm_choice;

static const mox_kernel *product_at(const selector *s, int32_t i)
{
    return s->backend->kernel_at(MOX_FAMILY_expert_gemm, i);
}

/* A kernel that admits its own product, in a layout that the records can have. */
static bool admits_gemm(const selector *s, const gemm_choice *c, mox_projection p, const mox_kernel *row,
                        mox_rejection *why)
{
    if (!admits(s, MOX_FAMILY_expert_gemm, row, &c->problem[p], why))
        return false;
    if (c->fixed != NULL && strcmp(c->fixed->name, row->layout) != 0)
        return mox_reject(why, "create the layer with the options of the plan",
                          "reads layout %s, the layer's records are in layout %s", row->layout, c->fixed->name);
    const mox_layout *layout = mox_layout_by_name(row->layout);
    if (layout == NULL)
        return mox_reject(why, "", "reads layout %s, which this build does not have", row->layout);
    char buffer[sizeof why->reason];
    const char *refusal = layout->refuse(c->problem[p].shape, buffer, sizeof buffer);
    return refusal == NULL || mox_reject(why, "", "layout %s: %s", row->layout, refusal);
}

static void find_pair(const selector *s, gemm_choice *c)
{
    const mox_kernel *first, *second;
    mox_rejection why;
    int32_t best = INT32_MAX;
    c->row[MOX_W13] = c->row[MOX_W2] = -1;
    for (int32_t i = 0; (first = product_at(s, i)) != NULL; i++) {
        if (!admits_gemm(s, c, MOX_W13, first, &why))
            continue;
        for (int32_t j = 0; (second = product_at(s, j)) != NULL; j++) {
            if (i + j < best && strcmp(first->layout, second->layout) == 0 && admits_gemm(s, c, MOX_W2, second, &why)) {
                best = i + j;
                c->row[MOX_W13] = i;
                c->row[MOX_W2] = j;
            }
        }
    }
}

/* Why this kernel was chosen, where the modes differ. Fast mode chooses among more kernels than exact mode. So a pair
 * that it chooses, and that has no kernel of class TOL, is the best pair of exact mode, too. */
static const char *gemm_remark(const selector *s, const gemm_choice *c, const mox_kernel *chosen)
{
    const bool rounds =
        product_at(s, c->row[MOX_W13])->exactness == MOX_TOL || product_at(s, c->row[MOX_W2])->exactness == MOX_TOL;
    if (s->target.mode != MOXIE_MODE_FAST)
        return "";
    if (mox_sum_traits_of(s->backend->sum(chosen))->by_batch)
        return "fast mode: class TOL, and a token's bits depend on how many tokens its expert has";
    return rounds ? "fast mode: the best pair of rows in list order, which may be of class TOL"
                  : "as in exact mode: no better row of class TOL takes this layer";
}

/* Records the rows before the chosen one and the chosen one itself. */
static moxie_status add_gemm_steps(selector *s, const gemm_choice *c, mox_projection p, const mox_kernel **out)
{
    const mox_kernel *chosen = product_at(s, c->row[p]);
    for (int32_t i = 0; i < c->row[p]; i++) {
        const mox_kernel *row = product_at(s, i);
        mox_rejection why;
        if (admits_gemm(s, c, p, row, &why))
            mox_reject(&why, "", "its layout %s gives the expert's other product a worse kernel than layout %s does",
                       row->layout, chosen->layout);
        MOX_TRY(add_step(s, row, c->role[p], &why, ""));
    }
    *out = chosen;
    MOX_TRY(add_step(s, chosen, c->role[p], NULL, gemm_remark(s, c, chosen)));
    s->steps->products[s->steps->count - 1] = (mox_step_product) { (int8_t)c->expert_kind, (int8_t)p };
    return MOXIE_OK;
}

static moxie_status fail_gemm(const selector *s, const gemm_choice *c)
{
    mox_rejection why = { "there is no row", "" };
    for (int p = MOX_W13; p <= MOX_W2; p++) {
        bool any = false;
        const mox_kernel *row;
        for (int32_t i = 0; (row = product_at(s, i)) != NULL; i++)
            any = any || admits_gemm(s, c, (mox_projection)p, row, &why);
        if (!any)
            return mox_fail(MOXIE_ERR_UNSUPPORTED, s->error,
                            "no kernel of family expert_gemm takes this layer's %s: the last one %s; %s", c->role[p],
                            why.reason, why.remedy);
    }
    return mox_fail(MOXIE_ERR_UNSUPPORTED, s->error,
                    "each product of an expert has a kernel, but no layout has one for both (%s and %s)",
                    c->role[MOX_W13], c->role[MOX_W2]);
}

/* ---- the chain ----------------------------------------------------------------------------------- */

static const char *act_remark(const moxie_quant *quant)
{
    return mox_act_quant_needs_amax(quant) ? "one scale for the whole batch: codes depend on all tokens of a run" : "";
}

/* The quantizer of the activations that a product's kernel reads. */
static moxie_status choose_quantizer(selector *s, const char *role, const moxie_quant *quant, const mox_kernel *product,
                                     bool weighed, const mox_kernel **out)
{
    const mox_quant_act_problem problem = { .quant = quant, .product = product, .weighed = weighed };
    return choose(s, MOX_FAMILY_quant_act, role, &problem, act_remark(quant), out);
}

/* What leaves numbers unquantized, in f32. No line of the plan: only runs that give logits and want them back have it.
 */
static moxie_status choose_widening(const selector *s, const mox_kernel **out)
{
    const moxie_quant none = { .element = MOXIE_DTYPE_NONE };
    const mox_quant_act_problem problem = { .quant = &none };
    mox_rejection why = { "it has no kernels", "" };
    for (int32_t i = 0; (*out = s->backend->kernel_at(MOX_FAMILY_quant_act, i)) != NULL; i++)
        if (admits(s, MOX_FAMILY_quant_act, *out, &problem, &why))
            return MOXIE_OK;
    return mox_fail(MOXIE_ERR_UNSUPPORTED, s->error, "no kernel of family quant_act widens logits: the last one %s; %s",
                    why.reason, why.remedy);
}

/* One kind of expert. */
typedef struct expert_request {
    mox_record_shape shape;
    moxie_quant a13, a2;
    const char *role[2], *role_glu;
    bool weighed; /* weights multiply the input of W13 */
} expert_request;

static moxie_status choose_experts(selector *s, mox_expert_kind kind, const expert_request *r, const mox_layout *fixed,
                                   mox_expert_kernels *out)
{
    gemm_choice gemm = { .problem = { { &r->shape, MOX_W13, &r->shape.w13, &r->a13, s->config->dtype, &r->a2 },
                                      { &r->shape, MOX_W2, &r->shape.w2, &r->a2, s->config->dtype } },
                         .role = { r->role[0], r->role[1] },
                         .expert_kind = kind,
                         .fixed = fixed };
    find_pair(s, &gemm);
    if (gemm.row[MOX_W13] < 0)
        return fail_gemm(s, &gemm);
    const mox_kernel *const first = product_at(s, gemm.row[MOX_W13]), *const second = product_at(s, gemm.row[MOX_W2]);
    MOX_TRY(choose_quantizer(s, r->role[0], &r->a13, first, r->weighed, &out->quant[MOX_W13]));
    MOX_TRY(add_gemm_steps(s, &gemm, MOX_W13, &out->product[MOX_W13]));
    const uint32_t fuses = s->backend->fuses(first);
    if (fuses == 0)
        MOX_TRY(choose(s, MOX_FAMILY_glu, r->role_glu, &s->config->activation, "", &out->glu));
    if ((fuses & MOX_FUSES_GLU) == 0)
        MOX_TRY(choose_quantizer(s, r->role[1], &r->a2, second, false, &out->quant[MOX_W2]));
    out->layout = mox_layout_by_name(first->layout);
    return add_gemm_steps(s, &gemm, MOX_W2, &out->product[MOX_W2]);
}

static moxie_status choose_topk(selector *s, const mox_kernel **out)
{
    const moxie_layer_config *c = s->config;
    const mox_topk_problem problem = { &c->routing, c->experts, c->top_k };
    char words[160];
    mox_routing_describe(&c->routing, c->experts, c->top_k, words, sizeof words);
    const char *routing = mox_arena_strndup(&s->steps->arena, words, strlen(words));
    MOX_FAIL_IF(routing == NULL, MOXIE_ERR_MEMORY, s->error, "no memory for the words of a plan");
    return choose(s, MOX_FAMILY_topk, "", &problem, routing, out);
}

static moxie_status choose_all(selector *s, const mox_layout *const layouts[MOX_EXPERT_KINDS], mox_kernels *out)
{
    const moxie_layer_config *c = s->config;
    const bool shared = mox_config_computes_shared(c);
    const expert_request routed_request = { mox_config_routed_shape(c), c->a13, c->a2, { "w13", "w2" }, "",
                                            c->routing.on_input != 0 };
    const expert_request shared_request = { mox_config_shared_shape(c),    c->shared.a13, c->shared.a2,
                                            { "shared w13", "shared w2" }, "shared",      false };
    if (c->router_width > 0)
        MOX_TRY(choose(s, MOX_FAMILY_dense, "router", NULL, "", &out->router));
    MOX_TRY(choose_topk(s, &out->topk));
    MOX_TRY(choose_widening(s, &out->widen));
    MOX_TRY(choose(s, MOX_FAMILY_permute, "", NULL, "", &out->permute));
    MOX_TRY(choose_experts(s, MOX_ROUTED, &routed_request, layouts != NULL ? layouts[MOX_ROUTED] : NULL,
                           &out->experts[MOX_ROUTED]));
    if (shared)
        MOX_TRY(choose_experts(s, MOX_SHARED_EXPERT, &shared_request,
                               layouts != NULL ? layouts[MOX_SHARED_EXPERT] : NULL, &out->experts[MOX_SHARED_EXPERT]));
    if (shared && c->shared.has_gate)
        MOX_TRY(choose(s, MOX_FAMILY_dense, "shared gate", NULL, "", &out->shared_gate));
    return choose(s, MOX_FAMILY_combine, "", NULL, "", &out->combine);
}

moxie_status mox_select(const moxie_layer_config *config, const moxie_options *options, const mox_device *device,
                        const mox_layout *const layouts[MOX_EXPERT_KINDS], mox_kernels *out, mox_steps *steps,
                        moxie_error *error)
{
    selector s = { .config = config,
                   .backend = mox_backend_of((moxie_backend)options->backend),
                   .target = { .device = mox_device_is_host(device) ? NULL : &device->features,
                               .mode = (moxie_mode)options->mode },
                   .steps = steps,
                   .error = error };
    mox_kernels all = { 0 };
    MOX_TRY(mox_isa_from_name(options->isa, &s.target.isa, error));
    MOX_TRY(choose_all(&s, layouts, &all));
    *out = all;
    return MOXIE_OK;
}
