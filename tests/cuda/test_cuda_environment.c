/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_environment.c - input from outside that must not be trusted. MOXIE_CUDA_LIBRARY names code that runs in the
 * process, so a program with more rights than its caller (here: set-user-ID) ignores it. A device's name is printed in
 * printable characters, whatever bytes the driver returns.
 *
 * The test starts itself twice: as it is, and as a set-user-ID copy that belongs to another user.
 */
#include "test_cuda_table.h"
#include "test_support.h"

#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <moxie/moxie_cuda.h>

static const char *self;

/* The answer of the program when it is started by itself. */
typedef struct answer {
    bool secure; /* the system marks it as a program with more rights (AT_SECURE) */
    char missing[512];
} answer;

static int answer_on(int out)
{
    moxie_cuda_info info = MOXIE_CUDA_INFO_INIT;
    answer a = { .secure = getauxval(AT_SECURE) != 0 };
    if (moxie_cuda_get_info(&info, NULL) != MOXIE_OK)
        return 1;
    memcpy(a.missing, info.missing, sizeof a.missing);
    return write(out, &a, sizeof a) == sizeof a ? 0 : 1;
}

static answer ask(const char *program)
{
    int ends[2], status;
    answer a;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        char name[] = "answer";
        char *const arguments[] = { name, NULL };
        setenv("MOXIE_CUDA_LIBRARY", "/nowhere/libmoxie_cuda.so", 1);
        dup2(ends[1], STDOUT_FILENO);
        execv(program, arguments);
        _exit(127);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &a, sizeof a), sizeof a);
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    return a;
}

static bool copy_as_other_user(const char *path)
{
    char buffer[65536];
    size_t bytes;
    FILE *from = fopen(self, "rb"), *to = fopen(path, "wb");
    assert_non_null(from);
    assert_non_null(to);
    while ((bytes = fread(buffer, 1, sizeof buffer, from)) > 0)
        assert_int_equal(fwrite(buffer, 1, bytes, to), bytes);
    fclose(from);
    assert_int_equal(fclose(to), 0);
    return chown(path, 65534, (gid_t)-1) == 0 && chmod(path, 04755) == 0;
}

static void the_library_is_not_chosen_for_others(void **state)
{
    (void)state;
    if (test_emulated() || test_sanitized()) {
        print_message("skipped: emulators and sanitizers start set-user-ID programs differently\n");
        skip();
    }
    char *dir = test_tmpdir(), path[600];
    snprintf(path, sizeof path, "%s/copy", dir);
    const answer plain = ask(self);
    assert_false(plain.secure);
    assert_non_null(strstr(plain.missing, "MOXIE_CUDA_LIBRARY is /nowhere/libmoxie_cuda.so"));
    const bool made = geteuid() == 0 && copy_as_other_user(path);
    const answer other = made ? ask(path) : plain;
    unlink(path);
    test_rmdir(dir);
    if (!other.secure) {
        print_message("skipped: only root can make a program of another user, and not on a file system without "
                      "set-user-ID\n");
        skip();
    }
    assert_null(strstr(other.missing, "/nowhere"));
}

static const char odd_name[] = "GPU\x1b[2J\n\"A\"\xff";
static int32_t odd_sm;

static moxie_status odd_features(int32_t ordinal, mox_cuda_features *out, moxie_error *error)
{
    (void)ordinal, (void)error;
    assert_true(mox_cuda_preset("sm_90", out));
    memset(out->name, 'x', sizeof out->name); /* no end */
    memcpy(out->name, odd_name, sizeof odd_name - 1);
    out->sm = odd_sm;
    return MOXIE_OK;
}

static void a_device_s_name_is_printable(void **state)
{
    (void)state;
    const mox_cuda_table *found;
    moxie_cuda_device device = MOXIE_CUDA_DEVICE_INIT;
    moxie_error error = { 0 };
    mox_cuda_features f;
    assert_ok(mox_cuda_open(&found, &error), &error);
    mox_cuda_table odd = *found;
    odd.features = odd_features;
    mox_cuda_replace(&odd);
    odd_sm = 90;
    assert_ok(moxie_cuda_device_at(0, &device, &error), &error);
    assert_int_equal(strlen(device.name), sizeof device.name - 1);
    assert_memory_equal(device.name, "GPU?[2J?\"A\"?xxx", 15);
    assert_int_equal(moxie_cuda_device_at(1, &device, &error), MOXIE_ERR_UNSUPPORTED);
    odd_sm = 75;
    assert_int_equal(mox_cuda_device(&odd, 0, &f, &error), MOXIE_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "GPU?[2J?"));
    mox_cuda_replace(found);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_library_is_not_chosen_for_others),
        cmocka_unit_test_setup_teardown(a_device_s_name_is_printable, test_cuda_begin, test_cuda_end),
    };
    if (count == 1 && strcmp(arguments[0], "answer") == 0)
        return answer_on(STDOUT_FILENO);
    self = "/proc/self/exe";
    char path[4096];
    const ssize_t length = readlink(self, path, sizeof path - 1);
    if (length > 0) {
        path[length] = '\0';
        self = path;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
