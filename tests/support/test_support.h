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

/* Whether this program has a sanitizer, which makes it several times slower. */
bool test_sanitized(void);
/* Whether an emulator runs this program: its times mean nothing, and its limits are not the library's. */
bool test_emulated(void);
/* Whether some of the cases are enough: `make test` sets MOXIE_TEST_QUICK=1. .ci/run runs all of them. */
bool test_quick(void);
/* How many cases to step by: 1, or `step` in an emulator, which calls a function for each number of a vector. Then the
 * test prints that it runs one in `step` of `what`. Begin each series at another case, so that a test over formats and
 * shapes still reaches all. MOXIE_TEST_WHOLE=1 gives 1 everywhere. */
int64_t test_one_in(int64_t step, const char *what);
/* The same, and `step` in a quick run, too: for the tests that take the longest. */
int64_t test_quick_one_in(int64_t step, const char *what);

/* A set of names. True when `name`, which must stay valid, is new. */
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

/* How many entries `dir` has, less . and .. */
int test_entries_in(const char *dir);

/* Fails with both numbers when they differ by more than `bound`. */
#define assert_close(got, want, bound) test_close((got), (want), (bound), #got, __FILE__, __LINE__)
void test_close(double got, double want, double bound, const char *what, const char *file, int line);

/* Fails with the library's message. */
#define assert_ok(call, error)                                                                                         \
    do {                                                                                                               \
        if ((call) != MOXIE_OK)                                                                                        \
            fail_msg("%s: %s (%s)", #call, (error)->text, (error)->file);                                              \
    } while (0)

#endif
