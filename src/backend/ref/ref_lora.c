/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_lora.c - adapters in double precision, pair by pair:
 *
 *     u[i] = s sum_k A[i,k] x[k]        out[n] = fl32( out[n] + sum_i B[n,i] u[i] )
 */
#include <moxie/moxie_adapters.h>

#include "backend/ref/ref_stages.h"
#include "cpu/lora/lora_factors.h"

static double input(const mox_lora_args *args, int64_t pair, int64_t k)
{
    const int64_t row = args->row_of != NULL ? args->row_of[pair] : pair;
    const float x =
        mox_load(args->x_dtype, (const char *)args->x + (row * args->cols + k) * mox_dtype_bytes(args->x_dtype));
    return args->row_weight != NULL ? mox_round_to(args->x_dtype, x * args->row_weight[pair]) : x;
}

/* The change of rows [0, rows) of the matrix at a place; `out` are their results. */
static void change(const mox_lora_args *args, const mox_lora_matrix *m, int64_t place, int64_t pair, int64_t rows,
                   float *out)
{
    double u[MOXIE_MAX_ADAPTER_RANK];
    for (int64_t i = 0; i < m->rank; i++) {
        u[i] = 0;
        for (int64_t k = 0; k < args->cols; k++)
            u[i] += mox_lora_a(m, place, args->cols, i, k) * input(args, pair, k);
    }
    for (int64_t n = 0; n < rows; n++) {
        double sum = 0;
        for (int64_t i = 0; i < m->rank; i++)
            sum += mox_lora_b(m, place, n, i) * u[i];
        out[n] = (float)(out[n] + (double)m->scale * sum);
    }
}

static void adapt_slot(void *context, int64_t slot, int32_t worker)
{
    const mox_lora_args *args = context;
    const int64_t place = mox_lora_place(args, slot);
    (void)worker;
    for (int64_t p = args->offsets[slot]; p < args->offsets[slot + 1]; p++) {
        float *out = args->out + p * args->n_out;
        if (args->adapter_of[p] < 0)
            continue;
        const mox_lora_matrix *m = args->adapters[args->adapter_of[p]]->matrix;
        if (args->second) {
            change(args, &m[MOX_LORA_DOWN], place, p, args->n_out, out);
            continue;
        }
        const int64_t gates = args->gated ? args->n_out / 2 : 0;
        change(args, &m[MOX_LORA_GATE], place, p, gates, out);
        change(args, &m[MOX_LORA_UP], place, p, args->n_out - gates, out + gates);
    }
}

void mox_ref_run_lora(const mox_lora_args *args, const moxie_executor *executor)
{
    mox_lora_args context = *args;
    mox_parallel(executor, args->slots, adapt_slot, &context);
}
