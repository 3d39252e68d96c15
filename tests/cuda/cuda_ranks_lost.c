/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_ranks_lost.c - ranks on GPUs that lose a rank and go on (options.degraded), and those that start anew without
 * it. A part of test_cuda_ranks.
 *
 *     lost      one rank leaves before the run. Each token of the others has the bytes of one device that skips the
 *               choices of lost experts, with weights as they are or made anew here; their number is reported
 *               local: the rank that left is lost; NCCL: all others are
 *     anew      the ranks that are left, with a map without the lost one: the bytes of one device
 */
#include "cuda_ranks.h"
#include "layer/plan/plan.h"

#include <moxie/moxie_parallel.h>

static moxie_losses losses[TEST_MAX_RANKS]; /* of each rank's last run */
static char *outputs[TEST_MAX_RANKS];       /* where all ranks get all outputs */

static moxie_status run_and_count(moxie_plan *plan, const moxie_run_args *args, moxie_error *error)
{
    moxie_losses *of = &losses[plan->ranks->rank];
    const moxie_status status = moxie_plan_run(plan, args, error);
    *of = (moxie_losses)MOXIE_LOSSES_INIT;
    moxie_plan_losses(plan, of, NULL);
    return status;
}

static void own_output(int32_t rank, moxie_layer_config *config, moxie_options *options, moxie_run_args *args)
{
    on_devices(rank, config, options, args);
    if (outputs[rank] != NULL)
        args->output = outputs[rank];
}

/* Odd ranks on the host. */
static void on_both(int32_t rank, moxie_layer_config *config, moxie_options *options, moxie_run_args *args)
{
    if (rank % 2 == 0)
        on_devices(rank, config, options, args);
}

/* A layer whose outputs one can predict: no scale covers the batch, and weights do not multiply the input. */
static void plain_layer(test_layer *layer, uint64_t seed)
{
    for (;; seed += 1000003) {
        const moxie_layer_config *c = &layer->config;
        make_layer(layer, seed, (int)(seed % (KINDS - 1)));
        if (c->routing.on_input == 0 && c->routing.zero_experts == 0 && layer->args.tokens > 8 && c->experts > 3)
            break;
        test_layer_free(layer);
    }
    fix_routing(layer);
}

static int32_t home_of(const test_layer *layer, const test_ranks_spec *spec, int32_t expert)
{
    int32_t slot_of[MOXIE_MAX_EXPERTS], slots;
    for (int32_t r = 0; r < spec->ranks; r++) {
        moxie_expert_map((moxie_expert_map_kind)spec->ep_map, (int32_t)layer->config.experts, spec->ranks, r, slot_of,
                         &slots, NULL);
        if (slot_of[expert] >= 0)
            return r;
    }
    return -1;
}

/* The output of one device where rank `self` gets nothing from those that it lost. lost [T]: how many choices. */
static char *without(const test_layer *layer, const test_ranks_spec *spec, bool all, int32_t self, int64_t *lost)
{
    const int64_t k = layer->config.top_k, choices = layer->args.tokens * k;
    test_layer less = *layer;
    int32_t *ids = malloc((size_t)(choices + 1) * sizeof *ids);
    float *weights = malloc((size_t)(choices + 1) * sizeof *weights);
    for (int64_t t = 0; t < layer->args.tokens; t++) {
        float sum = 0, left = 0;
        lost[t] = 0;
        for (int64_t c = t * k; c < (t + 1) * k; c++) {
            const int32_t id = layer->args.ids[c];
            const bool counts = id >= 0 && id < layer->config.experts;
            const int32_t home = counts ? home_of(layer, spec, id) : self;
            const bool gone = all ? home != self : home == spec->absent - 1;
            ids[c] = gone ? -1 : id;
            sum += counts ? layer->args.weights[c] : 0;
            left += counts && !gone ? layer->args.weights[c] : 0;
            lost[t] += gone;
        }
        const bool anew = spec->options.degraded == MOXIE_DEGRADED_RENORMALIZE && lost[t] > 0 && left != 0;
        for (int64_t c = t * k; c < (t + 1) * k; c++)
            weights[c] = anew ? layer->args.weights[c] * sum / left : layer->args.weights[c];
    }
    less.args.ids = ids;
    less.args.weights = weights;
    char *output = test_layer_output(&less, layer->plan);
    free(ids);
    free(weights);
    return output;
}

/* ---- lost ---------------------------------------------------------------------------------------------- */

typedef struct trial {
    test_layer layer;
    test_ranks_spec spec;
    bool all; /* each rank has lost all others */
    size_t row;
} trial;

/* Tokens [first, end) of a rank that is left. */
static void check_tokens(const trial *t, int32_t rank, int64_t first, int64_t end, const char *output)
{
    int64_t lost[128], slots = 0;
    assert_true(t->layer.args.tokens <= 128);
    char *want = without(&t->layer, &t->spec, t->all, rank, lost);
    for (int64_t i = first; i < end; i++) {
        if (memcmp(output + (size_t)i * t->row, want + (size_t)i * t->row, t->row) != 0)
            fail_msg("%s: rank %d of %d: token %lld is not what it is without lost ranks", t->layer.text, (int)rank,
                     (int)t->spec.ranks, (long long)i);
        slots += lost[i];
    }
    assert_int_equal(losses[rank].slots, slots);
    assert_int_equal(losses[rank].ranks, t->all ? t->spec.ranks - 1 : 1);
    free(want);
}

/* Where all ranks get all outputs: those of lost ranks' tokens are zero. */
static void check_zeros(const trial *t, int32_t rank)
{
    int64_t zeros = 0;
    for (int32_t r = 0; r < t->spec.ranks; r++) {
        const int64_t first = r * t->layer.args.tokens / t->spec.ranks;
        const int64_t end = (r + 1) * t->layer.args.tokens / t->spec.ranks;
        const bool gone = t->all ? r != rank : r == t->spec.absent - 1;
        for (size_t b = (size_t)first * t->row; gone && b < (size_t)end * t->row; b++)
            assert_int_equal(outputs[rank][b], 0);
        zeros += gone ? end - first : 0;
    }
    assert_int_equal(losses[rank].tokens, zeros);
}

static void check_survivors(const trial *t, const char *output, const test_rank_result *results)
{
    const test_ranks_spec *spec = &t->spec;
    const int64_t tokens = t->layer.args.tokens;
    for (int32_t r = 0; r < spec->ranks; r++) {
        const bool sharded = spec->layout == MOXIE_TOKENS_SHARDED, all = spec->layout == MOXIE_TOKENS_REPLICATED;
        if (r == spec->absent - 1)
            continue;
        if (results[r].status != MOXIE_OK)
            fail_msg("rank %d: %s", (int)r, results[r].error.text);
        check_tokens(t, r, sharded ? spec->first[r] : r * tokens / spec->ranks,
                     sharded ? spec->first[r + 1] : (r + 1) * tokens / spec->ranks, all ? outputs[r] : output);
        if (all)
            check_zeros(t, r);
    }
}

static void lose(uint64_t seed, int32_t ranks, moxie_comm *(*over)(moxie_comm *, moxie_error *), bool mixed)
{
    trial t = { .all = over != NULL };
    moxie_slot_map map;
    test_rank_result results[TEST_MAX_RANKS];
    plain_layer(&t.layer, seed);
    const size_t bytes = test_layer_output_bytes(&t.layer);
    t.row = (size_t)(t.layer.config.hidden * mox_dtype_bytes(t.layer.config.dtype));
    t.spec = any_spec(&t.layer, seed, ranks, &map);
    t.spec.map = NULL;
    t.spec.tp = 0;
    t.spec.runs = 1;
    t.spec.over = over;
    t.spec.absent = 1 + (int32_t)(seed % (uint64_t)ranks);
    t.spec.options.exchange_capacity = seed % 2 == 0 ? t.layer.args.tokens : 0;
    t.spec.options.degraded = seed / 2 % 2 == 0 ? MOXIE_DEGRADED_KEEP : MOXIE_DEGRADED_RENORMALIZE;
    t.spec.run = run_and_count;
    t.spec.change = mixed ? on_both : own_output;
    for (int32_t r = 0; r < ranks && t.spec.layout == MOXIE_TOKENS_REPLICATED; r++)
        outputs[r] = malloc(bytes + 1);
    char *output = malloc(bytes + 1);
    free(alone(&t.layer, NULL)); /* makes the plan */
    (void)test_ranks_run(&t.layer, &t.spec, output, results);
    check_survivors(&t, output, results);
    for (int32_t r = 0; r < ranks; r++) {
        free(outputs[r]);
        outputs[r] = NULL;
    }
    free(output);
    test_layer_free(&t.layer);
}

void a_lost_rank_leaves_the_rest(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 6; i++)
        lose(test_seed(26700) + i, 2 + (int32_t)(i % 3), NULL, false);
}

/* Of two ranks the one on the host is lost, so all that is left is the device's. */
void a_lost_rank_leaves_a_mixed_comm(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 12; i++)
        if ((test_seed(26800) + i) % 3 != MOXIE_TOKENS_REPLICATED && (test_seed(26800) + i) % 2 == 1)
            lose(test_seed(26800) + i, 2, NULL, true);
}

void ranks_over_nccl_go_on_alone(void **state)
{
    (void)state;
    if (devices < 2 || !has_nccl())
        skip();
    nccl_deadline_ms = 3000;
    for (uint64_t i = 0; i < 3; i++)
        lose(test_seed(26900) + i, 2, over_nccl, false);
    lose(test_seed(26910), devices, over_nccl, false);
    nccl_deadline_ms = 20000;
}

/* ---- anew ---------------------------------------------------------------------------------------------- */

static void start_anew(uint64_t seed, moxie_comm *(*over)(moxie_comm *, moxie_error *))
{
    const int32_t ranks = devices > 2 || over == NULL ? 3 : 2, dead = (int32_t)(seed % (uint64_t)ranks);
    test_layer layer;
    moxie_slot_map map, after;
    moxie_error error = { 0 };
    make_layer(&layer, seed, (int)(seed % KINDS));
    char *want = alone(&layer, NULL), *got = malloc(test_layer_output_bytes(&layer) + 1);
    test_ranks_spec spec = any_spec(&layer, seed, ranks, &map);
    spec.tp = 0;
    map = after = test_ranks_map(&layer, &(test_rng) { seed }, ranks);
    after.ranks--;
    after.generation++;
    after.expert_of = test_layer_own(&layer, (size_t)map.slots * 2 * sizeof(int32_t));
    after.first_slot = test_layer_own(&layer, (size_t)ranks * sizeof(int32_t));
    assert_ok(moxie_slot_map_without(&map, &dead, 1, NULL, (int32_t *)(uintptr_t)after.expert_of,
                                     (int32_t *)(uintptr_t)after.first_slot, &after.slots, &error),
              &error);
    test_rng rng = { seed };
    spec.ranks = ranks - 1;
    test_ranks_cut(&spec, &rng, layer.args.tokens);
    spec.map = &after;
    spec.over = over;
    spec.options.exchange_capacity = 0;
    run_ranks(&layer, &spec, got);
    assert_memory_equal(want, got, test_layer_output_bytes(&layer));
    free(want);
    free(got);
    test_layer_free(&layer);
}

void those_that_are_left_start_anew(void **state)
{
    (void)state;
    const bool nccl = devices > 1 && has_nccl();
    for (uint64_t i = 0; i < 2; i++) {
        start_anew(test_seed(26950) + i, NULL);
        if (nccl)
            start_anew(test_seed(26950) + i, over_nccl);
    }
}
