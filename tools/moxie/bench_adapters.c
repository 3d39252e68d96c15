/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_adapters.c - random LoRA adapters for every copy of a timed layer: factors of all experts in bf16, of one rank.
 * Token t has adapter t mod N.
 *
 *     one block of numbers:   | ....... the largest factor of all experts ....... | slack |
 *                              ^ adapter 0   ^ each factor begins at a place of its own within the slack
 *
 * A time does not depend on the values.
 */
#include "bench.h"

#include <stdlib.h>

#include <moxie/moxie_adapters.h>

enum { SLACK = 4096, STEP = 48 }; /* numbers */

typedef struct factors {
    const uint16_t *numbers;
    int64_t experts, rank;
    int64_t made;
} factors;

static moxie_tensor next_factor(factors *f, int64_t rows, int64_t cols)
{
    const int64_t at = f->made++ * STEP % SLACK;
    return (moxie_tensor) { .data = (void *)(uintptr_t)(f->numbers + at),
                            .dtype = MOXIE_BF16,
                            .rank = 3,
                            .shape = { f->experts, rows, cols } };
}

static moxie_lora make_adapter(factors *f, const moxie_layer_config *c)
{
    moxie_lora lora = MOXIE_LORA_INIT;
    if (moxie_act_is_gated(c->activation.kind)) {
        lora.gate_a = next_factor(f, f->rank, c->hidden);
        lora.gate_b = next_factor(f, c->intermediate, f->rank);
    }
    lora.up_a = next_factor(f, f->rank, c->hidden);
    lora.up_b = next_factor(f, c->intermediate, f->rank);
    lora.down_a = next_factor(f, f->rank, c->intermediate);
    lora.down_b = next_factor(f, c->hidden, f->rank);
    return lora;
}

/* Numbers between -1/32 and 1/32. */
static uint16_t *make_numbers(const moxie_layer_config *c, int64_t rank)
{
    const int64_t longest = c->hidden > c->intermediate ? c->hidden : c->intermediate;
    const int64_t count = c->experts * rank * longest + SLACK;
    uint16_t *numbers = malloc((size_t)count * sizeof *numbers);
    uint64_t state = 1;
    for (int64_t i = 0; numbers && i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        numbers[i] = (uint16_t)moxie_encode(MOXIE_BF16, (float)((double)(state >> 40) / (1 << 28) - 0.03125));
    }
    return numbers;
}

static moxie_status set_all(bench_model *model, factors *f, int32_t count, moxie_error *error)
{
    moxie_status status = MOXIE_OK;
    for (int32_t i = 0; i < model->copies && status == MOXIE_OK; i++) {
        status = moxie_adapters_create(model->copy[i].layer, count, &model->copy[i].adapters, error);
        for (int32_t n = 0; n < count && status == MOXIE_OK; n++) {
            const moxie_lora lora = make_adapter(f, &model->config);
            status = moxie_adapters_set(model->copy[i].adapters, n, &lora, error);
        }
    }
    return status;
}

moxie_status bench_model_adapt(bench_model *model, int32_t count, int32_t rank, int64_t tokens, moxie_error *error)
{
    if (count == 0)
        return MOXIE_OK;
    uint16_t *numbers = make_numbers(&model->config, rank);
    factors f = { numbers, model->config.experts, rank, 0 };
    model->adapter_ids = malloc((size_t)tokens * sizeof *model->adapter_ids);
    moxie_status status = MOXIE_OK;
    if (!numbers || !model->adapter_ids)
        status = cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for adapters of rank %d", (int)rank);
    for (int64_t t = 0; t < tokens && status == MOXIE_OK; t++)
        model->adapter_ids[t] = (int32_t)(t % count);
    if (status == MOXIE_OK)
        status = set_all(model, &f, count, error);
    free(numbers);
    return status;
}
