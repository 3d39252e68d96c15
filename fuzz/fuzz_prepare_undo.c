/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_prepare_undo.c - `moxie prepare --verify` and `--undo` of a forged directory.
 *
 * An input is a list of sections, each ended by a line "--": manifest, config.json, moxie.source, moxie.facts,
 * moxie.slice. Bytes that are mixed into the tensors follow. For an empty section `moxie prepare`'s own text is used.
 * The file gets a valid seal, as a careful attacker would give it.
 *
 * Promise: the directory is rejected with an error text, or restored; its files are unchanged.
 */
#include "fuzz_scratch.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "prepare.h"

enum { MANIFEST, CONFIG, SOURCE, FACTS, SLICE, SECTIONS };
static const char *const keys[SECTIONS] = {
    [SOURCE] = "moxie.source", [FACTS] = "moxie.facts", [SLICE] = "moxie.slice"
};
enum { MOST_TENSORS = 64 };

/* What `moxie prepare` made of a small checkpoint. */
static struct {
    moxie_tensor_file *file;
    char *manifest, *config;
    moxie_sealed_tensor tensors[MOST_TENSORS];
    const unsigned char *data[MOST_TENSORS];
    uint64_t bytes[MOST_TENSORS];
    int64_t count;
    moxie_executor *executor;
} made;

static char *read_text(const char *path)
{
    moxie_error error;
    char *text = NULL;
    uint64_t size = 0;
    FUZZ_CHECK(moxie_file_read(path, 1 << 20, &text, &size, &error) == MOXIE_OK);
    return text;
}

static void keep_tensors(const char *path)
{
    moxie_error error;
    FUZZ_CHECK(moxie_tensor_file_open(path, 1, &made.file, &error) == MOXIE_OK);
    made.count = moxie_tensor_file_count(made.file);
    FUZZ_CHECK(made.count <= MOST_TENSORS);
    for (int64_t i = 0; i < made.count; i++) {
        moxie_sealed_tensor *t = &made.tensors[i];
        moxie_tensor view;
        FUZZ_CHECK(moxie_tensor_file_at(made.file, i, &t->name, &view) == MOXIE_OK);
        t->dtype = view.dtype;
        t->rank = view.rank;
        t->pieces = 1;
        made.data[i] = view.data;
        made.bytes[i] = (uint64_t)moxie_dtype_bits(view.dtype);
        for (int32_t axis = 0; axis < view.rank; axis++)
            made.bytes[i] *= (uint64_t)(t->shape[axis] = view.shape[axis]);
        made.bytes[i] /= 8;
    }
}

static void make_template(void)
{
    moxie_error error;
    moxie_synth_options o = MOXIE_SYNTH_OPTIONS_INIT;
    prepare_report report = { .info = MOXIE_PREPARATION_INFO_INIT };
    cli_progress progress = { 0 };
    o.layers = 1;
    o.experts = 2;
    o.hidden = o.intermediate = 64;
    o.format = "int4-ct-g32"; /* it has tensors that prepare keeps as they are */
    FUZZ_CHECK(moxie_executor_create(1, &made.executor, &error) == MOXIE_OK);
    FUZZ_CHECK(moxie_synth_write("mixtral-8x7b", fuzz_path("model"), &o, &error) == MOXIE_OK);
    const prepare_options options = { .dir = fuzz_path("model"),
                                      .layout = "moe-wna16",
                                      .out = fuzz_path("made"),
                                      .first_layer = -1,
                                      .last_layer = -1,
                                      .how = { .layout = "moe-wna16", .tp_size = 1, .ep_size = 1 } };
    FUZZ_CHECK(prepare_all(&options, made.executor, &progress, &report, &error) == MOXIE_OK);
    made.manifest = read_text(fuzz_path("made/moxie_prepare.json"));
    made.config = read_text(fuzz_path("made/config.json"));
    keep_tensors(fuzz_path("made/layer-00000.safetensors"));
}

/* ---- one input ---------------------------------------------------------------------------------------- */

/* Cuts `text` at lines "--"; returns the text behind the last. An empty section becomes NULL. */
static char *cut(char *text, char *sections[SECTIONS])
{
    memset(sections, 0, SECTIONS * sizeof *sections);
    for (int i = 0; i < SECTIONS; i++) {
        char *end = strncmp(text, "--\n", 3) == 0 ? text : strstr(text, "\n--\n");
        sections[i] = end && end != text ? text : NULL;
        if (!end)
            return text + strlen(text);
        text = end + (end == text ? 3 : 4);
        *end = 0;
    }
    return text;
}

/* Writes the layer's file with the sections' metadata. False when the writer rejects them: no reader would accept them.
 */
static bool write_layer(char *const sections[SECTIONS], const char *noise, uint64_t noise_bytes)
{
    static const char *const names[] = { "format",      "moxie.version", "moxie.layout", "moxie.layer",
                                         "moxie.slice", "moxie.padding", "moxie.source", "moxie.facts" };
    const char *pairs[16];
    moxie_error error;
    moxie_sealed_writer *writer = NULL;
    for (int i = 0; i < 8; i++) {
        pairs[2 * i] = names[i];
        pairs[2 * i + 1] = moxie_tensor_file_metadata(made.file, names[i]);
        for (int s = SOURCE; s < SECTIONS; s++)
            if (sections[s] && !strcmp(names[i], keys[s]))
                pairs[2 * i + 1] = sections[s];
    }
    if (moxie_sealed_writer_open(fuzz_path("case/layer-00000.safetensors"), made.tensors, made.count, pairs, 8, &writer,
                                 &error) != MOXIE_OK)
        return false;
    for (int64_t i = 0; i < made.count; i++) {
        unsigned char *bytes = malloc(made.bytes[i] + 1);
        FUZZ_CHECK(bytes);
        memcpy(bytes, made.data[i], made.bytes[i]);
        for (uint64_t b = 0; b < made.bytes[i] && noise_bytes > 0; b++)
            bytes[b] = (unsigned char)(bytes[b] ^ (unsigned char)noise[b % noise_bytes]);
        FUZZ_CHECK(moxie_sealed_writer_put(writer, i, 0, bytes, &error) == MOXIE_OK);
        free(bytes);
    }
    return moxie_sealed_writer_finish(writer, &error) == MOXIE_OK;
}

static void check_directory(void)
{
    prepare_report report = { .info = MOXIE_PREPARATION_INFO_INIT };
    cli_progress progress = { 0 };
    moxie_error error = { 0 };
    moxie_status status = prepare_verify(fuzz_path("case"), NULL, &progress, &report, &error);
    FUZZ_CHECK(status == MOXIE_OK || error.text[0]);
    error = (moxie_error) { 0 };
    report = (prepare_report) { .info = MOXIE_PREPARATION_INFO_INIT };
    const prepare_options options = { .dir = fuzz_path("case"), .out = fuzz_path("back") };
    status = prepare_undo(&options, made.executor, &progress, &report, &error);
    FUZZ_CHECK(status == MOXIE_OK || error.text[0]);
    FUZZ_CHECK((access(options.out, F_OK) == 0) == (status == MOXIE_OK));
    FUZZ_CHECK(access(fuzz_path("case/layer-00000.safetensors"), F_OK) == 0);
}

void mox_fuzz_prepare_undo(const uint8_t *data, uint64_t size)
{
    char *sections[SECTIONS], *text = malloc(size + 1);
    FUZZ_CHECK(text);
    if (!made.file)
        make_template();
    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    const char *noise = cut(text, sections);
    FUZZ_CHECK(mkdir(fuzz_path("case"), 0777) == 0);
    const char *manifest = sections[MANIFEST] ? sections[MANIFEST] : made.manifest;
    const char *config = sections[CONFIG] ? sections[CONFIG] : made.config;
    fuzz_write("case/moxie_prepare.json", manifest, strlen(manifest));
    fuzz_write("case/config.json", config, strlen(config));
    if (write_layer(sections, noise, size - (uint64_t)(noise - text))) {
        int64_t layers[] = { 0 };
        const prepare_how how = { .layers = layers, .n_layers = 1 };
        moxie_error error;
        FUZZ_CHECK(prepare_index_write(fuzz_path("case"), &how, NULL, &error) == MOXIE_OK);
        check_directory();
    }
    fuzz_remove("case");
    fuzz_remove("back");
    fuzz_remove("back.partial");
    free(text);
}
