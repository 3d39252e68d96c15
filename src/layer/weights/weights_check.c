/* SPDX-License-Identifier: Apache-2.0
 *
 * weights_check.c - checks views of a layer, expert by expert, and names the matrix at fault (weights_check.h).
 */
#include "layer/weights/weights_check.h"

#include <stdio.h>

#include "layer/config/reserved.h"
#include "layer/weights/dense_matrix.h"

static moxie_status check_expert(const mox_record_shape *shape, const moxie_expert *expert, const char *name,
                                 moxie_error *error)
{
    const int64_t h = shape->hidden, i = shape->intermediate;
    char what[64];
    if (shape->gated) {
        snprintf(what, sizeof what, "%s gate", name);
        MOX_TRY(mox_matrix_check(&expert->gate, &shape->w13, i, h, shape->bias13, what, error));
    }
    snprintf(what, sizeof what, "%s up", name);
    MOX_TRY(mox_matrix_check(&expert->up, &shape->w13, i, h, shape->bias13, what, error));
    snprintf(what, sizeof what, "%s down", name);
    return mox_matrix_check(&expert->down, &shape->w2, h, i, shape->bias2, what, error);
}

static moxie_status check_shared(const moxie_layer_config *config, const moxie_weights *weights, bool has_comm,
                                 moxie_error *error)
{
    const mox_record_shape shape = mox_config_shared_shape(config);
    if (!mox_config_computes_shared(config, has_comm))
        return MOXIE_OK;
    MOX_FAIL_IF(weights->shared == NULL, MOXIE_ERR_MISMATCH, error,
                "the configuration has a shared expert of intermediate size %lld, but weights.shared is NULL",
                (long long)shape.intermediate);
    MOX_TRY(check_expert(&shape, weights->shared, "shared", error));
    if (!config->shared.has_gate)
        return MOXIE_OK;
    return mox_dense_matrix_check(&weights->shared_gate, 1, config->hidden, false, "shared gate", error);
}

moxie_status mox_weights_check(const moxie_layer_config *config, const moxie_weights *weights, const int32_t *slot_of,
                               bool has_comm, moxie_error *error)
{
    const mox_record_shape shape = mox_config_routed_shape(config);
    MOX_FAIL_IF(weights->n_experts != config->experts || weights->experts == NULL, MOXIE_ERR_MISMATCH, error,
                "weights hold %lld experts, but the configuration has %lld: pass a view for each expert",
                (long long)weights->n_experts, (long long)config->experts);
    MOX_TRY(mox_reserved_weights(weights, error));
    for (int64_t e = 0; e < config->experts; e++) {
        char name[32];
        snprintf(name, sizeof name, "expert %lld", (long long)e);
        if (slot_of == NULL || slot_of[e] >= 0)
            MOX_TRY(check_expert(&shape, &weights->experts[e], name, error));
    }
    if (config->router_width > 0)
        MOX_TRY(mox_dense_matrix_check(&weights->router, mox_config_candidates(config), config->router_width,
                                       config->router_has_bias != 0, "router", error));
    if (config->router_norm.has_weight)
        MOX_TRY(mox_dense_matrix_check(&weights->router_norm, 1, config->router_width, false, "router norm", error));
    if (config->expert_norm.has_weight)
        MOX_TRY(mox_dense_matrix_check(&weights->expert_norm, 1, config->hidden, false, "expert norm", error));
    return check_shared(config, weights, has_comm, error);
}
