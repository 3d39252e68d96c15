/* SPDX-License-Identifier: Apache-2.0
 *
 * synth_tensor.c - the numbers of one tensor. Quantized matrices are synth_matrix.c's. Plain tensors are made here:
 * element (expert e, index i) from the stream of (layer, e, kind):
 *
 *     router             N(0, 1 / width): logits of unit variance for hidden states of unit variance
 *     router bias        N(0, 0.1)
 *     correction bias    N(0, 0.1) for sigmoid scores, N(0, 1/256) for softmax ones: as large as scores differ
 *     table              K different experts per token
 *     per-expert scale   1 + N(0, 0.1); norms and vectors too
 *     expert biases      N(0, 0.05)
 *     the rest           N(0, 0.02), like weights
 *
 * The numbers of an expert do not depend on the number of experts; only the table depends on E.
 */
#include "ckpt/synth/synth_tensor.h"

#include <math.h>

#include "base/sizes.h"
#include "ckpt/safetensors/file_dtype.h"
#include "ckpt/synth/synth_blocks.h"
#include "ckpt/synth/synth_matrix.h"
#include "format/block.h"

enum { PLAIN_RUN = 4096 };

typedef struct plain_rule {
    double mean, sigma;
} plain_rule;

static plain_rule rule_of(const mox_synth_model *model, const mox_tensor_spec *spec)
{
    switch (spec->kind) {
    case MOX_TENSOR_ROUTER: return (plain_rule) { 0, 1 / sqrt((double)spec->shape[spec->rank - 1]) };
    case MOX_TENSOR_SHARED_EXPERT_GATE: return (plain_rule) { 0, 1 / sqrt((double)spec->shape[spec->rank - 1]) };
    case MOX_TENSOR_ROUTER_BIAS: return (plain_rule) { 0, 0.1 };
    case MOX_TENSOR_CORRECTION_BIAS:
    case MOX_TENSOR_CORRECTION_BIAS_ALT:
        return (plain_rule) { 0, model->family->route.score == MOXIE_SCORE_SOFTMAX ? 1.0 / 256 : 0.1 };
    case MOX_TENSOR_PER_EXPERT_SCALE: return (plain_rule) { 1, 0.1 };
    case MOX_TENSOR_GATE_UP_BIAS:
    case MOX_TENSOR_GATE_BIAS:
    case MOX_TENSOR_UP_BIAS:
    case MOX_TENSOR_DOWN_BIAS: return (plain_rule) { 0, 0.05 };
    default: return spec->rank == 1 ? (plain_rule) { 1, 0.1 } : (plain_rule) { 0, MOX_SYNTH_SIGMA };
    }
}

/* Experts along the first axis have a stream each; in [E] and [1, E] an expert has one element. */
static int64_t experts_of(const mox_synth_model *model, const mox_tensor_spec *spec)
{
    switch (spec->kind) {
    case MOX_TENSOR_ROUTER:
    case MOX_TENSOR_ROUTER_BIAS:
    case MOX_TENSOR_CORRECTION_BIAS:
    case MOX_TENSOR_CORRECTION_BIAS_ALT: return model->dims.experts + model->dims.zero_experts;
    case MOX_TENSOR_PER_EXPERT_SCALE:
    case MOX_TENSOR_GATE_UP_BIAS:
    case MOX_TENSOR_GATE_BIAS:
    case MOX_TENSOR_UP_BIAS:
    case MOX_TENSOR_DOWN_BIAS: return model->dims.experts;
    default: return 1;
    }
}

/* A stacked bias of gate and up has, row by row, the numbers of the separate projections. */
static double plain_deviate(const mox_synth_filler *filler, int64_t layer, const mox_tensor_spec *spec, int64_t expert,
                            int64_t i, int64_t count)
{
    int source = MOX_SOURCE_PLAIN + (int)spec->kind;
    if (spec->kind == MOX_TENSOR_GATE_UP_BIAS) {
        const bool up = spec->interleaved ? i % 2 == 1 : i >= count / 2;
        source = up ? MOX_SOURCE_UP_BIAS : MOX_SOURCE_GATE_BIAS;
        i = spec->interleaved ? i / 2 : i - (up ? count / 2 : 0);
    }
    if (spec->kind == MOX_TENSOR_GATE_BIAS || spec->kind == MOX_TENSOR_UP_BIAS)
        source = spec->kind == MOX_TENSOR_UP_BIAS ? MOX_SOURCE_UP_BIAS : MOX_SOURCE_GATE_BIAS;
    const mox_stream stream = mox_synth_stream(filler->model->seed, layer, expert, source);
    int32_t z;
    mox_deviates(&stream, (uint64_t)i, 1, &z);
    return z * MOX_DEVIATE_UNIT;
}

/* In a GGUF file tensors are f32, and hold the numbers that the release has in its dtype; DTYPE_NONE: as they are. */
static moxie_dtype released_dtype(const mox_synth_model *model, const mox_tensor_spec *spec)
{
    const bool router = spec->kind == MOX_TENSOR_ROUTER || spec->kind == MOX_TENSOR_SHARED_EXPERT_GATE;
    return !model->recipe ? MOXIE_DTYPE_NONE : router ? model->family->router_dtype : model->family->bias_dtype;
}

static moxie_status fill_plain(mox_synth_filler *filler, int64_t layer, const mox_tensor_spec *spec, int64_t elements,
                               mox_fill_sink sink, moxie_error *error)
{
    const int64_t experts = experts_of(filler->model, spec);
    MOX_FAIL_IF(elements % experts != 0, MOXIE_ERR_MISMATCH, error, "%s: %lld elements for %lld experts", spec->name,
                (long long)elements, (long long)experts);
    const int32_t bytes = mox_dtype_bytes(spec->dtype);
    MOX_FAIL_IF(spec->dtype != MOXIE_F32 && spec->dtype != MOXIE_BF16 && spec->dtype != MOXIE_F16,
                MOXIE_ERR_UNSUPPORTED, error, "%s: no rule makes numbers of dtype %s", spec->name,
                mox_file_dtype_name(spec->dtype));
    uint8_t *buffer = mox_fill_buffer(filler, (uint64_t)PLAIN_RUN * (uint64_t)bytes);
    MOX_FAIL_IF(!buffer, MOXIE_ERR_MEMORY, error, "no memory for a chunk of %s", spec->name);
    const plain_rule rule = rule_of(filler->model, spec);
    const int64_t count = elements / experts;
    const moxie_dtype released = released_dtype(filler->model, spec);
    float values[PLAIN_RUN];
    for (int64_t at = 0; at < elements;) {
        const int64_t n = mox_min_i64(PLAIN_RUN, elements - at);
        for (int64_t j = 0; j < n; j++) {
            const double z = plain_deviate(filler, layer, spec, (at + j) / count, (at + j) % count, count);
            values[j] = (float)(rule.mean + rule.sigma * z);
            values[j] = released != MOXIE_DTYPE_NONE ? mox_round_to(released, values[j]) : values[j];
        }
        mox_narrow(spec->dtype, values, buffer, n);
        MOX_TRY(sink.put(sink.user, buffer, (uint64_t)(n * bytes), error));
        at += n;
    }
    return MOXIE_OK;
}

/* The j-th draw is uniform over the experts not drawn yet: `chosen` is kept sorted, and each entry at or below the draw
 * moves it up by one. */
static void distinct_ids(const mox_stream *stream, int64_t token, int64_t top_k, int64_t experts, int64_t *ids)
{
    int64_t chosen[MOXIE_MAX_TOP_K];
    for (int64_t j = 0; j < top_k; j++) {
        const uint64_t bits = mox_random_bits(stream, (uint64_t)(token * top_k + j)) >> 32;
        int64_t id = (int64_t)(bits * (uint64_t)(experts - j) >> 32);
        int64_t place = 0;
        while (place < j && chosen[place] <= id) {
            id++;
            place++;
        }
        for (int64_t i = j; i > place; i--)
            chosen[i] = chosen[i - 1];
        chosen[place] = id;
        ids[j] = id;
    }
}

static moxie_status fill_table(mox_synth_filler *filler, int64_t layer, const mox_tensor_spec *spec, mox_fill_sink sink,
                               moxie_error *error)
{
    const int64_t tokens = spec->shape[0], top_k = spec->shape[1];
    const int32_t bytes = mox_dtype_bytes(spec->dtype);
    MOX_FAIL_IF(spec->dtype != MOXIE_I64 && spec->dtype != MOXIE_I32, MOXIE_ERR_UNSUPPORTED, error,
                "%s: no rule makes a table of dtype %s", spec->name, mox_file_dtype_name(spec->dtype));
    const mox_stream stream = mox_synth_stream(filler->model->seed, layer, 0, MOX_SOURCE_PLAIN + (int)spec->kind);
    uint8_t *row = mox_fill_buffer(filler, (uint64_t)(top_k * bytes));
    MOX_FAIL_IF(!row, MOXIE_ERR_MEMORY, error, "no memory for a row of %s", spec->name);
    for (int64_t token = 0; token < tokens; token++) {
        int64_t ids[MOXIE_MAX_TOP_K];
        distinct_ids(&stream, token, top_k, filler->model->dims.experts, ids);
        for (int64_t j = 0; j < top_k; j++)
            for (int32_t b = 0; b < bytes; b++)
                row[j * bytes + b] = (uint8_t)((uint64_t)ids[j] >> (8 * b));
        MOX_TRY(sink.put(sink.user, row, (uint64_t)(top_k * bytes), error));
    }
    return MOXIE_OK;
}

moxie_status mox_synth_fill(mox_synth_filler *filler, int64_t layer, const mox_tensor_spec *spec, mox_bytes_fn sink,
                            void *user, moxie_error *error)
{
    const mox_fill_sink to = { sink, user };
    if (spec->part && mox_is_block(spec->dtype))
        return mox_fill_blocks(filler, layer, spec, to, error);
    if (spec->part)
        return mox_fill_matrix(filler, layer, spec, to, error);
    if (spec->kind == MOX_TENSOR_TABLE)
        return fill_table(filler, layer, spec, to, error);
    int64_t elements = 1;
    for (int32_t i = 0; i < spec->rank; i++)
        elements *= spec->shape[i];
    return fill_plain(filler, layer, spec, elements, to, error);
}
