/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_check.h - checks of a transport's table and of an operation's arguments, before anything is started.
 */
#ifndef MOX_COMM_CHECK_H
#define MOX_COMM_CHECK_H

#include "comm/operation.h"

/* Sizes, name and every function but wait(), by name. */
moxie_status mox_comm_check_transport(const moxie_transport *transport, moxie_error *error);

moxie_status mox_comm_check_counts(const int64_t *send, const int64_t *recv, int64_t each, int32_t ranks,
                                   moxie_error *error);
/* Of alltoallv, allgatherv or reduce_scatter, as rank `rank` of `ranks`. */
moxie_status mox_comm_check_rows(mox_comm_kind kind, const moxie_comm_rows *rows, int32_t rank, int32_t ranks,
                                 moxie_error *error);
moxie_status mox_comm_check_allreduce(const void *values, int64_t n, moxie_comm_sum how, moxie_error *error);

#endif
