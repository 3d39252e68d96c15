/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_run.c - one product by itself, with a kernel of either type (expert_gemm.h). The test harness runs it, and so
 * do plans whose two products do not fuse. A product kernel does all the work. With a panel kernel each task puts the
 * activations that it needs in the kernel's order, multiplies its panels, and finishes their sums:
 *
 *     out = ((c * activation scale of the row) (*|/) activation global) (*|/) weight global + bias
 *
 *     task = (slot, run of TASK_PANELS panels)
 *     scratch of a worker: | sums c | scales | one row | ordered activations | the kernel's own |
 */
#include "base/carver.h"
#include "cpu/expert_gemm/panel_activations.h"
#include "pack/order/column_order.h"

#define TASK_PANELS 8

typedef struct panel_job {
    const mox_panel_kernel *kernel;
    const mox_expert_gemm_args *args;
    mox_panel_multiply_fn multiply;
    const moxie_quant *weight;
    mox_act_scaling scaling;
    int64_t tasks_per_slot;
    uint64_t kernel_bytes, scratch_bytes; /* of a worker: for the kernel, in all */
} panel_job;

typedef struct scratch {
    float *c;          /* [MOX_PANEL_BLOCK, 2 * MOX_PANEL_ROWS] */
    float *scales;     /* [MOX_PANEL_BLOCK, scale groups] */
    float *values;     /* [cols] */
    float *ordered;    /* [cols]: the same in the order of the record's columns */
    void *activations; /* MOX_PANEL_BLOCK rows in the kernel's order */
    void *kernel;
} scratch;

static void lay_out(mox_carver *carver, mox_act_order order, int64_t cols, uint64_t kernel_bytes, scratch *out)
{
    const uint64_t steps = (uint64_t)mox_ceil_div(cols, MOX_PANEL_STEP);
    out->c = mox_carve(carver, MOX_PANEL_BLOCK * 2 * MOX_PANEL_ROWS, sizeof *out->c);
    out->scales = mox_carve(carver, MOX_PANEL_BLOCK * steps, sizeof *out->scales);
    out->values = mox_carve(carver, (uint64_t)cols, sizeof *out->values);
    out->ordered = mox_carve(carver, (uint64_t)cols, sizeof *out->ordered);
    out->activations = mox_carve(carver, MOX_PANEL_BLOCK, mox_act_order_row_bytes(order, cols));
    out->kernel = mox_carve(carver, kernel_bytes, 1);
}

uint64_t mox_expert_gemm_scratch(const mox_expert_gemm_kernel *kernel, const mox_expert_gemm_problem *problem)
{
    const mox_panel_kernel *panel = mox_panel_kernel_of(kernel);
    const uint64_t kernel_bytes = kernel->scratch_bytes(problem);
    mox_carver carver = mox_carver_of(NULL);
    scratch unused;
    if (panel == NULL)
        return kernel_bytes;
    lay_out(&carver, panel->order, mox_expert_gemm_cols(problem), kernel_bytes, &unused);
    return carver.used;
}

/* ---- one task ------------------------------------------------------------------------------------ */

static int64_t row_of(const mox_expert_gemm_args *args, int64_t pair)
{
    return args->act_row != NULL ? args->act_row[pair] : pair;
}

/* Activations of pairs [first, first + rows), in the kernel's order. `order`: of the record's columns, or NULL. */
static mox_panel_rows arrange(const panel_job *job, const scratch *sc, const int32_t *order, int64_t first,
                              int64_t rows)
{
    const mox_activations *a = job->args->a;
    mox_panel_rows out = { .rows = rows, .data = sc->activations };
    for (int64_t r = 0; r < rows; r++) {
        const int64_t from = row_of(job->args, first + r);
        const float *values = a->values + from * a->stride;
        if (job->scaling == MOX_ACT_IN_VALUE) {
            for (int64_t k = 0; k < a->cols; k++)
                sc->values[k] = values[k] * a->scales[from * a->scale_cols + k / a->group_cols];
            values = sc->values;
        }
        for (int64_t k = 0; order != NULL && k < a->cols; k++)
            sc->ordered[k] = values[order[k]];
        values = order != NULL ? sc->ordered : values;
        mox_act_order_put(job->kernel->order, sc->activations, rows, a->cols, r, values);
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

/* Finishes the sums c of panel `panel` for pairs [first, first + rows), and stores them where they belong in `out`. */
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
    mox_carver carver = mox_carver_of((uint8_t *)args->scratch + (uint64_t)worker * job->scratch_bytes);
    scratch sc;
    mox_panel_open(args->shape, args->records[slot], &record);
    const mox_panel_matrix *m = args->projection == MOX_W13 ? &record.w13 : &record.w2;
    lay_out(&carver, job->kernel->order, m->cols, job->kernel_bytes, &sc);
    const int32_t *order = mox_column_order_of(args->shape, args->records[slot], args->projection == MOX_W2).order;
    for (int64_t p = first; p < last; p += MOX_PANEL_BLOCK) {
        mox_panel_rows rows = arrange(job, &sc, order, p, mox_min_i64(MOX_PANEL_BLOCK, last - p));
        for (int64_t panel = start; panel < mox_min_i64(start + TASK_PANELS, m->count); panel += 2) {
            const int panels = panel + 1 < m->count ? 2 : 1;
            job->multiply(m, job->weight, panel, panels, &rows, sc.c, sc.kernel);
            rows.again = true;
            for (int j = 0; j < panels; j++)
                finish(job, m, panel + j, sc.c + j * MOX_PANEL_ROWS, p, rows.rows);
        }
    }
}

static void run_panels(const mox_panel_kernel *kernel, const mox_expert_gemm_args *args, const moxie_executor *executor)
{
    const bool first = args->projection == MOX_W13;
    const mox_expert_gemm_problem problem = { .shape = args->shape,
                                              .projection = args->projection,
                                              .weight = first ? &args->shape->w13 : &args->shape->w2,
                                              .act = args->act,
                                              .dtype = args->dtype,
                                              .max_rows = args->max_pairs };
    mox_panel_record shape;
    mox_rejection unused;
    mox_panel_open(args->shape, NULL, &shape);
    const mox_panel_matrix *m = first ? &shape.w13 : &shape.w2;
    panel_job job = { .kernel = kernel,
                      .args = args,
                      .multiply = kernel->bind(&problem, &unused),
                      .weight = problem.weight,
                      .scaling = mox_panel_act_scaling(args->act, m->cols),
                      .tasks_per_slot = mox_ceil_div(m->count, TASK_PANELS),
                      .kernel_bytes = kernel->head.scratch_bytes(&problem),
                      .scratch_bytes = mox_expert_gemm_scratch(&kernel->head, &problem) };
    mox_parallel(executor, args->slots * job.tasks_per_slot, one_task, &job);
}

void mox_expert_gemm_run(const mox_expert_gemm_kernel *kernel, const mox_expert_gemm_args *args,
                         const moxie_executor *executor)
{
    const mox_panel_kernel *panel = mox_panel_kernel_of(kernel);
    if (panel != NULL)
        run_panels(panel, args, executor);
    else
        ((const mox_product_kernel *)kernel)->run(args, executor);
}
