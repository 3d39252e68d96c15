/* SPDX-License-Identifier: Apache-2.0
 *
 * hopper.h - layouts "hopper", "hopper_codes" and "hopper_fp8": weights in chunks for the warpgroup MMA (wgmma) of
 * Hopper GPUs. A chunk is contiguous, so one bulk copy moves it from device memory to shared memory.
 *
 *     layout         elements                                 how a kernel reads a chunk
 *     hopper         bf16, f16, f8_e4m3, i8                   wgmma takes it from shared memory as it is
 *     hopper_codes   codes of 4 to 8 bits with scales         decoded in registers to bf16 or f16: operand A
 *     hopper_fp8     f4_e2m1 with f8_e8m0 scales, integers    decoded in registers to f8_e4m3: operand A
 *
 *     record  | header | W13 tiles | W13 rows | W2 tiles | W2 rows |             each part starts on 128 bytes
 *     tile    | chunk 0 | chunk 1 | ... along K | blocks of scales |  128 rows; the last tile of a product has 64
 *                                                                     when that is enough
 *     chunk   rows x chunk_row_bytes of codes
 *     rows    one f32 per row: row factors, then biases; absent when the projection has none
 *
 * Gated W13 interleaves gate and up: product rows 16 b .. 16 b + 7 are gate rows 8 b .. 8 b + 7, the next eight are the
 * up rows with the same numbers. So one thread of the MMA holds both inputs of its activation. Otherwise product row n
 * is row n of the matrix. Rows and columns past the last are code 0 with scale 0. The layouts are drawn below.
 */
#ifndef MOX_PACK_HOPPER_H
#define MOX_PACK_HOPPER_H

#include "pack/hopper/hopper_matrix.h"
#include "pack/layout.h"

/* ---- layout "hopper" -------------------------------------------------------------------------------------------
 * A chunk has 128 bytes of each row: 64 columns of 16 bits or 128 columns of 8 bits. Row n starts at byte 128 n. Its
 * 16-byte unit q lies in place q ^ (n % 8): the 128-byte swizzle of shared memory (PTX ISA, "Asynchronous Warpgroup
 * Level Matrix Shared Memory Layout").
 *
 *     e4m3, 128 rows      0 | row 0: 128 columns, units 0 1 2 3 4 5 6 7
 *                       128 | row 1:              units 1 0 3 2 5 4 7 6
 *                       ... |
 *                     16384 | the next chunk
 *            16384 * chunks | 16 f32 scales of chunk 0: rows 0-7, 8-15, ...; 16 of chunk 1; ... up to 128 bytes
 *
 * Scales of e4m3 lie in the tiles when one scale covers a multiple of 8 rows (or all) and a multiple of 128 columns (or
 * all). Scales of single rows are row factors, and the scales in the tiles are then 1. Integers always have one scale
 * per row as a row factor, and no scales in the tiles.
 *
 * ---- layout "hopper_codes" -------------------------------------------------------------------------------------
 * Codes lie in the order of the registers of wgmma's operand A (PTX ISA, "Register Fragments for
 * wgmma.mma_async.m64nNk16"). A chunk has 64 columns. Every 16 rows of it belong to one warp, as planes of [32 lanes]:
 *
 *     4 bits   one plane of 4 words a lane
 *     5, 6     one plane of 4 words a lane with four bits of each code, one of 1 or 2 words with the other bits
 *     8 bits   two planes of 4 words a lane
 *
 * Lane l holds rows r = l / 4 and r + 8 of the 16. Of columns 16 j .. 16 j + 15 it holds c = 2 (l % 4), c + 1, c + 8
 * and c + 9. These eight codes are word j of the plane; with 8 bits words 2 j and 2 j + 1, counted through both planes;
 * with 6 bits word j of the first plane and half the bits of word j / 2 of the second.
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
 * A lane decodes its eight codes to four registers, each with a low and a high half:
 *
 *     register    0                 1                         2                         3
 *     halves      (r,c) (r,c+1)     (r+8,c) (r+8,c+1)         (r,c+8) (r,c+9)           (r+8,c+8) (r+8,c+9)
 *
 * Below, "after n turns" means: the word rotated left by n bits. A decoded half is a bf16 of 2^-unit times the code's
 * value; scales make up for the unit.
 *
 *     4 bits    e2m1       register i: the word after 0, 4 and 10 turns for i = 0, 1, 2; for i = 3 after 14 turns (bits
 *                          31, 24, 23, 15, 8, 7) and 6 turns (bits 22, 6). Of each half bit 15 is the sign and bits 8,
 *                          7, 6 are the magnitude; unit 126
 *               integers   register i: bits 4 i .. 4 i + 3 of each half, counted from -8
 *     8 bits    Registers 0 and 1 come from the first word, 2 and 3 from the second. The first of two registers uses
 *               the word as it is, the second uses rotated words.
 *               e4m3       first: of each half bits 15 and 10 .. 4; unit 120
 *                          second: bits 15 and 7 .. 4 after 4 turns, bits 10 .. 8 after 28
 *               e5m2       first: bits 15 and 11 .. 5; unit 112
 *                          second: bits 11 .. 8, 6 and 5 after 8 turns, bits 15 and 7 after 3
 *               integers   first: bits 7 .. 0; unit 133, counted from -128; second: after 24 turns
 *     6 bits    Four bits of register i come from the first plane's word after 4 i turns, two from the second plane's.
 *               e2m3       bits 7 .. 4; bits 15 and 8 after 2 i turns, for odd j after 2 i + 8; unit 126
 *               e3m2       bits 8 .. 5; bits 15 and 9 after 4 i turns, for odd j after 4 i + 1; unit 124
 *               integers   bits 7 .. 4; bits 3 and 2 after 2 i turns, for odd j after 2 i + 8; unit 131
 *     5 bits    integers   bits 7 .. 4 after 4 i turns; bit 3 after i + 4 j turns of the lane's one word; unit 130
 *     4 bits    of iq4_xs  number a level. Nibbles 0 and 2 of the low half of the word are the halves of register 0, 1
 *                          and 3 of register 1; those of the high half are registers 2 and 3
 *
 * A block of scales covers `64 << scale_shift` columns; with scale_shift 0 it has the groups of one chunk. For every 64
 * rows it is [32 pairs of rows (r, r + 8)][2 rows][groups of the chunk]. Codes of more than 4 bits always have two
 * groups in a chunk, even if both have one scale. A kernel multiplies decoded codes by multipliers, which it makes from
 * the stored scales in few instructions. What is then missing of the true scale is in the row's factor:
 *
 *     f8_e8m0   stored: one byte, the exponent field of a bf16: the scale's + 126 - p modulo 256 (e3m2: + 124, e4m3:
 *               + 120, e5m2: + 112); factor 2^p
 *     f8_e4m3   stored as it is, used as 2^118 times its value; factor 2^8 times the global scale, or 2^-8 times one
 *               that divides
 *     bf16      stored: a bf16, the scale times 2^(129 - p), for 8-bit codes 2^(133 - p); factor 2^p
 *     f16       stored: an f16, the scale times 2^(17 - p), and behind it the zero point (8 where there is none) times
 *               -2^-17 as an f16; factor 2^p. Codes in bits 10 .. 7 of a half are 2^-17 times their numbers
 *     words     (4-bit integers with bf16 scales and zero points; 8-bit ones with zero points, or with f16 scales of
 *               groups) stored: the scale times 2^-p (one a row: 1), and behind it 16 bits with the zero point,
 *               counted as codes are (8 or 128 where there is none): of 4-bit integers -2^-17 times it as an f16, of
 *               8-bit ones the number itself; factor 2^p (one a row: the scale). Kernels multiply sums by the scale,
 *               not decoded codes
 *     per row   (8-bit codes) stored: one byte, the exponent field of a bf16: 247 for e4m3, 239 for e5m2, 254 for
 *               integers; factor: the scale, for integers 2^6 times the scale
 *     super     (block types: hopper_blocks.h) stored for 256 columns: d and m as f16 (m 0 where there is none), then
 *               for each chunk the bytes s of its runs of 32 or 16 columns and, with minimums, t of its runs; factor:
 *               the global scale, or 1. Kernels multiply the sum of each run by d s, and the sum of t by m
 *     blocks    (e4m3, e5m2; scales of 64, 128, 256, ... columns, fewer than the row has) stored: the scale as an f32,
 *               one a row of each block of scales; factor 1. Kernels multiply the sum of each chunk by it
 *
 * p is the smallest number from 0 on that keeps every multiplier of the row finite; for f16 it may be
 * negative.
 *
 * ---- layout "hopper_fp8" ---------------------------------------------------------------------------------------
 * For e2m1 with f8_e8m0 scales of 32 columns, and for 4-bit integers with bf16 scales of 128, 256, ... columns or of
 * rows; kernels look codes up as e4m3 (operand A of wgmma.mma_async.m64nNk32). As
 * "hopper_codes", but a chunk has 128 columns, and every 16 rows have two planes: columns 0-63 and columns 64-127. In a
 * plane lane l has words 0 and 1 for columns 0-31 and words 2 and 3 for columns 32-63: the first of
 * each two is for row r, the second for row r + 8. A word holds columns c = 4 (l % 4) .. c + 3 in its low half and
 * columns c + 16 .. c + 19 in its high half.
 *
 *     code      column c + i:       magnitude in bits 4 i .. 4 i + 2, sign in bit 8 i + 7
 *               column c + 16 + i:  magnitude in bits 4 i + 16 .. 4 i + 18, sign in bit 8 i + 3
 *     scale     a byte e from 0 to 11: the decoded e4m3 is 2^(e - 5) times the code's value. Four per row of a chunk
 *     factor    2^(g - 133), where 2^(g - 127) is the row's largest scale and g is at least 7. e is the exponent
 *               field of the scale - g + 11, modulo 256. Only groups of zeros may have another e than 0 .. 11
 *
 *     integers  sign and magnitude of the number, the magnitude modulo 8: a negative 0 is -8. Decoded, a quarter of it
 *     scale     bf16: the scale times 2^(2 - p), one per row of a block; kernels multiply the sum of each chunk by it
 *     factor    2^p
 */

extern const mox_layout mox_layout_hopper, mox_layout_hopper_codes, mox_layout_hopper_fp8;

/* Whether layout hopper_codes keeps the scales of a product with `cols` columns as f32, one for each block. */
bool mox_hopper_has_block_scales(const moxie_quant *quant, int64_t cols);

/* Whether it keeps the scales of integers each in a word with a zero point: sums are multiplied by them. */
bool mox_hopper_has_words(const moxie_quant *quant, int64_t cols);

/* Sizes and offsets of a record. `layout` is one of these three and accepts the shape. False for any other layout. */
bool mox_hopper_form(const mox_layout *layout, const mox_record_shape *shape, mox_hopper_record *out);

#endif
