/* SPDX-License-Identifier: Apache-2.0
 *
 * transport_list.c - the transports of transports.def, and which of them can be used here.
 */
#include "comm/transport_list.h"

#include <stdio.h>

#include "base/status.h"
#include "comm/mpi_loader.h"
#include "comm/nccl/nccl_library.h"

typedef struct row {
    const char *name, *ranks;
    moxie_status (*find)(moxie_error *error);
} row;

static moxie_status mox_transport_always(moxie_error *error)
{
    (void)error;
    return MOXIE_OK;
}

static const row rows[] = {
#define MOX_TRANSPORT(name, ranks, find) { #name, ranks, find },
#include "comm/transports.def"
#undef MOX_TRANSPORT
};

bool mox_transport_at(int32_t index, moxie_transport_info *out)
{
    moxie_error error;
    if (index < 0 || index >= (int32_t)(sizeof rows / sizeof rows[0]))
        return false;
    out->name = rows[index].name;
    out->ranks = rows[index].ranks;
    out->usable = rows[index].find(&error) == MOXIE_OK;
    snprintf(out->missing, sizeof out->missing, "%.*s", (int)sizeof out->missing - 1, out->usable ? "" : error.text);
    return true;
}
