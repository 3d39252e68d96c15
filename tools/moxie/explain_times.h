/* SPDX-License-Identifier: Apache-2.0
 *
 * explain_times.h - the expected time of each exchange and of the products, for `moxie explain --ranks`:
 *
 *     exchange   bytes a token x T / ranks / B + L for each message       the link, as given: --link-gb-s, --link-us
 *     products   max(weight bytes / read_gb_s, flop / bf16_tflop_s)       a rank's machine, as measured: --limits
 *
 * Each of the T tokens of all ranks chooses K of the E experts, all sets alike. So of e experts of a rank, its weight
 * bytes are those of e (1 - (1 - K/E)^T). Each rank has the machine of the limits for itself; nothing overlaps. What is
 * not given is not known: no time is printed for it.
 */
#ifndef MOXIE_EXPLAIN_TIMES_H
#define MOXIE_EXPLAIN_TIMES_H

#include "explain_ranks.h"

typedef struct explain_times_options {
    const char *limits;        /* a file of `moxie info --limits`; NULL: not given */
    double link_gb_s, link_us; /* below 0: not given */
    const char *lone;          /* an option that was given and needs --ranks */
} explain_times_options;

/* A child parser; its input is an explain_times_options. */
extern const struct argp explain_times_argp;
/* The options' state before they are parsed. */
explain_times_options explain_times_none(void);

/* Seconds for T tokens of all ranks; below 0: not known. `exchange` is as in explain_ranks; without it in this layout:
 * 0. */
typedef struct explain_time {
    double exchange[EXPLAIN_EXCHANGES], products, step;
} explain_time;

typedef struct explain_times {
    const explain_ranks *ranks;
    const explain_times_options *options;
    cli_limits limits;
    bool knows_limits, knows_link;
    double expert_bytes, shared_bytes; /* of weights, as a checkpoint holds them */
} explain_times;

/* Reads the limits, where a file is given. */
moxie_status explain_times_find(const explain_times_options *options, const explain_ranks *ranks, explain_times *out,
                                moxie_error *error);
explain_time explain_times_at(const explain_times *times, int64_t tokens);
void explain_times_print(const explain_times *times, const cli_sizes *tokens);
/* [{tokens, products_ms, ...}], and what is not known. */
json_t *explain_times_json(const explain_times *times, const cli_sizes *tokens);

#endif
