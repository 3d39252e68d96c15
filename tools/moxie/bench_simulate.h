/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_simulate.h - `moxie bench --simulate-ranks`: the time of one expert parallel step on ranks that are not here.
 *
 *     bench_traffic.c          routing -> choices of each rank, rows on each link        counted
 *     bench_simulate.c         products of the most loaded rank                          measured here
 *                              the same plus the link's time -> step                     a model
 *     bench_simulate_report.c  table or JSON
 *
 * Every rank has the same number of tokens (weak scaling). A step is dispatch, products, return and the shared expert,
 * one after the other; each lasts as long as on its slowest rank:
 *
 *     dispatch   a row [H] of the hidden states' type for each rank that has one of the token's experts, with its ids
 *                (and weights, where they multiply the input); before it one message of counts to every other rank
 *     return     a row [H] of f32 for each choice
 *     link       bytes in or out, the larger / B + L for each message in or out, the larger number
 */
#ifndef MOXIE_BENCH_SIMULATE_H
#define MOXIE_BENCH_SIMULATE_H

#include "bench.h"

#include <moxie/moxie_parallel.h>

enum { SIM_DRAWS = 4, SIM_MAX_POINTS = 400, SIM_MEASURED_CHOICES = 4096 };

/* What the link of one rank can do, in each direction. */
typedef struct sim_link {
    double gb_s, us; /* us: what a message costs besides its bytes */
} sim_link;

/* One placement of the experts on ranks: means over the draws, of the slowest or most loaded rank where it says max. */
typedef struct sim_traffic {
    int64_t experts;                  /* on the rank that has most */
    double choices_mean, choices_max; /* (token, choice) pairs of a rank */
    double rows_max, returned_max;    /* rows that leave or reach a rank in dispatch and return */
    double dispatch, give_back;       /* seconds on the link */
    int64_t draw_choices[SIM_DRAWS];  /* choices_max of each draw */
} sim_traffic;

/* Products of a rank: `choices` rows spread over `experts` experts. */
typedef struct sim_point {
    int64_t experts, choices;
    bench_line line;
} sim_point;

/* A step with one placement. */
typedef struct sim_step {
    sim_traffic traffic;
    double products, seconds;
} sim_step;

typedef struct sim_row {
    int64_t ranks, tokens; /* tokens of each rank */
    sim_step linear, eplb;
    double shared;     /* seconds, in both steps */
    double efficiency; /* step of the first row with these tokens / this one's */
    double measured;   /* seconds of this step as it ran here; 0: it did not */
} sim_row;

typedef struct simulation {
    bench *b;
    sim_link link;
    moxie_layer_config whole; /* the layer; b->model.config is a rank's part of it */
    sim_row *rows;
    int n_rows;
    sim_point points[SIM_MAX_POINTS];
    int n_points;
    sim_point shared[CLI_MAX_SIZES]; /* the shared expert for each number of tokens; choices: tokens */
    int n_shared;
    sim_point here[CLI_MAX_SIZES]; /* one rank's step, as it runs; choices: tokens */
    int n_here;
    bool extrapolated; /* a rank has more choices than were measured */
    int64_t history;   /* tokens whose loads EPLB knew */
} simulation;

/* Loads and rows of ranks for every row of `sim` and both placements (bench_traffic.c). */
moxie_status sim_count_traffic(simulation *sim, bench_routing *routing, moxie_error *error);

void sim_print_text(const simulation *sim);
void sim_print_json(const simulation *sim);

#endif
