/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_driver.c - libFuzzer's entry point for the target that FUZZ_TARGET names.
 */
#include "fuzz_targets.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    FUZZ_TARGET(data, size);
    return 0;
}
