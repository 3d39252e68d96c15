/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_library.h - the part of NCCL that the transport calls, found at run time in libnccl.so.2. Nothing here is
 * compiled against NCCL's header: the functions, their arguments and the few numbers below are those of its public
 * documentation, from version 2.18 on.
 *
 *     MOXIE_NCCL_LIBRARY (a path; nothing else is tried) -> beside libmoxie -> the loader's path   (base/module.h)
 */
#ifndef MOX_COMM_NCCL_LIBRARY_H
#define MOX_COMM_NCCL_LIBRARY_H

#include <stddef.h>

#include "base/status.h"

#include <moxie/moxie_comm.h>

/* Results. NCCL has more of them, all failures. */
enum {
    MOX_NCCL_SUCCESS = 0,
    MOX_NCCL_SYSTEM_ERROR = 2, /* such as a broken connection */
    MOX_NCCL_REMOTE_ERROR = 6,
    MOX_NCCL_IN_PROGRESS = 7
};

enum { MOX_NCCL_BYTES = 0 }; /* the type of an element: ncclInt8 */

typedef struct mox_nccl_id {
    char bytes[MOXIE_NCCL_ID_BYTES];
} mox_nccl_id;

/* ncclConfig_t. NCCL reads as many bytes as `size` says, and takes its default for a number that is INT_MIN. */
typedef struct mox_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking; /* 0: calls return at once, and comm_async says when they are done. NCCL_COMM_BLOCKING overrides it */
    int cga_size, min_blocks, max_blocks;
    const char *network;
    int split_share, traffic_class;
} mox_nccl_config;
#define MOX_NCCL_MAGIC   0xcafebeefu
#define MOX_NCCL_VERSION 21800 /* 10000 major + 100 minor + patch */

typedef void *mox_nccl_comm;

typedef struct mox_nccl_library {
    int version;
    int (*get_version)(int *version);
    int (*get_id)(mox_nccl_id *id);
    int (*comm_init)(mox_nccl_comm *comm, int ranks, mox_nccl_id id, int rank, mox_nccl_config *config);
    int (*comm_finalize)(mox_nccl_comm comm);
    int (*comm_destroy)(mox_nccl_comm comm);
    int (*comm_abort)(mox_nccl_comm comm);
    int (*comm_async)(mox_nccl_comm comm, int *state);
    const char *(*error_string)(int result);
    const char *(*last_error)(mox_nccl_comm comm);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*send)(const void *from, size_t count, int type, int peer, mox_nccl_comm comm, void *stream);
    int (*recv)(void *to, size_t count, int type, int peer, mox_nccl_comm comm, void *stream);
} mox_nccl_library;

/* The library, opened once; MOXIE_ERR_UNSUPPORTED when it is not there or too old. Thread-safe. */
moxie_status mox_nccl_open(const mox_nccl_library **out, moxie_error *error);
/* MOXIE_OK when there is a library to open. */
moxie_status mox_nccl_find(moxie_error *error);

#endif
