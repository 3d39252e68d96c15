/* SPDX-License-Identifier: Apache-2.0
 *
 * hopper.h - layouts "hopper", "hopper_codes" and "hopper_fp8": weights in the chunks that warpgroup MMAs of Hopper
 * GPUs want, so that a bulk copy of contiguous bytes is all there is between device memory and the tensor cores, or the
 * registers that decode for them.
 *
 *     record | header | W13 tiles | W13 rows | W2 tiles | W2 rows |            every | begins on 128 bytes
 *
 *     tile     | chunk 0 | chunk 1 | ... along K | blocks of scales |  128 rows; the last of a product has 64 when
 *                                                                      that is enough
 *     chunk    rows x chunk_row_bytes of codes
 *     rows     one f32 a row: factors of rows, then biases; absent when the projection has none
 *
 * Gated W13: rows 16 b .. 16 b + 7 of the product are gate rows 8 b .., the next eight are the up rows of the same
 * numbers, so that one thread of the MMA gets both halves of its activation. Elsewhere product row n is row n. Rows and
 * columns past the last are code 0 with scale 0.
 *
 * "hopper": bf16, f16, f8_e4m3, i8 as shared memory holds an operand. A chunk has 128 bytes of a row: 64 columns or
 * 128. Row n lies at 128 n, and its 16-byte piece q in the place of piece q ^ (n % 8): the 128-byte swizzle of shared
 * memory (PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout").
 *
 *     e4m3, 128 rows      0 | row 0: 128 columns, pieces 0 1 2 3 4 5 6 7
 *                       128 | row 1:              pieces 1 0 3 2 5 4 7 6
 *                       ... |
 *                     16384 | the next chunk
 *            16384 * chunks | 16 f32 scales of chunk 0: rows 0-7, 8-15, ...; 16 of chunk 1; ... up to 128 bytes
 *
 * Scales of e4m3 lie in the tiles when they are shared by rows in multiples of 8 (or by all) and by columns in
 * multiples of 128 (or by all). Scales of single rows lie behind the tiles, and those in the tiles are then 1. Integers
 * have theirs there always, one a row, and none in the tiles.
 *
 * "hopper_codes": codes of 4, 6 or 8 bits as the registers of the MMA's operand A want them (PTX ISA, "Register
 * Fragments for wgmma.mma_async.m64nNk16"). A chunk has 64 columns, and for every 16 rows, those of a warp, planes of
 * 32 lanes x 4 words: one for each 4 bits of a code, or of 6 bits one and half another, of 2 words a lane. Lane l has
 * rows r = l / 4 and r + 8 of the 16, and of columns 16 j .. 16 j + 15 c = 2 (l % 4), + 1, + 8, + 9: eight codes, which
 * are word j of the plane; of 8 bits words 2 j and 2 j + 1 of both planes; of 6 bits word j of the first plane and half
 * of the bits of word j / 2 of the second.
 *
 *     4-bit, 128 rows     0 | rows 0-15: lane 0: 16 bytes, lane 1, ...
 *                       512 | rows 16-31, ...
 *                      4096 | the next chunk
 *             4096 * chunks | block 0 of scales, block 1, ... up to 128 bytes
 *
 *     8-bit, 128 rows     0 | rows 0-15, columns 0-31: lane 0: 16 bytes, lane 1, ...
 *                       512 |            columns 32-63
 *                      1024 | rows 16-31, ...
 *                      8192 | the next chunk, ...
 *
 *     code      of registers 0 .. 3, each with a low and a high half:
 *               (r, c) (r, c + 1) | (r + 8, c) (r + 8, c + 1) | (r, c + 8) (r, c + 9) | (r + 8, c + 8) (r + 8, c + 9)
 *     e2m1      register i is the word turned left by 0, 4, 10 bits and, i = 3, by 14 (bits 31, 24, 23, 15, 8, 7) and
 *               by 6 (bits 22, 6); of each half bit 15 is the sign, bits 8, 7, 6 the magnitude: a bf16 of 2^-126 times
 *               the code's value
 *     4-bit     integers: bits 4 i .. 4 i + 3 of each half; counted from -8
 *
 * Of 8 bits, registers 0 and 1 are the first word's, 2 and 3 the second's. A word's first register has bits of the word
 * itself, its second those that turns to the left bring:
 *
 *     e4m3      first: of each half bits 15 and 10 .. 4, a bf16 of 2^-120 times the code's value
 *               second: of these, 15 and 7 .. 4 after 4 turns, 10 .. 8 after 28
 *     e5m2      first: bits 15 and 11 .. 5, 2^-112 times the value
 *               second: 11 .. 8, 6 and 5 after 8 turns, 15 and 7 after 3
 *     integers  first: bits 7 .. 0, 2^-133 times the number, which is counted from -128; second: after 24 turns
 *
 * Of 6 bits, four of register i's come from the first plane's word, after 4 i turns to the left, and two from the
 * second's:
 *
 *     e2m3      bits 7 .. 4; 15 and 8 after 2 i turns, of odd j 2 i + 8: 2^-126 times the code's value
 *     e3m2      bits 8 .. 5; 15 and 9 after 4 i turns, of odd j 4 i + 1: 2^-124 times the value
 *
 * A block of scales covers `64 << scale_shift` columns, or with scale_shift 0 the groups of one chunk: for every 64
 * rows [32 pairs of rows (r, r + 8)][2 rows][groups of the chunk]. Of codes of more than 4 bits a chunk has two groups,
 * even if they are one. Kernels multiply codes, which come in units far below 1, by what they make of scales in few
 * instructions; what is lacking then, the row's factor has:
 *
 *     f8_e8m0   a byte, the exponent of a bf16: the scale's + 126 - p modulo 256, of e3m2 + 124, of e4m3 + 120, of e5m2
 *               + 112; factor 2^p
 *     f8_e4m3   as it is, worth 2^118 times its value; factor 2^8 times the global, or 2^-8 times one that divides
 *     bf16      the scale times 2^(129 - p), of 8-bit codes 2^(133 - p), a bf16; factor 2^p
 *     f16       the scale times 2^(17 - p), an f16, and behind it the zero point (8 where there is none) times -2^-17,
 *               an f16; factor 2^p. Codes in bits 10 .. 7 of a half are 2^-17 times their numbers
 *     of rows   (8-bit codes) a byte, the exponent of a bf16: 247 of e4m3, 239 of e5m2, factor the scale; 254 of
 *               integers, factor 2^6 times the scale
 *
 * p is the least from 0 on that lets every multiplier of the row be finite; of f16 the least of all.
 *
 * "hopper_fp8": e2m1 with scales of f8_e8m0 for 32 columns, which kernels look up as e4m3 (operand A of
 * wgmma.mma_async.m64nNk32). As "hopper_codes", but a chunk has 128 columns, and for every 16 rows two planes, of
 * columns 0-63 and 64-127. Lane l has in a plane words 0 and 1 of columns 0-31, 2 and 3 of 32-63: of rows r and r + 8,
 * of columns c = 4 (l % 4), + 1, + 2, + 3 in the low half and + 16, ... + 19 in the high half.
 *
 *     code      columns c + i: magnitude in bits 4 i + 2 .. 4 i, sign in bit 8 i + 7
 *               c + 16 + i:    magnitude in bits 4 i + 18 .. 4 i + 16, sign in bit 8 i + 3
 *     scale     a byte e of 0 .. 11: the code is the e4m3 of 2^(e - 5) times its value. Four of each row in a chunk
 *     factor    2^(g - 133) of a row whose greatest scale is 2^(g - 127), g being 7 at least; e is the scale's exponent
 *               field - g + 11, modulo 256 where it is not of 0 .. 11, which groups of zeros alone may have
 */
#ifndef MOX_PACK_HOPPER_H
#define MOX_PACK_HOPPER_H

#include "pack/layout.h"

#define MOX_HOPPER_ALIGN       128
#define MOX_HOPPER_TILE_ROWS   128
#define MOX_HOPPER_CHUNK_WIDTH 128 /* bytes of an operand's row in a chunk: weights of "hopper", tokens */
#define MOX_HOPPER_CODE_COLS   64  /* columns of a chunk of codes */
#define MOX_HOPPER_FP8_COLS    128 /* where they become e4m3 */
#define MOX_HOPPER_WINDOW      12  /* powers of two of one row's scales there */
#define MOX_HOPPER_ONE_BLOCK   31  /* scale_shift where one block has the whole row's scales */

/* One product of a record: where it lies (offsets are bytes from the record's start), and its form. */
typedef struct mox_hopper_matrix {
    int64_t rows;        /* of one matrix: I or H */
    int64_t cols;        /* K */
    int64_t stored_rows; /* of the product: gated, 16 for every 8 begun of each half; else rows */
    int64_t tiles, chunks, scale_blocks;
    int32_t chunk_cols, chunk_row_bytes;
    int32_t scale_bytes; /* of 128 rows in a block; 0: no scales in tiles */
    int32_t scale_shift; /* chunk c finds its scales in block c >> scale_shift */
    int32_t last_rows;   /* of the last tile: 64 or 128 */
    bool gated;
    uint64_t tile_bytes;            /* of a tile of 128 rows; the last one's may be less */
    uint64_t tiles_at;              /* tile t at tiles_at + t * tile_bytes */
    uint64_t row_scale_at, bias_at; /* [tiles * 128] f32; 0: absent */
    uint64_t end;
} mox_hopper_matrix;

typedef struct mox_hopper_record {
    mox_hopper_matrix w13, w2;
} mox_hopper_record;

extern const mox_layout mox_layout_hopper, mox_layout_hopper_codes, mox_layout_hopper_fp8;

/* The form of a record of a shape that `layout`, one of these, accepts. False for every other layout. */
bool mox_hopper_form(const mox_layout *layout, const mox_record_shape *shape, mox_hopper_record *out);

#endif
