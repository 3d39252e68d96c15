/* SPDX-License-Identifier: Apache-2.0
 *
 * test_batch_invariance.c - a token's output bytes in a batch are those of a run with the token alone:
 *
 *     in batches of every size from 1 to 130, of 257, 512 and 1031, in one pass and in several
 *     on 1, 2, 3, 5 and 8 workers
 *
 * for small layers of every weight format, with plain and with quantized activations, at every instruction set of this
 * machine. Where the kernels of two instruction sets sum in the same order, their bytes are equal too.
 *
 * By default only the best instruction set runs all sizes. MOXIE_TEST_LONG=1 runs all sizes everywhere, and every
 * weight format with every activation format.
 */
#include "base/cpu_features.h"
#include "layer/plan/plan.h"
#include "small_layer.h"
#include "test_executors.h"

enum { ALONE = 130, MAX_TOKENS = 1031, TOP_K = 3 };

typedef struct pair {
    const char *weight, *act;
} pair;

/* Pairs with quantized activations; plain activations are tested with all weight formats. */
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

/* ---- layer and batch ------------------------------------------------------------------------------------------ */

/* One layer; ALONE tokens, repeated to a long row of MAX_TOKENS + ALONE; and each token's output when it runs alone. */
typedef struct test_case {
    test_layer t;
    int64_t turn;    /* number of the pair of formats */
    size_t row;      /* bytes of a token's hidden state, and of its output */
    uint8_t *hidden; /* [MAX_TOKENS + ALONE] */
    int32_t *ids;    /* [MAX_TOKENS + ALONE, TOP_K] */
    float *weights;
    uint8_t *alone; /* [ALONE] */
} test_case;

/* Sizes with at least two groups of the formats, and no multiple of a group or a tile. */
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

static void make_case(test_case *s, const small_spec *spec, int64_t turn)
{
    test_rng rng = { test_seed(7600) };
    memset(s, 0, sizeof *s);
    s->turn = turn;
    small_layer_make(&s->t, &rng, spec);
    s->row = (size_t)(spec->hidden * mox_dtype_bytes(spec->dtype));
    s->hidden = malloc((MAX_TOKENS + ALONE) * s->row);
    s->ids = malloc((MAX_TOKENS + ALONE) * TOP_K * sizeof *s->ids);
    s->weights = malloc((MAX_TOKENS + ALONE) * TOP_K * sizeof *s->weights);
    s->alone = malloc(ALONE * s->row);
    for (size_t t = 0; t < MAX_TOKENS + ALONE; t++) {
        memcpy(s->hidden + t * s->row, (const uint8_t *)s->t.args.hidden + t % ALONE * s->row, s->row);
        memcpy(s->ids + t * TOP_K, s->t.args.ids + t % ALONE * TOP_K, TOP_K * sizeof *s->ids);
        memcpy(s->weights + t * TOP_K, s->t.args.weights + t % ALONE * TOP_K, TOP_K * sizeof *s->weights);
    }
}

static void free_case(test_case *s)
{
    free(s->hidden);
    free(s->ids);
    free(s->weights);
    free(s->alone);
    test_layer_free(&s->t);
}

/* A plan and its workspace. */
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
    options.max_tokens = MAX_TOKENS;
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

/* Runs tokens [first, first + tokens) into `out`. */
static void run(const test_case *s, const planned *p, int64_t first, int64_t tokens, void *out)
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

/* Runs a batch and compares each token with its run alone. `where` is for the message. */
static void check_batch(const test_case *s, const planned *p, int64_t tokens, const char *isa, const char *where)
{
    const int64_t first = tokens * 37 % ALONE;
    uint8_t *out = test_guarded((size_t)tokens * s->row);
    memset(out, 0xee, (size_t)tokens * s->row);
    run(s, p, first, tokens, out);
    for (int64_t t = 0; t < tokens; t++)
        if (memcmp(out + (size_t)t * s->row, s->alone + (size_t)((first + t) % ALONE) * s->row, s->row) != 0)
            fail_msg("%s, isa %s, %s: token %lld of %lld differs from a run alone", s->t.text,
                     isa != NULL ? isa : "best", where, (long long)t, (long long)tokens);
    test_guarded_free(out, (size_t)tokens * s->row);
}

/* ---- sizes, workers, instruction sets -------------------------------------------------------------------------- */

static const int64_t some_sizes[] = { 1, 2, 3, 4, 5, 7, 8, 9, 11, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 130 };
static const int64_t large_sizes[] = { 257, 512, MAX_TOKENS };

enum {
    SOME_SIZES = sizeof some_sizes / sizeof some_sizes[0],
    LARGE_SIZES = sizeof large_sizes / sizeof large_sizes[0]
};

/* Of every so many sizes, and numbers of workers, a quick run takes one. With a sanitizer of formats, too: most are
 * decoded by the same code as their neighbours, and other tests meet each of them. */
static int64_t size_stride = 1, worker_stride = 1;
static int format_stride = 1;

static void check_sizes(const test_case *s, const planned *p, const char *isa, bool every)
{
    const int64_t first = s->turn % size_stride;
    for (int64_t i = first; !every && i < SOME_SIZES; i += size_stride)
        check_batch(s, p, some_sizes[i], isa, "one pass");
    for (int64_t tokens = 1 + first; every && tokens <= ALONE; tokens += size_stride)
        check_batch(s, p, tokens, isa, "one pass");
    for (int64_t i = first; every && i < LARGE_SIZES; i += size_stride)
        check_batch(s, p, large_sizes[i], isa, "one pass");
    const int64_t pass = p->plan->pass_tokens, max_pass = size_stride > 1 ? 83 : 200;
    p->plan->pass_tokens = pass < max_pass ? pass : max_pass; /* the workspace is for more */
    check_batch(s, p, size_stride > 1 ? 2 * max_pass + 1 : MAX_TOKENS, isa, "several passes");
    p->plan->pass_tokens = pass;
}

static void check_workers(const test_case *s, const moxie_layer *layer, const char *isa, bool every)
{
    static const int32_t workers[] = { 1, 2, 3, 5, 8 };
    static const int64_t sizes[] = { 1, 8, 33, 130, 257 };
    for (int64_t w = s->turn % worker_stride; w < (int64_t)(sizeof workers / sizeof workers[0]); w += worker_stride) {
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

/* The kernels of both products of routed and shared experts. */
typedef struct products {
    const mox_kernel *kernel[4];
} products;

static products products_of(const moxie_plan *plan)
{
    const mox_expert_kernels *r = &plan->kernels.experts[MOX_ROUTED], *s = &plan->kernels.experts[MOX_SHARED_EXPERT];
    return (products) { { r->product[0], r->product[1], s->product[0], s->product[1] } };
}

/* Kernels with the same layout, class and order of summation give the same bits. */
static bool have_same_bits(const products *a, const products *b)
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

/* Whether an instruction set is below the best that MOXIE_MAX_ISA and the machine allow. */
static bool is_below_best(const char *name)
{
    mox_isa isa;
    moxie_error error;
    assert_ok(mox_isa_from_name(name, &isa, &error), &error);
    return isa < mox_cpu()->allowed;
}

/* One instruction set's kernels and outputs. */
typedef struct outcome {
    products products;
    uint8_t *alone; /* each token's output when it runs alone */
} outcome;

static moxie_layer *make_layer(const test_case *s, const char *isa)
{
    moxie_layer *layer = NULL;
    moxie_error error;
    moxie_options options = MOXIE_OPTIONS_INIT;
    options.isa = isa;
    assert_ok(moxie_layer_create(&s->t.config, &options, &layer, &error), &error);
    assert_ok(moxie_layer_prepare(layer, &s->t.weights, &options, &error), &error);
    return layer;
}

/* Checks instruction set i. If a better one has the same kernels, only single tokens run. */
static void check_isa(test_case *s, outcome *all, int i, bool thorough)
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
        if (all[j].alone == NULL || !have_same_bits(&all[i].products, &all[j].products))
            continue;
        seen = seen || memcmp(&all[i].products, &all[j].products, sizeof(products)) == 0;
        if (memcmp(all[i].alone, all[j].alone, ALONE * s->row) != 0)
            fail_msg("%s: isa %s and isa %s sum in the same order but differ", s->t.text, isas[i],
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
    outcome all[ISAS];
    test_case s;
    memset(all, 0, sizeof all);
    make_case(&s, spec, turn);
    for (int i = 0; i < ISAS; i++)
        if (isas[i] == NULL || is_below_best(isas[i]))
            check_isa(&s, all, i, thorough);
    for (int i = 0; i < ISAS; i++)
        free(all[i].alone);
    free_case(&s);
}

static void every_weight_format(void **state)
{
    (void)state;
    const bool thorough = test_env("MOXIE_TEST_LONG", 0) != 0;
    for (int w = 0; w < test_weight_quant_count; w += format_stride) {
        const small_spec spec = spec_of(&test_weight_quants[w], test_act_quant_named("none"), w);
        check_pair(&spec, w, thorough);
    }
}

static void quantized_activations(void **state)
{
    (void)state;
    const bool thorough = test_env("MOXIE_TEST_LONG", 0) != 0;
    for (int i = 0; i < QUANTIZED; i += format_stride) {
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
    size_stride = test_quick_one_in(20, "sizes of a batch for each format");
    worker_stride = test_quick_one_in(5, "numbers of workers for each format");
    format_stride = test_sanitized() ? (int)test_quick_one_in(2, "formats") : 1;
    return test_env("MOXIE_TEST_LONG", 0) != 0 ? cmocka_run_group_tests(all, NULL, NULL)
                                               : cmocka_run_group_tests(tests, NULL, NULL);
}
