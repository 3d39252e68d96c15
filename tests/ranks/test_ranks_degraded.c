/* SPDX-License-Identifier: Apache-2.0
 *
 * test_ranks_degraded.c - runs that lose a rank and end all the same (options.degraded). A rank stops, leaves or is
 * late at some call of its transport; what the others compute is compared with one rank:
 *
 *     of every token      the bytes of the whole layer, or those of the layer with the lost rank's choices skipped, in
 *                         the second case with weights as they were or renormalized by this test
 *     moxie_plan_losses   as many choices as the tokens of the second kind have with experts of the lost rank
 */
#include "test_faulty.h"
#include "test_ranks.h"

#include <pthread.h>
#include <stdatomic.h>

#include "comm/local/local.h"
#include "layer/plan/plan_ranks.h"

enum { RANKS = 4, TOKENS = 26, TOP_K = 3, EXPERTS = 9 };

/* ms. A trial lasts as long where a rank stops; where one is only late, nobody may give up. */
enum { DEADLINE = 1000, LONG_DEADLINE = 20000, LATE_BY = 20, PATIENCE = 10000 };

typedef enum fault_kind { STOPS, LEAVES, LATE } fault_kind;

typedef struct trial {
    test_layer layer;
    moxie_token_layout layout;
    moxie_degraded degraded;
    int64_t capacity; /* 0: counts are exchanged */
    int64_t chunk;    /* options.exchange_chunk */
    int64_t more;     /* tokens that plans are for, but runs have not */
    fault_kind kind;
    int32_t lost;               /* the faulty rank */
    int64_t calls;              /* of its transport before the fault, from the run on */
    bool masks;                 /* the transport has mask() */
    pthread_barrier_t prepared; /* layers, whose time the deadline does not count */
    atomic_int ended;           /* survivors whose runs have */
    char *whole;                /* [T,H] of one rank */
    int32_t *ids;               /* [T,K] */
    float *weights;
} trial;

typedef struct rank_thread {
    trial *of;
    int32_t rank;
    moxie_comm *comm;
    test_fault fault;
    char *output;        /* as long as the whole output */
    moxie_status status; /* of the run */
    moxie_error error;
    moxie_losses losses;
    bool lost; /* moxie_comm_lost(the faulty rank) */
    int64_t took_ms;
    moxie_status again; /* of a second run */
    moxie_losses losses_again;
    pthread_t thread;
} rank_thread;

static int64_t row_bytes(const trial *t)
{
    return t->layer.config.hidden * mox_dtype_bytes(t->layer.config.dtype);
}

static bool same_row(const trial *t, const char *a, const char *b, int64_t token)
{
    const size_t row = (size_t)row_bytes(t);
    return memcmp(a + (size_t)token * row, b + (size_t)token * row, row) == 0;
}

static bool is_zero(const trial *t, const char *row)
{
    for (int64_t b = 0; b < row_bytes(t); b++)
        if (row[b] != 0)
            return false;
    return true;
}

/* ---- the faults ---------------------------------------------------------------------------------------- */

static void stop(test_fault *fault)
{
    const rank_thread *self = fault->user;
    while (atomic_load(&self->of->ended) < RANKS - 1)
        test_sleep_ms(1);
}

static void be_late(test_fault *fault)
{
    (void)fault;
    test_sleep_ms(LATE_BY);
}

static void arm(rank_thread *self)
{
    static void (*const hooks[])(test_fault *) = { stop, test_fault_leave, be_late };
    self->fault.user = self;
    self->fault.hook = hooks[self->of->kind];
    self->fault.calls_left = self->rank == self->of->lost ? self->of->calls : -1;
}

/* ---- ranks --------------------------------------------------------------------------------------------- */

/* Tokens of a rank: its own, or all. */
static void tokens_of(const trial *t, int32_t rank, int64_t *first, int64_t *count)
{
    const bool sharded = t->layout == MOXIE_TOKENS_SHARDED;
    *first = sharded ? rank * TOKENS / RANKS : 0;
    *count = sharded ? (rank + 1) * TOKENS / RANKS - *first : TOKENS;
}

static void run_plan(rank_thread *self, moxie_plan *plan)
{
    trial *t = self->of;
    int64_t first, count;
    tokens_of(t, self->rank, &first, &count);
    moxie_run_args args = test_ranks_args(&t->layer, first, count);
    args.logits = NULL;
    args.padding = args.bias_choice = NULL;
    args.ids = t->ids + first * TOP_K;
    args.weights = t->weights + first * TOP_K;
    args.output = self->output + first * row_bytes(t);
    test_ranks_workspace(plan, &args);
    arm(self);
    const int64_t begin = test_now_ms();
    self->status = moxie_plan_run(plan, &args, &self->error);
    self->took_ms = test_now_ms() - begin;
    self->losses = (moxie_losses)MOXIE_LOSSES_INIT;
    moxie_plan_losses(plan, &self->losses, NULL);
    self->lost = moxie_comm_lost(self->comm, t->lost) == 1;
    if (self->rank != t->lost || t->kind == LATE) {
        char *second = malloc(test_layer_output_bytes(&t->layer) + 1);
        self->losses_again = self->losses;
        args.output = second + first * row_bytes(t);
        self->again = moxie_plan_run(plan, &args, NULL);
        free(second);
        moxie_plan_losses(plan, &self->losses_again, NULL);
    }
    atomic_fetch_add(&t->ended, self->rank != t->lost);
    while (atomic_load(&t->ended) < RANKS - 1) /* nobody leaves before all have run */
        test_sleep_ms(1);
    free(args.workspace);
}

static void *rank_main(void *user)
{
    rank_thread *self = user;
    trial *t = self->of;
    moxie_layer_config config = t->layer.config;
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_layer *layer = NULL;
    moxie_plan *plan = NULL;
    moxie_error error = { 0 };
    config.ep_size = RANKS;
    config.ep_rank = self->rank;
    options.comm = self->comm;
    options.token_layout = t->layout;
    options.degraded = t->degraded;
    options.exchange_capacity = t->capacity;
    options.exchange_chunk = t->chunk;
    options.max_tokens = TOKENS + t->more;
    moxie_status status = test_ranks_layer(&config, &t->layer.weights, &options, &layer, &error);
    pthread_barrier_wait(&t->prepared);
    if (status == MOXIE_OK)
        status = moxie_plan_create(layer, &options, &plan, &error);
    if (status == MOXIE_OK)
        run_plan(self, plan);
    else
        atomic_fetch_add(&t->ended, 1), self->status = status, self->error = error;
    moxie_plan_destroy(plan);
    moxie_layer_destroy(layer);
    moxie_comm_destroy(self->comm);
    return NULL;
}

static void run_ranks(trial *t, rank_thread *ranks)
{
    moxie_transport transports[RANKS];
    moxie_comm_options options = MOXIE_COMM_OPTIONS_INIT;
    moxie_error error = { 0 };
    options.deadline_ms = t->kind == LATE ? LONG_DEADLINE : DEADLINE;
    atomic_store(&t->ended, 0);
    assert_ok(mox_local_create(RANKS, transports, &error), &error);
    for (int32_t r = 0; r < RANKS; r++) {
        ranks[r] = (rank_thread) { .of = t, .rank = r };
        ranks[r].fault.calls_left = -1;
        ranks[r].output = malloc(test_layer_output_bytes(&t->layer) + 1);
        memset(ranks[r].output, 0xee, test_layer_output_bytes(&t->layer));
        transports[r] = test_faulty(transports[r], &ranks[r].fault);
        if (!t->masks)
            transports[r].mask = NULL;
        assert_ok(moxie_comm_create(&transports[r], &options, &ranks[r].comm, &error), &error);
    }
    pthread_barrier_init(&t->prepared, NULL, RANKS);
    for (int32_t r = 0; r < RANKS; r++)
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]), 0);
    for (int32_t r = 0; r < RANKS; r++)
        pthread_join(ranks[r].thread, NULL);
    pthread_barrier_destroy(&t->prepared);
}

/* ---- what is right ------------------------------------------------------------------------------------- */

/* The rank that has an expert; there are no replicas. */
static int32_t home_of(const trial *t, int32_t expert)
{
    int32_t slot_of[EXPERTS], count;
    for (int32_t r = 0; r < RANKS; r++) {
        moxie_expert_map((moxie_expert_map_kind)t->layer.config.ep_map, EXPERTS, RANKS, r, slot_of, &count, NULL);
        if (slot_of[expert] >= 0)
            return r;
    }
    return -1;
}

/* The output of one rank, without the choices that `refuses` names. *lost [T]: how many those are. */
static char *without(trial *t, bool (*refuses)(const trial *t, int32_t home, int32_t self), int32_t self, int64_t *lost)
{
    moxie_run_args args = t->layer.args;
    int32_t *ids = malloc(TOKENS * TOP_K * sizeof *ids);
    float *weights = malloc(TOKENS * TOP_K * sizeof *weights);
    char *output = malloc(test_layer_output_bytes(&t->layer) + 1);
    moxie_error error = { 0 };
    for (int32_t i = 0; i < TOKENS; i++) {
        float all = 0, left = 0;
        lost[i] = 0;
        for (int32_t j = i * TOP_K; j < (i + 1) * TOP_K; j++) {
            const bool gone = refuses(t, home_of(t, t->ids[j]), self);
            ids[j] = gone ? -1 : t->ids[j];
            all += t->weights[j];
            left += gone ? 0 : t->weights[j];
            lost[i] += gone;
        }
        const bool anew = t->degraded == MOXIE_DEGRADED_RENORMALIZE && lost[i] > 0 && left != 0;
        for (int32_t j = i * TOP_K; j < (i + 1) * TOP_K; j++)
            weights[j] = anew ? t->weights[j] * all / left : t->weights[j];
    }
    args.logits = NULL;
    args.padding = args.bias_choice = NULL;
    args.ids = ids;
    args.weights = weights;
    args.output = output;
    assert_ok(moxie_plan_run(t->layer.plan, &args, &error), &error);
    free(ids);
    free(weights);
    return output;
}

static bool is_of_lost(const trial *t, int32_t home, int32_t self)
{
    (void)self;
    return home == t->lost;
}

static bool is_of_another(const trial *t, int32_t home, int32_t self)
{
    (void)t;
    return home != self;
}

/* Tokens of a survivor: each is whole, or without what is lost; and the report counts the latter. */
static void check_tokens(trial *t, const rank_thread *self, int64_t first, int64_t end, bool absent)
{
    int64_t lost[TOKENS], slots = 0, either = 0; /* either: of zero weights, for example, one cannot tell */
    char *less = without(t, t->masks ? is_of_lost : is_of_another, self->rank, lost);
    for (int64_t i = first; i < end; i++) {
        const bool whole = same_row(t, self->output, t->whole, i), smaller = same_row(t, self->output, less, i);
        if (!whole && !smaller)
            fail_msg(
                "rank %d (%d lost): token %lld is neither whole nor without the choices of rank %d (fault %d at call "
                "%lld): %s",
                (int)self->rank, (int)self->losses.ranks, (long long)i, (int)t->lost, (int)t->kind, (long long)t->calls,
                t->layer.text);
        if (absent && !smaller)
            fail_msg("rank %d: token %lld has results of rank %d, which never came", (int)self->rank, (long long)i,
                     (int)t->lost);
        slots += smaller && !whole ? lost[i] : 0;
        either += smaller && whole ? lost[i] : 0;
    }
    if (self->losses.slots < slots || self->losses.slots > slots + either)
        fail_msg("rank %d reports %lld lost choices, but %lld are missing in its outputs: %s", (int)self->rank,
                 (long long)self->losses.slots, (long long)slots, t->layer.text);
    free(less);
}

static void check_survivor(trial *t, const rank_thread *self)
{
    const bool absent = t->kind == STOPS && t->calls == 0;
    int64_t first, count;
    tokens_of(t, self->rank, &first, &count);
    if (self->status != MOXIE_OK)
        fail_msg("rank %d: %s", (int)self->rank, self->error.text);
    if (self->took_ms > DEADLINE + PATIENCE)
        fail_msg("rank %d took %lld ms", (int)self->rank, (long long)self->took_ms);
    if (t->layout != MOXIE_TOKENS_SHARDED) {
        first = self->rank * TOKENS / RANKS;
        count = (self->rank + 1) * TOKENS / RANKS - first;
    }
    if (t->layout != MOXIE_TOKENS_SCATTERED)
        check_tokens(t, self, first, first + count, absent);
    if (absent) {
        assert_true(self->lost);
        assert_int_equal(self->losses.ranks, t->masks ? 1 : RANKS - 1);
    }
    if (t->kind == LATE)
        assert_int_equal(self->losses.ranks + self->losses.slots + self->losses.tokens, 0);
    assert_int_equal(self->again, MOXIE_OK);
    if (self->losses.ranks > 0 && t->kind != LATE && t->masks)
        assert_int_equal(self->losses_again.ranks, 1);
}

/* Where all ranks get all outputs: those of the lost rank's tokens are zero, the others as their owner has them. */
static void check_replicated(trial *t, const rank_thread *ranks, const rank_thread *self)
{
    int64_t zero = 0, either = 0;
    for (int64_t i = 0; i < TOKENS; i++) {
        int32_t owner = 0;
        while ((owner + 1) * TOKENS / RANKS <= i)
            owner++;
        const bool empty = is_zero(t, self->output + i * row_bytes(t));
        const bool whole = same_row(t, self->output, t->whole, i);
        const bool same = same_row(t, self->output, ranks[owner].output, i);
        if (owner == t->lost || !t->masks ? owner != self->rank && !empty && !whole : !same)
            fail_msg("rank %d: wrong output of token %lld of rank %d", (int)self->rank, (long long)i, (int)owner);
        zero += owner != self->rank && empty && !whole;
        either += owner != self->rank && empty && whole;
    }
    assert_in_range(self->losses.tokens, zero, zero + either);
}

/* ---- trials -------------------------------------------------------------------------------------------- */

static void begin(trial *t, uint64_t seed)
{
    const test_layer_limits limits = { .tokens = TOKENS,
                                       .experts = EXPERTS,
                                       .top_k = TOP_K,
                                       .no_parallel = true,
                                       .plain_routing = true,
                                       .plain_acts = true };
    test_rng rng = { seed };
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.max_tokens = TOKENS;
    test_layer_make(&t->layer, &rng, &limits);
    t->layer.config.routing.on_input = 0;
    t->layer.config.ep_map = (int32_t)(seed % 2);
    test_layer_plan(&t->layer, &options);
    t->ids = malloc(TOKENS * TOP_K * sizeof *t->ids);
    t->weights = malloc(TOKENS * TOP_K * sizeof *t->weights);
    for (int i = 0; i < TOKENS; i++)
        for (int j = 0; j < TOP_K; j++) { /* distinct experts */
            t->ids[i * TOP_K + j] = (int32_t)((i * 5 + j * (1 + (int)(seed % 3))) % EXPERTS);
            t->weights[i * TOP_K + j] = (float)test_range(&rng, 1, 1000) / 700;
        }
    moxie_run_args args = t->layer.args;
    moxie_error error = { 0 };
    t->whole = malloc(test_layer_output_bytes(&t->layer) + 1);
    args.logits = NULL;
    args.padding = args.bias_choice = NULL;
    args.ids = t->ids;
    args.weights = t->weights;
    args.output = t->whole;
    assert_ok(moxie_plan_run(t->layer.plan, &args, &error), &error);
    t->masks = true;
}

static void end(trial *t)
{
    free(t->whole);
    free(t->ids);
    free(t->weights);
    test_layer_free(&t->layer);
}

static void try(trial *t)
{
    rank_thread ranks[RANKS];
    run_ranks(t, ranks);
    for (int32_t r = 0; r < RANKS; r++)
        if (r != t->lost)
            check_survivor(t, &ranks[r]);
    for (int32_t r = 0; r < RANKS && t->layout == MOXIE_TOKENS_REPLICATED; r++)
        if (r != t->lost)
            check_replicated(t, ranks, &ranks[r]);
    for (int32_t r = 0; r < RANKS; r++)
        free(ranks[r].output);
}

/* A rank that is not there when the run begins. */
static void an_absent_rank(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 7; i++) {
        trial t = { .layout = (moxie_token_layout)(i % 3),
                    .degraded = i % 2 == 0 ? MOXIE_DEGRADED_KEEP : MOXIE_DEGRADED_RENORMALIZE,
                    .kind = STOPS,
                    .capacity = i % 4 < 2 || i == 6 ? TOKENS : 0,
                    .lost = (int32_t)(i % RANKS) };
        begin(&t, 500 + i);
        t.masks = i != 4 && i != 6;
        mox_plan_ranks_test_chunk = i % 4 == 3 ? 3 : 0;
        try(&t);
        mox_plan_ranks_test_chunk = 0;
        end(&t);
    }
}

/* Plans are for 12 tokens of each rank, in two chunks of 6. In the run ranks 0 and 2 own 6 tokens, 1 and 3 own 7: two
 * chunks of 4 and 3. Where both of these are lost, the others have the second chunk, too; 6 tokens would fit in one. */
static void those_with_a_token_more_are_lost(void **state)
{
    (void)state;
    trial t = { .layout = MOXIE_TOKENS_REPLICATED,
                .degraded = MOXIE_DEGRADED_KEEP,
                .kind = STOPS,
                .lost = 3,
                .chunk = 6,
                .more = 22 };
    begin(&t, 600);
    t.masks = false; /* each survivor goes on alone */
    try(&t);
    end(&t);
}

/* A rank that stops, leaves or is late at any call. */
static void a_rank_at_any_time(void **state)
{
    (void)state;
    const int64_t trials = test_env("MOXIE_TEST_TRIALS", test_quick() || test_sanitized() ? 6 : 40);
    const uint64_t first = test_seed(9100);
    for (int64_t i = 0; i < trials; i++) {
        test_rng rng = { first + (uint64_t)i };
        trial t = { .layout = (moxie_token_layout)test_below(&rng, 3),
                    .degraded = test_below(&rng, 2) == 0 ? MOXIE_DEGRADED_KEEP : MOXIE_DEGRADED_RENORMALIZE,
                    .kind = (fault_kind)test_below(&rng, 3),
                    .lost = (int32_t)test_below(&rng, RANKS),
                    .calls = (int64_t)test_below(&rng, 16) };
        begin(&t, first + (uint64_t)i);
        mox_plan_ranks_test_chunk = test_below(&rng, 2) == 0 ? 3 : 0;
        t.capacity = test_below(&rng, 3) == 0 ? TOKENS : 0;
        try(&t);
        mox_plan_ranks_test_chunk = 0;
        end(&t);
    }
}

/* What cannot be done is refused when the plan is made. */
static void what_is_refused(void **state)
{
    (void)state;
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_layer_config config = test_config();
    moxie_comm *comms[2];
    moxie_plan *plan = NULL;
    moxie_error error = { 0 };
    assert_ok(moxie_comm_local_create(2, NULL, comms, &error), &error);
    options.comm = comms[0];
    options.degraded = 3;
    assert_int_equal(moxie_plan_explain(&config, &options, &plan, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "options.degraded is 3"));
    options.degraded = MOXIE_DEGRADED_KEEP;
    config.ep_size = 1;
    config.ep_rank = 0;
    config.tp_size = 2;
    assert_int_equal(moxie_plan_explain(&config, &options, &plan, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "tp_size"));
    config.tp_size = 0;
    config.ep_size = 2;
    config.routing.on_input = 1;
    options.degraded = MOXIE_DEGRADED_RENORMALIZE;
    assert_int_equal(moxie_plan_explain(&config, &options, &plan, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "RENORMALIZE"));
    for (int r = 0; r < 2; r++)
        moxie_comm_destroy(comms[r]);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(an_absent_rank), cmocka_unit_test(a_rank_at_any_time),
                                        cmocka_unit_test(those_with_a_token_more_are_lost),
                                        cmocka_unit_test(what_is_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
