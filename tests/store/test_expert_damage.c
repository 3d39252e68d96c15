/* SPDX-License-Identifier: Apache-2.0
 *
 * test_expert_damage.c - expert files that are cut short, changed, contradictory or not finished are refused by name,
 * whatever byte it is.
 */
#include "../layer/small_layer.h"

#include <moxie/moxie_store.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checksum.h"
#include "store/expert_file.h"

static char folder[] = "/tmp/moxie-test-XXXXXX", path[64], copy_path[64];
static uint8_t *good; /* a whole file */
static size_t bytes;

static void put(const char *to, const void *data, size_t size)
{
    FILE *stream = fopen(to, "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(data, 1, size, stream), size);
    assert_int_equal(fclose(stream), 0);
}

static uint8_t *get(const char *from, size_t *size)
{
    struct stat info;
    FILE *stream = fopen(from, "rb");
    assert_non_null(stream);
    assert_int_equal(fstat(fileno(stream), &info), 0);
    uint8_t *data = malloc((size_t)info.st_size + 1);
    *size = (size_t)info.st_size;
    assert_int_equal(fread(data, 1, *size, stream), *size);
    fclose(stream);
    return data;
}

/* The status of opening and verifying these bytes, and the text. */
static moxie_status judge(const void *data, size_t size, moxie_error *error)
{
    moxie_expert_file_options options = MOXIE_EXPERT_FILE_OPTIONS_INIT;
    moxie_expert_file *file = NULL;
    put(copy_path, data, size);
    options.verify = 1;
    options.access = MOXIE_EXPERT_READ;
    const moxie_status status = moxie_expert_file_open(copy_path, &options, &file, error);
    moxie_expert_file_close(file);
    return status;
}

static void refused(const void *data, size_t size, moxie_status want, const char *words, const char *what)
{
    moxie_error error = { 0 };
    const moxie_status status = judge(data, size, &error);
    if (status != want || strstr(error.text, words) == NULL || strcmp(error.file, copy_path) != 0)
        fail_msg("%s: %s instead of %s, \"%s\" instead of \"%s\"", what, moxie_status_name(status),
                 moxie_status_name(want), error.text, words);
}

/* ---- a file to damage -------------------------------------------------------------------------------- */

static int begin_files(void **state)
{
    (void)state;
    const small_spec spec = { .weight = test_weight_quant_named("mxfp4"),
                              .act = test_act_quant_named("none"),
                              .dtype = MOXIE_BF16,
                              .experts = 3,
                              .top_k = 2,
                              .hidden = 64,
                              .intermediate = 32,
                              .tokens = 1,
                              .shared = true,
                              .router = true,
                              .choice = SMALL_ROUTER };
    test_layer t;
    moxie_error error;
    moxie_expert_writer *writer = NULL;
    moxie_expert_writer_options options = MOXIE_EXPERT_WRITER_OPTIONS_INIT;
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/layer.moxie", folder);
    snprintf(copy_path, sizeof copy_path, "%s/copy.moxie", folder);
    options.target = "moxie-rowmajor";
    test_rng rng = { test_seed(77) };
    small_layer_make(&t, &rng, &spec);
    assert_ok(moxie_expert_writer_open(path, &t.config, &t.weights, &options, &writer, &error), &error);
    for (int64_t e = 0; e < 3; e++)
        assert_ok(moxie_expert_writer_put(writer, e, (uint64_t)e, &error), &error);
    /* What a killed writer would leave. */
    char temporary[96];
    snprintf(temporary, sizeof temporary, "%s.moxie.tmp", path);
    size_t unfinished_bytes;
    uint8_t *unfinished = get(temporary, &unfinished_bytes);
    refused(unfinished, unfinished_bytes, MOXIE_ERR_FORMAT, "its writer did not end", "a killed writer");
    free(unfinished);
    assert_ok(moxie_expert_writer_finish(writer, &error), &error);
    assert_int_equal(access(temporary, F_OK), -1);
    test_layer_free(&t);
    good = get(path, &bytes);
    return 0;
}

static int end_files(void **state)
{
    (void)state;
    free(good);
    unlink(path);
    unlink(copy_path);
    return rmdir(folder);
}

static uint8_t *copy_of_good(void)
{
    uint8_t *data = malloc(bytes);
    return memcpy(data, good, bytes);
}

/* ---- damage --------------------------------------------------------------------------------------------- */

static void test_whole(void **state)
{
    (void)state;
    moxie_error error;
    assert_ok(judge(good, bytes, &error), &error);
    uint8_t *longer = calloc(1, bytes + 5000); /* what an interrupted replacement leaves */
    memcpy(longer, good, bytes);
    assert_ok(judge(longer, bytes + 5000, &error), &error);
    free(longer);
}

static void test_cut_short(void **state)
{
    (void)state;
    moxie_error error;
    for (size_t size = 0; size < bytes; size += 1 + bytes / 200) {
        const moxie_status status = judge(good, size, &error);
        if (status != MOXIE_ERR_FORMAT || strstr(error.text, "cut short") == NULL)
            fail_msg("%zu of %zu bytes: %s, %s", size, bytes, moxie_status_name(status), error.text);
    }
}

/* Every bit that is covered: all but the rest of the pages of the seals. */
static void test_flipped(void **state)
{
    (void)state;
    const size_t step = test_quick() ? 97 : 7;
    moxie_error error;
    for (size_t at = 0; at < bytes; at += at < 600 ? 1 : step) {
        if ((at >= 4096 + 512 && at < 8192) || (at >= 8192 + 512 && at < 12288))
            continue;
        uint8_t *data = copy_of_good();
        data[at] ^= (uint8_t)(1u << at % 8);
        if (judge(data, bytes, &error) == MOXIE_OK)
            fail_msg("byte %zu of %zu changed, and nobody saw it", at, bytes);
        assert_true(error.text[0] != '\0');
        free(data);
    }
}

/* ---- contradictions, with all checksums right ----------------------------------------------------------- */

typedef struct parts {
    uint8_t *data;
    mox_expert_header *header;
    mox_expert_seal *seal;
    mox_expert_entry *index;
} parts;

static parts take_apart(void)
{
    parts p = { .data = copy_of_good() };
    p.header = (mox_expert_header *)(void *)p.data;
    p.seal = (mox_expert_seal *)(void *)(p.data + 4096);
    p.index = (mox_expert_entry *)(void *)(p.data + p.seal->index.offset);
    return p;
}

/* Seals again, and expects a refusal. */
static void refused_parts(parts *p, moxie_status want, const char *words, const char *what)
{
    p->header->checksum = mox_checksum(p->header, offsetof(mox_expert_header, checksum));
    p->seal->header_checksum = p->header->checksum;
    p->seal->index.checksum = mox_checksum(p->index, mox_expert_padded(p->seal->index.bytes));
    mox_expert_end_seal(p->seal);
    refused(p->data, bytes, want, words, what);
    free(p->data);
}

static void test_index(void **state)
{
    (void)state;
    parts p = take_apart();
    const mox_expert_range first = p.index[0].range;
    p.index[0].range = p.index[1].range;
    refused_parts(&p, MOXIE_ERR_FORMAT, "overlaps", "two experts in one place");
    p = take_apart();
    p.index[0].range = p.index[1].range;
    p.index[1].range = first;
    refused_parts(&p, MOXIE_ERR_MISMATCH, "belongs to expert 1", "two records swapped");
    p = take_apart();
    p.index[2].range.offset += 64;
    refused_parts(&p, MOXIE_ERR_FORMAT, "does not begin on a page", "a record off its page");
    p = take_apart();
    p.index[2].range.offset = UINT64_MAX - 4095;
    refused_parts(&p, MOXIE_ERR_FORMAT, "does not lie in the file", "a record outside");
    p = take_apart();
    p.index[2].range.bytes += 64;
    refused_parts(&p, MOXIE_ERR_FORMAT, "size of a record", "a record of another size");
    p = take_apart();
    p.index[1].expert = 2;
    refused_parts(&p, MOXIE_ERR_FORMAT, "another expert", "an entry twice");
    p = take_apart();
    p.index[1].range = (mox_expert_range) { 0 };
    refused_parts(&p, MOXIE_ERR_FORMAT, "its index has 2 experts", "an expert missing");
    p = take_apart();
    p.seal->index.bytes -= 64;
    refused_parts(&p, MOXIE_ERR_FORMAT, "one entry for each expert", "a short index");
}

/* A record that claims an act order, in a format that has none: indices would be read behind its end. */
static void test_order(void **state)
{
    (void)state;
    static const uint32_t flags = MOX_ROWMAJOR_ORDER_DOWN;
    static const moxie_expert without_scales = { .a13_scale = 0 };
    moxie_expert_file *file = NULL;
    moxie_error error;
    parts p = take_apart();
    mox_expert_range *r = &p.index[0].range;
    uint8_t *record = p.data + r->offset;
    memcpy(record + offsetof(mox_record_header, flags), &flags, sizeof flags);
    const uint64_t head = sizeof(mox_record_header), sum = mox_checksum(record + head, r->bytes - head);
    assert_ok(moxie_expert_file_open(path, NULL, &file, &error), &error);
    mox_record_seal(&mox_layout_rowmajor, &file->shapes.mine[MOX_ROUTED], 0, &without_scales, record, &sum);
    moxie_expert_file_close(file);
    r->checksum = mox_checksum(record, mox_expert_padded(r->bytes));
    refused_parts(&p, MOXIE_ERR_FORMAT, "columns in groups that do not exist", "an act order of mxfp4");
}

static void test_header(void **state)
{
    (void)state;
    parts p = take_apart();
    p.header->version = 2;
    refused_parts(&p, MOXIE_ERR_UNSUPPORTED, "version 2", "a later version");
    p = take_apart();
    p.header->byte_order = 0x04030201;
    refused_parts(&p, MOXIE_ERR_UNSUPPORTED, "byte order", "the other byte order");
    p = take_apart();
    p.header->layout = 2;
    refused_parts(&p, MOXIE_ERR_UNSUPPORTED, "layout rowmajor (number 2)", "a layout of another number");
    p = take_apart();
    p.header->record_bytes += 64;
    for (int e = 0; e < 3; e++)
        p.index[e].range.bytes += 64;
    refused_parts(&p, MOXIE_ERR_FORMAT, "its configuration makes records of", "records of another shape");
    p = take_apart();
    p.header->n_sections = 41;
    refused_parts(&p, MOXIE_ERR_FORMAT, "contradicts itself", "too many sections");
    p = take_apart();
    memcpy(p.header->sections[1].name, p.header->sections[0].name, sizeof p.header->sections[0].name);
    refused_parts(&p, MOXIE_ERR_FORMAT, "contradicts itself", "a section twice");
    p = take_apart();
    p.header->sections[1].range.bytes -= 4;
    refused_parts(&p, MOXIE_ERR_MISMATCH, "the configuration needs", "a short router");
    p = take_apart();
    memset(p.header->sections[0].name, 'y', 3);
    refused_parts(&p, MOXIE_ERR_FORMAT, "no configuration", "a file without configuration");
    p = take_apart();
    memset(p.seal, 0, sizeof *p.seal);
    refused(p.data, bytes, MOXIE_ERR_MISMATCH, "its seal is damaged", "no seal");
    free(p.data);
}

/* Texts of a configuration, each of the same length as the true one. */
static void test_config_text(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *words;
    } cases[] = {
        { "experts 3\n", "experts 4\n", "its configuration has 4 experts" },
        { "top_k 2\n", "top_k x\n", "top_k x" },
        { "top_k 2\n", "topsk 2\n", "topsk 2" },
        { "hidden 64\n", "hidden 65\n", "" },
        { "bias13 0\n", "bias13 0 ", "" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        parts p = take_apart();
        mox_expert_range *r = &p.header->sections[0].range;
        char *at = memmem(p.data + r->offset, r->bytes, cases[i].from, strlen(cases[i].from));
        assert_non_null(at);
        memcpy(at, cases[i].to, strlen(cases[i].to));
        r->checksum = mox_checksum(p.data + r->offset, mox_expert_padded(r->bytes));
        p.header->checksum = mox_checksum(p.header, offsetof(mox_expert_header, checksum));
        p.seal->header_checksum = p.header->checksum;
        mox_expert_end_seal(p.seal);
        moxie_error error = { 0 };
        assert_true(judge(p.data, bytes, &error) != MOXIE_OK);
        if (strstr(error.text, cases[i].words) == NULL)
            fail_msg("%s: %s", cases[i].to, error.text);
        free(p.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),       cmocka_unit_test(test_cut_short), cmocka_unit_test(test_flipped),
        cmocka_unit_test(test_index),       cmocka_unit_test(test_order),     cmocka_unit_test(test_header),
        cmocka_unit_test(test_config_text),
    };
    return cmocka_run_group_tests(tests, begin_files, end_files);
}
