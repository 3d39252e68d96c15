/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_exit.c - how the program begins and ends, and what it does without memory.
 *
 *     begin    descriptors 0, 1, 2 are open, if only to fail: no file of ours may become "standard output"
 *     end      standard output is flushed and closed; what could not be written is an error, exit code 3
 *     memory   an allocation that cannot be made ends the program with a message and exit code 5
 *
 * All output passes here, that of --help and --version too, for it is written when stdio's buffers are flushed.
 */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int chosen_code; /* the command's own */

/* A closed descriptor's number would go to the next file that is opened. */
static void open_standard_files(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd) /* the wrong way round: so that use of it fails */
            _exit(CLI_BAD_INPUT);
}

/* A reader that went away wants no message. This is what the signal would have done if it were not ignored. */
static void end_for_closed_pipe(void)
{
    _exit(128 + SIGPIPE);
}

static void close_output(void)
{
    errno = 0;
    const bool failed_before = ferror(stdout) != 0;
    if (fclose(stdout) == 0 && !failed_before)
        return;
    if (errno == EPIPE)
        end_for_closed_pipe();
    fprintf(stderr, "moxie: cannot write to standard output: %s\n",
            errno ? strerror(errno) : "an earlier part of it was lost");
    _exit(chosen_code != CLI_OK ? chosen_code : CLI_BAD_INPUT);
}

void cli_begin(void)
{
    open_standard_files();
    cli_json_watch_memory();
    if (atexit(close_output) != 0)
        cli_out_of_memory(0);
}

int cli_end(int code)
{
    chosen_code = code;
    return code;
}

void cli_out_of_memory(size_t bytes)
{
    chosen_code = CLI_RESOURCES;
    if (bytes)
        fprintf(stderr, "moxie: out of memory: %zu bytes more were not to be had; free some, or ask for less\n", bytes);
    else
        fprintf(stderr, "moxie: out of memory; free some, or ask for less\n");
    exit(CLI_RESOURCES);
}

void *cli_alloc(size_t bytes)
{
    return cli_realloc(NULL, bytes);
}

void *cli_realloc(void *block, size_t bytes)
{
    void *grown = realloc(block, bytes ? bytes : 1);
    if (!grown)
        cli_out_of_memory(bytes);
    return grown;
}

char *cli_format(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = cli_vformat(format, arguments);
    va_end(arguments);
    return text;
}

char *cli_vformat(const char *format, va_list arguments)
{
    char *text;
    if (vasprintf(&text, format, arguments) < 0)
        cli_out_of_memory(0);
    return text;
}
