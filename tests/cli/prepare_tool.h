/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare_tool.h - what tests of `moxie prepare` share: running the tool in a scratch folder, comparing checkpoints.
 */
#ifndef TEST_PREPARE_TOOL_H
#define TEST_PREPARE_TOOL_H

#include "test_support.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <moxie/moxie_ckpt.h>

static const char *build_dir;
static char *tmp;

/* ---- running the tool ---- */

/* Runs `moxie ...`; returns its exit code. Its output goes to a log. */
static inline int tool(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline int tool(const char *format, ...)
{
    char arguments[2048], command[4096];
    va_list list;
    va_start(list, format);
    vsnprintf(arguments, sizeof arguments, format, list);
    va_end(list);
    snprintf(command, sizeof command, "%s/moxie %s >%s/log 2>&1", build_dir, arguments, tmp);
    const int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static inline void show_log(void)
{
    char command[1024];
    snprintf(command, sizeof command, "tail -n 20 %s/log >&2", tmp);
    if (system(command))
        print_error("(no log)\n");
}

#define assert_tool(code, ...)                                                                                         \
    do {                                                                                                               \
        const int code_ = tool(__VA_ARGS__);                                                                           \
        if (code_ != (code)) {                                                                                         \
            show_log();                                                                                                \
            fail_msg("exit code %d instead of %d", code_, code);                                                       \
        }                                                                                                              \
    } while (0)

/* The number after "key": in the log. */
static inline double logged(const char *key)
{
    char path[600], line[512], quoted[64];
    double value = -1;
    snprintf(path, sizeof path, "%s/log", tmp);
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        const char *at = strstr(line, quoted);
        if (at)
            value = strtod(at + strlen(quoted), NULL);
    }
    fclose(file);
    return value;
}

static inline void remove_tree(const char *name)
{
    char command[1024];
    snprintf(command, sizeof command, "rm -rf %s/%s", tmp, name);
    assert_int_equal(system(command), 0);
}

static inline bool exists(const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", tmp, name);
    return access(path, F_OK) == 0;
}

/* ---- comparing ---- */

enum { MAX_FILES = 8 };
typedef struct files {
    moxie_tensor_file *open[MAX_FILES];
    int count;
} files;

static inline void open_files(const char *name, files *out)
{
    char dir[600], path[1200];
    snprintf(dir, sizeof dir, "%s/%s", tmp, name);
    DIR *listing = opendir(dir);
    assert_non_null(listing);
    out->count = 0;
    for (const struct dirent *entry; (entry = readdir(listing));) {
        const size_t length = strlen(entry->d_name);
        if (length < 12 || strcmp(entry->d_name + length - 12, ".safetensors") != 0)
            continue;
        moxie_error error = { 0 };
        assert_true(out->count < MAX_FILES);
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        assert_ok(moxie_tensor_file_open(path, 0, &out->open[out->count++], &error), &error);
    }
    closedir(listing);
}

static inline void close_files(files *f)
{
    for (int i = 0; i < f->count; i++)
        moxie_tensor_file_close(f->open[i]);
}

static inline bool find(const files *f, const char *name, moxie_tensor *out)
{
    for (int i = 0; i < f->count; i++)
        if (moxie_tensor_file_find(f->open[i], name, out, NULL) == MOXIE_OK)
            return true;
    return false;
}

static inline size_t bytes_of(const moxie_tensor *t)
{
    size_t bits = (size_t)moxie_dtype_bits(t->dtype);
    for (int32_t i = 0; i < t->rank; i++)
        bits *= (size_t)t->shape[i];
    return bits / 8;
}

/* Checks that `back` holds every tensor of the checkpoint's routed experts, unchanged, and nothing else. */
static inline void assert_same_experts(const char *source, const char *back, const char *what)
{
    files a, b;
    int64_t experts = 0, restored = 0;
    open_files(source, &a);
    open_files(back, &b);
    for (int i = 0; i < a.count; i++)
        for (int64_t t = 0; t < moxie_tensor_file_count(a.open[i]); t++) {
            const char *name = NULL;
            moxie_tensor want, got;
            moxie_tensor_file_at(a.open[i], t, &name, &want);
            if (!strstr(name, ".experts."))
                continue;
            experts++;
            if (!find(&b, name, &got))
                fail_msg("%s: %s did not come back", what, name);
            if (got.dtype != want.dtype || got.rank != want.rank ||
                memcmp(got.shape, want.shape, (size_t)got.rank * sizeof *got.shape) != 0 ||
                memcmp(got.data, want.data, bytes_of(&want)) != 0)
                fail_msg("%s: %s came back different", what, name);
        }
    for (int i = 0; i < b.count; i++)
        restored += moxie_tensor_file_count(b.open[i]);
    assert_true(experts > 0);
    assert_int_equal(restored, experts);
    close_files(&a);
    close_files(&b);
}

/* ---- checkpoints and processes ---- */

static inline void synth_kimi(const char *sizes)
{
    assert_tool(0, "synth kimi-k2-thinking %s -o %s/model", sizes, tmp);
}

/* Starts `moxie prepare model -o out`, or with --undo `out -o back`, in a process of its own. */
static inline pid_t start(bool undo)
{
    char program[600], dir[600], out[600];
    snprintf(program, sizeof program, "%s/moxie", build_dir);
    snprintf(dir, sizeof dir, "%s/%s", tmp, undo ? "out" : "model");
    snprintf(out, sizeof out, "%s/%s", tmp, undo ? "back" : "out");
    const pid_t child = fork();
    if (child == 0) {
        const int null = open("/dev/null", O_WRONLY);
        dup2(null, 1);
        dup2(null, 2);
        if (undo)
            execl(program, "moxie", "prepare", "--undo", dir, "-o", out, (char *)NULL);
        else
            execl(program, "moxie", "prepare", dir, "--layout", "trtllm-mxint4", "-o", out, (char *)NULL);
        _exit(127);
    }
    return child;
}

static inline int set_up(void **state)
{
    (void)state;
    build_dir = getenv("MOXIE_BUILD_DIR");
    tmp = test_tmpdir();
    return build_dir ? 0 : -1;
}

static inline int tear_down(void **state)
{
    (void)state;
    char command[1024];
    snprintf(command, sizeof command, "rm -rf %s/*", tmp);
    const int removed = system(command);
    test_rmdir(tmp);
    return removed;
}

#endif
