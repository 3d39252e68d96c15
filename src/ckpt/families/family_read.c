/* SPDX-License-Identifier: Apache-2.0
 *
 * family_read.c - config.json -> sizes, activation and routing of one MoE layer.
 *
 * It does not decide which tensors exist or how they are quantized. What a family fixes regardless of its configuration
 * (gpt-oss: "silu" is the clamped swiglu) comes from families.def.
 */
#include <stdio.h>
#include <string.h>

#include "activation/activation.h"
#include "base/sizes.h"
#include "ckpt/families/config_reader.h"
#include "ckpt/families/family_config.h"
#include "ckpt/families/family_rules.h"

/* No real layer is wider. Products of two such sizes stay far within 64 bits. */
#define MAX_WIDTH ((int64_t)1 << 24)

/* ---- family ----------------------------------------------------------------------------------- */

static moxie_status unknown_type(const char *found, const char *file, moxie_error *error)
{
    char escaped[64];
    if (mox_family_refused(found))
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, file, -1, "model_type \"%s\" is refused: %s", found,
                             mox_family_refused(found));
    return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, file, -1,
                         "model_type \"%s\" is not known; `moxie info --support` lists the families that are",
                         mox_escape(escaped, sizeof escaped, found));
}

moxie_status mox_config_family(const json_t *config, const char *file, const mox_family **out, const char **model_type,
                               moxie_error *error)
{
    const json_t *sections[2] = { config, json_object_get(config, "text_config") };
    const char *first = NULL;
    for (int i = 0; i < 2; i++) {
        const char *type;
        MOX_TRY(mox_json_string(sections[i], "model_type", NULL, file, &type, error));
        const mox_family *family = type ? mox_family_by_model_type(type) : NULL;
        first = first ? first : type;
        if (family) {
            *out = family;
            *model_type = type;
            return MOXIE_OK;
        }
        if (!json_is_object(sections[1]))
            break;
    }
    return unknown_type(first ? first : "(none)", file, error);
}

/* ---- sizes ------------------------------------------------------------------------------------ */

moxie_status mox_config_first_int(const mox_config_reader *r, const char *const *keys, int n_keys, int64_t *out,
                                  const char **found)
{
    *found = NULL;
    for (int i = 0; i < n_keys && keys[i]; i++) {
        if (!mox_config_find(r->config, keys[i]))
            continue;
        *found = keys[i];
        return mox_config_int(r->config, keys[i], r->layer, 0, r->file, out, r->error);
    }
    return MOXIE_OK;
}

/* Keys that are spellings of the same may not differ from the one that was read. */
static moxie_status check_spellings(const mox_config_reader *r, const char *const keys[4], const char *read,
                                    int64_t value)
{
    for (int i = 0; i < 4 && keys[i]; i++) {
        int64_t other;
        MOX_TRY(mox_config_int(r->config, keys[i], r->layer, value, r->file, &other, r->error));
        if (other != value)
            return mox_fail_file(MOXIE_ERR_FORMAT, r->error, r->file, -1,
                                 "%s is %lld, but %s is %lld; they mean the same: remove the wrong one", read,
                                 (long long)value, keys[i], (long long)other);
    }
    return MOXIE_OK;
}

static moxie_status required(const mox_config_reader *r, const char *const *keys, int n_keys, int64_t limit,
                             int64_t *out)
{
    const char *key;
    MOX_TRY(mox_config_first_int(r, keys, n_keys, out, &key));
    if (!key)
        return mox_fail_file(MOXIE_ERR_FORMAT, r->error, r->file, -1, "%s is missing; a %s model needs it", keys[0],
                             r->family->id);
    if (*out < 1)
        return mox_fail_file(MOXIE_ERR_FORMAT, r->error, r->file, -1, "%s is %lld, expected a positive number", key,
                             (long long)*out);
    if (*out > limit)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, r->error, r->file, -1, "%s is %lld; the limit is %lld", key,
                             (long long)*out, (long long)limit);
    return MOXIE_OK;
}

static moxie_status optional(const mox_config_reader *r, const char *key, int64_t limit, int64_t *out)
{
    *out = 0;
    if (!key)
        return MOXIE_OK;
    MOX_TRY(mox_config_int(r->config, key, r->layer, 0, r->file, out, r->error));
    if (*out < 0 || *out > limit)
        return mox_fail_file(MOXIE_ERR_FORMAT, r->error, r->file, -1, "%s is %lld, expected 0 to %lld", key,
                             (long long)*out, (long long)limit);
    return MOXIE_OK;
}

/* The shared expert as config.json says it: a width, or a number of experts. null means none. Without a key, only the
 * tensors can tell. */
static moxie_status read_shared(const mox_config_reader *r, mox_dims *d)
{
    const mox_family *family = r->family;
    const char *const width_key[] = { family->key_shared_width };
    const bool family_has = family->names.shared_down != NULL;
    int64_t value = 0;
    bool count = false;
    const char *key;
    MOX_TRY(mox_config_first_int(r, width_key, 1, &value, &key));
    if (!key) {
        MOX_TRY(mox_config_first_int(r, family->key_shared, 4, &value, &key));
        count = family->shared_is_count;
    }
    d->shared_intermediate = family_has ? MOX_SHARED_UNKNOWN : 0;
    for (int i = 0; i < 4 && !key && family->key_shared[i]; i++)
        if (mox_config_is_null(r->config, family->key_shared[i]))
            d->shared_intermediate = 0;
    if (!key)
        return MOXIE_OK;
    if (value < 0 || value > (count ? 64 : MAX_WIDTH))
        return mox_fail_file(MOXIE_ERR_FORMAT, r->error, r->file, -1,
                             "%s is %lld, which is out of range for shared experts", key, (long long)value);
    d->shared_intermediate = count ? value * d->intermediate : value;
    return MOXIE_OK;
}

static moxie_status read_sizes(const mox_config_reader *r, mox_dims *d)
{
    static const char *const hidden[] = { "hidden_size", "d_model" };
    MOX_TRY(required(r, r->family->key_experts, 4, MOXIE_MAX_EXPERTS, &d->experts));
    MOX_TRY(required(r, r->family->key_top_k, 4, MOXIE_MAX_TOP_K, &d->top_k));
    MOX_TRY(required(r, r->family->key_intermediate, 4, MAX_WIDTH, &d->intermediate));
    MOX_TRY(required(r, hidden, 2, MAX_WIDTH, &d->hidden));
    MOX_TRY(check_spellings(r, r->family->key_experts, r->family->key_experts[0], d->experts));
    MOX_TRY(check_spellings(r, r->family->key_top_k, r->family->key_top_k[0], d->top_k));
    if (d->top_k > d->experts)
        return mox_fail_file(MOXIE_ERR_FORMAT, r->error, r->file, -1, "%s is %lld, but there are only %lld experts",
                             r->family->key_top_k[0], (long long)d->top_k, (long long)d->experts);
    MOX_TRY(read_shared(r, d));
    MOX_TRY(optional(r, r->family->key_latent, MAX_WIDTH, &d->expert_width));
    if (d->expert_width == 0)
        d->expert_width = d->hidden;
    MOX_TRY(optional(r, "num_hidden_layers", 1 << 20, &d->layers));
    MOX_TRY(optional(r, "vocab_size", (int64_t)1 << 31, &d->vocab));
    return optional(r, r->family->names.table ? "num_hash_layers" : NULL, 1 << 20, &d->n_hash_layers);
}

/* ---- routing ---------------------------------------------------------------------------------- */

static moxie_status read_logit_factor(const mox_config_reader *r, mox_dims *d)
{
    const char *key = r->family->key_logit_factor;
    double factor = r->family->logit_factor;
    if (key)
        MOX_TRY(mox_config_real(r->config, key, r->layer, factor, r->file, &factor, r->error));
    d->logit_factor = (float)factor;
    return MOXIE_OK;
}

/* The score function by name. Families whose routing fixes the score keep theirs. */
static moxie_status read_score(const mox_config_reader *r, moxie_routing *route)
{
    static const char *const keys[] = { "scoring_func", "score_func", "score_function", "moe_router_activation_func",
                                        "moe_router_activation" };
    static const char *const names[] = { "", "softmax", "sigmoid", "sqrtsoftplus" };
    if (route->score == MOXIE_SCORE_LOGIT || route->select == MOXIE_SELECT_SPARSEMIXER)
        return MOXIE_OK;
    for (int i = 0; i < 5; i++) {
        const char *text;
        char escaped[64];
        MOX_TRY(mox_config_refuse_null(r, keys[i], "the function's name"));
        MOX_TRY(mox_config_text(r->config, keys[i], NULL, r->file, &text, r->error));
        int32_t score = 0;
        for (int32_t s = 1; text && s < 4; s++)
            score = strcmp(text, names[s]) == 0 ? s : score;
        if (text && score == 0)
            return mox_fail_file(MOXIE_ERR_UNSUPPORTED, r->error, r->file, -1,
                                 "%s is \"%s\"; known are softmax, sigmoid and sqrtsoftplus", keys[i],
                                 mox_escape(escaped, sizeof escaped, text));
        if (text)
            route->score = score;
    }
    return MOXIE_OK;
}

static moxie_status read_routing(const mox_config_reader *r, const mox_dims *d, moxie_routing *route)
{
    *route = mox_family_routing(r->family, d, r->layer);
    MOX_TRY(read_score(r, route));
    double jitter = route->jitter, eps = route->norm_eps;
    if (route->select == MOXIE_SELECT_SPARSEMIXER)
        MOX_TRY(mox_config_refuse_null(r, "router_jitter_noise", "0.01"));
    if (route->norm == MOXIE_NORM_MAX_SUM_EPS)
        MOX_TRY(mox_config_refuse_null(r, "moe_norm_min", "1e-12"));
    if (route->select == MOXIE_SELECT_SPARSEMIXER)
        MOX_TRY(mox_config_real(r->config, "router_jitter_noise", r->layer, jitter, r->file, &jitter, r->error));
    if (route->select == MOXIE_SELECT_SPARSEMIXER && jitter <= 0)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, r->error, r->file, -1,
                             "router_jitter_noise is %g; the router of a %s model needs a positive one", jitter,
                             r->family->id);
    if (route->norm == MOXIE_NORM_MAX_SUM_EPS)
        MOX_TRY(mox_config_real(r->config, "moe_norm_min", r->layer, eps, r->file, &eps, r->error));
    route->jitter = jitter > 0 ? (float)jitter : route->jitter;
    route->norm_eps = eps > 0 ? (float)eps : route->norm_eps;
    return MOXIE_OK;
}

/* ---- norms ------------------------------------------------------------------------------------ */

static moxie_status read_eps(const mox_config_reader *r, const char *key, moxie_row_norm *norm)
{
    double eps = norm->eps;
    if (norm->kind == MOXIE_ROW_NORM_NONE)
        return MOXIE_OK;
    MOX_TRY(mox_config_real(r->config, key, r->layer, eps, r->file, &eps, r->error));
    if (!(eps >= 0 && eps < 1))
        return mox_fail_file(MOXIE_ERR_FORMAT, r->error, r->file, -1, "%s is %g, expected 0 to 1", key, eps);
    norm->eps = (float)eps;
    return MOXIE_OK;
}

static moxie_status read_norms(const mox_config_reader *r, const mox_dims *d, moxie_layer_config *out)
{
    const char *key = r->family->key_expert_eps;
    mox_family_norms(r->family, d->hidden, out);
    MOX_TRY(read_eps(r, "rms_norm_eps", &out->router_norm));
    return read_eps(r, key ? key : "rms_norm_eps", &out->expert_norm);
}

/* ---- activation and dtype --------------------------------------------------------------------- */

/* The activation that config.json names, when it is another than the family's. */
static moxie_status other_activation(const mox_config_reader *r, const char *key, const mox_activation_info *info,
                                     moxie_activation *out)
{
    if (info->usual.kind == out->kind)
        return MOXIE_OK;
    if (out->gate_limit > 0 || out->up_limit > 0)
        return mox_fail_file(
            MOXIE_ERR_UNSUPPORTED, r->error, r->file, -1,
            "%s is \"%s\", but the experts of a %s model clamp the inputs of their activation, which is "
            "supported for silu only",
            key, info->name, r->family->id);
    *out = (moxie_activation) { .kind = info->usual.kind };
    return MOXIE_OK;
}

static moxie_status read_activation(const mox_config_reader *r, const mox_dims *d, moxie_activation *out)
{
    static const char *const keys[] = { "mlp_hidden_act", "hidden_activation", "hidden_act",
                                        "ffn_config.ffn_act_fn.name", "activation_function" };
    const int n_keys = (int)(sizeof keys / sizeof keys[0]);
    const char *text = NULL;
    const char *key = NULL;
    *out = mox_family_activation(r->family, d);
    for (int i = 0; i < n_keys && !text; i++) {
        key = keys[i];
        if (!r->family->fixed_activation)
            MOX_TRY(mox_config_refuse_null(r, key, "the function's name"));
        MOX_TRY(mox_config_text(r->config, key, NULL, r->file, &text, r->error));
    }
    if (!text || r->family->fixed_activation)
        return MOXIE_OK;
    const bool gated = mox_activation_is_gated(r->family->activation.kind);
    const mox_activation_info *info = mox_activation_from_config(text, gated);
    if (info)
        return other_activation(r, key, info, out);
    char escaped[64], known[256];
    return mox_fail_file(MOXIE_ERR_UNSUPPORTED, r->error, r->file, -1, "%s is \"%s\"; known are %s", key,
                         mox_escape(escaped, sizeof escaped, text),
                         mox_activation_config_names(gated, known, sizeof known));
}

/* Limits that differ from layer to layer, and between routed experts and the shared one, if the layer has one. */
static moxie_status read_limits(const mox_config_reader *r, moxie_layer_config *out)
{
    const moxie_activation silu = out->activation;
    float limit[2] = { 0, 0 };
    const char *const keys[2] = { r->family->key_limits, r->family->key_limits_shared };
    for (int i = 0; i < 2; i++)
        if (keys[i])
            MOX_TRY(mox_config_limit(r->config, keys[i], r->layer, r->file, &limit[i], r->error));
    const moxie_activation step[2] = {
        { .kind = MOXIE_ACT_SWIGLU_STEP, .gate_limit = limit[0], .up_limit = limit[0] },
        { .kind = MOXIE_ACT_SWIGLU_STEP, .gate_limit = limit[1], .up_limit = limit[1] },
    };
    if (keys[0] && silu.kind != MOXIE_ACT_SILU)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, r->error, r->file, -1,
                             "hidden_act: in %s models, only silu is the same in every library", r->family->id);
    if (limit[0] > 0)
        out->activation = step[0];
    if (keys[1] && limit[0] != limit[1]) {
        out->has_shared_activation = 1;
        out->shared_activation = limit[1] > 0 ? step[1] : silu;
    }
    return MOXIE_OK;
}

/* The dtype of the hidden states, under either key; bf16 when there is none. */
static moxie_status read_dtype(const mox_config_reader *r, moxie_dtype *out)
{
    static const struct {
        const char *name;
        moxie_dtype dtype;
    } known[] = { { "bfloat16", MOXIE_BF16 }, { "float16", MOXIE_F16 }, { "float32", MOXIE_F32 } };
    const char *text, *key = "torch_dtype";
    char escaped[64];
    MOX_TRY(mox_config_text(r->config, key, NULL, r->file, &text, r->error));
    if (!text) {
        key = "dtype";
        MOX_TRY(mox_config_text(r->config, key, known[0].name, r->file, &text, r->error));
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(text, known[i].name) == 0) {
            *out = known[i].dtype;
            return MOXIE_OK;
        }
    return mox_fail_file(MOXIE_ERR_UNSUPPORTED, r->error, r->file, -1,
                         "%s is \"%s\"; the hidden states may be bfloat16, float16 or float32: give the type that the "
                         "model runs with",
                         key, mox_escape(escaped, sizeof escaped, text));
}

moxie_status mox_config_layer(const mox_family *family, const json_t *config, const char *file, int64_t layer,
                              mox_dims *dims, moxie_layer_config *out, moxie_error *error)
{
    const mox_config_reader r = { family, config, file, layer, error };
    mox_dims d = { 0 };
    moxie_layer_config c = MOXIE_LAYER_CONFIG_INIT;
    MOX_TRY(read_sizes(&r, &d));
    MOX_TRY(mox_config_groups(&r, &d));
    MOX_TRY(mox_config_norm(&r, &d));
    MOX_TRY(mox_config_factors(&r, &d));
    MOX_TRY(read_logit_factor(&r, &d));
    MOX_TRY(read_routing(&r, &d, &c.routing));
    MOX_TRY(read_norms(&r, &d, &c));
    MOX_TRY(read_activation(&r, &d, &c.activation));
    MOX_TRY(read_limits(&r, &c));
    mox_family_shared_activation(family, &c);
    MOX_TRY(read_dtype(&r, &c.dtype));
    MOX_TRY(mox_config_bias_alt(family, config, layer, file, &d, error));
    if (family->adjust)
        MOX_TRY(family->adjust(config, file, &d, layer, &c, error));
    *dims = d;
    *out = c;
    return MOXIE_OK;
}
