/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_vendor.c - measures packing and unpacking of every vendor layout, and a plain copy of as many bytes in the same
 * run.
 *
 *     GB/s = bytes of the tensors / time;   the median of REPEATS rounds, and the median of their ratios to the copy
 *
 * A round copies, packs and unpacks the experts of one layer, all on the same threads. Sources and tensors are larger
 * than a last-level cache, so they come from memory. The shape is DeepSeek-V3's, rounded up to the layout's multiples.
 * The weights are dense rows of the first kind that the layout accepts.
 *
 *     bench_vendor [threads] [repeats] [words of a layout's name]
 */
#include "base/executor.h"
#include "base/sizes.h"
#include "bench_common.h"
#include "vendor/vendor.h"

enum { HIDDEN = 7168, INTERMEDIATE = 2048, MAX_EXPERTS = 16, TENSORS = MOX_VENDOR_TENSORS };
enum { COPY_CHUNK = 1 << 17 };
static const uint64_t min_bytes = UINT64_C(160) << 20; /* of all sources */

typedef struct bench {
    const mox_vendor_layout *layout;
    mox_vendor_plan plan;
    int experts;
    moxie_expert views[MAX_EXPERTS];
    uint8_t *sources[MAX_EXPERTS], *blocks[MAX_EXPERTS]; /* of one expert: its grids, its tensors */
    uint64_t source_bytes, tensor_bytes;
    void *tensors[MAX_EXPERTS][TENSORS];
    moxie_executor *executor;
    int now; /* expert that is copied */
} bench;

static clockid_t clock_id = CLOCK_MONOTONIC;

/* ---- sources -------------------------------------------------------------------------------------------------- */

/* Random bytes. Scales are positive powers of two near 1/64, which every layout can hold; a matrix with a single scale
 * always has the same one. */
static void fill(uint8_t *data, uint64_t bytes, moxie_dtype dtype, bool scale, uint32_t *random)
{
    const int32_t size = scale ? mox_dtype_bytes(dtype) : 4;
    for (uint64_t i = 0; i + (uint64_t)size <= bytes; i += (uint64_t)size) {
        *random = *random * 1664525u + 1013904223u;
        const bool larger = bytes > (uint64_t)size && (*random >> 24 & 1) != 0;
        const uint32_t code = scale ? moxie_encode(dtype, larger ? 0x1p-5f : 0x1p-6f) : *random;
        memcpy(data + i, &code, (size_t)size);
    }
}

/* The grid at offset *at of `base`; *at moves to its end. Writes nothing when `base` is NULL. */
static moxie_grid place(uint64_t *at, uint8_t *base, moxie_dtype dtype, int64_t rows, int64_t cols, bool scale)
{
    static uint32_t random = 1;
    const moxie_grid grid = mox_grid_dense(base != NULL ? base + *at : NULL, dtype, rows, cols);
    if (base != NULL)
        fill(base + *at, grid.bytes, dtype, scale, &random);
    *at += (grid.bytes + 63) / 64 * 64;
    return grid;
}

static moxie_matrix make_matrix(const moxie_quant *q, uint64_t *at, uint8_t *base, int64_t rows, int64_t cols)
{
    moxie_matrix m = { .codes = place(at, base, q->element, rows, cols, false) };
    if (q->scale != MOXIE_DTYPE_NONE)
        m.scale = place(at, base, q->scale, mox_scale_rows(q, rows), mox_scale_cols(q, cols), true);
    if (q->has_zero)
        m.zero = place(at, base, q->element, mox_scale_rows(q, rows), mox_scale_cols(q, cols), false);
    if (q->global != MOXIE_GLOBAL_NONE)
        m.global = place(at, base, MOXIE_F32, 1, 1, true);
    return m;
}

/* Returns the bytes of an expert's grids, and writes them at `base` unless that is NULL. */
static uint64_t make_expert(const mox_record_shape *shape, uint8_t *base, moxie_expert *out)
{
    uint64_t bytes = 0;
    out->gate = make_matrix(&shape->w13, &bytes, base, shape->intermediate, shape->hidden);
    out->up = make_matrix(&shape->w13, &bytes, base, shape->intermediate, shape->hidden);
    out->down = make_matrix(&shape->w2, &bytes, base, shape->hidden, shape->intermediate);
    out->a13_scale = out->a2_scale = 0x1p-6f;
    return bytes;
}

static int64_t enlarged(const mox_vendor_layout *layout, mox_vendor_extent extent, int64_t size)
{
    for (int i = 0; i < MOX_VENDOR_LIMITS && layout->limits[i].multiple; i++)
        if (layout->limits[i].extent == extent)
            size = mox_ceil_div(size, layout->limits[i].multiple) * layout->limits[i].multiple;
    return size;
}

static mox_record_shape shape_of(const mox_vendor_layout *layout)
{
    const mox_vendor_accepts *t = &layout->accepts;
    const moxie_quant quant = { .element = t->elements[0],
                                .scale = t->scales[0],
                                .group_rows = t->group_rows[0],
                                .group_cols = t->group_cols[0],
                                .has_zero = t->zeros && !t->no_zeros,
                                .global = t->global };
    return (mox_record_shape) { .hidden = enlarged(layout, MOX_VENDOR_HIDDEN, HIDDEN),
                                .intermediate = enlarged(layout, MOX_VENDOR_INTERMEDIATE, INTERMEDIATE),
                                .gated = true,
                                .w13 = quant,
                                .w2 = quant };
}

/* ---- rounds --------------------------------------------------------------------------------------------------- */

static uint64_t copied_bytes(const bench *b)
{
    return b->source_bytes < b->tensor_bytes ? b->source_bytes : b->tensor_bytes;
}

static void copy_chunk(void *context, int64_t task, int32_t worker)
{
    const bench *b = context;
    const uint64_t begin = (uint64_t)task * COPY_CHUNK, left = copied_bytes(b) - begin;
    (void)worker;
    memcpy(b->blocks[b->now] + begin, b->sources[b->now] + begin, left < COPY_CHUNK ? left : COPY_CHUNK);
}

static double copy_all(bench *b)
{
    const double start = bench_seconds(clock_id);
    for (b->now = 0; b->now < b->experts; b->now++)
        mox_parallel(b->executor, mox_ceil_div((int64_t)copied_bytes(b), COPY_CHUNK), copy_chunk, b);
    return bench_seconds(clock_id) - start;
}

static double pack_all(bench *b)
{
    moxie_error error;
    const double start = bench_seconds(clock_id);
    for (int e = 0; e < b->experts; e++)
        if (mox_vendor_pack(&b->plan, &b->views[e], b->tensors[e], b->executor, &error) != MOXIE_OK)
            bench_die(b->layout->name, error.text);
    return bench_seconds(clock_id) - start;
}

static double unpack_all(bench *b)
{
    moxie_error error;
    const double start = bench_seconds(clock_id);
    for (int e = 0; e < b->experts; e++)
        if (mox_vendor_unpack(&b->plan, b->tensors[e], &b->views[e], b->executor, &error) != MOXIE_OK)
            bench_die(b->layout->name, error.text);
    return bench_seconds(clock_id) - start;
}

static void measure(bench *b, int repeats)
{
    double *values[5]; /* copy, pack, unpack: seconds; pack and unpack: ratios */
    for (int v = 0; v < 5; v++)
        values[v] = calloc((size_t)repeats, sizeof **values);
    pack_all(b);
    for (int i = 0; i < repeats; i++) {
        values[0][i] = copy_all(b);
        values[1][i] = pack_all(b); /* before unpacking, which writes the same values to the sources */
        values[2][i] = unpack_all(b);
        values[3][i] = values[0][i] / values[1][i] * (double)b->tensor_bytes / (double)copied_bytes(b);
        values[4][i] = values[0][i] / values[2][i] * (double)b->tensor_bytes / (double)copied_bytes(b);
    }
    const double giga = 1e-9 * b->experts, tensors = giga * (double)b->tensor_bytes;
    printf("%-24s %5lld x %-5lld copy %6.2f  pack %6.2f GB/s  ratio %.2f   unpack %6.2f GB/s  ratio %.2f\n",
           b->layout->name, (long long)b->plan.shape.hidden, (long long)b->plan.shape.intermediate,
           giga * (double)copied_bytes(b) / bench_median(values[0], repeats),
           tensors / bench_median(values[1], repeats), bench_median(values[3], repeats),
           tensors / bench_median(values[2], repeats), bench_median(values[4], repeats));
    fflush(stdout);
    for (int v = 0; v < 5; v++)
        free(values[v]);
}

static void plan_layout(bench *b, const mox_record_shape *shape)
{
    moxie_error error;
    if (mox_vendor_plan_make(b->layout, shape, NULL, &b->views[0], false, &b->plan, &error) != MOXIE_OK)
        bench_die(b->layout->name, error.text);
    if (b->layout->surveys && mox_vendor_survey(&b->plan, &b->views[0], &error) != MOXIE_OK)
        bench_die(b->layout->name, error.text);
    for (int32_t i = 0; i < b->plan.count; i++)
        b->tensor_bytes += (b->plan.tensors[i].bytes + 63) / 64 * 64;
}

static void make_tensors(bench *b, int e)
{
    uint8_t *at = b->blocks[e] = bench_pages(b->tensor_bytes);
    for (int32_t i = 0; i < b->plan.count; i++) {
        b->tensors[e][i] = at;
        at += (b->plan.tensors[i].bytes + 63) / 64 * 64;
    }
}

static void run_layout(const mox_vendor_layout *layout, moxie_executor *executor, int repeats)
{
    static bench b;
    const mox_record_shape shape = shape_of(layout);
    b = (bench) { .layout = layout, .executor = executor };
    b.source_bytes = make_expert(&shape, NULL, &b.views[0]);
    b.experts = (int)mox_min_i64(MAX_EXPERTS, mox_ceil_div((int64_t)min_bytes, (int64_t)b.source_bytes));
    for (int e = 0; e < b.experts; e++) {
        b.sources[e] = bench_pages(b.source_bytes);
        make_expert(&shape, b.sources[e], &b.views[e]);
    }
    plan_layout(&b, &shape);
    for (int e = 0; e < b.experts; e++)
        make_tensors(&b, e);
    measure(&b, repeats);
    for (int e = 0; e < b.experts; e++) {
        mox_free_pages(b.sources[e]);
        mox_free_pages(b.blocks[e]);
    }
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : 1, repeats = argc > 2 ? atoi(argv[2]) : 5;
    moxie_executor *executor = NULL;
    moxie_error error = { .text = "needs at least one repeat" };
    if (repeats < 1 || mox_executor_create(threads, &executor, &error) != MOXIE_OK)
        bench_die("usage: bench_vendor [threads] [repeats] [name]", error.text);
    if (executor->workers == 1)
        clock_id = CLOCK_THREAD_CPUTIME_ID;
    printf("%d workers, median of %d; hidden x intermediate, bytes of tensors\n", (int)executor->workers, repeats);
    for (int32_t i = 0; mox_vendor_at(i) != NULL; i++)
        if (argc <= 3 || strstr(mox_vendor_at(i)->name, argv[3]) != NULL)
            run_layout(mox_vendor_at(i), executor, repeats);
    mox_executor_destroy(executor);
    return 0;
}
