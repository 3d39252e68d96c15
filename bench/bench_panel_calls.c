/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_panel_calls.c - calls the inner product of one panel kernel and does nothing else, so that the instructions of
 * a call can be counted from outside (scripts/count-aarch64): those of many calls less those of few.
 *
 *     bench_panel_calls                               lists "FORMAT KERNEL" for all that run here
 *     bench_panel_calls FORMAT KERNEL ROWS CALLS      prints the weights of one call; exit 1 when the kernel rejects
 *
 * A call multiplies two panels (32 rows x 2880 columns) by ROWS rows of activations with 8 significant bits, as bf16
 * has them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cpu/expert_gemm/panel_activations.h"

enum { COLS = 2880, ROWS = MOX_PANEL_ROWS };

typedef struct format_case {
    const char *name;
    moxie_quant weight, act;
} format_case;

static const format_case cases[] = {
    { "mxfp4", { .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E8M0, .group_cols = 32 }, { 0 } },
    { "nvfp4", { .element = MOXIE_F4_E2M1, .scale = MOXIE_F8_E4M3, .group_cols = 16 }, { 0 } },
    { "int4_g32", { .element = MOXIE_U4B8, .scale = MOXIE_BF16, .group_cols = 32 }, { 0 } },
    { "int4_g128", { .element = MOXIE_U4B8, .scale = MOXIE_BF16, .group_cols = 128 }, { 0 } },
    { "fp8_block", { .element = MOXIE_F8_E4M3, .scale = MOXIE_F32, .group_rows = 128, .group_cols = 128 }, { 0 } },
    { "mxfp6", { .element = MOXIE_F6_E3M2, .scale = MOXIE_F8_E8M0, .group_cols = 32 }, { 0 } },
    { "f8_e5m2", { .element = MOXIE_F8_E5M2, .scale = MOXIE_F32, .group_rows = 1 }, { 0 } },
    { "int8", { .element = MOXIE_I8, .scale = MOXIE_F32, .group_rows = 1 }, { 0 } },
    { "int8_int8",
      { .element = MOXIE_I8, .scale = MOXIE_F32, .group_rows = 1 },
      { .element = MOXIE_I8, .scale = MOXIE_F32, .group_rows = 1 } },
    { "bf16", { .element = MOXIE_BF16 }, { 0 } },
    { "f16", { .element = MOXIE_F16 }, { 0 } },
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* Exits when there is no memory. */
static void *need(uint64_t bytes)
{
    void *block = mox_alloc_aligned(bytes, 64);
    if (block == NULL)
        exit(1);
    return memset(block, 0, bytes);
}

static mox_record_shape shape_of(const format_case *which)
{
    return (mox_record_shape) { .hidden = COLS, .intermediate = 2 * ROWS, .w13 = which->weight, .w2 = which->weight };
}

static mox_panel_multiply_fn bind(const format_case *which, const mox_panel_kernel *kernel,
                                  const mox_record_shape *shape)
{
    const mox_expert_gemm_problem problem = {
        .shape = shape, .projection = MOX_W13, .weight = &shape->w13, .act = &which->act, .dtype = MOXIE_BF16
    };
    mox_rejection why;
    if (!mox_kernel_admit(&kernel->head.base, mox_cpu()->allowed, MOXIE_MODE_FAST, &why) ||
        !mox_expert_gemm_admit(&kernel->head, &problem, &why))
        return NULL;
    return kernel->bind(&problem, &why);
}

static void list(void)
{
    for (int c = 0; c < CASES; c++) {
        const mox_record_shape shape = shape_of(&cases[c]);
        for (int32_t i = 0; mox_expert_gemm_at(i) != NULL; i++) {
            const mox_panel_kernel *kernel = mox_panel_kernel_of(mox_expert_gemm_at(i));
            if (kernel != NULL && bind(&cases[c], kernel, &shape) != NULL)
                printf("%s %s\n", cases[c].name, kernel->head.base.name);
        }
    }
}

/* Codes are any bits but those of NaN and subnormals; scales are bits of 1 or so. Values do not matter to the count. */
static void fill(const mox_panel_matrix *m, uint8_t *panels)
{
    uint32_t state = 1;
    for (uint64_t i = 0; i < (uint64_t)m->count * m->panel_bytes; i++) {
        state = state * 1664525u + 1013904223u;
        panels[i] = (uint8_t)((state >> 24 & 0x07) | 0x38);
    }
}

static void multiply(const format_case *which, const mox_panel_kernel *kernel, int64_t rows, int calls)
{
    const mox_record_shape shape = shape_of(which);
    const mox_panel_multiply_fn times = bind(which, kernel, &shape);
    const mox_expert_gemm_problem problem = {
        .shape = &shape, .projection = MOX_W13, .weight = &shape.w13, .act = &which->act, .dtype = MOXIE_BF16
    };
    uint64_t bytes = 0;
    mox_panel_record record;
    if (times == NULL)
        exit(1);
    mox_layout_panel16.record_bytes(&shape, &bytes);
    uint8_t *weights = need(bytes);
    mox_panel_open(&shape, weights, &record);
    fill(&record.w13, (uint8_t *)(uintptr_t)record.w13.panels);
    void *data = need((uint64_t)rows * mox_act_order_row_bytes(kernel->order, COLS) + MOX_PANEL_OVERREAD_BYTES);
    float values[COLS], *c = need(MOX_PANEL_BLOCK * 2 * ROWS * sizeof *c);
    for (int64_t r = 0; r < rows; r++) {
        for (int k = 0; k < COLS; k++)
            values[k] = (float)((k * 37 + r * 11) % 255 - 127);
        mox_act_order_put(kernel->order, data, rows, COLS, r, values);
    }
    mox_panel_rows a = { .rows = rows, .data = data };
    void *scratch = need(kernel->head.scratch_bytes(&problem));
    for (int i = 0; i < calls; i++, a.again = true)
        times(&record.w13, &shape.w13, 0, 2, &a, c, scratch);
    mox_free(scratch);
    mox_free(c);
    mox_free(data);
    mox_free(weights);
    printf("%d\n", 2 * ROWS * COLS);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        list();
        return 0;
    }
    for (int c = 0; c < CASES; c++)
        for (int32_t i = 0; mox_expert_gemm_at(i) != NULL; i++)
            if (strcmp(argv[1], cases[c].name) == 0 && strcmp(argv[2], mox_expert_gemm_at(i)->base.name) == 0 &&
                mox_panel_kernel_of(mox_expert_gemm_at(i)) != NULL) {
                multiply(&cases[c], mox_panel_kernel_of(mox_expert_gemm_at(i)), atoll(argv[3]), atoi(argv[4]));
                return 0;
            }
    fprintf(stderr, "bench_panel_calls: no such format or kernel: run it without arguments\n");
    return 2;
}
