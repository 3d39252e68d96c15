/* SPDX-License-Identifier: Apache-2.0
 *
 * lint_measure.h - the numbers of one layer in a few statistics, gathered one expert at a time.
 *
 *     each matrix  -> mox_lint_measure: a hash of its codes, amax, rms, global and static activation scale
 *     all experts  -> columns[H]: energy of the columns of gate and up; pairs of logarithms for correlations
 */
#ifndef MOX_LINT_MEASURE_H
#define MOX_LINT_MEASURE_H

#include "lint/lint_layer.h"

typedef struct mox_lint_measure {
    bool present;
    bool comparable;               /* scales and globals are fine, so amax and rms mean something */
    bool constant;                 /* all codes are the same */
    uint64_t hash;                 /* of the codes */
    uint64_t not_finite, vanished; /* weights that are NaN or infinite; that a zero scale makes zero */
    uint64_t imprecise;            /* weights other than zero whose scale is subnormal */
    double amax, rms;
    double global; /* 0: none */
    double input;  /* as stored; 0: none */
} mox_lint_measure;

/* One projection of one expert, as views. */
typedef struct mox_lint_view {
    const mox_lint_stored *stored;
    mox_part_place place;
    mox_lint_choice choice;
    moxie_matrix matrix;
    moxie_quant quant;
    double *row_energy, *col_energy; /* sums of squares, [N] and [K] */
} mox_lint_view;

/* A correlation coefficient in the making. */
typedef struct mox_lint_correlation {
    double n, xx, yy, xy; /* of deviations */
} mox_lint_correlation;

/* What lint_order.c compares; see there. */
enum { MOX_LINT_ORDERS = 4 };

/* One layer: measures by projection and expert, and what crosses experts. */
typedef struct mox_lint_measures {
    mox_lint_layer *layer;
    mox_arena arena;
    mox_lint_measure *of[MOX_LINT_PROJECTIONS]; /* [E + 1] each; the last is the shared expert's */
    double *columns;                            /* [width] energy of the columns of gate and up over all experts */
    mox_lint_correlation order[MOX_LINT_ORDERS], up_down, gate_down;
    int32_t per_word; /* codes of gate and up in a word, along `words_of_rows`; 0 or 1: no words */
    bool words_of_rows;
} mox_lint_measures;

/* Reads every code: fills `out`, row_energy and col_energy. False when out of memory. */
bool mox_lint_measure_matrix(const mox_lint_view *view, mox_lint_measure *out);
/* Checks of one matrix, each of which may clear out->comparable. */
void mox_lint_scales(mox_lint_layer *layer, const mox_lint_view *view, mox_lint_measure *out);
void mox_lint_input(mox_lint_layer *layer, const mox_lint_view *view, mox_lint_measure *out);
void mox_lint_weights(mox_lint_layer *layer, const mox_lint_view *view, const mox_lint_measure *measure);
/* Adds an expert to the correlations. */
void mox_lint_order_expert(mox_lint_measures *m, const mox_lint_view views[MOX_LINT_PROJECTIONS]);
/* Checks that compare experts of a layer, when all were measured. */
void mox_lint_globals(const mox_lint_measures *m);
void mox_lint_inputs(const mox_lint_measures *m);
void mox_lint_experts(const mox_lint_measures *m);
void mox_lint_order(const mox_lint_measures *m);
/* The router's numbers. */
void mox_lint_router_numbers(mox_lint_layer *layer);

/* Entry i of `of`: expert i, or the shared one. */
mox_lint_choice mox_lint_choice_of(const mox_lint_measures *m, int64_t i, mox_lint_projection projection);
/* The smallest normal magnitude of a type of scales: those below it are stored with fewer bits. */
double mox_lint_min_normal(const mox_format *format);
/* "expert 3" or "the shared expert". Returns `buffer`. */
const char *mox_lint_who(mox_lint_choice choice, char *buffer, size_t size);
/* Where a finding about a projection of an expert is. */
mox_lint_where mox_lint_where_of(const mox_lint_layer *layer, mox_lint_choice choice, mox_part_role role);

#endif
