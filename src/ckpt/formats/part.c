/* SPDX-License-Identifier: Apache-2.0
 *
 * part.c - stored shape and strides of every part of a matrix M of N outputs and K inputs.
 *
 *     a part as the format defines it  [N', K']        in words: N' = N / per_word when packed along rows, else
 *                                                      K' = K / per_word
 *     transposed or in_out             [K', N']
 *     stacked                          [E, ...]
 *     scales and zero points           N, K replaced by the scale grid ceil(N / gr), ceil(K / gc)
 *     blocks (gpt-oss)                 [N, K / 32, 16]   the same bytes as [N, K / 2]
 *     groups with ones (ModelOpt)      [N', 1, K', 1]    the same bytes as [N', K']
 */
#include "ckpt/formats/part.h"

#include "base/sizes.h"

static int64_t word_bytes(const mox_part *part, moxie_dtype file)
{
    return part->packing.word_bytes ? part->packing.word_bytes : mox_dtype_bytes(file);
}

static int64_t per_word(const mox_part *part)
{
    return part->packing.per_word ? part->packing.per_word : 1;
}

moxie_dtype mox_part_value(const mox_part *part, moxie_dtype file)
{
    return part->value != MOXIE_DTYPE_NONE ? part->value : file;
}

static bool is_stream(const moxie_packing *packing)
{
    return packing->order == MOX_ORDER_STREAM;
}

/* Words that `count` elements along the packed axis take. */
static int64_t words_of(const mox_part *part, int64_t count)
{
    return is_stream(&part->packing) ? mox_stream_words(count, part->packing.per_word)
                                     : mox_ceil_div(count, per_word(part));
}

/* Elements along the packed axis that fill whole words. */
static int64_t word_multiple(const mox_part *part)
{
    return is_stream(&part->packing) ? 32 : per_word(part);
}

/* Elements of the part: rows and columns of its grid. */
static void part_extent(const mox_part *part, const moxie_quant *weight, int64_t n, int64_t k, int64_t *rows,
                        int64_t *cols)
{
    *rows = *cols = 1;
    switch (part->form) {
    case MOX_FORM_MATRIX:
    case MOX_FORM_BLOCKS: *rows = n, *cols = k; break;
    case MOX_FORM_GROUPS:
    case MOX_FORM_GROUPS_4D: *rows = mox_scale_rows(weight, n), *cols = mox_scale_cols(weight, k); break;
    case MOX_FORM_ROWS: *rows = n; break;
    case MOX_FORM_COLUMNS: *cols = k; break;
    case MOX_FORM_SCALAR: break;
    case MOX_FORM_PAIR: *cols = 2; break;
    }
}

/* Elements along an axis to stored elements of the file's dtype, which are words; a three-byte word of U8 counts as
 * three. */
static int64_t stored(const mox_part *part, int64_t count)
{
    const int64_t words = words_of(part, count);
    const int32_t file_bytes = mox_dtype_bytes(part->file[0]);
    return part->packing.word_bytes ? words * (part->packing.word_bytes / file_bytes) : words;
}

static moxie_status fixed_word(const mox_part *part, int64_t n, int64_t k, moxie_error *error)
{
    const bool pads = part->role == MOX_PART_ZERO || (is_stream(&part->packing) && !part->transposed);
    const int64_t along = part->packing.along_rows ? n : k;
    MOX_FAIL_IF(!pads && along % word_multiple(part) != 0, MOXIE_ERR_UNSUPPORTED, error,
                "a [%lld, %lld] matrix cannot be stored as %s: %lld is not a multiple of the %lld codes in a word; use "
                "a multiple of %lld",
                (long long)n, (long long)k, part->suffix, (long long)along, (long long)word_multiple(part),
                (long long)word_multiple(part));
    MOX_FAIL_IF(part->form == MOX_FORM_BLOCKS && k % 32 != 0, MOXIE_ERR_UNSUPPORTED, error,
                "a [%lld, %lld] matrix cannot be stored as %s: %lld is not a multiple of 32; use one", (long long)n,
                (long long)k, part->suffix, (long long)k);
    return MOXIE_OK;
}

moxie_status mox_part_shape(const mox_part *part, const moxie_quant *weight, int64_t n, int64_t k, int64_t experts,
                            bool in_out, int32_t *rank, int64_t shape[MOXIE_MAX_RANK], moxie_error *error)
{
    int64_t rows, cols;
    int32_t r = 0;
    if (experts > 0)
        shape[r++] = experts;
    if (mox_is_block(part->file[0])) { /* counted in weights, whatever the part is */
        shape[r++] = n, shape[r++] = k;
        *rank = r;
        return MOXIE_OK;
    }
    MOX_TRY(fixed_word(part, n, k, error));
    part_extent(part, weight, n, k, &rows, &cols);
    switch (part->form) {
    case MOX_FORM_SCALAR:
        if (part->trailing_one)
            shape[r++] = 1;
        break;
    case MOX_FORM_ROWS:
        shape[r++] = rows;
        if (part->trailing_one)
            shape[r++] = 1;
        break;
    case MOX_FORM_COLUMNS:
    case MOX_FORM_PAIR: shape[r++] = cols; break;
    case MOX_FORM_GROUPS_4D: shape[r++] = rows, shape[r++] = 1, shape[r++] = cols, shape[r++] = 1; break;
    case MOX_FORM_BLOCKS: shape[r++] = rows, shape[r++] = cols / 32, shape[r++] = 16; break;
    default: {
        const int64_t a = part->packing.along_rows ? stored(part, rows) : rows;
        const int64_t b = part->packing.along_rows ? cols : stored(part, cols);
        const bool swapped = part->transposed || in_out;
        shape[r++] = swapped ? b : a;
        shape[r++] = swapped ? a : b;
    }
    }
    *rank = r;
    return MOXIE_OK;
}

/* Removes axes of length one, which carry no information in scalars and columns. */
static int32_t without_ones(const int64_t *shape, int32_t rank, int64_t *out)
{
    int32_t n = 0;
    for (int32_t i = 0; i < rank; i++)
        if (shape[i] != 1)
            out[n++] = shape[i];
    return n;
}

static bool same(const int64_t *a, int32_t rank_a, const int64_t *b, int32_t rank_b)
{
    bool equal = rank_a == rank_b;
    for (int32_t i = 0; equal && i < rank_a; i++)
        equal = a[i] == b[i];
    return equal;
}

bool mox_part_shape_fits(const mox_part *part, const moxie_tensor *tensor, int32_t rank, const int64_t *want,
                         int64_t stacked)
{
    if (same(tensor->shape, tensor->rank, want, rank))
        return true;
    if (part->form == MOX_FORM_SCALAR || part->form == MOX_FORM_ROWS) {
        int64_t a[MOXIE_MAX_RANK], b[MOXIE_MAX_RANK];
        const int32_t rank_a = without_ones(tensor->shape, tensor->rank, a), rank_b = without_ones(want, rank, b);
        const bool one_for_all = part->form == MOX_FORM_SCALAR && stacked > 0 && rank_a == 0;
        /* [1, 1] is a grid of blocks, not a scalar. */
        const int32_t max_rank = (part->form == MOX_FORM_ROWS) + (stacked > 0) + 1;
        return tensor->rank <= max_rank && (one_for_all || same(a, rank_a, b, rank_b));
    }
    if (part->form == MOX_FORM_GROUPS_4D && stacked == 0)
        return tensor->rank == 2 && tensor->shape[0] == want[0] && tensor->shape[1] == want[2];
    if (stacked > 0 && rank == 3 && tensor->rank == 2)
        return tensor->shape[0] == want[0] * want[1] && tensor->shape[1] == want[2];
    return false;
}

/* Whole blocks, or what lies at one place of each: its codes, or its scales. */
static moxie_grid block_grid(const mox_part *part, const moxie_tensor *tensor, uint64_t bytes,
                             const mox_part_place *place, int64_t rows, int64_t cols)
{
    moxie_grid grid = mox_grid_dense(NULL, tensor->dtype, place->n, place->k);
    const uint64_t offset = (place->stacked > 0 ? (uint64_t)place->expert * grid.bytes : 0) + (uint64_t)part->at;
    grid.data = tensor->data ? (const char *)tensor->data + offset : NULL;
    grid.bytes = bytes - offset;
    grid.rows = rows, grid.cols = cols;
    grid.dtype = mox_part_value(part, tensor->dtype);
    grid.packing = part->packing;
    return grid;
}

moxie_grid mox_part_grid(const mox_part *part, const moxie_quant *weight, const moxie_tensor *tensor, uint64_t bytes,
                         const mox_part_place *place)
{
    int64_t rows, cols;
    part_extent(part, weight, place->n, place->k, &rows, &cols);
    if (mox_is_block(tensor->dtype))
        return block_grid(part, tensor, bytes, place, rows, cols);
    const int64_t word = word_bytes(part, tensor->dtype);
    const bool along_rows = part->packing.along_rows;
    const int64_t words_down = along_rows ? words_of(part, rows) : rows;
    const int64_t words_across = along_rows ? cols : words_of(part, cols);
    const bool swapped =
        (part->transposed || place->in_out) && (part->form == MOX_FORM_MATRIX || part->form == MOX_FORM_GROUPS);
    const int64_t row_stride = swapped ? word : words_across * word;
    const int64_t col_stride = swapped ? words_down * word : word;
    const uint64_t one = (uint64_t)(words_down * words_across * word);
    /* The whole stack may share one scalar. */
    const uint64_t offset = place->stacked > 0 && bytes > one ? (uint64_t)place->expert * one : 0;
    /* Without data, callers want strides only. */
    moxie_grid grid = { .data = tensor->data ? (const char *)tensor->data + offset : NULL,
                        .bytes = bytes - offset,
                        .rows = rows,
                        .cols = cols,
                        .row_stride = row_stride,
                        .col_stride = col_stride,
                        .dtype = mox_part_value(part, tensor->dtype),
                        .packing = part->packing };
    if (grid.packing.word_bytes == 0)
        grid.packing = (moxie_packing) { .word_bytes = (int8_t)word, .per_word = 1 };
    return grid;
}

static bool select_half(moxie_grid *grid, bool second, int64_t n, int64_t group_rows)
{
    const int64_t half = n / 2, rows = half / group_rows;
    const bool stream = is_stream(&grid->packing);
    const int64_t elements = !grid->packing.along_rows ? 1 : stream ? 32 : grid->packing.per_word;
    const int64_t words = grid->packing.along_rows && stream ? grid->packing.per_word : 1;
    if (half % group_rows != 0 || rows % elements != 0)
        return false;
    grid->rows = rows;
    if (second) {
        const uint64_t skip = (uint64_t)(rows / elements * words) * (uint64_t)grid->row_stride;
        grid->data = (const char *)grid->data + skip;
        grid->bytes -= skip;
    }
    return true;
}

static bool select_alternate(moxie_grid *grid, bool odd, int64_t n, int64_t *group_rows)
{
    if (*group_rows > 1) {
        /* A group of 2m alternating rows is m rows of each half: the grid stays, the group shrinks. */
        if (*group_rows % 2 != 0)
            return false;
        *group_rows /= 2;
        return true;
    }
    if (grid->packing.along_rows)
        return false;
    grid->rows = n / 2;
    if (odd) {
        grid->data = (const char *)grid->data + grid->row_stride;
        grid->bytes -= (uint64_t)grid->row_stride;
    }
    grid->row_stride *= 2;
    return true;
}

bool mox_grid_select_rows(moxie_grid *grid, mox_part_rows rows, int64_t n, int64_t *group_rows)
{
    if (rows == MOX_ROWS_ALL)
        return true;
    /* One group for all rows: both halves have the same scales. */
    if (*group_rows >= n) {
        *group_rows = n / 2;
        return true;
    }
    if (rows == MOX_ROWS_FIRST_HALF || rows == MOX_ROWS_SECOND_HALF)
        return select_half(grid, rows == MOX_ROWS_SECOND_HALF, n, *group_rows);
    return select_alternate(grid, rows == MOX_ROWS_ODD, n, group_rows);
}

moxie_status mox_spec_grid(const mox_tensor_spec *spec, void *data, int64_t expert, moxie_grid *out, moxie_error *error)
{
    MOX_FAIL_IF(!spec->part || !spec->format, MOXIE_ERR_ARGUMENT, error, "%s is no part of a matrix", spec->name);
    moxie_tensor tensor = { .data = data, .dtype = spec->dtype, .rank = spec->rank };
    uint64_t bytes = (uint64_t)mox_dtype_bytes(spec->dtype);
    for (int32_t i = 0; i < spec->rank; i++) {
        tensor.shape[i] = spec->shape[i];
        MOX_FAIL_IF(!mox_mul_u64(bytes, (uint64_t)spec->shape[i], &bytes), MOXIE_ERR_ARGUMENT, error,
                    "%s does not fit in memory", spec->name);
    }
    const moxie_quant weight = mox_hf_quant_weight(spec->format, spec->cols);
    const mox_part_place place = {
        .n = spec->rows, .k = spec->cols, .stacked = spec->stacked, .expert = expert, .in_out = spec->in_out
    };
    *out = mox_part_grid(spec->part, &weight, &tensor, bytes, &place);
    return MOXIE_OK;
}
