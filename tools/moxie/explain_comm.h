/* SPDX-License-Identifier: Apache-2.0
 *
 * explain_comm.h - comms that let a plan of several ranks be explained where one process has no ranks: what the plan
 * says of exchanges is then the plan's own.
 */
#ifndef MOXIE_EXPLAIN_COMM_H
#define MOXIE_EXPLAIN_COMM_H

#include <moxie/moxie_comm.h>

typedef struct explain_comms {
    moxie_comm **at; /* at[0] is rank 0's */
    int32_t count;
} explain_comms;

/* For plans with the back end and the device of `plan`. explain_comms_free() in any case. */
moxie_status explain_comms_create(int32_t ranks, const moxie_options *plan, explain_comms *out, moxie_error *error);
void explain_comms_free(explain_comms *comms);

#endif
