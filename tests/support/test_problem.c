/* SPDX-License-Identifier: Apache-2.0
 *
 * test_problem.c - random quantized experts (test_problem.h).
 *
 *     spec -> for each projection: place grids by packing -> fill codes, scales, zeros, global, bias
 *
 * Elements are written one by one through mox_grid_store(), so a packing is stated once, as strides.
 */
#include "test_problem.h"

#include <float.h>
#include <math.h>

#include "base/sizes.h"
#include "format/block_levels.h"
#include "format/block_parts.h"

const char *const test_fill_names[TEST_FILLS] = { "random", "zero", "extreme", "nan" };

/* ---- the lists ------------------------------------------------------------------------------------------- */

#define FP8(...)                                                                                                       \
    {                                                                                                                  \
        .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, __VA_ARGS__                                                      \
    }
#define MX(e)                                                                                                          \
    {                                                                                                                  \
        .element = e, .scale = MOXIE_F8_E8M0, .group_cols = 32                                                         \
    }
#define NVFP4(g)                                                                                                       \
    {                                                                                                                  \
        .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E4M3, .group_cols = 16, .global = g                                \
    }
#define INT(e, s, ...)                                                                                                 \
    {                                                                                                                  \
        .element = e, .scale = s, __VA_ARGS__                                                                          \
    }

const test_weight_quant test_weight_quants[] = {
    { "f32", { .element = MOXIE_F32 }, .packing = TEST_DENSE },
    { "bf16", { .element = MOXIE_BF16 }, .packing = TEST_DENSE },
    { "bf16 transposed", { .element = MOXIE_BF16 }, .packing = TEST_TRANSPOSED },
    { "f16 interleaved", { .element = MOXIE_F16 }, .packing = TEST_INTERLEAVED },
    { "fp8 block 128x128", FP8(.group_rows = 128, .group_cols = 128), .packing = TEST_DENSE },
    { "fp8 block 5x24 bf16", INT(MOXIE_F8_E4M3, MOXIE_BF16, .group_rows = 5, .group_cols = 24), .packing = TEST_DENSE },
    { "fp8 block ue8m0", INT(MOXIE_F8_E4M3, MOXIE_F8_E8M0, .group_rows = 128, .group_cols = 128),
      .packing = TEST_DENSE },
    { "fp8 per channel", FP8(.group_rows = 1, .group_cols = -1), .packing = TEST_DENSE },
    { "fp8 per tensor", FP8(.group_rows = -1, .group_cols = -1), .packing = TEST_TRANSPOSED },
    { "fp8 e5m2 per tensor", INT(MOXIE_F8_E5M2, MOXIE_F32, .group_rows = -1, .group_cols = -1), .packing = TEST_DENSE },
    { "mxfp4", MX(MOXIE_F4_E2M1), .packing = TEST_DENSE },
    { "mxfp4 interleaved", MX(MOXIE_F4_E2M1), .packing = TEST_INTERLEAVED },
    { "mxfp6 e3m2", MX(MOXIE_F6_E3M2), .packing = TEST_DENSE },
    { "mxfp6 e2m3", MX(MOXIE_F6_E2M3), .packing = TEST_DENSE },
    { "mxfp8", MX(MOXIE_F8_E4M3), .packing = TEST_DENSE },
    { "nvfp4 multiply", NVFP4(MOXIE_GLOBAL_MULTIPLY), .packing = TEST_DENSE },
    { "nvfp4 divide", NVFP4(MOXIE_GLOBAL_DIVIDE), .packing = TEST_INTERLEAVED },
    { "int4 words g32", INT(MOXIE_U4B8, MOXIE_BF16, .group_cols = 32), .packing = TEST_WORDS },
    { "int4 words channel", INT(MOXIE_U4B8, MOXIE_F16, .group_cols = -1), .packing = TEST_WORDS },
    { "int4 words zero", INT(MOXIE_U4B8, MOXIE_BF16, .group_cols = 32, .has_zero = 1), .packing = TEST_WORDS },
    { "int4 row pairs g128", INT(MOXIE_I4, MOXIE_F32, .group_cols = 128), .packing = TEST_ROW_PAIRS },
    { "mxint4", INT(MOXIE_I4, MOXIE_BF16, .group_cols = 32), .packing = TEST_DENSE },
    { "int4 f16 zero", INT(MOXIE_U4B8, MOXIE_F16, .group_cols = 64, .has_zero = 1), .packing = TEST_DENSE,
      .zero_dtype = MOXIE_F16 },
    { "awq", INT(MOXIE_U4B8, MOXIE_F16, .group_cols = 32, .has_zero = 1), .packing = TEST_AWQ },
    { "gptq", INT(MOXIE_U4B8, MOXIE_F16, .group_cols = 32, .has_zero = 1), .packing = TEST_GPTQ, .zero_add = 1 },
    { "gptq act order", INT(MOXIE_U4B8, MOXIE_F16, .group_cols = 32, .has_zero = 1), .packing = TEST_GPTQ,
      .act_order = true, .whole_groups = true, .zero_add = 1 },
    { "gptq 8 bit act order", INT(MOXIE_U8B128, MOXIE_F16, .group_cols = 32), .packing = TEST_GPTQ, .act_order = true },
    { "int8 per channel", INT(MOXIE_I8, MOXIE_F32, .group_rows = 1, .group_cols = -1), .packing = TEST_DENSE },
    { "int8 words g64", INT(MOXIE_U8B128, MOXIE_BF16, .group_cols = 64), .packing = TEST_WORDS },
    { "int8 g32", INT(MOXIE_I8, MOXIE_F32, .group_cols = 32), .packing = TEST_DENSE },
    { "f16", { .element = MOXIE_F16 }, .packing = TEST_DENSE },
    { "fp8 e5m2 block ue8m0", INT(MOXIE_F8_E5M2, MOXIE_F8_E8M0, .group_rows = 32, .group_cols = 32),
      .packing = TEST_DENSE },
    { "int4 g16", INT(MOXIE_I4, MOXIE_F32, .group_cols = 16), .packing = TEST_DENSE },
    { "int4 words g64", INT(MOXIE_U4B8, MOXIE_BF16, .group_cols = 64), .packing = TEST_WORDS },
    { "int4 words g128 zero", INT(MOXIE_U4B8, MOXIE_F16, .group_cols = 128, .has_zero = 1), .packing = TEST_WORDS },
    { "int4 words g128", INT(MOXIE_U4B8, MOXIE_BF16, .group_cols = 128), .packing = TEST_WORDS },
    { "int4 channel zero", INT(MOXIE_I4, MOXIE_F32, .group_rows = 1, .group_cols = -1, .has_zero = 1),
      .packing = TEST_DENSE },
    { "int8 g32 bf16", INT(MOXIE_I8, MOXIE_BF16, .group_cols = 32), .packing = TEST_DENSE },
    { "int8 words g128", INT(MOXIE_U8B128, MOXIE_BF16, .group_cols = 128), .packing = TEST_WORDS },
    { "int8 words channel", INT(MOXIE_U8B128, MOXIE_BF16, .group_cols = -1), .packing = TEST_WORDS },
    { "gptq 8 bit zero", INT(MOXIE_U8B128, MOXIE_F16, .group_cols = 32, .has_zero = 1), .packing = TEST_GPTQ },
    { "int8 channel zero", INT(MOXIE_I8, MOXIE_F32, .group_rows = 1, .group_cols = -1, .has_zero = 1),
      .packing = TEST_DENSE },
};
const int test_weight_quant_count = sizeof test_weight_quants / sizeof test_weight_quants[0];

#define MOX_BLOCK_FIELDS(id, type, ...) { #id, { .element = MOX_BLOCK_DTYPE + type }, .packing = TEST_DENSE },
const test_weight_quant test_block_quants[] = {
#include "format/block_fields.def"
#define MOX_BLOCK_LEVELS MOX_BLOCK_FIELDS
#include "format/block_levels.def"
#undef MOX_BLOCK_LEVELS
};
#undef MOX_BLOCK_FIELDS
const int test_block_quant_count = sizeof test_block_quants / sizeof test_block_quants[0];

/* Found by its name alone: lists of random layers have the 4-bit one. */
static const test_weight_quant whole_groups = { "gptq 8 bit whole groups",
                                                INT(MOXIE_U8B128, MOXIE_F16, .group_cols = 64), .packing = TEST_GPTQ,
                                                .act_order = true, .whole_groups = true };

const test_weight_quant *test_weight_quant_named(const char *name)
{
    if (!strcmp(whole_groups.name, name))
        return &whole_groups;
    for (int i = 0; i < test_weight_quant_count; i++)
        if (!strcmp(test_weight_quants[i].name, name))
            return &test_weight_quants[i];
    for (int i = 0; i < test_block_quant_count; i++)
        if (!strcmp(test_block_quants[i].name, name))
            return &test_block_quants[i];
    fail_msg("no weight format %s", name);
    return NULL;
}

#define INT8(...)                                                                                                      \
    {                                                                                                                  \
        .element = MOXIE_I8, .scale = MOXIE_F32, __VA_ARGS__                                                           \
    }
const test_act_quant test_act_quants[] = {
    { "none", { 0 } },
    { "fp8 tensor static", FP8(.group_rows = -1, .group_cols = -1, .is_static = 1) },
    { "fp8 tensor", FP8(.group_rows = -1, .group_cols = -1) },
    { "fp8 token", FP8(.group_rows = 1, .group_cols = -1) },
    { "fp8 1x128", FP8(.group_rows = 1, .group_cols = 128) },
    { "fp8 1x128 ue8m0", FP8(.group_rows = 1, .group_cols = 128, .rule = MOXIE_RULE_UE8M0) },
    { "int8 tensor static", INT8(.group_rows = -1, .group_cols = -1, .is_static = 1) },
    { "int8 tensor", INT8(.group_rows = -1, .group_cols = -1) },
    { "int8 token away", INT8(.group_rows = 1, .group_cols = -1, .rounding = MOXIE_ROUND_AWAY) },
    { "int8 1x24", INT8(.group_rows = 1, .group_cols = 24) },
    { "mxfp8", MX(MOXIE_F8_E4M3) },
    { "mxfp6 e3m2", MX(MOXIE_F6_E3M2) },
    { "mxfp6 e2m3", MX(MOXIE_F6_E2M3) },
    { "mxfp4", MX(MOXIE_F4_E2M1) },
    { "nvfp4 divide", NVFP4(MOXIE_GLOBAL_DIVIDE) },
    { "nvfp4 multiply", NVFP4(MOXIE_GLOBAL_MULTIPLY) },
    { "fp8 1x32", FP8(.group_rows = 1, .group_cols = 32) },
    { "int8 token", INT8(.group_rows = 1, .group_cols = -1) },
    { "int8 1x64", INT8(.group_rows = 1, .group_cols = 64) },
    { "int8 1x128", INT8(.group_rows = 1, .group_cols = 128) },
    { "mxfp8 e5m2", MX(MOXIE_F8_E5M2) },
    { "mxfp8 floor",
      { .element = MOXIE_F8_E4M3, .scale = MOXIE_F8_E8M0, .group_cols = 32, .rule = MOXIE_RULE_VLLM_FLOOR } },
    { "q8_0", { .element = MOXIE_I8, .scale = MOXIE_F16, .group_rows = 1, .group_cols = 32 } },
    { "q8_k", INT8(.group_rows = 1, .group_cols = 256, .rule = MOXIE_RULE_INVERSE) },
    { "fp8 e5m2 token", INT(MOXIE_F8_E5M2, MOXIE_F32, .group_rows = 1, .group_cols = -1) },
    { "fp8 1x32 ue8m0", FP8(.group_rows = 1, .group_cols = 32, .rule = MOXIE_RULE_UE8M0) },
};
const int test_act_quant_count = sizeof test_act_quants / sizeof test_act_quants[0];

#define MOX_ACTIVATION(id, kind, formula, gating, honours, alpha, beta, limit, name, config_names) kind,
const int32_t test_act_kinds[TEST_ACT_KINDS] = {
#include "activation/activations.def"
};

const test_act_quant *test_act_quant_named(const char *name)
{
    for (int i = 0; i < test_act_quant_count; i++)
        if (!strcmp(test_act_quants[i].name, name))
            return &test_act_quants[i];
    fail_msg("no activation format %s", name);
    return NULL;
}

/* ---- placing grids --------------------------------------------------------------------------------------- */

static void *own(test_expert *expert, uint64_t bytes)
{
    assert_true(expert->n_blocks < TEST_MAX_BLOCKS);
    void *data = test_guarded(bytes);
    memset(data, 0xa5, bytes);
    expert->blocks[expert->n_blocks].data = data;
    expert->blocks[expert->n_blocks++].bytes = bytes;
    return data;
}

/* A grid of `words_down` x `words_across` words, row_stride and col_stride given in words. */
static moxie_grid words(test_expert *expert, moxie_dtype dtype, int64_t rows, int64_t cols, moxie_packing packing,
                        int64_t row_words, int64_t col_words, int64_t total)
{
    const uint64_t bytes = (uint64_t)(total * packing.word_bytes);
    return (moxie_grid) { .data = own(expert, bytes),
                          .bytes = bytes,
                          .rows = rows,
                          .cols = cols,
                          .row_stride = row_words * packing.word_bytes,
                          .col_stride = col_words * packing.word_bytes,
                          .dtype = dtype,
                          .packing = packing };
}

static moxie_grid dense(test_expert *expert, moxie_dtype dtype, int64_t rows, int64_t cols, int64_t spread)
{
    const uint64_t row_bytes = mox_dense_row_bytes(dtype, cols);
    const uint64_t bytes = rows > 0 ? row_bytes * (uint64_t)((rows - 1) * spread + 1) : 0;
    moxie_grid grid = mox_grid_dense(own(expert, bytes), dtype, rows, cols);
    grid.row_stride = (int64_t)row_bytes * spread;
    grid.bytes = bytes;
    return grid;
}

static moxie_grid place(test_expert *expert, moxie_dtype dtype, int64_t rows, int64_t cols, test_packing packing)
{
    const int32_t bits = mox_dtype_bits(dtype);
    const int8_t per_32 = (int8_t)(32 / bits), bytes = (int8_t)(bits / 8);
    switch (packing) {
    case TEST_WORDS:
        return words(expert, dtype, rows, cols, (moxie_packing) { .word_bytes = 4, .per_word = per_32 },
                     mox_ceil_div(cols, per_32), 1, rows * mox_ceil_div(cols, per_32));
    case TEST_GPTQ:
        return words(expert, dtype, rows, cols, (moxie_packing) { .word_bytes = 4, .per_word = per_32 }, 1, rows,
                     rows * mox_ceil_div(cols, per_32));
    case TEST_AWQ:
        return words(expert, dtype, rows, cols, (moxie_packing) { 4, 8, 1, MOXIE_ORDER_AWQ }, 1, mox_ceil_div(rows, 8),
                     cols * mox_ceil_div(rows, 8));
    case TEST_ROW_PAIRS:
        return words(expert, dtype, rows, cols, (moxie_packing) { 1, 2, 1, MOXIE_ORDER_LINEAR }, cols, 1,
                     cols * mox_ceil_div(rows, 2));
    case TEST_TRANSPOSED:
        return words(expert, dtype, rows, cols, (moxie_packing) { .word_bytes = bytes, .per_word = 1 }, 1, rows,
                     rows * cols);
    default: return dense(expert, dtype, rows, cols, packing == TEST_INTERLEAVED ? 2 : 1);
    }
}

static moxie_grid place_scale(test_expert *expert, moxie_dtype dtype, int64_t rows, int64_t cols, test_packing packing)
{
    const bool transposed = packing == TEST_GPTQ || packing == TEST_AWQ;
    const bool interleaved = packing == TEST_INTERLEAVED;
    return place(expert, dtype, rows, cols, transposed ? TEST_TRANSPOSED : interleaved ? packing : TEST_DENSE);
}

/* GPTQ packs zero points along N: 32-bit words, linear order. */
static moxie_grid place_zero(test_expert *expert, moxie_dtype dtype, int64_t rows, int64_t cols, test_packing packing)
{
    const int8_t per_32 = (int8_t)(32 / mox_dtype_bits(dtype));
    if (packing != TEST_GPTQ)
        return place(expert, dtype, rows, cols, packing == TEST_AWQ ? TEST_AWQ : TEST_DENSE);
    return words(expert, dtype, rows, cols, (moxie_packing) { 4, per_32, 1, MOXIE_ORDER_LINEAR }, 1,
                 mox_ceil_div(rows, per_32), cols * mox_ceil_div(rows, per_32));
}

/* ---- filling --------------------------------------------------------------------------------------------- */

typedef struct filler {
    test_rng *rng;
    test_fill fill;
    const test_weight_quant *which;
    double size; /* wanted of a weight */
} filler;

static uint32_t encode(moxie_dtype dtype, double value)
{
    return mox_format_of(dtype)->encode((float)value);
}

static uint32_t finite_code(test_rng *rng, const mox_format *format)
{
    uint32_t code;
    do
        code = (uint32_t)(test_u64(rng) >> 32) & (uint32_t)((UINT64_C(1) << format->bits) - 1);
    while (!isfinite(format->decode(code)));
    return code;
}

/* In formats with f32's range, values are limited so that products with activations stay in f32. Otherwise there would
 * be nothing to compare. */
static float extreme_of(const mox_format *format)
{
    return format->bits > 8 && format->max > 1e20f ? 1e20f : format->max;
}

static uint32_t element_code(const filler *f)
{
    const mox_format *format = mox_format_of(f->which->quant.element);
    const float highest = extreme_of(format);
    const float lowest = format->kind == MOX_KIND_INTEGER ? -highest - 1.0f : -highest;
    if (f->fill == TEST_FILL_NAN && format->has_nan && test_below(f->rng, 97) == 0)
        return format->encode(NAN);
    if (f->fill == TEST_FILL_ZERO)
        return format->encode(0.0f);
    if (f->fill == TEST_FILL_EXTREME && test_below(f->rng, 2) == 0)
        return format->encode(test_below(f->rng, 3) == 0 ? 0.0f : test_below(f->rng, 2) == 0 ? highest : lowest);
    if (format->bits > 8)
        return encode(format->dtype, (double)test_normal(f->rng) * f->size);
    return finite_code(f->rng, format);
}

/* Root mean square of all finite values of a narrow format. */
static double typical_code(const mox_format *format)
{
    double sum = 0, count = 0;
    for (uint32_t code = 0; code < 1u << format->bits; code++) {
        const double value = format->decode(code);
        if (isfinite(value)) {
            sum += value * value;
            count++;
        }
    }
    return sqrt(sum / count);
}

/* The typical NVFP4 block scale; the global has the rest. */
#define TYPICAL_BLOCK_SCALE 64.0

static uint32_t scale_code(const filler *f, double typical)
{
    const mox_format *format = mox_format_of(f->which->quant.scale);
    const double spread = 0.5 + 1.5 * (double)test_below(f->rng, 1024) / 1024.0;
    if (f->fill == TEST_FILL_NAN && format->has_nan && test_below(f->rng, 13) == 0)
        return format->encode(NAN);
    if (f->fill == TEST_FILL_EXTREME && test_below(f->rng, 2) == 0)
        return format->encode(test_below(f->rng, 2) == 0 ? extreme_of(format) : format->min_normal);
    return encode(format->dtype,
                  f->which->quant.global != MOXIE_GLOBAL_NONE ? TYPICAL_BLOCK_SCALE * spread : typical * spread);
}

static uint32_t zero_code(const filler *f, moxie_dtype dtype)
{
    const mox_format *format = mox_format_of(dtype);
    if (f->fill == TEST_FILL_ZERO)
        return encode(dtype, -(double)f->which->zero_add);
    if (format->kind == MOX_KIND_INTEGER)
        return finite_code(f->rng, format);
    return encode(dtype, 7.5 + 2.0 * (double)test_normal(f->rng));
}

static void fill_grid(const moxie_grid *grid, uint32_t (*code)(const filler *, double), const filler *f, double hint)
{
    for (int64_t r = 0; r < grid->rows; r++)
        for (int64_t c = 0; c < grid->cols; c++)
            mox_grid_store(grid, r, c, code(f, hint));
}

static uint32_t element_code_at(const filler *f, double hint)
{
    (void)hint;
    return element_code(f);
}

static uint32_t zero_code_at(const filler *f, double hint)
{
    (void)hint;
    return zero_code(f, f->which->zero_dtype != MOXIE_DTYPE_NONE ? f->which->zero_dtype : f->which->quant.element);
}

static moxie_grid vector(test_expert *expert, test_rng *rng, moxie_dtype dtype, int64_t rows, double size,
                         bool positive)
{
    const moxie_grid grid = dense(expert, dtype, rows, 1, 1);
    for (int64_t r = 0; r < rows; r++)
        mox_grid_store(
            &grid, r, 0,
            encode(dtype, positive ? size * (1.0 + 0.5 * (double)test_uniform(rng)) : size * (double)test_normal(rng)));
    return grid;
}

/* `whole`, or half of the time: a permutation of the natural groups, otherwise random groups. */
static const int32_t *random_groups(test_expert *expert, test_rng *rng, int64_t cols, int64_t group_cols,
                                    int64_t groups, bool whole)
{
    int32_t *index = own(expert, (uint64_t)cols * sizeof *index);
    const bool any = test_below(rng, 2) == 0 && !whole;
    for (int64_t k = 0; k < cols; k++)
        index[k] = (int32_t)(any ? test_range(rng, 0, groups - 1) : k / group_cols);
    for (int64_t k = cols - 1; k > 0 && !any; k--) {
        const int64_t other = test_range(rng, 0, k);
        const int32_t kept = index[k];
        index[k] = index[other];
        index[other] = kept;
    }
    return index;
}

/* d or m of a block. */
static uint32_t block_scale(const filler *f)
{
    static const float extremes[] = { 65504.0f, -65504.0f, 0x1p-24f, -0x1p-15f, 0.0f };
    if (f->fill == TEST_FILL_NAN && test_below(f->rng, 13) == 0)
        return test_below(f->rng, 2) == 0 ? mox_f16_encode(NAN) : mox_f16_narrow(INFINITY);
    if (f->fill == TEST_FILL_EXTREME && test_below(f->rng, 2) == 0)
        return mox_f16_encode(extremes[test_below(f->rng, sizeof extremes / sizeof extremes[0])]);
    return mox_f16_encode((float)f->size * test_normal(f->rng) / 128.0f);
}

enum { NO_PART = -2, SPREAD_PART = -1 };

/* Where d (part 0) or m is; SPREAD_PART: in four nibbles, as iq1_m has it. */
static int32_t block_scale_at(moxie_dtype dtype, int part)
{
    const mox_block_fields *fields = mox_block_fields_of(dtype);
    if (fields == NULL)
        return part == 0 ? mox_block_levels_of(dtype)->d_at : NO_PART;
    return part == 0 ? fields->d_at : fields->m_at >= 0 ? fields->m_at : NO_PART;
}

static void put_block_scale(uint8_t *block, int32_t at, uint32_t scale)
{
    for (int w = 0; at == SPREAD_PART && w < 4; w++)
        block[49 + 2 * w] = (uint8_t)((block[49 + 2 * w] & 15) | (scale >> 4 * w & 15) << 4);
    if (at >= 0)
        block[at] = (uint8_t)scale, block[at + 1] = (uint8_t)(scale >> 8);
}

/* Random bytes, and numbers where d and m are; or zeros. */
static void fill_blocks(const moxie_grid *grid, const filler *f)
{
    const mox_block *type = mox_block_of(grid->dtype);
    for (int64_t r = 0; r < grid->rows; r++)
        for (int64_t b = 0; b < grid->cols / type->weights; b++) {
            uint8_t *block = (uint8_t *)(uintptr_t)grid->data + r * grid->row_stride + b * grid->col_stride;
            for (int32_t i = 0; i < type->bytes; i++)
                block[i] = f->fill == TEST_FILL_ZERO ? 0 : (uint8_t)test_below(f->rng, 256);
            for (int part = 0; part < 2 && f->fill != TEST_FILL_ZERO; part++)
                put_block_scale(block, block_scale_at(grid->dtype, part), block_scale(f));
        }
}

static moxie_matrix make_matrix(test_expert *expert, test_rng *rng, const test_weight_quant *which, int64_t rows,
                                int64_t cols, bool bias, test_fill fill)
{
    const moxie_quant *q = &which->quant;
    const filler f = { rng, fill, which, 1.0 / sqrt((double)mox_max_i64(cols, 1)) };
    moxie_matrix m = { .codes = place(expert, q->element, rows, cols, which->packing) };
    if (mox_quant_is_block(q))
        fill_blocks(&m.codes, &f);
    else
        fill_grid(&m.codes, element_code_at, &f, 0);
    if (bias)
        m.bias = vector(expert, rng, test_below(rng, 2) == 0 ? MOXIE_BF16 : MOXIE_F32, rows, 0.1, false);
    if (q->scale == MOXIE_DTYPE_NONE) {
        if (q->global != MOXIE_GLOBAL_NONE)
            m.global = vector(expert, rng, MOXIE_F32, test_below(rng, 2) == 0 ? 1 : rows, 1, true);
        return m;
    }
    const int64_t scale_rows = mox_scale_rows(q, rows), scale_cols = mox_scale_cols(q, cols);
    const double typical = f.size / typical_code(mox_format_of(q->element));
    m.scale = place_scale(expert, q->scale, scale_rows, scale_cols, which->packing);
    fill_grid(&m.scale, scale_code, &f, typical);
    if (q->has_zero) {
        const moxie_dtype dtype = which->zero_dtype != MOXIE_DTYPE_NONE ? which->zero_dtype : q->element;
        m.zero = place_zero(expert, dtype, scale_rows, scale_cols, which->packing);
        m.zero_add = which->zero_add;
        fill_grid(&m.zero, zero_code_at, &f, 0);
    }
    if (q->global != MOXIE_GLOBAL_NONE) {
        const double global = typical / TYPICAL_BLOCK_SCALE;
        m.global = vector(expert, rng, MOXIE_F32, test_below(rng, 2) == 0 ? 1 : rows,
                          q->global == MOXIE_GLOBAL_MULTIPLY ? global : 1.0 / global, true);
    }
    if (which->act_order)
        m.group_index = random_groups(expert, rng, cols, mox_group_cols(q, cols), scale_cols, which->whole_groups);
    return m;
}

/* ---- experts ---------------------------------------------------------------------------------------------- */

mox_record_shape test_record_shape(const test_expert_spec *spec)
{
    return (mox_record_shape) { .hidden = spec->hidden,
                                .intermediate = spec->intermediate,
                                .gated = spec->gated,
                                .w13 = spec->w13->quant,
                                .w2 = spec->w2->quant,
                                .bias13 = spec->bias13,
                                .bias2 = spec->bias2 };
}

void test_expert_make(test_expert *out, test_rng *rng, const test_expert_spec *spec)
{
    const int64_t h = spec->hidden, i = spec->intermediate;
    memset(out, 0, sizeof *out);
    if (spec->gated)
        out->view.gate = make_matrix(out, rng, spec->w13, i, h, spec->bias13, spec->fill);
    out->view.up = make_matrix(out, rng, spec->w13, i, h, spec->bias13, spec->fill);
    if (spec->gated && spec->w13->whole_groups)
        out->view.up.group_index = out->view.gate.group_index;
    out->view.down = make_matrix(out, rng, spec->w2, h, i, spec->bias2, spec->fill);
    out->view.a13_scale = spec->a13 != NULL ? test_act_given(&spec->a13->quant) : 0.0f;
    out->view.a2_scale = spec->a2 != NULL ? test_act_given(&spec->a2->quant) : 0.0f;
}

static void twin_grid(test_expert *out, moxie_grid *grid)
{
    if (grid->data != NULL)
        grid->data = own(out, grid->bytes);
}

void test_expert_twin(test_expert *out, const test_expert *from)
{
    memset(out, 0, sizeof *out);
    out->view = from->view;
    out->view.a13_scale = out->view.a2_scale = -1.0f;
    moxie_matrix *const all[] = { &out->view.gate, &out->view.up, &out->view.down };
    for (int i = 0; i < 3; i++) {
        moxie_matrix *m = all[i];
        twin_grid(out, &m->codes);
        twin_grid(out, &m->scale);
        twin_grid(out, &m->zero);
        twin_grid(out, &m->global);
        twin_grid(out, &m->bias);
        if (m->group_index != NULL)
            m->group_index = own(out, (uint64_t)m->codes.cols * sizeof *m->group_index);
    }
}

void test_expert_free(test_expert *expert)
{
    for (int i = 0; i < expert->n_blocks; i++)
        test_guarded_free(expert->blocks[i].data, expert->blocks[i].bytes);
    expert->n_blocks = 0;
}

static bool equal_grids(const moxie_grid *a, const moxie_grid *b)
{
    if ((a->data == NULL) != (b->data == NULL))
        return false;
    if (a->data == NULL)
        return true;
    if (a->rows != b->rows || a->cols != b->cols || a->dtype != b->dtype)
        return false;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t c = 0; c < a->cols; c++)
            if (mox_grid_code(a, r, c) != mox_grid_code(b, r, c))
                return false;
    return true;
}

static bool equal_groups(const moxie_matrix *a, const moxie_matrix *b)
{
    if (a->group_index == NULL || b->group_index == NULL)
        return a->group_index == b->group_index;
    return memcmp(a->group_index, b->group_index, (size_t)a->codes.cols * sizeof *a->group_index) == 0;
}

bool test_expert_equal(const moxie_expert *a, const moxie_expert *b, const char **what)
{
    const moxie_matrix *const x[] = { &a->gate, &a->up, &a->down }, *const y[] = { &b->gate, &b->up, &b->down };
    for (int i = 0; i < 3; i++) {
        *what = !equal_grids(&x[i]->codes, &y[i]->codes)     ? "codes"
                : !equal_grids(&x[i]->scale, &y[i]->scale)   ? "scale"
                : !equal_grids(&x[i]->zero, &y[i]->zero)     ? "zero"
                : !equal_grids(&x[i]->global, &y[i]->global) ? "global"
                : !equal_grids(&x[i]->bias, &y[i]->bias)     ? "bias"
                : !equal_groups(x[i], y[i])                  ? "group index"
                                                             : NULL;
        if (*what != NULL)
            return false;
    }
    *what = a->a13_scale != b->a13_scale || a->a2_scale != b->a2_scale ? "activation scale" : NULL;
    return *what == NULL;
}

/* ---- activations ------------------------------------------------------------------------------------------- */

float test_act_given(const moxie_quant *quant)
{
    if (!mox_act_quant_needs_static_scale(quant))
        return 0.0f;
    const float largest = 4.0f;
    if (quant->global == MOXIE_GLOBAL_NONE)
        return largest / mox_format_of(quant->element)->max;
    const float global = largest / (448.0f * 6.0f);
    return quant->global == MOXIE_GLOBAL_MULTIPLY ? global : 1.0f / global;
}

void test_fill_activations(test_rng *rng, moxie_dtype dtype, void *x, int64_t count)
{
    const int64_t bytes = mox_dtype_bytes(dtype);
    for (int64_t i = 0; i < count; i++) {
        const float value = test_normal(rng);
        mox_narrow(dtype, &value, (uint8_t *)x + i * bytes, 1);
    }
}

void test_layout_refuses(const mox_layout *layout, int64_t size, const moxie_quant *quant, const char *word)
{
    char reason[256];
    const moxie_quant plain = { .element = MOXIE_BF16 };
    const mox_record_shape shape = { .hidden = size, .intermediate = size, .w13 = plain, .w2 = *quant };
    const char *refusal = layout->reject(&shape, reason, sizeof reason);
    if (refusal == NULL || strstr(refusal, word) == NULL || strstr(refusal, "w2") == NULL)
        fail_msg("wanted a refusal of w2 with \"%s\", got %s", word, refusal ? refusal : "none");
}
