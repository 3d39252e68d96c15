/* SPDX-License-Identifier: Apache-2.0
 *
 * test_support.h - what every test uses: cmocka with its prerequisites, seeded random numbers, doubles.
 *
 * A test that fails on random input prints the seed; MOXIE_TEST_SEED repeats it.
 */
#ifndef TEST_SUPPORT_H
#define TEST_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <moxie/moxie.h>

/* splitmix64: small, seedable, good enough for test data. */
typedef struct test_rng {
    uint64_t state;
} test_rng;
uint64_t test_u64(test_rng *rng);
/* Uniform in [0, bound). */
uint64_t test_below(test_rng *rng, uint64_t bound);
/* Uniform in [low, high]. */
int64_t test_range(test_rng *rng, int64_t low, int64_t high);
/* Uniform in [-1, 1). */
float test_uniform(test_rng *rng);
/* Roughly normal, mean 0, deviation 1. */
float test_normal(test_rng *rng);

/* MOXIE_TEST_SEED, or `fallback`. Printed by the caller on failure. */
uint64_t test_seed(uint64_t fallback);
/* An environment number such as MOXIE_TEST_CONFIGS, or `fallback`. */
int64_t test_env(const char *name, int64_t fallback);

/* Whether a sanitizer is in this program: its seconds are several times those of the library. */
bool test_sanitized(void);
/* Whether an emulator runs this program: its seconds say nothing, and its own limits are not the library's. */
bool test_emulated(void);
/* Whether some of the cases will do: `make test` says so by MOXIE_TEST_QUICK=1. .ci/run takes all of them. */
bool test_quick(void);
/* 1; in an emulator, where each number of a vector is a call, `most`, and the test says that of `what` it takes one in
 * so many. A test that steps by it begins at turns, so that over its formats and shapes it still takes all.
 * MOXIE_TEST_WHOLE=1 gives 1 everywhere. */
int64_t test_one_in(int64_t most, const char *what);
/* `most` in a quick run too: for the tests that take the longest. */
int64_t test_quick_one_in(int64_t most, const char *what);

/* Names that were met. True when `name`, which stays valid, is a new one. */
typedef struct test_names {
    const char *name[256];
    int count;
} test_names;
bool test_name_is_new(test_names *names, const char *name);

/* Memory with an inaccessible page directly behind its end: `bytes` usable. */
void *test_guarded(size_t bytes);
void test_guarded_free(void *data, size_t bytes);

/* A fresh directory under $TMPDIR, removed by test_rmdir(). */
char *test_tmpdir(void);
void test_rmdir(char *dir);

/* Fails with both numbers when they differ by more than `bound`. */
#define assert_close(got, want, bound) test_close((got), (want), (bound), #got, __FILE__, __LINE__)
void test_close(double got, double want, double bound, const char *what, const char *file, int line);

/* Fails with the library's own words. */
#define assert_ok(call, error)                                                                                         \
    do {                                                                                                               \
        if ((call) != MOXIE_OK)                                                                                        \
            fail_msg("%s: %s (%s)", #call, (error)->text, (error)->file);                                              \
    } while (0)

#endif
