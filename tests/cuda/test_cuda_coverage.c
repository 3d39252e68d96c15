/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_coverage.c - what a user gets by default is a fast kernel: every preset in the formats that `moxie synth
 * --list` names, and one in every format, planned for every generation of cards in both modes. A product of routed or
 * shared experts that takes a simple kernel must be in simple_kernels.def; a line there that no longer holds fails too.
 */
#include <moxie/moxie_ckpt.h>

#include "test_support.h"

typedef struct may_be_simple {
    const char *device, *preset, *format, *reason;
    int plans, simple; /* that it names, and how many of them took a simple kernel */
} may_be_simple;

static may_be_simple lines[] = {
#define MOX_MAY_BE_SIMPLE(...) { __VA_ARGS__, 0, 0 },
#include "simple_kernels.def"
#undef MOX_MAY_BE_SIMPLE
};

enum { LINES = sizeof lines / sizeof lines[0], MIN_PLANS = 151 /* of a device and a mode */ };

#define ALL_FORMATS "qwen3-30b-a3b" /* the preset that is planned in every format */

static const char *const devices[] = { "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120" };
static const moxie_mode modes[] = { MOXIE_MODE_EXACT, MOXIE_MODE_FAST };

static bool names(const char *pattern, const char *name)
{
    return !strcmp(pattern, "all") || !strcmp(pattern, name);
}

/* The line that names this plan, or NULL. */
static may_be_simple *line_of(const char *device, const char *preset, const char *format)
{
    for (int i = 0; i < LINES; i++)
        if (names(lines[i].device, device) && names(lines[i].preset, preset) && names(lines[i].format, format))
            return &lines[i];
    return NULL;
}

/* Block types may be simple, but for these (docs/gguf.md). */
static bool may_be_block(const char *format)
{
    static const char *const fast[] = { "q8_0",   "q4_0",   "q4_k",   "q5_k",  "q6_k",
                                        "iq4_xs", "q4_k_m", "q5_k_m", "mxfp4", "bf16" };
    if (strncmp(format, "gguf-", 5) != 0)
        return false;
    for (size_t i = 0; i < sizeof fast / sizeof fast[0]; i++)
        if (!strcmp(format + 5, fast[i]))
            return false;
    return true;
}

/* The role of the first product that takes a simple kernel, or NULL. *products: how many there are. */
static const char *simple_role(const moxie_plan *plan, int *products)
{
    const char *role = NULL;
    *products = 0;
    for (int32_t s = moxie_plan_step_count(plan) - 1; s >= 0; s--) {
        const moxie_plan_step *step = moxie_plan_step_at(plan, s);
        if (!step->chosen || strcmp(step->family, "expert_gemm") != 0)
            continue;
        ++*products;
        if (!strncmp(step->kernel, "simple", strlen("simple")))
            role = step->role;
    }
    return role;
}

/* Plans one layer. False, with a message, where a simple kernel is chosen without leave. */
static bool check_plan(const char *device, moxie_mode mode, const moxie_preset_info *preset, const char *format)
{
    moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_error error = { 0 };
    moxie_plan *plan = NULL;
    int products;
    options.backend = MOXIE_BACKEND_CUDA;
    options.device = device;
    options.mode = mode;
    options.max_tokens = 512;
    assert_ok(moxie_preset_config(preset->name, format, &config, &error), &error);
    assert_ok(moxie_plan_explain(&config, &options, &plan, &error), &error);
    const char *role = simple_role(plan, &products);
    may_be_simple *line = line_of(device, preset->name, format);
    assert_true(products == 2 || products == 4); /* shared experts are two more */
    if (line != NULL) {
        line->plans++;
        line->simple += role != NULL;
    } else if (role != NULL) {
        print_error("%s, %s mode: %s as %s takes a simple kernel for %s\n", device,
                    mode == MOXIE_MODE_FAST ? "fast" : "exact", preset->name, format, role);
    }
    moxie_plan_destroy(plan);
    return role == NULL || line != NULL;
}

/* All presets in their formats, and one in every format that must be fast; returns how many plans of presets there are,
 * *wrong of all are wrong. */
static int check_device(const char *device, moxie_mode mode, int *wrong)
{
    moxie_preset_info preset = MOXIE_PRESET_INFO_INIT;
    const char *format;
    int plans = 0;
    for (int32_t i = 0; moxie_preset_at(i, &preset); i++) {
        for (int32_t f = 0; f < preset.n_formats; f++, plans++)
            *wrong += !check_plan(device, mode, &preset, preset.formats[f]);
        for (int32_t f = 0; !strcmp(preset.name, ALL_FORMATS) && (format = moxie_checkpoint_format_at(f)) != NULL; f++)
            if (!may_be_block(format))
                *wrong += !check_plan(device, mode, &preset, format);
    }
    return plans;
}

static void products_take_fast_kernels(void **state)
{
    (void)state;
    int wrong = 0;
    for (size_t d = 0; d < sizeof devices / sizeof devices[0]; d++)
        for (size_t m = 0; m < 2; m++)
            assert_true(check_device(devices[d], modes[m], &wrong) >= MIN_PLANS);
    for (int i = 0; i < LINES; i++)
        if (lines[i].plans == 0 || lines[i].simple < lines[i].plans) {
            print_error("simple_kernels.def is stale: \"%s, %s, %s\" names %d plans, %d of them take a simple kernel\n",
                        lines[i].device, lines[i].preset, lines[i].format, lines[i].plans, lines[i].simple);
            wrong++;
        }
    assert_int_equal(wrong, 0);
}

/* The page has a table row "| device | preset | format | reason |" for every line. */
static void the_page_has_them(void **state)
{
    (void)state;
    static char text[1 << 16];
    FILE *page = fopen("docs/kernels-cuda.md", "r");
    assert_non_null(page);
    const size_t bytes = fread(text, 1, sizeof text - 1, page);
    assert_true(bytes > 0 && bytes < sizeof text - 1);
    fclose(page);
    for (int i = 0; i < LINES; i++) {
        char row[256];
        snprintf(row, sizeof row, "\n| %s | %s | %s | %s |\n", lines[i].device, lines[i].preset, lines[i].format,
                 lines[i].reason);
        if (strstr(text, row) == NULL)
            fail_msg("docs/kernels-cuda.md lacks %s", row);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(products_take_fast_kernels),
                                        cmocka_unit_test(the_page_has_them) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
