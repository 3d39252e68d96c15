/* SPDX-License-Identifier: Apache-2.0
 *
 * quant.h - how a tensor is scaled: reading quantized matrices element by element from any packing,
 * and the rules that a moxie_quant must keep.
 *
 * The exact value of a weight is the real product
 *     w[n,k] = (code[n,k] - zero[n/gr, g]) * scale[n/gr, g] (* or /) global[n or 0]
 * with g = k / gc, or group_index[k] when the matrix has one. Readers here are obvious and slow: the
 * oracle and the packers stand on them.
 */
#ifndef MOX_QUANT_QUANT_H
#define MOX_QUANT_QUANT_H

#include "base/status.h"
#include "format/format.h"

/* Resolved group extents of `quant` for a [rows, cols] tensor: 0 and -1 become the whole extent (rows: 0
 * becomes 1), larger than the extent becomes the extent. At least 1. */
int64_t mox_group_rows(const moxie_quant *quant, int64_t rows);
int64_t mox_group_cols(const moxie_quant *quant, int64_t cols);
/* Scale grid: ceil(rows / group rows), ceil(cols / group cols). */
int64_t mox_scale_rows(const moxie_quant *quant, int64_t rows);
int64_t mox_scale_cols(const moxie_quant *quant, int64_t cols);

/* True when `quant` stores plain floats: element F32, F16 or BF16 and no scale. */
bool mox_quant_is_plain(const moxie_quant *quant);
/* True when the activations pass unquantized. */
bool mox_quant_is_none(const moxie_quant *quant);

/* Rules for a weight / an activation description, in words when broken. `what` names it in the text: "w13". */
moxie_status mox_quant_check_weight(const moxie_quant *quant, const char *what, moxie_error *error);
moxie_status mox_quant_check_act(const moxie_quant *quant, const char *what, moxie_error *error);
/* "f4_e2m1 g1x32 f8_e8m0" and the like, for messages and plans. Returns `buffer`. */
const char *mox_quant_describe(const moxie_quant *quant, char *buffer, size_t size);

/* The raw code at (r, c), and the same as a number. No checks. */
uint32_t mox_grid_code(const moxie_grid *grid, int64_t r, int64_t c);
double mox_grid_value(const moxie_grid *grid, int64_t r, int64_t c);
/* Stores the low bits of `code` at (r, c) of a writable grid. */
void mox_grid_store(const moxie_grid *grid, int64_t r, int64_t c, uint32_t code);
/* Every element of the grid lies inside [data, data + bytes), and the packing is one that can be read. */
moxie_status mox_grid_check(const moxie_grid *grid, const char *what, moxie_error *error);
/* A contiguous row-major view: rows start on a byte, elements low bits first. */
moxie_grid mox_grid_dense(const void *data, moxie_dtype dtype, int64_t rows, int64_t cols);
/* Bytes of one row, and of all, of such a view. */
uint64_t mox_dense_row_bytes(moxie_dtype dtype, int64_t cols);
uint64_t mox_dense_bytes(moxie_dtype dtype, int64_t rows, int64_t cols);

/* The quantization group of column k. */
int64_t mox_matrix_group(const moxie_matrix *matrix, const moxie_quant *quant, int64_t k);
/* The exact weight, in double. */
double mox_matrix_weight(const moxie_matrix *matrix, const moxie_quant *quant, int64_t n, int64_t k);
/* The matrix is [rows, cols], has every grid that `quant` and `has_bias` call for, with the right shapes and
 * dtypes, none it does not call for, and every group_index in range. `what` names it: "expert 3 down". */
moxie_status mox_matrix_check(const moxie_matrix *matrix, const moxie_quant *quant, int64_t rows, int64_t cols,
                              bool has_bias, const char *what, moxie_error *error);

/* ---- activation quantizers (act_quant.c) ------------------------------------------------------ */

/* One quantizer for a moxie_quant: the rule that moxie_quantize_activations() documents. */
typedef struct mox_act_quantizer {
    const moxie_quant *quant;
    float given;  /* static scale or nvfp4 global */
    float amax;   /* of the whole tensor; only dynamic per-tensor rules read it */
} mox_act_quantizer;

/* True when the rule needs the largest magnitude of the whole tensor, so codes depend on the batch. */
bool mox_act_quant_needs_amax(const moxie_quant *quant);
/* Columns per group of the codes that it makes for rows of `cols` elements. */
int64_t mox_act_group_cols(const moxie_quant *quant, int64_t cols);
/* The largest magnitude in x, NaN ignored. */
float mox_amax(const float *x, int64_t count);
/* Quantizes one row: codes [cols] (one a byte), scales [ceil(cols/group_cols)] (decoded f32, globals not
 * included). The value of element k is decode(codes[k]) * scales[k/gc] (* or / given, by quant.global). */
void mox_act_quant_row(const mox_act_quantizer *quantizer, const float *x, int64_t cols, uint8_t *codes, float *scales);

/* ---- weight encoders (weight_quant.c): synthetic checkpoints and tests ------------------------- */

/* The scale that `quant`'s rule gives to a group of largest magnitude `amax` (`low` = its most negative value for
 * integers), already rounded to the scale's dtype, never zero or NaN; `global` as in quant. */
float mox_weight_group_scale(const moxie_quant *quant, float amax, float global);
/* The code of `w` under a decoded scale and zero point (code units). */
uint32_t mox_weight_code(const moxie_quant *quant, float w, float scale, float global, float zero);

#endif
