/* SPDX-License-Identifier: Apache-2.0
 *
 * weights_compare.c - compares two sets of weights element by element (weights_compare.h).
 *
 * Codes are compared as bits. Everything else (scales, zero points, globals, biases) is compared by value. A row that
 * is contiguous in both sets is skipped when its bytes are equal.
 */
#include "layer/weights/weights_compare.h"

#include "base/sizes.h"
#include "layer/config/struct_size.h"
#include "layer/weights/weights_check.h"

/* The result so far, and which matrix is being compared. */
typedef struct comparison {
    moxie_weights_difference out;
    int64_t expert; /* -1: not a routed expert */
    bool expert_differs;
    const char *projection;
    const moxie_quant *quant;
} comparison;

/* Counts a difference, and keeps the place of the first one. */
static void note(comparison *state, const char *part, int64_t row, int64_t column, int64_t row_block,
                 int64_t column_block)
{
    if (state->out.count++ == 0) {
        state->out.expert = state->expert;
        state->out.projection = state->projection;
        state->out.part = part;
        state->out.row = row;
        state->out.column = column;
        state->out.row_block = row_block;
        state->out.column_block = column_block;
    }
    state->expert_differs = true;
}

/* Bytes of a contiguous row; 0: rows are not contiguous. */
static uint64_t row_bytes(const moxie_grid *g)
{
    const moxie_packing *p = &g->packing;
    if (p->along_rows || g->col_stride != p->word_bytes)
        return 0;
    return (uint64_t)(mox_ceil_div(g->cols, p->per_word) * p->word_bytes);
}

static bool rows_are_equal(const moxie_grid *a, const moxie_grid *b, int64_t r)
{
    const uint64_t bytes = row_bytes(a);
    return bytes > 0 && bytes == row_bytes(b) && a->dtype == b->dtype &&
           memcmp(&a->packing, &b->packing, sizeof a->packing) == 0 &&
           memcmp((const char *)a->data + r * a->row_stride, (const char *)b->data + r * b->row_stride, bytes) == 0;
}

static bool numbers_differ(double a, double b)
{
    return a != b && !(isnan(a) && isnan(b));
}

static void compare_codes(comparison *state, const moxie_matrix *a, const moxie_matrix *b)
{
    const int64_t group_rows = mox_group_rows(state->quant, a->codes.rows);
    for (int64_t r = 0; r < a->codes.rows; r++) {
        if (rows_are_equal(&a->codes, &b->codes, r))
            continue;
        for (int64_t c = 0; c < a->codes.cols; c++)
            if (mox_grid_code(&a->codes, r, c) != mox_grid_code(&b->codes, r, c))
                note(state, "codes", r, c, r / group_rows, mox_matrix_group(a, state->quant, c));
    }
}

/* A companion grid of the matrix. `in_groups`: it has one element a group of the matrix, else one a row. */
static void compare_values(comparison *state, const char *part, const moxie_grid *a, const moxie_grid *b, double add_a,
                           double add_b, bool in_groups)
{
    const int64_t group_rows = in_groups ? 1 : mox_group_rows(state->quant, a->rows);
    if (a->data == NULL || b->data == NULL)
        return;
    for (int64_t r = 0; r < a->rows; r++) {
        if (add_a == add_b && rows_are_equal(a, b, r))
            continue;
        for (int64_t c = 0; c < a->cols; c++)
            if (numbers_differ(mox_grid_value(a, r, c) + add_a, mox_grid_value(b, r, c) + add_b))
                note(state, part, r, c, r / group_rows, in_groups ? c : 0);
    }
}

static void compare_groups(comparison *state, const moxie_matrix *a, const moxie_matrix *b)
{
    if (a->group_index == NULL && b->group_index == NULL)
        return;
    for (int64_t c = 0; c < a->codes.cols; c++) {
        const int64_t group = mox_matrix_group(a, state->quant, c);
        if (group != mox_matrix_group(b, state->quant, c))
            note(state, "group index", 0, c, 0, group);
    }
}

static void compare_matrix(comparison *state, const char *projection, const moxie_quant *quant, const moxie_matrix *a,
                           const moxie_matrix *b)
{
    state->projection = projection;
    state->quant = quant;
    compare_codes(state, a, b);
    compare_groups(state, a, b);
    compare_values(state, "scale", &a->scale, &b->scale, 0, 0, true);
    compare_values(state, "zero", &a->zero, &b->zero, a->zero_add, b->zero_add, true);
    compare_values(state, "global", &a->global, &b->global, 0, 0, false);
    compare_values(state, "bias", &a->bias, &b->bias, 0, 0, false);
}

static void compare_input_scale(comparison *state, const char *projection, float a, float b)
{
    state->projection = projection;
    if (numbers_differ(a, b))
        note(state, "input scale", 0, 0, 0, 0);
}

static void compare_expert(comparison *state, const mox_record_shape *shape, const char *const names[3],
                           const moxie_expert *a, const moxie_expert *b)
{
    if (shape->gated)
        compare_matrix(state, names[0], &shape->w13, &a->gate, &b->gate);
    compare_matrix(state, names[1], &shape->w13, &a->up, &b->up);
    compare_matrix(state, names[2], &shape->w2, &a->down, &b->down);
    compare_input_scale(state, names[1], a->a13_scale, b->a13_scale);
    compare_input_scale(state, names[2], a->a2_scale, b->a2_scale);
}

static void compare_plain(comparison *state, const char *name, const moxie_matrix *a, const moxie_matrix *b)
{
    const moxie_quant plain = { .element = a->codes.dtype };
    if (a->codes.dtype == b->codes.dtype) {
        compare_matrix(state, name, &plain, a, b);
        return;
    }
    state->projection = name;
    state->quant = &plain;
    compare_values(state, "codes", &a->codes, &b->codes, 0, 0, false);
    compare_values(state, "bias", &a->bias, &b->bias, 0, 0, false);
}

moxie_status mox_weights_compare(const moxie_layer_config *config, const moxie_weights *a, const moxie_weights *b,
                                 moxie_weights_difference *out, moxie_error *error)
{
    static const char *const routed[3] = { "gate", "up", "down" };
    static const char *const shared[3] = { "shared gate", "shared up", "shared down" };
    moxie_layer_config c;
    moxie_weights wa, wb;
    MOX_TRY(mox_config_read(config, &c, error));
    MOX_TRY(mox_struct_read(a, &wa, MOX_STRUCT(moxie_weights), error));
    MOX_TRY(mox_struct_read(b, &wb, MOX_STRUCT(moxie_weights), error));
    MOX_TRY(mox_weights_check(&c, &wa, NULL, false, error));
    MOX_TRY(mox_weights_check(&c, &wb, NULL, false, error));

    comparison state = { .out = { .expert = -1, .projection = "", .part = "" } };
    const mox_record_shape routed_shape = mox_config_routed_shape(&c), shared_shape = mox_config_shared_shape(&c);
    for (state.expert = 0; state.expert < c.experts; state.expert++) {
        state.expert_differs = false;
        compare_expert(&state, &routed_shape, routed, &wa.experts[state.expert], &wb.experts[state.expert]);
        state.out.experts += state.expert_differs;
    }
    state.expert = -1;
    if (mox_config_computes_shared(&c, false)) {
        compare_expert(&state, &shared_shape, shared, wa.shared, wb.shared);
        if (c.shared.has_gate)
            compare_plain(&state, "shared expert gate", &wa.shared_gate, &wb.shared_gate);
    }
    if (c.router_width > 0)
        compare_plain(&state, "router", &wa.router, &wb.router);
    if (c.router_norm.has_weight)
        compare_plain(&state, "router norm", &wa.router_norm, &wb.router_norm);
    if (c.expert_norm.has_weight)
        compare_plain(&state, "expert norm", &wa.expert_norm, &wb.expert_norm);
    *out = state.out;
    return MOXIE_OK;
}
