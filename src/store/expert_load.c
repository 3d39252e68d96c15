/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_load.c - the bytes of an expert file: header and seal first, then the rest, mapped or read into memory.
 *
 *     header page, two seals (pread) -> the valid seal of the highest generation -> file_bytes -> map or read these
 *
 * The seal comes before the size of the file: a writer that replaces an expert makes the file longer first, so what the
 * seal names is there. A seal that is just being written may be read half; so a damaged one is read again.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/executor.h"
#include "base/read_at.h"
#include "base/sizes.h"
#include "store/expert_file.h"
#include "store/record_reader.h"

enum { TRIES = 20, NAP_NS = 1000000, CHUNK = 4 << 20, PIECE = 16 << 20 };
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; older kernels refuse it */
#endif

/* ---- header and seal ----------------------------------------------------------------------------------- */

static moxie_status cut_short(const moxie_expert_file *file, const char *what, moxie_error *error)
{
    return errno != 0 ? mox_fail_file(MOXIE_ERR_IO, error, file->path, -1, "cannot read its %s: %m", what)
                      : mox_fail_file(MOXIE_ERR_FORMAT, error, file->path, -1,
                                      "it ends before its %s does: it was cut short; prepare it anew", what);
}

static moxie_status check_header(moxie_expert_file *file, moxie_error *error)
{
    const mox_expert_header *h = &file->header;
    if (memcmp(h->magic, MOX_EXPERT_MAGIC, sizeof h->magic) != 0)
        return mox_fail_file(MOXIE_ERR_FORMAT, error, file->path, 0,
                             "it does not begin with " MOX_EXPERT_MAGIC
                             ": it is no expert file, or its writer did not end; `moxie prepare` writes them");
    if (h->byte_order != MOX_EXPERT_BYTE_ORDER)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, file->path, 12,
                             "its numbers are in another byte order (0x%08x): prepare it anew on this machine",
                             (unsigned)h->byte_order);
    if (h->version != MOX_EXPERT_VERSION || h->page_bytes != MOX_EXPERT_PAGE)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, file->path, 8,
                             "it has version %u and pages of %u bytes; this library reads version %u with pages of %u",
                             (unsigned)h->version, (unsigned)h->page_bytes, MOX_EXPERT_VERSION, MOX_EXPERT_PAGE);
    if (h->checksum != mox_checksum(h, offsetof(mox_expert_header, checksum)))
        return mox_fail_file(MOXIE_ERR_MISMATCH, error, file->path, 0,
                             "its header is damaged: the checksum differs; prepare it anew");
    return MOXIE_OK;
}

/* 1: valid, 0: never written, -1: damaged, or being written. */
static int judge(const mox_expert_seal *seal, const mox_expert_header *header, uint64_t parity)
{
    static const mox_expert_seal never;
    if (memcmp(seal, &never, sizeof never) == 0)
        return 0;
    return memcmp(seal->magic, MOX_EXPERT_SEAL_MAGIC, sizeof seal->magic) == 0 &&
                   seal->checksum == mox_checksum(seal, offsetof(mox_expert_seal, checksum)) &&
                   seal->header_checksum == header->checksum && seal->generation % 2 == parity
               ? 1
               : -1;
}

static moxie_status read_seal(moxie_expert_file *file, int fd, moxie_error *error)
{
    static const struct timespec nap = { .tv_nsec = NAP_NS };
    for (int i = 0; i < TRIES; i++) {
        mox_expert_seal seals[2];
        for (int k = 0; k < 2; k++)
            if (!mox_read_at(fd, &seals[k], sizeof seals[k], (uint64_t)(k + 1) * MOX_EXPERT_PAGE))
                return cut_short(file, "seal", error);
        const int odd = judge(&seals[0], &file->header, 1), even = judge(&seals[1], &file->header, 0);
        if (odd >= 0 && even >= 0 && odd + even > 0) {
            file->seal = seals[odd == 0 || (even == 1 && seals[1].generation > seals[0].generation)];
            return MOXIE_OK;
        }
        if (odd == 0 && even == 0)
            break;
        nanosleep(&nap, NULL);
    }
    return mox_fail_file(MOXIE_ERR_MISMATCH, error, file->path, MOX_EXPERT_PAGE,
                         "its seal is damaged, or of another header: a seal was changed after it was written; prepare "
                         "the file anew");
}

/* ---- the rest -------------------------------------------------------------------------------------------- */

typedef struct read_work {
    int fd;
    uint8_t *data;
    uint64_t bytes;
    _Atomic int failed; /* errno, or -1 at the end of the file */
} read_work;

static void read_chunk(void *context, int64_t task, int32_t worker)
{
    read_work *w = context;
    (void)worker;
    const uint64_t at = (uint64_t)task * CHUNK, left = w->bytes - at;
    if (!mox_read_at(w->fd, w->data + at, left < CHUNK ? left : CHUNK, at))
        atomic_store_explicit(&w->failed, errno != 0 ? errno : -1, memory_order_relaxed);
}

static moxie_status read_in(moxie_expert_file *file, int fd, const moxie_executor *executor, moxie_error *error)
{
    read_work w = { .fd = fd, .data = file->data, .bytes = file->seal.file_bytes };
    mox_parallel(executor, mox_ceil_div((int64_t)w.bytes, CHUNK), read_chunk, &w);
    if (w.failed == 0)
        return MOXIE_OK;
    errno = w.failed > 0 ? w.failed : 0;
    return cut_short(file, "records", error);
}

/* The header and the seal; zeros in place of what a shorter file lacks. */
static moxie_status read_first(const char *path, int fd, uint8_t first[MOX_EXPERT_FIRST], moxie_error *error)
{
    memset(first, 0, MOX_EXPERT_FIRST);
    return mox_read_at(fd, first, MOX_EXPERT_FIRST, 0) || errno == 0
               ? MOXIE_OK
               : mox_fail_file(MOXIE_ERR_IO, error, path, -1, "cannot read it: %m");
}

moxie_status mox_expert_check_mirror(const moxie_expert_file *file, const char *mirror, moxie_error *error)
{
    uint8_t own[MOX_EXPERT_FIRST], other[MOX_EXPERT_FIRST];
    const int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return mox_fail_file(MOXIE_ERR_IO, error, file->path, -1, "cannot open: %m");
    const int copy = open(mirror, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (copy < 0) {
        const moxie_status status = mox_fail_file(MOXIE_ERR_IO, error, mirror, -1, "cannot open this mirror: %m");
        close(fd);
        return status;
    }
    moxie_status status = read_first(file->path, fd, own, error);
    if (status == MOXIE_OK)
        status = read_first(mirror, copy, other, error);
    if (status == MOXIE_OK && memcmp(own, other, sizeof own) != 0)
        status = mox_fail_file(MOXIE_ERR_MISMATCH, error, mirror, -1,
                               "it is no mirror of %s: their headers or seals differ; copy the file again", file->path);
    close(copy);
    close(fd);
    return status;
}

/* Workers make the pages of a piece (which zeroes them, and places them near the worker) while the reader fills those
 * before it. */
typedef struct piece_work {
    mox_reader *reader;
    mox_read_request *requests;
    _Atomic int refused;
} piece_work;

static void begin_piece(void *context, int64_t task, int32_t worker)
{
    piece_work *w = context;
    mox_read_request *request = &w->requests[task];
    (void)worker;
    (void)madvise(request->to, request->bytes, MADV_POPULATE_WRITE); /* else the reader's threads do, a little slower */
    if (mox_reader_submit(w->reader, request, NULL) != MOXIE_OK)
        atomic_store_explicit(&w->refused, 1, memory_order_relaxed);
}

static moxie_status read_pieces(moxie_expert_file *file, mox_reader *reader, mox_read_request *requests, int64_t n,
                                const moxie_executor *executor, moxie_error *error)
{
    piece_work w = { .reader = reader, .requests = requests };
    moxie_status status = MOXIE_OK;
    for (int64_t i = 0; i < n; i++) {
        const uint64_t at = (uint64_t)i * PIECE, left = file->seal.file_bytes - at;
        requests[i] = (mox_read_request) { .offset = at, .bytes = left < PIECE ? left : PIECE, .to = file->data + at };
    }
    mox_parallel(executor, n, begin_piece, &w);
    for (int64_t i = 0; i < n; i++) {
        (void)mox_reader_wait_for(reader, &requests[i], MOX_READ_FOREVER);
        if (status == MOXIE_OK)
            status = mox_reader_result(reader, &requests[i], error);
    }
    return w.refused && status == MOXIE_OK ? mox_fail(MOXIE_ERR_IO, error, "a read was refused") : status;
}

static moxie_status read_with(moxie_expert_file *file, mox_reader *reader, const moxie_executor *executor,
                              moxie_error *error)
{
    mox_reader_info info;
    const int64_t n = mox_ceil_div((int64_t)file->seal.file_bytes, PIECE);
    mox_read_request *requests = mox_calloc((uint64_t)n, sizeof *requests);
    MOX_FAIL_IF(requests == NULL, MOXIE_ERR_MEMORY, error, "no memory for a list of reads");
    const moxie_status status = read_pieces(file, reader, requests, n, executor, error);
    mox_free(requests);
    MOX_TRY(status);
    mox_reader_get_info(reader, &info);
    file->direct = info.direct_copies == info.copies;
    file->read_engine = info.engine;
    snprintf(file->read_why, sizeof file->read_why, "%s%.400s",
             file->direct ? "" : "the file system has no O_DIRECT: read through the page cache; ", info.why);
    return MOXIE_OK;
}

/* Past the page cache, where the file system can. */
static moxie_status read_direct(moxie_expert_file *file, const moxie_expert_file_options *options, moxie_error *error)
{
    const mox_read_file source = { file->path, options->mirror };
    const mox_reader_options how = { .engine = options->read_engine,
                                     .depth = options->read_depth,
                                     .chunk_bytes = options->read_chunk_bytes };
    mox_reader *reader = NULL;
    if (options->mirror != NULL)
        MOX_TRY(mox_expert_check_mirror(file, options->mirror, error));
    MOX_TRY(mox_reader_open(&source, 1, &how, &reader, error));
    const moxie_executor *executor = options->executor != NULL ? options->executor : &mox_executor_serial;
    const moxie_status status = read_with(file, reader, executor, error);
    mox_reader_close(reader);
    return status;
}

static moxie_status read_all(moxie_expert_file *file, int fd, const moxie_expert_file_options *options,
                             moxie_error *error)
{
    const moxie_executor *executor = options->executor != NULL ? options->executor : &mox_executor_serial;
    file->data = mox_alloc_pages(file->seal.file_bytes);
    if (file->data == NULL)
        return mox_fail_file(MOXIE_ERR_MEMORY, error, file->path, -1,
                             "no memory for its %llu bytes: map it instead (MOXIE_EXPERT_MAP)",
                             (unsigned long long)file->seal.file_bytes);
    return options->access == MOXIE_EXPERT_DIRECT ? read_direct(file, options, error)
                                                  : read_in(file, fd, executor, error);
}

static moxie_status map_all(moxie_expert_file *file, int fd, moxie_error *error)
{
    void *data = mmap(NULL, file->seal.file_bytes, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    if (data == MAP_FAILED)
        return mox_fail_file(MOXIE_ERR_IO, error, file->path, -1, "cannot be mapped: %m; read it in instead");
    madvise(data, file->seal.file_bytes, MADV_HUGEPAGE); /* where the file system has them */
    file->data = data;
    file->mapped = true;
    file->fd = fd;
    return MOXIE_OK;
}

static moxie_status load_rest(moxie_expert_file *file, int fd, const moxie_expert_file_options *options,
                              moxie_error *error)
{
    struct stat info;
    const uint64_t bytes = file->seal.file_bytes;
    if (fstat(fd, &info) != 0)
        return mox_fail_file(MOXIE_ERR_IO, error, file->path, -1, "%m");
    if (bytes % MOX_EXPERT_PAGE != 0 || bytes < MOX_EXPERT_FIRST)
        return mox_fail_file(MOXIE_ERR_FORMAT, error, file->path, MOX_EXPERT_PAGE, "by its seal it has %llu bytes",
                             (unsigned long long)bytes);
    if ((uint64_t)info.st_size < bytes)
        return mox_fail_file(MOXIE_ERR_FORMAT, error, file->path, (int64_t)info.st_size,
                             "it ends here, but has %llu bytes by its seal: it was cut short; prepare it anew",
                             (unsigned long long)bytes);
    return options->access == MOXIE_EXPERT_MAP ? map_all(file, fd, error) : read_all(file, fd, options, error);
}

moxie_status mox_expert_load(moxie_expert_file *file, const moxie_expert_file_options *options, moxie_error *error)
{
    struct stat info;
    const int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return mox_fail_file(MOXIE_ERR_IO, error, file->path, -1,
                             "cannot open: %m; `moxie prepare` writes it, and goes on where it was interrupted");
    moxie_status status = MOXIE_OK;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        status = mox_fail_file(MOXIE_ERR_IO, error, file->path, -1, "it is no regular file");
    else if (!mox_read_at(fd, &file->header, sizeof file->header, 0))
        status = cut_short(file, "header", error);
    if (status == MOXIE_OK)
        status = check_header(file, error);
    if (status == MOXIE_OK)
        status = read_seal(file, fd, error);
    if (status == MOXIE_OK)
        status = load_rest(file, fd, options, error);
    if (!file->mapped) /* a mapped file stays open: a layer on a GPU reads its records */
        close(fd);
    return status;
}

void mox_expert_unload(moxie_expert_file *file)
{
    if (file->mapped) {
        munmap(file->data, file->seal.file_bytes);
        close(file->fd);
    } else {
        mox_free_pages(file->data);
    }
    file->data = NULL;
}
