/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_targets.h - fuzz targets: each is a function of bytes in memory that calls one reader of untrusted text, or the
 * public interface.
 *
 *     fuzz_driver.c + fuzz_<name>.c + libFuzzer    looks for new inputs      (scripts/fuzz)
 *     test_fuzz_replay.c + all fuzz_<name>.c       runs the known ones       (every test run)
 *
 * A target checks what a reader promises about inputs that it accepts, and ends the program when the promise is
 * broken; memory errors are the sanitizers' to find.
 */
#ifndef MOX_FUZZ_TARGETS_H
#define MOX_FUZZ_TARGETS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MOX_FUZZ(name) void mox_fuzz_##name(const uint8_t *data, uint64_t size);
#include "fuzz_targets.def"
#undef MOX_FUZZ

#define FUZZ_CHECK(condition)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: broken promise: %s\n", __FILE__, __LINE__, #condition);                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
