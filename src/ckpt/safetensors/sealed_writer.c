/* SPDX-License-Identifier: Apache-2.0
 *
 * sealed_writer.c - writes a sealed file (seal.h): allocates all of it first, then pieces at their places, the header
 * last.
 *
 *     open: temporary file, space  ->  put, put, ... in any order  ->  finish: header, to the disk, rename
 *                                                                 \-> abandon: unlink
 *
 * The space is allocated at once, so that a full disk is reported before the work. Pieces are summed when they are
 * written, while they are in the cache.
 */
#include "ckpt/safetensors/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/whole_file.h"
#include "ckpt/safetensors/safetensors_header.h"

typedef struct sealed_place {
    uint64_t offset, piece_bytes; /* offset in the file; bytes of a piece */
    int64_t pieces, first;        /* number of pieces; number of the first one */
} sealed_place;

struct moxie_sealed_writer {
    mox_arena arena;
    mox_whole_file file;
    unsigned char *header;
    uint64_t header_bytes;
    sealed_place *places;
    int64_t count, pieces;
    uint64_t *sums; /* [1 + pieces] */
    bool *written;  /* [pieces] */
};

/* ---- opening -------------------------------------------------------------------------------------- */

/* "16,16,1", in the arena. */
static const char *pieces_text(mox_sealed_writer *w, const moxie_sealed_tensor *tensors, int64_t count)
{
    enum { DIGITS = 21 };
    char *text = mox_arena_alloc(&w->arena, (uint64_t)count * DIGITS + 1);
    for (int64_t i = 0, at = 0; text && i < count; i++)
        at += snprintf(text + at, DIGITS + 1, "%s%lld", i ? "," : "", (long long)tensors[i].pieces);
    return text;
}

static moxie_status make_header(mox_sealed_writer *w, const moxie_sealed_tensor *tensors, int64_t count,
                                const char *const *metadata, int64_t n_metadata, uint64_t *data_bytes,
                                moxie_error *error)
{
    mox_tensor_decl *decls = mox_arena_calloc(&w->arena, (uint64_t)count, sizeof *decls);
    const char **pairs = mox_arena_calloc(&w->arena, (uint64_t)n_metadata + 2, 2 * sizeof *pairs);
    const char *pieces = pieces_text(w, tensors, count);
    MOX_FAIL_IF(!decls || !pairs || !pieces, MOXIE_ERR_MEMORY, error, "no memory to write a file");
    for (int64_t i = 0; i < count; i++) {
        decls[i] = (mox_tensor_decl) { .name = tensors[i].name, .dtype = tensors[i].dtype, .rank = tensors[i].rank };
        memcpy(decls[i].shape, tensors[i].shape, sizeof decls[i].shape);
    }
    for (int64_t i = 0; i < 2 * n_metadata; i++)
        pairs[i] = metadata[i];
    pairs[2 * n_metadata] = MOX_SEAL_PIECES;
    pairs[2 * n_metadata + 1] = pieces;
    pairs[2 * n_metadata + 2] = MOX_SEAL_KEY;
    pairs[2 * n_metadata + 3] = MOX_SEAL_ZERO;
    return mox_safetensors_header_make(decls, count, pairs, n_metadata + 2, &w->header, &w->header_bytes, data_bytes,
                                       error);
}

static uint64_t bytes_of(const moxie_sealed_tensor *tensor)
{
    /* The product fits: the header was made from it. */
    uint64_t bits = (uint64_t)moxie_dtype_bits(tensor->dtype);
    for (int32_t i = 0; i < tensor->rank; i++)
        bits *= (uint64_t)tensor->shape[i];
    return bits / 8;
}

static moxie_status place_pieces(mox_sealed_writer *w, const moxie_sealed_tensor *tensors, moxie_error *error)
{
    uint64_t offset = w->header_bytes;
    char escaped[160];
    w->places = mox_arena_calloc(&w->arena, (uint64_t)w->count, sizeof *w->places);
    MOX_FAIL_IF(!w->places, MOXIE_ERR_MEMORY, error, "no memory to write a file");
    for (int64_t i = 0; i < w->count; i++) {
        const uint64_t bytes = bytes_of(&tensors[i]);
        MOX_FAIL_IF(tensors[i].pieces < 1 || (uint64_t)tensors[i].pieces > bytes + 1 ||
                        bytes % (uint64_t)tensors[i].pieces != 0,
                    MOXIE_ERR_ARGUMENT, error, "tensor \"%s\" of %llu bytes cannot be cut into %lld equal pieces",
                    mox_escape(escaped, sizeof escaped, tensors[i].name), (unsigned long long)bytes,
                    (long long)tensors[i].pieces);
        w->places[i] = (sealed_place) { offset, bytes / (uint64_t)tensors[i].pieces, tensors[i].pieces, w->pieces };
        w->pieces += tensors[i].pieces;
        offset += bytes;
    }
    w->sums = mox_arena_calloc(&w->arena, (uint64_t)w->pieces + 1, sizeof *w->sums);
    w->written = mox_arena_calloc(&w->arena, (uint64_t)w->pieces, sizeof *w->written);
    MOX_FAIL_IF(!w->sums || !w->written, MOXIE_ERR_MEMORY, error, "no memory for %lld sums", (long long)w->pieces);
    return MOXIE_OK;
}

static moxie_status start(mox_sealed_writer *w, const char *path, const moxie_sealed_tensor *tensors, int64_t count,
                          const char *const *metadata, int64_t n_metadata, moxie_error *error)
{
    uint64_t data_bytes = 0;
    w->file = MOX_WHOLE_FILE_NONE;
    w->count = count;
    MOX_TRY(make_header(w, tensors, count, metadata, n_metadata, &data_bytes, error));
    MOX_TRY(place_pieces(w, tensors, error));
    MOX_TRY(mox_whole_file_create(path, &w->file, error));
    return mox_whole_file_reserve(&w->file, w->header_bytes + data_bytes, error);
}

moxie_status mox_sealed_writer_open(const char *path, const moxie_sealed_tensor *tensors, int64_t count,
                                    const char *const *metadata, int64_t n_metadata, mox_sealed_writer **out,
                                    moxie_error *error)
{
    mox_sealed_writer *w = mox_alloc(sizeof *w);
    MOX_FAIL_IF(!w, MOXIE_ERR_MEMORY, error, "no memory to write a file");
    const moxie_status status = start(w, path, tensors, count, metadata, n_metadata, error);
    if (status == MOXIE_OK)
        *out = w;
    else
        mox_sealed_writer_abandon(w);
    return status;
}

/* ---- pieces --------------------------------------------------------------------------------------- */

moxie_status mox_sealed_writer_put(mox_sealed_writer *w, int64_t tensor, int64_t piece, const void *data,
                                   moxie_error *error)
{
    if (tensor < 0 || tensor >= w->count || piece < 0 || piece >= w->places[tensor].pieces)
        return mox_fail_file(MOXIE_ERR_ARGUMENT, error, w->file.path, -1,
                             "piece %lld of tensor %lld was never declared", (long long)piece, (long long)tensor);
    const sealed_place *place = &w->places[tensor];
    MOX_TRY(mox_whole_file_write_at(&w->file, data, place->piece_bytes,
                                    place->offset + (uint64_t)piece * place->piece_bytes, error));
    w->sums[1 + place->first + piece] = mox_checksum(data, place->piece_bytes);
    w->written[place->first + piece] = true;
    return MOXIE_OK;
}

/* ---- the end -------------------------------------------------------------------------------------- */

static moxie_status complete(mox_sealed_writer *w, moxie_error *error)
{
    for (int64_t p = 0; p < w->pieces; p++)
        if (!w->written[p])
            return mox_fail_file(MOXIE_ERR_ARGUMENT, error, w->file.path, -1, "piece %lld of %lld was not written",
                                 (long long)p, (long long)w->pieces);
    char digits[MOX_SEAL_DIGITS + 1];
    const uint64_t seal = mox_seal_make(w->header, w->header_bytes, w->sums, (uint64_t)w->pieces);
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)seal);
    memcpy(mox_seal_digits(w->header, w->header_bytes), digits, MOX_SEAL_DIGITS);
    MOX_TRY(mox_whole_file_write_at(&w->file, w->header, w->header_bytes, 0, error));
    return mox_whole_file_publish(&w->file, error);
}

moxie_status mox_sealed_writer_finish(mox_sealed_writer *w, moxie_error *error)
{
    const moxie_status status = complete(w, error);
    mox_sealed_writer_abandon(w);
    return status;
}

void mox_sealed_writer_abandon(mox_sealed_writer *w)
{
    if (!w)
        return;
    mox_whole_file_discard(&w->file);
    mox_free(w->header);
    mox_arena_free(&w->arena);
    mox_free(w);
}
