/* SPDX-License-Identifier: Apache-2.0
 *
 * test_ranks.h - runs a random layer (test_layer.h) on several ranks, which are threads of the test.
 *
 *     test_ranks_run(&layer, &spec, output, &error)    each rank: layer, prepare, plan, run; the outputs put together
 *     test_ranks_run_one(&layer, &spec, comm, ...)     one rank, of any comm
 *
 * Rank r of a sharded batch has tokens [first[r], first[r + 1]).
 */
#ifndef TEST_RANKS_H
#define TEST_RANKS_H

#include <moxie/moxie_comm.h>

#include "test_layer.h"

#define TEST_MAX_RANKS 64

/* In a thread of a rank, which must not end the test: keeps the first text in self->failed, an array. */
#define TEST_EXPECT(self, condition, ...)                                                                              \
    do {                                                                                                               \
        if (!(condition) && (self)->failed[0] == 0)                                                                    \
            snprintf((self)->failed, sizeof(self)->failed, __VA_ARGS__);                                               \
    } while (0)

typedef struct test_ranks_spec {
    int32_t ranks, tp; /* of `ranks`, groups of `tp` share experts; 0: 1 */
    int32_t ep_map;    /* moxie_expert_map_kind */
    moxie_token_layout layout;
    const moxie_slot_map *map;         /* NULL: ep_map */
    int64_t first[TEST_MAX_RANKS + 1]; /* sharded tokens */
    int64_t chunk;                     /* tokens of a rank in a chunk, at most the plan's; 0: the plan's */
    int64_t more;                      /* rank r's chunk has r times as many tokens more; 0: all have the same */
    int32_t runs;                      /* how often each plan runs; 0: once */
    int32_t threads;                   /* of each rank's executor; 0: none */
    int32_t deadline_ms;               /* 0: 60000 */
    moxie_options options;             /* besides comm, token_layout, executor */
    /* Changes one rank's arguments, configuration or options before they are used; NULL: nothing does. */
    void (*change)(int32_t rank, moxie_layer_config *config, moxie_options *options, moxie_run_args *args);
    /* Makes another comm of the same ranks over the local one, which is then destroyed; NULL: ranks stay local. */
    moxie_comm *(*over)(moxie_comm *local, moxie_error *error);
    const struct test_adapter_set *adapters; /* of every rank's layer (test_adapter_set.h); NULL: none */
    /* Makes a rank's layer in place of moxie_layer_create and moxie_layer_prepare; NULL: these do. */
    moxie_status (*open)(int32_t rank, const moxie_layer_config *config, const moxie_options *options,
                         moxie_layer **out, moxie_error *error);
    /* Runs a plan in place of moxie_plan_run; NULL: that. */
    moxie_status (*run)(moxie_plan *plan, const moxie_run_args *args, moxie_error *error);
    int32_t lacks_adapters; /* rank lacks_adapters - 1 runs without any; 0: none does */
    int32_t absent;         /* rank absent - 1 makes its plan and leaves without a run; 0: none */
    bool hides_scales;      /* each rank is given the static scales of its own experts alone */
    uint64_t allocations;   /* result: those of all ranks' last runs together, if `runs` is more than 1 */
} test_ranks_spec;

/* What one rank's calls returned. */
typedef struct test_rank_result {
    moxie_status status;
    moxie_error error;
} test_rank_result;

/* Cuts `tokens` at random: some ranks have none. */
void test_ranks_cut(test_ranks_spec *spec, test_rng *rng, int64_t tokens);
/* The most tokens that one rank owns; 1 if there are none. */
int64_t test_ranks_own(const test_ranks_spec *spec, int64_t tokens);
/* Runs all ranks; results[ranks]. output: [T, H] of the layer. With replicated tokens each rank's output is compared
 * with rank 0's, unless one is absent. Returns the first status that is not MOXIE_OK. */
moxie_status test_ranks_run(const test_layer *layer, test_ranks_spec *spec, void *output, test_rank_result *results);
/* As one rank, that of `comm`, which lives on: for ranks that are processes. `output` is as long as the whole output;
 * only what this rank computes is written. */
moxie_status test_ranks_run_one(const test_layer *layer, test_ranks_spec *spec, moxie_comm *comm, void *output,
                                moxie_error *error);
/* The arguments for tokens [first, first + tokens) of the layer's batch; the output too begins there. */
moxie_run_args test_ranks_args(const test_layer *layer, int64_t first, int64_t tokens);

/* A layer with its weights. *out is what was made, also where a call fails. */
moxie_status test_ranks_layer(const moxie_layer_config *config, const moxie_weights *weights,
                              const moxie_options *options, moxie_layer **out, moxie_error *error);
/* Poisoned memory of its own for runs of the plan: free(args->workspace). */
void test_ranks_workspace(const moxie_plan *plan, moxie_run_args *args);

/* A random map: every expert somewhere, some with replicas, some slots empty. Its arrays belong to `layer`. */
moxie_slot_map test_ranks_map(test_layer *layer, test_rng *rng, int32_t ranks);

#endif
