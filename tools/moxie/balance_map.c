/* SPDX-License-Identifier: Apache-2.0
 *
 * balance_map.c - slot maps in files.
 *
 *     moxie     {"schema_version": 1, "kind": "slot-map", "experts": E, "slots": P, "ranks": R, "generation": n,
 *                "first_slot": [R + 1], "physical_to_logical_map": [layers, P]}
 *     SGLang    {"physical_to_logical_map": [layers, P]} (--init-expert-location)
 *     vLLM      [layers, P]
 *
 * All three are read; ranks that a file does not tell share its slots evenly.
 */
#include "balance.h"

#include <stdlib.h>
#include <string.h>

static const char *const styles[] = { "moxie", "sglang", "vllm", NULL };
const cli_names balance_styles = { .kind = "format of maps", .fixed = styles };

void balance_map_free(balance_map *map)
{
    free(map->expert_of);
    free(map->first_slot);
    *map = (balance_map) { .expert_of = NULL };
}

moxie_status balance_map_create(int32_t layers, int32_t experts, int32_t slots, int32_t ranks, const char *path,
                                balance_map *out, moxie_error *error)
{
    balance_map m = { .layers = layers, .experts = experts, .slots = slots, .ranks = ranks };
    const size_t n = (size_t)layers * (size_t)slots;
    m.expert_of = malloc(n * sizeof *m.expert_of + 1);
    m.first_slot = calloc((size_t)ranks + 1, sizeof *m.first_slot);
    moxie_status status = m.expert_of && m.first_slot
                              ? moxie_slot_map_first_slots(slots, ranks, m.first_slot, error)
                              : cli_error(MOXIE_ERR_MEMORY, error, path, "no memory for maps of %d slots", slots);
    for (size_t i = 0; status == MOXIE_OK && i < n; i++)
        m.expert_of[i] = -1;
    if (status == MOXIE_OK)
        *out = m;
    else
        balance_map_free(&m);
    return status;
}

moxie_slot_map balance_map_at(const balance_map *map, int32_t layer)
{
    moxie_slot_map m = MOXIE_SLOT_MAP_INIT;
    m.ranks = map->ranks;
    m.experts = map->experts;
    m.slots = map->slots;
    m.expert_of = map->expert_of + (int64_t)layer * map->slots;
    m.first_slot = map->first_slot;
    m.generation = map->generation;
    return m;
}

/* ---- reading --------------------------------------------------------------------------------------- */

/* A whole number of the file, which must agree with `wanted` unless that is 0. A file may leave it out: 0. */
static moxie_status read_size(const json_t *root, const char *key, const char *path, int64_t most, int64_t wanted,
                              int32_t *out, moxie_error *error)
{
    const json_t *value = json_object_get(root, key);
    *out = (int32_t)wanted;
    if (!value)
        return MOXIE_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > most)
        return cli_error(MOXIE_ERR_FORMAT, error, path, "\"%s\" must be a whole number from 1 to %lld", key,
                         (long long)most);
    if (wanted > 0 && json_integer_value(value) != wanted)
        return cli_error(MOXIE_ERR_MISMATCH, error, path, "the map is of %lld %s, and %lld are asked for",
                         (long long)json_integer_value(value), key, (long long)wanted);
    *out = (int32_t)json_integer_value(value);
    return MOXIE_OK;
}

static moxie_status read_first_slots(const json_t *root, const char *path, balance_map *m, moxie_error *error)
{
    const json_t *array = json_object_get(root, "first_slot");
    if (!array)
        return MOXIE_OK;
    if (!json_is_array(array) || json_array_size(array) != (size_t)m->ranks + 1)
        return cli_error(MOXIE_ERR_FORMAT, error, path, "\"first_slot\" must be an array of %d numbers, for %d ranks",
                         m->ranks + 1, m->ranks);
    for (int32_t r = 0; r <= m->ranks; r++) {
        const json_t *value = json_array_get(array, (size_t)r);
        if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > m->slots)
            return cli_error(MOXIE_ERR_FORMAT, error, path, "number %d of \"first_slot\" must be from 0 to %d", r,
                             m->slots);
        m->first_slot[r] = (int32_t)json_integer_value(value);
    }
    return MOXIE_OK;
}

/* The table's numbers as experts, checked by the library layer by layer. */
static moxie_status fill_maps(const balance_table *t, const char *path, balance_map *m, moxie_error *error)
{
    for (int64_t i = 0; i < t->rows * t->columns; i++) {
        if (t->at[i] < -1 || t->at[i] >= m->experts || t->at[i] != (double)(int32_t)t->at[i])
            return cli_error(MOXIE_ERR_FORMAT, error, path,
                             "layer %lld, slot %lld holds expert %g; with %d experts it must be a whole number from 0 "
                             "to %d, or -1 for none",
                             (long long)(i / t->columns), (long long)(i % t->columns), t->at[i], m->experts,
                             m->experts - 1);
        m->expert_of[i] = (int32_t)t->at[i];
    }
    for (int32_t l = 0; l < m->layers; l++) {
        moxie_error why;
        const moxie_slot_map map = balance_map_at(m, l);
        const moxie_status status = moxie_slot_map_check(&map, &why);
        if (status != MOXIE_OK)
            return cli_error(MOXIE_ERR_FORMAT, error, path, "layer %d: %s", l, why.text);
    }
    return MOXIE_OK;
}

static int32_t largest_number(const balance_table *t)
{
    double most = 0;
    for (int64_t i = 0; i < t->rows * t->columns; i++)
        most = t->at[i] > most ? t->at[i] : most;
    return most < MOXIE_MAX_EXPERTS ? (int32_t)most : MOXIE_MAX_EXPERTS - 1;
}

static moxie_status read_maps(const json_t *root, const balance_table *t, const char *path, int32_t ranks,
                              int32_t experts, balance_map *out, moxie_error *error)
{
    int32_t slots;
    const json_t *generation = json_object_get(root, "generation");
    moxie_status status = read_size(root, "slots", path, MOXIE_MAX_SLOTS, t->columns, &slots, error);
    if (status == MOXIE_OK)
        status = read_size(root, "ranks", path, MOXIE_MAX_RANKS, ranks, &ranks, error);
    if (status == MOXIE_OK)
        status = read_size(root, "experts", path, MOXIE_MAX_EXPERTS, experts, &experts, error);
    if (status == MOXIE_OK && ranks < 1)
        status = cli_error(MOXIE_ERR_FORMAT, error, path, "it does not tell how many ranks there are: give --ranks N");
    if (status == MOXIE_OK && generation && (!json_is_integer(generation) || json_integer_value(generation) < 0))
        status = cli_error(MOXIE_ERR_FORMAT, error, path, "\"generation\" must be a whole number from 0 on");
    if (status != MOXIE_OK)
        return status;
    experts = experts > 0 ? experts : largest_number(t) + 1;
    status = balance_map_create((int32_t)t->rows, experts, slots, ranks, path, out, error);
    if (status == MOXIE_OK)
        status = read_first_slots(root, path, out, error);
    if (status == MOXIE_OK)
        status = fill_maps(t, path, out, error);
    if (status != MOXIE_OK)
        balance_map_free(out);
    else
        out->generation = (uint64_t)json_integer_value(generation);
    return status;
}

static moxie_status read_root(const json_t *root, const char *path, int32_t ranks, int32_t experts, balance_map *out,
                              moxie_error *error)
{
    const json_t *version = json_object_get(root, "schema_version");
    const json_t *maps = json_is_array(root) ? root : json_object_get(root, "physical_to_logical_map");
    balance_table t;
    if (version && (!json_is_integer(version) || json_integer_value(version) != CLI_SCHEMA_VERSION))
        return cli_error(MOXIE_ERR_UNSUPPORTED, error, path, "its schema_version is not %d, the one that is known here",
                         CLI_SCHEMA_VERSION);
    const char *kind = json_string_value(json_object_get(root, "kind"));
    if (kind && strcmp(kind, "slot-map") != 0)
        return cli_error(MOXIE_ERR_FORMAT, error, path, "its kind is \"%.40s\", and a map's is \"slot-map\"", kind);
    if (!maps)
        return cli_error(MOXIE_ERR_FORMAT, error, path,
                         json_object_get(root, "logical_count")
                             ? "it holds loads of experts and no map: `moxie balance` makes a map of it"
                             : "it has no map: give an array [layers, slots], or an object with "
                               "\"physical_to_logical_map\"");
    moxie_status status =
        balance_table_read(maps, path, json_is_array(root) ? "the array" : "physical_to_logical_map", &t, error);
    if (status != MOXIE_OK)
        return status;
    if (json_is_array(json_array_get(json_array_get(maps, 0), 0)))
        status = cli_error(MOXIE_ERR_FORMAT, error, path, "the map has three dimensions; it must be [layers, slots]");
    else
        status = read_maps(root, &t, path, ranks, experts, out, error);
    free(t.at);
    return status;
}

moxie_status balance_map_read(const char *path, int32_t ranks, int32_t experts, balance_map *out, moxie_error *error)
{
    char *text = NULL;
    uint64_t size = 0;
    json_t *root = NULL;
    moxie_status status = moxie_file_read(path, BALANCE_MAX_BYTES, &text, &size, error);
    if (status == MOXIE_OK)
        status = balance_refuse_pickle(path, text, size, error);
    if (status == MOXIE_OK)
        status = cli_json_parse(text, (size_t)size, path, &root, error);
    if (status == MOXIE_OK)
        status = read_root(root, path, ranks, experts, out, error);
    json_decref(root);
    moxie_file_free(text);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------------- */

static json_t *numbers(const int32_t *at, int64_t n)
{
    json_t *array = cli_pack("[]");
    for (int64_t i = 0; i < n; i++)
        cli_json_append(array, cli_pack("i", (int)at[i]));
    return array;
}

moxie_status balance_map_write(const char *path, const balance_map *map, balance_style style, moxie_error *error)
{
    json_t *maps = cli_pack("[]"), *root = maps;
    for (int32_t l = 0; l < map->layers; l++)
        cli_json_append(maps, numbers(map->expert_of + (int64_t)l * map->slots, map->slots));
    if (style == BALANCE_SGLANG)
        root = cli_pack("{s:o}", "physical_to_logical_map", maps);
    else if (style == BALANCE_MOXIE)
        root = cli_pack("{s:i, s:s, s:i, s:i, s:i, s:I, s:o, s:o}", "schema_version", CLI_SCHEMA_VERSION, "kind",
                        "slot-map", "experts", (int)map->experts, "slots", (int)map->slots, "ranks", (int)map->ranks,
                        "generation", (json_int_t)map->generation, "first_slot",
                        numbers(map->first_slot, (int64_t)map->ranks + 1), "physical_to_logical_map", maps);
    return cli_json_write(path, root, JSON_COMPACT, error);
}
