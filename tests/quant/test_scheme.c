/* SPDX-License-Identifier: Apache-2.0
 *
 * test_scheme.c - vLLM's quantization configs: the descriptors that every constructor fills, the answers of the
 * config's predicates, the formats that moxie derives from it, rejected combinations. The tables below were written
 * from vLLM's config.py, not from schemes.def.
 */
#include "test_support.h"

#include "quant/quant.h"
#include "quant/scheme.h"

#define NONE                                                                                                           \
    {                                                                                                                  \
        0, 0                                                                                                           \
    }

static moxie_scheme make(const char *constructor, const moxie_scheme_args *args)
{
    moxie_scheme scheme = MOXIE_SCHEME_INIT;
    moxie_error error = { 0 };
    if (mox_scheme_make(constructor, args, &scheme, &error) != MOXIE_OK)
        fail_msg("%s: %s", constructor, error.text);
    return scheme;
}

/* ---- descriptors and answers ----------------------------------------------------------------------------- */

typedef struct expected_desc {
    const char *dtype;
    bool is_string;
    int32_t shape[2];
    const char *has; /* s: scale, g: gscale or alphas, z: zero points, b: bias */
} expected_desc;

typedef struct expectation {
    const char *constructor;
    moxie_scheme_args args;
    expected_desc a, w;
    const char *uses;   /* the only use_* predicate that holds, or NULL */
    const char *ocp;    /* OCP-MX name, or NULL; "?": none, with vLLM's warning */
    const char *config; /* config_name for bf16, or NULL */
    int32_t block[2];
    int64_t scale_shape[2];     /* for 40 tokens of 300; {0,0}: none */
    const char *acts, *weights; /* moxie's descriptions as text */
} expectation;

/* clang-format off */
static const expectation table[] = {
    { "unquantized", { 0 },
      { "", false, NONE, "" }, { "", false, NONE, "" },
      NULL, NULL, NULL, NONE, NONE, "none", "none" },
    { "biased", { 0 },
      { "", false, NONE, "" }, { "", false, NONE, "" },
      NULL, NULL, NULL, NONE, NONE, "none", "none" },
    { "biased", { .has_bias = 1 },
      { "", false, NONE, "" }, { "", false, NONE, "b" },
      NULL, NULL, NULL, NONE, NONE, "none", "none" },
    { "make", { 0 },
      { "", false, NONE, "" }, { "", false, NONE, "" },
      NULL, NULL, NULL, NONE, NONE, "none", "none" },
    { "make", { .quant_dtype = "int8", .has_zero = 1, .has_bias = 1, .has_gscale = 1, .per_out_ch = 1 },
      { "int8", false, { -1, -1 }, "g" }, { "int8", false, { 1, -1 }, "sgzb" },
      "use_int8_w8a8", NULL, NULL, NONE, { 1, 1 }, "i8 per tensor f32", "i8 per row f32 zero" },
    { "make", { .quant_dtype = "mxfp8", .weight_dtype = "int4" },
      { "mxfp8", true, { -1, -1 }, "" }, { "int4", true, NONE, "s" },
      NULL, NULL, NULL, NONE, { 1, 1 }, "f8_e4m3 1x32 f8_e8m0", "u4b8 per row f16" },
    /* A per-token flag without a type: the shape is set but has no effect. */
    { "make", { .per_act_token = 1 },
      { "", false, { 1, -1 }, "" }, { "", false, NONE, "" },
      NULL, NULL, NULL, NONE, NONE, "none", "none" },
    { "make", { .quant_dtype = "mxfp8", .weight_dtype = "mxfp6_e3m2", .has_alphas = 1 },
      { "mxfp8", true, { -1, -1 }, "" }, { "mxfp6_e3m2", true, NONE, "sg" },
      NULL, "?", NULL, NONE, { 1, 1 }, "f8_e4m3 1x32 f8_e8m0", "f6_e3m2 1x32 f8_e8m0" },
    { "make", { .weight_dtype = "mxfp6_e3m2" },
      { "", false, NONE, "" }, { "mxfp6_e3m2", true, NONE, "s" },
      NULL, "w_mxfp6_e3m2", NULL, NONE, NONE, "none", "f6_e3m2 1x32 f8_e8m0" },
    { "make", { .weight_dtype = "mxfp6_e2m3" },
      { "", false, NONE, "" }, { "mxfp6_e2m3", true, NONE, "s" },
      NULL, "w_mxfp6_e2m3", NULL, NONE, NONE, "none", "f6_e2m3 1x32 f8_e8m0" },
    { "make", { .quant_dtype = "float8_e5m2", .has_gscale = 1, .has_alphas = MOXIE_SCHEME_SIDES_NONE },
      { "float8_e5m2", false, { -1, -1 }, "g" }, { "float8_e5m2", false, NONE, "s" },
      NULL, NULL, NULL, NONE, { 1, 1 }, "f8_e5m2 per tensor f32", "f8_e5m2 per tensor f32" },
    { "fp8_w8a8", { 0 },
      { "float8_e4m3fn", false, { -1, -1 }, "" }, { "float8_e4m3fn", false, NONE, "s" },
      "use_fp8_w8a8", NULL, "fp8_w8a8", NONE, { 1, 1 }, "f8_e4m3 per tensor f32", "f8_e4m3 per tensor f32" },
    { "fp8_w8a8", { .has_a_scale = 1, .has_gscale = 1, .has_bias = 1 },
      { "float8_e4m3fn", false, { -1, -1 }, "sg" }, { "float8_e4m3fn", false, NONE, "sgb" },
      "use_fp8_w8a8", NULL, "fp8_w8a8", NONE, { 1, 1 }, "f8_e4m3 per tensor f32 static", "f8_e4m3 per tensor f32" },
    { "fp8_w8a8", { .per_act_token = 1, .per_out_ch = 1, .scale_format = MOXIE_BF16 },
      { "float8_e4m3fn", false, { 1, -1 }, "" }, { "float8_e4m3fn", false, { 1, -1 }, "s" },
      "use_fp8_w8a8", NULL, "fp8_w8a8", NONE, { 40, 1 }, "f8_e4m3 per row f32", "f8_e4m3 per row bf16" },
    { "fp8_w8a8", { .block = { 128, 128 } },
      { "float8_e4m3fn", false, { 128, 128 }, "" }, { "float8_e4m3fn", false, { 128, 128 }, "s" },
      "use_fp8_w8a8", NULL, "fp8_w8a8", { 128, 128 }, { 40, 3 }, "f8_e4m3 1x128 f32", "f8_e4m3 128x128 f32" },
    { "int8_w8a8", { .per_act_token = 1, .has_bias = 1 },
      { "int8", false, { 1, -1 }, "" }, { "int8", false, NONE, "sb" },
      "use_int8_w8a8", NULL, NULL, NONE, { 40, 1 }, "i8 per row f32", "i8 per row f32" },
    { "int8_w8a8", { .has_a_scale = 1 },
      { "int8", false, { -1, -1 }, "s" }, { "int8", false, NONE, "s" },
      "use_int8_w8a8", NULL, NULL, NONE, { 1, 1 }, "i8 per tensor f32 static", "i8 per row f32" },
    { "gptq_marlin", { .bits = 4, .group_size = 128, .has_zero = 1, .has_bias = 1 },
      { "", false, { 1, 128 }, "" }, { "int4", true, { 1, 128 }, "szb" },
      "use_int4_w4a16", NULL, "int4_w4a16", { 1, 128 }, NONE, "none", "u4b8 1x128 f16 zero" },
    { "gptq_marlin", { .bits = 8, .group_size = -1 },
      { "", false, NONE, "" }, { "int8", false, NONE, "s" },
      "use_int8_w8a16", NULL, "int8_w8a16", NONE, NONE, "none", "u8b128 per row f16" },
    { "awq_marlin", { .bits = 4, .group_size = 64, .has_zero = 1 },
      { "", false, { 1, 64 }, "" }, { "int4", true, { 1, 64 }, "sz" },
      "use_int4_w4a16", NULL, "int4_w4a16", { 1, 64 }, NONE, "none", "u4b8 1x64 f16 zero" },
    { "awq_marlin", { .bits = 8, .group_size = 32 },
      { "", false, { 1, 32 }, "" }, { "int8", false, { 1, 32 }, "s" },
      "use_int8_w8a16", NULL, "int8_w8a16", { 1, 32 }, NONE, "none", "u8b128 1x32 f16" },
    { "mxfp4_w4a16", { .has_bias = 1 },
      { "", false, NONE, "" }, { "mxfp4", true, NONE, "sb" },
      "use_mxfp4_w4a16", "w_mxfp4", NULL, NONE, NONE, "none", "f4_e2m1 1x32 f8_e8m0" },
    { "mxfp4_mxfp8", { .block = { 1, 32 }, .has_a_scale = 1, .has_bias = 1 },
      { "mxfp8", true, NONE, "" }, { "mxfp4", true, NONE, "sb" },
      NULL, "?", NULL, NONE, { 1, 1 }, "f8_e4m3 1x32 f8_e8m0", "f4_e2m1 1x32 f8_e8m0" },
    { "mxfp4_w4a8", { .block = { 1, 32 }, .has_a_scale = 1 },
      { "fp8", true, NONE, "s" }, { "mxfp4", true, NONE, "s" },
      "use_mxfp4_w4a8", "w_mxfp4_a_fp8", NULL, NONE, { 1, 1 }, "f8_e4m3 per tensor f32 static", "f4_e2m1 1x32 f8_e8m0" },
    { "ocp_mx", { .quant_dtype = "mxfp4", .has_bias = 1 },
      { "mxfp4", true, { -1, -1 }, "" }, { "mxfp4", true, NONE, "sb" },
      "use_mxfp4_w4a4", "w_mxfp4_a_mxfp4", NULL, NONE, { 1, 1 }, "f4_e2m1 1x32 f8_e8m0", "f4_e2m1 1x32 f8_e8m0" },
    { "ocp_mx", { .quant_dtype = "mxfp6_e2m3", .weight_dtype = "mxfp4", .block = { 1, 32 }, .has_a_scale = 1 },
      { "mxfp6_e2m3", true, { 1, 32 }, "s" }, { "mxfp4", true, { 1, 32 }, "s" },
      NULL, "w_mxfp4_a_mxfp6_e2m3", NULL, { 1, 32 }, { 40, 10 }, "f6_e2m3 1x32 f8_e8m0", "f4_e2m1 1x32 f8_e8m0" },
    { "ocp_mx", { .quant_dtype = "mxfp4", .weight_dtype = "int8" },
      { "mxfp4", true, { -1, -1 }, "" }, { "int8", false, NONE, "s" },
      NULL, NULL, NULL, NONE, { 1, 1 }, "f4_e2m1 1x32 f8_e8m0", "i8 per row f32" },
    { "mxfp4", { 0 },
      { "mxfp4", true, { -1, -1 }, "" }, { "mxfp4", true, NONE, "s" },
      "use_mxfp4_w4a4", "w_mxfp4_a_mxfp4", NULL, NONE, { 1, 1 }, "f4_e2m1 1x32 f8_e8m0", "f4_e2m1 1x32 f8_e8m0" },
    { "nvfp4", { .has_bias = 1 },
      { "nvfp4", true, { -1, -1 }, "g" }, { "nvfp4", true, NONE, "sgb" },
      "use_nvfp4_w4a4", NULL, NULL, NONE, { 1, 1 }, "f4_e2m1 1x16 f8_e4m3 /global static", "f4_e2m1 1x16 f8_e4m3 *global" },
    { "nvfp4_w4a16", { 0 },
      { "", false, NONE, "" }, { "nvfp4", true, NONE, "sg" },
      "use_nvfp4_w4a16", NULL, NULL, NONE, NONE, "none", "f4_e2m1 1x16 f8_e4m3 *global" },
    { "int4_w4a16", { .block = { 0, 32 }, .has_zero = 1, .has_bias = 1 },
      { "", false, { 0, 32 }, "" }, { "int4", true, { 0, 32 }, "szb" },
      "use_int4_w4a16", NULL, "int4_w4a16", { 0, 32 }, NONE, "none", "u4b8 1x32 bf16 zero" },
    { "fp8_w8a16", { .block = { 128, 128 }, .has_bias = 1 },
      { "", false, NONE, "" }, { "float8_e4m3fn", false, { 128, 128 }, "sb" },
      "use_fp8_w8a16", NULL, "fp8_w8a16", NONE, NONE, "none", "f8_e4m3 128x128 f32" },
    { "int8_w8a16", { .block = { 0, 64 }, .has_zero = 1, .has_bias = 1, .has_gscale = 1 },
      { "", false, { 0, 64 }, "g" }, { "int8", false, { 0, 64 }, "szb" },
      "use_int8_w8a16", NULL, "int8_w8a16", { 0, 64 }, NONE, "none", "u8b128 1x64 f16 zero" },
    { "int8_w8a16", { 0 },
      { "", false, NONE, "" }, { "int8", false, NONE, "s" },
      "use_int8_w8a16", NULL, "int8_w8a16", NONE, NONE, "none", "i8 per row f32" },
    { "int4_w4afp8", { .per_act_token = 1, .per_out_ch = 1 },
      { "float8_e4m3fn", false, { 1, -1 }, "" }, { "int4", true, { 1, -1 }, "sg" },
      "use_fp8_w8a8", NULL, "fp8_w8a8", NONE, { 40, 1 }, "f8_e4m3 per row f32", "i4 1x128 f8_e4m3 *global" },
};
/* clang-format on */
#define CASES (sizeof table / sizeof table[0])

static void same_desc(const char *who, const moxie_scheme_desc *got, const expected_desc *want)
{
    char has[8];
    assert_in_range(got->has_scale, MOXIE_SCHEME_SCALE_NONE, MOXIE_SCHEME_SCALE_TENSOR);
    snprintf(has, sizeof has, "%s%s%s%s", got->has_scale ? "s" : "", got->has_gscale ? "g" : "",
             got->has_zero ? "z" : "", got->has_bias ? "b" : "");
    if (strcmp(got->dtype, want->dtype) != 0 || got->dtype_is_string != want->is_string ||
        got->shape[0] != want->shape[0] || got->shape[1] != want->shape[1] || strcmp(has, want->has) != 0)
        fail_msg("%s: got \"%s\" %d [%d,%d] has \"%s\", want \"%s\" %d [%d,%d] has \"%s\"", who, got->dtype,
                 (int)got->dtype_is_string, (int)got->shape[0], (int)got->shape[1], has, want->dtype, want->is_string,
                 (int)want->shape[0], (int)want->shape[1], want->has);
}

static void descriptors(void **state)
{
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        const moxie_scheme s = make(table[i].constructor, &table[i].args);
        assert_string_equal(s.constructor, table[i].constructor);
        same_desc(table[i].constructor, &s.a1, &table[i].a);
        same_desc(table[i].constructor, &s.a2, &table[i].a);
        same_desc(table[i].constructor, &s.w1, &table[i].w);
        same_desc(table[i].constructor, &s.w2, &table[i].w);
        assert_int_equal(s.scale_swizzled, 1);
    }
}

static bool is_shape(const int32_t shape[2], int32_t rows, int32_t cols)
{
    return shape[0] == rows && shape[1] == cols;
}

static void predicates(void **state)
{
    static const char *const uses[] = { "use_fp8_w8a8",   "use_int8_w8a8",   "use_int8_w8a16",  "use_fp8_w8a16",
                                        "use_int4_w4a16", "use_nvfp4_w4a16", "use_mxfp4_w4a16", "use_mxfp4_w4a4",
                                        "use_nvfp4_w4a4", "use_mxfp4_w4a8" };
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        const expectation *e = &table[i];
        const moxie_scheme s = make(e->constructor, &e->args);
        for (size_t u = 0; u < sizeof uses / sizeof uses[0]; u++)
            if (mox_scheme_predicate(&s, uses[u]) != (e->uses && strcmp(e->uses, uses[u]) == 0))
                fail_msg("case %zu, %s: %s is wrong", i, e->constructor, uses[u]);
        const bool block = !is_shape(e->block, 0, 0);
        assert_int_equal(mox_scheme_predicate(&s, "is_quantized"), e->a.dtype[0] != '\0');
        assert_int_equal(mox_scheme_predicate(&s, "per_act_token_quant"), is_shape(e->a.shape, 1, -1));
        assert_int_equal(mox_scheme_predicate(&s, "is_per_act_token"), is_shape(e->a.shape, 1, -1));
        assert_int_equal(mox_scheme_predicate(&s, "per_out_ch_quant"), is_shape(e->w.shape, 1, -1));
        assert_int_equal(mox_scheme_predicate(&s, "is_per_tensor"), is_shape(e->a.shape, -1, -1));
        assert_int_equal(mox_scheme_predicate(&s, "is_block_quantized"), block);
        assert_int_equal(mox_scheme_predicate(&s, "is_nvfp4_scale_swizzled"), 1);
        assert_int_equal(mox_scheme_predicate(&s, "use_int2"), -1);
        int32_t shape[2] = { 77, 77 };
        assert_int_equal(mox_scheme_block_shape(&s, shape), block);
        assert_true(block ? is_shape(shape, e->block[0], e->block[1]) : is_shape(shape, 77, 77));
    }
}

static void same_name(const expectation *e, const char *got, const char *want)
{
    if (!got != !want || (got && strcmp(got, want) != 0))
        fail_msg("%s: got %s, want %s", e->constructor, got ? got : "none", want ? want : "none");
}

static void names(void **state)
{
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        const expectation *e = &table[i];
        const moxie_scheme s = make(e->constructor, &e->args);
        const bool warned = e->ocp && strcmp(e->ocp, "?") == 0;
        int unknown = -1;
        same_name(e, mox_scheme_ocp_name(&s, &unknown), warned ? NULL : e->ocp);
        assert_int_equal(unknown, warned);
        same_name(e, mox_scheme_config_name(&s, MOXIE_BF16), e->config);
        /* f32 has the name "float32", unless a quantized scheme or an OCP scheme comes first. */
        const bool ocp = e->ocp && !warned;
        same_name(e, mox_scheme_config_name(&s, MOXIE_F32), e->config ? e->config : ocp ? NULL : "float32");
    }
}

static void scale_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        const expectation *e = &table[i];
        const moxie_scheme s = make(e->constructor, &e->args);
        const int there = e->scale_shape[0] != 0;
        int64_t two[2] = { -7, -7 }, three[3] = { -7, -7, -7 };
        assert_int_equal(mox_scheme_scale_shape(&s, 40, 300, two), there);
        assert_int_equal(mox_scheme_batched_scale_shape(&s, 8, 40, 300, three), there);
        assert_int_equal(two[0], there ? e->scale_shape[0] : -7);
        assert_int_equal(two[1], there ? e->scale_shape[1] : -7);
        assert_int_equal(three[0], there ? 8 : -7);
        assert_int_equal(three[1], there ? e->scale_shape[0] : -7);
        assert_int_equal(three[2], there ? e->scale_shape[1] : -7);
    }
}

static void what_moxie_computes(void **state)
{
    char text[128];
    moxie_error error = { 0 };
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        const moxie_scheme s = make(table[i].constructor, &table[i].args);
        assert_string_equal(mox_quant_describe(&s.a13, text, sizeof text), table[i].acts);
        assert_string_equal(mox_quant_describe(&s.act2, text, sizeof text), table[i].acts);
        assert_string_equal(mox_quant_describe(&s.w13, text, sizeof text), table[i].weights);
        assert_string_equal(mox_quant_describe(&s.weight2, text, sizeof text), table[i].weights);
        assert_ok(mox_quant_check_act(&s.a13, "a13", &error), &error);
        if (!mox_quant_is_none(&s.w13))
            assert_ok(mox_quant_check_weight(&s.w13, "w13", &error), &error);
    }
}

static void all_are_covered(void **state)
{
    int32_t count = 0;
    (void)state;
    for (; mox_scheme_constructor_at(count); count++) {
        bool covered = false;
        for (size_t i = 0; i < CASES; i++)
            covered |= strcmp(table[i].constructor, mox_scheme_constructor_at(count)) == 0;
        if (!covered)
            fail_msg("%s has no expectation", mox_scheme_constructor_at(count));
    }
    assert_int_equal(count, 18);
    assert_null(mox_scheme_constructor_at(-1));
}

/* ---- OCP-MX names, every pair of descriptor types ------------------------------------------------------------ */

static void ocp_names_of_all_pairs(void **state)
{
    static const char *const types[] = { "", "mxfp4", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp8", "fp8", "nvfp4", "int4" };
    static const char *const want[8][8] = {
        /* [weight][activation] in the order of `types`; NULL: none, silently; "?": none, with a warning */
        { NULL, "?", "?", "?", NULL, NULL, NULL, NULL },
        { "w_mxfp4", "w_mxfp4_a_mxfp4", "w_mxfp4_a_mxfp6_e3m2", "w_mxfp4_a_mxfp6_e2m3", "?", "w_mxfp4_a_fp8", "?",
          "?" },
        { "w_mxfp6_e3m2", "?", "w_mxfp6_e3m2_a_mxfp6_e3m2", "?", "?", "w_mxfp6_e3m2_a_fp8", "?", "?" },
        { "w_mxfp6_e2m3", "?", "?", "w_mxfp6_e2m3_a_mxfp6_e2m3", "?", "w_mxfp6_e2m3_a_fp8", "?", "?" },
        { NULL, "?", "?", "?", NULL, NULL, NULL, NULL },
        { NULL, "?", "?", "?", NULL, NULL, NULL, NULL },
        { NULL, "?", "?", "?", NULL, NULL, NULL, NULL },
        { NULL, "?", "?", "?", NULL, NULL, NULL, NULL },
    };
    (void)state;
    for (int w = 0; w < 8; w++)
        for (int a = 0; a < 8; a++) {
            const moxie_scheme s = { .a1 = { .dtype = types[a], .dtype_is_string = types[a][0] != '\0' },
                                     .w1 = { .dtype = types[w], .dtype_is_string = types[w][0] != '\0' } };
            int unknown = -1;
            const char *got = mox_scheme_ocp_name(&s, &unknown), *expect = want[w][a];
            const bool warned = expect && strcmp(expect, "?") == 0;
            assert_int_equal(unknown, warned);
            if (!expect || warned)
                assert_null(got);
            else
                assert_string_equal(got, expect);
        }
    /* A torch dtype on either side: vLLM does not ask, so it does not warn. */
    const moxie_scheme torch = { .a1 = { .dtype = "int8" }, .w1 = { .dtype = "mxfp4", .dtype_is_string = 1 } };
    int unknown = -1;
    assert_null(mox_scheme_ocp_name(&torch, &unknown));
    assert_int_equal(unknown, 0);
}

/* ---- rejections ------------------------------------------------------------------------------------------------- */

static const struct {
    const char *constructor;
    moxie_scheme_args args;
    const char *because;
} illegal[] = {
    /* per token, or per channel, together with a block */
    { "make", { .quant_dtype = "int8", .per_act_token = 1, .block = { 128, 128 } }, "illegal quantization" },
    { "fp8_w8a8", { .per_act_token = 1, .block = { 128, 128 } }, "illegal quantization, per_act_token" },
    { "fp8_w8a8", { .per_out_ch = 1, .block = { 128, 128 } }, "illegal quantization, per_out_ch" },
    { "int4_w4afp8", { .per_out_ch = 1, .block = { 1, 128 } }, "illegal quantization" },
    /* types that make() does not know */
    { "make", { .quant_dtype = "fp8" }, "quant_dtype \"fp8\"" },
    { "make", { .quant_dtype = "int4" }, "quant_dtype \"int4\"" },
    { "make", { .quant_dtype = "mxfp8_e4m3" }, "quant_dtype \"mxfp8_e4m3\"" },
    { "make", { .weight_dtype = "fp8" }, "weight_dtype \"fp8\"" },
    { "make", { .quant_dtype = "int8", .weight_dtype = "int2" }, "weight_dtype \"int2\"" },
    /* blocks that would not read back */
    { "make", { .quant_dtype = "int8", .block = { -1, -1 } }, "would not read back" },
    { "fp8_w8a8", { .block = { 1, -1 } }, "would not read back" },
    { "ocp_mx", { .quant_dtype = "mxfp4", .block = { 1, -1 } }, "would not read back" },
    { "fp8_w8a8", { .block = { -3, 128 } }, "block [-3, 128]" },
    /* bits */
    { "gptq_marlin", { .bits = 3, .group_size = 128 }, "3 bits" },
    { "awq_marlin", { .group_size = 128 }, "0 bits" },
    { "gptq_marlin", { .bits = 4 }, "group_size 0" },
    /* types outside OCP MX, and types that ocp_mx does not accept */
    { "ocp_mx", { .quant_dtype = "nvfp4" }, "\"nvfp4\" is no OCP MX type" },
    { "ocp_mx", { .quant_dtype = "mxfp4", .weight_dtype = "fp8" }, "weight_dtype \"fp8\" is not admitted" },
    /* sides that do not exist */
    { "make", { .quant_dtype = "int8", .has_zero = 5 }, "has_zero is 5" },
    { "fp8_w8a8", { .has_bias = -1 }, "has_bias is -1" },
    { "ocp_mx", { 0 }, "\"\" is no OCP MX type" },
    { "ocp_mx", { .quant_dtype = "mxfp8_e4m3" }, "\"mxfp8_e4m3\" is not admitted" },
    { "ocp_mx", { .quant_dtype = "mxfp8_e5m2" }, "\"mxfp8_e5m2\" is not admitted" },
    { "ocp_mx", { .quant_dtype = "mxint8" }, "\"mxint8\" is not admitted" },
    /* arguments that a constructor does not have */
    { "int8_w8a8", { .per_out_ch = 1 }, "takes no per_out_ch" },
    { "int8_w8a8", { .block = { 1, 128 } }, "takes no block" },
    { "unquantized", { .has_bias = 1 }, "takes no has_bias" },
    { "nvfp4", { .has_a_scale = 1 }, "takes no has_a_scale" },
    { "fp8_w8a8", { .quant_dtype = "int8" }, "takes no quant_dtype" },
    { "fp8_w8a8", { .bits = 8 }, "takes no bits" },
    { "fp8_w8a8", { .group_size = 128 }, "takes no group_size" },
    { "fp8_w8a8", { .has_zero = 1 }, "takes no has_zero" },
    { "fp8_w8a8", { .scale_linear = 1 }, "takes no scale_linear" },
    { "nvfp4", { .scale_precision = 1 }, "takes no scale_precision" },
    { "fp8_w8a8", { .has_w_scale = MOXIE_SCHEME_SIDES_NONE }, "takes no has_w_scale" },
    { "nvfp4_w4a16", { .has_bias = 1 }, "takes no has_bias" },
    { "nvfp4", { .scale_format = MOXIE_F32 }, "takes no scale_format" },
    { "nvfp4", { .has_gscale = 1 }, "takes no has_gscale" },
    /* and values that no weight can have */
    { "fp8_w8a8", { .scale_format = MOXIE_I8 }, "scales of dtype" },
    { "w4a4", { 0 }, "mxfp4_w4a16" },
};

static void illegal_combinations(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof illegal / sizeof illegal[0]; i++) {
        moxie_error error = { 0 };
        moxie_scheme scheme, before;
        memset(&scheme, 0x5a, sizeof scheme);
        memcpy(&before, &scheme, sizeof scheme);
        const moxie_status status = mox_scheme_make(illegal[i].constructor, &illegal[i].args, &scheme, &error);
        if (status != MOXIE_ERR_ARGUMENT || !strstr(error.text, illegal[i].because))
            fail_msg("case %zu: status %d, \"%s\" does not say \"%s\"", i, status, error.text, illegal[i].because);
        assert_memory_equal(&scheme, &before, sizeof scheme);
    }
}

/* ---- configs that vLLM accepts and nothing computes ------------------------------------------------------------- */

static void what_nothing_computes(void **state)
{
    static const struct {
        moxie_scheme_args args;
        const char *weights, *acts; /* what the checks of a layer say; NULL: these are valid */
    } cases[] = {
        { { .quant_dtype = "mxfp4", .has_zero = 1 }, "zero points", NULL },
        { { .quant_dtype = "uint8" }, "is no weight element", "no quantizer" },
        { { .quant_dtype = "float16" }, "only elements of 8 bits and fewer have scales", "no quantizer" },
        { { .quant_dtype = "int8", .has_w_scale = MOXIE_SCHEME_SIDES_NONE }, "scales of dtype 0", NULL },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const moxie_scheme s = make("make", &cases[i].args);
        moxie_error error = { 0 };
        assert_int_equal(s.computable, 0);
        assert_int_equal(mox_quant_check_weight(&s.w13, "w13", &error), MOXIE_ERR_ARGUMENT);
        if (!strstr(error.text, cases[i].weights))
            fail_msg("case %zu: \"%s\" does not say \"%s\"", i, error.text, cases[i].weights);
        assert_int_equal(mox_quant_check_act(&s.a13, "a13", &error) != MOXIE_OK, cases[i].acts != NULL);
        if (cases[i].acts && !strstr(error.text, cases[i].acts))
            fail_msg("case %zu: \"%s\" does not say \"%s\"", i, error.text, cases[i].acts);
    }
    for (size_t i = 0; i < CASES; i++)
        assert_int_equal(make(table[i].constructor, &table[i].args).computable, 1);
}

/* ---- one side only ---------------------------------------------------------------------------------------------- */

static void one_side_of_a_pair(void **state)
{
    const moxie_scheme s = make("make", &(moxie_scheme_args) { .quant_dtype = "int8",
                                                               .has_zero = MOXIE_SCHEME_SIDES_W13,
                                                               .has_bias = MOXIE_SCHEME_SIDES_W2,
                                                               .has_a_scale = MOXIE_SCHEME_SIDES_W2,
                                                               .has_gscale = MOXIE_SCHEME_SIDES_NONE,
                                                               .has_alphas = MOXIE_SCHEME_SIDES_W13,
                                                               .has_w_scale = MOXIE_SCHEME_SIDES_W2,
                                                               .scale_transposed = 1 });
    (void)state;
    assert_true(s.w1.has_zero && !s.w2.has_zero && s.w13.has_zero && !s.weight2.has_zero);
    assert_true(!s.w1.has_bias && s.w2.has_bias);
    assert_true(!s.a1.has_scale && s.a2.has_scale && !s.a13.is_static && s.act2.is_static);
    assert_true(!s.a1.has_gscale && !s.a2.has_gscale && s.w1.has_gscale && !s.w2.has_gscale);
    assert_true(!s.w1.has_scale && s.w2.has_scale);
    assert_int_equal(mox_scheme_predicate(&s, "is_scale_transposed"), 1);
    assert_int_equal(mox_scheme_predicate(&s, "is_scale_swizzled"), 1);
}

static void a_scale_is_read_as_what_it_is(void **state)
{
    const moxie_scheme tensor = make("mxfp4_w4a16", &(moxie_scheme_args) { 0 });
    const moxie_scheme triton = make("mxfp4_w4a16", &(moxie_scheme_args) { .scale_precision = 1 });
    moxie_error error = { 0 };
    int there = -1;
    (void)state;
    assert_ok(mox_scheme_read_scale(&tensor, "w1", MOXIE_SCHEME_SCALE_TENSOR, &there, &error), &error);
    assert_int_equal(there, 1);
    assert_ok(mox_scheme_read_scale(&triton, "w2", MOXIE_SCHEME_SCALE_PRECISION, &there, &error), &error);
    assert_int_equal(there, 1);
    assert_ok(mox_scheme_read_scale(&triton, "a1", MOXIE_SCHEME_SCALE_PRECISION, &there, &error), &error);
    assert_int_equal(there, 0);
    assert_ok(mox_scheme_read_scale(&triton, "a2", MOXIE_SCHEME_SCALE_TENSOR, &there, &error), &error);
    assert_int_equal(there, 0);
    there = 7;
    assert_int_equal(mox_scheme_read_scale(&tensor, "w1", MOXIE_SCHEME_SCALE_PRECISION, &there, &error),
                     MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "the scale of w1 is a tensor and cannot be read as a PrecisionConfig"));
    assert_int_equal(mox_scheme_read_scale(&triton, "w2", MOXIE_SCHEME_SCALE_TENSOR, &there, &error),
                     MOXIE_ERR_ARGUMENT);
    assert_int_equal(mox_scheme_read_scale(&triton, "w3", MOXIE_SCHEME_SCALE_TENSOR, &there, &error),
                     MOXIE_ERR_ARGUMENT);
    assert_int_equal(mox_scheme_read_scale(&triton, "w2", MOXIE_SCHEME_SCALE_NONE, &there, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(there, 7);
}

/* ---- two schemes in one --------------------------------------------------------------------------------------- */

static void halves_are_independent(void **state)
{
    const moxie_scheme nvfp4 = make("nvfp4", &(moxie_scheme_args) { .scale_linear = 1 });
    const moxie_scheme swizzled = make("nvfp4", &(moxie_scheme_args) { 0 });
    const moxie_scheme fp8 = make("fp8_w8a8", &(moxie_scheme_args) { .block = { 128, 128 } });
    moxie_error error = { 0 };
    moxie_scheme both = MOXIE_SCHEME_INIT;
    (void)state;
    assert_ok(mox_scheme_combine(&fp8, &nvfp4, &both, &error), &error);
    assert_string_equal(both.constructor, "combined");
    assert_memory_equal(&both.a1, &fp8.a1, sizeof both.a1);
    assert_memory_equal(&both.w1, &fp8.w1, sizeof both.w1);
    assert_memory_equal(&both.a2, &nvfp4.a2, sizeof both.a2);
    assert_memory_equal(&both.w2, &nvfp4.w2, sizeof both.w2);
    assert_memory_equal(&both.a13, &fp8.a13, sizeof both.a13);
    assert_memory_equal(&both.w13, &fp8.w13, sizeof both.w13);
    assert_memory_equal(&both.act2, &nvfp4.act2, sizeof both.act2);
    assert_memory_equal(&both.weight2, &nvfp4.weight2, sizeof both.weight2);
    assert_int_equal(both.scale_swizzled, 0);
    assert_int_equal(mox_scheme_predicate(&both, "use_fp8_w8a8"), 1);
    assert_ok(mox_scheme_combine(&nvfp4, &fp8, &both, &error), &error);
    assert_int_equal(both.scale_swizzled, 0);
    assert_ok(mox_scheme_combine(&fp8, &fp8, &both, &error), &error);
    assert_string_equal(both.constructor, "fp8_w8a8");
    assert_int_equal(mox_scheme_combine(&nvfp4, &swizzled, &both, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "W13 are linear, those of W2 swizzled"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptors),
        cmocka_unit_test(predicates),
        cmocka_unit_test(names),
        cmocka_unit_test(scale_shapes),
        cmocka_unit_test(what_moxie_computes),
        cmocka_unit_test(all_are_covered),
        cmocka_unit_test(ocp_names_of_all_pairs),
        cmocka_unit_test(illegal_combinations),
        cmocka_unit_test(what_nothing_computes),
        cmocka_unit_test(one_side_of_a_pair),
        cmocka_unit_test(a_scale_is_read_as_what_it_is),
        cmocka_unit_test(halves_are_independent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
