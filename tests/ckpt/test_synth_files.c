/* SPDX-License-Identifier: Apache-2.0
 *
 * test_synth_files.c - the output directory: two writers of one directory, a writer that dies, memory that runs out
 * inside Jansson, files that are truncated or replaced while they are read.
 */
#include "synth_fixture.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"

static void assert_says(const moxie_error *error, const char *says)
{
    if (!strstr(error->text, says))
        fail_msg("\"%s\" does not say \"%s\"", error->text, says);
}

static char *join(const fixture *f, const char *name)
{
    static char path[640];
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    return path;
}

/* ---- two writers ---- */

/* A child that stopped in the middle of its work. */
typedef struct writer {
    pid_t process;
    int ready[2]; /* the child tells the parent that it is at work */
    int hold[2];  /* the child ends when the parent has closed it, or has ended: a check that fails leaves no child */
} writer;

static int stop_here(void *user, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    const writer *w = user;
    char byte;
    if (write(w->ready[1], "r", 1) == 1 && read(w->hold[0], &byte, 1) < 0)
        _exit(2);
    _exit(1);
}

static writer start_writer(fixture *f)
{
    writer w;
    char byte;
    assert_int_equal(pipe(w.ready), 0);
    assert_int_equal(pipe(w.hold), 0);
    w.process = fork();
    assert_true(w.process >= 0);
    if (w.process == 0) {
        moxie_error error;
        moxie_synth_options o = small(NULL, 1, 16);
        o.progress = stop_here;
        o.progress_user = &w;
        close(w.hold[1]);
        mox_synth_write("gpt-oss-20b", f->path, &o, &mox_executor_serial, &error);
        _exit(1);
    }
    close(w.ready[1]);
    close(w.hold[0]);
    assert_int_equal(read(w.ready[0], &byte, 1), 1);
    close(w.ready[0]);
    return w;
}

static void kill_writer(const writer *w)
{
    assert_int_equal(kill(w->process, SIGKILL), 0);
    assert_int_equal(waitpid(w->process, NULL, 0), w->process);
    close(w->hold[1]);
}

static void the_second_writer_is_told_who_is_first(void **state)
{
    fixture *f = *state;
    const moxie_synth_options o = small(NULL, 1, 16);
    const writer first = start_writer(f);
    const int before = test_entries_in(join(f, "a.moxie.tmp"));
    assert_true(before > 0);
    assert_int_equal(mox_synth_write("gpt-oss-20b", f->path, &o, &mox_executor_serial, &f->error), MOXIE_ERR_IO);
    assert_says(&f->error, "is at work there");
    assert_int_equal(test_entries_in(join(f, "a.moxie.tmp")), before);
    assert_int_equal(test_entries_in(f->dir), 1);
    kill_writer(&first);
    /* The directory of the dead writer is reused. */
    assert_int_equal(test_entries_in(join(f, "a.moxie.tmp")), before);
    assert_ok(mox_synth_write("gpt-oss-20b", f->path, &o, &mox_executor_serial, &f->error), &f->error);
    assert_int_equal(test_entries_in(f->dir), 1);
    assert_int_equal(test_entries_in(f->path), 2);
}

static void foreign_files_stay(void **state)
{
    fixture *f = *state;
    const moxie_synth_options o = small(NULL, 1, 16);
    assert_int_equal(mkdir(join(f, "a.moxie.tmp"), 0777), 0);
    assert_ok(moxie_file_write(join(f, "a.moxie.tmp/config.json"), "mine", 4, &f->error), &f->error);
    assert_ok(moxie_file_write(join(f, "a.moxie.tmp/notes.txt"), "mine", 4, &f->error), &f->error);
    assert_int_equal(mox_synth_write("gpt-oss-20b", f->path, &o, &mox_executor_serial, &f->error), MOXIE_ERR_IO);
    assert_says(&f->error, "\"notes.txt\" in it is not moxie's");
    assert_int_equal(test_entries_in(join(f, "a.moxie.tmp")), 2);
    remove_dir(join(f, "a.moxie.tmp"));
    /* Links are not followed, whatever they are called. */
    assert_int_equal(mkdir(f->path2, 0777), 0);
    assert_ok(moxie_file_write(join(f, "b/config.json"), "mine", 4, &f->error), &f->error);
    assert_int_equal(symlink("b", join(f, "a.moxie.tmp")), 0);
    assert_int_equal(mox_synth_write("gpt-oss-20b", f->path, &o, &mox_executor_serial, &f->error), MOXIE_ERR_IO);
    assert_says(&f->error, "symbolic link");
    assert_int_equal(test_entries_in(f->path2), 1);
    assert_int_equal(unlink(join(f, "a.moxie.tmp")), 0);
    assert_int_equal(unlink(join(f, "b/config.json")), 0);
    assert_int_equal(symlink("b", f->path), 0);
    assert_int_equal(mox_synth_write("gpt-oss-20b", f->path, &o, &mox_executor_serial, &f->error), MOXIE_ERR_IO);
    assert_says(&f->error, "symbolic link");
    assert_int_equal(test_entries_in(f->dir), 2);
}

/* ---- memory inside Jansson ---- */

static int64_t allocations_left;

static void *failing_malloc(size_t bytes)
{
    return --allocations_left == 0 ? NULL : malloc(bytes);
}

static void fail_jansson_at(int64_t n)
{
    allocations_left = n;
    json_set_alloc_funcs(failing_malloc, free);
}

/* Whether that allocation was reached. */
static bool jansson_works_again(void)
{
    json_set_alloc_funcs(malloc, free);
    return allocations_left <= 0;
}

/* Any failing allocation gives an error, or the same config.json. */
static int64_t config_without_memory(fixture *f, const char *preset, const char *format)
{
    mox_synth_model model;
    json_t *want = NULL;
    moxie_synth_options o = small(format, 2, 16);
    assert_ok(mox_synth_resolve(preset, &o, &model, &f->error), &f->error);
    assert_ok(mox_synth_config(&model, &want, &f->error), &f->error);
    int64_t failed = 0;
    bool reached = true;
    for (int64_t n = 1; reached; n++) {
        json_t *config = NULL;
        fail_jansson_at(n);
        const moxie_status status = mox_synth_config(&model, &config, &f->error);
        reached = jansson_works_again();
        failed += status != MOXIE_OK;
        assert_true((status == MOXIE_OK) == (config != NULL));
        if (config && !json_equal(config, want))
            fail_msg("%s: without allocation %lld config.json is another", preset, (long long)n);
        json_decref(config);
    }
    json_decref(want);
    return failed;
}

static void jansson_may_have_no_memory(void **state)
{
    static const struct {
        const char *preset, *format;
    } cases[] = { { "step-3.7-flash", NULL },       { "gemma-4-26b-a4b", NULL }, { "qwen3-30b-a3b", "nvfp4-ct" },
                  { "qwen3-30b-a3b", "fp8-block" }, { "qwen3-30b-a3b", "gptq" }, { "qwen3-30b-a3b", "mxfp4-quark" },
                  { "nemotron-3-nano", NULL },      { "kimi-k2.5", NULL },       { "qwen3-30b-a3b", "fp8-block-ct" } };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        assert_true(config_without_memory(*state, cases[c].preset, cases[c].format) > 30);
}

/* The same for a whole checkpoint, whose zero points follow from the configuration: nothing, or the same bytes. */
static void nothing_or_the_same_checkpoint(void **state)
{
    fixture *f = *state;
    moxie_synth_options o = small("gptq", 1, 8);
    char command[1400];
    assert_ok(mox_synth_write("qwen3-30b-a3b", f->path2, &o, &mox_executor_serial, &f->error), &f->error);
    snprintf(command, sizeof command, "diff -r '%s' '%s' >/dev/null", f->path, f->path2);
    bool reached = true;
    int failed = 0;
    for (int64_t n = 1; reached; n += 17) {
        fail_jansson_at(n);
        const moxie_status status = mox_synth_write("qwen3-30b-a3b", f->path, &o, &mox_executor_serial, &f->error);
        reached = jansson_works_again();
        failed += status != MOXIE_OK;
        if (status == MOXIE_OK && system(command))
            fail_msg("without allocation %lld the checkpoint is another", (long long)n);
        if (status == MOXIE_OK)
            remove_dir(f->path);
        assert_int_equal(test_entries_in(f->dir), 1);
    }
    assert_true(failed > 5);
}

/* ---- files that change ---- */

static void a_file_that_was_cut_off_is_an_error(void **state)
{
    fixture *f = *state;
    const moxie_synth_options o = small(NULL, 1, 16);
    moxie_model *model = NULL;
    moxie_model_layer *layer = NULL;
    moxie_tensor_file *file = NULL;
    moxie_tensor tensor;
    struct stat info;
    assert_ok(mox_synth_write("gpt-oss-20b", f->path, &o, &mox_executor_serial, &f->error), &f->error);
    char *path = join(f, "a/model.safetensors");
    assert_ok(moxie_model_open(f->path, NULL, &model, &f->error), &f->error);
    assert_ok(moxie_tensor_file_open(path, 0, &file, &f->error), &f->error);
    assert_ok(moxie_model_load_layer(model, 0, &layer, &f->error), &f->error);
    moxie_model_layer_free(layer);
    layer = NULL;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(truncate(path, info.st_size / 2), 0);
    assert_int_equal(moxie_model_load_layer(model, 0, &layer, &f->error), MOXIE_ERR_IO);
    assert_says(&f->error, "was cut off");
    assert_non_null(strstr(f->error.file, "model.safetensors"));
    assert_null(layer);
    assert_int_equal(moxie_tensor_file_find(file, "model.layers.0.mlp.router.weight", &tensor, &f->error),
                     MOXIE_ERR_IO);
    assert_int_equal(moxie_tensor_file_check_seal(file, &f->error), MOXIE_ERR_IO);
    moxie_tensor_file_close(file);
    moxie_model_close(model);
}

/* A configuration that exists but cannot be read does not count as absent. */
static void a_broken_configuration_is_not_an_absent_one(void **state)
{
    fixture *f = *state;
    const moxie_synth_options o = small("nvfp4-modelopt", 1, 16);
    moxie_model *model = NULL;
    char command[2000];
    assert_ok(mox_synth_write("qwen3-30b-a3b", f->path, &o, &mox_executor_serial, &f->error), &f->error);
    snprintf(command, sizeof command, "sed -i 's/\"quantization_config\"/\"no_such_config\"/' %s/config.json", f->path);
    assert_int_equal(system(command), 0);
    assert_ok(moxie_model_open(f->path, NULL, &model, &f->error), &f->error);
    moxie_model_close(model);
    model = NULL;
    assert_int_equal(symlink("hf_quant_config.json", join(f, "a/hf_quant_config.json")), 0);
    assert_int_equal(moxie_model_open(f->path, NULL, &model, &f->error), MOXIE_ERR_IO);
    assert_says(&f->error, "symbolic links");
    assert_int_equal(unlink(join(f, "a/hf_quant_config.json")), 0);
    assert_int_equal(mkfifo(join(f, "a/quantize_config.json"), 0666), 0);
    assert_int_equal(moxie_model_open(f->path, NULL, &model, &f->error), MOXIE_ERR_IO);
    assert_says(&f->error, "regular file");
    assert_null(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_second_writer_is_told_who_is_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(foreign_files_stay, set_up, tear_down),
        cmocka_unit_test_setup_teardown(jansson_may_have_no_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nothing_or_the_same_checkpoint, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file_that_was_cut_off_is_an_error, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_broken_configuration_is_not_an_absent_one, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
