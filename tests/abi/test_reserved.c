/* SPDX-License-Identifier: Apache-2.0
 *
 * test_reserved.c - every reserved word of a public struct that a caller fills must be zero, wherever the struct lies:
 * in a configuration, in weights, in options, in an array. One byte that is not zero is MOXIE_ERR_ARGUMENT, and the
 * text names the struct.
 */
#include "test_layer.h"

#include <moxie/moxie_ckpt.h>
#include <moxie/moxie_cuda.h>
#include <moxie/moxie_prepare.h>
#include <moxie/moxie_scheme.h>

#define IN_EXPERT(type, path)                                                                                          \
    {                                                                                                                  \
#type, offsetof(moxie_expert, path.reserved), sizeof(((moxie_expert *)0)->path.reserved)                       \
    }
#define IN_CONFIG(type, path)                                                                                          \
    {                                                                                                                  \
#type, offsetof(moxie_layer_config, path.reserved), sizeof(((moxie_layer_config *)0)->path.reserved)           \
    }

typedef struct place {
    const char *type;
    size_t at, bytes;
} place;

static const place in_config[] = {
    IN_CONFIG(moxie_activation, activation),
    IN_CONFIG(moxie_routing, routing),
    IN_CONFIG(moxie_quant, w13),
    IN_CONFIG(moxie_quant, w2),
    IN_CONFIG(moxie_quant, a13),
    IN_CONFIG(moxie_quant, a2),
    IN_CONFIG(moxie_shared_config, shared),
    IN_CONFIG(moxie_quant, shared.w13),
    IN_CONFIG(moxie_quant, shared.w2),
    IN_CONFIG(moxie_quant, shared.a13),
    IN_CONFIG(moxie_quant, shared.a2),
};

static const place in_expert[] = {
    { "moxie_expert", offsetof(moxie_expert, reserved), sizeof(((moxie_expert *)0)->reserved) },
    IN_EXPERT(moxie_matrix, gate),
    IN_EXPERT(moxie_matrix, up),
    IN_EXPERT(moxie_matrix, down),
    IN_EXPERT(moxie_grid, gate.codes),
    IN_EXPERT(moxie_grid, up.scale),
    IN_EXPERT(moxie_grid, up.zero),
    IN_EXPERT(moxie_grid, down.global),
    IN_EXPERT(moxie_grid, down.bias),
    IN_EXPERT(moxie_packing, up.codes.packing),
    IN_EXPERT(moxie_packing, down.scale.packing),
};

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

/* The call must fail and name the struct; it says "moxie_quant (where): ...". */
#define REFUSED(type, call)                                                                                            \
    do {                                                                                                               \
        moxie_error error = { .reserved = { 7, 7, 7, 7, 7, 7, 7, 7 } };                                                \
        const size_t length = strlen(type);                                                                            \
        assert_int_equal((call), MOXIE_ERR_ARGUMENT);                                                                  \
        if (strncmp(error.text, (type), length) != 0 || error.text[length] != ' ')                                     \
            fail_msg("%s is not named: %s", (type), error.text);                                                       \
        for (size_t w_ = 0; w_ < COUNT(error.reserved); w_++)                                                          \
            assert_int_equal(error.reserved[w_], 0);                                                                   \
    } while (0)

static void a_configuration(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(in_config); i++) {
        for (size_t b = 0; b < in_config[i].bytes; b++) {
            moxie_layer_config config = test_config();
            moxie_layer *layer = NULL;
            moxie_plan *plan = NULL;
            assert_int_equal(moxie_layer_config_check(&config, NULL), MOXIE_OK);
            ((unsigned char *)&config)[in_config[i].at + b] = 1;
            REFUSED(in_config[i].type, moxie_layer_config_check(&config, &error));
            REFUSED(in_config[i].type, moxie_layer_create(&config, NULL, &layer, &error));
            REFUSED(in_config[i].type, moxie_plan_explain(&config, NULL, &plan, &error));
        }
    }
}

/* The same place of the routed expert 1, in every call that takes experts. */
static void an_expert(void **state)
{
    (void)state;
    test_layer t;
    test_layer_begin(&t, 5, &(test_layer_limits) { .experts = 3, .tokens = 2, .no_parallel = true }, NULL);
    moxie_check_report *report = NULL;
    moxie_weights_difference difference = MOXIE_WEIGHTS_DIFFERENCE_INIT;
    for (size_t i = 0; i < COUNT(in_expert); i++) {
        unsigned char *byte = (unsigned char *)&t.experts[1] + in_expert[i].at + in_expert[i].bytes - 1;
        const char *type = in_expert[i].type;
        *byte = 0x80;
        REFUSED(type, moxie_layer_prepare(t.built, &t.weights, NULL, &error));
        REFUSED(type, moxie_plan_check(t.plan, &t.weights, &t.args, &report, &error));
        REFUSED(type, moxie_weights_compare(&t.config, &t.weights, &t.weights, &difference, &error));
        *byte = 0;
        assert_int_equal(moxie_layer_prepare(t.built, &t.weights, NULL, NULL), MOXIE_OK);
        *byte = 0x80;
        REFUSED(type, moxie_layer_update_expert(t.built, 1, &t.experts[1], &error));
        *byte = 0;
    }
    assert_null(report);
    t.weights.router.reserved[0] = 1;
    REFUSED("moxie_matrix", moxie_layer_prepare(t.built, &t.weights, NULL, &error));
    t.weights.router.reserved[0] = 0;
    t.weights.shared_gate.bias.reserved[1] = 1;
    REFUSED("moxie_grid", moxie_layer_prepare(t.built, &t.weights, NULL, &error));
    t.weights.shared_gate.bias.reserved[1] = 0;
    test_layer_free(&t);
}

static void an_expert_to_prepare(void **state)
{
    (void)state;
    moxie_layer_config config = test_config();
    moxie_preparation_options options = MOXIE_PREPARATION_OPTIONS_INIT;
    moxie_preparation *p = NULL;
    options.layout = "trtllm-mxint4";
    for (size_t i = 0; i < COUNT(in_expert); i++) {
        moxie_expert expert = { .a13_scale = 0 };
        ((unsigned char *)&expert)[in_expert[i].at] = 1;
        REFUSED(in_expert[i].type, moxie_preparation_create(&config, &options, &expert, &p, &error));
        assert_null(p);
    }
    config.w2.reserved[6] = 1;
    REFUSED("moxie_quant", moxie_preparation_create(&config, &options, &(moxie_expert) { .a13_scale = 0 }, &p, &error));
}

static void run_nothing(void *self, int64_t tasks, moxie_task_fn fn, void *context)
{
    (void)self;
    for (int64_t i = 0; i < tasks; i++)
        fn(context, i, 0);
}

static void options(void **state)
{
    (void)state;
    moxie_layer_config config = test_config();
    moxie_options options = MOXIE_OPTIONS_INIT;
    moxie_executor executor = { .workers = 1, .run = run_nothing };
    moxie_cuda_allocator memory = { .self = NULL };
    moxie_limits limits = MOXIE_LIMITS_INIT;
    moxie_plan *plan = NULL;
    options.executor = &executor;
    executor.reserved[5] = 1;
    REFUSED("moxie_executor", moxie_plan_explain(&config, &options, &plan, &error));
    REFUSED("moxie_executor", moxie_measure_limits(&executor, NULL, &limits, &error));
    executor.reserved[5] = 0;
    options.device_memory = &memory;
    memory.reserved[3] = 1 << 30;
    REFUSED("moxie_cuda_allocator", moxie_plan_explain(&config, &options, &plan, &error));
    assert_null(plan);
}

static void arrays(void **state)
{
    (void)state;
    float number = 1;
    moxie_named_tensor named[2] = { { .name = "a", .tensor = { .data = &number, .dtype = MOXIE_F32 } },
                                    { .name = "b", .tensor = { .data = &number, .dtype = MOXIE_F32 } } };
    moxie_sealed_tensor sealed[2] = { { .name = "a", .dtype = MOXIE_F32, .pieces = 1 },
                                      { .name = "b", .dtype = MOXIE_F32, .pieces = 1 } };
    moxie_sealed_writer *writer = NULL;
    moxie_model *model = NULL;
    moxie_model_options options = MOXIE_MODEL_OPTIONS_INIT;
    options.tensors = named;
    options.n_tensors = 2;
    named[1].reserved[3] = 1;
    REFUSED("moxie_named_tensor", moxie_tensor_file_write("nowhere/file", named, 2, NULL, 0, &error));
    REFUSED("moxie_named_tensor", moxie_model_open("nowhere", &options, &model, &error));
    named[1].reserved[3] = 0;
    named[1].tensor.reserved[4] = 1;
    REFUSED("moxie_tensor", moxie_tensor_file_write("nowhere/file", named, 2, NULL, 0, &error));
    REFUSED("moxie_tensor", moxie_model_open("nowhere", &options, &model, &error));
    sealed[1].reserved[0] = 1;
    REFUSED("moxie_sealed_tensor", moxie_sealed_writer_open("nowhere/file", sealed, 2, NULL, 0, &writer, &error));

    double seconds;
    moxie_cuda_timed_run run = { .reserved = { 0, 1 } };
    REFUSED("moxie_cuda_timed_run", moxie_cuda_time_runs(&run, 1, 1, &seconds, &error));
}

static void schemes(void **state)
{
    (void)state;
    const moxie_scheme_args args = MOXIE_SCHEME_ARGS_INIT;
    moxie_scheme scheme = MOXIE_SCHEME_INIT, both = MOXIE_SCHEME_INIT;
    assert_int_equal(moxie_scheme_make("fp8_w8a8", &args, &scheme, NULL), MOXIE_OK);
    assert_int_equal(moxie_scheme_predicate(&scheme, "use_fp8_w8a8"), 1);
    scheme.w1.reserved[0] = 1;
    REFUSED("moxie_scheme_desc", moxie_scheme_combine(&scheme, &scheme, &both, &error));
    assert_int_equal(moxie_scheme_predicate(&scheme, "use_fp8_w8a8"), -1);
    scheme.w1.reserved[0] = 0;
    scheme.weight2.reserved[0] = 1;
    REFUSED("moxie_quant", moxie_scheme_combine(&scheme, &scheme, &both, &error));

    const float x = 1;
    uint8_t code;
    float scale;
    const moxie_quant quant = { .element = MOXIE_I8, .scale = MOXIE_F32, .reserved = { 0, 0, 0, 0, 0, 0, 1 } };
    REFUSED("moxie_quant", moxie_quantize_activations(&quant, &x, 1, 1, 0, &code, &scale, &error));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_configuration), cmocka_unit_test(an_expert), cmocka_unit_test(an_expert_to_prepare),
        cmocka_unit_test(options),         cmocka_unit_test(arrays),    cmocka_unit_test(schemes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
