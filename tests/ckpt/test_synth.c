/* SPDX-License-Identifier: Apache-2.0
 *
 * test_synth.c - synthetic checkpoints: random numbers against published vectors, the same bytes whoever makes them,
 * exactly the tensors that a layer has, values that dequantize to what was quantized, and nothing left on failure.
 *
 * The unquantized weights are made again here from the definition in random.h and synth.h, element by element:
 *     w(layer, expert, projection, row, column) = 0.02 z / 23170.4658,  z the deviate of element row * columns + column
 */
#include "test_support.h"

#include <dirent.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "ckpt/synth.h"

typedef struct fixture {
    char *dir;       /* temporary; checkpoints are made in it */
    char path[600];  /* of the checkpoint */
    char path2[600]; /* of another */
    moxie_error error;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->dir = test_tmpdir();
    snprintf(f->path, sizeof f->path, "%s/a", f->dir);
    snprintf(f->path2, sizeof f->path2, "%s/b", f->dir);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    test_rmdir(f->dir);
    free(f);
    return 0;
}

static int entries_in(const char *dir)
{
    int count = 0;
    DIR *stream = opendir(dir);
    assert_non_null(stream);
    for (const struct dirent *entry; (entry = readdir(stream));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(stream);
    return count;
}

static void remove_dir(const char *dir)
{
    char command[700];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

static moxie_synth_options small(const char *format, int64_t layers, int64_t experts)
{
    moxie_synth_options o = MOXIE_SYNTH_OPTIONS_INIT;
    o.format = format;
    o.layers = layers;
    o.experts = experts;
    o.hidden = 128;
    o.intermediate = 192; /* a block and a half */
    o.seed = 7;
    return o;
}

static void write_threads(fixture *f, const char *preset, const char *dir, const moxie_synth_options *options,
                          int32_t threads)
{
    moxie_executor *executor;
    assert_ok(mox_executor_create(threads, &executor, &f->error), &f->error);
    assert_ok(mox_synth_write(preset, dir, options, executor, &f->error), &f->error);
    mox_executor_destroy(executor);
}

/* Every file of `a` has the bytes of its namesake in `b`. */
static void assert_same_directory(const char *a, const char *b, bool same)
{
    char command[1400];
    snprintf(command, sizeof command, "diff -r '%s' '%s' > /dev/null", a, b);
    assert_int_equal(system(command) == 0, same);
}

/* ---- random numbers ----------------------------------------------------------------------------- */

/* The vectors published with Philox: all zeros, all ones, digits of pi. */
static void philox_gives_the_published_vectors(void **state)
{
    (void)state;
    uint64_t half[2];
    mox_random_block(&(mox_stream) { 0, 0 }, 0, half);
    assert_true(half[0] == UINT64_C(0xe169c58d6627e8d5) && half[1] == UINT64_C(0x9b00dbd8bc57ac4c));
    mox_random_block(&(mox_stream) { UINT64_MAX, UINT64_MAX }, UINT64_MAX, half);
    assert_true(half[0] == UINT64_C(0x41c83b0e408f276d) && half[1] == UINT64_C(0x6d5451fda20bc7c6));
    mox_random_block(&(mox_stream) { UINT64_C(0x299f31d0a4093822), UINT64_C(0x0370734413198a2e) },
                     UINT64_C(0x85a308d3243f6a88), half);
    assert_true(half[0] == UINT64_C(0x94fdccebd16cfe09) && half[1] == UINT64_C(0x24126ea15001e420));
}

static void deviates_are_nearly_normal(void **state)
{
    (void)state;
    enum { COUNT = 1 << 20 };
    const mox_stream stream = { 1, 2 };
    int32_t *z = malloc(COUNT * sizeof *z);
    mox_deviates(&stream, 0, COUNT, z);
    double sum = 0, squares = 0, fourth = 0;
    int64_t within_one = 0, within_two = 0;
    for (int i = 0; i < COUNT; i++) {
        const double x = z[i] * MOX_DEVIATE_UNIT;
        assert_true(z[i] >= -MOX_DEVIATE_MAX && z[i] <= MOX_DEVIATE_MAX);
        sum += x;
        squares += x * x;
        fourth += x * x * x * x;
        within_one += fabs(x) < 1;
        within_two += fabs(x) < 2;
    }
    /* Five deviations of each estimate; the shares are the normal distribution's, to a percent. */
    assert_close(sum / COUNT, 0, 5 / sqrt(COUNT));
    assert_close(squares / COUNT, 1, 5 * sqrt(2.0 / COUNT));
    assert_close(fourth / COUNT, 2.8, 0.05); /* six uniform digits: 3 - 1.2 / 6 */
    assert_close((double)within_one / COUNT, 0.6827, 0.01);
    assert_close((double)within_two / COUNT, 0.9545, 0.01);
    free(z);
}

static void any_element_can_be_made_alone(void **state)
{
    (void)state;
    const mox_stream stream = { 3, 4 };
    int32_t all[101], some[101];
    mox_deviates(&stream, 0, 101, all);
    for (int first = 0; first < 20; first++) {
        for (int count = 0; count < 20; count++) {
            some[count] = 12345;
            mox_deviates(&stream, (uint64_t)first, count, some);
            assert_memory_equal(some, all + first, (size_t)count * sizeof *some);
            assert_int_equal(some[count], 12345);
        }
        assert_int_equal(mox_deviate_of(mox_random_bits(&stream, (uint64_t)first)), all[first]);
    }
}

/* ---- the tensors of a layer, read back ---------------------------------------------------------- */

typedef struct layer_check {
    const mox_synth_model *model;
    const mox_tensor_set *set;
    int64_t layer, seen;
    uint64_t bytes;
} layer_check;

static moxie_status check_tensor(void *user, const mox_tensor_spec *spec, moxie_error *error)
{
    (void)error;
    layer_check *c = user;
    const mox_file_tensor *t = mox_tensor_set_find(c->set, spec->name);
    if (!t)
        fail_msg("%s is missing", spec->name);
    assert_int_equal(t->view.dtype, spec->dtype);
    assert_int_equal(t->view.rank, spec->rank);
    for (int32_t i = 0; i < spec->rank; i++)
        assert_int_equal(t->view.shape[i], spec->shape[i]);
    c->seen++;
    c->bytes += t->bytes;
    return MOXIE_OK;
}

/* The directory holds the tensors of the model's layers and no other. */
static void assert_exactly_the_tensors(fixture *f, const mox_synth_model *m, const char *dir)
{
    mox_tensor_set *set;
    assert_ok(mox_tensor_set_open_dir(dir, false, &set, &f->error), &f->error);
    layer_check c = { .model = m, .set = set };
    for (int64_t i = 0; i < m->layers; i++)
        assert_ok(mox_enumerate_layer(m->family, &m->dims, m->routed, m->shared, mox_preset_layer(m->preset, i),
                                      check_tensor, &c, &f->error),
                  &f->error);
    assert_int_equal(mox_tensor_set_count(set), c.seen);
    assert_int_equal(mox_tensor_set_warnings(set), 0);
    assert_int_equal(mox_tensor_set_bytes(set), c.bytes);
    mox_tensor_set_close(set);
}

static void assert_config(fixture *f, const mox_synth_model *m, const char *dir)
{
    char path[700];
    json_t *config;
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_ok(mox_json_load(path, 1 << 24, false, &config, &f->error), &f->error);
    const char *type = json_string_value(json_object_get(config, "model_type"));
    assert_true(type && mox_family_by_model_type(type) == m->family);
    const json_t *section = json_object_get(config, "text_config");
    const json_t *text = section ? section : config;
    assert_int_equal(json_integer_value(json_object_get(text, "hidden_size")), m->dims.hidden);
    assert_int_equal(json_integer_value(json_object_get(text, "num_hidden_layers")), m->dims.layers);
    const json_t *quant = json_object_get(config, "quantization_config");
    quant = quant ? quant : json_object_get(text, "quantization_config");
    assert_int_equal(quant != NULL, m->routed->write_config != NULL);
    if (quant && m->routed->method[0])
        assert_string_equal(json_string_value(json_object_get(quant, "quant_method")), m->routed->method);
    json_decref(config);
}

/* Eight groups need two experts each. */
static int64_t fewest_experts(const mox_preset *p)
{
    return p->dims.n_group > 1 ? 2 * p->dims.n_group : p->dims.top_k;
}

static void every_preset_in_every_format_it_lists(void **state)
{
    fixture *f = *state;
    const mox_preset *p;
    for (int32_t i = 0; (p = mox_preset_at(i)); i++) {
        for (int32_t j = 0; j < 12 && p->formats[j]; j++) {
            /* Four layers where the first ones route by table. */
            const moxie_synth_options o = small(p->formats[j], p->dims.n_hash_layers + 1, fewest_experts(p));
            mox_synth_model m;
            assert_ok(mox_synth_resolve(p->name, &o, &m, &f->error), &f->error);
            write_threads(f, p->name, f->path, &o, 1);
            assert_exactly_the_tensors(f, &m, f->path);
            assert_config(f, &m, f->path);
            remove_dir(f->path);
        }
    }
}

/* Formats that are not a preset's own: each on one model with an expert a tensor and one that stacks its experts. */
static void every_format_on_models_that_were_never_released_in_it(void **state)
{
    fixture *f = *state;
    static const char *const presets[] = { "qwen3-30b-a3b", "llama-4-scout", "gpt-oss-20b", "deepseek-v3" };
    int written = 0;
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        const mox_hf_quant *q;
        for (int32_t j = 0; (q = mox_hf_quant_at(j)); j++) {
            const moxie_synth_options o = small(q->id, 1, fewest_experts(mox_preset_by_name(presets[i])));
            mox_synth_model m;
            assert_ok(mox_synth_resolve(presets[i], &o, &m, &f->error), &f->error);
            const moxie_status status = mox_synth_write(presets[i], f->path, &o, &mox_executor_serial, &f->error);
            if (status == MOXIE_ERR_UNSUPPORTED) {
                assert_int_equal(entries_in(f->dir), 0);
                continue;
            }
            assert_ok(status, &f->error);
            assert_exactly_the_tensors(f, &m, f->path);
            assert_config(f, &m, f->path);
            remove_dir(f->path);
            written++;
        }
    }
    assert_true(written > 100);
}

/* ---- values --------------------------------------------------------------------------------------- */

/* Row r of the stored matrix, as the projection and row that it is; own restatement of the layouts. */
static int logical_row(const mox_tensor_spec *spec, int64_t *r)
{
    switch (spec->kind) {
    case MOX_TENSOR_GATE: return MOX_SOURCE_GATE;
    case MOX_TENSOR_UP: return MOX_SOURCE_UP;
    case MOX_TENSOR_DOWN: return MOX_SOURCE_DOWN;
    case MOX_TENSOR_SHARED_GATE: return MOX_SOURCE_SHARED_GATE;
    case MOX_TENSOR_SHARED_UP: return MOX_SOURCE_SHARED_UP;
    case MOX_TENSOR_SHARED_DOWN: return MOX_SOURCE_SHARED_DOWN;
    default: break;
    }
    assert_int_equal(spec->kind, MOX_TENSOR_GATE_UP);
    if (spec->interleaved) {
        const bool odd = *r % 2;
        *r /= 2;
        return odd ? MOX_SOURCE_UP : MOX_SOURCE_GATE;
    }
    if (*r < spec->rows / 2)
        return MOX_SOURCE_GATE;
    *r -= spec->rows / 2;
    return MOX_SOURCE_UP;
}

static double true_weight(uint64_t seed, int64_t layer, int64_t expert, const mox_tensor_spec *spec, int64_t r,
                          int64_t c)
{
    const int source = logical_row(spec, &r);
    const mox_stream stream = { seed, (uint64_t)layer << 40 | (uint64_t)expert << 8 | (uint64_t)source };
    int32_t z;
    mox_deviates(&stream, (uint64_t)(r * spec->cols + c), 1, &z);
    return 0.02 * z / 23170.465791606348;
}

/* Sums over all weights of a checkpoint's layer, one matrix at a time: its parts come one after the other. */
typedef struct value_check {
    const mox_synth_model *m;
    const mox_tensor_set *set;
    int64_t layer;
    mox_tensor_spec codes;
    moxie_grid parts[MOX_PART_SHAPE + 1]; /* of expert 0 */
    uint64_t one[MOX_PART_SHAPE + 1];     /* bytes of one expert */
    bool open;
    double error2, weight2, weight, count;
} value_check;

static double part_value(const value_check *v, mox_part_role role, int64_t expert, int64_t r, int64_t c)
{
    moxie_grid grid = v->parts[role];
    grid.data = (const char *)grid.data + (uint64_t)expert * v->one[role];
    const double value = mox_grid_value(&grid, r, c);
    if (!isfinite(value))
        fail_msg("%s: role %d of expert %lld is not finite at %lld, %lld", v->codes.name, (int)role, (long long)expert,
                 (long long)r, (long long)c);
    return value;
}

static double stored_weight(const value_check *v, int64_t expert, int64_t r, int64_t c)
{
    const moxie_quant q = mox_hf_quant_weight(v->codes.format, v->codes.cols);
    double w = part_value(v, MOX_PART_CODES, expert, r, c);
    const int64_t gr = r / mox_group_rows(&q, v->codes.rows);
    int64_t gc = c / mox_group_cols(&q, v->codes.cols);
    if (v->parts[MOX_PART_GROUP_INDEX].data) {
        const int32_t index = ((const int32_t *)v->parts[MOX_PART_GROUP_INDEX].data)[c];
        assert_int_equal(index, gc);
        gc = index;
    }
    if (q.has_zero)
        w -= part_value(v, MOX_PART_ZERO, expert, gr, gc) + (double)v->codes.format->zero_add;
    if (q.scale != MOXIE_DTYPE_NONE) {
        const double scale = part_value(v, MOX_PART_SCALE, expert, gr, gc);
        assert_true(scale > 0);
        w *= scale;
    }
    if (q.global == MOXIE_GLOBAL_MULTIPLY)
        w *= part_value(v, MOX_PART_GLOBAL, expert, 0, 0);
    if (q.global == MOXIE_GLOBAL_DIVIDE)
        w /= part_value(v, MOX_PART_GLOBAL, expert, 0, 0);
    return w;
}

static void finish_matrix(value_check *v)
{
    if (!v->open)
        return;
    v->open = false;
    const int64_t experts = v->codes.stacked > 0 ? v->codes.stacked : 1;
    for (int64_t e = 0; e < experts; e += 5) {
        const int64_t expert = v->codes.stacked > 0 ? e : v->codes.expert < 0 ? 0 : v->codes.expert;
        for (int64_t r = 0; r < v->codes.rows; r++) {
            for (int64_t c = 0; c < v->codes.cols; c++) {
                const double want = true_weight(v->m->seed, v->layer, expert, &v->codes, r, c);
                const double got = stored_weight(v, e, r, c);
                v->error2 += (got - want) * (got - want);
                v->weight2 += got * got;
                v->weight += got;
                v->count++;
            }
        }
    }
    memset(v->parts, 0, sizeof v->parts);
}

static moxie_status gather_part(void *user, const mox_tensor_spec *spec, moxie_error *error)
{
    value_check *v = user;
    if (!spec->part || spec->part->role == MOX_PART_CODES)
        finish_matrix(v);
    /* A fifth of the experts will do. */
    if (!spec->part || spec->expert % 5 > 0)
        return MOXIE_OK;
    const mox_file_tensor *t = mox_tensor_set_find(v->set, spec->name);
    assert_non_null(t);
    MOX_TRY(mox_spec_grid(spec, t->view.data, 0, &v->parts[spec->part->role], error));
    v->one[spec->part->role] = t->bytes / (uint64_t)(spec->stacked > 0 ? spec->stacked : 1);
    if (spec->part->role == MOX_PART_CODES) {
        v->codes = *spec;
        v->open = true;
    }
    return MOXIE_OK;
}

static double relative_error(fixture *f, const char *preset, const char *format)
{
    moxie_synth_options o = small(format, 1, fewest_experts(mox_preset_by_name(preset)));
    o.hidden = o.intermediate = 256;
    mox_synth_model m;
    mox_tensor_set *set;
    assert_ok(mox_synth_resolve(preset, &o, &m, &f->error), &f->error);
    write_threads(f, preset, f->path, &o, 2);
    assert_ok(mox_tensor_set_open_dir(f->path, false, &set, &f->error), &f->error);
    value_check v = { .m = &m, .set = set, .layer = mox_preset_layer(m.preset, 0) };
    assert_ok(mox_enumerate_layer(m.family, &m.dims, m.routed, m.shared, v.layer, gather_part, &v, &f->error),
              &f->error);
    finish_matrix(&v);
    mox_tensor_set_close(set);
    remove_dir(f->path);
    assert_true(v.count >= 196608);
    /* N(0, 0.02): five deviations of the estimates, and what quantization adds or takes. */
    assert_close(v.weight / v.count, 0, 5 * 0.02 / sqrt(v.count));
    assert_close(sqrt(v.weight2 / v.count), 0.02, 0.02 * 0.03);
    return sqrt(v.error2 / v.count) / 0.02;
}

/* Rounding to nearest in steps of a makes an error of a / sqrt(12). What that is of the weights' deviation:
 *   integers, symmetric: a = amax / 7 (127), amax about 2.1 deviations in a group of 32, 2.6 of 128, 3 of 256 or more
 *   floats: relative steps of 2^-m, of which 0.4 to 0.6 of the largest on average */
static const struct {
    const char *element_of; /* a format with this error */
    double low, high;
} expected_errors[] = {
    { "bf16", 0.0010, 0.0020 },
    { "f16", 0.0001, 0.0003 },
    { "f32", 0, 1e-7 },
    { "fp8-block", 0.02, 0.03 },
    { "fp8-block-bf16", 0.02, 0.03 },
    { "fp8-block-e8m0", 0.02, 0.03 },
    { "fp8-block-inv-e8m0", 0.02, 0.03 },
    { "mxfp8", 0.02, 0.03 },
    { "mxfp8-m3", 0.02, 0.03 },
    { "fp8-modelopt", 0.02, 0.03 },
    { "fp8-tensor", 0.02, 0.03 },
    { "fp8-tensor-dynamic", 0.02, 0.03 },
    { "fp8-channel-modelopt", 0.02, 0.03 },
    { "fp8-channel", 0.02, 0.03 },
    { "fp8-block-ct", 0.02, 0.03 },
    { "mxfp4-v4", 0.10, 0.14 },
    { "mxfp4-quark", 0.10, 0.14 },
    { "mxfp4-ct", 0.10, 0.14 },
    { "mxfp6-quark-e3m2", 0.04, 0.06 },
    { "mxfp6-quark-e2m3", 0.02, 0.035 },
    { "nvfp4-modelopt", 0.08, 0.11 },
    { "nvfp4-modelopt-w4a16", 0.08, 0.11 },
    { "nvfp4-ct", 0.08, 0.11 },
    { "nvfp4-ct-w4a16", 0.08, 0.11 },
    { "int4-ct-asym", 0.08, 0.12 },
    { "int4-ct-g32", 0.07, 0.10 },
    { "int4-ct", 0.09, 0.13 },
    { "int8-ct-w8a16", 0.005, 0.0075 },
    { "int8-modelslim", 0.005, 0.008 },
    { "int8-w8a8", 0.006, 0.008 },
    { "w4afp8", 0.09, 0.13 },
    { "w4afp8-dynamic", 0.09, 0.13 },
    { "int4-modelopt", 0.09, 0.13 },
    { "awq", 0.08, 0.12 },
    { "gptq", 0.08, 0.12 },
    { "gptq-v2", 0.08, 0.12 },
    { "gptq-int8", 0.005, 0.0075 },
    { "gptq-int8-v2", 0.005, 0.0075 },
    { "int4-quark", 0.08, 0.12 },
};

static void assert_error_of(fixture *f, const char *preset, const char *format, double low, double high)
{
    const double error = relative_error(f, preset, format);
    if (test_env("MOXIE_TEST_VERBOSE", 0))
        print_message("%s in %s: relative error %.5f\n", preset, format, error);
    if (error < low || error > high)
        fail_msg("%s in %s: relative error %.5f is not from %g to %g", preset, format, error, low, high);
}

static void weights_come_back_with_the_format_s_error(void **state)
{
    fixture *f = *state;
    const size_t count = sizeof expected_errors / sizeof expected_errors[0];
    for (size_t i = 0; i < count; i++)
        assert_error_of(f, "qwen3-30b-a3b", expected_errors[i].element_of, expected_errors[i].low,
                        expected_errors[i].high);
    /* Every row but the one that only stacks is in the list. */
    int32_t rows = 0;
    while (mox_hf_quant_at(rows))
        rows++;
    assert_int_equal(rows, (int)count + 1);
}

/* One number for one logical weight, whatever tensor it is in. */
static void stacked_and_interleaved_tensors_hold_the_same_weights(void **state)
{
    fixture *f = *state;
    assert_error_of(f, "gpt-oss-20b", "mxfp4-gptoss", 0.10, 0.14);
    assert_error_of(f, "gpt-oss-20b", "bf16", 0.001, 0.002);
    assert_error_of(f, "gpt-oss-20b", "nvfp4-modelopt", 0.08, 0.11);
    assert_error_of(f, "llama-4-scout", "bf16", 0.001, 0.002);
    assert_error_of(f, "qwen3.5-35b-a3b", "bf16", 0.001, 0.002);
    assert_error_of(f, "qwen3.5-35b-a3b", "nvfp4-ct", 0.08, 0.11);
    assert_error_of(f, "dbrx", "bf16", 0.001, 0.002);
    assert_error_of(f, "granite-3.1-1b-a400m", "bf16", 0.001, 0.002);
    assert_error_of(f, "step-3.7-flash", "fp8-block", 0.02, 0.03);
    assert_error_of(f, "deepseek-v3", "fp8-block", 0.02, 0.03);
}

/* ---- plain tensors ------------------------------------------------------------------------------ */

static const mox_file_tensor *find(const mox_tensor_set *set, const char *name)
{
    const mox_file_tensor *t = mox_tensor_set_find(set, name);
    if (!t)
        fail_msg("%s is missing", name);
    return t;
}

static void moments(const mox_file_tensor *t, double *mean, double *deviation)
{
    const int64_t count = (int64_t)t->bytes / mox_dtype_bytes(t->view.dtype);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < count; i++) {
        const float x = mox_load(t->view.dtype, (const char *)t->view.data + i * mox_dtype_bytes(t->view.dtype));
        assert_true(isfinite(x));
        sum += (double)x;
        squares += (double)x * (double)x;
    }
    *mean = sum / (double)count;
    *deviation = sqrt(squares / (double)count - *mean * *mean);
}

static void routers_give_logits_of_unit_variance(void **state)
{
    fixture *f = *state;
    moxie_synth_options o = small(NULL, 1, 0);
    o.hidden = 256;
    o.intermediate = 32;
    write_threads(f, "deepseek-v3", f->path, &o, 2);
    mox_tensor_set *set;
    double mean, deviation;
    assert_ok(mox_tensor_set_open_dir(f->path, false, &set, &f->error), &f->error);
    /* For x of unit variance, sum over 256 columns of w x has variance 256 var(w). */
    moments(find(set, "model.layers.3.mlp.gate.weight"), &mean, &deviation);
    assert_close(deviation * sqrt(256), 1, 0.05);
    moments(find(set, "model.layers.3.mlp.gate.e_score_correction_bias"), &mean, &deviation);
    assert_close(mean, 0, 0.03);
    assert_close(deviation, 0.1, 0.02);
    mox_tensor_set_close(set);
}

static void tables_hold_distinct_experts(void **state)
{
    fixture *f = *state;
    moxie_synth_options o = small(NULL, 1, 16);
    write_threads(f, "deepseek-v4-flash", f->path, &o, 2);
    mox_tensor_set *set;
    assert_ok(mox_tensor_set_open_dir(f->path, false, &set, &f->error), &f->error);
    const mox_file_tensor *t = find(set, "layers.0.ffn.gate.tid2eid");
    assert_int_equal(t->view.shape[0], 129280);
    assert_int_equal(t->view.shape[1], 6);
    int64_t used[16] = { 0 };
    for (int64_t token = 0; token < 129280; token++) {
        int64_t ids[6];
        memcpy(ids, (const char *)t->view.data + token * 48, sizeof ids);
        for (int j = 0; j < 6; j++) {
            assert_true(ids[j] >= 0 && ids[j] < 16);
            for (int k = 0; k < j; k++)
                assert_true(ids[k] != ids[j]);
            used[ids[j]]++;
        }
    }
    /* Each of 16 has its share of 6 * 129280 within five deviations. */
    for (int e = 0; e < 16; e++)
        assert_close((double)used[e], 129280 * 6 / 16.0, 5 * sqrt(129280 * 0.375 * 0.625));
    mox_tensor_set_close(set);
}

/* ---- determinism ---------------------------------------------------------------------------------- */

static void bytes_do_not_depend_on_threads(void **state)
{
    fixture *f = *state;
    static const char *const cases[][2] = {
        { "gpt-oss-20b", "mxfp4-gptoss" }, { "gpt-oss-20b", "bf16" },       { "qwen3-30b-a3b", "awq" },
        { "qwen3-30b-a3b", "gptq" },       { "deepseek-v3", "fp8-block" },  { "mixtral-8x7b", "fp8-tensor" },
        { "llama-4-scout", "bf16" },       { "glm-4.7", "nvfp4-modelopt" }, { "kimi-k3", "mxfp4-ct" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const mox_preset *p = mox_preset_by_name(cases[i][0]);
        const moxie_synth_options o = small(cases[i][1], 1, fewest_experts(p));
        write_threads(f, p->name, f->path, &o, 1);
        for (int32_t threads = 2; threads <= 5; threads += 3) {
            write_threads(f, p->name, f->path2, &o, threads);
            assert_same_directory(f->path, f->path2, true);
            remove_dir(f->path2);
        }
        remove_dir(f->path);
    }
}

static void another_seed_makes_other_bytes(void **state)
{
    fixture *f = *state;
    moxie_synth_options o = small(NULL, 1, 16);
    write_threads(f, "gpt-oss-20b", f->path, &o, 1);
    o.seed = 8;
    write_threads(f, "gpt-oss-20b", f->path2, &o, 1);
    assert_same_directory(f->path, f->path2, false);
}

/* Bytes of every tensor that both have are the same, up to the shorter one's length for stacks. */
static void assert_common_tensors_equal(fixture *f, const char *small_dir, const char *large_dir, int64_t least)
{
    mox_tensor_set *a, *b;
    int64_t common = 0;
    assert_ok(mox_tensor_set_open_dir(small_dir, false, &a, &f->error), &f->error);
    assert_ok(mox_tensor_set_open_dir(large_dir, false, &b, &f->error), &f->error);
    for (int64_t i = 0; i < mox_tensor_set_count(a); i++) {
        const mox_file_tensor *t = mox_tensor_set_at(a, i);
        const mox_file_tensor *u = find(b, t->name);
        assert_true(t->bytes <= u->bytes);
        assert_memory_equal(t->view.data, u->view.data, t->bytes);
        common++;
    }
    assert_true(common >= least);
    mox_tensor_set_close(a);
    mox_tensor_set_close(b);
}

static void fewer_experts_or_layers_keep_the_rest(void **state)
{
    fixture *f = *state;
    static const char *const presets[] = { "gpt-oss-20b", "qwen3-30b-a3b", "deepseek-v3", "llama-4-scout" };
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        moxie_synth_options o = small(NULL, 1, 0);
        o.experts = 16;
        write_threads(f, presets[i], f->path, &o, 2);
        o.layers = 2;
        o.experts = mox_preset_by_name(presets[i])->dims.experts > 32 ? 32 : 0;
        write_threads(f, presets[i], f->path2, &o, 2);
        assert_common_tensors_equal(f, f->path, f->path2, 3);
        remove_dir(f->path);
        remove_dir(f->path2);
    }
}

/* ---- directories ---------------------------------------------------------------------------------- */

static void shards_are_cut_and_indexed(void **state)
{
    fixture *f = *state;
    moxie_synth_options o = small(NULL, 2, 16);
    mox_synth_model m;
    assert_ok(mox_synth_resolve("qwen3-30b-a3b", &o, &m, &f->error), &f->error);
    write_threads(f, "qwen3-30b-a3b", f->path, &o, 1);
    assert_int_equal(entries_in(f->path), 2);
    o.shard_bytes = 250000;
    write_threads(f, "qwen3-30b-a3b", f->path2, &o, 1);
    /* 96 matrices of 49,152 bytes, five to a file, and two routers of 4,096. */
    assert_int_equal(entries_in(f->path2), 2 + 20);
    assert_exactly_the_tensors(f, &m, f->path2);
    assert_common_tensors_equal(f, f->path, f->path2, 98);
    json_t *index;
    char path[700];
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", f->path2);
    assert_ok(mox_json_load(path, 1 << 24, false, &index, &f->error), &f->error);
    const json_t *map = json_object_get(index, "weight_map");
    assert_int_equal(json_object_size(map), 98);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size")),
                     96 * 49152 + 2 * 4096);
    assert_string_equal(json_string_value(json_object_get(map, "model.layers.0.mlp.gate.weight")),
                        "model-00001-of-00020.safetensors");
    assert_string_equal(json_string_value(json_object_get(map, "model.layers.1.mlp.experts.15.down_proj.weight")),
                        "model-00020-of-00020.safetensors");
    json_decref(index);
}

static void only_an_empty_directory_is_taken(void **state)
{
    fixture *f = *state;
    const moxie_synth_options o = small(NULL, 1, 16);
    assert_int_equal(mkdir(f->path, 0777), 0);
    write_threads(f, "gpt-oss-20b", f->path, &o, 1);
    assert_int_equal(entries_in(f->path), 2);
    /* Now it is not empty, and stays as it is. */
    assert_int_equal(mox_synth_write("gpt-oss-20b", f->path, &o, &mox_executor_serial, &f->error), MOXIE_ERR_IO);
    assert_non_null(strstr(f->error.text, "not empty"));
    assert_int_equal(entries_in(f->path), 2);
    assert_int_equal(entries_in(f->dir), 1);
    char slashes[700], nowhere[700];
    snprintf(slashes, sizeof slashes, "%s//", f->path2);
    write_threads(f, "gpt-oss-20b", slashes, &o, 1);
    assert_same_directory(f->path, f->path2, true);
    snprintf(nowhere, sizeof nowhere, "%s/no/such", f->dir);
    assert_int_equal(mox_synth_write("gpt-oss-20b", nowhere, &o, &mox_executor_serial, &f->error), MOXIE_ERR_IO);
    assert_int_equal(entries_in(f->dir), 2);
}

typedef struct meter {
    uint64_t last, total, cancel_at;
    int calls;
} meter;

static int watch(void *user, uint64_t done, uint64_t total)
{
    meter *m = user;
    assert_true(done > m->last && done <= total);
    m->last = done;
    m->total = total;
    m->calls++;
    return m->cancel_at > 0 && done >= m->cancel_at;
}

static void progress_counts_bytes_and_cancels(void **state)
{
    fixture *f = *state;
    meter m = { 0 };
    moxie_synth_options o = small(NULL, 2, 16);
    o.progress = watch;
    o.progress_user = &m;
    assert_ok(moxie_synth_write("qwen3-30b-a3b", f->path, &o, &f->error), &f->error);
    assert_int_equal(m.last, m.total);
    assert_int_equal(m.total, 96 * 49152 + 2 * 4096);
    remove_dir(f->path);
    for (uint64_t at = 1; at < m.total; at += 1000001) {
        meter cancel = { .cancel_at = at };
        o.progress_user = &cancel;
        assert_int_equal(moxie_synth_write("qwen3-30b-a3b", f->path, &o, &f->error), MOXIE_ERR_TIMEOUT);
        assert_int_equal(entries_in(f->dir), 0);
    }
}

static void a_disk_without_room_is_told_first(void **state)
{
    fixture *f = *state;
    /* A model of 3 PB: no machine that runs this test has them. */
    moxie_synth_options o = MOXIE_SYNTH_OPTIONS_INIT;
    o.hidden = o.intermediate = 1 << 20;
    assert_int_equal(moxie_synth_write("kimi-k2", f->path, &o, &f->error), MOXIE_ERR_IO);
    assert_non_null(strstr(f->error.text, "file system has"));
    assert_int_equal(entries_in(f->dir), 0);
}

static void a_failed_allocation_leaves_nothing(void **state)
{
    fixture *f = *state;
    moxie_synth_options o = small("nvfp4-modelopt", 1, 16);
    o.hidden = o.intermediate = 32;
    o.shard_bytes = 20000;
    for (uint64_t n = 1;; n++) {
        mox_alloc_fail_at(n);
        const uint64_t before = mox_alloc_count();
        const moxie_status status = mox_synth_write("qwen3-next-80b", f->path, &o, &mox_executor_serial, &f->error);
        const uint64_t after = mox_alloc_count();
        mox_alloc_fail_at(0);
        if (status == MOXIE_OK) {
            assert_true(after - before < n);
            break;
        }
        assert_int_equal(status, MOXIE_ERR_MEMORY);
        assert_int_equal(entries_in(f->dir), 0);
    }
    assert_int_equal(entries_in(f->dir), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_vectors),
        cmocka_unit_test(deviates_are_nearly_normal),
        cmocka_unit_test(any_element_can_be_made_alone),
        cmocka_unit_test_setup_teardown(every_preset_in_every_format_it_lists, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_format_on_models_that_were_never_released_in_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(weights_come_back_with_the_format_s_error, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stacked_and_interleaved_tensors_hold_the_same_weights, set_up, tear_down),
        cmocka_unit_test_setup_teardown(routers_give_logits_of_unit_variance, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tables_hold_distinct_experts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bytes_do_not_depend_on_threads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_seed_makes_other_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(fewer_experts_or_layers_keep_the_rest, set_up, tear_down),
        cmocka_unit_test_setup_teardown(shards_are_cut_and_indexed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_an_empty_directory_is_taken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(progress_counts_bytes_and_cancels, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_disk_without_room_is_told_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_failed_allocation_leaves_nothing, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
