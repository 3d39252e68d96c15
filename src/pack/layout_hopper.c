/* SPDX-License-Identifier: Apache-2.0
 *
 * layout_hopper.c - layout "hopper": swizzled chunks of 128 rows, drawn in hopper.h.
 *
 *     form       sizes and offsets, a pure function of the shape
 *     refuse     what has no form
 *     tiles      codes in blocks of 16 rows of a matrix and one chunk's columns; scales; and what stands behind all
 * tiles parts      what is packed at once: some tiles of one product, with its last tile its rows
 *
 * In the flow: checkpoint views -> [record] -> slot -> the kernels of cuda/expert_gemm that read layout hopper.
 */
#include "pack/hopper.h"

#include <stdio.h>

#include "base/sizes.h"
#include "pack/grid_move.h"
#include "pack/grid_tile.h"

enum { W13, W2, PRODUCTS };
enum { BLOCK = MOX_TILE_ROWS, WIDTH = MOX_HOPPER_CHUNK_WIDTH, GROUP = MOX_HOPPER_SCALE_ROWS, PIECE = 16 };

/* One of the record's two products. */
typedef struct product {
    const moxie_quant *quant;
    int64_t rows, cols; /* of one matrix */
    bool gated, bias;
} product;

static product product_of(const mox_record_shape *shape, int which)
{
    const product first = { &shape->w13, shape->intermediate, shape->hidden, shape->gated, shape->bias13 };
    const product second = { &shape->w2, shape->hidden, shape->intermediate, false, shape->bias2 };
    return which == W13 ? first : second;
}

/* ---- form ----------------------------------------------------------------------------------------------------- */

/* Scales that belong to rows, not to blocks of chunks. */
static bool has_row_scales(const product *p)
{
    return p->quant->scale != MOXIE_DTYPE_NONE && mox_group_rows(p->quant, p->rows) % GROUP != 0 &&
           mox_scale_rows(p->quant, p->rows) > 1;
}

/* Adds count * size bytes to *at, then aligns it. */
static bool advance(uint64_t *at, uint64_t count, uint64_t size)
{
    uint64_t bytes;
    return mox_mul_u64(count, size, &bytes) && mox_add_u64(*at, bytes, at) && mox_align_u64(*at, MOX_HOPPER_ALIGN, at);
}

/* False when it does not fit 64 bits. */
static bool tile_bytes_of(const mox_hopper_matrix *m, int64_t rows, uint64_t *bytes)
{
    const uint64_t scales = m->has_tile_scales ? (uint64_t)(rows / GROUP) * sizeof(float) : 0;
    return mox_mul_u64((uint64_t)m->chunks, (uint64_t)rows * WIDTH + scales, bytes) &&
           mox_align_u64(*bytes, MOX_HOPPER_ALIGN, bytes);
}

/* False when the product does not fit 64 bits behind `start`. */
static bool measure(const product *p, uint64_t start, mox_hopper_matrix *m)
{
    const int64_t chunk_cols = WIDTH * 8 / mox_dtype_bits(p->quant->element);
    const int64_t stored = p->gated ? mox_ceil_div(p->rows, GROUP) * 2 * GROUP : p->rows;
    const int64_t rest = stored % MOX_HOPPER_TILE_ROWS;
    const int32_t last_rows = rest > 0 && rest <= MOX_HOPPER_TILE_ROWS / 2 ? MOX_HOPPER_TILE_ROWS / 2 : //
                                  MOX_HOPPER_TILE_ROWS;
    *m = (mox_hopper_matrix) { .rows = p->rows,
                               .cols = p->cols,
                               .stored_rows = stored,
                               .tiles = mox_ceil_div(stored, MOX_HOPPER_TILE_ROWS),
                               .chunks = mox_ceil_div(p->cols, chunk_cols),
                               .chunk_cols = (int32_t)chunk_cols,
                               .last_rows = last_rows,
                               .gated = p->gated,
                               .has_tile_scales = mox_dtype_bits(p->quant->element) == 8,
                               .chunk_bytes = MOX_HOPPER_TILE_ROWS * WIDTH };
    uint64_t at = start, last, before;
    if (!mox_align_u64(at, MOX_HOPPER_ALIGN, &at) || !tile_bytes_of(m, MOX_HOPPER_TILE_ROWS, &m->tile_bytes) ||
        !tile_bytes_of(m, last_rows, &last))
        return false;
    m->tiles_at = at;
    if (m->tiles > 0 && (!mox_mul_u64((uint64_t)(m->tiles - 1), m->tile_bytes, &before) ||
                         !mox_add_u64(at, before, &at) || !mox_add_u64(at, last, &at)))
        return false;
    const uint64_t padded = (uint64_t)m->tiles * MOX_HOPPER_TILE_ROWS;
    m->row_scale_at = has_row_scales(p) ? at : 0;
    if (has_row_scales(p) && !advance(&at, padded, sizeof(float)))
        return false;
    m->bias_at = p->bias ? at : 0;
    if (p->bias && !advance(&at, padded, sizeof(float)))
        return false;
    m->end = at;
    return true;
}

static bool measure_record(const mox_record_shape *shape, mox_hopper_record *out)
{
    const product first = product_of(shape, W13), second = product_of(shape, W2);
    return measure(&first, sizeof(mox_record_header), &out->w13) && measure(&second, out->w13.end, &out->w2);
}

static bool record_bytes(const mox_record_shape *shape, uint64_t *out)
{
    mox_hopper_record form;
    if (!measure_record(shape, &form))
        return false;
    *out = form.w2.end;
    return true;
}

void mox_hopper_form(const mox_record_shape *shape, mox_hopper_record *out)
{
    (void)measure_record(shape, out);
}

static const mox_hopper_matrix *matrix_of(const mox_hopper_record *form, int which)
{
    return which == W13 ? &form->w13 : &form->w2;
}

/* ---- what the layout holds ------------------------------------------------------------------------------------ */

static const char *refuse_product(const product *p, const char *name, char *buffer, size_t size)
{
    const moxie_quant *q = p->quant;
    const char *element = mox_quant_dtype_name(q->element);
    const int64_t group = mox_group_cols(q, p->cols);
    const bool wide = q->element == MOXIE_BF16 || q->element == MOXIE_F16;
    if (!wide && q->element != MOXIE_F8_E4M3) {
        snprintf(buffer, size, "%s has elements of %s, chunks hold bf16, f16 and f8_e4m3", name, element);
        return buffer;
    }
    if ((wide && q->scale != MOXIE_DTYPE_NONE) || q->has_zero || q->global != MOXIE_GLOBAL_NONE) {
        snprintf(buffer, size, "%s has %s with %s, chunks hold %s", name, element,
                 q->has_zero                      ? "zero points"
                 : q->global != MOXIE_GLOBAL_NONE ? "a global scale"
                                                  : "scales",
                 wide ? "it plain" : "it with scales of f32, f16, bf16 or f8_e8m0 alone");
        return buffer;
    }
    if (q->scale != MOXIE_DTYPE_NONE && group < p->cols && (has_row_scales(p) || group % WIDTH != 0)) {
        snprintf(buffer, size,
                 "%s has scales of %lld x %lld elements, chunks hold those of multiples of 8 rows and of 128 columns, "
                 "and of whole rows",
                 name, (long long)mox_group_rows(q, p->rows), (long long)group);
        return buffer;
    }
    return NULL;
}

static const char *refuse(const mox_record_shape *shape, char *buffer, size_t size)
{
    const product first = product_of(shape, W13), second = product_of(shape, W2);
    const char *why = refuse_product(&first, "w13", buffer, size);
    return why != NULL ? why : refuse_product(&second, "w2", buffer, size);
}

static bool takes_matrix(const moxie_quant *q, const moxie_matrix *from, const char *name, char *reason, size_t size)
{
    if (mox_pack_is_natural_order(from->group_index, from->codes.cols, mox_group_cols(q, from->codes.cols)))
        return true;
    snprintf(reason, size, "the group index of %s reorders its columns, chunks hold columns in natural order", name);
    return false;
}

static bool takes(const mox_record_shape *shape, const moxie_expert *expert, char *reason, size_t size)
{
    return (!shape->gated || takes_matrix(&shape->w13, &expert->gate, "gate", reason, size)) &&
           takes_matrix(&shape->w13, &expert->up, "up", reason, size) &&
           takes_matrix(&shape->w2, &expert->down, "down", reason, size);
}

/* ---- tiles ---------------------------------------------------------------------------------------------------- */

/* The matrix (0 gate or the only one, 1 up) and the row in it that product row `n` is. */
static int half_of(const mox_hopper_matrix *m, int64_t n, int64_t *row)
{
    *row = m->gated ? n / (2 * GROUP) * GROUP + n % GROUP : n;
    return m->gated && n / GROUP % 2 == 1;
}

static int64_t product_row(const mox_hopper_matrix *m, int half, int64_t row)
{
    return m->gated ? row / GROUP * 2 * GROUP + half * GROUP + row % GROUP : row;
}

static int64_t tile_rows(const mox_hopper_matrix *m, int64_t tile)
{
    return tile == m->tiles - 1 ? m->last_rows : MOX_HOPPER_TILE_ROWS;
}

static uint64_t tile_at(const mox_hopper_matrix *m, int64_t tile)
{
    return m->tiles_at + (uint64_t)tile * m->tile_bytes;
}

static uint64_t chunk_at(const mox_hopper_matrix *m, int64_t tile, int64_t chunk)
{
    return (uint64_t)(chunk * tile_rows(m, tile)) * WIDTH;
}

/* The scale of 8 rows from row n of a tile, for a chunk. */
static uint64_t scale_at(const mox_hopper_matrix *m, int64_t tile, int64_t n, int64_t chunk)
{
    return chunk_at(m, tile, m->chunks) + (uint64_t)(chunk * tile_rows(m, tile) / GROUP + n / GROUP) * sizeof(float);
}

/* Where 16 bytes of row n of a chunk lie. */
static uint64_t piece_at(int64_t n, int64_t q)
{
    return (uint64_t)(n * WIDTH + (q ^ n % 8) * PIECE);
}

/* 8 dense rows of one chunk's columns, to rows n .. n + 7 of the chunk; NULL: zeros. */
static void put_rows(const uint8_t *rows, int64_t stride, int64_t n, uint8_t *chunk)
{
    for (int64_t i = 0; i < GROUP; i++) {
        if (rows == NULL)
            memset(chunk + (n + i) * WIDTH, 0, WIDTH);
        else
            for (int64_t q = 0; q < WIDTH / PIECE; q++)
                memcpy(chunk + piece_at(n + i, q), rows + i * stride + q * PIECE, PIECE);
    }
}

static void pack_codes(const mox_hopper_matrix *m, const moxie_matrix *const *from, int64_t tile, uint8_t *to)
{
    const int64_t first = tile * MOX_HOPPER_TILE_ROWS, span = m->gated ? 2 * BLOCK : BLOCK;
    mox_tile store;
    for (int64_t n = 0; n < tile_rows(m, tile); n += span) {
        for (int half = 0; half <= m->gated; half++) {
            int64_t row, stride = 0;
            (void)half_of(m, first + n, &row);
            const int64_t second = n + (m->gated ? 2 * GROUP : GROUP);
            for (int64_t c = 0; c < m->chunks; c++) {
                uint8_t *chunk = to + chunk_at(m, tile, c);
                const uint8_t *rows = row >= m->rows ? NULL
                                                     : mox_tile_read(&from[half]->codes, row, c * m->chunk_cols,
                                                                     m->chunk_cols, &store, &stride);
                put_rows(rows, stride, n + half * GROUP, chunk);
                put_rows(rows == NULL ? NULL : rows + GROUP * stride, stride, second + half * GROUP, chunk);
            }
        }
    }
}

/* The scale of 8 rows and a chunk, which begin at product row n and column k. */
static float chunk_scale(const mox_hopper_matrix *m, const product *p, const moxie_matrix *const *from, int64_t n,
                         int64_t k)
{
    int64_t row;
    const int half = half_of(m, n, &row);
    if (row >= m->rows)
        return 0.0f;
    if (p->quant->scale == MOXIE_DTYPE_NONE || m->row_scale_at != 0)
        return 1.0f;
    return mox_pack_get_float(&from[half]->scale, row / mox_group_rows(p->quant, p->rows),
                              k / mox_group_cols(p->quant, p->cols));
}

static void pack_tile(const mox_hopper_matrix *m, const product *p, const moxie_matrix *const *from, int64_t tile,
                      uint8_t *to)
{
    const int64_t rows = tile_rows(m, tile), first = tile * MOX_HOPPER_TILE_ROWS;
    pack_codes(m, from, tile, to);
    if (!m->has_tile_scales)
        return;
    uint64_t end = 0;
    for (int64_t c = 0; c < m->chunks; c++)
        for (int64_t n = 0; n < rows; n += GROUP) {
            const float scale = chunk_scale(m, p, from, first + n, c * m->chunk_cols);
            memcpy(to + scale_at(m, tile, n, c), &scale, sizeof scale);
        }
    (void)tile_bytes_of(m, rows, &end);
    memset(to + scale_at(m, tile, 0, m->chunks), 0, end - scale_at(m, tile, 0, m->chunks));
}

/* Scales or biases [rows or 1], to the f32s of product rows. */
static void pack_rows(const mox_hopper_matrix *m, const moxie_grid *const *from, int64_t group_rows, float *to)
{
    for (int64_t n = 0; n < m->tiles * MOX_HOPPER_TILE_ROWS; n++) {
        int64_t row;
        const int half = half_of(m, n, &row);
        to[n] = row < m->rows ? mox_pack_get_float(from[half], from[half]->rows == 1 ? 0 : row / group_rows, 0) : 0.0f;
    }
}

static void unpack_codes(const mox_hopper_matrix *m, const uint8_t *record, int half, const moxie_grid *to)
{
    uint8_t rows[BLOCK * WIDTH];
    for (int64_t row = 0; row < m->rows; row += BLOCK)
        for (int64_t c = 0; c < m->chunks; c++) {
            for (int64_t i = 0; i < BLOCK; i++) {
                const int64_t n = product_row(m, half, row + i), tile = n / MOX_HOPPER_TILE_ROWS;
                if (tile >= m->tiles)
                    break;
                const uint8_t *chunk = record + tile_at(m, tile) + chunk_at(m, tile, c);
                for (int64_t q = 0; q < WIDTH / PIECE && n % MOX_HOPPER_TILE_ROWS < tile_rows(m, tile); q++)
                    memcpy(rows + i * WIDTH + q * PIECE, chunk + piece_at(n % MOX_HOPPER_TILE_ROWS, q), PIECE);
            }
            mox_tile_write(to, row, c * m->chunk_cols, m->chunk_cols, rows, WIDTH);
        }
}

static float stored_scale(const mox_hopper_matrix *m, const uint8_t *record, int64_t n, int64_t k)
{
    const int64_t tile = n / MOX_HOPPER_TILE_ROWS, at = n % MOX_HOPPER_TILE_ROWS;
    float scale;
    memcpy(&scale, record + tile_at(m, tile) + scale_at(m, tile, at, k / m->chunk_cols), sizeof scale);
    return scale;
}

static void unpack_scales(const mox_hopper_matrix *m, const product *p, const uint8_t *record, int half,
                          const moxie_grid *to)
{
    const int64_t group_rows = mox_group_rows(p->quant, p->rows), group_cols = mox_group_cols(p->quant, p->cols);
    const float *row_scale = (const float *)(const void *)(record + m->row_scale_at);
    for (int64_t r = 0; r < to->rows; r++)
        for (int64_t g = 0; g < to->cols; g++) {
            const int64_t n = product_row(m, half, r * group_rows);
            mox_pack_put_float(to, r, g,
                               m->row_scale_at != 0 ? row_scale[n] : stored_scale(m, record, n, g * group_cols));
        }
}

/* ---- parts ---------------------------------------------------------------------------------------------------- */

static int64_t tiles_per_part(const mox_hopper_matrix *m)
{
    return m->tile_bytes > 0 ? mox_max_i64((int64_t)(MOX_RECORD_PART / m->tile_bytes), 1) : 1;
}

static int64_t parts_of(const mox_hopper_matrix *m)
{
    return mox_max_i64(mox_ceil_div(m->tiles, tiles_per_part(m)), 1);
}

static int64_t parts(const mox_record_shape *shape)
{
    mox_hopper_record form;
    mox_hopper_form(shape, &form);
    return parts_of(&form.w13) + parts_of(&form.w2);
}

/* The product of a part, and its index there. */
static int find_part(const mox_hopper_record *form, int64_t part, int64_t *index)
{
    const int64_t first = parts_of(&form->w13);
    const int which = part < first ? W13 : W2;
    *index = which == W13 ? part : part - first;
    return which;
}

static uint64_t part_at(const mox_record_shape *shape, int64_t part)
{
    mox_hopper_record form;
    int64_t index;
    mox_hopper_form(shape, &form);
    const mox_hopper_matrix *m = matrix_of(&form, find_part(&form, part, &index));
    if (part == 0)
        return sizeof(mox_record_header);
    return index == parts_of(m) ? m->end : tile_at(m, index * tiles_per_part(m));
}

static void zero_between(uint8_t *record, uint64_t from, uint64_t to)
{
    memset(record + from, 0, to - from);
}

/* What stands behind the last tile of a product. */
static void pack_tail(const mox_hopper_matrix *m, const product *p, const moxie_matrix *const *from, uint8_t *record)
{
    uint64_t last = 0;
    if (m->tiles > 0)
        (void)tile_bytes_of(m, m->last_rows, &last);
    zero_between(record, tile_at(m, mox_max_i64(m->tiles - 1, 0)) + last, m->end);
    const moxie_grid *const scale[] = { &from[0]->scale, &from[m->gated]->scale };
    const moxie_grid *const bias[] = { &from[0]->bias, &from[m->gated]->bias };
    if (m->row_scale_at != 0)
        pack_rows(m, scale, mox_group_rows(p->quant, p->rows), (float *)(void *)(record + m->row_scale_at));
    if (m->bias_at != 0)
        pack_rows(m, bias, 1, (float *)(void *)(record + m->bias_at));
}

static moxie_status pack_part(const mox_record_shape *shape, const moxie_expert *expert, int64_t part, void *record,
                              moxie_error *error)
{
    (void)error;
    const moxie_matrix *const from13[] = { shape->gated ? &expert->gate : &expert->up, &expert->up };
    const moxie_matrix *const from2[] = { &expert->down };
    mox_hopper_record form;
    int64_t index;
    mox_hopper_form(shape, &form);
    const int which = find_part(&form, part, &index);
    const mox_hopper_matrix *m = matrix_of(&form, which);
    const moxie_matrix *const *from = which == W13 ? from13 : from2;
    const product p = product_of(shape, which);
    const int64_t first = index * tiles_per_part(m), end = mox_min_i64(first + tiles_per_part(m), m->tiles);
    if (part == 0)
        zero_between(record, sizeof(mox_record_header), m->tiles_at);
    for (int64_t tile = first; tile < end; tile++)
        pack_tile(m, &p, from, tile, (uint8_t *)record + tile_at(m, tile));
    if (end == m->tiles)
        pack_tail(m, &p, from, record);
    return MOXIE_OK;
}

/* ---- the record ----------------------------------------------------------------------------------------------- */

static void unpack_matrix(const mox_hopper_matrix *m, const product *p, const uint8_t *record, int half,
                          const moxie_matrix *to)
{
    unpack_codes(m, record, half, &to->codes);
    if (p->quant->scale != MOXIE_DTYPE_NONE)
        unpack_scales(m, p, record, half, &to->scale);
    const float *bias = (const float *)(const void *)(record + m->bias_at);
    for (int64_t r = 0; p->bias && r < m->rows; r++)
        mox_pack_put_float(&to->bias, r, 0, bias[product_row(m, half, r)]);
    mox_pack_put_natural_order(to, p->cols, mox_group_cols(p->quant, p->cols));
}

static moxie_status unpack(const mox_record_shape *shape, const void *record, moxie_expert *out, moxie_error *error)
{
    (void)error;
    const product w13 = product_of(shape, W13), w2 = product_of(shape, W2);
    mox_hopper_record form;
    mox_record_header header;
    memcpy(&header, record, sizeof header);
    mox_hopper_form(shape, &form);
    unpack_matrix(&form.w13, &w13, record, 0, shape->gated ? &out->gate : &out->up);
    if (shape->gated)
        unpack_matrix(&form.w13, &w13, record, 1, &out->up);
    unpack_matrix(&form.w2, &w2, record, 0, &out->down);
    out->a13_scale = header.a13_scale;
    out->a2_scale = header.a2_scale;
    return MOXIE_OK;
}

const mox_layout mox_layout_hopper = {
    .number = 3,
    .name = "hopper",
    .summary = "swizzled chunks of 128 rows by 128 bytes, for bulk copies and warpgroup MMA of Hopper GPUs",
    .refuse = refuse,
    .takes = takes,
    .record_bytes = record_bytes,
    .parts = parts,
    .part_at = part_at,
    .pack_part = pack_part,
    .unpack = unpack,
};
