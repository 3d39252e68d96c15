/* SPDX-License-Identifier: Apache-2.0
 *
 * test_batch_invariance.c - small layers of every weight format, plain and with quantized activations, at every class
 * of instructions that this machine has: a token's output bytes are those that it gets alone,
 *
 *     in batches of every size from 1 to 130, of 257, 512 and 1031, in one pass and in several
 *     on 1, 2, 3, 5 and 8 workers
 *
 * and where two classes promise the same sums in both products, their bytes are equal too.
 *
 * By default lesser classes than the best take some of the sizes; MOXIE_TEST_LONG=1 takes every size everywhere, and
 * every weight format with every activation format.
 */
#include "base/cpu_features.h"
#include "layer/plan/plan.h"
#include "small_layer.h"
#include "test_executors.h"

enum { ALONE = 130, MOST = 1031, TOP_K = 3 };

typedef struct pair {
    const char *weight, *act;
} pair;

/* Beside all weight formats with plain activations. */
static const pair quantized[] = {
    { "fp8 block 128x128", "fp8 1x128" },
    { "fp8 block ue8m0", "fp8 1x128 ue8m0" },
    { "fp8 per channel", "fp8 token" },
    { "fp8 per tensor", "fp8 tensor static" },
    { "mxfp8", "mxfp8" },
    { "mxfp4", "mxfp8" },
    { "mxfp4", "mxfp4" },
    { "mxfp6 e3m2", "mxfp6 e3m2" },
    { "mxfp6 e2m3", "mxfp6 e2m3" },
    { "nvfp4 divide", "nvfp4 divide" },
    { "nvfp4 multiply", "nvfp4 multiply" },
    { "int8 per channel", "int8 token away" },
    { "int8 per channel", "int8 token" },
    { "int8 per channel", "int8 tensor static" },
    { "int8 words g64", "int8 1x64" },
    { "int8 g32", "int8 1x128" },
    { "int4 words g32", "int8 token" },
    { "int4 channel zero", "int8 token" },
    { "mxint4", "fp8 token" },
    { "int4 row pairs g128", "fp8 1x128" },
};
enum { QUANTIZED = sizeof quantized / sizeof quantized[0] };

/* ---- the subject ---------------------------------------------------------------------------------------------- */

/* One layer, its tokens again and again in a row, and what each of the first ALONE gives by itself. */
typedef struct subject {
    test_layer t;
    int64_t turn;    /* number of the pair of formats */
    size_t row;      /* bytes of a token's hidden state, and of its output */
    uint8_t *hidden; /* [MOST + ALONE] */
    int32_t *ids;    /* [MOST + ALONE, TOP_K] */
    float *weights;
    uint8_t *alone; /* [ALONE] */
} subject;

/* Two groups of the format in a row at least, and neither size a multiple of anything. */
static small_spec spec_of(const test_weight_quant *weight, const test_act_quant *act, int64_t number)
{
    static const moxie_dtype dtypes[] = { MOXIE_BF16, MOXIE_F16, MOXIE_BF16, MOXIE_F32 };
    const bool wide = weight->quant.group_cols > 64 || act->quant.group_cols > 64;
    return (small_spec) { .weight = weight,
                          .act = act,
                          .dtype = dtypes[number % 4],
                          .experts = 4,
                          .top_k = TOP_K,
                          .hidden = wide ? 165 : 85,
                          .intermediate = wide ? 139 : 71,
                          .tokens = ALONE,
                          .bias = number % 2 == 0,
                          .shared = number % 3 == 0,
                          .shared_gate = number % 6 == 0,
                          .on_input = number % 5 == 0,
                          .choice = SMALL_IDS };
}

static void make_subject(subject *s, const small_spec *spec, int64_t turn)
{
    test_rng rng = { test_seed(7600) };
    memset(s, 0, sizeof *s);
    s->turn = turn;
    small_layer_make(&s->t, &rng, spec);
    s->row = (size_t)(spec->hidden * mox_dtype_bytes(spec->dtype));
    s->hidden = malloc((MOST + ALONE) * s->row);
    s->ids = malloc((MOST + ALONE) * TOP_K * sizeof *s->ids);
    s->weights = malloc((MOST + ALONE) * TOP_K * sizeof *s->weights);
    s->alone = malloc(ALONE * s->row);
    for (size_t t = 0; t < MOST + ALONE; t++) {
        memcpy(s->hidden + t * s->row, (const uint8_t *)s->t.args.hidden + t % ALONE * s->row, s->row);
        memcpy(s->ids + t * TOP_K, s->t.args.ids + t % ALONE * TOP_K, TOP_K * sizeof *s->ids);
        memcpy(s->weights + t * TOP_K, s->t.args.weights + t % ALONE * TOP_K, TOP_K * sizeof *s->weights);
    }
}

static void free_subject(subject *s)
{
    free(s->hidden);
    free(s->ids);
    free(s->weights);
    free(s->alone);
    test_layer_free(&s->t);
}

/* A plan with memory of its own. */
typedef struct planned {
    moxie_plan *plan;
    uint64_t bytes;
    void *workspace;
} planned;

static planned make_plan(const moxie_layer *layer, const char *isa, const moxie_executor *executor)
{
    planned p;
    moxie_error error;
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.isa = isa;
    options.executor = executor;
    options.max_tokens = MOST;
    assert_ok(moxie_plan_create(layer, &options, &p.plan, &error), &error);
    p.bytes = moxie_plan_workspace_bytes(p.plan);
    p.workspace = test_guarded(p.bytes);
    memset(p.workspace, 0xff, p.bytes);
    return p;
}

static void free_plan(planned *p)
{
    moxie_plan_destroy(p->plan);
    test_guarded_free(p->workspace, p->bytes);
}

/* Tokens [first, first + tokens) to `out`. */
static void run(const subject *s, const planned *p, int64_t first, int64_t tokens, void *out)
{
    moxie_error error;
    moxie_run_args args = MOXIE_RUN_ARGS_INIT;
    args.tokens = tokens;
    args.hidden = s->hidden + (size_t)first * s->row;
    args.ids = s->ids + first * TOP_K;
    args.weights = s->weights + first * TOP_K;
    args.output = out;
    args.workspace = p->workspace;
    args.workspace_bytes = p->bytes;
    assert_ok(moxie_plan_run(p->plan, &args, &error), &error);
}

/* A batch somewhere among the tokens gives each what it gets alone. `where` is for the message. */
static void check_batch(const subject *s, const planned *p, int64_t tokens, const char *isa, const char *where)
{
    const int64_t first = tokens * 37 % ALONE;
    uint8_t *out = test_guarded((size_t)tokens * s->row);
    memset(out, 0xee, (size_t)tokens * s->row);
    run(s, p, first, tokens, out);
    for (int64_t t = 0; t < tokens; t++)
        if (memcmp(out + (size_t)t * s->row, s->alone + (size_t)((first + t) % ALONE) * s->row, s->row) != 0)
            fail_msg("%s, isa %s, %s: token %lld of %lld differs from itself alone", s->t.text,
                     isa != NULL ? isa : "best", where, (long long)t, (long long)tokens);
    test_guarded_free(out, (size_t)tokens * s->row);
}

/* ---- what is tried --------------------------------------------------------------------------------------------- */

static const int64_t some_sizes[] = { 1, 2, 3, 4, 5, 7, 8, 9, 11, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 130 };
static const int64_t large_sizes[] = { 257, 512, MOST };

enum {
    SOME_SIZES = sizeof some_sizes / sizeof some_sizes[0],
    LARGE_SIZES = sizeof large_sizes / sizeof large_sizes[0]
};

/* One in so many of the sizes, and of the numbers of workers. */
static int64_t fewer_sizes = 1, fewer_workers = 1;

static void check_sizes(const subject *s, const planned *p, const char *isa, bool every)
{
    const int64_t first = s->turn % fewer_sizes;
    for (int64_t i = first; !every && i < SOME_SIZES; i += fewer_sizes)
        check_batch(s, p, some_sizes[i], isa, "one pass");
    for (int64_t tokens = 1 + first; every && tokens <= ALONE; tokens += fewer_sizes)
        check_batch(s, p, tokens, isa, "one pass");
    for (int64_t i = first; every && i < LARGE_SIZES; i += fewer_sizes)
        check_batch(s, p, large_sizes[i], isa, "one pass");
    const int64_t pass = p->plan->pass_tokens, most = fewer_sizes > 1 ? 83 : 200;
    p->plan->pass_tokens = pass < most ? pass : most; /* the workspace is for more */
    check_batch(s, p, fewer_sizes > 1 ? 2 * most + 1 : MOST, isa, "several passes");
    p->plan->pass_tokens = pass;
}

static void check_workers(const subject *s, const moxie_layer *layer, const char *isa, bool every)
{
    static const int32_t workers[] = { 1, 2, 3, 5, 8 };
    static const int64_t sizes[] = { 1, 8, 33, 130, 257 };
    for (int64_t w = s->turn % fewer_workers; w < (int64_t)(sizeof workers / sizeof workers[0]); w += fewer_workers) {
        char where[64];
        test_executor executor;
        test_executor_init(&executor, workers[w], TEST_THREADS);
        planned p = make_plan(layer, isa, &executor.executor);
        snprintf(where, sizeof where, "%d workers", (int)workers[w]);
        for (size_t i = every ? 0 : (size_t)w % 2; i < sizeof sizes / sizeof sizes[0]; i += every ? 1 : 2)
            check_batch(s, &p, sizes[i], isa, where);
        free_plan(&p);
    }
}

/* The rows of both products of routed and shared experts. */
typedef struct products {
    const mox_kernel *kernel[4];
} products;

static products products_of(const moxie_plan *plan)
{
    const mox_expert_kernels *r = &plan->kernels.experts[MOX_ROUTED], *s = &plan->kernels.experts[MOX_SHARED_EXPERT];
    return (products) { { r->product[0], r->product[1], s->product[0], s->product[1] } };
}

/* Rows of one layout, class and sum give the same bits. */
static bool promise_the_same(const products *a, const products *b)
{
    for (int i = 0; i < 4; i++) {
        const mox_kernel *x = a->kernel[i], *y = b->kernel[i];
        if (x != y && (strcmp(x->layout, y->layout) != 0 || x->exactness != y->exactness ||
                       mox_backend_host.sum(x) != mox_backend_host.sum(y)))
            return false;
    }
    return true;
}

#if defined(__x86_64__)
static const char *const isas[] = { NULL, "avx512", "avx2", "scalar" };
#else
static const char *const isas[] = { NULL, "scalar" };
#endif
enum { ISAS = sizeof isas / sizeof isas[0] };

/* One that is less than what MOXIE_MAX_ISA and the machine allow. */
static bool differs_from_best(const char *name)
{
    mox_isa isa;
    moxie_error error;
    assert_ok(mox_isa_from_name(name, &isa, &error), &error);
    return isa < mox_cpu()->allowed;
}

/* What class i gives each token alone. */
typedef struct given {
    products products;
    uint8_t *alone;
} given;

static moxie_layer *make_layer(const subject *s, const char *isa)
{
    moxie_layer *layer = NULL;
    moxie_error error;
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.isa = isa;
    assert_ok(moxie_layer_create(&s->t.config, &options, &layer, &error), &error);
    assert_ok(moxie_layer_prepare(layer, &s->t.weights, &options, &error), &error);
    return layer;
}

/* Classes that have the same products as a better one are asked for single tokens only. */
static void check_class(subject *s, given *all, int i, bool thorough)
{
    moxie_layer *layer = make_layer(s, isas[i]);
    planned p = make_plan(layer, isas[i], NULL);
    bool seen = false;
    for (int64_t t = 0; t < ALONE; t++)
        run(s, &p, t, 1, s->alone + (size_t)t * s->row);
    all[i].products = products_of(p.plan);
    all[i].alone = malloc(ALONE * s->row);
    memcpy(all[i].alone, s->alone, ALONE * s->row);
    for (int j = 0; j < i; j++) {
        if (all[j].alone == NULL || !promise_the_same(&all[i].products, &all[j].products))
            continue;
        seen = seen || memcmp(&all[i].products, &all[j].products, sizeof(products)) == 0;
        if (memcmp(all[i].alone, all[j].alone, ALONE * s->row) != 0)
            fail_msg("%s: isa %s and isa %s promise the same sums and differ", s->t.text, isas[i],
                     isas[j] != NULL ? isas[j] : "best");
    }
    if (thorough || !seen) {
        check_sizes(s, &p, isas[i], thorough || i == 0);
        check_workers(s, layer, isas[i], thorough);
    }
    free_plan(&p);
    moxie_layer_destroy(layer);
}

static void check_pair(const small_spec *spec, int64_t turn, bool thorough)
{
    given all[ISAS];
    subject s;
    memset(all, 0, sizeof all);
    make_subject(&s, spec, turn);
    for (int i = 0; i < ISAS; i++)
        if (isas[i] == NULL || differs_from_best(isas[i]))
            check_class(&s, all, i, thorough);
    for (int i = 0; i < ISAS; i++)
        free(all[i].alone);
    free_subject(&s);
}

static void every_weight_format(void **state)
{
    (void)state;
    const bool thorough = test_env("MOXIE_TEST_LONG", 0) != 0;
    for (int w = 0; w < test_weight_quant_count; w++) {
        const small_spec spec = spec_of(&test_weight_quants[w], test_act_quant_named("none"), w);
        check_pair(&spec, w, thorough);
    }
}

static void quantized_activations(void **state)
{
    (void)state;
    const bool thorough = test_env("MOXIE_TEST_LONG", 0) != 0;
    for (int i = 0; i < QUANTIZED; i++) {
        const small_spec spec =
            spec_of(test_weight_quant_named(quantized[i].weight), test_act_quant_named(quantized[i].act), i);
        check_pair(&spec, i, thorough);
    }
}

static void every_pair_of_formats(void **state)
{
    (void)state;
    int64_t number = 0;
    for (int w = 0; w < test_weight_quant_count; w++)
        for (int a = 1; a < test_act_quant_count; a++)
            if (!mox_act_quant_needs_amax(&test_act_quants[a].quant)) {
                const small_spec spec = spec_of(&test_weight_quants[w], &test_act_quants[a], number);
                check_pair(&spec, number++, true);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_weight_format),
                                        cmocka_unit_test(quantized_activations) };
    const struct CMUnitTest all[] = { cmocka_unit_test(every_weight_format), cmocka_unit_test(quantized_activations),
                                      cmocka_unit_test(every_pair_of_formats) };
    fewer_sizes = test_quick_one_in(20, "sizes of a batch for each format");
    fewer_workers = test_quick_one_in(5, "numbers of workers for each format");
    return test_env("MOXIE_TEST_LONG", 0) != 0 ? cmocka_run_group_tests(all, NULL, NULL)
                                               : cmocka_run_group_tests(tests, NULL, NULL);
}
