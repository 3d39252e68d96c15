/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lint_large.c - headers of a model of 160 shards and 90,000 tensors are checked in less than five seconds.
 *
 *     60 layers x (a router + 250 experts x 3 matrices x codes and scales) = 90,060 tensors, 4 KB a shard and more
 */
#include <time.h>

#include "lint_plant.h"

enum { LAYERS = 60, EXPERTS = 250, SHARDS = 160, SIZE = 16, TENSORS = LAYERS * (1 + EXPERTS * 6) };

static const char config[] =
    "{\"model_type\":\"qwen3_moe\",\"num_hidden_layers\":60,\"hidden_size\":16,\"num_experts\":250,"
    "\"num_experts_per_tok\":8,\"moe_intermediate_size\":16,\"norm_topk_prob\":true,"
    "\"hidden_act\":\"silu\",\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\","
    "\"activation_scheme\":\"dynamic\",\"weight_block_size\":[128,128]}}";

static moxie_named_tensor make(int64_t i, void *data)
{
    static const char *const parts[] = { "gate_proj.weight", "gate_proj.weight_scale_inv",
                                         "up_proj.weight",   "up_proj.weight_scale_inv",
                                         "down_proj.weight", "down_proj.weight_scale_inv" };
    const int layer = (int)(i / (1 + EXPERTS * 6)), of = (int)(i % (1 + EXPERTS * 6)) - 1;
    char name[120];
    moxie_named_tensor t = { .tensor = { .data = data, .dtype = MOXIE_BF16, .rank = 2, .shape = { EXPERTS, SIZE } } };
    snprintf(name, sizeof name, "model.layers.%d.mlp.gate.weight", layer);
    if (of >= 0) {
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.%s", layer, of / 6, parts[of % 6]);
        t.tensor.dtype = of % 2 ? MOXIE_BF16 : MOXIE_F8_E4M3;
        t.tensor.shape[0] = t.tensor.shape[1] = of % 2 ? 1 : SIZE;
    }
    t.name = strdup(name);
    return t;
}

/* Shards of equal numbers of tensors, and their index. */
static void write_model(const char *dir)
{
    static uint8_t zeros[EXPERTS * SIZE * 2];
    moxie_named_tensor *tensors = calloc(TENSORS, sizeof *tensors);
    char *index = malloc((size_t)TENSORS * 160), path[700], *end = index;
    moxie_error error = { 0 };
    end += sprintf(end, "{\"weight_map\":{");
    for (int64_t i = 0; i < TENSORS; i++) {
        tensors[i] = make(i, zeros);
        end += sprintf(end, "%s\"%s\":\"model-%05d.safetensors\"", i ? "," : "", tensors[i].name,
                       (int)(i * SHARDS / TENSORS));
    }
    sprintf(end, "}}");
    for (int64_t s = 0, i = 0; s < SHARDS; s++) {
        const int64_t first = i;
        while (i < TENSORS && i * SHARDS / TENSORS == s)
            i++;
        snprintf(path, sizeof path, "%s/model-%05d.safetensors", dir, (int)s);
        assert_ok(moxie_tensor_file_write(path, tensors + first, i - first, NULL, 0, &error), &error);
    }
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    assert_ok(moxie_file_write(path, index, strlen(index), &error), &error);
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_ok(moxie_file_write(path, config, sizeof config - 1, &error), &error);
    for (int64_t i = 0; i < TENSORS; i++)
        free((void *)(uintptr_t)tensors[i].name);
    free(tensors);
    free(index);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void headers_take_seconds(void **state)
{
    (void)state;
    char *dir = test_tmpdir();
    moxie_error error = { 0 };
    moxie_lint *lint = NULL;
    moxie_lint_info info = MOXIE_LINT_INFO_INIT;
    moxie_finding f = MOXIE_FINDING_INIT;
    write_model(dir);
    const double begin = seconds();
    assert_ok(moxie_lint_run(dir, NULL, &lint, &error), &error);
    const double took = seconds() - begin;
    print_message("%d tensors in %d shards: %.2f s\n", TENSORS, SHARDS, took);
    assert_int_equal(moxie_lint_get_info(lint, &info, &error), MOXIE_OK);
    for (int64_t i = 0; moxie_lint_finding_at(lint, i, &f); i++)
        if (f.severity > MOXIE_SEVERITY_NOTE)
            fail_msg("%s: %s %s", f.name, f.tensor, f.found);
    assert_int_equal(info.n_tensors, TENSORS);
    assert_int_equal(info.n_files, SHARDS);
    assert_int_equal(info.n_layers, LAYERS);
    if (!test_sanitized() && !test_emulated())
        assert_true(took < 30); /* quadratic time would take minutes */
    moxie_lint_free(lint);
    test_rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(headers_take_seconds) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
