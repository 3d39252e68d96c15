/* SPDX-License-Identifier: Apache-2.0
 *
 * limits.c - runs the probes: allocates their memory, finds how long each must run, and picks the best rates as limits.
 *
 *     buffer:   | worker 0: data | to | worker 1: data | to | ...     first touched by the worker that reads it
 *
 * The buffer is four times the last-level caches, at most 1 GB but at least twice the caches. So a pass finds almost
 * nothing in the caches of what the pass before read. It uses pages of 2 MB where the system grants them, as weights
 * do, so that page-table walks do not count. L2 probes use the beginning of each worker's share.
 *
 * There are no more parts than processors. With more workers than processors, some would wait while the others run
 * alone, and shares would be small enough to stay in the caches.
 */
#include "cpu/limits/limits.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/cache_sizes.h"
#include "base/executor.h"
#include "base/memory.h"
#include "base/sizes.h"

enum {
    LOOPS = 5,
    MAX_LOOPS = 25,
    UNIT = 8 * 4096
};                          /* clean loops per probe, loops at most; parts are multiples of UNIT */
#define LOOP_SECONDS  0.015 /* about, of one loop: far longer than starting the workers, shorter than a time slice */
#define PROBE_SECONDS 0.3   /* no further loop after this time, for busy machines and emulators */
#define CLEAN         0.95  /* share of its processor that a worker must get */

static const struct {
    double unit;
    bool every_isa; /* probes of all classes count, not only of the highest class that has one */
} limits[MOX_LIMITS] = {
    [MOX_LIMIT_READ] = { 1e9, false }, [MOX_LIMIT_COPY] = { 1e9, true },   [MOX_LIMIT_L2_READ] = { 1e9, false },
    [MOX_LIMIT_F32] = { 1e12, false }, [MOX_LIMIT_BF16] = { 1e12, false }, [MOX_LIMIT_INT8] = { 1e12, false },
};

static const mox_limit_list *const lists[] = { &mox_limit_probes_scalar, &mox_limit_probes_avx2,
                                               &mox_limit_probes_avx512, &mox_limit_probes_amx };

typedef struct measurement {
    const moxie_executor *executor;
    mox_isa isa; /* class in effect */
    mox_cache_sizes caches;
    char *buffer;
    uint64_t share; /* bytes of the buffer per worker, a multiple of 2 UNIT */
    mox_limit_part *parts;
    int32_t n_parts; /* workers, but no more than processors */
    const mox_limit_probe *probe;
} measurement;

/* ---- one probe ----------------------------------------------------------------------------------- */

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void unclaim_parts(measurement *m)
{
    for (int32_t w = 0; w < m->n_parts; w++)
        atomic_store(&m->parts[w].claimed, false);
}

/* A worker claims its own part, whose memory is near its processor. When it gets a second task, it claims the part of a
 * worker that got none: its own would now be read from the caches. There are as many tasks as parts. */
static mox_limit_part *claim_part(measurement *m, int32_t worker)
{
    int32_t w = worker % m->n_parts;
    while (atomic_exchange(&m->parts[w].claimed, true))
        w = (w + 1) % m->n_parts;
    return &m->parts[w];
}

static void run_part(void *context, int64_t task, int32_t worker)
{
    measurement *m = context;
    mox_limit_part *part = claim_part(m, worker);
    (void)task;
    part->begin = seconds(CLOCK_MONOTONIC);
    const double cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
    m->probe->run(m->probe, part);
    part->cpu = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
    part->end = seconds(CLOCK_MONOTONIC);
}

typedef struct loop {
    double span; /* from the first start to the last end */
    double cpu;  /* the longest processor time of a part */
    bool clean;  /* not disturbed: every part had a processor for itself, and all ran at the same time */
} loop;

static loop run_loop(measurement *m)
{
    unclaim_parts(m);
    mox_parallel(m->executor, m->n_parts, run_part, m);
    loop l = { .clean = true };
    double first = m->parts[0].begin, last_begin = first, last = m->parts[0].end;
    for (int32_t w = 0; w < m->n_parts; w++) {
        const mox_limit_part *p = &m->parts[w];
        l.clean = l.clean && p->cpu >= CLEAN * (p->end - p->begin);
        first = p->begin < first ? p->begin : first;
        last_begin = p->begin > last_begin ? p->begin : last_begin;
        last = p->end > last ? p->end : last;
        l.cpu = p->cpu > l.cpu ? p->cpu : l.cpu;
    }
    l.span = last - first;
    l.clean = l.clean && last_begin - first <= (1 - CLEAN) * l.span;
    return l;
}

/* Sets up all parts for the probe. Returns the work of one round of all workers. */
static double set_parts(measurement *m, uint64_t rounds)
{
    const mox_limit_probe *probe = m->probe;
    uint64_t bytes = m->share;
    if (probe->limit == MOX_LIMIT_COPY)
        bytes = m->share / 2;
    if (probe->limit == MOX_LIMIT_L2_READ)
        bytes = (uint64_t)mox_min_i64((int64_t)m->share, (int64_t)(m->caches.l2 / 2)) / UNIT * UNIT;
    for (int32_t w = 0; w < m->n_parts; w++) {
        char *data = m->buffer + (uint64_t)w * m->share;
        m->parts[w] = (mox_limit_part) { .data = data, .to = data + m->share / 2, .bytes = bytes, .rounds = rounds };
    }
    return (probe->ops > 0 ? probe->ops : (double)bytes) * (double)m->n_parts;
}

/* How many rounds make a loop long enough, by processor time, in which waiting for a processor does not count. These
 * loops also warm up. */
static uint64_t find_rounds(measurement *m)
{
    uint64_t rounds = 1;
    for (;;) {
        set_parts(m, rounds);
        const double cpu = run_loop(m).cpu;
        if (cpu >= LOOP_SECONDS / 2 || rounds > UINT64_C(1) << 40) /* or a clock that stands still */
            return rounds;
        const double factor = LOOP_SECONDS / (cpu + 1e-6);
        rounds = (uint64_t)((double)rounds * (factor > 64 ? 64 : factor)) + 1;
    }
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The rate of the median clean loop; if there is none, of the fastest loop. Work per processor time would be too high
 * for disturbed loops: workers that take turns have the memory, or a core, to themselves while they run. */
static double probe_rate(measurement *m, const mox_limit_probe *probe, bool *disturbed)
{
    double clean[LOOPS], shortest = 0;
    int count = 0;
    m->probe = probe;
    const uint64_t rounds = find_rounds(m);
    const double work = set_parts(m, rounds) * (double)rounds / limits[probe->limit].unit;
    const double start = seconds(CLOCK_MONOTONIC);
    for (int i = 0; i < MAX_LOOPS && count < LOOPS; i++) {
        const loop l = run_loop(m);
        if (l.clean)
            clean[count++] = l.span;
        shortest = i > 0 && shortest < l.span ? shortest : l.span;
        if (seconds(CLOCK_MONOTONIC) - start > PROBE_SECONDS)
            break;
    }
    *disturbed = count == 0;
    qsort(clean, (size_t)count, sizeof clean[0], by_value);
    return work / (count > 0 ? clean[count / 2] : shortest);
}

/* ---- all probes of a limit ------------------------------------------------------------------------ */

typedef struct best {
    double rate;
    const char *name;
    bool disturbed;
} best;

static bool can_run(const measurement *m, const mox_limit_probe *probe)
{
    return probe->isa <= m->isa && (!probe->present || probe->present());
}

/* The best probe of the highest class that has one, or of all classes. */
static best measure(measurement *m, mox_limit limit)
{
    best result = { 0, "", false };
    bool disturbed;
    for (int i = (int)(sizeof lists / sizeof lists[0]) - 1; i >= 0; i--) {
        for (int32_t r = 0; r < lists[i]->count; r++) {
            const mox_limit_probe *probe = &lists[i]->probes[r];
            if (probe->limit != limit || !can_run(m, probe))
                continue;
            const double rate = probe_rate(m, probe, &disturbed);
            if (rate > result.rate)
                result = (best) { rate, probe->name, disturbed };
        }
        if (result.rate > 0 && !limits[limit].every_isa)
            break;
    }
    return result;
}

static void measure_all(measurement *m, moxie_limits *out)
{
    const best read = measure(m, MOX_LIMIT_READ), copy = measure(m, MOX_LIMIT_COPY), l2 = measure(m, MOX_LIMIT_L2_READ);
    const best f32 = measure(m, MOX_LIMIT_F32), bf16 = measure(m, MOX_LIMIT_BF16), int8 = measure(m, MOX_LIMIT_INT8);
    /* bf16 values are exact in f32. Without faster instructions they are multiplied as f32. */
    const best wide = bf16.rate > f32.rate ? bf16 : f32;
    *out = (moxie_limits) { .struct_size = sizeof *out,
                            .workers = m->executor->workers,
                            .isa = mox_isa_name(m->isa),
                            .disturbed = read.disturbed + copy.disturbed + l2.disturbed + f32.disturbed +
                                         wide.disturbed + int8.disturbed,
                            .read_gb_s = read.rate,
                            .copy_gb_s = copy.rate,
                            .l2_read_gb_s = l2.rate,
                            .f32_tflop_s = f32.rate,
                            .bf16_tflop_s = wide.rate,
                            .int8_top_s = int8.rate,
                            .read_how = read.name,
                            .copy_how = copy.name,
                            .l2_read_how = l2.name,
                            .f32_how = f32.name,
                            .bf16_how = wide.name,
                            .int8_how = int8.name,
                            .fp8_how = "",
                            .l2_bytes = m->caches.l2,
                            .cache_bytes = m->caches.last };
}

/* ---- memory ---------------------------------------------------------------------------------------- */

/* Writes to every page: a page that was never written is the system's one page of zeros, which stays in the caches. */
static void touch_share(void *context, int64_t task, int32_t worker)
{
    measurement *m = context;
    const int64_t share = claim_part(m, worker) - m->parts;
    (void)task;
    for (uint64_t at = 0; at < m->share; at += 4096)
        m->buffer[(uint64_t)share * m->share + at] = (char)at;
}

/* Two to four times the caches; above twice, at most a quarter of the memory that is free now. */
static uint64_t buffer_bytes(const measurement *m)
{
    const int64_t usual = INT64_C(1) << 30, caches = (int64_t)m->caches.last;
    const int64_t min_bytes = mox_max_i64(INT64_C(64) << 20, 2 * caches);
    const long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    int64_t bytes = mox_min_i64(4 * caches, usual);
    if (pages > 0 && page > 0)
        bytes = mox_min_i64(bytes, (int64_t)pages * page / 4);
    return (uint64_t)mox_max_i64(min_bytes, bytes);
}

static moxie_status allocate(measurement *m, moxie_error *error)
{
    const uint64_t unit = 2 * UNIT, parts = (uint64_t)m->n_parts;
    m->share = buffer_bytes(m) / parts / unit * unit;
    m->share = m->share > 0 ? m->share : unit;
    m->parts = mox_alloc_aligned(parts * sizeof *m->parts, 64);
    m->buffer = mox_alloc_pages(parts * m->share);
    MOX_FAIL_IF(
        !m->parts || !m->buffer, MOXIE_ERR_MEMORY, error,
        "no memory for the buffer of %llu bytes that the memory probes of %llu processors read (the caches hold "
        "%llu): free some, or use limits measured before",
        (unsigned long long)(parts * m->share), (unsigned long long)parts, (unsigned long long)m->caches.last);
    unclaim_parts(m);
    mox_parallel(m->executor, m->n_parts, touch_share, m);
    return MOXIE_OK;
}

static mox_isa class_under(mox_isa cap)
{
    const mox_cpu_features *cpu = mox_cpu();
    const mox_isa isa = cap < cpu->allowed ? cap : cpu->allowed;
    return isa == MOX_ISA_NEON && !cpu->neon ? MOX_ISA_SCALAR : isa;
}

moxie_status mox_limits_measure(const moxie_executor *executor, mox_isa cap, moxie_limits *out, moxie_error *error)
{
    const int32_t workers = executor->workers, processors = mox_cpu()->processors;
    measurement m = { .executor = executor,
                      .isa = class_under(cap),
                      .caches = mox_cache_sizes_find(),
                      .n_parts = workers < processors ? workers : processors };
    const moxie_status status = allocate(&m, error);
    if (status == MOXIE_OK)
        measure_all(&m, out);
    mox_free(m.parts);
    mox_free_pages(m.buffer);
    return status;
}
