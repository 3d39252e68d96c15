/* SPDX-License-Identifier: Apache-2.0
 *
 * seal.c - makes the checksum of a sealed file, and checks it (seal.h).
 */
#include "ckpt/safetensors/seal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"

unsigned char *mox_seal_digits(unsigned char *header, uint64_t bytes)
{
    /* Quotes in names and values are escaped, so this text occurs nowhere else. */
    static const char key[] = "\"" MOX_SEAL_KEY "\":\"";
    unsigned char *found = memmem(header, bytes, key, sizeof key - 1);
    if (!found || (uint64_t)(header + bytes - found) < sizeof key - 1 + MOX_SEAL_DIGITS + 1)
        return NULL;
    return found + sizeof key - 1;
}

uint64_t mox_seal_make(const unsigned char *header, uint64_t bytes, uint64_t *sums, uint64_t count)
{
    sums[0] = mox_checksum(header, bytes);
    return mox_checksum(sums, (count + 1) * sizeof *sums);
}

/* ---- checking ------------------------------------------------------------------------------------- */

static moxie_status broken(const mox_tensor_set *set, int64_t offset, moxie_error *error, const char *what)
{
    return mox_fail_file(MOXIE_ERR_MISMATCH, error, mox_tensor_set_file_name(set, 0), offset, "%s", what);
}

/* Reads the number of pieces of each tensor, and their total. */
static moxie_status read_pieces(const mox_tensor_set *set, int64_t *pieces, uint64_t *total, moxie_error *error)
{
    const char *at = mox_tensor_set_metadata(set, 0, MOX_SEAL_PIECES);
    const int64_t count = mox_tensor_set_count(set);
    if (!at || !mox_tensor_set_metadata(set, 0, MOX_SEAL_KEY))
        return broken(set, -1, error,
                      "the file has no seal (metadata moxie.seal and moxie.pieces): whether it is complete cannot be "
                      "checked; prepare it again");
    *total = 0;
    for (int64_t i = 0; i < count; i++) {
        char *end;
        pieces[i] = strtoll(at, &end, 10);
        const uint64_t bytes = mox_tensor_set_at(set, i)->bytes;
        if (end == at || pieces[i] < 1 || bytes % (uint64_t)pieces[i] != 0 || *end != (i + 1 < count ? ',' : '\0'))
            return broken(set, -1, error, "the metadata moxie.pieces does not fit the tensors");
        if ((uint64_t)pieces[i] > bytes + 1)
            return broken(set, -1, error, "the metadata moxie.pieces has more pieces than a tensor has bytes");
        *total += (uint64_t)pieces[i];
        at = end + 1;
    }
    return MOXIE_OK;
}

/* Writes the sums of all pieces to sums[1] and on. */
static void sum_pieces(const mox_tensor_set *set, const int64_t *pieces, uint64_t *sums)
{
    uint64_t next = 1;
    for (int64_t i = 0; i < mox_tensor_set_count(set); i++) {
        const mox_file_tensor *tensor = mox_tensor_set_at(set, i);
        const uint64_t bytes = tensor->bytes / (uint64_t)pieces[i];
        for (int64_t p = 0; p < pieces[i]; p++) {
            const unsigned char *piece = (const unsigned char *)tensor->view.data + (uint64_t)p * bytes;
            sums[next++] = mox_checksum(piece, bytes);
            mox_tensor_set_drop(set, piece, bytes);
        }
    }
}

static moxie_status check(const mox_tensor_set *set, const int64_t *pieces, uint64_t total, uint64_t *sums,
                          unsigned char *header, uint64_t header_bytes, moxie_error *error)
{
    unsigned char *digits = mox_seal_digits(header, header_bytes);
    char found[MOX_SEAL_DIGITS + 1] = "", want[MOX_SEAL_DIGITS + 1];
    if (!digits)
        return broken(set, -1, error, "the header has no seal where its writer puts it");
    memcpy(found, digits, MOX_SEAL_DIGITS);
    memcpy(digits, MOX_SEAL_ZERO, MOX_SEAL_DIGITS);
    sum_pieces(set, pieces, sums);
    snprintf(want, sizeof want, "%016llx", (unsigned long long)mox_seal_make(header, header_bytes, sums, total));
    if (memcmp(want, found, MOX_SEAL_DIGITS) != 0)
        return broken(set, -1, error,
                      "the file's content does not match its seal: it was damaged, or its writer was "
                      "interrupted; make it again");
    return MOXIE_OK;
}

moxie_status mox_seal_check(const mox_tensor_set *set, moxie_error *error)
{
    MOX_TRY(mox_tensor_set_check(set, error));
    uint64_t total = 0, header_bytes = 0;
    const unsigned char *file = mox_tensor_set_file_header(set, 0, &header_bytes);
    int64_t *pieces = mox_calloc((uint64_t)mox_tensor_set_count(set), sizeof *pieces);
    unsigned char *header = mox_alloc(header_bytes);
    uint64_t *sums = NULL;
    moxie_status status = MOXIE_OK;
    if (!pieces || !header) {
        status = mox_fail(MOXIE_ERR_MEMORY, error, "no memory to check a seal");
        goto out;
    }
    status = read_pieces(set, pieces, &total, error);
    if (status != MOXIE_OK)
        goto out;
    sums = mox_calloc(total + 1, sizeof *sums);
    if (!sums) {
        status = mox_fail(MOXIE_ERR_MEMORY, error, "no memory for %llu sums", (unsigned long long)total);
        goto out;
    }
    memcpy(header, file, header_bytes);
    status = check(set, pieces, total, sums, header, header_bytes, error);
out:
    mox_free(pieces);
    mox_free(header);
    mox_free(sums);
    return status;
}
