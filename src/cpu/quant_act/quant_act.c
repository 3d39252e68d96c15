/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_act.c - the kernel list of family quant_act, made from quant_act.def, and what its kernels share: loading a row
 * of x as f32, and the largest magnitude over all rows.
 */
#include "cpu/quant_act/quant_act.h"

#define MOX_QUANT_ACT(id, isa_, exactness_, layout_)                                                                   \
    {                                                                                                                  \
        .base = { .family = "quant_act", .name = #id, .isa = isa_, .exactness = exactness_, .layout = layout_ },       \
        .run = mox_quant_act_##id##_run,                                                                               \
        .admit = mox_quant_act_##id##_admit,                                                                           \
    },
static const mox_quant_act_kernel kernels[] = {
#include "cpu/quant_act/quant_act.def"
};
#undef MOX_QUANT_ACT

const mox_quant_act_kernel *mox_quant_act_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof kernels / sizeof kernels[0] ? &kernels[i] : NULL;
}

int64_t mox_quant_act_rows(const mox_quant_act_args *args)
{
    return args->rows != NULL ? *args->rows : args->max_rows;
}

void mox_quant_act_load(const mox_quant_act_args *args, int64_t r, float *x)
{
    const int64_t from = args->source != NULL ? args->source[r] : r, bytes = mox_dtype_bytes(args->x_dtype);
    mox_widen(args->x_dtype, (const uint8_t *)args->x + from * args->cols * bytes, x, args->cols);
    for (int64_t k = 0; args->row_weight != NULL && k < args->cols; k++)
        x[k] = mox_round_to(args->x_dtype, x[k] * args->row_weight[r]);
}

float mox_quant_act_amax(const mox_quant_act_args *args)
{
    float amax = 0;
    if (mox_quant_is_none(&args->quant) || !mox_act_quant_needs_amax(&args->quant))
        return amax;
    if (args->batch_amax != NULL)
        return *args->batch_amax;
    for (int64_t r = 0; r < mox_quant_act_rows(args); r++) {
        mox_quant_act_load(args, r, args->row_scratch);
        amax = fmaxf(amax, mox_amax(args->row_scratch, args->cols));
    }
    return amax;
}
