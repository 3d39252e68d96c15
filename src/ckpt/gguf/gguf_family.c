/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_family.c - metadata and architectures.def to a configuration and a family (gguf_family.h).
 *
 * Weights are divided by max(sum, 2^-14), as llama.cpp does: for a softmax that is division by the sum.
 */
#include "ckpt/gguf/gguf_family.h"

#include <stdio.h>
#include <string.h>

enum { SHARED_GATE = 1, UNGATED = 2, ON_INPUT = 4, BIASES = 8, LIMITS = 16, MAY_BE_GLM = 32, EARLY_ROUTER = 64 };
typedef enum norm_rule { NORM_ALWAYS, NORM_NEVER, NORM_KEY } norm_rule;
enum { GATING_SOFTMAX = 1, GATING_SIGMOID, GATING_SOFTMAX_CHOSEN, GATING_SQRTSOFTPLUS };

typedef struct architecture {
    const char *name;
    int gating;
    norm_rule norm;
    moxie_activation activation;
    int flags;
} architecture;

#define ACT_SILU                                                                                                       \
    {                                                                                                                  \
        .kind = MOXIE_ACT_SILU                                                                                         \
    }
#define ACT_GELU                                                                                                       \
    {                                                                                                                  \
        .kind = MOXIE_ACT_GELU_TANH                                                                                    \
    }
#define ACT_RELU                                                                                                       \
    {                                                                                                                  \
        .kind = MOXIE_ACT_RELU                                                                                         \
    }
#define ACT_RELU2                                                                                                      \
    {                                                                                                                  \
        .kind = MOXIE_ACT_RELU2_NO_MUL                                                                                 \
    }
#define ACT_SWIGLU_OAI                                                                                                 \
    {                                                                                                                  \
        .kind = MOXIE_ACT_SILU, .alpha = 1.702f, .beta = 1, .gate_limit = 7, .up_limit = 7                             \
    }

static const architecture architectures[] = {
#define MOX_GGUF_ARCHITECTURE(name, gating, norm, activation, flags)                                                   \
    { name, gating, NORM_##norm, ACT_##activation, flags },
#include "ckpt/gguf/architectures.def"
#undef MOX_GGUF_ARCHITECTURE
};

static const architecture *find(const char *name)
{
    for (size_t i = 0; i < sizeof architectures / sizeof architectures[0]; i++)
        if (strcmp(architectures[i].name, name) == 0)
            return &architectures[i];
    return NULL;
}

/* ---- metadata --------------------------------------------------------------------------------------- */

/* The value of "ARCHITECTURE.key", or NULL. */
static const json_t *value_of(const json_t *metadata, const architecture *arch, const char *key)
{
    char full[128];
    snprintf(full, sizeof full, "%s.%s", arch->name, key);
    return json_object_get(metadata, full);
}

static bool put(json_t *config, const char *key, json_t *value)
{
    return value && json_object_set_new(config, key, value) == 0;
}

/* Copies a value under its own name, without the architecture. */
static bool copy(const json_t *metadata, const architecture *arch, const char *key, const char *as, json_t *config)
{
    const json_t *value = value_of(metadata, arch, key);
    return !value || put(config, as, json_deep_copy(value));
}

/* True when the key is a number above `least`. */
static bool above(const json_t *metadata, const architecture *arch, const char *key, double least)
{
    return json_number_value(value_of(metadata, arch, key)) > least;
}

/* Keys that fill_config() and read_gating() know, and the norm where the architecture says the same. */
static bool is_known(const architecture *arch, const char *key, const json_t *value)
{
    static const char *const known[] = { "expert_count",        "expert_used_count",  "expert_feed_forward_length",
                                         "expert_gating_func",  "expert_group_count", "expert_group_used_count",
                                         "expert_weights_scale" };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i], key) == 0)
            return true;
    return strcmp(key, "expert_weights_norm") == 0 && arch->norm == (json_is_true(value) ? NORM_ALWAYS : NORM_NEVER);
}

/* Copies the other keys of experts, so that those that nothing reads are found like those of a config.json. */
static bool copy_others(const json_t *metadata, const architecture *arch, json_t *config)
{
    static const char *const words[] = { "expert", "moe_", "swiglu_", "router_", "hidden_act" };
    const size_t length = strlen(arch->name);
    const char *full;
    json_t *value;
    bool fine = true;
    json_object_foreach((json_t *)(uintptr_t)metadata, full, value)
    {
        const char *key = full + length + 1;
        if (strncmp(full, arch->name, length) != 0 || full[length] != '.' || is_known(arch, key, value) ||
            json_object_get(config, key))
            continue;
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
            if (strncmp(key, words[i], strlen(words[i])) == 0)
                fine = fine && put(config, key, json_deep_copy(value));
    }
    return fine;
}

static bool fill_config(const json_t *metadata, const architecture *arch, json_t *config)
{
    const bool has_width = value_of(metadata, arch, "expert_feed_forward_length") != NULL;
    bool fine = put(config, "model_type", json_string(arch->name)) &&
                copy(metadata, arch, "expert_count", "expert_count", config) &&
                copy(metadata, arch, "expert_used_count", "expert_used_count", config) &&
                copy(metadata, arch, has_width ? "expert_feed_forward_length" : "feed_forward_length",
                     "expert_feed_forward_length", config) &&
                copy(metadata, arch, "embedding_length", "hidden_size", config) &&
                copy(metadata, arch, "block_count", "num_hidden_layers", config);
    if (arch->norm == NORM_KEY)
        fine = fine && copy(metadata, arch, "expert_weights_norm", "expert_weights_norm", config);
    /* A factor of 0 stands for none. */
    if (json_number_value(value_of(metadata, arch, "expert_weights_scale")) != 0)
        fine = fine && copy(metadata, arch, "expert_weights_scale", "expert_weights_scale", config);
    if (above(metadata, arch, "expert_group_count", 1))
        fine = fine && copy(metadata, arch, "expert_group_count", "n_group", config) &&
               copy(metadata, arch, "expert_group_used_count", "topk_group", config);
    if (arch->flags & LIMITS)
        fine = fine && copy(metadata, arch, "swiglu_clamp_exp", "swiglu_clamp_exp", config) &&
               copy(metadata, arch, "swiglu_clamp_shexp", "swiglu_clamp_shexp", config);
    return fine && copy_others(metadata, arch, config);
}

static bool is_limit(const json_t *value)
{
    bool fine = json_is_number(value) || json_is_array(value);
    for (size_t i = 0; fine && i < json_array_size(value); i++)
        fine = json_is_number(json_array_get(value, i));
    return fine;
}

/* llama.cpp refuses a list that has not one entry for each layer. Entries that are missing would mean no limit here. */
static moxie_status check_lengths(const json_t *metadata, const architecture *arch, const char *file,
                                  moxie_error *error)
{
    static const char *const lists[] = { "swiglu_clamp_exp", "swiglu_clamp_shexp" };
    const json_int_t layers = json_integer_value(value_of(metadata, arch, "block_count"));
    for (size_t i = 0; (arch->flags & LIMITS) && i < sizeof lists / sizeof lists[0]; i++) {
        const json_t *list = value_of(metadata, arch, lists[i]);
        if (json_is_array(list) && (json_int_t)json_array_size(list) != layers)
            return mox_fail_file(MOXIE_ERR_FORMAT, error, file, -1,
                                 "%s.%s has %zu entries, %s.block_count says %lld layers; each layer needs its limit: "
                                 "convert the model again",
                                 arch->name, lists[i], json_array_size(list), arch->name, (long long)layers);
    }
    return MOXIE_OK;
}

/* What has another type, or is not finite, would otherwise be taken for absent. */
static moxie_status check_types(const json_t *metadata, const architecture *arch, const char *file, moxie_error *error)
{
    enum { INTEGER, NUMBER, TRUTH, LIMIT };
    static const char *const expected[] = { "one integer for all layers", "one finite number for all layers",
                                            "true or false", "a number, or a list of numbers" };
    static const struct {
        const char *key;
        int type;
    } keys[] = {
        { "expert_count", INTEGER },       { "expert_used_count", INTEGER },       { "expert_gating_func", INTEGER },
        { "expert_group_count", INTEGER }, { "expert_group_used_count", INTEGER }, { "expert_weights_scale", NUMBER },
        { "expert_weights_norm", TRUTH },  { "swiglu_clamp_exp", LIMIT },          { "swiglu_clamp_shexp", LIMIT }
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *value = value_of(metadata, arch, keys[i].key);
        const int type = keys[i].type;
        const bool fine = type == INTEGER  ? json_is_integer(value)
                          : type == NUMBER ? json_is_number(value)
                          : type == TRUTH  ? json_is_boolean(value)
                                           : is_limit(value);
        if (value && !fine)
            return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, file, -1,
                                 "%s.%s is something else than %s; only that is supported: convert the model again",
                                 arch->name, keys[i].key, expected[type]);
    }
    return MOXIE_OK;
}

/* ---- the family ------------------------------------------------------------------------------------- */

/* Early files of GLM-4.7-Flash do not say that its experts are scored by a sigmoid. llama.cpp knows them, too, by the
 * number of layers (one more with the draft layer) and the size of the vocabulary. */
static bool is_glm(const json_t *metadata, const architecture *arch)
{
    const json_int_t layers = json_integer_value(value_of(metadata, arch, "block_count"));
    return (arch->flags & MAY_BE_GLM) && (layers == 47 || layers == 48) &&
           json_integer_value(value_of(metadata, arch, "vocab_size")) == 154880;
}

static moxie_status read_gating(const json_t *metadata, const architecture *arch, const char *file, int *out,
                                moxie_error *error)
{
    const json_t *value = value_of(metadata, arch, "expert_gating_func");
    const json_int_t gating = json_integer_value(value);
    *out = is_glm(metadata, arch) ? GATING_SIGMOID : arch->gating;
    if (!value || gating == 0) {
        if (arch->gating == 0)
            return mox_fail_file(MOXIE_ERR_FORMAT, error, file, -1,
                                 "%s.expert_gating_func is missing; a %s model needs it: convert the model again",
                                 arch->name, arch->name);
        return MOXIE_OK;
    }
    if (gating < GATING_SOFTMAX || gating > GATING_SQRTSOFTPLUS)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, file, -1, "%s.expert_gating_func is %lld, expected 1 to %d",
                             arch->name, (long long)gating, GATING_SQRTSOFTPLUS);
    *out = (int)gating;
    return MOXIE_OK;
}

static moxie_routing routing_of(const architecture *arch, int gating)
{
    moxie_routing route = { .norm = MOXIE_NORM_MAX_SUM_EPS, .norm_eps = 0x1p-14f };
    switch (gating) {
    case GATING_SIGMOID: route.score = MOXIE_SCORE_SIGMOID; break;
    case GATING_SQRTSOFTPLUS: route.score = MOXIE_SCORE_SQRTSOFTPLUS; break;
    case GATING_SOFTMAX_CHOSEN:
        route = (moxie_routing) { .score = MOXIE_SCORE_LOGIT, .weight = MOXIE_WEIGHT_SOFTMAX_SELECTED };
        break;
    default: route.score = MOXIE_SCORE_SOFTMAX; break;
    }
    if (arch->flags & ON_INPUT)
        route = (moxie_routing) { .score = MOXIE_SCORE_LOGIT, .weight = MOXIE_WEIGHT_SIGMOID_SELECTED, .on_input = 1 };
    return route;
}

/* Names in llama.cpp's files. Some old ones have a tensor for each expert. */
static void fill_names(const architecture *arch, mox_family *f)
{
    const bool gated = !(arch->flags & UNGATED);
    f->prefixes[0] = "blk.{L}.";
    f->names = (mox_names) { .router = "ffn_gate_inp.weight",
                             .router_bias = "ffn_gate_inp.bias",
                             .correction_bias = "exp_probs_b.bias",
                             .gate = gated ? "ffn_gate_exps" : NULL,
                             .up = "ffn_up_exps",
                             .down = "ffn_down_exps",
                             .fused_gate_up = gated ? "ffn_gate_up_exps" : NULL,
                             .fused_down = "ffn_down_exps",
                             .fused_gate_up_bias = "ffn_gate_up_exps.bias",
                             .fused_down_bias = "ffn_down_exps.bias",
                             .shared_gate = gated ? "ffn_gate_shexp" : NULL,
                             .shared_up = "ffn_up_shexp",
                             .shared_down = "ffn_down_shexp" };
    if (arch->flags & SHARED_GATE)
        f->names.shared_expert_gate = "ffn_gate_inp_shexp.weight";
    f->other_names = f->names;
    f->other_names.fused_gate_up = f->other_names.fused_down = NULL;
    f->other_names.gate = gated ? "ffn_gate.{e}" : NULL;
    f->other_names.up = "ffn_up.{e}";
    f->other_names.down = "ffn_down.{e}";
}

static void fill_family(const architecture *arch, int gating, mox_family *f)
{
    *f = (mox_family) { .id = "gguf",
                        .model_types = { arch->name },
                        .architecture = arch->name,
                        .fused = MOX_FUSED_STACKS,
                        .always_fused = true,
                        .expert_bias = (arch->flags & BIASES) != 0,
                        .key_experts = { "expert_count" },
                        .key_top_k = { "expert_used_count" },
                        .key_intermediate = { "expert_feed_forward_length" },
                        .key_norm = { arch->norm == NORM_KEY ? "expert_weights_norm" : NULL },
                        .key_scale = { "expert_weights_scale" },
                        .default_scale = 1,
                        .default_n_group = 1,
                        .default_topk_group = 1,
                        .routing = gating == GATING_SOFTMAX ? "default" : "sigmoid",
                        .always_norm = arch->norm == NORM_ALWAYS,
                        .fixed_activation = true,
                        .activation = arch->activation,
                        .route = routing_of(arch, gating) };
    fill_names(arch, f);
    if (arch->flags & EARLY_ROUTER)
        f->outside = "the router reads the residual stream from before the attention and its norm (router_hidden), the "
                     "experts read it after ffn_norm (hidden)";
    if (arch->flags & LIMITS) {
        f->key_limits = "swiglu_clamp_exp";
        f->key_limits_shared = "swiglu_clamp_shexp";
    }
}

static moxie_status find_architecture(const json_t *metadata, const char *file, const architecture **out,
                                      moxie_error *error)
{
    const char *name = json_string_value(json_object_get(metadata, "general.architecture"));
    char escaped[64], known[1024] = "";
    if (!name)
        return mox_fail_file(MOXIE_ERR_FORMAT, error, file, -1,
                             "general.architecture is missing; a GGUF file of a model has it (later parts of a split "
                             "file have not: give the first)");
    *out = find(name);
    if (*out)
        return MOXIE_OK;
    for (size_t i = 0; i < sizeof architectures / sizeof architectures[0]; i++) {
        strncat(known, i ? ", " : "", sizeof known - strlen(known) - 1);
        strncat(known, architectures[i].name, sizeof known - strlen(known) - 1);
    }
    return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, file, -1,
                         "general.architecture is \"%s\", whose experts are not known; known are %s",
                         mox_escape(escaped, sizeof escaped, name), known);
}

moxie_status mox_gguf_family(const json_t *metadata, const char *file, mox_arena *arena, json_t **config,
                             const mox_family **family, const char **architecture_name, moxie_error *error)
{
    const architecture *arch;
    int gating;
    MOX_TRY(find_architecture(metadata, file, &arch, error));
    MOX_TRY(check_types(metadata, arch, file, error));
    MOX_TRY(check_lengths(metadata, arch, file, error));
    if (!above(metadata, arch, "expert_count", 0))
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, file, -1,
                             "%s.expert_count is missing or 0: the model is no mixture of experts", arch->name);
    MOX_TRY(read_gating(metadata, arch, file, &gating, error));
    mox_family *made = mox_arena_calloc(arena, 1, sizeof *made);
    json_t *object = json_object();
    if (!made || !object || !fill_config(metadata, arch, object)) {
        json_decref(object);
        return mox_fail(MOXIE_ERR_MEMORY, error, "no memory to read a model's metadata");
    }
    fill_family(arch, gating, made);
    *config = object;
    *family = made;
    *architecture_name = arch->name;
    return MOXIE_OK;
}
