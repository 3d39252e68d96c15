/* SPDX-License-Identifier: Apache-2.0
 *
 * one_layer.c - the first MoE layer of a checkpoint on four tokens of made-up hidden states:
 *
 *     one_layer DIR
 *
 * opens the model directory, prepares the layer's experts for this machine, plans, runs, and prints the first
 * outputs of each token.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moxie/moxie_ckpt.h>

enum { TOKENS = 4, SHOWN = 6 };

/* Numbers from -0.5 up to 0.5, the same on every machine and in the examples of other languages (bindings/). */
static float next_number(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 16777216.0f - 0.5f;
}

int main(int argc, char **argv)
{
    moxie_error error;
    moxie_model *model = NULL;
    moxie_model_layer *loaded = NULL;
    moxie_model_layer_info info = MOXIE_MODEL_LAYER_INFO_INIT;
    moxie_layer *layer = NULL;
    moxie_plan *plan = NULL;
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.max_tokens = TOKENS; /* the workspace is for so many, not for 4096 */
    if (argc != 2)
        return fprintf(stderr, "usage: %s MODEL_DIRECTORY\n", argv[0]), 2;
    if (moxie_model_open(argv[1], NULL, &model, &error) || moxie_model_describe_layer(model, 0, &info, &error) ||
        moxie_model_load_layer(model, info.layer, &loaded, &error) ||
        moxie_layer_create(moxie_model_layer_config(loaded), &options, &layer, &error) ||
        moxie_layer_prepare(layer, moxie_model_layer_weights(loaded), NULL, &error) ||
        moxie_plan_create(layer, &options, &plan, &error))
        return fprintf(stderr, "%s%s%s\n", error.file, error.file[0] ? ": " : "", error.text), 1;

    /* Inputs and outputs are rows of hidden states in the layer's own dtype. */
    const moxie_layer_config *config = moxie_model_layer_config(loaded);
    const size_t element = (size_t)moxie_dtype_bits(config->dtype) / 8, row = (size_t)config->hidden * element;
    static const int32_t token_ids[TOKENS]; /* read only where a table of token ids routes */
    char *hidden = malloc(TOKENS * row), *output = malloc(TOKENS * row);
    int32_t *ids = malloc(TOKENS * (size_t)config->top_k * sizeof *ids);
    moxie_run_args run = MOXIE_RUN_ARGS_INIT;
    run.tokens = TOKENS;
    run.hidden = hidden;
    run.token_ids = token_ids;
    run.output = output;
    run.ids_out = ids;
    run.workspace_bytes = moxie_plan_workspace_bytes(plan);
    run.workspace = aligned_alloc(64, run.workspace_bytes);
    if (hidden == NULL || output == NULL || ids == NULL || run.workspace == NULL)
        return fprintf(stderr, "no memory\n"), 1;
    uint32_t state = 1;
    for (size_t i = 0; i < TOKENS * row; i += element) {
        const uint32_t code = moxie_encode(config->dtype, next_number(&state));
        memcpy(hidden + i, &code, element);
    }
    if (moxie_plan_run(plan, &run, &error))
        return fprintf(stderr, "%s\n", error.text), 1;

    for (int64_t t = 0; t < TOKENS; t++) {
        printf("token %d, first expert %d:", (int)t, (int)ids[t * config->top_k]);
        for (size_t i = 0; i < SHOWN && i < row / element; i++) {
            uint32_t code = 0;
            memcpy(&code, output + (size_t)t * row + i * element, element);
            printf(" %9.5f", (double)moxie_decode(config->dtype, code));
        }
        printf("\n");
    }
    free(run.workspace);
    free(ids);
    free(output);
    free(hidden);
    moxie_plan_destroy(plan);
    moxie_layer_destroy(layer);
    moxie_model_layer_free(loaded);
    moxie_model_close(model);
    return 0;
}
