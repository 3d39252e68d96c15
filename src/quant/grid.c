/* SPDX-License-Identifier: Apache-2.0
 *
 * grid.c - one element of a two-dimensional view, in any packing, at any address.
 *
 *     word of (r, c)  = data + r * row_stride + (c / per_word) * col_stride      along_rows == 0
 *                       data + (r / per_word) * row_stride + c * col_stride      along_rows == 1
 *     element i of it = bits [i' * bits, i' * bits + bits) of the little-endian word
 *
 *     32-bit word, 4-bit elements   bits  31..28 27..24 23..20 19..16 15..12 11..8  7..4   3..0
 *                         LINEAR            7      6      5      4      3      2      1      0
 *                         AWQ               7      5      3      1      6      4      2      0
 *     24-bit word, 6-bit elements   bits  23..18 17..12 11..6  5..0
 *                         LINEAR            3      2      1      0
 *
 * Words are assembled byte by byte, so neither alignment nor the machine's byte order matters. The oracle and the
 * packers read checkpoints through these functions; kernels never do. Source: the file formats named in moxie.h (GPTQ
 * packs along K, AWQ along N, OCP MX FP6 four to three bytes).
 */
#include "quant/quant.h"

#include "base/sizes.h"
#include "quant/word_slot.h"

typedef struct element_place {
    int64_t word;   /* byte offset of the word */
    uint32_t shift; /* lowest bit of the element in it */
} element_place;

static element_place place_of(const moxie_grid *grid, int64_t r, int64_t c, int32_t bits)
{
    const int64_t per_word = grid->packing.per_word;
    int64_t i;
    if (grid->packing.along_rows) {
        i = r % per_word;
        r /= per_word;
    } else {
        i = c % per_word;
        c /= per_word;
    }
    const int64_t slot = mox_word_slot(&grid->packing, i);
    return (element_place) { r * grid->row_stride + c * grid->col_stride, (uint32_t)(slot * bits) };
}

static uint64_t low_bits(int32_t bits)
{
    return ((uint64_t)1 << bits) - 1;
}

static uint64_t load_word(const uint8_t *bytes, int32_t count)
{
    uint64_t word = 0;
    for (int32_t i = 0; i < count; i++)
        word |= (uint64_t)bytes[i] << (8 * i);
    return word;
}

/* ---- streams of bits ---------------------------------------------------------------------------- */

/* Both words that a code may lie in; the second is 0 when the first has all of it. */
typedef struct stream_place {
    uint8_t *word[2];
    uint32_t shift, bits;
} stream_place;

static stream_place stream_place_of(const moxie_grid *grid, int64_t r, int64_t c)
{
    const int64_t bits = grid->packing.per_word;
    const bool down = grid->packing.along_rows != 0;
    const int64_t bit = (down ? r : c) * bits, step = down ? grid->row_stride : grid->col_stride;
    uint8_t *base = (uint8_t *)(uintptr_t)grid->data + (down ? c * grid->col_stride : r * grid->row_stride);
    stream_place place = { .shift = (uint32_t)(bit % 32), .bits = (uint32_t)bits };
    place.word[0] = base + bit / 32 * step;
    place.word[1] = bit % 32 + bits > 32 ? place.word[0] + step : NULL;
    return place;
}

/* What a stored code is smaller by than the same code of the grid's dtype: both mean 0 by their middle. */
static uint32_t stream_offset(const moxie_grid *grid)
{
    return (1u << (mox_dtype_bits(grid->dtype) - 1)) - (1u << (grid->packing.per_word - 1));
}

static uint32_t stream_code(const moxie_grid *grid, int64_t r, int64_t c)
{
    const stream_place place = stream_place_of(grid, r, c);
    uint64_t words = load_word(place.word[0], 4);
    if (place.word[1])
        words |= load_word(place.word[1], 4) << 32;
    return (uint32_t)(words >> place.shift & low_bits((int32_t)place.bits)) + stream_offset(grid);
}

/* A code that the stream has no bits for becomes the nearest that it has. */
static void stream_store(const moxie_grid *grid, int64_t r, int64_t c, uint32_t code)
{
    const stream_place place = stream_place_of(grid, r, c);
    const uint32_t offset = stream_offset(grid), most = (1u << place.bits) - 1;
    const uint64_t stored = code < offset ? 0 : code - offset > most ? most : code - offset;
    uint64_t words = load_word(place.word[0], 4);
    if (place.word[1])
        words |= load_word(place.word[1], 4) << 32;
    words &= ~((uint64_t)most << place.shift);
    words |= stored << place.shift;
    for (int32_t i = 0; i < (place.word[1] ? 8 : 4); i++)
        place.word[i / 4][i % 4] = (uint8_t)(words >> (8 * i));
}

/* ---- blocks ------------------------------------------------------------------------------------- */

enum { MAX_BLOCK_BYTES = 256 };

/* The block that was decoded last: neighbours are asked for one after the other. It is known by its bytes, not by its
 * address, so memory may change in between. */
typedef struct decoded_block {
    const mox_block *type;
    uint8_t bytes[MAX_BLOCK_BYTES];
    float values[MOX_BLOCK_MAX];
} decoded_block;

static float block_value(const moxie_grid *grid, int64_t r, int64_t c)
{
    static _Thread_local decoded_block last;
    const mox_block *type = last.type && last.type->format.dtype == grid->dtype ? last.type : mox_block_of(grid->dtype);
    const uint8_t *bytes = (const uint8_t *)grid->data + r * grid->row_stride + c / type->weights * grid->col_stride;
    if (type != last.type || memcmp(bytes, last.bytes, (size_t)type->bytes) != 0) {
        memcpy(last.bytes, bytes, (size_t)type->bytes);
        type->decode(last.bytes, last.values);
        last.type = type;
    }
    return last.values[c % type->weights];
}

static moxie_status check_blocks(const moxie_grid *grid, const char *what, moxie_error *error)
{
    const mox_block *type = mox_block_of(grid->dtype);
    const moxie_packing p = grid->packing;
    MOX_FAIL_IF(!type || p.order != MOX_ORDER_BLOCK || p.word_bytes || p.per_word || p.along_rows, MOXIE_ERR_ARGUMENT,
                error, "%s: block types and packing order %d belong together, with no other field of the packing set",
                what, MOX_ORDER_BLOCK);
    MOX_FAIL_IF(grid->cols % type->weights != 0, MOXIE_ERR_ARGUMENT, error,
                "%s: rows of %lld numbers; %s has blocks of %d, so give a multiple of that", what,
                (long long)grid->cols, type->format.name, (int)type->weights);
    return MOXIE_OK;
}

/* ---- codes inside blocks ------------------------------------------------------------------------- */

/* The byte of the code at (r, c), and where in it the code begins. */
static uint8_t *halves_byte(const moxie_grid *grid, int64_t r, int64_t c, uint32_t *shift)
{
    const moxie_packing p = grid->packing;
    uint8_t *word = (uint8_t *)(uintptr_t)grid->data + r * grid->row_stride + c / p.per_word * grid->col_stride;
    const int64_t run = p.order == MOX_ORDER_HALVES_16 ? 16 : p.per_word, i = c % p.per_word;
    if (p.word_bytes == p.per_word) {
        *shift = 0;
        return word + i;
    }
    *shift = i % run < run / 2 ? 0 : 4;
    return word + i / run * (run / 2) + i % (run / 2);
}

static moxie_status check_halves(const moxie_grid *grid, const char *what, moxie_error *error)
{
    const moxie_packing p = grid->packing;
    const int32_t bits = mox_dtype_bits(grid->dtype);
    MOX_FAIL_IF((bits != 4 && bits != 8) || p.along_rows || p.per_word < 16 || p.per_word % 16 != 0 ||
                    p.per_word * bits != p.word_bytes * 8,
                MOXIE_ERR_ARGUMENT, error,
                "%s: packing order %d holds a multiple of 16 codes of 4 or 8 bits in a word, without gaps, along rows",
                what, p.order);
    MOX_FAIL_IF(grid->cols % p.per_word != 0, MOXIE_ERR_ARGUMENT, error,
                "%s: rows of %lld codes, not a multiple of the %d in a block", what, (long long)grid->cols, p.per_word);
    return MOXIE_OK;
}

/* ---- one element -------------------------------------------------------------------------------- */

uint32_t mox_grid_code(const moxie_grid *grid, int64_t r, int64_t c)
{
    if (grid->packing.order == MOX_ORDER_STREAM)
        return stream_code(grid, r, c);
    if (grid->packing.order == MOX_ORDER_BLOCK)
        return mox_f32_encode(block_value(grid, r, c));
    if (mox_is_halves(&grid->packing)) {
        uint32_t shift;
        const uint8_t *byte = halves_byte(grid, r, c, &shift);
        return *byte >> shift & (uint32_t)low_bits(mox_dtype_bits(grid->dtype));
    }
    const int32_t bits = mox_dtype_bits(grid->dtype);
    const element_place place = place_of(grid, r, c, bits);
    const uint64_t word = load_word((const uint8_t *)grid->data + place.word, grid->packing.word_bytes);
    return (uint32_t)(word >> place.shift & low_bits(bits));
}

double mox_grid_value(const moxie_grid *grid, int64_t r, int64_t c)
{
    return mox_format_of(grid->dtype)->decode(mox_grid_code(grid, r, c));
}

void mox_grid_store(const moxie_grid *grid, int64_t r, int64_t c, uint32_t code)
{
    if (grid->packing.order == MOX_ORDER_STREAM) {
        stream_store(grid, r, c, code);
        return;
    }
    if (grid->packing.order == MOX_ORDER_BLOCK)
        return;
    if (mox_is_halves(&grid->packing)) {
        uint32_t shift;
        uint8_t *byte = halves_byte(grid, r, c, &shift);
        const uint32_t mask = (uint32_t)low_bits(mox_dtype_bits(grid->dtype));
        *byte = (uint8_t)((*byte & ~(mask << shift)) | (code & mask) << shift);
        return;
    }
    const int32_t bits = mox_dtype_bits(grid->dtype);
    const element_place place = place_of(grid, r, c, bits);
    /* A view is const, since most users only read it. The cast through uintptr_t lets a writer store. */
    uint8_t *bytes = (uint8_t *)(uintptr_t)grid->data + place.word;
    uint64_t word = load_word(bytes, grid->packing.word_bytes);
    word &= ~(low_bits(bits) << place.shift);
    word |= (code & low_bits(bits)) << place.shift;
    for (int32_t i = 0; i < grid->packing.word_bytes; i++)
        bytes[i] = (uint8_t)(word >> (8 * i));
}

/* ---- checks ----------------------------------------------------------------------------------- */

static moxie_status check_packing(const moxie_grid *grid, const char *what, moxie_error *error)
{
    const moxie_packing p = grid->packing;
    const int32_t bits = mox_dtype_bits(grid->dtype);
    if (mox_is_block(grid->dtype) || p.order == MOX_ORDER_BLOCK)
        return check_blocks(grid, what, error);
    if (mox_is_halves(&p))
        return check_halves(grid, what, error);
    MOX_FAIL_IF(bits < 1 || bits > 32, MOXIE_ERR_ARGUMENT, error,
                "%s: dtype %d is no element of 1 to 32 bits; give the dtype of the numbers, not of their container",
                what, (int)grid->dtype);
    MOX_FAIL_IF(p.word_bytes < 1 || p.word_bytes > 8 || p.word_bytes == 5 || p.word_bytes == 6 || p.word_bytes == 7,
                MOXIE_ERR_ARGUMENT, error, "%s: packing.word_bytes is %d; words have 1, 2, 3, 4 or 8 bytes", what,
                p.word_bytes);
    MOX_FAIL_IF(p.per_word != 1 && p.per_word != 2 && p.per_word != 4 && p.per_word != 8, MOXIE_ERR_ARGUMENT, error,
                "%s: packing.per_word is %d; a word holds 1, 2, 4 or 8 elements", what, p.per_word);
    MOX_FAIL_IF(bits * p.per_word > 8 * p.word_bytes, MOXIE_ERR_ARGUMENT, error,
                "%s: %d elements of %d bits (%s) do not fit a word of %d bytes", what, p.per_word, (int)bits,
                mox_quant_dtype_name(grid->dtype), p.word_bytes);
    MOX_FAIL_IF(p.along_rows != 0 && p.along_rows != 1, MOXIE_ERR_ARGUMENT, error,
                "%s: packing.along_rows is %d; it is 0 or 1", what, p.along_rows);
    MOX_FAIL_IF(p.order != MOXIE_ORDER_LINEAR && p.order != MOXIE_ORDER_AWQ, MOXIE_ERR_ARGUMENT, error,
                "%s: packing.order %d is unknown; use MOXIE_ORDER_LINEAR or MOXIE_ORDER_AWQ", what, p.order);
    MOX_FAIL_IF(p.order == MOXIE_ORDER_AWQ && (bits != 4 || p.per_word != 8), MOXIE_ERR_ARGUMENT, error,
                "%s: the AWQ order is defined for 8 elements of 4 bits, not for %d of %d", what, p.per_word, (int)bits);
    return MOXIE_OK;
}

/* Bytes from `data` to the end of the last word; false when that does not fit 64 bits. */
static bool grid_extent(const moxie_grid *grid, uint64_t *extent)
{
    const moxie_packing p = grid->packing;
    const mox_block *block = p.order == MOX_ORDER_BLOCK ? mox_block_of(grid->dtype) : NULL;
    const int64_t per_word = block ? block->weights : p.per_word, word_bytes = block ? block->bytes : p.word_bytes;
    const int64_t word_rows = p.along_rows ? mox_ceil_div(grid->rows, per_word) : grid->rows;
    const int64_t word_cols = p.along_rows ? grid->cols : mox_ceil_div(grid->cols, per_word);
    uint64_t down, across, end;
    if (!mox_mul_u64((uint64_t)(word_rows - 1), (uint64_t)grid->row_stride, &down) ||
        !mox_mul_u64((uint64_t)(word_cols - 1), (uint64_t)grid->col_stride, &across) ||
        !mox_add_u64(down, across, &end) || !mox_add_u64(end, (uint64_t)word_bytes, &end) || end > INT64_MAX)
        return false;
    *extent = end;
    return true;
}

moxie_status mox_grid_check(const moxie_grid *grid, const char *what, moxie_error *error)
{
    MOX_TRY(check_packing(grid, what, error));
    MOX_FAIL_IF(grid->rows < 0 || grid->cols < 0, MOXIE_ERR_ARGUMENT, error, "%s: its shape [%lld, %lld] is negative",
                what, (long long)grid->rows, (long long)grid->cols);
    MOX_FAIL_IF(grid->row_stride < 0 || grid->col_stride < 0, MOXIE_ERR_ARGUMENT, error,
                "%s: strides %lld and %lld; a stride may be zero but not negative", what, (long long)grid->row_stride,
                (long long)grid->col_stride);
    if (grid->rows == 0 || grid->cols == 0)
        return MOXIE_OK;
    MOX_FAIL_IF(!grid->data, MOXIE_ERR_ARGUMENT, error, "%s: [%lld, %lld] elements but no data", what,
                (long long)grid->rows, (long long)grid->cols);
    uint64_t extent;
    MOX_FAIL_IF(!grid_extent(grid, &extent), MOXIE_ERR_ARGUMENT, error,
                "%s: [%lld, %lld] with strides %lld and %lld reaches beyond 2^63 bytes", what, (long long)grid->rows,
                (long long)grid->cols, (long long)grid->row_stride, (long long)grid->col_stride);
    MOX_FAIL_IF(extent > grid->bytes, MOXIE_ERR_ARGUMENT, error,
                "%s: [%lld, %lld] %s with strides %lld and %lld takes %llu bytes, but only %llu are there", what,
                (long long)grid->rows, (long long)grid->cols, mox_quant_dtype_name(grid->dtype),
                (long long)grid->row_stride, (long long)grid->col_stride, (unsigned long long)extent,
                (unsigned long long)grid->bytes);
    return MOXIE_OK;
}

/* ---- contiguous views --------------------------------------------------------------------------- */

/* The smallest word of whole bytes: a block, two nibbles, four 6-bit codes, or one element. */
static moxie_packing dense_packing(moxie_dtype dtype)
{
    if (mox_is_block(dtype))
        return (moxie_packing) { .order = MOX_ORDER_BLOCK };
    switch (mox_dtype_bits(dtype)) {
    case 4: return (moxie_packing) { .word_bytes = 1, .per_word = 2 };
    case 6: return (moxie_packing) { .word_bytes = 3, .per_word = 4 };
    default: return (moxie_packing) { .word_bytes = (int8_t)mox_dtype_bytes(dtype), .per_word = 1 };
    }
}

uint64_t mox_dense_row_bytes(moxie_dtype dtype, int64_t cols)
{
    const moxie_packing p = dense_packing(dtype);
    const mox_block *block = p.order == MOX_ORDER_BLOCK ? mox_block_of(dtype) : NULL;
    const int64_t per_word = block ? block->weights : p.per_word, word_bytes = block ? block->bytes : p.word_bytes;
    uint64_t bytes;
    return mox_mul_u64((uint64_t)mox_ceil_div(cols, per_word), (uint64_t)word_bytes, &bytes) ? bytes : UINT64_MAX;
}

uint64_t mox_dense_bytes(moxie_dtype dtype, int64_t rows, int64_t cols)
{
    uint64_t bytes;
    return mox_mul_u64((uint64_t)rows, mox_dense_row_bytes(dtype, cols), &bytes) ? bytes : UINT64_MAX;
}

moxie_grid mox_grid_dense(const void *data, moxie_dtype dtype, int64_t rows, int64_t cols)
{
    const moxie_packing packing = dense_packing(dtype);
    return (moxie_grid) {
        .data = data,
        .bytes = mox_dense_bytes(dtype, rows, cols),
        .rows = rows,
        .cols = cols,
        .row_stride = (int64_t)mox_dense_row_bytes(dtype, cols),
        .col_stride = packing.order == MOX_ORDER_BLOCK ? mox_block_of(dtype)->bytes : packing.word_bytes,
        .dtype = dtype,
        .packing = packing,
    };
}
