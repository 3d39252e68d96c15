/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_unit.h - 16 bytes of a record of pack/hopper, made by themselves: the layouts of hopper.h read backwards, from a
 * place in the record to the codes that lie there. Plain C that kernels compile, too.
 *
 *     at -> product, tile, chunk -> 16 rows of a warp -> lane -> 4 words -> rows and columns of their codes
 *
 * A packer on the host goes the other way, from rows to words, since it is fast when it reads whole cache lines. On a
 * device thousands of threads gather side by side, and their caches bring the lines together.
 */
#ifndef MOX_CUDA_PACK_UNIT_H
#define MOX_CUDA_PACK_UNIT_H

#include "cuda/pack/cuda_pack_args.h"
#include "pack/hopper/hopper_moves.h"
#include "quant/grid_place.h"

#define MOX_PACK_UNIT 16 /* bytes */

typedef struct mox_pack_unit {
    uint32_t word[4];
} mox_pack_unit;

typedef enum mox_pack_order { MOX_PACK_SWIZZLED, MOX_PACK_FRAGMENTS, MOX_PACK_FRAGMENTS_FP8 } mox_pack_order;

/* Where a unit's codes come from: a product, 16 of its rows, the columns of a chunk. */
typedef struct mox_pack_source {
    const mox_hopper_matrix *m;
    const moxie_grid *grids; /* of gate and up, or of the product's only matrix */
    int32_t bits, element;
    int64_t row, col; /* first row of the product, first column */
} mox_pack_source;

/* The code of a row and a column, counted from the source's first; 0 behind the last of the matrix. */
MOX_SHARED uint32_t mox_pack_code(const mox_pack_source *s, int32_t row, int32_t col)
{
    int64_t r;
    const int half = mox_hopper_half(s->m, s->row + row, &r);
    if (r >= s->m->rows || s->col + col >= s->m->cols)
        return 0;
    return mox_grid_short_code(&s->grids[half], r, s->col + col, s->bits);
}

/* ---- layout hopper ---------------------------------------------------------------------------------------------- */

/* Byte `in` of a chunk: row in / 128, whose 16-byte unit q lies in place q ^ (row % 8). */
MOX_SHARED mox_pack_unit mox_pack_swizzled(const mox_pack_source *s, int32_t in)
{
    const int32_t row = in / MOX_HOPPER_CHUNK_WIDTH, q = in % MOX_HOPPER_CHUNK_WIDTH / MOX_PACK_UNIT ^ row % 8;
    const int32_t per_word = 32 / s->bits;
    mox_pack_unit unit = { { 0, 0, 0, 0 } };
    for (int32_t i = 0; i < 4 * per_word; i++)
        unit.word[i / per_word] |= mox_pack_code(s, row, q * 4 * per_word + i) << s->bits * (i % per_word);
    return unit;
}

/* ---- layout hopper_codes ---------------------------------------------------------------------------------------- */

/* The code in half `half` of register `i` of columns 16 j .. 16 j + 15 (drawn in hopper.h). */
MOX_SHARED uint32_t mox_pack_register_code(const mox_pack_source *s, int32_t lane, int32_t j, int32_t i, int32_t half)
{
    return mox_pack_code(s, lane / 4 + 8 * (i % 2), 16 * j + 8 * (i / 2) + 2 * (lane % 4) + half);
}

/* Word `number` of a lane, of 4-bit or 8-bit codes. */
MOX_SHARED uint32_t mox_pack_word(const mox_pack_source *s, int32_t lane, int32_t number)
{
    const int32_t registers = 16 / s->bits; /* in a word */
    uint32_t word = 0;
    for (int32_t in = 0; in < registers; in++)
        for (int32_t half = 0; half < 2; half++)
            word |= mox_pack_register_code(s, lane, number * registers / 4, number * registers % 4 + in, half)
                    << (s->bits * in + 16 * half);
    return mox_hopper_moved(word, s->element);
}

/* Both halves of register i as decoded 6-bit codes: the sign in bit 15, the magnitude from bit `up` on. */
MOX_SHARED uint32_t mox_pack_six(const mox_pack_source *s, const mox_hopper_sixes *six, int32_t lane, int32_t j,
                                 int32_t i)
{
    uint32_t both = 0;
    for (int32_t half = 0; half < 2; half++) {
        const uint32_t code = mox_pack_register_code(s, lane, j, i, half);
        both |= ((code & 0x20) << six->top | (code & 0x1f) << six->up) << 16 * half;
    }
    return both;
}

/* A word of the plane with four bits of each 6-bit code; of the plane with the other two bits. */
MOX_SHARED uint32_t mox_pack_four_bits(const mox_pack_source *s, const mox_hopper_sixes *six, int32_t lane, int32_t j)
{
    uint32_t word = 0;
    for (int32_t i = 0; i < 4; i++) {
        const uint32_t bits = mox_pack_six(s, six, lane, j, i) & six->four;
        word |= MOX_ROTATED_BACK(bits, 4 * i);
    }
    return word;
}

MOX_SHARED uint32_t mox_pack_two_bits(const mox_pack_source *s, const mox_hopper_sixes *six, int32_t lane, int32_t pair)
{
    uint32_t word = 0;
    for (int32_t n = 0; n < 8; n++) {
        const int32_t j = 2 * pair + n / 4, i = n % 4;
        const uint32_t bits = mox_pack_six(s, six, lane, j, i) & six->two;
        word |= MOX_ROTATED_BACK(bits, six->each * i + six->odd * (j % 2));
    }
    return word;
}

enum { MOX_PACK_PLANE = 512 }; /* bytes of a plane: [32 lanes][4 words] */

/* Byte `in` of the 16 rows of a warp. */
MOX_SHARED mox_pack_unit mox_pack_fragments(const mox_pack_source *s, int32_t in)
{
    const mox_hopper_sixes six = s->element == MOXIE_F6_E2M3 ? mox_hopper_e2m3 : mox_hopper_e3m2;
    const int32_t plane = in / MOX_PACK_PLANE, lane = in % MOX_PACK_PLANE / MOX_PACK_UNIT;
    mox_pack_unit unit;
    for (int32_t k = 0; k < 4; k++) {
        if (s->bits != 6)
            unit.word[k] = mox_pack_word(s, lane, 4 * plane + k);
        else if (plane == 0)
            unit.word[k] = mox_pack_four_bits(s, &six, lane, k);
        else
            unit.word[k] = mox_pack_two_bits(s, &six, 2 * lane + k / 2, k % 2);
    }
    return unit;
}

/* ---- layout hopper_fp8 ------------------------------------------------------------------------------------------ */

/* Words 0 and 1 of a lane are columns 0-31 of the plane's 64, words 2 and 3 the others; odd words row r + 8. */
MOX_SHARED mox_pack_unit mox_pack_fragments_fp8(const mox_pack_source *s, int32_t in)
{
    const int32_t plane = in / MOX_PACK_PLANE, lane = in % MOX_PACK_PLANE / MOX_PACK_UNIT;
    mox_pack_unit unit;
    for (int32_t k = 0; k < 4; k++) {
        uint32_t word = 0;
        for (int32_t i = 0; i < 8; i++)
            word |= mox_pack_code(s, lane / 4 + k % 2 * 8,
                                  64 * plane + 32 * (k / 2) + 16 * (i / 4) + 4 * (lane % 4) + i % 4)
                    << 4 * i;
        unit.word[k] = mox_hopper_moved(word, mox_hopper_fp8_order(s->element));
    }
    return unit;
}

/* ---- any unit --------------------------------------------------------------------------------------------------- */

/* A unit of codes: byte `in` of a tile of product `which`. */
MOX_SHARED mox_pack_unit mox_pack_codes(const mox_cuda_pack_args *a, mox_pack_order order, int which, int64_t tile,
                                        uint64_t in)
{
    const mox_hopper_matrix *m = which == 0 ? &a->form.w13 : &a->form.w2;
    const int64_t chunk_bytes = (int64_t)mox_hopper_chunk_at(m, tile, 1), chunk = (int64_t)in / chunk_bytes;
    const int32_t in_chunk = (int32_t)((int64_t)in % chunk_bytes), warp_bytes = 16 * m->chunk_row_bytes;
    mox_pack_source s = { m, which == 0 ? a->codes : a->codes + 2, a->bits[which], a->element[which], 0, 0 };
    s.row = tile * MOX_HOPPER_TILE_ROWS;
    s.col = chunk * m->chunk_cols;
    if (order == MOX_PACK_SWIZZLED)
        return mox_pack_swizzled(&s, in_chunk);
    s.row += in_chunk / warp_bytes * 16;
    return order == MOX_PACK_FRAGMENTS ? mox_pack_fragments(&s, in_chunk % warp_bytes)
                                       : mox_pack_fragments_fp8(&s, in_chunk % warp_bytes);
}

/* The unit at byte `at` of the record, a multiple of 16. */
MOX_SHARED mox_pack_unit mox_pack_unit_at(const mox_cuda_pack_args *a, mox_pack_order order, uint64_t at)
{
    const int which = at >= a->form.w13.end;
    const mox_hopper_matrix *m = which == 0 ? &a->form.w13 : &a->form.w2;
    if (m->tiles > 0 && at >= m->tiles_at) {
        const int64_t tile = mox_hopper_tile_of(m, at);
        const uint64_t in = at - mox_hopper_tile_at(m, tile);
        if (in < mox_hopper_tile_codes(m, tile))
            return mox_pack_codes(a, order, which, tile, in);
    }
    return *(const mox_pack_unit *)(const void *)(a->rest + mox_hopper_rest_at(&a->form, at));
}

#endif
