/* SPDX-License-Identifier: Apache-2.0
 *
 * hopper_blocks.c - blocks of a checkpoint to codes and scales of layout "hopper_codes", and back (hopper_blocks.h).
 */
#include "pack/hopper/hopper_blocks.h"

#include "pack/hopper/hopper_matrix.h"
#include "pack/hopper/hopper_moves.h"

enum { SCALES = 4, CHUNKS = 1 << MOX_HOPPER_SUPER_SHIFT }; /* bytes of d and m; chunks of a block */

mox_hopper_block mox_hopper_block_of(moxie_dtype element)
{
    const mox_block_fields *f = mox_block_fields_of(element);
    const mox_hopper_block none = { .bits = 0 };
    if (f == NULL || mox_block_of(element)->weights != MOX_HOPPER_SUPER_COLS || f->integers == MOX_BLOCK_NIBBLES)
        return none;
    const int32_t bits = f->low.bits + f->high.bits;
    const bool thirds = (bits == 4 || bits == 5) && f->run == 32, six = bits == 6 && f->run == 16;
    if (!(thirds || six) || f->integers == MOX_BLOCK_NONE || (six && f->m_at >= 0))
        return none;
    const int32_t runs = MOX_HOPPER_CODE_COLS / f->run, chunk_bytes = f->m_at >= 0 ? 2 * runs : runs;
    return (mox_hopper_block) { .fields = f,
                                .bits = bits,
                                .order = six         ? MOX_HOPPER_SIX_BITS
                                         : bits == 5 ? MOX_HOPPER_FIVE_BITS
                                         : f->levels ? MOX_HOPPER_LEVELS
                                                     : (int32_t)MOXIE_U4B8,
                                .runs = runs,
                                .chunk_bytes = chunk_bytes,
                                .row_bytes = SCALES + CHUNKS * chunk_bytes,
                                .has_minimums = f->m_at >= 0,
                                .looked_up = f->levels != 0 };
}

static uint8_t *block_at(const moxie_grid *grid, int64_t row, int64_t block)
{
    /* A view is const, since most users only read it. The cast through uintptr_t lets a writer store. */
    return (uint8_t *)(uintptr_t)grid->data + row * grid->row_stride + block * grid->col_stride;
}

/* 256 codes, a byte each, as dense codes of `bits` bits. */
static void pack_row(int32_t bits, const uint8_t *code, uint8_t *to)
{
    for (int32_t i = 0; i < MOX_HOPPER_SUPER_COLS; i += 8, to += bits) {
        uint64_t eight = 0;
        for (int32_t k = 0; k < 8; k++)
            eight |= (uint64_t)code[i + k] << bits * k;
        memcpy(to, &eight, (size_t)bits);
    }
}

void mox_hopper_block_codes(const mox_hopper_block *b, const moxie_grid *grid, int64_t row, int64_t rows, int64_t block,
                            uint8_t *to)
{
    const int64_t bytes = MOX_HOPPER_SUPER_COLS / 8 * b->bits;
    for (int64_t r = row; r < row + rows; r++, to += bytes) {
        mox_block_parts parts;
        if (r >= grid->rows) {
            memset(to, 0, (size_t)bytes);
            continue;
        }
        mox_block_split(b->fields, block_at(grid, r, block), &parts);
        pack_row(b->bits, parts.code, to);
    }
}

void mox_hopper_block_scales(const mox_hopper_block *b, const moxie_grid *grid, int64_t row, int64_t block, uint8_t *to)
{
    mox_block_parts parts;
    mox_block_split(b->fields, block_at(grid, row, block), &parts);
    memcpy(to, parts.d, sizeof parts.d);
    memcpy(to + sizeof parts.d, parts.m, sizeof parts.m);
    for (int32_t c = 0; c < CHUNKS; c++) {
        uint8_t *chunk = to + SCALES + c * b->chunk_bytes;
        memcpy(chunk, parts.s + c * b->runs, (size_t)b->runs);
        if (b->has_minimums)
            memcpy(chunk + b->runs, parts.t + c * b->runs, (size_t)b->runs);
    }
}

void mox_hopper_block_store(const mox_hopper_block *b, const moxie_grid *grid, int64_t row, int64_t block,
                            const uint8_t *codes, const uint8_t *scales)
{
    mox_block_parts parts = { .d = { scales[0], scales[1] }, .m = { scales[2], scales[3] } };
    memcpy(parts.code, codes, sizeof parts.code);
    for (int32_t c = 0; c < CHUNKS; c++) {
        const uint8_t *chunk = scales + SCALES + c * b->chunk_bytes;
        memcpy(parts.s + c * b->runs, chunk, (size_t)b->runs);
        if (b->has_minimums)
            memcpy(parts.t + c * b->runs, chunk + b->runs, (size_t)b->runs);
    }
    mox_block_join(b->fields, &parts, block_at(grid, row, block));
}

static bool is_special(const uint8_t *f16)
{
    return (f16[1] & 0x7c) == 0x7c;
}

int64_t mox_hopper_block_special(const mox_hopper_block *b, const moxie_grid *grid)
{
    const mox_block_fields *f = b->fields;
    for (int64_t r = 0; r < grid->rows; r++)
        for (int64_t i = 0; i < grid->cols / MOX_HOPPER_SUPER_COLS; i++) {
            const uint8_t *block = block_at(grid, r, i);
            if (is_special(block + f->d_at) || (b->has_minimums && is_special(block + f->m_at)))
                return r;
        }
    return -1;
}
