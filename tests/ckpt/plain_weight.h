/* SPDX-License-Identifier: Apache-2.0
 *
 * plain_weight.h - the weights of plain_checkpoint.h: what each is for, and its value.
 */
#ifndef PLAIN_WEIGHT_H
#define PLAIN_WEIGHT_H

#include <stdint.h>

typedef enum plain_role {
    PLAIN_NONE,
    PLAIN_ROUTER,
    PLAIN_ROUTER_BIAS,
    PLAIN_CORRECTION,
    PLAIN_GATE,
    PLAIN_UP,
    PLAIN_DOWN,
    PLAIN_GATE_BIAS,
    PLAIN_UP_BIAS,
    PLAIN_DOWN_BIAS,
    PLAIN_SHARED_GATE,
    PLAIN_SHARED_UP,
    PLAIN_SHARED_DOWN,
    PLAIN_SHARED_SCALE,
    PLAIN_ROUTER_SCALE,
    PLAIN_EXPERT_SCALE,
    PLAIN_CORRECTION_ALT,
    PLAIN_EXPERT_NORM,
    PLAIN_LATENT_IN,
    PLAIN_LATENT_OUT,
    PLAIN_LATENT_NORM
} plain_role;

/* A number of 64 bits that follows from these. */
uint64_t plain_hash(int role, int expert, int r, int c);
/* Row r, column c of this matrix of an expert (0 where there are none): k / 256 with |k| <= 100. Corrections are not
 * negative, so that no rule about keys below 0 matters. */
double plain_value(plain_role role, int expert, int r, int c);

#endif
