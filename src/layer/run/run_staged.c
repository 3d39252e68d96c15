/* SPDX-License-Identifier: Apache-2.0
 *
 * run_staged.c - a run on a GPU for callers whose memory is the host's: tools, tests, checks. Copies arguments to the
 * device, runs, copies results back and waits. It allocates, which moxie_cuda_plan_run does not.
 *
 *     ranges:   | hidden | logits | ids | ... | output | workspace |       one block of device memory
 *
 * A probe behind a stage looks at the host: after every stage the workspace comes back whole, to memory with the same
 * layout (the caller's does not have what a traced run leaves besides); every pointer of the run is then the one at the
 * same place of the host's memory.
 */
#include "layer/run/staged.h"

#include "base/memory.h"
#include "base/sizes.h"

/* The caller's call, for the probe. */
typedef struct watched {
    const mox_staged *staged;
    const mox_staged_run *run;
    const mox_probe *probe;
} watched;

/* ---- ranges -------------------------------------------------------------------------------------------- */

static mox_staged_range *find(const mox_staged *s, const void *host)
{
    for (int64_t i = 0; i < s->count; i++)
        if (s->ranges[i].host == host)
            return &s->ranges[i];
    return NULL;
}

static void add(mox_staged *s, const void *host, uint64_t bytes, bool in, bool out)
{
    if (host == NULL)
        return;
    mox_staged_range *r = find(s, host);
    if (r == NULL) {
        r = &s->ranges[s->count++];
        *r = (mox_staged_range) { .host = (void *)(uintptr_t)host };
    }
    r->bytes = bytes > r->bytes ? bytes : r->bytes;
    r->in = r->in || in;
    r->out = r->out || out;
}

static void add_run(mox_staged *s, const mox_staged_run *run)
{
    const moxie_layer_config *c = &run->plan->config;
    const moxie_run_args *a = &run->host;
    const uint64_t t = (uint64_t)a->tokens, element = (uint64_t)mox_dtype_bytes(c->dtype), k = (uint64_t)c->top_k;
    const uint64_t e = (uint64_t)c->experts, h = (uint64_t)c->hidden;
    const moxie_dtype logits = a->logits_dtype != MOXIE_DTYPE_NONE ? a->logits_dtype : MOXIE_F32;
    add(s, a->hidden, t * h * element, true, false);
    if (a->router_hidden != a->hidden)
        add(s, a->router_hidden, t * (uint64_t)c->router_width * element, true, false);
    add(s, a->logits, t * e * (uint64_t)mox_dtype_bytes(logits), true, false);
    add(s, a->token_ids, t * sizeof *a->token_ids, true, false);
    add(s, a->ids, t * k * sizeof *a->ids, true, false);
    add(s, a->weights, t * k * sizeof *a->weights, true, false);
    if (a->ids_out != a->ids)
        add(s, a->ids_out, t * k * sizeof *a->ids_out, false, true);
    if (a->weights_out != a->weights)
        add(s, a->weights_out, t * k * sizeof *a->weights_out, false, true);
    if ((const void *)a->logits_out != a->logits)
        add(s, a->logits_out, t * e * sizeof *a->logits_out, false, a->ids == NULL);
    add(s, a->output, t * h * element, false, true);
    add(s, run->rows, t * k * h * sizeof *run->rows, run->call == MOX_RUN_COMBINE, run->call == MOX_RUN_EXPERTS);
    add(s, a->workspace, s->workspace_out ? run->plan->space.traced_bytes : run->plan->space.bytes, false,
        s->workspace_out);
}

/* The device's address of a host pointer that begins a range. */
static void *to_device(const mox_staged *s, const void *host)
{
    const mox_staged_range *r = host != NULL ? find(s, host) : NULL;
    return r != NULL ? s->block + r->at : NULL;
}

/* The host's address of any device pointer into a range; NULL for others. */
static void *to_host(const mox_staged *s, const void *device)
{
    const uintptr_t at = (uintptr_t)device - (uintptr_t)s->block;
    for (int64_t i = 0; i < s->count && device != NULL; i++)
        if (at >= s->ranges[i].at && at - s->ranges[i].at < s->ranges[i].bytes)
            return (char *)s->ranges[i].host + (at - s->ranges[i].at);
    return NULL;
}

moxie_status mox_staged_copy(const mox_staged *s, bool in, moxie_error *error)
{
    const mox_cuda_table *table = s->device->table;
    for (int64_t i = 0; i < s->count; i++) {
        const mox_staged_range *r = &s->ranges[i];
        if (in && r->in)
            MOX_TRY(table->copy(s->block + r->at, r->host, r->bytes, s->stream, error));
        else if (!in && r->out)
            MOX_TRY(table->copy(r->host, s->block + r->at, r->bytes, s->stream, error));
    }
    return table->stream_wait(s->stream, error);
}

moxie_status mox_staged_open(mox_staged *s, const mox_staged_run *runs, int64_t count, bool workspace_out,
                             moxie_error *error)
{
    uint64_t bytes = 0;
    void *block = NULL;
    *s = (mox_staged) { .device = &runs[0].plan->device, .workspace_out = workspace_out };
    s->ranges = mox_calloc((uint64_t)count * MOX_STAGED_RANGES, sizeof *s->ranges);
    MOX_FAIL_IF(s->ranges == NULL, MOXIE_ERR_MEMORY, error, "no memory for the arguments of %lld runs",
                (long long)count);
    for (int64_t i = 0; i < count; i++)
        add_run(s, &runs[i]);
    for (int64_t i = 0; i < s->count; i++) {
        s->ranges[i].at = bytes;
        bytes += (s->ranges[i].bytes + MOX_DEVICE_ALIGN - 1) / MOX_DEVICE_ALIGN * MOX_DEVICE_ALIGN;
    }
    MOX_TRY(mox_device_allocate(s->device, bytes, "a run's arguments and workspace", &block, error));
    s->block = block;
    return s->device->table->stream_create(&s->stream, error);
}

void mox_staged_close(mox_staged *s)
{
    if (s->device == NULL)
        return;
    s->device->table->stream_destroy(s->stream);
    mox_device_release(s->device, s->block);
    mox_free(s->ranges);
}

/* ---- the probe ----------------------------------------------------------------------------------------- */

static void bring_activations(const mox_staged *s, mox_activations *a)
{
    a->values = to_host(s, a->values);
    a->scales = to_host(s, a->scales);
    a->global = to_host(s, a->global);
}

static mox_run run_on_host(const watched *w, const mox_run *on_device)
{
    const mox_staged *s = w->staged;
    mox_run run = *on_device;
    run.args = w->run->host;
    run.space = w->run->host.workspace;
    run.probe = w->probe;
    run.logits = to_host(s, run.logits);
    run.ids = to_host(s, run.ids);
    run.weights = to_host(s, run.weights);
    run.permutation.offsets = to_host(s, run.permutation.offsets);
    run.permutation.pair_at = to_host(s, run.permutation.pair_at);
    run.permutation.position = to_host(s, run.permutation.position);
    run.y = to_host(s, run.y);
    run.shared_y = to_host(s, run.shared_y);
    run.shared_weight = to_host(s, run.shared_weight);
    return run;
}

static mox_expert_pass pass_on_host(const mox_staged *s, const moxie_plan *plan, const mox_expert_pass *on_device)
{
    mox_expert_pass pass = *on_device;
    pass.offsets = to_host(s, pass.offsets);
    pass.expert_of = pass.expert_of != NULL ? plan->layer->expert_of : NULL;
    pass.x = to_host(s, pass.x);
    pass.source = to_host(s, pass.source);
    pass.act_row = to_host(s, pass.act_row);
    pass.row_weight = to_host(s, pass.row_weight);
    for (int p = MOX_W13; p <= MOX_W2; p++) {
        pass.pair_scale[p] = to_host(s, pass.pair_scale[p]);
        bring_activations(s, &pass.traced[p]);
    }
    pass.h = to_host(s, pass.h);
    pass.act = to_host(s, pass.act);
    pass.y = to_host(s, pass.y);
    return pass;
}

static moxie_status bring_back(void *user, const mox_run *on_device, mox_stage stage,
                               const mox_expert_pass *pass_on_device, moxie_error *error)
{
    const watched *w = user;
    mox_expert_pass pass;
    MOX_TRY(mox_staged_copy(w->staged, false, error));
    const mox_run run = run_on_host(w, on_device);
    if (pass_on_device != NULL)
        pass = pass_on_host(w->staged, w->run->plan, pass_on_device);
    return w->probe->after(w->probe->user, &run, stage, pass_on_device != NULL ? &pass : NULL, error);
}

/* ---- the call ------------------------------------------------------------------------------------------ */

moxie_status mox_staged_enqueue(const mox_staged *s, const mox_staged_run *run, const mox_probe *probe,
                                moxie_error *error)
{
    moxie_run_args args = run->host;
    args.hidden = to_device(s, args.hidden);
    args.router_hidden = to_device(s, args.router_hidden);
    args.logits = to_device(s, args.logits);
    args.token_ids = to_device(s, args.token_ids);
    args.ids = to_device(s, args.ids);
    args.weights = to_device(s, args.weights);
    args.output = to_device(s, args.output);
    args.ids_out = to_device(s, args.ids_out);
    args.weights_out = to_device(s, args.weights_out);
    args.logits_out = to_device(s, args.logits_out);
    args.workspace = to_device(s, args.workspace);
    return mox_run_enqueue(run->plan, run->call, &args, to_device(s, run->rows), s->stream, probe, error);
}

moxie_status mox_staged_run_begin(mox_staged_run *run, const moxie_run_args *args, moxie_error *error)
{
    mox_run checked;
    MOX_TRY(mox_run_begin(run->plan, args, 0, &checked, error));
    run->host = checked.args;
    return MOXIE_OK;
}

moxie_status mox_run_staged(const moxie_plan *plan, mox_run_call call, const moxie_run_args *args, float *rows,
                            const mox_probe *probe, moxie_error *error)
{
    mox_staged s = { 0 };
    mox_staged_run run = { .plan = plan, .call = call, .rows = rows };
    const watched w = { &s, &run, probe };
    const mox_probe looking = { (void *)(uintptr_t)&w, bring_back };
    void *looked_at = NULL;
    MOX_TRY(mox_staged_run_begin(&run, args, error));
    if (probe != NULL)
        run.host.workspace = looked_at = mox_alloc(plan->space.traced_bytes);
    MOX_FAIL_IF(probe != NULL && looked_at == NULL, MOXIE_ERR_MEMORY, error,
                "no memory to look at a workspace of %llu bytes", (unsigned long long)plan->space.traced_bytes);
    moxie_status status = mox_staged_open(&s, &run, 1, probe != NULL, error);
    if (status == MOXIE_OK)
        status = mox_staged_copy(&s, true, error);
    if (status == MOXIE_OK)
        status = mox_staged_enqueue(&s, &run, probe != NULL ? &looking : NULL, error);
    if (status == MOXIE_OK)
        status = mox_staged_copy(&s, false, error);
    mox_staged_close(&s);
    mox_free(looked_at);
    return status;
}
