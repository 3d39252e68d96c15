/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_conformance.h - what every transport must do, as one program that all ranks run together.
 *
 * Each round starts 1 to 8 random operations and finishes them in an order that differs from rank to rank. All ranks
 * draw the same numbers from the seed, so each knows what every other one sends, and computes what it must receive by
 * itself. Numbers of rows are 0 often, rows are 1 to 65,600 bytes long, sent ranges overlap, received ones lie in any
 * order with gaps between them, whose bytes must stay as they were.
 */
#ifndef COMM_CONFORMANCE_H
#define COMM_CONFORMANCE_H

#include "test_support.h"

#include "comm/comm.h"

/* Runs as one rank. True when all is right; else `text` says what is wrong. Callable from any thread or process. */
bool comm_conforms(moxie_comm *comm, uint64_t seed, int64_t rounds, char *text, size_t size);

#endif
