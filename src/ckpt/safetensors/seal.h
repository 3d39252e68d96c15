/* SPDX-License-Identifier: Apache-2.0
 *
 * seal.h - sealed files: safetensors files that are written piece by piece in any order, with a checksum (the seal)
 * which shows that every piece was written.
 *
 *     | N | header: ..., "moxie.pieces": "16,16,1", "moxie.seal": "0123456789abcdef", ... | tensors |
 *
 *     pieces     tensor i consists of pieces[i] equal pieces, written one at a time: an expert of a stack
 *     seal       XXH3-64 over [XXH3-64 of N and header, the seal's digits '0'; XXH3-64 of every piece, in file order]
 *
 * The header is written last, to a temporary file, which is then flushed to disk and renamed. So a file with its final
 * name and a correct seal is complete, whatever happened to its writer. In the flow: packed experts -> [sealed file] ->
 * another engine, or undo.
 */
#ifndef MOX_CKPT_SEAL_H
#define MOX_CKPT_SEAL_H

#include "ckpt/safetensors/tensors.h"

#include <moxie/moxie_ckpt.h>

/* Bodies of moxie_sealed_writer_* and moxie_tensor_file_check_seal. */
typedef struct moxie_sealed_writer mox_sealed_writer;
moxie_status mox_sealed_writer_open(const char *path, const moxie_sealed_tensor *tensors, int64_t count,
                                    const char *const *metadata, int64_t n_metadata, mox_sealed_writer **out,
                                    moxie_error *error);
moxie_status mox_sealed_writer_put(mox_sealed_writer *writer, int64_t tensor, int64_t piece, const void *data,
                                   moxie_error *error);
moxie_status mox_sealed_writer_finish(mox_sealed_writer *writer, moxie_error *error);
void mox_sealed_writer_abandon(mox_sealed_writer *writer);
/* Reads file 0 of the set completely; the pages are dropped afterwards. */
moxie_status mox_seal_check(const mox_tensor_set *set, moxie_error *error);

/* ---- for reader and writer (seal.c) ---- */

#define MOX_SEAL_KEY    "moxie.seal"
#define MOX_SEAL_PIECES "moxie.pieces"
#define MOX_SEAL_ZERO   "0000000000000000"
enum { MOX_SEAL_DIGITS = sizeof MOX_SEAL_ZERO - 1 };

/* The digits of the seal in a header; NULL when it has none. */
unsigned char *mox_seal_digits(unsigned char *header, uint64_t bytes);
/* The seal. `sums` [1 + pieces]: room for the sum of the header, then the sums of the pieces. The digits in the header
 * are '0'. */
uint64_t mox_seal_make(const unsigned char *header, uint64_t bytes, uint64_t *sums, uint64_t count);

#endif
