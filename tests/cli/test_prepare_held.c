/* SPDX-License-Identifier: Apache-2.0
 *
 * test_prepare_held.c - whose OUT.partial is: two runs of one output at once, directories that are another's, links,
 * and ends by signals. Nothing that a run did not make is touched.
 */
#include "prepare_tool.h"

#include <signal.h>

enum { TRIES = 50 };

/* ---- two at once ---- */

/* Waits until a file of this name exists; false when the process ended first. */
static bool wait_for(const char *name, pid_t child)
{
    for (int i = 0; i < 20000; i++) {
        if (exists(name))
            return true;
        if (waitpid(child, NULL, WNOHANG) == child)
            return false;
        usleep(1000);
    }
    return false;
}

/* Names, sizes and times of all files in a directory. */
static void snapshot(const char *name, char *buffer, size_t size)
{
    char command[1024];
    snprintf(command, sizeof command, "cd %s/%s && ls -lan --time-style=full-iso | grep -v '^total'", tmp, name);
    FILE *listing = popen(command, "r");
    assert_non_null(listing);
    buffer[fread(buffer, 1, size - 1, listing)] = '\0';
    assert_int_equal(pclose(listing), 0);
}

static bool log_says(const char *text)
{
    char command[1024];
    snprintf(command, sizeof command, "grep -qF '%s' %s/log", text, tmp);
    return system(command) == 0;
}

/* Starts a run and sends it a signal while the file is there. On a busy machine the file may be gone too soon to be
 * seen, and `out` may be in place before the signal comes, even where the signal still ends the process: then `out` is
 * removed, and the next try begins. */
static pid_t signal_at(bool undo, const char *under_way, const char *out, int signal, int *status)
{
    for (int i = 0; i < TRIES; i++) {
        const pid_t child = start(undo);
        if (wait_for(under_way, child)) {
            assert_int_equal(kill(child, signal), 0);
            assert_int_equal(waitpid(child, status, WUNTRACED), child); /* its threads may write until then */
            const bool done = exists(out);
            if (!WIFEXITED(*status) && !done && (signal != SIGSTOP || exists(under_way)))
                return child;
            if (WIFSTOPPED(*status)) {
                assert_int_equal(kill(child, SIGCONT), 0);
                assert_int_equal(waitpid(child, status, 0), child);
            }
            assert_true(WIFEXITED(*status) ? WEXITSTATUS(*status) == 0 : done);
        }
        remove_tree(out);
    }
    fail_msg("%d runs have ended before they were seen at work", TRIES);
    return -1;
}

/* While one run is stopped in the middle, a second one of the same output is refused and changes nothing. */
static void second_is_refused(bool undo, const char *partial, const char *under_way)
{
    static char before[8192], after[8192];
    char who[64];
    int status = -1;
    const pid_t child = signal_at(undo, under_way, undo ? "back" : "out", SIGSTOP, &status);
    assert_true(WIFSTOPPED(status));
    snapshot(partial, before, sizeof before);
    for (int i = 0; i < 2; i++) {
        if (undo)
            assert_tool(3, "prepare --undo %s/out -o %s/back", tmp, tmp);
        else
            assert_tool(3, "prepare %s/model --layout trtllm-mxint4 -o %s/out", tmp, tmp);
        snprintf(who, sizeof who, "another moxie (process %ld) is at work there", (long)child);
        if (!log_says(who) && !log_says("another moxie is at work there")) {
            show_log();
            fail_msg("the second run does not say who is first");
        }
        snapshot(partial, after, sizeof after);
        assert_string_equal(after, before);
    }
    assert_int_equal(kill(child, SIGCONT), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_false(exists(partial));
}

static void two_at_once(void **state)
{
    (void)state;
    if (test_emulated())
        skip();
    synth_kimi("--layers 2 --experts 8 --hidden 2048 --intermediate 1024");
    second_is_refused(false, "out.partial", "out.partial/layer-00002.safetensors.moxie.tmp");
    assert_tool(0, "prepare --verify %s/out", tmp);
    second_is_refused(true, "back.partial", "back.partial/layer-00002.safetensors.moxie.tmp");
    assert_same_experts("model", "back", "two at once");
    remove_tree("out");
    remove_tree("back");
    remove_tree("model");
}

/* ---- what is another's ---- */

static void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *format, ...)
{
    char script[2048], command[4096];
    va_list list;
    va_start(list, format);
    vsnprintf(script, sizeof script, format, list);
    va_end(list);
    snprintf(command, sizeof command, "cd %s && %s", tmp, script);
    if (system(command))
        fail_msg("failed: %s", command);
}

/* Files with names that moxie also uses, in a directory of OUT.partial's name or behind a link: they stay. */
static void foreign_directories_stay(void **state)
{
    (void)state;
    synth_kimi("--layers 1 --experts 8 --hidden 512 --intermediate 256");
    static const char *const laid[] = {
        "mkdir mine && cp model/config.json mine && ln -s mine out.partial",
        "mkdir mine && echo 1 >mine/layer-00001.safetensors && ln -s ../mine out.partial",
        "mkdir mine && cp model/config.json mine && mv mine out.partial && ln -s out.partial mine",
        "mkdir out.partial && ln -s out.partial mine && echo 1 >mine/layer-notes.txt",
        "mkdir out.partial && ln -s out.partial mine && echo 1 >mine/model.safetensors.index.json.bak",
        "mkdir out.partial && ln -s out.partial mine && mkdir mine/config.json",
        "mkdir mine && echo '{}' >mine/moxie_prepare.json && mv mine out.partial && ln -s out.partial mine",
    };
    static char before[8192], after[8192];
    for (size_t i = 0; i < sizeof laid / sizeof laid[0]; i++) {
        shell("%s", laid[i]);
        snapshot("mine/.", before, sizeof before);
        assert_tool(3, "prepare %s/model --layout trtllm-mxint4 -o %s/out", tmp, tmp);
        assert_true(log_says("out.partial"));
        snapshot("mine/.", after, sizeof after);
        if (strcmp(before, after) != 0)
            fail_msg("%s: touched", laid[i]);
        assert_false(exists("out"));
        shell("rm -rf mine out.partial");
    }
    /* The same for --undo. It also refuses what a preparation left. */
    assert_tool(0, "prepare %s/model --layout trtllm-mxint4 -o %s/out", tmp, tmp);
    shell("mkdir mine && cp model/config.json mine && echo 1 >mine/layer-00007.safetensors && ln -s mine back.partial");
    snapshot("mine/.", before, sizeof before);
    assert_tool(3, "prepare --undo %s/out -o %s/back", tmp, tmp);
    snapshot("mine/.", after, sizeof after);
    assert_string_equal(before, after);
    remove_tree("out");
    remove_tree("mine");
    remove_tree("back.partial");
    remove_tree("model");
}

/* After a signal a directory without a finished layer is removed. Finished layers stay, unfinished files do not. */
static void signals_clean_up(void **state)
{
    (void)state;
    if (test_emulated())
        skip();
    static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
    synth_kimi("--layers 2 --experts 8 --hidden 2048 --intermediate 1024");
    for (int i = 0; i < 6; i++) {
        const bool late = i >= 3;
        int status = -1;
        signal_at(false,
                  late ? "out.partial/layer-00002.safetensors.moxie.tmp"
                       : "out.partial/layer-00001.safetensors.moxie.tmp",
                  "out", signals[i % 3], &status);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == signals[i % 3]);
        assert_false(exists("out"));
        if (exists("out.partial")) /* also where the signal came after the first layer */
            shell("! ls out.partial | grep moxie.tmp && test -e out.partial/layer-00001.safetensors");
        else
            assert_false(late);
        if (late)
            assert_true(exists("out.partial/moxie_prepare.json"));
        if (late && i == 5) {
            assert_tool(0, "prepare %s/model --layout trtllm-mxint4 -o %s/out --json", tmp, tmp);
            assert_true(logged("layers_kept") >= 1);
        }
        remove_tree("out");
        remove_tree("out.partial");
    }
    remove_tree("model");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_at_once),
        cmocka_unit_test(foreign_directories_stay),
        cmocka_unit_test(signals_clean_up),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
