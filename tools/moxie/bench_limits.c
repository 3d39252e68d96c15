/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_limits.c - the machine's limits before and after a line, and lines that beat them.
 *
 *     measured:   limits | line | limits | line | limits      the better of the two neighbours makes a line's floor
 *     --limits:   a file's, for all lines
 *
 * A limit that a run beats was measured while the machine had other work, or is old. Then what the run reached
 * replaces it, in the file too. Only runs count that did what the limit is about: read weights that cannot have come
 * from the caches, or multiplied numbers of the limit's own type.
 */
#include "bench.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

const bench_limit bench_limit_of[] = {
    [BENCH_BY_MEMORY] = { "memory", "read_gb_s", "GB/s", offsetof(moxie_limits, read_gb_s),
                          offsetof(moxie_limits, read_how) },
    [BENCH_BY_BF16] = { "bf16", "bf16_tflop_s", "TFLOP/s", offsetof(moxie_limits, bf16_tflop_s),
                        offsetof(moxie_limits, bf16_how) },
    [BENCH_BY_FP8] = { "fp8", "fp8_tflop_s", "TFLOP/s", offsetof(moxie_limits, fp8_tflop_s),
                       offsetof(moxie_limits, fp8_how) },
    [BENCH_BY_INT8] = { "int8", "int8_top_s", "TOP/s", offsetof(moxie_limits, int8_top_s),
                        offsetof(moxie_limits, int8_how) },
};

double bench_limit_value(const moxie_limits *limits, bench_by by)
{
    double value;
    memcpy(&value, (const char *)limits + bench_limit_of[by].value, sizeof value);
    return value;
}

/* Makes each figure of `into` the better of both. */
static void keep_better(moxie_limits *into, const moxie_limits *other)
{
    into->read_gb_s = fmax(into->read_gb_s, other->read_gb_s);
    into->copy_gb_s = fmax(into->copy_gb_s, other->copy_gb_s);
    into->l2_read_gb_s = fmax(into->l2_read_gb_s, other->l2_read_gb_s);
    into->f32_tflop_s = fmax(into->f32_tflop_s, other->f32_tflop_s);
    into->bf16_tflop_s = fmax(into->bf16_tflop_s, other->bf16_tflop_s);
    into->int8_top_s = fmax(into->int8_top_s, other->int8_top_s);
    into->fp8_tflop_s = fmax(into->fp8_tflop_s, other->fp8_tflop_s);
    into->disturbed = into->disturbed < other->disturbed ? into->disturbed : other->disturbed;
}

/* Replaces the limit that `line` has beaten, if any. `limits`: those behind the line's floor, or with `best` the best
 * of all measurements, whose replacement is reported. */
static void raise_limit(bench *b, const bench_line *line, moxie_limits *limits, bool best)
{
    static const char how[] = "a run of moxie bench";
    const char *const reached_how = how;
    const double read = line->bytes / line->median * 1e-9, rate = line->flop / line->median * 1e-12;
    const double reached = line->by == BENCH_BY_MEMORY ? read : rate, limit = bench_limit_value(limits, line->by);
    if (reached <= limit)
        return;
    if (best)
        b->raised[b->n_raised++] = (bench_raised) { line->by, line->tokens, limit, reached };
    memcpy((char *)limits + bench_limit_of[line->by].value, &reached, sizeof reached);
    memcpy((char *)limits + bench_limit_of[line->by].how, &reached_how, sizeof reached_how);
}

/* Whether a kernel may multiply a narrower type than that of the limit. */
static bool multiplies_narrower(const bench *b)
{
    const moxie_layer_config *c = &b->model.config;
    return b->args->layer.mode != MOXIE_MODE_EXACT || c->a13.element != MOXIE_DTYPE_NONE ||
           c->a2.element != MOXIE_DTYPE_NONE;
}

/* `limits`: those behind the line's floor. */
static void raise_beaten(bench *b, bench_line *line, moxie_limits *limits)
{
    const bool counts = line->by == BENCH_BY_MEMORY ? line->cached <= BENCH_FEW_CACHED
                        : line->by == BENCH_BY_BF16 ? !multiplies_narrower(b)
                                                    : true;
    if (!counts || line->ratio <= 0 || line->ratio >= 1)
        return;
    raise_limit(b, line, limits, false);
    raise_limit(b, line, &b->limits.found, true);
}

moxie_status bench_time_line(bench *b, int i, moxie_limits *before, moxie_error *error)
{
    const bench_arguments *args = b->args;
    bench_line *line = &b->lines[i];
    moxie_limits after = MOXIE_LIMITS_INIT;
    moxie_status status = bench_line_time(b->backend, &b->model, &b->routing, b->tokens[i], args->repeats, args->seed,
                                          b->limits.found.cache_bytes, line, error);
    if (status == MOXIE_OK && !args->limits_file)
        status = cli_limits_measure(&b->device, &after, error);
    if (status != MOXIE_OK)
        return status;
    moxie_limits around = *before;
    if (!args->limits_file) {
        const double change = fmax(after.read_gb_s, before->read_gb_s) / fmin(after.read_gb_s, before->read_gb_s);
        b->noise = fmax(b->noise, change - 1);
        keep_better(&b->limits.found, &after);
        keep_better(&around, &after);
        *before = after;
    }
    bench_line_set_floor(line, &b->model.config, &around);
    raise_beaten(b, line, &around);
    bench_line_set_floor(line, &b->model.config, &around);
    if (args->limits_file)
        *before = around;
    return MOXIE_OK;
}

moxie_status bench_keep_limits(bench *b, moxie_error *error)
{
    if (!b->args->limits_file || b->n_raised == 0)
        return MOXIE_OK;
    for (int i = 0; i < b->n_lines; i++)
        bench_line_set_floor(&b->lines[i], &b->model.config, &b->limits.found);
    return cli_limits_put(b->args->limits_file, &b->device, &b->limits.found, error);
}
