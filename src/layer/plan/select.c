/* SPDX-License-Identifier: Apache-2.0
 *
 * select.c - asks the kernels of each family in list order and chooses the first that admits the layer (select.h).
 * Kernels that rejected the layer become steps with their reasons.
 *
 *     choose_all     the chain, family by family
 *     choose         one kernel of a family
 *     find_pair      the kernels of an expert's two products
 *
 * The kernels of an expert's two products are chosen together, because both read one record in one layout. Candidates
 * are all pairs of kernels with the same layout that admit their products. The pair with the smallest sum of list
 * positions is chosen; of pairs with the same sum, the one with the better kernel for W13.
 */
#include "layer/plan/select.h"

/* What all choices of one plan share. */
typedef struct selector {
    const moxie_layer_config *config;
    const mox_backend *backend;
    mox_target target;
    bool has_comm; /* ranks exchange rows: each has the shared expert */
    bool has_adapters;
    mox_tp_cut cut, shared_cut; /* of routed experts, of the shared one */
    mox_steps *steps;
    moxie_error *error;
} selector;

static bool admits(const selector *s, mox_family family, const mox_kernel *kernel, const void *problem,
                   mox_rejection *why)
{
    return s->backend->admits(&s->target, family, kernel, problem, why);
}

/* ---- steps -------------------------------------------------------------------------------------- */

/* Appends a step for a kernel: rejected for `why`, or chosen with a remark when `why` is NULL. */
static moxie_status add_step(selector *s, const mox_kernel *kernel, const char *role, const mox_rejection *why,
                             const char *remark)
{
    moxie_plan_step step = { .family = kernel->family,
                             .role = role,
                             .kernel = kernel->name,
                             .isa = s->backend->needs(kernel),
                             .layout = kernel->layout,
                             .exactness = mox_exactness_name(kernel->exactness),
                             .chosen = why == NULL,
                             .reason = remark,
                             .remedy = "" };
    if (why != NULL) {
        step.reason = mox_steps_copy_text(s->steps, why->reason);
        step.remedy = mox_steps_copy_text(s->steps, why->remedy);
        MOX_FAIL_IF(step.reason == NULL || step.remedy == NULL, MOXIE_ERR_MEMORY, s->error,
                    "no memory for the reasons in a plan");
    }
    return mox_steps_add(s->steps, &step, s->error);
}

/* The first kernel of the family that admits `problem`. */
static moxie_status choose(selector *s, mox_family family, const char *role, const void *problem, const char *remark,
                           const mox_kernel **out)
{
    const mox_kernel *kernel = NULL;
    mox_rejection why = { "it has no kernels", "" };
    for (int32_t i = 0; (kernel = s->backend->kernel_at(family, i)) != NULL; i++) {
        if (admits(s, family, kernel, problem, &why)) {
            *out = kernel;
            return add_step(s, kernel, role, NULL, remark);
        }
        MOX_TRY(add_step(s, kernel, role, &why, ""));
    }
    return mox_fail(
        MOXIE_ERR_UNSUPPORTED, s->error, "no kernel of family %s accepts this layer%s%s: the last one %s; %s",
        s->backend->kernel_at(family, 0)->family, role[0] != '\0' ? "'s " : "", role, why.reason, why.remedy);
}

/* ---- the two products of an expert --------------------------------------------------------------- */

typedef struct gemm_choice {
    mox_expert_gemm_problem problem[2]; /* by mox_projection */
    const char *role[2];
    mox_expert_kind expert_kind;
    const mox_layout *fixed; /* layout of existing records, or NULL */
    int32_t position[2];     /* of the chosen kernels in the list; -1: none */
} gemm_choice;

static const mox_kernel *product_at(const selector *s, int32_t i)
{
    return s->backend->kernel_at(MOX_FAMILY_expert_gemm, i);
}

/* Whether a kernel admits its product and reads a layout that the records can have. */
static bool admits_gemm(const selector *s, const gemm_choice *c, mox_projection p, const mox_kernel *kernel,
                        mox_rejection *why)
{
    if (!admits(s, MOX_FAMILY_expert_gemm, kernel, &c->problem[p], why))
        return false;
    if (c->fixed != NULL && !mox_layout_is_read_by(c->fixed, kernel->layout))
        return mox_reject(why, "create the layer with the options of the plan",
                          "reads layout %s, the layer's records are in layout %s", kernel->layout, c->fixed->name);
    if (c->fixed != NULL && c->fixed->base != NULL && (s->backend->fuses(kernel) & MOX_FUSES_GLU) != 0)
        return mox_reject(why, "",
                          "leaves w2's activations in the checkpoint's order, the layer's w2 has its columns sorted");
    const mox_layout *layout = mox_layout_by_name(kernel->layout);
    if (layout == NULL)
        return mox_reject(why, "", "reads layout %s, which this build does not have", kernel->layout);
    char buffer[sizeof why->reason];
    const char *limit = layout->reject(c->problem[p].shape, buffer, sizeof buffer);
    return limit == NULL || mox_reject(why, "", "layout %s: %s", kernel->layout, limit);
}

static void find_pair(const selector *s, gemm_choice *c)
{
    const mox_kernel *first, *second;
    mox_rejection why;
    int32_t best = INT32_MAX;
    c->position[MOX_W13] = c->position[MOX_W2] = -1;
    for (int32_t i = 0; (first = product_at(s, i)) != NULL; i++) {
        if (!admits_gemm(s, c, MOX_W13, first, &why))
            continue;
        for (int32_t j = 0; (second = product_at(s, j)) != NULL; j++) {
            if (i + j < best && strcmp(first->layout, second->layout) == 0 && admits_gemm(s, c, MOX_W2, second, &why)) {
                best = i + j;
                c->position[MOX_W13] = i;
                c->position[MOX_W2] = j;
            }
        }
    }
}

/* A remark on the chosen pair where the mode matters. Fast mode has all pairs of exact mode and those with class TOL.
 * So if it chooses a pair without class TOL, exact mode chooses the same. */
static const char *gemm_remark(const selector *s, const gemm_choice *c)
{
    if (c->fixed != NULL && c->fixed->base != NULL)
        return "act order: columns are sorted by group, activations are put in that order";
    const bool rounds = product_at(s, c->position[MOX_W13])->exactness == MOX_TOL ||
                        product_at(s, c->position[MOX_W2])->exactness == MOX_TOL;
    if (s->target.mode != MOXIE_MODE_FAST)
        return "";
    return rounds ? "fast mode: the best pair of kernels in list order; at least one is of class TOL"
                  : "as in exact mode: no better kernel of class TOL accepts this layer";
}

/* Adds a step for each kernel before the chosen one, and one for the chosen kernel. */
static moxie_status add_gemm_steps(selector *s, const gemm_choice *c, mox_projection p, const mox_kernel **out)
{
    const mox_kernel *chosen = product_at(s, c->position[p]);
    for (int32_t i = 0; i < c->position[p]; i++) {
        const mox_kernel *kernel = product_at(s, i);
        mox_rejection why;
        if (admits_gemm(s, c, p, kernel, &why))
            mox_reject(&why, "", "its layout %s gives the expert's other product a worse kernel than layout %s does",
                       kernel->layout, chosen->layout);
        MOX_TRY(add_step(s, kernel, c->role[p], &why, ""));
    }
    *out = chosen;
    MOX_TRY(add_step(s, chosen, c->role[p], NULL, gemm_remark(s, c)));
    s->steps->products[s->steps->count - 1] = (mox_step_product) { (int8_t)c->expert_kind, (int8_t)p };
    return MOXIE_OK;
}

static moxie_status fail_gemm(const selector *s, const gemm_choice *c)
{
    mox_rejection why = { "it has no kernels", "" };
    for (int p = MOX_W13; p <= MOX_W2; p++) {
        bool any = false;
        const mox_kernel *kernel;
        for (int32_t i = 0; (kernel = product_at(s, i)) != NULL; i++)
            any = any || admits_gemm(s, c, (mox_projection)p, kernel, &why);
        if (!any)
            return mox_fail(MOXIE_ERR_UNSUPPORTED, s->error,
                            "no kernel of family expert_gemm accepts this layer's %s: the last one %s; %s", c->role[p],
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

/* The quantizer that makes the activations which `product` reads. */
static moxie_status choose_quantizer(selector *s, const char *role, const moxie_quant *quant, const mox_kernel *product,
                                     bool has_row_weight, const mox_kernel **out)
{
    const mox_quant_act_problem problem = { .quant = quant, .product = product, .has_row_weight = has_row_weight };
    return choose(s, MOX_FAMILY_quant_act, role, &problem, act_remark(quant), out);
}

/* A quantizer that only converts to f32. It is no step of the plan: it runs only when a caller passes logits in and
 * asks for them back. */
static moxie_status choose_widening(const selector *s, const mox_kernel **out)
{
    const moxie_quant none = { .element = MOXIE_DTYPE_NONE };
    const mox_quant_act_problem problem = { .quant = &none };
    mox_rejection why = { "it has no kernels", "" };
    for (int32_t i = 0; (*out = s->backend->kernel_at(MOX_FAMILY_quant_act, i)) != NULL; i++)
        if (admits(s, MOX_FAMILY_quant_act, *out, &problem, &why))
            return MOXIE_OK;
    return mox_fail(MOXIE_ERR_UNSUPPORTED, s->error,
                    "no kernel of family quant_act converts logits to f32: the last one %s; %s", why.reason,
                    why.remedy);
}

/* One kind of expert. */
typedef struct expert_request {
    mox_record_shape shape;
    moxie_quant a13, a2;
    const char *role[2], *role_glu;
    bool on_input; /* routing weights multiply the input of W13 */
    bool adapters; /* tokens may have adapters */
    bool gathered; /* ranks gather the activations between the products */
} expert_request;

/* Of adapters whose change of W13's result a kernel adds that goes on to the activation. */
#define FUSED_REMARK "before W13, which adds the change after the bias, before the activation"

static moxie_status choose_experts(selector *s, mox_expert_kind kind, const expert_request *r, const mox_layout *fixed,
                                   mox_expert_kernels *out)
{
    gemm_choice gemm = { .problem = { { &r->shape, MOX_W13, &r->shape.w13, &r->a13, s->config->dtype, &r->a2,
                                        r->gathered },
                                      { &r->shape, MOX_W2, &r->shape.w2, &r->a2, s->config->dtype } },
                         .role = { r->role[0], r->role[1] },
                         .expert_kind = kind,
                         .fixed = fixed };
    find_pair(s, &gemm);
    if (gemm.position[MOX_W13] < 0)
        return fail_gemm(s, &gemm);
    const mox_kernel *const first = product_at(s, gemm.position[MOX_W13]), *const second =
                                                                               product_at(s, gemm.position[MOX_W2]);
    MOX_TRY(choose_quantizer(s, r->role[0], &r->a13, first, r->on_input, &out->quant[MOX_W13]));
    const uint32_t fuses = s->backend->fuses(first);
    if (r->adapters && fuses != 0)
        MOX_TRY(choose(s, MOX_FAMILY_lora, r->role[0], NULL, FUSED_REMARK, &out->lora));
    MOX_TRY(add_gemm_steps(s, &gemm, MOX_W13, &out->product[MOX_W13]));
    if (r->adapters && fuses == 0)
        MOX_TRY(choose(s, MOX_FAMILY_lora, r->role[0], NULL, "after the bias, before the activation", &out->lora));
    const mox_glu_problem glu = { mox_config_activation(s->config, kind) };
    if (fuses == 0)
        MOX_TRY(choose(s, MOX_FAMILY_glu, r->role_glu, &glu, "", &out->glu));
    if ((fuses & MOX_FUSES_GLU) == 0)
        MOX_TRY(choose_quantizer(s, r->role[1], &r->a2, second, false, &out->quant[MOX_W2]));
    out->layout = fixed != NULL ? fixed : mox_layout_by_name(first->layout);
    MOX_TRY(add_gemm_steps(s, &gemm, MOX_W2, &out->product[MOX_W2]));
    if (r->adapters)
        MOX_TRY(
            choose(s, MOX_FAMILY_lora, r->role[1], NULL, "after the bias, before norm and routing weight", &out->lora));
    return MOXIE_OK;
}

static moxie_status choose_topk(selector *s, const mox_kernel **out)
{
    const moxie_layer_config *c = s->config;
    const mox_topk_problem problem = { &c->routing, mox_config_candidates(c), c->top_k };
    char words[160];
    mox_routing_describe(&c->routing, c->experts, c->top_k, words, sizeof words);
    const char *routing = mox_steps_copy_text(s->steps, words);
    MOX_FAIL_IF(routing == NULL, MOXIE_ERR_MEMORY, s->error, "no memory for the routing's description in a plan");
    return choose(s, MOX_FAMILY_topk, "", &problem, routing, out);
}

static const char *combine_remark(const moxie_layer_config *c, bool has_comm)
{
    if (c->round_results)
        return "each expert's result is rounded to the 16-bit type first";
    if (c->routing.zero_experts == 0 || c->routing.zero_kind != MOXIE_ZERO_IDENTITY)
        return "";
    return mox_config_adds_identity(c, has_comm) ? "identity experts add weight times the hidden state"
                                                 : "rank 0 adds what identity experts return";
}

static moxie_status choose_all(selector *s, const mox_layout *const layouts[MOX_EXPERT_KINDS], mox_kernels *out)
{
    const moxie_layer_config *c = s->config;
    const bool shared = mox_config_computes_shared(c, s->has_comm);
    /* A rank's rows have the kernels of the whole matrix, so that bits are those of one rank. */
    const mox_tp_cut cut = s->cut == MOX_TP_SUMS ? MOX_TP_SUMS : MOX_TP_WHOLE;
    const expert_request routed_request = {
        mox_tp_shape(c, cut), c->a13, c->a2, { "w13", "w2" }, "", c->routing.on_input != 0, s->has_adapters,
        s->cut == MOX_TP_ROWS
    };
    const expert_request shared_request = {
        mox_config_shared_shape(c),  c->shared.a13, c->shared.a2, { "shared w13", "shared w2" }, "shared", false, false,
        s->shared_cut == MOX_TP_ROWS
    };
    if (c->router_norm.kind != MOXIE_ROW_NORM_NONE)
        MOX_TRY(choose(s, MOX_FAMILY_row_norm, "router", NULL, "", &out->router_norm));
    if (c->router_width > 0)
        MOX_TRY(choose(s, MOX_FAMILY_dense, "router", NULL, "", &out->router));
    MOX_TRY(choose_topk(s, &out->topk));
    MOX_TRY(choose_widening(s, &out->widen));
    MOX_TRY(choose(s, MOX_FAMILY_permute, "", NULL, "", &out->permute));
    MOX_TRY(choose_experts(s, MOX_ROUTED, &routed_request, layouts != NULL ? layouts[MOX_ROUTED] : NULL,
                           &out->experts[MOX_ROUTED]));
    if (c->expert_norm.kind != MOXIE_ROW_NORM_NONE)
        MOX_TRY(choose(s, MOX_FAMILY_row_norm, "", NULL, "", &out->expert_norm));
    if (shared)
        MOX_TRY(choose_experts(s, MOX_SHARED_EXPERT, &shared_request,
                               layouts != NULL ? layouts[MOX_SHARED_EXPERT] : NULL, &out->experts[MOX_SHARED_EXPERT]));
    if (shared && c->shared.has_gate)
        MOX_TRY(choose(s, MOX_FAMILY_dense, "shared gate", NULL, "", &out->shared_gate));
    return choose(s, MOX_FAMILY_combine, "", NULL, combine_remark(c, s->has_comm), &out->combine);
}

moxie_status mox_select(const moxie_layer_config *config, const moxie_options *options, const mox_device *device,
                        mox_tp_cut cut, mox_tp_cut shared_cut, const mox_layout *const layouts[MOX_EXPERT_KINDS],
                        mox_kernels *out, mox_steps *steps, moxie_error *error)
{
    selector s = { .config = config,
                   .backend = mox_backend_of((moxie_backend)options->backend),
                   .target = { .device = mox_device_is_host(device) ? NULL : &device->features,
                               .mode = (moxie_mode)options->mode },
                   .has_comm = options->comm != NULL,
                   .has_adapters = options->max_adapter_rank > 0,
                   .cut = cut,
                   .shared_cut = shared_cut,
                   .steps = steps,
                   .error = error };
    mox_kernels all = { 0 };
    MOX_TRY(mox_isa_from_name(options->isa, &s.target.isa, error));
    MOX_TRY(choose_all(&s, layouts, &all));
    *out = all;
    return MOXIE_OK;
}
