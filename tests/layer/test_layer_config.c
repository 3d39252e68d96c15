/* SPDX-License-Identifier: Apache-2.0
 *
 * test_layer_config.c - every rule of configurations and options rejects with a text that names it; structs of other
 * versions of the header are read.
 */
#include <math.h>
#include <stddef.h>

#include "test_layer.h"

/* ---- configurations -------------------------------------------------------------------------------------- */

static void rejected(const moxie_layer_config *c, moxie_status status, const char *words)
{
    moxie_error error = { 0 };
    moxie_plan *plan = NULL;
    assert_int_equal(moxie_layer_config_check(c, &error), status);
    if (strstr(error.text, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.text, words);
    assert_int_equal(moxie_plan_explain(c, NULL, &plan, NULL), status);
    assert_null(plan);
}

#define REJECTED(words, ...)                                                                                           \
    do {                                                                                                               \
        moxie_layer_config c = test_config();                                                                          \
        __VA_ARGS__;                                                                                                   \
        rejected(&c, MOXIE_ERR_ARGUMENT, words);                                                                       \
    } while (0)

static void rules_of_a_configuration(void **state)
{
    (void)state;
    const moxie_layer_config good = test_config();
    moxie_error error;
    assert_ok(moxie_layer_config_check(&good, &error), &error);
    REJECTED("dtype", c.dtype = MOXIE_I8);
    REJECTED("experts is 0", c.experts = 0);
    REJECTED("1024", c.experts = 1025);
    REJECTED("only 8 experts", c.top_k = 9);
    REJECTED("top_k is 33", c.experts = 100; c.top_k = 33);
    REJECTED("hidden is 0", c.hidden = 0);
    REJECTED("intermediate is -1", c.intermediate = -1);
    REJECTED("router_width", c.router_width = -5);
    REJECTED("no router", c.router_has_bias = 1);
    REJECTED("activation.kind is 7", c.activation.kind = 7);
    REJECTED("activation.kind is 22", c.activation.kind = 22);
    REJECTED("limits must not be negative", c.activation.gate_limit = -1);
    REJECTED("must be finite", c.activation.alpha = NAN);
    REJECTED("w13", c.w13.scale = MOXIE_DTYPE_NONE);
    REJECTED("w2", c.w2.has_zero = 1);
    REJECTED("a13", c.a13.element = MOXIE_BF16);
    REJECTED("routing", c.routing.n_group = 3; c.routing.topk_group = 1);
    REJECTED("shared.intermediate is -1", c.shared.intermediate = -1);
    REJECTED("no shared expert", c.shared.has_gate = 1);
    REJECTED("shared w13", c.shared.intermediate = 8);
    REJECTED("ep_size is -1", c.ep_size = -1);
    REJECTED("ep_rank is 2", c.ep_size = 2; c.ep_rank = 2);
    REJECTED("ep_rank is 1", c.ep_rank = 1);
    REJECTED("ep_map is 7", c.ep_size = 2; c.ep_map = 7);
}

static void structs_of_other_versions(void **state)
{
    (void)state;
    moxie_error error;
    moxie_plan *plan = NULL;
    /* An older caller's configuration ends before the parallel fields: they are zero, whatever lies behind. */
    moxie_layer_config old = test_config();
    old.struct_size = offsetof(moxie_layer_config, ep_size);
    old.ep_size = -1;
    assert_ok(moxie_layer_config_check(&old, &error), &error);
    /* A newer caller's is longer; its tail must be zero. */
    struct {
        moxie_layer_config config;
        uint64_t tail[2];
    } newer = { .config = test_config() };
    newer.config.struct_size = sizeof newer;
    assert_ok(moxie_layer_config_check(&newer.config, &error), &error);
    newer.tail[1] = 1;
    assert_int_equal(moxie_layer_config_check(&newer.config, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "newer header"));
    /* Forgotten. */
    moxie_layer_config unset = test_config();
    unset.struct_size = 0;
    assert_int_equal(moxie_layer_config_check(&unset, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "INIT"));
    const moxie_layer_config good = test_config();
    moxie_options options = { 0 };
    assert_int_equal(moxie_plan_explain(&good, &options, &plan, &error), MOXIE_ERR_ARGUMENT);
    assert_null(plan);
}

/* ---- options --------------------------------------------------------------------------------------------- */

static void options_rejected(moxie_options options, moxie_status status, const char *words)
{
    moxie_error error = { 0 };
    moxie_plan *plan = NULL;
    const moxie_layer_config c = test_config();
    assert_int_equal(moxie_plan_explain(&c, &options, &plan, &error), status);
    if (strstr(error.text, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.text, words);
    assert_null(plan);
}

static void rules_of_options(void **state)
{
    (void)state;
    const moxie_options init = MOXIE_OPTIONS_INIT;
    const moxie_executor none = { .workers = 1 };
    moxie_options o = init;
    o.backend = MOXIE_BACKEND_CUDA;
    options_rejected(o, MOXIE_ERR_UNSUPPORTED, "libmoxie_cuda");
    o.backend = 9;
    options_rejected(o, MOXIE_ERR_ARGUMENT, "backend is 9");
    o = init;
    o.mode = 2;
    options_rejected(o, MOXIE_ERR_ARGUMENT, "mode is 2");
    o = init;
    o.isa = "mmx";
    options_rejected(o, MOXIE_ERR_ARGUMENT, "mmx");
#if defined(__x86_64__)
    o.isa = "neon";
    options_rejected(o, MOXIE_ERR_ARGUMENT, "another architecture, this is x86-64; give scalar, avx2, avx512 or amx");
#elif defined(__aarch64__)
    o.isa = "amx";
    options_rejected(o, MOXIE_ERR_ARGUMENT, "another architecture, this is 64-bit ARM; give scalar or neon");
#endif
    o = init;
    o.max_tokens = -1;
    options_rejected(o, MOXIE_ERR_ARGUMENT, "max_tokens is -1");
    o = init;
    o.executor = &none;
    options_rejected(o, MOXIE_ERR_ARGUMENT, "no run function");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_of_a_configuration),
        cmocka_unit_test(structs_of_other_versions),
        cmocka_unit_test(rules_of_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
