/* SPDX-License-Identifier: Apache-2.0
 *
 * family_rules.c - what single families say in config.json beyond sizes and routing in common spellings: zero experts,
 * a soft cap, limits of the activation for each layer, how a shared expert is added.
 *
 * Source: configuration and model classes in transformers; model code in vLLM where transformers has none.
 */
#include "ckpt/families/family_rules.h"

#include <string.h>

#include "base/sizes.h"
#include "ckpt/families/family_config.h"

const char *mox_family_refused(const char *model_type)
{
    static const struct {
        const char *model_type, *why;
    } refused[] = {
#define MOX_REFUSED(model_type_, why_) { model_type_, why_ },
#include "ckpt/families/families_refused.def"
#undef MOX_REFUSED
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (strcmp(refused[i].model_type, model_type) == 0)
            return refused[i].why;
    return NULL;
}

/* ---- the second bias ---------------------------------------------------------------------------- */

moxie_status mox_config_bias_alt(const mox_family *family, const json_t *config, int64_t layer, const char *file,
                                 mox_dims *dims, moxie_error *error)
{
    static const char *const vision[] = { "vision_n_layers", "vision_config.num_hidden_layers" };
    int64_t seen = 0;
    if (!family->names.correction_bias_alt)
        return MOXIE_OK;
    for (int i = 0; i < 2 && seen == 0; i++)
        MOX_TRY(mox_config_int(config, vision[i], layer, 0, file, &seen, error));
    dims->bias_alt = seen > 0;
    return MOXIE_OK;
}

/* ---- values ------------------------------------------------------------------------------------- */

/* A truth value; `fallback` when absent. */
static moxie_status read_flag(const json_t *config, const char *key, bool fallback, const char *file, bool *out,
                              moxie_error *error)
{
    const json_t *value = mox_config_find(config, key);
    if (value && !json_is_boolean(value))
        return mox_fail_file(MOXIE_ERR_FORMAT, error, file, -1, "%s is neither true nor false", key);
    *out = value ? json_is_true(value) : fallback;
    return MOXIE_OK;
}

/* Refuses a key that does not have the only value that is supported. */
static moxie_status require_flag(const json_t *config, const char *key, bool only, const char *file, const char *why,
                                 moxie_error *error)
{
    bool value = only;
    MOX_TRY(read_flag(config, key, only, file, &value, error));
    if (value != only)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, file, -1, "%s is %s: %s", key, value ? "true" : "false",
                             why);
    return MOXIE_OK;
}

/* Entry `layer` of a list of limits. No list, no entry, null and 0 mean no limit: 0. */
static moxie_status list_limit(const json_t *config, const char *key, int64_t layer, const char *file, double *out,
                               moxie_error *error)
{
    const json_t *list = mox_config_find(config, key);
    *out = 0;
    if (json_is_array(list) && (uint64_t)layer >= json_array_size(list))
        return MOXIE_OK;
    return mox_config_real(config, key, layer, 0, file, out, error);
}

/* ---- families ----------------------------------------------------------------------------------- */

MOX_ADJUST(longcat)
{
    const char *type;
    int64_t zero;
    MOX_TRY(mox_config_text(config, "zero_expert_type", "identity", file, &type, error));
    MOX_TRY(mox_config_int(config, "zero_expert_num", layer, 256, file, &zero, error));
    if (strcmp(type, "identity") != 0) {
        char escaped[64];
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, file, -1,
                             "zero_expert_type is \"%s\"; only \"identity\" is known",
                             mox_escape(escaped, sizeof escaped, type));
    }
    if (zero < 0 || zero > MOXIE_MAX_EXPERTS - dims->experts)
        return mox_fail_file(MOXIE_ERR_FORMAT, error, file, -1,
                             "zero_expert_num is %lld; with %lld experts expected 0 to %lld", (long long)zero,
                             (long long)dims->experts, (long long)(MOXIE_MAX_EXPERTS - dims->experts));
    dims->zero_experts = zero;
    out->routing.zero_experts = (int32_t)zero;
    return require_flag(config, "norm_topk_prob", false, file,
                        "the models' code never normalises the weights, so what it means is not known", error);
}

MOX_ADJUST(laguna)
{
    double cap;
    MOX_TRY(mox_config_real(config, "moe_router_logit_softcapping", layer, 0, file, &cap, error));
    dims->softcap = out->routing.softcap = cap > 0 ? (float)cap : 0;
    MOX_TRY(require_flag(config, "moe_router_use_sigmoid", true, file, "the models' code scores by sigmoid", error));
    MOX_TRY(require_flag(config, "norm_topk_prob", true, file, "the models' code always normalises", error));
    return require_flag(config, "moe_apply_router_weight_on_input", false, file,
                        "whether the routed factor multiplies the input too is not known", error);
}

MOX_ADJUST(hy_v3)
{
    /* transformers reads the one, vLLM the other. */
    static const char *const widths[] = { "moe_intermediate_size", "expert_hidden_dim" };
    (void)out;
    for (int i = 0; i < 2; i++) {
        int64_t width;
        MOX_TRY(mox_config_int(config, widths[i], layer, dims->intermediate, file, &width, error));
        if (width != dims->intermediate)
            return mox_fail_file(MOXIE_ERR_FORMAT, error, file, -1, "%s is %lld, but %s is %lld; they must agree",
                                 widths[i], (long long)width, widths[1 - i], (long long)dims->intermediate);
    }
    return require_flag(config, "moe_router_use_sigmoid", true, file, "the model's code scores by sigmoid", error);
}

/* Ling's late layers have limits: vLLM's routed experts clamp the inputs of silu, the shared expert its result. */
static moxie_status bailing_limits(const json_t *config, const char *file, int64_t layer, moxie_layer_config *out,
                                   moxie_error *error)
{
    double limit, shared;
    MOX_TRY(list_limit(config, "expert_swiglu_limit_list", layer, file, &limit, error));
    MOX_TRY(list_limit(config, "share_expert_swiglu_limit_list", layer, file, &shared, error));
    if ((limit > 0 || shared > 0) && out->activation.kind != MOXIE_ACT_SILU)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, file, -1,
                             "layer %lld: limits of the activation %g and %g are known for silu only", (long long)layer,
                             limit, shared);
    if (limit <= 0 && shared <= 0)
        return MOXIE_OK;
    out->has_shared_activation = 1;
    out->shared_activation = out->activation;
    if (shared > 0)
        out->shared_activation = (moxie_activation) { .kind = MOXIE_ACT_SWIGLU_STEP,
                                                      .gate_limit = (float)shared,
                                                      .up_limit = (float)shared };
    if (limit > 0)
        out->activation.gate_limit = out->activation.up_limit = (float)limit;
    return MOXIE_OK;
}

/* `key` holds the width of one shared expert where the family counts them: sets the width of all. *found: it is there,
 * and not 0. */
static moxie_status shared_width(const json_t *config, const char *key, const char *file, mox_dims *dims, int64_t layer,
                                 bool *found, moxie_error *error)
{
    int64_t width;
    MOX_TRY(mox_config_int(config, key, layer, 0, file, &width, error));
    if (width < 0 || width > 1 << 24)
        return mox_fail_file(MOXIE_ERR_FORMAT, error, file, -1, "%s is %lld, expected 0 to %d", key, (long long)width,
                             1 << 24);
    *found = width > 0;
    if (*found && dims->shared_intermediate > 0)
        dims->shared_intermediate = dims->shared_intermediate / dims->intermediate * width;
    return MOXIE_OK;
}

static moxie_status ling_shared(const json_t *config, const char *file, mox_dims *dims, int64_t layer,
                                moxie_layer_config *out, moxie_error *error)
{
    bool found;
    MOX_TRY(shared_width(config, "moe_shared_expert_intermediate_size", file, dims, layer, &found, error));
    MOX_TRY(require_flag(config, "moe_router_enable_routed_scaling", true, file,
                         "vLLM multiplies by routed_scaling_factor without asking this key", error));
    MOX_TRY(require_flag(config, "moe_router_enable_shared_expert", true, file,
                         "vLLM adds the shared expert without asking this key", error));
    return bailing_limits(config, file, layer, out, error);
}

/* Ling 2.6 and 3: the models' code scores by sigmoid without asking. */
MOX_ADJUST(bailing_hybrid)
{
    if (out->routing.score != MOXIE_SCORE_SIGMOID)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, file, -1,
                             "score_function is \"softmax\"; the models' code scores by sigmoid");
    return ling_shared(config, file, dims, layer, out, error);
}

/* Ling 1 and 2: without score_function it is softmax, with no bias and no groups. */
MOX_ADJUST(bailing)
{
    if (!mox_config_find(config, "score_function"))
        out->routing.score = MOXIE_SCORE_SOFTMAX;
    if (out->routing.score == MOXIE_SCORE_SOFTMAX && dims->n_group > 1)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, file, -1,
                             "n_group is %lld with score_function softmax; how groups are scored then is not known",
                             (long long)dims->n_group);
    return ling_shared(config, file, dims, layer, out, error);
}

/* The weights of a router that chooses by its logits: a softmax over the chosen ones, or sigmoids. */
static void score_chosen(bool sigmoid, bool norm, mox_dims *dims, moxie_routing *out)
{
    out->weight = sigmoid ? MOXIE_WEIGHT_SIGMOID_SELECTED : MOXIE_WEIGHT_SOFTMAX_SELECTED;
    out->norm = sigmoid && norm ? MOXIE_NORM_SUM : MOXIE_NORM_NONE;
    dims->norm_topk = sigmoid && norm;
}

/* Command A+: both score functions choose by the logits, and score only what they chose. */
MOX_ADJUST(cohere2_moe)
{
    const char *score, *combination;
    char escaped[64];
    bool norm = true;
    (void)layer;
    MOX_TRY(mox_config_text(config, "expert_selection_fn", "softmax", file, &score, error));
    MOX_TRY(mox_config_text(config, "shared_expert_combination_strategy", "average", file, &combination, error));
    MOX_TRY(read_flag(config, "norm_topk_prob", true, file, &norm, error));
    if (!mox_config_find(config, "num_shared_experts"))
        dims->shared_intermediate = 0;
    const bool sigmoid = strcmp(score, "sigmoid") == 0;
    if (!sigmoid && strcmp(score, "softmax") != 0)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, file, -1,
                             "expert_selection_fn is \"%s\"; known are softmax and sigmoid",
                             mox_escape(escaped, sizeof escaped, score));
    const bool average = strcmp(combination, "average") == 0;
    if (!average && strcmp(combination, "sum") != 0)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, file, -1,
                             "shared_expert_combination_strategy is \"%s\"; known are average and sum",
                             mox_escape(escaped, sizeof escaped, combination));
    if (average && dims->shared_intermediate != 0)
        dims->routed_scale = dims->shared_scale = out->routing.scale = 0.5f;
    score_chosen(sigmoid, norm, dims, &out->routing);
    return MOXIE_OK;
}

/* SmallThinker chooses by the logits, and scores only what it chose. */
MOX_ADJUST(smallthinker)
{
    bool softmax = false;
    int64_t shared;
    MOX_TRY(read_flag(config, "moe_primary_router_apply_softmax", false, file, &softmax, error));
    MOX_TRY(require_flag(config, "moe_enable_secondary_experts", false, file,
                         "the model's code has no secondary experts", error));
    MOX_TRY(mox_config_int(config, "moe_shared_primary_experts", layer, 0, file, &shared, error));
    if (shared != 0)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, file, -1,
                             "moe_shared_primary_experts is %lld; the model's code has no shared experts",
                             (long long)shared);
    score_chosen(!softmax, true, dims, &out->routing);
    return MOXIE_OK;
}

/* Kimi-K3's config.json has both parameters of its activation; vLLM and ATOM differ in what they take without them. */
MOX_ADJUST(kimi_k3)
{
    double alpha, beta;
    (void)dims;
    if (out->activation.kind != MOXIE_ACT_SITU)
        return MOXIE_OK;
    MOX_TRY(mox_config_real(config, "activation_situ_beta", layer, 0, file, &alpha, error));
    MOX_TRY(mox_config_real(config, "activation_situ_linear_beta", layer, -1, file, &beta, error));
    if (!(alpha > 0) || beta < 0 || !mox_config_find(config, "hidden_act"))
        return mox_fail_file(MOXIE_ERR_FORMAT, error, file, -1,
                             "a kimi-k3 model with situ needs hidden_act, activation_situ_beta above 0 and "
                             "activation_situ_linear_beta, 0 or more; releases have \"situ\", 4 and 25");
    out->activation.alpha = (float)alpha;
    out->activation.beta = (float)beta;
    return MOXIE_OK;
}

/* hidden_act is the shared expert's; routed experts have silu whatever it says. */
MOX_ADJUST(aria)
{
    (void)dims, (void)layer;
    if (out->activation.kind != MOXIE_ACT_SILU) {
        out->has_shared_activation = 1;
        out->shared_activation = out->activation;
        out->activation = (moxie_activation) { .kind = MOXIE_ACT_SILU };
    }
    return require_flag(config, "mlp_bias", false, file, "biases of its shared expert are not supported", error);
}

/* transformers reads both keys, the first before the second, and saves the second. Without either, the tensors tell. */
MOX_ADJUST(dots3_note)
{
    static const char *const keys[] = { "moe_shared_expert_intermediate_size", "shared_experts_intermediate_size" };
    bool found = false;
    (void)out;
    for (int i = 0; i < 2 && !found; i++)
        MOX_TRY(shared_width(config, keys[i], file, dims, layer, &found, error));
    if (!found && dims->shared_intermediate > 0)
        dims->shared_intermediate = MOX_SHARED_UNKNOWN;
    return MOXIE_OK;
}

/* ---- writing ------------------------------------------------------------------------------------ */

bool mox_write_longcat(json_t *config, const mox_dims *dims)
{
    return json_object_set_new(config, "zero_expert_num", json_integer(dims->zero_experts)) == 0 &&
           json_object_set_new(config, "zero_expert_type", json_string("identity")) == 0;
}

bool mox_write_laguna(json_t *config, const mox_dims *dims)
{
    return json_object_set_new(config, "moe_apply_router_weight_on_input", json_false()) == 0 &&
           (dims->softcap == 0 ||
            json_object_set_new(config, "moe_router_logit_softcapping", json_real((double)dims->softcap)) == 0);
}

bool mox_write_hy_v3(json_t *config, const mox_dims *dims)
{
    return json_object_set_new(config, "expert_hidden_dim", json_integer(dims->intermediate)) == 0 &&
           json_object_set_new(config, "moe_router_use_sigmoid", json_true()) == 0 &&
           json_object_set_new(config, "moe_router_enable_expert_bias", json_true()) == 0;
}

bool mox_write_bailing(json_t *config, const mox_dims *dims)
{
    (void)dims;
    return json_object_set_new(config, "score_function", json_string("sigmoid")) == 0 &&
           json_object_set_new(config, "moe_router_enable_expert_bias", json_true()) == 0;
}

bool mox_write_kimi_k3(json_t *config, const mox_dims *dims)
{
    (void)dims;
    return json_object_set_new(config, "hidden_act", json_string("situ")) == 0 &&
           json_object_set_new(config, "activation_situ_beta", json_real(4)) == 0 &&
           json_object_set_new(config, "activation_situ_linear_beta", json_real(25)) == 0;
}

bool mox_write_dots3_note(json_t *config, const mox_dims *dims)
{
    return json_object_set_new(config, "moe_shared_expert_intermediate_size", json_integer(dims->intermediate)) == 0;
}

bool mox_write_cohere2_moe(json_t *config, const mox_dims *dims)
{
    const char *combination = dims->shared_scale != 0 && dims->shared_scale != 1 ? "average" : "sum";
    return json_object_set_new(config, "expert_selection_fn", json_string("softmax")) == 0 &&
           json_object_set_new(config, "shared_expert_combination_strategy", json_string(combination)) == 0;
}

/* Releases have vision_config beside text_config; readers look into both. */
bool mox_write_deepseek_v41(json_t *config, const mox_dims *dims)
{
    return !dims->bias_alt ||
           json_object_set_new(config, "vision_config", json_pack("{s:i}", "num_hidden_layers", 32)) == 0;
}
