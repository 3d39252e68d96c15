/* SPDX-License-Identifier: Apache-2.0
 *
 * test_no_model.c - paths that are no checkpoint directory: the error says what the path seems to be, and what to pass.
 */
#include "test_support.h"

#include <sys/stat.h>
#include <unistd.h>

#include <moxie/moxie_ckpt.h>

static char *tmp;

static const struct path_case {
    const char *files; /* created first, separated by spaces: "dir/", "file", "link@target", "file=text" */
    const char *path_given;
    moxie_status code;
    const char *says[3]; /* all in the text */
} cases[] = {
    { "", "nowhere", MOXIE_ERR_IO, { "no such directory", "config.json" } },
    { "", "absent.gguf", MOXIE_ERR_IO, { "no such file", "GGUF" } },
    { "", "openai/gpt-oss-20b", MOXIE_ERR_IO, { "no such directory", "hub", "download" } },
    { "empty/", "empty", MOXIE_ERR_IO, { "config.json is missing", "safetensors" } },
    { "g/model.gguf", "g", MOXIE_ERR_FORMAT, { "GGUF files are opened by name", "give one" } },
    { "g/model.gguf", "g/model.gguf", MOXIE_ERR_FORMAT, { "does not begin with", "damaged" } },
    { "gc/config.json={} gc/Q4.GGUF", "gc", MOXIE_ERR_UNSUPPORTED, { "model_type" } },
    { "b/pytorch_model.bin", "b", MOXIE_ERR_UNSUPPORTED, { "pickled", "safetensors" } },
    { "b/pytorch_model.bin", "b/pytorch_model.bin", MOXIE_ERR_UNSUPPORTED, { "pickled", "safetensors" } },
    { "p/consolidated.pth", "p", MOXIE_ERR_UNSUPPORTED, { "pickled", "safetensors" } },
    { "t/model.pt", "t", MOXIE_ERR_UNSUPPORTED, { "pickled" } },
    { "s/model.safetensors", "s", MOXIE_ERR_IO, { "is missing next to the *.safetensors" } },
    { "s/model.safetensors",
      "s/model.safetensors",
      MOXIE_ERR_FORMAT,
      { "directory is needed", "without config.json" } },
    { "f/model.safetensors f/config.json={}",
      "f/model.safetensors",
      MOXIE_ERR_FORMAT,
      { "one file of it", "give \"", "/f\"" } },
    { "f/model.safetensors f/config.json={}", "f/config.json", MOXIE_ERR_FORMAT, { "one file of it", "/f\"" } },
    { "d/model_index.json d/unet/config.json d/text/config.json", "d", MOXIE_ERR_IO, { "diffusers", "/d/text\"" } },
    { "h/models--a--b/snapshots/12ab/config.json h/models--a--b/snapshots/34cd/config.json "
      "h/models--a--b/refs/main=34cd",
      "h/models--a--b",
      MOXIE_ERR_IO,
      { "Hugging Face cache", "/models--a--b/snapshots/34cd\"" } },
    { "i/models--a--b/snapshots/12ab/config.json",
      "i/models--a--b",
      MOXIE_ERR_IO,
      { "/models--a--b/snapshots/12ab\"" } },
    { "i/models--a--b/snapshots/12ab/config.json", "i/models--a--b/snapshots", MOXIE_ERR_IO, { "/snapshots/12ab\"" } },
    { "j/models--a--b/snapshots/12ab/README.md", "j/models--a--b", MOXIE_ERR_IO, { "incomplete" } },
    { "k/models--a--b/snapshots/", "k", MOXIE_ERR_IO, { "Hugging Face cache", "snapshots/HASH" } },
    { "l/config.json@../../blobs/none l/model.safetensors", "l", MOXIE_ERR_IO, { "a link to nothing", "repeat it" } },
    { "o/part/config.json o/README.md", "o", MOXIE_ERR_IO, { "/o/part\"" } },
    { "q/odd\x1b[31m/config.json", "q", MOXIE_ERR_IO, { "/q/odd\\x1b[31m\"" } },
    { "fifo|", "fifo", MOXIE_ERR_IO, { "device, pipe or socket" } },
};

/* One word of `files`. */
static void make(char *word)
{
    char path[600];
    char *const text = strchr(word, '='), *const target = strchr(word, '@'), *const pipe_end = strchr(word, '|');
    for (char *at = strchr(word, '/'); at && (!target || at < target); at = strchr(at + 1, '/')) {
        snprintf(path, sizeof path, "%s/%.*s", tmp, (int)(at - word), word);
        mkdir(path, 0777);
    }
    if (word[strlen(word) - 1] == '/')
        return;
    snprintf(path, sizeof path, "%s/%.*s", tmp, (int)strcspn(word, "=@|"), word);
    if (target) {
        assert_true(symlink(target + 1, path) == 0 || access(path, F_OK) != 0);
        return;
    }
    if (pipe_end) {
        assert_int_equal(mkfifo(path, 0666), 0);
        return;
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    if (text)
        fputs(text + 1, file);
    fclose(file);
}

static void each_path_is_told_what_it_is(void **state)
{
    (void)state;
    tmp = test_tmpdir();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct path_case *c = &cases[i];
        char files[400], path[600], *rest = files;
        moxie_error error = { 0 };
        moxie_model *model = NULL;
        snprintf(files, sizeof files, "%s", c->files);
        for (char *word; (word = strsep(&rest, " ")) != NULL;)
            if (*word)
                make(word);
        /* A hub name is passed unchanged. */
        snprintf(path, sizeof path, "%s%s%s", strstr(c->path_given, "openai") ? "" : tmp,
                 strstr(c->path_given, "openai") ? "" : "/", c->path_given);
        assert_int_equal(moxie_model_open(path, NULL, &model, &error), c->code);
        for (int s = 0; s < 3 && c->says[s]; s++)
            if (!strstr(error.text, c->says[s]))
                fail_msg("%s: \"%s\" does not say \"%s\"", c->path_given, error.text, c->says[s]);
    }
    test_rmdir(tmp);
}

/* A config.json with weights in a format that is not supported. */
static void weights_of_other_formats(void **state)
{
    static const char config[] = "{\"model_type\":\"qwen3_moe\",\"hidden_size\":64,\"moe_intermediate_size\":32,"
                                 "\"num_experts\":2,\"num_experts_per_tok\":1,\"num_hidden_layers\":1,"
                                 "\"hidden_act\":\"silu\",\"norm_topk_prob\":true,\"torch_dtype\":\"bfloat16\"}";
    static const struct {
        const char *file;
        moxie_status code;
        const char *says;
    } others[] = { { "model-00001-of-00002.bin", MOXIE_ERR_UNSUPPORTED, "pickled" },
                   { "model-Q4_K_M.gguf", MOXIE_ERR_FORMAT, "GGUF" },
                   { "layer-00000.moxie", MOXIE_ERR_UNSUPPORTED, "expert files" },
                   { "README.md", MOXIE_ERR_IO, "no file *.safetensors" } };
    (void)state;
    for (int i = 0; i < 4; i++) {
        char word[700], *dir = tmp = test_tmpdir();
        moxie_error error = { 0 };
        moxie_model *model = NULL;
        snprintf(word, sizeof word, "config.json=%s", config);
        make(word);
        snprintf(word, sizeof word, "%s", others[i].file);
        make(word);
        assert_int_equal(moxie_model_open(dir, NULL, &model, &error), others[i].code);
        if (!strstr(error.text, others[i].says))
            fail_msg("%s: \"%s\" does not say \"%s\"", others[i].file, error.text, others[i].says);
        test_rmdir(dir);
    }
}

/* A GGUF file has no config.json that could be read alone, and is not called damaged. */
static void config_of_a_gguf_file(void **state)
{
    (void)state;
    moxie_error error = { 0 };
    moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
    assert_int_equal(moxie_config_layer("tests/golden/gguf/small.gguf", 0, "bf16", &config, &error),
                     MOXIE_ERR_UNSUPPORTED);
    if (!strstr(error.text, "no config.json"))
        fail_msg("\"%s\"", error.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_path_is_told_what_it_is),
        cmocka_unit_test(weights_of_other_formats),
        cmocka_unit_test(config_of_a_gguf_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
