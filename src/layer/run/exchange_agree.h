/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange_agree.h - the numbers that ranks tell each other before the rows of a chunk (plan/exchange_message.h).
 */
#ifndef MOX_LAYER_EXCHANGE_AGREE_H
#define MOX_LAYER_EXCHANGE_AGREE_H

#include "layer/run/exchange.h"

/* Sends this rank's numbers and reads the others'. *chunks: what all ranks need. Where tokens are sharded it sets from,
 * from_rows and from_pairs; else it compares them with what the others expect. MOXIE_ERR_MISMATCH names a rank and both
 * numbers. */
moxie_status mox_exchange_agree(const mox_run *run, int64_t chunk, int64_t *chunks, moxie_error *error);
/* The same for a rank whose call failed with `status`: it only tells. */
void mox_exchange_tell_failure(const moxie_plan *plan, moxie_status status);
/* Whether the rows that came are for experts of this rank, and as many choices as were announced. */
moxie_status mox_exchange_check_rows(const mox_run *run, moxie_error *error);

/* With a fixed capacity, in place of mox_exchange_agree: sets the numbers of rows that come; starts to send the
 * message, which announces no counts. */
void mox_exchange_expect_fixed(const mox_run *run);
moxie_status mox_exchange_announce(const mox_run *run, mox_comm_request *request, moxie_error *error);
/* The message has come: MOXIE_ERR_MISMATCH as above. */
moxie_status mox_exchange_compare(const mox_run *run, moxie_error *error);

/* After a chunk was agreed on: how many rows each rank of the group brings to the shared expert, [tp_size]. Its tokens
 * of chunk `number`; with a fixed capacity, where ranks do not tell each other, the capacity. */
void mox_exchange_share(const mox_run *run, int64_t number, int64_t *share);

#endif
