/* SPDX-License-Identifier: Apache-2.0
 *
 * transport_list.h - walks transports.def.
 */
#ifndef MOX_COMM_TRANSPORT_LIST_H
#define MOX_COMM_TRANSPORT_LIST_H

#include <stdbool.h>

#include <moxie/moxie_comm.h>

/* Body of moxie_transport_at; fills all but struct_size. */
bool mox_transport_at(int32_t index, moxie_transport_info *out);

#endif
