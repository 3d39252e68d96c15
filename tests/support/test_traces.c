/* SPDX-License-Identifier: Apache-2.0
 *
 * test_traces.c - made-up routing traces (test_traces.h).
 */
#include "test_traces.h"

#include <math.h>

enum { MAX_E = 256, MAX_L = 8, MAX_K = 8, MAX_T = 320, RECENT = 16 };

const char *const test_trace_names[] = { "local", "domains", "requests", "uniform" };

typedef struct maker {
    test_trace_kind kind;
    const moxie_trace_info *info;
    test_rng rng;
    double cumulative[MAX_E];
    int32_t common[MAX_L][MAX_E], own[MAX_L][MAX_E]; /* experts by popularity: of all tokens, of a domain or request */
    int32_t recent[MAX_L][RECENT][MAX_K];
    int64_t tokens;
    int32_t ids[MAX_T * MAX_L * MAX_K];
} maker;

static void shuffle(maker *m, int32_t *order)
{
    for (int32_t e = 0; e < m->info->experts; e++) {
        const int32_t at = (int32_t)test_below(&m->rng, (uint64_t)e + 1);
        order[e] = order[at];
        order[at] = e;
    }
}

static void shuffle_all(maker *m, int32_t orders[MAX_L][MAX_E])
{
    for (int32_t l = 0; l < m->info->layers; l++)
        shuffle(m, orders[l]);
}

static int32_t zipf(maker *m)
{
    const double at = (double)(test_u64(&m->rng) >> 11) * 0x1p-53 * m->cumulative[m->info->experts - 1];
    int32_t rank = 0;
    while (m->cumulative[rank] <= at)
        rank++;
    return rank;
}

static int32_t draw(maker *m, int32_t layer)
{
    const bool half = test_below(&m->rng, 2) == 0;
    if (m->kind == TEST_TRACE_UNIFORM)
        return (int32_t)test_below(&m->rng, (uint64_t)m->info->experts);
    if (m->kind == TEST_TRACE_LOCAL && half && m->tokens >= RECENT)
        return m->recent[layer][test_below(&m->rng, RECENT)][test_below(&m->rng, (uint64_t)m->info->top_k)];
    const bool own = m->kind == TEST_TRACE_DOMAINS || (m->kind == TEST_TRACE_REQUESTS && half);
    return (own ? m->own : m->common)[layer][zipf(m)];
}

/* K different experts of one token in one layer. */
static void draw_token(maker *m, int32_t layer, int32_t *ids)
{
    for (int32_t j = 0; j < m->info->top_k; j++) {
        bool again = true;
        while (again) {
            ids[j] = draw(m, layer);
            again = false;
            for (int32_t i = 0; i < j; i++)
                again = again || ids[i] == ids[j];
        }
    }
    memcpy(m->recent[layer][m->tokens % RECENT], ids, (size_t)m->info->top_k * sizeof *ids);
}

static void add_step(maker *m, moxie_trace_writer *writer, int64_t tokens, moxie_trace_phase phase)
{
    moxie_error error = { 0 };
    moxie_trace_step step = MOXIE_TRACE_STEP_INIT;
    const int64_t k = m->info->top_k, row = m->info->layers * k;
    for (int64_t t = 0; t < tokens; t++, m->tokens++)
        for (int32_t l = 0; l < m->info->layers; l++)
            draw_token(m, l, m->ids + t * row + l * k);
    step.tokens = tokens;
    step.phase = phase;
    step.ids = m->ids;
    assert_ok(moxie_trace_writer_add(writer, &step, &error), &error);
}

void test_trace_write(const char *path, test_trace_kind kind, const moxie_trace_info *info, int64_t steps,
                      uint64_t seed)
{
    static maker m;
    moxie_error error = { 0 };
    moxie_trace_writer *writer = NULL;
    m = (maker) { .kind = kind, .info = info, .rng = { .state = seed } };
    assert_true(info->experts <= MAX_E && info->layers <= MAX_L && info->top_k <= MAX_K);
    for (int32_t e = 0; e < info->experts; e++)
        m.cumulative[e] = (e ? m.cumulative[e - 1] : 0) + 1 / (double)(e + 1);
    shuffle_all(&m, m.common);
    assert_ok(moxie_trace_writer_create(path, info, &writer, &error), &error);
    int64_t left = 0;
    for (int64_t i = 0; i < steps; i++) {
        const bool prefill = kind == TEST_TRACE_REQUESTS && left-- == 0;
        if (prefill || (kind == TEST_TRACE_DOMAINS && i % 300 == 0))
            shuffle_all(&m, m.own);
        if (prefill)
            left = test_range(&m.rng, 50, 200);
        add_step(&m, writer, prefill ? test_range(&m.rng, 64, MAX_T) : 1,
                 prefill ? MOXIE_TRACE_PREFILL : MOXIE_TRACE_DECODE);
    }
    assert_ok(moxie_trace_writer_finish(writer, &error), &error);
    moxie_trace_writer_destroy(writer);
}
