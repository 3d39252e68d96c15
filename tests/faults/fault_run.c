/* SPDX-License-Identifier: Apache-2.0
 *
 * fault_run.c - runs a command under a time limit, sends it a signal at a given moment, and says how it ended.
 *
 *     fault_run LIMIT FILE [SIGNAL DELAY] COMMAND ARGUMENT...
 *
 * LIMIT and DELAY are seconds, SIGNAL is a number or "-". FILE gets one line: "exit CODE SECONDS",
 * "signal NUMBER SECONDS", or "hang - SECONDS" when LIMIT passed and the command was killed. A shell cannot tell an
 * exit code of 137 from a death by SIGKILL; this does.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Waits for SIGCHLD, which is blocked, until the time `end`; false when the time has passed. */
static bool wait_until(double end, const sigset_t *child)
{
    const double left = end - seconds();
    if (left <= 0)
        return false;
    const struct timespec limit = { .tv_sec = (time_t)left, .tv_nsec = (long)(1e9 * (left - (double)(time_t)left)) };
    return sigtimedwait(child, NULL, &limit) == SIGCHLD;
}

static int usage(void)
{
    fprintf(stderr, "usage: fault_run LIMIT FILE SIGNAL|- DELAY COMMAND ARGUMENT...\n");
    return 2;
}

int main(int argc, char **argv)
{
    if (argc < 6)
        return usage();
    const double limit = atof(argv[1]), delay = atof(argv[4]);
    const int signal_number = atoi(argv[3]);
    sigset_t child, before;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &before);
    const double start = seconds();
    const pid_t pid = fork();
    if (pid == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        signal(SIGINT, SIG_DFL); /* a shell's background job ignores it */
        execvp(argv[5], argv + 5);
        _exit(127);
    }
    bool ended = false, hung = false;
    if (signal_number > 0 && !(ended = wait_until(start + delay, &child)))
        kill(pid, signal_number);
    if (!ended && !wait_until(start + limit, &child)) {
        hung = true;
        kill(pid, SIGKILL);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    const double took = seconds() - start;
    FILE *file = fopen(argv[2], "w");
    if (!file)
        return 2;
    if (hung)
        fprintf(file, "hang - %.3f\n", took);
    else if (WIFSIGNALED(status))
        fprintf(file, "signal %d %.3f\n", WTERMSIG(status), took);
    else
        fprintf(file, "exit %d %.3f\n", WEXITSTATUS(status), took);
    return fclose(file) == 0 ? 0 : 2;
}
