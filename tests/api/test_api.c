/* SPDX-License-Identifier: Apache-2.0
 *
 * test_api.c - every public function rejects NULL with a text, or with its neutral answer where it returns no status,
 * and leaves its results alone. Lists end. Numbers that name nothing have an answer.
 */
#include <math.h>

#include <moxie/moxie_ckpt.h>
#include <moxie/moxie_scheme.h>

#include "test_support.h"

/* A NULL pointer is MOXIE_ERR_ARGUMENT, with a text, and no error struct is needed. */
#define REFUSES(call)                                                                                                  \
    do {                                                                                                               \
        moxie_error e_ = { 0 };                                                                                        \
        moxie_error *error = &e_;                                                                                      \
        assert_int_equal((call), MOXIE_ERR_ARGUMENT);                                                                  \
        assert_int_equal(e_.code, MOXIE_ERR_ARGUMENT);                                                                 \
        assert_true(e_.text[0] != 0);                                                                                  \
        error = NULL;                                                                                                  \
        assert_int_equal((call), MOXIE_ERR_ARGUMENT);                                                                  \
    } while (0)

/* A pointer that is not NULL, to memory that must not be read. */
static int64_t somewhere[64];
#define SOME(type) ((type *)(void *)somewhere)

static void refuses_null_in_routing(void **state)
{
    (void)state;
    moxie_routing routing;
    int32_t local[4], count;
    REFUSES(moxie_routing_by_name(NULL, &routing, error));
    REFUSES(moxie_routing_by_name("default", NULL, error));
    REFUSES(moxie_expert_map(MOXIE_MAP_LINEAR, 4, 1, 0, NULL, &count, error));
    REFUSES(moxie_expert_map(MOXIE_MAP_LINEAR, 4, 1, 0, local, NULL, error));
    moxie_unpack_choice(0x00053f00, NULL, NULL);
}

static void refuses_null_in_layers(void **state)
{
    (void)state;
    moxie_layer *layer = SOME(moxie_layer), *made = NULL;
    const void *data = NULL;
    uint64_t bytes = 7;
    REFUSES(moxie_layer_config_check(NULL, error));
    REFUSES(moxie_executor_create(1, NULL, error));
    REFUSES(moxie_layer_create(NULL, NULL, &made, error));
    REFUSES(moxie_layer_create(SOME(moxie_layer_config), NULL, NULL, error));
    REFUSES(moxie_layer_prepare(NULL, SOME(moxie_weights), NULL, error));
    REFUSES(moxie_layer_prepare(layer, NULL, NULL, error));
    REFUSES(moxie_layer_update_expert(NULL, 0, SOME(moxie_expert), error));
    REFUSES(moxie_layer_update_expert(layer, 0, NULL, error));
    REFUSES(moxie_layer_verify(NULL, error));
    REFUSES(moxie_layer_record(NULL, 0, &data, &bytes, error));
    REFUSES(moxie_layer_record(layer, 0, NULL, &bytes, error));
    REFUSES(moxie_layer_record(layer, 0, &data, NULL, error));
    assert_int_equal(moxie_layer_bytes(NULL), 0);
    assert_null(made);
    assert_null(data);
    assert_int_equal(bytes, 7);
    moxie_layer_destroy(NULL);
    moxie_executor_destroy(NULL);
}

static void refuses_null_in_plans(void **state)
{
    (void)state;
    moxie_plan *plan = SOME(moxie_plan), *made = NULL;
    const moxie_run_args *args = SOME(moxie_run_args);
    const moxie_weights *weights = SOME(moxie_weights);
    moxie_check_report *report = NULL;
    float row;
    REFUSES(moxie_plan_create(NULL, NULL, &made, error));
    REFUSES(moxie_plan_create(SOME(moxie_layer), NULL, NULL, error));
    REFUSES(moxie_plan_explain(NULL, NULL, &made, error));
    REFUSES(moxie_plan_explain(SOME(moxie_layer_config), NULL, NULL, error));
    REFUSES(moxie_plan_explain_weights(NULL, weights, NULL, &made, error));
    REFUSES(moxie_plan_explain_weights(SOME(moxie_layer_config), NULL, NULL, &made, error));
    REFUSES(moxie_plan_explain_weights(SOME(moxie_layer_config), weights, NULL, NULL, error));
    REFUSES(moxie_plan_run(NULL, args, error));
    REFUSES(moxie_plan_run(plan, NULL, error));
    REFUSES(moxie_plan_route(NULL, args, error));
    REFUSES(moxie_plan_route(plan, NULL, error));
    REFUSES(moxie_plan_experts(NULL, args, &row, error));
    REFUSES(moxie_plan_experts(plan, NULL, &row, error));
    REFUSES(moxie_plan_experts(plan, args, NULL, error));
    REFUSES(moxie_plan_combine(NULL, args, &row, error));
    REFUSES(moxie_plan_combine(plan, NULL, &row, error));
    REFUSES(moxie_plan_combine(plan, args, NULL, error));
    REFUSES(moxie_plan_check(NULL, weights, args, &report, error));
    REFUSES(moxie_plan_check(plan, NULL, args, &report, error));
    REFUSES(moxie_plan_check(plan, weights, NULL, &report, error));
    REFUSES(moxie_plan_check(plan, weights, args, NULL, error));
    assert_null(report);
    assert_false(moxie_check_report_worst(NULL) <= 1);
    assert_int_equal(moxie_check_report_stage_count(NULL), 0);
    assert_null(moxie_check_report_stage_at(NULL, 0));
    moxie_check_report_destroy(NULL);
    assert_int_equal(moxie_plan_workspace_bytes(NULL), 0);
    assert_int_equal(moxie_plan_step_count(NULL), 0);
    assert_null(moxie_plan_step_at(NULL, 0));
    assert_null(made);
    moxie_plan_destroy(NULL);
}

static void refuses_null_in_comparisons(void **state)
{
    (void)state;
    const moxie_layer_config *config = SOME(moxie_layer_config);
    const moxie_weights *weights = SOME(moxie_weights);
    moxie_weights_difference difference = MOXIE_WEIGHTS_DIFFERENCE_INIT;
    REFUSES(moxie_weights_compare(NULL, weights, weights, &difference, error));
    REFUSES(moxie_weights_compare(config, NULL, weights, &difference, error));
    REFUSES(moxie_weights_compare(config, weights, NULL, &difference, error));
    REFUSES(moxie_weights_compare(config, weights, weights, NULL, error));
    REFUSES(moxie_machine_info(NULL, error));
    REFUSES(moxie_measure_limits(NULL, NULL, NULL, error));
}

static void refuses_null_in_schemes(void **state)
{
    (void)state;
    const moxie_scheme_args args = MOXIE_SCHEME_ARGS_INIT;
    moxie_scheme scheme = MOXIE_SCHEME_INIT;
    const moxie_scheme *some = SOME(moxie_scheme);
    int present;
    REFUSES(moxie_scheme_make(NULL, &args, &scheme, error));
    REFUSES(moxie_scheme_make("nvfp4", NULL, &scheme, error));
    REFUSES(moxie_scheme_make("nvfp4", &args, NULL, error));
    REFUSES(moxie_scheme_combine(NULL, some, &scheme, error));
    REFUSES(moxie_scheme_combine(some, NULL, &scheme, error));
    REFUSES(moxie_scheme_combine(some, some, NULL, error));
    REFUSES(moxie_scheme_read_scale(NULL, "a1", MOXIE_SCHEME_SCALE_TENSOR, &present, error));
    REFUSES(moxie_scheme_read_scale(some, NULL, MOXIE_SCHEME_SCALE_TENSOR, &present, error));
    REFUSES(moxie_scheme_read_scale(some, "a1", MOXIE_SCHEME_SCALE_TENSOR, NULL, error));
    REFUSES(moxie_quantize_activations(NULL, NULL, 0, 0, 0, NULL, NULL, error));
    assert_int_equal(moxie_scheme_predicate(NULL, "is_quantized"), -1);
    assert_int_equal(moxie_scheme_predicate(some, NULL), -1);
    assert_int_equal(moxie_scheme_block_shape(NULL, NULL), 0);
    assert_null(moxie_scheme_config_name(NULL, MOXIE_BF16));
    assert_null(moxie_scheme_ocp_name(NULL, NULL));
    assert_int_equal(moxie_scheme_scale_shape(NULL, 1, 1, NULL), 0);
    assert_int_equal(moxie_scheme_batched_scale_shape(NULL, 1, 1, 1, NULL), 0);
}

static int never(void *user, const char *name, const moxie_tensor *tensor)
{
    (void)user, (void)name, (void)tensor;
    return 1;
}

static void refuses_null_in_checkpoints(void **state)
{
    (void)state;
    moxie_model *model = NULL;
    moxie_tensor_file *file = NULL;
    moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
    REFUSES(moxie_model_open(NULL, NULL, &model, error));
    REFUSES(moxie_model_open(".", NULL, NULL, error));
    REFUSES(moxie_tensor_file_open(NULL, 0, &file, error));
    REFUSES(moxie_tensor_file_open("x", 0, NULL, error));
    REFUSES(moxie_model_visit_experts(NULL, 0, never, NULL, error));
    REFUSES(moxie_model_visit_experts(SOME(moxie_model), 0, NULL, NULL, error));
    REFUSES(moxie_model_expert_prefix(NULL, 0, SOME(char), 1, error));
    REFUSES(moxie_model_expert_prefix(SOME(moxie_model), 0, NULL, 1, error));
    assert_null(moxie_tensor_file_metadata(NULL, "key"));
    moxie_tensor_file_release_pages(NULL, somewhere, 8);
    REFUSES(moxie_synth_write(NULL, "x", NULL, error));
    REFUSES(moxie_synth_write("gpt-oss-20b", NULL, NULL, error));
    REFUSES(moxie_preset_config(NULL, NULL, &config, error));
    REFUSES(moxie_preset_config("gpt-oss-20b", NULL, NULL, error));
    moxie_model_close(NULL);
    moxie_model_layer_free(NULL);
    moxie_tensor_file_close(NULL);
    assert_null(moxie_model_layer_config(NULL));
    assert_null(moxie_model_layer_weights(NULL));
    assert_null(moxie_model_layer_unread(NULL, 0));
    moxie_model_layer_free(NULL);
}

/* ---- answers for what does not exist ----------------------------------------------------------------------- */

static void names_and_numbers(void **state)
{
    (void)state;
    assert_string_equal(moxie_status_name(MOXIE_OK), "ok");
    assert_string_equal(moxie_status_name(MOXIE_ERR_UNSUPPORTED), "unsupported");
    assert_string_equal(moxie_status_name((moxie_status)99), "unknown");
    char version[64];
    snprintf(version, sizeof version, "%d.%d.%d", MOXIE_VERSION_MAJOR, MOXIE_VERSION_MINOR, MOXIE_VERSION_PATCH);
    assert_string_equal(version, MOXIE_VERSION_STRING);
    assert_int_equal(MOXIE_VERSION_NUMBER,
                     10000 * MOXIE_VERSION_MAJOR + 100 * MOXIE_VERSION_MINOR + MOXIE_VERSION_PATCH);
    assert_memory_equal(moxie_version(), version, strlen(version)); /* test_version looks at the commit behind it */
    assert_string_equal(moxie_dtype_name(MOXIE_F8_E4M3), "f8_e4m3");
    assert_string_equal(moxie_dtype_name(999), "?");
    assert_int_equal(moxie_dtype_from_name("bf16"), MOXIE_BF16);
    assert_int_equal(moxie_dtype_from_name("BF16"), MOXIE_DTYPE_NONE);
    assert_int_equal(moxie_dtype_from_name(NULL), MOXIE_DTYPE_NONE);
    assert_int_equal(moxie_dtype_bits(MOXIE_F6_E2M3), 6);
    assert_int_equal(moxie_dtype_bits(-1), 0);
    assert_true(moxie_decode(MOXIE_F4_E2M1, 0x7) == 6.0f);
    assert_int_equal(moxie_encode(MOXIE_F4_E2M1, 5.0001f), 7);
    assert_true(isnan(moxie_decode(MOXIE_U16, 1)));
    assert_true(moxie_act_is_gated(MOXIE_ACT_RELU2));
    assert_false(moxie_act_is_gated(MOXIE_ACT_SILU_NO_MUL));
    assert_int_equal(moxie_pack_choice(5, 0.5f), 0x00053f00);
}

static void lists_end(void **state)
{
    (void)state;
    moxie_kernel_info kernel = MOXIE_KERNEL_INFO_INIT;
    int32_t kernels = 0;
    for (; moxie_kernel_at(kernels, &kernel); kernels++) {
        assert_true(kernel.family[0] != '\0' && kernel.name[0] != '\0');
        assert_true(strcmp(kernel.isa, "scalar") != 0 || kernel.runnable);
    }
    assert_true(kernels >= 7);
    assert_int_equal(moxie_kernel_at(-1, &kernel), 0);
    assert_int_equal(moxie_kernel_at(kernels, NULL), 0);
    assert_int_equal(moxie_kernel_at(0, NULL), 1);
    int32_t constructors = 0;
    while (moxie_scheme_constructor_at(constructors) != NULL)
        constructors++;
    assert_int_equal(constructors, 18);
    /* Every name in a list is accepted by the functions that take such names. */
    moxie_error error;
    moxie_routing routing;
    int32_t methods = 0, formats = 0;
    for (; moxie_routing_name_at(methods) != NULL; methods++)
        assert_ok(moxie_routing_by_name(moxie_routing_name_at(methods), &routing, &error), &error);
    assert_int_equal(methods, 16);
    assert_null(moxie_routing_name_at(-1));
    for (; moxie_checkpoint_format_at(formats) != NULL; formats++) {
        moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
        const char *format = moxie_checkpoint_format_at(formats);
        /* gpt-oss' rows are no multiple of 256. */
        const char *preset = strncmp(format, "gguf-", 5) == 0 ? "qwen3-30b-a3b" : "gpt-oss-20b";
        assert_ok(moxie_preset_config(preset, format, &config, &error), &error);
    }
    assert_true(formats > 30);
    assert_null(moxie_checkpoint_format_at(-1));
    moxie_preset_info preset = MOXIE_PRESET_INFO_INIT;
    for (int32_t i = 0; moxie_preset_at(i, &preset); i++) {
        moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
        const moxie_status status = moxie_preset_config(preset.name, "gguf-f32", &config, &error);
        const bool limited = strcmp(preset.name, "step-3.7-flash") == 0; /* limits of single layers */
        assert_int_equal(status, preset.gguf_architecture && !limited ? MOXIE_OK : MOXIE_ERR_UNSUPPORTED);
    }
}

static void the_machine_is_described(void **state)
{
    (void)state;
    moxie_error error;
    moxie_machine machine = MOXIE_MACHINE_INIT;
    assert_ok(moxie_machine_info(&machine, &error), &error);
    assert_true(machine.processors >= 1);
    assert_true(machine.isa_found[0] != '\0' && machine.isa_allowed[0] != '\0');
    assert_int_equal(machine.struct_size, sizeof machine);
    assert_int_equal(strstr(machine.features, "amx_tile") != NULL, strcmp(machine.amx, "permitted") == 0);
    /* An older caller's struct ends earlier: what lies behind it is not touched. */
    moxie_machine old = { .struct_size = (uint32_t)offsetof(moxie_machine, features) };
    memset(old.features, 0x5a, sizeof old.features);
    assert_ok(moxie_machine_info(&old, &error), &error);
    for (size_t i = 0; i < sizeof old.features; i++)
        assert_int_equal(old.features[i], 0x5a);
    assert_string_equal(old.isa_found, machine.isa_found);
    machine.struct_size = 0;
    assert_int_equal(moxie_machine_info(&machine, &error), MOXIE_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_null_in_routing),  cmocka_unit_test(refuses_null_in_layers),
        cmocka_unit_test(refuses_null_in_plans),    cmocka_unit_test(refuses_null_in_comparisons),
        cmocka_unit_test(refuses_null_in_schemes),  cmocka_unit_test(refuses_null_in_checkpoints),
        cmocka_unit_test(names_and_numbers),        cmocka_unit_test(lists_end),
        cmocka_unit_test(the_machine_is_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
