/* SPDX-License-Identifier: Apache-2.0
 *
 * report_collect.c - runs a command of this program with --json in a child process, and reads what it prints.
 *
 *     report ---fork---> cmd_bench(argv) --stdout--> file in memory --> JSON
 *                             `--stderr--> the terminal, as ever
 *
 * A child of its own, because commands end the process when they refuse their arguments or have no memory. It needs no
 * path of this program, which an emulator hides. Nothing has been printed and no thread started before.
 */
#include "report.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int (*const commands[REPORT_PARTS])(int argc, char **argv) = { cmd_bench, cmd_explain, cmd_run, cmd_diff };

void report_command_add(report_command *command, const char *text)
{
    if (command->argc + 1 >= REPORT_MAX_ARGUMENTS)
        return;
    command->argv[command->argc++] = cli_format("%s", text);
    command->argv[command->argc] = NULL;
}

void report_command_free(report_command *command)
{
    for (int i = 0; i < command->argc; i++)
        free(command->argv[i]);
}

static void run_child(const report_command *command, int out) __attribute__((noreturn));
static void run_child(const report_command *command, int out)
{
    report_command own = *command;
    if (dup2(out, STDOUT_FILENO) < 0)
        _exit(CLI_RESOURCES);
    exit(cli_note_code(commands[own.part](own.argc, own.argv)));
}

/* The text that the child wrote; its length may be 0. */
static moxie_status read_back(int fd, const char *name, json_t **out, moxie_error *error)
{
    const off_t bytes = lseek(fd, 0, SEEK_END);
    if (bytes <= 0)
        return cli_error(MOXIE_ERR_IO, error, name, "it printed nothing");
    char *text = mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (text == MAP_FAILED)
        return cli_error(MOXIE_ERR_MEMORY, error, name, "no memory for its %lld bytes: %s", (long long)bytes,
                         strerror(errno));
    const moxie_status status = cli_json_parse(text, (size_t)bytes, name, out, error);
    munmap(text, (size_t)bytes);
    return status;
}

static moxie_status wait_for(pid_t child, const char *name, int *code, moxie_error *error)
{
    int state = 0;
    while (waitpid(child, &state, 0) < 0)
        if (errno != EINTR)
            return cli_error(MOXIE_ERR_IO, error, name, "its end cannot be waited for: %s", strerror(errno));
    if (WIFSIGNALED(state))
        return cli_error(MOXIE_ERR_IO, error, name, "signal %d (%s) ended it", WTERMSIG(state),
                         strsignal(WTERMSIG(state)));
    *code = WEXITSTATUS(state);
    return MOXIE_OK;
}

moxie_status report_collect(const report_command *command, json_t **out, int *code, moxie_error *error)
{
    const char *name = command->argv[0];
    const int fd = memfd_create("report", MFD_CLOEXEC);
    if (fd < 0)
        return cli_error(MOXIE_ERR_MEMORY, error, name, "no memory for its output: %s", strerror(errno));
    fflush(NULL);
    moxie_status status;
    const pid_t child = fork();
    if (child == 0)
        run_child(command, fd);
    if (child < 0)
        status = cli_error(MOXIE_ERR_MEMORY, error, name, "no process for it: %s", strerror(errno));
    else
        status = wait_for(child, name, code, error);
    if (status == MOXIE_OK) {
        status = read_back(fd, name, out, error);
        if (*code > CLI_CHECK_FAILED) /* it has said why, and its output need not be JSON */
            status = MOXIE_OK;
    }
    close(fd);
    return status;
}
