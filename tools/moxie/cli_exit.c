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

static int chosen_code;  /* the exit code that the command chose */
static int output_error; /* errno of the first write that failed */

/* Opens closed standard descriptors: otherwise the next opened file would get their number. */
static void open_standard_files(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) !=
                fd) /* opened for the wrong direction, so that using it fails */
            _exit(CLI_BAD_INPUT);
}

/* The reader of a pipe has gone: ends without a message, as the ignored signal would have. */
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
    const int reason = output_error ? output_error : errno;
    if (reason == EPIPE)
        end_for_closed_pipe();
    fprintf(stderr, "moxie: cannot write to standard output: %s\n",
            reason ? strerror(reason) : "an earlier part of it was lost");
    _exit(chosen_code != CLI_OK ? chosen_code : CLI_BAD_INPUT);
}

void cli_note_output(void)
{
    if (ferror(stdout) && !output_error)
        output_error = errno;
}

void cli_begin(void)
{
    open_standard_files();
    if (atexit(close_output) != 0)
        cli_no_memory();
}

int cli_note_code(int code)
{
    cli_end_wait();
    chosen_code = code;
    return code;
}

void *cli_alloc(size_t bytes)
{
    return cli_realloc(NULL, bytes);
}

void *cli_realloc(void *block, size_t bytes)
{
    void *grown = realloc(block, bytes ? bytes : 1);
    if (!grown)
        cli_no_memory();
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
        cli_no_memory();
    return text;
}
