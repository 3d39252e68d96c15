/* SPDX-License-Identifier: Apache-2.0
 *
 * test_writer.c - what is written is read back; what cannot be finished leaves nothing.
 *
 * The bytes of one small file are spelled out by hand from the description of the format; everything else is a round
 * trip.
 */
#include "one_file.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <moxie/moxie_ckpt.h>

#include "ckpt/safetensors/tensor_writer.h"
#include "ckpt/safetensors/tensors.h"
#include "format/format.h"

/* ---- content ---------------------------------------------------------------------------------------- */

static void test_bytes_by_hand(void **state)
{
    fixture *f = *state;
    static const char json[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                               "\"a\\\"b\":{\"dtype\":\"BF16\",\"shape\":[1,2],\"data_offsets\":[0,4]},"
                               "\"n\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[4,5]}}";
    const mox_tensor_decl decls[] = { { "a\"b", MOXIE_BF16, 2, { 1, 2 } }, { "n", MOXIE_U8, 0, { 0 } } };
    static const char *const metadata[] = { "format", "pt" };
    mox_tensor_writer *writer = NULL;
    assert_ok(mox_tensor_writer_open(f->path, decls, 2, metadata, 1, &writer, &f->error), &f->error);
    assert_ok(mox_tensor_writer_put(writer, "AB", 2, &f->error), &f->error);
    assert_ok(mox_tensor_writer_put(writer, NULL, 0, &f->error), &f->error);
    assert_ok(mox_tensor_writer_put(writer, "CDE", 3, &f->error), &f->error);
    assert_int_equal(test_entries_in(f->dir), 1);
    assert_int_equal(access(f->path, F_OK), -1);
    assert_ok(mox_tensor_writer_finish(writer, &f->error), &f->error);
    assert_int_equal(test_entries_in(f->dir), 1);

    unsigned char got[512], want[512];
    const size_t padded = (sizeof json - 1 + 7) / 8 * 8;
    memset(want, ' ', sizeof want);
    memset(want, 0, 8);
    want[0] = (unsigned char)padded;
    memcpy(want + 8, json, sizeof json - 1);
    memcpy(want + 8 + padded, "ABCDE", 5);
    FILE *stream = fopen(f->path, "rb");
    assert_non_null(stream);
    assert_int_equal(fread(got, 1, sizeof got, stream), 8 + padded + 5);
    fclose(stream);
    assert_memory_equal(got, want, 8 + padded + 5);
}

/* Every dtype that files can have, in one file, twice: [3, 8] and an empty [0, 5]; then read both ways. */
static const moxie_dtype every_dtype[] = { MOXIE_F32,     MOXIE_F16,     MOXIE_BF16,    MOXIE_F8_E4M3, MOXIE_F8_E5M2,
                                           MOXIE_F8_E8M0, MOXIE_F6_E3M2, MOXIE_F6_E2M3, MOXIE_F4_E2M1, MOXIE_I8,
                                           MOXIE_U8,      MOXIE_I16,     MOXIE_U16,     MOXIE_I32,     MOXIE_U32,
                                           MOXIE_I64,     MOXIE_U64,     MOXIE_F64,     MOXIE_BOOL };
#define DTYPES (int)(sizeof every_dtype / sizeof every_dtype[0])

static void check_all_dtypes(const char *path, bool no_mmap, unsigned char *const *data)
{
    moxie_error error;
    moxie_tensor_file *file = NULL;
    assert_ok(moxie_tensor_file_open(path, no_mmap, &file, &error), &error);
    assert_int_equal(moxie_tensor_file_count(file), 2 * DTYPES);
    for (int i = 0; i < 2 * DTYPES; i++) {
        const char *name = NULL;
        char wanted[32];
        moxie_tensor by_place, by_name;
        snprintf(wanted, sizeof wanted, i < DTYPES ? "full.%d" : "empty.%d", i % DTYPES);
        assert_int_equal(moxie_tensor_file_at(file, i, &name, &by_place), MOXIE_OK);
        assert_string_equal(name, wanted);
        assert_ok(moxie_tensor_file_find(file, wanted, &by_name, &error), &error);
        assert_memory_equal(&by_place, &by_name, sizeof by_name);
        assert_int_equal(by_name.dtype, every_dtype[i % DTYPES]);
        assert_int_equal(by_name.rank, 2);
        assert_int_equal(by_name.shape[0], i < DTYPES ? 3 : 0);
        assert_int_equal(by_name.shape[1], i < DTYPES ? 8 : 5);
        if (i < DTYPES)
            assert_memory_equal(by_name.data, data[i], 3 * (size_t)mox_dtype_bits(every_dtype[i]));
    }
    moxie_tensor t = { .rank = 77 };
    assert_int_equal(moxie_tensor_file_find(file, "absent\033", &t, &error), MOXIE_ERR_MISMATCH);
    assert_non_null(strstr(error.text, "absent\\x1b"));
    assert_int_equal(moxie_tensor_file_at(file, 2 * DTYPES, NULL, &t), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_tensor_file_at(file, -1, NULL, &t), MOXIE_ERR_ARGUMENT);
    assert_int_equal(t.rank, 77);
    moxie_tensor_file_close(file);
}

static void test_every_dtype(void **state)
{
    fixture *f = *state;
    test_rng rng = { test_seed(1) };
    moxie_named_tensor tensors[2 * DTYPES];
    unsigned char *data[DTYPES];
    char names[2 * DTYPES][32];
    for (int i = 0; i < 2 * DTYPES; i++) {
        snprintf(names[i], sizeof names[i], i < DTYPES ? "full.%d" : "empty.%d", i % DTYPES);
        tensors[i] = (moxie_named_tensor) { names[i], { .dtype = every_dtype[i % DTYPES], .rank = 2 } };
        tensors[i].tensor.shape[0] = i < DTYPES ? 3 : 0;
        tensors[i].tensor.shape[1] = i < DTYPES ? 8 : 5;
        if (i >= DTYPES)
            continue;
        const size_t bytes = 3 * (size_t)mox_dtype_bits(every_dtype[i]); /* 24 elements of `bits` bits */
        tensors[i].tensor.data = data[i] = malloc(bytes);
        for (size_t k = 0; k < bytes; k++)
            data[i][k] = (unsigned char)test_u64(&rng);
    }
    assert_ok(moxie_tensor_file_write(f->path, tensors, 2 * DTYPES, NULL, 0, &f->error), &f->error);
    check_all_dtypes(f->path, false, data);
    check_all_dtypes(f->path, true, data);
    for (int i = 0; i < DTYPES; i++)
        free(data[i]);
}

/* Writes of random size, around and above the size of the write buffer. */
static void test_any_cut(void **state)
{
    fixture *f = *state;
    test_rng rng = { test_seed(2) };
    const uint64_t total = 3000001;
    unsigned char *data = malloc(total);
    for (uint64_t i = 0; i < total; i++)
        data[i] = (unsigned char)test_u64(&rng);
    const mox_tensor_decl decl = { "x", MOXIE_U8, 1, { (int64_t)total } };
    mox_tensor_writer *writer = NULL;
    assert_ok(mox_tensor_writer_open(f->path, &decl, 1, NULL, 0, &writer, &f->error), &f->error);
    for (uint64_t done = 0; done < total;) {
        uint64_t piece = test_below(&rng, UINT64_C(1) << (1 + test_below(&rng, 20)));
        piece = piece > total - done ? total - done : piece;
        assert_ok(mox_tensor_writer_put(writer, data + done, piece, &f->error), &f->error);
        done += piece;
    }
    assert_ok(mox_tensor_writer_finish(writer, &f->error), &f->error);
    mox_tensor_set *set = NULL;
    assert_ok(mox_tensor_set_open_file(f->path, false, &set, &f->error), &f->error);
    assert_int_equal(mox_tensor_set_bytes(set), total);
    assert_memory_equal(mox_tensor_set_find(set, "x")->view.data, data, total);
    mox_tensor_set_close(set);
    free(data);
}

static void test_names_survive(void **state)
{
    fixture *f = *state;
    static const char *const names[] = {
        "",         "plain.weight", "quote\" back\\slash", "\001\t\n\037\177", "\303\251\342\202\254\360\237\230\200",
        "a/b{}:,[]"
    };
    mox_tensor_decl decls[6] = { { 0 } };
    for (int i = 0; i < 6; i++)
        decls[i] = (mox_tensor_decl) { names[i], MOXIE_F32, 1, { 0 } };
    static const char *const metadata[] = { "\"k\n", "\303\251\\", "", "" };
    mox_tensor_writer *writer = NULL;
    mox_tensor_set *set = NULL;
    assert_ok(mox_tensor_writer_open(f->path, decls, 6, metadata, 2, &writer, &f->error), &f->error);
    assert_ok(mox_tensor_writer_finish(writer, &f->error), &f->error);
    assert_ok(mox_tensor_set_open_file(f->path, false, &set, &f->error), &f->error);
    for (int i = 0; i < 6; i++) {
        assert_string_equal(mox_tensor_set_at(set, i)->name, names[i]);
        assert_ptr_equal(mox_tensor_set_find(set, names[i]), mox_tensor_set_at(set, i));
    }
    mox_tensor_set_close(set);
}

static void test_no_tensors(void **state)
{
    fixture *f = *state;
    moxie_tensor_file *file = NULL;
    assert_ok(moxie_tensor_file_write(f->path, NULL, 0, NULL, 0, &f->error), &f->error);
    assert_ok(moxie_tensor_file_open(f->path, 0, &file, &f->error), &f->error);
    assert_int_equal(moxie_tensor_file_count(file), 0);
    moxie_tensor_file_close(file);
    struct stat info;
    assert_int_equal(stat(f->path, &info), 0);
    assert_int_equal(info.st_size, 16);
    const mode_t mask = umask(0);
    umask(mask);
    assert_int_equal(info.st_mode & 0777, 0666 & ~mask);
}

/* ---- rejections --------------------------------------------------------------------------------------- */

static void rejected(fixture *f, const mox_tensor_decl *decls, int64_t count, const char *says)
{
    mox_tensor_writer *writer = NULL;
    assert_int_equal(mox_tensor_writer_open(f->path, decls, count, NULL, 0, &writer, &f->error), MOXIE_ERR_ARGUMENT);
    if (!strstr(f->error.text, says))
        fail_msg("\"%s\" does not say \"%s\"", f->error.text, says);
    assert_null(writer);
    assert_int_equal(test_entries_in(f->dir), 0);
}

static void test_bad_declarations(void **state)
{
    fixture *f = *state;
    const int64_t big = INT64_C(1) << 47;
    const mox_tensor_decl twice[] = { { "a", MOXIE_F32, 0, { 0 } }, { "a", MOXIE_F32, 0, { 0 } } };
    rejected(f, twice, 2, "twice");
    rejected(f, &(mox_tensor_decl) { "__metadata__", MOXIE_F32, 0, { 0 } }, 1, "reserves");
    rejected(f, &(mox_tensor_decl) { "a\377", MOXIE_F32, 0, { 0 } }, 1, "UTF-8");
    rejected(f, &(mox_tensor_decl) { NULL, MOXIE_F32, 0, { 0 } }, 1, "no name");
    rejected(f, &(mox_tensor_decl) { "a", MOXIE_I4, 0, { 0 } }, 1, "no dtype for i4");
    rejected(f, &(mox_tensor_decl) { "a", MOXIE_DTYPE_NONE, 0, { 0 } }, 1, "no dtype");
    rejected(f, &(mox_tensor_decl) { "a", MOXIE_F4_E2M1, 1, { 3 } }, 1, "whole bytes");
    rejected(f, &(mox_tensor_decl) { "a", MOXIE_F6_E2M3, 1, { 2 } }, 1, "whole bytes");
    rejected(f, &(mox_tensor_decl) { "a", MOXIE_F32, 6, { 0 } }, 1, "rank 6");
    rejected(f, &(mox_tensor_decl) { "a", MOXIE_F32, 1, { -1 } }, 1, "out of range");
    rejected(f, &(mox_tensor_decl) { "a", MOXIE_U8, 1, { 2 * big } }, 1, "out of range");
    rejected(f, &(mox_tensor_decl) { "a", MOXIE_U8, 2, { big, big } }, 1, "out of range");
    const mox_tensor_decl far[] = { { "a", MOXIE_U8, 1, { big } }, { "b", MOXIE_U8, 1, { big } } };
    rejected(f, far, 2, "2^48");
    static const char *const pairs[] = { "k", "1", "k", "2" }, *const latin[] = { "k", "\351" };
    mox_tensor_writer *writer = NULL;
    assert_int_equal(mox_tensor_writer_open(f->path, NULL, 0, pairs, 2, &writer, &f->error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(mox_tensor_writer_open(f->path, NULL, 0, latin, 1, &writer, &f->error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(test_entries_in(f->dir), 0);
}

static void test_bad_tensors(void **state)
{
    fixture *f = *state;
    float data[6] = { 0 };
    const moxie_tensor good = { .data = data, .dtype = MOXIE_F32, .rank = 2, .shape = { 2, 3 }, .strides = { 3, 1 } };
    moxie_named_tensor t = { "t", good };
    assert_ok(moxie_tensor_file_write(f->path, &t, 1, NULL, 0, &f->error), &f->error);
    assert_int_equal(remove(f->path), 0);
    t.tensor.strides[0] = 4;
    assert_int_equal(moxie_tensor_file_write(f->path, &t, 1, NULL, 0, &f->error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(f->error.text, "contiguous"));
    t.tensor = good;
    t.tensor.data = NULL;
    assert_int_equal(moxie_tensor_file_write(f->path, &t, 1, NULL, 0, &f->error), MOXIE_ERR_ARGUMENT);
    t.tensor = good;
    t.tensor.device = 1;
    assert_int_equal(moxie_tensor_file_write(f->path, &t, 1, NULL, 0, &f->error), MOXIE_ERR_ARGUMENT);
    t.tensor = good;
    t.tensor.rank = 6;
    assert_int_equal(moxie_tensor_file_write(f->path, &t, 1, NULL, 0, &f->error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_tensor_file_write(NULL, &t, 1, NULL, 0, &f->error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_tensor_file_write(f->path, NULL, 1, NULL, 0, &f->error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_tensor_file_write(f->path, NULL, 0, NULL, 1, &f->error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(test_entries_in(f->dir), 0);
}

static mox_tensor_writer *start_four_bytes(fixture *f)
{
    mox_tensor_writer *writer = NULL;
    const mox_tensor_decl decl = { "x", MOXIE_F32, 0, { 0 } };
    assert_ok(mox_tensor_writer_open(f->path, &decl, 1, NULL, 0, &writer, &f->error), &f->error);
    return writer;
}

static void test_unfinished_leaves_nothing(void **state)
{
    fixture *f = *state;
    mox_tensor_writer_abandon(NULL);
    mox_tensor_writer_abandon(start_four_bytes(f));
    assert_int_equal(test_entries_in(f->dir), 0);

    mox_tensor_writer *writer = start_four_bytes(f);
    assert_ok(mox_tensor_writer_put(writer, "123", 3, &f->error), &f->error);
    assert_int_equal(mox_tensor_writer_finish(writer, &f->error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(f->error.text, "4 bytes of data were declared, 3 were written"));
    assert_int_equal(test_entries_in(f->dir), 0);

    writer = start_four_bytes(f);
    assert_int_equal(mox_tensor_writer_put(writer, "12345", 5, &f->error), MOXIE_ERR_ARGUMENT);
    mox_tensor_writer_abandon(writer);
    assert_int_equal(test_entries_in(f->dir), 0);
}

/* An existing file stays unchanged until the new one is complete. */
static void test_replaces_at_once(void **state)
{
    fixture *f = *state;
    mox_tensor_writer *writer = start_four_bytes(f);
    assert_ok(mox_tensor_writer_put(writer, "old!", 4, &f->error), &f->error);
    assert_ok(mox_tensor_writer_finish(writer, &f->error), &f->error);
    mox_tensor_set *set = NULL;
    writer = start_four_bytes(f);
    assert_ok(mox_tensor_writer_put(writer, "new!", 4, &f->error), &f->error);
    assert_ok(mox_tensor_set_open_file(f->path, false, &set, &f->error), &f->error);
    assert_ok(mox_tensor_writer_finish(writer, &f->error), &f->error);
    assert_memory_equal(mox_tensor_set_find(set, "x")->view.data, "old!", 4);
    mox_tensor_set_close(set);
    assert_ok(mox_tensor_set_open_file(f->path, false, &set, &f->error), &f->error);
    assert_memory_equal(mox_tensor_set_find(set, "x")->view.data, "new!", 4);
    mox_tensor_set_close(set);
}

/* A limit on file sizes stands in for a full disk: write() fails in the middle. */
static void test_full_disk(void **state)
{
    fixture *f = *state;
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 1 << 20;
    unsigned char *data = calloc(1, 4 << 20);
    const moxie_named_tensor t = { "x", { .data = data, .dtype = MOXIE_U8, .rank = 1, .shape = { 4 << 20 } } };
    void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const moxie_status at_once = moxie_tensor_file_write(f->path, &t, 1, NULL, 0, &f->error);
    mox_tensor_writer *writer = NULL;
    const mox_tensor_decl decl = { "x", MOXIE_U8, 1, { 4 << 20 } };
    const moxie_status opened = mox_tensor_writer_open(f->path, &decl, 1, NULL, 0, &writer, NULL);
    moxie_status worst = MOXIE_OK, finished = MOXIE_OK;
    for (int i = 0; opened == MOXIE_OK && i < 4096; i++)
        if (mox_tensor_writer_put(writer, data, 1024, NULL) != MOXIE_OK)
            worst = MOXIE_ERR_IO;
    /* After there is room again, the file still lacks what could not be written. */
    setrlimit(RLIMIT_FSIZE, &before);
    if (opened == MOXIE_OK)
        finished = mox_tensor_writer_finish(writer, NULL);
    signal(SIGXFSZ, old);
    free(data);
    assert_int_equal(at_once, MOXIE_ERR_IO);
    assert_non_null(strstr(f->error.file, "x.safetensors"));
    assert_int_equal(opened, MOXIE_OK);
    assert_int_equal(worst, MOXIE_ERR_IO);
    assert_int_equal(finished, MOXIE_ERR_IO);
    assert_int_equal(test_entries_in(f->dir), 0);
}

static void test_impossible_places(void **state)
{
    fixture *f = *state;
    mox_tensor_writer *writer = NULL;
    char path[700];
    snprintf(path, sizeof path, "%s/absent/x.safetensors", f->dir);
    assert_int_equal(mox_tensor_writer_open(path, NULL, 0, NULL, 0, &writer, &f->error), MOXIE_ERR_IO);
    assert_non_null(strstr(f->error.file, "absent"));
    assert_ok(mox_tensor_writer_open(f->path, NULL, 0, NULL, 0, &writer, &f->error), &f->error);
    assert_int_equal(mkdir(f->path, 0777), 0);
    assert_int_equal(mox_tensor_writer_finish(writer, &f->error), MOXIE_ERR_IO);
    assert_int_equal(test_entries_in(f->dir), 1);
}

/* The n-th allocation fails, for every n: an error, no leak (the sanitizer looks), no file. */
static void test_no_memory(void **state)
{
    fixture *f = *state;
    float data[2] = { 1, 2 };
    const moxie_named_tensor tensors[] = {
        { "a", { .data = data, .dtype = MOXIE_F32, .rank = 1, .shape = { 2 } } },
        { "b", { .data = data, .dtype = MOXIE_F32, .rank = 1, .shape = { 1 } } },
    };
    static const char *const metadata[] = { "format", "pt" };
    for (uint64_t n = 1;; n++) {
        mox_alloc_fail_at(n);
        const moxie_status status = moxie_tensor_file_write(f->path, tensors, 2, metadata, 1, &f->error);
        mox_alloc_fail_at(0);
        if (status == MOXIE_OK) {
            assert_true(n > 5);
            return;
        }
        assert_int_equal(status, MOXIE_ERR_MEMORY);
        assert_int_equal(test_entries_in(f->dir), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bytes_by_hand, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_every_dtype, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_any_cut, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_names_survive, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_tensors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bad_declarations, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_bad_tensors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unfinished_leaves_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_replaces_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_full_disk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_impossible_places, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_memory, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
