/* SPDX-License-Identifier: Apache-2.0
 *
 * test_end_by_signal.c - a signal that one thread handles ends the program, whatever another thread meets meanwhile:
 * files that are gone are no error to tell, and the program does not end with its code.
 */
#include "test_support.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

static atomic_bool removing;

static void nap(long milliseconds)
{
    const struct timespec time = { .tv_nsec = milliseconds * 1000000 };
    nanosleep(&time, NULL);
}

static void remove_slowly(void)
{
    atomic_store(&removing, true);
    nap(300);
}

static void *take_signals(void *unused)
{
    for (;;)
        pause();
    return unused;
}

/* The signal comes to the other thread, since this one blocks it. */
static void fail_meanwhile(int number, bool tells)
{
    pthread_t other;
    sigset_t only;
    const moxie_error error = { .text = "the temporary file is gone" };
    cli_end_install();
    cli_on_end(remove_slowly);
    sigemptyset(&only);
    sigaddset(&only, number);
    if (pthread_create(&other, NULL, take_signals, NULL) != 0)
        _exit(99);
    pthread_sigmask(SIG_BLOCK, &only, NULL);
    kill(getpid(), number);
    while (!atomic_load(&removing))
        nap(1);
    _exit(tells ? cli_fail("test", false, MOXIE_ERR_IO, &error) : cli_note_code(CLI_BAD_INPUT));
}

static void ends_by_the_signal(void **state)
{
    (void)state;
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
    for (int i = 0; i < 6; i++) {
        char said[256];
        int status, ends[2];
        assert_int_equal(pipe(ends), 0);
        const pid_t child = fork();
        if (child == 0) {
            dup2(ends[1], STDERR_FILENO);
            fail_meanwhile(numbers[i % 3], i < 3);
        }
        close(ends[1]);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), numbers[i % 3]);
        assert_int_equal(read(ends[0], said, sizeof said), 0);
        close(ends[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_by_the_signal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
