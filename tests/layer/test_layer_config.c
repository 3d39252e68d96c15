/* SPDX-License-Identifier: Apache-2.0
 *
 * test_layer_config.c - what configurations and options are refused for, each rule by its words, and structs of other
 * versions of the header.
 */
#include <math.h>
#include <stddef.h>

#include "test_layer.h"

/* ---- configurations -------------------------------------------------------------------------------------- */

static void refused(const moxie_layer_config *c, moxie_status status, const char *words)
{
    moxie_error error = { 0 };
    moxie_plan *plan = NULL;
    assert_int_equal(moxie_layer_config_check(c, &error), status);
    if (strstr(error.text, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.text, words);
    assert_int_equal(moxie_plan_explain(c, NULL, &plan, NULL), status);
    assert_null(plan);
}

#define REFUSED(words, ...)                                                                                            \
    do {                                                                                                               \
        moxie_layer_config c = test_config();                                                                          \
        __VA_ARGS__;                                                                                                   \
        refused(&c, MOXIE_ERR_ARGUMENT, words);                                                                        \
    } while (0)

static void rules_of_a_configuration(void **state)
{
    (void)state;
    const moxie_layer_config good = test_config();
    moxie_error error;
    assert_ok(moxie_layer_config_check(&good, &error), &error);
    REFUSED("dtype", c.dtype = MOXIE_I8);
    REFUSED("experts is 0", c.experts = 0);
    REFUSED("1024", c.experts = 1025);
    REFUSED("only 8 experts", c.top_k = 9);
    REFUSED("top_k is 33", c.experts = 100; c.top_k = 33);
    REFUSED("hidden is 0", c.hidden = 0);
    REFUSED("intermediate is -1", c.intermediate = -1);
    REFUSED("router_width", c.router_width = -5);
    REFUSED("no router", c.router_has_bias = 1);
    REFUSED("activation.kind is 6", c.activation.kind = 6);
    REFUSED("activation.kind is 22", c.activation.kind = 22);
    REFUSED("limits must not be negative", c.activation.gate_limit = -1);
    REFUSED("must be finite", c.activation.alpha = NAN);
    REFUSED("w13", c.w13.scale = MOXIE_DTYPE_NONE);
    REFUSED("w2", c.w2.has_zero = 1);
    REFUSED("a13", c.a13.element = MOXIE_BF16);
    REFUSED("routing", c.routing.n_group = 3; c.routing.topk_group = 1);
    REFUSED("shared.intermediate is -1", c.shared.intermediate = -1);
    REFUSED("no shared expert", c.shared.has_gate = 1);
    REFUSED("shared w13", c.shared.intermediate = 8);
    REFUSED("ep_size is -1", c.ep_size = -1);
    REFUSED("ep_rank is 2", c.ep_size = 2; c.ep_rank = 2);
    REFUSED("ep_rank is 1", c.ep_rank = 1);
    REFUSED("ep_map is 7", c.ep_size = 2; c.ep_map = 7);
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

static void options_refused(moxie_options options, moxie_status status, const char *words)
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
    options_refused(o, MOXIE_ERR_UNSUPPORTED, "libmoxie_cuda");
    o.backend = 9;
    options_refused(o, MOXIE_ERR_ARGUMENT, "backend is 9");
    o = init;
    o.mode = 2;
    options_refused(o, MOXIE_ERR_ARGUMENT, "mode is 2");
    o = init;
    o.isa = "mmx";
    options_refused(o, MOXIE_ERR_ARGUMENT, "mmx");
#if defined(__x86_64__)
    o.isa = "neon";
    options_refused(o, MOXIE_ERR_ARGUMENT, "another architecture, this is x86-64; give scalar, avx2, avx512 or amx");
#elif defined(__aarch64__)
    o.isa = "amx";
    options_refused(o, MOXIE_ERR_ARGUMENT, "another architecture, this is 64-bit ARM; give scalar or neon");
#endif
    o = init;
    o.max_tokens = -1;
    options_refused(o, MOXIE_ERR_ARGUMENT, "max_tokens is -1");
    o = init;
    o.executor = &none;
    options_refused(o, MOXIE_ERR_ARGUMENT, "no run function");
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
