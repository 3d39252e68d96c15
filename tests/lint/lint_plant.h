/* SPDX-License-Identifier: Apache-2.0
 *
 * lint_plant.h - a small synthetic checkpoint whose tensors and config.json a test edits, and what lint says about it.
 *
 * The single shard is read into memory, changed there, and written again. Tensors are named by the end of their names
 * ("experts.3.up_proj.weight_scale"), since prefixes differ between families.
 */
#ifndef LINT_PLANT_H
#define LINT_PLANT_H

#include "test_support.h"

#include <moxie/moxie_ckpt.h>
#include <moxie/moxie_lint.h>

enum { PLANT_MAX = 512 };

typedef struct plant {
    char *dir; /* temporary */
    char path[600];
    moxie_named_tensor tensors[PLANT_MAX];
    uint64_t bytes[PLANT_MAX];
    int64_t count;
} plant;

static inline void plant_file(const plant *p, const char *file, char path[700])
{
    snprintf(path, 700, "%s/%s", p->path, file);
}

static inline uint64_t plant_bytes(const moxie_tensor *t)
{
    uint64_t bits = (uint64_t)moxie_dtype_bits(t->dtype);
    for (int32_t i = 0; i < t->rank; i++)
        bits *= (uint64_t)t->shape[i];
    return bits / 8;
}

/* Adds a tensor; `data` is copied, NULL is zeros. */
static inline void plant_add(plant *p, const char *name, moxie_tensor tensor, const void *data)
{
    assert_true(p->count < PLANT_MAX);
    const uint64_t bytes = plant_bytes(&tensor);
    uint8_t *copy = calloc(bytes + 1, 1);
    if (data)
        memcpy(copy, data, bytes);
    tensor.data = copy;
    p->bytes[p->count] = bytes;
    p->tensors[p->count++] = (moxie_named_tensor) { .name = strdup(name), .tensor = tensor };
}

static inline void plant_read(plant *p)
{
    char path[700];
    moxie_error error = { 0 };
    moxie_tensor_file *file;
    plant_file(p, "model.safetensors", path);
    assert_ok(moxie_tensor_file_open(path, 0, &file, &error), &error);
    for (int64_t i = 0; i < moxie_tensor_file_count(file); i++) {
        const char *name;
        moxie_tensor tensor;
        assert_int_equal(moxie_tensor_file_at(file, i, &name, &tensor), MOXIE_OK);
        plant_add(p, name, tensor, tensor.data);
    }
    moxie_tensor_file_close(file);
}

/* A checkpoint of one layer; sizes 0: 256, and 8 experts. */
static inline void plant_open(plant *p, const char *preset, const char *format, int64_t intermediate, int64_t experts)
{
    moxie_error error = { 0 };
    moxie_synth_options o = MOXIE_SYNTH_OPTIONS_INIT;
    o.format = format;
    o.layers = 1;
    o.experts = experts ? experts : 8;
    o.hidden = 256;
    o.intermediate = intermediate ? intermediate : 256;
    memset(p, 0, sizeof *p);
    p->dir = test_tmpdir();
    snprintf(p->path, sizeof p->path, "%s/a", p->dir);
    assert_ok(moxie_synth_write(preset, p->path, &o, &error), &error);
    plant_read(p);
}

static inline void plant_free(plant *p, int64_t i)
{
    free((void *)(uintptr_t)p->tensors[i].name);
    free((void *)(uintptr_t)p->tensors[i].tensor.data);
}

static inline void plant_close(plant *p)
{
    for (int64_t i = 0; i < p->count; i++)
        plant_free(p, i);
    test_rmdir(p->dir);
}

static inline void plant_write_as(const plant *p, const char *file, int64_t first, int64_t count)
{
    char path[700];
    moxie_error error = { 0 };
    plant_file(p, file, path);
    assert_ok(moxie_tensor_file_write(path, p->tensors + first, count, NULL, 0, &error), &error);
}

static inline void plant_write(const plant *p)
{
    plant_write_as(p, "model.safetensors", 0, p->count);
}

static inline int64_t plant_find(const plant *p, const char *end)
{
    for (int64_t i = 0; i < p->count; i++) {
        const size_t length = strlen(p->tensors[i].name), tail = strlen(end);
        if (length >= tail && strcmp(p->tensors[i].name + length - tail, end) == 0)
            return i;
    }
    fail_msg("the checkpoint has no tensor that ends in %s", end);
    return -1;
}

/* Its bytes, to be changed. */
static inline uint8_t *plant_data(const plant *p, const char *end)
{
    return (uint8_t *)(uintptr_t)p->tensors[plant_find(p, end)].tensor.data;
}

static inline void plant_remove(plant *p, const char *end)
{
    const int64_t i = plant_find(p, end);
    plant_free(p, i);
    p->count--;
    p->tensors[i] = p->tensors[p->count];
    p->bytes[i] = p->bytes[p->count];
}

static inline float plant_value(const plant *p, const char *end)
{
    float value;
    memcpy(&value, plant_data(p, end), sizeof value);
    return value;
}

static inline void plant_set(const plant *p, const char *end, float value)
{
    memcpy(plant_data(p, end), &value, sizeof value);
}

/* Writes a small text file. */
static inline void plant_text(const plant *p, const char *file, const char *text)
{
    char path[700];
    moxie_error error = { 0 };
    plant_file(p, file, path);
    assert_ok(moxie_file_write(path, text, strlen(text), &error), &error);
}

/* Replaces text in config.json, where it must be. */
static inline void plant_config(const plant *p, const char *from, const char *to)
{
    char path[700], *text;
    uint64_t bytes;
    moxie_error error = { 0 };
    plant_file(p, "config.json", path);
    assert_ok(moxie_file_read(path, 1 << 20, &text, &bytes, &error), &error);
    const char *at = strstr(text, from);
    if (!at)
        fail_msg("config.json has no %s: %s", from, text);
    char *changed = calloc(bytes + strlen(to) + 1, 1);
    memcpy(changed, text, (size_t)(at - text));
    strcat(changed, to);
    strcat(changed, at + strlen(from));
    plant_text(p, "config.json", changed);
    free(changed);
    moxie_file_free(text);
}

static inline moxie_lint *plant_lint(const plant *p, int deep)
{
    moxie_error error = { 0 };
    moxie_lint *lint = NULL;
    moxie_lint_options o = MOXIE_LINT_OPTIONS_INIT;
    o.deep = deep;
    assert_ok(moxie_lint_run(p->path, &o, &lint, &error), &error);
    return lint;
}

/* True when there is a finding of this name. Everything else than it and layouts' notes fails the test. */
static inline bool plant_only(const moxie_lint *lint, const char *name)
{
    moxie_finding f = MOXIE_FINDING_INIT;
    bool found = false;
    for (int64_t i = 0; moxie_lint_finding_at(lint, i, &f); i++) {
        found = found || strcmp(f.name, name) == 0;
        if (strcmp(f.name, name) != 0 && strcmp(f.name, "layout-refuses") != 0)
            fail_msg("%s was planted, but lint also says %s: %s %s", name[0] ? name : "nothing", f.name, f.tensor,
                     f.found);
        assert_true(f.found[0] && f.meaning[0] && f.remedy[0] && f.engines[0]);
    }
    return found;
}

#endif
