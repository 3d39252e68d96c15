/* SPDX-License-Identifier: Apache-2.0
 *
 * run_mirror.c - mirrors the arguments of runs in device memory (run_mirror.h). For tools, tests and checks: it
 * allocates and waits, which moxie_cuda_plan_run does not.
 *
 * A probe sees host memory. After every stage the workspace is copied back to a host block of the same size, except the
 * scratch of products, which is most of it in small layers. Each device pointer of the run is then translated to the
 * host pointer at the same place.
 */
#include "layer/run/run_mirror.h"

#include "base/carver.h"
#include "base/memory.h"
#include "base/sizes.h"
#include "layer/run/run_adapters.h"
#include "layer/run/run_args.h"
#include "layer/run/run_ranks.h"

/* What the translating probe needs: the mirror, the run and the caller's probe. */
typedef struct traced_run {
    const mox_mirror *mirror;
    const mox_mirrored_run *run;
    const mox_probe *probe;
} traced_run;

/* ---- ranges -------------------------------------------------------------------------------------------- */

static mox_mirror_range *find(const mox_mirror *m, const void *host)
{
    for (int64_t i = 0; i < m->count; i++)
        if (m->ranges[i].host == host)
            return &m->ranges[i];
    return NULL;
}

/* Adds a range for a host array, or widens the one it has. */
static void add(mox_mirror *m, const void *host, uint64_t bytes, bool in, bool out)
{
    if (host == NULL)
        return;
    mox_mirror_range *r = find(m, host);
    if (r == NULL) {
        r = &m->ranges[m->count++];
        *r = (mox_mirror_range) { .host = (void *)(uintptr_t)host };
    }
    r->bytes = bytes > r->bytes ? bytes : r->bytes;
    r->in = r->in || in;
    r->out = r->out || out;
}

static void add_run(mox_mirror *m, const mox_mirrored_run *run)
{
    const moxie_layer_config *c = &run->plan->config;
    const moxie_run_args *a = &run->host;
    const uint64_t t = (uint64_t)a->tokens, element = (uint64_t)mox_dtype_bytes(c->dtype), k = (uint64_t)c->top_k;
    const uint64_t e = (uint64_t)mox_config_candidates(c), h = (uint64_t)c->hidden;
    const moxie_dtype logits = a->logits_dtype != MOXIE_DTYPE_NONE ? a->logits_dtype : MOXIE_F32;
    add(m, a->hidden, t * h * element, true, false);
    if (a->router_hidden != a->hidden)
        add(m, a->router_hidden, t * (uint64_t)c->router_width * element, true, false);
    add(m, a->logits, t * e * (uint64_t)mox_dtype_bytes(logits), true, false);
    add(m, a->token_ids, t * sizeof *a->token_ids, true, false);
    add(m, a->padding, t, true, false);
    add(m, a->adapter_ids, t * sizeof *a->adapter_ids, true, false);
    add(m, a->bias_choice, t, true, false);
    add(m, a->ids, t * k * sizeof *a->ids, true, false);
    add(m, a->weights, t * k * sizeof *a->weights, true, false);
    if (a->ids_out != a->ids)
        add(m, a->ids_out, t * k * sizeof *a->ids_out, false, true);
    if (a->weights_out != a->weights)
        add(m, a->weights_out, t * k * sizeof *a->weights_out, false, true);
    if ((const void *)a->logits_out != a->logits)
        add(m, a->logits_out, t * e * sizeof *a->logits_out, false, a->ids == NULL);
    const uint64_t rows = run->call == MOX_RUN_WHOLE ? mox_run_output_rows(run->plan, a->tokens) : t;
    add(m, a->output, rows * h * element, false, true);
    add(m, run->rows, t * k * h * sizeof *run->rows, run->call == MOX_RUN_COMBINE, run->call == MOX_RUN_EXPERTS);
    const mox_workspace *s = &run->plan->space;
    add(m, a->workspace, m->workspace_out ? s->traced_bytes : s->bytes, false, m->workspace_out);
    mox_mirror_range *workspace = find(m, a->workspace);
    if (workspace != NULL) {
        workspace->scratch = s->product;
        workspace->scratch_bytes = s->product_bytes;
    }
}

/* The device address of a host pointer that begins a range; NULL for others. */
static void *to_device(const mox_mirror *m, const void *host)
{
    const mox_mirror_range *r = host != NULL ? find(m, host) : NULL;
    return r != NULL ? m->block + r->at : NULL;
}

/* The host address of a device pointer into any range; NULL for others. */
static void *to_host(const mox_mirror *m, const void *device)
{
    const uintptr_t at = (uintptr_t)device - (uintptr_t)m->block;
    for (int64_t i = 0; i < m->count && device != NULL; i++)
        if (at >= m->ranges[i].at && at - m->ranges[i].at < m->ranges[i].bytes)
            return (char *)m->ranges[i].host + (at - m->ranges[i].at);
    return NULL;
}

static moxie_status copy_back(const mox_mirror *m, const mox_mirror_range *r, moxie_error *error)
{
    const mox_cuda_table *table = m->device->table;
    const uint64_t first = r->scratch_bytes > 0 ? r->scratch : r->bytes, rest = first + r->scratch_bytes;
    MOX_TRY(table->copy(r->host, m->block + r->at, first, m->stream, error));
    if (rest == r->bytes)
        return MOXIE_OK;
    return table->copy((char *)r->host + rest, m->block + r->at + rest, r->bytes - rest, m->stream, error);
}

moxie_status mox_mirror_copy(const mox_mirror *m, bool in, moxie_error *error)
{
    const mox_cuda_table *table = m->device->table;
    for (int64_t i = 0; i < m->count; i++) {
        const mox_mirror_range *r = &m->ranges[i];
        if (in && r->in)
            MOX_TRY(table->copy(m->block + r->at, r->host, r->bytes, m->stream, error));
        else if (!in && r->out)
            MOX_TRY(copy_back(m, r, error));
    }
    return table->stream_wait(m->stream, error);
}

moxie_status mox_mirror_open(mox_mirror *m, const mox_mirrored_run *runs, int64_t count, bool workspace_out,
                             moxie_error *error)
{
    mox_carver carver = mox_offset_carver(MOX_DEVICE_ALIGN);
    void *block = NULL;
    *m = (mox_mirror) { .device = &runs[0].plan->device, .workspace_out = workspace_out };
    m->ranges = mox_calloc((uint64_t)count * MOX_MIRROR_MAX_RANGES, sizeof *m->ranges);
    MOX_FAIL_IF(m->ranges == NULL, MOXIE_ERR_MEMORY, error, "no memory for the arguments of %lld runs",
                (long long)count);
    for (int64_t i = 0; i < count; i++)
        add_run(m, &runs[i]);
    for (int64_t i = 0; i < m->count; i++)
        m->ranges[i].at = mox_carve_offset(&carver, m->ranges[i].bytes, 1);
    MOX_TRY(mox_device_allocate(m->device, carver.used, "a run's arguments and workspace", &block, error));
    m->block = block;
    return m->device->table->stream_create(&m->stream, error);
}

void mox_mirror_close(mox_mirror *m)
{
    if (m->device == NULL)
        return;
    m->device->table->stream_destroy(m->stream);
    mox_device_release(m->device, m->block);
    mox_free(m->ranges);
}

/* ---- the probe ----------------------------------------------------------------------------------------- */

static void translate_activations(const mox_mirror *m, mox_activations *a)
{
    a->values = to_host(m, a->values);
    a->scales = to_host(m, a->scales);
    a->global = to_host(m, a->global);
}

/* The run with host pointers. */
static mox_run run_on_host(const traced_run *t, const mox_run *on_device)
{
    const mox_mirror *m = t->mirror;
    mox_run run = *on_device;
    run.args = t->run->host;
    run.space = t->run->host.workspace;
    run.probe = t->probe;
    run.router_x = to_host(m, run.router_x);
    run.logits = to_host(m, run.logits);
    run.ids = to_host(m, run.ids);
    run.weights = to_host(m, run.weights);
    run.permutation.offsets = to_host(m, run.permutation.offsets);
    run.permutation.pair_at = to_host(m, run.permutation.pair_at);
    run.permutation.position = to_host(m, run.permutation.position);
    run.y = to_host(m, run.y);
    run.before_norm = to_host(m, run.before_norm);
    run.shared_y = to_host(m, run.shared_y);
    run.shared_weight = to_host(m, run.shared_weight);
    return run;
}

/* The pass with host pointers. */
static mox_expert_pass pass_on_host(const mox_mirror *m, const moxie_plan *plan, const mox_expert_pass *on_device)
{
    mox_expert_pass pass = *on_device;
    pass.offsets = to_host(m, pass.offsets);
    pass.expert_of = pass.expert_of != NULL ? plan->layer->expert_of : NULL;
    pass.x = to_host(m, pass.x);
    pass.source = to_host(m, pass.source);
    pass.act_row = to_host(m, pass.act_row);
    pass.row_weight = to_host(m, pass.row_weight);
    for (int p = MOX_W13; p <= MOX_W2; p++) {
        pass.pair_scale[p] = to_host(m, pass.pair_scale[p]);
        translate_activations(m, &pass.traced[p]);
    }
    pass.h = to_host(m, pass.h);
    pass.act = to_host(m, pass.act);
    pass.y = to_host(m, pass.y);
    return pass;
}

/* The probe of the run on the device: copies results back and calls the caller's probe. */
static moxie_status after_stage(void *user, const mox_run *on_device, mox_stage stage,
                                const mox_expert_pass *pass_on_device, moxie_error *error)
{
    const traced_run *t = user;
    mox_expert_pass pass;
    MOX_TRY(mox_mirror_copy(t->mirror, false, error));
    const mox_run run = run_on_host(t, on_device);
    if (pass_on_device != NULL)
        pass = pass_on_host(t->mirror, t->run->plan, pass_on_device);
    return t->probe->after(t->probe->user, &run, stage, pass_on_device != NULL ? &pass : NULL, error);
}

/* ---- the call ------------------------------------------------------------------------------------------ */

moxie_run_args mox_mirror_args(const mox_mirror *m, const mox_mirrored_run *run)
{
    moxie_run_args args = run->host;
    args.hidden = to_device(m, args.hidden);
    args.router_hidden = to_device(m, args.router_hidden);
    args.logits = to_device(m, args.logits);
    args.token_ids = to_device(m, args.token_ids);
    args.padding = to_device(m, args.padding);
    args.adapter_ids = to_device(m, args.adapter_ids);
    args.bias_choice = to_device(m, args.bias_choice);
    args.ids = to_device(m, args.ids);
    args.weights = to_device(m, args.weights);
    args.output = to_device(m, args.output);
    args.ids_out = to_device(m, args.ids_out);
    args.weights_out = to_device(m, args.weights_out);
    args.logits_out = to_device(m, args.logits_out);
    args.workspace = to_device(m, args.workspace);
    return args;
}

moxie_status mox_mirror_enqueue(const mox_mirror *m, const mox_mirrored_run *run, const mox_probe *probe,
                                moxie_error *error)
{
    const moxie_run_args args = mox_mirror_args(m, run);
    return mox_run_enqueue(run->plan, run->call, &args, to_device(m, run->rows), m->stream, probe, error);
}

moxie_status mox_mirrored_run_begin(mox_mirrored_run *run, const moxie_run_args *args, moxie_error *error)
{
    mox_run checked;
    MOX_TRY(mox_run_begin(run->plan, args, 0, &checked, error));
    run->host = checked.args;
    return mox_run_check_adapter_ids(run->plan, &run->host, error);
}

static moxie_status open_and_copy_in(mox_mirror *m, const mox_mirrored_run *run, const mox_probe *probe,
                                     moxie_error *error)
{
    MOX_TRY(mox_mirror_open(m, run, 1, probe != NULL, error));
    return mox_mirror_copy(m, true, error);
}

moxie_status mox_run_mirrored(const moxie_plan *plan, mox_run_call call, const moxie_run_args *args, float *rows,
                              const mox_probe *probe, moxie_error *error)
{
    mox_mirror m = { 0 };
    mox_mirrored_run run = { .plan = plan, .call = call, .rows = rows };
    const traced_run traced = { &m, &run, probe };
    const mox_probe translating = { (void *)(uintptr_t)&traced, after_stage };
    const bool together = plan->ranks != NULL && call == MOX_RUN_WHOLE;
    void *workspace = NULL;
    moxie_status status = mox_mirrored_run_begin(&run, args, error);
    if (status != MOXIE_OK)
        return together ? mox_run_ranks_refuse(plan, status) : status;
    if (probe != NULL)
        run.host.workspace = workspace = mox_alloc(plan->space.traced_bytes);
    MOX_FAIL_IF(probe != NULL && workspace == NULL, MOXIE_ERR_MEMORY, error,
                "no memory to trace a run with a workspace of %llu bytes: make the plan with a smaller max_tokens",
                (unsigned long long)plan->space.traced_bytes);
    status = open_and_copy_in(&m, &run, probe, error);
    if (status != MOXIE_OK && together)
        (void)mox_run_ranks_refuse(plan, status);
    if (status == MOXIE_OK)
        status = mox_mirror_enqueue(&m, &run, probe != NULL ? &translating : NULL, error);
    if (status == MOXIE_OK)
        status = mox_mirror_copy(&m, false, error);
    mox_mirror_close(&m);
    mox_free(workspace);
    return status;
}
