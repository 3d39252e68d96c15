/* SPDX-License-Identifier: Apache-2.0
 *
 * test_status.c - error texts (formatted, cut, with context, escaped), the log callback, arithmetic with overflow
 * checks.
 */
#include "test_support.h"

#include "base/log.h"
#include "base/sizes.h"
#include "base/status.h"

static void test_status_names(void **state)
{
    (void)state;
    assert_string_equal(mox_status_name(MOXIE_OK), "ok");
    assert_string_equal(mox_status_name(MOXIE_ERR_UNSUPPORTED), "unsupported");
    assert_string_equal(mox_status_name(MOXIE_ERR_TIMEOUT), "timeout");
    assert_string_equal(mox_status_name((moxie_status)99), "unknown");
}

static void test_fail_fills_the_error(void **state)
{
    moxie_error error;
    (void)state;
    memset(&error, 0x55, sizeof error);
    assert_int_equal(mox_fail(MOXIE_ERR_ARGUMENT, &error, "top_k %d is larger than %d", 9, 8), MOXIE_ERR_ARGUMENT);
    assert_int_equal(error.code, MOXIE_ERR_ARGUMENT);
    assert_int_equal(error.offset, -1);
    assert_string_equal(error.file, "");
    assert_string_equal(error.text, "top_k 9 is larger than 8");

    assert_int_equal(mox_fail_file(MOXIE_ERR_IO, &error, "a\tb", 17, "cannot read"), MOXIE_ERR_IO);
    assert_int_equal(error.code, MOXIE_ERR_IO);
    assert_int_equal(error.offset, 17);
    assert_string_equal(error.file, "a\\x09b");
    assert_string_equal(error.text, "cannot read");

    assert_int_equal(mox_fail_context(MOXIE_ERR_IO, &error, "reading layer %d", 3), MOXIE_ERR_IO);
    assert_string_equal(error.text, "cannot read (while reading layer 3)");
    assert_int_equal(error.offset, 17);

    assert_int_equal(mox_fail(MOXIE_ERR_MEMORY, NULL, "nobody reads this"), MOXIE_ERR_MEMORY);
    assert_int_equal(mox_fail_file(MOXIE_ERR_IO, NULL, "f", 0, "nor this"), MOXIE_ERR_IO);
    assert_int_equal(mox_fail_context(MOXIE_ERR_IO, NULL, "nor this"), MOXIE_ERR_IO);
}

static moxie_status fail_if_odd(int n, moxie_error *error)
{
    MOX_FAIL_IF(n % 2, MOXIE_ERR_ARGUMENT, error, "%d is odd", n);
    return MOXIE_OK;
}

static moxie_status try_all(int a, int b, moxie_error *error)
{
    MOX_TRY(fail_if_odd(a, error));
    MOX_TRY(fail_if_odd(b, error));
    return MOXIE_OK;
}

static void test_macros(void **state)
{
    moxie_error error = { .code = MOXIE_OK, .text = "untouched" };
    (void)state;
    assert_int_equal(try_all(2, 4, &error), MOXIE_OK);
    assert_string_equal(error.text, "untouched");
    assert_int_equal(try_all(2, 5, &error), MOXIE_ERR_ARGUMENT);
    assert_string_equal(error.text, "5 is odd");
}

static void test_long_texts_are_cut(void **state)
{
    enum { SIZE = sizeof((moxie_error *)0)->text };
    char text[2 * SIZE];
    moxie_error error;
    (void)state;
    memset(text, 'a', sizeof text);

    text[SIZE - 1] = '\0'; /* fits exactly */
    mox_fail(MOXIE_ERR_IO, &error, "%s", text);
    assert_string_equal(error.text, text);
    mox_fail_context(MOXIE_ERR_IO, &error, "no room left");
    assert_string_equal(error.text, text);

    text[SIZE - 1] = 'a';
    text[SIZE] = '\0'; /* one too many */
    mox_fail(MOXIE_ERR_IO, &error, "%s", text);
    assert_int_equal(strlen(error.text), SIZE - 1);
    assert_string_equal(error.text + SIZE - 5, "a...");

    /* The cut falls into a two-byte character, which is removed as a whole. */
    memcpy(text + SIZE - 5, "\xc3\xa4", 2);
    mox_fail(MOXIE_ERR_IO, &error, "%s", text);
    assert_string_equal(error.text + SIZE - 6, "a...");
}

static void assert_escaped(size_t size, const char *name, const char *want)
{
    char *room = test_guarded(size);
    assert_string_equal(mox_escape(room, size, name), want);
    test_guarded_free(room, size);
}

static void test_escape(void **state)
{
    (void)state;
    assert_escaped(64, "model-00001.safetensors", "model-00001.safetensors");
    assert_escaped(64, "", "");
    assert_escaped(64, "a\"b'c\\d", "a\\x22b\\x27c\\x5cd");
    assert_escaped(64, "\x1b[31mred\n\x7f", "\\x1b[31mred\\x0a\\x7f");
    assert_escaped(64, "Gr\xc3\xbc\xc3\x9f\xe2\x82\xac\xf0\x9f\x98\x80",
                   "Gr\xc3\xbc\xc3\x9f\xe2\x82\xac\xf0\x9f\x98\x80");
    assert_escaped(64, "\xff\x80", "\\xff\\x80");
    assert_escaped(64, "\xc3", "\\xc3");                            /* cut short */
    assert_escaped(64, "\xc0\xaf", "\\xc0\\xaf");                   /* overlong, 2 bytes */
    assert_escaped(64, "\xe0\x80\xaf", "\\xe0\\x80\\xaf");          /* overlong, 3 bytes */
    assert_escaped(64, "\xed\xa0\x80", "\\xed\\xa0\\x80");          /* surrogate */
    assert_escaped(64, "\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"); /* past U+10FFFF */
    assert_escaped(64, "\xf0\x80\x80\x80", "\\xf0\\x80\\x80\\x80"); /* overlong, 4 bytes */
    assert_escaped(64,
                   "\xc2\x9b"
                   "31m",
                   "\\xc2\\x9b31m"); /* a C1 control: CSI */

    assert_escaped(9, "abcdefgh", "abcdefgh");
    assert_escaped(8, "abcdefgh", "abcd...");
    assert_escaped(8, "abc\ndefgh", "abc..."); /* an escape is removed as a whole */
    assert_escaped(8,
                   "abc\xe2\x82\xac"
                   "def",
                   "abc..."); /* so does a character */
    assert_escaped(4, "abcdefgh", "...");
    assert_escaped(3, "abcdefgh", "");
    assert_escaped(1, "a", "");
    assert_escaped(1, "", "");
}

typedef struct heard {
    int count;
    moxie_log_level level;
    char text[2048];
} heard;

static void hear(void *user, moxie_log_level level, const char *text)
{
    heard *h = user;
    h->count++;
    h->level = level;
    snprintf(h->text, sizeof h->text, "%s", text);
}

static void test_log(void **state)
{
    static char text[3000];
    heard h = { 0 };
    (void)state;
    mox_log(MOXIE_LOG_ERROR, "nobody listens");
    mox_set_log(hear, &h, MOXIE_LOG_WARN);
    mox_log(MOXIE_LOG_INFO, "too detailed");
    assert_int_equal(h.count, 0);
    mox_log(MOXIE_LOG_WARN, "%d of %s", 3, "four");
    assert_int_equal(h.count, 1);
    assert_int_equal(h.level, MOXIE_LOG_WARN);
    assert_string_equal(h.text, "3 of four");
    memset(text, 'x', sizeof text - 1);
    mox_log(MOXIE_LOG_ERROR, "%s", text);
    assert_int_equal(strlen(h.text), 1023);
    assert_string_equal(h.text + 1019, "x...");
    mox_set_log(NULL, &h, MOXIE_LOG_DEBUG);
    mox_log(MOXIE_LOG_ERROR, "nobody listens any more");
    assert_int_equal(h.count, 2);
}

static void test_names_made_printable(void **state)
{
    (void)state;
    char name[] = "GPU\x1b[31m \"A\"\x7f\xc3\xa9~", full[4] = { 'a', 'b', 'c', 'd' }, one[1] = { 'x' };
    mox_make_printable(name, sizeof name);
    assert_string_equal(name, "GPU?[31m \"A\"???~");
    mox_make_printable(full, sizeof full);
    assert_string_equal(full, "abc");
    mox_make_printable(one, sizeof one);
    assert_string_equal(one, "");
    mox_make_printable(one, 0);
}

static void test_sizes(void **state)
{
    uint64_t out = 77;
    (void)state;
    assert_true(mox_mul_u64(UINT32_MAX, (uint64_t)UINT32_MAX + 2, &out)); /* (2^32 - 1)(2^32 + 1) = 2^64 - 1 */
    assert_true(out == UINT64_MAX);
    out = 77;
    assert_false(mox_mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &out));
    assert_false(mox_mul_u64(UINT64_MAX, 2, &out));
    assert_true(out == 77);
    assert_true(mox_mul_u64(UINT64_MAX, 0, &out) && out == 0);
    assert_true(mox_add_u64(UINT64_MAX - 1, 1, &out) && out == UINT64_MAX);
    out = 77;
    assert_false(mox_add_u64(UINT64_MAX, 1, &out));
    assert_true(out == 77);
    assert_true(mox_align_u64(0, 64, &out) && out == 0);
    assert_true(mox_align_u64(1, 64, &out) && out == 64);
    assert_true(mox_align_u64(128, 64, &out) && out == 128);
    assert_true(mox_align_u64(UINT64_MAX - 63, 64, &out) && out == UINT64_MAX - 63);
    out = 77;
    assert_false(mox_align_u64(UINT64_MAX - 62, 64, &out));
    assert_true(out == 77);
    assert_true(mox_ceil_div(0, 32) == 0 && mox_ceil_div(1, 32) == 1 && mox_ceil_div(64, 32) == 2);
    assert_true(mox_ceil_div(INT64_MAX, 2) == INT64_MAX / 2 + 1);
    assert_true(mox_min_i64(-1, 2) == -1 && mox_max_i64(-1, 2) == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_names), cmocka_unit_test(test_fail_fills_the_error),
        cmocka_unit_test(test_macros),       cmocka_unit_test(test_long_texts_are_cut),
        cmocka_unit_test(test_escape),       cmocka_unit_test(test_log),
        cmocka_unit_test(test_sizes),        cmocka_unit_test(test_names_made_printable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
