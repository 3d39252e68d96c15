/* SPDX-License-Identifier: Apache-2.0
 *
 * weights_compare.c - two sets of weights of one configuration, element by element: where they first differ, and how
 * much. What lies differently but means the same (another packing, another stride) is equal.
 *
 * Codes are compared as bits, everything that enters as a number (scales, zero points, globals, biases) by value.
 * Rows that are contiguous in both are skipped when their bytes agree.
 */
#include "base/sizes.h"
#include "layer/check/check.h"
#include "layer/config/struct_size.h"

/* Where the walk is. */
typedef struct walk {
    moxie_weights_difference out;
    int64_t expert; /* -1: not a routed expert */
    bool expert_differs;
    const char *projection;
    const moxie_quant *quant;
} walk;

static void note(walk *w, const char *part, int64_t row, int64_t column, int64_t row_block, int64_t column_block)
{
    if (w->out.count++ == 0) {
        w->out.expert = w->expert;
        w->out.projection = w->projection;
        w->out.part = part;
        w->out.row = row;
        w->out.column = column;
        w->out.row_block = row_block;
        w->out.column_block = column_block;
    }
    w->expert_differs = true;
}

/* Bytes of a row that lies in one piece, 0 otherwise. */
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

static void compare_codes(walk *w, const moxie_matrix *a, const moxie_matrix *b)
{
    const int64_t group_rows = mox_group_rows(w->quant, a->codes.rows);
    for (int64_t r = 0; r < a->codes.rows; r++) {
        if (rows_are_equal(&a->codes, &b->codes, r))
            continue;
        for (int64_t c = 0; c < a->codes.cols; c++)
            if (mox_grid_code(&a->codes, r, c) != mox_grid_code(&b->codes, r, c))
                note(w, "codes", r, c, r / group_rows, mox_matrix_group(a, w->quant, c));
    }
}

/* A companion grid; its elements are numbered in groups already, or in rows of the matrix. */
static void compare_values(walk *w, const char *part, const moxie_grid *a, const moxie_grid *b, double add_a,
                           double add_b, bool in_groups)
{
    const int64_t group_rows = in_groups ? 1 : mox_group_rows(w->quant, a->rows);
    if (a->data == NULL || b->data == NULL)
        return;
    for (int64_t r = 0; r < a->rows; r++) {
        if (add_a == add_b && rows_are_equal(a, b, r))
            continue;
        for (int64_t c = 0; c < a->cols; c++)
            if (numbers_differ(mox_grid_value(a, r, c) + add_a, mox_grid_value(b, r, c) + add_b))
                note(w, part, r, c, r / group_rows, in_groups ? c : 0);
    }
}

static void compare_groups(walk *w, const moxie_matrix *a, const moxie_matrix *b)
{
    if (a->group_index == NULL && b->group_index == NULL)
        return;
    for (int64_t c = 0; c < a->codes.cols; c++) {
        const int64_t group = mox_matrix_group(a, w->quant, c);
        if (group != mox_matrix_group(b, w->quant, c))
            note(w, "group index", 0, c, 0, group);
    }
}

static void compare_matrix(walk *w, const char *projection, const moxie_quant *quant, const moxie_matrix *a,
                           const moxie_matrix *b)
{
    w->projection = projection;
    w->quant = quant;
    compare_codes(w, a, b);
    compare_groups(w, a, b);
    compare_values(w, "scale", &a->scale, &b->scale, 0, 0, true);
    compare_values(w, "zero", &a->zero, &b->zero, a->zero_add, b->zero_add, true);
    compare_values(w, "global", &a->global, &b->global, 0, 0, false);
    compare_values(w, "bias", &a->bias, &b->bias, 0, 0, false);
}

static void compare_input_scale(walk *w, const char *projection, float a, float b)
{
    w->projection = projection;
    if (numbers_differ(a, b))
        note(w, "input scale", 0, 0, 0, 0);
}

static void compare_expert(walk *w, const mox_record_shape *shape, const char *const names[3], const moxie_expert *a,
                           const moxie_expert *b)
{
    if (shape->gated)
        compare_matrix(w, names[0], &shape->w13, &a->gate, &b->gate);
    compare_matrix(w, names[1], &shape->w13, &a->up, &b->up);
    compare_matrix(w, names[2], &shape->w2, &a->down, &b->down);
    compare_input_scale(w, names[1], a->a13_scale, b->a13_scale);
    compare_input_scale(w, names[2], a->a2_scale, b->a2_scale);
}

static void compare_plain(walk *w, const char *name, const moxie_matrix *a, const moxie_matrix *b)
{
    const moxie_quant plain = { .element = a->codes.dtype };
    if (a->codes.dtype == b->codes.dtype) {
        compare_matrix(w, name, &plain, a, b);
        return;
    }
    w->projection = name;
    w->quant = &plain;
    compare_values(w, "codes", &a->codes, &b->codes, 0, 0, false);
    compare_values(w, "bias", &a->bias, &b->bias, 0, 0, false);
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
    MOX_TRY(mox_weights_check(&c, &wa, NULL, error));
    MOX_TRY(mox_weights_check(&c, &wb, NULL, error));

    walk w = { .out = { .expert = -1, .projection = "", .part = "" } };
    const mox_record_shape routed_shape = mox_config_routed_shape(&c), shared_shape = mox_config_shared_shape(&c);
    for (w.expert = 0; w.expert < c.experts; w.expert++) {
        w.expert_differs = false;
        compare_expert(&w, &routed_shape, routed, &wa.experts[w.expert], &wb.experts[w.expert]);
        w.out.experts += w.expert_differs;
    }
    w.expert = -1;
    if (mox_config_computes_shared(&c)) {
        compare_expert(&w, &shared_shape, shared, wa.shared, wb.shared);
        if (c.shared.has_gate)
            compare_plain(&w, "shared expert gate", &wa.shared_gate, &wb.shared_gate);
    }
    if (c.router_width > 0)
        compare_plain(&w, "router", &wa.router, &wb.router);
    *out = w.out;
    return MOXIE_OK;
}
