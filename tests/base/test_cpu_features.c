/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cpu_features.c - class names, the probe against the compiler's own, the cap, the processor count.
 *
 * Features are found once per process, so each case of the cap looks in a child process.
 */
#include "test_support.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cpu_features.h"
#include "base/log.h"

static void test_isa_names(void **state)
{
    static const char *const names[] = { "scalar", "neon", "avx2", "avx512", "amx" };
    moxie_error error = { .code = MOXIE_OK };
    mox_isa isa;
    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_string_equal(mox_isa_name((mox_isa)i), names[i]);
        assert_int_equal(mox_isa_from_name(names[i], &isa, &error), MOXIE_OK);
        assert_int_equal(isa, i);
    }
    assert_string_equal(mox_isa_name((mox_isa)5), "?");
    assert_int_equal(mox_isa_from_name(NULL, &isa, &error), MOXIE_OK);
    assert_int_equal(isa, MOX_ISA_AMX);
    isa = MOX_ISA_AVX2;
    assert_int_equal(mox_isa_from_name("AVX2\n", &isa, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(isa, MOX_ISA_AVX2);
    for (int i = 0; i < 5; i++)
        assert_non_null(strstr(error.text, names[i]));
    assert_non_null(strstr(error.text, "\"AVX2\\x0a\""));
}

static void count_message(void *user, moxie_log_level level, const char *text)
{
    if (level == MOXIE_LOG_WARN && strstr(text, "MOXIE_MAX_ISA"))
        ++*(int *)user;
}

typedef struct seen {
    mox_isa best, allowed;
    int warnings;
} seen;

static seen look_with_cap(const char *cap)
{
    int ends[2], status;
    seen s = { 0 };
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        if (cap)
            setenv("MOXIE_MAX_ISA", cap, 1);
        else
            unsetenv("MOXIE_MAX_ISA");
        mox_set_log(count_message, &s.warnings, MOXIE_LOG_DEBUG);
        s.best = mox_cpu()->best;
        s.allowed = mox_cpu()->allowed;
        _exit(write(ends[1], &s, sizeof s) == sizeof s ? 0 : 1);
    }
    assert_int_equal(read(ends[0], &s, sizeof s), sizeof s);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    return s;
}

static void test_cap(void **state)
{
    (void)state;
    const seen free_run = look_with_cap(NULL);
    assert_int_equal(free_run.allowed, free_run.best);
    assert_int_equal(free_run.warnings, 0);
    const bool x86 = free_run.best != MOX_ISA_NEON;
    static const char *const names[] = { "scalar", "neon", "avx2", "avx512", "amx" };
    for (int cap = 0; cap < 5; cap++) {
        const seen s = look_with_cap(names[cap]);
        int want = cap < (int)free_run.best ? cap : (int)free_run.best;
        if (x86 && want == MOX_ISA_NEON)
            want = MOX_ISA_SCALAR;
        assert_int_equal(s.best, free_run.best);
        assert_int_equal(s.allowed, want);
        assert_int_equal(s.warnings, 0);
    }
    const seen unknown = look_with_cap("sse9");
    assert_int_equal(unknown.allowed, free_run.best);
    assert_int_equal(unknown.warnings, 1); /* once, though asked for twice */
}

static void test_probe(void **state)
{
    (void)state;
    const mox_cpu_features *f = mox_cpu();
    assert_ptr_equal(f, mox_cpu());
    assert_true(f->processors >= 1);
#if defined(__x86_64__)
    assert_int_equal(f->avx2, __builtin_cpu_supports("avx2") != 0);
    assert_int_equal(f->fma, __builtin_cpu_supports("fma") != 0);
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    assert_int_equal(f->avx512, avx512);
    assert_int_equal(f->avx512_vnni, avx512 && __builtin_cpu_supports("avx512vnni"));
    assert_int_equal(f->avx512_vbmi, avx512 && __builtin_cpu_supports("avx512vbmi"));
    assert_int_equal(f->avx512_bf16, avx512 && __builtin_cpu_supports("avx512bf16"));
    assert_int_equal(f->full_rate_bf16, f->avx512_bf16 && __builtin_cpu_is("amd"));
    assert_int_equal(f->best >= MOX_ISA_AVX2, f->avx2 && f->fma && f->f16c);
    assert_int_equal(f->amx_tile, strcmp(f->amx, "permitted") == 0);
    assert_false(f->neon);
#endif
}

static void test_feature_names(void **state)
{
    const mox_cpu_features f = { .avx2 = true, .fma = true, .amx_int8 = true };
    char text[64];
    (void)state;
    mox_cpu_feature_names(&f, text, sizeof text);
    assert_string_equal(text, "avx2 fma amx_int8");
    mox_cpu_feature_names(&f, text, 9);
    assert_string_equal(text, "avx2 fma");
    mox_cpu_feature_names(&f, text, 8); /* whole names only */
    assert_string_equal(text, "avx2");
    mox_cpu_feature_names(&(mox_cpu_features) { 0 }, text, sizeof text);
    assert_string_equal(text, "");
}

static void test_processor_count(void **state)
{
    cpu_set_t mask, one;
    int first = 0, status;
    (void)state;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0) {
        print_message("no affinity mask to be had here\n");
        skip();
    }
    assert_in_range(mox_processor_count(), 1, CPU_COUNT(&mask));
    while (!CPU_ISSET(first, &mask))
        first++;
    const pid_t child = fork();
    if (child == 0) {
        CPU_ZERO(&one);
        CPU_SET(first, &one);
        _exit(sched_setaffinity(0, sizeof one, &one) == 0 && mox_processor_count() == 1 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_isa_names), cmocka_unit_test(test_cap), /* before this process looks for itself */
        cmocka_unit_test(test_probe),     cmocka_unit_test(test_feature_names), cmocka_unit_test(test_processor_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
