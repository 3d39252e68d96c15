/* SPDX-License-Identifier: Apache-2.0
 *
 * test_presets_table.c - every preset in every format of its public releases goes through the tool:
 * synth, inspect, run, diff --a cpu --b ref all exit with 0; diff only once for each family in each format, in a quick
 * run only once for each format.
 *
 * Driven by the library's own list, so a new preset or format is covered without an edit here. Sizes are
 * reduced; MOXIE_TEST_TRUE_SHAPES=1 keeps H and I true and only reduces experts and layers.
 */
#include "test_support.h"

#include <sys/wait.h>

#include <moxie/moxie_ckpt.h>

static const char *build_dir;

/* Runs `moxie ARGUMENTS`; returns its exit code. Its output goes to DIR.log. */
static int moxie_tool(const char *dir, const char *arguments)
{
    char command[2048];
    snprintf(command, sizeof command, "%s/moxie %s >>%s.log 2>&1", build_dir, arguments, dir);
    const int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static void show_log(const char *dir)
{
    char command[1024];
    snprintf(command, sizeof command, "tail -n 20 %s.log >&2", dir);
    if (system(command))
        print_error("(no log)\n");
}

static bool true_shapes(void)
{
    return test_env("MOXIE_TEST_TRUE_SHAPES", 0) != 0;
}

/* Enough experts for top-k and for groups of two; at true shapes not more. */
static int64_t reduced_experts(const moxie_preset_info *info)
{
    int64_t experts = (2 * info->top_k + 15) / 16 * 16;
    if (true_shapes())
        experts = info->top_k <= 8 ? 2 * info->top_k : info->top_k + 2;
    return experts < info->experts ? experts : info->experts;
}

/* With `compares`, the oracle computes the layer, too, which takes most of the time. */
static bool run_case(const moxie_preset_info *info, const char *format, bool compares, const char *tmp)
{
    char dir[512], sizes[64] = "", arguments[1024];
    snprintf(dir, sizeof dir, "%s/%s-%s", tmp, info->name, format);
    if (!true_shapes())
        snprintf(sizes, sizeof sizes, "--hidden 256 --intermediate 384");
    const char *const steps[] = { "inspect %s", "run %s --tokens 3", "diff %s --a cpu --b ref --tokens 3" };
    snprintf(arguments, sizeof arguments, "synth %s --format %s -o %s --layers 1 --experts %lld %s", info->name, format,
             dir, (long long)reduced_experts(info), sizes);
    int code = moxie_tool(dir, arguments);
    const char *failed = code ? arguments : NULL;
    for (int i = 0; i < (compares ? 3 : 2) && !failed; i++) {
        snprintf(arguments, sizeof arguments, steps[i], dir);
        code = moxie_tool(dir, arguments);
        failed = code ? arguments : NULL;
    }
    if (true_shapes())
        print_message("%s %s: %s\n", info->name, format, failed ? "FAILED" : "ok");
    if (failed) {
        print_error("exit code %d: moxie %s\n", code, failed);
        show_log(dir);
    }
    char command[1024];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return !failed && system(command) == 0;
}

/* Families in formats that were compared. */
typedef struct pairs {
    char name[256][96];
    int count;
} pairs;

static bool pair_is_new(pairs *met, const char *family, const char *format)
{
    assert_true(met->count < 256);
    char *name = met->name[met->count];
    snprintf(name, sizeof met->name[0], "%s %s", family, format);
    for (int i = 0; i < met->count; i++)
        if (strcmp(met->name[i], name) == 0)
            return false;
    met->count++;
    return true;
}

static void every_preset_in_every_native_format(void **state)
{
    (void)state;
    char *tmp = test_tmpdir();
    /* The oracle's numbers depend on the format; how a family routes, random layers compare. */
    const bool all = test_quick_one_in(3, "presets and formats: each format and family once") == 1;
    test_names met = { .count = 0 };
    static pairs compared; /* large */
    int cases = 0, failures = 0;
    moxie_preset_info info = MOXIE_PRESET_INFO_INIT;
    for (int32_t i = 0; moxie_preset_at(i, &info); i++) {
        assert_true(info.n_native > 0);
        for (int32_t f = 0; f < info.n_native; f++) {
            const bool new_format = test_name_is_new(&met, info.formats[f]);
            if (test_name_is_new(&met, info.family) || new_format || all) {
                const bool new_pair = pair_is_new(&compared, info.family, info.formats[f]);
                failures += !run_case(&info, info.formats[f], new_format || (all && new_pair), tmp);
                cases++;
            }
        }
    }
    print_message("%d cases\n", cases);
    test_rmdir(tmp);
    assert_true(cases > (all ? 40 : 10));
    assert_int_equal(failures, 0);
}

int main(void)
{
    build_dir = getenv("MOXIE_BUILD_DIR");
    if (!build_dir) {
        puts("skipped: MOXIE_BUILD_DIR is not set");
        return 77;
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_preset_in_every_native_format) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
