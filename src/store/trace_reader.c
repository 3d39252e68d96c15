/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_reader.c - a trace file (trace_format.h), checked whole when it is opened; then any step by its number.
 *
 *     open: header -> frame, payload, checksum, ids of each step -> offsets [steps] -> END, end of the file
 *     read: offset -> the same checks again -> ids i32, weights, requests
 *
 * A step is read from the file again, so a trace larger than memory can be replayed. It is checked again, because the
 * file may have changed meanwhile.
 */
#include "store/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/sizes.h"
#include "store/trace_format.h"

struct moxie_trace {
    char *path;
    int fd;
    uint64_t size; /* of the file */
    moxie_trace_info info;
    char model[MOX_TRACE_NAME_BYTES];
    int32_t *layer_numbers;
    uint64_t *offsets;      /* [steps] of frames */
    int64_t room;           /* of offsets */
    mox_trace_buffer block; /* a step, as it lies in the file */
    mox_trace_buffer ids;   /* its ids as int32_t */
};

#define BAD(trace, at, ...) mox_fail_file(MOXIE_ERR_FORMAT, error, (trace)->path, (int64_t)(at), __VA_ARGS__)

static moxie_status read_at(const moxie_trace *t, void *to, uint64_t bytes, uint64_t offset, moxie_error *error)
{
    for (uint64_t done = 0; done < bytes;) {
        const ssize_t got = pread(t->fd, (char *)to + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return mox_fail_file(MOXIE_ERR_IO, error, t->path, (int64_t)(offset + done), "cannot read: %m");
        if (got == 0)
            return BAD(t, offset + done, "the file ends within %llu bytes that begin at %llu: it was cut off",
                       (unsigned long long)bytes, (unsigned long long)offset);
        done += (uint64_t)got;
    }
    return MOXIE_OK;
}

/* ---- the header --------------------------------------------------------------------------------------- */

static moxie_status check_header(const moxie_trace *t, const mox_trace_header *h, moxie_error *error)
{
    if (memcmp(h->magic, MOX_TRACE_MAGIC, sizeof h->magic))
        return BAD(t, 0, "it is no routing trace: it does not begin with %s", MOX_TRACE_MAGIC);
    if (h->byte_order != MOX_TRACE_BYTE_ORDER)
        return BAD(t, 12, "its byte order is 0x%08x instead of 0x%08x", h->byte_order, MOX_TRACE_BYTE_ORDER);
    if (h->version != MOX_TRACE_VERSION)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, t->path, 8,
                             "it is a trace of version %u, and this library reads version %d: use a newer moxie",
                             h->version, MOX_TRACE_VERSION);
    if (h->layers > MOXIE_TRACE_MAX_LAYERS || h->header_bytes != mox_trace_header_bytes(h->layers) ||
        h->header_bytes > t->size)
        return BAD(t, 16, "its header has %u bytes, for %u layers, in a file of %llu", h->header_bytes, h->layers,
                   (unsigned long long)t->size);
    if (h->flags & ~(uint32_t)(MOX_TRACE_HAS_WEIGHTS | MOX_TRACE_HAS_REQUESTS))
        return BAD(t, 20, "its flags are 0x%x: bits 0 and 1 are known", h->flags);
    if (memchr(h->model, '\0', sizeof h->model) == NULL)
        return BAD(t, 48, "the model's name has no end");
    return MOXIE_OK;
}

/* A number of the header that must fit into an int32_t; what does not becomes -1, which no limit allows. */
static int32_t narrow(uint32_t value)
{
    return value > INT32_MAX ? -1 : (int32_t)value;
}

static moxie_status take_info(moxie_trace *t, const mox_trace_header *h, const unsigned char *numbers,
                              moxie_error *error)
{
    t->info = (moxie_trace_info) { .struct_size = sizeof t->info,
                                   .layers = narrow(h->layers),
                                   .experts = narrow(h->experts),
                                   .top_k = narrow(h->top_k),
                                   .zero_experts = narrow(h->zero_experts),
                                   .has_weights = (h->flags & MOX_TRACE_HAS_WEIGHTS) != 0,
                                   .has_requests = (h->flags & MOX_TRACE_HAS_REQUESTS) != 0,
                                   .fingerprint = h->fingerprint };
    memcpy(t->model, h->model, sizeof t->model);
    t->layer_numbers = mox_calloc(h->layers, sizeof *t->layer_numbers);
    MOX_FAIL_IF(!t->layer_numbers, MOXIE_ERR_MEMORY, error, "no memory for a trace of %u layers", h->layers);
    memcpy(t->layer_numbers, numbers, 4 * (size_t)h->layers);
    t->info.model = t->model;
    t->info.layer_numbers = t->layer_numbers;
    moxie_error why;
    if (mox_trace_check_info(&t->info, MOXIE_ERR_FORMAT, &why) != MOXIE_OK)
        return BAD(t, 24, "%s", why.text);
    return MOXIE_OK;
}

static moxie_status read_header(moxie_trace *t, moxie_error *error)
{
    mox_trace_header h;
    MOX_TRY(read_at(t, &h, sizeof h, 0, error));
    MOX_TRY(check_header(t, &h, error));
    unsigned char *whole = mox_alloc(h.header_bytes);
    MOX_FAIL_IF(!whole, MOXIE_ERR_MEMORY, error, "no memory for the header of a trace");
    moxie_status status = read_at(t, whole, h.header_bytes, 0, error);
    if (status == MOXIE_OK &&
        mox_trace_checksum(whole, h.header_bytes, offsetof(mox_trace_header, checksum)) != h.checksum)
        status = mox_fail_file(MOXIE_ERR_MISMATCH, error, t->path, 120, "the header's checksum differs: it is damaged");
    if (status == MOXIE_OK)
        status = take_info(t, &h, whole + sizeof h, error);
    mox_free(whole);
    return status;
}

/* ---- steps -------------------------------------------------------------------------------------------- */

static moxie_status check_frame(const moxie_trace *t, const mox_trace_frame *f, uint64_t at, int64_t number,
                                moxie_error *error)
{
    const bool end = !memcmp(f->magic, MOX_TRACE_END, sizeof f->magic);
    if (!end && memcmp(f->magic, MOX_TRACE_STEP, sizeof f->magic))
        return BAD(t, at, "expected step %lld or the end of the trace, found other bytes", (long long)number);
    if (f->number != (uint64_t)number)
        return BAD(t, at, "expected step %lld, found %llu: a step is lost, doubled or swapped", (long long)number,
                   (unsigned long long)f->number);
    if (f->reserved || f->phase > MOXIE_TRACE_MIXED || f->tokens > MOXIE_TRACE_MAX_TOKENS ||
        (end && (f->tokens || f->phase)))
        return BAD(t, at, "step %lld has %u tokens, phase %u and reserved word %u; the limits are %d, %d and 0",
                   (long long)number, f->tokens, f->phase, f->reserved, MOXIE_TRACE_MAX_TOKENS, MOXIE_TRACE_MIXED);
    return MOXIE_OK;
}

static moxie_status check_ids(const moxie_trace *t, const unsigned char *payload, uint64_t choices, uint64_t at,
                              moxie_error *error)
{
    const int32_t candidates = t->info.experts + t->info.zero_experts;
    for (uint64_t i = 0; i < choices; i++) {
        uint16_t id;
        memcpy(&id, payload + 2 * i, sizeof id);
        if (id >= candidates && id != MOX_TRACE_NO_EXPERT)
            return BAD(t, at + sizeof(mox_trace_frame) + 2 * i, "choice %llu of a step is expert %u, and there are %d",
                       (unsigned long long)i, id, candidates);
    }
    return MOXIE_OK;
}

/* Reads and checks the block at `at` into t->block. */
static moxie_status read_block(moxie_trace *t, uint64_t at, int64_t number, mox_trace_frame *frame, uint64_t *bytes,
                               moxie_error *error)
{
    MOX_TRY(read_at(t, frame, sizeof *frame, at, error));
    MOX_TRY(check_frame(t, frame, at, number, error));
    const mox_trace_parts parts = mox_trace_parts_of(&t->info, frame->tokens);
    *bytes = sizeof *frame + parts.bytes;
    if (*bytes > t->size - at)
        return BAD(t, at, "step %lld has %llu bytes, and %llu are left: the file was cut off", (long long)number,
                   (unsigned long long)*bytes, (unsigned long long)(t->size - at));
    MOX_TRY(mox_trace_reserve(&t->block, *bytes, error));
    MOX_TRY(read_at(t, t->block.at, *bytes, at, error));
    if (mox_trace_checksum(t->block.at, *bytes, offsetof(mox_trace_frame, checksum)) != frame->checksum)
        return mox_fail_file(MOXIE_ERR_MISMATCH, error, t->path, (int64_t)at,
                             "the checksum of step %lld differs: it is damaged", (long long)number);
    return check_ids(t, t->block.at + sizeof *frame, parts.choices, at, error);
}

static moxie_status note_step(moxie_trace *t, uint64_t at, moxie_error *error)
{
    if (t->info.steps == t->room) {
        const int64_t room = t->room ? 2 * t->room : 256;
        uint64_t *grown = mox_realloc(t->offsets, (uint64_t)room * sizeof *grown);
        MOX_FAIL_IF(!grown, MOXIE_ERR_MEMORY, error, "no memory for a trace of %lld steps", (long long)room);
        t->offsets = grown;
        t->room = room;
    }
    t->offsets[t->info.steps++] = at;
    return MOXIE_OK;
}

static moxie_status check_steps(moxie_trace *t, moxie_error *error)
{
    mox_trace_frame frame;
    for (uint64_t at = mox_trace_header_bytes(t->info.layers), bytes = 0;; at += bytes) {
        if (at == t->size)
            return BAD(t, at, "the trace has no end after %lld steps: its writer did not finish it",
                       (long long)t->info.steps);
        MOX_TRY(read_block(t, at, t->info.steps, &frame, &bytes, error));
        if (!memcmp(frame.magic, MOX_TRACE_END, sizeof frame.magic))
            return at + bytes == t->size ? MOXIE_OK : BAD(t, at + bytes, "bytes follow the end of the trace");
        MOX_TRY(note_step(t, at, error));
        t->info.tokens += frame.tokens;
    }
}

/* ---- life --------------------------------------------------------------------------------------------- */

static moxie_status open_file(moxie_trace *t, const char *path, moxie_error *error)
{
    struct stat about;
    const size_t length = strlen(path);
    t->path = mox_alloc(length + 1);
    MOX_FAIL_IF(!t->path, MOXIE_ERR_MEMORY, error, "no memory to open a trace");
    memcpy(t->path, path, length);
    t->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would block for ever */
    if (t->fd < 0 || fstat(t->fd, &about) != 0)
        return mox_fail_file(MOXIE_ERR_IO, error, path, -1, "cannot open: %m; give a trace that can be read");
    if (!S_ISREG(about.st_mode))
        return mox_fail_file(MOXIE_ERR_IO, error, path, -1, "expected a regular file, found a %s; give a file",
                             S_ISDIR(about.st_mode) ? "directory" : "device, pipe or socket");
    t->size = (uint64_t)about.st_size;
    return MOXIE_OK;
}

int mox_trace_is_trace(const char *path)
{
    char magic[8];
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const bool is = fd >= 0 && pread(fd, magic, sizeof magic, 0) == (ssize_t)sizeof magic &&
                    !memcmp(magic, MOX_TRACE_MAGIC, sizeof magic);
    if (fd >= 0)
        close(fd);
    return is;
}

moxie_status mox_trace_open(const char *path, moxie_trace **out, moxie_error *error)
{
    moxie_trace *t = mox_alloc(sizeof *t);
    MOX_FAIL_IF(!t, MOXIE_ERR_MEMORY, error, "no memory to open a trace");
    t->fd = -1;
    moxie_status status = open_file(t, path, error);
    if (status == MOXIE_OK)
        status = read_header(t, error);
    if (status == MOXIE_OK)
        status = check_steps(t, error);
    if (status == MOXIE_OK)
        *out = t;
    else
        mox_trace_close(t);
    return status;
}

void mox_trace_close(moxie_trace *t)
{
    if (!t)
        return;
    if (t->fd >= 0)
        close(t->fd);
    mox_free(t->path);
    mox_free(t->layer_numbers);
    mox_free(t->offsets);
    mox_free(t->block.at);
    mox_free(t->ids.at);
    mox_free(t);
}

const moxie_trace_info *mox_trace_info_of(const moxie_trace *t)
{
    return &t->info;
}

moxie_status mox_trace_read(moxie_trace *t, int64_t index, moxie_trace_step *step, moxie_error *error)
{
    mox_trace_frame frame;
    uint64_t bytes = 0;
    MOX_FAIL_IF(index < 0 || index >= t->info.steps, MOXIE_ERR_ARGUMENT, error, "step %lld of a trace of %lld",
                (long long)index, (long long)t->info.steps);
    MOX_TRY(read_block(t, t->offsets[index], index, &frame, &bytes, error));
    const mox_trace_parts parts = mox_trace_parts_of(&t->info, frame.tokens);
    const unsigned char *payload = t->block.at + sizeof frame;
    MOX_TRY(mox_trace_reserve(&t->ids, 4 * parts.choices + 4, error));
    int32_t *ids = (int32_t *)(void *)t->ids.at;
    for (uint64_t i = 0; i < parts.choices; i++) {
        uint16_t id;
        memcpy(&id, payload + 2 * i, sizeof id);
        ids[i] = id == MOX_TRACE_NO_EXPERT ? -1 : id;
    }
    *step = (moxie_trace_step) { .struct_size = sizeof *step,
                                 .phase = (int32_t)frame.phase,
                                 .tokens = frame.tokens,
                                 .token_stride = (int64_t)t->info.layers * t->info.top_k,
                                 .layer_stride = t->info.top_k,
                                 .ids = ids };
    if (t->info.has_weights)
        step->weights = (const float *)(const void *)(payload + parts.weights);
    if (t->info.has_requests)
        step->requests = (const uint64_t *)(const void *)(payload + parts.requests);
    return MOXIE_OK;
}
