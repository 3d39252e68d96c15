/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_ranks.c - layers and ranks of test_cuda_ranks.c (cuda_ranks.h).
 */
#include "cuda_ranks.h"

#include "layer/config/tp_slice.h"

int32_t devices, nccl_deadline_ms = 20000;
const char *const device_names[MAX_DEVICES] = { "0", "1", "2", "3", "4", "5", "6", "7" };

/* ---- layers -------------------------------------------------------------------------------------------- */

static const test_layer_limits kinds[] = {
    { .tokens = 33, .largest = 200, .plain_acts = true, .plain_routing = true, .no_parallel = true },
    { .tokens = 65, .largest = 600, .plain_acts = true, .plain_routing = true, .no_parallel = true, .mma = true },
    { .tokens = 65, .largest = 600, .plain_acts = true, .plain_routing = true, .no_parallel = true, .decoded = true },
    { .tokens = 33, .largest = 300, .plain_acts = true, .plain_routing = true, .no_parallel = true, .rounds = true },
    { .tokens = 40, .largest = 400, .plain_routing = true, .no_parallel = true },
};
_Static_assert(sizeof kinds / sizeof kinds[0] == KINDS, "cuda_ranks.h says how many");

void make_layer(test_layer *layer, uint64_t seed, int kind)
{
    test_rng rng = { seed };
    test_layer_make(layer, &rng, &kinds[kind]);
}

void adapt(test_layer *layer, test_ranks_spec *spec, uint64_t seed, test_adapter_set *set)
{
    test_rng rng = { seed };
    int32_t *ids = test_layer_own(layer, ((size_t)layer->args.tokens + 1) * sizeof *ids);
    test_adapter_set_make(set, &rng, &layer->config, 1 + (int32_t)test_below(&rng, 20));
    for (int64_t t = 0; t < layer->args.tokens; t++)
        ids[t] = (int32_t)test_range(&rng, -1, TEST_ADAPTER_SET - 1);
    layer->args.adapter_ids = ids;
    spec->adapters = set;
    spec->options.max_adapter_rank = set->max_rank;
}

char *alone(test_layer *layer, const test_adapter_set *adapters)
{
    moxie_options options = device_options(layer->args.tokens + 1);
    moxie_adapters *given = NULL;
    moxie_error error = { 0 };
    options.max_adapter_rank = adapters != NULL ? adapters->max_rank : 0;
    test_layer_plan(layer, &options);
    if (adapters != NULL)
        assert_ok(test_adapter_set_give(adapters, layer->built, &given, &error), &error);
    layer->args.adapters = given;
    char *output = test_layer_output(layer, layer->plan);
    layer->args.adapters = NULL;
    moxie_adapters_destroy(given);
    return output;
}

void fix_routing(test_layer *layer)
{
    moxie_options options = MOXIE_OPTIONS_INIT;
    const size_t choices = (size_t)(layer->args.tokens * layer->config.top_k);
    int32_t *ids = test_layer_own(layer, (choices + 1) * sizeof *ids);
    float *weights = test_layer_own(layer, (choices + 1) * sizeof *weights);
    options.max_tokens = layer->args.tokens;
    test_layer_plan(layer, &options);
    layer->args.ids_out = ids;
    layer->args.weights_out = weights;
    free(test_layer_output(layer, layer->plan));
    layer->args.ids_out = NULL;
    layer->args.weights_out = NULL;
    layer->args.ids = ids;
    layer->args.weights = weights;
}

/* ---- ranks --------------------------------------------------------------------------------------------- */

void on_devices(int32_t rank, moxie_layer_config *config, moxie_options *options, moxie_run_args *args)
{
    (void)config, (void)args;
    options->backend = MOXIE_BACKEND_CUDA;
    options->device = device_names[rank % devices];
}

moxie_comm *over_nccl(moxie_comm *local, moxie_error *error)
{
    moxie_nccl_options nccl = MOXIE_NCCL_OPTIONS_INIT;
    moxie_comm_options options = MOXIE_COMM_OPTIONS_INIT;
    moxie_comm *comm = NULL;
    nccl.over = local;
    nccl.device = device_names[moxie_comm_rank(local) % devices];
    options.deadline_ms = nccl_deadline_ms;
    return moxie_comm_nccl_create(&nccl, &options, &comm, error) == MOXIE_OK ? comm : NULL;
}

int32_t groups_of(const test_layer *layer, int32_t tp)
{
    moxie_layer_config config = layer->config;
    config.tp_size = tp;
    for (int32_t r = 0; r < tp; r++)
        if (mox_tp_rows13(&config, r).count == 0)
            return 1;
    return tp;
}

test_ranks_spec any_spec(test_layer *layer, uint64_t seed, int32_t ranks, moxie_slot_map *map)
{
    test_rng rng = { seed * 7 + 1 };
    test_ranks_spec spec = { .ranks = ranks,
                             .ep_map = (int32_t)(seed % 2),
                             .layout = (moxie_token_layout)(seed % 3),
                             .chunk = seed % 2 == 0 ? 0 : test_range(&rng, 1, 9),
                             .runs = seed % 4 == 0 ? 2 : 1,
                             .change = on_devices,
                             .options = MOXIE_OPTIONS_INIT };
    test_ranks_cut(&spec, &rng, layer->args.tokens);
    if (ranks % 2 == 0 && seed / 4 % 2 == 1) /* groups of two ranks, or all in one */
        spec.tp = groups_of(layer, seed / 8 % 2 == 0 ? 2 : ranks);
    if (seed / 2 % 2 == 1)
        spec.options.exchange_capacity = test_ranks_own(&spec, layer->args.tokens);
    *map = test_ranks_map(layer, &rng, spec.tp > 1 ? ranks / spec.tp : ranks);
    if (seed / 3 % 2 == 0) /* in each layout */
        spec.map = map;
    return spec;
}

void run_ranks(const test_layer *layer, test_ranks_spec *spec, char *output)
{
    test_rank_result results[TEST_MAX_RANKS];
    memset(output, 0xee, test_layer_output_bytes(layer));
    if (test_ranks_run(layer, spec, output, results) == MOXIE_OK)
        return;
    print_error("%s, %d ranks, layout %d\n", layer->text, (int)spec->ranks, (int)spec->layout);
    for (int32_t r = 0; r < spec->ranks; r++)
        print_error("  rank %d: %s: %s\n", (int)r, moxie_status_name(results[r].status), results[r].error.text);
    fail();
}

bool has_nccl(void)
{
    char id[MOXIE_NCCL_ID_BYTES];
    moxie_error error = { 0 };
    if (moxie_comm_nccl_id(id, &error) == MOXIE_OK)
        return true;
    print_message("without NCCL: %s\n", error.text);
    return false;
}
