/* SPDX-License-Identifier: Apache-2.0
 *
 * given_records.h - records that were packed before, for a layer that is made of them (layer_given.h).
 */
#ifndef MOX_LAYER_GIVEN_RECORDS_H
#define MOX_LAYER_GIVEN_RECORDS_H

#include "layer/weights/layer.h"

typedef struct mox_given_records {
    const mox_layout *layouts[MOX_EXPERT_KINDS]; /* of routed experts, of the shared one; NULL: there is none */
    uint64_t bytes[MOX_EXPERT_KINDS];            /* of one record */
    const void *const *routed;                   /* [E], NULL: not given */
    const void *shared;
    const uint8_t *mapping; /* of the file that has these records, from its first byte on; NULL: they are in memory */
    int fd;                 /* of that file */
    const char *path;       /* of that file, for errors */
    bool fetched; /* a layer on a GPU gets the shared one alone: the others come from a source (device_source.h) */
    /* Router, norms and gate as views; of experts, the shared one too, only the static scales are read. */
    moxie_weights weights;
} mox_given_records;

/* For mox_layer_create(): the records are those of the layer's shapes, and none is missing. */
moxie_status mox_layer_check_given(const moxie_layer *layer, const mox_given_records *given, moxie_error *error);

#endif
