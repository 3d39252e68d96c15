/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kernels_panel.c - the inner product of every panel row by itself (panel_kernel.h), with memory cut to the byte:
 *
 *     operand | scales | c | scratch | record       each ends at an inaccessible page of its own
 *
 * One panel and two, every number of rows around tiles of 4, 8, 16 and 32, up to MOX_PANEL_BLOCK. The sums are compared
 * with the referee's, byte for byte; MXCSR and the tile unit must be as they were. The operand is arranged here, from
 * the drawing in panel_operand.h, and compared with what the library's own functions make.
 */
#include "cpu/expert_gemm/panel_operand.h"
#include "gemm_referee.h"
#include "test_cpu_state.h"

#if defined(__x86_64__)
#include "cpu/expert_gemm/amx_tiles.h"
#endif

enum { LANES = MOX_PANEL_ROWS, WIDTH = 2 * LANES };

/* The expert with MOX_PANEL_BLOCK pairs, and what the referee says of some of its panels. */
typedef struct bench {
    gemm_problem problem;
    int slot;
    int64_t first; /* pair */
    mox_panel_matrix matrix;
    int64_t panel;
    int panels;
    int64_t most;              /* rows that are asked for */
    float *want[REFEREE_SUMS]; /* by sum: [most, WIDTH] */
} bench;

/* ---- operands --------------------------------------------------------------------------------------------- */

/* The number that stands in the operand: with its scale where that is folded. */
static float value_at(const gemm_problem *p, int64_t r, int64_t k)
{
    const mox_operand *a = &p->operand;
    const float value = a->values[r * a->stride + k];
    return referee_folds(p) ? value * a->scales[r * a->scale_cols + k / a->group_cols] : value;
}

static uint16_t high_half(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* Row r of `rows`; `values` [cols]. Everything was zeroed. */
static void put_row(mox_operand_kind kind, uint8_t *data, int64_t rows, int64_t cols, int64_t r, const float *values)
{
    const int64_t width = kind == MOX_OPERAND_I8 ? 64 : 32, steps = (cols + width - 1) / width;
    if (kind == MOX_OPERAND_F32) {
        memcpy(data + r * steps * 128, values, (size_t)cols * sizeof *values);
        return;
    }
    const int64_t tile = r / 16, held = rows - tile * 16 < 16 ? rows - tile * 16 : 16;
    for (int64_t k = 0; k < cols; k++) {
        uint8_t *line = data + tile * 16 * steps * 64 + (k / width * held + r % 16) * 64;
        const uint16_t half = high_half(values[k]);
        if (kind == MOX_OPERAND_BF16)
            memcpy(line + k % 32 * 2, &half, sizeof half);
        else
            line[k % 64] = (uint8_t)(int8_t)values[k];
    }
}

/* The library's functions put every row where the drawing says, and read it back. */
static void check_operand(mox_operand_kind kind, const uint8_t *data, int64_t rows, int64_t cols, const gemm_problem *p,
                          int64_t first)
{
    check_buffers buffers = { .count = 0 };
    const uint64_t bytes = (uint64_t)rows * mox_operand_row_bytes(kind, cols);
    uint8_t *made = check_buffer(&buffers, bytes);
    float *values = check_buffer(&buffers, (size_t)cols * sizeof *values);
    float *back = check_buffer(&buffers, (size_t)cols * sizeof *back);
    uint16_t *halves = check_buffer(&buffers, (size_t)cols * sizeof *halves);
    for (int twice = 0; twice < (kind == MOX_OPERAND_BF16 ? 2 : 1); twice++) {
        memset(made, 0xff, bytes);
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t k = 0; k < cols; k++) {
                values[k] = value_at(p, gemm_operand_row(p, first + r), k);
                halves[k] = high_half(values[k]);
            }
            if (twice)
                mox_operand_put_bf16(made, rows, cols, r, halves);
            else
                mox_operand_put(kind, made, rows, cols, r, values);
            mox_operand_get(kind, made, rows, cols, r, back);
            assert_memory_equal(values, back, (size_t)cols * sizeof *values);
        }
        assert_memory_equal(made, data, bytes);
    }
    check_buffers_free(&buffers);
}

static mox_panel_rows arrange(const bench *b, mox_operand_kind kind, int64_t rows, check_buffers *buffers)
{
    const gemm_problem *p = &b->problem;
    const mox_operand *a = &p->operand;
    const uint64_t bytes = (uint64_t)rows * mox_operand_row_bytes(kind, p->cols);
    uint8_t *data = check_buffer(buffers, bytes);
    float *values = check_buffer(buffers, (size_t)p->cols * sizeof *values);
    mox_panel_rows out = { .rows = rows, .data = data };
    memset(data, 0, bytes);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t k = 0; k < p->cols; k++)
            values[k] = value_at(p, gemm_operand_row(p, b->first + r), k);
        put_row(kind, data, rows, p->cols, r, values);
    }
    if (a->scales == NULL || referee_folds(p) || a->scale_cols == 1)
        return out;
    out.scale_stride = a->scale_cols + rows % 3;
    out.group_cols = a->group_cols;
    float *scales = check_buffer(buffers, (size_t)(rows * out.scale_stride) * sizeof *scales);
    for (int64_t r = 0; r < rows; r++)
        memcpy(scales + r * out.scale_stride, a->scales + gemm_operand_row(p, b->first + r) * a->scale_cols,
               (size_t)a->scale_cols * sizeof *scales);
    out.scales = scales;
    return out;
}

/* ---- the referee ------------------------------------------------------------------------------------------ */

/* The matrix of the checkpoint and the first of its rows that a panel holds. */
static const moxie_matrix *panel_rows_of(const bench *b, int64_t panel, int64_t *row)
{
    const moxie_matrix *matrix[2];
    int64_t column[2];
    const int count = gemm_matrices(&b->problem, b->slot, matrix, column);
    *row = panel / count * LANES;
    return matrix[panel % count];
}

static const float *wanted(bench *b, referee_sum sum)
{
    if (b->want[sum] != NULL)
        return b->want[sum];
    const gemm_problem *p = &b->problem;
    referee_row *row = malloc(sizeof *row);
    float *want = calloc((size_t)b->most * WIDTH, sizeof *want);
    for (int j = 0; j < b->panels; j++) {
        int64_t start;
        const moxie_matrix *matrix = panel_rows_of(b, b->panel + j, &start);
        for (int64_t n = 0; n < mox_min_i64(LANES, matrix->codes.rows - start); n++) {
            referee_weights(sum, p, matrix, start + n, row);
            for (int64_t r = 0; r < b->most; r++) {
                referee_acts(p, gemm_operand_row(p, b->first + r), row);
                want[r * WIDTH + j * LANES + n] = referee_sum_row(sum, row);
            }
        }
    }
    free(row);
    return b->want[sum] = want;
}

static void forget(bench *b)
{
    for (int i = 0; i < REFEREE_SUMS; i++) {
        free(b->want[i]);
        b->want[i] = NULL;
    }
}

static void compare_sums(const mox_expert_gemm_row *row, bench *b, const float *c, int64_t rows)
{
    const float *want = wanted(b, referee_sum_of(row));
    for (int j = 0; j < b->panels; j++) {
        int64_t start;
        const moxie_matrix *matrix = panel_rows_of(b, b->panel + j, &start);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t n = 0; n < mox_min_i64(LANES, matrix->codes.rows - start); n++) {
                const int64_t i = r * WIDTH + j * LANES + n;
                if (referee_agrees(c[i], want[i]))
                    continue;
                char what[512];
                gemm_describe(&b->problem, what, sizeof what);
                fail_msg("%s, %s: %lld rows, panels %lld + %d, row %lld lane %lld of panel %d is %a, not %a",
                         row->base.name, what, (long long)rows, (long long)b->panel, b->panels, (long long)r,
                         (long long)n, j, (double)c[i], (double)want[i]);
            }
    }
}

/* ---- one call --------------------------------------------------------------------------------------------- */

static void multiply(const mox_expert_gemm_row *row, bench *b, int64_t rows)
{
    const gemm_problem *p = &b->problem;
    mox_refusal why;
    check_buffers buffers = { .count = 0 };
    const mox_panel_multiply_fn function = row->bind(&p->asked, &why);
    mox_panel_rows a = arrange(b, row->operand, rows, &buffers);
    float *c = check_buffer(&buffers, (size_t)(rows * WIDTH) * sizeof *c);
    void *scratch = check_buffer(&buffers, row->scratch_bytes(&p->asked));
    if (rows % 7 == 0 || rows == 1)
        check_operand(row->operand, a.data, rows, p->cols, p, b->first);
    /* Few rows twice: what is derived from them stays in scratch. */
    for (int again = 0; again <= (rows <= 4); again++) {
        a.again = again;
        const test_cpu_state before = test_cpu_state_now();
        function(&b->matrix, p->asked.weight, b->panel, b->panels, &a, c, scratch);
        const test_cpu_state after = test_cpu_state_now();
        if (after.control != before.control || after.tiles != 0)
            fail_msg("%s leaves MXCSR %#x, which was %#x, and tiles %u", row->base.name, after.control, before.control,
                     after.tiles);
        if (referee_sum_of(row) != REFEREE_NONE)
            compare_sums(row, b, c, rows);
        memset(c, 0xff, (size_t)(rows * WIDTH) * sizeof *c);
    }
    check_buffers_free(&buffers);
}

static const int64_t row_counts[] = { 1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 15, 16,  17,  18,  23,  24,
                                      25, 28, 29, 31, 32, 33, 40, 47, 48, 49, 63, 64, 65, 95, 111, 112, 113, 127, 128 };
enum { COUNTS = sizeof row_counts / sizeof row_counts[0] };

/* One in `step` of the row counts from the first one on; returns how many calls that were. */
static int64_t check_panels(bench *b, int64_t panel, int panels, int64_t first, int64_t step)
{
    int64_t calls = 0;
    b->panel = panel;
    b->panels = panels;
    b->most = row_counts[first + (COUNTS - 1 - first) / step * step];
    for (int32_t i = 0; mox_expert_gemm_at(i) != NULL; i++) {
        const mox_expert_gemm_row *row = mox_expert_gemm_at(i);
        if (row->bind == NULL || !gemm_admitted(row, &b->problem))
            continue;
        for (int64_t n = first; n < COUNTS; n += step, calls++)
            multiply(row, b, row_counts[n]);
    }
    forget(b);
    return calls;
}

/* The expert with most pairs; false when the layout does not hold it. */
static bool open_bench(bench *b)
{
    gemm_problem *p = &b->problem;
    const void *const *records = p->records[mox_layout_panel16.number];
    mox_panel_record record;
    if (records[0] == NULL)
        return false;
    for (b->slot = 0; p->offsets[b->slot + 1] - p->offsets[b->slot] < MOX_PANEL_BLOCK;)
        b->slot++;
    b->first = p->offsets[b->slot];
    mox_panel_open(&p->shape, records[b->slot], &record);
    b->matrix = p->asked.projection == MOX_W13 ? record.w13 : record.w2;
    return true;
}

/* `fewer`: one in so many of the calls. */
static int64_t check_bench(bench *b, test_rng *rng, int64_t fewer)
{
    if (!open_bench(b))
        return 0;
    const int64_t one = 3 * fewer, two = test_range(rng, 1, 3) * fewer;
    int64_t calls = check_panels(b, b->matrix.count - 1, 1, test_range(rng, 0, one - 1), one);
    if (b->matrix.count >= 2)
        calls += check_panels(b, test_range(rng, 0, b->matrix.count / 2 - 1) * 2, 2, test_range(rng, 0, two - 1), two);
    return calls;
}

static void every_format_and_row_count(void **state)
{
    (void)state;
    static const int64_t cols[] = {
        1, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 80, 96, 127, 128, 129, 160, 191, 257, 320
    };
    const uint64_t seed = test_seed(23);
    const int64_t configs = test_env("MOXIE_TEST_CONFIGS", 1);
    print_message("seed %llu\n", (unsigned long long)seed);
    test_rng rng = { seed };
    const int64_t fewer = test_one_in(8, "numbers of rows for each format");
    const int64_t fewer_acts = test_one_in(4, "formats of activations for each of weights");
    int64_t calls = 0;
    for (int w = 0; w < test_weight_quant_count; w++)
        for (int64_t i = w % fewer_acts; i < configs * test_act_quant_count; i += fewer_acts) {
            const gemm_size size = { .rows = check_size(&rng, 65),
                                     .cols = cols[test_below(&rng, sizeof cols / sizeof cols[0])],
                                     .most = MOX_PANEL_BLOCK };
            bench b = { .slot = 0 };
            gemm_problem_make(&b.problem, &rng, &test_weight_quants[w], &test_act_quants[i / configs], size);
            calls += check_bench(&b, &rng, fewer);
            gemm_problem_free(&b.problem);
        }
    print_message("%lld calls\n", (long long)calls);
    if (calls == 0) {
        print_message("no panel kernel runs on this machine, or under MOXIE_MAX_ISA\n");
        skip();
    }
}

/* ---- 4 bits times few rows --------------------------------------------------------------------------------- */

/* What a step's activations are. Kernels may multiply integers while sums of 24 bits hold every bit of them; here are
 * steps far from that limit, below it and above it by one bit, such as cannot be integers at all, and such as leave the
 * normal numbers. */
typedef enum step_kind { SMALL, LONG, EDGE, SPREAD, FAR, SPECIAL, STEP_KINDS } step_kind;

static float edge(test_rng *rng, int64_t k)
{
    static const float large[] = { 0x1p20f, 0xffp13f, 0x1p21f, 0x1p22f };
    const float magnitude = k % 32 < 2 ? large[test_below(rng, 4)] : (float)test_below(rng, 2);
    return test_below(rng, 2) == 0 ? -magnitude : magnitude;
}

static float special(test_rng *rng)
{
    static const float values[] = { 0.0f,    -0.0f,     0x1p-130f, -0x1p-130f, 0x1p-126f, 0x1p-70f, -0x1p-52f,
                                    0x1p40f, -0x1p100f, INFINITY,  NAN,        1.5f,      -2.0f,    0.75f };
    return values[test_below(rng, sizeof values / sizeof values[0])];
}

/* `far`: an exponent. */
static float activation(test_rng *rng, step_kind kind, int far, int64_t k)
{
    const float whole = (float)test_range(rng, -255, 255);
    switch (kind) {
    case SMALL: return whole / 64.0f;
    case LONG: return ldexpf(whole, (int)test_below(rng, 10) - 20);
    case EDGE: return ldexpf(edge(rng, k), -10);
    case FAR: return ldexpf(whole, far);
    case SPREAD: return ldexpf(whole, -(int)test_below(rng, 50));
    default: return special(rng);
    }
}

/* Rows 0 to 3 of the expert: steps of `kind` in one of `every`, else small ones. */
static void put_activations(bench *b, test_rng *rng, step_kind kind, uint64_t every)
{
    static const int exponents[] = { -128, -60, 40, 116 };
    gemm_problem *p = &b->problem;
    for (int64_t r = 0; r < 4; r++) {
        float *values = p->operand.values + gemm_operand_row(p, b->first + r) * p->operand.stride;
        const int far = exponents[test_below(rng, 4)];
        step_kind now = SMALL;
        for (int64_t k = 0; k < p->cols; k++) {
            if (k % 32 == 0)
                now = test_below(rng, every) == 0 ? kind : SMALL;
            values[k] = activation(rng, now, far, k);
        }
    }
}

static int64_t check_few_rows(bench *b)
{
    int64_t calls = 0;
    b->panel = 0;
    b->panels = 2;
    b->most = 4;
    for (int32_t i = 0; mox_expert_gemm_at(i) != NULL; i++) {
        const mox_expert_gemm_row *row = mox_expert_gemm_at(i);
        if (row->bind == NULL || !gemm_admitted(row, &b->problem))
            continue;
        for (int64_t rows = 1; rows <= b->most; rows++, calls++)
            multiply(row, b, rows);
    }
    forget(b);
    return calls;
}

static int64_t check_kind(test_rng *rng, const test_weight_quant *weight, step_kind kind)
{
    const gemm_size size = { .rows = 32, .cols = test_range(rng, 200, 900), .most = MOX_PANEL_BLOCK };
    int64_t calls = 0;
    /* Codes times E4M3 may be held at a fraction of their value, so that tiny sums are zero earlier. */
    if (kind == FAR && weight->quant.scale == MOXIE_F8_E4M3)
        return 0;
    bench b = { .slot = 0 };
    gemm_problem_make(&b.problem, rng, weight, &test_act_quants[0], size);
    b.problem.asked.dtype = MOXIE_BF16;
    for (uint64_t every = 1; open_bench(&b) && every <= 9; every += 4) {
        put_activations(&b, rng, kind, every);
        calls += check_few_rows(&b);
    }
    gemm_problem_free(&b.problem);
    return calls;
}

static void every_kind_of_step(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(29);
    print_message("seed %llu\n", (unsigned long long)seed);
    test_rng rng = { seed };
    int64_t calls = 0;
    for (int w = 0; w < test_weight_quant_count; w++)
        for (int kind = SMALL; kind < STEP_KINDS; kind++)
            if (mox_dtype_bits(test_weight_quants[w].quant.element) == 4)
                calls += check_kind(&rng, &test_weight_quants[w], (step_kind)kind);
    print_message("%lld calls\n", (long long)calls);
    if (calls == 0)
        skip();
}

/* The check of the tile unit would see tiles that are left. */
static void tiles_can_be_seen(void **state)
{
    (void)state;
    if (!test_cpu_knows_tiles() || mox_cpu()->best < MOX_ISA_AMX) {
        print_message("no tile unit here, or it may not be used\n");
        skip();
    }
#if defined(__x86_64__)
    mox_amx_configure(1, 1);
    const uint32_t configured = test_cpu_state_now().tiles;
    __asm__ volatile("tilerelease" ::: "memory");
    assert_int_equal(configured & 1, 1);
    assert_int_equal(test_cpu_state_now().tiles, 0);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_and_row_count),
        cmocka_unit_test(every_kind_of_step),
        cmocka_unit_test(tiles_can_be_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
