/* SPDX-License-Identifier: Apache-2.0
 *
 * reserved.h - the reserved words of public structs that lie inside others or in arrays.
 *
 * Such a struct has no struct_size, so it cannot grow at its end. Instead it has words that must be zero now and can
 * become fields later:
 *
 *     today    | field ... field | reserved: 0 0 0 0 |
 *     later    | field ... field | new field | 0 0 0 |
 *
 * A word that is not zero is a field of a newer header, or a struct that was never cleared. This library cannot honour
 * the first and must not trust the second, so both are MOXIE_ERR_ARGUMENT with the struct's name. Structs with a size:
 * struct_size.h.
 */
#ifndef MOX_LAYER_RESERVED_H
#define MOX_LAYER_RESERVED_H

#include <stdbool.h>

#include "base/status.h"

/* Whether all of `bytes` bytes are zero. */
bool mox_reserved_clear(const void *words, size_t bytes);
/* The failure for a struct of this type; `where` says which one of them: "w13", "expert 3". */
moxie_status mox_reserved_fail(const char *type, const char *where, moxie_error *error);

/* MOXIE_ERR_ARGUMENT when a reserved word of `*s` is not zero. */
#define MOX_RESERVED(type, s, where, error)                                                                            \
    do {                                                                                                               \
        if (!mox_reserved_clear((s)->reserved, sizeof(s)->reserved))                                                   \
            return mox_reserved_fail(#type, where, error);                                                             \
    } while (0)

/* Each checks the struct and all that lie in it. */
moxie_status mox_reserved_quant(const moxie_quant *quant, const char *where, moxie_error *error);
moxie_status mox_reserved_config(const moxie_layer_config *config, moxie_error *error);
moxie_status mox_reserved_expert(const moxie_expert *expert, const char *where, moxie_error *error);
moxie_status mox_reserved_weights(const moxie_weights *weights, moxie_error *error);

#endif
