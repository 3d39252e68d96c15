/* SPDX-License-Identifier: Apache-2.0
 *
 * vendor_orders_atoms.c - scales as block-scaled tensor core instructions read them: atoms of 4 columns, rows
 * interleaved.
 *
 *     scales_128x4     [rows / 128][cols / 4][32][4][4], flat or declared as [rows][cols]: atoms of 512 elements,
 *                      rows 0, 32, 64, 96 side by side
 *
 *         atom     columns 4q .. 4q + 3 of
 *         line 0   row 0 | row 32 | row 64 | row 96
 *         line 1   row 1 | row 33 | row 65 | row 97         element (m, k) of an atom at  m % 32 * 16 + m / 32 * 4 + k
 *         ...
 *         line 31  row 31 | ...
 *
 *     blackwell_scales the same, columns padded to 8
 *     scales_8x4       [rows / 8][cols / 4][8][4], for activations of few tokens; flat
 *
 * Rows are padded to the rows of an atom and columns to 4, with zeros. Scales that are not swizzled ("linear") use the
 * plain order. Sources: the scale factor layout of NVIDIA's block-scaled tensor core instructions, as TensorRT-LLM's
 * quantization kernels write it; triton_kernels' blackwell_scale.py.
 */
#include "vendor/vendor_parts.h"

#define INLINE static inline __attribute__((always_inline))

enum { ATOM_ROWS = 128, SMALL_ROWS = 8, ATOM_COLS = 4, ATOM = 512 };

/* Offset of columns 4q .. 4q + 3 of row `row`, in atoms of `atom_rows` rows. */
INLINE int64_t atom_offset(const mox_vendor_matrix *m, int64_t row, int64_t q, int64_t atom_rows)
{
    const int64_t atom = (row / atom_rows * (m->cols / ATOM_COLS) + q) * atom_rows * ATOM_COLS;
    return atom_rows == SMALL_ROWS ? atom + row % SMALL_ROWS * ATOM_COLS
                                   : atom + row % 32 * 16 + row % ATOM_ROWS / 32 * ATOM_COLS;
}

/* `size` and `atom_rows` are constants where this is inlined: a run is one move. */
INLINE void put_runs(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows,
                     uint8_t *tensor, int64_t size, int64_t atom_rows)
{
    for (int64_t r = 0; r < count; r++)
        for (int64_t q = 0; q < m->cols / ATOM_COLS; q++)
            memcpy(tensor + atom_offset(m, row + r, q, atom_rows) * size, rows[r] + q * ATOM_COLS * size,
                   (size_t)(ATOM_COLS * size));
}

INLINE void get_runs(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                     const uint8_t *tensor, int64_t size, int64_t atom_rows)
{
    for (int64_t r = 0; r < count; r++)
        for (int64_t q = 0; q < m->cols / ATOM_COLS; q++)
            memcpy(rows[r] + q * ATOM_COLS * size, tensor + atom_offset(m, row + r, q, atom_rows) * size,
                   (size_t)(ATOM_COLS * size));
}

static void put_atoms(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows,
                      uint8_t *tensor)
{
    if (m->bits == 8)
        put_runs(m, row, count, rows, tensor, 1, ATOM_ROWS);
    else
        put_runs(m, row, count, rows, tensor, 2, ATOM_ROWS);
}

static void get_atoms(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                      const uint8_t *tensor)
{
    if (m->bits == 8)
        get_runs(m, row, count, rows, tensor, 1, ATOM_ROWS);
    else
        get_runs(m, row, count, rows, tensor, 2, ATOM_ROWS);
}

#define ATOMS(cols)                                                                                                    \
    .step = ATOM_ROWS, .bytes_multiple = 1, .pad_rows = ATOM_ROWS, .pad_cols = cols, .put = put_atoms, .get = get_atoms
const mox_vendor_order mox_order_scales_128x4 = { .name = "scales_128x4",
                                                  ATOMS(ATOM_COLS),
                                                  .shape = mox_vendor_vector_shape };
const mox_vendor_order mox_order_scales_128x4_2d = { .name = "scales_128x4_2d", ATOMS(ATOM_COLS) };

/* Triton names the same bytes [N / 128][G / 4][2][256]. */
static int32_t blackwell_shape(const mox_vendor_matrix *m, int64_t shape[MOXIE_MAX_RANK])
{
    shape[0] = m->rows / ATOM_ROWS;
    shape[1] = m->cols / ATOM_COLS;
    shape[2] = 2;
    shape[3] = ATOM / 2;
    return 4;
}

const mox_vendor_order mox_order_blackwell_scales = { .name = "scales_128x4, columns by 8",
                                                      ATOMS(8),
                                                      .shape = blackwell_shape };

/* ---- 8x4 ------------------------------------------------------------------------------------------ */

static void put_small_atoms(const mox_vendor_matrix *m, int64_t row, int64_t count, const uint8_t *const *rows,
                            uint8_t *tensor)
{
    put_runs(m, row, count, rows, tensor, 1, SMALL_ROWS);
}

static void get_small_atoms(const mox_vendor_matrix *m, int64_t row, int64_t count, uint8_t *const *rows,
                            const uint8_t *tensor)
{
    get_runs(m, row, count, rows, tensor, 1, SMALL_ROWS);
}

const mox_vendor_order mox_order_scales_8x4 = { .name = "scales_8x4",
                                                .step = SMALL_ROWS,
                                                .bytes_multiple = 1,
                                                .pad_rows = SMALL_ROWS,
                                                .pad_cols = ATOM_COLS,
                                                .shape = mox_vendor_vector_shape,
                                                .put = put_small_atoms,
                                                .get = get_small_atoms };
