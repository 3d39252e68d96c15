/* SPDX-License-Identifier: Apache-2.0
 *
 * plain_cases.c - plain_cases.def as a table, and its shorthands. Sizes in the texts are those of plain_checkpoint.h.
 */
#include "plain_cases.h"

#include <stddef.h>

#define TYPE(name)     "\"model_type\":\"" name "\","
#define NUM_EXPERTS    "\"num_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32"
#define LOCAL_EXPERTS  "\"num_local_experts\":8,\"num_experts_per_tok\":2,\"intermediate_size\":32"
#define ROUTED_EXPERTS "\"n_routed_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32"
#define SCALED         ",\"routed_scaling_factor\":1.5,\"norm_topk_prob\":true,\"n_group\":1,\"topk_group\":1"

#define LAYER "model.layers.1."
#define EACH_PROJ(root)                                                                                                \
    .gate = root ".%d.gate_proj.weight", .up = root ".%d.up_proj.weight", .down = root ".%d.down_proj.weight"
#define EACH_W(root) .gate = root ".%d.w1.weight", .up = root ".%d.w3.weight", .down = root ".%d.w2.weight"
#define PAIR(root)   .pair = root ".gate_up_proj", .pair_down = root ".down_proj"
#define SHARED_PROJ(root)                                                                                              \
    .shared_gate = root ".gate_proj.weight", .shared_up = root ".up_proj.weight",                                      \
    .shared_down = root ".down_proj.weight"
#define CORRECTED(root) .router = root ".weight", .correction = root ".e_score_correction_bias"

#define SOFTMAX_NORM                                                                                                   \
    {                                                                                                                  \
        .score = PLAIN_SOFTMAX, .norm = true                                                                           \
    }
#define SIGMOID_NORM(shared_)                                                                                          \
    {                                                                                                                  \
        .score = PLAIN_SIGMOID, .norm = true, .scale = 1.5, .shared = shared_                                          \
    }

#define PLAIN_CASE(...) { __VA_ARGS__ },
static const plain_case cases[] = {
#include "plain_cases.def"
};

const plain_case *plain_case_at(int i)
{
    return i >= 0 && (size_t)i < sizeof cases / sizeof cases[0] ? &cases[i] : NULL;
}
