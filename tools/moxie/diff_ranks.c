/* SPDX-License-Identifier: Apache-2.0
 *
 * diff_ranks.c - `moxie diff DIR --ranks N`: one rank and N ranks compute the same tokens; are the bytes equal?
 *
 * The output is compared byte by byte, and what the router chose as well. Where they differ, the first element is told.
 */
#include "diff_ranks.h"

#include <stdlib.h>
#include <string.h>

/* What one of the two computed. */
typedef struct side {
    void *output;
    int32_t *ids;
    float *weights;
} side;

typedef struct difference {
    int64_t elements; /* of the output, that differ */
    int64_t first;    /* the first of them: token * hidden + column */
    bool routing;     /* ids or weights differ */
} difference;

static moxie_status reserve(const moxie_layer_config *config, int64_t tokens, side *out, moxie_error *error)
{
    const size_t choices = (size_t)(tokens * config->top_k) + 1;
    out->output = calloc((size_t)(tokens * config->hidden) + 1, 4);
    out->ids = calloc(choices, sizeof *out->ids);
    out->weights = calloc(choices, sizeof *out->weights);
    if (!out->output || !out->ids || !out->weights)
        return cli_error(MOXIE_ERR_MEMORY, error, "", "no memory for the outputs of %lld %s",
                         CLI_COUNT(tokens, "token"));
    return MOXIE_OK;
}

static void free_side(side *s)
{
    free(s->output);
    free(s->ids);
    free(s->weights);
}

static cli_batch batch_of(const cli_input *input, const side *s)
{
    return (cli_batch) { .input = input, .output = s->output, .ids = s->ids, .weights = s->weights, .runs = 1 };
}

static moxie_status run_both(const diff_ranks_arguments *args, cli_layer *layer, cli_ranks *ranks, cli_input *input,
                             side sides[2], moxie_error *error)
{
    moxie_status status = cli_ranks_begin(&args->ranks, ranks, error);
    if (status == MOXIE_OK)
        status = cli_layer_open(&args->layer, layer, error);
    if (status == MOXIE_OK)
        status = cli_layer_unpack("diff", layer, error);
    if (status == MOXIE_OK)
        status = cli_input_random(&layer->config, args->layer.tokens, args->seed, args->states, input, error);
    for (int i = 0; i < 2 && status == MOXIE_OK; i++)
        status = reserve(&layer->config, args->layer.tokens, &sides[i], error);
    if (status == MOXIE_OK)
        status = cli_layer_prepare(&args->layer, layer, error);
    const cli_batch one = batch_of(input, &sides[0]), many = batch_of(input, &sides[1]);
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

static uint32_t code_at(const moxie_layer_config *config, const side *s, int64_t i)
{
    const size_t width = config->dtype == MOXIE_F32 ? 4 : 2;
    uint32_t code = 0;
    memcpy(&code, (const char *)s->output + (size_t)i * width, width);
    return code;
}

static difference compare(const moxie_layer_config *config, int64_t tokens, const side sides[2])
{
    const size_t choices = (size_t)(tokens * config->top_k);
    difference d = { .first = -1 };
    for (int64_t i = 0; i < tokens * config->hidden; i++)
        if (code_at(config, &sides[0], i) != code_at(config, &sides[1], i))
            d.first = d.elements++ ? d.first : i;
    d.routing = memcmp(sides[0].ids, sides[1].ids, choices * sizeof *sides[0].ids) != 0 ||
                memcmp(sides[0].weights, sides[1].weights, choices * sizeof *sides[0].weights) != 0;
    return d;
}

static void print_text(const cli_layer *layer, const cli_ranks *ranks, const side sides[2], const difference *d,
                       int64_t tokens)
{
    const moxie_layer_config *c = &layer->config;
    printf("layer %lld: %lld %s, --tp %d, experts %s, tokens %s, against one rank; %lld %s\n", (long long)layer->index,
           CLI_COUNT(ranks->ranks, "rank"), (int)ranks->placement.tp, cli_printable(ranks->placement.name),
           cli_tokens_as(ranks->options.tokens_as), CLI_COUNT(tokens, "token"));
    if (d->routing)
        printf("WRONG: the router chose other experts or weights\n");
    if (d->elements)
        printf("WRONG: %lld of %lld outputs differ; the first: token %lld, column %lld, %.9g instead of %.9g\n",
               (long long)d->elements, (long long)(tokens * c->hidden), (long long)(d->first / c->hidden),
               (long long)(d->first % c->hidden), moxie_decode(c->dtype, code_at(c, &sides[1], d->first)),
               moxie_decode(c->dtype, code_at(c, &sides[0], d->first)));
    if (!d->routing && !d->elements)
        printf("right: the bytes are equal\n");
}

static void print_json(const cli_layer *layer, const cli_ranks *ranks, const side sides[2], const difference *d,
                       int64_t tokens)
{
    const moxie_layer_config *c = &layer->config;
    json_t *object = cli_json_begin("diff"), *first = json_null();
    if (d->elements)
        first =
            cli_pack("{s:I, s:I, s:f, s:f}", "token", (json_int_t)(d->first / c->hidden), "column",
                     (json_int_t)(d->first % c->hidden), "got", moxie_decode(c->dtype, code_at(c, &sides[1], d->first)),
                     "want", moxie_decode(c->dtype, code_at(c, &sides[0], d->first)));
    cli_json_merge(object,
                   cli_pack("{s:I, s:i, s:i, s:s, s:s, s:I, s:b, s:b, s:I, s:o}", "layer", (json_int_t)layer->index,
                            "ranks", (int)ranks->ranks, "tp", (int)ranks->placement.tp, "ep_map",
                            cli_utf8(ranks->placement.name), "tokens_as", cli_tokens_as(ranks->options.tokens_as),
                            "tokens", (json_int_t)tokens, "equal", !d->elements && !d->routing, "routing_equal",
                            !d->routing, "elements", (json_int_t)d->elements, "first", first));
    cli_json_end(object);
}

int diff_ranks(const diff_ranks_arguments *args)
{
    moxie_error error = { 0 };
    cli_layer layer = { 0 };
    cli_ranks ranks = { .ranks = 0 };
    cli_input input = { 0 };
    side sides[2] = { { 0 }, { 0 } };
    int code = CLI_OK;
    const moxie_status status = run_both(args, &layer, &ranks, &input, sides, &error);
    if (status != MOXIE_OK) {
        code = cli_fail("diff", args->layer.json, status, &error);
    } else {
        const difference d = compare(&layer.config, input.tokens, sides);
        (args->layer.json ? print_json : print_text)(&layer, &ranks, sides, &d, input.tokens);
        code = d.elements || d.routing ? CLI_CHECK_FAILED : CLI_OK;
    }
    free_side(&sides[0]);
    free_side(&sides[1]);
    cli_ranks_end(&ranks);
    cli_input_free(&input);
    cli_layer_close(&layer);
    return code;
}
