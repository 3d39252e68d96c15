/* SPDX-License-Identifier: Apache-2.0
 *
 * test_struct_size.c - which sizes of a public struct are taken: those at which a field ends, with or without what
 * aligns a struct that ends there. A size inside of a field is rejected with a text by every call that reads a struct.
 */
#include "test_support.h"

#include <moxie/moxie_ckpt.h>
#include <moxie/moxie_comm.h>
#include <moxie/moxie_cuda.h>
#include <moxie/moxie_lint.h>
#include <moxie/moxie_parallel.h>
#include <moxie/moxie_prepare.h>
#include <moxie/moxie_scheme.h>

#include "layer/config/struct_size.h"

/* Bytes of any of the structs, and more. */
enum { ROOM = 16384 };
static union {
    uint32_t struct_size;
    uint64_t words[ROOM / 8];
} any;

static moxie_status check(const mox_struct_type *type, uint32_t size, moxie_error *error)
{
    memset(&any, 0, sizeof any);
    any.struct_size = size;
    return mox_struct_check(&any, type, error);
}

/* moxie_limits has a field of 4 bytes behind pointers: a header that ended there had 4 bytes of padding behind it. */
static void padding_at_the_end_counts(void **state)
{
    (void)state;
    moxie_error error;
    const uint32_t end = offsetof(moxie_limits, disturbed) + sizeof(int32_t);
    assert_int_equal(end % 8, 4);
    assert_int_equal(check(MOX_STRUCT(moxie_limits), end, &error), MOXIE_OK);
    assert_int_equal(check(MOX_STRUCT(moxie_limits), end + 4, &error), MOXIE_OK);
    for (uint32_t i = 1; i < 4; i++)
        assert_int_equal(check(MOX_STRUCT(moxie_limits), end + i, &error), MOXIE_ERR_ARGUMENT);
}

static void every_size_of_two_structs(void **state)
{
    (void)state;
    moxie_error error;
    const size_t options[] = { sizeof(uint32_t),
                               offsetof(moxie_options, mode),
                               offsetof(moxie_options, mode) + sizeof(int32_t),
                               offsetof(moxie_options, max_tokens),
                               offsetof(moxie_options, executor),
                               offsetof(moxie_options, progress),
                               offsetof(moxie_options, progress_user),
                               offsetof(moxie_options, device),
                               offsetof(moxie_options, device_memory),
                               offsetof(moxie_options, comm),
                               offsetof(moxie_options, token_layout),
                               offsetof(moxie_options, token_layout) + sizeof(int32_t),
                               offsetof(moxie_options, exchange_capacity),
                               offsetof(moxie_options, degraded),
                               offsetof(moxie_options, spare_slots),
                               offsetof(moxie_options, spare_slots) + sizeof(int32_t),
                               offsetof(moxie_options, exchange_chunk),
                               offsetof(moxie_options, exchange_streams),
                               offsetof(moxie_options, call_graphs),
                               sizeof(moxie_options) };
    const size_t facts[] = { 4, 12, 20, 24, 28 };
    for (uint32_t size = 0; size <= sizeof(moxie_options); size++) {
        bool good = false;
        for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
            good = good || size == options[i];
        assert_int_equal(check(MOX_STRUCT(moxie_options), size, &error), good ? MOXIE_OK : MOXIE_ERR_ARGUMENT);
    }
    for (uint32_t size = 0; size <= sizeof(moxie_preparation_facts); size++) {
        bool good = false;
        for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++)
            good = good || size == facts[i];
        assert_int_equal(check(MOX_STRUCT(moxie_preparation_facts), size, &error),
                         good ? MOXIE_OK : MOXIE_ERR_ARGUMENT);
    }
    /* A newer header's struct: its fields are unknown here. */
    assert_int_equal(check(MOX_STRUCT(moxie_options), sizeof(moxie_options) + 5, &error), MOXIE_OK);
}

/* Fields follow each other with no more between them than aligns the next, and the last one ends the struct. */
static void the_list_covers_every_struct(void **state)
{
    (void)state;
    for (int t = 0; t < MOX_STRUCT_COUNT; t++) {
        const mox_struct_type *type = &mox_struct_types[t];
        assert_true(type->size <= ROOM);
        assert_string_equal(type->fields[0].name, "struct_size");
        assert_int_equal(type->fields[0].begin, 0);
        for (uint32_t i = 1; i < type->count; i++) {
            assert_true(type->fields[i].begin >= type->fields[i - 1].end);
            assert_true(type->fields[i].begin - type->fields[i - 1].end < type->fields[i].align);
        }
        assert_true(type->size - type->fields[type->count - 1].end < sizeof(void *));
    }
}

/* Every size that ends inside a field, for every struct, is rejected; the text names the fields on both sides. */
static void cut_fields_are_rejected(void **state)
{
    (void)state;
    for (int t = 0; t < MOX_STRUCT_COUNT; t++) {
        const mox_struct_type *type = &mox_struct_types[t];
        for (uint32_t i = 1; i < type->count; i++) {
            const mox_struct_field *f = &type->fields[i];
            for (uint32_t size = f->begin + 1; size < f->end; size++) {
                moxie_error error = { 0 };
                assert_int_equal(check(type, size, &error), MOXIE_ERR_ARGUMENT);
                assert_non_null(strstr(error.text, type->name));
                assert_non_null(strstr(error.text, f->name));
                assert_non_null(strstr(error.text, type->fields[i - 1].name));
            }
        }
    }
}

/* One call for each struct, its size a byte less than it should be. */
#define CUT(type, macro, call)                                                                                         \
    do {                                                                                                               \
        type s = macro;                                                                                                \
        moxie_error error = { 0 };                                                                                     \
        s.struct_size = (uint32_t)sizeof s - 1;                                                                        \
        assert_int_equal((call), MOXIE_ERR_ARGUMENT);                                                                  \
        assert_non_null(strstr(error.text, #type));                                                                    \
    } while (0)

static void calls_reject_cut_structs(void **state)
{
    (void)state;
    moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
    moxie_weights_difference difference = MOXIE_WEIGHTS_DIFFERENCE_INIT;
    moxie_preparation *p = NULL;
    moxie_plan *plan = NULL;
    moxie_model *model = NULL;
    moxie_lint *lint = NULL;
    moxie_scheme scheme = MOXIE_SCHEME_INIT;
    moxie_expert expert = { .a13_scale = 0 };
    CUT(moxie_layer_config, MOXIE_LAYER_CONFIG_INIT, moxie_layer_config_check(&s, &error));
    CUT(moxie_machine, MOXIE_MACHINE_INIT, moxie_machine_info(&s, &error));
    CUT(moxie_limits, MOXIE_LIMITS_INIT, moxie_measure_limits(NULL, NULL, &s, &error));
    CUT(moxie_cuda_info, MOXIE_CUDA_INFO_INIT, moxie_cuda_get_info(&s, &error));
    CUT(moxie_cuda_device, MOXIE_CUDA_DEVICE_INIT, moxie_cuda_device_at(0, &s, &error));
    CUT(moxie_lint_options, MOXIE_LINT_OPTIONS_INIT, moxie_lint_run("nowhere", &s, &lint, &error));
    CUT(moxie_model_options, MOXIE_MODEL_OPTIONS_INIT, moxie_model_open("nowhere", &s, &model, &error));
    CUT(moxie_synth_options, MOXIE_SYNTH_OPTIONS_INIT, moxie_synth_write("gpt-oss-20b", "nowhere", &s, &error));
    CUT(moxie_preparation_options, MOXIE_PREPARATION_OPTIONS_INIT,
        moxie_preparation_create(&config, &s, &expert, &p, &error));
    CUT(moxie_scheme_args, MOXIE_SCHEME_ARGS_INIT, moxie_scheme_make("fp8_w8a8", &s, &scheme, &error));
    assert_ok(moxie_preset_config("gpt-oss-20b", NULL, &config, NULL), (&(moxie_error) { 0 }));
    CUT(moxie_options, MOXIE_OPTIONS_INIT, moxie_plan_explain(&config, &s, &plan, &error));
    CUT(moxie_weights, MOXIE_WEIGHTS_INIT, moxie_weights_compare(&config, &s, &s, &difference, &error));
    CUT(moxie_weights_difference, MOXIE_WEIGHTS_DIFFERENCE_INIT,
        moxie_weights_compare(&config, &(moxie_weights)MOXIE_WEIGHTS_INIT, &(moxie_weights)MOXIE_WEIGHTS_INIT, &s,
                              &error));
    CUT(moxie_slot_map, MOXIE_SLOT_MAP_INIT, moxie_slot_map_check(&s, &error));
    const double load = 1;
    int32_t slot = 0, first_slot[2];
    moxie_eplb_config eplb = MOXIE_EPLB_CONFIG_INIT;
    eplb.layers = eplb.experts = eplb.slots = eplb.ranks = 1;
    CUT(moxie_eplb_config, MOXIE_EPLB_CONFIG_INIT, moxie_eplb_balance(&s, &load, &slot, first_slot, NULL, &error));
    CUT(moxie_eplb_moves, MOXIE_EPLB_MOVES_INIT, moxie_eplb_step(&eplb, &load, &slot, 0, &slot, &s, &error));
    CUT(moxie_scheme, MOXIE_SCHEME_INIT,
        moxie_scheme_make("fp8_w8a8", &(moxie_scheme_args)MOXIE_SCHEME_ARGS_INIT, &s, &error));
}

/* Calls that return 0 past the last of a list do so for a wrong size, too, and write nothing. */
#define CUT_OF_LIST(type, macro, call)                                                                                 \
    do {                                                                                                               \
        type s = macro, before = macro;                                                                                \
        assert_int_equal((call), 1);                                                                                   \
        assert_true(memcmp(&s, &before, sizeof s) != 0);                                                               \
        s = before;                                                                                                    \
        s.struct_size = before.struct_size = (uint32_t)sizeof s - 1;                                                   \
        assert_int_equal((call), 0);                                                                                   \
        assert_memory_equal(&s, &before, sizeof s);                                                                    \
    } while (0)

static void lists_refuse_cut_structs(void **state)
{
    (void)state;
    CUT_OF_LIST(moxie_prepare_layout, MOXIE_PREPARE_LAYOUT_INIT, moxie_prepare_layout_at(0, &s));
    CUT_OF_LIST(moxie_prepare_limit, MOXIE_PREPARE_LIMIT_INIT, moxie_prepare_limit_at(0, 0, &s));
    CUT_OF_LIST(moxie_lint_rule, MOXIE_LINT_RULE_INIT, moxie_lint_rule_at(0, &s));
    CUT_OF_LIST(moxie_kernel_info, MOXIE_KERNEL_INFO_INIT, moxie_kernel_at(0, &s));
    CUT_OF_LIST(moxie_kernel_info, MOXIE_KERNEL_INFO_INIT, moxie_cuda_kernel_at(0, &s));
    CUT_OF_LIST(moxie_preset_info, MOXIE_PRESET_INFO_INIT, moxie_preset_at(0, &s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_of_two_structs),    cmocka_unit_test(padding_at_the_end_counts),
        cmocka_unit_test(the_list_covers_every_struct), cmocka_unit_test(cut_fields_are_rejected),
        cmocka_unit_test(calls_reject_cut_structs),     cmocka_unit_test(lists_refuse_cut_structs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
