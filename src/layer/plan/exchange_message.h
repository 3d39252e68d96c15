/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange_message.h - the numbers that every rank sends to every other before it sends the rows of a chunk.
 *
 * All but the last two are the same for all destinations, so each rank knows what all others know: when one finds a
 * difference, all do, and none waits for rows that never come.
 */
#ifndef MOX_LAYER_EXCHANGE_MESSAGE_H
#define MOX_LAYER_EXCHANGE_MESSAGE_H

enum {
    MOX_MESSAGE_STATUS,     /* not MOXIE_OK: this rank's call failed, and no rows follow */
    MOX_MESSAGE_PLAN,       /* which of the plans that share the comm */
    MOX_MESSAGE_CALL,       /* how many runs the plan has begun */
    MOX_MESSAGE_CHUNK,      /* which chunk of the run */
    MOX_MESSAGE_GENERATION, /* of the slot map */
    MOX_MESSAGE_TOKENS,     /* of the whole batch, where all ranks have the same; else 0 */
    MOX_MESSAGE_CHOICES,    /* a hash of its ids, with the first chunk; else 0 */
    MOX_MESSAGE_ADAPTERS,   /* a hash of those that a run has, where no host sees which of them rows need; else 0 */
    MOX_MESSAGE_CHUNKS,     /* that this rank's own tokens need */
    MOX_MESSAGE_ROWS,       /* rows that go from the sender to the receiver */
    MOX_MESSAGE_PAIRS,      /* choices in them: rows that the sender expects back */
    MOX_MESSAGE_OWN,        /* of the sender's own tokens, those of this chunk */
    MOX_MESSAGE_FIELDS
};

#endif
