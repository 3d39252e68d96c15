/* SPDX-License-Identifier: Apache-2.0
 *
 * test_model_experts.c - a model opened for its experts only: which tensors store them, and the same layer loaded from
 * those tensors alone, in memory.
 */
#include "synth_fixture.h"

enum { MAX_TENSORS = 256 };
typedef struct listing {
    moxie_named_tensor tensors[MAX_TENSORS];
    int64_t count, stop;
} listing;

static int add(void *user, const char *name, const moxie_tensor *tensor)
{
    listing *l = user;
    assert_true(l->count < MAX_TENSORS);
    l->tensors[l->count++] = (moxie_named_tensor) { name, *tensor };
    return l->count == l->stop;
}

static void list(fixture *f, const char *preset, const char *format, int64_t layer, moxie_model **model, listing *out)
{
    const moxie_synth_options options = small(format, 2, 16);
    memset(out, 0, sizeof *out);
    assert_ok(moxie_synth_write(preset, f->path, &options, &f->error), &f->error);
    assert_ok(moxie_model_open(f->path, NULL, model, &f->error), &f->error);
    assert_ok(moxie_model_visit_experts(*model, layer, add, out, &f->error), &f->error);
}

static void tensors_of_one_layer_are_visited(void **state)
{
    fixture *f = *state;
    moxie_model *model = NULL;
    listing l;
    char prefix[64];
    list(f, "deepseek-v3", "fp8-block", 4, &model, &l);
    assert_int_equal(l.count, 16 * 3 * 2); /* weight and weight_scale_inv */
    for (int64_t i = 0; i < l.count; i++)
        assert_ptr_equal(strstr(l.tensors[i].name, "model.layers.4.mlp.experts."), l.tensors[i].name);
    assert_ok(moxie_model_expert_prefix(model, 4, prefix, sizeof prefix, &f->error), &f->error);
    assert_string_equal(prefix, "model.layers.4.mlp.experts.");
    assert_int_equal(moxie_model_expert_prefix(model, 4, prefix, 10, &f->error), MOXIE_ERR_MEMORY);
    assert_int_equal(moxie_model_expert_prefix(model, 9, prefix, sizeof prefix, &f->error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(moxie_model_visit_experts(model, 0, add, &l, &f->error), MOXIE_ERR_ARGUMENT);
    l = (listing) { .stop = 3 };
    assert_int_equal(moxie_model_visit_experts(model, 4, add, &l, &f->error), MOXIE_ERR_TIMEOUT);
    assert_int_equal(l.count, 3);
    moxie_model_close(model);
    remove_dir(f->path);
    /* Companion tensors that no view needs, and stacks. */
    list(f, "kimi-k2-thinking", "int4-ct-g32", 1, &model, &l);
    assert_int_equal(l.count, 16 * 3 * 3); /* weight_packed, weight_scale, weight_shape */
    moxie_model_close(model);
    remove_dir(f->path);
    list(f, "gpt-oss-20b", "mxfp4-gptoss", 0, &model, &l);
    assert_int_equal(l.count, 6); /* blocks, scales, bias, twice */
    assert_ok(moxie_model_expert_prefix(model, 0, prefix, sizeof prefix, &f->error), &f->error);
    assert_string_equal(prefix, "model.layers.0.mlp.experts.");
    moxie_model_close(model);
    remove_dir(f->path);
}

/* Every tensor gets separate memory, in which the views must lie. */
static void a_layer_from_tensors_in_memory(void **state)
{
    fixture *f = *state;
    moxie_model *model = NULL, *again = NULL;
    moxie_model_layer *layer = NULL, *copy = NULL;
    listing l;
    list(f, "kimi-k2-thinking", "int4-ct-g32", 1, &model, &l);
    assert_ok(moxie_model_load_layer(model, 1, &layer, &f->error), &f->error);
    for (int64_t i = 0; i < l.count; i++) {
        moxie_tensor *t = &l.tensors[i].tensor;
        size_t bytes = (size_t)moxie_dtype_bits(t->dtype) / 8;
        for (int32_t axis = 0; axis < t->rank; axis++)
            bytes *= (size_t)t->shape[axis];
        void *own = test_guarded(bytes);
        memcpy(own, t->data, bytes);
        t->data = own;
    }
    moxie_model_options options = MOXIE_MODEL_OPTIONS_INIT;
    options.tensors = l.tensors;
    options.n_tensors = l.count;
    assert_ok(moxie_model_open(f->path, &options, &again, &f->error), &f->error);
    assert_int_not_equal(moxie_model_load_layer(again, 1, &copy, &f->error), MOXIE_OK); /* there is no router */
    moxie_model_close(again);
    options.experts_only = 1;
    assert_ok(moxie_model_open(f->path, &options, &again, &f->error), &f->error);
    assert_ok(moxie_model_load_layer(again, 1, &copy, &f->error), &f->error);
    const moxie_layer_config *a = moxie_model_layer_config(layer), *b = moxie_model_layer_config(copy);
    assert_int_equal(b->experts, 16);
    assert_int_equal(b->hidden, a->hidden);
    assert_int_equal(b->intermediate, a->intermediate);
    assert_memory_equal(&b->w13, &a->w13, sizeof a->w13);
    assert_int_equal(b->activation.kind, a->activation.kind);
    assert_int_equal(b->router_width, 0);
    assert_int_equal(b->shared.intermediate, 0);
    const moxie_expert *x = &moxie_model_layer_weights(layer)->experts[9];
    const moxie_expert *y = &moxie_model_layer_weights(copy)->experts[9];
    assert_memory_equal(x->down.codes.data, y->down.codes.data, (size_t)x->down.codes.bytes);
    int64_t owner = 0;
    while (owner < l.count && l.tensors[owner].tensor.data != y->up.scale.data)
        owner++;
    assert_true(owner < l.count);
    assert_string_equal(l.tensors[owner].name, "model.layers.1.mlp.experts.9.up_proj.weight_scale");
    moxie_model_layer_free(copy);
    moxie_model_layer_free(layer);
    moxie_model_close(again);
    moxie_model_close(model);
}

static void given_tensors_are_checked(void **state)
{
    fixture *f = *state;
    moxie_model *model = NULL;
    listing l;
    list(f, "kimi-k2-thinking", "int4-ct-g32", 1, &model, &l);
    moxie_model_options options = MOXIE_MODEL_OPTIONS_INIT;
    moxie_named_tensor two[2] = { l.tensors[0], l.tensors[0] };
    moxie_model *made = NULL;
    options.tensors = two;
    options.n_tensors = 2;
    assert_int_equal(moxie_model_open(f->path, &options, &made, &f->error), MOXIE_ERR_FORMAT); /* equal names */
    two[1].name = NULL;
    assert_int_equal(moxie_model_open(f->path, &options, &made, &f->error), MOXIE_ERR_ARGUMENT);
    two[1] = l.tensors[1];
    two[1].tensor.data = NULL;
    assert_int_equal(moxie_model_open(f->path, &options, &made, &f->error), MOXIE_ERR_ARGUMENT);
    two[1] = l.tensors[1];
    two[1].tensor.shape[0] = -1;
    assert_int_equal(moxie_model_open(f->path, &options, &made, &f->error), MOXIE_ERR_ARGUMENT);
    two[1] = l.tensors[1];
    two[1].tensor.dtype = MOXIE_U4B8; /* no file has it */
    assert_int_equal(moxie_model_open(f->path, &options, &made, &f->error), MOXIE_ERR_ARGUMENT);
    options.n_tensors = -1;
    assert_int_equal(moxie_model_open(f->path, &options, &made, &f->error), MOXIE_ERR_ARGUMENT);
    assert_null(made);
    moxie_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tensors_of_one_layer_are_visited, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_layer_from_tensors_in_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(given_tensors_are_checked, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
