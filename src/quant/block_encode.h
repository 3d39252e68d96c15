/* SPDX-License-Identifier: Apache-2.0
 *
 * block_encode.h - weights in f32 -> blocks of a block type (format/blocks.def), bit for bit the same on all machines:
 *
 *     row | 32 to 256 weights | ... -> scale (and minimum) of each run -> integers, d, m -> codes -> bytes of a block
 *
 *                  PLAIN                                        MSE
 *     q8_0         d = amax / 127                               the same: 8 bits gain nothing
 *     q4_0, q5_0   d = (weight of largest magnitude) / -8, -16  of 20 scales the one with the least squared error, d by
 *     q4_1, q5_1   d = (highest - lowest) / 15, 31              least squares (block_fit.h); codes to nearest under the
 *     iq4_nl, q*_k, iq4_xs   d of a run likewise                rounded d
 *     iq1 to iq3   largest magnitude = largest level            several d; the best entry of the code book, by weight
 *     tq1_0, tq2_0, q2_0   d = amax                             of 16 scales the best, d by least squares
 *     q1_0         d = mean of |w|                              the same; weighted, if there are importances
 *     mxfp4        exponent floor(log2 amax) - 2                that one and its two neighbours
 *     nvfp4        amax / 6 of 16, as e4m3                      that code, two below and five above
 *     f32, f16, bf16         to nearest                         to nearest
 *
 * PLAIN q8_0, q4_0, q4_1, q5_0, q5_1, mxfp4, nvfp4, q2_0, tq1_0 and tq2_0 are what ggml's quantize_row_*_ref and
 * gguf-py give. In types with
 * integers for runs, d is the largest scale / the largest integer, and codes are those nearest under the rounded
 * product. Squared errors may be weighted by an importance for each column.
 */
#ifndef MOX_QUANT_BLOCK_ENCODE_H
#define MOX_QUANT_BLOCK_ENCODE_H

#include "format/block.h"

/* True when blocks of this type can be made. */
bool mox_block_can_encode(moxie_dtype dtype);
/* The magnitude up to which weights can be encoded; of plain floats, the largest number. */
float mox_block_largest(moxie_dtype dtype);
/* Encodes a row of `count` finite weights, a multiple of the type's block; F32, F16 and BF16 too. `importance` [count]:
 * positive weights of squared errors, or NULL. `search`: MSE. `out` needs no alignment. Thread-safe. */
void mox_block_encode_row(moxie_dtype dtype, const float *w, const float *importance, int64_t count, bool search,
                          uint8_t *out);
/* Bytes of a row of `count` weights in a block type or a plain float. */
uint64_t mox_block_row_bytes(moxie_dtype dtype, int64_t count);

#endif
