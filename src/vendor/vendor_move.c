/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_move.c - one expert to the tensors of a vendor layout, and back: runs the steps that vendor.h draws.
 *
 *     for each part, for each block of its rows              a task
 *         row r of the tensor   ->  row source(r) of [gate | up], or a row of zeros where the plan pads
 *         converted or widened  ->  through staging rows of the worker; scales of halved groups are repeated there
 *         order->put or ->get
 *
 * Rows that need no conversion move from the checkpoint to the tensor directly. Undo runs twice: PATCH parts change
 * elements that UNPACK parts wrote.
 */
#include <stdatomic.h>

#include "base/memory.h"
#include "base/sizes.h"
#include "pack/grid_move.h"
#include "vendor/vendor_internal.h"
#include "vendor/vendor_parts.h"

enum { ROWS_A_TASK = 32 };

/* One part of one expert, while it is moved. */
typedef struct part_job {
    const mox_vendor_tensor *tensor;
    mox_vendor_source half[2];   /* gate and up, or the only matrix */
    mox_vendor_source zero[2];   /* their zero points, when the code depends on them */
    int64_t half_rows;           /* rows of one half, padding included */
    int64_t used_rows, repeat;   /* used_rows: of half_rows, without padding. repeat: tensor rows per row of the grid */
    bool pairs;                  /* rows of gate and up alternate, as in the checkpoint */
    int32_t halves, times;       /* times: columns of the tensor per column of the grid */
    const mox_vendor_code *code; /* the conversion, or NULL */
    mox_vendor_context context;
    const int32_t *columns; /* order of columns of codes in act order, or NULL */
    int64_t source_bytes;   /* bytes of a row in the checkpoint */
    uint8_t padding;        /* byte that fills what the checkpoint lacks */
    uint8_t *data;          /* the tensor */
    int64_t block, first;   /* rows of a task; number of the first task */
} part_job;

typedef enum move_phase { PACK, UNPACK, PATCH } move_phase;

typedef struct job {
    const mox_vendor_plan *plan;
    part_job parts[MOX_VENDOR_PARTS];
    int32_t count;
    move_phase phase;
    mox_vendor_facts own;      /* of this expert */
    const int32_t *columns[2]; /* of W13 and W2, when they are in act order */
    /* Memory of a worker: max_rows staging rows, one that receives padding on the way back, a scratch row before
     * columns are gathered or scales repeated, and a byte per column. */
    uint8_t *staging;
    int64_t max_rows; /* of a block */
    uint64_t staging_bytes, row_bytes;
    uint8_t *zeros; /* one row */
    _Atomic(const char *)
        rejection; /* why some elements cannot be converted, or on the way back why they are not what was packed */
} job;

/* ---- one block of rows ---------------------------------------------------------------------------- */

/* Where row `row` of the tensor lies in the grids of the two halves; NULL: padding. */
static uint8_t *source_row(const part_job *p, const mox_vendor_source half[2], int64_t row)
{
    const mox_vendor_part *part = p->tensor->part;
    const int64_t rows = p->half_rows * p->halves;
    if (row >= rows)
        return NULL;
    const mox_vendor_rows *order = p->pairs ? &mox_rows_gated : part->rows;
    const int64_t from = order == NULL                             ? row
                         : p->halves == 1 && order->single != NULL ? order->single(row, rows)
                                                                   : order->source(row, rows);
    const mox_vendor_source *s = &half[from / p->half_rows];
    const int64_t r = from % p->half_rows;
    return r < p->used_rows ? s->data + r / p->repeat * s->stride : NULL;
}

static mox_vendor_context context_of(const part_job *p, int64_t row)
{
    mox_vendor_context context = p->context;
    if (p->zero[0].data != NULL)
        context.zeros = source_row(p, p->zero, row);
    return context;
}

static bool is_staged(const part_job *p)
{
    return p->code != NULL || p->columns != NULL || p->times > 1 || p->source_bytes < p->tensor->matrix.row_bytes;
}

/* The worker's scratch row, behind its staging rows. */
static uint8_t *scratch_row(const job *w, uint8_t *staging)
{
    return staging + (uint64_t)(w->max_rows + 1) * w->row_bytes;
}

/* Of a row's elements, each repeated: may be more than the tensor has of them. */
static int64_t bytes_of_copies(const part_job *p)
{
    return mox_ceil_div(p->half[0].grid->cols * p->times * p->tensor->matrix.bits, 8);
}

/* Adds the copies of the row's last element that the tensor leaves out. Elements of 4, 8 or 16 bits. */
static void complete_copies(const part_job *p, uint8_t *staged)
{
    const mox_vendor_matrix *m = &p->tensor->matrix;
    const int64_t cols = p->half[0].grid->cols * p->times, bytes = m->bits / 8;
    for (int64_t c = m->cols; c < cols; c++)
        if (m->bits == 4) {
            const int last = staged[(c - 1) / 2] >> (c - 1) % 2 * 4 & 15;
            staged[c / 2] = (uint8_t)(c % 2 ? (staged[c / 2] & 15) | last << 4 : last);
        } else {
            memcpy(staged + c * bytes, staged + (c - 1) * bytes, (size_t)bytes);
        }
}

/* Converts a row of the checkpoint, row `at` of the tensor, to a staging row of the tensor's width; and back. */
static void to_target(job *w, const part_job *p, int64_t at, const uint8_t *row, uint8_t *scratch, uint8_t *staged)
{
    const mox_vendor_context context = context_of(p, at);
    const mox_vendor_matrix *m = &p->tensor->matrix;
    const int64_t cols = p->half[0].grid->cols, used = mox_min_i64(bytes_of_copies(p), m->row_bytes);
    uint8_t *coded = p->times > 1 ? scratch : staged;
    if (p->columns != NULL) {
        mox_columns_gather(p->columns, cols, mox_dtype_bits(p->half[0].grid->dtype), row, scratch + w->row_bytes,
                           scratch);
        row = scratch;
    }
    const char *rejection = p->code != NULL && p->code->reject != NULL ? p->code->reject(&context, row, cols) : NULL;
    if (rejection != NULL) { /* forward must not see such elements */
        atomic_store(&w->rejection, rejection);
        memset(coded, 0, (size_t)mox_ceil_div(cols * m->bits, 8));
    } else if (p->code != NULL)
        p->code->forward(&context, row, cols, coded);
    else
        memcpy(coded, row, (size_t)p->source_bytes);
    if (p->times > 1)
        mox_groups_repeat(cols, m->bits, p->times, coded, staged);
    memset(staged + used, p->padding, (size_t)(m->row_bytes - used));
}

static void from_target(job *w, const part_job *p, int64_t at, uint8_t *staged, uint8_t *scratch, uint8_t *row)
{
    const mox_vendor_context context = context_of(p, at);
    const int64_t cols = p->half[0].grid->cols;
    uint8_t *to = p->columns != NULL ? scratch : row;
    if (p->times > 1) {
        complete_copies(p, staged);
        if (!mox_groups_merge(cols, p->tensor->matrix.bits, p->times, staged, scratch))
            atomic_store(&w->rejection, "the copies of a group's scale or zero point differ, so the tensors were "
                                        "changed after they were packed");
        staged = scratch;
    }
    if (p->code != NULL)
        p->code->backward(&context, staged, cols, to);
    else
        memcpy(to, staged, (size_t)p->source_bytes);
    if (p->columns != NULL)
        mox_columns_scatter(p->columns, cols, mox_dtype_bits(p->half[0].grid->dtype), scratch, scratch + w->row_bytes,
                            row);
}

static void pack_block(job *w, const part_job *p, int64_t row, int64_t count, uint8_t *staging)
{
    const uint8_t *rows[MOX_VENDOR_BLOCK] = { NULL };
    const bool staged = is_staged(p);
    for (int64_t r = 0; r < count; r++) {
        const uint8_t *from = source_row(p, p->half, row + r);
        uint8_t *here = staging + r * (int64_t)w->row_bytes;
        if (from != NULL && staged)
            to_target(w, p, row + r, from, scratch_row(w, staging), here);
        else if (from == NULL && p->padding != 0)
            memset(here, p->padding, (size_t)p->tensor->matrix.row_bytes);
        rows[r] = from == NULL && p->padding == 0 ? w->zeros : from == NULL || staged ? here : from;
    }
    p->tensor->part->order->put(&p->tensor->matrix, row, count, rows, p->data);
}

static void unpack_block(job *w, const part_job *p, int64_t row, int64_t count, uint8_t *staging)
{
    uint8_t *rows[MOX_VENDOR_BLOCK] = { NULL }, *source[MOX_VENDOR_BLOCK];
    uint8_t *nowhere = staging + w->max_rows * (int64_t)w->row_bytes;
    const bool staged = is_staged(p);
    for (int64_t r = 0; r < count; r++) {
        source[r] = source_row(p, p->half, row + r);
        rows[r] = source[r] == NULL ? nowhere : staged ? staging + r * (int64_t)w->row_bytes : source[r];
    }
    p->tensor->part->order->get(&p->tensor->matrix, row, count, rows, p->data);
    for (int64_t r = 0; staged && r < count; r++)
        if (source[r] != NULL)
            from_target(w, p, row + r, rows[r], scratch_row(w, staging), source[r]);
}

static void run_block(void *context, int64_t task, int32_t worker)
{
    job *w = context;
    const part_job *p = w->parts + w->count - 1;
    while (p->first > task)
        p--;
    const int64_t row = (task - p->first) * p->block, rows = p->tensor->matrix.rows;
    (w->phase == PACK ? pack_block : unpack_block)(w, p, row, mox_min_i64(p->block, rows - row),
                                                   w->staging + (uint64_t)worker * w->staging_bytes);
}

/* ---- one expert ----------------------------------------------------------------------------------- */

static const moxie_grid *grid_of(const moxie_matrix *matrix, int of)
{
    switch (of) {
    case MOX_VENDOR_SCALES: return &matrix->scale;
    case MOX_VENDOR_ZEROS: return &matrix->zero;
    case MOX_VENDOR_BIAS: return &matrix->bias;
    default: return &matrix->codes;
    }
}

/* True when this phase reads elements from the grids, not only their memory. */
static bool is_read(const mox_vendor_part *part, move_phase phase)
{
    return phase == PACK || (phase == PATCH && (part->how & MOX_VENDOR_PATCH));
}

static moxie_status open_part(const job *w, const mox_vendor_tensor *tensor, const moxie_expert *expert, part_job *p,
                              const moxie_executor *executor, moxie_error *error)
{
    const mox_vendor_part *part = tensor->part;
    const bool gated = part->projection == MOX_VENDOR_W13 && w->plan->shape.gated;
    const moxie_matrix *only = part->projection == MOX_VENDOR_W2 ? &expert->down : &expert->up;
    const moxie_matrix *halves[2] = { gated ? &expert->gate : only, only };
    *p = (part_job) { .tensor = tensor, .halves = gated ? 2 : 1 };
    const moxie_grid *first = grid_of(halves[0], part->of);
    p->half_rows = tensor->half_rows;
    p->used_rows = first->rows;
    p->repeat = 1;
    p->times = mox_vendor_times(w->plan, part);
    p->pairs = gated && w->plan->pairs && (part->how & MOX_VENDOR_AS_STORED);
    if (part->how & MOX_VENDOR_SPREAD) {
        p->used_rows = halves[0]->codes.rows;
        p->repeat = mox_group_rows(part->projection ? &w->plan->shape.w2 : &w->plan->shape.w13, p->used_rows);
    }
    p->code = mox_vendor_code_for(part->code, first->dtype);
    p->context = (mox_vendor_context) { .code = p->code,
                                        .facts = &w->plan->facts,
                                        .own = &w->own,
                                        .projection = part->projection,
                                        .zero_add = halves[0]->zero_add };
    p->source_bytes = mox_ceil_div(first->cols * mox_dtype_bits(first->dtype), 8);
    p->padding = p->code != NULL ? p->code->padding : 0;
    p->columns = part->of == MOX_VENDOR_CODES ? w->columns[part->projection] : NULL;
    p->block = mox_ceil_div(ROWS_A_TASK, part->order->step) * part->order->step;
    for (int i = 0; i < p->halves; i++)
        MOX_TRY(mox_vendor_source_open(grid_of(halves[i], part->of), is_read(part, w->phase), executor, &p->half[i],
                                       error));
    if (!(part->how & MOX_VENDOR_BY_ZEROS))
        return MOXIE_OK;
    p->context.group = mox_group_cols(part->projection ? &w->plan->shape.w2 : &w->plan->shape.w13, first->cols);
    for (int i = 0; i < p->halves; i++)
        MOX_TRY(mox_vendor_source_open(&halves[i]->zero, true, executor, &p->zero[i], error));
    return MOXIE_OK;
}

static moxie_status make_staging(job *w, const moxie_executor *executor, moxie_error *error)
{
    for (int32_t i = 0; i < w->count; i++) {
        const part_job *p = &w->parts[i];
        const uint64_t bytes = (uint64_t)mox_max_i64(p->tensor->matrix.row_bytes, bytes_of_copies(p));
        w->row_bytes = bytes > w->row_bytes ? bytes : w->row_bytes;
        w->max_rows = mox_max_i64(w->max_rows, w->parts[i].block);
    }
    w->row_bytes = (w->row_bytes + 63) & ~UINT64_C(63);
    w->staging_bytes = (uint64_t)(w->max_rows + 1) * w->row_bytes;
    if (w->columns[0] != NULL || w->plan->repeat > 1) {
        const int64_t max_cols = mox_max_i64(w->plan->hidden, w->plan->intermediate);
        w->staging_bytes += w->row_bytes + ((uint64_t)max_cols + 63) / 64 * 64;
    }
    const uint64_t workers = (uint64_t)executor->workers;
    w->staging = mox_alloc_aligned(workers * w->staging_bytes, 64);
    w->zeros = mox_alloc_aligned(w->row_bytes, 64);
    MOX_FAIL_IF(w->staging == NULL || w->zeros == NULL, MOXIE_ERR_MEMORY, error,
                "no memory: %llu bytes of staging rows",
                (unsigned long long)(workers * w->staging_bytes + w->row_bytes));
    return MOXIE_OK;
}

/* ---- one phase ------------------------------------------------------------------------------------ */

static bool is_in_pass(const mox_vendor_part *part, move_phase phase)
{
    if (part == NULL || phase == PACK)
        return part != NULL;
    const bool last = part->how & (MOX_VENDOR_PATCH | MOX_VENDOR_BY_ZEROS);
    return !(part->how & MOX_VENDOR_DERIVED) && (last ? PATCH : UNPACK) == phase;
}

/* Runs one phase over all parts. `columns`: orders of columns, or NULL. */
static moxie_status run(const mox_vendor_plan *plan, const moxie_expert *expert, void *const *tensors, move_phase phase,
                        const mox_columns *columns, const moxie_executor *executor, moxie_error *error)
{
    job w = { .plan = plan, .phase = phase, .columns = { columns->order[0], columns->order[1] } };
    int64_t tasks = 0;
    moxie_status status = MOXIE_OK;
    if (phase == PACK && plan->layout->measures)
        mox_vendor_measure(expert, &w.own);
    for (int32_t i = 0; status == MOXIE_OK && i < plan->count; i++) {
        if (!is_in_pass(plan->tensors[i].part, phase))
            continue;
        part_job *p = &w.parts[w.count++];
        status = open_part(&w, &plan->tensors[i], expert, p, executor, error);
        p->data = tensors[i];
        p->first = tasks;
        tasks += mox_ceil_div(p->tensor->matrix.rows, p->block);
    }
    if (status == MOXIE_OK)
        status = make_staging(&w, executor, error);
    if (status == MOXIE_OK)
        mox_parallel(executor, tasks, run_block, &w);
    for (int32_t i = 0; i < w.count; i++)
        for (int h = 0; h < w.parts[i].halves; h++) {
            if (phase != PACK && status == MOXIE_OK)
                mox_vendor_source_flush(&w.parts[i].half[h], executor);
            mox_vendor_source_close(&w.parts[i].half[h]);
            mox_vendor_source_close(&w.parts[i].zero[h]);
        }
    mox_free(w.staging);
    mox_free(w.zeros);
    MOX_FAIL_IF(status == MOXIE_OK && w.rejection != NULL, phase == PACK ? MOXIE_ERR_UNSUPPORTED : MOXIE_ERR_FORMAT,
                error, "layout %s: %s", plan->layout->name, w.rejection);
    return status;
}

/* ---- an expert -------------------------------------------------------------------------------------- */

static void write_tensor(const mox_vendor_plan *plan, const mox_vendor_tensor *t, const moxie_expert *expert,
                         const mox_columns *columns, void *to)
{
    float value;
    switch (t->kind) {
    case MOX_VENDOR_PART: break;
    case MOX_VENDOR_CONSTANT:
        value = t->constant->value(plan, expert);
        memcpy(to, &value, sizeof value);
        break;
    case MOX_VENDOR_GROUPS: memcpy(to, columns->groups[t->projection], (size_t)t->bytes); break;
    case MOX_VENDOR_ORDER: memcpy(to, columns->order[t->projection], (size_t)t->bytes); break;
    case MOX_VENDOR_SCALAR_VALUES: mox_vendor_scalars_write(&plan->shape, expert, to); break;
    }
}

moxie_status mox_vendor_pack(const mox_vendor_plan *plan, const moxie_expert *expert, void *const *tensors,
                             const moxie_executor *executor, moxie_error *error)
{
    mox_columns columns;
    MOX_TRY(mox_vendor_check(plan, expert, error));
    MOX_FAIL_IF(plan->layout->accepts.static_acts && (plan->facts.a13_max <= 0 || plan->facts.a2_max <= 0),
                MOXIE_ERR_UNSUPPORTED, error,
                "layout %s: its constants are static activation scales, and no expert has one", plan->layout->name);
    MOX_TRY(mox_columns_of_expert(plan, expert, &columns, error));
    const moxie_status status = run(plan, expert, tensors, PACK, &columns, executor, error);
    for (int32_t i = 0; status == MOXIE_OK && i < plan->count; i++)
        write_tensor(plan, &plan->tensors[i], expert, &columns, tensors[i]);
    mox_columns_free(&columns);
    return status;
}

moxie_status mox_vendor_unpack(const mox_vendor_plan *plan, void *const *tensors, moxie_expert *out,
                               const moxie_executor *executor, moxie_error *error)
{
    /* The order of columns comes from the tensors, whatever the memory for it holds now. */
    moxie_expert views = *out;
    mox_columns columns;
    views.gate.group_index = views.up.group_index = views.down.group_index = NULL;
    MOX_TRY(mox_vendor_check_planned(plan, &views, error));
    MOX_TRY(mox_columns_of_tensors(plan, tensors, &columns, error));
    moxie_status status = run(plan, out, tensors, UNPACK, &columns, executor, error);
    if (status == MOXIE_OK)
        status = run(plan, out, tensors, PATCH, &columns, executor, error);
    if (status == MOXIE_OK) {
        mox_columns_restore(plan, &columns, out);
        out->a13_scale = out->a2_scale = 0;
    }
    for (int32_t i = 0; status == MOXIE_OK && i < plan->count; i++)
        if (plan->tensors[i].kind == MOX_VENDOR_SCALAR_VALUES)
            mox_vendor_scalars_restore(&plan->shape, tensors[i], out);
    mox_columns_free(&columns);
    return status;
}
