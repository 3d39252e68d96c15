/* SPDX-License-Identifier: Apache-2.0
 *
 * local.h - the transport "local": ranks are threads of one process.
 */
#ifndef MOX_COMM_LOCAL_H
#define MOX_COMM_LOCAL_H

#include <moxie/moxie_comm.h>

/* Fills out[ranks], 1 to MOXIE_MAX_RANKS. The last destroy() frees what they share. */
moxie_status mox_local_create(int32_t ranks, moxie_transport *out, moxie_error *error);

#endif
