/* SPDX-License-Identifier: Apache-2.0
 *
 * lint_measure.c - one pass over the codes of a matrix.
 *
 *     w[n,k] = (value(code) - zero) * scale * global        per row: codes -> values -> sums
 *
 * Rows whose words lie next to each other are taken apart word by word; all other packings go element by element.
 */
#include "lint/lint_measure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "base/memory.h"

/* One row at a time. */
typedef struct row_buffers {
    uint32_t *codes;      /* [K] */
    bool *subnormal;      /* [groups] */
    double *scale, *zero; /* [groups]; scale includes the global one */
    const float *table;   /* of elements up to 8 bits, else NULL */
    const mox_format *element;
    int64_t groups, group_cols;
    double min_normal; /* of scales; 0: there are none */
} row_buffers;

static bool words_in_a_row(const moxie_grid *g)
{
    return !g->packing.along_rows && g->packing.order == MOXIE_ORDER_LINEAR && g->col_stride == g->packing.word_bytes &&
           g->packing.word_bytes <= 8;
}

static void read_codes(const moxie_grid *g, int64_t r, uint32_t *codes)
{
    if (!words_in_a_row(g)) {
        for (int64_t c = 0; c < g->cols; c++)
            codes[c] = mox_grid_code(g, r, c);
        return;
    }
    const uint8_t *from = (const uint8_t *)g->data + r * g->row_stride;
    const int32_t bits = mox_dtype_bits(g->dtype), bytes = g->packing.word_bytes, each = g->packing.per_word;
    const uint64_t mask = (UINT64_C(1) << bits) - 1;
    for (int64_t c = 0; c < g->cols; from += bytes) {
        uint64_t word = 0;
        for (int32_t b = 0; b < bytes; b++)
            word |= (uint64_t)from[b] << (8 * b);
        for (int32_t i = 0; i < each && c < g->cols; i++, c++)
            codes[c] = (uint32_t)(word >> (i * bits) & mask);
    }
}

static double global_of(const mox_lint_view *v, int64_t r)
{
    const moxie_grid *g = &v->matrix.global;
    if (!g->data)
        return 1;
    const double value = mox_grid_value(g, g->rows > 1 ? r : 0, 0);
    return v->quant.global == MOXIE_GLOBAL_DIVIDE ? 1 / value : value;
}

double mox_lint_min_normal(const mox_format *format)
{
    /* E8M0 has no subnormals of its own, but its lowest code is one in f32. */
    return format->kind == MOX_KIND_EXPONENT ? 0x1p-126 : (double)format->min_normal;
}

static void read_scales(const mox_lint_view *v, int64_t r, row_buffers *b)
{
    const moxie_matrix *m = &v->matrix;
    const int64_t row = r / mox_group_rows(&v->quant, m->codes.rows);
    const double global = global_of(v, r);
    for (int64_t g = 0; g < b->groups; g++) {
        const double scale = m->scale.data ? mox_grid_value(&m->scale, row, g) : 1;
        b->scale[g] = scale * global;
        b->subnormal[g] = scale != 0 && fabs(scale) < b->min_normal;
        b->zero[g] = m->zero.data ? mox_grid_value(&m->zero, row, g) + (double)m->zero_add : 0;
    }
}

static void sum_row(const mox_lint_view *v, int64_t r, const row_buffers *b, mox_lint_measure *out)
{
    double energy = 0;
    for (int64_t c = 0; c < v->matrix.codes.cols; c++) {
        const int64_t g = v->matrix.group_index ? v->matrix.group_index[c] : c / b->group_cols;
        const double element = b->table ? (double)b->table[b->codes[c]] : (double)b->element->decode(b->codes[c]);
        const double q = element - b->zero[g], w = q * b->scale[g];
        out->not_finite += !isfinite(element);
        out->vanished += b->scale[g] == 0 && q != 0;
        out->imprecise += b->subnormal[g] && q != 0;
        if (!isfinite(w))
            continue;
        energy += w * w;
        v->col_energy[c] += w * w;
        out->amax = fmax(out->amax, fabs(w));
    }
    v->row_energy[r] = energy;
    out->rms += energy;
}

static bool all_equal(const uint32_t *codes, int64_t count, uint32_t first)
{
    for (int64_t i = 0; i < count; i++)
        if (codes[i] != first)
            return false;
    return true;
}

static void measure_rows(const mox_lint_view *v, row_buffers *b, mox_lint_measure *out)
{
    const moxie_grid *codes = &v->matrix.codes;
    uint32_t first = 0;
    out->constant = codes->rows * codes->cols > 1;
    for (int64_t r = 0; r < codes->rows; r++) {
        read_codes(codes, r, b->codes);
        first = r == 0 ? b->codes[0] : first;
        out->constant = out->constant && all_equal(b->codes, codes->cols, first);
        const uint64_t both[2] = { out->hash, mox_checksum(b->codes, (uint64_t)codes->cols * sizeof *b->codes) };
        out->hash = mox_checksum(both, sizeof both);
        read_scales(v, r, b);
        sum_row(v, r, b, out);
    }
    out->rms = sqrt(out->rms / (double)(codes->rows * codes->cols));
}

bool mox_lint_measure_matrix(const mox_lint_view *v, mox_lint_measure *out)
{
    const int64_t cols = v->matrix.codes.cols;
    row_buffers b = { .group_cols = mox_group_cols(&v->quant, cols), .groups = mox_scale_cols(&v->quant, cols) };
    b.element = mox_format_of(v->matrix.codes.dtype);
    b.table = mox_format_table(v->matrix.codes.dtype);
    b.codes = mox_calloc((uint64_t)cols, sizeof *b.codes);
    b.scale = mox_calloc((uint64_t)b.groups, sizeof *b.scale);
    b.zero = mox_calloc((uint64_t)b.groups, sizeof *b.zero);
    b.subnormal = mox_calloc((uint64_t)b.groups, sizeof *b.subnormal);
    const mox_format *scales = v->matrix.scale.data ? mox_format_of(v->matrix.scale.dtype) : NULL;
    b.min_normal = scales ? mox_lint_min_normal(scales) : 0;
    const bool fine = b.codes && b.scale && b.zero && b.subnormal;
    if (fine && b.element) {
        out->present = out->comparable = true;
        measure_rows(v, &b, out);
    }
    mox_free(b.codes);
    mox_free(b.scale);
    mox_free(b.zero);
    mox_free(b.subnormal);
    return fine;
}

mox_lint_choice mox_lint_choice_of(const mox_lint_measures *m, int64_t i, mox_lint_projection projection)
{
    return (mox_lint_choice) { i < m->layer->reader.dims.experts ? i : -1, projection };
}

const char *mox_lint_who(mox_lint_choice choice, char *buffer, size_t size)
{
    if (choice.expert < 0)
        snprintf(buffer, size, "the shared expert");
    else
        snprintf(buffer, size, "expert %lld", (long long)choice.expert);
    return buffer;
}

mox_lint_where mox_lint_where_of(const mox_lint_layer *l, mox_lint_choice choice, mox_part_role role)
{
    mox_part_place place;
    mox_part_rows rows;
    const mox_lint_stored *s = mox_lint_find_stored(l, choice, &place, &rows);
    const mox_file_tensor *tensor = s ? mox_lint_part(s, role) : NULL;
    return tensor ? mox_lint_at(l->lint, l->layer, tensor) : (mox_lint_where) { .layer = l->layer };
}
