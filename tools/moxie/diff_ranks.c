/* SPDX-License-Identifier: Apache-2.0
 *
 * diff_ranks.c - `moxie diff DIR --ranks N`: one rank and N ranks compute the same tokens; are the bytes equal?
 *
 * The output is compared byte by byte, and what the router chose as well. Where they differ, the first element is told.
 */
#include "diff_ranks.h"

#include "diff_bytes.h"

static moxie_status run_both(const diff_ranks_arguments *args, cli_layer *layer, cli_ranks *ranks, cli_input *input,
                             diff_side sides[2], moxie_error *error)
{
    moxie_status status = cli_ranks_begin(&args->ranks, ranks, error);
    if (status == MOXIE_OK)
        status = cli_layer_open(&args->layer, layer, error);
    if (status == MOXIE_OK)
        status = cli_layer_unpack("diff", layer, error);
    if (status == MOXIE_OK)
        status = cli_input_random(&layer->config, args->layer.tokens, args->seed, args->states, input, error);
    for (int i = 0; i < 2 && status == MOXIE_OK; i++)
        status = diff_side_reserve(&layer->config, args->layer.tokens, &sides[i], error);
    if (status == MOXIE_OK)
        status = cli_layer_prepare(&args->layer, layer, error);
    const cli_batch one = diff_side_batch(input, &sides[0]), many = diff_side_batch(input, &sides[1]);
    if (status == MOXIE_OK)
        status = cli_layer_run(layer, &one, error);
    if (status == MOXIE_OK)
        status = cli_ranks_prepare(ranks, &args->layer, layer, args->layer.tokens, error);
    if (status == MOXIE_OK && cli_plan_sums(cli_ranks_plan(ranks)))
        return cli_error(MOXIE_ERR_UNSUPPORTED, error, "",
                         "in fast mode tensor parallel ranks of this layer add their results, which rounds: bytes need "
                         "not be those of one rank; leave --mode fast or --tp out");
    return status == MOXIE_OK ? cli_ranks_run(ranks, &many, error) : status;
}

static void print_text(const cli_layer *layer, const cli_ranks *ranks, const diff_side sides[2], const diff_bytes *d,
                       int64_t tokens)
{
    const moxie_layer_config *c = &layer->config;
    printf("layer %lld: %lld %s, --tp %d, experts %s, tokens %s, against one rank; %lld %s\n", (long long)layer->index,
           CLI_COUNT(ranks->ranks, "rank"), (int)ranks->placement.tp, cli_printable(ranks->placement.name),
           cli_tokens_as(ranks->options.tokens_as), CLI_COUNT(tokens, "token"));
    diff_bytes_print(c, tokens, sides, d);
}

static void print_json(const cli_layer *layer, const cli_ranks *ranks, const diff_side sides[2], const diff_bytes *d,
                       int64_t tokens)
{
    json_t *object = cli_json_begin("diff");
    cli_json_merge(object, cli_pack("{s:I, s:i, s:i, s:s, s:s, s:I}", "layer", (json_int_t)layer->index, "ranks",
                                    (int)ranks->ranks, "tp", (int)ranks->placement.tp, "ep_map",
                                    cli_utf8(ranks->placement.name), "tokens_as",
                                    cli_tokens_as(ranks->options.tokens_as), "tokens", (json_int_t)tokens));
    cli_json_merge(object, diff_bytes_json(&layer->config, sides, d));
    cli_json_end(object);
}

int diff_ranks(const diff_ranks_arguments *args)
{
    moxie_error error = { 0 };
    cli_layer layer = { 0 };
    cli_ranks ranks = { .ranks = 0 };
    cli_input input = { 0 };
    diff_side sides[2] = { { 0 }, { 0 } };
    int code = CLI_OK;
    const moxie_status status = run_both(args, &layer, &ranks, &input, sides, &error);
    if (status != MOXIE_OK) {
        code = cli_fail("diff", args->layer.json, status, &error);
    } else {
        const diff_bytes d = diff_bytes_compare(&layer.config, input.tokens, sides);
        (args->layer.json ? print_json : print_text)(&layer, &ranks, sides, &d, input.tokens);
        code = d.elements || d.routing ? CLI_CHECK_FAILED : CLI_OK;
    }
    diff_side_free(&sides[0]);
    diff_side_free(&sides[1]);
    cli_ranks_end(&ranks);
    cli_input_free(&input);
    cli_layer_close(&layer);
    return code;
}
