/* SPDX-License-Identifier: Apache-2.0
 *
 * hand_checkpoint.h - small checkpoints written by hand: tensors one by one, config.json as text.
 *
 * Nothing here uses the tables under test: names, dtypes and shapes are what the test says.
 */
#ifndef HAND_CHECKPOINT_H
#define HAND_CHECKPOINT_H

#include "test_support.h"

#include "ckpt/model/model.h"
#include "ckpt/safetensors/tensor_writer.h"
#include "quant/quant.h"

#define HAND_MAX_TENSORS 96

typedef struct hand_checkpoint {
    char *dir;
    mox_tensor_decl decls[HAND_MAX_TENSORS];
    void *data[HAND_MAX_TENSORS];
    uint64_t bytes[HAND_MAX_TENSORS];
    int64_t count;
} hand_checkpoint;

static inline void hand_open(hand_checkpoint *c)
{
    memset(c, 0, sizeof *c);
    c->dir = test_tmpdir();
}

static inline void hand_close(hand_checkpoint *c)
{
    for (int64_t i = 0; i < c->count; i++) {
        free((void *)(uintptr_t)c->decls[i].name);
        free(c->data[i]);
    }
    test_rmdir(c->dir);
}

/* Index of a tensor by name. */
static inline int64_t hand_find(const hand_checkpoint *c, const char *name)
{
    for (int64_t i = 0; i < c->count; i++)
        if (strcmp(c->decls[i].name, name) == 0)
            return i;
    fail_msg("the test has no tensor %s", name);
    return -1;
}

/* Adds a tensor of zeros; a shape entry < 0 ends the shape. Returns its bytes, to be filled. */
static inline void *hand_add(hand_checkpoint *c, const char *name, moxie_dtype dtype, int64_t a, int64_t b, int64_t d,
                             int64_t e)
{
    const int64_t shape[] = { a, b, d, e };
    assert_true(c->count < HAND_MAX_TENSORS);
    mox_tensor_decl *decl = &c->decls[c->count];
    decl->name = strdup(name);
    decl->dtype = dtype;
    uint64_t bytes = (uint64_t)mox_dtype_bytes(dtype);
    for (decl->rank = 0; decl->rank < 4 && shape[decl->rank] >= 0; decl->rank++) {
        decl->shape[decl->rank] = shape[decl->rank];
        bytes *= (uint64_t)shape[decl->rank];
    }
    c->bytes[c->count] = bytes;
    c->data[c->count] = calloc(bytes + 1, 1);
    return c->data[c->count++];
}

static inline void *hand_add2(hand_checkpoint *c, const char *name, moxie_dtype dtype, int64_t a, int64_t b)
{
    return hand_add(c, name, dtype, a, b, -1, -1);
}

static inline void hand_remove(hand_checkpoint *c, const char *name)
{
    const int64_t i = hand_find(c, name);
    free((void *)(uintptr_t)c->decls[i].name);
    free(c->data[i]);
    c->count--;
    for (int64_t j = i; j < c->count; j++) {
        c->decls[j] = c->decls[j + 1];
        c->data[j] = c->data[j + 1];
        c->bytes[j] = c->bytes[j + 1];
    }
}

static inline void hand_text(const hand_checkpoint *c, const char *file, const char *text)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", c->dir, file);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static inline void hand_write(const hand_checkpoint *c, const char *config)
{
    char path[600];
    moxie_error error = { 0 };
    mox_tensor_writer *writer = NULL;
    hand_text(c, "config.json", config);
    snprintf(path, sizeof path, "%s/model.safetensors", c->dir);
    assert_ok(mox_tensor_writer_open(path, c->decls, c->count, NULL, 0, &writer, &error), &error);
    for (int64_t i = 0; i < c->count; i++)
        assert_ok(mox_tensor_writer_put(writer, c->data[i], c->bytes[i], &error), &error);
    assert_ok(mox_tensor_writer_finish(writer, &error), &error);
}

/* An open model with one layer read. */
typedef struct hand_model {
    moxie_model *model;
    moxie_model_layer *layer;
    const moxie_layer_config *config;
    const moxie_weights *weights;
} hand_model;

static inline hand_model hand_load(const hand_checkpoint *c, int64_t layer, moxie_activations_choice activations)
{
    moxie_model_options options = MOXIE_MODEL_OPTIONS_INIT;
    options.activations = activations;
    moxie_error error = { 0 };
    hand_model m = { 0 };
    assert_ok(mox_model_open(c->dir, &options, &m.model, &error), &error);
    assert_ok(mox_model_load_layer(m.model, layer, &m.layer, &error), &error);
    m.config = mox_model_layer_config(m.layer);
    m.weights = mox_model_layer_weights(m.layer);
    return m;
}

static inline void hand_unload(hand_model *m)
{
    mox_model_layer_free(m->layer);
    mox_model_close(m->model);
}

/* Opens the directory and loads the layer; returns the first failure. */
static inline moxie_status hand_try(const hand_checkpoint *c, int64_t layer, moxie_error *error)
{
    const moxie_model_options options = MOXIE_MODEL_OPTIONS_INIT;
    moxie_model *model = NULL;
    moxie_model_layer *loaded = NULL;
    moxie_status status = mox_model_open(c->dir, &options, &model, error);
    if (status == MOXIE_OK)
        status = mox_model_load_layer(model, layer, &loaded, error);
    mox_model_layer_free(loaded);
    mox_model_close(model);
    return status;
}

/* Compares every weight of a matrix with what the test computes for (n, k); NaN equals NaN. */
typedef double (*hand_weight_fn)(const hand_checkpoint *c, const char *name, int64_t n, int64_t k);
static inline void hand_check(const hand_checkpoint *c, const moxie_matrix *matrix, const moxie_quant *quant,
                              const char *name, int64_t rows, int64_t cols, hand_weight_fn want)
{
    assert_int_equal(matrix->codes.rows, rows);
    assert_int_equal(matrix->codes.cols, cols);
    for (int64_t n = 0; n < rows; n++)
        for (int64_t k = 0; k < cols; k++) {
            const double got = mox_matrix_weight(matrix, quant, n, k), expected = want(c, name, n, k);
            if (got != expected && !(got != got && expected != expected))
                fail_msg("%s[%d,%d] is %.17g, expected %.17g", name, (int)n, (int)k, got, expected);
        }
}

/* Pseudo-random bytes, from a name. */
static inline void hand_scramble(hand_checkpoint *c, const char *name)
{
    const int64_t i = hand_find(c, name);
    test_rng rng = { .state = 7 };
    for (const char *p = name; *p; p++)
        rng.state = rng.state * 31 + (uint64_t)*p;
    for (uint64_t b = 0; b < c->bytes[i]; b++)
        ((uint8_t *)c->data[i])[b] = (uint8_t)test_u64(&rng);
}

/* Fills a float tensor with first, first + step, ... rounded to its dtype. */
static inline void hand_ramp(hand_checkpoint *c, const char *name, float first, float step)
{
    const int64_t i = hand_find(c, name);
    const moxie_dtype dtype = c->decls[i].dtype;
    const int64_t count = (int64_t)c->bytes[i] / mox_dtype_bytes(dtype);
    for (int64_t j = 0; j < count; j++) {
        const float value = first + step * (float)j;
        mox_narrow(dtype, &value, (char *)c->data[i] + j * mox_dtype_bytes(dtype), 1);
    }
}

static inline const void *hand_data(const hand_checkpoint *c, const char *name)
{
    return c->data[hand_find(c, name)];
}

/* A float element of a tensor. */
static inline double hand_value(const hand_checkpoint *c, const char *name, int64_t i)
{
    const int64_t t = hand_find(c, name);
    const moxie_dtype dtype = c->decls[t].dtype;
    return (double)mox_load(dtype, (const char *)c->data[t] + i * mox_dtype_bytes(dtype));
}

/* A 32-bit word of a tensor. */
static inline uint32_t hand_word(const hand_checkpoint *c, const char *name, int64_t i)
{
    uint32_t word;
    memcpy(&word, (const char *)hand_data(c, name) + i * 4, 4);
    return word;
}

static inline uint8_t hand_byte(const hand_checkpoint *c, const char *name, int64_t i)
{
    return ((const uint8_t *)hand_data(c, name))[i];
}

#endif
