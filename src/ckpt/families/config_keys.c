/* SPDX-License-Identifier: Apache-2.0
 *
 * config_keys.c - finds the keys of config.json that could change a layer's result and that nothing looks up: a factor
 * that a new release brings, for example.
 *
 *     read the layers, while mox_config_find() records what it is asked for
 *     every key, text_config and sections included:  picked by a word?  not recorded?  not excused?  -> reported
 *
 * So a key that a reader learns to look up needs no second entry anywhere. A key that is another spelling of one that
 * was read (two entries of the family's list) is fine when both have the same value.
 */
#include "ckpt/families/config_keys.h"

#include <string.h>

#include "ckpt/name_pattern.h"

#define MAX_KEY 160

static const char *const bias_flags[] = { "use_expert_bias", "use_routing_bias", "use_moe_router_bias",
                                          "moe_router_enable_expert_bias", "router_enable_expert_bias" };

/* Every key is looked up, so that all of them count as read. */
static bool any_flag(const json_t *config, bool value)
{
    bool found = false;
    for (size_t i = 0; i < sizeof bias_flags / sizeof bias_flags[0]; i++) {
        const json_t *flag = mox_config_find(config, bias_flags[i]);
        found |= value ? json_is_true(flag) : json_is_false(flag);
    }
    return found;
}

bool mox_config_promises_bias(const json_t *config)
{
    const json_t *method = mox_config_find(config, "topk_method");
    const bool noaux = json_is_string(method) && strcmp(json_string_value(method), "noaux_tc") == 0;
    return any_flag(config, true) || noaux;
}

bool mox_config_denies_bias(const json_t *config)
{
    return any_flag(config, false);
}

/* ---- which keys matter -------------------------------------------------------------------------- */

/* True when a word of the key begins with `word`. */
static bool has_word(const char *key, const char *word)
{
    const bool anywhere = strchr(word, '_') != NULL;
    for (const char *at = strstr(key, word); at; at = strstr(at + 1, word))
        if (anywhere || at == key || at[-1] == '_' || at[-1] == '.')
            return true;
    return false;
}

static bool is_picked(const char *key)
{
#define MOX_CONFIG_WORD(word) word,
#define MOX_CONFIG_UNREAD(family, pattern, reason)
    static const char *const words[] = {
#include "ckpt/families/config_keys.def"
    };
#undef MOX_CONFIG_WORD
#undef MOX_CONFIG_UNREAD
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (has_word(key, words[i]))
            return true;
    return false;
}

/* `key`: the last part of a dotted name. */
static bool is_excused(const mox_family *family, const char *key)
{
#define MOX_CONFIG_WORD(word)
#define MOX_CONFIG_UNREAD(family, pattern, reason) { family, pattern },
    static const struct {
        const char *family, *pattern;
    } excused[] = {
#include "ckpt/families/config_keys.def"
    };
#undef MOX_CONFIG_WORD
#undef MOX_CONFIG_UNREAD
    for (size_t i = 0; i < sizeof excused / sizeof excused[0]; i++)
        if ((!excused[i].family || strcmp(excused[i].family, family->id) == 0) &&
            mox_name_fits(excused[i].pattern, key))
            return true;
    return false;
}

/* ---- other spellings of a key that was read ----------------------------------------------------- */

typedef struct key_search {
    const mox_family *family;
    const json_t *config;
    json_t *recorded; /* an object whose keys were looked up */
    mox_arena *arena;
    const char **names;
    int64_t count, room;
    bool no_memory;
} key_search;

static bool same_as_read(const key_search *s, const char *const *keys, int n, const char *key, const json_t *value)
{
    bool listed = false, equal = false;
    for (int i = 0; i < n && keys[i]; i++) {
        const bool self = strcmp(keys[i], key) == 0;
        listed = listed || self;
        equal = equal || (!self && json_object_get(s->recorded, keys[i]) &&
                          json_equal(mox_config_find(s->config, keys[i]), value));
    }
    return listed && equal;
}

static bool is_other_spelling(const key_search *s, const char *key, const json_t *value)
{
    const mox_family *f = s->family;
    return same_as_read(s, f->key_experts, 4, key, value) || same_as_read(s, f->key_top_k, 4, key, value) ||
           same_as_read(s, f->key_intermediate, 4, key, value) || same_as_read(s, f->key_shared, 4, key, value) ||
           same_as_read(s, f->key_scale, 3, key, value) || same_as_read(s, f->key_norm, 3, key, value);
}

/* ---- the search --------------------------------------------------------------------------------- */

static void report(key_search *s, const char *key)
{
    if (s->count == s->room) {
        const int64_t room = s->room ? 2 * s->room : 16;
        const char **names = mox_arena_calloc(s->arena, (uint64_t)room, sizeof *names);
        s->no_memory = s->no_memory || !names;
        if (!names)
            return;
        if (s->count)
            memcpy(names, s->names, (size_t)s->count * sizeof *names);
        s->names = names, s->room = room;
    }
    const char *name = mox_arena_strndup(s->arena, key, strlen(key));
    s->no_memory = s->no_memory || !name;
    s->names[s->count] = name;
    s->count += name != NULL;
}

static bool is_unread(const key_search *s, const char *path, const json_t *value)
{
    return is_picked(path) && !json_is_null(value) && !json_object_get(s->recorded, path) &&
           !is_other_spelling(s, path, value);
}

/* Walks one object; `path` is its dotted name and a dot, or "". Deeper sections than a config has are left alone. */
static void search(key_search *s, const json_t *object, const char *path, int depth)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        char full[MAX_KEY];
        if (is_excused(s->family, key) || strlen(path) + strlen(key) + 2 > sizeof full)
            continue;
        strcat(strcpy(full, path), key);
        if (json_is_object(value) && depth < 4) {
            const bool text = strcmp(full, "text_config") == 0 || strcmp(full, "thinker_config") == 0;
            search(s, value, text ? "" : strcat(full, "."), depth + 1);
        } else if (is_unread(s, full, value)) {
            report(s, full);
        }
    }
}

moxie_status mox_config_unread_keys(const mox_family *family, const json_t *config, const int64_t *layers,
                                    int64_t n_layers, mox_arena *arena, const char ***out, int64_t *count,
                                    moxie_error *error)
{
    key_search s = { .family = family, .config = config, .recorded = json_object(), .arena = arena };
    MOX_FAIL_IF(!s.recorded, MOXIE_ERR_MEMORY, error, "no memory to look for unknown keys");
    moxie_status status = MOXIE_OK;
    mox_config_record(s.recorded);
    mox_config_promises_bias(config);
    for (int64_t i = 0; status == MOXIE_OK && i < n_layers; i++) {
        mox_dims dims;
        moxie_layer_config layer;
        status = mox_config_layer(family, config, "config.json", layers[i], &dims, &layer, NULL);
    }
    mox_config_record(NULL);
    if (status == MOXIE_OK)
        search(&s, config, "", 0);
    json_decref(s.recorded);
    MOX_FAIL_IF(s.no_memory, MOXIE_ERR_MEMORY, error, "no memory to look for unknown keys");
    *out = s.names;
    *count = s.count;
    return MOXIE_OK;
}
