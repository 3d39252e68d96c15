/* SPDX-License-Identifier: Apache-2.0
 *
 * diff_bytes.h - two ways to compute the same tokens: are the bytes equal? For --ranks and --budget-ram.
 */
#ifndef MOXIE_DIFF_BYTES_H
#define MOXIE_DIFF_BYTES_H

#include "cli_ranks.h"

/* What one of the two computed. */
typedef struct diff_side {
    void *output;
    int32_t *ids;
    float *weights;
} diff_side;

typedef struct diff_bytes {
    int64_t elements; /* of the output, that differ */
    int64_t first;    /* the first of them: token * hidden + column */
    bool routing;     /* ids or weights differ */
} diff_bytes;

moxie_status diff_side_reserve(const moxie_layer_config *config, int64_t tokens, diff_side *out, moxie_error *error);
void diff_side_free(diff_side *side);
cli_batch diff_side_batch(const cli_input *input, const diff_side *side);
diff_bytes diff_bytes_compare(const moxie_layer_config *config, int64_t tokens, const diff_side sides[2]);
/* The lines below the heading: what differs, sides[1] being compared with sides[0]; or that nothing does. */
void diff_bytes_print(const moxie_layer_config *config, int64_t tokens, const diff_side sides[2], const diff_bytes *d);
/* equal, routing_equal, elements, first. */
json_t *diff_bytes_json(const moxie_layer_config *config, const diff_side sides[2], const diff_bytes *d);

#endif
