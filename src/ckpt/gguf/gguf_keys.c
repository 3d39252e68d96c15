/* SPDX-License-Identifier: Apache-2.0
 *
 * gguf_keys.c - keys of config.json and of metadata (gguf_keys.h).
 */
#include "ckpt/gguf/gguf_keys.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/families/family_config.h"

typedef struct key_row {
    const char *gguf, *config;
    bool real;
} key_row;

static const key_row plain_keys[] = {
#define MOX_GGUF_KEY(gguf, config, real) { gguf, config, real },
#include "ckpt/gguf/gguf_names.def"
};

static const key_row rope_keys[] = {
#define MOX_GGUF_ROPE(gguf, config, real) { "rope.scaling." gguf, config, real },
#include "ckpt/gguf/gguf_names.def"
};

static const struct {
    const char *architecture, *tensor, *config;
} flags[] = {
#define MOX_GGUF_HAS(architecture, gguf, config) { architecture, gguf, config },
#include "ckpt/gguf/gguf_names.def"
};

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

/* The shortest decimal number that is the same f32: 1e-6 and not 9.99999997e-07. */
static double short_real(double value)
{
    char text[32];
    for (int digits = 6; digits < 10; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtof(text, NULL) == (float)value)
            return strtod(text, NULL);
    }
    return value;
}

/* Sets `name` to `value`, which it takes, unless it is there already. */
static bool put(json_t *to, const char *name, json_t *value)
{
    if (value && json_object_get(to, name)) {
        json_decref(value);
        return true;
    }
    return json_object_set_new(to, name, value) == 0;
}

/* Metadata has no place for other integers, and readers want no real number there, such as 4096.0. */
static bool put_whole(json_t *to, const char *name, double number)
{
    if (!(number >= 0 && number <= 0x1p53 && number == floor(number)))
        return true;
    return put(to, name, json_integer((json_int_t)number));
}

static bool put_number(json_t *to, const char *name, const json_t *value, bool real)
{
    const double number = json_number_value(value);
    if (!json_is_number(value) || !isfinite((float)number))
        return true;
    return real ? put(to, name, json_real(short_real(number))) : put_whole(to, name, number);
}

static const char *full_name(char *out, size_t size, const char *architecture, const char *name)
{
    snprintf(out, size, "%s.%s", architecture, name);
    return out;
}

/* ---- to metadata ------------------------------------------------------------------------------------- */

static bool is_scaling(const char *type)
{
    return type && (strcmp(type, "linear") == 0 || strcmp(type, "yarn") == 0);
}

/* Scaling of RoPE, from rope_scaling, or rope_parameters as transformers 5 has it. Other ways than linear and YaRN have
 * no such keys. */
static bool rope_to_metadata(const char *architecture, const json_t *config, json_t *metadata)
{
    char name[128];
    const json_t *rope = mox_config_find(config, "rope_parameters");
    rope = rope ? rope : mox_config_find(config, "rope_scaling");
    const json_t *type = json_object_get(rope, "rope_type");
    type = type ? type : json_object_get(rope, "type");
    bool fine = put_number(metadata, full_name(name, sizeof name, architecture, "rope.freq_base"),
                           json_object_get(rope, "rope_theta"), true);
    if (!is_scaling(json_string_value(type)) || !json_is_number(json_object_get(rope, "factor")))
        return fine;
    full_name(name, sizeof name, architecture, "rope.scaling.type");
    fine = fine && put(metadata, name, json_string(json_string_value(type)));
    for (size_t i = 0; fine && i < COUNT(rope_keys); i++)
        fine = put_number(metadata, full_name(name, sizeof name, architecture, rope_keys[i].gguf),
                          json_object_get(rope, rope_keys[i].config), rope_keys[i].real);
    return fine;
}

/* The dimensions of a head that RoPE turns, where those are not all. */
static bool turned_to_metadata(const char *architecture, const json_t *config, json_t *metadata)
{
    char name[128];
    const json_t *part = mox_config_find(config, "partial_rotary_factor"), *width = mox_config_find(config, "head_dim");
    const json_t *turned = mox_config_find(config, "rotary_dim");
    full_name(name, sizeof name, architecture, "rope.dimension_count");
    if (!turned && json_is_number(part) && json_is_integer(width))
        return put_whole(metadata, name, floor(json_number_value(part) * (double)json_integer_value(width)));
    return put_number(metadata, name, turned, false);
}

bool mox_gguf_keys_to_metadata(const char *architecture, const json_t *config, json_t *metadata)
{
    bool fine = true;
    char name[128];
    for (size_t i = 0; fine && i < COUNT(plain_keys); i++)
        fine = put_number(metadata, full_name(name, sizeof name, architecture, plain_keys[i].gguf),
                          mox_config_find(config, plain_keys[i].config), plain_keys[i].real);
    return fine && rope_to_metadata(architecture, config, metadata) &&
           turned_to_metadata(architecture, config, metadata);
}

/* ---- to config.json ---------------------------------------------------------------------------------- */

static const json_t *find(const json_t *metadata, const char *architecture, const char *key)
{
    char name[128];
    return json_object_get(metadata, full_name(name, sizeof name, architecture, key));
}

static bool rope_to_config(const char *architecture, const json_t *metadata, json_t *config)
{
    const char *type = json_string_value(find(metadata, architecture, "rope.scaling.type"));
    json_t *rope = is_scaling(type) ? json_object() : NULL;
    if (!is_scaling(type))
        return true;
    bool fine = rope && put(rope, "rope_type", json_string(type));
    for (size_t i = 0; fine && i < COUNT(rope_keys); i++)
        fine =
            put_number(rope, rope_keys[i].config, find(metadata, architecture, rope_keys[i].gguf), rope_keys[i].real);
    if (fine)
        return put(config, "rope_scaling", rope);
    json_decref(rope);
    return false;
}

static bool turned_to_config(const char *architecture, const json_t *metadata, json_t *config)
{
    const json_t *turned = find(metadata, architecture, "rope.dimension_count");
    const json_t *width = find(metadata, architecture, "attention.key_length");
    const double all = json_number_value(width), part = json_number_value(turned);
    if (strcmp(architecture, "minimax-m2") == 0)
        return put_number(config, "rotary_dim", turned, false);
    return !(part > 0 && part < all) || put(config, "partial_rotary_factor", json_real(part / all));
}

/* What tensors say. */
static bool tensors_to_config(const char *architecture, const mox_tensor_set *file, json_t *config)
{
    const mox_file_tensor *embedding = mox_tensor_set_find(file, "token_embd.weight");
    bool fine = true;
    if (embedding && embedding->view.rank == 2)
        fine = put(config, "vocab_size", json_integer(embedding->view.shape[0])) &&
               put(config, "tie_word_embeddings", json_boolean(!mox_tensor_set_find(file, "output.weight")));
    for (size_t i = 0; fine && mox_tensor_set_find(file, "blk.0.attn_q.weight") && i < COUNT(flags); i++)
        if (strcmp(flags[i].architecture, architecture) == 0)
            fine = put(config, flags[i].config, json_boolean(mox_tensor_set_find(file, flags[i].tensor) != NULL));
    return fine;
}

bool mox_gguf_keys_to_config(const char *architecture, const mox_tensor_set *file, json_t *config)
{
    static const char *const special[][2] = { { "tokenizer.ggml.bos_token_id", "bos_token_id" },
                                              { "tokenizer.ggml.eos_token_id", "eos_token_id" },
                                              { "tokenizer.ggml.padding_token_id", "pad_token_id" } };
    const json_t *metadata = mox_tensor_set_gguf(file);
    bool fine = true;
    for (size_t i = 0; fine && i < COUNT(plain_keys); i++)
        fine = put_number(config, plain_keys[i].config, find(metadata, architecture, plain_keys[i].gguf),
                          plain_keys[i].real);
    for (size_t i = 0; fine && i < COUNT(special); i++)
        fine = put_number(config, special[i][1], json_object_get(metadata, special[i][0]), false);
    return fine && rope_to_config(architecture, metadata, config) && turned_to_config(architecture, metadata, config) &&
           tensors_to_config(architecture, file, config);
}
