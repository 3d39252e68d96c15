/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_store.c - codes, scales and zero points of one matrix as the bytes of a tensor, in any packing of
 * hf_quant.def.
 */
#include <string.h>

#include "base/sizes.h"
#include "ckpt/quantize/quantize_matrix.h"
#include "quant/grid_place.h"

/* ---- codes ------------------------------------------------------------------------------------------- */

/* Words along a row, low bits first: the packing of most tensors. Words may lie apart from each other. */
static void store_words(const moxie_grid *grid, uint8_t *out, int64_t n, const uint8_t *codes)
{
    const int32_t per_word = grid->packing.per_word, bytes = grid->packing.word_bytes;
    const int32_t bits = mox_dtype_bits(grid->dtype);
    for (int64_t i = 0; i < n; i += per_word) {
        uint64_t word = 0;
        const int32_t count = (int32_t)mox_min_i64(per_word, n - i);
        for (int32_t j = 0; j < count; j++)
            word |= (uint64_t)codes[i + j] << (j * bits);
        for (int32_t b = 0; b < bytes; b++)
            out[b] = (uint8_t)(word >> (8 * b));
        out += grid->col_stride;
    }
}

/* Pairs of nibbles: the same as words of eight, but for the last. */
static void store_nibbles(uint8_t *restrict out, int64_t n, const uint8_t *restrict codes)
{
    for (int64_t i = 0; i + 1 < n; i += 2)
        out[i / 2] = (uint8_t)(codes[i] | codes[i + 1] << 4);
    if (n % 2 != 0)
        out[n / 2] = codes[n - 1];
}

enum { WORDS_AT_ONCE = 1024 };

/* Words down the rows: rows [r, r + count) of codes fill one row of words. */
static void store_words_down(const moxie_grid *grid, int64_t r, int64_t count, const uint8_t *codes)
{
    const int32_t bits = mox_dtype_bits(grid->dtype), bytes = grid->packing.word_bytes;
    uint8_t *out = (uint8_t *)(uintptr_t)grid->data + r / grid->packing.per_word * grid->row_stride;
    uint32_t words[WORDS_AT_ONCE];
    for (int64_t c = 0; c < grid->cols; c += WORDS_AT_ONCE) {
        const int64_t n = mox_min_i64(WORDS_AT_ONCE, grid->cols - c);
        memset(words, 0, sizeof words);
        for (int64_t i = 0; i < count; i++) {
            const uint8_t *row = codes + i * grid->cols + c;
            const int32_t shift = mox_word_slot(&grid->packing, (int32_t)i) * bits;
            for (int64_t j = 0; j < n; j++)
                words[j] |= (uint32_t)row[j] << shift;
        }
        for (int64_t j = 0; j < n; j++)
            for (int32_t b = 0; b < bytes; b++)
                out[(c + j) * grid->col_stride + b] = (uint8_t)(words[j] >> (8 * b));
    }
}

static void store_row(const moxie_grid *grid, int64_t r, const uint8_t *codes)
{
    const moxie_packing p = grid->packing;
    const int32_t bits = mox_dtype_bits(grid->dtype);
    uint8_t *out = (uint8_t *)(uintptr_t)grid->data + r * grid->row_stride;
    if (p.order == MOX_ORDER_STREAM)
        for (int64_t c = 0; c < grid->cols; c++)
            mox_grid_store(grid, r, c, codes[c]);
    else if (bits == 8 && p.per_word == p.word_bytes && grid->col_stride == p.word_bytes)
        memcpy(out, codes, (size_t)grid->cols);
    else if (bits == 4 && p.per_word == 2 * p.word_bytes && grid->col_stride == p.word_bytes)
        store_nibbles(out, grid->cols, codes);
    else
        store_words(grid, out, grid->cols, codes);
}

/* Plain floats are narrowed from the weights themselves. */
static void store_plain(const mox_quantize_matrix *m, const moxie_grid *grid)
{
    const mox_format *format = mox_format_of(grid->dtype);
    const int32_t bytes = mox_dtype_bytes(grid->dtype);
    for (int64_t r = 0; r < m->rows; r++) {
        int32_t projection;
        int64_t row;
        const float *w = mox_quantize_row(m, r, &projection, &row);
        if (grid->col_stride == bytes)
            mox_narrow(grid->dtype, w, (uint8_t *)(uintptr_t)grid->data + r * grid->row_stride, m->cols);
        else
            for (int64_t c = 0; c < m->cols; c++)
                mox_grid_store(grid, r, c, format->encode(w[c]));
    }
}

static void store_codes(const mox_quantize_matrix *m, const moxie_grid *grid)
{
    if (mox_quant_is_plain(&m->rule.quant)) {
        store_plain(m, grid);
        return;
    }
    const moxie_packing p = grid->packing;
    const int64_t step = p.along_rows && p.order != MOX_ORDER_STREAM ? p.per_word : 1;
    for (int64_t r = 0; r < m->rows; r += step) {
        const uint8_t *codes = m->codes + r * m->cols;
        if (step > 1)
            store_words_down(grid, r, mox_min_i64(step, m->rows - r), codes);
        else
            store_row(grid, r, codes);
    }
}

/* ---- the other parts --------------------------------------------------------------------------------- */

static uint32_t group_code(const mox_quantize_matrix *m, const mox_part *part, const mox_format *format, int64_t at)
{
    return format->encode(part->role == MOX_PART_SCALE ? m->scale[at] : m->zero[at] - m->how->format->zero_add);
}

static void store_groups(const mox_quantize_matrix *m, const mox_part *part, const moxie_grid *grid)
{
    const mox_format *format = mox_format_of(grid->dtype);
    for (int64_t r = 0; r < grid->rows; r++)
        for (int64_t c = 0; c < grid->cols; c++)
            mox_grid_store(grid, r, c, group_code(m, part, format, r * grid->cols + c));
}

float mox_quantize_input_scale(const moxie_quant *act, double amax)
{
    const bool blocks = act->global != MOXIE_GLOBAL_NONE && act->scale != MOXIE_DTYPE_NONE;
    const double largest =
        (double)mox_format_of(act->element)->max * (blocks ? (double)mox_format_of(act->scale)->max : 1.0);
    return (float)(act->global == MOXIE_GLOBAL_DIVIDE ? largest / amax : amax / largest);
}

static void store_constant(const moxie_grid *grid, float value)
{
    const uint32_t code = mox_format_of(grid->dtype)->encode(value);
    for (int64_t r = 0; r < grid->rows; r++)
        mox_grid_store(grid, r, 0, code);
}

/* Integers as such: groups of columns, or the matrix' shape. */
static void store_numbers(const mox_quantize_matrix *m, const mox_part *part, const moxie_grid *grid)
{
    const int64_t group_cols = mox_group_cols(&m->rule.quant, m->cols);
    for (int64_t c = 0; c < grid->cols; c++) {
        const uint64_t number = (uint64_t)(part->role == MOX_PART_GROUP_INDEX ? c / group_cols
                                           : c == 0                           ? m->rows
                                                                              : m->cols);
        uint8_t *out = (uint8_t *)(uintptr_t)grid->data + c * grid->col_stride;
        for (int32_t b = 0; b < grid->packing.word_bytes; b++)
            out[b] = (uint8_t)(number >> (8 * b));
    }
}

moxie_status mox_quantize_store(const mox_quantize_matrix *m, const mox_tensor_spec *spec, uint8_t *out, uint64_t bytes,
                                moxie_error *error)
{
    moxie_grid grid;
    MOX_TRY(mox_spec_grid(spec, NULL, 0, &grid, error));
    grid.data = out;
    memset(out, 0, (size_t)bytes);
    switch (spec->part->role) {
    case MOX_PART_CODES: store_codes(m, &grid); break;
    case MOX_PART_SCALE:
    case MOX_PART_ZERO: store_groups(m, spec->part, &grid); break;
    case MOX_PART_GLOBAL: store_constant(&grid, m->global); break;
    case MOX_PART_INPUT_SCALE:
        store_constant(&grid, mox_quantize_input_scale(&m->how->format->act, m->input_amax));
        break;
    default: store_numbers(m, spec->part, &grid); break;
    }
    return MOXIE_OK;
}
