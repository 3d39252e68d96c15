/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_trace.c - the reader of routing traces, on the bytes as they are and with their checksums made right.
 *
 * Promise: ids of an accepted trace are experts or below 0; a simulation of it has no more hits than uses.
 */
#include "fuzz_scratch.h"

#include <string.h>

#include <moxie/moxie_trace.h>

static void check_step(const moxie_trace_info *info, const moxie_trace_step *step)
{
    FUZZ_CHECK(step->tokens >= 0 && step->tokens <= MOXIE_TRACE_MAX_TOKENS);
    const int64_t choices = step->tokens * info->layers * info->top_k;
    for (int64_t i = 0; i < choices; i++)
        FUZZ_CHECK(step->ids[i] >= -1 && step->ids[i] < info->experts + info->zero_experts);
    /* They can be read. */
    if (step->weights)
        moxie_trace_fingerprint(step->weights, 4 * (uint64_t)choices);
    if (step->requests)
        moxie_trace_fingerprint(step->requests, 8 * (uint64_t)step->tokens);
}

static void check_trace(const char *path)
{
    moxie_error error = { 0 };
    moxie_trace *trace = NULL;
    moxie_trace_info info = MOXIE_TRACE_INFO_INIT;
    if (moxie_trace_open(path, &trace, &error) != MOXIE_OK) {
        FUZZ_CHECK(error.text[0] && !trace);
        return;
    }
    FUZZ_CHECK(moxie_trace_get_info(trace, &info, &error) == MOXIE_OK);
    for (int64_t i = 0; i < info.steps; i++) {
        moxie_trace_step step = MOXIE_TRACE_STEP_INIT;
        FUZZ_CHECK(moxie_trace_read(trace, i, &step, &error) == MOXIE_OK);
        check_step(&info, &step);
    }
    moxie_cache_config config = MOXIE_CACHE_CONFIG_INIT;
    moxie_cache_hits hits = MOXIE_CACHE_HITS_INIT;
    config.slots = 2;
    config.with_best = info.layers < 8;
    FUZZ_CHECK(moxie_trace_simulate(trace, &config, &hits, NULL, &error) == MOXIE_OK);
    FUZZ_CHECK(hits.hits >= 0 && hits.hits <= hits.uses && hits.inserts <= hits.uses - hits.hits);
    FUZZ_CHECK(hits.best_hits < 0 || hits.best_hits >= hits.hits);
    moxie_trace_close(trace);
}

static uint32_t word(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* Writes the checksum of a block where it belongs. */
static void sum(uint8_t *block, uint64_t bytes, uint64_t at)
{
    memset(block + at, 0, 8);
    const uint64_t right = moxie_trace_fingerprint(block, bytes);
    memcpy(block + at, &right, sizeof right);
}

/* Makes the checksums right as far as sizes can be followed. */
static void repair(uint8_t *data, uint64_t size)
{
    if (size < 128 || word(data + 16) < 128 || word(data + 16) > size)
        return;
    const uint64_t layers = word(data + 24), top_k = word(data + 32), flags = word(data + 20);
    uint64_t at = word(data + 16);
    sum(data, at, 120);
    while (layers <= 4096 && top_k <= 32 && at + 32 <= size) {
        const uint64_t tokens = word(data + at + 4), choices = tokens * layers * top_k;
        uint64_t bytes = 32 + (2 * choices + 7) / 8 * 8;
        bytes += flags & 1 ? (4 * choices + 7) / 8 * 8 : 0;
        bytes += flags & 2 ? 8 * tokens : 0;
        if (bytes > size - at)
            return;
        sum(data + at, bytes, 24);
        at += bytes;
    }
}

void mox_fuzz_trace(const uint8_t *data, uint64_t size)
{
    fuzz_write("trace", data, size);
    check_trace(fuzz_path("trace"));
    uint8_t *copy = malloc(size + 1);
    FUZZ_CHECK(copy);
    memcpy(copy, data, size);
    repair(copy, size);
    fuzz_write("trace", copy, size);
    check_trace(fuzz_path("trace"));
    free(copy);
}
