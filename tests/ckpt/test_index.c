/* SPDX-License-Identifier: Apache-2.0
 *
 * test_index.c - directories of shards: with an index, without one, and with an index that lies.
 */
#include "test_support.h"

#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/safetensors/tensor_index.h"
#include "ckpt/safetensors/tensor_writer.h"
#include "ckpt/safetensors/tensors.h"

#define INDEX "model.safetensors.index.json"

typedef struct fixture {
    char *dir;
    moxie_error error;
    mox_tensor_set *set;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->dir = test_tmpdir();
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    mox_tensor_set_close(f->set);
    test_rmdir(f->dir);
    free(f);
    return 0;
}

static void write_text(const fixture *f, const char *name, const char *text)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    fputs(text, stream);
    fclose(stream);
}

/* A shard of one-byte tensors; every character of `tensors` names one and is its content. */
static void write_shard(const fixture *f, const char *name, const char *tensors)
{
    char path[700], names[32][2] = { { 0 } };
    moxie_error error;
    mox_tensor_decl decls[32];
    const int64_t count = (int64_t)strlen(tensors);
    mox_tensor_writer *writer = NULL;
    for (int64_t i = 0; i < count; i++) {
        names[i][0] = tensors[i];
        decls[i] = (mox_tensor_decl) { .name = names[i], .dtype = MOXIE_U8, .rank = 1, .shape = { 1 } };
    }
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    assert_ok(mox_tensor_writer_open(path, decls, count, NULL, 0, &writer, &error), &error);
    assert_ok(mox_tensor_writer_put(writer, tensors, (uint64_t)count, &error), &error);
    assert_ok(mox_tensor_writer_finish(writer, &error), &error);
}

static void open_dir(fixture *f)
{
    assert_ok(mox_tensor_set_open_dir(f->dir, false, &f->set, &f->error), &f->error);
}

static void reject_dir(fixture *f, moxie_status wanted, const char *says)
{
    for (int no_mmap = 0; no_mmap < 2; no_mmap++) {
        assert_int_equal(mox_tensor_set_open_dir(f->dir, no_mmap, &f->set, &f->error), wanted);
        if (!strstr(f->error.text, says))
            fail_msg("\"%s\" does not say \"%s\"", f->error.text, says);
        assert_true(f->error.file[0]);
        assert_null(f->set);
    }
}

static void check_content(const fixture *f, const char *tensors)
{
    assert_int_equal(mox_tensor_set_count(f->set), strlen(tensors));
    for (const char *t = tensors; *t; t++) {
        const char name[2] = { *t, 0 };
        const mox_file_tensor *found = mox_tensor_set_find(f->set, name);
        assert_non_null(found);
        assert_int_equal(*(const char *)found->view.data, *t);
    }
}

/* ---- good directories ------------------------------------------------------------------------------- */

/* Zero-based: three shards called "of 2", as in one real release. The order of their names differs from that of the
 * map. */
static void test_indexed(void **state)
{
    fixture *f = *state;
    write_shard(f, "model-00000-of-00002.safetensors", "ab");
    write_shard(f, "model-00001-of-00002.safetensors", "cd");
    write_shard(f, "model-00002-of-00002.safetensors", "e");
    write_text(f, "other.safetensors", "not part of the model, never opened");
    write_text(f, INDEX,
               "{\"metadata\":{\"total_size\":5},\"weight_map\":{"
               "\"e\":\"model-00002-of-00002.safetensors\",\"a\":\"model-00000-of-00002.safetensors\","
               "\"c\":\"model-00001-of-00002.safetensors\",\"b\":\"model-00000-of-00002.safetensors\","
               "\"d\":\"model-00001-of-00002.safetensors\"}}");
    open_dir(f);
    check_content(f, "abcde");
    assert_int_equal(mox_tensor_set_files(f->set), 3);
    assert_non_null(strstr(mox_tensor_set_file_name(f->set, 1), "/model-00001-of-00002.safetensors"));
    assert_int_equal(mox_tensor_set_find(f->set, "e")->file, 2);
    assert_int_equal(mox_tensor_set_bytes(f->set), 5);
    assert_int_equal(mox_tensor_set_warnings(f->set), 0);
    assert_null(mox_tensor_set_find(f->set, "f"));
}

static void test_without_index(void **state)
{
    fixture *f = *state;
    write_shard(f, "b.safetensors", "cd");
    write_shard(f, "a.safetensors", "ab");
    write_shard(f, "c10.safetensors", "");
    write_text(f, "a.safetensors.12-0.tmp", "half written");
    write_text(f, ".hidden.safetensors", "not ours");
    write_text(f, "notes.txt", "-");
    open_dir(f);
    check_content(f, "abcd");
    assert_int_equal(mox_tensor_set_files(f->set), 3);
    assert_string_equal(mox_tensor_set_at(f->set, 0)->name, "a");
    assert_int_equal(mox_tensor_set_warnings(f->set), 0);
}

/* Independent of the order in which the file system lists them. */
static void test_name_order(void **state)
{
    fixture *f = *state;
    static const char order[] = "dbhfcage";
    for (const char *c = order; *c; c++) {
        const char name[] = { *c, '.', 's', 'a', 'f', 'e', 't', 'e', 'n', 's', 'o', 'r', 's', 0 }, tensor[] = { *c, 0 };
        write_shard(f, name, tensor);
    }
    open_dir(f);
    for (int i = 0; i < 8; i++)
        assert_int_equal(mox_tensor_set_at(f->set, i)->name[0], 'a' + i);
}

/* As model caches store them: snapshot/x -> ../blobs/hash. */
static void test_symlinks(void **state)
{
    fixture *f = *state;
    char path[700];
    write_shard(f, "blob0", "ab");
    write_text(f, "blob1", "{\"weight_map\":{\"a\":\"m.safetensors\",\"b\":\"m.safetensors\"}}");
    snprintf(path, sizeof path, "%s/m.safetensors", f->dir);
    assert_int_equal(symlink("blob0", path), 0);
    snprintf(path, sizeof path, "%s/" INDEX, f->dir);
    assert_int_equal(symlink("blob1", path), 0);
    open_dir(f);
    check_content(f, "ab");
}

/* ---- tolerated contradictions ----------------------------------------------------------------------- */

static void test_warnings(void **state)
{
    fixture *f = *state;
    write_shard(f, "1.safetensors", "abxy");
    write_shard(f, "2.safetensors", "cz");
    write_text(f, INDEX,
               "{\"metadata\":{\"total_size\":7.0},"
               "\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"1.safetensors\",\"c\":\"2.safetensors\"}}");
    open_dir(f);
    check_content(f, "abcxyz");
    assert_int_equal(mox_tensor_set_warnings(f->set), 3);
    assert_string_equal(mox_tensor_set_warning(f->set, 0),
                        "the index gives a total_size of 7 bytes, its tensors have 3");
    assert_string_equal(mox_tensor_set_warning(f->set, 1),
                        "\"1.safetensors\" holds 2 tensors that the index does not name; the first is \"x\"");
    assert_string_equal(mox_tensor_set_warning(f->set, 2),
                        "\"2.safetensors\" holds 1 tensors that the index does not name; the first is \"z\"");
}

/* ---- rejections --------------------------------------------------------------------------------------- */

static void test_nothing_there(void **state)
{
    fixture *f = *state;
    reject_dir(f, MOXIE_ERR_IO, "no model.safetensors.index.json and no file *.safetensors");
    moxie_error error;
    char path[700];
    snprintf(path, sizeof path, "%s/absent", f->dir);
    assert_int_equal(mox_tensor_set_open_dir(path, false, &f->set, &error), MOXIE_ERR_IO);
    assert_string_equal(error.file, path);
    snprintf(path, sizeof path, "%s/" INDEX, f->dir);
    assert_int_equal(symlink("nowhere", path), 0);
    write_shard(f, "1.safetensors", "a");
    reject_dir(f, MOXIE_ERR_IO, "cannot open");
}

static void test_missing_shard(void **state)
{
    fixture *f = *state;
    write_shard(f, "1.safetensors", "a");
    write_text(f, INDEX, "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}");
    reject_dir(f, MOXIE_ERR_IO, "No such file");
    assert_non_null(strstr(f->error.file, "/2.safetensors"));
}

static void test_index_against_shards(void **state)
{
    fixture *f = *state;
    write_shard(f, "1.safetensors", "a");
    write_shard(f, "2.safetensors", "b");
    write_text(f, INDEX, "{\"weight_map\":{\"a\":\"1.safetensors\",\"q\":\"2.safetensors\"}}");
    reject_dir(f, MOXIE_ERR_MISMATCH, "places tensor \"q\" in \"2.safetensors\", but no shard holds it");
    write_text(f, INDEX, "{\"weight_map\":{\"a\":\"2.safetensors\",\"b\":\"1.safetensors\"}}");
    reject_dir(f, MOXIE_ERR_MISMATCH, "places tensor \"a\" in \"2.safetensors\", but it is in \"1.safetensors\"");
    write_shard(f, "2.safetensors", "ba");
    write_text(f, INDEX, "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}");
    reject_dir(f, MOXIE_ERR_FORMAT, "tensor \"a\" is in this file and in");
    assert_non_null(strstr(f->error.text, "1.safetensors"));
    assert_non_null(strstr(f->error.file, "2.safetensors"));
}

static void test_duplicates_without_index(void **state)
{
    fixture *f = *state;
    write_shard(f, "1.safetensors", "a");
    write_shard(f, "2.safetensors", "a");
    reject_dir(f, MOXIE_ERR_FORMAT, "expected every name once");
}

static void test_damaged_shard(void **state)
{
    fixture *f = *state;
    char path[700];
    write_shard(f, "1.safetensors", "a");
    write_shard(f, "2.safetensors", "bcd");
    snprintf(path, sizeof path, "%s/2.safetensors", f->dir);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(truncate(path, info.st_size - 1), 0);
    reject_dir(f, MOXIE_ERR_FORMAT, "\"d\" lies at [2, 3), but the file has 2 bytes of data");
    assert_string_equal(f->error.file, path);
}

/* The index points outside its directory, or at no file. Nothing outside may be opened. */
static void test_index_attacks(void **state)
{
    fixture *f = *state;
    static const char *const names[] = { "../../etc/passwd", "/etc/passwd", "a/b", "", ".", "..", "/", "./x" };
    char text[200], path[700];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(text, sizeof text, "{\"weight_map\":{\"a\":\"%s\"}}", names[i]);
        write_text(f, INDEX, text);
        reject_dir(f, MOXIE_ERR_FORMAT, "expected a bare file name");
        assert_non_null(strstr(f->error.file, INDEX));
    }
    write_text(f, INDEX, "{\"weight_map\":{\"a\":\"x\"}}");
    snprintf(path, sizeof path, "%s/x", f->dir);
    assert_int_equal(mkdir(path, 0700), 0);
    reject_dir(f, MOXIE_ERR_IO, "regular file");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(symlink("/dev/zero", path), 0);
    reject_dir(f, MOXIE_ERR_IO, "regular file");
    remove(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    reject_dir(f, MOXIE_ERR_IO, "regular file");
}

static void test_malformed_index(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "", "line 1" },
        { "[]", "\"weight_map\"" },
        { "{}", "\"weight_map\"" },
        { "{\"weight_map\":[]}", "another type" },
        { "{\"weight_map\":{}}", "empty" },
        { "{\"weight_map\":{\"a\":1}}", "expected a file name" },
        { "{\"weight_map\":{\"a\":null}}", "expected a file name" },
        { "{\"weight_map\":{\"a\":\"x\",\"a\":\"y\"}}", "duplicate" },
        { "{\"weight_map\":{\"a\":\"x\",\"\\u0061\":\"y\"}}", "duplicate" },
        { "{\"weight_map\":{\"a\":\"x\\u0000y\"}}", "u0000" },
        { "{\"weight_map\":{\"a\":\"x\"},\"weight_map\":{}}", "duplicate" },
        { "{\"weight_map\":{\"a\":\"x\"},\"metadata\":{\"total_size\":NaN}}", "line 1" },
        { "{\"weight_map\":{\"\\u001b[2J\":\"a/b\"}}", "\\x1b[2J" },
        { "{\"weight_map\":{\"a\":\"\\u001b/\"}}", "\\x1b/" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_text(f, INDEX, cases[i].text);
        reject_dir(f, MOXIE_ERR_FORMAT, cases[i].says);
        assert_non_null(strstr(f->error.file, INDEX));
    }
}

/* ---- memory ----------------------------------------------------------------------------------------- */

static void test_no_memory(void **state)
{
    fixture *f = *state;
    write_shard(f, "1.safetensors", "abx");
    write_shard(f, "2.safetensors", "c");
    for (int indexed = 0; indexed < 2; indexed++) {
        if (indexed)
            write_text(f, INDEX,
                       "{\"metadata\":{\"total_size\":1},\"weight_map\":{\"a\":\"1.safetensors\","
                       "\"b\":\"1.safetensors\",\"c\":\"2.safetensors\"}}");
        for (uint64_t n = 1;; n++) {
            mox_alloc_fail_at(n);
            const moxie_status status = mox_tensor_set_open_dir(f->dir, n % 2, &f->set, &f->error);
            mox_alloc_fail_at(0);
            if (status == MOXIE_OK) {
                assert_true(n > 10);
                mox_tensor_set_close(f->set);
                f->set = NULL;
                break;
            }
            assert_int_equal(status, MOXIE_ERR_MEMORY);
            assert_null(f->set);
        }
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_indexed),
        TEST(test_without_index),
        TEST(test_name_order),
        TEST(test_symlinks),
        TEST(test_warnings),
        TEST(test_nothing_there),
        TEST(test_missing_shard),
        TEST(test_index_against_shards),
        TEST(test_duplicates_without_index),
        TEST(test_damaged_shard),
        TEST(test_index_attacks),
        TEST(test_malformed_index),
        TEST(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
