/* SPDX-License-Identifier: Apache-2.0
 *
 * uring_table.h - what libmoxie uses of libmoxie_uring.so, as C function pointers. That module is src/store/uring with
 * liburing. libmoxie opens it at run time (read_uring.c), so a machine without liburing reads by pread(). The table is
 * private to libraries of one build: libmoxie rejects one of another version or size.
 */
#ifndef MOX_STORE_URING_TABLE_H
#define MOX_STORE_URING_TABLE_H

#include <stdint.h>
#include <sys/uio.h>

#define MOX_URING_TABLE_VERSION 1

typedef struct mox_uring_read {
    int fd;
    int32_t piece; /* of those that were registered, in which `to` lies; -1: none */
    void *to;
    uint32_t bytes;
    uint64_t offset; /* UINT64_MAX: where the file is, for what has no offsets */
    uint64_t tag;
} mox_uring_read;

typedef struct mox_uring_result {
    uint64_t tag;
    int64_t result; /* bytes, or -errno */
} mox_uring_result;

/* Calls return -errno on failure. One ring belongs to one thread. */
typedef struct mox_uring_table {
    uint32_t version, bytes; /* MOX_URING_TABLE_VERSION, sizeof(mox_uring_table) */
    const char *built;       /* the version of liburing's headers */
    /* A ring for so many reads at a time; frees nothing on failure. */
    int (*open)(uint32_t reads, void **ring);
    /* Registers memory, in pieces of at most 1 GiB. */
    int (*pin)(void *ring, const struct iovec *pieces, uint32_t n);
    /* Queues a read; -EBUSY with more than the ring is for. */
    int (*read)(void *ring, const mox_uring_read *read);
    /* Starts what is queued and waits for a result. Returns how many results there are, at most `max`. */
    int (*wait)(void *ring, mox_uring_result *results, uint32_t max);
    /* No read is in flight. */
    void (*close)(void *ring);
} mox_uring_table;

/* The only export of the module. */
#define MOX_URING_TABLE_SYMBOL "mox_uring_table_get"
const mox_uring_table *mox_uring_table_get(void);

#endif
