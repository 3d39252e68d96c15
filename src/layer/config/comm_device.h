/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_device.h - the device of a comm over GPUs (comm/device_memory.h).
 */
#ifndef MOX_LAYER_COMM_DEVICE_H
#define MOX_LAYER_COMM_DEVICE_H

#include "comm/device_memory.h"

/* `device` as in moxie_options; NULL: the first. MOXIE_ERR_UNSUPPORTED without such a device. */
moxie_status mox_comm_device_find(const char *device, mox_comm_device *out, moxie_error *error);

#endif
