/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_plain.c - tensors of a layer that are written as floats (quantize_plain.h): row -> f32 -> dtype.
 */
#include "ckpt/quantize/quantize_plain.h"

#include <string.h>

#include "quant/block_encode.h"
#include "quant/matrix_row.h"

bool mox_quantize_is_routed(const mox_tensor_spec *spec)
{
    return spec->part && (spec->kind == MOX_TENSOR_GATE || spec->kind == MOX_TENSOR_UP ||
                          spec->kind == MOX_TENSOR_DOWN || spec->kind == MOX_TENSOR_GATE_UP);
}

static bool is_plain(moxie_dtype dtype)
{
    return dtype == MOXIE_F32 || dtype == MOXIE_F16 || dtype == MOXIE_BF16;
}

moxie_dtype mox_quantize_shared_dtype(const moxie_layer_config *config)
{
    const moxie_dtype a = config->shared.w13.element, b = config->shared.w2.element;
    if (!is_plain(a) || !is_plain(b))
        return MOXIE_BF16;
    return a == b ? a : MOXIE_F32;
}

/* ---- rows -------------------------------------------------------------------------------------------- */

static void read_grid(const moxie_grid *grid, int64_t r, int64_t cols, float *out)
{
    for (int64_t c = 0; c < cols; c++)
        out[c] = (float)mox_grid_value(grid, grid->cols == 1 ? c : r, grid->cols == 1 ? 0 : c);
}

/* Biases of gate and up in one row. */
static void read_gate_up_bias(const moxie_expert *expert, bool interleaved, int64_t cols, float *out)
{
    for (int64_t i = 0; i < cols / 2; i++) {
        out[interleaved ? 2 * i : i] = (float)mox_grid_value(&expert->gate.bias, i, 0);
        out[interleaved ? 2 * i + 1 : cols / 2 + i] = (float)mox_grid_value(&expert->up.bias, i, 0);
    }
}

/* Row r of gate and up of the shared expert, one below the other. */
static void read_shared(const moxie_model_layer *layer, int64_t r, float *out)
{
    const int64_t half = layer->config.shared.intermediate;
    const moxie_expert *shared = layer->weights.shared;
    mox_matrix_row(r < half ? &shared->gate : &shared->up, &layer->config.shared.w13, r < half ? r : r - half, out);
}

static void read_row(const moxie_model_layer *layer, const mox_tensor_spec *spec, int64_t r, int64_t cols, float *out)
{
    const moxie_weights *w = &layer->weights;
    const moxie_layer_config *config = &layer->config;
    switch (spec->kind) {
    case MOX_TENSOR_ROUTER: read_grid(&w->router.codes, r, cols, out); break;
    case MOX_TENSOR_ROUTER_BIAS: read_grid(&w->router.bias, r, cols, out); break;
    case MOX_TENSOR_CORRECTION_BIAS: memcpy(out, config->routing.bias, (size_t)cols * sizeof *out); break;
    case MOX_TENSOR_GATE_BIAS: read_grid(&w->experts[r].gate.bias, r, cols, out); break;
    case MOX_TENSOR_UP_BIAS: read_grid(&w->experts[r].up.bias, r, cols, out); break;
    case MOX_TENSOR_GATE_UP_BIAS: read_gate_up_bias(&w->experts[r], spec->interleaved, cols, out); break;
    case MOX_TENSOR_DOWN_BIAS: read_grid(&w->experts[r].down.bias, r, cols, out); break;
    case MOX_TENSOR_SHARED_GATE: mox_matrix_row(&w->shared->gate, &config->shared.w13, r, out); break;
    case MOX_TENSOR_SHARED_UP: mox_matrix_row(&w->shared->up, &config->shared.w13, r, out); break;
    case MOX_TENSOR_SHARED_GATE_UP: read_shared(layer, r, out); break;
    case MOX_TENSOR_SHARED_DOWN: mox_matrix_row(&w->shared->down, &config->shared.w2, r, out); break;
    default: read_grid(&w->shared_gate.codes, 0, cols, out); break;
    }
}

bool mox_quantize_can_write(const mox_tensor_spec *spec)
{
    return spec->kind != MOX_TENSOR_TABLE && spec->kind != MOX_TENSOR_PER_EXPERT_SCALE &&
           spec->kind != MOX_TENSOR_CORRECTION_BIAS_ALT && spec->kind != MOX_TENSOR_OTHER;
}

/* ---- tensors ----------------------------------------------------------------------------------------- */

static int64_t rows_of(const mox_tensor_spec *spec)
{
    return spec->rank > 1 ? spec->shape[0] : 1;
}

static bool holds(moxie_dtype dtype, const float *values, int64_t count)
{
    const mox_format *format = mox_format_of(dtype);
    for (int64_t i = 0; i < count; i++)
        if (!(format->decode(format->encode(values[i])) == values[i]))
            return false;
    return true;
}

moxie_status mox_quantize_plain_dtype(const moxie_model_layer *layer, const mox_tensor_spec *spec, moxie_dtype *out,
                                      moxie_error *error)
{
    const int64_t cols = spec->shape[spec->rank - 1];
    moxie_dtype dtype = spec->dtype;
    float *row = mox_calloc((uint64_t)cols, sizeof *row);
    MOX_FAIL_IF(!row, MOXIE_ERR_MEMORY, error, "no memory for a row of %s", spec->name);
    for (int64_t r = 0; r < rows_of(spec) && dtype != MOXIE_F32; r++) {
        read_row(layer, spec, r, cols, row);
        dtype = holds(dtype, row, cols) ? dtype : MOXIE_F32;
    }
    mox_free(row);
    *out = dtype;
    return MOXIE_OK;
}

moxie_status mox_quantize_plain_write(const moxie_model_layer *layer, const mox_tensor_spec *spec, int64_t at,
                                      mox_sealed_writer *writer, moxie_error *error)
{
    const int64_t cols = spec->shape[spec->rank - 1], rows = rows_of(spec);
    const uint64_t row_bytes = mox_block_row_bytes(spec->dtype, cols);
    float *row = mox_calloc((uint64_t)cols, sizeof *row);
    uint8_t *bytes = mox_calloc((uint64_t)rows, row_bytes);
    moxie_status status = row && bytes ? MOXIE_OK
                                       : mox_fail(MOXIE_ERR_MEMORY, error, "no memory for %s: %llu bytes", spec->name,
                                                  (unsigned long long)((uint64_t)rows * row_bytes));
    for (int64_t r = 0; r < rows && status == MOXIE_OK; r++) {
        read_row(layer, spec, r, cols, row);
        mox_block_encode_row(spec->dtype, row, NULL, cols, false, bytes + (uint64_t)r * row_bytes);
    }
    if (status == MOXIE_OK)
        status = mox_sealed_writer_put(writer, at, 0, bytes, error);
    mox_free(row);
    mox_free(bytes);
    return status;
}
