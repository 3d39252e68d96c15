/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_api.c - the public interface: makes a small layer (fuzz_api_layer.c), then calls functions in any order. In any
 * call the n-th allocation may fail.
 *
 * Promises:
 *   - a failed call returns a known status with a text, and does not change its output
 *   - after a failure, objects can be destroyed, and most calls can be repeated
 *   - two equal runs give the same bytes
 *   - outputs of tame layers are finite and within the oracle's bounds; NaNs of other layers are the canonical NaN
 *   - weights packed for another engine are unpacked to the same bytes
 */
#include "fuzz_api.h"

#include <math.h>
#include <moxie/moxie_prepare.h>
#include <moxie/moxie_scheme.h>
#include <string.h>

#include "base/memory.h"

enum { MOST_CALLS = 14, MAX_TENSORS = 64 };

typedef struct session {
    fuzz_bytes b;
    fuzz_layer layer;
    moxie_layer *made;
    moxie_plan *plan;
    moxie_executor executor;
    moxie_options options;
    moxie_error error;
    bool failing; /* an allocation of the current call may fail */
} session;

/* ---- calls ----------------------------------------------------------------------------------------------------- */

/* An executor that runs the tasks on this thread, last first, with worker numbers 0 .. *self - 1 in turn. */
static void run_backwards(void *self, int64_t tasks, moxie_task_fn fn, void *context)
{
    for (int64_t i = tasks - 1; i >= 0; i--)
        fn(context, i, (int32_t)(i % *(const int32_t *)self));
}

static moxie_executor choose_executor(session *s)
{
    static int32_t workers[] = { 1, 2, 3, 4 };
    int32_t *self = &workers[fuzz_below(&s->b, 4)];
    return (moxie_executor) { self, *self, run_backwards };
}

static void begin_call(session *s)
{
    const uint32_t n = fuzz_byte(&s->b);
    s->failing = n >= 0xc0;
    s->error = (moxie_error) { 0 };
    mox_alloc_fail_at(s->failing ? n - 0xbf : 0);
}

/* True when the call succeeded. */
static bool end_call(session *s, moxie_status status)
{
    mox_alloc_fail_at(0);
    FUZZ_CHECK(status >= MOXIE_OK && status <= MOXIE_ERR_TIMEOUT);
    FUZZ_CHECK(status == MOXIE_OK || (s->error.text[0] && s->error.code == status));
    FUZZ_CHECK(status != MOXIE_OK || !s->error.text[0]);
    return status == MOXIE_OK;
}

static void drop_plan(session *s)
{
    moxie_plan_destroy(s->plan);
    s->plan = NULL;
}

static void drop_layer(session *s)
{
    drop_plan(s);
    moxie_layer_destroy(s->made);
    s->made = NULL;
}

static int cancel_at_two(void *user, int64_t done, int64_t total)
{
    (void)user;
    FUZZ_CHECK(done > 0 && done <= total);
    return done == 2;
}

static void choose_options(session *s)
{
    static const char *const isas[] = { NULL,     NULL,  NULL,   NULL, NULL, "scalar", "scalar", "avx2",
                                        "avx512", "amx", "neon", "",   "?",  NULL,     NULL,     NULL };
    const uint32_t with = fuzz_byte(&s->b);
    s->options = (moxie_options)MOXIE_OPTIONS_INIT;
    s->options.max_tokens = FUZZ_TOKENS;
    s->options.isa = isas[fuzz_below(&s->b, sizeof isas / sizeof isas[0])];
    s->options.mode = with & 1;
    if ((with & 0xc2) == 0xc2)
        s->options.backend = (int32_t)fuzz_below(&s->b, 5);
    if (with & 4)
        s->options.executor = &s->executor;
    if ((with & 0x38) == 0x38)
        s->options.progress = cancel_at_two;
    if ((with & 0xf8) == 0xf0)
        s->options.struct_size = fuzz_byte(&s->b);
    s->executor = choose_executor(s);
}

static void create(session *s)
{
    moxie_layer *layer = NULL;
    begin_call(s);
    const bool made = end_call(s, moxie_layer_create(&s->layer.config, &s->options, &layer, &s->error));
    FUZZ_CHECK(made == (layer != NULL));
    if (!made)
        return;
    drop_layer(s);
    s->made = layer;
}

static void prepare(session *s)
{
    if (!s->made)
        return;
    begin_call(s);
    const bool prepared = end_call(s, moxie_layer_prepare(s->made, &s->layer.weights, &s->options, &s->error));
    if (prepared)
        FUZZ_CHECK(moxie_layer_verify(s->made, NULL) == MOXIE_OK);
}

static void plan(session *s)
{
    moxie_plan *made = NULL;
    if (!s->made)
        return;
    begin_call(s);
    const bool good = end_call(s, moxie_plan_create(s->made, &s->options, &made, &s->error));
    FUZZ_CHECK(good == (made != NULL));
    if (!good)
        return;
    drop_plan(s);
    s->plan = made;
    FUZZ_CHECK(moxie_plan_workspace_bytes(made) % 64 == 0 && moxie_plan_step_count(made) > 0);
}

static void explain(session *s)
{
    moxie_layer_config wild = s->layer.config;
    moxie_plan *made = NULL;
    if (fuzz_below(&s->b, 2)) {
        wild.hidden = (int64_t)fuzz_byte(&s->b) << fuzz_below(&s->b, 56);
        wild.intermediate = (int64_t)fuzz_byte(&s->b) << fuzz_below(&s->b, 56);
        wild.struct_size -= fuzz_below(&s->b, 64);
    }
    begin_call(s);
    if (end_call(s, moxie_plan_explain(&wild, &s->options, &made, &s->error)))
        for (int32_t i = 0; i < moxie_plan_step_count(made); i++)
            FUZZ_CHECK(moxie_plan_step_at(made, i)->kernel && moxie_plan_step_at(made, i)->reason);
    moxie_plan_destroy(made);
}

static void update(session *s)
{
    const int64_t expert = (int64_t)fuzz_below(&s->b, FUZZ_EXPERTS + 2) - 1;
    const moxie_expert from = s->layer.experts[fuzz_below(&s->b, FUZZ_EXPERTS)];
    if (!s->made)
        return;
    const bool was_whole = moxie_layer_verify(s->made, NULL) == MOXIE_OK;
    begin_call(s);
    if (end_call(s, moxie_layer_update_expert(s->made, expert, &from, &s->error)))
        s->layer.experts[expert] = from;                                     /* later checks compare with it */
    FUZZ_CHECK(!was_whole || moxie_layer_verify(s->made, NULL) == MOXIE_OK); /* the old expert, or the new one */
}

static void record(session *s)
{
    const void *data = s;
    uint64_t bytes = 77;
    if (!s->made)
        return;
    begin_call(s);
    const int64_t expert = (int64_t)fuzz_below(&s->b, FUZZ_EXPERTS + 2) - 1;
    if (end_call(s, moxie_layer_record(s->made, expert, &data, &bytes, &s->error)))
        FUZZ_CHECK((data != NULL) == (bytes > 0));
    else
        FUZZ_CHECK(data == s && bytes == 77);
}

/* ---- runs ------------------------------------------------------------------------------------------------------ */

static bool is_nan(moxie_dtype dtype, uint32_t code)
{
    return isnan(moxie_decode(dtype, code));
}

/* True when all routing weights are small enough for finite sums. */
static bool weights_are_moderate(const session *s, const moxie_run_args *a)
{
    for (int64_t i = 0; i < a->tokens * s->layer.config.top_k; i++)
        if (!(fabsf(a->weights_out[i]) < 1000))
            return false;
    return true;
}

static void check_output(const session *s, const moxie_run_args *a)
{
    const moxie_dtype dtype = s->layer.config.dtype;
    const size_t bytes = (size_t)moxie_dtype_bits(dtype) / 8;
    const bool finite = s->layer.tame && dtype != MOXIE_F16 && weights_are_moderate(s, a);
    const uint32_t nan = moxie_encode(dtype, NAN);
    for (int64_t i = 0; i < a->tokens * s->layer.config.hidden; i++) {
        uint32_t code = 0;
        memcpy(&code, (const uint8_t *)a->output + (size_t)i * bytes, bytes);
        FUZZ_CHECK(!is_nan(dtype, code) || code == nan);
        FUZZ_CHECK(!finite || isfinite(moxie_decode(dtype, code)));
    }
}

static size_t output_bytes(const session *s, const moxie_run_args *a)
{
    return (size_t)(a->tokens * s->layer.config.hidden * moxie_dtype_bits(s->layer.config.dtype) / 8);
}

/* A run as one call, or as the modular three. */
static moxie_status call_run(session *s, const moxie_run_args *a, uint32_t how, float *rows)
{
    moxie_run_args chosen = *a;
    switch (how) {
    case 0: return moxie_plan_route(s->plan, a, &s->error);
    case 1: return moxie_plan_experts(s->plan, a, rows, &s->error);
    case 2: return moxie_plan_combine(s->plan, a, rows, &s->error);
    case 3:
        chosen.struct_size -= fuzz_below(&s->b, 24);
        chosen.workspace_bytes -= fuzz_below(&s->b, 2);
        return moxie_plan_run(s->plan, &chosen, &s->error);
    default: return moxie_plan_run(s->plan, a, &s->error);
    }
}

static void run(session *s)
{
    if (!s->plan)
        return;
    moxie_run_args a = fuzz_layer_args(&s->layer, &s->b);
    const uint32_t how = fuzz_below(&s->b, 12);
    const size_t rows_bytes = (size_t)(a.tokens * s->layer.config.top_k * s->layer.config.hidden) * sizeof(float);
    float *rows = fuzz_layer_own(&s->layer, rows_bytes);
    a.workspace_bytes = moxie_plan_workspace_bytes(s->plan);
    a.workspace = aligned_alloc(256, (size_t)(a.workspace_bytes + 255) / 256 * 256);
    FUZZ_CHECK(a.workspace);
    memset(a.workspace, 0xff, a.workspace_bytes); /* NaN: a run reads nothing that it has not written */
    begin_call(s);
    if (end_call(s, call_run(s, &a, how, rows)) && how > 3 && a.output) {
        void *first = malloc(output_bytes(s, &a) + 1);
        memcpy(first, a.output, output_bytes(s, &a));
        check_output(s, &a);
        memset(a.workspace, 0x7f, a.workspace_bytes);
        FUZZ_CHECK(moxie_plan_run(s->plan, &a, NULL) == MOXIE_OK);
        FUZZ_CHECK(memcmp(first, a.output, output_bytes(s, &a)) == 0);
        free(first);
    }
    free(a.workspace);
}

static void check(session *s)
{
    moxie_check_report *report = NULL;
    if (!s->plan)
        return;
    moxie_run_args a = fuzz_layer_args(&s->layer, &s->b);
    a.workspace_bytes = moxie_plan_workspace_bytes(s->plan);
    a.workspace = aligned_alloc(256, (size_t)(a.workspace_bytes + 255) / 256 * 256);
    FUZZ_CHECK(a.workspace);
    memset(a.workspace, 0xff, a.workspace_bytes);
    begin_call(s);
    const bool checked = end_call(s, moxie_plan_check(s->plan, &s->layer.weights, &a, &report, &s->error));
    if (checked && s->layer.tame)
        FUZZ_CHECK(moxie_check_report_worst(report) <= 1);
    moxie_check_report_destroy(report);
    free(a.workspace);
}

/* ---- the rest --------------------------------------------------------------------------------------------------- */

static void compare(session *s)
{
    moxie_weights_difference difference = MOXIE_WEIGHTS_DIFFERENCE_INIT;
    const moxie_weights *w = &s->layer.weights;
    begin_call(s);
    if (end_call(s, moxie_weights_compare(&s->layer.config, w, w, &difference, &s->error)))
        FUZZ_CHECK(difference.count == 0);
}

static void quantize(session *s)
{
    enum { ROWS = 3, COLS = 40 };
    float x[ROWS * COLS], scales[ROWS * COLS];
    uint8_t codes[ROWS * COLS];
    const moxie_quant *quants[] = { &s->layer.config.a13, &s->layer.config.a2, &s->layer.config.w13 };
    for (int i = 0; i < ROWS * COLS; i++)
        x[i] = fuzz_layer_number(&s->layer);
    const moxie_quant *q = quants[fuzz_below(&s->b, 3)];
    begin_call(s);
    (void)end_call(
        s, moxie_quantize_activations(q, x, ROWS, COLS, fuzz_layer_number(&s->layer), codes, scales, &s->error));
}

static moxie_status pack_and_unpack(session *s, moxie_preparation *p, moxie_expert *expert)
{
    moxie_preparation_info info = MOXIE_PREPARATION_INFO_INIT;
    moxie_prepared_tensor tensor = MOXIE_PREPARED_TENSOR_INIT;
    void *tensors[MAX_TENSORS];
    const uint64_t sum = fuzz_layer_sum(&s->layer);
    moxie_status status = moxie_preparation_get_info(p, &info, &s->error);
    FUZZ_CHECK(status == MOXIE_OK && info.n_tensors <= MAX_TENSORS);
    for (int32_t i = 0; i < info.n_tensors; i++) {
        FUZZ_CHECK(moxie_preparation_tensor_at(p, i, &tensor));
        tensors[i] = malloc(tensor.bytes ? tensor.bytes : 1);
        FUZZ_CHECK(tensors[i]);
    }
    if (info.surveys)
        status = moxie_preparation_survey(p, expert, &s->error);
    if (status == MOXIE_OK)
        status = moxie_preparation_pack(p, expert, tensors, &s->executor, &s->error);
    if (status == MOXIE_OK)
        status = moxie_preparation_unpack(p, tensors, expert, &s->executor, &s->error);
    if (status == MOXIE_OK)
        FUZZ_CHECK(fuzz_layer_sum(&s->layer) == sum);
    for (int32_t i = 0; i < info.n_tensors; i++)
        free(tensors[i]);
    return status;
}

/* The first layout that accepts the layer, searched from a random one on. */
static moxie_preparation *find_layout(session *s, const moxie_expert *expert)
{
    moxie_prepare_layout layout = MOXIE_PREPARE_LAYOUT_INIT;
    moxie_preparation_options options = MOXIE_PREPARATION_OPTIONS_INIT;
    moxie_preparation *p = NULL;
    options.pad = (int32_t)fuzz_below(&s->b, 2);
    if (fuzz_below(&s->b, 8) == 1) {
        options.tp_size = (int32_t)fuzz_below(&s->b, 3);
        options.tp_rank = (int32_t)fuzz_below(&s->b, 3);
    }
    for (int32_t i = (int32_t)fuzz_below(&s->b, 64); !p && moxie_prepare_layout_at(i, &layout); i++) {
        s->error.text[0] = '\0';
        options.layout = layout.name;
        const moxie_status status = moxie_preparation_create(&s->layer.config, &options, expert, &p, &s->error);
        FUZZ_CHECK((status == MOXIE_OK) == (p != NULL) && (status == MOXIE_OK) == !s->error.text[0]);
    }
    return p;
}

static void prepare_for_others(session *s)
{
    moxie_preparation_facts facts = MOXIE_PREPARATION_FACTS_INIT;
    moxie_expert expert = s->layer.experts[0];
    if (!s->layer.has_weights)
        return;
    moxie_preparation *p = find_layout(s, &expert);
    if (!p)
        return;
    begin_call(s);
    (void)end_call(s, pack_and_unpack(s, p, &expert));
    facts.scale_max[0] = fuzz_layer_number(&s->layer);
    facts.scale_min[0] = fuzz_layer_number(&s->layer);
    begin_call(s);
    if (end_call(s, moxie_preparation_set_facts(p, &facts, &s->error))) {
        begin_call(s);
        (void)end_call(s, pack_and_unpack(s, p, &expert));
    }
    moxie_preparation_destroy(p);
}

static void describe(session *s)
{
    moxie_machine machine = MOXIE_MACHINE_INIT;
    moxie_kernel_info kernel = MOXIE_KERNEL_INFO_INIT;
    machine.struct_size -= fuzz_below(&s->b, 4) == 1 ? fuzz_byte(&s->b) : 0;
    begin_call(s);
    (void)end_call(s, moxie_machine_info(&machine, &s->error));
    (void)moxie_kernel_at((int32_t)fuzz_byte(&s->b) - 3, &kernel);
}

void mox_fuzz_api(const uint8_t *data, uint64_t size)
{
    static void (*const calls[])(
        session *) = { create,   prepare,        plan,      run,       check,    update,
                       record,   explain,        compare,   run,       quantize, prepare_for_others,
                       describe, choose_options, drop_plan, drop_layer };
    session s = { .b = { data, size } };
    fuzz_layer_make(&s.layer, &s.b);
    choose_options(&s);
    create(&s);
    prepare(&s);
    plan(&s);
    for (int i = 0; i < MOST_CALLS && s.b.left > 0; i++)
        calls[fuzz_below(&s.b, sizeof calls / sizeof calls[0])](&s);
    drop_layer(&s);
    fuzz_layer_free(&s.layer);
}
