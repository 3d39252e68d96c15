/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_rows.c - each kernel of the small families (permute, quant_act, combine) alone, called through the launch
 * table. Its output equals that of the host's functions that define it, byte by byte. Sizes are those at which kernels
 * change their launch shape. Device memory lies between guards. The tests run first on the launch table in plain C,
 * then on a GPU; without a GPU the second part is skipped.
 */
#include <float.h>
#include <math.h>

#include "cpu/combine/combine.h"
#include "cuda/quant_act/cuda_quant_act.h"
#include "device_support.h"
#include "quant/act_rules.h"
#include "quant/quant.h"
#include "route/route.h"
#include "test_cuda_table.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

enum { GROUP_OF_TEST = 128 };

static const mox_cuda_table *table;
static bool on_plain; /* the table of the tests, whose code is of the host */

static bool is_left_out(int n)
{
    const bool few = test_quick() || test_env("MOXIE_TEST_CONFIGS", 200) < 100;
    return n % (few ? 9 : on_plain ? 3 : 1) != 0;
}

/* ---- memory ---------------------------------------------------------------------------------------------- */

/* Arrays on the device, between guards. */
typedef struct device_arrays {
    device_guards guards;
    void *blocks[64];
    int count;
} device_arrays;

/* A device array of `bytes` with the content of `host`; filled with 0xff when that is NULL. */
static void *put(device_arrays *d, const void *host, size_t bytes)
{
    moxie_error error = { 0 };
    d->guards.table = table;
    void *block = device_guard_allocate(&d->guards, bytes + 1);
    assert_non_null(block);
    d->blocks[d->count++] = block;
    if (host != NULL && bytes > 0)
        assert_ok(table->copy(block, host, bytes, NULL, &error), &error);
    assert_ok(table->stream_wait(NULL, &error), &error);
    return block;
}

static void get(void *host, const void *block, size_t bytes)
{
    moxie_error error = { 0 };
    assert_ok(table->copy(host, block, bytes, NULL, &error), &error);
    assert_ok(table->stream_wait(NULL, &error), &error);
}

static void clear(device_arrays *d)
{
    while (d->count > 0)
        device_guard_release(&d->guards, d->blocks[--d->count]);
    assert_int_equal(d->guards.broken, 0);
}

/* Checks that `bytes` on the device equal those at `want`. */
static void same(const void *block, const void *want, size_t bytes, const char *what, const char *text)
{
    uint8_t *got = malloc(bytes + 1);
    get(got, block, bytes);
    for (size_t i = 0; i < bytes; i++)
        if (got[i] != ((const uint8_t *)want)[i])
            fail_msg("%s: %s differ at byte %zu of %zu: %02x, want %02x", text, what, i, bytes, got[i],
                     ((const uint8_t *)want)[i]);
    free(got);
}

/* ---- permute --------------------------------------------------------------------------------------------- */

enum { MAX_PAIRS = 300000, ALL_RANDOM = 0, ALL_ON_ONE, NONE, WAYS };

/* Gives `slots` of the experts a slot, in random order; the others get none. */
static void make_slots(test_rng *rng, int64_t experts, int64_t slots, int32_t *slot_of)
{
    for (int64_t e = 0; e < experts; e++)
        slot_of[e] = e < slots ? (int32_t)e : -1;
    for (int64_t e = experts - 1; e > 0; e--) {
        const int64_t other = (int64_t)test_below(rng, (uint64_t)e + 1);
        const int32_t spare = slot_of[e];
        slot_of[e] = slot_of[other];
        slot_of[other] = spare;
    }
}

/* Inputs and expected outputs of a permutation. */
static struct {
    int64_t pairs, top_k, tokens, experts, slots;
    int32_t ids[MAX_PAIRS], slot_of[MOXIE_MAX_EXPERTS];
    float weights[MAX_PAIRS], slot_scale[2][MOXIE_MAX_EXPERTS];
    int64_t offsets[MOXIE_MAX_EXPERTS + 1], pair_at[MAX_PAIRS], position[MAX_PAIRS];
} permuted;

static void make_permuted(int64_t pairs, int64_t slots, int way)
{
    test_rng rng = { (uint64_t)(pairs * 4 + way) };
    permuted.pairs = pairs, permuted.slots = slots;
    permuted.top_k = pairs % 8 == 0 ? 8 : pairs % 3 == 0 ? 3 : 1;
    permuted.tokens = pairs / permuted.top_k;
    permuted.experts = slots + slots / 2 < MOXIE_MAX_EXPERTS ? slots + slots / 2 : MOXIE_MAX_EXPERTS;
    make_slots(&rng, permuted.experts, slots, permuted.slot_of);
    for (int64_t i = 0; i < pairs; i++) {
        const int32_t any = (int32_t)test_below(&rng, (uint64_t)permuted.experts + 2) - 1;
        permuted.ids[i] = way == ALL_ON_ONE ? (int32_t)permuted.experts - 1 : way == NONE ? -1 : any;
        permuted.weights[i] = test_normal(&rng);
    }
    for (int64_t s = 0; s < slots; s++)
        for (int i = 0; i < 2; i++)
            permuted.slot_scale[i][s] = test_normal(&rng);
    mox_permutation want = { permuted.offsets, permuted.pair_at, permuted.position };
    mox_permute(permuted.ids, permuted.tokens, permuted.top_k, permuted.experts, permuted.slot_of, slots, &want);
}

static void compare_permuted(const mox_permute_args *a, const char *text)
{
    static float by_pair[3][MAX_PAIRS];
    static int64_t token_of[MAX_PAIRS];
    const int64_t shared[2] = { 0, permuted.tokens }, *offsets = permuted.offsets;
    const size_t local = (size_t)offsets[permuted.slots];
    for (int64_t s = 0; s < permuted.slots; s++)
        for (int64_t p = offsets[s]; p < offsets[s + 1]; p++) {
            token_of[p] = permuted.pair_at[p] / permuted.top_k;
            by_pair[0][p] = permuted.weights[permuted.pair_at[p]];
            by_pair[1][p] = permuted.slot_scale[0][s];
            by_pair[2][p] = permuted.slot_scale[1][s];
        }
    same(a->offsets, offsets, (size_t)(permuted.slots + 1) * sizeof(int64_t), "offsets", text);
    same(a->position, permuted.position, (size_t)permuted.pairs * sizeof(int64_t), "positions", text);
    same(a->pair_at, permuted.pair_at, local * sizeof(int64_t), "pairs", text);
    same(a->token_of, token_of, local * sizeof(int64_t), "tokens", text);
    same(a->row_weight, by_pair[0], local * sizeof(float), "weights", text);
    same(a->pair_scale13, by_pair[1], local * sizeof(float), "scales of w13", text);
    same(a->pair_scale2, by_pair[2], local * sizeof(float), "scales of w2", text);
    same(a->shared_offsets, shared, sizeof shared, "shared offsets", text);
}

/* Without the arrays that it may leave out, as for the positions of all pairs of a store's run. */
static void check_plain_permute(int32_t row, const mox_permute_args *all, const char *text)
{
    const size_t positions = (size_t)permuted.pairs * sizeof(int64_t);
    moxie_error error = { 0 };
    mox_permute_args a = *all;
    a.shared_offsets = a.token_of = NULL;
    a.row_weight = a.pair_scale13 = a.pair_scale2 = NULL;
    a.weights = a.static_scale13 = a.static_scale2 = NULL;
    assert_ok(table->fill(a.position, 0xff, positions, NULL, &error), &error);
    assert_ok(table->permute[row](&a, NULL, &error), &error);
    same(a.position, permuted.position, positions, "positions alone", text);
    memset(permuted.position, 0xff, positions); /* no slot: every position is -1 */
    a.slots = 0;
    for (int64_t e = 0; e < permuted.experts; e++)
        permuted.slot_of[e] = -1;
    assert_ok(table->copy((void *)(uintptr_t)a.slot_of, permuted.slot_of, (size_t)permuted.experts * sizeof(int32_t),
                          NULL, &error),
              &error);
    assert_ok(table->fill(a.position, 0, positions, NULL, &error), &error);
    assert_ok(table->permute[row](&a, NULL, &error), &error);
    same(a.position, permuted.position, positions, "positions without slots", text);
}

static void check_permute(int32_t row, int64_t pairs, int64_t slots, int way)
{
    char text[128];
    snprintf(text, sizeof text, "permute: %lld pairs, %lld slots, way %d", (long long)pairs, (long long)slots, way);
    make_permuted(pairs, slots, way);
    const size_t numbers = (size_t)pairs * sizeof(int64_t), floats = (size_t)pairs * sizeof(float);
    const size_t chunks = (size_t)((pairs + MOX_PERMUTE_CHUNK - 1) / MOX_PERMUTE_CHUNK);
    device_arrays d = { 0 };
    moxie_error error = { 0 };
    const mox_permute_args a = {
        .ids = put(&d, permuted.ids, (size_t)pairs * sizeof(int32_t)),
        .tokens = permuted.tokens,
        .top_k = permuted.top_k,
        .experts = permuted.experts,
        .slots = slots,
        .slot_of = put(&d, permuted.slot_of, (size_t)permuted.experts * sizeof(int32_t)),
        .offsets = put(&d, NULL, (size_t)(slots + 1) * sizeof(int64_t)),
        .pair_at = put(&d, NULL, numbers),
        .position = put(&d, NULL, numbers),
        .shared_offsets = put(&d, NULL, 2 * sizeof(int64_t)),
        .token_of = put(&d, NULL, numbers),
        .counts = put(&d, NULL, chunks * (size_t)slots * sizeof(int32_t)),
        .weights = put(&d, permuted.weights, floats),
        .row_weight = put(&d, NULL, floats),
        .static_scale13 = put(&d, permuted.slot_scale[0], (size_t)slots * sizeof(float)),
        .static_scale2 = put(&d, permuted.slot_scale[1], (size_t)slots * sizeof(float)),
        .pair_scale13 = put(&d, NULL, floats),
        .pair_scale2 = put(&d, NULL, floats),
    };
    assert_ok(table->permute[row](&a, NULL, &error), &error);
    compare_permuted(&a, text);
    if (way == 0) /* of ids at random */
        check_plain_permute(row, &a, text);
    clear(&d);
}

static void permutes(void **state)
{
    (void)state;
    static const int64_t pairs[] = { 0,    1,    31,   33,   64,   255,  256,   257,   1023,  1024,  1025,
                                     2047, 2048, 2049, 8191, 8192, 8193, 40000, 65536, 65544, 300000 };
    static const int64_t slots[] = { 1, 2, 33, 256, 1024 };
    for (int32_t row = 0; row < MOX_CUDA_ROWS_permute; row++)
        for (int i = 0; i < COUNT(pairs) * COUNT(slots) * WAYS; i++)
            if (!is_left_out(i))
                check_permute(row, pairs[i / WAYS / COUNT(slots)], slots[i / WAYS % COUNT(slots)], i % WAYS);
}

/* ---- quant_act ------------------------------------------------------------------------------------------- */

typedef struct quant_case {
    moxie_dtype dtype, element;
    int32_t global; /* of NVFP4 */
    int64_t rows, cols, stride;
    int32_t scale_rule, kind;
    bool chosen, odd; /* chosen: rows are gathered by `source`, their count is in device memory; odd: x not aligned */
    int64_t group;
    bool by_row, is_static;
    int32_t rounding;
} quant_case;

static int64_t groups_of(const quant_case *c)
{
    return (c->cols + c->group - 1) / c->group;
}

/* Numbers of every size: groups of zeros; infinities, NaN and subnormals; numbers between two codes. */
static float one_of(test_rng *rng, int64_t column)
{
    const uint64_t draw = test_below(rng, 64), way = (uint64_t)column / GROUP_OF_TEST % 4;
    const float x = test_normal(rng);
    if (way == 1)
        return draw % 2 == 0 ? 0.0f : -0.0f;
    if (way == 2)
        return draw == 0 ? INFINITY : draw == 1 ? -INFINITY : draw == 2 ? NAN : draw < 8 ? x * FLT_MAX : x * 1e-39f;
    return draw < 8 ? (float)((int)draw * 2 + 1) / 16.0f : x;
}

static void text_of(const quant_case *c, int32_t row, char *text, size_t size)
{
    snprintf(text, size,
             "quant_act row %d: %lld x %lld of type %d to %d, stride %lld, group %lld, rule %d, kind %d, global %d%s%s",
             (int)row, (long long)c->rows, (long long)c->cols, (int)c->dtype, (int)c->element, (long long)c->stride,
             (long long)c->group, (int)c->scale_rule, (int)c->kind, (int)c->global, c->chosen ? ", chosen rows" : "",
             c->odd ? ", odd" : "");
}

/* The activations as the host quantizes them. */
static void host_quantize(const quant_case *c, const moxie_quant *quant, const char *x, const int64_t *source,
                          const float *static_scales, uint8_t *codes, float *numbers, float *scales)
{
    const int64_t groups = groups_of(c);
    float *wide = malloc((size_t)c->cols * sizeof *wide);
    memset(codes, 0, (size_t)(c->rows * c->stride));
    for (int64_t r = 0; r < c->rows; r++) {
        mox_widen(c->dtype, x + (c->chosen ? source[r] : r) * c->cols * mox_dtype_bytes(c->dtype), wide, c->cols);
        const mox_act_quantizer quantizer = { .quant = quant, .static_scale = static_scales[r] };
        mox_act_quant_row(&quantizer, wide, c->cols, codes + r * c->stride, scales + r * groups);
    }
    for (int64_t i = 0; i < c->rows * c->stride; i++)
        numbers[i] = mox_format_table(c->element)[codes[i]];
    free(wide);
}

static moxie_quant quant_of(const quant_case *c)
{
    if (c->by_row)
        return (moxie_quant) { .element = c->element,
                               .scale = MOXIE_F32,
                               .group_rows = c->is_static ? -1 : 1,
                               .group_cols = -1,
                               .is_static = c->is_static,
                               .rounding = c->rounding };
    return (moxie_quant) { .element = c->element,
                           .scale = c->scale_rule == MOXIE_RULE_UE8M0 ? MOXIE_F32
                                    : c->group == 32                  ? MOXIE_F8_E8M0
                                    : c->group == 16                  ? MOXIE_F8_E4M3
                                                                      : MOXIE_F32,
                           .group_cols = (int32_t)c->group,
                           .rule = c->scale_rule,
                           .global = c->global };
}

static int times_quantized[MOX_CUDA_ROWS_quant_act];

/* Inputs on the host, and the host's results. */
typedef struct quant_data {
    char *x;         /* [rows, cols] of the case's type */
    int64_t *source; /* [rows] */
    float *scale;    /* [rows] static: one a row, or the same for all */
    uint8_t *codes;
    float *numbers, *scales;
} quant_data;

static quant_data make_quant_data(const quant_case *c, const moxie_quant *quant)
{
    const int64_t groups = groups_of(c), bytes = mox_dtype_bytes(c->dtype), count = c->rows * c->cols;
    const size_t values = (size_t)(c->rows * c->stride);
    test_rng rng = { (uint64_t)(c->cols * 1000 + c->rows) };
    quant_data q = { .x = malloc((size_t)((count + 1) * bytes)),
                     .source = malloc((size_t)c->rows * sizeof(int64_t)),
                     .scale = malloc((size_t)c->rows * sizeof(float)),
                     .codes = malloc(values),
                     .numbers = malloc(values * sizeof(float)),
                     .scales = malloc((size_t)(c->rows * groups) * sizeof(float)) };
    for (int64_t i = 0; i < count; i++) {
        const float value = one_of(&rng, i % c->cols);
        mox_narrow(c->dtype, &value, q.x + i * bytes, 1);
    }
    for (int64_t r = 0; r < c->rows; r++) {
        q.source[r] = (int64_t)test_below(&rng, (uint64_t)c->rows);
        q.scale[r] = c->chosen ? 0.001f * (float)(r + 1) : 0.003f;
    }
    host_quantize(c, quant, q.x, q.source, q.scale, q.codes, q.numbers, q.scales);
    return q;
}

static void free_quant_data(quant_data *q)
{
    free(q->x);
    free(q->source);
    free(q->scale);
    free(q->codes);
    free(q->numbers);
    free(q->scales);
}

static void check_quant_act(int32_t row, const quant_case *c)
{
    const moxie_quant quant = quant_of(c);
    const mox_cuda_quant_act_problem problem = { .quant = &quant, .kind = MOX_ACTIVATIONS_CODES };
    mox_rejection why;
    if (!mox_cuda_quant_act_at(row)->admit(&problem, &why))
        return;
    times_quantized[row]++;
    const int64_t groups = groups_of(c), bytes = mox_dtype_bytes(c->dtype);
    const size_t values = (size_t)(c->rows * c->stride), count = (size_t)(c->rows * c->cols), rows = (size_t)c->rows;
    const size_t each = c->kind == MOX_ACTIVATIONS_CODES ? 1 : sizeof(float);
    char text[224];
    text_of(c, row, text, sizeof text);
    quant_data q = make_quant_data(c, &quant);
    device_arrays d = { 0 };
    moxie_error error = { 0 };
    char *on_device = put(&d, NULL, (count + 1) * (size_t)bytes);
    const char *from = on_device + (c->odd ? bytes : 0);
    assert_ok(table->copy((void *)(uintptr_t)from, q.x, count * (size_t)bytes, NULL, &error), &error);
    const mox_quant_act_args a = {
        .quant = quant,
        .rule = mox_act_quant_rule(&quant),
        .x = from,
        .x_dtype = c->dtype,
        .round_to = MOXIE_F32,
        .max_rows = c->chosen ? c->rows + 3 : c->rows,
        .cols = c->cols,
        .rows = c->chosen ? put(&d, &c->rows, sizeof c->rows) : NULL,
        .source = c->chosen ? put(&d, q.source, rows * sizeof *q.source) : NULL,
        .table = put(&d, mox_format_table(c->element), 256 * sizeof(float)),
        .row_scale = c->chosen ? put(&d, q.scale, rows * sizeof *q.scale) : NULL,
        .static_scale = q.scale[0],
        .early = !c->chosen,
        .out = { .kind = c->kind,
                 .cols = c->cols,
                 .stride = c->stride,
                 .data = put(&d, NULL, values * each),
                 .scales = put(&d, NULL, rows * (size_t)groups * sizeof(float)),
                 .group_cols = c->group,
                 .scale_cols = groups,
                 .integer = c->element == MOXIE_I8,
                 .global = c->global != MOXIE_GLOBAL_NONE ? put(&d, NULL, rows * sizeof *q.scale) : NULL },
    };
    assert_ok(table->quant_act[row](&a, NULL, &error), &error);
    same(a.out.scales, q.scales, rows * (size_t)groups * sizeof(float), "scales", text);
    same(a.out.data, each == 1 ? (void *)q.codes : (void *)q.numbers, values * each, "codes", text);
    if (a.out.global != NULL)
        same(a.out.global, q.scale, rows * sizeof *q.scale, "globals", text);
    clear(&d);
    free_quant_data(&q);
}

enum { QUANT_WAYS = 32 };
static const moxie_dtype quant_dtypes[] = { MOXIE_BF16, MOXIE_F16, MOXIE_F32 };
static const int64_t quant_cols[] = { 1, 3, 64, 127, 128, 129, 132, 2052, 7168, 16900 }, quant_rows[] = { 1, 5, 330 };

/* Case i: a kind of quantizer, one of eight variants of it, a shape. */
static quant_case quant_case_at(int i)
{
    enum { FP8, MX, NVFP4, BY_ROW };
    static const int32_t mx_rules[] = { MOXIE_RULE_DEFAULT, MOXIE_RULE_OCP_FLOOR, MOXIE_RULE_QUARK_EVEN };
    static const moxie_dtype mx_elements[] = { MOXIE_F8_E4M3, MOXIE_F8_E5M2, MOXIE_F6_E3M2, MOXIE_F6_E2M3,
                                               MOXIE_F4_E2M1 };
    static const moxie_dtype row_elements[] = { MOXIE_I8, MOXIE_F8_E4M3, MOXIE_F8_E5M2 };
    const int way = i % 8, kind = i % QUANT_WAYS / 8, shape = i / QUANT_WAYS;
    quant_case c = { .dtype = quant_dtypes[shape % COUNT(quant_dtypes)],
                     .element = MOXIE_F8_E4M3,
                     .rows = quant_rows[shape / COUNT(quant_dtypes) % COUNT(quant_rows)],
                     .cols = quant_cols[shape / COUNT(quant_dtypes) / COUNT(quant_rows)],
                     .scale_rule = way % 2 == 0 ? MOXIE_RULE_DEFAULT : MOXIE_RULE_UE8M0,
                     .group = GROUP_OF_TEST,
                     .kind = way == 4 ? MOX_ACTIVATIONS_F32 : MOX_ACTIVATIONS_CODES,
                     .chosen = way == 2 || way == 3,
                     .odd = way == 5 };
    if (c.cols > 10000 && c.rows > 100)
        c.rows = 2; /* a few long rows are enough */
    if (c.cols == 2052 && c.rows > 100)
        c.rows = 1030; /* enough for the launch shape of many rows */
    c.stride = (c.cols + 15) / 16 * 16 + (way == 6 ? 144 : 0);
    if (kind == FP8 && (way == 3 || way == 7)) {
        c.element = shape % 3 == 0 ? MOXIE_F8_E5M2 : MOXIE_F8_E4M3;
        c.group = 32;
    } else if (kind == MX) {
        c.element = mx_elements[(way + shape) % COUNT(mx_elements)];
        c.scale_rule = mx_rules[way % COUNT(mx_rules)];
        c.group = 32;
    } else if (kind == NVFP4) {
        c.element = MOXIE_F4_E2M1;
        c.scale_rule = MOXIE_RULE_DEFAULT;
        c.global = (way + shape) % 3;
        c.group = 16;
    } else if (kind == BY_ROW) {
        c.by_row = true;
        c.element = row_elements[(way + shape) % COUNT(row_elements)];
        c.is_static = (way + shape) / COUNT(row_elements) % 2 == 0;
        c.rounding = c.element == MOXIE_I8 ? shape % 3 : MOXIE_ROUND_EVEN;
        c.group = c.cols;
    }
    return c;
}

static void quantizes(void **state)
{
    (void)state;
    for (int32_t row = 0; row < MOX_CUDA_ROWS_quant_act; row++) {
        for (int i = 0; i < COUNT(quant_cols) * COUNT(quant_rows) * COUNT(quant_dtypes) * QUANT_WAYS; i++) {
            const quant_case c = quant_case_at(i);
            if (!is_left_out(i))
                check_quant_act(row, &c);
        }
        assert_true(times_quantized[row] > 20);
    }
}

/* ---- combine --------------------------------------------------------------------------------------------- */

typedef struct combine_case {
    int64_t tokens, hidden, top_k;
    moxie_dtype out;
    bool by_ids, weighed, shared, shared_weighed, odd; /* odd: y not aligned */
    bool identity;
} combine_case;

static float *normals(test_rng *rng, int64_t count)
{
    float *numbers = malloc((size_t)count * sizeof *numbers + 1);
    for (int64_t i = 0; i < count; i++)
        numbers[i] = test_normal(rng);
    return numbers;
}

static void check_combine(int32_t row, const combine_case *c)
{
    const int64_t choices = c->tokens * c->top_k, experts = 16;
    const size_t size = (size_t)(c->tokens * c->hidden * mox_dtype_bytes(c->out));
    test_rng rng = { (uint64_t)(c->hidden * 100 + c->tokens) };
    char text[160];
    snprintf(text, sizeof text, "combine: %lld x %lld, top %lld, type %d%s%s%s%s%s%s", (long long)c->tokens,
             (long long)c->hidden, (long long)c->top_k, (int)c->out, c->by_ids ? ", by ids" : "",
             c->weighed ? ", weighed" : "", c->shared ? ", shared" : "", c->shared_weighed ? ", shared weighed" : "",
             c->odd ? ", odd" : "", c->identity ? ", identity" : "");
    float *y = normals(&rng, choices * c->hidden), *weights = normals(&rng, choices),
          *shared = normals(&rng, c->tokens * c->hidden), *shared_weight = normals(&rng, c->tokens);
    int64_t *position = malloc((size_t)choices * sizeof *position);
    int32_t *ids = malloc((size_t)choices * sizeof *ids);
    for (int64_t i = 0; i < choices; i++) {
        ids[i] = (int32_t)test_below(&rng, (uint64_t)experts + 2) - 1;
        position[i] = ids[i] < 0 || ids[i] >= experts ? -1 : (int64_t)test_below(&rng, (uint64_t)choices);
    }
    void *want = malloc(size + 1), *x = malloc(size + 1);
    test_fill_activations(&rng, c->out, x, c->tokens * c->hidden);
    mox_combine_args a = { .tokens = c->tokens,
                           .top_k = c->top_k,
                           .hidden = c->hidden,
                           .position = c->by_ids ? NULL : position,
                           .ids = c->by_ids || c->identity ? ids : NULL,
                           .experts = experts,
                           .weights = c->weighed ? weights : NULL,
                           .y = y,
                           .shared = c->shared ? shared : NULL,
                           .shared_weight = c->shared_weighed ? shared_weight : NULL,
                           .shared_scale = c->tokens % 2 ? 0.0f : 0.7f,
                           .out = want,
                           .out_dtype = c->out,
                           .identity = c->identity ? x : NULL,
                           .identity_weights = c->identity ? weights : NULL,
                           .identities = 1 };
    mox_combine_scalar_run(&a, &mox_executor_serial);
    device_arrays d = { 0 };
    moxie_error error = { 0 };
    const size_t y_bytes = (size_t)(choices * c->hidden) * sizeof *y;
    float *on_device = put(&d, NULL, y_bytes + sizeof *y);
    a.y = on_device + (c->odd ? 1 : 0);
    assert_ok(table->copy((void *)(uintptr_t)a.y, y, y_bytes, NULL, &error), &error);
    a.position = c->by_ids ? NULL : put(&d, position, (size_t)choices * sizeof *position);
    a.ids = a.ids != NULL ? put(&d, ids, (size_t)choices * sizeof *ids) : NULL;
    a.identity = c->identity ? put(&d, x, size) : NULL;
    a.identity_weights = c->identity ? put(&d, weights, (size_t)choices * sizeof *weights) : NULL;
    a.weights = c->weighed ? put(&d, weights, (size_t)choices * sizeof *weights) : NULL;
    a.shared = c->shared ? put(&d, shared, (size_t)(c->tokens * c->hidden) * sizeof *shared) : NULL;
    a.shared_weight = c->shared_weighed ? put(&d, shared_weight, (size_t)c->tokens * sizeof *shared_weight) : NULL;
    a.out = put(&d, NULL, size);
    assert_ok(table->combine[row](&a, NULL, &error), &error);
    same(a.out, want, size, "sums", text);
    clear(&d);
    free(y);
    free(weights);
    free(shared);
    free(shared_weight);
    free(position);
    free(ids);
    free(want);
    free(x);
}

static void combines(void **state)
{
    (void)state;
    static const int64_t tokens[] = { 1, 7, 600 }, hidden[] = { 1, 4, 63, 127, 130, 512, 516, 2052, 7168 },
                         top_k[] = { 1, 8, 9, 32 };
    static const moxie_dtype out[] = { MOXIE_BF16, MOXIE_F16, MOXIE_F32 };
    for (int32_t row = 0; row < MOX_CUDA_ROWS_combine; row++)
        for (int i = 0; i < COUNT(tokens) * COUNT(hidden) * COUNT(top_k) * COUNT(out); i++) {
            const int way = (i * 7 + i / 13) % 32;
            const combine_case c = { .tokens = tokens[i / COUNT(out) / COUNT(top_k) % COUNT(tokens)],
                                     .hidden = hidden[i / COUNT(out) / COUNT(top_k) / COUNT(tokens)],
                                     .top_k = top_k[i / COUNT(out) % COUNT(top_k)],
                                     .out = out[i % COUNT(out)],
                                     .by_ids = way % 2 != 0,
                                     .weighed = way / 2 % 2 == 0,
                                     .shared = way / 4 % 2 != 0,
                                     .shared_weighed = way / 8 % 2 != 0,
                                     .odd = way / 16 % 2 != 0 && i % 3 == 0,
                                     .identity = i % 5 < 2 };
            if (!is_left_out(i) && c.tokens * c.hidden * c.top_k < INT64_C(20) << 20)
                check_combine(row, &c);
        }
}

/* ---- without and with a GPU ------------------------------------------------------------------------------ */

static int begin_plain(void **state)
{
    moxie_error error = { 0 };
    test_cuda_begin(state);
    assert_ok(mox_cuda_open(&table, &error), &error);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(permutes), cmocka_unit_test(quantizes),
                                        cmocka_unit_test(combines) };
    setvbuf(stdout, NULL, _IOLBF, 0); /* so that the output of a program that hangs shows where */
    on_plain = true;
    const int wrong = cmocka_run_group_tests_name("plain table", tests, begin_plain, test_cuda_end);
    on_plain = false;
    if (wrong != 0)
        return wrong;
    table = device_or_skip();
    return table != NULL ? cmocka_run_group_tests_name("device", tests, NULL, NULL) : 77;
}
