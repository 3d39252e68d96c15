/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_plot.c - the lines of a benchmark under the machine's roof, drawn by gnuplot:
 *
 *     FLOP/s (log)        ______________  bf16 limit
 *        |               / -
 *        |   read limit /  | T=512        a point's distance below its floor's mark is what is lost
 *        |         -   /   o
 *        |         |  /
 *        |___T=8___o_/______________  FLOP per byte of weights (log)
 *
 * A point is the median of all runs; its bar goes from the slowest to the fastest. It is hollow where other work
 * disturbed more than a tenth of the runs. A floor's mark lies on the roof or below: the roof is the best of all
 * measurements, a floor comes from those around its line.
 *
 * gnuplot runs as a child, without a shell. It reads the script with the data from a pipe and writes the picture to a
 * file in memory. So no name needs quoting and nothing is left behind.
 */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* ---- the child ---------------------------------------------------------------------------------------- */

/* `reason`: the error of posix_spawnp(); 0 when gnuplot ran and printed no version. */
static moxie_status no_gnuplot(int reason, moxie_error *error)
{
    if (reason == ENOMEM || reason == EAGAIN)
        return cli_error(MOXIE_ERR_MEMORY, error, "",
                         "gnuplot could not be started: %s; free memory, or leave --plot out", strerror(reason));
    return cli_error(
        MOXIE_ERR_UNSUPPORTED, error, "",
        "--plot needs gnuplot, which was not found on the path: install it (Debian, Ubuntu: apt-get install "
        "gnuplot-nox; Fedora: dnf install gnuplot), or leave --plot out and draw the rows of --json. "
        "Nothing was measured");
}

/* Starts gnuplot with `in` and `out` as its standard input and output (in -1: none). */
static int start(pid_t *child, char *const *arguments, int in, int out)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t defaults;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    if (in >= 0)
        posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
    else
        posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", 0, 0);
    posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    const int failed = posix_spawnp(child, "gnuplot", &files, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return failed;
}

static int wait_for(pid_t child)
{
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

moxie_status bench_plot_find(moxie_error *error)
{
    char name[] = "gnuplot", version[] = "--version";
    char *const arguments[] = { name, version, NULL };
    pid_t child;
    int quiet[2];
    if (pipe(quiet) != 0)
        return cli_error(MOXIE_ERR_IO, error, "", "no pipe to gnuplot: %s", strerror(errno));
    const int failed = start(&child, arguments, -1, quiet[1]); /* one line fits into the pipe, so it need not be read */
    const int code = failed ? -1 : wait_for(child);
    close(quiet[0]);
    close(quiet[1]);
    return code == 0 ? MOXIE_OK : no_gnuplot(failed, error);
}

static bool write_all(int fd, const char *text, size_t length)
{
    while (length > 0) {
        const ssize_t written = write(fd, text, length);
        if (written < 0 && errno != EINTR)
            return false;
        if (written > 0) {
            text += written;
            length -= (size_t)written;
        }
    }
    return true;
}

/* Runs gnuplot on `script`; the picture goes to `out`. */
static moxie_status run_gnuplot(const char *script, size_t length, int out, moxie_error *error)
{
    char name[] = "gnuplot";
    char *const arguments[] = { name, NULL };
    pid_t child;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return cli_error(MOXIE_ERR_IO, error, "", "no pipe to gnuplot: %s", strerror(errno));
    const int failed = start(&child, arguments, ends[0], out);
    close(ends[0]);
    if (failed) {
        close(ends[1]);
        return no_gnuplot(failed, error);
    }
    void (*const before)(int) =
        signal(SIGPIPE, SIG_IGN); /* a child that died is an error here and must not end this process */
    const bool written = write_all(ends[1], script, length);
    close(ends[1]);
    signal(SIGPIPE, before);
    const int code = wait_for(child);
    if (written && code == 0)
        return MOXIE_OK;
    return cli_error(MOXIE_ERR_UNSUPPORTED, error, "",
                     "gnuplot failed (exit code %d; its own message is above): is its terminal for this kind of "
                     "picture installed? Debian's gnuplot-nox has it",
                     code);
}

/* ---- the script ---------------------------------------------------------------------------------------- */

/* The picture's size in pixels, and its frame as shares of that. */
typedef struct frame {
    double width, height, left, right, bottom, top;
    double x0, x1, y0, y1; /* ranges: FLOP per byte, FLOP/s */
} frame;

/* A string for gnuplot: single quotes doubled, control characters out. */
static void put_quoted(FILE *out, const char *text)
{
    putc('\'', out);
    for (; *text; text++) {
        if (*text == '\'')
            putc('\'', out);
        putc((unsigned char)*text < 32 ? '?' : *text, out);
    }
    putc('\'', out);
}

static double intensity(const bench_line *line)
{
    return line->bytes > 0 ? line->flop / line->bytes : 0;
}

static double speed(const bench_line *line)
{
    return line->median > 0 ? line->flop / line->median : 0;
}

static double at_floor(const bench_line *line)
{
    return line->floor > 0 ? line->flop / line->floor : speed(line);
}

static double roof_at(double x, const bench_roof *roof)
{
    return fmin(x * roof->read_gb_s * 1e9, roof->tflop_s * 1e12);
}

/* Ranges that hold all points, the ridge and their labels. */
static frame make_frame(const bench_line *lines, int n, const bench_roof *roof, bool svg)
{
    const double ridge = roof->tflop_s * 1e3 / roof->read_gb_s, peak = roof->tflop_s * 1e12;
    frame f = { 1040, 680, 0.105, 0.97, 0.115, 0.845, ridge, ridge, peak, peak };
    for (int i = 0; i < n; i++) {
        if (intensity(&lines[i]) <= 0 || speed(&lines[i]) <= 0)
            continue;
        f.x0 = fmin(f.x0, intensity(&lines[i]));
        f.x1 = fmax(f.x1, intensity(&lines[i]));
        f.y0 = fmin(f.y0, lines[i].flop / lines[i].max);
        f.y1 = fmax(f.y1, lines[i].flop / lines[i].min);
    }
    f.x0 /= 2.5;
    f.x1 *= 4;
    f.y0 = fmin(f.y0, roof_at(f.x0, roof)) / 1.8;
    f.y1 *= 2.2;
    if (!svg) {
        f.width *= 1.5;
        f.height *= 1.5;
    }
    return f;
}

static void put_setup(FILE *out, const frame *f, bool svg, const char *title, const char *subtitle)
{
    fprintf(out,
            svg ? "set terminal svg size %.0f,%.0f font 'DejaVu Sans,Helvetica,sans-serif,13' background '#ffffff'\n"
                : "set terminal pngcairo size %.0f,%.0f font 'DejaVu Sans,15' background '#ffffff' linewidth 1.5\n",
            f->width, f->height);
    fprintf(out, "set encoding utf8\nunset key\nset logscale xy\n");
    fprintf(out,
            "set lmargin at screen %g\nset rmargin at screen %g\nset bmargin at screen %g\nset tmargin at screen %g\n",
            f->left, f->right, f->bottom, f->top);
    fprintf(out, "set xrange [%g:%g]\nset yrange [%g:%g]\n", f->x0, f->x1, f->y0, f->y1);
    fprintf(out, "set border 3 lc rgb '#8a94a0'\nset tics nomirror out scale 0.6 textcolor rgb '#4a5560'\n");
    fprintf(out, "set format y '%%.0s %%cFLOP/s'\nset format x '%%g'\n"
                 "set xtics (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)\n");
    fprintf(out, "set grid xtics ytics lc rgb '#e4e8ec' lt 1 lw 0.6\n");
    fprintf(out, "set xlabel 'operations per byte of weights  [FLOP/byte]' textcolor rgb '#4a5560' offset 0,0.3\n");
    fprintf(out, "set label 1 ");
    put_quoted(out, title);
    fprintf(out, " at screen %g,0.945 left noenhanced font ',%d' textcolor rgb '#1c2733'\n", f->left, svg ? 19 : 22);
    fprintf(out, "set label 2 ");
    put_quoted(out, subtitle);
    fprintf(out, " at screen %g,0.9 left noenhanced font ',%d' textcolor rgb '#6a7681'\n", f->left, svg ? 12 : 13);
}

/* The limits, written along the roof. */
static void put_roof(FILE *out, const frame *f, const bench_roof *roof)
{
    const double per_x = (f->right - f->left) * f->width / log10(f->x1 / f->x0); /* pixels a decade */
    const double per_y = (f->top - f->bottom) * f->height / log10(f->y1 / f->y0);
    const double ridge = roof->tflop_s * 1e3 / roof->read_gb_s, peak = roof->tflop_s * 1e12;
    const double at = sqrt(f->x0 * ridge);
    fprintf(out, "roof(x) = x * %g < %g ? x * %g : %g\n", roof->read_gb_s * 1e9, peak, roof->read_gb_s * 1e9, peak);
    fprintf(
        out,
        "set label 3 'memory  %.3g GB/s' at %g,%g center rotate by %.1f offset -0.3,1 front textcolor rgb '#24415f'\n",
        roof->read_gb_s, at, roof_at(at, roof), atan2(per_y, per_x) * 180 / 3.14159265358979);
    fprintf(out, "set label 4 '%s  %.3g TFLOP/s' at %g,%g right offset -0.5,0.8 front textcolor rgb '#24415f'\n",
            roof->name, roof->tflop_s, f->x1, peak);
    fprintf(out, "set label 6 'half of it' at %g,%g right offset -0.5,0.5 front font ',11' textcolor rgb '#8a94a0'\n",
            f->x1, peak / 2);
    fprintf(out, "set arrow 1 from %g,%g to %g,%g nohead front lc rgb '#9aa8b6' dt 3\n", ridge, f->y0, ridge, peak);
    fprintf(out, "set label 5 '%.3g FLOP/byte' at %g,%g left offset 0.6,0.7 front font ',11' textcolor rgb '#8a94a0'\n",
            ridge, ridge, f->y0);
}

/* "7 of 9 runs disturbed"; "" when none was. */
static const char *disturbance(const bench_line *line, char *buffer, size_t size)
{
    buffer[0] = '\0';
    if (line->preempted > 0)
        snprintf(buffer, size, "%d of %d runs disturbed", line->preempted, line->repeats);
    return buffer;
}

/* Rows of FLOP per byte, speed, floor, slowest, fastest, labels: of the disturbed lines, or of the others. */
static int put_block(FILE *out, const char *name, const bench_picture *p, bool disturbed)
{
    char ms[32], text[64];
    int count = 0;
    fprintf(out, "$%s << END\n", name);
    for (int i = 0; i < p->n_lines; i++) {
        const bench_line *l = &p->lines[i];
        if (bench_line_is_disturbed(l) != disturbed || intensity(l) <= 0 || speed(l) <= 0)
            continue;
        count++;
        fprintf(out, "%g %g %g %g %g \"T = %lld\" \"%s ms, %.2fx floor\" \"%s\"\n", intensity(l), speed(l), at_floor(l),
                l->flop / l->max, l->flop / l->min, (long long)l->tokens, bench_ms(l->median, ms), l->ratio,
                disturbance(l, text, sizeof text));
    }
    fprintf(out, "END\n");
    return count;
}

/* `full`: points are filled. */
static void plot_block(FILE *out, const char *name, bool full)
{
    fprintf(out,
            ", \\\n  $%s using 1:2:(0):($3 - $2) with vectors nohead lc rgb '#e0a080' lw 1.5 dt 3, \\\n"
            "  '' using 1:3 with points pt 2 ps 0.7 lc rgb '#e0a080', \\\n"
            "  '' using 1:2:4:5 with yerrorbars pt 0 lc rgb '#d1495b' lw 1, \\\n"
            "  '' using 1:2 with points pt 7 ps 2.2 lc rgb '#ffffff', \\\n"
            "  '' using 1:2 with points pt %d ps 1.8 lw 2 lc rgb '#d1495b', \\\n"
            "  '' using 1:2:6 with labels left offset 1.3,0.35 textcolor rgb '#1c2733', \\\n"
            "  '' using 1:2:7 with labels left offset 1.5,-0.6 font ',11' textcolor rgb '#6a7681', \\\n"
            "  '' using 1:2:8 with labels left offset 1.5,-1.5 font ',11' textcolor rgb '#b3541e'",
            name, full ? 7 : 6);
}

/* What hollow points mean, if there are any; and the warning. */
static void put_legend(FILE *out, const frame *f, int disturbed, const char *warning)
{
    if (disturbed > 0)
        fprintf(out,
                "set label 7 'hollow: other work took a processor away in more than a tenth of the runs; bars go from "
                "the slowest run to the fastest' at screen %g,0.865 left font ',11' textcolor rgb '#b3541e'\n",
                f->left);
    if (!*warning)
        return;
    fprintf(out, "set label 8 ");
    put_quoted(out, warning);
    fprintf(out, " at screen %g,0.015 left noenhanced font ',11' textcolor rgb '#b3541e'\n", f->left);
}

static void put_points(FILE *out, const frame *f, const bench_picture *p)
{
    const int quiet = put_block(out, "quiet", p, false), disturbed = put_block(out, "disturbed", p, true);
    put_legend(out, f, disturbed, p->warning);
    fprintf(out, "set samples 400\nplot roof(x) with filledcurves x1 fs transparent solid 0.5 fc rgb '#e3ecf5', \\\n"
                 "  roof(x) / 2 with lines lc rgb '#b8c6d4' lw 1 dt 2, \\\n"
                 "  roof(x) with lines lc rgb '#24415f' lw 3");
    if (quiet > 0)
        plot_block(out, "quiet", true);
    if (disturbed > 0)
        plot_block(out, "disturbed", false);
    putc('\n', out);
}

static bool has_ending(const char *path, const char *ending)
{
    const size_t n = strlen(path), m = strlen(ending);
    return n > m && !strcmp(path + n - m, ending);
}

bool bench_plot_is_name(const char *path)
{
    return has_ending(path, ".svg") || has_ending(path, ".png");
}

static char *make_script(bool svg, const bench_picture *p, size_t *length)
{
    char *script = NULL;
    FILE *out = open_memstream(&script, length);
    if (!out)
        return NULL;
    const frame f = make_frame(p->lines, p->n_lines, &p->roof, svg);
    put_setup(out, &f, svg, p->title, p->subtitle);
    put_roof(out, &f, &p->roof);
    put_points(out, &f, p);
    const bool whole = !ferror(out);
    if (fclose(out) == 0 && whole)
        return script;
    free(script);
    return NULL;
}

/* Writes what gnuplot drew to its file. */
static moxie_status keep_picture(const char *path, int drawn, moxie_error *error)
{
    const off_t bytes = lseek(drawn, 0, SEEK_END);
    if (bytes <= 0)
        return cli_error(MOXIE_ERR_UNSUPPORTED, error, path, "gnuplot drew nothing");
    void *picture = mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, drawn, 0);
    if (picture == MAP_FAILED)
        return cli_error(MOXIE_ERR_MEMORY, error, path, "no memory for the picture: %s", strerror(errno));
    const moxie_status status = moxie_file_write(path, picture, (uint64_t)bytes, error);
    munmap(picture, (size_t)bytes);
    return status;
}

moxie_status bench_plot_write(const char *path, const bench_picture *p, moxie_error *error)
{
    size_t length = 0;
    const int drawn = memfd_create("picture", MFD_CLOEXEC);
    char *script = make_script(has_ending(path, ".svg"), p, &length);
    moxie_status status = script && drawn >= 0
                              ? run_gnuplot(script, length, drawn, error)
                              : cli_error(MOXIE_ERR_MEMORY, error, path, "no memory for the picture and its script");
    if (status == MOXIE_OK)
        status = keep_picture(path, drawn, error);
    free(script);
    if (drawn >= 0)
        close(drawn);
    return status;
}
