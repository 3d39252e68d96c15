/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lint_clean.c - over every preset in every format that it is released in, numbers included, lint has nothing to
 * say but which layouts refuse the layer.
 */
#include "lint_plant.h"

static void check(const moxie_preset_info *preset, const char *format, int64_t experts)
{
    char *dir = test_tmpdir(), path[600];
    moxie_error error = { 0 };
    moxie_lint *lint = NULL;
    moxie_finding f = MOXIE_FINDING_INIT;
    moxie_synth_options o = MOXIE_SYNTH_OPTIONS_INIT;
    moxie_lint_options deep = MOXIE_LINT_OPTIONS_INIT;
    moxie_lint_info info = MOXIE_LINT_INFO_INIT;
    snprintf(path, sizeof path, "%s/a", dir);
    o.format = format;
    o.layers = 1;
    o.experts = experts;
    o.hidden = o.intermediate = 128;
    deep.deep = 1;
    assert_ok(moxie_synth_write(preset->name, path, &o, &error), &error);
    assert_ok(moxie_lint_run(path, &deep, &lint, &error), &error);
    for (int64_t i = 0; moxie_lint_finding_at(lint, i, &f); i++)
        if (strcmp(f.name, "layout-refuses") != 0)
            fail_msg("%s %s: %s: %s %s", preset->name, format, f.name, f.tensor, f.found);
    assert_int_equal(moxie_lint_get_info(lint, &info, &error), MOXIE_OK);
    assert_int_equal(info.n_layers, 1);
    assert_int_equal(info.n_errors + info.n_warnings, 0);
    assert_int_equal(info.input, MOXIE_OK);
    moxie_lint_free(lint);
    test_rmdir(dir);
}

static void presets_are_clean(void **state)
{
    (void)state;
    moxie_preset_info preset = MOXIE_PRESET_INFO_INIT;
    const int64_t step = test_quick_one_in(3, "presets and formats");
    int64_t seen = 0;
    for (int32_t i = 0; moxie_preset_at(i, &preset); i++)
        for (int32_t f = 0; f < preset.n_formats; f++)
            if (seen++ % step == 0)
                check(&preset, preset.formats[f], preset.top_k > 8 ? 2 * preset.top_k : 16);
    assert_true(seen >= 121);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(presets_are_clean) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
