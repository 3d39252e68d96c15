/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks_threads.c - the first MoE layer of a checkpoint on four ranks, which are threads of this program:
 *
 *     ranks_threads DIR
 *
 * Each rank holds a quarter of the experts and has three tokens of its own. It runs the same calls as a program alone,
 * with a comm in the options: tokens go to the ranks that own their experts, and the results come back. Then one rank
 * with all experts runs all tokens, and the bytes are compared.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <moxie/moxie_ckpt.h>
#include <moxie/moxie_comm.h>

enum { RANKS = 4, TOKENS = 3 }; /* tokens of each rank */

static moxie_model_layer *loaded;

typedef struct rank_state {
    int rank, ranks;
    moxie_comm *comm; /* NULL: alone */
    int64_t tokens;
    const char *hidden;
    char *output;
    pthread_t thread;
    moxie_status status;
    moxie_error error;
} rank_state;

/* What every rank does: its layer, its plan, its run. Creating the plan and running it are collective. */
static moxie_status run_rank(rank_state *r)
{
    static const int32_t token_ids[RANKS * TOKENS]; /* read only where a table of token ids routes */
    moxie_layer_config config = *moxie_model_layer_config(loaded);
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_run_args run = MOXIE_RUN_ARGS_INIT;
    moxie_layer *layer = NULL;
    moxie_plan *plan = NULL;
    config.ep_size = r->ranks;
    config.ep_rank = r->rank;
    options.comm = r->comm;
    options.max_tokens = RANKS * TOKENS; /* the same on all ranks */
    if (moxie_layer_create(&config, &options, &layer, &r->error) ||
        moxie_layer_prepare(layer, moxie_model_layer_weights(loaded), &options, &r->error) ||
        moxie_plan_create(layer, &options, &plan, &r->error)) {
        moxie_layer_destroy(layer);
        return r->error.code;
    }
    run.tokens = r->tokens;
    run.hidden = r->hidden;
    run.output = r->output;
    run.token_ids = token_ids;
    run.workspace_bytes = moxie_plan_workspace_bytes(plan);
    run.workspace = aligned_alloc(64, run.workspace_bytes);
    const moxie_status status = moxie_plan_run(plan, &run, &r->error);
    free(run.workspace);
    moxie_plan_destroy(plan);
    moxie_layer_destroy(layer);
    return status;
}

static void *rank_main(void *user)
{
    rank_state *r = user;
    r->status = run_rank(r);
    moxie_comm_destroy(r->comm);
    return NULL;
}

int main(int argc, char **argv)
{
    moxie_error error;
    moxie_model *model = NULL;
    moxie_model_layer_info info = MOXIE_MODEL_LAYER_INFO_INIT;
    moxie_comm *comms[RANKS];
    rank_state ranks[RANKS];
    if (argc != 2)
        return fprintf(stderr, "usage: %s MODEL_DIRECTORY\n", argv[0]), 2;
    if (moxie_model_open(argv[1], NULL, &model, &error) || moxie_model_describe_layer(model, 0, &info, &error) ||
        moxie_model_load_layer(model, info.layer, &loaded, &error) ||
        moxie_comm_local_create(RANKS, NULL, comms, &error))
        return fprintf(stderr, "%s%s%s\n", error.file, error.file[0] ? ": " : "", error.text), 1;

    const moxie_layer_config *config = moxie_model_layer_config(loaded);
    const size_t element = (size_t)moxie_dtype_bits(config->dtype) / 8, row = (size_t)config->hidden * element;
    const size_t bytes = RANKS * TOKENS * row;
    char *hidden = malloc(bytes), *output = malloc(bytes), *alone = malloc(bytes);
    if (hidden == NULL || output == NULL || alone == NULL)
        return fprintf(stderr, "no memory\n"), 1;
    for (size_t i = 0; i < bytes; i += element) {
        const uint32_t code = moxie_encode(config->dtype, (float)rand() / (float)RAND_MAX - 0.5f);
        memcpy(hidden + i, &code, element);
    }
    for (int i = 0; i < RANKS; i++) {
        const size_t at = (size_t)i * TOKENS * row;
        ranks[i] = (rank_state) { i, RANKS, comms[i], TOKENS, hidden + at, output + at, 0, MOXIE_OK, { 0 } };
        if (pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]) != 0)
            return fprintf(stderr, "no thread for rank %d\n", i), 1;
    }
    for (int i = 0; i < RANKS; i++)
        pthread_join(ranks[i].thread, NULL);
    rank_state one = { 0, 1, NULL, RANKS * TOKENS, hidden, alone, 0, MOXIE_OK, { 0 } };
    one.status = run_rank(&one);
    for (int i = 0; i < RANKS; i++)
        if (ranks[i].status || one.status)
            return fprintf(stderr, "rank %d: %s\n", i, one.status ? one.error.text : ranks[i].error.text), 1;
    const int same = memcmp(output, alone, bytes) == 0;
    printf("%d tokens on %d ranks: the output bytes %s those of one rank\n", RANKS * TOKENS, RANKS,
           same ? "equal" : "DIFFER FROM");
    free(alone);
    free(output);
    free(hidden);
    moxie_model_layer_free(loaded);
    moxie_model_close(model);
    return same ? 0 : 1;
}
