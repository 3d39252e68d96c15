/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_lora.c - LoRA adapters on a GPU: the layers of adapted_layers.h, for the kernels that the GPU has.
 * MOXIE_TEST_CONFIGS sets the number of layers of each kind (default 60), MOXIE_TEST_SEED the first seed. Skipped
 * without a GPU.
 */
#include "adapted_layers.h"
#include "device_support.h"

static void layers(void **state)
{
    (void)state;
    const int64_t configs = test_env("MOXIE_TEST_CONFIGS", 60);
    print_message("%d plans fuse the activation\n", adapted_walk(configs, test_seed(39601), 300, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(layers) };
    return device_or_skip() == NULL ? 77 : cmocka_run_group_tests(tests, NULL, NULL);
}
