/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_ranks.h - `moxie bench --ranks N`: the time of a step on N ranks, beside one rank with as many threads.
 */
#ifndef MOXIE_BENCH_RANKS_H
#define MOXIE_BENCH_RANKS_H

#include "bench.h"

/* Seconds of steps, the medians and the fastest; one: of one rank. */
typedef struct bench_ranks_line {
    int64_t tokens; /* of all ranks */
    int32_t repeats;
    double one, one_min, many, many_min;
    cli_parts parts; /* of the ranks' step with the median time */
} bench_ranks_line;

/* What a step consists of: the phases of its parts, in groups. Seconds, which add up to the step's. */
typedef struct bench_ranks_groups {
    double products, exchange, wait;
} bench_ranks_groups;

/* What does not go with --ranks: argp_error. */
void bench_ranks_check(struct argp_state *state, const bench_arguments *args);
/* Ranks that check the model of --simulate-ranks have a processor for each thread. */
moxie_status bench_ranks_check_processors(const bench *b, moxie_error *error);
/* Threads of the one rank that b's ranks are compared with: as many as they have together, as far as there are
 * processors here. */
int32_t bench_ranks_threads(const bench *b);
/* b's layer is opened, of the configuration `config`, and its ranks have begun. `threads`: of this process's ranks
 * together; `one_threads`: of one rank. Times one rank and all of them in turn, on batches of `routing`. Collective. */
moxie_status bench_ranks_time(bench *b, const moxie_layer_config *config, bench_routing *routing, int64_t tokens,
                              int32_t threads, int32_t one_threads, bench_ranks_line *out, moxie_error *error);
/* --ranks without --simulate-ranks: prints a table or JSON. */
moxie_status bench_ranks(bench *b, moxie_error *error);

/* The same on GPUs (bench_ranks_cuda.c). */
moxie_status bench_ranks_on_cuda(bench *b, moxie_error *error);

/* ---- bench_ranks_report.c ---- */

bench_ranks_groups bench_ranks_group(const bench_ranks_line *line);
void bench_ranks_print_text(const bench *b, const bench_ranks_line *lines);
void bench_ranks_print_json(const bench *b, const bench_ranks_line *lines);

#endif
