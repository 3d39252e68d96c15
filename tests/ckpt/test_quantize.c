/* SPDX-License-Identifier: Apache-2.0
 *
 * test_quantize.c - moxie_quantize(): every format against the weights of the source, element by element in double:
 * codes are the nearest under their scales, errors are what is reported, and no larger than those of the generator of
 * synthetic checkpoints, which has the same weights. Exact conversions; equal bytes for any number of threads and after
 * interruptions; what is refused leaves nothing behind.
 */
#include "synth_fixture.h"

#include <dirent.h>
#include <math.h>
#include <unistd.h>

#include <moxie/moxie_quantize.h>

#include "ckpt/quantize/quantize_layer.h"

/* ---- running it -------------------------------------------------------------------------------------- */

typedef struct errors {
    moxie_quantize_error at[4096];
    int64_t count;
} errors;

static void note(void *user, const moxie_quantize_error *error)
{
    errors *e = user;
    assert_true(e->count < 4096);
    e->at[e->count++] = *error;
}

static bool has_static_scales(const char *format)
{
    const mox_hf_quant *f;
    for (int32_t i = 0; (f = mox_hf_quant_at(i)) != NULL; i++)
        if (strcmp(f->id, format) == 0)
            return mox_quantize_has_static_scales(f);
    return false;
}

static moxie_status quantize(fixture *f, const char *format, int32_t scales, int32_t threads, errors *e)
{
    moxie_quantize_options o = MOXIE_QUANTIZE_OPTIONS_INIT;
    moxie_executor *executor;
    o.format = format;
    o.scales = scales;
    o.input_amax13 = has_static_scales(format) ? 5 : 0;
    o.input_amax2 = has_static_scales(format) ? 3 : 0;
    o.error = e ? note : NULL;
    o.error_user = e;
    if (e)
        e->count = 0;
    assert_ok(mox_executor_create(threads, &executor, &f->error), &f->error);
    o.executor = executor;
    f->error = (moxie_error) { 0 };
    const moxie_status status = moxie_quantize(f->path, f->path2, &o, NULL, &f->error);
    mox_executor_destroy(executor);
    return status;
}

/* ---- one matrix, in double --------------------------------------------------------------------------- */

typedef struct layer {
    moxie_model *model;
    moxie_model_layer *loaded;
} layer;

static layer open_layer(fixture *f, const char *dir)
{
    layer l;
    moxie_model_options options = MOXIE_MODEL_OPTIONS_INIT;
    moxie_model_layer_info info = MOXIE_MODEL_LAYER_INFO_INIT;
    options.activations = MOXIE_ACTIVATIONS_16BIT;
    assert_ok(moxie_model_open(dir, &options, &l.model, &f->error), &f->error);
    assert_ok(moxie_model_describe_layer(l.model, 0, &info, &f->error), &f->error);
    assert_ok(moxie_model_load_layer(l.model, info.layer, &l.loaded, &f->error), &f->error);
    return l;
}

static void close_layer(layer *l)
{
    moxie_model_layer_free(l->loaded);
    moxie_model_close(l->model);
}

static const moxie_matrix *matrix_of(const layer *l, int64_t e, int p, const moxie_quant **quant)
{
    const moxie_expert *x = &moxie_model_layer_weights(l->loaded)->experts[e];
    const moxie_layer_config *c = moxie_model_layer_config(l->loaded);
    *quant = p == MOXIE_PROJECTION_DOWN ? &c->w2 : &c->w13;
    return p == MOXIE_PROJECTION_GATE ? &x->gate : p == MOXIE_PROJECTION_UP ? &x->up : &x->down;
}

typedef struct sums {
    double squares, weights, worst;
} sums;

static sums compare(const layer *a, const layer *b, int64_t e, int p)
{
    const moxie_quant *qa, *qb;
    const moxie_matrix *ma = matrix_of(a, e, p, &qa), *mb = matrix_of(b, e, p, &qb);
    sums s = { 0 };
    assert_int_equal(ma->codes.rows, mb->codes.rows);
    assert_int_equal(ma->codes.cols, mb->codes.cols);
    for (int64_t r = 0; r < ma->codes.rows; r++)
        for (int64_t c = 0; c < ma->codes.cols; c++) {
            const double w = mox_matrix_weight(ma, qa, r, c), d = mox_matrix_weight(mb, qb, r, c) - w;
            s.squares += d * d;
            s.weights += w * w;
            s.worst = fmax(s.worst, fabs(d));
        }
    return s;
}

/* No other code is nearer to the weight, in a sample of the elements. */
static void check_nearest(const layer *source, const layer *result, int64_t e, int p)
{
    const moxie_quant *qs, *q;
    const moxie_matrix *from = matrix_of(source, e, p, &qs), *m = matrix_of(result, e, p, &q);
    const mox_format *element = mox_format_of(q->element);
    if (mox_quant_is_plain(q))
        return;
    for (int64_t i = 0; i < m->codes.rows * m->codes.cols; i += 97) {
        const int64_t r = i / m->codes.cols, c = i % m->codes.cols;
        const double w = mox_matrix_weight(from, qs, r, c), found = fabs(mox_matrix_weight(m, q, r, c) - w);
        moxie_matrix one = *m;
        uint8_t code = 0;
        for (int32_t k = 0; k < 1 << element->bits; k++) {
            code = (uint8_t)k;
            one.codes = (moxie_grid) { .data = &code,
                                       .bytes = 1,
                                       .rows = m->codes.rows,
                                       .cols = m->codes.cols,
                                       .dtype = q->element,
                                       .packing = { 1, 1, 0, 0 } };
            const double other = fabs(mox_matrix_weight(&one, q, r, c) - w);
            if (other < found * (1 - 1e-5) - 1e-12)
                fail_msg("%s [%lld, %lld]: code %u is off by %g, code %d by %g", element->name, (long long)r,
                         (long long)c, mox_grid_code(&m->codes, r, c), found, k, other);
        }
    }
}

static double check_errors(const layer *source, const layer *result, const errors *e)
{
    double squares = 0, weights = 0;
    const int64_t experts = moxie_model_layer_weights(source->loaded)->n_experts;
    assert_int_equal(e->count, 3 * experts);
    for (int64_t i = 0; i < e->count; i++) {
        const moxie_quantize_error *found = &e->at[i];
        assert_int_equal(found->expert, i / 3);
        assert_int_equal(found->projection, i % 3);
        const sums s = compare(source, result, found->expert, found->projection);
        assert_true(fabs(found->squares - s.squares) <= 1e-5 * s.squares + 1e-12 * s.weights);
        assert_true(fabs(found->weight_squares - s.weights) <= 0x1p-23 * s.weights); /* weights are rounded to f32 */
        assert_true(fabs(found->worst - s.worst) <= 1e-5 * s.worst + 1e-9);
        if (found->exact)
            assert_true(s.squares == 0);
        squares += s.squares;
        weights += s.weights;
    }
    return sqrt(squares / weights);
}

/* ---- every format ------------------------------------------------------------------------------------ */

static const mox_hf_quant *narrow_code(const mox_hf_quant *format)
{
    return mox_hf_quant_stored_bits(format) == mox_dtype_bits(format->weight.element) ? format : NULL;
}

/* The generator's error of the same format on the same weights. */
static double generator_error(fixture *f, const char *format, const layer *source)
{
    char dir[620];
    sums all = { 0 };
    snprintf(dir, sizeof dir, "%s/generated", f->dir);
    const moxie_synth_options o = small(format, 1, 2);
    write_threads(f, "mixtral-8x7b", dir, &o, 2);
    layer l = open_layer(f, dir);
    for (int64_t e = 0; e < 2; e++)
        for (int p = 0; p < 3; p++) {
            const sums s = compare(source, &l, e, p);
            all.squares += s.squares;
            all.weights += s.weights;
        }
    close_layer(&l);
    remove_dir(dir);
    return sqrt(all.squares / all.weights);
}

static void every_format(void **state)
{
    fixture *f = *state;
    const moxie_synth_options o = small("bf16", 1, 2);
    static errors e;
    int32_t done = 0;
    write_threads(f, "mixtral-8x7b", f->path, &o, 2);
    layer source = open_layer(f, f->path);
    for (int32_t i = 0; mox_hf_quant_at(i); i++) {
        const mox_hf_quant *format = mox_hf_quant_at(i);
        /* The source's format; and one that stores all experts in one tensor, which this family does not. */
        if (strcmp(format->id, "bf16") == 0 || strcmp(format->id, "mxfp4-gptoss") == 0)
            continue;
        assert_ok(quantize(f, format->id, MOXIE_SCALES_PLAIN, 2, &e), &f->error);
        layer result = open_layer(f, f->path2);
        const double rms = check_errors(&source, &result, &e), generated = generator_error(f, format->id, &source);
        /* The generator's globals of calibrated ranges cost NVFP4 something, and it leaves integers no half code. */
        if (rms > generated * 1.01)
            fail_msg("%s: an error of %g, the generator's is %g", format->id, rms, generated);
        if (narrow_code(format))
            for (int p = 0; p < 3; p++)
                check_nearest(&source, &result, 1, p);
        close_layer(&result);
        remove_dir(f->path2);
        done++;
    }
    assert_true(done >= 60);
    close_layer(&source);
}

/* ---- scales ------------------------------------------------------------------------------------------ */

static double total(const errors *e)
{
    double squares = 0;
    for (int64_t i = 0; i < e->count; i++)
        squares += e->at[i].squares;
    return squares;
}

/* Of a whole tensor in floats, gate and up have one scale. */
static void check_one_scale(const layer *l)
{
    const moxie_quant *quant;
    for (int64_t e = 0; e < moxie_model_layer_weights(l->loaded)->n_experts; e++) {
        const moxie_matrix *gate = matrix_of(l, e, MOXIE_PROJECTION_GATE, &quant);
        const moxie_matrix *up = matrix_of(l, e, MOXIE_PROJECTION_UP, &quant);
        if (quant->element == MOXIE_F8_E4M3 && quant->group_rows < 0)
            assert_true(mox_grid_value(&gate->scale, 0, 0) == mox_grid_value(&up->scale, 0, 0));
    }
}

static void better_scales(void **state)
{
    fixture *f = *state;
    static const char *const formats[] = {
        "nvfp4-ct-w4a16", "nvfp4-modelopt-w4a16", "mxfp4-ct",          "int4-ct", "awq", "gptq", "int3-ct",
        "fp8-block",      "int8-tensor",          "fp8-tensor-dynamic"
    };
    const moxie_synth_options o = small("bf16", 1, 2);
    static errors plain, mse, four;
    write_threads(f, "mixtral-8x7b", f->path, &o, 2);
    layer source = open_layer(f, f->path);
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        assert_ok(quantize(f, formats[i], MOXIE_SCALES_PLAIN, 2, &plain), &f->error);
        remove_dir(f->path2);
        assert_ok(quantize(f, formats[i], MOXIE_SCALES_MSE, 2, &mse), &f->error);
        layer result = open_layer(f, f->path2);
        check_errors(&source, &result, &mse);
        check_one_scale(&result);
        close_layer(&result);
        remove_dir(f->path2);
        assert_true(total(&mse) < total(&plain));
        if (strncmp(formats[i], "nvfp4", 5) != 0)
            continue;
        assert_ok(quantize(f, formats[i], MOXIE_SCALES_FOUR_OVER_SIX, 2, &four), &f->error);
        remove_dir(f->path2);
        assert_true(total(&four) < 0.9 * total(&plain)); /* the paper's gain on such weights is 17 % */
    }
    close_layer(&source);
}

/* ---- without loss ------------------------------------------------------------------------------------ */

static void exact_conversions(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *preset, *from, *to;
    } cases[] = {
        { "gpt-oss-20b", "mxfp4-gptoss", "mxfp4-ct" },    { "gpt-oss-20b", "mxfp4-gptoss", "mxfp8" },
        { "gpt-oss-20b", "mxfp4-gptoss", "mxfp6-ct" },    { "gpt-oss-20b", "mxfp4-gptoss", "mxfp6-quark-e3m2" },
        { "gpt-oss-20b", "mxfp4-gptoss", "fp8-channel" }, { "gpt-oss-20b", "mxfp4-gptoss", "fp8-block" },
        { "gpt-oss-20b", "mxfp4-gptoss", "bf16" },        { "mixtral-8x7b", "awq", "gptq-v2" },
        { "mixtral-8x7b", "fp8-block", "fp8-block-ct" },  { "mixtral-8x7b", "mxfp4-ct", "mxfp4-quark" },
        { "mixtral-8x7b", "int4-ct", "int4-modelopt" },   { "gpt-oss-20b", "mxfp4-ct", "mxfp4-gptoss" },
    };
    static errors e;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const moxie_synth_options o = small(cases[i].from, 1, 4);
        write_threads(f, cases[i].preset, f->path, &o, 2);
        const moxie_status status = quantize(f, cases[i].to, MOXIE_SCALES_PLAIN, 2, &e);
        /* GPTQ's configuration says that zero points are symmetric, so AWQ's cannot be kept. */
        const bool symmetric = strcmp(cases[i].to, "gptq-v2") == 0;
        assert_ok(status, &f->error);
        layer source = open_layer(f, f->path), result = open_layer(f, f->path2);
        check_errors(&source, &result, &e);
        for (int64_t k = 0; k < e.count; k++) {
            if (e.at[k].exact != !symmetric)
                fail_msg("%s to %s: expert %d is %sexact", cases[i].from, cases[i].to, e.at[k].expert,
                         e.at[k].exact ? "" : "not ");
        }
        close_layer(&source);
        close_layer(&result);
        remove_dir(f->path);
        remove_dir(f->path2);
    }
}

/* ---- threads, interruptions -------------------------------------------------------------------------- */

/* A number that depends on every file's name and bytes. */
static uint64_t hash_dir(const char *dir)
{
    char path[1200];
    struct dirent **entries;
    uint64_t hash = 1469598103934665603u;
    const int count = scandir(dir, &entries, NULL, alphasort);
    assert_true(count > 2);
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, entries[i]->d_name);
        for (const char *c = entries[i]->d_name; *c; c++)
            hash = (hash ^ (uint8_t)*c) * 1099511628211u;
        FILE *file = entries[i]->d_name[0] == '.' ? NULL : fopen(path, "rb");
        for (int c; file && (c = fgetc(file)) != EOF;)
            hash = (hash ^ (uint8_t)c) * 1099511628211u;
        if (file)
            fclose(file);
        free(entries[i]);
    }
    free(entries);
    return hash;
}

static int stop_after(void *user, uint64_t done, uint64_t all)
{
    (void)all;
    return done >= *(uint64_t *)user;
}

static void same_bytes(void **state)
{
    fixture *f = *state;
    const moxie_synth_options o = small("bf16", 3, 2);
    static errors whole, resumed;
    char partial[700];
    write_threads(f, "mixtral-8x7b", f->path, &o, 2);
    snprintf(partial, sizeof partial, "%s.partial", f->path2);
    assert_ok(quantize(f, "nvfp4-ct-w4a16", MOXIE_SCALES_MSE, 1, &whole), &f->error);
    const uint64_t want = hash_dir(f->path2);
    remove_dir(f->path2);
    assert_ok(quantize(f, "nvfp4-ct-w4a16", MOXIE_SCALES_MSE, 5, NULL), &f->error);
    assert_true(hash_dir(f->path2) == want);
    remove_dir(f->path2);
    for (uint64_t stop = 0; stop < 3; stop++) { /* inside layers 0, 1 and 2 */
        uint64_t bytes = stop * 2 * 3 * 128 * 192 * 2 + 1;
        moxie_quantize_options q = MOXIE_QUANTIZE_OPTIONS_INIT;
        moxie_quantize_summary summary = MOXIE_QUANTIZE_SUMMARY_INIT;
        q.format = "nvfp4-ct-w4a16";
        q.scales = MOXIE_SCALES_MSE;
        q.progress = stop_after;
        q.progress_user = &bytes;
        assert_int_equal(moxie_quantize(f->path, f->path2, &q, NULL, &f->error), MOXIE_ERR_TIMEOUT);
        assert_true(access(f->path2, F_OK) != 0);
        assert_int_equal(access(partial, F_OK) == 0, stop > 0);
        q.progress = NULL;
        if (stop > 0) { /* another format does not go on there */
            q.format = "int4-ct";
            assert_int_equal(moxie_quantize(f->path, f->path2, &q, NULL, &f->error), MOXIE_ERR_IO);
            assert_non_null(strstr(f->error.text, "another quantization"));
            q.format = "nvfp4-ct-w4a16";
        }
        resumed.count = 0;
        q.error = note;
        q.error_user = &resumed;
        assert_ok(moxie_quantize(f->path, f->path2, &q, &summary, &f->error), &f->error);
        assert_int_equal(summary.resumed_layers, stop);
        assert_true(hash_dir(f->path2) == want);
        assert_int_equal(resumed.count, whole.count);
        assert_memory_equal(resumed.at, whole.at, (size_t)whole.count * sizeof whole.at[0]);
        assert_true(access(partial, F_OK) != 0);
        remove_dir(f->path2);
    }
}

/* ---- refused ----------------------------------------------------------------------------------------- */

static void refused(fixture *f, const char *format, int32_t scales, moxie_status status, const char *text)
{
    char partial[700];
    snprintf(partial, sizeof partial, "%s.partial", f->path2);
    assert_int_equal(quantize(f, format, scales, 2, NULL), status);
    if (!strstr(f->error.text, text))
        fail_msg("\"%s\" is not in: %s", text, f->error.text);
    assert_true(access(partial, F_OK) != 0);
}

static void refusals(void **state)
{
    fixture *f = *state;
    const moxie_synth_options o = small("bf16", 1, 8);
    write_threads(f, "qwen3-30b-a3b", f->path, &o, 2);
    refused(f, "int5", 0, MOXIE_ERR_ARGUMENT, "there is no format");
    refused(f, "gguf-q9_k", 0, MOXIE_ERR_ARGUMENT, "gguf-q4_k");
    refused(f, "bf16", 0, MOXIE_ERR_ARGUMENT, "already");
    refused(f, "int4-ct", MOXIE_SCALES_FOUR_OVER_SIX, MOXIE_ERR_ARGUMENT, "four over six");
    refused(f, "int4-ct", 3, MOXIE_ERR_ARGUMENT, "options.scales is 3");
    moxie_quantize_options q = MOXIE_QUANTIZE_OPTIONS_INIT;
    assert_int_equal(moxie_quantize(f->path, f->path2, &q, NULL, &f->error), MOXIE_ERR_ARGUMENT);
    q.format = "nvfp4-ct";
    assert_int_equal(moxie_quantize(f->path, f->path2, &q, NULL, &f->error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(f->error.text, "or use nvfp4-ct-w4a16"));
    write_threads(f, "qwen3-30b-a3b", f->path2, &o, 2);
    refused(f, "int4-ct", 0, MOXIE_ERR_IO, "exists already");
}

/* Slashes at the end of a name do not end hours of work. */
static void slashes(void **state)
{
    fixture *f = *state;
    const moxie_synth_options o = small("bf16", 1, 8);
    moxie_quantize_options q = MOXIE_QUANTIZE_OPTIONS_INIT;
    char slashed[700];
    q.format = "gguf-q8_0";
    snprintf(slashed, sizeof slashed, "%s//", f->path2);
    write_threads(f, "qwen3-30b-a3b", f->path, &o, 2);
    assert_ok(moxie_quantize(f->path, slashed, &q, NULL, &f->error), &f->error);
    assert_int_equal(access(f->path2, R_OK), 0);
    unlink(f->path2);
}

/* Overwrites `count` weights, from [row, col] on, of an expert of the bf16 source with 128 columns. */
static void put_weights(fixture *f, const char *tensor, int64_t row, int64_t col, int64_t count, uint16_t value)
{
    mox_tensor_set *set;
    assert_ok(mox_tensor_set_open_dir(f->path, false, &set, &f->error), &f->error);
    const mox_file_tensor *t = find(set, tensor);
    FILE *file = fopen(mox_tensor_set_file_name(set, t->file), "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)(t->offset + 2 * (128 * (uint64_t)row + (uint64_t)col)), SEEK_SET), 0);
    for (int64_t i = 0; i < count; i++)
        assert_int_equal(fwrite(&value, sizeof value, 1, file), 1);
    fclose(file);
    mox_tensor_set_close(set);
}

static void put_weight(fixture *f, const char *tensor, uint16_t value)
{
    put_weights(f, tensor, 7, 9, 1, value);
}

/* A matrix of zeros is reported, and as exact, whatever its neighbours are. */
static void zero_matrix(void **state)
{
    fixture *f = *state;
    static const char *const formats[] = { "fp8-channel", "nvfp4-ct-w4a16", "int4-ct", "mxfp4-ct", "awq" };
    const moxie_synth_options o = small("bf16", 1, 8);
    static errors e;
    write_threads(f, "qwen3-30b-a3b", f->path, &o, 2);
    put_weights(f, "model.layers.0.mlp.experts.3.gate_proj.weight", 0, 0, 128 * 192, 0);
    layer source = open_layer(f, f->path);
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        assert_ok(quantize(f, formats[i], MOXIE_SCALES_MSE, 2, &e), &f->error);
        layer result = open_layer(f, f->path2);
        check_errors(&source, &result, &e);
        for (int64_t k = 0; k < e.count; k++)
            assert_int_equal(e.at[k].exact, k == 3 * 3 + MOXIE_PROJECTION_GATE);
        close_layer(&result);
        remove_dir(f->path2);
    }
    close_layer(&source);
}

static void not_a_number(void **state)
{
    fixture *f = *state;
    const moxie_synth_options o = small("bf16", 1, 8);
    static const char up[] = "model.layers.0.mlp.experts.3.up_proj.weight";
    write_threads(f, "qwen3-30b-a3b", f->path, &o, 2);
    put_weight(f, up, 0x4f80); /* 2^32 */
    refused(f, "f16", 0, MOXIE_ERR_UNSUPPORTED, "expert 3, up: weight [7, 9] is 4.29497e+09");
    put_weight(f, up, 0x7fc0);
    refused(f, "fp8-block", 0, MOXIE_ERR_FORMAT, "expert 3, up: weight [7, 9]");
    refused(f, "f32", 0, MOXIE_ERR_FORMAT, "expert 3, up: weight [7, 9]");
}

/* Unfinished work is of the source as it was: when weights have changed since, nothing goes on there. */
static void changed_source(void **state)
{
    fixture *f = *state;
    const moxie_synth_options o = small("bf16", 2, 8);
    moxie_quantize_options q = MOXIE_QUANTIZE_OPTIONS_INIT;
    uint64_t bytes = 2 * 8 * 3 * 128 * 192 + 1;
    write_threads(f, "qwen3-30b-a3b", f->path, &o, 2);
    q.format = "int4-ct";
    q.progress = stop_after;
    q.progress_user = &bytes;
    assert_int_equal(moxie_quantize(f->path, f->path2, &q, NULL, &f->error), MOXIE_ERR_TIMEOUT);
    put_weight(f, "model.layers.0.mlp.experts.3.up_proj.weight", 0x3f80);
    q.progress = NULL;
    assert_int_equal(moxie_quantize(f->path, f->path2, &q, NULL, &f->error), MOXIE_ERR_IO);
    assert_non_null(strstr(f->error.text, "another quantization"));
}

/* Whichever allocation fails, the call says so or does without, and no result is there. */
static void without_memory(void **state)
{
    fixture *f = *state;
    const moxie_synth_options o = small("bf16", 1, 2);
    moxie_quantize_options q = MOXIE_QUANTIZE_OPTIONS_INIT;
    moxie_executor *executor;
    char partial[640];
    int failed = 0;
    write_threads(f, "mixtral-8x7b", f->path, &o, 2);
    assert_ok(mox_executor_create(1, &executor, &f->error), &f->error);
    q.format = "int4-ct";
    q.executor = executor;
    snprintf(partial, sizeof partial, "%s.partial", f->path2);
    const uint64_t before = mox_alloc_count();
    assert_ok(moxie_quantize(f->path, f->path2, &q, NULL, &f->error), &f->error);
    const uint64_t count = mox_alloc_count() - before;
    remove_dir(f->path2);
    for (uint64_t n = 1; n <= count; n += 1 + n / 8) {
        mox_alloc_fail_at(n);
        const moxie_status status = moxie_quantize(f->path, f->path2, &q, NULL, &f->error);
        mox_alloc_fail_at(0);
        if (status != MOXIE_OK && status != MOXIE_ERR_MEMORY)
            fail_msg("allocation %llu: status %d, %s", (unsigned long long)n, (int)status, f->error.text);
        assert_int_equal(access(f->path2, F_OK) == 0, status == MOXIE_OK);
        failed += status == MOXIE_ERR_MEMORY;
        remove_dir(f->path2);
        remove_dir(partial); /* kept where a layer was finished */
    }
    assert_true(failed > 20);
    mox_executor_destroy(executor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_format, set_up, tear_down),
        cmocka_unit_test_setup_teardown(better_scales, set_up, tear_down),
        cmocka_unit_test_setup_teardown(exact_conversions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(same_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refusals, set_up, tear_down),
        cmocka_unit_test_setup_teardown(slashes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(not_a_number, set_up, tear_down),
        cmocka_unit_test_setup_teardown(changed_source, set_up, tear_down),
        cmocka_unit_test_setup_teardown(zero_matrix, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
