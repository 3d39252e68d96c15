/* SPDX-License-Identifier: Apache-2.0
 *
 * plain_checkpoint.h - a checkpoint of one small MoE layer, written without any code of the library, and the layer's
 * result by its model's formula, in double precision.
 *
 *     plain_case: names, config.json, rules -> plain_write: a safetensors file -> the reader under test -> output
 *                                           -> plain_output: the formula       -> expected output
 *
 * A weight is a function of its role, expert, row and column: a whole number of 1/256 that bf16 holds exactly. So the
 * writer and the formula share no array, and an order that the writer mixes up shows in the result.
 */
#ifndef PLAIN_CHECKPOINT_H
#define PLAIN_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

/* Sizes of every case; PLAIN_S is that of one shared expert. */
enum { PLAIN_E = 8, PLAIN_K = 2, PLAIN_H = 64, PLAIN_I = 32, PLAIN_LAYER = 1, PLAIN_TOKENS = 12 };

/* Name formats behind the prefix "model.layers.1."; %d is the expert. NULL: there is no such tensor. */
typedef struct plain_names {
    const char *prefix;
    const char *router, *router_bias, *correction;
    const char *router_scale;               /* [H]: the router reads x / rms(x) * scale / sqrt(H) */
    const char *expert_scale;               /* [E]: multiplies the weights */
    const char *gate, *up, *down;           /* [I, H], [I, H], [H, I]; without %d: all experts in one tensor */
    const char *pair, *pair_down;           /* gate and up of all experts in one tensor, down in another */
    const char *pair_bias, *pair_down_bias; /* [E, 2I], [E, H] */
    const char *shared_pair;                /* gate and up of the shared expert in one tensor [2S, H] */
    const char *shared_gate, *shared_up, *shared_down, *shared_scale; /* shared_scale [1, H] */
} plain_names;

typedef enum plain_order {
    PLAIN_EACH,        /* a tensor per expert */
    PLAIN_OUT_IN,      /* pair [E, 2I, H], gate first; down [E, H, I] */
    PLAIN_IN_OUT,      /* pair [E, H, 2I], gate first; down [E, I, H] */
    PLAIN_INTERLEAVED, /* pair [E, H, 2I], gate and up columns alternate; down [E, I, H] */
    PLAIN_STACKS,      /* gate, up [E, I, H], down [E, H, I] */
    PLAIN_ROWS         /* gate, up, down each [E * I, H]; down's rows are its columns */
} plain_order;

typedef enum plain_score { PLAIN_SOFTMAX, PLAIN_SIGMOID, PLAIN_SQRTSOFTPLUS, PLAIN_LOGIT } plain_score;
typedef enum plain_weight {
    PLAIN_BY_SCORE,          /* the score of the chosen, without bias */
    PLAIN_BY_SOFTMAX_CHOSEN, /* softmax over the logits of the chosen */
    PLAIN_BY_SIGMOID_CHOSEN, /* sigmoid of their logits, multiplied into the expert's input */
    PLAIN_BY_SPARSEMIXER     /* Phi: each choice's softmax over logits within a relative distance of it */
} plain_weight;
typedef enum plain_act {
    PLAIN_SILU, /* silu(g) u; with a limit, g <= limit and |u| <= limit before it */
    PLAIN_OAI,  /* g sigmoid(alpha g) (u + 1), limits before it */
    PLAIN_STEP, /* silu(g) <= limit, |u| <= limit: the limit comes after silu */
    PLAIN_GELU, /* gelu(g) u, gelu by its formula with tanh */
    PLAIN_RELU2 /* relu(u)^2, no gate */
} plain_act;

typedef struct plain_rules {
    plain_score score;
    plain_weight weight;
    int groups, kept_groups; /* 0: none */
    bool group_by_two;       /* a group's score is the sum of its two best keys; else its best */
    bool norm;
    double norm_floor; /* the sum is at least this */
    double scale;      /* 0: 1 */
    plain_act act;
    double alpha, limit; /* limit 0: none */
    int shared;          /* width in multiples of I */
    int zero;            /* the last of the PLAIN_E have no weights: their result is the token. PLAIN_EACH only */
    double cap;          /* logits become cap * tanh(logit / cap); 0: none */
} plain_rules;

typedef struct plain_case {
    const char *what;
    const char *config; /* keys of config.json */
    plain_names names;
    plain_order order;
    plain_rules rules;
    const struct plain_format *format; /* of the experts' matrices, shared ones too; NULL: bf16 */
} plain_case;

/* Writes DIR/config.json and DIR/model.safetensors. */
void plain_write(const plain_case *c, const char *dir);
/* Element h of the hidden state of token t. */
double plain_hidden(int t, int h);
/* out [PLAIN_TOKENS, PLAIN_H] */
void plain_output(const plain_case *c, double *out);

#endif
