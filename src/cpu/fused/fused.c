/* SPDX-License-Identifier: Apache-2.0
 *
 * fused.c - the two phases: which experts have work, how it is cut into tasks, who waits for whom (fused.h).
 *
 *     phase 1 | gather: runs of GATHER_TOKENS tokens | first: (expert, run of blocks) ... |
 *     phase 2 | second: (expert, run of blocks) ...  | combine: runs of COMBINE_TOKENS tokens |
 *
 * Runs of blocks are sized for TASKS_EACH tasks a worker, in the last quarter FINER, so that nobody waits long for the
 * last one; but so that an expert with many rows keeps a run's weights in the second-level cache while its rows go by.
 */
#include "cpu/fused/fused.h"

#include <sched.h>

#include "base/sizes.h"

enum { TASKS_EACH = 8, FINER = 4, LEAST_BLOCKS = 4, MOST_BLOCKS_REREAD = 12, GATHER_TOKENS = 8, COMBINE_TOKENS = 8 };

typedef struct phase {
    const mox_fused_args *args;
    bool second;
    int64_t n_items;
    int64_t head, products, tail; /* tasks before, of and behind the products */
    int64_t next, done;           /* atomic: the next task to take; finished tasks that the last part waits for */
} phase;

/* ---- products ------------------------------------------------------------------------------------ */

bool mox_fused_product_init(mox_fused_product *product, const mox_expert_gemm_kernel *row,
                            const mox_expert_gemm_problem *problem)
{
    mox_rejection unused;
    if (row->bind == NULL || (!mox_quant_is_none(problem->act) && mox_act_quant_needs_amax(problem->act)))
        return false;
    const int64_t cols = problem->projection == MOX_W13 ? problem->shape->hidden : problem->shape->intermediate;
    *product = (mox_fused_product) { .multiply = row->bind(problem, &unused),
                                     .kind = row->operand,
                                     .weight = *problem->weight,
                                     .act = *problem->act,
                                     .dtype = problem->dtype,
                                     .scaling = mox_panel_act_scaling(problem->act, cols),
                                     .cols = cols,
                                     .row_bytes = mox_act_order_row_bytes(row->operand, cols),
                                     .scratch_bytes = row->scratch_bytes(problem) };
    if (product->scaling == MOX_ACT_GROUPED) {
        product->group_cols = mox_act_group_cols(problem->act, cols);
        product->groups = mox_ceil_div(cols, product->group_cols);
    }
    return product->multiply != NULL;
}

/* ---- scratch ------------------------------------------------------------------------------------- */

static void *take(uint8_t *base, uint64_t *at, uint64_t bytes)
{
    void *here = base != NULL ? base + *at : NULL;
    *at = (*at + bytes + 63) & ~UINT64_C(63);
    return here;
}

/* `base` NULL only measures. */
static uint64_t lay_out(uint64_t longest, uint64_t kernel, uint8_t *base, mox_fused_scratch_view *out)
{
    uint64_t at = 0;
    out->c = take(base, &at, (uint64_t)MOX_PANEL_BLOCK * 2 * MOX_PANEL_ROWS * sizeof(float));
    out->tile = take(base, &at, (uint64_t)MOX_PANEL_BLOCK * MOX_PANEL_ROWS * sizeof(float));
    out->kernel = take(base, &at, kernel);
    out->row = take(base, &at, longest * sizeof(float));
    out->folded = take(base, &at, longest * sizeof(float));
    out->scales = take(base, &at, longest * sizeof(float));
    out->codes = take(base, &at, longest);
    return at;
}

uint64_t mox_fused_scratch(const mox_fused_product *const *products, int64_t count)
{
    mox_fused_scratch_view unused;
    uint64_t longest = 0, kernel = 0;
    for (int64_t i = 0; i < count; i++) {
        longest = (uint64_t)mox_max_i64((int64_t)longest, products[i]->cols);
        kernel = products[i]->scratch_bytes > kernel ? products[i]->scratch_bytes : kernel;
    }
    return lay_out(longest, kernel, NULL, &unused);
}

static mox_fused_scratch_view scratch_of(const mox_fused_args *args, int32_t worker)
{
    mox_fused_scratch_view view;
    uint64_t longest = 0, kernel = 0;
    for (int64_t i = 0; i < args->n_sides; i++) {
        const mox_fused_product *const both[2] = { args->sides[i].first, args->sides[i].second };
        for (int j = 0; j < 2; j++) {
            longest = (uint64_t)mox_max_i64((int64_t)longest, both[j]->cols);
            kernel = both[j]->scratch_bytes > kernel ? both[j]->scratch_bytes : kernel;
        }
    }
    lay_out(longest, kernel, (uint8_t *)args->scratch + (uint64_t)worker * args->scratch_bytes, &view);
    return view;
}

/* ---- tasks --------------------------------------------------------------------------------------- */

static int64_t blocks_of(const mox_fused_args *args, const mox_fused_item *item, bool second)
{
    const mox_record_shape *shape = args->sides[item->side].shape;
    const int64_t rows = second ? shape->hidden : shape->intermediate;
    const int64_t width = !second && shape->gated ? MOX_PANEL_ROWS : 2 * MOX_PANEL_ROWS;
    return mox_ceil_div(rows, width);
}

/* Most rows first; equal ones as they come. By insertion: the list is short, and a run allocates nothing. */
static void sort_items(mox_fused_item *items, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const mox_fused_item item = items[i];
        int64_t at = i;
        for (; at > 0 && items[at - 1].rows < item.rows; at--)
            items[at] = items[at - 1];
        items[at] = item;
    }
}

static int64_t list_items(const mox_fused_args *args)
{
    int64_t n = 0;
    for (int64_t i = 0; i < args->n_sides; i++) {
        const mox_fused_part *side = &args->sides[i];
        for (int64_t s = 0; s < side->slots; s++)
            if (side->offsets[s] < side->offsets[s + 1])
                args->items[n++] = (mox_fused_item) {
                    .side = i, .slot = s, .first = side->offsets[s], .rows = side->offsets[s + 1] - side->offsets[s]
                };
    }
    sort_items(args->items, n);
    return n;
}

/* Cuts the products of a phase into tasks. */
static void cut(phase *p, int32_t workers)
{
    int64_t blocks = 0, before = 0;
    for (int64_t i = 0; i < p->n_items; i++)
        blocks += blocks_of(p->args, &p->args->items[i], p->second);
    const int64_t run = blocks / ((int64_t)workers * TASKS_EACH);
    p->products = 0;
    for (int64_t i = 0; i < p->n_items; i++) {
        mox_fused_item *item = &p->args->items[i];
        const int64_t own = blocks_of(p->args, item, p->second);
        int64_t most = mox_min_i64(run, own) / (before >= blocks - blocks / 4 ? FINER : 1);
        if (item->rows > MOX_PANEL_BLOCK)
            most = mox_min_i64(most, MOST_BLOCKS_REREAD);
        const int64_t tasks = mox_ceil_div(own, mox_max_i64(most, LEAST_BLOCKS));
        item->task = p->products;
        item->run = mox_ceil_div(own, tasks);
        item->left = tasks;
        p->products += tasks;
        before += own;
    }
}

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

static void wait_for(const int64_t *counter, int64_t value)
{
    for (int64_t turn = 0; __atomic_load_n(counter, __ATOMIC_ACQUIRE) < value; turn++)
        pause_a_little(turn);
}

static void gather_tokens(const mox_fused_args *args, int64_t task, const mox_fused_scratch_view *sc)
{
    const int64_t first = task * GATHER_TOKENS, last = mox_min_i64(first + GATHER_TOKENS, args->tokens);
    for (int64_t t = first; t < last; t++)
        for (int64_t i = 0; i < args->n_sides; i++)
            mox_fused_gather(args, &args->sides[i], t, sc);
}

static void multiply(const phase *p, int64_t task, const mox_fused_scratch_view *sc)
{
    mox_fused_item *item = item_of(p, task);
    const mox_fused_part *side = &p->args->sides[item->side];
    const int64_t blocks = blocks_of(p->args, item, p->second);
    const int64_t first = (task - item->task) * item->run, last = mox_min_i64(first + item->run, blocks);
    if (p->second) {
        if (first < last)
            mox_fused_second(side, item, first, last, sc);
        return;
    }
    if (first < last)
        mox_fused_first(side, item, first, last, sc);
    if (__atomic_sub_fetch(&item->left, 1, __ATOMIC_ACQ_REL) == 0 && !mox_quant_is_none(&side->second->act))
        mox_fused_requantize(side, item, sc);
}

static void combine_tokens(const mox_fused_args *args, int64_t task, int32_t worker)
{
    const moxie_executor here = mox_executor_on_worker(&worker);
    const int64_t first = task * COMBINE_TOKENS;
    mox_combine_args part = *args->combine_args;
    part.tokens = mox_min_i64(COMBINE_TOKENS, args->tokens - first);
    part.position += first * part.top_k;
    if (part.weights != NULL)
        part.weights += first * part.top_k;
    if (part.shared != NULL)
        part.shared += first * part.hidden;
    if (part.shared_weight != NULL)
        part.shared_weight += first;
    part.out = (uint8_t *)part.out + first * part.hidden * mox_dtype_bytes(part.out_dtype);
    args->combine->run(&part, &here);
}

static void one_worker(void *context, int64_t unused, int32_t worker)
{
    phase *p = context;
    const mox_fused_scratch_view sc = scratch_of(p->args, worker);
    const int64_t last = p->head + p->products + p->tail;
    int64_t task;
    (void)unused;
    while ((task = __atomic_fetch_add(&p->next, 1, __ATOMIC_RELAXED)) < last) {
        if (task < p->head) {
            gather_tokens(p->args, task, &sc);
        } else if (task < p->head + p->products) {
            wait_for(&p->done, p->head);
            multiply(p, task - p->head, &sc);
        } else {
            wait_for(&p->done, p->head + p->products);
            combine_tokens(p->args, task - p->head - p->products, worker);
        }
        __atomic_add_fetch(&p->done, 1, __ATOMIC_RELEASE);
    }
}

void mox_fused_run(const mox_fused_args *args, const moxie_executor *executor)
{
    phase p = { .args = args, .n_items = list_items(args), .head = mox_ceil_div(args->tokens, GATHER_TOKENS) };
    cut(&p, executor->workers);
    mox_parallel(executor, executor->workers, one_worker, &p);
    p = (phase) { .args = args, .second = true, .n_items = p.n_items };
    cut(&p, executor->workers);
    if (args->combine != NULL)
        p.tail = mox_ceil_div(args->tokens, COMBINE_TOKENS);
    mox_parallel(executor, executor->workers, one_worker, &p);
}
