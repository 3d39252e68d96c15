/* SPDX-License-Identifier: Apache-2.0
 *
 * Families against their models' own formulas: a small layer is written by code that knows nothing of moxie
 * (plain_checkpoint.c), read and run by moxie, and compared with the formula in double precision (plain_formula.c).
 * Each family has a row for every way in which its tensors are named.
 */
#include "test_support.h"

#include "ckpt/model/model.h"
#include "plain_cases.h"
#include "plain_format.h"

/* Runs the layer of DIR; output [PLAIN_TOKENS, PLAIN_H] in f32. */
static void run(const char *dir, float *output)
{
    moxie_error error = { 0 };
    moxie_model *model = NULL;
    moxie_model_layer *loaded = NULL;
    moxie_layer *layer = NULL;
    moxie_plan *plan = NULL;
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_model_options weights_only = MOXIE_MODEL_OPTIONS_INIT;
    moxie_run_args args = MOXIE_RUN_ARGS_INIT;
    float hidden[PLAIN_TOKENS * PLAIN_H];
    options.max_tokens = PLAIN_TOKENS;
    weights_only.activations = MOXIE_ACTIVATIONS_16BIT;
    for (int i = 0; i < PLAIN_TOKENS * PLAIN_H; i++)
        hidden[i] = (float)plain_hidden(i / PLAIN_H, i % PLAIN_H);
    assert_ok(moxie_model_open(dir, &weights_only, &model, &error), &error);
    assert_ok(moxie_model_load_layer(model, PLAIN_LAYER, &loaded, &error), &error);
    assert_int_equal(moxie_model_layer_config(loaded)->dtype, MOXIE_F32);
    assert_ok(moxie_layer_create(moxie_model_layer_config(loaded), &options, &layer, &error), &error);
    assert_ok(moxie_layer_prepare(layer, moxie_model_layer_weights(loaded), NULL, &error), &error);
    assert_ok(moxie_plan_create(layer, &options, &plan, &error), &error);
    args.tokens = PLAIN_TOKENS;
    args.hidden = hidden;
    args.output = output;
    args.workspace_bytes = moxie_plan_workspace_bytes(plan);
    args.workspace = aligned_alloc(64, (args.workspace_bytes + 63) / 64 * 64);
    assert_ok(moxie_plan_run(plan, &args, &error), &error);
    free(args.workspace);
    moxie_plan_destroy(plan);
    moxie_layer_destroy(layer);
    moxie_model_layer_free(loaded);
    moxie_model_close(model);
}

/* Everything is computed in f32 from the same numbers: sums of some 64 terms, exp and a division differ by 1e-5. */
static void check(const plain_case *c)
{
    float output[PLAIN_TOKENS * PLAIN_H];
    double want[PLAIN_TOKENS * PLAIN_H], size = 0;
    char *dir = test_tmpdir();
    const char *format = c->format ? c->format->what : "bf16";
    print_message("%s: %s\n", c->what, format);
    plain_write(c, dir);
    run(dir, output);
    plain_output(c, want);
    for (int i = 0; i < PLAIN_TOKENS * PLAIN_H; i++)
        size = fabs(want[i]) > size ? fabs(want[i]) : size;
    assert_true(size > 0.1);
    for (int i = 0; i < PLAIN_TOKENS * PLAIN_H; i++)
        if (!(fabs((double)output[i] - want[i]) <= 2e-5 * size))
            fail_msg("%s, %s: token %d, element %d is %g, expected %g", c->what, format, i / PLAIN_H, i % PLAIN_H,
                     (double)output[i], want[i]);
    test_rmdir(dir);
}

static void families_follow_their_formulas(void **state)
{
    (void)state;
    plain_case c;
    for (int i = 0; plain_case_at(i, &c); i++)
        check(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(families_follow_their_formulas) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
