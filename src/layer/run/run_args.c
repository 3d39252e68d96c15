/* SPDX-License-Identifier: Apache-2.0
 *
 * run_args.c - checks the arguments of a run: the plan can run, the workspace fits, every array that the call reads or
 * writes is there, and the output overlaps nothing (run_args.h).
 */
#include "layer/run/run_args.h"

#include "layer/config/struct_size.h"
#include "layer/run/run_adapters.h"

static moxie_status check_plan(const moxie_plan *plan, moxie_error *error)
{
    MOX_FAIL_IF(plan->layer == NULL, MOXIE_ERR_ARGUMENT, error,
                "this plan explains a configuration and has no weights: make one with moxie_plan_create to run");
    MOX_FAIL_IF(!plan->layer->prepared, MOXIE_ERR_ARGUMENT, error,
                "the plan's layer holds no experts: call moxie_layer_prepare before a run");
    const mox_expert_kernels *const kernels = plan->kernels.experts;
    MOX_FAIL_IF(
        kernels[MOX_ROUTED].layout != plan->layer->layouts[MOX_ROUTED] ||
            kernels[MOX_SHARED_EXPERT].layout != plan->layer->layouts[MOX_SHARED_EXPERT],
        MOXIE_ERR_MISMATCH, error,
        "the plan reads layout %s, but its layer's weights did not fit that and were packed in layout %s: make the "
        "plan again",
        kernels[MOX_ROUTED].layout->name, plan->layer->layouts[MOX_ROUTED]->name);
    return MOXIE_OK;
}

static moxie_status check_workspace(const moxie_plan *plan, const moxie_run_args *a, moxie_error *error)
{
    MOX_FAIL_IF(a->tokens < 0 || a->tokens > plan->max_tokens, MOXIE_ERR_ARGUMENT, error,
                "tokens is %lld; this plan runs 0 to %lld: make it with a larger max_tokens, or split the batch",
                (long long)a->tokens, (long long)plan->max_tokens);
    MOX_FAIL_IF(a->workspace == NULL || (uintptr_t)a->workspace % MOX_RECORD_ALIGN != 0, MOXIE_ERR_ARGUMENT, error,
                "workspace is %p; it must be memory aligned to %d bytes", a->workspace, MOX_RECORD_ALIGN);
    MOX_FAIL_IF(a->workspace_bytes < plan->space.bytes, MOXIE_ERR_MEMORY, error,
                "the workspace has %llu bytes, but the plan needs %llu: allocate moxie_plan_workspace_bytes",
                (unsigned long long)a->workspace_bytes, (unsigned long long)plan->space.bytes);
    return MOXIE_OK;
}

/* `why` continues the text: "", or ", and the router reads it". */
static moxie_status need(bool is_set, const char *name, const char *why, moxie_error *error)
{
    MOX_FAIL_IF(!is_set, MOXIE_ERR_ARGUMENT, error, "%s is NULL%s", name, why);
    return MOXIE_OK;
}

static moxie_status check_router_input(const moxie_layer_config *c, const moxie_run_args *a, moxie_error *error)
{
    MOX_FAIL_IF(c->router_width == 0, MOXIE_ERR_ARGUMENT, error,
                "ids and logits are NULL, and the layer has no router (router_width is 0): set one of them");
    if (a->router_hidden != NULL)
        return MOXIE_OK;
    MOX_FAIL_IF(c->router_width != c->hidden, MOXIE_ERR_ARGUMENT, error,
                "router_hidden is NULL, but the router reads rows of %lld and the hidden states have %lld: set "
                "router_hidden",
                (long long)c->router_width, (long long)c->hidden);
    return need(a->hidden != NULL, "hidden", ", and the router reads it", error);
}

static moxie_status check_marks(const moxie_layer_config *c, const moxie_run_args *a, moxie_error *error)
{
    MOX_FAIL_IF(a->bias_choice != NULL && c->routing.bias_alt == NULL, MOXIE_ERR_ARGUMENT, error,
                "bias_choice is set, but routing.bias_alt is NULL: the layer has no second bias to choose");
    return MOXIE_OK;
}

static moxie_status check_logits(const moxie_layer_config *c, const moxie_run_args *a, moxie_error *error)
{
    MOX_FAIL_IF(c->routing.select == MOXIE_SELECT_TABLE && a->token_ids == NULL, MOXIE_ERR_ARGUMENT, error,
                "token_ids is NULL, but this layer routes by a table of token ids: set token_ids");
    MOX_TRY(check_marks(c, a, error));
    if (a->logits == NULL)
        return check_router_input(c, a, error);
    const moxie_dtype dtype = a->logits_dtype;
    MOX_FAIL_IF(dtype != MOXIE_F32 && dtype != MOXIE_F16 && dtype != MOXIE_BF16, MOXIE_ERR_ARGUMENT, error,
                "logits_dtype is %s; it must be f32, f16 or bf16", mox_dtype_name(dtype));
    return MOXIE_OK;
}

uint64_t mox_run_output_rows(const moxie_plan *plan, int64_t tokens)
{
    const mox_ranks *x = plan->ranks;
    if (x == NULL || x->layout != MOXIE_TOKENS_SCATTERED)
        return (uint64_t)tokens;
    return (uint64_t)(mox_ranks_first_token(x, tokens, x->rank + 1) - mox_ranks_first_token(x, tokens, x->rank));
}

static uint64_t output_rows(const moxie_plan *plan, int64_t tokens, uint32_t needs)
{
    const bool alone = (needs & MOX_NEEDS_IDS_OR_LOGITS) == 0; /* not moxie_plan_run */
    return alone ? (uint64_t)tokens : mox_run_output_rows(plan, tokens);
}

static moxie_status check_needs(const moxie_plan *plan, const moxie_run_args *a, uint32_t needs, moxie_error *error)
{
    if (needs & MOX_NEEDS_HIDDEN)
        MOX_TRY(need(a->hidden != NULL, "hidden", "", error));
    if ((needs & MOX_NEEDS_OUTPUT) && output_rows(plan, a->tokens, needs) > 0)
        MOX_TRY(need(a->output != NULL, "output", "", error));
    if (needs & MOX_NEEDS_IDS)
        MOX_TRY(need(a->ids != NULL, "ids", "", error));
    if ((needs & MOX_NEEDS_WEIGHTS) || ((needs & MOX_NEEDS_IDS_OR_LOGITS) && a->ids != NULL))
        MOX_TRY(need(a->weights != NULL, "weights", ", and ids need them", error));
    MOX_FAIL_IF((needs & MOX_NEEDS_IDS_OR_LOGITS) && a->ids != NULL && (a->padding != NULL || a->bias_choice != NULL),
                MOXIE_ERR_ARGUMENT, error,
                "%s is set beside ids, but it marks tokens for the choice of experts, which ids replace: set it to "
                "NULL%s",
                a->padding != NULL ? "padding" : "bias_choice",
                a->padding != NULL ? ", and the ids of padding to -1" : "");
    if (needs & MOX_NEEDS_IDS_OUT)
        MOX_TRY(need(a->ids_out != NULL && a->weights_out != NULL, "ids_out or weights_out", "", error));
    if ((needs & MOX_NEEDS_LOGITS) || ((needs & MOX_NEEDS_IDS_OR_LOGITS) && a->ids == NULL))
        MOX_TRY(check_logits(&plan->config, a, error));
    return MOXIE_OK;
}

static bool overlap(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes)
{
    const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a != NULL && b != NULL && x < y + b_bytes && y < x + a_bytes;
}

static moxie_status check_overlap(const moxie_plan *plan, const moxie_run_args *a, uint32_t needs, moxie_error *error)
{
    const moxie_layer_config *c = &plan->config;
    const uint64_t t = (uint64_t)a->tokens, element = (uint64_t)mox_dtype_bytes(c->dtype);
    const uint64_t row = (uint64_t)c->hidden * element, out_bytes = output_rows(plan, a->tokens, needs) * row;
    const struct {
        const char *name;
        const void *data;
        uint64_t bytes;
    } inputs[] = {
        { "hidden", a->hidden, t * row },
        { "router_hidden", a->router_hidden, t * (uint64_t)c->router_width * element },
        { "logits", a->logits, t * (uint64_t)mox_config_candidates(c) * (uint64_t)mox_dtype_bytes(a->logits_dtype) },
        { "padding", a->padding, t },
        { "bias_choice", a->bias_choice, t },
        { "ids", a->ids, t * (uint64_t)c->top_k * sizeof(int32_t) },
        { "weights", a->weights, t * (uint64_t)c->top_k * sizeof(float) },
        { "adapter_ids", a->adapter_ids, t * sizeof(int32_t) },
        { "workspace", a->workspace, plan->space.bytes },
    };
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++)
        MOX_FAIL_IF(overlap(a->output, out_bytes, inputs[i].data, inputs[i].bytes), MOXIE_ERR_ARGUMENT, error,
                    "output overlaps %s: use separate memory for it", inputs[i].name);
    return MOXIE_OK;
}

moxie_status mox_run_begin(const moxie_plan *plan, const moxie_run_args *args, uint32_t needs, mox_run *run,
                           moxie_error *error)
{
    mox_run r = { .plan = plan };
    MOX_TRY(mox_struct_read(args, &r.args, MOX_STRUCT(moxie_run_args), error));
    if (r.args.logits_dtype == MOXIE_DTYPE_NONE)
        r.args.logits_dtype = MOXIE_F32;
    MOX_TRY(check_plan(plan, error));
    MOX_TRY(check_workspace(plan, &r.args, error));
    MOX_TRY(mox_run_check_adapters(plan, &r.args, error));
    if (r.args.tokens > 0) {
        MOX_TRY(check_needs(plan, &r.args, needs, error));
        if (needs & MOX_NEEDS_OUTPUT)
            MOX_TRY(check_overlap(plan, &r.args, needs, error));
    }
    r.space = r.args.workspace;
    r.ids = r.args.ids;
    r.weights = r.args.weights;
    *run = r;
    return MOXIE_OK;
}
