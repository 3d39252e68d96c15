/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kernels_panel.c - the inner product of every panel kernel by itself (panel_kernel.h), with memory cut to the
 * byte:
 *
 *     operand | scales | c | scratch | record       each ends at an inaccessible page of its own
 *
 * One panel and two, every number of rows around tiles of 4, 8, 16 and 32, up to MOX_PANEL_BLOCK. The sums are compared
 * with the referee's, byte for byte; MXCSR and the tile unit must be as they were; and all of it again as if the
 * processor had nothing beside its class. One call is panel_bench.h.
 */
#include "cpu/cpu_kernels.h"
#include "panel_bench.h"

#if defined(__x86_64__)
#include "cpu/expert_gemm/amx/amx_tiles.h"
#endif

static const int64_t row_counts[] = { 1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 15, 16,  17,  18,  23,  24,
                                      25, 28, 29, 31, 32, 33, 40, 47, 48, 49, 63, 64, 65, 95, 111, 112, 113, 127, 128 };
enum { COUNTS = sizeof row_counts / sizeof row_counts[0] };

/* Kernels that were called, by name. */
static test_names called;

/* Tries one in `step` of the row counts, from the first one on; returns the number of calls. */
static int64_t check_panels(bench *b, int64_t panel, int panels, int64_t first, int64_t step)
{
    int64_t calls = 0;
    b->panel = panel;
    b->panels = panels;
    b->most = row_counts[first + (COUNTS - 1 - first) / step * step];
    for (int32_t i = 0; mox_expert_gemm_at(i) != NULL; i++) {
        const mox_expert_gemm_kernel *row = mox_expert_gemm_at(i);
        if (mox_panel_kernel_of(row) == NULL || !gemm_admitted(row, &b->problem))
            continue;
        (void)test_name_is_new(&called, row->base.name);
        for (int64_t n = first; n < COUNTS; n += step, calls++)
            multiply(row, b, row_counts[n]);
    }
    forget(b);
    return calls;
}

/* The expert with the most pairs; false when the layout cannot hold it. */
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

/* Tries one in `fewer` of the row counts, and for each format one in `fewer_acts` of the activations. Returns the
 * number of calls. */
static int64_t check_formats(uint64_t seed, int64_t configs, int64_t fewer, int64_t fewer_acts)
{
    static const int64_t cols[] = {
        1, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 80, 96, 127, 128, 129, 160, 191, 257, 320
    };
    print_message("seed %llu\n", (unsigned long long)seed);
    test_rng rng = { seed };
    int64_t calls = 0;
    for (int w = 0; gemm_weight_at(w) != NULL; w++)
        for (int64_t i = w % fewer_acts; i < configs * test_act_quant_count; i += fewer_acts) {
            const gemm_size size = { .rows = check_size(&rng, 65),
                                     .cols = cols[test_below(&rng, sizeof cols / sizeof cols[0])],
                                     .most = MOX_PANEL_BLOCK };
            bench b = { .slot = 0 };
            gemm_problem_make(&b.problem, &rng, gemm_weight_at(w), &test_act_quants[i / configs], size);
            calls += check_bench(&b, &rng, fewer);
            gemm_problem_free(&b.problem);
        }
    print_message("%lld calls\n", (long long)calls);
    return calls;
}

static void every_format_and_row_count(void **state)
{
    (void)state;
    const int64_t fewer = test_quick_one_in(8, "numbers of rows for each format");
    const int64_t fewer_acts = test_quick_one_in(4, "formats of activations for each of weights");
    if (check_formats(test_seed(23), test_env("MOXIE_TEST_CONFIGS", 1), fewer, fewer_acts) == 0) {
        print_message("no panel kernel runs on this machine, or under MOXIE_MAX_ISA\n");
        skip();
    }
}

/* As on the first processors with AVX-512, or with AVX2 or NEON alone: no extension beyond a kernel's class. A kernel
 * that needs an extension must be rejected; the others have code without it. */
static void class_alone(void **state)
{
    (void)state;
    const mox_cpu_features *found = mox_cpu();
    static mox_cpu_features cpu; /* what fails here leaves it in use */
    cpu = *found;
    if (cpu.allowed < MOX_ISA_NEON) {
        print_message("no class here that is less with less\n");
        skip();
    }
    if (cpu.best > MOX_ISA_AVX512)
        cpu.best = MOX_ISA_AVX512;
    cpu.allowed = cpu.allowed < cpu.best ? cpu.allowed : cpu.best;
    cpu.avx_vnni = cpu.avx512_vnni = cpu.avx512_vbmi = cpu.avx512_bf16 = cpu.avx512_fp16 = false;
    cpu.full_rate_bf16 = false;
    cpu.amx_tile = cpu.amx_bf16 = cpu.amx_int8 = cpu.amx_fp16 = false;
    cpu.dotprod = cpu.neon_bf16 = cpu.i8mm = false;
    mox_cpu_replace(&cpu);
    int64_t calls = check_formats(test_seed(31), 1, 8, 4);
    if (found->dotprod) { /* Arm's processors from Cortex-A55 to X1 have dot products and nothing more */
        cpu.dotprod = true;
        calls += check_formats(test_seed(33), 1, 8, 4);
    }
    gemm_problem p;
    test_rng rng = { test_seed(32) };
    gemm_problem_make(&p, &rng, test_weight_quant_named("int8 per channel"), test_act_quant_named("int8 token"),
                      (gemm_size) { .rows = 16, .cols = 64 });
    mox_rejection why = { .reason = "" };
    for (int32_t i = 0; mox_expert_gemm_at(i) != NULL; i++)
        if (strcmp(mox_expert_gemm_at(i)->base.name, "avx512_vnni") == 0) {
            assert_false(check_admit(&mox_expert_gemm_at(i)->base, &why) &&
                         mox_expert_gemm_admit(mox_expert_gemm_at(i), &p.asked, &why));
            assert_true(cpu.allowed < MOX_ISA_AVX512 || strstr(why.reason, "VNNI") != NULL);
        }
    gemm_problem_free(&p);
    mox_cpu_replace(found);
    assert_true(calls > 0);
}

/* ---- weights whose way depends on the activations --------------------------------------------------------- */

/* What a step's activations are. Kernels may multiply integers while sums of 24 bits hold every bit of them, and raise
 * activations by as much as they lower weights while these stay finite. Here are steps far from those limits, below
 * the first and above it by one bit. Some cannot be integers at all, and some leave the normal numbers.
 * ALIKE: none is much larger than the others. FEW_LONG: 16 bits hold all but a few activations. WIDE: a few have all
 * bits of 16, 17 or 18; these are no bf16. */
typedef enum step_kind { SMALL, ALIKE, LONG, FEW_LONG, WIDE, EDGE, SPREAD, FAR, SPECIAL, STEP_KINDS } step_kind;

static float edge(test_rng *rng, int64_t k)
{
    static const float large[] = { 0x1p20f, 0xffp13f, 0x1p21f, 0x1p22f };
    const float magnitude = k % 32 < 2 ? large[test_below(rng, 4)] : (float)test_below(rng, 2);
    return test_below(rng, 2) == 0 ? -magnitude : magnitude;
}

static float wide(test_rng *rng)
{
    const float magnitude = (float)((1 << (16 + test_below(rng, 3))) - 1);
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
    case ALIKE: return copysignf(192.0f + (float)test_below(rng, 64), whole);
    case LONG: return ldexpf(whole, (int)test_below(rng, 10) - 20);
    case FEW_LONG: return ldexpf(whole, test_below(rng, 12) == 0 ? -9 : 0);
    case WIDE: return test_below(rng, 12) == 0 ? wide(rng) : 8 * whole;
    case EDGE: return ldexpf(edge(rng, k), -10);
    case FAR: return ldexpf(whole, far);
    case SPREAD: return ldexpf(whole, -(int)test_below(rng, 50));
    default: return special(rng);
    }
}

/* Up to 8 rows of 4-bit weights have ways of their own; more are multiplied in blocks of 8 or fewer. */
enum { FEW = 8, MANY = 19 };

/* The first rows of the expert: steps of `kind` in one of `every`, else small ones. */
static void put_activations(bench *b, test_rng *rng, step_kind kind, uint64_t every)
{
    static const int exponents[] = { -128, -60, 40, 116 };
    gemm_problem *p = &b->problem;
    for (int64_t r = 0; r < MANY; r++) {
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

/* 1 to `few` rows, and `many`; 0: no more than few. */
static int64_t check_rows(bench *b, int panels, int64_t few, int64_t many)
{
    int64_t calls = 0;
    b->panel = 0;
    b->panels = panels;
    b->most = many > few ? many : few;
    for (int32_t i = 0; mox_expert_gemm_at(i) != NULL; i++) {
        const mox_expert_gemm_kernel *row = mox_expert_gemm_at(i);
        if (mox_panel_kernel_of(row) == NULL || !gemm_admitted(row, &b->problem))
            continue;
        for (int64_t rows = 1; rows <= few; rows++, calls++)
            multiply(row, b, rows);
        if (many > 0)
            multiply(row, b, many), calls++;
    }
    forget(b);
    return calls;
}

/* How many steps of a call are of the kind: all, one in 5, one in 9. `first`, `each`: one in so many of these. */
static int64_t check_kind(test_rng *rng, const test_weight_quant *weight, step_kind kind, int64_t first, int64_t each)
{
    const gemm_size size = { .rows = 32, .cols = test_range(rng, 200, 900), .most = MOX_PANEL_BLOCK };
    int64_t calls = 0;
    /* A product of a code and an E4M3 may be held at a fraction of its value, so tiny sums become zero earlier. */
    if (kind == FAR && weight->quant.scale == MOXIE_F8_E4M3)
        return 0;
    bench b = { .slot = 0 };
    gemm_problem_make(&b.problem, rng, weight, &test_act_quants[0], size);
    b.problem.asked.dtype = kind == WIDE ? MOXIE_F32 : MOXIE_BF16;
    const bool nibbles = !mox_quant_is_block(&weight->quant) && mox_dtype_bits(weight->quant.element) == 4;
    for (int64_t every = 1 + 4 * first; open_bench(&b) && every <= 9; every += 4 * each) {
        put_activations(&b, rng, kind, (uint64_t)every);
        calls += check_rows(&b, every == 5 ? 1 : 2, nibbles ? FEW : 4, nibbles && every == 9 ? MANY : 0);
    }
    gemm_problem_free(&b.problem);
    return calls;
}

static bool depends_on_activations(const test_weight_quant *weight)
{
    const moxie_dtype element = weight->quant.element;
    if (mox_quant_is_block(&weight->quant))
        return mox_block_fields_of(element) != NULL && !mox_block_has_minimums(element);
    return mox_dtype_bits(element) == 4 || mox_format_of(element)->kind == MOX_KIND_INTEGER;
}

static void every_kind_of_step(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(29);
    print_message("seed %llu\n", (unsigned long long)seed);
    test_rng rng = { seed };
    const int64_t each = test_quick_one_in(3, "shares of a kind of step: each format has all, with other kinds");
    int64_t calls = 0;
    for (int w = 0; gemm_weight_at(w) != NULL; w++)
        for (int kind = SMALL; kind < STEP_KINDS; kind++)
            if (depends_on_activations(gemm_weight_at(w)))
                calls += check_kind(&rng, gemm_weight_at(w), (step_kind)kind, (w + kind) % each, each);
    print_message("%lld calls\n", (long long)calls);
    if (calls == 0)
        skip();
}

#ifdef EMULATED_TILES_H
#define RELEASE_TILES() _tile_release()
#else
#define RELEASE_TILES() __asm__ volatile("tilerelease" ::: "memory")
#endif

/* The check of the tile unit notices tiles that are still configured. */
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
    RELEASE_TILES();
    assert_int_equal(configured & 1, 1);
    assert_int_equal(test_cpu_state_now().tiles, 0);
#endif
}

/* With AVX-512 emulated, every kernel for it was called above, and no other family has one that no test runs so
 * (tests/CMakeLists.txt). */
static void all_emulated(void **state)
{
    (void)state;
#ifdef MOX_EMULATED_AVX512
    int32_t count = 0;
    for (int32_t i = 0; mox_cpu_kernel_at(i) != NULL; i++) {
        const mox_kernel *kernel = mox_cpu_kernel_at(i);
        if (kernel->isa < MOX_ISA_AVX512)
            continue;
        count++;
        if (strcmp(kernel->family, "expert_gemm") == 0
                ? test_name_is_new(&called, kernel->name)
                : strcmp(kernel->family, "glu") != 0 && strcmp(kernel->family, "lora") != 0)
            fail_msg("no test runs kernel %s of family %s on emulated instructions", kernel->name, kernel->family);
    }
    assert_true(count >= 10);
#else
    print_message("AVX-512 is not emulated here\n");
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_and_row_count),
        cmocka_unit_test(class_alone),
        cmocka_unit_test(every_kind_of_step),
        cmocka_unit_test(tiles_can_be_seen),
        cmocka_unit_test(all_emulated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
