/* SPDX-License-Identifier: Apache-2.0
 *
 * fault_preload.c - one call of a program fails: a library for LD_PRELOAD.
 *
 *     MOXIE_FAULT=KIND:N:HOW      the N-th call of this kind fails, counted from 1; "N+": and all that follow
 *     MOXIE_FAULT_LOG=FILE        gets a backtrace of that call; not created when no call was the N-th
 *     MOXIE_FAULT_COUNT=FILE      at the program's end a line "KIND CALLS" for each kind
 *
 *     KIND   calls that it counts                     HOW
 *     alloc  malloc, calloc, realloc, aligned ones    ENOMEM, EIO, ...: the call fails with that errno
 *     write  write, pwrite, writev, stdio's writes    SHORT: writes or reads only half of the bytes; no failure
 *     ...    (see KINDS)                              KILL, TERM, ...: the process gets that signal before the call
 *
 * Counting begins with main(), after the calls of the loader and libc. Calls inside libc do not go through the symbol
 * table, so they are not seen. Two kinds matter: malloc(), which libc does call through it; and the writes of stdio.
 * For those, stdout and files opened for writing become streams whose write function is in this file.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define KINDS(ROW)                                                                                                     \
    ROW(ALLOC, "alloc")                                                                                                \
    ROW(WRITE, "write")                                                                                                \
    ROW(SYNC, "fsync")                                                                                                 \
    ROW(RENAME, "rename")                                                                                              \
    ROW(MAP, "mmap")                                                                                                   \
    ROW(THREAD, "thread")                                                                                              \
    ROW(OPEN, "open")                                                                                                  \
    ROW(CLOSE, "close")                                                                                                \
    ROW(ROOM, "room") /* ftruncate, fallocate */                                                                       \
    ROW(MAKE, "mkdir")                                                                                                 \
    ROW(REMOVE, "unlink") /* unlink, unlinkat, rmdir */                                                                \
    ROW(STAT, "stat")     /* stat, lstat, fstat, fstatat */                                                            \
    ROW(LIST, "readdir")  /* and getdents64 */                                                                         \
    ROW(READ, "read")                                                                                                  \
    ROW(LOCK, "flock")

#define ROW(kind, name) kind,
typedef enum fault_kind { KINDS(ROW) N_KINDS } fault_kind;
#undef ROW
#define ROW(kind, name) name,
static const char *const kind_names[] = { KINDS(ROW) };
#undef ROW

static const struct how {
    const char *name;
    int error, signal; /* both 0: SHORT */
} hows[] = {
    { "ENOMEM", ENOMEM, 0 },         { "ENOSPC", ENOSPC, 0 }, { "EIO", EIO, 0 },       { "EAGAIN", EAGAIN, 0 },
    { "EMFILE", EMFILE, 0 },         { "EINTR", EINTR, 0 },   { "EDQUOT", EDQUOT, 0 }, { "EROFS", EROFS, 0 },
    { "EOPNOTSUPP", EOPNOTSUPP, 0 }, { "ENOLCK", ENOLCK, 0 }, { "EACCES", EACCES, 0 }, { "SHORT", 0, 0 },
    { "KILL", 0, SIGKILL },          { "TERM", 0, SIGTERM },  { "INT", 0, SIGINT },    { "HUP", 0, SIGHUP },
};

static struct {
    fault_kind kind;
    unsigned long at;
    bool onwards;
    const struct how *how; /* NULL: no fault is set */
} fault;

static atomic_ulong calls[N_KINDS];
static atomic_bool armed;
static _Thread_local bool inside; /* this library's own calls do not count */

/* ---- the fault of this run ---------------------------------------------------------------------------- */

static void refuse(const char *what)
{
    dprintf(STDERR_FILENO, "fault_preload: MOXIE_FAULT=%s: KIND:N:HOW is expected\n", what);
    _exit(99);
}

static void read_fault(const char *text)
{
    char kind[16], plus[4], how[16];
    if (sscanf(text, "%15[^:]:%lu%3[:+]%15s", kind, &fault.at, plus, how) != 4)
        refuse(text);
    fault.onwards = plus[0] == '+';
    for (fault.kind = 0; fault.kind < N_KINDS && strcmp(kind, kind_names[fault.kind]) != 0;)
        fault.kind++;
    for (size_t i = 0; i < sizeof hows / sizeof hows[0]; i++)
        if (!strcmp(how, hows[i].name))
            fault.how = &hows[i];
    if (fault.kind == N_KINDS || !fault.how)
        refuse(text);
}

static void log_fault(void)
{
    const char *path = getenv("MOXIE_FAULT_LOG");
    const int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0666) : -1;
    void *frames[24];
    if (fd < 0)
        return;
    backtrace_symbols_fd(frames, backtrace(frames, 24), fd);
    close(fd);
}

/* Counts a call. Returns how it shall fail, or NULL. */
static const struct how *strikes(fault_kind kind)
{
    if (!atomic_load(&armed) || inside)
        return NULL;
    const unsigned long n = atomic_fetch_add(&calls[kind], 1) + 1;
    if (!fault.how || kind != fault.kind || n < fault.at || (n > fault.at && !fault.onwards))
        return NULL;
    inside = true;
    if (n == fault.at)
        log_fault();
    inside = false;
    if (fault.how->signal)
        kill(getpid(), fault.how->signal);
    errno = fault.how->error;
    return fault.how;
}

static bool fails(fault_kind kind)
{
    const struct how *how = strikes(kind);
    return how && how->error;
}

/* ---- memory: libc's own names behind the public ones, which dlsym() itself may need ------------------- */

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void *__libc_memalign(size_t align, size_t size);

void *malloc(size_t size)
{
    return fails(ALLOC) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return fails(ALLOC) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *block, size_t size)
{
    return fails(ALLOC) ? NULL : __libc_realloc(block, size);
}

void *aligned_alloc(size_t align, size_t size)
{
    return fails(ALLOC) ? NULL : __libc_memalign(align, size);
}

int posix_memalign(void **out, size_t align, size_t size)
{
    void *block = fails(ALLOC) ? NULL : __libc_memalign(align, size);
    if (!block)
        return ENOMEM;
    *out = block;
    return 0;
}

/* ---- all others: the next library's function of that name --------------------------------------------- */

/* Declares `next`, a pointer to the function that the program would have called. */
#define NEXT(name)                                                                                                     \
    static __typeof__(&name) next;                                                                                     \
    if (!next)                                                                                                         \
        *(void **)&next = dlsym(RTLD_NEXT, #name);

/* How many of the bytes a successful or short call moves. */
static size_t part(const struct how *how, size_t bytes)
{
    return how && !how->signal && bytes > 1 ? bytes / 2 : bytes;
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    NEXT(write)
    const struct how *how = strikes(WRITE);
    return how && how->error ? -1 : next(fd, data, part(how, bytes));
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    NEXT(pwrite)
    const struct how *how = strikes(WRITE);
    return how && how->error ? -1 : next(fd, data, part(how, bytes), offset);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    NEXT(writev)
    return fails(WRITE) ? -1 : next(fd, parts, count);
}

ssize_t read(int fd, void *data, size_t bytes)
{
    NEXT(read)
    const struct how *how = strikes(READ);
    return how && how->error ? -1 : next(fd, data, part(how, bytes));
}

/* A successful fsync does nothing: no test cuts the power, and disks are slow. */
int fsync(int fd)
{
    (void)fd;
    return fails(SYNC) ? -1 : 0;
}

int fdatasync(int fd)
{
    return fsync(fd);
}

int rename(const char *from, const char *to)
{
    NEXT(rename)
    return fails(RENAME) ? -1 : next(from, to);
}

int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    NEXT(renameat)
    return fails(RENAME) ? -1 : next(from_fd, from, to_fd, to);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    NEXT(renameat2)
    return fails(RENAME) ? -1 : next(from_fd, from, to_fd, to, flags);
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    NEXT(mmap)
    return fails(MAP) ? MAP_FAILED : next(at, bytes, protection, flags, fd, offset);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *), void *context)
{
    NEXT(pthread_create)
    const struct how *how = strikes(THREAD);
    return how && how->error ? how->error : next(thread, attributes, routine, context);
}

/* There is a mode argument when the call may create a file. */
#define TAKE_MODE(flags, mode)                                                                                         \
    unsigned mode = 0;                                                                                                 \
    if (((flags)&O_CREAT) || ((flags)&O_TMPFILE) == O_TMPFILE) {                                                       \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode = va_arg(more, unsigned);                                                                                 \
        va_end(more);                                                                                                  \
    }

int open(const char *path, int flags, ...)
{
    NEXT(open)
    TAKE_MODE(flags, mode)
    return fails(OPEN) ? -1 : next(path, flags, mode);
}

/* What open() without a mode calls in a program compiled with _FORTIFY_SOURCE. */
int __open_2(const char *path, int flags);
int __open_2(const char *path, int flags)
{
    return open(path, flags, 0);
}

int openat(int at, const char *path, int flags, ...)
{
    NEXT(openat)
    TAKE_MODE(flags, mode)
    return fails(OPEN) ? -1 : next(at, path, flags, mode);
}

int mkstemp(char *pattern)
{
    NEXT(mkstemp)
    return fails(OPEN) ? -1 : next(pattern);
}

DIR *opendir(const char *path)
{
    NEXT(opendir)
    return fails(OPEN) ? NULL : next(path);
}

DIR *fdopendir(int fd)
{
    NEXT(fdopendir)
    return fails(OPEN) ? NULL : next(fd);
}

/* A failed close() closes the descriptor, too. */
int close(int fd)
{
    NEXT(close)
    const struct how *how = strikes(CLOSE);
    const int result = next(fd);
    if (!how || !how->error)
        return result;
    errno = how->error;
    return -1;
}

int ftruncate(int fd, off_t bytes)
{
    NEXT(ftruncate)
    return fails(ROOM) ? -1 : next(fd, bytes);
}

int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    NEXT(fallocate)
    return fails(ROOM) ? -1 : next(fd, mode, offset, bytes);
}

int posix_fallocate(int fd, off_t offset, off_t bytes)
{
    NEXT(posix_fallocate)
    const struct how *how = strikes(ROOM);
    return how && how->error ? how->error : next(fd, offset, bytes);
}

int mkdir(const char *path, mode_t mode)
{
    NEXT(mkdir)
    return fails(MAKE) ? -1 : next(path, mode);
}

int mkdirat(int at, const char *path, mode_t mode)
{
    NEXT(mkdirat)
    return fails(MAKE) ? -1 : next(at, path, mode);
}

int unlink(const char *path)
{
    NEXT(unlink)
    return fails(REMOVE) ? -1 : next(path);
}

int unlinkat(int at, const char *path, int flags)
{
    NEXT(unlinkat)
    return fails(REMOVE) ? -1 : next(at, path, flags);
}

int rmdir(const char *path)
{
    NEXT(rmdir)
    return fails(REMOVE) ? -1 : next(path);
}

int stat(const char *restrict path, struct stat *restrict info)
{
    NEXT(stat)
    return fails(STAT) ? -1 : next(path, info);
}

int lstat(const char *restrict path, struct stat *restrict info)
{
    NEXT(lstat)
    return fails(STAT) ? -1 : next(path, info);
}

int fstat(int fd, struct stat *info)
{
    NEXT(fstat)
    return fails(STAT) ? -1 : next(fd, info);
}

int fstatat(int at, const char *restrict path, struct stat *restrict info, int flags)
{
    NEXT(fstatat)
    return fails(STAT) ? -1 : next(at, path, info, flags);
}

struct dirent *readdir(DIR *listing)
{
    NEXT(readdir)
    return fails(LIST) ? NULL : next(listing);
}

ssize_t getdents64(int fd, void *entries, size_t bytes)
{
    NEXT(getdents64)
    return fails(LIST) ? -1 : next(fd, entries, bytes);
}

int flock(int fd, int operation)
{
    NEXT(flock)
    return fails(LOCK) ? -1 : next(fd, operation);
}

/* ---- stdio --------------------------------------------------------------------------------------------- */

/* Writes a file as stdio does: continues after a short write, stops after an error. 0 tells the stream of the error. */
static ssize_t stream_write(void *cookie, const char *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t more = write((int)(intptr_t)cookie, data + done, bytes - done);
        if (more < 0)
            return 0;
        done += (size_t)more;
    }
    return (ssize_t)bytes;
}

static int stream_close(void *cookie)
{
    return close((int)(intptr_t)cookie);
}

static FILE *stream_over(int fd)
{
    return fopencookie((void *)(intptr_t)fd, "w",
                       (cookie_io_functions_t) { .write = stream_write, .close = stream_close });
}

FILE *fopen(const char *path, const char *mode)
{
    NEXT(fopen)
    if (fails(OPEN))
        return NULL;
    if (mode[0] != 'w' || !atomic_load(&armed))
        return next(path, mode);
    inside = true;
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    inside = false;
    return fd < 0 ? NULL : stream_over(fd);
}

/* ---- around main() ------------------------------------------------------------------------------------- */

typedef int main_function(int argc, char **argv, char **environment);
static main_function *real_main;

static int armed_main(int argc, char **argv, char **environment)
{
    void *frame;
    const char *text = getenv("MOXIE_FAULT");
    if (text)
        read_fault(text);
    backtrace(&frame, 1); /* its first call loads a library */
    FILE *out = stream_over(STDOUT_FILENO);
    if (out)
        stdout = out;
    atomic_store(&armed, true);
    return real_main(argc, argv, environment);
}

int __libc_start_main(main_function *main_of, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*loader_fini)(void), void *stack_end);
int __libc_start_main(main_function *main_of, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*loader_fini)(void), void *stack_end)
{
    NEXT(__libc_start_main)
    real_main = main_of;
    return next(armed_main, argc, argv, init, fini, loader_fini, stack_end);
}

__attribute__((destructor)) static void write_counts(void)
{
    const char *path = getenv("MOXIE_FAULT_COUNT");
    if (!path)
        return;
    fflush(NULL); /* done here because exit() would do it after the counts */
    inside = true;
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    for (int kind = 0; kind < N_KINDS; kind++)
        dprintf(fd, "%s %lu\n", kind_names[kind], atomic_load(&calls[kind]));
    close(fd);
}
