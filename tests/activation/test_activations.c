/* SPDX-License-Identifier: Apache-2.0
 *
 * test_activations.c - the list of activation functions:
 *     against moxie.h     every row has a public constant with its value, and every constant has a row
 *     names               the names of the command line and of model configurations are found
 *     parameters          a parameter that a formula does not use changes nothing
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "test_support.h"

#include "activation/activation.h"
#include "ref/ref.h"

static const struct {
    const char *id;
    int32_t kind;
} rows[] = {
#define MOX_ACTIVATION(id, kind, formula, gating, honours, alpha, beta, limit, name, config_names) { #id, kind },
#include "activation/activations.def"
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static void list_is_the_public_enum(void **state)
{
    (void)state;
    FILE *header = fopen("include/moxie/moxie_types.h", "r");
    assert_non_null(header);
    char line[512];
    int constants = 0;
    while (fgets(line, sizeof line, header)) {
        const char *at = line + strspn(line, " ");
        if (strncmp(at, "MOXIE_ACT_", 10) != 0 || !strstr(at, " = "))
            continue;
        at += 10;
        int found = 0;
        for (int i = 0; i < ROWS; i++)
            found += strlen(rows[i].id) == strcspn(at, " ") && strncmp(at, rows[i].id, strlen(rows[i].id)) == 0 &&
                     rows[i].kind == atoi(strstr(at, " = ") + 3);
        if (found != 1)
            fail_msg("MOXIE_ACT_%s is in no row of activations.def with its value", at);
        constants++;
    }
    fclose(header);
    assert_int_equal(constants, ROWS);
}

static void names_are_found(void **state)
{
    (void)state;
    moxie_activation activation;
    assert_string_equal(moxie_activation_at(0, &activation), "silu");
    assert_true(activation.kind == MOXIE_ACT_SILU && activation.alpha == 0 && activation.gate_limit == 0);
    assert_string_equal(moxie_activation_at(1, &activation), "swigluoai");
    assert_true(activation.kind == MOXIE_ACT_SILU && activation.alpha == 1.702f && activation.beta == 1);
    assert_true(activation.gate_limit == 7 && activation.up_limit == 7);
    assert_null(moxie_activation_at(-1, NULL));
    assert_null(moxie_activation_at(ROWS + 1, &activation));
    assert_int_equal(mox_activation_from_config("gelu_pytorch_tanh", true)->usual.kind, MOXIE_ACT_GELU_TANH);
    assert_int_equal(mox_activation_from_config("relu2", false)->usual.kind, MOXIE_ACT_RELU2_NO_MUL);
    assert_int_equal(mox_activation_from_config("gelu_python", true)->usual.kind, MOXIE_ACT_GELU_ERF);
    assert_int_equal(mox_activation_from_config("gelu_accurate", true)->usual.kind, MOXIE_ACT_GELU_TANH);
    assert_int_equal(mox_activation_from_config("gelu_fast", false)->usual.kind, MOXIE_ACT_GELU_TANH_NO_MUL);
    assert_int_equal(mox_activation_from_config("relu", true)->usual.kind, MOXIE_ACT_RELU);
    assert_int_equal(mox_activation_from_config("relu", false)->usual.kind, MOXIE_ACT_RELU_NO_MUL);
    /* a name for parameters too, which depend on the family; clipped, x s(1.702 x), and functions with weights */
    static const char *const unknown[] = { "swigluoai", "gelu_10", "quick_gelu", "xielu", "prelu", "relu6", "tanh" };
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        assert_null(mox_activation_from_config(unknown[i], true));
    assert_null(mox_activation_from_config("gelu_pytorch", true));
    assert_null(mox_activation_from_config("", true));
    assert_null(mox_activation_from_config("situ", false));
    char text[20];
    assert_string_equal(mox_activation_config_names(true, text, sizeof text), "silu, swish, gelu, ");
}

static void only_used_parameters_matter(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        const uint32_t honours = mox_activation_at(i)->honours;
        const moxie_activation plain = { .kind = rows[i].kind };
        const moxie_activation others = { .kind = rows[i].kind,
                                          .alpha = honours & MOX_ACTIVATION_ALPHA ? 0 : 3,
                                          .beta = honours & MOX_ACTIVATION_BETA ? 0 : 2,
                                          .gate_limit = honours & MOX_ACTIVATION_GATE_LIMIT ? 0 : 0.5f,
                                          .up_limit = honours & MOX_ACTIVATION_UP_LIMIT ? 0 : 0.5f };
        const moxie_activation mine = {
            .kind = rows[i].kind, .alpha = 3, .beta = 2, .gate_limit = 0.5f, .up_limit = 1
        };
        const mox_ref_act a = mox_ref_act_resolve(&plain, -1), b = mox_ref_act_resolve(&others, -1),
                          c = mox_ref_act_resolve(&mine, -1);
        double s;
        assert_true(mox_ref_activate(&a, 1.5, 2.5, &s) == mox_ref_activate(&b, 1.5, 2.5, &s));
        assert_true((mox_ref_activate(&a, 1.5, 2.5, &s) == mox_ref_activate(&c, 1.5, 2.5, &s)) == (honours == 0));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_is_the_public_enum),
        cmocka_unit_test(names_are_found),
        cmocka_unit_test(only_used_parameters_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
