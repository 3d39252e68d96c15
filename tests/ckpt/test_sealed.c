/* SPDX-License-Identifier: Apache-2.0
 *
 * test_sealed.c - sealed files: pieces written in any order give the same file; the seal follows its description;
 * changing any byte is detected; an unfinished file leaves nothing behind.
 */
#include "one_file.h"

#include <unistd.h>

#include <moxie/moxie_ckpt.h>

#include "base/memory.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Three tensors: a stack of four pieces of 6 bytes, one piece, an empty one. */
enum { STACK = 24, SINGLE = 5, DATA = STACK + SINGLE };
static const moxie_sealed_tensor tensors[] = {
    { "stack", MOXIE_U8, 3, { 4, 2, 3 }, 4 },
    { "single", MOXIE_U8, 1, { 5 }, 1 },
    { "empty", MOXIE_F32, 2, { 0, 3 }, 1 },
};
static const char *const metadata[] = { "who", "a \"test\"", "moxie.sealing", "\"moxie.seal\":\"0123456789abcdef\"" };

/* Writes `data` in a random order of pieces. */
static moxie_status write_sealed(const char *path, const unsigned char *data, test_rng *rng, moxie_error *error)
{
    moxie_sealed_writer *writer = NULL;
    int order[6] = { 0, 1, 2, 3, 4, 5 };
    for (int i = 5; i > 0; i--) {
        const int j = (int)test_below(rng, (uint64_t)i + 1), saved = order[i];
        order[i] = order[j];
        order[j] = saved;
    }
    moxie_status status = moxie_sealed_writer_open(path, tensors, 3, metadata, 2, &writer, error);
    for (int i = 0; status == MOXIE_OK && i < 6; i++) {
        const int p = order[i];
        if (p < 4)
            status = moxie_sealed_writer_put(writer, 0, p, data + 6 * p, error);
        else
            status = moxie_sealed_writer_put(writer, p - 3, 0, p == 4 ? data + STACK : data, error);
    }
    if (status != MOXIE_OK) {
        moxie_sealed_writer_abandon(writer);
        return status;
    }
    return moxie_sealed_writer_finish(writer, error);
}

static void fill(unsigned char *data, test_rng *rng)
{
    for (int i = 0; i < DATA; i++)
        data[i] = (unsigned char)test_u64(rng);
}

static size_t load(const char *path, unsigned char *out, size_t room)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t size = fread(out, 1, room, file);
    assert_true(size < room);
    fclose(file);
    return size;
}

static void store(const char *path, const unsigned char *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    fclose(file);
}

static moxie_status check(const char *path, moxie_error *error)
{
    moxie_tensor_file *file = NULL;
    moxie_status status = moxie_tensor_file_open(path, 0, &file, error);
    if (status == MOXIE_OK)
        status = moxie_tensor_file_check_seal(file, error);
    moxie_tensor_file_close(file);
    return status;
}

/* The seal by its description: over the sums of header and pieces, in file order. */
static void the_seal_is_as_described(void **state)
{
    fixture *f = *state;
    test_rng rng = { test_seed(1) };
    unsigned char data[DATA], bytes[4096];
    for (int tries = 0; tries < 10; tries++) {
        fill(data, &rng);
        assert_ok(write_sealed(f->path, data, &rng, &f->error), &f->error);
        assert_ok(check(f->path, &f->error), &f->error);
        const size_t size = load(f->path, bytes, sizeof bytes), header = size - DATA;
        assert_int_equal(header % 8, 0);
        assert_memory_equal(bytes + header, data, DATA);
        char *digits = memmem(bytes, header, ",\"moxie.seal\":\"", 15);
        assert_non_null(digits);
        char found[17] = "", want[17];
        memcpy(found, digits + 15, 16);
        memset(digits + 15, '0', 16);
        uint64_t sums[7] = { XXH3_64bits(bytes, header) };
        for (int p = 0; p < 4; p++)
            sums[1 + p] = XXH3_64bits(data + 6 * p, 6);
        sums[5] = XXH3_64bits(data + STACK, SINGLE);
        sums[6] = XXH3_64bits(data, 0);
        snprintf(want, sizeof want, "%016llx", (unsigned long long)XXH3_64bits(sums, sizeof sums));
        assert_string_equal(found, want);
    }
    moxie_tensor_file *file = NULL;
    assert_ok(moxie_tensor_file_open(f->path, 0, &file, &f->error), &f->error);
    assert_string_equal(moxie_tensor_file_metadata(file, "who"), "a \"test\"");
    assert_string_equal(moxie_tensor_file_metadata(file, "moxie.pieces"), "4,1,1");
    assert_null(moxie_tensor_file_metadata(file, "nobody"));
    moxie_tensor tensor;
    assert_ok(moxie_tensor_file_find(file, "single", &tensor, &f->error), &f->error);
    moxie_tensor_file_release_pages(file, tensor.data, SINGLE);
    assert_memory_equal(tensor.data, data + STACK, SINGLE);
    moxie_tensor_file_close(file);
}

static void no_bit_changes_unseen(void **state)
{
    fixture *f = *state;
    test_rng rng = { test_seed(2) };
    unsigned char data[DATA], bytes[4096];
    fill(data, &rng);
    assert_ok(write_sealed(f->path, data, &rng, &f->error), &f->error);
    const size_t size = load(f->path, bytes, sizeof bytes);
    for (size_t i = 0; i < size; i++) {
        const unsigned char bit = (unsigned char)(1u << test_below(&rng, 8));
        bytes[i] ^= bit;
        store(f->path, bytes, size);
        if (check(f->path, &f->error) == MOXIE_OK)
            fail_msg("bit %02x of byte %zu changed unseen", bit, i);
        bytes[i] ^= bit;
    }
    store(f->path, bytes, size - 1);
    assert_int_not_equal(check(f->path, &f->error), MOXIE_OK);
    store(f->path, bytes, size);
    assert_ok(check(f->path, &f->error), &f->error);
}

static void other_files_have_no_seal(void **state)
{
    fixture *f = *state;
    unsigned char byte = 1;
    const moxie_named_tensor one = { "x", { .data = &byte, .dtype = MOXIE_U8, .rank = 1, .shape = { 1 } } };
    static const char *const wrong[][4] = {
        { "moxie.seal", "0000000000000000", "moxie.pieces", "1" },
        { "moxie.seal", "0000000000000000", "moxie.pieces", "2" },
        { "moxie.seal", "0000000000000000", "moxie.pieces", "1,1" },
        { "moxie.seal", "0", "moxie.pieces", "1" },
        { "moxie.seal", "0000000000000000", "moxie.pieces", "" },
        { "moxie.seal", "0000000000000000", "other", "1" },
    };
    assert_ok(moxie_tensor_file_write(f->path, &one, 1, NULL, 0, &f->error), &f->error);
    assert_int_equal(check(f->path, &f->error), MOXIE_ERR_MISMATCH);
    assert_non_null(strstr(f->error.text, "no seal"));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_ok(moxie_tensor_file_write(f->path, &one, 1, wrong[i], 2, &f->error), &f->error);
        assert_int_equal(check(f->path, &f->error), MOXIE_ERR_MISMATCH);
    }
}

static void what_is_not_finished_leaves_nothing(void **state)
{
    fixture *f = *state;
    moxie_sealed_writer *writer = NULL;
    unsigned char data[DATA] = { 0 };
    assert_ok(moxie_sealed_writer_open(f->path, tensors, 3, NULL, 0, &writer, &f->error), &f->error);
    for (int p = 0; p < 3; p++)
        assert_ok(moxie_sealed_writer_put(writer, 0, p, data, &f->error), &f->error);
    assert_int_equal(moxie_sealed_writer_put(writer, 0, 4, data, &f->error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_sealed_writer_put(writer, 3, 0, data, &f->error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_sealed_writer_put(writer, -1, 0, data, &f->error), MOXIE_ERR_ARGUMENT);
    assert_ok(moxie_sealed_writer_put(writer, 1, 0, data, &f->error), &f->error);
    assert_int_equal(moxie_sealed_writer_finish(writer, &f->error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(f->error.text, "piece 3 of 6"));
    assert_int_equal(test_entries_in(f->dir), 0);
    assert_ok(moxie_sealed_writer_open(f->path, tensors, 3, NULL, 0, &writer, &f->error), &f->error);
    assert_int_equal(test_entries_in(f->dir), 1);
    moxie_sealed_writer_abandon(writer);
    moxie_sealed_writer_abandon(NULL);
    assert_int_equal(test_entries_in(f->dir), 0);
}

static void wrong_declarations_are_refused(void **state)
{
    fixture *f = *state;
    moxie_sealed_writer *writer = NULL;
    moxie_sealed_tensor t = { "x", MOXIE_U8, 1, { 10 }, 3 };
    assert_int_equal(moxie_sealed_writer_open(f->path, &t, 1, NULL, 0, &writer, &f->error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(f->error.text, "3 equal pieces"));
    t.pieces = 0;
    assert_int_equal(moxie_sealed_writer_open(f->path, &t, 1, NULL, 0, &writer, &f->error), MOXIE_ERR_ARGUMENT);
    t.pieces = 5;
    static const char *const accepted[] = { "moxie.seal", "mine" };
    assert_int_equal(moxie_sealed_writer_open(f->path, &t, 1, accepted, 1, &writer, &f->error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_sealed_writer_open(NULL, &t, 1, NULL, 0, &writer, &f->error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_sealed_writer_open(f->path, NULL, 1, NULL, 0, &writer, &f->error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_sealed_writer_open(f->path, &t, 1, NULL, 1, &writer, &f->error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_sealed_writer_put(NULL, 0, 0, &t, &f->error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_sealed_writer_finish(NULL, &f->error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_tensor_file_check_seal(NULL, &f->error), MOXIE_ERR_ARGUMENT);
    assert_null(writer);
    assert_int_equal(test_entries_in(f->dir), 0);
    snprintf(f->path, sizeof f->path, "%s/no/such/x", f->dir);
    assert_int_equal(moxie_sealed_writer_open(f->path, &t, 1, NULL, 0, &writer, &f->error), MOXIE_ERR_IO);
}

static void every_allocation_may_fail(void **state)
{
    fixture *f = *state;
    test_rng rng = { 3 };
    unsigned char data[DATA];
    fill(data, &rng);
    moxie_status status = MOXIE_ERR_MEMORY;
    uint64_t n = 0;
    while (status == MOXIE_ERR_MEMORY) {
        mox_alloc_fail_at(++n);
        status = write_sealed(f->path, data, &rng, &f->error);
        mox_alloc_fail_at(0);
        if (status != MOXIE_OK)
            assert_int_equal(test_entries_in(f->dir), 0);
    }
    assert_ok(status, &f->error);
    assert_true(n > 5);
    for (status = MOXIE_ERR_MEMORY, n = 0; status == MOXIE_ERR_MEMORY;) {
        mox_alloc_fail_at(++n);
        status = check(f->path, &f->error);
        mox_alloc_fail_at(0);
    }
    assert_ok(status, &f->error);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_seal_is_as_described, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_bit_changes_unseen, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_files_have_no_seal, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_not_finished_leaves_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(wrong_declarations_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_allocation_may_fail, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
