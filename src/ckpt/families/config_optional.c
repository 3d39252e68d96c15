/* SPDX-License-Identifier: Apache-2.0
 *
 * config_optional.c - keys of config.json that may be absent: groups of experts, normalisation, the factor of routed
 * experts, and the parameters of a clamped swiglu.
 *
 *     present     the value, checked
 *     absent      the default of the model's configuration class, from the family's row; or refused, where it has none
 *     null        what the model's code does with None: a value from the row, false, or refused
 *     present, but the family's code does not read it     refused when it would change the result
 *
 * Source: the configuration classes and model code of transformers.
 */
#include <string.h>

#include "ckpt/families/config_reader.h"

moxie_status mox_config_refuse_null(const mox_config_reader *r, const char *key, const char *none)
{
    if (!mox_config_is_null(r->config, key))
        return MOXIE_OK;
    return mox_fail_file(MOXIE_ERR_UNSUPPORTED, r->error, r->file, -1,
                         "%s is null, and the code of a %s model gives that no meaning; write %s, or remove the key",
                         key, r->family->id, none);
}

/* A number of groups: the key, or the family's default when it is absent. */
static moxie_status group_number(const mox_config_reader *r, const char *key, const char *other, int32_t absent,
                                 int64_t *out)
{
    const char *const keys[] = { key, other };
    const bool null_is_none = r->family->null_n_group && strcmp(key, "n_group") == 0;
    const char *found;
    *out = 0;
    for (int i = 0; i < 2 && keys[i] && r->family->default_n_group != 0 && !null_is_none; i++)
        MOX_TRY(mox_config_refuse_null(r, keys[i], "1"));
    MOX_TRY(mox_config_first_int(r, keys, 2, out, &found));
    if (!found && absent == MOX_REQUIRED)
        return mox_fail_file(MOXIE_ERR_FORMAT, r->error, r->file, -1, "%s is missing; a %s model needs it", key,
                             r->family->id);
    if (!found)
        *out = absent;
    if (*out < 0 || *out > MOXIE_MAX_EXPERTS)
        return mox_fail_file(MOXIE_ERR_FORMAT, r->error, r->file, -1, "%s is %lld, expected 0 to %d",
                             found ? found : key, (long long)*out, MOXIE_MAX_EXPERTS);
    return MOXIE_OK;
}

/* Whether topk_method switches groups off. Only some families read it; there, other methods than these two are unknown.
 * In the others, groups are used regardless, and a method that says otherwise is refused. */
static moxie_status read_method(const mox_config_reader *r, bool *greedy)
{
    const char *const usual = r->family->default_topk_method;
    const char *method;
    char escaped[64];
    MOX_TRY(mox_config_refuse_null(r, "topk_method", "the method's name"));
    MOX_TRY(mox_config_text(r->config, "topk_method", usual ? usual : "noaux_tc", r->file, &method, r->error));
    *greedy = usual && strcmp(method, "greedy") == 0;
    if (*greedy || (usual && strcmp(method, "group_limited_greedy") == 0) ||
        (!usual && strcmp(method, "noaux_tc") == 0))
        return MOXIE_OK;
    return mox_fail_file(MOXIE_ERR_UNSUPPORTED, r->error, r->file, -1,
                         "topk_method is \"%s\", expected %s for the groups of a %s model",
                         mox_escape(escaped, sizeof escaped, method),
                         usual ? "\"greedy\" or \"group_limited_greedy\"" : "\"noaux_tc\"", r->family->id);
}

moxie_status mox_config_groups(const mox_config_reader *r, mox_dims *d)
{
    const mox_family *family = r->family;
    const char *const other = family->key_group ? family->key_group : NULL;
    bool greedy = false;
    MOX_TRY(group_number(r, "n_group", other, family->default_n_group, &d->n_group));
    if (d->n_group > 1 || family->default_topk_method)
        MOX_TRY(read_method(r, &greedy));
    if (d->n_group == 0 && family->default_topk_method && !greedy)
        return mox_fail_file(MOXIE_ERR_FORMAT, r->error, r->file, -1,
                             "n_group is missing, and topk_method \"group_limited_greedy\" needs it");
    if (d->n_group <= 1 || greedy) {
        d->n_group = d->topk_group = d->n_group == 1;
        return MOXIE_OK;
    }
    if (family->default_n_group == 0 && !family->default_topk_method)
        return mox_fail_file(
            MOXIE_ERR_UNSUPPORTED, r->error, r->file, -1,
            "n_group is %lld, but the code of a %s model has no groups of experts; is model_type right?",
            (long long)d->n_group, family->id);
    MOX_TRY(group_number(r, "topk_group", NULL, family->default_topk_group, &d->topk_group));
    const int64_t reachable = d->experts / d->n_group * d->topk_group;
    if (d->experts % d->n_group != 0 || d->topk_group < 1 || d->topk_group > d->n_group || reachable < d->top_k)
        return mox_fail_file(MOXIE_ERR_FORMAT, r->error, r->file, -1,
                             "%lld groups with %lld selected (topk_group) do not fit %lld experts and top-%lld",
                             (long long)d->n_group, (long long)d->topk_group, (long long)d->experts,
                             (long long)d->top_k);
    return MOXIE_OK;
}

moxie_status mox_config_norm(const mox_config_reader *r, mox_dims *d)
{
    const mox_family *family = r->family;
    d->norm_topk = family->always_norm || family->default_norm;
    for (int i = 0; i < 3 && family->key_norm[i]; i++) {
        const char *key = family->key_norm[i];
        const json_t *value = mox_config_find(r->config, key);
        if (!value && !mox_config_is_null(r->config, key))
            continue;
        const double order = json_number_value(value);
        if (value && family->norm_is_order && order != 1 && order != 2)
            return mox_fail_file(MOXIE_ERR_UNSUPPORTED, r->error, r->file, -1,
                                 "%s is %g; norms of order 1 and 2 are supported", key, order);
        d->norm_order = value && family->norm_is_order ? (int32_t)order : 0;
        if (value && !family->norm_is_order && !json_is_boolean(value))
            return mox_fail_file(MOXIE_ERR_FORMAT, r->error, r->file, -1, "%s is neither true nor false", key);
        d->norm_topk = family->norm_is_order ? value != NULL : json_is_true(value);
        if (d->norm_topk && family->norm_unclear)
            return mox_fail_file(MOXIE_ERR_UNSUPPORTED, r->error, r->file, -1,
                                 "%s is true, but the libraries that run %s models disagree on what it means; no "
                                 "release has it",
                                 key, family->id);
        break;
    }
    d->norm_topk = d->norm_topk || family->always_norm;
    return MOXIE_OK;
}

static moxie_status read_scale(const mox_config_reader *r, mox_dims *d)
{
    const mox_family *family = r->family;
    double scale = family->key_scale[0] ? family->default_scale : 1;
    bool found = false;
    for (int i = 0; i < 3 && family->key_scale[i] && !found; i++) {
        const char *key = family->key_scale[i];
        const bool is_null = mox_config_is_null(r->config, key);
        found = is_null || mox_config_find(r->config, key) != NULL;
        if (family->null_scale == 0)
            MOX_TRY(mox_config_refuse_null(r, key, "1.0"));
        MOX_TRY(
            mox_config_real(r->config, key, r->layer, is_null ? family->null_scale : scale, r->file, &scale, r->error));
    }
    if (scale == 0)
        return mox_fail_file(MOXIE_ERR_FORMAT, r->error, r->file, -1, "%s is %s; a %s model needs it",
                             family->key_scale[0], found ? "0" : "missing", family->id);
    d->routed_scale = (float)scale;
    return MOXIE_OK;
}

/* A parameter of the family's clamped swiglu, 0 when the key is absent. `usual` 0: the family's code has none. */
static moxie_status swiglu_parameter(const mox_config_reader *r, const char *key, float usual, float *out)
{
    double value = 0;
    *out = 0;
    if (usual != 0)
        MOX_TRY(mox_config_refuse_null(r, key, "a number"));
    if (!mox_config_find(r->config, key))
        return MOXIE_OK;
    MOX_TRY(mox_config_real(r->config, key, r->layer, 0, r->file, &value, r->error));
    if (usual != 0 ? value <= 0 : value != 0)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, r->error, r->file, -1,
                             "%s is %g, but the activation of a %s model %s", key, value, r->family->id,
                             usual != 0 ? "needs a positive one" : "has none");
    *out = (float)value;
    return MOXIE_OK;
}

moxie_status mox_config_factors(const mox_config_reader *r, mox_dims *d)
{
    const moxie_activation *act = &r->family->activation;
    const bool swiglu = act->kind == MOXIE_ACT_SILU;
    MOX_TRY(read_scale(r, d));
    MOX_TRY(swiglu_parameter(r, "swiglu_limit", swiglu ? act->gate_limit : 0, &d->swiglu_limit));
    return swiglu_parameter(r, "swiglu_alpha", swiglu ? act->alpha : 0, &d->swiglu_alpha);
}
