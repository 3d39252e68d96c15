/* SPDX-License-Identifier: Apache-2.0
 *
 * diff_store.c - `moxie diff DIR --budget-ram BYTES`: the same tokens with all experts in memory, and from a store; are
 * the bytes equal?
 */
#include "diff_store.h"

#include "cli_store.h"
#include "diff_bytes.h"

/* Runs one of the two; the layer stays open. */
static moxie_status run_one(const cli_layer_options *options, const cli_input *input, cli_layer *layer, diff_side *side,
                            moxie_error *error)
{
    const cli_batch batch = diff_side_batch(input, side);
    const moxie_status status = cli_layer_prepare(options, layer, error);
    return status == MOXIE_OK ? cli_layer_run(layer, &batch, error) : status;
}

static moxie_status run_both(const cli_layer_options *options, uint64_t seed, cli_states states, cli_input *input,
                             cli_layer layers[2], diff_side sides[2], moxie_error *error)
{
    cli_layer_options resident = *options;
    resident.budget_ram = 0;
    moxie_status status = cli_layer_open(&resident, &layers[0], error);
    if (status == MOXIE_OK)
        status = cli_layer_open(options, &layers[1], error);
    if (status == MOXIE_OK)
        status = cli_input_random(&layers[0].config, options->tokens, seed, states, input, error);
    for (int i = 0; i < 2 && status == MOXIE_OK; i++) {
        status = diff_side_reserve(&layers[i].config, options->tokens, &sides[i], error);
        if (status == MOXIE_OK)
            status = run_one(i == 0 ? &resident : options, input, &layers[i], &sides[i], error);
    }
    return status;
}

static void print_text(const cli_layer *layer, int64_t tokens, const diff_side sides[2], const diff_bytes *d)
{
    printf("layer %lld from a store against the same in memory; %lld %s\n", (long long)layer->index,
           CLI_COUNT(tokens, "token"));
    diff_bytes_print(&layer->config, tokens, sides, d);
    cli_store_print(layer->store);
}

static void print_json(const cli_layer *layer, int64_t tokens, const diff_side sides[2], const diff_bytes *d)
{
    json_t *object = cli_json_begin("diff");
    cli_json_merge(object, cli_pack("{s:I, s:I}", "layer", (json_int_t)layer->index, "tokens", (json_int_t)tokens));
    cli_json_merge(object, diff_bytes_json(&layer->config, sides, d));
    cli_json_set(object, "store", cli_store_json(layer->store));
    cli_json_end(object);
}

int diff_store(const cli_layer_options *options, uint64_t seed, cli_states states)
{
    moxie_error error = { 0 };
    cli_layer layers[2] = { { 0 }, { 0 } };
    cli_input input = { 0 };
    diff_side sides[2] = { { 0 }, { 0 } };
    int code = CLI_OK;
    const moxie_status status = run_both(options, seed, states, &input, layers, sides, &error);
    if (status != MOXIE_OK) {
        code = cli_fail("diff", options->json, status, &error);
    } else {
        const diff_bytes d = diff_bytes_compare(&layers[0].config, input.tokens, sides);
        (options->json ? print_json : print_text)(&layers[1], input.tokens, sides, &d);
        code = d.elements || d.routing ? CLI_CHECK_FAILED : CLI_OK;
    }
    for (int i = 0; i < 2; i++) {
        diff_side_free(&sides[i]);
        cli_layer_close(&layers[i]);
    }
    cli_input_free(&input);
    return code;
}
