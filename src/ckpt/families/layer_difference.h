/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_difference.h - whether two layer configurations compute the same: what writers of GGUF files and of directories
 * check when they describe a layer in other words.
 */
#ifndef MOX_CKPT_LAYER_DIFFERENCE_H
#define MOX_CKPT_LAYER_DIFFERENCE_H

#include <stdbool.h>

#include <moxie/moxie.h>

/* A routing in one form: softmax over the chosen logits is softmax, divided by the sum. */
typedef struct mox_routing_form {
    int32_t score, select, n_group, topk_group, group_score, fill, topk_per_group, on_input, zero_experts;
    bool normalised, root; /* divided by the sum, or by the root of the sum of squares */
    float scale, softcap;
} mox_routing_form;

mox_routing_form mox_routing_form_of(const moxie_routing *routing);
/* What differs, as the object of a sentence; NULL: nothing, up to the eps of normalisation, numbers of weights and
 * quantization. Norms, scales and second biases of a router count as a difference, even when both have them. */
const char *mox_layer_difference(const moxie_layer_config *a, const moxie_layer_config *b);

#endif
