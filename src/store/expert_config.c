/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_config.c - a layer's configuration as the text of an expert file, and back:
 *
 *     dtype bf16
 *     experts 128
 *     routing.scale 0x40200000         f32: its 32 bits, so that no decimal rounds it
 *     w13.element f4_e2m1
 *
 * In the flow: writer -> [text] -> file -> [text] -> configuration, checked by mox_config_read() as any other.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/expert_file.h"

typedef enum key_kind { DTYPE, I32, I64, U64, F32 } key_kind;

typedef struct key {
    const char *name;
    key_kind kind;
    size_t at;
} key;

#define KEY(kind, member) { #member, kind, offsetof(moxie_layer_config, member) },
#define QUANT(member)                                                                                                  \
    KEY(DTYPE, member.element)                                                                                         \
    KEY(DTYPE, member.scale)                                                                                           \
    KEY(I32, member.group_rows)                                                                                        \
    KEY(I32, member.group_cols)                                                                                        \
    KEY(I32, member.has_zero)                                                                                          \
    KEY(I32, member.global)                                                                                            \
    KEY(I32, member.is_static)                                                                                         \
    KEY(I32, member.rule)                                                                                              \
    KEY(I32, member.rounding)
#define ACTIVATION(member)                                                                                             \
    KEY(I32, member.kind)                                                                                              \
    KEY(F32, member.alpha)                                                                                             \
    KEY(F32, member.beta)                                                                                              \
    KEY(F32, member.gate_limit)                                                                                        \
    KEY(F32, member.up_limit)
#define NORM(member)                                                                                                   \
    KEY(I32, member.kind)                                                                                              \
    KEY(I32, member.has_weight)                                                                                        \
    KEY(F32, member.eps)                                                                                               \
    KEY(F32, member.weight_add)                                                                                        \
    KEY(F32, member.factor)
static const key keys[] = {
#include "store/expert_config.def"
};
#undef KEY
#undef QUANT
#undef ACTIVATION
#undef NORM
enum { KEYS = sizeof keys / sizeof keys[0], SHARE_KEYS = 2, LINE = 96 };

/* Fields that were added since: they belong into the list, or, for a run's, into its comment. */
_Static_assert(offsetof(moxie_quant, reserved) == 36 && offsetof(moxie_activation, reserved) == 48 &&
                   offsetof(moxie_row_norm, reserved) == 20,
               "expert_config.def lists every field of these structs");
_Static_assert(offsetof(moxie_layer_config, round_results) + 8 == sizeof(moxie_layer_config),
               "expert_config.def lists every field of a configuration");

/* ---- writing -------------------------------------------------------------------------------------- */

static void print_value(const key *k, const void *at, char *line, size_t size)
{
    int32_t i32;
    int64_t i64;
    uint32_t u32;
    memcpy(&i32, at, sizeof i32);
    memcpy(&u32, at, sizeof u32);
    if (k->kind == DTYPE)
        snprintf(line, size, "%s %s\n", k->name, i32 == MOXIE_DTYPE_NONE ? "none" : mox_dtype_name(i32));
    else if (k->kind == I32)
        snprintf(line, size, "%s %d\n", k->name, (int)i32);
    else if (k->kind == F32)
        snprintf(line, size, "%s 0x%08x\n", k->name, (unsigned)u32);
    else {
        memcpy(&i64, at, sizeof i64);
        snprintf(line, size, k->kind == I64 ? "%s %lld\n" : "%s %llu\n", k->name, (long long)i64);
    }
}

char *mox_expert_config_text(const moxie_layer_config *config, mox_arena *arena, uint64_t *bytes)
{
    char *text = mox_arena_alloc(arena, (uint64_t)KEYS * LINE);
    size_t used = 0;
    const int count = config->tp_size > 1 ? KEYS : KEYS - SHARE_KEYS;
    for (int i = 0; text != NULL && i < count; i++) {
        print_value(&keys[i], (const char *)config + keys[i].at, text + used, LINE);
        used += strlen(text + used);
    }
    *bytes = used;
    return text;
}

/* ---- reading -------------------------------------------------------------------------------------- */

/* A whole number in [low, high]; false for any other text. */
static bool read_int(const char *text, long long low, long long high, int64_t *out)
{
    char *end = NULL;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    *out = value;
    return errno == 0 && end != text && *end == '\0' && value >= low && value <= high && text[0] != ' ';
}

static bool read_bits(const char *text, int base, unsigned long long high, uint64_t *out)
{
    char *end = NULL;
    errno = 0;
    *out = strtoull(text, &end, base);
    return errno == 0 && end != text && *end == '\0' && *out <= high && text[0] != '-' && text[0] != ' ';
}

static bool read_value(const key *k, const char *text, void *at)
{
    int64_t i = 0;
    uint64_t u = 0;
    if (k->kind == U64 || k->kind == F32) {
        const bool good = read_bits(text, k->kind == F32 ? 16 : 10, k->kind == F32 ? UINT32_MAX : UINT64_MAX, &u);
        const uint32_t bits = (uint32_t)u;
        memcpy(at, k->kind == F32 ? (const void *)&bits : &u, k->kind == F32 ? sizeof bits : sizeof u);
        return good;
    }
    if (k->kind == I64) {
        const bool good = read_int(text, INT64_MIN, INT64_MAX, &i);
        memcpy(at, &i, sizeof i);
        return good;
    }
    const bool none = k->kind == DTYPE && strcmp(text, "none") == 0;
    if (k->kind == DTYPE)
        i = none ? MOXIE_DTYPE_NONE : mox_dtype_from_name(text);
    const bool good = k->kind == DTYPE ? none || i != MOXIE_DTYPE_NONE : read_int(text, INT32_MIN, INT32_MAX, &i);
    const int32_t i32 = (int32_t)i;
    memcpy(at, &i32, sizeof i32);
    return good;
}

/* Reads one line without its end. */
static bool read_line(const char *line, bool seen[KEYS], moxie_layer_config *out)
{
    const char *space = strchr(line, ' ');
    for (int i = 0; space != NULL && i < KEYS; i++) {
        if (strlen(keys[i].name) != (size_t)(space - line) || memcmp(keys[i].name, line, (size_t)(space - line)) != 0)
            continue;
        const bool first = !seen[i];
        seen[i] = true;
        return first && read_value(&keys[i], space + 1, (char *)out + keys[i].at);
    }
    return false;
}

moxie_status mox_expert_config_parse(const char *text, uint64_t bytes, const char *path, moxie_layer_config *out,
                                     moxie_error *error)
{
    bool seen[KEYS] = { false };
    *out = (moxie_layer_config)MOXIE_LAYER_CONFIG_INIT;
    int number = 0;
    for (uint64_t at = 0; at < bytes;) {
        char line[LINE], shown[LINE * 4];
        const char *end = memchr(text + at, '\n', bytes - at);
        const uint64_t length = end != NULL ? (uint64_t)(end - (text + at)) : bytes - at;
        const uint64_t kept = length < LINE - 1 ? length : LINE - 1;
        memcpy(line, text + at, kept);
        line[kept] = '\0';
        number++;
        if (end == NULL || length >= LINE || strlen(line) != length || !read_line(line, seen, out))
            return mox_fail_file(MOXIE_ERR_FORMAT, error, path, -1,
                                 "line %d of its configuration is \"%s\", which this version of moxie (%s) does not "
                                 "know: use the version that wrote the file, or prepare it anew",
                                 number, mox_escape(shown, sizeof shown, line), MOXIE_VERSION_STRING);
        at += length + 1;
    }
    return MOXIE_OK;
}
