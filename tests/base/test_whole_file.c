/* SPDX-License-Identifier: Apache-2.0
 *
 * test_whole_file.c - writing a file is all or nothing, whatever fails. Temporary files of an ended process are
 * removed; files of other processes are not touched.
 *
 * The linker replaces the system's calls by functions in this file (tests/CMakeLists.txt), which fail the n-th call.
 */
#include "one_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <moxie/moxie_ckpt.h>

#include "base/listing.h"
#include "base/memory.h"
#include "base/temporaries.h"
#include "base/whole_file.h"

/* ---- calls that fail ---- */

static struct {
    int write, fsync, rename; /* the call that fails, counted from now; 0: none */
} fail_at;

static bool fails(int *left, int why)
{
    if (*left == 0 || --*left > 0)
        return false;
    errno = why;
    return true;
}

ssize_t __real_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes)
{
    return fails(&fail_at.write, ENOSPC) ? -1 : __real_write(fd, data, bytes);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    return fails(&fail_at.fsync, EIO) ? -1 : __real_fsync(fd);
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    return fails(&fail_at.rename, EACCES) ? -1 : __real_rename(from, to);
}

/* ---- a folder ---- */

static void assert_content(const char *path, const char *want)
{
    char *data = NULL;
    uint64_t bytes = 0;
    moxie_error error;
    assert_ok(moxie_file_read(path, 1 << 20, &data, &bytes, &error), &error);
    assert_int_equal(bytes, strlen(want));
    assert_string_equal(data, want); /* a zero byte follows */
    moxie_file_free(data);
}

static moxie_status put(fixture *f, const char *text)
{
    return moxie_file_write(f->path, text, strlen(text), &f->error);
}

/* ---- content ---- */

static void content_and_permissions(void **state)
{
    fixture *f = *state;
    struct stat info;
    const mode_t before = umask(027);
    assert_ok(put(f, "first"), &f->error);
    umask(before);
    assert_int_equal(stat(f->path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    assert_content(f->path, "first");
    assert_ok(put(f, ""), &f->error);
    assert_content(f->path, "");
    assert_int_equal(test_entries_in(f->dir), 1);
}

/* Pieces smaller and larger than the buffer that gathers them. */
static void pieces_come_in_order(void **state)
{
    fixture *f = *state;
    enum { TOTAL = 1500000 };
    test_rng rng = { test_seed(11) };
    unsigned char *data = malloc(TOTAL);
    for (int i = 0; i < TOTAL; i++)
        data[i] = (unsigned char)test_u64(&rng);
    mox_whole_file file = MOX_WHOLE_FILE_NONE;
    assert_ok(mox_whole_file_create(f->path, &file, &f->error), &f->error);
    for (uint64_t done = 0; done < TOTAL;) {
        uint64_t piece = test_below(&rng, UINT64_C(1) << (1 + test_below(&rng, 20)));
        piece = piece > TOTAL - done ? TOTAL - done : piece;
        assert_ok(mox_whole_file_append(&file, data + done, piece, &f->error), &f->error);
        done += piece;
    }
    assert_int_equal(access(f->path, F_OK), -1);
    assert_ok(mox_whole_file_publish(&file, &f->error), &f->error);
    mox_whole_file_discard(&file);
    char *got = NULL;
    uint64_t bytes = 0;
    assert_ok(moxie_file_read(f->path, TOTAL, &got, &bytes, &f->error), &f->error);
    assert_int_equal(bytes, TOTAL);
    assert_memory_equal(got, data, TOTAL);
    moxie_file_free(got);
    free(data);
}

/* ---- failures ---- */

/* After a failed call the folder holds the old file and nothing else. */
static void a_failed_call_leaves_the_file_before(void **state)
{
    fixture *f = *state;
    assert_ok(put(f, "before"), &f->error);
    int *const calls[] = { &fail_at.write, &fail_at.fsync, &fail_at.rename };
    static const char *const words[] = { "No space left", "Input/output error", "Permission denied" };
    for (int i = 0; i < 3; i++) {
        *calls[i] = 1;
        const moxie_status status = put(f, "after");
        assert_int_equal(*calls[i], 0);
        assert_int_equal(status, MOXIE_ERR_IO);
        assert_non_null(strstr(f->error.text, words[i]));
        assert_content(f->path, "before");
        assert_int_equal(test_entries_in(f->dir), 1);
    }
    assert_ok(put(f, "after"), &f->error);
    assert_content(f->path, "after");
}

/* A file with a piece that could not be written is not published, even if all later pieces were written. */
static void a_lost_piece_is_not_forgotten(void **state)
{
    fixture *f = *state;
    enum { PIECE = 300000 };
    char *piece = calloc(1, PIECE);
    mox_whole_file file = MOX_WHOLE_FILE_NONE;
    assert_ok(mox_whole_file_create(f->path, &file, &f->error), &f->error);
    fail_at.write = 1;
    assert_int_equal(mox_whole_file_append(&file, piece, PIECE, &f->error), MOXIE_ERR_IO);
    assert_ok(mox_whole_file_append(&file, piece, PIECE, &f->error), &f->error);
    assert_int_equal(mox_whole_file_publish(&file, &f->error), MOXIE_ERR_IO);
    mox_whole_file_discard(&file);
    assert_int_equal(test_entries_in(f->dir), 0);
    free(piece);
}

static void every_allocation_may_fail(void **state)
{
    fixture *f = *state;
    moxie_status status = MOXIE_ERR_MEMORY;
    uint64_t n = 0;
    while (status == MOXIE_ERR_MEMORY) {
        mox_alloc_fail_at(++n);
        status = put(f, "text");
        mox_alloc_fail_at(0);
        assert_int_equal(test_entries_in(f->dir), status == MOXIE_OK);
    }
    assert_ok(status, &f->error);
    assert_true(n > 1);
}

/* ---- a path that exists already ---- */

static void rejected(fixture *f, const char *path, const char *says)
{
    const int before = test_entries_in(f->dir);
    assert_int_equal(moxie_file_write(path, "x", 1, &f->error), MOXIE_ERR_IO);
    if (!strstr(f->error.text, says))
        fail_msg("\"%s\" does not say \"%s\"", f->error.text, says);
    assert_int_equal(moxie_file_check_output(path, &f->error), MOXIE_ERR_IO);
    assert_int_equal(test_entries_in(f->dir), before);
}

static void what_is_no_file_is_rejected(void **state)
{
    fixture *f = *state;
    char path[640], target[640];
    struct stat info;
    snprintf(path, sizeof path, "%s/folder", f->dir);
    assert_int_equal(mkdir(path, 0777), 0);
    rejected(f, path, "Is a directory");
    snprintf(path, sizeof path, "%s/pipe", f->dir);
    assert_int_equal(mkfifo(path, 0666), 0);
    rejected(f, path, "device, pipe or socket");
    snprintf(target, sizeof target, "%s/target", f->dir);
    assert_ok(moxie_file_write(target, "mine", 4, &f->error), &f->error);
    snprintf(path, sizeof path, "%s/link", f->dir);
    assert_int_equal(symlink("target", path), 0);
    rejected(f, path, "symbolic link");
    assert_content(target, "mine");
    assert_int_equal(lstat(path, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    snprintf(path, sizeof path, "%s/loop", f->dir);
    assert_int_equal(symlink("loop", path), 0);
    rejected(f, path, "symbolic link");
    snprintf(path, sizeof path, "%s/no/such/x", f->dir);
    rejected(f, path, "No such file or directory");
    assert_int_equal(moxie_file_write("", "x", 1, &f->error), MOXIE_ERR_ARGUMENT);
}

/* A foreign file at the temporary name is not removed. */
static void foreign_temporaries_stay(void **state)
{
    fixture *f = *state;
    char other[640];
    snprintf(other, sizeof other, "%s/other", f->dir);
    assert_ok(moxie_file_write(other, "mine", 4, &f->error), &f->error);
    assert_int_equal(symlink("other", f->temporary), 0);
    rejected(f, f->path, "remove it");
    assert_content(other, "mine");
    assert_int_equal(unlink(f->temporary), 0);
    assert_int_equal(mkdir(f->temporary, 0777), 0);
    rejected(f, f->path, "remove it");
    assert_int_equal(rmdir(f->temporary), 0);
    assert_int_equal(mkfifo(f->temporary, 0666), 0);
    rejected(f, f->path, "remove it");
}

static void checking_leaves_nothing(void **state)
{
    fixture *f = *state;
    assert_ok(moxie_file_check_output(f->path, &f->error), &f->error);
    assert_int_equal(test_entries_in(f->dir), 0);
    assert_ok(put(f, "kept"), &f->error);
    assert_ok(moxie_file_check_output(f->path, &f->error), &f->error);
    assert_content(f->path, "kept");
    assert_int_equal(test_entries_in(f->dir), 1);
}

/* ---- other processes ---- */

/* Starts a child that begins to write f->path and then waits for a signal. */
static pid_t writing_child(fixture *f)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        mox_whole_file file = MOX_WHOLE_FILE_NONE;
        moxie_error error;
        if (mox_whole_file_create(f->path, &file, &error) != MOXIE_OK ||
            mox_whole_file_append(&file, "half", 4, &error) != MOXIE_OK || __real_write(ready[1], "r", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return child;
}

static void end_child(pid_t child, int number, int want)
{
    int status = 0;
    assert_int_equal(kill(child, number), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == want);
}

static void a_living_writer_is_named_and_a_dead_one_swept(void **state)
{
    fixture *f = *state;
    char number[32];
    const pid_t child = writing_child(f);
    assert_int_equal(access(f->temporary, F_OK), 0);
    snprintf(number, sizeof number, "(process %ld)", (long)child);
    assert_int_equal(put(f, "x"), MOXIE_ERR_IO);
    assert_non_null(strstr(f->error.text, "is at work there"));
    if (access("/proc/locks", R_OK) == 0 && !strstr(f->error.text, number))
        print_message("the system does not tell whose lock it is: %s\n", f->error.text);
    assert_int_equal(access(f->temporary, F_OK), 0);
    end_child(child, SIGKILL, SIGKILL);
    assert_int_equal(access(f->temporary, F_OK), 0);
    assert_ok(put(f, "whole"), &f->error);
    assert_content(f->path, "whole");
    assert_int_equal(test_entries_in(f->dir), 1);
}

static void remove_and_die(int number)
{
    moxie_temporaries_remove();
    signal(number, SIG_DFL);
    raise(number);
}

static bool is_layer(const char *name)
{
    return name[0] == 'l';
}

/* A signal ends a child with an unfinished file and an unfinished directory. Both are removed, foreign files are not.
 */
static void a_signal_removes_what_is_unfinished(void **state)
{
    fixture *f = *state;
    char folder[640], path[700];
    snprintf(folder, sizeof folder, "%s/folder", f->dir);
    assert_int_equal(mkdir(folder, 0777), 0);
    struct sigaction act = { .sa_handler = remove_and_die, .sa_flags = SA_NODEFER };
    assert_int_equal(sigaction(SIGTERM, &act, NULL), 0);
    snprintf(path, sizeof path, "%s/layer", folder);
    assert_ok(moxie_file_write(path, "x", 1, &f->error), &f->error);
    snprintf(path, sizeof path, "%s/mine", folder);
    assert_ok(moxie_file_write(path, "x", 1, &f->error), &f->error);
    const pid_t holder = fork();
    if (holder == 0) {
        mox_whole_file file = MOX_WHOLE_FILE_NONE;
        moxie_error error;
        sigset_t mask;
        const int number = mox_temporary_begin(folder, is_layer, &mask);
        mox_temporary_made(number, true, &mask);
        if (number < 0 || mox_whole_file_create(f->path, &file, &error) != MOXIE_OK)
            _exit(1);
        raise(SIGTERM);
        _exit(2);
    }
    int status = 0;
    waitpid(holder, &status, 0);
    signal(SIGTERM, SIG_DFL);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    assert_int_equal(test_entries_in(f->dir), 1);
    assert_int_equal(test_entries_in(folder), 1);
    assert_content(path, "x");
}

/* A forked child inherits the list of unfinished files, but does not own them. */
static void a_forked_child_removes_nothing(void **state)
{
    fixture *f = *state;
    mox_whole_file file = MOX_WHOLE_FILE_NONE;
    assert_ok(mox_whole_file_create(f->path, &file, &f->error), &f->error);
    const pid_t child = fork();
    if (child == 0) {
        moxie_error error;
        moxie_temporaries_remove();
        _exit(moxie_file_write("/never", "x", 1, &error) == MOXIE_ERR_IO ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(access(f->temporary, F_OK), 0);
    assert_ok(mox_whole_file_append(&file, "mine", 4, &f->error), &f->error);
    assert_ok(mox_whole_file_publish(&file, &f->error), &f->error);
    mox_whole_file_discard(&file);
    assert_content(f->path, "mine");
}

static void one_process_holds_a_directory(void **state)
{
    fixture *f = *state;
    int fd = -1, second = -1, created = -1;
    char link[640];
    assert_int_equal(moxie_directory_lock(f->path, 0, &fd, NULL, &f->error), MOXIE_ERR_IO);
    assert_ok(moxie_directory_lock(f->path, 1, &fd, &created, &f->error), &f->error);
    assert_int_equal(created, 1);
    assert_int_equal(moxie_directory_lock(f->path, 1, &second, &created, &f->error), MOXIE_ERR_IO);
    assert_non_null(strstr(f->error.text, "is at work there"));
    assert_int_equal(second, -1);
    close(fd);
    assert_ok(moxie_directory_lock(f->path, 1, &fd, &created, &f->error), &f->error);
    assert_int_equal(created, 0);
    close(fd);
    snprintf(link, sizeof link, "%s/link", f->dir);
    assert_int_equal(symlink("x.safetensors", link), 0);
    assert_int_equal(moxie_directory_lock(link, 1, &second, NULL, &f->error), MOXIE_ERR_IO);
    assert_non_null(strstr(f->error.text, "symbolic link"));
    assert_int_equal(unlink(link), 0);
    assert_ok(moxie_file_write(link, "x", 1, &f->error), &f->error);
    assert_int_equal(moxie_directory_lock(link, 1, &second, NULL, &f->error), MOXIE_ERR_IO);
    assert_content(link, "x");
}

/* ---- reading ---- */

/* Whoever reads these all the same never ends, or answers otherwise. */
static void not_read(fixture *f, const char *path, uint64_t limit, moxie_status want, const char *says)
{
    char *data = NULL;
    uint64_t bytes = 0;
    assert_int_equal(moxie_file_read(path, limit, &data, &bytes, &f->error), want);
    assert_null(data);
    if (!strstr(f->error.text, says))
        fail_msg("\"%s\" does not say \"%s\"", f->error.text, says);
}

static void only_regular_files_of_a_size_are_read(void **state)
{
    fixture *f = *state;
    char path[640];
    not_read(f, f->path, 10, MOXIE_ERR_IO, "No such file");
    not_read(f, f->dir, 10, MOXIE_ERR_IO, "found a directory");
    not_read(f, "/dev/zero", 10, MOXIE_ERR_IO, "device, pipe or socket");
    snprintf(path, sizeof path, "%s/pipe", f->dir);
    assert_int_equal(mkfifo(path, 0666), 0);
    not_read(f, path, 10, MOXIE_ERR_IO, "device, pipe or socket");
    snprintf(path, sizeof path, "%s/loop", f->dir);
    assert_int_equal(symlink("loop", path), 0);
    not_read(f, path, 10, MOXIE_ERR_IO, "symbolic links");
    assert_int_equal(moxie_file_exists(path), 1);
    assert_int_equal(moxie_file_exists(f->path), 0);
    assert_ok(put(f, ""), &f->error);
    assert_int_equal(truncate(f->path, INT64_C(1) << 40), 0);
    not_read(f, f->path, 1 << 20, MOXIE_ERR_FORMAT, "1099511627776 bytes, and moxie reads at most 1048576");
}

/* The end of a list is no error, and an error is not its end. */
static void a_list_that_cannot_be_read_is_not_at_its_end(void **state)
{
    (void)state;
    const struct dirent *entry = NULL;
    moxie_error error = { 0 };
    int64_t count = 0;
    DIR *whole = opendir("/"), *broken = opendir("/");
    do {
        assert_ok(mox_next_entry(whole, "/", &entry, &error), &error);
        count++;
    } while (entry != NULL);
    assert_true(count > 3);
    const int empty = open("/dev/null", O_RDONLY);
    assert_int_equal(dup2(empty, dirfd(broken)), dirfd(broken)); /* no directory any more */
    assert_int_equal(mox_next_entry(broken, "/", &entry, &error), MOXIE_ERR_IO);
    assert_non_null(strstr(error.text, "cannot list the directory"));
    close(empty);
    closedir(whole);
    closedir(broken);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(content_and_permissions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pieces_come_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_failed_call_leaves_the_file_before, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_lost_piece_is_not_forgotten, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_allocation_may_fail, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_file_is_rejected, set_up, tear_down),
        cmocka_unit_test_setup_teardown(foreign_temporaries_stay, set_up, tear_down),
        cmocka_unit_test_setup_teardown(checking_leaves_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_living_writer_is_named_and_a_dead_one_swept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_signal_removes_what_is_unfinished, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_forked_child_removes_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_process_holds_a_directory, set_up, tear_down),
        cmocka_unit_test(a_list_that_cannot_be_read_is_not_at_its_end),
        cmocka_unit_test_setup_teardown(only_regular_files_of_a_size_are_read, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
