/* SPDX-License-Identifier: Apache-2.0
 *
 * test_synth_values.c - the numbers in synthetic checkpoints: weights that dequantize to what was quantized, with the
 * error that the format implies, in every format and every way of stacking; routers, biases and tables.
 *
 * The unquantized weights are made again here from the definition in random.h and synth.h, element by element:
 *     w(layer, expert, projection, row, column) = 0.02 z / 23170.4658,  z the deviate of element row * columns + column
 */
#include "synth_fixture.h"

#include <math.h>

/* ---- values --------------------------------------------------------------------------------------- */

/* Row r of the stored matrix as the projection and row that it is; an independent statement of the layouts. */
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
    if (spec->kind == MOX_TENSOR_SHARED_GATE_UP) {
        const bool up = *r >= spec->rows / 2;
        *r -= up ? spec->rows / 2 : 0;
        return up ? MOX_SOURCE_SHARED_UP : MOX_SOURCE_SHARED_GATE;
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

/* Sums over all weights of a layer, one matrix at a time: the parts of a matrix follow each other. */
typedef struct value_check {
    const mox_synth_model *m;
    const mox_tensor_set *set;
    int64_t layer;
    mox_tensor_spec codes;
    moxie_grid parts[MOX_PART_SHAPE + 1]; /* of expert 0 */
    uint64_t one[MOX_PART_SHAPE + 1];     /* bytes of one expert */
    bool open;
    double error2, weight2, weight, count;
    int64_t every; /* expert, out of how many */
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
    for (int64_t e = 0; e < experts; e += 3) {
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
    /* A fifth of the experts is enough. */
    if (!spec->part || spec->expert % v->every > 0)
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

static int64_t fewer = 1;

static double relative_error(fixture *f, const char *preset, const char *format)
{
    const int64_t fewest = fewest_experts(mox_preset_by_name(preset));
    moxie_synth_options o = small(format, 1, fewest < 4 ? 4 : fewest);
    o.hidden = o.intermediate = 256;
    mox_synth_model m;
    mox_tensor_set *set;
    assert_ok(mox_synth_resolve(preset, &o, &m, &f->error), &f->error);
    write_threads(f, preset, f->path, &o, 2);
    assert_ok(mox_tensor_set_open_dir(f->path, false, &set, &f->error), &f->error);
    value_check v = { .m = &m, .set = set, .layer = mox_preset_layer(m.preset, 0), .every = 5 * fewer };
    assert_ok(mox_enumerate_layer(m.family, &m.dims, m.routed, m.shared, v.layer, gather_part, &v, &f->error),
              &f->error);
    finish_matrix(&v);
    mox_tensor_set_close(set);
    remove_dir(f->path);
    assert_true(v.count >= 196608);
    /* N(0, 0.02): five standard deviations of the estimates, plus the effect of quantization. */
    assert_close(v.weight / v.count, 0, 5 * 0.02 / sqrt(v.count));
    /* Codes of 2 and 3 bits are so coarse that the deviation of their values is another. */
    if (!m.routed->note)
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
    { "mxfp4-v4-block32", 0.10, 0.14 },
    { "mxfp4-quark-fp8", 0.10, 0.14 },
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
    { "fp8-block32-e8m0", 0.02, 0.03 },
    { "fp8-block-modelopt", 0.02, 0.03 },
    { "mxfp6-ct", 0.02, 0.035 },
    { "int4-ct-tensor", 0.13, 0.21 },
    { "int8-ct-asym", 0.004, 0.0075 },
    { "int7-ct-asym", 0.0095, 0.0145 },
    { "int7-ct", 0.0095, 0.0145 },
    { "int6-ct-asym", 0.019, 0.029 },
    { "int6-ct", 0.019, 0.029 },
    { "int5-ct-asym", 0.04, 0.06 },
    { "int5-ct", 0.04, 0.06 },
    { "int3-ct-asym", 0.17, 0.25 },
    { "int3-ct", 0.20, 0.28 },
    { "int2-ct", 0.55, 0.85 },
    { "int8-w8a8-asym", 0.004, 0.0075 },
    { "int8-tensor", 0.007, 0.012 },
    { "int8-w8a8-group", 0.004, 0.0065 },
    { "int8-afp8", 0.006, 0.008 },
    { "int8-afp8-group", 0.004, 0.0065 },
    { "gptq-int2", 0.40, 0.60 },
    { "gptq-int2-v2", 0.40, 0.60 },
    { "gptq-int3", 0.17, 0.25 },
    { "gptq-int3-v2", 0.17, 0.25 },
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
    const size_t step = (size_t)test_one_in(4, "formats");
    for (size_t i = 0; i < count; i += step)
        assert_error_of(f, "qwen3-30b-a3b", expected_errors[i].element_of, expected_errors[i].low,
                        expected_errors[i].high);
    /* Every format except the one that only stacks is in the list. */
    int32_t rows = 0;
    while (mox_hf_quant_at(rows))
        rows++;
    assert_int_equal(rows, (int)count + 1);
}

/* A logical weight is the same number in every tensor that stores it. */
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
    /* Each of 16 experts is chosen 6 * 129280 / 16 times, within five standard deviations. */
    for (int e = 0; e < 16; e++)
        assert_close((double)used[e], 129280 * 6 / 16.0, 5 * sqrt(129280 * 0.375 * 0.625));
    mox_tensor_set_close(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(weights_come_back_with_the_format_s_error, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stacked_and_interleaved_tensors_hold_the_same_weights, set_up, tear_down),
        cmocka_unit_test_setup_teardown(routers_give_logits_of_unit_variance, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tables_hold_distinct_experts, set_up, tear_down),
    };
    fewer = test_one_in(2, "experts");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
