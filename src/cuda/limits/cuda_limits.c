/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_limits.c - runs the probes of a GPU: allocates their memory, finds how many rounds each must run, and picks the
 * best rates as limits.
 *
 *     block:   | bf16 numbers | e4m3 numbers | done | memory to read ... |
 *
 * The memory to read is eight times the L2, so that a pass finds almost nothing in L2 of what the pass before read. It
 * is a whole number of pieces for each multiprocessor.
 */
#include "cuda/limits/cuda_limits.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cuda/cuda_kernel.h"
#include "format/format.h"

enum { LAUNCHES = 5, WARM_LAUNCHES = 10, DONE_BYTES = 1024, HOST_BLOCK = 8 << 20 };
#define LAUNCH_MS 4.0   /* about, of one launch: far longer than starting it takes */
#define WARM_MS   400.0 /* of multiplication before the rate counts as sustained */

typedef struct probe {
    mox_cuda_limit limit;
    uint32_t needs;
    double flop; /* per round and multiprocessor; 0: the probe counts bytes */
    const char *how;
} probe;

#define MOX_CUDA_ROW(family, id, needs_, limit_, flop_, how_)                                                          \
    [MOX_CUDA_AT_limits_##id] = { .limit = limit_, .needs = needs_, .flop = flop_, .how = how_ },
static const probe probes[MOX_CUDA_ROWS_limits] = {
#include "cuda/limits/cuda_limits.def"
};
#undef MOX_CUDA_ROW

typedef struct measurement {
    const mox_cuda_table *table;
    const mox_cuda_features *device;
    mox_cuda_stream stream;
    void *timer;
    char *block;
    uint8_t *host; /* HOST_BLOCK bytes, for the operands first and then for random bytes */
    int64_t read_bytes;
} measurement;

/* ---- memory ---------------------------------------------------------------------------------------- */

static char *reading(const measurement *m)
{
    return m->block + 2 * MOX_CUDA_LIMIT_OPERANDS + DONE_BYTES;
}

static int64_t *done(const measurement *m)
{
    return (int64_t *)(void *)(m->block + 2 * MOX_CUDA_LIMIT_OPERANDS);
}

static uint64_t next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    return z ^ (z >> 29);
}

/* Random numbers, each a sum of three uniform ones, and finite in both types. */
static void make_operands(uint8_t *to, uint64_t *state)
{
    uint16_t *bf16 = (uint16_t *)(void *)to;
    uint8_t *e4m3 = to + MOX_CUDA_LIMIT_OPERANDS;
    for (int i = 0; i < MOX_CUDA_LIMIT_OPERANDS; i++) {
        const uint64_t bits = next(state);
        const float x =
            (float)((double)(bits & 0xffff) + (double)(bits >> 16 & 0xffff) + (double)(bits >> 32 & 0xffff) - 98302.5) /
            32768.0f;
        if (i < MOX_CUDA_LIMIT_OPERANDS / 2)
            bf16[i] = (uint16_t)mox_format_encode(MOXIE_BF16, x);
        e4m3[i] = (uint8_t)mox_format_encode(MOXIE_F8_E4M3, x);
    }
}

static moxie_status send(const measurement *m, char *to, uint64_t bytes, moxie_error *error)
{
    MOX_TRY(m->table->copy(to, m->host, bytes, m->stream, error));
    return m->table->stream_wait(m->stream, error); /* `host` will be overwritten */
}

static moxie_status fill(const measurement *m, moxie_error *error)
{
    uint64_t state = 1;
    make_operands(m->host, &state);
    MOX_TRY(send(m, m->block, 2 * MOX_CUDA_LIMIT_OPERANDS, error));
    for (uint64_t *word = (uint64_t *)(void *)m->host; word < (uint64_t *)(void *)(m->host + HOST_BLOCK); word++)
        *word = next(&state);
    for (int64_t at = 0; at < m->read_bytes; at += HOST_BLOCK) {
        const int64_t left = m->read_bytes - at;
        MOX_TRY(send(m, reading(m) + at, (uint64_t)(left < HOST_BLOCK ? left : HOST_BLOCK), error));
    }
    return MOXIE_OK;
}

static moxie_status open_all(measurement *m, moxie_error *error)
{
    const int64_t unit = INT64_C(2) * MOX_CUDA_LIMIT_PIECE * m->device->multiprocessors;
    const uint64_t quarter = m->device->memory_bytes / 4, wanted = 8 * m->device->l2_bytes;
    m->read_bytes = (int64_t)(wanted < quarter ? wanted : quarter) / unit * unit;
    m->read_bytes = m->read_bytes > 0 ? m->read_bytes : unit;
    void *block = NULL;
    MOX_TRY(m->table->stream_create(&m->stream, error));
    MOX_TRY(m->table->timer_create(&m->timer, error));
    MOX_TRY(m->table->allocate(2 * MOX_CUDA_LIMIT_OPERANDS + DONE_BYTES + (uint64_t)m->read_bytes, &block, error));
    m->block = block;
    m->host = mox_alloc(HOST_BLOCK);
    MOX_FAIL_IF(m->host == NULL, MOXIE_ERR_MEMORY, error, "no memory for %d random bytes that probes of a GPU read",
                HOST_BLOCK);
    return fill(m, error);
}

static void close_all(measurement *m)
{
    mox_free(m->host);
    m->table->release(m->block);
    m->table->timer_destroy(m->timer);
    m->table->stream_destroy(m->stream);
}

/* ---- one probe ------------------------------------------------------------------------------------- */

static moxie_status time_launch(const measurement *m, int32_t row, int64_t rounds, float *ms, moxie_error *error)
{
    const mox_cuda_limit limit = probes[row].limit;
    const mox_cuda_limits_args args = { .data = limit == MOX_CUDA_LIMIT_READ
                                                    ? reading(m)
                                                    : m->block +
                                                          (limit == MOX_CUDA_LIMIT_FP8 ? MOX_CUDA_LIMIT_OPERANDS : 0),
                                        .bytes = limit == MOX_CUDA_LIMIT_READ ? m->read_bytes : MOX_CUDA_LIMIT_OPERANDS,
                                        .rounds = rounds,
                                        .multiprocessors = m->device->multiprocessors,
                                        .done = done(m) };
    MOX_TRY(m->table->timer_start(m->timer, m->stream, error));
    MOX_TRY(m->table->limits[row](&args, m->stream, error));
    return m->table->timer_stop(m->timer, m->stream, ms, error);
}

/* How many rounds make a launch long enough. These launches also warm up. */
static moxie_status find_rounds(const measurement *m, int32_t row, int64_t *rounds, moxie_error *error)
{
    float ms = 0;
    for (*rounds = 1; *rounds < INT64_C(1) << 40;) {
        MOX_TRY(time_launch(m, row, *rounds, &ms, error));
        if ((double)ms >= LAUNCH_MS / 2)
            return MOXIE_OK;
        const double factor = LAUNCH_MS / ((double)ms + 1e-3);
        *rounds = (int64_t)((double)*rounds * (factor < 64 ? factor : 64)) + 1;
    }
    return mox_fail(MOXIE_ERR_IO, error, "a probe of the GPU (%s) takes no time", probes[row].how);
}

static int by_value(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Work per second: the median of a few launches. */
static moxie_status median_rate(const measurement *m, int32_t row, int64_t rounds, double *rate, moxie_error *error)
{
    float ms[LAUNCHES];
    for (int i = 0; i < LAUNCHES; i++)
        MOX_TRY(time_launch(m, row, rounds, &ms[i], error));
    qsort(ms, LAUNCHES, sizeof ms[0], by_value);
    const double each = probes[row].flop > 0 ? probes[row].flop * m->device->multiprocessors : (double)m->read_bytes;
    *rate = each * (double)rounds / ((double)ms[LAUNCHES / 2] * 1e-3);
    return MOXIE_OK;
}

/* The rate of a probe, and the rounds of a launch. The rate is 0 when the device runs code without the instruction. */
static moxie_status probe_rate(const measurement *m, int32_t row, int64_t *rounds, double *rate, moxie_error *error)
{
    int64_t finished = 0;
    float ms;
    *rate = 0;
    MOX_TRY(m->table->fill(done(m), 0, sizeof finished, m->stream, error));
    MOX_TRY(time_launch(m, row, 1, &ms, error));
    MOX_TRY(m->table->copy(&finished, done(m), sizeof finished, m->stream, error));
    MOX_TRY(m->table->stream_wait(m->stream, error));
    if (finished != 1)
        return MOXIE_OK;
    MOX_TRY(find_rounds(m, row, rounds, error));
    return median_rate(m, row, *rounds, rate, error);
}

/* The rate that lasts. Busy tensor cores draw more power than the device may draw for long. Within tenths of a second
 * it lowers its clocks, and large batches run at these lower clocks. */
static moxie_status sustained_rate(const measurement *m, int32_t row, int64_t rounds, double *rate, moxie_error *error)
{
    const int64_t warm = (int64_t)(WARM_MS / WARM_LAUNCHES / LAUNCH_MS) * rounds;
    float ms;
    for (int i = 0; i < WARM_LAUNCHES; i++)
        MOX_TRY(time_launch(m, row, warm, &ms, error));
    return median_rate(m, row, rounds, rate, error);
}

/* ---- all probes ------------------------------------------------------------------------------------ */

/* Finds the best probe of each limit by short runs, and measures only that one by a long run. */
static moxie_status measure_all(const measurement *m, moxie_limits *out, moxie_error *error)
{
    double best[MOX_CUDA_LIMITS] = { 0 }, rate;
    int64_t rounds_of[MOX_CUDA_LIMITS] = { 0 }, rounds = 0;
    int32_t best_probe[MOX_CUDA_LIMITS] = { 0 };
    const char *how[MOX_CUDA_LIMITS] = { "", "", "" };
    for (int32_t row = 0; row < MOX_CUDA_ROWS_limits; row++) {
        const mox_cuda_limit limit = probes[row].limit;
        if (probes[row].needs & ~m->device->flags)
            continue;
        MOX_TRY(probe_rate(m, row, &rounds, &rate, error));
        if (rate > best[limit]) {
            best[limit] = rate;
            how[limit] = probes[row].how;
            best_probe[limit] = row;
            rounds_of[limit] = rounds;
        }
    }
    for (int limit = 0; limit < MOX_CUDA_LIMITS; limit++)
        if (limit != MOX_CUDA_LIMIT_READ && best[limit] > 0)
            MOX_TRY(sustained_rate(m, best_probe[limit], rounds_of[limit], &best[limit], error));
    *out = (moxie_limits) { .struct_size = sizeof *out,
                            .workers = m->device->multiprocessors,
                            .isa = mox_cuda_kernel_needs(&(mox_cuda_kernel) { .needs = m->device->flags }),
                            .read_gb_s = best[MOX_CUDA_LIMIT_READ] * 1e-9,
                            .bf16_tflop_s = best[MOX_CUDA_LIMIT_BF16] * 1e-12,
                            .fp8_tflop_s = best[MOX_CUDA_LIMIT_FP8] * 1e-12,
                            .read_how = how[MOX_CUDA_LIMIT_READ],
                            .bf16_how = how[MOX_CUDA_LIMIT_BF16],
                            .fp8_how = how[MOX_CUDA_LIMIT_FP8],
                            .copy_how = "",
                            .l2_read_how = "",
                            .f32_how = "",
                            .int8_how = "",
                            .l2_bytes = m->device->l2_bytes,
                            .cache_bytes = m->device->l2_bytes };
    return MOXIE_OK;
}

moxie_status mox_cuda_limits_measure(const mox_cuda_table *table, const mox_cuda_features *features, moxie_limits *out,
                                     moxie_error *error)
{
    measurement m = { .table = table, .device = features };
    moxie_status status = open_all(&m, error);
    if (status == MOXIE_OK)
        status = measure_all(&m, out, error);
    close_all(&m);
    return status;
}
