/* SPDX-License-Identifier: Apache-2.0
 *
 * check_lora.c - adapters in double precision (check_lora.h). Tokens and their adapters come from the permutation and
 * the caller's ids, not from the run's own arrays.
 *
 * The bound, with u = 2^-24 and gamma of ref_bounds.h, for both orders of a row of A:
 *
 *     sixteen lanes    K/16 additions and 4 over the lanes, each of u, and one product
 *     tensor cores     a warp has two instructions for every 256 columns, each rounding by 2 u (mox_bound_mma); then 7
 *                      additions over the warps, and one of the sums of lower pieces. Those are 2^-6 of the others or
 *                      less, and have 16 instructions for every 256 columns at most: half of u
 *
 * Then come the scale, the product with B, r additions and the one to the result. With d the larger depth:
 * gamma(d + r + 5) sum_i |B[n,i]| |s| sum_k |A[i,k]| |x[k]|  +  u |result + change|, and underflow: in fp32; and of
 * pieces in bf16 or what a tensor core flushes, numbers and products below 2^-126, as terms of magnitude 2^-100, of
 * which the bound has more than 2^-24.
 */
#include "layer/check/check_lora.h"

#include "base/sizes.h"
#include "cpu/lora/lora_factors.h"
#include "ref/ref_bounds.h"

static const mox_lora_matrix *matrix_at(const mox_check_lora *lora, int64_t p, int matrix)
{
    return &lora->args.adapters[lora->adapter_of[p]]->matrix[matrix];
}

/* x of a pair: the run's hidden state, weighted where the layer does so, or its activation. */
static double input(const mox_check_context *c, int64_t p, int64_t k)
{
    const moxie_layer_config *config = &c->checker->plan->config;
    if (c->projection == MOX_W2)
        return c->pass->act[p * config->intermediate + k];
    const int64_t pair = c->run->permutation.pair_at[p], token = c->run->first + pair / config->top_k;
    const float x = mox_load(config->dtype, (const char *)c->run->args.hidden +
                                                (token * config->hidden + k) * mox_dtype_bytes(config->dtype));
    if (!config->routing.on_input)
        return x;
    return mox_round_to(config->dtype, x * c->run->weights[c->run->first * config->top_k + pair]);
}

static void shrink(const mox_check_context *c, int64_t s, int64_t p, int matrix, double *u, double *size)
{
    const mox_check_lora *lora = c->lora;
    const mox_lora_matrix *m = matrix_at(lora, p, matrix);
    for (int64_t i = 0; i < m->rank; i++) {
        u[i] = size[i] = 0;
        for (int64_t k = 0; k < lora->args.cols; k++) {
            const double a = mox_lora_a(m, s, lora->args.cols, i, k), x = input(c, p, k);
            u[i] += a * x * m->scale;
            size[i] += (fabs(a * x) + 0x1p-100 * (1 + fabs(a) + fabs(x))) * fabs((double)m->scale);
        }
    }
}

static void shrink_slot(void *user, int64_t s, int32_t worker)
{
    const mox_check_context *c = user;
    const mox_check_lora *lora = c->lora;
    const int64_t rank = lora->args.max_rank;
    (void)worker;
    for (int64_t p = c->pass->offsets[s]; p < c->pass->offsets[s + 1]; p++) {
        double *u = lora->u + p * 2 * rank, *size = lora->size + p * 2 * rank;
        if (lora->adapter_of[p] < 0)
            continue;
        if (!lora->args.second && lora->args.gated)
            shrink(c, s, p, MOX_LORA_GATE, u, size);
        shrink(c, s, p, lora->args.second ? MOX_LORA_DOWN : MOX_LORA_UP, u + rank, size + rank);
    }
}

/* Copies the adapters of a layer on a device to the host. */
static moxie_status fetch(const moxie_adapters *adapters, mox_check_lora *lora, moxie_error *error)
{
    if (adapters->table == NULL)
        return MOXIE_OK;
    lora->own = mox_calloc((uint64_t)adapters->count, sizeof *lora->own);
    lora->factors = mox_calloc((uint64_t)adapters->count, sizeof *lora->factors);
    if (lora->own == NULL || lora->factors == NULL)
        return mox_fail(MOXIE_ERR_MEMORY, error, "no memory to check %d adapters", (int)adapters->count);
    for (int32_t i = 0; i < adapters->count; i++)
        if (adapters->items[i] != NULL) {
            MOX_TRY(mox_adapter_fetch(adapters->layer, adapters->items[i], &lora->own[i], error));
            lora->factors[i] = &lora->own[i]->factors;
        }
    lora->args.adapters = lora->factors;
    return MOXIE_OK;
}

moxie_status mox_check_lora_begin(mox_check_context *c, mox_check_lora *lora, moxie_error *error)
{
    const moxie_run_args *args = &c->run->args;
    const int64_t rank = c->checker->plan->max_adapter_rank;
    *lora = (mox_check_lora) { 0 };
    if (args->adapters == NULL || c->pass->expert_of == NULL)
        return MOXIE_OK;
    const int64_t pairs = c->pass->offsets[c->pass->slots]; /* pair_at has no more: others were skipped */
    lora->u = mox_calloc((uint64_t)(pairs * 2 * rank), sizeof *lora->u);
    lora->size = mox_calloc((uint64_t)(pairs * 2 * rank), sizeof *lora->size);
    lora->adapter_of = mox_calloc((uint64_t)pairs, sizeof *lora->adapter_of);
    if (lora->u == NULL || lora->size == NULL || lora->adapter_of == NULL)
        return mox_fail(MOXIE_ERR_MEMORY, error, "no memory to check adapters of %lld pairs", (long long)pairs);
    for (int64_t p = 0; p < pairs; p++) {
        const int64_t token = c->run->first + c->run->permutation.pair_at[p] / c->checker->plan->config.top_k;
        const mox_adapter *adapter = mox_adapters_at(args->adapters, args->adapter_ids[token]);
        lora->adapter_of[p] = adapter != NULL && adapter->enabled ? args->adapter_ids[token] : -1;
    }
    lora->args = mox_run_lora_args(c->run, c->projection, NULL, NULL);
    MOX_TRY(fetch(args->adapters, lora, error));
    c->lora = lora;
    mox_parallel(c->checker->executor, c->pass->slots, shrink_slot, c);
    return MOXIE_OK;
}

void mox_check_lora_end(mox_check_context *c, mox_check_lora *lora)
{
    c->lora = NULL;
    for (int32_t i = 0; lora->own != NULL && i < lora->args.count; i++)
        mox_adapter_free(lora->own[i]);
    mox_free(lora->own);
    mox_free(lora->factors);
    mox_free(lora->u);
    mox_free(lora->size);
    mox_free(lora->adapter_of);
}

/* Roundings of a sum over so many columns, in u. */
static double shrink_depth(int64_t cols)
{
    const double lanes = (double)mox_ceil_div(cols, MOX_LORA_LANES) + 5;
    const double tensor_cores = 4.5 * (double)mox_ceil_div(cols, 256) + 8;
    return lanes > tensor_cores ? lanes : tensor_cores;
}

double mox_check_lora_element(const mox_check_lora *lora, int64_t s, int64_t p, int64_t n, double result, double *bound)
{
    const int64_t rank = lora->args.max_rank;
    double sum = 0, size = 0;
    *bound = 0;
    if (lora->adapter_of[p] < 0)
        return 0;
    const int matrix = mox_lora_matrix_of(&lora->args, &n);
    const mox_lora_matrix *m = matrix_at(lora, p, matrix);
    const int64_t at = (2 * p + (matrix != MOX_LORA_GATE)) * rank;
    double factors = 0;
    for (int64_t i = 0; i < m->rank; i++) {
        const double b = mox_lora_b(m, s, n, i);
        sum += b * lora->u[at + i];
        size += fabs(b) * lora->size[at + i];
        factors += fabs(b);
    }
    if (m->rank == 0)
        return 0;
    const double terms = shrink_depth(lora->args.cols) + (double)m->rank + 5;
    *bound = mox_gamma(terms) * size + 0x1p-24 * (result + size) +
             (factors * (fabs((double)m->scale) + 1) * (double)lora->args.cols + terms) * 0x1p-149;
    return sum;
}
