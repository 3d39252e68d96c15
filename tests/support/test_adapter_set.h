/* SPDX-License-Identifier: Apache-2.0
 *
 * test_adapter_set.h - random LoRA adapters that several layers get, those of ranks among them.
 */
#ifndef TEST_ADAPTER_SET_H
#define TEST_ADAPTER_SET_H

#include "random_adapter.h"

enum { TEST_ADAPTER_SET = 3 };

typedef struct test_adapter_set {
    random_adapter items[TEST_ADAPTER_SET];
    int32_t max_rank;
} test_adapter_set;

static inline void test_adapter_set_make(test_adapter_set *out, test_rng *rng, const moxie_layer_config *c,
                                         int32_t max_rank)
{
    out->max_rank = max_rank;
    for (int i = 0; i < TEST_ADAPTER_SET; i++)
        random_adapter_make(&out->items[i], rng, c, max_rank);
}

/* A set of ranks up to 20, and one of its adapters, or none, for each token of the layer. */
static inline void test_adapter_set_assign(test_adapter_set *out, test_layer *layer, test_rng *rng)
{
    int32_t *ids = test_layer_own(layer, ((size_t)layer->args.tokens + 1) * sizeof *ids);
    test_adapter_set_make(out, rng, &layer->config, 1 + (int32_t)test_below(rng, 20));
    for (int64_t t = 0; t < layer->args.tokens; t++)
        ids[t] = (int32_t)test_range(rng, -1, TEST_ADAPTER_SET - 1);
    layer->args.adapter_ids = ids;
}

static inline void test_adapter_set_free(test_adapter_set *set)
{
    for (int i = 0; i < TEST_ADAPTER_SET; i++)
        random_adapter_free(&set->items[i]);
}

/* The adapters of a layer; the last one is disabled. */
static inline moxie_status test_adapter_set_give(const test_adapter_set *set, const moxie_layer *layer,
                                                 moxie_adapters **out, moxie_error *error)
{
    moxie_status status = moxie_adapters_create(layer, TEST_ADAPTER_SET, out, error);
    for (int32_t i = 0; i < TEST_ADAPTER_SET && status == MOXIE_OK; i++)
        status = moxie_adapters_set(*out, i, &set->items[i].lora, error);
    return status == MOXIE_OK ? moxie_adapters_enable(*out, TEST_ADAPTER_SET - 1, 0, error) : status;
}

#endif
