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

/* Sizes of every case, and the hidden and intermediate size of a case that names none. H is neither I nor 2I, so that a
 * shape says which axis is which. */
enum { PLAIN_E = 8, PLAIN_K = 2, PLAIN_H = 96, PLAIN_I = 32, PLAIN_LAYER = 1, PLAIN_TOKENS = 12 };
/* The largest sizes, and rows of a table of experts. */
enum { PLAIN_MAX_H = 384, PLAIN_MAX_I = 320, PLAIN_VOCAB = 16 };

/* Name formats behind the prefix "model.layers.1."; %d is the expert. NULL: there is no such tensor. */
typedef struct plain_names {
    const char *prefix;
    const char *router, *router_bias, *correction;
    const char *correction_alt;             /* [E]: the correction of each third token (plain_is_image) */
    bool correction_row;                    /* the correction is [1, E] */
    const char *table;                      /* [PLAIN_VOCAB, K]: experts of each token id */
    const char *router_scale;               /* [H]: the router reads x / rms(x) * scale / sqrt(H) */
    const char *expert_scale;               /* [E]: multiplies the weights */
    const char *gate, *up, *down;           /* [I, H], [I, H], [H, I]; without %d: all experts in one tensor */
    const char *pair, *pair_down;           /* gate and up of all experts in one tensor, down in another */
    const char *pair_bias, *pair_down_bias; /* [E, 2I], [E, H] */
    const char *shared_pair;                /* gate and up of the shared expert in one tensor [2S, H] */
    const char *shared_gate, *shared_up, *shared_down, *shared_scale; /* shared_scale [1, H] */
    const char *expert_norm;                          /* [X]: experts' results v become u / rms(u), u = v (1 + w) */
    const char *latent_in, *latent_out, *latent_norm; /* outside the layer: [X, H], [H, X], [X] */
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
    PLAIN_BY_SIGMOID,        /* sigmoid of their logits */
    PLAIN_BY_SPARSEMIXER     /* Phi: each choice's softmax over logits within a relative distance of it */
} plain_weight;
typedef enum plain_act {
    PLAIN_SILU,  /* silu(g) u; with a limit, g <= limit and |u| <= limit before it */
    PLAIN_OAI,   /* g sigmoid(alpha g) (u + 1), limits before it */
    PLAIN_STEP,  /* silu(g) <= limit, |u| <= limit: the limit comes after silu */
    PLAIN_GELU,  /* gelu(g) u, gelu by its formula with tanh */
    PLAIN_RELU2, /* relu(u)^2, no gate */
    PLAIN_SITU   /* alpha tanh(g / alpha) sigmoid(g) limit tanh(u / limit) */
} plain_act;

typedef struct plain_activation {
    plain_act kind;
    double alpha, limit; /* limit 0: none */
} plain_activation;

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
    bool apart;          /* the shared expert's activation is this: */
    plain_activation shared_act;
    int shared;      /* width in multiples of I */
    int zero;        /* the last of the PLAIN_E have no weights: their result is the token. PLAIN_EACH only */
    double cap;      /* logits become cap * tanh(logit / cap); 0: none */
    double factor;   /* multiplies the logits; 0: 1 */
    double norm_eps; /* of expert_norm: added to the mean of squares */
} plain_rules;

typedef struct plain_case {
    const char *what;
    const char *config; /* keys of config.json */
    plain_names names;
    plain_order order;
    plain_rules rules;
    const struct plain_format *format; /* of the experts' matrices, shared ones too; NULL: bf16 */
    int hidden, inner;                 /* H, I; 0: PLAIN_H, PLAIN_I */
    int latent;                        /* X: what experts read and write instead of H; 0: H */
} plain_case;

static inline int plain_h(const plain_case *c)
{
    return c->hidden ? c->hidden : PLAIN_H;
}

static inline int plain_i(const plain_case *c)
{
    return c->inner ? c->inner : PLAIN_I;
}

static inline int plain_x(const plain_case *c)
{
    return c->latent ? c->latent : plain_h(c);
}

/* Writes DIR/config.json and DIR/model.safetensors. */
void plain_write(const plain_case *c, const char *dir);
/* Element h of the hidden state of token t: what experts read, and what the router reads. */
double plain_hidden(int t, int h);
double plain_router_hidden(const plain_case *c, int t, int h);
/* The token's id, and whether it takes names.correction_alt. */
int plain_token(int t);
bool plain_is_image(int t);
/* Choice k of a token with this id, by names.table. */
int plain_listed(int token, int k);
/* weights [E]: 0 for those not chosen */
void plain_route(const plain_case *c, int t, double *weights);
/* out [PLAIN_TOKENS, X] */
void plain_output(const plain_case *c, double *out);

#endif
