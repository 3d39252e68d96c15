/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_replace.c - one expert of a file replaced while others read it:
 *
 *     lock -> open as a reader -> pack -> record and index behind the end -> flush -> the other seal -> flush
 *
 * Until the new seal is written nothing that the old one names has changed, and the old one stays. So a reader has the
 * old file or the new one, and so has the next one after a crash at any point.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/executor.h"
#include "base/file_lock.h"
#include "layer/config/reserved.h"
#include "layer/weights/layer_records.h"
#include "store/expert_file.h"

static moxie_status write_at(const moxie_expert_file *file, int fd, const void *data, uint64_t bytes, uint64_t offset,
                             moxie_error *error)
{
    const uint8_t *at = data;
    while (bytes > 0) {
        const ssize_t done = pwrite(fd, at, bytes, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return mox_fail_file(MOXIE_ERR_IO, error, file->path, -1, "cannot write: %m; it is as it was");
        at += done;
        bytes -= (uint64_t)done;
        offset += (uint64_t)done;
    }
    return MOXIE_OK;
}

static moxie_status flush(const moxie_expert_file *file, int fd, moxie_error *error)
{
    if (fsync(fd) != 0)
        return mox_fail_file(MOXIE_ERR_IO, error, file->path, -1, "cannot write: %m");
    return MOXIE_OK;
}

/* What the new generation consists of. */
typedef struct change {
    mox_expert_entry *index; /* padded */
    uint8_t *record;         /* padded */
    mox_expert_seal seal;
} change;

static moxie_status make_change(const moxie_expert_file *file, int64_t expert, const moxie_expert *weights,
                                uint64_t source_hash, const moxie_executor *executor, change *c, moxie_error *error)
{
    const mox_expert_kind kind = mox_expert_kind_of(expert);
    const uint64_t index_bytes = mox_expert_padded(file->seal.index.bytes);
    mox_expert_entry *entry = &c->index[expert < 0 ? file->header.experts : expert];
    memcpy(c->index, file->index, file->seal.index.bytes);
    MOX_FAIL_IF(!mox_layer_accepts(file->layouts[kind], &file->shapes.whole[kind], expert, weights),
                MOXIE_ERR_UNSUPPORTED, error,
                "layout %s of the file cannot hold the new expert %lld: prepare the whole file anew",
                file->layouts[kind]->name, (long long)expert);
    MOX_TRY(mox_expert_check_scales(&file->config, expert, weights, error));
    MOX_TRY(mox_expert_pack(&file->config, &file->shapes, file->layouts[kind], expert, weights, c->record, executor,
                            error));
    c->seal = (mox_expert_seal) { .generation = file->seal.generation + 1,
                                  .header_checksum = file->header.checksum,
                                  .unused_bytes =
                                      file->seal.unused_bytes + mox_expert_padded(entry->range.bytes) + index_bytes };
    const uint64_t record_bytes = mox_expert_padded(entry->range.bytes);
    entry->range.offset = file->seal.file_bytes;
    entry->range.checksum = mox_checksum(c->record, record_bytes);
    entry->generation = c->seal.generation;
    entry->source_hash = source_hash;
    entry->a13_scale = weights->a13_scale;
    entry->a2_scale = weights->a2_scale;
    c->seal.index = (mox_expert_range) { entry->range.offset + record_bytes, file->seal.index.bytes,
                                         mox_checksum(c->index, index_bytes) };
    c->seal.file_bytes = c->seal.index.offset + index_bytes;
    mox_expert_end_seal(&c->seal);
    return MOXIE_OK;
}

static moxie_status write_change(const moxie_expert_file *file, int fd, const change *c, moxie_error *error)
{
    const uint64_t record_bytes = c->seal.index.offset - file->seal.file_bytes;
    const uint64_t seal_at = MOX_EXPERT_PAGE * (c->seal.generation % 2 == 1 ? 1 : 2);
    MOX_TRY(write_at(file, fd, c->record, record_bytes, file->seal.file_bytes, error));
    MOX_TRY(write_at(file, fd, c->index, mox_expert_padded(c->seal.index.bytes), c->seal.index.offset, error));
    MOX_TRY(flush(file, fd, error));
    MOX_TRY(write_at(file, fd, &c->seal, sizeof c->seal, seal_at, error));
    return flush(file, fd, error);
}

static moxie_status replace(const moxie_expert_file *file, int fd, int64_t expert, const moxie_expert *weights,
                            uint64_t source_hash, const moxie_executor *executor, moxie_error *error)
{
    MOX_FAIL_IF(expert < -1 || expert >= file->header.experts || mox_expert_entry_of(file, expert)->range.bytes == 0,
                MOXIE_ERR_ARGUMENT, error, "expert %lld is not in the file, so it cannot be replaced",
                (long long)expert);
    MOX_TRY(mox_reserved_expert(weights, "the new expert", error));
    change c = { .index = mox_alloc(mox_expert_padded(file->seal.index.bytes)),
                 .record = mox_alloc_pages(mox_expert_padded(mox_expert_entry_of(file, expert)->range.bytes)) };
    moxie_status status = c.index != NULL && c.record != NULL
                              ? MOXIE_OK
                              : mox_fail(MOXIE_ERR_MEMORY, error, "no memory for a record and an index");
    if (status == MOXIE_OK)
        status = make_change(file, expert, weights, source_hash, executor, &c, error);
    if (status == MOXIE_OK)
        status = write_change(file, fd, &c, error);
    mox_free(c.index);
    mox_free_pages(c.record);
    return status;
}

/* The file is opened after it is locked, so that two that replace do not begin with the same generation. */
static moxie_status replace_locked(const char *path, int fd, int64_t expert, const moxie_expert *weights,
                                   uint64_t source_hash, const moxie_executor *executor, moxie_error *error)
{
    static const moxie_expert_file_options defaults = MOXIE_EXPERT_FILE_OPTIONS_INIT;
    moxie_expert_file *file = NULL;
    MOX_TRY(mox_expert_file_open(path, &defaults, &file, error));
    moxie_status status = MOXIE_OK;
    if (!mox_lock_is_at(fd, path))
        status = mox_fail_file(MOXIE_ERR_IO, error, path, -1, "it was replaced by another file meanwhile: try again");
    if (status == MOXIE_OK)
        status = replace(file, fd, expert, weights, source_hash, executor, error);
    mox_expert_file_close(file);
    return status;
}

moxie_status mox_expert_file_replace(const char *path, int64_t expert, const moxie_expert *weights,
                                     uint64_t source_hash, const moxie_executor *executor, moxie_error *error)
{
    const int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return mox_fail_file(MOXIE_ERR_IO, error, path, -1, "cannot be opened for writing: %m");
    const mox_lock lock = mox_lock_try(fd);
    const moxie_status status =
        lock == MOX_LOCK_HELD   ? replace_locked(path, fd, expert, weights, source_hash,
                                               executor != NULL ? executor : &mox_executor_serial, error)
        : lock == MOX_LOCK_BUSY ? mox_lock_busy(fd, path, error)
                                : mox_fail_file(MOXIE_ERR_IO, error, path, -1, "its file system has no locks");
    close(fd);
    return status;
}
