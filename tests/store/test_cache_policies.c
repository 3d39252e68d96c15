/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cache_policies.c - caches of experts: every policy against its definition written down anew, the best cache
 * against all possible ones, the default against the others on made-up traces, and a prefill beside decode.
 */
#include "test_traces.h"

#include <math.h>

#include "store/expert_cache.h"

enum { MAX_E = 24, STEPS = 300 };

/* ---- each policy, from the whole history --------------------------------------------------------------- */

typedef struct plain {
    int32_t experts, slots, held;
    int32_t in[MAX_E];
    int64_t now;
    bool used[STEPS + 1][MAX_E]; /* in step 1, 2, ... */
    int64_t warm_steps;
    double half_life;
} plain;

static int64_t last_of(const plain *p, int32_t e)
{
    int64_t s = p->now;
    while (s > 0 && !p->used[s][e])
        s--;
    return s;
}

static double worth_of(const plain *p, const char *policy, int32_t e)
{
    double sum = 0;
    if (!strcmp(policy, "lru"))
        return (double)last_of(p, e);
    for (int64_t s = 1; s <= p->now; s++) {
        const bool fades = !strcmp(policy, "lfru") || !strcmp(policy, "frozen");
        if (p->used[s][e] && (strcmp(policy, "pinned") || s <= p->warm_steps))
            sum += fades ? pow(2, (double)(s - p->now) / p->half_life) : 1;
    }
    return sum;
}

/* Whether a is worth more than b. Sums in another order differ in their last bits: those are ties. */
static bool more(const plain *p, const char *policy, int32_t a, int32_t b)
{
    const double x = worth_of(p, policy, a), y = worth_of(p, policy, b);
    if (fabs(x - y) > 1e-9 * (fabs(x) + fabs(y)))
        return x > y;
    const int64_t last_a = last_of(p, a), last_b = last_of(p, b);
    return last_a != last_b ? last_a > last_b : a > b;
}

static bool holds(const plain *p, int32_t e)
{
    for (int32_t i = 0; i < p->held; i++)
        if (p->in[i] == e)
            return true;
    return false;
}

/* The miss that is worth most, of those that are not `done`; -1: none. */
static int32_t best_miss(const plain *p, const char *policy, const bool *done)
{
    int32_t best = -1;
    for (int32_t e = 0; e < p->experts; e++)
        if (p->used[p->now][e] && !holds(p, e) && !done[e] && (best < 0 || more(p, policy, e, best)))
            best = e;
    return best;
}

static void plain_step(plain *p, const char *policy, int32_t max_inserts)
{
    bool done[MAX_E] = { false };
    const bool fixed = !strcmp(policy, "pinned") || (!strcmp(policy, "frozen") && p->now > p->warm_steps);
    for (int32_t n = 0; !fixed && (max_inserts == 0 || n < max_inserts || p->held < p->slots); n++) {
        const int32_t e = best_miss(p, policy, done);
        if (e < 0)
            return;
        done[e] = true;
        if (p->held < p->slots) {
            p->in[p->held++] = e;
            continue;
        }
        int32_t victim = -1;
        for (int32_t i = 0; i < p->held; i++)
            if (!p->used[p->now][p->in[i]] && (victim < 0 || more(p, policy, p->in[victim], p->in[i])))
                victim = i;
        if (victim < 0 || (strcmp(policy, "lru") && !more(p, policy, e, p->in[victim])))
            return;
        p->in[victim] = e;
    }
}

static void plain_pin(plain *p)
{
    while (p->held < p->slots) {
        int32_t best = -1;
        for (int32_t e = 0; e < p->experts; e++)
            if (!holds(p, e) && (best < 0 || worth_of(p, "pinned", e) > worth_of(p, "pinned", best)))
                best = e;
        p->in[p->held++] = best;
    }
}

static void compare(const mox_cache_policy *policy, test_rng *rng)
{
    static plain p;
    moxie_error error = { 0 };
    mox_expert_cache *cache = NULL;
    mox_cache_place places[MAX_E];
    mox_cache_options o = { policy, (int32_t)test_range(rng, 1, MAX_E), 1, (int32_t)test_below(rng, 4), 0 };
    o.slots = (int32_t)test_range(rng, 1, o.experts);
    o.half_life = (double)test_range(rng, 1, 40);
    p = (plain) {
        .experts = o.experts, .slots = o.slots, .half_life = o.half_life, .warm_steps = test_range(rng, 1, 90)
    };
    assert_ok(mox_cache_create(&o, &cache, &error), &error);
    while (p.now < STEPS / 3) {
        int32_t list[MAX_E], n = 0;
        p.now++;
        const uint64_t of = 1 + test_below(rng, 6);
        for (int32_t e = 0; e < o.experts; e++)
            if ((p.used[p.now][e] = test_below(rng, (uint64_t)(1 + e)) < of && test_below(rng, 2)))
                list[n++] = e;
        mox_cache_step(cache, list, n, places);
        for (int32_t i = 0; i < n; i++)
            assert_int_equal(places[i].hit, holds(&p, list[i]));
        plain_step(&p, policy->name, o.max_inserts);
        for (int32_t i = 0; i < n; i++)
            assert_int_equal(places[i].slot >= 0, holds(&p, list[i]));
        if (p.now == p.warm_steps) {
            mox_cache_end_warm(cache);
            if (!strcmp(policy->name, "pinned"))
                plain_pin(&p);
        }
        for (int32_t s = 0; s < o.slots; s++) {
            const int32_t e = mox_cache_expert_in(cache, s);
            assert_true(e < 0 ? s >= p.held : holds(&p, e));
        }
    }
    mox_cache_destroy(cache);
}

static void each_policy_is_its_definition(void **state)
{
    (void)state;
    test_rng rng = { .state = test_seed(30) };
    for (int32_t i = 0; mox_cache_policy_at(i); i++)
        for (int trial = 0; trial < 60; trial++)
            compare(mox_cache_policy_at(i), &rng);
}

/* ---- traces --------------------------------------------------------------------------------------------- */

static moxie_trace_info sizes(int32_t layers, int32_t experts, int32_t top_k)
{
    moxie_trace_info info = MOXIE_TRACE_INFO_INIT;
    info.layers = layers;
    info.experts = experts;
    info.top_k = top_k;
    return info;
}

static moxie_trace *open_made(const char *dir, test_trace_kind kind, const moxie_trace_info *info, int64_t steps,
                              uint64_t seed)
{
    char path[512];
    moxie_error error = { 0 };
    moxie_trace *trace = NULL;
    snprintf(path, sizeof path, "%s/trace", dir);
    test_trace_write(path, kind, info, steps, seed);
    assert_ok(moxie_trace_open(path, &trace, &error), &error);
    return trace;
}

static moxie_cache_hits simulate(moxie_trace *trace, const char *policy, int32_t slots, int32_t warm, int32_t inserts)
{
    moxie_error error = { 0 };
    moxie_cache_config config = MOXIE_CACHE_CONFIG_INIT;
    moxie_cache_hits hits = MOXIE_CACHE_HITS_INIT;
    config.policy = policy;
    config.slots = slots;
    config.warm_steps = warm;
    config.max_inserts = inserts;
    config.with_best = 1;
    assert_ok(moxie_trace_simulate(trace, &config, &hits, NULL, &error), &error);
    assert_true(hits.hits <= hits.best_hits && hits.best_hits <= hits.uses);
    return hits;
}

static double rate(const moxie_cache_hits *h)
{
    return (double)h->hits / (double)h->uses;
}

/* A quarter of the experts has slots; a fifth of the steps is for the census. On uniform traces no policy can win: the
 * default loses nothing. */
static void compare_policies(moxie_trace *trace, test_trace_kind kind)
{
    const moxie_cache_hits best = simulate(trace, NULL, 32, 600, 0);
    printf("%-8s best %.3f", test_trace_names[kind], (double)best.best_hits / (double)best.uses);
    for (int32_t i = 0; moxie_cache_policy_at(i, NULL); i++) {
        const char *policy = moxie_cache_policy_at(i, NULL);
        const moxie_cache_hits h = i == 0 ? best : simulate(trace, policy, 32, 600, 0);
        printf("  %s %.3f", policy, rate(&h));
        if (kind == TEST_TRACE_UNIFORM)
            assert_true(fabs(rate(&h) - 0.25) < 0.01);
        else if (!strcmp(policy, "lru") || !strcmp(policy, "pinned"))
            assert_true(rate(&best) > rate(&h) + 0.01);
    }
    printf("\n");
}

static void the_default_wins_at_a_quarter(void **state)
{
    (void)state;
    char *dir = test_tmpdir();
    const moxie_trace_info info = sizes(2, 128, 8);
    for (test_trace_kind kind = 0; kind < TEST_TRACE_KINDS; kind++)
        for (uint64_t seed = 7; seed < 10; seed++) {
            moxie_trace *trace = open_made(dir, kind, &info, 3000, seed);
            compare_policies(trace, kind);
            moxie_trace_close(trace);
        }
    test_rmdir(dir);
}

/* All ways to hold experts, tried. */
static int most_hits(const int32_t (*uses)[2], int steps, int at, unsigned held, int slots, int experts)
{
    if (at == steps)
        return 0;
    const unsigned now = 1u << uses[at][0] | 1u << uses[at][1];
    const int hits = __builtin_popcount(now & held);
    int best = 0;
    for (unsigned next = 0; next < 1u << experts; next++)
        if (__builtin_popcount(next) <= slots && !(next & ~(held | now))) {
            const int more_hits = most_hits(uses, steps, at + 1, next, slots, experts);
            best = more_hits > best ? more_hits : best;
        }
    return hits + best;
}

static void the_best_cache_is_the_best(void **state)
{
    (void)state;
    enum { N = 7, EXPERTS = 5 };
    char *dir = test_tmpdir();
    const moxie_trace_info info = sizes(1, EXPERTS, 2);
    moxie_error error = { 0 };
    for (uint64_t seed = 1; seed < 40; seed++) {
        int32_t uses[N][2];
        moxie_trace *trace = open_made(dir, seed % 2 ? TEST_TRACE_UNIFORM : TEST_TRACE_DOMAINS, &info, N, seed);
        for (int i = 0; i < N; i++) {
            moxie_trace_step step = MOXIE_TRACE_STEP_INIT;
            assert_ok(moxie_trace_read(trace, i, &step, &error), &error);
            memcpy(uses[i], step.ids, sizeof uses[i]);
        }
        const int slots = 1 + (int)(seed % 3);
        const moxie_cache_hits h = simulate(trace, NULL, slots, 0, 0);
        assert_int_equal(h.best_hits, most_hits(uses, N, 0, 0, slots, EXPERTS));
        moxie_trace_close(trace);
    }
    test_rmdir(dir);
}

/* Eight experts decode; then a prompt uses all 64; then the eight decode again. Returns how many of them are still
 * there. */
static int survivors(const char *policy, int32_t max_inserts)
{
    moxie_error error = { 0 };
    mox_expert_cache *cache = NULL;
    mox_cache_place places[64];
    int32_t all[64];
    mox_cache_options o = { NULL, 64, 16, max_inserts, MOXIE_CACHE_HALF_LIFE };
    assert_ok(mox_cache_policy_find(policy, &o.policy, &error), &error);
    assert_ok(mox_cache_create(&o, &cache, &error), &error);
    for (int32_t e = 0; e < 64; e++)
        all[e] = e;
    for (int step = 0; step < 50; step++) {
        const int32_t pair[2] = { step % 8, (step + 3) % 8 };
        mox_cache_step(cache, pair, 2, places);
    }
    for (int chunk = 0; chunk < 2; chunk++) { /* a prompt in two parts, of other experts first */
        mox_cache_step(cache, all + 8, 56, places);
        mox_cache_step(cache, all + 8, 56, places);
    }
    mox_cache_step(cache, all, 8, places);
    int n = 0;
    for (int i = 0; i < 8; i++)
        n += places[i].hit;
    mox_cache_destroy(cache);
    return n;
}

static void prefill_does_not_evict_the_decode_set(void **state)
{
    (void)state;
    assert_int_equal(survivors("lru", 0), 0); /* without a cap it does */
    assert_int_equal(survivors("lru", 1), 5); /* the first step fills the 8 free slots, each of the others takes one */
    assert_int_equal(survivors("lru", 2), 2);
    assert_int_equal(survivors("lfru", 0), 8);
    assert_int_equal(survivors("lfru", 2), 8);
}

static void refusals(void **state)
{
    (void)state;
    char *dir = test_tmpdir();
    const moxie_trace_info info = sizes(1, 8, 2);
    moxie_trace *trace = open_made(dir, TEST_TRACE_UNIFORM, &info, 5, 1);
    moxie_error error = { 0 };
    moxie_cache_hits hits = MOXIE_CACHE_HITS_INIT;
    moxie_cache_config config = MOXIE_CACHE_CONFIG_INIT;
    assert_int_equal(moxie_trace_simulate(trace, &config, &hits, NULL, &error), MOXIE_ERR_ARGUMENT); /* no slots */
    config.slots = 2;
    config.policy = "fifo";
    assert_int_equal(moxie_trace_simulate(trace, &config, &hits, NULL, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "lfru, lru, lfu, pinned, frozen"));
    config.policy = "pinned";
    assert_int_equal(moxie_trace_simulate(trace, &config, &hits, NULL, &error), MOXIE_ERR_ARGUMENT); /* no census */
    const double uses[8] = { 0, 0, 5, 0, 0, 9, 0, 0 };
    config.census = uses;
    int64_t by_layer[2] = { 0 };
    assert_ok(moxie_trace_simulate(trace, &config, &hits, by_layer, &error), &error);
    assert_int_equal(by_layer[0], hits.uses);
    assert_int_equal(hits.inserts, 0);
    int64_t want = 0;
    for (int64_t i = 0; i < 5; i++) {
        moxie_trace_step step = MOXIE_TRACE_STEP_INIT;
        assert_ok(moxie_trace_read(trace, i, &step, &error), &error);
        for (int j = 0; j < 2; j++)
            want += step.ids[j] == 2 || step.ids[j] == 5;
    }
    assert_int_equal(hits.hits, want);
    config.half_life = -1;
    assert_int_equal(moxie_trace_simulate(trace, &config, &hits, NULL, &error), MOXIE_ERR_ARGUMENT);
    moxie_trace_close(trace);
    test_rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_policy_is_its_definition),
        cmocka_unit_test(the_default_wins_at_a_quarter),
        cmocka_unit_test(the_best_cache_is_the_best),
        cmocka_unit_test(prefill_does_not_evict_the_decode_set),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
