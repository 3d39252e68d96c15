/* SPDX-License-Identifier: Apache-2.0
 *
 * uring_module.c - libmoxie_uring.so: reads through the kernel's io_uring, by liburing (uring_table.h).
 *
 *     read: an entry of the submission queue -> wait: one system call starts all and waits -> completions with tags
 */
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>

#include "store/uring/uring_table.h"

#define TEXT(x)   TEXT_2(x)
#define TEXT_2(x) #x
#ifdef IO_URING_VERSION_MAJOR
#define BUILT "liburing " TEXT(IO_URING_VERSION_MAJOR) "." TEXT(IO_URING_VERSION_MINOR)
#else
#define BUILT "liburing"
#endif

static int open_ring(uint32_t reads, void **out)
{
    struct io_uring *ring = calloc(1, sizeof *ring);
    if (ring == NULL)
        return -ENOMEM;
    const int status = io_uring_queue_init(reads, ring, 0);
    if (status < 0)
        free(ring);
    else
        *out = ring;
    return status;
}

static int pin(void *ring, const struct iovec *pieces, uint32_t n)
{
    return io_uring_register_buffers(ring, pieces, n);
}

static int queue_read(void *ring, const mox_uring_read *read)
{
    struct io_uring_sqe *entry = io_uring_get_sqe(ring);
    if (entry == NULL)
        return -EBUSY;
    if (read->piece >= 0)
        io_uring_prep_read_fixed(entry, read->fd, read->to, read->bytes, read->offset, read->piece);
    else
        io_uring_prep_read(entry, read->fd, read->to, read->bytes, read->offset);
    entry->user_data = read->tag;
    return 0;
}

static int wait_for_results(void *context, mox_uring_result *results, uint32_t max)
{
    struct io_uring *ring = context;
    struct io_uring_cqe *entry;
    unsigned head;
    uint32_t n = 0;
    const int status = io_uring_submit_and_wait(ring, 1);
    if (status < 0)
        return status;
    io_uring_for_each_cqe(ring, head, entry)
    {
        if (n == max)
            break;
        results[n++] = (mox_uring_result) { .tag = entry->user_data, .result = entry->res };
    }
    io_uring_cq_advance(ring, n);
    return (int)n;
}

static void close_ring(void *ring)
{
    io_uring_queue_exit(ring);
    free(ring);
}

const mox_uring_table *mox_uring_table_get(void)
{
    static const mox_uring_table table = { .version = MOX_URING_TABLE_VERSION,
                                           .bytes = sizeof table,
                                           .built = BUILT,
                                           .open = open_ring,
                                           .pin = pin,
                                           .read = queue_read,
                                           .wait = wait_for_results,
                                           .close = close_ring };
    return &table;
}
