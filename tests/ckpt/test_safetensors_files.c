/* SPDX-License-Identifier: Apache-2.0
 *
 * test_safetensors_files.c - safetensors files as the disk has them: symbolic links, tensors at odd addresses, and what
 * is no regular file. test_safetensors.c has the headers.
 */
#include "test_support.h"

#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/safetensors/tensors.h"

#define ENTRY(dtype, shape, begin, end)                                                                                \
    "{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" #begin "," #end "]}"

/* A header of `json`, and data bytes 1, 2, 3 ... */
static void write_tensors(const char *path, const char *json, int data_bytes)
{
    FILE *stream = fopen(path, "wb");
    const size_t n = strlen(json);
    assert_non_null(stream);
    for (int i = 0; i < 8; i++)
        assert_int_equal(fputc((int)(n >> 8 * i & 0xff), stream), (int)(n >> 8 * i & 0xff));
    assert_int_equal(fwrite(json, 1, n, stream), n);
    for (int i = 1; i <= data_bytes; i++)
        assert_int_equal(fputc(i, stream), i);
    assert_int_equal(fclose(stream), 0);
}

static void test_no_regular_file(void **state)
{
    (void)state;
    char *dir = test_tmpdir(), path[600];
    moxie_error error;
    mox_tensor_set *set = NULL;
    snprintf(path, sizeof path, "%s/x", dir);
    assert_int_equal(mox_tensor_set_open_file(path, false, &set, &error), MOXIE_ERR_IO);
    assert_string_equal(error.file, path);
    assert_non_null(strstr(error.text, "No such file"));
    assert_int_equal(mox_tensor_set_open_file(dir, false, &set, &error), MOXIE_ERR_IO);
    assert_non_null(strstr(error.text, "directory"));
    assert_int_equal(mox_tensor_set_open_file("/dev/zero", false, &set, &error), MOXIE_ERR_IO);
    assert_non_null(strstr(error.text, "regular file"));
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(mox_tensor_set_open_file(path, true, &set, &error), MOXIE_ERR_IO);
    assert_non_null(strstr(error.text, "regular file"));
    remove(path);
    FILE *empty = fopen(path, "wb");
    assert_non_null(empty);
    assert_int_equal(fclose(empty), 0);
    assert_int_equal(mox_tensor_set_open_file(path, false, &set, &error), MOXIE_ERR_FORMAT);
    assert_null(set);
    test_rmdir(dir);
}

/* Model caches store files as symbolic links; tensors lie at odd addresses there, too. */
static void test_link_and_unaligned(void **state)
{
    (void)state;
    char *dir = test_tmpdir(), blob[600], link[600];
    static const char json[] =
        "{\"a\":" ENTRY("U8", "1", 0, 1) ",\"b\":" ENTRY("F32", "1", 1, 5) ",\"c\":" ENTRY("C64", "1", 5, 13) "}";
    snprintf(blob, sizeof blob, "%s/blob", dir);
    snprintf(link, sizeof link, "%s/x.safetensors", dir);
    write_tensors(blob, json, 13);
    assert_int_equal(symlink("blob", link), 0);
    for (int no_mmap = 0; no_mmap < 2; no_mmap++) {
        moxie_error error;
        mox_tensor_set *set = NULL;
        assert_ok(mox_tensor_set_open_file(link, no_mmap, &set, &error), &error);
        assert_int_equal(mox_tensor_set_count(set), 3);
        assert_int_equal(mox_tensor_set_files(set), 1);
        assert_string_equal(mox_tensor_set_file_name(set, 0), link);
        assert_int_equal(mox_tensor_set_bytes(set), 13);
        assert_memory_equal(mox_tensor_set_find(set, "b")->view.data, "\2\3\4\5", 4);
        assert_null(mox_tensor_set_find(set, "d"));
        assert_int_equal(mox_file_tensor_check(set, mox_tensor_set_find(set, "b"), &error), MOXIE_OK);
        assert_int_equal(mox_file_tensor_check(set, mox_tensor_set_find(set, "c"), &error), MOXIE_ERR_UNSUPPORTED);
        assert_non_null(strstr(error.text, "\"c\" (C64)"));
        mox_tensor_set_close(set);
    }
    test_rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_no_regular_file),
                                        cmocka_unit_test(test_link_and_unaligned) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
