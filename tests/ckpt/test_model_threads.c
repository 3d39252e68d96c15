/* SPDX-License-Identifier: Apache-2.0
 *
 * test_model_threads.c - one opened model, many threads: each describes and loads the same layer again and again. What
 * may go wrong is for ThreadSanitizer to see.
 */
#include "synth_fixture.h"

#include <moxie/moxie_ckpt.h>
#include <pthread.h>

enum { THREADS = 4, TIMES = 3 };

static void *load_repeatedly(void *argument)
{
    const moxie_model *model = argument;
    const char *failure = NULL;
    for (int i = 0; i < TIMES && !failure; i++) {
        moxie_error error = { 0 };
        moxie_model_layer_info info = MOXIE_MODEL_LAYER_INFO_INIT;
        moxie_model_layer *layer = NULL;
        if (moxie_model_describe_layer(model, 0, &info, &error) ||
            moxie_model_load_layer(model, info.layer, &layer, &error))
            failure = "a layer was not loaded";
        moxie_model_layer_free(layer);
    }
    return (void *)(uintptr_t)failure;
}

static void threads_load_one_layer(void **state)
{
    static const char *const formats[] = { "bf16", "fp8-block", "nvfp4-ct", "nvfp4-modelopt", "mxfp4-quark", "awq" };
    fixture *f = *state;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        const moxie_synth_options options = small(formats[i], 1, 8);
        moxie_model *model;
        pthread_t threads[THREADS];
        write_threads(f, "qwen3-30b-a3b", f->path, &options, 1);
        assert_ok(moxie_model_open(f->path, NULL, &model, &f->error), &f->error);
        for (int t = 0; t < THREADS; t++)
            assert_int_equal(pthread_create(&threads[t], NULL, load_repeatedly, model), 0);
        for (int t = 0; t < THREADS; t++) {
            void *failure;
            assert_int_equal(pthread_join(threads[t], &failure), 0);
            if (failure)
                fail_msg("%s: %s", formats[i], (const char *)failure);
        }
        moxie_model_close(model);
        remove_dir(f->path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test_setup_teardown(threads_load_one_layer, set_up, tear_down) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
