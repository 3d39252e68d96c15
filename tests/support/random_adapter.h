/* SPDX-License-Identifier: Apache-2.0
 *
 * random_adapter.h - random LoRA adapters for a layer: every form of views that moxie_adapters_set takes.
 *
 *     factors of each projection, or of some; ranks of their own; per expert or shared; f32, f16 or bf16
 *     gate and up: two pairs, or one A and the halves of one B; rows far apart, or transposed
 */
#ifndef RANDOM_ADAPTER_H
#define RANDOM_ADAPTER_H

#include <math.h>

#include <moxie/moxie_adapters.h>

#include "test_layer.h"

/* An adapter and the memory of its views, which random_adapter_free() releases. */
typedef struct random_adapter {
    const moxie_layer_config *config;
    moxie_lora lora;
    void *blocks[6];
    int n_blocks;
} random_adapter;

/* A random factor [E, rows, cols], or [rows, cols]. */
static inline moxie_tensor random_factor(random_adapter *owner, test_rng *rng, int64_t experts, int64_t rows,
                                         int64_t cols, float size)
{
    static const moxie_dtype dtypes[] = { MOXIE_F32, MOXIE_F16, MOXIE_BF16 };
    moxie_tensor t = { .dtype = dtypes[test_below(rng, 3)], .rank = 3, .shape = { experts, rows, cols } };
    const bool shared = test_below(rng, 3) == 0, transposed = test_below(rng, 3) == 0;
    const int64_t gap = (int64_t)test_below(rng, 2) * 3, copies = shared ? 1 : experts;
    const int64_t bytes = mox_dtype_bytes(t.dtype), row = transposed ? rows + gap : cols + gap;
    const int64_t one = row * (transposed ? cols : rows);
    char *data = owner->blocks[owner->n_blocks++] = malloc((size_t)(copies * one * bytes));
    assert_non_null(data);
    for (int64_t i = 0; i < copies * one; i++) {
        const float value = size * test_normal(rng);
        mox_narrow(t.dtype, &value, data + i * bytes, 1);
    }
    t.data = data;
    t.strides[0] = shared ? 0 : one;
    t.strides[1] = transposed ? 1 : row;
    t.strides[2] = transposed ? row : 1;
    if (shared && test_below(rng, 2) == 0) {
        t.rank = 2;
        memmove(t.shape, t.shape + 1, 2 * sizeof t.shape[0]);
        memmove(t.strides, t.strides + 1, 2 * sizeof t.strides[0]);
    }
    return t;
}

static inline void random_pair(random_adapter *owner, test_rng *rng, int64_t rows, int64_t cols, int64_t max_rank,
                               moxie_tensor *a, moxie_tensor *b)
{
    const int64_t experts = owner->config->experts, rank = test_range(rng, 1, max_rank);
    *a = random_factor(owner, rng, experts, rank, cols, 1 / sqrtf((float)cols));
    *b = random_factor(owner, rng, experts, rows, rank, 1 / sqrtf((float)rank));
}

/* Rows [first, first + rows) of B. */
static inline moxie_tensor random_rows(const moxie_tensor *b, int64_t first, int64_t rows)
{
    moxie_tensor part = *b;
    part.shape[part.rank - 2] = rows;
    part.data = (char *)b->data + first * b->strides[b->rank - 2] * mox_dtype_bytes(b->dtype);
    return part;
}

static inline void random_adapter_make(random_adapter *out, test_rng *rng, const moxie_layer_config *c,
                                       int64_t max_rank)
{
    const bool gated = moxie_act_is_gated(c->activation.kind) != 0;
    const uint64_t which = test_below(rng, 8); /* one of eight without W13, one without W2 */
    moxie_lora *lora = &out->lora;
    *out = (random_adapter) { .config = c, .lora = { .struct_size = sizeof(moxie_lora) } };
    if (which != 0 && gated && test_below(rng, 2) == 0) {
        moxie_tensor b;
        random_pair(out, rng, 2 * c->intermediate, c->hidden, max_rank, &lora->gate_a, &b);
        lora->up_a = lora->gate_a;
        lora->gate_b = random_rows(&b, 0, c->intermediate);
        lora->up_b = random_rows(&b, c->intermediate, c->intermediate);
    } else if (which != 0) {
        if (gated && test_below(rng, 8) != 0)
            random_pair(out, rng, c->intermediate, c->hidden, max_rank, &lora->gate_a, &lora->gate_b);
        random_pair(out, rng, c->intermediate, c->hidden, max_rank, &lora->up_a, &lora->up_b);
    }
    if (which != 1)
        random_pair(out, rng, c->hidden, c->intermediate, max_rank, &lora->down_a, &lora->down_b);
    lora->gate_scale = lora->up_scale = test_below(rng, 3) == 0 ? 0 : 2 * test_uniform(rng);
    lora->down_scale = test_below(rng, 3) == 0 ? 0 : 2 * test_uniform(rng);
}

static inline void random_adapter_free(random_adapter *adapter)
{
    for (int i = 0; i < adapter->n_blocks; i++)
        free(adapter->blocks[i]);
}

#endif
