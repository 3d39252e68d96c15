/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_prepare_manifest.c - moxie_prepare.json, and the tensors that a prepared file describes in moxie.source.
 *
 * Promises: ranks are in range and layers ascend. Every tensor has the size that its shape says. room_bytes is the sum
 * of these sizes, each rounded up to 64 bytes.
 */
#include "fuzz_targets.h"

#include <string.h>

#include "prepare.h"

static void check_how(const prepare_how *how)
{
    FUZZ_CHECK(strlen(how->layout) < sizeof how->layout && (how->pad == 0 || how->pad == 1));
    FUZZ_CHECK(how->tp_size >= 1 && how->tp_size <= MOXIE_MAX_EXPERTS && how->tp_rank >= 0 &&
               how->tp_rank < how->tp_size);
    FUZZ_CHECK(how->ep_size >= 1 && how->ep_size <= MOXIE_MAX_EXPERTS && how->ep_rank >= 0 &&
               how->ep_rank < how->ep_size);
    FUZZ_CHECK(how->ep_map == MOXIE_MAP_LINEAR || how->ep_map == MOXIE_MAP_ROUND_ROBIN);
    FUZZ_CHECK(how->n_layers > 0);
    for (int64_t i = 0; i < how->n_layers; i++)
        FUZZ_CHECK(how->layers[i] >= 0 && (i == 0 || how->layers[i] > how->layers[i - 1]));
}

static void check_described(const prepare_described *d)
{
    unsigned __int128 room = 0;
    FUZZ_CHECK(d->count > 0);
    for (int64_t i = 0; i < d->count; i++) {
        const moxie_tensor *t = &d->tensors[i].tensor;
        unsigned __int128 bits = (unsigned)moxie_dtype_bits(t->dtype);
        FUZZ_CHECK(d->tensors[i].name && bits > 0 && t->rank >= 0 && t->rank <= MOXIE_MAX_RANK);
        for (int32_t axis = 0; axis < t->rank; axis++) {
            FUZZ_CHECK(t->shape[axis] >= 0);
            bits *= (uint64_t)t->shape[axis];
            FUZZ_CHECK(bits >> 64 == 0);
        }
        FUZZ_CHECK(bits == (unsigned __int128)8 * d->bytes[i]);
        FUZZ_CHECK(d->pieces[i] >= 0 && (d->pieces[i] == 0 || d->bytes[i] % (uint64_t)d->pieces[i] == 0));
        room += (d->bytes[i] + 63) / 64 * 64;
    }
    FUZZ_CHECK(room == d->room_bytes && room <= (uint64_t)1 << 40);
}

void mox_fuzz_prepare_manifest(const uint8_t *data, uint64_t size)
{
    prepare_how how;
    prepare_described described;
    moxie_error error = { 0 };
    char *text = malloc(size + 1);
    FUZZ_CHECK(text);
    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    moxie_status status = prepare_manifest_parse(text, size, "fuzz", PREPARE_PREPARED, &how, &error);
    FUZZ_CHECK(status == MOXIE_OK || (status == MOXIE_ERR_FORMAT && error.text[0]));
    if (status == MOXIE_OK)
        check_how(&how);
    prepare_how_free(&how);
    error = (moxie_error) { 0 };
    status = prepare_described_parse(text, "fuzz", &described, &error);
    FUZZ_CHECK(status == MOXIE_OK || (status == MOXIE_ERR_FORMAT && error.text[0]));
    if (status == MOXIE_OK)
        check_described(&described);
    prepare_described_free(&described);
    free(text);
}
