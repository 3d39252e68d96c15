/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_adapt.c - adapters and the activation without a GPU (test_cuda_adapt.h).
 */
#include "test_cuda_adapt.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/glu/glu.h"
#include "cpu/lora/lora.h"
#include "test_support.h"

void test_cuda_glu(const mox_glu_args *a)
{
    const mox_glu_args args = { .activation = a->activation,
                                .slots = a->slots,
                                .offsets = a->offsets,
                                .expert_of = a->expert_of,
                                .h = a->h,
                                .intermediate = a->intermediate,
                                .out = a->out };
    mox_glu_scalar_run(&args, &mox_executor_serial);
}

/* An adapter that a token names, is enabled and fits. */
static bool fits(const mox_lora_args *a, int32_t id)
{
    bool small = id >= 0 && id < a->count && a->adapters[id] != NULL;
    for (int m = 0; small && m < MOX_LORA_MATRICES; m++)
        small = a->adapters[id]->matrix[m].rank <= a->max_rank;
    return small;
}

/* The scalar kernel's result, added to `out`, or in place of it. */
static void plain_lora(const mox_lora_args *a, float *out)
{
    const mox_lora_kernel scalar = { .shrink = mox_lora_scalar_shrink, .expand = mox_lora_scalar_expand };
    const int64_t pairs = a->offsets[a->slots];
    int32_t *adapter_of = calloc((size_t)pairs + 1, sizeof *adapter_of);
    float *scratch = calloc((size_t)a->scratch_floats, sizeof *scratch);
    float *u = calloc((size_t)(pairs * 2 * a->max_rank) + 1, sizeof *u);
    mox_lora_args args = *a;
    assert_non_null(adapter_of);
    assert_non_null(scratch);
    assert_non_null(u);
    assert_true(pairs <= a->max_pairs);
    for (int64_t p = 0; p < pairs; p++) {
        const int32_t id = a->adapter_ids[a->token_of[p]];
        adapter_of[p] = fits(a, id) ? id : -1;
    }
    args.adapter_of = adapter_of;
    args.scratch = scratch;
    args.u = u;
    args.out = out;
    for (int64_t i = 0; args.writes && i < pairs * args.n_out; i++)
        out[i] = -0.0f;
    mox_lora_run(&scalar, &args, &mox_executor_serial);
    free(adapter_of);
    free(scratch);
    free(u);
}

#ifndef MOX_TEST_EMULATED

moxie_status test_cuda_lora(const mox_lora_args *args, moxie_error *error)
{
    (void)error;
    plain_lora(args, args->out);
    return MOXIE_OK;
}

#else

moxie_status test_cuda_lora(const mox_lora_args *args, moxie_error *error)
{
    return mox_cuda_lora_simple_launch(args, NULL, error);
}

#endif
