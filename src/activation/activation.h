/* SPDX-License-Identifier: Apache-2.0
 *
 * activation.h - the activation functions of activations.def: names, gating, parameters.
 *
 *     a = act(g, u)      gated: g and u are the outputs of W13's gate row and up row
 *     a = act(g)         ungated
 *
 * The formulas are in activation_formulas.h. Kernels compute them in family glu (cpu/glu/glu.h), the oracle in
 * ref/ref_activate.c. The upper part is compiled by CUDA kernels, too (base/shared.h).
 */
#ifndef MOX_ACTIVATION_ACTIVATION_H
#define MOX_ACTIVATION_ACTIVATION_H

#include <stdbool.h>
#include <stddef.h>

#include <moxie/moxie.h>

#include "base/shared.h"

/* W13 has gate and up rows. */
MOX_SHARED bool mox_activation_is_gated(int32_t kind)
{
    return kind < MOXIE_ACT_SILU_NO_MUL;
}

#define MOX_ACTIVATION(id, kind_, formula, gating, honours, alpha, beta, limit, name, config_names)                    \
    case kind_: return alpha;
/* The default, used for alpha = 0. */
MOX_SHARED float mox_activation_default_alpha(int32_t kind)
{
    switch (kind) {
#include "activation/activations.def"
    default: return 1;
    }
}

/* The parameters that a formula reads. */
enum {
    MOX_ACTIVATION_ALPHA = 1 << 0,
    MOX_ACTIVATION_BETA = 1 << 1,
    MOX_ACTIVATION_GATE_LIMIT = 1 << 2,
    MOX_ACTIVATION_UP_LIMIT = 1 << 3,
};

typedef struct mox_activation_info {
    moxie_activation usual; /* its kind and usual parameters */
    const char *name;
    const char *config_names; /* separated by spaces */
    uint32_t honours;         /* MOX_ACTIVATION_ALPHA | .. */
} mox_activation_info;

/* Immutable, as all functions here. By position in the list (NULL past the last), and by kind (NULL: unknown kind). */
const mox_activation_info *mox_activation_at(int32_t i);
const mox_activation_info *mox_activation_of_kind(int32_t kind);

/* The gated or ungated activation that model configurations call `name`; NULL: none. */
const mox_activation_info *mox_activation_from_config(const char *name, bool gated);
/* All such names, "silu, swish, ...", cut to `size`. Returns `text`. */
const char *mox_activation_config_names(bool gated, char *text, size_t size);

/* Name i at the command line, and in *out its kind and parameters: rows and presets of the list. NULL past the last. */
const char *mox_activation_name_at(int32_t i, moxie_activation *out);

#endif
