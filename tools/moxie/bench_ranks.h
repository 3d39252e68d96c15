/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_ranks.h - `moxie bench --ranks N`: the time of a step on N local ranks, beside one rank with as many threads.
 */
#ifndef MOXIE_BENCH_RANKS_H
#define MOXIE_BENCH_RANKS_H

#include "bench.h"

/* Seconds of steps, the medians and the fastest; one: of one rank. */
typedef struct bench_ranks_line {
    int64_t tokens; /* of all ranks */
    int32_t repeats;
    double one, one_min, many, many_min;
} bench_ranks_line;

/* What does not go with --ranks: argp_error. */
void bench_ranks_check(struct argp_state *state, const bench_arguments *args);
/* Ranks that check the model of --simulate-ranks have a processor for each thread. */
moxie_status bench_ranks_check_processors(const bench *b, moxie_error *error);
/* b's layer is opened, of the configuration `config`. `threads`: of all ranks together. Times one rank and all of them
 * in turn, on batches of `routing`. */
moxie_status bench_ranks_time(const bench *b, const moxie_layer_config *config, bench_routing *routing, int64_t tokens,
                              int32_t threads, bench_ranks_line *out, moxie_error *error);
/* --ranks without --simulate-ranks: prints a table or JSON. */
moxie_status bench_ranks(bench *b, moxie_error *error);

#endif
