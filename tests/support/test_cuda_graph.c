/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_graph.c - graphs, timers and probes without a GPU (test_cuda_graph.h).
 */
#include "test_cuda_graph.h"

#include "cuda/limits/cuda_limits.h"
#include "test_support.h"

enum { MAX_LAUNCHES = 1024, ARGS_BYTES = 2048 };

typedef struct launch {
    test_cuda_work work;
    _Alignas(16) char args[ARGS_BYTES];
} launch;

typedef struct graph {
    launch launches[MAX_LAUNCHES];
    int count;
} graph;

static moxie_status (*record)(const char *name, moxie_error *error);
static _Thread_local graph *capturing; /* ranks are threads, each with a stream of its own */
static double now;                     /* milliseconds */
static int alive;                      /* atomic */

void test_cuda_pass(double milliseconds)
{
    now += milliseconds;
}

bool test_cuda_may_wait(void)
{
    return capturing == NULL;
}

int test_cuda_graphs_alive(void)
{
    return alive;
}

/* ---- graphs -------------------------------------------------------------------------------------------- */

moxie_status test_cuda_enqueue(test_cuda_work work, const void *args, size_t bytes, moxie_error *error)
{
    if (capturing == NULL)
        return work(args, error);
    assert_true(capturing->count < MAX_LAUNCHES && bytes <= ARGS_BYTES);
    launch *l = &capturing->launches[capturing->count++];
    l->work = work;
    memcpy(l->args, args, bytes);
    return record("keep", error);
}

static moxie_status capture_begin(mox_cuda_stream stream, moxie_error *error)
{
    (void)stream;
    MOX_TRY(record("capture", error));
    assert_null(capturing);
    capturing = calloc(1, sizeof *capturing);
    assert_non_null(capturing);
    return MOXIE_OK;
}

static moxie_status capture_end(mox_cuda_stream stream, void **out, moxie_error *error)
{
    (void)stream;
    assert_non_null(capturing);
    graph *captured = capturing;
    capturing = NULL;
    const moxie_status status = record("ready", error);
    if (status != MOXIE_OK) {
        free(captured);
        return status;
    }
    __atomic_add_fetch(&alive, 1, __ATOMIC_RELAXED);
    *out = captured;
    return MOXIE_OK;
}

/* A launcher does not look at its stream: any will do. */
static moxie_status capture_apart_begin(mox_cuda_stream like, mox_cuda_stream *apart, moxie_error *error)
{
    (void)like;
    MOX_TRY(capture_begin(NULL, error));
    *apart = capturing;
    return MOXIE_OK;
}

static moxie_status graph_launch(void *object, mox_cuda_stream stream, moxie_error *error)
{
    const graph *g = object;
    (void)stream;
    MOX_TRY(record("graph", error));
    for (int i = 0; i < g->count; i++)
        MOX_TRY(g->launches[i].work(g->launches[i].args, error));
    return MOXIE_OK;
}

static void graph_destroy(void *object)
{
    __atomic_sub_fetch(&alive, object != NULL, __ATOMIC_RELAXED);
    free(object);
}

static moxie_status is_capturing(mox_cuda_stream stream, int32_t *out, moxie_error *error)
{
    (void)stream, (void)error;
    *out = capturing != NULL;
    return MOXIE_OK;
}

/* ---- time ---------------------------------------------------------------------------------------------- */

static moxie_status timer_create(void **out, moxie_error *error)
{
    MOX_TRY(record("timer", error));
    *out = calloc(1, sizeof(double));
    assert_non_null(*out);
    __atomic_add_fetch(&alive, 1, __ATOMIC_RELAXED);
    return MOXIE_OK;
}

static void timer_destroy(void *timer)
{
    __atomic_sub_fetch(&alive, timer != NULL, __ATOMIC_RELAXED);
    free(timer);
}

static moxie_status timer_start(void *timer, mox_cuda_stream stream, moxie_error *error)
{
    (void)stream;
    *(double *)timer = now;
    return record("start", error);
}

static moxie_status timer_stop(void *timer, mox_cuda_stream stream, float *milliseconds, moxie_error *error)
{
    (void)stream;
    assert_true(test_cuda_may_wait());
    *milliseconds = (float)(now - *(double *)timer);
    return record("stop", error);
}

/* ---- probes -------------------------------------------------------------------------------------------- */

static moxie_status probe(const mox_cuda_limits_args *a, double work, double per_second, moxie_error *error)
{
    MOX_TRY(record("probe", error));
    assert_int_equal((uintptr_t)a->data % 16, 0);
    now += 1e3 * (double)a->rounds * work / per_second;
    *a->done = a->rounds;
    return MOXIE_OK;
}

static moxie_status reads(const mox_cuda_limits_args *a, double per_second, moxie_error *error)
{
    assert_int_equal(a->bytes % (2 * MOX_CUDA_LIMIT_PIECE * a->multiprocessors), 0);
    assert_memory_not_equal(a->data, (const char *)a->data + a->bytes - 64, 64); /* random up to the end */
    return probe(a, (double)a->bytes, per_second, error);
}

static moxie_status multiplies(const mox_cuda_limits_args *a, double work, double per_second, moxie_error *error)
{
    assert_int_equal(a->bytes, MOX_CUDA_LIMIT_OPERANDS);
    return probe(a, work * a->multiprocessors, per_second, error);
}

static moxie_status read_loads(const mox_cuda_limits_args *a, mox_cuda_stream stream, moxie_error *error)
{
    (void)stream;
    return reads(a, 4000e9, error);
}

static moxie_status read_bulk(const mox_cuda_limits_args *a, mox_cuda_stream stream, moxie_error *error)
{
    (void)stream;
    return reads(a, 4500e9, error);
}

static moxie_status bf16_mma(const mox_cuda_limits_args *a, mox_cuda_stream stream, moxie_error *error)
{
    (void)stream;
    return multiplies(a, 4194304, 400e12, error);
}

static moxie_status bf16_wgmma(const mox_cuda_limits_args *a, mox_cuda_stream stream, moxie_error *error)
{
    (void)stream;
    return multiplies(a, 4194304, 800e12, error);
}

static moxie_status e4m3_mma(const mox_cuda_limits_args *a, mox_cuda_stream stream, moxie_error *error)
{
    (void)stream;
    return multiplies(a, 8388608, 700e12, error);
}

static moxie_status e4m3_wgmma(const mox_cuda_limits_args *a, mox_cuda_stream stream, moxie_error *error)
{
    (void)stream;
    return multiplies(a, 8388608, 1500e12, error);
}

/* ---- the table ----------------------------------------------------------------------------------------- */

void test_cuda_graph_fill(mox_cuda_table *table, moxie_status (*tell)(const char *name, moxie_error *error))
{
    record = tell;
    table->capture_begin = capture_begin;
    table->capture_end = capture_end;
    table->capture_apart_begin = capture_apart_begin;
    table->capture_apart_end = capture_end;
    table->graph_launch = graph_launch;
    table->graph_destroy = graph_destroy;
    table->capturing = is_capturing;
    table->timer_create = timer_create;
    table->timer_destroy = timer_destroy;
    table->timer_start = timer_start;
    table->timer_stop = timer_stop;
#define MOX_CUDA_ROW(family, id, ...) table->limits[MOX_CUDA_AT_limits_##id] = id;
#include "cuda/limits/cuda_limits.def"
#undef MOX_CUDA_ROW
}
