/* SPDX-License-Identifier: Apache-2.0
 *
 * diff_bytes.c - compares two outputs byte by byte, and what the router chose as well (diff_bytes.h). Where they
 * differ, the first element is told.
 */
#include "diff_bytes.h"

#include <stdlib.h>
#include <string.h>

moxie_status diff_side_reserve(const moxie_layer_config *config, int64_t tokens, diff_side *out, moxie_error *error)
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

void diff_side_free(diff_side *s)
{
    free(s->output);
    free(s->ids);
    free(s->weights);
}

cli_batch diff_side_batch(const cli_input *input, const diff_side *s)
{
    return (cli_batch) { .input = input, .output = s->output, .ids = s->ids, .weights = s->weights, .runs = 1 };
}

static uint32_t code_at(const moxie_layer_config *config, const diff_side *s, int64_t i)
{
    const size_t width = config->dtype == MOXIE_F32 ? 4 : 2;
    uint32_t code = 0;
    memcpy(&code, (const char *)s->output + (size_t)i * width, width);
    return code;
}

diff_bytes diff_bytes_compare(const moxie_layer_config *config, int64_t tokens, const diff_side sides[2])
{
    const size_t choices = (size_t)(tokens * config->top_k);
    diff_bytes d = { .first = -1 };
    for (int64_t i = 0; i < tokens * config->hidden; i++)
        if (code_at(config, &sides[0], i) != code_at(config, &sides[1], i))
            d.first = d.elements++ ? d.first : i;
    d.routing = memcmp(sides[0].ids, sides[1].ids, choices * sizeof *sides[0].ids) != 0 ||
                memcmp(sides[0].weights, sides[1].weights, choices * sizeof *sides[0].weights) != 0;
    return d;
}

void diff_bytes_print(const moxie_layer_config *c, int64_t tokens, const diff_side sides[2], const diff_bytes *d)
{
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

json_t *diff_bytes_json(const moxie_layer_config *c, const diff_side sides[2], const diff_bytes *d)
{
    json_t *first = json_null();
    if (d->elements)
        first =
            cli_pack("{s:I, s:I, s:f, s:f}", "token", (json_int_t)(d->first / c->hidden), "column",
                     (json_int_t)(d->first % c->hidden), "got", moxie_decode(c->dtype, code_at(c, &sides[1], d->first)),
                     "want", moxie_decode(c->dtype, code_at(c, &sides[0], d->first)));
    return cli_pack("{s:b, s:b, s:I, s:o}", "equal", !d->elements && !d->routing, "routing_equal", !d->routing,
                    "elements", (json_int_t)d->elements, "first", first);
}
