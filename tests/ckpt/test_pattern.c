/* SPDX-License-Identifier: Apache-2.0
 *
 * Patterns for module names, against what Python's documentation of re.match, re.fullmatch and fnmatch says; patterns
 * that are not understood are refused by name; hostile ones take no time.
 */
#include "test_support.h"

#include "ckpt/formats/pattern.h"

typedef struct pattern_case {
    const char *pattern, *name;
    bool matches; /* from the first character on */
    bool whole;   /* up to the last one, too */
} pattern_case;

/* clang-format off */
static const pattern_case cases[] = {
    { ".*experts.*", "model.layers.3.mlp.experts.0.up_proj", true, true },
    { "experts", "model.experts", false, false },            /* re.match begins at the start */
    { "model", "model.layers", true, false },
    { ".*mlp\\.gate$", "model.layers.1.mlp.gate", true, true },
    { ".*mlp\\.gate$", "model.layers.1.mlp.gate_proj", false, false },
    { ".*mlp.gate", "model.layers.1.mlpxgate_proj", true, false },
    { "model\\.layers\\.\\d+\\.mlp\\.experts\\.\\d+\\.(gate|up|down)_proj", "model.layers.17.mlp.experts.255.down_proj", true, true },
    { "model\\.layers\\.\\d+\\.mlp", "model.layers.x.mlp", false, false },
    { ".*\\.(?:gate_up|down)_proj", "a.down_proj", true, true },
    { ".*self_attn.(q|k|v|o)_proj", "model.layers.0.self_attn.q_proj", true, true },
    { "-?a|b+|", "", true, true },
    { "(?!.*self_attn).*proj", "model.self_attn.q_proj", false, false },
    { "(?!.*self_attn).*proj", "model.mlp.up_proj", true, true },
    { "model\\.layers\\.(?!0\\.)\\d+\\..*", "model.layers.0.mlp", false, false },
    { "model\\.layers\\.(?!0\\.)\\d+\\..*", "model.layers.10.mlp", true, true },
    { "(?=.*experts).*down", "a.experts.1.down_proj", true, false },
    { "layers\\.([0-9]|1[0-2])\\.", "layers.12.x", true, false },
    { "layers\\.([0-9]|1[0-2])\\.", "layers.13.x", false, false },
    { "[^.]*\\.x", "ab.x", true, true },
    { "[^.]*\\.x", "a.b.x", false, false },
    { "[]a-]+", "]-a", true, true },
    { "[\\w.]+", "model_1.x", true, true },
    { "a{2}", "aa", true, true },
    { "a{2}", "a", false, false },
    { "a{2,3}b", "aaab", true, true },
    { "a{2,3}b", "aaaab", false, false },
    { "(ab){0,2}c", "ababc", true, true },
    { "(ab){0,2}c", "c", true, true },
    { "(ab){0,2}c", "abababc", false, false },
    { "a{,2}b", "aab", true, true },
    { "a{2,}b", "aaaaab", true, true },
    { "a{2,}b", "ab", false, false },
    { "(a*)*b", "aab", true, true },
    { "a{x}", "a{x}", true, true },
    { "a*?b??", "aab", true, true },
    { "(?P<layer>\\d+)x", "12x", true, true },
    { "\\bup\\b", "up.x", true, false },
    { "\\bup\\b", "up_x", false, false },
    { "^a\\Z", "a", true, true },
    { "\\D\\S\\W", "ab.", true, true },
    { "a||b", "b", true, true },
    { "x(a|b|)y", "xy", true, true },
};
static const pattern_case shell_cases[] = {
    { "*.mlp.experts.*", "model.mlp.experts.0", true, true },
    { "*.mlp.experts", "model.mlp.experts.0", true, false },
    { "model.layers.?.x", "model.layers.7.x", true, true },
    { "layers.[0-4]*", "layers.3.x", true, true },
    { "layers.[!0-4]*", "layers.3.x", false, false },
    { "a[b", "a[b", true, true },
    { "a.b", "axb", false, false },
};
/* clang-format on */

static void check(const pattern_case *c, mox_pattern_kind kind)
{
    mox_arena arena = { 0 };
    const char *problem;
    mox_pattern *pattern = mox_pattern_compile(c->pattern, kind, &arena, &problem);
    print_message("%s %s\n", c->pattern, c->name);
    assert_non_null(pattern);
    assert_int_equal(mox_pattern_matches(pattern, c->name, false), c->matches);
    assert_int_equal(mox_pattern_matches(pattern, c->name, true), c->whole);
    mox_arena_free(&arena);
}

static void as_python_matches(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check(&cases[i], MOX_PATTERN_REGEX);
    for (size_t i = 0; i < sizeof shell_cases / sizeof shell_cases[0]; i++)
        check(&shell_cases[i], MOX_PATTERN_SHELL);
}

static void not_understood(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *problem;
    } bad[] = {
        { "(?<=a)b", "look-behind" },
        { "(?<!a)b", "look-behind" },
        { "(a)\\1", "a back reference" },
        { "(?P<x>a)(?P=x)", "a back reference" },
        { "(?i)a", "a flag or a conditional group" },
        { "(a", "a ( without its )" },
        { "a)", "a ) without its (" },
        { "[a", "a [ without its ]" },
        { "*a", "a quantifier with nothing before it" },
        { "a**", "a quantifier behind a quantifier" },
        { "a*+", "a quantifier behind a quantifier" },
        { "a{3,2}", "a {m,n} with m above n" },
        { "[z-a]", "a range that is not understood" },
        { "\\q", "an escape that is not understood" },
        { "((a{100}){100}){100}", "too long" },
        { "a\\", "an escape that is not understood" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        mox_arena arena = { 0 };
        const char *problem = NULL;
        print_message("%s\n", bad[i].pattern);
        assert_null(mox_pattern_compile(bad[i].pattern, MOX_PATTERN_REGEX, &arena, &problem));
        assert_non_null(problem);
        assert_string_equal(problem, bad[i].problem);
        mox_arena_free(&arena);
    }
}

/* Exponential in an engine that tries one alternative after the other. */
static void hostile(void **state)
{
    (void)state;
    static const char *const patterns[] = { "(a*)*b", "(a|a)*b", "(a|aa)+$x", "(.*)*(.*)*(.*)*y", "((((a+)+)+)+)+b" };
    char name[301];
    memset(name, 'a', 300);
    name[300] = 0;
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        mox_arena arena = { 0 };
        const char *problem;
        mox_pattern *pattern = mox_pattern_compile(patterns[i], MOX_PATTERN_REGEX, &arena, &problem);
        assert_non_null(pattern);
        assert_false(mox_pattern_matches(pattern, name, false));
        mox_arena_free(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_python_matches),
        cmocka_unit_test(not_understood),
        cmocka_unit_test(hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
