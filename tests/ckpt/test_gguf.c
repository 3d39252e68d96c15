/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gguf.c - the reader of GGUF files: every field right, every field wrong, every cut, random damage; names of
 * parts; types that are read as codes and scales mean what their blocks mean.
 *
 * Files are written out here, field by field, and parsed from memory that ends at an inaccessible page.
 */
#include "test_support.h"

#include "ckpt/formats/part.h"
#include "ckpt/gguf/gguf_family.h"
#include "ckpt/gguf/gguf_formats.h"
#include "ckpt/gguf/gguf_header.h"
#include "ckpt/gguf/gguf_split.h"

/* ---- writing ---------------------------------------------------------------------------------------- */

typedef struct file_bytes {
    unsigned char data[4096];
    size_t size;
} file_bytes;

static void put(file_bytes *f, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        f->data[f->size++] = (unsigned char)(value >> 8 * i);
}

static void put_text(file_bytes *f, const char *text)
{
    put(f, strlen(text), 8);
    memcpy(f->data + f->size, text, strlen(text));
    f->size += strlen(text);
}

/* What a file has in place of the usual; 0: the usual. */
typedef struct spec {
    const char *magic, *key, *second_name, *says;
    uint64_t version, pairs, tensors, key_length, value_type, boolean, array_type, array_count, alignment;
    uint64_t axes, extent, type, offset, name_length;
    moxie_status status;
} spec;

static uint64_t or (uint64_t value, uint64_t usual)
{
    return value ? value : usual;
}

/* One pair of each kind, and two tensors: q8_0 [2, 64], 136 bytes, and f32 [3], 12 bytes from byte 160 or 192 on. */
static file_bytes make(const spec *s)
{
    const uint64_t alignment = or (s->alignment, 32);
    file_bytes f = { .size = 0 };
    memcpy(f.data, s->magic ? s->magic : "GGUF", 4);
    f.size = 4;
    put(&f, or (s->version, 3), 4);
    put(&f, or (s->tensors, 2), 8);
    put(&f, or (s->pairs, 5), 8);
    put_text(&f, "general.alignment"), put(&f, 4, 4), put(&f, alignment, 4);
    put_text(&f, s->key ? s->key : "a.truth"), put(&f, 7, 4), put(&f, or (s->boolean, 1), 1);
    put_text(&f, "a.list"), put(&f, 9, 4), put(&f, or (s->array_type, 5), 4), put(&f, or (s->array_count, 2), 8);
    put(&f, (uint64_t)-7, 4), put(&f, 9, 4);
    put_text(&f, "a.words"), put(&f, 9, 4), put(&f, 8, 4), put(&f, 2, 8), put_text(&f, "x"), put_text(&f, "yz");
    const size_t key = f.size;
    put_text(&f, "a.real"), put(&f, or (s->value_type, 6), 4), put(&f, 0x3fc00000, 4);
    if (s->key_length)
        for (int i = 0; i < 8; i++)
            f.data[key + (size_t)i] = (unsigned char)(s->key_length >> 8 * i);
    const size_t name = f.size;
    put_text(&f, "t.weight"), put(&f, or (s->axes, 2), 4), put(&f, or (s->extent, 64), 8), put(&f, 2, 8);
    put(&f, or (s->type, 8), 4), put(&f, 0, 8);
    if (s->name_length)
        for (int i = 0; i < 8; i++)
            f.data[name + (size_t)i] = (unsigned char)(s->name_length >> 8 * i);
    put_text(&f, s->second_name ? s->second_name : "t.bias"), put(&f, 1, 4), put(&f, 3, 8), put(&f, 0, 4);
    put(&f, or (s->offset, (136 + alignment - 1) / alignment * alignment), 8);
    while (alignment <= 64 && f.size % alignment)
        put(&f, 0, 1);
    for (uint64_t i = 0; i < (136 + alignment - 1) / alignment * alignment + 12 && f.size < sizeof f.data; i++)
        put(&f, i, 1);
    return f;
}

/* Parses a copy that ends at an inaccessible page. Views of what was read must lie inside it. */
static moxie_status parse(const unsigned char *bytes, size_t size, mox_tensor_list *list, json_t **metadata,
                          moxie_error *error)
{
    unsigned char *file = test_guarded(size);
    memcpy(file, bytes, size);
    *error = (moxie_error) { 0 };
    const moxie_status status = mox_gguf_header_parse(file, size, "dir/x.gguf", 0, list, metadata, error);
    for (int64_t i = 0; status == MOXIE_OK && i < list->count; i++) {
        const mox_file_tensor *t = &list->tensors[i];
        assert_true(t->offset <= size && t->bytes <= size - t->offset);
        assert_ptr_equal(t->view.data, file + t->offset);
    }
    if (status != MOXIE_OK)
        assert_true(error->text[0] != 0 && error->offset >= 0 && (uint64_t)error->offset <= size);
    test_guarded_free(file, size);
    return status;
}

/* ---- right ------------------------------------------------------------------------------------------ */

static void check_right(const spec *s)
{
    const file_bytes f = make(s);
    mox_tensor_list list = { 0 };
    json_t *metadata = NULL;
    moxie_error error;
    assert_ok(parse(f.data, f.size, &list, &metadata, &error), &error);
    assert_int_equal(list.count, 2);
    assert_string_equal(list.tensors[0].name, "t.weight");
    assert_int_equal(list.tensors[0].view.dtype, mox_block_at(4)->format.dtype);
    assert_int_equal(list.tensors[0].view.rank, 2);
    assert_int_equal(list.tensors[0].view.shape[0], 2);
    assert_int_equal(list.tensors[0].view.shape[1], 64);
    assert_int_equal(list.tensors[0].bytes, 136);
    assert_int_equal(list.tensors[1].view.dtype, MOXIE_F32);
    assert_int_equal(list.tensors[1].offset + 12, f.size);
    assert_true(json_is_true(json_object_get(metadata, "a.truth")));
    assert_int_equal(json_integer_value(json_array_get(json_object_get(metadata, "a.list"), 0)), -7);
    assert_true(json_real_value(json_object_get(metadata, "a.real")) == 1.5);
    assert_true(json_is_null(json_object_get(metadata, "a.words")));
    json_decref(metadata);
    mox_tensor_list_free(&list);
}

static void test_right(void **state)
{
    (void)state;
    check_right(&(spec) { .version = 3 });
    check_right(&(spec) { .version = 2 });
    check_right(&(spec) { .alignment = 64 });
    check_right(&(spec) { .alignment = 1 });
}

/* ---- wrong ------------------------------------------------------------------------------------------ */

#define UNSUPPORTED .status = MOXIE_ERR_UNSUPPORTED
static const spec wrong[] = {
    { .says = "no GGUF file", .magic = "GGML" },
    { .says = "GGUF version 1", .version = 1, UNSUPPORTED },
    { .says = "GGUF version 4", .version = 4, UNSUPPORTED },
    { .says = "big-endian", .version = 0x03000000, UNSUPPORTED },
    { .says = "a key has", .pairs = UINT64_MAX },
    { .says = "at most 65535", .key_length = UINT64_MAX },
    { .says = "at most 65535", .key_length = 65536 },
    { .says = "cut short", .key_length = 65535 },
    { .says = "at most 1024", .name_length = 1025 },
    { .says = "cut short", .name_length = 1024 },
    { .says = "occurs twice", .key = "a.list" },
    { .says = "tensor \"t.weight\" occurs twice", .second_name = "t.weight" },
    { .says = "no UTF-8", .key = "a.\xff" },
    { .says = "no UTF-8", .second_name = "t\xc3" },
    { .says = "type 13", .value_type = 13 },
    { .says = "type 4294967295", .value_type = UINT32_MAX },
    { .says = "truth value of 2", .boolean = 2 },
    { .says = "no array", .array_type = 9 },
    { .says = "an array of type 13", .array_type = 13 },
    { .says = "more bytes than 64 bits", .array_count = UINT64_MAX },
    { .says = "cut short", .array_count = 1 << 20 },
    { .says = "a power of two", .alignment = 48 },
    { .says = "a power of two", .alignment = 1 << 21 },
    { .says = "5 axes", .axes = 5 },
    { .says = "multiplies to more than 64 bits", .extent = (uint64_t)1 << 63 },
    { .says = "more bytes than 63 bits", .extent = (uint64_t)1 << 62 },
    { .says = "not a multiple", .extent = 65 },
    { .says = "cut short", .extent = 1 << 20, .offset = 2228224 },
    { .says = "type 142", .type = 142, UNSUPPORTED },
    { .says = "type 5", .type = 5, UNSUPPORTED },
    { .says = "leave a hole", .offset = 192 },
    { .says = "overlap", .offset = 128 },
    { .says = "overlap", .offset = 1 },
    { .says = "leave a hole", .offset = UINT64_MAX - 31 },
    { .says = "the name of a tensor has", .tensors = UINT64_MAX },
    { .says = "the name of a tensor has", .tensors = 1000 },
};

static void test_wrong(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const file_bytes f = make(&wrong[i]);
        mox_tensor_list list = { 0 };
        json_t *metadata = NULL;
        moxie_error error;
        const moxie_status status = parse(f.data, f.size, &list, &metadata, &error);
        const moxie_status want = wrong[i].status ? wrong[i].status : MOXIE_ERR_FORMAT;
        if (status != want || !strstr(error.text, wrong[i].says))
            fail_msg("case %d: status %d (want %d), \"%s\" does not say \"%s\"", (int)i, (int)status, (int)want,
                     error.text, wrong[i].says);
        assert_null(metadata);
        mox_tensor_list_free(&list);
    }
}

static void test_cuts(void **state)
{
    (void)state;
    const file_bytes f = make(&(spec) { .version = 3 });
    for (size_t size = 0; size < f.size; size++) {
        mox_tensor_list list = { 0 };
        json_t *metadata = NULL;
        moxie_error error;
        assert_int_equal(parse(f.data, size, &list, &metadata, &error), MOXIE_ERR_FORMAT);
        mox_tensor_list_free(&list);
    }
}

static void test_damage(void **state)
{
    (void)state;
    test_rng rng = { test_seed(5) };
    for (int64_t round = 0; round < test_env("MOXIE_TEST_DAMAGE", 4000); round++) {
        file_bytes f = make(&(spec) { .version = 3 });
        for (int64_t n = test_range(&rng, 1, 4); n > 0; n--)
            f.data[test_below(&rng, f.size)] = (unsigned char)test_u64(&rng);
        mox_tensor_list list = { 0 };
        json_t *metadata = NULL;
        moxie_error error;
        if (parse(f.data, f.size, &list, &metadata, &error) == MOXIE_OK)
            json_decref(metadata);
        mox_tensor_list_free(&list);
    }
}

/* ---- parts ------------------------------------------------------------------------------------------ */

static void test_parts(void **state)
{
    (void)state;
    mox_arena arena = { 0 };
    moxie_error error = { 0 };
    int64_t count = 0;
    assert_string_equal(mox_gguf_split_path("d/m-00002-of-00003.gguf", 0, 3, &arena), "d/m-00001-of-00003.gguf");
    assert_string_equal(mox_gguf_split_path("d/m-00002-of-00003.gguf", 2, 3, &arena), "d/m-00003-of-00003.gguf");
    assert_null(mox_gguf_split_path("d/m-00002-of-00003.gguf", 0, 4, &arena));
    assert_null(mox_gguf_split_path("m.gguf", 0, 3, &arena));
    assert_null(mox_gguf_split_path("00002-of-00003.gguf", 0, 3, &arena));
    assert_null(mox_gguf_split_path("d/m-0000x-of-00003.gguf", 0, 3, &arena));
    json_t *second = json_pack("{s:i,s:i}", "split.no", 1, "split.count", 3), *none = json_object();
    assert_ok(mox_gguf_split_count(none, "x", &count, &error), &error);
    assert_int_equal(count, 1);
    assert_ok(mox_gguf_split_count(second, "x", &count, &error), &error);
    assert_int_equal(count, 3);
    assert_ok(mox_gguf_split_check(second, "x", 1, 3, &error), &error);
    assert_int_equal(mox_gguf_split_check(second, "x", 0, 3, &error), MOXIE_ERR_MISMATCH);
    assert_int_equal(mox_gguf_split_check(second, "x", 1, 2, &error), MOXIE_ERR_MISMATCH);
    json_object_set_new(second, "split.count", json_integer(-1));
    assert_int_equal(mox_gguf_split_count(second, "x", &count, &error), MOXIE_ERR_FORMAT);
    json_object_set_new(second, "split.count", json_string("3"));
    assert_int_equal(mox_gguf_split_count(second, "x", &count, &error), MOXIE_ERR_FORMAT);
    json_decref(second);
    json_decref(none);
    mox_arena_free(&arena);
}

/* ---- metadata and architectures ---------------------------------------------------------------------- */

/* The family of an architecture with 8 experts, 2 of them chosen, and more keys: `format`, ... as of json_pack(). Takes
 * `more`. */
static moxie_status family_of(const char *arch, json_t *more, mox_arena *arena, json_t **config,
                              const mox_family **family, moxie_error *error)
{
    const char *name, *key;
    char full[128];
    json_t *metadata = json_pack("{s:s}", "general.architecture", arch), *value;
    assert_non_null(more);
    json_object_foreach(more, key, value)
    {
        snprintf(full, sizeof full, "%s.%s", arch, key);
        json_object_set(metadata, full, value);
    }
    *error = (moxie_error) { 0 };
    const moxie_status status = mox_gguf_family(metadata, "x.gguf", arena, config, family, &name, error);
    json_decref(metadata);
    json_decref(more);
    return status;
}

static void check_routing(const char *arch, json_t *more, moxie_score score, bool norm)
{
    mox_arena arena = { 0 };
    json_t *config = NULL;
    const mox_family *family = NULL;
    moxie_error error;
    json_object_set_new(more, "expert_count", json_integer(8));
    assert_ok(family_of(arch, more, &arena, &config, &family, &error), &error);
    assert_int_equal(family->route.score, score);
    assert_int_equal(family->always_norm, norm);
    json_decref(config);
    mox_arena_free(&arena);
}

/* Where converters write no key, llama.cpp's code says it. */
static void test_routing_without_keys(void **state)
{
    (void)state;
    check_routing("kimi-linear", json_pack("{s:i}", "expert_gating_func", 2), MOXIE_SCORE_SIGMOID, true);
    check_routing("mimo2", json_object(), MOXIE_SCORE_SIGMOID, true);
    check_routing("step35", json_object(), MOXIE_SCORE_SIGMOID, false);
    check_routing("mistral4", json_object(), MOXIE_SCORE_SOFTMAX, false);
    check_routing("deepseek2", json_pack("{s:i}", "block_count", 27), MOXIE_SCORE_SOFTMAX, false);
    check_routing("deepseek2", json_pack("{s:i,s:i}", "block_count", 47, "vocab_size", 102400), MOXIE_SCORE_SOFTMAX,
                  false);
    check_routing("deepseek2", json_pack("{s:i,s:i}", "block_count", 47, "vocab_size", 154880), MOXIE_SCORE_SIGMOID,
                  false);
    check_routing("deepseek2",
                  json_pack("{s:i,s:i,s:i}", "block_count", 48, "vocab_size", 154880, "expert_gating_func", 1),
                  MOXIE_SCORE_SOFTMAX, false);
}

static void check_refused_of(const char *arch, json_t *more, const char *says)
{
    mox_arena arena = { 0 };
    json_t *config = NULL;
    const mox_family *family = NULL;
    moxie_error error;
    assert_int_not_equal(family_of(arch, more, &arena, &config, &family, &error), MOXIE_OK);
    if (!strstr(error.text, says))
        fail_msg("\"%s\" does not say \"%s\"", error.text, says);
    assert_null(config);
    mox_arena_free(&arena);
}

static void check_refused(json_t *more, const char *says)
{
    check_refused_of("glm4moe", more, says);
}

/* Limits in a list are one for each layer. */
static void test_limits_of_layers(void **state)
{
    (void)state;
    const char *const keys[] = { "swiglu_clamp_exp", "swiglu_clamp_shexp" };
    mox_arena arena = { 0 };
    json_t *config = NULL;
    const mox_family *family = NULL;
    moxie_error error;
    for (int i = 0; i < 2; i++) {
        check_refused_of("step35", json_pack("{s:i,s:i,s:[f,f]}", "expert_count", 8, "block_count", 3, keys[i], 7., 7.),
                         "has 2 entries, step35.block_count says 3 layers");
        check_refused_of("step35", json_pack("{s:i,s:i,s:[]}", "expert_count", 8, "block_count", 3, keys[i]),
                         "has 0 entries");
    }
    json_t *fits =
        json_pack("{s:i,s:i,s:[f,f,f],s:f}", "expert_count", 8, "block_count", 3, keys[0], 7., 7., 7., keys[1], 16.);
    assert_ok(family_of("step35", fits, &arena, &config, &family, &error), &error);
    json_decref(config);
    mox_arena_free(&arena);
}

/* A value of another type is not taken for an absent one. */
static void test_types(void **state)
{
    (void)state;
    check_refused(json_pack("{s:i,s:s}", "expert_count", 8, "expert_gating_func", "sigmoid"), "than one integer");
    check_refused(json_pack("{s:i,s:n}", "expert_count", 8, "expert_gating_func"), "gating_func is something else");
    check_refused(json_pack("{s:i,s:[i,i]}", "expert_count", 8, "expert_group_count", 2, 2), "group_count is");
    check_refused(json_pack("{s:i,s:n}", "expert_count", 8, "expert_weights_scale"), "than one finite number");
    check_refused(json_pack("{s:i,s:i}", "expert_count", 8, "expert_weights_norm", 1), "than true or false");
    check_refused(json_pack("{s:i,s:[f,n]}", "expert_count", 8, "swiglu_clamp_exp", 7.0), "a list of numbers");
    check_refused(json_pack("{s:i,s:n}", "expert_count", 8, "swiglu_clamp_shexp"), "a list of numbers");
    check_refused(json_pack("{s:[i,i]}", "expert_count", 8, 8), "expert_count is something else");
    check_refused(json_pack("{s:i,s:i}", "expert_count", 8, "expert_gating_func", 5), "gating_func is 5");
}

/* Keys that nothing reads reach the configuration, where they are looked for. */
static void test_other_keys(void **state)
{
    (void)state;
    mox_arena arena = { 0 };
    json_t *config = NULL;
    const mox_family *family = NULL;
    moxie_error error;
    json_t *more = json_pack("{s:i,s:b,s:f,s:i,s:s}", "expert_count", 8, "expert_weights_norm", 1, "swiglu_clamp_exp",
                             7.0, "embedding_length", 64, "hidden_activation", "gelu");
    assert_ok(family_of("qwen3moe", json_incref(more), &arena, &config, &family, &error), &error);
    assert_non_null(json_object_get(config, "swiglu_clamp_exp"));
    assert_non_null(json_object_get(config, "hidden_activation"));
    assert_null(json_object_get(config, "expert_weights_norm"));
    json_decref(config);
    assert_ok(family_of("olmoe", more, &arena, &config, &family, &error), &error);
    assert_non_null(json_object_get(config, "expert_weights_norm"));
    json_decref(config);
    mox_arena_free(&arena);
}

/* ---- codes and scales -------------------------------------------------------------------------------- */

enum { EXPERTS = 2, ROWS = 3, WEIGHTS = 256 };

/* Bytes of scales that the standards and ggml read differently become others. */
static void avoid_special_scales(const mox_hf_quant *format, uint8_t *block)
{
    if (format->weight.scale == MOXIE_F8_E8M0 && block[0] == 255)
        block[0] = 254;
    for (int i = 0; format->weight.scale == MOXIE_F8_E4M3 && i < 4; i++)
        block[i] = (uint8_t)(block[i] % 0x7f);
}

static moxie_grid grid_of(const mox_hf_quant *format, int part, const moxie_tensor *tensor, uint64_t bytes,
                          int64_t expert)
{
    const mox_part_place place = { .n = ROWS, .k = WEIGHTS, .stacked = EXPERTS, .expert = expert };
    return mox_part_grid(&format->parts[part], &format->weight, tensor, bytes, &place);
}

static void check_groups(const mox_block *block, const mox_hf_quant *format)
{
    const int64_t blocks = WEIGHTS / block->weights, row_bytes = blocks * block->bytes;
    const size_t bytes = (size_t)(EXPERTS * ROWS * row_bytes);
    uint8_t *data = test_guarded(bytes);
    test_rng rng = { test_seed(6) };
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)test_u64(&rng);
    for (size_t b = 0; b < bytes; b += (size_t)block->bytes)
        avoid_special_scales(format, data + b);
    const moxie_tensor tensor = {
        .data = data, .dtype = block->format.dtype, .rank = 3, .shape = { EXPERTS, ROWS, WEIGHTS }
    };
    for (int64_t e = 0; e < EXPERTS; e++) {
        moxie_matrix matrix = { .codes = grid_of(format, 0, &tensor, bytes, e) };
        moxie_error error = { 0 };
        if (format->weight.scale != MOXIE_DTYPE_NONE)
            matrix.scale = grid_of(format, 1, &tensor, bytes, e);
        assert_ok(mox_matrix_check(&matrix, &format->weight, ROWS, WEIGHTS, false, format->id, &error), &error);
        for (int64_t n = 0; n < ROWS; n++) {
            float want[WEIGHTS];
            mox_block_decode_run(block, data + (e * ROWS + n) * row_bytes, 0, WEIGHTS, want);
            for (int64_t k = 0; k < WEIGHTS; k++) {
                const float got = (float)mox_matrix_weight(&matrix, &format->weight, n, k);
                if (got != want[k] && !(isnan(got) && isnan(want[k])))
                    fail_msg("%s (%d, %d): %a, its block says %a", format->id, (int)n, (int)k, (double)got,
                             (double)want[k]);
            }
        }
    }
    test_guarded_free(data, bytes);
}

static void test_groups(void **state)
{
    (void)state;
    int grouped = 0;
    for (int32_t i = 0; mox_block_at(i); i++) {
        const mox_hf_quant *format = mox_gguf_format(mox_block_at(i)->format.dtype, false);
        assert_non_null(format);
        assert_ptr_equal(mox_gguf_format_by_id(format->id), format);
        grouped += format->weight.scale != MOXIE_DTYPE_NONE;
        check_groups(mox_block_at(i), format);
    }
    assert_int_equal(grouped, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_routing_without_keys),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_limits_of_layers),
        cmocka_unit_test(test_other_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
