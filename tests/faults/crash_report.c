/* SPDX-License-Identifier: Apache-2.0
 *
 * crash_report.c - a library to preload: a program that dies of a signal says where.
 *
 *     LD_PRELOAD=libcrash_report.so moxie ...
 *     libcrash_report: signal 11 (Segmentation fault) at 0x10, thread 4711
 *     ./libmoxie.so.0(+0x4f2a1)[0x7f...]          each frame; addr2line -e an unstripped build names the line
 *
 * Then the signal does what it would have done: a handler that the program set with signal() acts, as cmocka's, which
 * goes on with the next test; else the program ends.
 */
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef void (*handler)(int number);

enum { FRAMES = 64 };
static const int deadly[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT };
static handler of_program[NSIG]; /* SIG_DFL is 0 */

static void go_on(int number)
{
    const handler then = of_program[number];
    const struct sigaction as_ever = { .sa_handler = SIG_DFL };
    if (then != SIG_DFL && then != SIG_IGN) {
        then(number);
        return;
    }
    sigaction(number, &as_ever, NULL);
    raise(number); /* ends the program as soon as the handler returns */
}

static void report(int number, siginfo_t *info, void *context)
{
    void *frames[FRAMES];
    char text[160];
    (void)context;
    const int length = snprintf(text, sizeof text, "libcrash_report: signal %d (%s) at %p, thread %ld\n", number,
                                sigdescr_np(number), info->si_addr, syscall(SYS_gettid));
    if (length > 0 && write(STDERR_FILENO, text, (size_t)length) == length)
        backtrace_symbols_fd(frames, backtrace(frames, FRAMES), STDERR_FILENO);
    go_on(number);
}

/* In place of the C library's. */
__attribute__((visibility("default"))) handler signal(int number, handler then)
{
    const struct sigaction action = { .sa_handler = then, .sa_flags = SA_RESTART };
    struct sigaction before;
    for (size_t i = 0; i < sizeof deadly / sizeof deadly[0]; i++)
        if (deadly[i] == number) {
            const handler old = of_program[number];
            of_program[number] = then;
            return old;
        }
    return sigaction(number, &action, &before) == 0 ? before.sa_handler : SIG_ERR;
}

/* The first backtrace() loads a library, which must not happen in a handler. */
static void __attribute__((constructor)) begin(void)
{
    static char stack[1 << 16];
    const stack_t other = { .ss_sp = stack, .ss_size = sizeof stack };
    struct sigaction action = { .sa_sigaction = report, .sa_flags = SA_SIGINFO | SA_ONSTACK };
    void *frame[1];
    backtrace(frame, 1);
    sigaltstack(&other, NULL); /* of the main thread, should it overflow its own */
    for (size_t i = 0; i < sizeof deadly / sizeof deadly[0]; i++)
        sigaction(deadly[i], &action, NULL);
}
