/* SPDX-License-Identifier: Apache-2.0
 *
 * fused.c - the two phases of fused experts (fused.h): which experts have work, how it is cut into tasks, and which
 * tasks wait for which.
 *
 *     phase 1 | gather: runs of GATHER_TOKENS tokens | first: (expert, run of blocks) ... |
 *     phase 2 | second: (expert, run of blocks) ...  | combine: runs of COMBINE_TOKENS tokens |
 *
 * The products are in one list for each node, which its workers start with (fused.h).
 *
 * A block is two panels (fused_product.c). A run of blocks is sized so that a worker gets about TASKS_PER_WORKER tasks.
 * In the last quarter of the work runs are TAIL_DIVISOR times shorter, so that workers finish together. Where an expert
 * has more rows than one kernel call multiplies, its weights are read again: its runs are short enough
 * (MAX_REREAD_BLOCKS) for the second-level cache.
 */
#include "cpu/fused/fused.h"

#include <sched.h>

#include "base/carver.h"
#include "base/executor.h"
#include "base/stream.h"
#include "base/topology.h"
#include "pack/order/column_order.h"

enum {
    TASKS_PER_WORKER = 8,
    TAIL_DIVISOR = 4,
    MIN_BLOCKS = 4,
    MAX_REREAD_BLOCKS = 12,
    GATHER_TOKENS = 8,
    COMBINE_TOKENS = 8,
    STREAM_BYTES = 1 << 20 /* for each worker: a part's rows that are more are stored past the caches */
};

/* Tasks [next, end) are to be started; next is atomic. */
typedef struct task_list {
    _Alignas(64) int64_t next;
    int64_t end;
} task_list;

typedef struct phase {
    const mox_fused_args *args;
    const moxie_executor *executor;
    bool second;
    int32_t nodes; /* with lists of their own */
    int64_t n_items;
    int64_t head, products, tail; /* numbers of tasks: gather, products, combine */
    int64_t done;                 /* atomic: how many tasks are finished */
    task_list gather, combine;
    task_list product[MOX_MAX_NODES]; /* by node */
} phase;

/* ---- products ------------------------------------------------------------------------------------ */

bool mox_fused_product_init(mox_fused_product *product, const mox_expert_gemm_kernel *kernel,
                            const mox_expert_gemm_problem *problem)
{
    const mox_panel_kernel *panel = mox_panel_kernel_of(kernel);
    const bool whole_batch = !mox_quant_is_none(problem->act) && mox_act_quant_needs_amax(problem->act);
    mox_rejection unused;
    if (panel == NULL || whole_batch)
        return false;
    const int64_t cols = mox_expert_gemm_cols(problem);
    *product = (mox_fused_product) { .multiply = panel->bind(problem, &unused),
                                     .order = panel->order,
                                     .weight = *problem->weight,
                                     .act = *problem->act,
                                     .dtype = problem->dtype,
                                     .scaling = mox_panel_act_scaling(problem->act, cols),
                                     .cols = cols,
                                     .row_bytes = mox_act_order_row_bytes(panel->order, cols),
                                     .scratch_bytes = kernel->scratch_bytes(problem) };
    if (product->scaling == MOX_ACT_GROUPED) {
        product->group_cols = mox_act_group_cols(problem->act, cols);
        product->groups = mox_ceil_div(cols, product->group_cols);
    }
    return product->multiply != NULL;
}

/* ---- scratch ------------------------------------------------------------------------------------- */

/* Of the products that a worker may multiply: the most columns, and the most bytes for a kernel. */
typedef struct scratch_sizes {
    uint64_t cols, kernel;
} scratch_sizes;

static void raise_sizes(scratch_sizes *sizes, const mox_fused_product *product)
{
    sizes->cols = (uint64_t)mox_max_i64((int64_t)sizes->cols, product->cols);
    sizes->kernel = product->scratch_bytes > sizes->kernel ? product->scratch_bytes : sizes->kernel;
}

static void lay_out(mox_carver *carver, scratch_sizes sizes, mox_fused_scratch_view *out)
{
    out->c = mox_carve(carver, MOX_PANEL_BLOCK * 2 * MOX_PANEL_ROWS, sizeof *out->c);
    out->tile = mox_carve(carver, MOX_PANEL_BLOCK * MOX_PANEL_ROWS, sizeof *out->tile);
    out->kernel = mox_carve(carver, sizes.kernel, 1);
    out->row = mox_carve(carver, sizes.cols, sizeof *out->row);
    out->scaled = mox_carve(carver, sizes.cols, sizeof *out->scaled);
    out->narrow = mox_carve(carver, sizes.cols, sizeof *out->row);
    out->ordered = mox_carve(carver, sizes.cols, sizeof *out->row);
    out->scales = mox_carve(carver, sizes.cols, sizeof *out->scales);
    out->codes = mox_carve(carver, sizes.cols, sizeof *out->codes);
}

uint64_t mox_fused_scratch(const mox_fused_product *const *products, int64_t count)
{
    mox_carver carver = mox_carver_of(NULL);
    mox_fused_scratch_view unused;
    scratch_sizes sizes = { 0 };
    for (int64_t i = 0; i < count; i++)
        raise_sizes(&sizes, products[i]);
    lay_out(&carver, sizes, &unused);
    return carver.used;
}

static mox_fused_scratch_view scratch_of(const mox_fused_args *args, int32_t worker)
{
    mox_carver carver = mox_carver_of((uint8_t *)args->scratch + (uint64_t)worker * args->scratch_bytes);
    mox_fused_scratch_view view;
    scratch_sizes sizes = { 0 };
    for (int64_t i = 0; i < args->n_parts; i++) {
        raise_sizes(&sizes, args->parts[i].first);
        raise_sizes(&sizes, args->parts[i].second);
    }
    lay_out(&carver, sizes, &view);
    view.worker = worker;
    return view;
}

/* ---- tasks --------------------------------------------------------------------------------------- */

static int64_t blocks_of(const mox_fused_args *args, const mox_fused_item *item, bool second)
{
    const mox_record_shape *shape = args->parts[item->part].shape;
    const int64_t rows = second ? mox_shape_rows2(shape) : mox_shape_rows13(shape);
    const int64_t width = !second && shape->gated ? MOX_PANEL_ROWS : 2 * MOX_PANEL_ROWS;
    return mox_ceil_div(rows, width);
}

static int32_t node_of(const mox_fused_args *args, const mox_fused_item *item)
{
    return args->nodes > 1 ? (int32_t)(item->slot % args->nodes) : 0;
}

static bool comes_before(const mox_fused_args *args, const mox_fused_item *a, const mox_fused_item *b)
{
    const int32_t of_a = node_of(args, a), of_b = node_of(args, b);
    return of_a != of_b ? of_a < of_b : a->rows > b->rows;
}

/* Sorts by node, then by rows, most first, and keeps the order of equals. By insertion: the list is short, and a run
 * may not allocate.
 */
static void sort_items(const mox_fused_args *args, mox_fused_item *items, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const mox_fused_item item = items[i];
        int64_t at = i;
        for (; at > 0 && comes_before(args, &item, &items[at - 1]); at--)
            items[at] = items[at - 1];
        items[at] = item;
    }
}

static int64_t list_items(const mox_fused_args *args)
{
    int64_t n = 0;
    for (int64_t i = 0; i < args->n_parts; i++) {
        const mox_fused_part *part = &args->parts[i];
        for (int64_t s = 0; s < part->slots; s++)
            if (part->offsets[s] < part->offsets[s + 1])
                args->items[n++] =
                    (mox_fused_item) { .part = i,
                                       .slot = s,
                                       .first = part->offsets[s],
                                       .rows = part->offsets[s + 1] - part->offsets[s],
                                       .place2 = mox_column_order_of(part->shape, part->records[s], true).place };
    }
    sort_items(args, args->items, n);
    return n;
}

/* Cuts items [from, to), of one node, into tasks of about `run` blocks: sets the first task and the run of each. */
static void cut_node(phase *p, int64_t from, int64_t to, int64_t run)
{
    int64_t blocks = 0, before = 0;
    for (int64_t i = from; i < to; i++)
        blocks += blocks_of(p->args, &p->args->items[i], p->second);
    for (int64_t i = from; i < to; i++) {
        mox_fused_item *item = &p->args->items[i];
        const int64_t own = blocks_of(p->args, item, p->second);
        int64_t max = mox_min_i64(run, own) / (before >= blocks - blocks / 4 ? TAIL_DIVISOR : 1);
        if (item->rows > MOX_PANEL_BLOCK)
            max = mox_min_i64(max, MAX_REREAD_BLOCKS);
        const int64_t tasks = mox_ceil_div(own, mox_max_i64(max, MIN_BLOCKS));
        item->task = p->products;
        item->run = tasks > 0 ? mox_ceil_div(own, tasks) : 0; /* a cut record may have no rows */
        item->left = tasks;
        p->products += tasks;
        before += own;
    }
}

/* Cuts a phase into tasks, and fills the lists. */
static void cut(phase *p)
{
    int64_t blocks = 0, from = 0;
    for (int64_t i = 0; i < p->n_items; i++)
        blocks += blocks_of(p->args, &p->args->items[i], p->second);
    const int64_t run = blocks / ((int64_t)p->executor->workers * TASKS_PER_WORKER);
    p->products = 0;
    for (int32_t node = 0; node < p->nodes; node++) {
        int64_t to = from;
        while (to < p->n_items && node_of(p->args, &p->args->items[to]) == node)
            to++;
        p->product[node].next = p->products;
        cut_node(p, from, to, run);
        p->product[node].end = p->products;
        from = to;
    }
    p->gather.end = p->head;
    p->combine.end = p->tail;
}

/* The item that a task of the products belongs to. */
static mox_fused_item *item_of(const phase *p, int64_t task)
{
    int64_t low = 0, high = p->n_items;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (p->args->items[middle].task <= task)
            low = middle;
        else
            high = middle;
    }
    return &p->args->items[low];
}

/* ---- running ------------------------------------------------------------------------------------- */

static void pause_a_little(int64_t turn)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    if (turn % 64 == 63)
        sched_yield();
}

static void wait_for(const int64_t *counter, int64_t value, mox_clock *clock)
{
    if (__atomic_load_n(counter, __ATOMIC_ACQUIRE) < value)
        mox_clock_enter(clock, MOX_PHASE_IDLE);
    for (int64_t turn = 0; __atomic_load_n(counter, __ATOMIC_ACQUIRE) < value; turn++)
        pause_a_little(turn);
}

/* Whether rows of `bytes` for each pair of the part are larger than the second-level caches of the workers. */
static bool streams(const phase *p, const mox_fused_part *part, uint64_t bytes)
{
    const int64_t pairs = part->offsets[part->slots] - part->offsets[0];
    return (uint64_t)pairs * bytes > (uint64_t)p->executor->workers * STREAM_BYTES;
}

static void gather_tokens(const phase *p, int64_t task, const mox_fused_scratch_view *sc)
{
    const mox_fused_args *args = p->args;
    const int64_t first = task * GATHER_TOKENS, last = mox_min_i64(first + GATHER_TOKENS, args->tokens);
    for (int64_t i = 0; i < args->n_parts; i++) {
        const mox_fused_part *part = &args->parts[i];
        const bool stream = streams(p, part, part->first->row_bytes);
        for (int64_t t = first; t < last; t++)
            mox_fused_gather(args, part, t, stream, sc);
        if (stream)
            mox_stream_end();
    }
}

/* All activations of the item are there. Those of a cut record are requantized, and shrunk, when the other ranks' are,
 * too. */
static void finish_item(const mox_fused_part *part, const mox_fused_item *item, const mox_fused_scratch_view *sc,
                        mox_clock *clock)
{
    if (!mox_quant_is_none(&part->second->act) && part->own_act == NULL) {
        mox_clock_enter(clock, MOX_PHASE_GATHER);
        mox_fused_requantize(part, item, sc);
    }
    if (part->lora != NULL && part->own_act == NULL)
        mox_lora_shrink_pairs(part->lora, part->lora2, item->slot, item->first, item->first + item->rows, sc->worker);
}

static void refill_pairs(const mox_fused_part *part, int64_t task, const mox_fused_scratch_view *sc)
{
    const int64_t first = task * GATHER_TOKENS, last = mox_min_i64(first + GATHER_TOKENS, part->pairs);
    for (int64_t i = first; i < last; i++)
        mox_fused_refill(part, i, sc);
}

static void multiply(const phase *p, int64_t task, const mox_fused_scratch_view *sc, mox_clock *clock)
{
    mox_fused_item *item = item_of(p, task);
    const mox_fused_part *part = &p->args->parts[item->part];
    const int64_t blocks = blocks_of(p->args, item, p->second);
    const int64_t first = (task - item->task) * item->run, last = mox_min_i64(first + item->run, blocks);
    mox_clock_enter(clock, p->second ? MOX_PHASE_W2 : MOX_PHASE_W13);
    if (p->second) {
        const bool stream = streams(p, part, (uint64_t)mox_shape_rows2(part->shape) * sizeof *part->y);
        if (first < last)
            mox_fused_second(part, item, first, last, stream, sc);
        if (stream)
            mox_stream_end();
        return;
    }
    if (first < last)
        mox_fused_first(part, item, first, last, sc);
    if (__atomic_sub_fetch(&item->left, 1, __ATOMIC_ACQ_REL) == 0)
        finish_item(part, item, sc, clock);
}

static void combine_tokens(const mox_fused_args *args, int64_t task, int32_t worker)
{
    const moxie_executor here = mox_executor_on_worker(&worker);
    const int64_t first = task * COMBINE_TOKENS;
    mox_combine_args part = *args->combine_args;
    part.tokens = mox_min_i64(COMBINE_TOKENS, args->tokens - first);
    part.position += first * part.top_k;
    if (part.identity != NULL) {
        part.ids += first * part.top_k;
        part.identity = (const uint8_t *)part.identity + first * part.hidden * mox_dtype_bytes(part.out_dtype);
        part.identity_weights += first * part.top_k;
    }
    if (part.weights != NULL)
        part.weights += first * part.top_k;
    if (part.shared != NULL)
        part.shared += first * part.hidden;
    if (part.shared_weight != NULL)
        part.shared_weight += first;
    part.out = (uint8_t *)part.out + first * part.hidden * mox_dtype_bytes(part.out_dtype);
    args->combine->run(&part, &here);
}

/* The next task of a list, or -1. */
static int64_t take(task_list *list)
{
    if (__atomic_load_n(&list->next, __ATOMIC_RELAXED) >= list->end)
        return -1;
    const int64_t task = __atomic_fetch_add(&list->next, 1, __ATOMIC_RELAXED);
    return task < list->end ? task : -1;
}

/* The next product, of the worker's own node while there is one. */
static int64_t take_product(phase *p, int32_t node)
{
    int64_t task = -1;
    for (int32_t i = 0; i < p->nodes && task < 0; i++)
        task = take(&p->product[(node + i) % p->nodes]);
    return task;
}

static void gather(phase *p, int64_t task, const mox_fused_scratch_view *sc, mox_clock *clock)
{
    mox_clock_enter(clock, MOX_PHASE_GATHER);
    if (p->second)
        refill_pairs(&p->args->parts[0], task, sc);
    else
        gather_tokens(p, task, sc);
}

/* All gathers are started before any product, and all products before any combine: so a worker waits only for tasks
 * that others run. */
static void one_worker(void *context, int64_t unused, int32_t worker)
{
    phase *p = context;
    const mox_fused_scratch_view sc = scratch_of(p->args, worker);
    const int32_t node = p->nodes > 1 ? mox_executor_node(p->executor, worker) % p->nodes : 0;
    mox_clock *const clock = p->args->clocks != NULL ? &p->args->clocks[worker] : NULL;
    int64_t task;
    (void)unused;
    while ((task = take(&p->gather)) >= 0) {
        gather(p, task, &sc, clock);
        __atomic_add_fetch(&p->done, 1, __ATOMIC_RELEASE);
    }
    while ((task = take_product(p, node)) >= 0) {
        wait_for(&p->done, p->head, clock);
        multiply(p, task, &sc, clock);
        __atomic_add_fetch(&p->done, 1, __ATOMIC_RELEASE);
    }
    while ((task = take(&p->combine)) >= 0) {
        wait_for(&p->done, p->head + p->products, clock);
        mox_clock_enter(clock, MOX_PHASE_COMBINE);
        combine_tokens(p->args, task, worker);
    }
    mox_clock_enter(clock, MOX_PHASE_IDLE);
}

static void run_phase(phase *p)
{
    p->nodes = p->args->nodes > 1 ? p->args->nodes : 1;
    cut(p);
    mox_parallel(p->executor, p->executor->workers, one_worker, p);
}

void mox_fused_run(const mox_fused_args *args, const moxie_executor *executor)
{
    const int64_t items = list_items(args);
    phase first = {
        .args = args, .executor = executor, .n_items = items, .head = mox_ceil_div(args->tokens, GATHER_TOKENS)
    };
    phase second = { .args = args, .executor = executor, .second = true, .n_items = items };
    for (int64_t i = 0; i < args->n_parts; i++) {
        const mox_fused_part *part = &args->parts[i];
        if (part->lora != NULL)
            mox_lora_shrink(part->lora, args->phases == MOX_FUSED_SECOND ? part->lora2 : part->lora13, executor);
    }
    if (args->phases == MOX_FUSED_SECOND)
        second.head = mox_ceil_div(args->parts[0].pairs, GATHER_TOKENS);
    if (args->combine != NULL)
        second.tail = mox_ceil_div(args->tokens, COMBINE_TOKENS);
    if (args->phases != MOX_FUSED_SECOND)
        run_phase(&first);
    if (args->phases != MOX_FUSED_FIRST)
        run_phase(&second);
}
