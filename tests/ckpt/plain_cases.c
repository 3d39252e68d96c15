/* SPDX-License-Identifier: Apache-2.0
 *
 * plain_cases.c - plain_cases.def and plain_quantized.def as tables, and their shorthands. Sizes in the texts are those
 * of plain_checkpoint.h.
 */
#include "plain_cases.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "plain_format.h"

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
#define SHARED_W(root)                                                                                                 \
    .shared_gate = root ".w1.weight", .shared_up = root ".w3.weight", .shared_down = root ".w2.weight"
#define KIMI                                                                                                           \
    "\"num_experts\":8,\"num_experts_per_token\":2,\"moe_intermediate_size\":32,\"num_shared_experts\":1,"             \
    "\"routed_scaling_factor\":1.5,\"moe_renormalize\":true,\"moe_router_activation_func\":\"sigmoid\","               \
    "\"num_expert_group\":1,\"topk_group\":1"
#define KIMI_LATENT                                                                                                    \
    .latent_in = "block_sparse_moe.routed_expert_down_proj.weight",                                                    \
    .latent_out = "block_sparse_moe.routed_expert_up_proj.weight",                                                     \
    .latent_norm = "block_sparse_moe.routed_expert_norm.weight"
#define MUSE_SPARK                                                                                                     \
    .expert_norm = "mlp.experts.post_expert_norm.weight", .latent_in = "mlp.pre_expert_proj.weight",                   \
    .latent_out = "mlp.post_expert_proj.weight", .latent_norm = "mlp.pre_expert_norm.weight"
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

static const struct {
    const char *base, *format;
} quantized[] = {
#define PLAIN_QUANTIZED(base, format) { base, format },
#include "plain_quantized.def"
#undef PLAIN_QUANTIZED
};

static const plain_case *case_named(const char *what)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (strcmp(cases[i].what, what) == 0)
            return &cases[i];
    abort();
}

bool plain_case_at(int i, plain_case *out)
{
    const int plain = sizeof cases / sizeof cases[0];
    if (i < plain) {
        *out = cases[i];
        return true;
    }
    if (i - plain >= (int)(sizeof quantized / sizeof quantized[0]))
        return false;
    *out = *case_named(quantized[i - plain].base);
    out->format = plain_format_named(quantized[i - plain].format);
    return true;
}
