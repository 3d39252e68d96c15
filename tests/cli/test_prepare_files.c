/* SPDX-License-Identifier: Apache-2.0
 *
 * test_prepare_files.c - `moxie prepare` and back, through files: every tensor of the experts is byte for byte what the
 * checkpoint holds, whatever the format, the layout and the ranks; memory stays small; a killed run leaves nothing that
 * passes for whole, and the next one ends it.
 *
 * The checkpoint's own bytes, made by `moxie synth`, are what results are compared with.
 */
#include "prepare_tool.h"

#include <signal.h>
#include <time.h>

#include <moxie/moxie_prepare.h>

/* ---- formats, layouts, ranks ---- */

/* A rejection is fine (exit code 4). True when the layout accepted the weights. */
static bool there_and_back(const char *layout, const char *what, const char *extra)
{
    const int code = tool("prepare %s/model --layout %s %s -o %s/out", tmp, layout, extra, tmp);
    if (code != 0 && code != 4) {
        show_log();
        fail_msg("%s: exit code %d", what, code);
    }
    if (code == 0) {
        assert_tool(0, "prepare --undo %s/out -o %s/back", tmp, tmp);
        assert_same_experts("model", "back", what);
        remove_tree("out");
        remove_tree("back");
    }
    assert_false(exists("out.partial") || exists("back.partial"));
    return code == 0;
}

/* Tensor names of a fused and of a per-expert family, in every format that the generator writes. */
static void every_format_comes_back_from_every_layout(void **state)
{
    (void)state;
    static const char *const presets[] = { "gpt-oss-20b", "qwen3-30b-a3b", "deepseek-v3", "kimi-k2-thinking" };
    moxie_preset_info info = MOXIE_PRESET_INFO_INIT;
    moxie_prepare_layout layout = MOXIE_PREPARE_LAYOUT_INIT;
    bool used[256] = { false };
    for (int p = 0; p < 4; p++) {
        for (int i = 0; moxie_preset_at(i, &info) && strcmp(info.name, presets[p]) != 0; i++)
            continue;
        for (int f = 0; f < info.n_formats; f++) {
            if (p > 1 && f > 0)
                break; /* the others have the same lines of hf_quant.def */
            assert_tool(0, "synth %s --format %s --layers 1 --experts 16 --hidden 512 --intermediate 256 -o %s/model",
                        info.name, info.formats[f], tmp);
            for (int l = 0; moxie_prepare_layout_at(l, &layout); l++) {
                char what[200];
                snprintf(what, sizeof what, "%s %s as %s", info.name, info.formats[f], layout.name);
                used[l] = there_and_back(layout.name, what, "--pad") || used[l];
            }
            remove_tree("model");
        }
    }
    for (int l = 0; moxie_prepare_layout_at(l, &layout); l++)
        if (!used[l])
            print_message("%s took none of these checkpoints\n", layout.name);
}

/* Formats that no preset was released in: 8-bit GPTQ, whose zero points are kept as bytes to restore them. */
static void eight_bit_gptq_comes_back(void **state)
{
    (void)state;
    static const char *const formats[] = { "gptq-int8", "gptq-int8-v2" }, *const layouts[] = { "marlin-gptq",
                                                                                               "moe-wna16" };
    for (int f = 0; f < 2; f++) {
        assert_tool(0,
                    "synth qwen3-30b-a3b --format %s --layers 1 --experts 8 --hidden 256 --intermediate 128 -o "
                    "%s/model",
                    formats[f], tmp);
        for (int l = 0; l < 2; l++) {
            char what[100];
            snprintf(what, sizeof what, "%s as %s", formats[f], layouts[l]);
            if (!there_and_back(layouts[l], what, ""))
                fail_msg("%s is not taken", what);
        }
        remove_tree("model");
    }
}

/* All ranks' directories together restore the checkpoint; fewer do not. */
static void ranks_come_back_together(const char *synth, const char *layout, int tp, int ep)
{
    char dirs[1024] = "";
    assert_tool(0, "synth %s -o %s/model", synth, tmp);
    for (int t = 0; t < tp; t++)
        for (int e = 0; e < ep; e++) {
            assert_tool(0, "prepare %s/model --layout %s --pad --tp %d/%d --ep %d/%d -o %s/rank%d%d", tmp, layout, t,
                        tp, e, ep, tmp, t, e);
            assert_tool(0, "prepare --verify %s/rank%d%d", tmp, t, e);
            snprintf(dirs + strlen(dirs), sizeof dirs - strlen(dirs), " %s/rank%d%d", tmp, t, e);
        }
    assert_tool(0, "prepare --undo%s -o %s/back", dirs, tmp);
    assert_same_experts("model", "back", synth);
    assert_tool(2, "prepare --undo %s/rank00 -o %s/again", tmp, tmp);
    assert_tool(2, "prepare --undo %s %s/rank00 -o %s/again", dirs, tmp, tmp);
    assert_false(exists("again") || exists("again.partial"));
    remove_tree("rank*");
    remove_tree("back");
    remove_tree("model");
}

static void ranks_come_back(void **state)
{
    (void)state;
    ranks_come_back_together("kimi-k2-thinking --layers 1 --experts 9 --hidden 512 --intermediate 768", "trtllm-mxint4",
                             2, 2);
    ranks_come_back_together("gpt-oss-20b --layers 1 --experts 8 --hidden 256 --intermediate 320", "trtllm-mxfp4", 3,
                             1);
    /* Groups of 128 are halved, which do not divide hidden. */
    ranks_come_back_together("qwen3-30b-a3b --format awq --layers 1 --experts 8 --hidden 320 --intermediate 512",
                             "moe-wna16", 2, 1);
}

/* ---- a layer at true width ---- */

static void memory_stays_small_at_true_width(void **state)
{
    (void)state;
    if (test_emulated() || test_sanitized()) /* whose memory is not the tool's */
        skip();
    synth_kimi("--layers 1 --experts 8");
    assert_tool(0, "prepare %s/model --layout trtllm-mxint4 -o %s/out --json", tmp, tmp);
    const double limit = 2 * (logged("expert_bytes_in") + logged("expert_bytes_out")) + 64e6;
    print_message("prepare: peak %.0f bytes of %.0f\n", logged("peak_memory_bytes"), limit);
    /* 7168 x 2048, three matrices, 1/2 + 2/32 bytes an element; the same before and after. */
    assert_true(logged("expert_bytes_in") == 3.0 * 7168 * 2048 * (0.5 + 2.0 / 32));
    assert_true(logged("expert_bytes_out") == logged("expert_bytes_in"));
    assert_true(logged("peak_memory_bytes") > 0 && logged("peak_memory_bytes") < limit);
    assert_tool(0, "prepare --undo %s/out -o %s/back --json", tmp, tmp);
    print_message("undo: peak %.0f bytes\n", logged("peak_memory_bytes"));
    assert_true(logged("peak_memory_bytes") < limit);
    assert_same_experts("model", "back", "true width");
    remove_tree("out");
    remove_tree("back");
    remove_tree("model");
}

/* ---- killed ---- */

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A preparation that is killed after so many seconds. */
static void run_and_kill(double after)
{
    const pid_t child = start(false);
    usleep((useconds_t)(after * 1e6));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* A directory that --verify calls whole restores the right tensors. */
static void assert_not_wrongly_whole(const char *name)
{
    if (tool("prepare --verify %s/%s", tmp, name) != 0)
        return;
    assert_tool(0, "prepare --undo %s/%s -o %s/back", tmp, name, tmp);
    assert_same_experts("model", "back", name);
    remove_tree("back");
}

static void killed_runs_leave_nothing_wrong_and_are_gone_on_with(void **state)
{
    (void)state;
    if (test_emulated())
        skip();
    test_rng rng = { test_seed(43) };
    synth_kimi("--layers 3 --experts 8 --hidden 2048 --intermediate 1024");
    const double start = seconds();
    assert_tool(0, "prepare %s/model --layout trtllm-mxint4 -o %s/out", tmp, tmp);
    const double whole = seconds() - start;
    const int kills = test_quick() && test_sanitized() ? 4 : 10;
    int partial = 0;
    for (int i = 0; i < kills; i++) {
        remove_tree("out");
        remove_tree("out.partial");
        run_and_kill(whole * (0.5 + 0.5 * (double)test_uniform(&rng)));
        partial += exists("out.partial");
        assert_not_wrongly_whole("out");
        assert_not_wrongly_whole("out.partial");
        if (exists("out"))
            continue;
        assert_tool(0, "prepare %s/model --layout trtllm-mxint4 -o %s/out --json", tmp, tmp);
        assert_true(logged("layers_made") + logged("layers_kept") == 3);
        assert_tool(0, "prepare --verify %s/out", tmp);
        assert_false(exists("out.partial"));
    }
    assert_tool(0, "prepare --undo %s/out -o %s/back", tmp, tmp);
    assert_same_experts("model", "back", "gone on with");
    print_message("%d of %d were killed at work\n", partial, kills);
    remove_tree("out");
    remove_tree("back");
    remove_tree("model");
}

/* A whole layer is kept; a damaged one is made again. */
static void whole_layers_are_kept(void **state)
{
    (void)state;
    synth_kimi("--layers 2 --experts 8 --hidden 512 --intermediate 256");
    assert_tool(0, "prepare %s/model --layout trtllm-mxint4 -o %s/out", tmp, tmp);
    char command[2048];
    snprintf(command, sizeof command,
             "cd %s && mv out out.partial && rm out.partial/*.index.json && cp -r out.partial before", tmp);
    assert_int_equal(system(command), 0);
    assert_tool(1, "prepare --verify %s/out.partial", tmp);
    assert_tool(0, "prepare %s/model --layout trtllm-mxint4 -o %s/out --json", tmp, tmp);
    assert_true(logged("layers_kept") == 2 && logged("layers_made") == 0);
    snprintf(command, sizeof command,
             "cd %s && rm -r out && mv before out.partial && truncate -s -1 out.partial/layer-00002.safetensors", tmp);
    assert_int_equal(system(command), 0);
    assert_tool(0, "prepare %s/model --layout trtllm-mxint4 -o %s/out --json", tmp, tmp);
    assert_true(logged("layers_kept") == 1 && logged("layers_made") == 1);
    assert_tool(0, "prepare --verify %s/out", tmp);
    /* Another checkpoint of the same form: its layers are not those that are there. */
    remove_tree("model");
    synth_kimi("--layers 2 --experts 8 --hidden 512 --intermediate 256 --seed 5");
    snprintf(command, sizeof command, "cd %s && mv out out.partial && rm out.partial/*.index.json", tmp);
    assert_int_equal(system(command), 0);
    assert_tool(0, "prepare %s/model --layout trtllm-mxint4 -o %s/out --json", tmp, tmp);
    assert_true(logged("layers_kept") == 0 && logged("layers_made") == 2);
    remove_tree("out");
    remove_tree("model");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_comes_back_from_every_layout),
        cmocka_unit_test(eight_bit_gptq_comes_back),
        cmocka_unit_test(ranks_come_back),
        cmocka_unit_test(whole_layers_are_kept),
        cmocka_unit_test(memory_stays_small_at_true_width),
        cmocka_unit_test(killed_runs_leave_nothing_wrong_and_are_gone_on_with),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
