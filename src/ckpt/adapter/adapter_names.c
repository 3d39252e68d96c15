/* SPDX-License-Identifier: Apache-2.0
 *
 * adapter_names.c - reads the name of an adapter's tensor (adapter_files.h draws the forms), word by word.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/adapter/adapter_files.h"

static const struct {
    const char *word;
    mox_adapter_place place;
} words[] = {
    { "gate_proj", MOX_ADAPTER_GATE },       { "w1", MOX_ADAPTER_GATE },
    { "up_proj", MOX_ADAPTER_UP },           { "w3", MOX_ADAPTER_UP },
    { "down_proj", MOX_ADAPTER_DOWN },       { "w2", MOX_ADAPTER_DOWN },
    { "gate_up_proj", MOX_ADAPTER_GATE_UP }, { "w13", MOX_ADAPTER_GATE_UP },
};

/* Whether the text begins with `word` as a whole word; then moves behind it and its dot. */
static bool take(const char **text, const char *word)
{
    const size_t length = strlen(word);
    if (strncmp(*text, word, length) != 0 || ((*text)[length] != '.' && (*text)[length] != '\0'))
        return false;
    *text += length + ((*text)[length] == '.');
    return true;
}

/* What follows "layers.<layer>." in the name; NULL when it is of another layer. */
static const char *behind_layer(const char *name, int64_t layer)
{
    char key[48];
    snprintf(key, sizeof key, "layers.%lld.", (long long)layer);
    const char *at = strstr(name, key);
    return at != NULL && (at == name || at[-1] == '.') ? at + strlen(key) : NULL;
}

/* What follows the word "experts"; NULL when it is not there. */
static const char *behind_experts(const char *rest)
{
    for (const char *word = rest; *word != '\0';) {
        const char *next = word;
        if (take(&next, "experts"))
            return next;
        word = strchr(word, '.');
        if (word == NULL)
            return NULL;
        word++;
    }
    return NULL;
}

static void read_place(const char **rest, mox_adapter_name *out)
{
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (take(rest, words[i].word)) {
            out->place = words[i].place;
            return;
        }
    out->place = take(rest, "base_layer") ? MOX_ADAPTER_NESTED_BASE : MOX_ADAPTER_NESTED;
}

static mox_adapter_part read_factor(const char *rest, mox_adapter_name *out)
{
    char *end;
    out->expert = -1;
    if (*rest >= '0' && *rest <= '9') {
        out->expert = strtoll(rest, &end, 10);
        if (*end != '.' || out->expert >= MOXIE_MAX_EXPERTS)
            return MOX_ADAPTER_UNKNOWN;
        rest = end + 1;
    }
    read_place(&rest, out);
    if (out->expert >= 0 && out->place >= MOX_ADAPTER_NESTED)
        return MOX_ADAPTER_UNKNOWN;
    out->is_b = take(&rest, "lora_B");
    if (!out->is_b && !take(&rest, "lora_A"))
        return MOX_ADAPTER_UNKNOWN;
    take(&rest, "default");
    take(&rest, "weight");
    return *rest == '\0' ? MOX_ADAPTER_FACTOR : MOX_ADAPTER_UNKNOWN;
}

mox_adapter_part mox_adapter_name_read(const char *name, int64_t layer, mox_adapter_name *out)
{
    static const char *const blocks[] = { "mlp", "block_sparse_moe", "moe", "feed_forward", "ffn", "mixer" };
    const char *rest = behind_layer(name, layer);
    if (rest == NULL)
        return MOX_ADAPTER_ELSEWHERE;
    const char *factor = behind_experts(rest);
    if (factor != NULL)
        return read_factor(factor, out);
    if (strstr(rest, "shared_expert") != NULL || strstr(rest, "shared_mlp") != NULL)
        return MOX_ADAPTER_SHARED_EXPERT;
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        if (take(&rest, blocks[i]))
            return take(&rest, "gate") || take(&rest, "router") ? MOX_ADAPTER_ROUTER : MOX_ADAPTER_ELSEWHERE;
    return MOX_ADAPTER_ELSEWHERE;
}
