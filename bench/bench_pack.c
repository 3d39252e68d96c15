/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_pack.c - measures packing to layout panel16, and a plain copy of as many bytes in the same run.
 *
 *     GB/s = bytes of the records / time;   the median of REPEATS rounds, and the median of their ratios pack / copy
 *
 * A round handles all experts of one layer of gpt-oss's shape. It copies them, packs them, and packs them with checks
 * and seal (mox_record_pack). Sources and records together are larger than a last-level cache, so both come from
 * memory.
 *
 *     bench_pack [threads] [repeats] [words of a format's name]
 */
#include "base/executor.h"
#include "bench_common.h"
#include "pack/layout.h"

enum { HIDDEN = 2880, INTERMEDIATE = 2880, EXPERTS = 10 };

/* How codes lie in the checkpoint. */
typedef enum source_form { DENSE, INTERLEAVED, WORDS, GPTQ, AWQ, ROW_PAIRS, TRANSPOSED } source_form;

typedef struct bench_case {
    const char *name;
    moxie_quant weight;
    source_form form;
} bench_case;

#define MX(e)                                                                                                          \
    {                                                                                                                  \
        .element = e, .scale = MOXIE_F8_E8M0, .group_cols = 32                                                         \
    }
#define INT4(g, ...)                                                                                                   \
    {                                                                                                                  \
        .element = MOXIE_U4B8, .scale = MOXIE_BF16, .group_cols = g, __VA_ARGS__                                       \
    }
static const bench_case cases[] = {
    { "mxfp4 gpt-oss", MX(MOXIE_F4_E2M1), INTERLEAVED },
    { "mxfp4", MX(MOXIE_F4_E2M1), DENSE },
    { "nvfp4",
      { .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E4M3, .group_cols = 16, .global = MOXIE_GLOBAL_MULTIPLY },
      DENSE },
    { "int4 g32 words", INT4(32, .has_zero = 0), WORDS },
    { "int4 g32 zeros words", INT4(32, .has_zero = 1), WORDS },
    { "gptq g128 zeros", INT4(128, .has_zero = 1), GPTQ },
    { "awq g128 zeros", INT4(128, .has_zero = 1), AWQ },
    { "int4 row pairs g128", INT4(128, .has_zero = 0), ROW_PAIRS },
    { "mxfp6", MX(MOXIE_F6_E3M2), DENSE },
    { "mxfp8", MX(MOXIE_F8_E4M3), DENSE },
    { "fp8 block", { .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_rows = 128, .group_cols = 128 }, DENSE },
    { "fp8 transposed", { .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_rows = -1 }, TRANSPOSED },
    { "int8 channel", { .element = MOXIE_I8, .scale = MOXIE_F32 }, DENSE },
    { "bf16", { .element = MOXIE_BF16 }, DENSE },
    { "bf16 transposed", { .element = MOXIE_BF16 }, TRANSPOSED },
    { "f16", { .element = MOXIE_F16 }, DENSE },
};

typedef struct bench {
    const bench_case *which;
    const mox_layout *layout;
    mox_record_shape shape;
    moxie_expert experts[EXPERTS];
    uint8_t *sources[EXPERTS];
    uint8_t *records[EXPERTS];
    uint64_t bytes, source_bytes;
    int64_t parts;
    moxie_executor *executor;
} bench;

static clockid_t clock_id = CLOCK_MONOTONIC;

/* ---- sources -------------------------------------------------------------------------------------------------- */

/* *at is the grid's first byte; it moves to the byte behind the grid. */
static moxie_grid words(uint8_t **at, moxie_dtype dtype, int64_t rows, int64_t cols, moxie_packing packing,
                        int64_t row_stride, int64_t col_stride)
{
    const int64_t total = rows * cols / packing.per_word * packing.word_bytes;
    const moxie_grid grid = { *at, (uint64_t)total, rows, cols, row_stride, col_stride, dtype, packing };
    *at += (total + 63) / 64 * 64;
    return grid;
}

static moxie_grid place(uint8_t **at, moxie_dtype dtype, int64_t rows, int64_t cols, source_form form)
{
    const int8_t bytes = (int8_t)mox_dtype_bytes(dtype);
    moxie_grid grid;
    switch (form) {
    case GPTQ: return words(at, dtype, rows, cols, (moxie_packing) { 4, 8, 0, MOXIE_ORDER_LINEAR }, 4, rows * 4);
    case AWQ: return words(at, dtype, rows, cols, (moxie_packing) { 4, 8, 1, MOXIE_ORDER_AWQ }, 4, rows / 2);
    case ROW_PAIRS: return words(at, dtype, rows, cols, (moxie_packing) { 1, 2, 1, MOXIE_ORDER_LINEAR }, cols, 1);
    case TRANSPOSED:
        return words(at, dtype, rows, cols, (moxie_packing) { bytes, 1, 0, MOXIE_ORDER_LINEAR }, bytes, rows * bytes);
    default:
        grid = mox_grid_dense(*at, dtype, rows, cols);
        *at += (grid.bytes + 63) / 64 * 64;
        return grid;
    }
}

static moxie_matrix source_matrix(const bench *b, uint8_t **at, int64_t rows, int64_t cols)
{
    const moxie_quant *q = &b->shape.w13;
    const source_form form = b->which->form;
    const bool columns = form == GPTQ || form == AWQ;
    moxie_matrix m = { .codes = place(at, q->element, rows, cols, form) };
    if (q->scale == MOXIE_DTYPE_NONE)
        return m;
    const int64_t scale_rows = mox_scale_rows(q, rows), scale_cols = mox_scale_cols(q, cols);
    m.scale = place(at, q->scale, scale_rows, scale_cols, columns ? TRANSPOSED : DENSE);
    if (q->global != MOXIE_GLOBAL_NONE)
        m.global = place(at, MOXIE_F32, 1, 1, DENSE);
    if (q->has_zero) {
        const moxie_packing along = { 4, 8, 1, form == AWQ ? MOXIE_ORDER_AWQ : MOXIE_ORDER_LINEAR };
        m.zero = words(at, q->element, rows, scale_cols, along, columns ? 4 : scale_cols * 4, columns ? rows / 2 : 4);
    }
    return m;
}

/* Every second row of a grid, from row `first`. */
static moxie_grid every_second(moxie_grid grid, int64_t first)
{
    grid.data = (const uint8_t *)grid.data + first * grid.row_stride;
    grid.bytes -= (uint64_t)(first * grid.row_stride);
    grid.rows /= 2;
    grid.row_stride *= 2;
    return grid;
}

static void make_expert(bench *b, int e, uint32_t *random)
{
    uint8_t *at = b->sources[e] = bench_pages(b->source_bytes);
    moxie_expert *expert = &b->experts[e];
    for (uint64_t i = 0; i + 4 <= b->source_bytes; i += 4) {
        *random = *random * 1664525u + 1013904223u;
        memcpy(at + i, random, 4);
    }
    if (b->which->form == INTERLEAVED) {
        const moxie_matrix both = source_matrix(b, &at, 2 * INTERMEDIATE, HIDDEN);
        expert->gate = (moxie_matrix) { .codes = every_second(both.codes, 0), .scale = every_second(both.scale, 0) };
        expert->up = (moxie_matrix) { .codes = every_second(both.codes, 1), .scale = every_second(both.scale, 1) };
    } else {
        expert->gate = source_matrix(b, &at, INTERMEDIATE, HIDDEN);
        expert->up = source_matrix(b, &at, INTERMEDIATE, HIDDEN);
    }
    expert->down = source_matrix(b, &at, HIDDEN, INTERMEDIATE);
    if ((uint64_t)(at - b->sources[e]) > b->source_bytes)
        bench_die(b->which->name, "the sources do not fit");
}

/* ---- rounds --------------------------------------------------------------------------------------------------- */

static uint64_t begin_of(const bench *b, int64_t part)
{
    return b->layout->part_at(&b->shape, part);
}

static void copy_part(void *context, int64_t task, int32_t worker)
{
    const bench *b = context;
    const int64_t e = task / b->parts, part = task % b->parts;
    const uint64_t begin = begin_of(b, part), end = begin_of(b, part + 1);
    (void)worker;
    memcpy(b->records[e] + begin, b->sources[e] + begin, end - begin);
}

static void pack_part(void *context, int64_t task, int32_t worker)
{
    const bench *b = context;
    const int64_t e = task / b->parts, part = task % b->parts;
    (void)worker;
    if (b->layout->pack_part(&b->shape, &b->experts[e], part, b->records[e], NULL) != MOXIE_OK)
        bench_die(b->which->name, "a part was not packed");
}

static void seal_part(void *context, int64_t task, int32_t worker)
{
    const bench *b = context;
    const int64_t e = task / b->parts, part = task % b->parts;
    moxie_error error;
    uint64_t sum;
    (void)worker;
    if ((part == 0 && mox_record_check(b->layout, &b->shape, e, &b->experts[e], &error) != MOXIE_OK) ||
        mox_record_pack_part(b->layout, &b->shape, &b->experts[e], part, b->records[e], &sum, &error) != MOXIE_OK)
        bench_die(b->which->name, error.text);
}

static double timed(const bench *b, moxie_task_fn fn)
{
    const double start = bench_seconds(clock_id);
    mox_parallel(b->executor, EXPERTS * b->parts, fn, (void *)(uintptr_t)b);
    return bench_seconds(clock_id) - start;
}

static void measure(const bench *b, int repeats)
{
    static const moxie_task_fn fns[3] = { copy_part, pack_part, seal_part };
    double *time[3], *ratio[2];
    for (int f = 0; f < 3; f++)
        time[f] = calloc((size_t)repeats, sizeof *time[f]);
    for (int f = 0; f < 2; f++)
        ratio[f] = calloc((size_t)repeats, sizeof *ratio[f]);
    for (int f = 0; f < 3; f++)
        timed(b, fns[f]); /* touches all pages */
    for (int i = 0; i < repeats; i++) {
        for (int f = 0; f < 3; f++)
            time[f][i] = timed(b, fns[f]);
        ratio[0][i] = time[0][i] / time[1][i];
        ratio[1][i] = time[0][i] / time[2][i];
    }
    const double giga = 1e-9 * (double)b->bytes * EXPERTS;
    printf("%-22s copy %6.2f  pack %6.2f GB/s  ratio %.2f   sealed %6.2f GB/s  ratio %.2f\n", b->which->name,
           giga / bench_median(time[0], repeats), giga / bench_median(time[1], repeats),
           bench_median(ratio[0], repeats), giga / bench_median(time[2], repeats), bench_median(ratio[1], repeats));
    fflush(stdout);
    for (int f = 0; f < 3; f++)
        free(time[f]);
    for (int f = 0; f < 2; f++)
        free(ratio[f]);
}

static void run_case(const bench_case *which, moxie_executor *executor, int repeats)
{
    static bench b;
    uint32_t random = 1;
    b = (bench) { .which = which, .layout = mox_layout_by_name("panel16"), .executor = executor };
    b.shape = (mox_record_shape) {
        .hidden = HIDDEN, .intermediate = INTERMEDIATE, .gated = true, .w13 = which->weight, .w2 = which->weight
    };
    if (!b.layout->record_bytes(&b.shape, &b.bytes))
        bench_die(which->name, "too large");
    b.parts = mox_record_parts(b.layout, &b.shape);
    b.source_bytes = b.bytes + (1 << 16);
    for (int e = 0; e < EXPERTS; e++) {
        make_expert(&b, e, &random);
        b.records[e] = bench_pages(b.bytes);
    }
    measure(&b, repeats);
    for (int e = 0; e < EXPERTS; e++) {
        mox_free_pages(b.sources[e]);
        mox_free_pages(b.records[e]);
    }
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : 1, repeats = argc > 2 ? atoi(argv[2]) : 9;
    moxie_executor *executor = NULL;
    moxie_error error = { .text = "needs at least one repeat" };
    if (repeats < 1 || mox_executor_create(threads, &executor, &error) != MOXIE_OK)
        bench_die("usage: bench_pack [threads] [repeats] [name]", error.text);
    if (executor->workers == 1)
        clock_id = CLOCK_THREAD_CPUTIME_ID;
    printf("%d workers, %d experts of %d x %d twice and %d x %d, median of %d\n", (int)executor->workers, EXPERTS,
           INTERMEDIATE, HIDDEN, HIDDEN, INTERMEDIATE, repeats);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (argc <= 3 || strstr(cases[i].name, argv[3]) != NULL)
            run_case(&cases[i], executor, repeats);
    mox_executor_destroy(executor);
    return 0;
}
