/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cpu_features.c - names of instruction-set classes, the probe against the compiler's, the cap, the processor
 * count.
 *
 * Features are found once per process, so each case of the cap runs in a child process.
 */
#include "test_support.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <moxie/moxie_prepare.h>
#include <moxie/moxie_scheme.h>

#include "base/cpu_features.h"

static const char *const names[] = { "scalar", "neon", "avx2", "avx512", "amx" };
enum { CLASSES = sizeof names / sizeof names[0] };

/* True when the class belongs to the architecture that this program is built for. */
static bool is_class_here(int isa)
{
#if defined(__x86_64__)
    return isa != MOX_ISA_NEON;
#elif defined(__aarch64__)
    return isa <= MOX_ISA_NEON;
#else
    return isa == MOX_ISA_SCALAR;
#endif
}

/* Checks that an error names all classes of this architecture, and no other. */
static void check_lists_classes(const char *text)
{
    const char *list = strstr(text, "give ");
    assert_non_null(list);
    for (int i = 0; i < CLASSES; i++)
        assert_int_equal(strstr(list, names[i]) != NULL, is_class_here(i));
}

static void test_isa_names(void **state)
{
    moxie_error error = { .code = MOXIE_OK };
    mox_isa isa;
    (void)state;
    for (int i = 0; i < CLASSES; i++) {
        assert_string_equal(mox_isa_name((mox_isa)i), names[i]);
        isa = (mox_isa)17;
        const moxie_status status = mox_isa_from_name(names[i], &isa, &error);
        assert_int_equal(status, is_class_here(i) ? MOXIE_OK : MOXIE_ERR_ARGUMENT);
        assert_int_equal(isa, is_class_here(i) ? i : 17);
        if (status == MOXIE_OK)
            continue;
        assert_non_null(strstr(error.text, "another architecture"));
        check_lists_classes(error.text);
    }
    assert_string_equal(mox_isa_name((mox_isa)5), "?");
    assert_int_equal(mox_isa_from_name(NULL, &isa, &error), MOXIE_OK);
    assert_int_equal(isa, MOX_ISA_AMX);
    isa = MOX_ISA_AVX2;
    assert_int_equal(mox_isa_from_name("AVX2\n", &isa, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(isa, MOX_ISA_AVX2);
    check_lists_classes(error.text);
    assert_non_null(strstr(error.text, "\"AVX2\\x0a\""));
}

typedef struct seen {
    mox_isa best, allowed;
    moxie_status status, without_error;
    moxie_error error;
} seen;

/* Runs look(result) in a child of this process, which has not found its features yet, with MOXIE_MAX_ISA = `cap`. */
static void in_child_with_cap(const char *cap, void (*look)(void *), void *result, size_t bytes)
{
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        if (cap)
            setenv("MOXIE_MAX_ISA", cap, 1);
        else
            unsetenv("MOXIE_MAX_ISA");
        look(result);
        _exit(write(ends[1], result, bytes) == (ssize_t)bytes ? 0 : 1);
    }
    assert_int_equal(read(ends[0], result, bytes), bytes);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void read_features(void *result)
{
    seen *s = result;
    s->status = mox_cpu_check_cap(&s->error);
    s->without_error = mox_cpu_check_cap(NULL);
    s->best = mox_cpu()->best;
    s->allowed = mox_cpu()->allowed;
}

static seen features_with_cap(const char *cap)
{
    seen s = { .error = { .code = MOXIE_OK } };
    in_child_with_cap(cap, read_features, &s, sizeof s);
    assert_int_equal(s.status, s.without_error);
    return s;
}

static void test_cap(void **state)
{
    (void)state;
    const seen free_run = features_with_cap(NULL), empty = features_with_cap("");
    assert_int_equal(free_run.allowed, free_run.best);
    assert_int_equal(free_run.status, MOXIE_OK);
    assert_int_equal(empty.allowed, free_run.best);
    assert_int_equal(empty.status, MOXIE_OK);
    for (int cap = 0; cap < CLASSES; cap++) {
        const seen s = features_with_cap(names[cap]);
        const int want = !is_class_here(cap) ? MOX_ISA_SCALAR : cap < (int)free_run.best ? cap : (int)free_run.best;
        assert_int_equal(s.best, free_run.best);
        assert_int_equal(s.allowed, want);
        assert_int_equal(s.status, is_class_here(cap) ? MOXIE_OK : MOXIE_ERR_ARGUMENT);
    }
    const seen unknown = features_with_cap("sse9");
    assert_int_equal(unknown.allowed, MOX_ISA_SCALAR);
    assert_int_equal(unknown.status, MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(unknown.error.text, "MOXIE_MAX_ISA"));
    assert_non_null(strstr(unknown.error.text, "\"sse9\""));
    check_lists_classes(unknown.error.text);
}

/* Every public call that chooses kernels or describes the choice. */
enum { CALLS = 6 };
typedef struct call_results {
    moxie_status status[CALLS];
    moxie_error error[CALLS];
} call_results;

static void make_calls(void *result)
{
    call_results *r = result;
    moxie_layer_config config = MOXIE_LAYER_CONFIG_INIT;
    moxie_machine machine = MOXIE_MACHINE_INIT;
    moxie_limits limits = MOXIE_LIMITS_INIT;
    moxie_preparation_options options = MOXIE_PREPARATION_OPTIONS_INIT;
    const moxie_expert expert = { .a13_scale = 0 };
    const moxie_quant quant = { .element = MOXIE_I8, .scale = MOXIE_F32 };
    moxie_layer *layer = NULL;
    moxie_plan *plan = NULL;
    moxie_preparation *preparation = NULL;
    float x = 1, scale;
    uint8_t code;
    config.dtype = config.w13.element = config.w2.element = MOXIE_BF16;
    config.experts = config.top_k = config.hidden = config.intermediate = 1;
    r->status[0] = moxie_machine_info(&machine, &r->error[0]);
    r->status[1] = moxie_measure_limits(NULL, NULL, &limits, &r->error[1]);
    r->status[2] = moxie_layer_create(&config, NULL, &layer, &r->error[2]);
    r->status[3] = moxie_plan_explain(&config, NULL, &plan, &r->error[3]);
    r->status[4] = moxie_preparation_create(&config, &options, &expert, &preparation, &r->error[4]);
    r->status[5] = moxie_quantize_activations(&quant, &x, 1, 1, 0, &code, &scale, &r->error[5]);
}

static void test_a_wrong_cap_is_rejected_by_every_call(void **state)
{
    (void)state;
    static call_results r;
    in_child_with_cap("foo", make_calls, &r, sizeof r);
    for (int i = 0; i < CALLS; i++) {
        assert_int_equal(r.status[i], MOXIE_ERR_ARGUMENT);
        assert_non_null(strstr(r.error[i].text, "MOXIE_MAX_ISA"));
        check_lists_classes(r.error[i].text);
    }
}

static void test_another_processor_for_tests(void **state)
{
    (void)state;
    const mox_cpu_features *found = mox_cpu(), other = { .best = MOX_ISA_SCALAR };
    mox_cpu_replace(&other);
    assert_ptr_equal(mox_cpu(), &other);
    mox_cpu_replace(NULL);
    assert_ptr_equal(mox_cpu(), found);
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
        print_message("skipped: this system gives no affinity mask\n");
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
        cmocka_unit_test(test_isa_names),
        cmocka_unit_test(test_cap), /* first: the children need a parent that has not found its features */
        cmocka_unit_test(test_a_wrong_cap_is_rejected_by_every_call),
        cmocka_unit_test(test_probe),
        cmocka_unit_test(test_another_processor_for_tests),
        cmocka_unit_test(test_feature_names),
        cmocka_unit_test(test_processor_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
