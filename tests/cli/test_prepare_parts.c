/* SPDX-License-Identifier: Apache-2.0
 *
 * test_prepare_parts.c - what `moxie prepare` reads of its own files, which anybody may have written: every size and
 * sum of moxie.source, every number of a manifest. And memory that runs out anywhere on the way there and back.
 *
 * The linker puts the functions here in the place of the C library's (tests/CMakeLists.txt), so that the n-th fails.
 */
#include "test_support.h"

#include <sys/wait.h>
#include <unistd.h>

#include "prepare.h"

/* ---- allocations that fail ---- */

static int64_t allocations, fail_at; /* 0: none */

static bool fails(void)
{
    return ++allocations == fail_at;
}

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    return fails() ? NULL : __real_malloc(bytes);
}

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : __real_calloc(count, bytes);
}

void *__real_realloc(void *block, size_t bytes);
void *__wrap_realloc(void *block, size_t bytes);
void *__wrap_realloc(void *block, size_t bytes)
{
    return fails() ? NULL : __real_realloc(block, bytes);
}

void *__real_aligned_alloc(size_t align, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes)
{
    return fails() ? NULL : __real_aligned_alloc(align, bytes);
}

char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);
char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : __real_strdup(text);
}

/* ---- moxie.source ---- */

static void describes(const char *text, moxie_status want)
{
    prepare_described out;
    moxie_error error = { 0 };
    const moxie_status status = prepare_described_parse(text, "layer.safetensors", &out, &error);
    if (status != want)
        fail_msg("%s: %s instead of %s (%s)", text, moxie_status_name(status), moxie_status_name(want), error.text);
    assert_true(status == MOXIE_OK || error.text[0]);
    prepare_described_free(&out);
}

static void sizes_are_added_up(void **state)
{
    (void)state;
    prepare_described out;
    moxie_error error = { 0 };
    /* 3 * 5 * 2 = 30 bytes, 4 codes of half a byte = 2 bytes, nothing, and one number of 4 bytes: each aligned to 64.
     */
    assert_ok(prepare_described_parse("[[\"a\", \"bf16\", [3, 5], 3], [\"b\", \"f4_e2m1\", [4], 2], [\"c\", \"u8\", "
                                      "[0, 7], 0], [\"d\", \"f32\", [], 0]]",
                                      "x", &out, &error),
              &error);
    assert_int_equal(out.count, 4);
    static const uint64_t bytes[] = { 30, 2, 0, 4 };
    static const int64_t pieces[] = { 3, 2, 0, 0 };
    for (int i = 0; i < 4; i++) {
        assert_int_equal(out.bytes[i], bytes[i]);
        assert_int_equal(out.pieces[i], pieces[i]);
    }
    assert_int_equal(out.room_bytes, 3 * 64);
    assert_string_equal(out.tensors[1].name, "b");
    assert_int_equal(out.tensors[0].tensor.shape[1], 5);
    prepare_described_free(&out);
}

static void wrong_sizes_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", "{}", "[]", "1", "[1]", "[[]]", "[[\"a\", \"u8\", [1]]]", "[[\"a\", \"u8\", [1], 1, 1]]",
        "[[1, \"u8\", [1], 1]]", "[[\"a\", 8, [1], 1]]", "[[\"a\", \"u9\", [1], 1]]", "[[\"a\", \"u8\", 1, 1]]",
        "[[\"a\", \"u8\", {\"x\": 1}, 1]]", "[[\"a\", \"u8\", [1], \"1\"]]", "[[\"a\", \"u8\", [1], 1.0]]",
        "[[\"a\", \"u8\", [1], true]]", "[[\"a\", \"u8\", [1.0], 1]]", "[[\"a\", \"u8\", [\"1\"], 1]]",
        "[[\"a\", \"u8\", [null], 1]]", "[[\"a\", \"u8\", [-1], 0]]", "[[\"a\", \"u8\", [-4, -4], 1]]",
        "[[\"a\", \"u8\", [1, 1, 1, 1, 1, 1], 1]]", "[[\"a\", \"u8\", [4], -1]]", "[[\"a\", \"u8\", [4], 3]]",
        "[[\"a\", \"u8\", [4], 8]]", "[[\"a\", \"u8\", [0], 1]]", "[[\"a\", \"f4_e2m1\", [3], 0]]",
        /* products and sums that wrap around, or need more than any layer */
        "[[\"a\", \"u8\", [4294967296, 4294967296], 1]]", "[[\"a\", \"f32\", [4611686018427387905], 1]]",
        "[[\"a\", \"u8\", [9223372036854775807], 1]]", "[[\"a\", \"u8\", [1099511627777], 1]]",
        "[[\"a\", \"u8\", [1099511627776], 1], [\"b\", \"u8\", [1], 1]]",
        ("[[\"a\", \"u8\", [2305843009213693951], 1], [\"b\", \"u8\", [2305843009213693951], 1], "
         "[\"c\", \"u8\", [64], 0]]"),
        /* one name, two tensors */
        "[[\"a\", \"u8\", [4], 1], [\"a\", \"u8\", [8], 1]]"
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        describes(bad[i], MOXIE_ERR_FORMAT);
    describes("[[\"a\", \"u8\", [1099511627776], 1]]", MOXIE_OK);
    /* The sum of eight times 2^61 - 64 bytes and 513 more would wrap around to one byte. */
    char sum[1024] = "[[\"kept\", \"u8\", [513], 0]";
    for (int i = 0; i < 8; i++)
        snprintf(sum + strlen(sum), sizeof sum - strlen(sum), ", [\"%d\", \"u8\", [2305843009213693888], 1]", i);
    describes(strcat(sum, "]"), MOXIE_ERR_FORMAT);
}

/* ---- manifests ---- */

static void manifest(const char *layout, const char *numbers, moxie_status want)
{
    char text[700];
    prepare_how how;
    moxie_error error = { 0 };
    snprintf(text, sizeof text, "{\"schema_version\": 1, \"kind\": \"moxie prepared weights\", \"layout\": \"%s\", %s}",
             layout, numbers);
    const moxie_status status =
        prepare_manifest_parse(text, strlen(text), "moxie_prepare.json", PREPARE_PREPARED, &how, &error);
    if (status != want)
        fail_msg("%s: %s (%s)", text, moxie_status_name(status), error.text);
    prepare_how_free(&how);
}

static void numbers_of_manifests_are_in_range(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "\"pad\": 2, \"tp\": [0, 1], \"ep\": [0, 1, 0], \"layers\": [3]",
        "\"pad\": 4294967296, \"tp\": [0, 1], \"ep\": [0, 1, 0], \"layers\": [3]",
        "\"pad\": 0.0, \"tp\": [0, 1], \"ep\": [0, 1, 0], \"layers\": [3]",
        "\"pad\": 0, \"tp\": [1, 1], \"ep\": [0, 1, 0], \"layers\": [3]",
        "\"pad\": 0, \"tp\": [-1, 1], \"ep\": [0, 1, 0], \"layers\": [3]",
        "\"pad\": 0, \"tp\": [0, 0], \"ep\": [0, 1, 0], \"layers\": [3]",
        "\"pad\": 0, \"tp\": [0, 4294967297], \"ep\": [0, 1, 0], \"layers\": [3]",
        "\"pad\": 0, \"tp\": [0, 1025], \"ep\": [0, 1, 0], \"layers\": [3]",
        "\"pad\": 0, \"tp\": [0, 1], \"ep\": [0, 1, 2], \"layers\": [3]",
        "\"pad\": 0, \"tp\": [0, 1], \"ep\": [0, 1], \"layers\": [3]",
        "\"pad\": 0, \"tp\": [0, 1], \"ep\": [0, 1, 0], \"layers\": []",
        "\"pad\": 0, \"tp\": [0, 1], \"ep\": [0, 1, 0], \"layers\": 3",
        "\"pad\": 0, \"tp\": [0, 1], \"ep\": [0, 1, 0], \"layers\": [-1]",
        "\"pad\": 0, \"tp\": [0, 1], \"ep\": [0, 1, 0], \"layers\": [3, 3]",
        "\"pad\": 0, \"tp\": [0, 1], \"ep\": [0, 1, 0], \"layers\": [4, 3]",
        "\"pad\": 0, \"tp\": [0, 1], \"ep\": [0, 1, 0], \"layers\": [3.0]",
        "\"pad\": 0, \"tp\": [0, 1], \"ep\": [0, 1, 0], \"layers\": [9223372036854775807]",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        manifest("x", bad[i], MOXIE_ERR_FORMAT);
    static const char good[] = "\"pad\": 1, \"tp\": [1, 2], \"ep\": [3, 4, 1], \"layers\": [0, 3, 60]";
    manifest("x", good, MOXIE_OK);
    manifest("a-name-of-63-bytes-is-the-longest-that-a-manifest-may-have-xxxx", good, MOXIE_OK);
    manifest("a-name-of-64-bytes-is-the-longest-that-a-manifest-may-not-have-x", good, MOXIE_ERR_FORMAT);
    allocations = 0;
    fail_at = 1; /* fails for its list of layers: Jansson does not call this malloc() */
    manifest("x", good, MOXIE_ERR_MEMORY);
    fail_at = 0;
}

/* ---- memory on the whole way ---- */

typedef struct fixture {
    char *dir;
    char model[600], out[600], back[600], partial[2][640];
    moxie_error error;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0); /* otherwise a hundred runs would wait for the disk */
    f->dir = test_tmpdir();
    snprintf(f->model, sizeof f->model, "%s/model", f->dir);
    snprintf(f->out, sizeof f->out, "%s/out", f->dir);
    snprintf(f->back, sizeof f->back, "%s/back", f->dir);
    snprintf(f->partial[0], sizeof f->partial[0], "%s.partial", f->out);
    snprintf(f->partial[1], sizeof f->partial[1], "%s.partial", f->back);
    moxie_synth_options o = MOXIE_SYNTH_OPTIONS_INIT;
    o.layers = 1;
    o.experts = 8;
    o.hidden = 64;
    o.intermediate = 64;
    o.format = "int4-ct-g32"; /* with tensors that are kept */
    *state = f;
    return moxie_synth_write("qwen3-30b-a3b", f->model, &o, &f->error) != MOXIE_OK;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    test_rmdir(f->dir);
    free(f);
    return 0;
}

typedef enum step { THERE, BACK, VERIFY } step;

/* Runs it as cmd_prepare.c does. */
static moxie_status run(fixture *f, step what)
{
    prepare_report report = { .info = MOXIE_PREPARATION_INFO_INIT };
    cli_progress progress = { 0 };
    moxie_executor *executor = NULL;
    const prepare_options options = { .dir = what == THERE ? f->model : f->out,
                                      .layout = "moe-wna16",
                                      .out = what == THERE ? f->out : f->back,
                                      .first_layer = -1,
                                      .last_layer = -1,
                                      .how = { .layout = "moe-wna16", .tp_size = 1, .ep_size = 1 } };
    moxie_status status = moxie_executor_create(1, &executor, &f->error);
    if (status == MOXIE_OK)
        status = what == THERE  ? prepare_all(&options, executor, &progress, &report, &f->error)
                 : what == BACK ? prepare_undo(&options, executor, &progress, &report, &f->error)
                                : prepare_verify(f->out, NULL, &progress, &report, &f->error);
    moxie_executor_destroy(executor);
    return status;
}

static bool same(const char *a, const char *b)
{
    char command[1400];
    snprintf(command, sizeof command, "diff -r '%s' '%s' >/dev/null", a, b);
    return system(command) == 0;
}

static void remove_dir(const char *dir)
{
    char command[700];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

enum { DONE, REFUSED, NOT_REACHED, NO_WORDS };

/* Runs it in a process of its own, like the tool, with the n-th allocation failing. */
static int run_without(fixture *f, step what, int64_t n)
{
    const pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(NO_WORDS);
        cli_end_install();
        allocations = 0;
        fail_at = n;
        const moxie_status status = run(f, what);
        fail_at = 0;
        if (status != MOXIE_OK)
            _exit(f->error.text[0] ? REFUSED : NO_WORDS);
        _exit(allocations < n ? NOT_REACHED : DONE);
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status))
        fail_msg("without allocation %lld: signal %d", (long long)n, WTERMSIG(status));
    return WEXITSTATUS(status) == CLI_RESOURCES ? REFUSED : WEXITSTATUS(status);
}

/* Each allocation fails once: the result is an error without `out`, or the same `out`. A run of a small model makes
 * fewer than MOST allocations; where every run is refused, whatever its memory, this ends too. */
static void without_memory(fixture *f, step what, const char *out, const char *want)
{
    enum { MOST = 100000 };
    int failed = 0, got = DONE;
    for (int64_t n = 1; got != NOT_REACHED; n += test_env("MOXIE_TEST_LONG", 0) ? 1 : 1 + n / 60) {
        if (n > MOST)
            fail_msg("it did not succeed with memory for %d allocations", MOST);
        got = run_without(f, what, n);
        assert_int_not_equal(got, NO_WORDS);
        failed += got == REFUSED;
        if (got == REFUSED && out && access(out, F_OK) == 0)
            fail_msg("without allocation %lld: refused, and the output is there", (long long)n);
        if (got != REFUSED && out && !same(out, want))
            fail_msg("without allocation %lld the output is another", (long long)n);
        if (out)
            remove_dir(out);
        for (int i = 0; i < 2; i++)
            remove_dir(f->partial[i]);
    }
    print_message("%d runs were refused\n", failed);
    assert_true(failed > 30);
}

static void memory_may_run_out_anywhere(void **state)
{
    fixture *f = *state;
    char want_out[700], want_back[700];
    snprintf(want_out, sizeof want_out, "%s/want_out", f->dir);
    snprintf(want_back, sizeof want_back, "%s/want_back", f->dir);
    assert_ok(run(f, THERE), &f->error);
    assert_ok(run(f, BACK), &f->error);
    assert_int_equal(rename(f->out, want_out), 0);
    assert_int_equal(rename(f->back, want_back), 0);
    without_memory(f, THERE, f->out, want_out);
    assert_ok(run(f, THERE), &f->error);
    without_memory(f, BACK, f->back, want_back);
    without_memory(f, VERIFY, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_added_up),
        cmocka_unit_test(wrong_sizes_are_refused),
        cmocka_unit_test(numbers_of_manifests_are_in_range),
        cmocka_unit_test_setup_teardown(memory_may_run_out_anywhere, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
