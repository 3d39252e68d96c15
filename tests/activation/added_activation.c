/* SPDX-License-Identifier: Apache-2.0
 *
 * added_activation.c - for test_adding_an_activation: one expert whose three matrices are the identity, in the
 * activation "elu" (kind 7), which only that test's copy of the sources has:
 *
 *     y = act(x, x) = (max(x, 0) + alpha (e^min(x, 0) - 1)) x
 *
 * by the oracle and by every instruction set that this machine and the library have.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moxie/moxie.h>

#include "activation/activation.h"

enum { TOKENS = 5, SIZE = 32 };
static const float alpha = 1.5f;

static int fail(const char *what, const char *why)
{
    printf("FAILED: %s: %s\n", what, why);
    return 1;
}

static double elu(double x)
{
    return (x > 0 ? x : (double)alpha * expm1(x)) * x;
}

static int run(const moxie_layer *layer, const moxie_options *options, const char *name)
{
    static float hidden[TOKENS][SIZE], output[TOKENS][SIZE];
    static const int32_t ids[TOKENS];
    static const float weights[TOKENS] = { 1, 1, 1, 1, 1 };
    for (int i = 0; i < TOKENS * SIZE; i++)
        hidden[i / SIZE][i % SIZE] = (float)(i - TOKENS * SIZE / 2) / 16.0f; /* exact in bf16 */
    moxie_error error;
    moxie_plan *plan = NULL;
    if (moxie_plan_create(layer, options, &plan, &error))
        return fail(name, error.text);
    moxie_run_args args = MOXIE_RUN_ARGS_INIT;
    args.tokens = TOKENS;
    args.hidden = hidden;
    args.ids = ids;
    args.weights = weights;
    args.output = output;
    args.workspace_bytes = moxie_plan_workspace_bytes(plan);
    args.workspace = aligned_alloc(64, args.workspace_bytes);
    if (moxie_plan_run(plan, &args, &error))
        return fail(name, error.text);
    free(args.workspace);
    moxie_plan_destroy(plan);
    for (int i = 0; i < TOKENS * SIZE; i++) {
        const double x = (double)hidden[i / SIZE][i % SIZE], got = (double)output[i / SIZE][i % SIZE];
        if (!(fabs(got - elu(x)) <= 1e-6 * (1 + x * x))) {
            printf("FAILED: %s: elu of %g is %.9g, want %.9g\n", name, x, got, elu(x));
            return 1;
        }
    }
    printf("%s: right\n", name);
    return 0;
}

int main(void)
{
    static uint16_t identity[SIZE][SIZE];
    for (int i = 0; i < SIZE; i++)
        identity[i][i] = 0x3f80; /* 1 in bf16 */
    const moxie_matrix matrix = { .codes = { .data = identity,
                                             .bytes = sizeof identity,
                                             .rows = SIZE,
                                             .cols = SIZE,
                                             .row_stride = sizeof identity[0],
                                             .col_stride = sizeof identity[0][0],
                                             .dtype = MOXIE_BF16,
                                             .packing = { .word_bytes = 2, .per_word = 1 } } };
    const moxie_expert expert = { .gate = matrix, .up = matrix, .down = matrix };
    moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
    config.dtype = MOXIE_F32;
    config.experts = config.top_k = 1;
    config.hidden = config.intermediate = SIZE;
    config.w13.element = config.w2.element = MOXIE_BF16;
    const char *name = NULL;
    for (int32_t i = 0; (name = moxie_activation_at(i, &config.activation)) && strcmp(name, "elu") != 0; i++)
        continue;
    if (!name || !mox_activation_from_config("elu", true))
        return fail("elu", "not among the names");
    config.activation.alpha = alpha;
    moxie_weights weights = MOXIE_WEIGHTS_INIT;
    weights.n_experts = 1;
    weights.experts = &expert;

    static const char *const isas[] = { NULL, "scalar", "avx2", "avx512", "amx", "neon" };
    int failed = 0;
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        moxie_options options = MOXIE_OPTIONS_INIT;
        options.backend = isas[i] ? MOXIE_BACKEND_CPU : MOXIE_BACKEND_REF;
        options.isa = isas[i];
        options.max_tokens = TOKENS;
        moxie_error error;
        moxie_layer *layer = NULL;
        const moxie_status status = moxie_layer_create(&config, &options, &layer, &error);
        if (status == MOXIE_ERR_ARGUMENT && i > 1)
            continue; /* another architecture's */
        if (status || moxie_layer_prepare(layer, &weights, NULL, &error))
            return fail(isas[i] ? isas[i] : "ref", error.text);
        failed |= run(layer, &options, isas[i] ? isas[i] : "ref");
        moxie_layer_destroy(layer);
    }
    return failed;
}
