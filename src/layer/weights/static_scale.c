/* SPDX-License-Identifier: Apache-2.0
 *
 * static_scale.c - stores and resolves the static scales of a layer's experts (static_scale.h).
 */
#include "layer/weights/static_scale.h"

moxie_status mox_static_scale_set(mox_static_scale *scale, const moxie_quant *quant, int64_t expert, float value,
                                  const char *what, moxie_error *error)
{
    if (!scale->needed)
        return MOXIE_OK;
    if (value != 0)
        MOX_TRY(mox_act_quant_check_static_scale(quant, value, what, error));
    scale->raw[expert] = value;
    return MOXIE_OK;
}

float mox_static_scale_cautious(const moxie_quant *quant, float best, float value)
{
    const bool better = quant->global == MOXIE_GLOBAL_DIVIDE ? value < best : value > best;
    return value != 0 && (best == 0 || better) ? value : best;
}

static float most_cautious(const mox_static_scale *scale, const moxie_quant *quant, int64_t experts)
{
    float best = 0;
    for (int64_t e = 0; e < experts; e++)
        best = mox_static_scale_cautious(quant, best, scale->raw[e]);
    return best;
}

moxie_status mox_static_scale_resolve(mox_static_scale *scale, const moxie_quant *quant, const moxie_layer *layer,
                                      const char *what, moxie_error *error)
{
    scale->uniform = true;
    if (!scale->needed)
        return MOXIE_OK;
    const float fallback = most_cautious(scale, quant, layer->config.experts);
    MOX_FAIL_IF(fallback == 0, MOXIE_ERR_MISMATCH, error,
                "the activations' quantization reads %s from the weights, but none of the %lld experts has one: load a "
                "checkpoint with static scales, or use a dynamic activation quantization",
                what, (long long)layer->config.experts);
    for (int32_t s = 0; s < layer->slots; s++) {
        const float value = scale->raw[layer->expert_of[s]];
        scale->resolved[s] = value != 0 ? value : fallback;
        scale->uniform = scale->uniform && scale->resolved[s] == scale->resolved[0];
    }
    return MOXIE_OK;
}
