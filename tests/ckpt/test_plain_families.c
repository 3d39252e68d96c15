/* SPDX-License-Identifier: Apache-2.0
 *
 * Families against their models' own formulas: a small layer is written by code that knows nothing of moxie
 * (plain_checkpoint.c), read and run by moxie, and compared with the formula in double precision (plain_formula.c).
 * Each family has a row for every way in which its tensors are named.
 */
#include "test_support.h"

#include "ckpt/families/tables.h"
#include "ckpt/model/model.h"
#include "plain_cases.h"
#include "plain_format.h"

/* What a run reads. */
typedef struct inputs {
    float hidden[PLAIN_TOKENS * PLAIN_MAX_H], router[PLAIN_TOKENS * PLAIN_MAX_H];
    int32_t tokens[PLAIN_TOKENS];
    uint8_t images[PLAIN_TOKENS];
} inputs;

static void fill(const plain_case *c, inputs *in, moxie_run_args *args)
{
    const int x = plain_x(c), h = plain_h(c);
    for (int t = 0; t < PLAIN_TOKENS; t++) {
        in->tokens[t] = plain_token(t);
        in->images[t] = plain_is_image(t);
        for (int i = 0; i < x; i++)
            in->hidden[t * x + i] = (float)plain_hidden(t, i);
        for (int i = 0; i < h; i++)
            in->router[t * h + i] = (float)plain_router_hidden(c, t, i);
    }
    args->tokens = PLAIN_TOKENS;
    args->hidden = in->hidden;
    args->router_hidden = c->latent ? in->router : NULL;
    args->token_ids = c->names.table ? in->tokens : NULL;
    args->bias_choice = c->names.correction_alt ? in->images : NULL;
}

/* Runs the layer of DIR; output [PLAIN_TOKENS, X] in f32. */
static void run(const plain_case *c, const char *dir, float *output)
{
    moxie_error error = { 0 };
    moxie_model *model = NULL;
    moxie_model_layer *loaded = NULL;
    moxie_layer *layer = NULL;
    moxie_plan *plan = NULL;
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_model_options weights_only = MOXIE_MODEL_OPTIONS_INIT;
    moxie_run_args args = MOXIE_RUN_ARGS_INIT;
    static inputs in;
    options.max_tokens = PLAIN_TOKENS;
    if (!c->format || !c->format->int8_rows)
        weights_only.activations = MOXIE_ACTIVATIONS_16BIT;
    assert_ok(moxie_model_open(dir, &weights_only, &model, &error), &error);
    assert_ok(moxie_model_load_layer(model, PLAIN_LAYER, &loaded, &error), &error);
    assert_int_equal(moxie_model_layer_config(loaded)->dtype, MOXIE_F32);
    assert_ok(moxie_layer_create(moxie_model_layer_config(loaded), &options, &layer, &error), &error);
    assert_ok(moxie_layer_prepare(layer, moxie_model_layer_weights(loaded), NULL, &error), &error);
    assert_ok(moxie_plan_create(layer, &options, &plan, &error), &error);
    fill(c, &in, &args);
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
static bool is_right(const plain_case *c)
{
    static float output[PLAIN_TOKENS * PLAIN_MAX_H];
    static double want[PLAIN_TOKENS * PLAIN_MAX_H];
    const int x = plain_x(c), count = PLAIN_TOKENS * x;
    double size = 0;
    int wrong = 0;
    char *dir = test_tmpdir();
    print_message("%s: %s\n", c->what, c->format ? c->format->what : "bf16");
    plain_write(c, dir);
    run(c, dir, output);
    test_rmdir(dir);
    plain_output(c, want);
    for (int i = 0; i < count; i++)
        size = fabs(want[i]) > size ? fabs(want[i]) : size;
    assert_true(size > 0.1);
    while (wrong < count && fabs((double)output[wrong] - want[wrong]) <= 2e-5 * size)
        wrong++;
    if (wrong < count)
        print_message("    wrong: token %d, element %d is %g, expected %g\n", wrong / x, wrong % x,
                      (double)output[wrong], want[wrong]);
    return wrong == count;
}

static void families_follow_their_formulas(void **state)
{
    (void)state;
    plain_case c;
    int wrong = 0;
    for (int i = 0; plain_case_at(i, &c); i++)
        wrong += !is_right(&c);
    assert_int_equal(wrong, 0);
}

/* ---- what the table covers ---------------------------------------------------------------------- */

/* Namings of families without a row: "FAMILY NAME OF THE FIRST MATRIX", and why. */
static const char *const not_in_the_table[][2] = {
#define PLAIN_ABSENT(family, matrix, why) { family " " matrix, why },
#include "plain_absent.def"
#undef PLAIN_ABSENT
};

static bool is_absent(const char *family, const char *matrix)
{
    char text[200];
    snprintf(text, sizeof text, "%s %s", family, matrix);
    for (size_t i = 0; i < sizeof not_in_the_table / sizeof not_in_the_table[0]; i++)
        if (strcmp(not_in_the_table[i][0], text) == 0)
            return true;
    return false;
}

/* "mlp.experts.{e}.gate_proj" names what the table calls "mlp.experts.%d.gate_proj.weight". */
static bool same_name(const char *templ, const char *name)
{
    while (name && *templ && *name) {
        const bool number = strncmp(templ, "{e}", 3) == 0 && strncmp(name, "%d", 2) == 0;
        if (!number && *templ != *name)
            return false;
        templ += number ? 3 : 1, name += number ? 2 : 1;
    }
    return name && !*templ && (!*name || strcmp(name, ".weight") == 0);
}

static bool is_of_family(const plain_case *c, const mox_family *family)
{
    char text[100];
    for (int i = 0; i < MOX_MAX_SPELLINGS && family->model_types[i]; i++) {
        snprintf(text, sizeof text, "\"model_type\":\"%s\"", family->model_types[i]);
        if (strstr(c->config, text))
            return true;
    }
    return false;
}

/* A row has matrices of this name and this name of the router. */
static bool has_row(const mox_family *family, const char *router, const char *matrix)
{
    plain_case c;
    for (int i = 0; plain_case_at(i, &c); i++)
        if (is_of_family(&c, family) && same_name(router, c.names.router) &&
            (same_name(matrix, c.names.gate) || same_name(matrix, c.names.pair) || same_name(matrix, c.names.up)))
            return true;
    return false;
}

static int count_absent(const mox_family *family, const mox_names *names)
{
    const char *const first = names->gate ? names->gate : names->up;
    const char *const matrices[] = { first, names->fused_gate_up };
    int absent = 0;
    for (int i = 0; i < 2; i++) {
        if (!matrices[i])
            continue;
        const bool listed = is_absent(family->id, matrices[i]);
        if (has_row(family, names->router, matrices[i]) == listed) {
            print_message("%s: %s %s\n", family->id, matrices[i],
                          listed ? "is in plain_absent.def, but has a row" : "has no row");
            absent++;
        }
    }
    return absent;
}

static void every_naming_of_every_family_has_a_row(void **state)
{
    (void)state;
    int absent = 0;
    for (int32_t i = 0; mox_family_at(i); i++)
        absent += count_absent(mox_family_at(i), &mox_family_at(i)->names) +
                  count_absent(mox_family_at(i), &mox_family_at(i)->other_names);
    assert_int_equal(absent, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(families_follow_their_formulas),
                                        cmocka_unit_test(every_naming_of_every_family_has_a_row) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
