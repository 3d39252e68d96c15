/* SPDX-License-Identifier: Apache-2.0
 *
 * select.c - walks the kernel lists for a configuration: the first row that admits the problem runs; refusals of
 * the rows before it are kept for the plan.
 *
 * The rows of one expert's two products are chosen together, because one record in one layout serves both: of all
 * admissible pairs with equal layout the one with the least sum of list positions wins, on a tie the one with the
 * better row for W13.
 */
#include "layer/plan/select.h"

#include <stdio.h>

#include "backend/ref/ref_rows.h"

/* What all choices of one plan share. */
typedef struct selector {
    const moxie_layer_config *config;
    bool reference;
    const mox_cuda_features *cuda; /* NULL: the host */
    mox_isa cap;
    moxie_mode mode;
    mox_steps *steps;
    moxie_error *error;
} selector;

/* One family: its rows as plain kernels, of each backend, and admit() with its problem behind a pointer. */
typedef struct family {
    const mox_kernel *(*cpu_at)(int32_t i);
    const mox_kernel *(*ref_at)(int32_t i);
    const mox_kernel *(*cuda_at)(int32_t i);
    /* NULL: takes every problem */
    bool (*admit)(const selector *s, const mox_kernel *row, const void *problem, mox_refusal *why);
} family;

#define MOX_FAMILY(name)                                                                                               \
    static const mox_kernel *name##_cpu_at(int32_t i)                                                                  \
    {                                                                                                                  \
        const mox_##name##_row *row = mox_##name##_at(i);                                                              \
        return row != NULL ? &row->base : NULL;                                                                        \
    }                                                                                                                  \
    static const mox_kernel *name##_ref_at(int32_t i)                                                                  \
    {                                                                                                                  \
        return i == 0 ? &mox_ref_row_##name.base : NULL;                                                               \
    }                                                                                                                  \
    static const mox_kernel *name##_cuda_at(int32_t i)                                                                 \
    {                                                                                                                  \
        const mox_cuda_##name##_row *row = mox_cuda_##name##_at(i);                                                    \
        return row != NULL ? &row->cuda.base : NULL;                                                                   \
    }
#include "cpu/kernel_families.def"
#undef MOX_FAMILY

static bool admit_topk(const selector *s, const mox_kernel *row, const void *problem, mox_refusal *why)
{
    const moxie_layer_config *config = problem;
    if (s->cuda != NULL)
        return ((const mox_cuda_topk_row *)row)->admit(&config->routing, config->experts, config->top_k, why);
    return ((const mox_topk_row *)row)->admit(&config->routing, config->experts, config->top_k, why);
}

static bool admit_quant_act(const selector *s, const mox_kernel *row, const void *problem, mox_refusal *why)
{
    const mox_cuda_quant_act_problem *p = problem;
    if (s->cuda != NULL)
        return ((const mox_cuda_quant_act_row *)row)->admit(p, why);
    return ((const mox_quant_act_row *)row)->admit(p->quant, why);
}

static bool admit_expert_gemm(const selector *s, const mox_kernel *row, const void *problem, mox_refusal *why)
{
    if (s->cuda != NULL)
        return ((const mox_cuda_expert_gemm_row *)row)->admit(problem, s->cuda, why);
    return mox_expert_gemm_admit((const mox_expert_gemm_row *)row, problem, why);
}

static bool admit_glu(const selector *s, const mox_kernel *row, const void *problem, mox_refusal *why)
{
    if (s->cuda != NULL)
        return ((const mox_cuda_glu_row *)row)->admit(problem, why);
    return ((const mox_glu_row *)row)->admit(problem, why);
}

static const family dense_family = { dense_cpu_at, dense_ref_at, dense_cuda_at, NULL };
static const family topk_family = { topk_cpu_at, topk_ref_at, topk_cuda_at, admit_topk };
static const family permute_family = { permute_cpu_at, permute_ref_at, permute_cuda_at, NULL };
static const family quant_act_family = { quant_act_cpu_at, quant_act_ref_at, quant_act_cuda_at, admit_quant_act };
static const family gemm_family = { expert_gemm_cpu_at, expert_gemm_ref_at, expert_gemm_cuda_at, admit_expert_gemm };
static const family glu_family = { glu_cpu_at, glu_ref_at, glu_cuda_at, admit_glu };
static const family combine_family = { combine_cpu_at, combine_ref_at, combine_cuda_at, NULL };

static const mox_kernel *row_at(const selector *s, const family *f, int32_t i)
{
    if (s->cuda != NULL)
        return f->cuda_at(i);
    return s->reference ? f->ref_at(i) : f->cpu_at(i);
}

static bool admits(const selector *s, const family *f, const mox_kernel *row, const void *problem, mox_refusal *why)
{
    const bool takes = f->admit == NULL || f->admit(s, row, problem, why);
    if (s->cuda != NULL) /* last, so that another mode or device is only called for where it helps */
        return takes && mox_cuda_kernel_admit((const mox_cuda_kernel *)row, s->cuda, s->mode, why);
    mox_refusal lacks;
    if (mox_kernel_admit(row, s->cap, s->mode, &lacks))
        return takes;
    *why = lacks;
    return false;
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
    steps->capacity = capacity;
    return MOXIE_OK;
}

/* Appends a row: refused for `why`, or chosen with a remark when `why` is NULL. */
static moxie_status add_step(selector *s, const mox_kernel *row, const char *role, const mox_refusal *why,
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
    s->steps->items[s->steps->count++] =
        (moxie_plan_step) { .family = row->family,
                            .role = role,
                            .kernel = row->name,
                            .isa = s->cuda != NULL ? mox_cuda_kernel_needs((const void *)row) : mox_isa_name(row->isa),
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
    mox_arena_free(&steps->arena);
    *steps = (mox_steps) { 0 };
}

/* The first row of `f` that takes `problem`. */
static moxie_status choose(selector *s, const family *f, const char *role, const void *problem, const char *remark,
                           const mox_kernel **out)
{
    const mox_kernel *row = NULL;
    mox_refusal why = { "it has no rows", "" };
    for (int32_t i = 0; (row = row_at(s, f, i)) != NULL; i++) {
        if (admits(s, f, row, problem, &why)) {
            *out = row;
            return add_step(s, row, role, NULL, remark);
        }
        MOX_TRY(add_step(s, row, role, &why, ""));
    }
    return mox_fail(MOXIE_ERR_UNSUPPORTED, s->error, "no kernel of family %s takes this layer%s%s: the last one %s; %s",
                    row_at(s, f, 0) != NULL ? row_at(s, f, 0)->family : "?", role[0] != '\0' ? "'s " : "", role,
                    why.reason, why.remedy);
}

/* ---- the two products of an expert --------------------------------------------------------------- */

typedef struct gemm_choice {
    mox_expert_gemm_problem problem[2]; /* by mox_projection */
    const char *role[2];
    const mox_layout *fixed; /* layout of existing records, or NULL */
    int32_t row[2];          /* chosen positions; -1: none */
} gemm_choice;

/* A row that takes its own product, in a layout that the records can have. */
static bool admits_gemm(const selector *s, const gemm_choice *c, mox_projection p, const mox_kernel *row,
                        mox_refusal *why)
{
    if (!admits(s, &gemm_family, row, &c->problem[p], why))
        return false;
    if (c->fixed != NULL && strcmp(c->fixed->name, row->layout) != 0)
        return mox_refuse(why, "create the layer with the options of the plan",
                          "reads layout %s, the layer's records are in layout %s", row->layout, c->fixed->name);
    const mox_layout *layout = mox_layout_by_name(row->layout);
    if (layout == NULL)
        return mox_refuse(why, "", "reads layout %s, which this build does not have", row->layout);
    char buffer[sizeof why->reason];
    const char *refusal = layout->refuse(c->problem[p].shape, buffer, sizeof buffer);
    return refusal == NULL || mox_refuse(why, "", "layout %s: %s", row->layout, refusal);
}

static void find_pair(const selector *s, gemm_choice *c)
{
    const mox_kernel *first, *second;
    mox_refusal why;
    int32_t best = INT32_MAX;
    c->row[MOX_W13] = c->row[MOX_W2] = -1;
    for (int32_t i = 0; (first = row_at(s, &gemm_family, i)) != NULL; i++) {
        if (!admits_gemm(s, c, MOX_W13, first, &why))
            continue;
        for (int32_t j = 0; (second = row_at(s, &gemm_family, j)) != NULL; j++) {
            if (i + j < best && strcmp(first->layout, second->layout) == 0 && admits_gemm(s, c, MOX_W2, second, &why)) {
                best = i + j;
                c->row[MOX_W13] = i;
                c->row[MOX_W2] = j;
            }
        }
    }
}

/* Why this row, where modes differ. A pair that throughput mode takes without class TOL is the best of invariant
 * mode's, too, which are some of its own. */
static const char *gemm_remark(const selector *s, const gemm_choice *c, const mox_kernel *chosen)
{
    const bool rounds = row_at(s, &gemm_family, c->row[MOX_W13])->exactness == MOX_TOL ||
                        row_at(s, &gemm_family, c->row[MOX_W2])->exactness == MOX_TOL;
    if (s->mode != MOXIE_MODE_THROUGHPUT)
        return "";
    if (s->cuda == NULL && mox_expert_gemm_by_batch((const mox_expert_gemm_row *)chosen))
        return "throughput mode: class TOL, and a token's bits depend on how many tokens its expert has";
    return rounds ? "throughput mode: the best pair of rows in list order, which may be of class TOL"
                  : "as in invariant mode: no better row of class TOL takes this layer";
}

/* Records the rows before the chosen one and the chosen one itself. */
static moxie_status add_gemm_steps(selector *s, const gemm_choice *c, mox_projection p, const mox_kernel **out)
{
    const mox_kernel *chosen = row_at(s, &gemm_family, c->row[p]);
    for (int32_t i = 0; i < c->row[p]; i++) {
        const mox_kernel *row = row_at(s, &gemm_family, i);
        mox_refusal why;
        if (admits_gemm(s, c, p, row, &why))
            mox_refuse(&why, "", "its layout %s gives the expert's other product a worse kernel than layout %s does",
                       row->layout, chosen->layout);
        MOX_TRY(add_step(s, row, c->role[p], &why, ""));
    }
    *out = chosen;
    return add_step(s, chosen, c->role[p], NULL, gemm_remark(s, c, chosen));
}

static moxie_status fail_gemm(const selector *s, const gemm_choice *c)
{
    mox_refusal why = { "there is no row", "" };
    for (int p = MOX_W13; p <= MOX_W2; p++) {
        bool any = false;
        const mox_kernel *row;
        for (int32_t i = 0; (row = row_at(s, &gemm_family, i)) != NULL; i++)
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

/* One kind of expert, routed or shared. */
typedef struct expert_request {
    mox_record_shape shape;
    moxie_quant a13, a2;
    moxie_activation activation;
    const mox_layout *fixed;
    const char *role13, *role2, *role_glu;
    bool weighed; /* weights multiply the input of W13 */
} expert_request;

static const char *act_remark(const moxie_quant *quant)
{
    return mox_act_quant_needs_amax(quant) ? "one scale for the whole batch: codes depend on all tokens of a run" : "";
}

/* The chosen rows of one kind of expert, of whatever backend. */
typedef struct chosen_experts {
    const mox_kernel *quant13, *gemm13, *glu, *quant2, *gemm2; /* glu and quant2: NULL when gemm13 does their work */
} chosen_experts;

typedef struct chosen {
    const mox_kernel *router, *topk, *permute, *shared_gate, *combine;
    const mox_kernel *widen; /* logits to f32; NULL on the host, which needs no kernel for that */
    chosen_experts routed, shared;
} chosen;

/* The quantizer of the operand that a product's row reads. */
static moxie_status choose_quantizer(selector *s, const char *role, const moxie_quant *quant, const mox_kernel *product,
                                     bool weighed, const mox_kernel **out)
{
    const mox_cuda_quant_act_problem problem = {
        .quant = quant,
        .operand = s->cuda != NULL ? ((const mox_cuda_expert_gemm_row *)product)->operand : MOX_CUDA_OPERAND_F32,
        .weighed = weighed,
    };
    return choose(s, &quant_act_family, role, &problem, act_remark(quant), out);
}

/* What leaves numbers unquantized, in f32. No line of the plan: only runs that give logits and want them back have it.
 */
static moxie_status choose_widening(const selector *s, const mox_kernel **out)
{
    const moxie_quant none = { .element = MOXIE_DTYPE_NONE };
    const mox_cuda_quant_act_problem problem = { .quant = &none, .operand = MOX_CUDA_OPERAND_F32 };
    mox_refusal why = { "it has no rows", "" };
    for (int32_t i = 0; (*out = row_at(s, &quant_act_family, i)) != NULL; i++)
        if (admits(s, &quant_act_family, *out, &problem, &why))
            return MOXIE_OK;
    return mox_fail(MOXIE_ERR_UNSUPPORTED, s->error, "no kernel of family quant_act widens logits: the last one %s; %s",
                    why.reason, why.remedy);
}

static moxie_status choose_experts(selector *s, const expert_request *r, chosen_experts *out)
{
    gemm_choice gemm = { .problem = { { &r->shape, MOX_W13, &r->shape.w13, &r->a13, s->config->dtype, &r->a2 },
                                      { &r->shape, MOX_W2, &r->shape.w2, &r->a2, s->config->dtype } },
                         .role = { r->role13, r->role2 },
                         .fixed = r->fixed };
    find_pair(s, &gemm);
    if (gemm.row[MOX_W13] < 0)
        return fail_gemm(s, &gemm);
    const mox_kernel *const first = row_at(s, &gemm_family, gemm.row[MOX_W13]), *const second = row_at(
                                                                                    s, &gemm_family, gemm.row[MOX_W2]);
    MOX_TRY(choose_quantizer(s, r->role13, &r->a13, first, r->weighed, &out->quant13));
    MOX_TRY(add_gemm_steps(s, &gemm, MOX_W13, &out->gemm13));
    const uint32_t fuses = s->cuda != NULL ? ((const mox_cuda_expert_gemm_row *)out->gemm13)->fuses : 0;
    if (fuses == 0)
        MOX_TRY(choose(s, &glu_family, r->role_glu, &r->activation, "", &out->glu));
    if ((fuses & MOX_CUDA_FUSES_GLU) == 0)
        MOX_TRY(choose_quantizer(s, r->role2, &r->a2, second, false, &out->quant2));
    return add_gemm_steps(s, &gemm, MOX_W2, &out->gemm2);
}

static moxie_status choose_all(selector *s, const mox_layout *routed, const mox_layout *shared, chosen *out)
{
    const moxie_layer_config *c = s->config;
    const expert_request routed_request = {
        mox_config_routed_shape(c), c->a13, c->a2, c->activation, routed, "w13", "w2", "", c->routing.on_input != 0
    };
    const expert_request shared_request = { mox_config_shared_shape(c),
                                            c->shared.a13,
                                            c->shared.a2,
                                            c->activation,
                                            shared,
                                            "shared w13",
                                            "shared w2",
                                            "shared" };
    if (c->router_width > 0)
        MOX_TRY(choose(s, &dense_family, "router", NULL, "", &out->router));
    char words[160];
    mox_routing_describe(&c->routing, c->experts, c->top_k, words, sizeof words);
    const char *routing = mox_arena_strndup(&s->steps->arena, words, strlen(words));
    MOX_FAIL_IF(routing == NULL, MOXIE_ERR_MEMORY, s->error, "no memory for the words of a plan");
    MOX_TRY(choose(s, &topk_family, "", c, routing, &out->topk));
    if (s->cuda != NULL)
        MOX_TRY(choose_widening(s, &out->widen));
    MOX_TRY(choose(s, &permute_family, "", NULL, "", &out->permute));
    MOX_TRY(choose_experts(s, &routed_request, &out->routed));
    if (mox_config_computes_shared(c))
        MOX_TRY(choose_experts(s, &shared_request, &out->shared));
    if (mox_config_computes_shared(c) && c->shared.has_gate)
        MOX_TRY(choose(s, &dense_family, "shared gate", NULL, "", &out->shared_gate));
    return choose(s, &combine_family, "", NULL, "", &out->combine);
}

/* ---- rows of a backend's own types ----------------------------------------------------------------- */

static mox_expert_rows host_experts(const chosen_experts *c)
{
    return (mox_expert_rows) { .quant13 = (const mox_quant_act_row *)c->quant13,
                               .gemm13 = (const mox_expert_gemm_row *)c->gemm13,
                               .glu = (const mox_glu_row *)c->glu,
                               .quant2 = (const mox_quant_act_row *)c->quant2,
                               .gemm2 = (const mox_expert_gemm_row *)c->gemm2 };
}

static mox_rows host_rows(const chosen *c)
{
    return (mox_rows) { .router = (const mox_dense_row *)c->router,
                        .topk = (const mox_topk_row *)c->topk,
                        .permute = (const mox_permute_row *)c->permute,
                        .routed = host_experts(&c->routed),
                        .shared = host_experts(&c->shared),
                        .shared_gate = (const mox_dense_row *)c->shared_gate,
                        .combine = (const mox_combine_row *)c->combine };
}

static mox_cuda_expert_rows cuda_experts(const chosen_experts *c)
{
    return (mox_cuda_expert_rows) { .quant13 = (const mox_cuda_quant_act_row *)c->quant13,
                                    .gemm13 = (const mox_cuda_expert_gemm_row *)c->gemm13,
                                    .glu = (const mox_cuda_glu_row *)c->glu,
                                    .quant2 = (const mox_cuda_quant_act_row *)c->quant2,
                                    .gemm2 = (const mox_cuda_expert_gemm_row *)c->gemm2 };
}

static mox_cuda_rows cuda_rows(const chosen *c)
{
    return (mox_cuda_rows) { .router = (const mox_cuda_dense_row *)c->router,
                             .topk = (const mox_cuda_topk_row *)c->topk,
                             .widen = (const mox_cuda_quant_act_row *)c->widen,
                             .permute = (const mox_cuda_permute_row *)c->permute,
                             .routed = cuda_experts(&c->routed),
                             .shared = cuda_experts(&c->shared),
                             .shared_gate = (const mox_cuda_dense_row *)c->shared_gate,
                             .combine = (const mox_cuda_combine_row *)c->combine };
}

static const mox_layout *layout_of(const chosen_experts *c)
{
    return c->gemm13 != NULL ? mox_layout_by_name(c->gemm13->layout) : NULL;
}

moxie_status mox_select(const moxie_layer_config *config, const moxie_options *options, const mox_device *device,
                        const mox_layout *routed, const mox_layout *shared, mox_rows *out, mox_steps *steps,
                        moxie_error *error)
{
    selector s = { .config = config,
                   .reference = options->backend == MOXIE_BACKEND_REF,
                   .cuda = mox_device_is_host(device) ? NULL : &device->features,
                   .mode = (moxie_mode)options->mode,
                   .steps = steps,
                   .error = error };
    chosen all = { 0 };
    MOX_TRY(mox_isa_from_name(options->isa, &s.cap, error));
    MOX_TRY(choose_all(&s, routed, shared, &all));
    mox_rows rows = { 0 };
    if (s.cuda != NULL)
        rows.cuda = cuda_rows(&all);
    else
        rows = host_rows(&all);
    rows.routed.layout = layout_of(&all.routed);
    rows.shared.layout = layout_of(&all.shared);
    *out = rows;
    return MOXIE_OK;
}
