/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_rows.c - orders of rows. Row r of the tensor is row source(r) of [gate | up], or of the only matrix.
 *
 *     w31              [up | gate]                          the halves swapped
 *     gated            up0 gate0 up1 gate1 ...              from [up | gate]; gate0 up0 .. from [gate | up]
 *     runs 64          64 of up, 64 of gate, ...            from [up | gate]
 *     shuffle B        inside blocks of B = 32 or 16 rows:  0 4 8 .. 28 | 1 5 .. 29 | 2 ..     (B = 32)
 *                                                           0 2 4 .. 14 | 1 3 .. 15            (B = 16)
 *     runs_8           gate0..7 up0..7 gate8..15 up8..15 .. from [gate | up]
 *     lanes            inside blocks of 128 rows:           0 32 64 96 1 33 65 97 2 ..
 *     a_b              b first, then a of its result: source(r) = b(a(r))
 *
 * A single matrix has no halves, so its rows are only shuffled, or stay.
 * The shuffles make rows neighbours that one thread of the kernel's epilogue holds.
 * Sources: FlashInfer's shuffle_matrix_a and reorder_rows_for_gated_act_gemm (row index maps); DeepGEMM's preparation
 * of weights for its fused layer (runs_8, lanes).
 */
#include "vendor/vendor_parts.h"

static int64_t w31(int64_t r, int64_t rows)
{
    return r < rows / 2 ? r + rows / 2 : r - rows / 2;
}

static int64_t as_they_are(int64_t r, int64_t rows)
{
    (void)rows;
    return r;
}

static int64_t gated(int64_t r, int64_t rows)
{
    return r / 2 + r % 2 * (rows / 2);
}

static int64_t shuffle_32(int64_t r, int64_t rows)
{
    (void)rows;
    return r / 32 * 32 + 4 * (r % 8) + r % 32 / 8;
}

static int64_t shuffle_16(int64_t r, int64_t rows)
{
    (void)rows;
    return r / 16 * 16 + 2 * (r % 8) + r % 16 / 8;
}

static int64_t shuffle_gated_w31(int64_t r, int64_t rows)
{
    return w31(gated(shuffle_32(r, rows), rows), rows);
}

static int64_t shuffle_16_w31(int64_t r, int64_t rows)
{
    return w31(shuffle_16(r, rows), rows);
}

static int64_t runs_8(int64_t r, int64_t rows)
{
    return r / 16 * 8 + r % 8 + r / 8 % 2 * (rows / 2);
}

static int64_t lanes(int64_t r, int64_t rows)
{
    (void)rows;
    return r / 128 * 128 + r % 4 * 32 + r % 128 / 4;
}

static int64_t lanes_runs_8(int64_t r, int64_t rows)
{
    return runs_8(lanes(r, rows), rows);
}

static int64_t runs_64_w31(int64_t r, int64_t rows)
{
    return w31(r / 64 % 2 * (rows / 2) + r / 128 * 64 + r % 64, rows);
}

const mox_vendor_rows mox_rows_w31 = { "w31", w31, 1, as_they_are };
const mox_vendor_rows mox_rows_gated = { "gated", gated, 1, as_they_are };
const mox_vendor_rows mox_rows_shuffle_32 = { "shuffle_32", shuffle_32, 32, NULL };
const mox_vendor_rows mox_rows_shuffle_16 = { "shuffle_16", shuffle_16, 16, NULL };
const mox_vendor_rows mox_rows_shuffle_gated_w31 = { "shuffle_32 of gated of w31", shuffle_gated_w31, 32, shuffle_32 };
const mox_vendor_rows mox_rows_shuffle_16_w31 = { "shuffle_16 of w31", shuffle_16_w31, 16, shuffle_16 };
const mox_vendor_rows mox_rows_runs_8 = { "runs of 8", runs_8, 16, as_they_are };
const mox_vendor_rows mox_rows_lanes = { "lanes", lanes, 128, NULL };
const mox_vendor_rows mox_rows_lanes_runs_8 = { "lanes of runs of 8", lanes_runs_8, 128, lanes };
const mox_vendor_rows mox_rows_runs_64_w31 = { "runs of 64 of w31", runs_64_w31, 128, as_they_are };
