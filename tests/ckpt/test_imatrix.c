/* SPDX-License-Identifier: Apache-2.0
 *
 * test_imatrix.c - importance matrices: values by expert and column, every cut of a file, wrong fields, random damage,
 * in both forms.
 * tests/python/gguf_written.py reads both forms as llama.cpp writes them.
 */
#include "test_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ckpt/gguf/imatrix.h"

enum { EXPERTS = 3, COLS = 4 };

typedef struct old_file {
    unsigned char bytes[512];
    size_t size;
} old_file;

static void put(old_file *f, const void *bytes, size_t size)
{
    memcpy(f->bytes + f->size, bytes, size);
    f->size += size;
}

static void put_int(old_file *f, int32_t value)
{
    put(f, &value, sizeof value);
}

/* Two entries: "a" with a row of sums for each expert, the last one all zero, and "b" with one row for all. */
static old_file make(void)
{
    static const float a[EXPERTS * COLS] = { 1, 2, 3, 2, 0, 8, 0, 8, 0, 0, 0, 0 }, b[COLS] = { 4, 4, 4, 4 };
    old_file f = { .size = 0 };
    put_int(&f, 2);
    put_int(&f, 1), put(&f, "a", 1), put_int(&f, 9), put_int(&f, EXPERTS * COLS), put(&f, a, sizeof a);
    put_int(&f, 1), put(&f, "b", 1), put_int(&f, 9), put_int(&f, COLS), put(&f, b, sizeof b);
    return f;
}

static void put_long(old_file *f, int64_t value)
{
    put(f, &value, sizeof value);
}

/* A tensor of a GGUF file, f32. */
static void put_info(old_file *f, const char *name, int64_t cols, int64_t rows, int64_t offset)
{
    put_long(f, (int64_t)strlen(name)), put(f, name, strlen(name));
    put_int(f, 2), put_long(f, cols), put_long(f, rows), put_int(f, 0), put_long(f, offset);
}

/* The same two entries as a GGUF file, and the counts, which are not read. *data: where the numbers begin. */
static old_file make_gguf(size_t *data)
{
    static const float a[EXPERTS * COLS] = { 1, 2, 3, 2, 0, 8, 0, 8, 0, 0, 0, 0 }, b[COLS] = { 4, 4, 4, 4 };
    static const float counts[EXPERTS] = { 1, 2, 0 };
    old_file f = { .size = 0 };
    put(&f, "GGUF", 4), put_int(&f, 3), put_long(&f, 3), put_long(&f, 0);
    put_info(&f, "a.in_sum2", COLS, EXPERTS, 0);
    put_info(&f, "b.in_sum2", COLS, 1, 64);
    put_info(&f, "a.counts", 1, EXPERTS, 96);
    *data = f.size = (f.size + 31) / 32 * 32;
    memcpy(f.bytes + f.size, a, sizeof a);
    memcpy(f.bytes + f.size + 64, b, sizeof b);
    memcpy(f.bytes + f.size + 96, counts, sizeof counts);
    f.size += 128;
    return f;
}

static moxie_status open_bytes(const old_file *f, mox_imatrix **out, moxie_error *error)
{
    char *dir = test_tmpdir(), path[512];
    snprintf(path, sizeof path, "%s/imatrix", dir);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(f->bytes, 1, f->size, file), f->size);
    fclose(file);
    *out = NULL;
    const moxie_status status = mox_imatrix_open(path, out, error);
    unlink(path);
    rmdir(dir);
    free(dir);
    return status;
}

static void values(void **state)
{
    (void)state;
    const old_file f = make();
    mox_imatrix *m;
    moxie_error error = { 0 };
    float out[COLS];
    bool found;
    assert_ok(open_bytes(&f, &m, &error), &error);
    assert_true(mox_imatrix_has(m, "a") && mox_imatrix_has(m, "b") && !mox_imatrix_has(m, "c"));
    assert_ok(mox_imatrix_columns(m, "a", 0, EXPERTS, COLS, out, &found, &error), &error);
    assert_true(found && out[0] == 0.5f && out[1] == 1 && out[2] == 1.5f && out[3] == 1);
    assert_ok(mox_imatrix_columns(m, "a", 1, EXPERTS, COLS, out, &found, &error), &error);
    assert_true(found && out[0] > 0 && out[0] < 0.001f && out[1] == 2);
    assert_ok(mox_imatrix_columns(m, "a", 2, EXPERTS, COLS, out, &found, &error), &error);
    assert_false(found);
    assert_ok(mox_imatrix_columns(m, "b", 2, EXPERTS, COLS, out, &found, &error), &error);
    assert_true(found && out[3] == 1);
    assert_ok(mox_imatrix_columns(m, "c", 0, EXPERTS, COLS, out, &found, &error), &error);
    assert_false(found);
    assert_int_equal(mox_imatrix_columns(m, "a", 0, EXPERTS, COLS + 1, out, &found, &error), MOXIE_ERR_MISMATCH);
    assert_int_equal(mox_imatrix_columns(m, "a", 0, EXPERTS + 1, COLS, out, &found, &error), MOXIE_ERR_MISMATCH);
    mox_imatrix_close(m);
}

static void refuses(const old_file *f, const char *says)
{
    mox_imatrix *m;
    moxie_error error = { 0 };
    assert_int_equal(open_bytes(f, &m, &error), MOXIE_ERR_FORMAT);
    assert_null(m);
    if (!strstr(error.text, says))
        fail_msg("\"%s\" does not say \"%s\"", error.text, says);
}

static void wrong_fields(void **state)
{
    (void)state;
    old_file f = make();
    for (size_t cut = 0; cut < f.size; cut++) {
        old_file part = f;
        part.size = cut;
        refuses(&part, "follow");
    }
    static const struct {
        size_t at;
        int32_t value;
        const char *says;
    } cases[] = {
        { 0, 0, "no importance matrix" },     { 0, -1, "no importance matrix" },
        { 4, 0, "a name has 0 bytes" },       { 4, -1, "a name has" },
        { 4, 1 << 20, "a name has 1048576" }, { 13, 0, "0 values" },
        { 13, -5, "values, expected" },       { 13, 1 << 28, "follow" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        old_file changed = f;
        memcpy(changed.bytes + cases[i].at, &cases[i].value, 4);
        refuses(&changed, cases[i].says);
    }
    static const float numbers[] = { -1, INFINITY, NAN };
    for (size_t i = 0; i < 3; i++) {
        old_file changed = f;
        memcpy(changed.bytes + 17, &numbers[i], 4);
        refuses(&changed, "expected a finite sum");
    }
    old_file twice = f;
    twice.bytes[f.size - 4 * COLS - 9] = 'a';
    refuses(&twice, "occurs twice");
    old_file zero = f;
    zero.bytes[8] = 0;
    refuses(&zero, "zero byte");
}

static void gguf_form(void **state)
{
    (void)state;
    size_t data;
    const old_file f = make_gguf(&data);
    mox_imatrix *m;
    moxie_error error = { 0 };
    float out[COLS];
    bool found;
    assert_ok(open_bytes(&f, &m, &error), &error);
    assert_true(mox_imatrix_has(m, "a") && mox_imatrix_has(m, "b") && !mox_imatrix_has(m, "a.counts"));
    assert_ok(mox_imatrix_columns(m, "a", 0, EXPERTS, COLS, out, &found, &error), &error);
    assert_true(found && out[0] == 0.5f && out[1] == 1 && out[2] == 1.5f && out[3] == 1);
    assert_ok(mox_imatrix_columns(m, "a", 2, EXPERTS, COLS, out, &found, &error), &error);
    assert_false(found);
    mox_imatrix_close(m);
    for (size_t cut = 0; cut < data + 96 + EXPERTS * sizeof(float); cut++) {
        old_file part = f;
        part.size = cut;
        assert_int_equal(open_bytes(&part, &m, &error), MOXIE_ERR_FORMAT);
    }
    old_file negative = f;
    memcpy(negative.bytes + data, &(float) { -1 }, sizeof(float));
    refuses(&negative, "expected a finite sum");
    old_file halves = f;
    halves.bytes[24 + 8 + 9 + 4 + 16] = 1; /* f16: half of the bytes, so the next offset is wrong, or the type is */
    assert_int_equal(open_bytes(&halves, &m, &error), MOXIE_ERR_FORMAT);
}

/* What opens can be asked for columns. */
static void damage(void **state)
{
    (void)state;
    size_t data;
    test_rng rng = { test_seed(33) };
    for (int i = 0; i < 400; i++) {
        old_file f = i % 2 ? make_gguf(&data) : make();
        mox_imatrix *m;
        moxie_error error = { 0 };
        float out[COLS];
        bool found;
        for (uint64_t n = test_below(&rng, 4); n > 0; n--)
            f.bytes[test_below(&rng, f.size)] = (unsigned char)test_below(&rng, 256);
        if (i % 8 == 0)
            memcpy(f.bytes, "GGUF", 4);
        if (i % 5 == 0)
            f.size = test_below(&rng, f.size);
        if (open_bytes(&f, &m, &error) != MOXIE_OK) {
            assert_true(error.text[0]);
            continue;
        }
        if (mox_imatrix_columns(m, "a", 2, EXPERTS, COLS, out, &found, &error) == MOXIE_OK && found)
            assert_true(out[0] > 0 && out[0] < INFINITY && out[COLS - 1] > 0);
        mox_imatrix_close(m);
    }
}

/* Bytes that are no file of any kind. */
static void noise(void **state)
{
    (void)state;
    test_rng rng = { test_seed(34) };
    for (int i = 0; i < 300; i++) {
        old_file f = { .size = test_below(&rng, sizeof f.bytes) };
        mox_imatrix *m;
        moxie_error error = { 0 };
        for (size_t b = 0; b < f.size; b++)
            f.bytes[b] = (unsigned char)test_below(&rng, i % 3 ? 4 : 256); /* small numbers get further */
        assert_int_equal(open_bytes(&f, &m, &error), MOXIE_ERR_FORMAT);
        assert_true(error.text[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values), cmocka_unit_test(wrong_fields), cmocka_unit_test(gguf_form),
        cmocka_unit_test(damage), cmocka_unit_test(noise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
