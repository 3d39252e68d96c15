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
/* "f4_e2m1 1x32 f8_e8m0" and the like, for messages and plans. Returns `buffer`. */
const char *mox_quant_describe(const moxie_quant *quant, char *buffer, size_t size);
/* "f4_e2m1"; "none" for NONE, "?" for containers and numbers that name no number format. Immutable. */
const char *mox_quant_dtype_name(moxie_dtype dtype);

/* The raw code at (r, c), and the same as a number. No checks. */
uint32_t mox_grid_code(const moxie_grid *grid, int64_t r, int64_t c);
double mox_grid_value(const moxie_grid *grid, int64_t r, int64_t c);
/* Stores the low bits of `code` at (r, c) of a writable grid. */
void mox_grid_store(const moxie_grid *grid, int64_t r, int64_t c, uint32_t code);
/* Every element of the grid lies inside [data, data + bytes), and the packing is one that can be read. */
moxie_status mox_grid_check(const moxie_grid *grid, const char *what, moxie_error *error);
/* A contiguous row-major view: rows start on a byte, elements low bits first. */
moxie_grid mox_grid_dense(const void *data, moxie_dtype dtype, int64_t rows, int64_t cols);
/* Bytes of one row, and of all, of such a view; UINT64_MAX when they do not fit 64 bits. */
uint64_t mox_dense_row_bytes(moxie_dtype dtype, int64_t cols);
uint64_t mox_dense_bytes(moxie_dtype dtype, int64_t rows, int64_t cols);

/* The quantization group of column k. */
int64_t mox_matrix_group(const moxie_matrix *matrix, const moxie_quant *quant, int64_t k);
/* The exact weight, in double (a quotient by a global: the real one, rounded once). */
double mox_matrix_weight(const moxie_matrix *matrix, const moxie_quant *quant, int64_t n, int64_t k);
/* The matrix is [rows, cols], has every grid that `quant` and `has_bias` call for, with the right shapes and
 * dtypes, none it does not call for, and every group_index in range. `what` names it: "expert 3 down". */
moxie_status mox_matrix_check(const moxie_matrix *matrix, const moxie_quant *quant, int64_t rows, int64_t cols,
                              bool has_bias, const char *what, moxie_error *error);

/* ---- parts of a matrix, as views (matrix_slice.c) ------------------------------------------------- */

/* Rows and columns of a matrix, in elements. */
typedef struct mox_rectangle {
    int64_t row, rows, col, cols;
} mox_rectangle;

/* That rectangle of a grid; nothing is copied. False when it is not inside, or an edge other than the grid's own runs
 * through a word. */
bool mox_grid_take(const moxie_grid *grid, const mox_rectangle *at, moxie_grid *out);
/* The rectangle of codes with the scales, zero points, globals and biases of its rows and columns; `quant` describes
 * the result as it describes `matrix`. MOXIE_ERR_UNSUPPORTED says which grid an edge would cut: a group or a word, or
 * columns in act order. `out` may be `matrix`. */
moxie_status mox_matrix_take(const moxie_matrix *matrix, const moxie_quant *quant, const mox_rectangle *at,
                             const char *what, moxie_matrix *out, moxie_error *error);
/* What the edges of rectangles must be multiples of: the least common multiple over groups and words along rows
 * (`cols` false) or columns. Fewer than 2^31. */
int64_t mox_matrix_cut(const moxie_matrix *matrix, const moxie_quant *quant, bool cols);

/* ---- activation quantizers (act_quant.c) ------------------------------------------------------ */

/* One quantizer for a moxie_quant: the rule that moxie_quantize_activations() documents. */
typedef struct mox_act_quantizer {
    const moxie_quant *quant;
    float given; /* static scale or nvfp4 global */
    float amax;  /* of the whole tensor; only dynamic per-tensor rules read it */
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
/* What its codes [cols] stand for, in f32, scales left out: values [cols]. */
void mox_act_quant_values(const moxie_quant *quant, const uint8_t *codes, int64_t cols, float *values);
/* The rule of act_rules.h (mox_act_rule) of a quant that is defined; and whether there is one. */
int32_t mox_act_quant_rule(const moxie_quant *quant);
bool mox_act_quant_is_defined(const moxie_quant *quant);
/* True when `given` is read: static scales and globals. */
bool mox_act_quant_needs_static_scale(const moxie_quant *quant);
/* A `given` that is read is a positive normal number up to 2^126, so that it and its reciprocal are usable. */
moxie_status mox_act_quant_check_static_scale(const moxie_quant *quant, float given, const char *what,
                                              moxie_error *error);
/* moxie_quantize_activations(). */
moxie_status mox_quantize_activations(const moxie_quant *quant, const float *x, int64_t rows, int64_t cols, float given,
                                      uint8_t *codes, float *scales, moxie_error *error);

/* ---- weight encoders (weight_quant.c): synthetic checkpoints and tests ------------------------- */

/* The scale of a group of weights, rounded to the scale's dtype, finite and never zero. `extent` is the group's
 * largest magnitude, or with zero points max(w, 0) - min(w, 0) over it; `global` as in quant, 1 when it has none. */
float mox_weight_group_scale(const moxie_quant *quant, float extent, float global);
/* The zero point, a whole number that the element can hold, under which `low`, the smaller of 0 and the group's
 * smallest weight, gets the lowest code. */
float mox_weight_zero(const moxie_quant *quant, float low, float scale, float global);
/* The code nearest to `w` under a decoded scale and zero point (0 when there is none). */
uint32_t mox_weight_code(const moxie_quant *quant, float w, float scale, float global, float zero);

#endif
