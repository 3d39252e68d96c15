/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_copy_rate.c - how fast a GPU copies from pinned memory (cuda_limits.h): the limit of what a store can bring to
 * it. No probe: the copy engines do it, without a kernel.
 */
#include <stdlib.h>

#include "cuda/limits/cuda_limits.h"

enum { BLOCK = 32 << 20, COPIES = 8, LAUNCHES = 5 };

typedef struct measurement {
    const mox_cuda_table *table;
    mox_cuda_stream stream;
    void *timer, *from, *to;
} measurement;

static moxie_status open_all(measurement *m, moxie_error *error)
{
    MOX_TRY(m->table->stream_create(&m->stream, error));
    MOX_TRY(m->table->timer_create(&m->timer, error));
    MOX_TRY(m->table->allocate_pinned(BLOCK, &m->from, error));
    return m->table->allocate(BLOCK, &m->to, error);
}

static void close_all(measurement *m)
{
    m->table->release(m->to);
    m->table->release_pinned(m->from);
    m->table->timer_destroy(m->timer);
    m->table->stream_destroy(m->stream);
}

static int by_value(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The median launch; one before them warms up. */
static moxie_status measure(const measurement *m, double *gb_s, moxie_error *error)
{
    float ms[LAUNCHES + 1];
    for (int i = 0; i <= LAUNCHES; i++) {
        MOX_TRY(m->table->timer_start(m->timer, m->stream, error));
        for (int c = 0; c < COPIES; c++)
            MOX_TRY(m->table->copy(m->to, m->from, BLOCK, m->stream, error));
        MOX_TRY(m->table->timer_stop(m->timer, m->stream, &ms[i], error));
    }
    qsort(ms + 1, LAUNCHES, sizeof ms[0], by_value);
    *gb_s = 1e-6 * (double)COPIES * (double)BLOCK / (double)ms[1 + LAUNCHES / 2];
    return MOXIE_OK;
}

moxie_status mox_cuda_copy_rate(const mox_cuda_table *table, double *gb_s, moxie_error *error)
{
    measurement m = { .table = table };
    moxie_status status = open_all(&m, error);
    if (status == MOXIE_OK)
        status = measure(&m, gb_s, error);
    close_all(&m);
    return status;
}
