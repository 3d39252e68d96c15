/* SPDX-License-Identifier: Apache-2.0
 *
 * lint_config.c - the JSON files: Python's non-finite numbers, keys about experts that nothing reads, quantization
 * settings that contradict the tensors.
 */
#include <string.h>

#include "ckpt/families/family_config.h"
#include "ckpt/formats/hf_quant_config.h"
#include "ckpt/safetensors/file.h"
#include "lint/lint_state.h"

#define JSON_LIMIT ((uint64_t)128 << 20)

/* ---- non-finite numbers --------------------------------------------------------------------------- */

/* The strict reader rejects what the lenient one takes only for Infinity and NaN. */
static void check_json(mox_lint *lint, const char *name)
{
    const char *path = mox_arena_printf(&lint->arena, "%s/%s", lint->dir, name);
    json_t *lenient = NULL, *strict = NULL;
    moxie_error error = { 0 };
    lint->report->no_memory = lint->report->no_memory || !path;
    if (!path || !mox_file_exists(path))
        return;
    const mox_lint_where where = { .layer = -1, .file = path };
    moxie_status status = mox_json_load(path, JSON_LIMIT, true, &lenient, &error);
    if (status != MOXIE_OK)
        mox_lint_unreadable(lint->report, MOX_LINT_UNREADABLE, &error);
    else
        status = mox_json_load(path, JSON_LIMIT, false, &strict, &error);
    lint->report->no_memory = lint->report->no_memory || status == MOXIE_ERR_MEMORY;
    if (lenient && status == MOXIE_ERR_FORMAT)
        mox_lint_report(lint->report, MOX_LINT_JSON_NOT_FINITE, where, "a number that JSON does not have, at byte %lld",
                        (long long)error.offset);
    json_decref(lenient);
    json_decref(strict);
}

void mox_lint_json(mox_lint *lint)
{
    static const char *const names[] = { "config.json", "hf_quant_config.json", "quantize_config.json",
                                         "generation_config.json" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        check_json(lint, names[i]);
}

/* ---- keys that nothing reads ---------------------------------------------------------------------- */

/* Words that make a key one about experts, routing or scales. */
static const char *const words[] = { "expert", "moe",   "router",  "routed",  "gate",    "topk",  "top_k",
                                     "swiglu", "score", "scoring", "n_group", "shared_", "latent" };

/* Keys that are read besides the families' own, and keys without an effect on a layer: which layers are mixtures is
 * read from the tensors; losses and noise belong to training; names of files and sizes of dense parts. */
static const char *const known[] = {
    "topk_method",
    "topk_group",
    "n_group",
    "scoring_func",
    "moe_router_activation_func",
    "moe_router_activation",
    "swiglu_limit",
    "swiglu_limits",
    "swiglu_limits_shared",
    "router_jitter_noise",
    "moe_norm_min",
    "use_routing_bias",
    "use_moe_router_bias",
    "norm_topk_prob",
    "num_hash_layers",
    "first_k_dense_replace",
    "moe_layer_freq",
    "moe_layer_start_index",
    "moe_layer_end_index",
    "moe_layer_interval",
    "moe_layers_enum",
    "moe_every_n_layers",
    "decoder_sparse_step",
    "mlp_only_layers",
    "interleave_moe_layer_step",
    "moe_layers",
    "enable_moe_block",
    "use_mixed_mlp_moe",
    "router_aux_loss_coef",
    "output_router_logits",
    "aux_loss_alpha",
    "seq_aux",
    "ep_size",
    "moe_router_load_balancing_type",
    "attn_output_gate",
    "moe_intermediate_size",
    "num_experts_per_tok",
    "num_local_experts",
    "n_routed_experts",
    "num_experts",
    "experts_per_token",
    "n_shared_experts",
    "num_shared_experts",
    "expert_dtype",
    "latent_moe_use_norm",
};

static bool has_word(const char *key)
{
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strstr(key, words[i]))
            return true;
    return false;
}

static bool in_list(const char *key, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count && list[i]; i++) {
        const char *dot = strrchr(list[i], '.');
        if (strcmp(key, dot ? dot + 1 : list[i]) == 0)
            return true;
    }
    return false;
}

static bool is_read(const mox_family *f, const char *key)
{
    const char *const single[] = { f->key_latent ? f->key_latent : "", f->key_group ? f->key_group : "" };
    return in_list(key, known, sizeof known / sizeof known[0]) || in_list(key, single, 2) ||
           in_list(key, f->key_experts, 4) || in_list(key, f->key_top_k, 4) || in_list(key, f->key_intermediate, 4) ||
           in_list(key, f->key_shared, 4) || in_list(key, f->key_scale, 3) || in_list(key, f->key_norm, 3);
}

/* null, false and 0 switch a feature off, and moxie has it off. A number that the family fixes may be repeated. */
static bool says_nothing(const mox_family *family, const char *key, const json_t *value)
{
    if (strcmp(key, "swiglu_alpha") == 0)
        return (float)json_number_value(value) == family->activation.alpha;
    return json_is_null(value) || json_is_false(value) || (json_is_integer(value) && json_integer_value(value) == 0);
}

static void check_keys(mox_lint *lint, const json_t *section)
{
    const char *key;
    json_t *value;
    json_object_foreach(mox_json_iterable(section), key, value)
    {
        char escaped[120];
        if (has_word(key) && !says_nothing(lint->model->family, key, value) && !is_read(lint->model->family, key))
            mox_lint_report(lint->report, MOX_LINT_UNREAD_KEY,
                            (mox_lint_where) { .layer = -1, .file = lint->model->config_path }, "%s",
                            mox_escape(escaped, sizeof escaped, key));
    }
}

/* The one function to replace when src/ckpt/model lists the keys that it does not know. */
static void check_all_keys(mox_lint *lint)
{
    const json_t *config = lint->model->config;
    check_keys(lint, config);
    check_keys(lint, json_object_get(config, "text_config"));
    check_keys(lint, json_object_get(config, "ffn_config"));
}

/* ---- quantization --------------------------------------------------------------------------------- */

void mox_lint_config(mox_lint *lint)
{
    const moxie_model *model = lint->model;
    for (int64_t i = 0; i < model->n_warnings; i++)
        mox_lint_report(lint->report, MOX_LINT_QUANT_CONFIG,
                        (mox_lint_where) { .layer = -1, .file = model->config_path }, "%s", model->warnings[i]);
    check_all_keys(lint);
}
