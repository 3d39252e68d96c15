/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_output.c - how the sub-commands speak: errors with exit codes, one JSON object, aligned tables, a
 * progress bar that only a terminal sees.
 */
#include "cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

int cli_exit_code(moxie_status status)
{
    switch (status) {
    case MOXIE_OK: return CLI_OK;
    case MOXIE_ERR_ARGUMENT: return CLI_USAGE;
    case MOXIE_ERR_UNSUPPORTED: return CLI_UNSUPPORTED;
    case MOXIE_ERR_MEMORY:
    case MOXIE_ERR_TIMEOUT: return CLI_RESOURCES;
    case MOXIE_ERR_IO:
    case MOXIE_ERR_FORMAT:
    case MOXIE_ERR_MISMATCH: return CLI_BAD_INPUT;
    }
    return CLI_BAD_INPUT;
}

static bool colour_wanted(FILE *stream)
{
    const char *no_color = getenv("NO_COLOR");
    return isatty(fileno(stream)) && !(no_color && *no_color);
}

int cli_fail(const char *command, bool json, moxie_status status, const moxie_error *error)
{
    const bool colour = colour_wanted(stderr);
    cli_end_wait();
    fprintf(stderr, "%smoxie %s: %s%s: ", colour ? "\033[31m" : "", command, moxie_status_name(status),
            colour ? "\033[0m" : "");
    if (error->file[0])
        fprintf(stderr, "%s: ", cli_printable(error->file));
    if (error->file[0] && error->offset >= 0)
        fprintf(stderr, "byte %lld: ", (long long)error->offset);
    fprintf(stderr, "%s\n", cli_printable(error->text));
    if (json) {
        json_t *object = cli_json_begin(command);
        cli_json_set(object, "error",
                     cli_pack("{s:s, s:s, s:s, s:I}", "status", moxie_status_name(status), "text",
                              cli_utf8(error->text), "file", cli_utf8(error->file), "offset",
                              (json_int_t)error->offset));
        cli_json_end(object);
    }
    return cli_exit_code(status);
}

moxie_status cli_error(moxie_status status, moxie_error *error, const char *file, const char *format, ...)
{
    va_list arguments;
    error->code = status;
    error->offset = -1;
    snprintf(error->file, sizeof error->file, "%s", file);
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    return status;
}

void cli_table_begin(cli_table *table, int columns, const char *const *headings)
{
    memset(table, 0, sizeof *table);
    table->columns = columns;
    for (int i = 0; i < columns; i++)
        table->headings[i] = headings[i];
}

void cli_table_add(cli_table *table, const char *format, ...)
{
    if (table->rows == table->capacity) {
        table->capacity = table->capacity ? 2 * table->capacity : 64;
        table->cells = cli_realloc(table->cells, (size_t)table->capacity * sizeof *table->cells);
    }
    va_list arguments;
    va_start(arguments, format);
    char *cell = cli_vformat(format, arguments);
    va_end(arguments);
    const char *shown = cli_printable(cell);
    if (shown != cell) {
        free(cell);
        cell = cli_format("%s", shown);
    }
    table->cells[table->rows++] = cell;
}

static void print_row(const cli_table *table, const int *widths, char *const *cells)
{
    for (int c = 0; c < table->columns; c++) {
        const bool right = table->headings[c][0] == '>';
        const char *text = cells ? cells[c] : table->headings[c] + right;
        const bool last = c == table->columns - 1;
        if (right)
            printf("%*s", widths[c], text);
        else
            printf("%-*s", last ? 0 : widths[c], text);
        fputs(last ? "\n" : "  ", stdout);
    }
}

void cli_table_print(const cli_table *table)
{
    int widths[CLI_MAX_COLUMNS];
    for (int c = 0; c < table->columns; c++) {
        widths[c] = (int)strlen(table->headings[c]) - (table->headings[c][0] == '>');
        for (int i = c; i < table->rows; i += table->columns) {
            const int width = (int)strlen(table->cells[i]);
            widths[c] = width > widths[c] ? width : widths[c];
        }
    }
    const bool colour = colour_wanted(stdout);
    fputs(colour ? "\033[1m" : "", stdout);
    print_row(table, widths, NULL);
    fputs(colour ? "\033[0m" : "", stdout);
    for (int i = 0; i + table->columns <= table->rows; i += table->columns)
        print_row(table, widths, table->cells + i);
    cli_note_output();
}

void cli_table_free(cli_table *table)
{
    for (int i = 0; i < table->rows; i++)
        free(table->cells[i]);
    free(table->cells);
}

const char *cli_bytes(char *buffer, uint64_t bytes)
{
    static const char *const units[] = { "B", "kB", "MB", "GB", "TB", "PB", "EB" };
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1000 && unit < 6) {
        value /= 1000;
        unit++;
    }
    snprintf(buffer, 16, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return buffer;
}

uint64_t cli_peak_memory(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_maxrss * 1024;
}

uint64_t cli_available_memory(void)
{
    unsigned long long kilobytes = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu kB", &kilobytes) == 1)
            break;
    if (file)
        fclose(file);
    return ((uint64_t)kilobytes << 10) / 10 * 8;
}

double cli_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void cli_progress_begin(cli_progress *progress, const char *what)
{
    *progress = (cli_progress) { .what = what, .terminal = isatty(STDERR_FILENO) };
}

void cli_progress_show(cli_progress *progress, uint64_t done, uint64_t total)
{
    const double now = cli_seconds();
    if (!progress->terminal || !total || (done < total && now - progress->last < 0.1))
        return;
    progress->last = now;
    progress->drawn = true;
    const int filled = (int)(40.0 * (double)done / (double)total);
    fprintf(stderr, "\r%-12s [%.*s%*s] %3d%%", progress->what, filled, "########################################",
            40 - filled, "", (int)(100.0 * (double)done / (double)total));
    fflush(stderr);
}

void cli_progress_end(cli_progress *progress)
{
    if (progress->drawn)
        fprintf(stderr, "\r%78s\r", "");
}

int cli_progress_experts(void *user, int64_t done, int64_t total)
{
    cli_progress_show(user, (uint64_t)done, (uint64_t)total);
    return 0;
}
