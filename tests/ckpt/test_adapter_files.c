/* SPDX-License-Identifier: Apache-2.0
 *
 * test_adapter_files.c - adapters in files: what peft saved and computed (tests/golden/peft-*.safetensors), the same
 * factors under other engines' names, and what is refused.
 *
 *     golden file -> a model directory and an adapter directory -> the reader -> a run -> peft's own output
 */
#include <math.h>
#include <sys/stat.h>

#include <moxie/moxie_adapters.h>

#include "test_support.h"

enum { MAX_TENSORS = 64 };

typedef struct fixture {
    moxie_tensor_file *golden;
    char *dir, *adapter;
} fixture;

static void write_text(const char *dir, const char *name, const char *text)
{
    char path[700];
    moxie_error error = { 0 };
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_ok(moxie_file_write(path, text, strlen(text), &error), &error);
}

/* Writes the golden tensors with this prefix as a file, without it. */
static void write_tensors(const fixture *f, const char *prefix, const char *dir, const char *name)
{
    moxie_named_tensor tensors[MAX_TENSORS];
    int64_t count = 0;
    char path[700];
    moxie_error error = { 0 };
    memset(tensors, 0, sizeof tensors);
    for (int64_t i = 0; i < moxie_tensor_file_count(f->golden); i++) {
        const char *full;
        moxie_tensor t;
        assert_int_equal(moxie_tensor_file_at(f->golden, i, &full, &t), MOXIE_OK);
        if (strncmp(full, prefix, strlen(prefix)) != 0)
            continue;
        assert_true(count < MAX_TENSORS);
        tensors[count].name = full + strlen(prefix);
        tensors[count++].tensor = t;
    }
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_ok(moxie_tensor_file_write(path, tensors, count, NULL, 0, &error), &error);
}

static void open_golden(fixture *f, const char *name)
{
    char path[200];
    moxie_error error = { 0 };
    snprintf(path, sizeof path, "tests/golden/%s.safetensors", name);
    assert_ok(moxie_tensor_file_open(path, 0, &f->golden, &error), &error);
    f->dir = test_tmpdir();
    f->adapter = malloc(strlen(f->dir) + sizeof "/adapter");
    sprintf(f->adapter, "%s/adapter", f->dir);
    assert_int_equal(mkdir(f->adapter, 0700), 0);
    write_text(f->dir, "config.json", moxie_tensor_file_metadata(f->golden, "config"));
    write_tensors(f, "model/", f->dir, "model.safetensors");
    write_text(f->adapter, "adapter_config.json", moxie_tensor_file_metadata(f->golden, "adapter_config"));
    write_tensors(f, "adapter/", f->adapter, "adapter_model.safetensors");
}

static void close_golden(fixture *f)
{
    moxie_tensor_file_close(f->golden);
    test_rmdir(f->adapter); /* frees the path, too */
    test_rmdir(f->dir);
}

static moxie_tensor golden(const fixture *f, const char *name)
{
    moxie_tensor t;
    moxie_error error = { 0 };
    assert_ok(moxie_tensor_file_find(f->golden, name, &t, &error), &error);
    return t;
}

/* ---- a run ------------------------------------------------------------------------------------------------- */

/* Layer 0 of the directory on the golden hidden states, with the adapter for tokens whose id is 0. */
static float *run(const fixture *f, int32_t backend, const int32_t *ids)
{
    moxie_error error = { 0 };
    moxie_model *model = NULL;
    moxie_model_layer *loaded = NULL;
    moxie_layer *layer = NULL;
    moxie_plan *plan = NULL;
    moxie_adapters *adapters = NULL;
    moxie_adapter_files *files = NULL;
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_run_args args = MOXIE_RUN_ARGS_INIT;
    moxie_lora lora = MOXIE_LORA_INIT;
    const moxie_tensor x = golden(f, "hidden_states");
    options.backend = backend, options.max_tokens = x.shape[0], options.max_adapter_rank = 4;
    assert_ok(moxie_model_open(f->dir, NULL, &model, &error), &error);
    assert_ok(moxie_model_load_layer(model, 0, &loaded, &error), &error);
    moxie_layer_config config = *moxie_model_layer_config(loaded);
    config.dtype = MOXIE_F32;
    assert_ok(moxie_layer_create(&config, &options, &layer, &error), &error);
    assert_ok(moxie_layer_prepare(layer, moxie_model_layer_weights(loaded), NULL, &error), &error);
    assert_ok(moxie_plan_create(layer, &options, &plan, &error), &error);
    assert_ok(moxie_adapter_files_open(f->adapter, &files, &error), &error);
    assert_ok(moxie_adapter_files_load(files, model, loaded, 0, &lora, &error), &error);
    assert_ok(moxie_adapters_create(layer, 1, &adapters, &error), &error);
    assert_ok(moxie_adapters_set(adapters, 0, &lora, &error), &error);
    float *output = malloc((size_t)(x.shape[0] * x.shape[1]) * sizeof *output);
    args.tokens = x.shape[0], args.hidden = x.data, args.output = output;
    args.adapters = adapters, args.adapter_ids = ids;
    args.workspace_bytes = moxie_plan_workspace_bytes(plan);
    args.workspace = aligned_alloc(64, args.workspace_bytes);
    assert_ok(moxie_plan_run(plan, &args, &error), &error);
    free(args.workspace);
    moxie_adapters_destroy(adapters);
    moxie_adapter_files_close(files);
    moxie_plan_destroy(plan);
    moxie_layer_destroy(layer);
    moxie_model_layer_free(loaded);
    moxie_model_close(model);
    return output;
}

static void compare(const fixture *f, int32_t backend)
{
    const moxie_tensor with = golden(f, "output.with"), without = golden(f, "output.without");
    int32_t ids[64];
    for (int64_t t = 0; t < with.shape[0]; t++)
        ids[t] = t % 3 == 1 ? -1 : 0;
    float *got = run(f, backend, ids);
    for (int64_t t = 0; t < with.shape[0]; t++) {
        const float *want = (const float *)(ids[t] == 0 ? with.data : without.data) + t * with.shape[1];
        double largest = 0;
        for (int64_t n = 0; n < with.shape[1]; n++)
            largest = fabs((double)want[n]) > largest ? fabs((double)want[n]) : largest;
        for (int64_t n = 0; n < with.shape[1]; n++) /* both round sums in fp32: far below bf16's 2^-8 */
            if (!(fabs((double)(got[t * with.shape[1] + n] - want[n])) <= 1e-5 * largest))
                fail_msg("token %lld column %lld: %.9g, peft has %.9g", (long long)t, (long long)n,
                         (double)got[t * with.shape[1] + n], (double)want[n]);
    }
    free(got);
}

static void peft(void **state)
{
    static const char *const names[] = { "peft-qwen3-moe", "peft-mixtral" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        fixture f;
        open_golden(&f, names[i]);
        compare(&f, MOXIE_BACKEND_REF);
        compare(&f, MOXIE_BACKEND_CPU);
        close_golden(&f);
    }
}

/* ---- other names ------------------------------------------------------------------------------------------- */

#define EXPERTS "base_model.model.model.layers.0.mlp.experts."

/* Factors of all experts as [E, rows, cols] in one array. */
typedef struct stack {
    float *data;
    int64_t rows, cols;
} stack;

/* PEFT's A: expert after expert. */
static stack stack_a(const fixture *f, const char *name, int64_t experts)
{
    const moxie_tensor t = golden(f, name);
    const size_t bytes = (size_t)(t.shape[0] * t.shape[1]) * sizeof(float);
    stack s = { malloc(bytes), t.shape[0] / experts, t.shape[1] };
    memcpy(s.data, t.data, bytes);
    return s;
}

/* Rows [first, first + rows) of PEFT's B, whose columns are rank after rank with the experts inside. */
static stack stack_b(const fixture *f, const char *name, int64_t experts, int64_t first, int64_t rows)
{
    const moxie_tensor t = golden(f, name);
    const int64_t rank = t.shape[1] / experts;
    stack s = { malloc((size_t)(experts * rows * rank) * sizeof(float)), rows, rank };
    for (int64_t e = 0; e < experts; e++)
        for (int64_t n = 0; n < rows; n++)
            for (int64_t i = 0; i < rank; i++)
                s.data[(e * rows + n) * rank + i] = ((const float *)t.data)[(first + n) * t.shape[1] + i * experts + e];
    return s;
}

enum { E = 4, N_STACKS = 6 };

/* A and B of gate, up and down. */
static void make_stacks(const fixture *f, stack out[N_STACKS])
{
    const int64_t half = golden(f, "adapter/" EXPERTS "base_layer.lora_B.weight").shape[0] / 2;
    out[0] = stack_a(f, "adapter/" EXPERTS "base_layer.lora_A.weight", E);
    out[1] = stack_b(f, "adapter/" EXPERTS "base_layer.lora_B.weight", E, 0, half);
    out[2] = stack_a(f, "adapter/" EXPERTS "base_layer.lora_A.weight", E);
    out[3] = stack_b(f, "adapter/" EXPERTS "base_layer.lora_B.weight", E, half, half);
    out[4] = stack_a(f, "adapter/" EXPERTS "lora_A.weight", E);
    out[5] =
        stack_b(f, "adapter/" EXPERTS "lora_B.weight", E, 0, golden(f, "adapter/" EXPERTS "lora_B.weight").shape[0]);
}

static void write_adapter(const fixture *f, const moxie_named_tensor *tensors, int64_t count)
{
    char path[700];
    moxie_error error = { 0 };
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", f->adapter);
    assert_ok(moxie_tensor_file_write(path, tensors, count, NULL, 0, &error), &error);
}

static void names(void **state)
{
    static const char *const stacked[] = {
        "w1.lora_A", "w1.lora_B", "w3.lora_A", "w3.lora_B", "w2.lora_A", "w2.lora_B"
    };
    static const char *const single[] = { "gate_proj.lora_A", "gate_proj.lora_B", "up_proj.lora_A",
                                          "up_proj.lora_B",   "down_proj.lora_A", "down_proj.lora_B" };
    (void)state;
    fixture f;
    stack s[N_STACKS];
    moxie_named_tensor tensors[N_STACKS * E];
    static char text[N_STACKS * E][120];
    open_golden(&f, "peft-qwen3-moe");
    make_stacks(&f, s);
    memset(tensors, 0, sizeof tensors);
    for (int i = 0; i < N_STACKS; i++) {
        snprintf(text[i], sizeof text[i], EXPERTS "%s.weight", stacked[i]);
        tensors[i] = (moxie_named_tensor) {
            text[i], { .data = s[i].data, .dtype = MOXIE_F32, .rank = 3, .shape = { E, s[i].rows, s[i].cols } }, { 0 }
        };
    }
    write_adapter(&f, tensors, N_STACKS);
    compare(&f, MOXIE_BACKEND_CPU);
    for (int i = 0; i < N_STACKS * E; i++) {
        const stack *one = &s[i / E];
        snprintf(text[i], sizeof text[i], EXPERTS "%d.%s.weight", i % E, single[i / E]);
        tensors[i] = (moxie_named_tensor) { text[i],
                                            { .data = one->data + i % E * one->rows * one->cols,
                                              .dtype = MOXIE_F32,
                                              .rank = 2,
                                              .shape = { one->rows, one->cols } },
                                            { 0 } };
    }
    write_adapter(&f, tensors, N_STACKS * E);
    compare(&f, MOXIE_BACKEND_CPU);
    for (int i = 0; i < N_STACKS; i++)
        free(s[i].data);
    close_golden(&f);
}

/* ---- what is refused --------------------------------------------------------------------------------------- */

static void refuse_config(const fixture *f, const char *text, moxie_status status, const char *word)
{
    moxie_error error = { 0 };
    moxie_adapter_files *files = NULL;
    write_text(f->adapter, "adapter_config.json", text);
    assert_int_equal(moxie_adapter_files_open(f->adapter, &files, &error), status);
    if (strstr(error.text, word) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", error.text, word);
}

static void refuse_name(const fixture *f, const char *name, moxie_status status, const char *word)
{
    static float zeros[64 * 64];
    moxie_error error = { 0 };
    moxie_adapter_files *files = NULL;
    moxie_model *model = NULL;
    moxie_model_layer *loaded = NULL;
    moxie_lora lora = MOXIE_LORA_INIT;
    const moxie_named_tensor t = { name, { .data = zeros, .dtype = MOXIE_F32, .rank = 2, .shape = { 3, 32 } }, { 0 } };
    write_adapter(f, &t, 1);
    assert_ok(moxie_model_open(f->dir, NULL, &model, &error), &error);
    assert_ok(moxie_model_load_layer(model, 0, &loaded, &error), &error);
    assert_ok(moxie_adapter_files_open(f->adapter, &files, &error), &error);
    assert_int_equal(moxie_adapter_files_load(files, model, loaded, 0, &lora, &error), status);
    if (strstr(error.text, word) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", error.text, word);
    moxie_adapter_files_close(files);
    moxie_model_layer_free(loaded);
    moxie_model_close(model);
}

static void refusals(void **state)
{
    (void)state;
    fixture f;
    open_golden(&f, "peft-qwen3-moe");
    refuse_config(&f, "{\"r\": 3, \"lora_alpha\": 6, \"use_dora\": true}", MOXIE_ERR_UNSUPPORTED, "DoRA");
    refuse_config(&f, "{\"r\": 3, \"lora_alpha\": 6, \"bias\": \"all\"}", MOXIE_ERR_UNSUPPORTED, "bias");
    refuse_config(&f, "{\"r\": 3, \"lora_alpha\": 6, \"peft_type\": \"IA3\"}", MOXIE_ERR_UNSUPPORTED, "IA3");
    refuse_config(&f, "{\"r\": 3, \"lora_alpha\": 6, \"alpha_pattern\": {\"a\": 1}}", MOXIE_ERR_UNSUPPORTED, "alpha");
    refuse_config(&f, "{\"r\": 0, \"lora_alpha\": 6}", MOXIE_ERR_FORMAT, "r must be");
    refuse_config(&f, "{\"r\": 3}", MOXIE_ERR_FORMAT, "lora_alpha");
    refuse_config(&f, "[3]", MOXIE_ERR_FORMAT, "object");
    refuse_config(&f, "{", MOXIE_ERR_FORMAT, "");
    write_text(f.adapter, "adapter_config.json", "{\"r\": 3, \"lora_alpha\": 6}");
    refuse_name(&f, "base_model.model.model.layers.0.mlp.gate.lora_A.weight", MOXIE_ERR_UNSUPPORTED, "router");
    refuse_name(&f, "base_model.model.model.layers.0.mlp.shared_expert.up_proj.lora_A.weight", MOXIE_ERR_UNSUPPORTED,
                "shared expert");
    refuse_name(&f, EXPERTS "0.gate_proj.lora_magnitude_vector", MOXIE_ERR_FORMAT, "no factor");
    refuse_name(&f, EXPERTS "9.gate_proj.lora_A.weight", MOXIE_ERR_MISMATCH, "no such expert");
    refuse_name(&f, EXPERTS "0.gate_proj.lora_A.weight", MOXIE_ERR_FORMAT, "missing");
    refuse_name(&f, EXPERTS "lora_A.weight", MOXIE_ERR_FORMAT, "missing");
    refuse_name(&f, "base_model.model.model.layers.1.mlp.experts.lora_A.weight", MOXIE_ERR_MISMATCH, "no factors");
    refuse_name(&f, "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", MOXIE_ERR_MISMATCH, "no factors");
    close_golden(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(peft), cmocka_unit_test(names), cmocka_unit_test(refusals) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
