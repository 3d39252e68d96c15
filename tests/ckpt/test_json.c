/* SPDX-License-Identifier: Apache-2.0
 *
 * test_json.c - the pre-pass (non-finite literals, depth), what strict parsing rejects, and typed look-ups.
 */
#include "test_support.h"

#include "base/memory.h"
#include "ckpt/json.h"

static moxie_status parse(const char *text, bool lenient, json_t **out, moxie_error *error)
{
    const size_t size = strlen(text);
    char *guarded = test_guarded(size);
    memcpy(guarded, text, size);
    *error = (moxie_error) { 0 };
    const moxie_status status = mox_json_parse(guarded, size, lenient, "dir/config.json", out, error);
    test_guarded_free(guarded, size);
    return status;
}

static json_t *good(const char *text, bool lenient)
{
    json_t *root = NULL;
    moxie_error error;
    assert_ok(parse(text, lenient, &root, &error), &error);
    assert_non_null(root);
    return root;
}

static void reject(const char *text, bool lenient, const char *says)
{
    json_t *root = NULL;
    moxie_error error;
    assert_int_equal(parse(text, lenient, &root, &error), MOXIE_ERR_FORMAT);
    if (!strstr(error.text, says))
        fail_msg("\"%s\" does not say \"%s\"", error.text, says);
    assert_string_equal(error.file, "dir/config.json");
    assert_null(root);
}

/* ---- parsing ---------------------------------------------------------------------------------------- */

static void test_non_finite(void **state)
{
    (void)state;
    json_t *root = good("{\"a\": [0.0, Infinity], \"b\":-Infinity, \"c\":NaN,\"NaN\": [NaN,NaN ,-Infinity,1],"
                        "\"s\":\"Infinity \\\"NaN\\\\\"}",
                        true);
    assert_true(json_is_null(json_array_get(json_object_get(root, "a"), 1)));
    assert_true(json_is_null(json_object_get(root, "b")));
    assert_true(json_is_null(json_object_get(root, "c")));
    const json_t *list = json_object_get(root, "NaN");
    assert_int_equal(json_array_size(list), 4);
    assert_true(json_is_null(json_array_get(list, 0)) && json_is_null(json_array_get(list, 2)));
    assert_int_equal(json_integer_value(json_array_get(list, 3)), 1);
    assert_string_equal(json_string_value(json_object_get(root, "s")), "Infinity \"NaN\\");
    json_decref(root);

    reject("{\"a\":Infinity}", false, "line 1, column");
    reject("{\"a\":NaN}", false, "line 1, column");
    reject("{\"a\":-NaN}", true, "line 1, column");
    reject("{\"a\":+Infinity}", true, "line 1, column");
    reject("{\"a\":Infinit}", true, "line 1, column");
    reject("{\"a\":InfinityInfinity}", true, "line 1, column");
    reject("{NaN:1}", true, "line 1, column");
    reject("{\"a\":1}NaN", true, "line 1, column");
}

static char *nested(int depth)
{
    char *text = calloc(1, 2 * (size_t)depth + 1);
    memset(text, '[', (size_t)depth);
    memset(text + depth, ']', (size_t)depth);
    return text;
}

static void test_depth(void **state)
{
    (void)state;
    char *text = nested(64);
    json_decref(good(text, false));
    free(text);
    text = nested(65);
    reject(text, false, "line 1, column 65: more than 64 levels");
    reject(text, true, "more than 64 levels");
    free(text);
    text = nested(1000000);
    reject(text, true, "more than 64 levels");
    free(text);
    /* Brackets in strings do not count, and neighbouring brackets do not add up. */
    text = calloc(1, 1000);
    strcpy(text, "[\"");
    memset(text + 2, '[', 500);
    strcpy(text + 502, "\\\"[\"]");
    json_decref(good(text, true));
    strcpy(text, "[");
    for (int i = 0; i < 100; i++)
        strcat(text, "{},");
    strcat(text, "[]]");
    json_decref(good(text, true));
    free(text);
    reject("]]]]{}", true, "line 1");
}

static void test_strictness(void **state)
{
    (void)state;
    reject("", true, "line 1");
    reject("1", true, "line 1");
    reject("{\"a\":1,\"a\":2}", true, "duplicate");
    reject("{\"a\":1,\"\\u0061\":2}", true, "duplicate");
    reject("{\n\n \"a\":1,}", true, "line 3");
    reject("{} x", true, "line 1");
    reject("{\"a\":\"\377\"}", true, "unable to decode byte 0xff");
    reject("{\"a\":\"\\ud800\"}", true, "Unicode");
    reject("{\"a\":\"\\u0000\"}", true, "\\u0000");
    reject("{\"a\":99999999999999999999}", true, "too big integer");
    reject("{\"a\":01}", true, "line 1");
    reject("\357\273\277{}", true, "line 1");
    reject("{'a':1}", true, "line 1");
    reject("{\"a", true, "line 1");
    reject("{\"a\\", true, "line 1");
    reject("[NaN,\"a\\", true, "line 1"); /* written by the pre-pass */
}

static void test_positions(void **state)
{
    (void)state;
    json_t *root = NULL;
    moxie_error error;
    assert_int_equal(parse("{\"\033[2J\" 1}", true, &root, &error), MOXIE_ERR_FORMAT);
    assert_null(strchr(error.text, '\033')); /* the content of the file is not quoted */
    assert_int_equal(parse("[\033[2J]", true, &root, &error), MOXIE_ERR_FORMAT);
    assert_null(strchr(error.text, '\033'));
    assert_int_equal(parse("{\n  \"a\": Infinity,\n  \"b\": x\n}", true, &root, &error), MOXIE_ERR_FORMAT);
    assert_non_null(strstr(error.text, "line 3, column 8"));
    assert_int_equal(error.offset, 27); /* position behind the x, as Jansson counts */
}

/* ---- look-ups --------------------------------------------------------------------------------------- */

static void test_lookups(void **state)
{
    (void)state;
    json_t *root = good("{\"i\":-7,\"s\":\"x\",\"n\":null,\"o\":{},\"a\":[]}", false);
    moxie_error error;
    const char *s = NULL;
    assert_int_equal(mox_json_string(root, "s", "d", "f", &s, &error), MOXIE_OK);
    assert_string_equal(s, "x");
    assert_int_equal(mox_json_string(root, "n", "d", "f", &s, &error), MOXIE_OK);
    assert_string_equal(s, "d");
    assert_int_equal(mox_json_string(root, "absent", "e", "f", &s, &error), MOXIE_OK);
    assert_string_equal(s, "e");
    assert_int_equal(mox_json_string(root, "o", "d", "f", &s, &error), MOXIE_ERR_FORMAT);
    assert_non_null(strstr(error.text, "found an object"));
    assert_int_equal(mox_json_string(root, "i", "d", "dir/f", &s, &error), MOXIE_ERR_FORMAT);
    assert_string_equal(error.text, "\"i\": expected a string, found an integer");
    assert_string_equal(error.file, "dir/f");
    assert_int_equal(mox_json_string(root, "a", "d", "f", &s, NULL), MOXIE_ERR_FORMAT);
    assert_string_equal(s, "e");
    json_decref(root);
}

/* A section that is absent, or is no object, counts as empty. */
static void test_lookup_in_nothing(void **state)
{
    (void)state;
    const char *s = NULL;
    moxie_error error;
    json_t *root = good("[1]", false);
    assert_int_equal(mox_json_string(NULL, "s", "5", "f", &s, &error), MOXIE_OK);
    assert_string_equal(s, "5");
    assert_int_equal(mox_json_string(root, "s", "6", "f", &s, &error), MOXIE_OK);
    assert_string_equal(s, "6");
    json_decref(root);
}

/* ---- files and memory ------------------------------------------------------------------------------- */

static void test_load(void **state)
{
    (void)state;
    char *dir = test_tmpdir(), path[600];
    moxie_error error;
    json_t *root = NULL;
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_int_equal(mox_json_load(path, 100, true, &root, &error), MOXIE_ERR_IO);
    assert_string_equal(error.file, path);
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    fputs("{\"a\": NaN}", stream);
    fclose(stream);
    assert_int_equal(mox_json_load(path, 9, true, &root, &error), MOXIE_ERR_FORMAT);
    assert_non_null(strstr(error.text, "10 bytes, and moxie reads at most 9"));
    assert_null(root);
    assert_ok(mox_json_load(path, 10, true, &root, &error), &error);
    assert_true(json_is_null(json_object_get(root, "a")));
    json_decref(root);
    test_rmdir(dir);
}

/* An allocator that fails for blocks above `most` bytes, or from call `fails_from` on. An inaccessible page follows
 * each block. The size of a block is stored before it, unaligned. */
static size_t most;
static uint64_t calls, fails_from;

static void *guarded_malloc(size_t size)
{
    const size_t all = size + 16;
    if (size > most || (fails_from && ++calls >= fails_from))
        return NULL;
    char *block = test_guarded(all);
    memcpy(block, &all, sizeof all);
    return block + 16;
}

static void guarded_free(void *block)
{
    size_t all;
    if (!block)
        return;
    memcpy(&all, (char *)block - 16, sizeof all);
    test_guarded_free((char *)block - 16, all);
}

/* A token too long for the available memory, in a valid text and in an invalid one. */
static void test_little_memory(void **state)
{
    (void)state;
    static const char *const ends[] = { "\"}", "\"" };
    char text[1200] = "{\"a\":\"";
    memset(text + strlen(text), 'y', 1000);
    json_set_alloc_funcs(guarded_malloc, guarded_free);
    for (int end = 0; end < 2; end++)
        for (most = 16; most <= 8192; most += 16 + most / 8) {
            json_t *root = NULL;
            moxie_error error;
            strcpy(text + 1006, ends[end]);
            const moxie_status status = parse(text, true, &root, &error);
            assert_true(status == MOXIE_ERR_MEMORY || status == (end ? MOXIE_ERR_FORMAT : MOXIE_OK));
            assert_true(!root || json_string_length(json_object_get(root, "a")) == 1000);
            json_decref(root);
        }
    json_set_alloc_funcs(malloc, free);
}

/* One token of each length, so that the buffer ends at every position; from some allocation on there is no memory. */
static void test_memory_ends(void **state)
{
    (void)state;
    json_set_alloc_funcs(guarded_malloc, guarded_free);
    most = SIZE_MAX / 2;
    for (int length = 1; length < 80; length++) {
        char text[100] = "[\"";
        memset(text + 2, 'y', (size_t)length);
        strcpy(text + 2 + length, "\"]");
        moxie_status status = MOXIE_ERR_MEMORY;
        for (fails_from = 1; status != MOXIE_OK; fails_from++) {
            json_t *root = NULL;
            moxie_error error;
            calls = 0;
            status = parse(text, true, &root, &error);
            assert_true(status == MOXIE_OK || status == MOXIE_ERR_MEMORY);
            assert_true(!root || json_string_length(json_array_get(root, 0)) == (size_t)length);
            json_decref(root);
        }
    }
    fails_from = 0;
    json_set_alloc_funcs(malloc, free);
}

static void *failing_malloc(size_t size)
{
    return mox_alloc(size);
}

/* Jansson's allocator belongs to the program, here this test. Names, texts and numbers are longer than the initial
 * buffer of the parser. */
static void test_no_memory(void **state)
{
    (void)state;
    static const char text[] =
        "{\"num_experts_per_tok_of_a_layer\": 123456789012345, \"scale\": 0.30000000000000004, \"hidden_size_of_all\": "
        "[1234567890123456789, \"a text that is longer than sixteen bytes, and than thirty-two, and than "
        "sixty-four\"], "
        "\"inner\": {\"another_name_of_some_length\": NaN, \"last_name_that_is_the_longest_of_all_of_them\": true}}";
    json_t *want = good(text, true);
    uint64_t asked = 0;
    json_set_alloc_funcs(failing_malloc, mox_free);
    for (uint64_t n = 1; n == 1 || asked >= n - 1; n++) {
        json_t *root = NULL;
        moxie_error error;
        mox_alloc_fail_at(n);
        const uint64_t before = mox_alloc_count();
        const moxie_status status = parse(text, true, &root, &error);
        asked = mox_alloc_count() - before;
        mox_alloc_fail_at(0);
        assert_true(status == MOXIE_OK || status == MOXIE_ERR_MEMORY);
        assert_true((status == MOXIE_OK) == (root != NULL));
        if (root && !json_equal(root, want))
            fail_msg("without allocation %llu the text says something else", (unsigned long long)n);
        json_decref(root);
    }
    if (asked <= 20)
        fail_msg("%llu allocations are too few to be all", (unsigned long long)asked);
    json_set_alloc_funcs(malloc, free);
    json_decref(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_non_finite),  cmocka_unit_test(test_depth),     cmocka_unit_test(test_strictness),
        cmocka_unit_test(test_positions),   cmocka_unit_test(test_lookups),   cmocka_unit_test(test_lookup_in_nothing),
        cmocka_unit_test(test_load),        cmocka_unit_test(test_no_memory), cmocka_unit_test(test_little_memory),
        cmocka_unit_test(test_memory_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
