/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_sm90.c - the Hopper kernels in plain C (test_cuda_sm90.h): products and traces. Tags of other products are
 * seen to be others.
 */
#include "test_cuda_sm90.h"

#include "cpu/glu/glu.h"
#include "quant/quant.h"
#include "test_cuda_sm90_list.h"
#include "test_cuda_sm90_weights.h"
#include "test_support.h"

/* One token's numbers [chunks * per], with its scales. */
static void read_token(const gemm_problem *p, const token_tile *t, int64_t i, double *x)
{
    const mox_sm90_args *a = p->a;
    const double factor = (double)(a->a_factor != NULL ? a->a_factor[t->row + i] : a->a_uniform_factor);
    for (int64_t k = 0; k < a->chunks * p->per; k++) {
        x[k] = factor * (double)mox_load(p->element, a->a + tiled_at(t, a->chunks, i, k * p->size));
        if (mox_sm90_token_scales(p->kind) > 0)
            x[k] *= (double)a->a_scale[scale_at(t, a->chunks, i, k / p->per)];
    }
}

/* Row n of the product, of a record, as numbers [chunks * per]. */
static void read_row(const gemm_problem *p, const uint8_t *record, int64_t n, double *to)
{
    const mox_sm90_args *a = p->a;
    const int64_t tile = n / 128, in = n % 128, rows = tile == a->tiles - 1 ? a->last_rows : 128;
    const uint8_t *base = record + a->tiles_at + (uint64_t)tile * a->tile_bytes;
    assert_true(tile < a->tiles && in < rows);
    for (int64_t k = 0; k < a->chunks * p->per; k++)
        to[k] = test_cuda_sm90_weight(p, base, rows, in, k);
}

/* That row times x, scaled and shifted. */
static float dot(const gemm_problem *p, const uint8_t *record, int64_t n, const double *row, const double *x)
{
    const mox_sm90_args *a = p->a;
    double sum = 0;
    for (int64_t k = 0; k < a->chunks * p->per; k++)
        sum += row[k] * x[k];
    if (a->row_scale_at != 0) {
        const double factor = (double)mox_load(MOXIE_F32, record + a->row_scale_at + n * 4);
        sum = a->factor_divides ? sum / factor : sum * factor;
    }
    return (float)(sum + (a->bias_at != 0 ? (double)mox_load(MOXIE_F32, record + a->bias_at + n * 4) : 0));
}

/* ---- a product ----------------------------------------------------------------------------------------- */

/* Rows of h: [gate I | up I], or the one matrix's; and which row of the product one of them is. */
static int64_t rows_of_h(const mox_sm90_args *a)
{
    return a->gated ? 2 * a->rows : a->rows;
}

static int64_t row_of_product(const mox_sm90_args *a, int64_t r)
{
    return a->gated ? r % a->rows / 8 * 16 + r / a->rows * 8 + r % a->rows % 8 : r;
}

/* An expert's matrix [rows_of_h, chunks * per], decoded once for all of its tokens. */
static void read_matrix(const gemm_problem *p, const mox_sm90_entry *entry, double *to)
{
    const uint8_t *record = p->a->records + (uint64_t)entry->slot * p->a->record_bytes;
    for (int64_t r = 0; r < rows_of_h(p->a); r++)
        read_row(p, record, row_of_product(p->a, r), to + r * p->a->chunks * p->per);
}

static void product(const gemm_problem *p, const mox_sm90_entry *entry, const double *matrix, const double *x, float *h)
{
    const uint8_t *record = p->a->records + (uint64_t)entry->slot * p->a->record_bytes;
    for (int64_t r = 0; r < rows_of_h(p->a); r++)
        h[r] = dot(p, record, row_of_product(p->a, r), matrix + r * p->a->chunks * p->per, x);
}

static void activate(const mox_sm90_args *a, const mox_sm90_entry *entry, const float *h, float *act)
{
    const int64_t offsets[2] = { 0, 1 }, expert = a->expert_of != NULL ? a->expert_of[entry->slot] : -1;
    const mox_glu_args args = { .activation = a->activation,
                                .slots = 1,
                                .offsets = offsets,
                                .expert_of = a->expert_of != NULL ? &expert : NULL,
                                .h = h,
                                .intermediate = a->rows,
                                .out = act };
    mox_glu_scalar_run(&args, &mox_executor_serial);
}

static void put(const mox_sm90_args *a, const token_tile *t, int64_t i, int64_t at, const void *from, size_t bytes)
{
    const int64_t row_bytes = a->next_stride * (a->output == MOX_SM90_ACT_E4M3 ? 1 : 2);
    assert_int_equal(row_bytes % 128, 0);
    memcpy((uint8_t *)a->next + tiled_at(t, (int32_t)(row_bytes / 128), i, at), from, bytes);
}

static void put_quantized(const mox_sm90_args *a, const token_tile *t, int64_t i, const float *act)
{
    const moxie_quant quant = {
        .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_rows = 1, .group_cols = 128, .rule = a->next_rule
    };
    const mox_act_quantizer quantizer = { .quant = &quant };
    const int64_t chunks = (a->rows + 127) / 128;
    uint8_t *codes = calloc((size_t)chunks, 128);
    float *scales = calloc((size_t)chunks, 4);
    assert_int_equal(a->next_stride, chunks * 128);
    mox_act_quant_row(&quantizer, act, a->rows, codes, scales);
    for (int64_t k = 0; k < chunks; k++) {
        for (int64_t at = 0; at < 128; at++)
            put(a, t, i, k * 128 + at, codes + k * 128 + at, 1);
        a->next_scale[scale_at(t, (int32_t)chunks, i, k)] = scales[k];
    }
    free(codes);
    free(scales);
}

static moxie_dtype element_of(const mox_sm90_acts *acts)
{
    static const moxie_dtype elements[] = { MOXIE_F8_E4M3, MOXIE_F8_E5M2, MOXIE_F6_E2M3, MOXIE_F6_E3M2, MOXIE_F4_E2M1 };
    const uint32_t most = acts->max_code << acts->shift;
    for (size_t i = 0; i < sizeof elements / sizeof elements[0]; i++)
        if (mox_dtype_bits(elements[i]) == acts->bits &&
            acts->rebias * mox_load(MOXIE_F32, &most) == mox_format_of(elements[i])->max)
            return elements[i];
    fail_msg("no element has %d bits, of which the greatest is %x", acts->bits, acts->max_code);
    return MOXIE_DTYPE_NONE;
}

/* What a gather makes of the codes that a row's activations become. */
static void put_mx(const mox_sm90_args *a, const token_tile *t, int64_t i, const float *act)
{
    const moxie_quant quant = { .element = element_of(&a->next_acts),
                                .scale = a->next_rule == MOXIE_RULE_UE8M0 ? MOXIE_F32 : MOXIE_F8_E8M0,
                                .group_rows = 1,
                                .group_cols = 32,
                                .rule = a->next_rule };
    const mox_act_quantizer quantizer = { .quant = &quant };
    uint8_t *codes = calloc((size_t)a->next_stride, 1);
    float *scales = calloc((size_t)a->next_stride / 32, sizeof *scales);
    mox_sm90_gather_args gather = { .a = codes, .a_scale = scales, .acts = a->next_acts };
    gather.acts.group = 32;
    mox_act_quant_row(&quantizer, act, a->rows, codes, scales);
    for (int64_t k = 0; k < a->next_stride; k++) {
        const uint16_t number = k < a->rows ? test_cuda_sm90_act(&gather, 0, k) : 0;
        put(a, t, i, k * 2, &number, 2);
    }
    free(codes);
    free(scales);
}

static void put_wide(const mox_sm90_args *a, const token_tile *t, int64_t i, const float *act)
{
    const moxie_dtype dtype = a->output == MOX_SM90_ACT_F16 ? MOXIE_F16 : MOXIE_BF16;
    assert_true(a->next_stride >= a->rows);
    for (int64_t r = 0; r < a->next_stride; r++) {
        uint16_t code = 0;
        if (r < a->rows)
            mox_narrow(dtype, act + r, &code, 1);
        put(a, t, i, r * 2, &code, 2);
    }
}

static void finish(const mox_sm90_args *a, const mox_sm90_entry *entry, const token_tile *t, int64_t i, float *h,
                   float *act)
{
    const int64_t pair = t->pair + i;
    for (int64_t r = 0; a->change != NULL && r < rows_of_h(a); r++)
        h[r] += a->change[pair * rows_of_h(a) + r];
    if (a->output == MOX_SM90_OUT_F32) {
        memcpy(a->out + pair * a->out_stride, h, (size_t)rows_of_h(a) * 4);
        return;
    }
    activate(a, entry, h, act);
    if (a->kept_act != NULL)
        memcpy(a->kept_act + pair * a->rows, act, (size_t)a->rows * 4);
    if (a->output == MOX_SM90_ACT_F32)
        memcpy(a->out + pair * a->out_stride, act, (size_t)a->rows * 4);
    else if (a->output == MOX_SM90_ACT_E4M3)
        put_quantized(a, t, i, act);
    else if (a->output == MOX_SM90_ACT_MX)
        put_mx(a, t, i, act);
    else
        put_wide(a, t, i, act);
}

/* No word of a column that a token tile may have has the product's tag before; then all words may have. */
static void use_state(const mox_sm90_args *a, int32_t blocks, int32_t widest)
{
    const int64_t words = mox_sm90_state_words(blocks, a->max_columns);
    assert_true(a->tag != 0);
    for (int64_t i = 0; i < words; i++) {
        assert_true(a->state[i] >> 32 != a->tag || i / 64 % a->max_columns >= widest);
        a->state[i] = (uint64_t)a->tag << 32;
    }
}

static moxie_status gemm(void *context, mox_sm90_element element, const mox_sm90_args *a, int32_t blocks,
                         bool dependent)
{
    (void)context, (void)dependent;
    const bool f16 = element == MOX_SM90_F16 || element == MOX_SM90_INT4_F16_SHORT || element == MOX_SM90_INT4_F16_LONG;
    gemm_problem p = { .a = a, .kind = element };
    p.element = element == MOX_SM90_INT8             ? MOXIE_I8
                : mox_sm90_token_bytes(element) == 1 ? MOXIE_F8_E4M3
                : f16                                ? MOXIE_F16
                                                     : MOXIE_BF16;
    assert_int_equal(mox_dtype_bytes(p.element), mox_sm90_token_bytes(element));
    p.size = mox_dtype_bytes(p.element);
    p.per = 128 / p.size;
    own_list own;
    const mox_sm90_list *its =
        a->inline_routing.ids != NULL ? test_cuda_sm90_list_of_few(&a->inline_routing, a->max_columns, &own) : a->list;
    const mox_sm90_entry *entries = entries_of(its);
    double *x = calloc((size_t)(a->chunks * p.per), sizeof *x);
    double *matrix = calloc((size_t)(rows_of_h(a) * a->chunks * p.per), sizeof *matrix);
    float *h = calloc((size_t)a->rows, 2 * sizeof *h), *act = calloc((size_t)a->rows, sizeof *act);
    assert_true(its->widest <= a->max_columns);
    assert_true((uintptr_t)a->a % 128 == 0);
    assert_true(a->paired || !a->gated || a->output != MOX_SM90_ACT_E4M3);
    assert_true((uintptr_t)a->records % 128 == 0 && a->record_bytes % 128 == 0 && a->tiles_at % 128 == 0);
    use_state(a, blocks, its->widest);
    for (int32_t e = 0; e < its->count; e++) {
        read_matrix(&p, entries + e, matrix);
        for (int32_t n = 0; n < entries[e].tiles; n++) {
            const token_tile t = tile_of(entries + e, n);
            for (int32_t i = 0; i < t.columns; i++) {
                read_token(&p, &t, i, x);
                product(&p, entries + e, matrix, x, h);
                finish(a, entries + e, &t, i, h, act);
            }
        }
    }
    free(x);
    free(matrix);
    free(h);
    free(act);
    return MOXIE_OK;
}

/* Codes and scales of a pair, and what the operand has that is not theirs. */
static void show_codes(const mox_sm90_trace_args *a, int64_t pair)
{
    const mox_act_quantizer quantizer = { .quant = &a->quant };
    const mox_format *element = mox_format_of(a->quant.element);
    const float *act = a->act + pair * a->cols;
    float *to = a->to + pair * a->stride, *scales = a->to_scales + pair * a->scale_count;
    uint8_t *codes = calloc((size_t)a->cols, 1);
    mox_act_quant_row(&quantizer, act, a->cols, codes, scales);
    for (int64_t k = 0; k < a->cols; k++) {
        const float code = element->decode(codes[k]), times = scales[k / a->quant.group_cols] * a->scale_factor;
        to[k] = mox_round_to(MOXIE_BF16, code * times) == to[k] ? code : to[k] / times;
    }
    free(codes);
}

static moxie_status show(void *context, const mox_sm90_trace_args *a)
{
    (void)context;
    const mox_sm90_entry *entries = entries_of(a->list);
    const int64_t size = mox_dtype_bytes(a->element);
    for (int32_t e = 0; e < a->list->count; e++)
        for (int32_t n = 0; n < entries[e].tiles; n++) {
            const token_tile t = tile_of(entries + e, n);
            assert_true(t.pair + t.columns <= a->max_pairs);
            for (int32_t i = 0; i < t.columns; i++) {
                for (int64_t k = 0; k < a->stride; k++)
                    a->to[(t.pair + i) * a->stride + k] =
                        k < a->cols ? mox_load(a->element, a->tiles + tiled_at(&t, a->chunks, i, k * size)) : 0;
                if (a->act != NULL)
                    show_codes(a, t.pair + i);
                for (int64_t s = 0; a->tile_scales != NULL && s < a->scale_count; s++)
                    a->to_scales[(t.pair + i) * a->scale_count + s] = a->tile_scales[scale_at(&t, a->chunks, i, s)];
            }
        }
    return MOXIE_OK;
}

#ifdef MOX_TEST_EMULATED

static bool is_nan(uint16_t bits)
{
    return (bits & 0x7fff) > 0x7f80;
}

/* Eight numbers of bf16; NaNs are equal, whatever their payloads. */
static void compare_eight(const uint16_t *got, const uint16_t *want)
{
    for (int i = 0; i < 8; i++)
        if (!is_nan(got[i]) || !is_nan(want[i]))
            assert_int_equal(got[i], want[i]);
}

/* What a product leaves as bf16 of codes is what its activations in f32 rows, quantized and gathered, give. */
static void check_mx(const mox_sm90_args *a, const mox_sm90_list *its, const float *act)
{
    const mox_sm90_entry *entries = entries_of(its), *last = entries + its->count - 1;
    const int32_t chunks = (int32_t)(a->next_stride * 2 / 128);
    mox_sm90_args want = *a;
    want.next = calloc((size_t)(last->row + (last->tokens + 7) / 8 * 8), (size_t)a->next_stride * 2);
    for (int32_t e = 0; e < its->count; e++)
        for (int32_t n = 0; n < entries[e].tiles; n++) {
            const token_tile t = tile_of(entries + e, n);
            for (int32_t i = 0; i < t.columns; i++) {
                put_mx(&want, &t, i, act + (t.pair + i) * a->rows);
                for (int64_t at = 0; at < chunks * 128; at += 16) {
                    const int64_t from = tiled_at(&t, chunks, i, at);
                    compare_eight((const uint16_t *)((const char *)a->next + from),
                                  (const uint16_t *)((const char *)want.next + from));
                }
            }
        }
    free(want.next);
}

static moxie_status gemm_twice(void *context, mox_sm90_element element, const mox_sm90_args *a, int32_t blocks,
                               bool dependent)
{
    enum { TAG = 100 };
    own_list own;
    const mox_sm90_list *its =
        a->inline_routing.ids != NULL ? test_cuda_sm90_list_of_few(&a->inline_routing, a->max_columns, &own) : a->list;
    MOX_TRY(test_emulated_gemm(context, element, a, blocks, dependent));
    if (a->output != MOX_SM90_ACT_MX || its->count == 0)
        return MOXIE_OK;
    const mox_sm90_entry *last = entries_of(its) + its->count - 1;
    mox_sm90_args rows = *a;
    rows.tag = TAG;
    rows.output = MOX_SM90_ACT_F32;
    rows.out_stride = a->rows;
    rows.out = calloc((size_t)(last->pair + last->tokens), (size_t)a->rows * sizeof *rows.out);
    MOX_TRY(test_emulated_gemm(context, element, &rows, blocks, dependent));
    check_mx(a, its, rows.out);
    free(rows.out);
    return MOXIE_OK;
}

const mox_sm90_ops test_cuda_sm90_ops = { test_cuda_sm90_list, test_cuda_sm90_gather, gemm_twice, show };

#else

const mox_sm90_ops test_cuda_sm90_ops = { test_cuda_sm90_list, test_cuda_sm90_gather, gemm, show };

#endif
