/* SPDX-License-Identifier: Apache-2.0
 *
 * fused_product.c - what one task of a phase computes: some blocks of one expert's product, for all its rows (fused.h).
 *
 *     block = two panels; for gated W13 16 rows of the gate and the same 16 rows of up
 *
 *     first:    rows x block -> sums c [rows, 32] -> globals, bias -> glu -> activations of the second product
 *     second:   rows x block -> sums c [rows, 32] -> globals, bias -> y
 *
 * Rows are multiplied in runs of MOX_PANEL_BLOCK, so that a run's activations stay in the second-level cache for all
 * blocks of the task.
 *
 * The rows of y are often a power of two apart, so the lines of one block share a few sets of the caches. Where y is
 * larger than the caches, it is stored past them.
 */
#include "base/sizes.h"
#include "base/stream.h"
#include "cpu/expert_gemm/panel_activations.h"
#include "cpu/fused/fused.h"

enum { WIDTH = 2 * MOX_PANEL_ROWS };

/* Rows [row, row + count) of an item, as a kernel's argument. */
static mox_panel_rows rows_of(const mox_fused_product *product, const mox_fused_activations *acts,
                              const mox_fused_item *item, int64_t row, int64_t count)
{
    return (mox_panel_rows) { .rows = count,
                              .data = (const uint8_t *)acts->data + (uint64_t)(item->first + row) * product->row_bytes,
                              .scales = product->scaling == MOX_ACT_GROUPED
                                            ? acts->scales + (item->first + row) * product->groups
                                            : NULL,
                              .scale_stride = product->groups,
                              .group_cols = product->group_cols };
}

/* True when the kernel's sums lack nothing but the scales of their rows, and biases. */
static bool is_plain(const mox_fused_activations *acts, const mox_panel_matrix *m)
{
    return acts->global == NULL && m->global == NULL;
}

/* The scales of the rows from pair `first` on that the sums lack; NULL: none. */
static const float *row_scale_of(const mox_fused_product *product, const mox_fused_activations *acts, int64_t first)
{
    return product->scaling == MOX_ACT_BY_ROW ? acts->row_scale + first : NULL;
}

/* Scales rows of `count` columns of the sums c [rows, 32], and adds biases; each may be NULL. */
static void scale_rows(const float *row_scale, const float *bias, int64_t count, int64_t rows, float *c)
{
    for (int64_t r = 0; row_scale != NULL && r < rows; r++)
        for (int64_t n = 0; n < count; n++)
            c[r * WIDTH + n] *= row_scale[r];
    for (int64_t r = 0; bias != NULL && r < rows; r++)
        for (int64_t n = 0; n < count; n++)
            c[r * WIDTH + n] += bias[n];
}

/* Finishes the sums c [rows, 32] of `panels` panels in place. */
static void finish(const mox_fused_product *product, const mox_fused_activations *acts, const mox_panel_matrix *m,
                   int64_t panel, int panels, int64_t first, int64_t rows, float *c)
{
    const float *row_scale = row_scale_of(product, acts, first);
    if (is_plain(acts, m)) {
        scale_rows(row_scale, m->bias != NULL ? m->bias + panel * MOX_PANEL_ROWS : NULL,
                   (int64_t)panels * MOX_PANEL_ROWS, rows, c);
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        const mox_panel_end end = { .scale = row_scale != NULL ? &row_scale[r] : NULL,
                                    .act_global = acts->global != NULL ? &acts->global[first + r] : NULL,
                                    .act_global_kind = product->act.global,
                                    .weight_global_kind = product->weight.global };
        for (int j = 0; j < panels; j++) {
            float *sums = c + r * WIDTH + j * MOX_PANEL_ROWS;
            mox_panel_finish(&end, m, panel + j, sums, sums);
        }
    }
}

/* Whether one of the rows has an adapter. */
static bool is_adapted(const mox_fused_part *part, const mox_fused_item *item, int64_t row, int64_t rows)
{
    const int64_t first = item->first + row;
    return part->lora != NULL && mox_lora_any(part->lora13, first, first + rows);
}

/* Adds the adapters of the rows to the sums c of `panels` panels. */
static void adapt(const mox_fused_part *part, const mox_lora_args *args, const mox_fused_item *item,
                  const mox_panel_matrix *m, int64_t panel, int panels, int64_t row, int64_t rows, float *c)
{
    const int64_t first = item->first + row;
    for (int j = 0; j < panels; j++) {
        int64_t column, count;
        mox_panel_place(m, panel + j, &column, &count);
        mox_lora_expand_pairs(part->lora, args, item->slot, first, first + rows, column, count, c + j * MOX_PANEL_ROWS,
                              WIDTH);
    }
}

/* ---- the first product --------------------------------------------------------------------------- */

static void trace_h(const mox_fused_part *part, const mox_panel_matrix *m, int64_t panel, int panels, int64_t first,
                    int64_t rows, const float *c)
{
    const int64_t width = m->gated ? 2 * m->rows : m->rows;
    for (int j = 0; j < panels; j++) {
        int64_t column, count;
        mox_panel_place(m, panel + j, &column, &count);
        for (int64_t r = 0; r < rows; r++)
            memcpy(part->h + (first + r) * width + column, c + r * WIDTH + j * MOX_PANEL_ROWS,
                   (size_t)count * sizeof *c);
    }
}

/* Stores `count` activations of each row from column `column` on; values [rows, 16]. */
static void store(const mox_fused_part *part, const mox_fused_item *item, int64_t row, int64_t rows, int64_t column,
                  int64_t count, float *values)
{
    const mox_fused_product *next = part->second;
    uint8_t *data = (uint8_t *)part->a2.data + (uint64_t)item->first * next->row_bytes;
    const bool plain = mox_quant_is_none(&next->act) && part->own_act == NULL;
    float *const acts = part->own_act != NULL ? part->own_act : part->act;
    const int64_t stride = part->own_act != NULL ? mox_shape_rows13(part->shape) : next->cols;
    for (int64_t r = 0; r < rows; r++) {
        float *from = values + r * MOX_PANEL_ROWS;
        float *act = acts != NULL ? acts + (item->first + row + r) * stride + column : NULL;
        /* A constant size, because a call would cost as much as the copy. */
        if (act != NULL && count == MOX_PANEL_ROWS)
            memcpy(act, from, MOX_PANEL_ROWS * sizeof *from);
        else if (act != NULL)
            memcpy(act, from, (size_t)count * sizeof *from);
        if (!plain)
            continue;
        if (item->place2 != NULL) {
            for (int64_t n = 0; n < count; n++)
                from[n] = mox_round_to(next->dtype, from[n]);
            mox_act_order_scatter(next->order, data, item->rows, next->cols, row + r, item->place2 + column, count,
                                  from);
            continue;
        }
        /* The kernel reads whole panels: zeros behind the last column. */
        for (int64_t n = count; n < MOX_PANEL_ROWS; n++)
            from[n] = 0.0f;
        void *to = mox_act_order_at(next->order, data, item->rows, next->cols, row + r, column);
        if (next->order == MOX_ACT_ORDER_BF16)
            mox_narrow(MOXIE_BF16, from, to, MOX_PANEL_ROWS);
        else
            for (int64_t n = 0; n < MOX_PANEL_ROWS; n++)
                ((float *)to)[n] = mox_round_to(next->dtype, from[n]);
    }
}

/* Zeros up to the end of the last step, where no panel of the first product writes them: its second half, or all
 * behind the last column when columns are permuted. */
static void pad(const mox_fused_part *part, const mox_fused_item *item, int64_t row, int64_t rows)
{
    const mox_fused_product *next = part->second;
    const int64_t end = item->place2 != NULL ? next->cols : mox_ceil_div(next->cols, MOX_PANEL_ROWS) * MOX_PANEL_ROWS;
    const int64_t left = mox_ceil_div(end, MOX_PANEL_STEP) * MOX_PANEL_STEP - end;
    const size_t bytes = (size_t)(left * (next->order == MOX_ACT_ORDER_BF16 ? 2 : 4));
    uint8_t *data = (uint8_t *)part->a2.data + (uint64_t)item->first * next->row_bytes;
    if (left == 0 || !mox_quant_is_none(&next->act) || part->own_act != NULL)
        return;
    for (int64_t r = 0; r < rows; r++)
        memset(mox_act_order_at(next->order, data, item->rows, next->cols, row + r, end), 0, bytes);
}

/* Computes a tile of activations, and stores it for the second product, or where it will be quantized. */
static void activate_tile(const mox_fused_part *part, const mox_fused_item *item, mox_glu_tile tile, int64_t row,
                          int64_t column, int64_t count, const mox_fused_scratch_view *sc)
{
    const mox_fused_product *next = part->second;
    const int64_t rows = tile.rows;
    const bool direct =
        part->act == NULL && item->place2 == NULL && mox_quant_is_none(&next->act) && next->order == MOX_ACT_ORDER_BF16;
    if (!direct || count < MOX_PANEL_ROWS) {
        tile.out = sc->tile, tile.out_stride = MOX_PANEL_ROWS;
        part->glu->tile(&tile);
        store(part, item, row, rows, column, count, sc->tile);
        return;
    }
    uint8_t *data = (uint8_t *)part->a2.data + (uint64_t)item->first * next->row_bytes;
    tile.narrow_stride = MOX_PANEL_STEP;
    /* Sixteen rows of a step lie together. */
    for (int64_t r = 0; r < rows; r += 16, tile.gate += 16 * WIDTH, tile.up += 16 * WIDTH) {
        tile.rows = mox_min_i64(16, rows - r);
        tile.narrow = mox_act_order_at(next->order, data, item->rows, next->cols, row + r, column);
        part->glu->tile(&tile);
        tile.row_scale = tile.row_scale != NULL ? tile.row_scale + 16 : NULL;
    }
}

/* The activations of one block. `raw`: the sums still lack the scales of their rows, and biases. */
static void activate(const mox_fused_part *part, const mox_fused_item *item, const mox_panel_matrix *m, int64_t panel,
                     int panels, bool raw, int64_t row, int64_t rows, const mox_fused_scratch_view *sc)
{
    const float *bias = raw && m->bias != NULL ? m->bias + panel * MOX_PANEL_ROWS : NULL;
    const float *row_scale = raw ? row_scale_of(part->first, &part->a13, item->first + row) : NULL;
    const int64_t expert = part->expert_of != NULL ? part->expert_of[item->slot] : -1;
    for (int j = 0; j < (m->gated ? 1 : panels); j++) {
        int64_t column, count;
        mox_panel_place(m, panel + j, &column, &count);
        const mox_glu_tile tile = { .kind = part->activation->kind,
                                    .parameters = mox_glu_resolve(part->activation, expert),
                                    .rows = rows,
                                    .gate = sc->c + j * MOX_PANEL_ROWS,
                                    .up = sc->c + MOX_PANEL_ROWS,
                                    .stride = WIDTH,
                                    .row_scale = row_scale,
                                    .gate_bias = bias != NULL ? bias + j * MOX_PANEL_ROWS : NULL,
                                    .up_bias = bias != NULL ? bias + MOX_PANEL_ROWS : NULL };
        activate_tile(part, item, tile, row, column, count, sc);
    }
}

void mox_fused_first(const mox_fused_part *part, const mox_fused_item *item, int64_t first, int64_t last,
                     const mox_fused_scratch_view *sc)
{
    const mox_fused_product *product = part->first;
    mox_panel_record record;
    mox_panel_open(part->shape, part->records[item->slot], &record);
    const mox_panel_matrix *m = &record.w13;
    for (int64_t row = 0; row < item->rows; row += MOX_PANEL_BLOCK) {
        const int64_t rows = mox_min_i64(MOX_PANEL_BLOCK, item->rows - row);
        const bool adapted = is_adapted(part, item, row, rows);
        /* Unless the sums are traced or changed, glu finishes them as it reads them. */
        const bool raw = part->h == NULL && !adapted && is_plain(&part->a13, m);
        mox_panel_rows a = rows_of(product, &part->a13, item, row, rows);
        for (int64_t panel = 2 * first; panel < mox_min_i64(2 * last, m->count); panel += 2) {
            const int panels = panel + 1 < m->count ? 2 : 1;
            product->multiply(m, &product->weight, panel, panels, &a, sc->c, sc->kernel);
            a.again = true;
            if (!raw)
                finish(product, &part->a13, m, panel, panels, item->first + row, rows, sc->c);
            if (adapted)
                adapt(part, part->lora13, item, m, panel, panels, row, rows, sc->c);
            if (part->h != NULL)
                trace_h(part, m, panel, panels, item->first + row, rows, sc->c);
            activate(part, item, m, panel, panels, raw, row, rows, sc);
        }
        if (2 * last >= m->count)
            pad(part, item, row, rows);
    }
}

/* ---- the second product -------------------------------------------------------------------------- */

/* Stores `count` columns of the sums c [rows, 32] to rows of y that are `stride` numbers apart. */
static void store_y(bool stream, const float *c, int64_t rows, int64_t count, int64_t stride, float *y)
{
    const int64_t bytes = count * (int64_t)sizeof *c;
    for (int64_t r = 0; r < rows; r++, c += WIDTH, y += stride) {
        if (stream)
            mox_stream(y, c, bytes);
        else if (count == WIDTH) /* a constant size, because a call would cost as much as the copy */
            memcpy(y, c, WIDTH * sizeof *c);
        else
            memcpy(y, c, (size_t)bytes);
    }
}

void mox_fused_second(const mox_fused_part *part, const mox_fused_item *item, int64_t first, int64_t last, bool stream,
                      const mox_fused_scratch_view *sc)
{
    const mox_fused_product *product = part->second;
    mox_panel_record record;
    mox_panel_open(part->shape, part->records[item->slot], &record);
    const mox_panel_matrix *m = &record.w2;
    for (int64_t row = 0; row < item->rows; row += MOX_PANEL_BLOCK) {
        const int64_t rows = mox_min_i64(MOX_PANEL_BLOCK, item->rows - row);
        const bool adapted = is_adapted(part, item, row, rows);
        mox_panel_rows a = rows_of(product, &part->a2, item, row, rows);
        for (int64_t panel = 2 * first; panel < mox_min_i64(2 * last, m->count); panel += 2) {
            const int panels = panel + 1 < m->count ? 2 : 1;
            const int64_t column = panel * MOX_PANEL_ROWS, count = mox_min_i64(WIDTH, m->rows - column);
            product->multiply(m, &product->weight, panel, panels, &a, sc->c, sc->kernel);
            a.again = true;
            finish(product, &part->a2, m, panel, panels, item->first + row, rows, sc->c);
            if (adapted)
                adapt(part, part->lora2, item, m, panel, panels, row, rows, sc->c);
            store_y(stream, sc->c, rows, count, m->rows, part->y + (item->first + row) * m->rows + column);
        }
    }
}
