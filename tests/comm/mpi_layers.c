/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_layers.c - one rank of a program of mpirun that computes random layers; its output bytes must equal those that it
 * computes alone, without a comm.
 *
 *     mpi_layers LAYERS [SEED]    sharded, replicated and scattered tokens in turn; expert maps, slot maps, TP groups
 *
 * Every rank draws the same layers from the seed. Prints "rank N: fine", or what differs.
 */
#include <mpi.h>

#include "test_ranks.h"

/* A random way to compute the layer on these ranks; the same on all of them. */
static test_ranks_spec any_spec(test_layer *layer, test_rng *rng, int32_t ranks, moxie_token_layout layout,
                                moxie_slot_map *map)
{
    test_ranks_spec spec = { .ranks = ranks,
                             .ep_map = (int32_t)test_below(rng, 2),
                             .layout = layout,
                             .chunk = test_below(rng, 2) == 0 ? 0 : test_range(rng, 1, 5),
                             .options = MOXIE_OPTIONS_INIT };
    const int32_t tp = (int32_t)test_range(rng, 1, 3);
    spec.tp = ranks % tp == 0 ? tp : 1;
    test_ranks_cut(&spec, rng, layer->args.tokens);
    *map = test_ranks_map(layer, rng, ranks / spec.tp);
    if (test_below(rng, 2) == 0)
        spec.map = map;
    return spec;
}

/* The rank's tokens: [*begin, *end). */
static void own_tokens(const test_ranks_spec *spec, int32_t rank, int64_t tokens, int64_t *begin, int64_t *end)
{
    *begin = 0;
    *end = tokens;
    if (spec->layout == MOXIE_TOKENS_SHARDED) {
        *begin = spec->first[rank];
        *end = spec->first[rank + 1];
    } else if (spec->layout == MOXIE_TOKENS_SCATTERED) {
        *begin = rank * tokens / spec->ranks;
        *end = (rank + 1) * tokens / spec->ranks;
    }
}

static bool same(uint64_t seed, moxie_comm *comm)
{
    const moxie_token_layout layout = (moxie_token_layout)(seed % 3);
    const test_layer_limits limits = {
        .tokens = -1, .features = seed % 2 == 0, .no_parallel = true, .plain_routing = layout == MOXIE_TOKENS_SHARDED
    };
    const int32_t rank = moxie_comm_rank(comm);
    test_rng rng = { seed };
    test_layer layer;
    moxie_slot_map map;
    moxie_error error;
    int64_t begin, end;
    test_layer_make(&layer, &rng, &limits);
    test_ranks_spec spec = any_spec(&layer, &rng, moxie_comm_ranks(comm), layout, &map);
    moxie_options options = spec.options;
    options.max_tokens = layer.args.tokens + 1;
    test_layer_plan(&layer, &options);
    char *one = test_layer_output(&layer, layer.plan), *all = calloc(test_layer_output_bytes(&layer) + 1, 1);
    const moxie_status status = test_ranks_run_one(&layer, &spec, comm, all, &error);
    const size_t row = (size_t)(layer.config.hidden * mox_dtype_bytes(layer.config.dtype));
    own_tokens(&spec, rank, layer.args.tokens, &begin, &end);
    const bool equal = memcmp(one + (size_t)begin * row, all + (size_t)begin * row, (size_t)(end - begin) * row) == 0;
    if (status != MOXIE_OK || !equal)
        printf("rank %d, line 0: seed %llu, layout %d, tp %d: %s\n  %s\n", rank, (unsigned long long)seed, (int)layout,
               spec.tp, status != MOXIE_OK ? error.text : "other bytes than one rank's", layer.text);
    free(one);
    free(all);
    test_layer_free(&layer);
    return status == MOXIE_OK && equal;
}

int main(int argc, char **argv)
{
    moxie_comm *comm = NULL;
    moxie_error error;
    bool fine = true;
    const uint64_t layers = argc > 1 ? strtoull(argv[1], NULL, 10) : 10;
    const uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 81000;
    MPI_Init(&argc, &argv);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (moxie_comm_mpi_create(NULL, NULL, &comm, &error) != MOXIE_OK)
        return printf("rank 0, line 0: %s\n", error.text), 1;
    const int32_t rank = moxie_comm_rank(comm);
    for (uint64_t i = 0; i < layers && fine; i++)
        fine = same(first + i, comm);
    moxie_comm_destroy(comm);
    if (fine)
        printf("rank %d: fine\n", rank);
    fflush(stdout);
    if (!fine)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
    return 0;
}
