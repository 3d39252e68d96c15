/* SPDX-License-Identifier: Apache-2.0
 *
 * reserved.c - checks that the reserved words of public structs are zero (reserved.h).
 */
#include "layer/config/reserved.h"

#include <stdio.h>

bool mox_reserved_clear(const void *words, size_t bytes)
{
    const unsigned char *at = words;
    unsigned char any = 0;
    for (size_t i = 0; i < bytes; i++)
        any |= at[i];
    return any == 0;
}

moxie_status mox_reserved_fail(const char *type, const char *where, moxie_error *error)
{
    return mox_fail(MOXIE_ERR_ARGUMENT, error,
                    "%s (%s): a reserved word is not zero: either the struct was not cleared, or a field of a newer "
                    "header is set; clear the struct before you fill it, or use the library of that header (this one "
                    "is %s)",
                    type, where, MOXIE_VERSION_STRING);
}

moxie_status mox_reserved_quant(const moxie_quant *quant, const char *where, moxie_error *error)
{
    MOX_RESERVED(moxie_quant, quant, where, error);
    return MOXIE_OK;
}

moxie_status mox_reserved_config(const moxie_layer_config *c, moxie_error *error)
{
    MOX_RESERVED(moxie_activation, &c->activation, "config.activation", error);
    MOX_RESERVED(moxie_activation, &c->shared_activation, "config.shared_activation", error);
    MOX_RESERVED(moxie_routing, &c->routing, "config.routing", error);
    MOX_RESERVED(moxie_shared_config, &c->shared, "config.shared", error);
    MOX_RESERVED(moxie_row_norm, &c->router_norm, "config.router_norm", error);
    MOX_RESERVED(moxie_row_norm, &c->expert_norm, "config.expert_norm", error);
    MOX_TRY(mox_reserved_quant(&c->w13, "config.w13", error));
    MOX_TRY(mox_reserved_quant(&c->w2, "config.w2", error));
    MOX_TRY(mox_reserved_quant(&c->a13, "config.a13", error));
    MOX_TRY(mox_reserved_quant(&c->a2, "config.a2", error));
    MOX_TRY(mox_reserved_quant(&c->shared.w13, "config.shared.w13", error));
    MOX_TRY(mox_reserved_quant(&c->shared.w2, "config.shared.w2", error));
    MOX_TRY(mox_reserved_quant(&c->shared.a13, "config.shared.a13", error));
    return mox_reserved_quant(&c->shared.a2, "config.shared.a2", error);
}

static moxie_status check_matrix(const moxie_matrix *matrix, const char *where, moxie_error *error)
{
    const moxie_grid *const grids[] = { &matrix->codes, &matrix->scale, &matrix->zero, &matrix->global, &matrix->bias };
    MOX_RESERVED(moxie_matrix, matrix, where, error);
    for (size_t i = 0; i < sizeof grids / sizeof grids[0]; i++) {
        MOX_RESERVED(moxie_grid, grids[i], where, error);
        MOX_RESERVED(moxie_packing, &grids[i]->packing, where, error);
    }
    return MOXIE_OK;
}

moxie_status mox_reserved_expert(const moxie_expert *expert, const char *where, moxie_error *error)
{
    MOX_RESERVED(moxie_expert, expert, where, error);
    MOX_TRY(check_matrix(&expert->gate, where, error));
    MOX_TRY(check_matrix(&expert->up, where, error));
    return check_matrix(&expert->down, where, error);
}

moxie_status mox_reserved_weights(const moxie_weights *weights, moxie_error *error)
{
    for (int64_t e = 0; e < weights->n_experts; e++) {
        char where[48];
        snprintf(where, sizeof where, "weights.experts[%lld]", (long long)e);
        MOX_TRY(mox_reserved_expert(&weights->experts[e], where, error));
    }
    if (weights->shared != NULL)
        MOX_TRY(mox_reserved_expert(weights->shared, "weights.shared", error));
    MOX_TRY(check_matrix(&weights->router, "weights.router", error));
    MOX_TRY(check_matrix(&weights->shared_gate, "weights.shared_gate", error));
    MOX_TRY(check_matrix(&weights->router_norm, "weights.router_norm", error));
    return check_matrix(&weights->expert_norm, "weights.expert_norm", error);
}
