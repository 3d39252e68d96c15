/* SPDX-License-Identifier: Apache-2.0
 *
 * local.h - the transport "local": ranks are threads of one process.
 */
#ifndef MOX_COMM_LOCAL_H
#define MOX_COMM_LOCAL_H

#include <moxie/moxie_comm.h>

/* Fills out[ranks], 1 to MOXIE_MAX_RANKS. The last destroy() frees what they share. */
moxie_status mox_local_create(int32_t ranks, moxie_transport *out, moxie_error *error);
/* A transport for the rank of `old` in a group without the ranks of `dead`, which all ranks that are left make together
 * (moxie_comm_local_without). MOXIE_ERR_UNSUPPORTED when `old` is not local. */
moxie_status mox_local_without(const moxie_transport *old, const int32_t *dead, int32_t count, moxie_transport *out,
                               moxie_error *error);

#endif
