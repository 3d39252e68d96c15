/* SPDX-License-Identifier: Apache-2.0
 *
 * replica.h - which of the groups of ranks that hold an expert computes a choice of it. Host and device share it, since
 * the rank of a token and the groups must agree where each result comes to.
 */
#ifndef MOX_ROUTE_REPLICA_H
#define MOX_ROUTE_REPLICA_H

#include <stdint.h>

#include "base/shared.h"

/* The groups of expert e are replica[first_replica[e] .. first_replica[e + 1]), rising. The group of the token's own
 * rank, `home`, is the best. Else tokens take turns. */
MOX_SHARED int32_t mox_replica_group(const int32_t *first_replica, const int32_t *replica, int32_t home, int32_t expert,
                                     int64_t turn)
{
    const int32_t first = first_replica[expert], count = first_replica[expert + 1] - first;
    for (int32_t i = 0; i < count; i++)
        if (replica[first + i] == home)
            return home;
    return replica[first + turn % count];
}

#endif
