/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_run.c - one product by itself with a panel kernel: what the harness runs, and plans whose two products do not
 * fuse. Each task arranges the activations that it needs, multiplies its panels, and finishes its sums:
 *
 *     out = ((c * activation scale of the row) (*|/) activation global) (*|/) weight global + bias
 *
 *     task = (slot, run of TASK_PANELS panels);   worker scratch | operand | its scales | c | the kernel's own |
 */
#include "cpu/expert_gemm/panel_activations.h"

#define TASK_PANELS 8

typedef struct panel_job {
    const mox_expert_gemm_kernel *row;
    const mox_expert_gemm_args *args;
    mox_panel_multiply_fn multiply;
    const moxie_quant *weight;
    mox_act_scaling scaling;
    int64_t tasks_per_slot;
    uint64_t scratch_bytes;
} panel_job;

typedef struct scratch {
    float *c, *scales, *values;
    void *operand, *kernel;
} scratch;

static uint64_t take(uint8_t *base, uint64_t *at, uint64_t bytes, void *out)
{
    void *here = base != NULL ? base + *at : NULL;
    memcpy(out, &here, sizeof here);
    *at = (*at + bytes + 63) & ~UINT64_C(63);
    return *at;
}

/* `base` NULL only measures. */
static uint64_t lay_out(const mox_expert_gemm_kernel *row, int64_t cols, uint64_t kernel_bytes, uint8_t *base,
                        scratch *out)
{
    uint64_t at = 0;
    take(base, &at, (uint64_t)MOX_PANEL_BLOCK * 2 * MOX_PANEL_ROWS * sizeof(float), &out->c);
    take(base, &at, (uint64_t)MOX_PANEL_BLOCK * (uint64_t)mox_ceil_div(cols, MOX_PANEL_STEP) * sizeof(float),
         &out->scales);
    take(base, &at, (uint64_t)cols * sizeof(float), &out->values);
    take(base, &at, MOX_PANEL_BLOCK * mox_act_order_row_bytes(row->operand, cols), &out->operand);
    return take(base, &at, kernel_bytes, &out->kernel);
}

uint64_t mox_expert_gemm_scratch(const mox_expert_gemm_kernel *row, const mox_expert_gemm_problem *problem)
{
    scratch measured;
    const uint64_t own = row->scratch_bytes(problem);
    if (row->bind == NULL)
        return own;
    return lay_out(row, mox_expert_gemm_cols(problem), own, NULL, &measured);
}

/* ---- one task ------------------------------------------------------------------------------------ */

static int64_t row_of(const mox_expert_gemm_args *args, int64_t pair)
{
    return args->act_row != NULL ? args->act_row[pair] : pair;
}

/* Activations of pairs [first, first + rows), arranged. */
static mox_panel_rows arrange(const panel_job *job, const scratch *sc, int64_t first, int64_t rows)
{
    const mox_activations *a = job->args->a;
    mox_panel_rows out = { .rows = rows, .data = sc->operand };
    for (int64_t r = 0; r < rows; r++) {
        const int64_t from = row_of(job->args, first + r);
        const float *values = a->values + from * a->stride;
        if (job->scaling == MOX_ACT_FOLDED) {
            for (int64_t k = 0; k < a->cols; k++)
                sc->values[k] = values[k] * a->scales[from * a->scale_cols + k / a->group_cols];
            values = sc->values;
        }
        mox_act_order_put(job->row->operand, sc->operand, rows, a->cols, r, values);
        if (job->scaling == MOX_ACT_GROUPED)
            memcpy(sc->scales + r * a->scale_cols, a->scales + from * a->scale_cols,
                   (size_t)a->scale_cols * sizeof(float));
    }
    if (job->scaling == MOX_ACT_GROUPED) {
        out.scales = sc->scales;
        out.scale_stride = a->scale_cols;
        out.group_cols = a->group_cols;
    }
    return out;
}

/* Panel `panel` of the block: columns of c from `at`, to its place in out. */
static void finish(const panel_job *job, const mox_panel_matrix *m, int64_t panel, const float *c, int64_t first,
                   int64_t rows)
{
    const mox_expert_gemm_args *args = job->args;
    const mox_activations *a = args->a;
    int64_t column, count;
    mox_panel_place(m, panel, &column, &count);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t from = row_of(args, first + r);
        const float scale = job->scaling == MOX_ACT_BY_ROW ? a->scales[from] : 1.0f;
        const mox_panel_end end = { .scale = job->scaling == MOX_ACT_BY_ROW ? &scale : NULL,
                                    .act_global = a->global != NULL ? &a->global[from] : NULL,
                                    .act_global_kind = a->global_kind,
                                    .weight_global_kind = job->weight->global };
        float out[MOX_PANEL_ROWS];
        mox_panel_finish(&end, m, panel, c + r * 2 * MOX_PANEL_ROWS, out);
        memcpy(args->out + (first + r) * args->n_out + column, out, (size_t)count * sizeof *out);
    }
}

static void one_task(void *context, int64_t task, int32_t worker)
{
    const panel_job *job = context;
    const mox_expert_gemm_args *args = job->args;
    const int64_t slot = task / job->tasks_per_slot, start = task % job->tasks_per_slot * TASK_PANELS;
    const int64_t first = args->offsets[slot], last = args->offsets[slot + 1];
    if (first == last)
        return;
    mox_panel_record record;
    scratch sc;
    mox_panel_open(args->shape, args->records[slot], &record);
    const mox_panel_matrix *m = args->projection == MOX_W13 ? &record.w13 : &record.w2;
    lay_out(job->row, m->cols, 0, (uint8_t *)args->scratch + (uint64_t)worker * job->scratch_bytes, &sc);
    for (int64_t p = first; p < last; p += MOX_PANEL_BLOCK) {
        mox_panel_rows rows = arrange(job, &sc, p, mox_min_i64(MOX_PANEL_BLOCK, last - p));
        for (int64_t panel = start; panel < mox_min_i64(start + TASK_PANELS, m->count); panel += 2) {
            const int panels = panel + 1 < m->count ? 2 : 1;
            job->multiply(m, job->weight, panel, panels, &rows, sc.c, sc.kernel);
            rows.again = true;
            for (int j = 0; j < panels; j++)
                finish(job, m, panel + j, sc.c + j * MOX_PANEL_ROWS, p, rows.rows);
        }
    }
}

static void run_panels(const mox_expert_gemm_kernel *row, const mox_expert_gemm_args *args,
                       const moxie_executor *executor)
{
    const bool first = args->projection == MOX_W13;
    const mox_expert_gemm_problem problem = { .shape = args->shape,
                                              .projection = args->projection,
                                              .weight = first ? &args->shape->w13 : &args->shape->w2,
                                              .act = args->act,
                                              .dtype = args->dtype };
    mox_panel_record shape;
    mox_rejection unused;
    mox_panel_open(args->shape, NULL, &shape);
    const mox_panel_matrix *m = first ? &shape.w13 : &shape.w2;
    panel_job job = { .row = row,
                      .args = args,
                      .multiply = row->bind(&problem, &unused),
                      .weight = problem.weight,
                      .scaling = mox_panel_act_scaling(args->act, m->cols),
                      .tasks_per_slot = mox_ceil_div(m->count, TASK_PANELS),
                      .scratch_bytes = mox_expert_gemm_scratch(row, &problem) };
    mox_parallel(executor, args->slots * job.tasks_per_slot, one_task, &job);
}

void mox_expert_gemm_run(const mox_expert_gemm_kernel *row, const mox_expert_gemm_args *args,
                         const moxie_executor *executor)
{
    if (row->bind != NULL)
        run_panels(row, args, executor);
    else
        row->run(args, executor);
}
