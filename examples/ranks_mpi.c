/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks_mpi.c - the first MoE layer of a checkpoint, its experts spread over MPI processes:
 *
 *     mpirun -n N ranks_mpi DIR
 *
 * Eight tokens of random hidden states are spread over the ranks, too. Each rank sends its tokens to the ranks that
 * hold their experts, gets the results back, and prints the first outputs of each: the same bits for every N.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include <moxie/moxie_ckpt.h>
#include <moxie/moxie_comm.h>

enum { TOKENS = 8, SHOWN = 6 };

/* After a failure, other ranks may wait for this one: end them all. */
static void need(moxie_status status, const moxie_error *error)
{
    if (status == MOXIE_OK)
        return;
    fprintf(stderr, "%s%s%s\n", error->file, error->file[0] ? ": " : "", error->text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Numbers that depend on the token alone, not on its rank. */
static void fill(void *hidden, int64_t token, const moxie_layer_config *config, size_t element)
{
    uint32_t x = 1000u + (uint32_t)token;
    for (int64_t i = 0; i < config->hidden; i++) {
        x = x * 1664525u + 1013904223u;
        const uint32_t code = moxie_encode(config->dtype, (float)(x >> 8) / 16777216.0f - 0.5f);
        memcpy((char *)hidden + (size_t)i * element, &code, element);
    }
}

/* One line in one call, so that lines of ranks do not mix. */
static void show(const char *output, int64_t token, const moxie_layer_config *config, size_t element)
{
    char line[32 + 16 * SHOWN];
    int used = snprintf(line, sizeof line, "token %d:", (int)token);
    for (int64_t i = 0; i < SHOWN && i < config->hidden; i++) {
        uint32_t code = 0;
        memcpy(&code, output + (size_t)i * element, element);
        used += snprintf(line + used, sizeof line - (size_t)used, " %12.8f", (double)moxie_decode(config->dtype, code));
    }
    puts(line);
}

int main(int argc, char **argv)
{
    moxie_error error;
    moxie_comm *comm = NULL;
    moxie_model *model = NULL;
    moxie_model_layer *loaded = NULL;
    moxie_model_layer_info info = MOXIE_MODEL_LAYER_INFO_INIT;
    moxie_layer *layer = NULL;
    moxie_plan *plan = NULL;
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_run_args run = MOXIE_RUN_ARGS_INIT;
    if (argc != 2)
        return fprintf(stderr, "usage: mpirun -n N %s MODEL_DIRECTORY\n", argv[0]), 2;
    MPI_Init(&argc, &argv);
    need(moxie_comm_mpi_create(NULL, NULL, &comm, &error), &error);
    const int64_t ranks = moxie_comm_ranks(comm), rank = moxie_comm_rank(comm);
    need(moxie_model_open(argv[1], NULL, &model, &error), &error);
    need(moxie_model_describe_layer(model, 0, &info, &error), &error);
    need(moxie_model_load_layer(model, info.layer, &loaded, &error), &error);

    /* This rank prepares its own experts only. */
    moxie_layer_config config = *moxie_model_layer_config(loaded);
    config.ep_size = (int32_t)ranks;
    config.ep_rank = (int32_t)rank;
    options.comm = comm;
    options.token_layout = MOXIE_TOKENS_SHARDED;
    options.max_tokens = TOKENS;
    need(moxie_layer_create(&config, &options, &layer, &error), &error);
    need(moxie_layer_prepare(layer, moxie_model_layer_weights(loaded), NULL, &error), &error);
    need(moxie_plan_create(layer, &options, &plan, &error), &error);

    /* Its tokens: [first, end), none where there are more ranks than tokens. */
    const int64_t first = rank * TOKENS / ranks, end = (rank + 1) * TOKENS / ranks;
    const size_t element = (size_t)moxie_dtype_bits(config.dtype) / 8, row = (size_t)config.hidden * element;
    static const int32_t token_ids[TOKENS]; /* read only where a table of token ids routes */
    char *hidden = malloc(TOKENS * row), *output = malloc(TOKENS * row);
    run.tokens = end - first;
    run.hidden = hidden;
    run.token_ids = token_ids;
    run.output = output;
    run.workspace_bytes = moxie_plan_workspace_bytes(plan);
    run.workspace = aligned_alloc(64, run.workspace_bytes);
    if (hidden == NULL || output == NULL || run.workspace == NULL)
        return fprintf(stderr, "no memory\n"), MPI_Abort(MPI_COMM_WORLD, 1);
    for (int64_t t = first; t < end; t++)
        fill(hidden + (size_t)(t - first) * row, t, &config, element);
    need(moxie_plan_run(plan, &run, &error), &error);

    for (int64_t t = first; t < end; t++)
        show(output + (size_t)(t - first) * row, t, &config, element);
    free(run.workspace);
    free(output);
    free(hidden);
    moxie_plan_destroy(plan);
    moxie_layer_destroy(layer);
    moxie_model_layer_free(loaded);
    moxie_model_close(model);
    moxie_comm_destroy(comm);
    MPI_Finalize();
    return 0;
}
