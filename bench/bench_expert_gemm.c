/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_expert_gemm.c - measures every kernel of family expert_gemm that accepts the case, at gpt-oss's shape.
 *
 *     GFLOP/s = 2 * rows of the product * K * pairs / time,   median, minimum and maximum of REPEATS runs
 *     GB/s    = bytes of weights read / time
 *
 * One run is W13 of 4 experts with 1 or 16 rows each. The runs rotate through 8 experts, which at 4 bits are larger
 * than the last-level cache. So weights come from memory as in a real layer.
 *
 *     bench_expert_gemm [threads] [repeats]
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/memory.h"
#include "cpu/expert_gemm/expert_gemm.h"
#include "cpu/quant_act/quant_act.h"

enum { HIDDEN = 2880, INTERMEDIATE = 2880, EXPERTS = 8, ACTIVE = 4, MAX_ROWS = 16 };

typedef struct bench_case {
    const char *name;
    moxie_quant weight, act;
} bench_case;

#define MXFP4                                                                                                          \
    {                                                                                                                  \
        .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E8M0, .group_cols = 32                                             \
    }
#define MXFP8                                                                                                          \
    {                                                                                                                  \
        .element = MOXIE_F8_E4M3, .scale = MOXIE_F8_E8M0, .group_cols = 32                                             \
    }
static const bench_case cases[] = {
    { "mxfp4 x bf16", MXFP4, { 0 } },
    { "mxfp4 x mxfp8", MXFP4, MXFP8 },
    { "fp8 block x bf16",
      { .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_rows = 128, .group_cols = 128 },
      { 0 } },
    { "int4 g32 x bf16", { .element = MOXIE_U4B8, .scale = MOXIE_BF16, .group_cols = 32 }, { 0 } },
    { "int8 x int8",
      { .element = MOXIE_I8, .scale = MOXIE_F32 },
      { .element = MOXIE_I8, .scale = MOXIE_F32, .group_rows = 1 } },
    { "bf16 x bf16", { .element = MOXIE_BF16 }, { 0 } },
};

typedef struct bench {
    const bench_case *which;
    mox_record_shape shape;
    void *records[EXPERTS];
    mox_activations operand;
    moxie_executor *executor;
    int repeats;
} bench;

static void die(const char *what, const moxie_error *error)
{
    fprintf(stderr, "bench_expert_gemm: %s: %s\n", what, error->text);
    exit(1);
}

static void *need(uint64_t bytes)
{
    void *block = mox_alloc_aligned(bytes, 64);
    if (block == NULL) {
        fprintf(stderr, "bench_expert_gemm: no memory for %llu bytes\n", (unsigned long long)bytes);
        exit(1);
    }
    return block;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Random codes with scales of 1. No code is subnormal in any format: those would be slow on some processors. */
static moxie_matrix random_matrix(const moxie_quant *quant, int64_t rows, int64_t cols, uint32_t *state)
{
    const uint64_t bytes = mox_dense_bytes(quant->element, rows, cols);
    uint8_t *codes = need(bytes);
    for (uint64_t i = 0; i < bytes; i++) {
        *state = *state * 1664525u + 1013904223u;
        codes[i] = (uint8_t)((*state >> 24 & 0x07) | 0x30);
    }
    moxie_matrix matrix = { .codes = mox_grid_dense(codes, quant->element, rows, cols) };
    if (quant->scale == MOXIE_DTYPE_NONE)
        return matrix;
    const int64_t scale_rows = mox_scale_rows(quant, rows), scale_cols = mox_scale_cols(quant, cols);
    void *scales = need(mox_dense_bytes(quant->scale, scale_rows, scale_cols));
    matrix.scale = mox_grid_dense(scales, quant->scale, scale_rows, scale_cols);
    const uint32_t one = mox_format_of(quant->scale)->encode(1.0f);
    for (int64_t r = 0; r < scale_rows; r++)
        for (int64_t c = 0; c < scale_cols; c++)
            mox_grid_store(&matrix.scale, r, c, one);
    return matrix;
}

static void free_matrix(const moxie_matrix *matrix)
{
    mox_free((void *)(uintptr_t)matrix->codes.data);
    mox_free((void *)(uintptr_t)matrix->scale.data);
}

static void make_records(bench *b)
{
    uint64_t bytes = 0;
    moxie_error error;
    uint32_t seed = 1;
    mox_layout_rowmajor.record_bytes(&b->shape, &bytes);
    for (int e = 0; e < EXPERTS; e++) {
        moxie_expert expert = { .gate = random_matrix(&b->shape.w13, INTERMEDIATE, HIDDEN, &seed),
                                .up = random_matrix(&b->shape.w13, INTERMEDIATE, HIDDEN, &seed),
                                .down = random_matrix(&b->shape.w2, HIDDEN, INTERMEDIATE, &seed) };
        b->records[e] = need(bytes);
        if (mox_record_pack(&mox_layout_rowmajor, &b->shape, e, &expert, b->records[e], &error) != MOXIE_OK)
            die(b->which->name, &error);
        free_matrix(&expert.gate);
        free_matrix(&expert.up);
        free_matrix(&expert.down);
    }
}

static void make_activations(bench *b)
{
    const int64_t rows = ACTIVE * MAX_ROWS;
    float *x = need((uint64_t)rows * HIDDEN * 4), *scratch = need((uint64_t)b->executor->workers * HIDDEN * 4);
    uint8_t *codes = need((uint64_t)b->executor->workers * HIDDEN);
    for (int64_t i = 0; i < rows * HIDDEN; i++)
        x[i] = mox_round_to(MOXIE_BF16, (float)(i * 7919 % 2003) * 1e-3f - 1.0f);
    b->operand = mox_activations_f32(&b->which->act, rows, HIDDEN);
    b->operand.values = need((uint64_t)(rows * b->operand.stride) * sizeof(float));
    b->operand.scales = need((uint64_t)(rows * b->operand.scale_cols) * sizeof(float));
    const mox_quant_act_args args = { .quant = b->which->act,
                                      .x = x,
                                      .x_dtype = MOXIE_F32,
                                      .round_to = MOXIE_F32,
                                      .max_rows = rows,
                                      .cols = HIDDEN,
                                      .codes = codes,
                                      .row_scratch = scratch,
                                      .out = b->operand };
    mox_quant_act_at(0)->run(&args, b->executor);
    mox_free(x);
    mox_free(scratch);
    mox_free(codes);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const bench *b, const mox_expert_gemm_kernel *kernel, int64_t rows)
{
    const mox_expert_gemm_problem problem = {
        .shape = &b->shape, .projection = MOX_W13, .weight = &b->shape.w13, .act = &b->which->act
    };
    void *scratch = need((uint64_t)b->executor->workers * mox_expert_gemm_scratch(kernel, &problem));
    float *out = need((uint64_t)(ACTIVE * rows) * 2 * INTERMEDIATE * 4);
    int64_t offsets[ACTIVE + 1];
    for (int s = 0; s <= ACTIVE; s++)
        offsets[s] = s * rows;
    double *seconds = need((uint64_t)b->repeats * sizeof *seconds);
    for (int i = 0; i < b->repeats; i++) {
        const void *records[ACTIVE];
        for (int s = 0; s < ACTIVE; s++)
            records[s] = b->records[(i * ACTIVE + s) % EXPERTS];
        const mox_expert_gemm_args args = { .shape = &b->shape,
                                            .projection = MOX_W13,
                                            .slots = ACTIVE,
                                            .records = records,
                                            .offsets = offsets,
                                            .a = &b->operand,
                                            .out = out,
                                            .n_out = 2 * INTERMEDIATE,
                                            .scratch = scratch };
        const double start = now();
        mox_expert_gemm_run(kernel, &args, b->executor);
        seconds[i] = now() - start;
    }
    qsort(seconds, (size_t)b->repeats, sizeof *seconds, by_value);
    const double flop = 2.0 * 2 * INTERMEDIATE * HIDDEN * (double)(ACTIVE * rows);
    const double bytes = 2.0 * ACTIVE * (double)mox_dense_bytes(b->shape.w13.element, INTERMEDIATE, HIDDEN);
    const double median = seconds[b->repeats / 2];
    printf("%-18s %-12s %-7s %4lld %9.2f ms %8.2f GFLOP/s (%.2f .. %.2f) %7.2f GB/s\n", b->which->name,
           kernel->base.name, mox_isa_name(kernel->base.isa), (long long)rows, median * 1e3, flop / median * 1e-9,
           flop / seconds[b->repeats - 1] * 1e-9, flop / seconds[0] * 1e-9, bytes / median * 1e-9);
    mox_free(seconds);
    mox_free(out);
    mox_free(scratch);
}

static void run_case(const bench_case *which, moxie_executor *executor, int repeats)
{
    bench b = { .which = which, .executor = executor, .repeats = repeats };
    b.shape = (mox_record_shape) {
        .hidden = HIDDEN, .intermediate = INTERMEDIATE, .gated = true, .w13 = which->weight, .w2 = which->weight
    };
    make_records(&b);
    make_activations(&b);
    const mox_expert_gemm_problem problem = {
        .shape = &b.shape, .projection = MOX_W13, .weight = &b.shape.w13, .act = &which->act
    };
    for (int32_t i = 0; mox_expert_gemm_at(i) != NULL; i++) {
        const mox_expert_gemm_kernel *kernel = mox_expert_gemm_at(i);
        mox_rejection why;
        if (mox_panel_kernel_of(kernel) != NULL) /* the records are row-major */
            continue;
        if (!mox_kernel_admit(&kernel->base, mox_cpu()->allowed, MOXIE_MODE_FAST, &why) ||
            !mox_expert_gemm_admit(kernel, &problem, &why))
            continue;
        measure(&b, kernel, 1);
        measure(&b, kernel, MAX_ROWS);
    }
    for (int e = 0; e < EXPERTS; e++)
        mox_free(b.records[e]);
    mox_free(b.operand.values);
    mox_free(b.operand.scales);
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : 0, repeats = argc > 2 ? atoi(argv[2]) : 9;
    moxie_executor *executor = NULL;
    moxie_error error = { .text = "needs at least one repeat" };
    if (repeats < 1 || mox_executor_create(threads, &executor, &error) != MOXIE_OK)
        die("usage: bench_expert_gemm [threads] [repeats]", &error);
    printf("%d workers, W13 of %d experts, %d x %d twice, median (least .. most) of %d\n", (int)executor->workers,
           ACTIVE, INTERMEDIATE, HIDDEN, repeats);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        run_case(&cases[i], executor, repeats);
    mox_executor_destroy(executor);
    return 0;
}
