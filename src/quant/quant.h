/* SPDX-License-Identifier: Apache-2.0
 *
 * quant.h - how a tensor is scaled: the rules that a moxie_quant must obey, quantized matrices read element by element
 * from any packing, and the quantizers of activations and weights.
 *
 * The exact value of a weight is the real product
 *     w[n,k] = (code[n,k] - zero[n/gr, g]) * scale[n/gr, g] (* or /) global[n or 0]
 * with groups of gr rows and gc columns, g = k / gc, or g = group_index[k] when the matrix has one. These readers are
 * simple and slow; the oracle and the packers use them.
 */
#ifndef MOX_QUANT_QUANT_H
#define MOX_QUANT_QUANT_H

#include "base/status.h"
#include "format/block.h"
#include "format/format.h"
#include "quant/grid_place.h"

/* Resolved group extents of `quant` for a [rows, cols] tensor: 0 and -1 become the whole extent (rows: 0
 * becomes 1), larger than the extent becomes the extent. At least 1. */
int64_t mox_group_rows(const moxie_quant *quant, int64_t rows);
int64_t mox_group_cols(const moxie_quant *quant, int64_t cols);
/* Scale grid: ceil(rows / group rows), ceil(cols / group cols). */
int64_t mox_scale_rows(const moxie_quant *quant, int64_t rows);
int64_t mox_scale_cols(const moxie_quant *quant, int64_t cols);

/* True when `quant` stores plain floats: element F32, F16 or BF16 and no scale. */
bool mox_quant_is_plain(const moxie_quant *quant);
/* True when the element is a block type, whose scales lie among its codes. */
bool mox_quant_is_block(const moxie_quant *quant);
/* True when activations are not quantized. */
bool mox_quant_is_none(const moxie_quant *quant);

/* Checks the description of weights or of activations; the error names the broken rule. `what` names the description in
 * the text: "w13". */
moxie_status mox_quant_check_weight(const moxie_quant *quant, const char *what, moxie_error *error);
moxie_status mox_quant_check_act(const moxie_quant *quant, const char *what, moxie_error *error);
/* "f4_e2m1 1x32 f8_e8m0" and the like, for messages and plans. Returns `buffer`. */
const char *mox_quant_describe(const moxie_quant *quant, char *buffer, size_t size);
/* "f4_e2m1"; "none" for NONE, "?" for values that are no number format. Immutable. */
const char *mox_quant_dtype_name(moxie_dtype dtype);
/* Whether scales can have this dtype. */
bool mox_quant_is_scale(moxie_dtype dtype);

/* A packing that only files have: codes of `packing.per_word` bits (2, 3, 5 to 7) are one stream of bits in words of 32
 * bits along their axis, so a code may cross words. mox_grid_code() and mox_grid_store() give and take codes of the
 * grid's dtype, a wider integer: u4b8 for "u3b4" and "u2b2", u8b128 for those of 5 to 7 bits. mox_grid_check() rejects
 * such grids: readers widen them first (ckpt/formats/widen.h). */
#define MOX_ORDER_STREAM 16
/* The packing of block types (format/block.h), of that order and with nothing else set: block b of a row lies at byte
 * b * col_stride. A code is the bits of the f32 that the weight is. mox_grid_store() does nothing: whole blocks are
 * copied. */
#define MOX_ORDER_BLOCK 17
/* Words that `count` codes of `bits` bits take. */
static inline int64_t mox_stream_words(int64_t count, int32_t bits)
{
    return (count * bits + 31) / 32;
}

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
/* Checks that the matrix is [rows, cols], has exactly the grids that `quant` and `has_bias` require, with the right
 * shapes and dtypes, and every group_index in range. `what` names it: "expert 3 down". */
moxie_status mox_matrix_check(const moxie_matrix *matrix, const moxie_quant *quant, int64_t rows, int64_t cols,
                              bool has_bias, const char *what, moxie_error *error);

/* ---- parts of a matrix, as views (matrix_slice.c) ------------------------------------------------- */

/* Rows and columns of a matrix, in elements. */
typedef struct mox_rectangle {
    int64_t row, rows, col, cols;
} mox_rectangle;

/* The rectangle `at` of a grid, as a view. False when it is not inside the grid, or when an edge of it cuts a word. (An
 * edge of the grid itself may.) */
bool mox_grid_slice(const moxie_grid *grid, const mox_rectangle *at, moxie_grid *out);
/* The rectangle `at` of the codes, with the scales, zero points, globals and biases of its rows and columns. `quant`
 * describes both `matrix` and the result. MOXIE_ERR_UNSUPPORTED names the grid in which an edge would cut a group or a
 * word, or columns in act order. `out` may be `matrix`. */
moxie_status mox_matrix_slice(const moxie_matrix *matrix, const moxie_quant *quant, const mox_rectangle *at,
                              const char *what, moxie_matrix *out, moxie_error *error);
/* Edges of rectangles must be multiples of this: the least common multiple of groups and words along rows (`cols`
 * false) or along columns. Below 2^31. */
int64_t mox_matrix_slice_multiple(const moxie_matrix *matrix, const moxie_quant *quant, bool cols);

/* ---- activation quantizers (act_quant.c) ------------------------------------------------------ */

/* The quantizer of a moxie_quant, as moxie_quantize_activations() documents it. */
typedef struct mox_act_quantizer {
    const moxie_quant *quant;
    float static_scale; /* or the static global of nvfp4 */
    float amax;         /* of the whole tensor; only dynamic per-tensor rules read it */
} mox_act_quantizer;

/* True when the rule needs the largest magnitude of the whole tensor, so codes depend on the batch. */
bool mox_act_quant_needs_amax(const moxie_quant *quant);
/* Columns per group, for rows of `cols` elements. */
int64_t mox_act_group_cols(const moxie_quant *quant, int64_t cols);
/* The largest magnitude in x, NaN ignored. */
float mox_amax(const float *x, int64_t count);
/* Quantizes one row: codes [cols] (one a byte), scales [ceil(cols/group_cols)] (decoded f32, globals not
 * included). The value of element k is decode(codes[k]) * scales[k/gc] (* or / static_scale, by quant.global). */
void mox_act_quant_row(const mox_act_quantizer *quantizer, const float *x, int64_t cols, uint8_t *codes, float *scales);
/* Decodes codes [cols] to values [cols] in f32, without scales. */
void mox_act_quant_values(const moxie_quant *quant, const uint8_t *codes, int64_t cols, float *values);
/* The rule of act_rules.h (mox_act_rule) for a quant that is defined; and whether it is. */
int32_t mox_act_quant_rule(const moxie_quant *quant);
bool mox_act_quant_is_defined(const moxie_quant *quant);
/* True when the rule reads static_scale: it has a static scale or a global. */
bool mox_act_quant_needs_static_scale(const moxie_quant *quant);
/* A static scale that is read must be a positive normal number up to 2^126, so that its reciprocal is normal, too. */
moxie_status mox_act_quant_check_static_scale(const moxie_quant *quant, float static_scale, const char *what,
                                              moxie_error *error);
/* moxie_quantize_activations(). */
moxie_status mox_quantize_activations(const moxie_quant *quant, const float *x, int64_t rows, int64_t cols,
                                      float static_scale, uint8_t *codes, float *scales, moxie_error *error);

/* ---- weight encoders (weight_quant.c): synthetic checkpoints and tests ------------------------- */

/* The scale of a group of weights, rounded to the scale's dtype, finite and never zero. `extent` is the group's
 * largest magnitude, or with zero points max(w, 0) - min(w, 0) over it; `global` as in quant, 1 when it has none. */
float mox_weight_group_scale(const moxie_quant *quant, float extent, float global);
/* The zero point that gives `low` the lowest code; `low` is the smaller of 0 and the group's smallest weight. A whole
 * number that the element can represent. */
float mox_weight_zero(const moxie_quant *quant, float low, float scale, float global);
/* The code nearest to `w` under a decoded scale and zero point (0 when there is none). */
uint32_t mox_weight_code(const moxie_quant *quant, float w, float scale, float global, float zero);

#endif
