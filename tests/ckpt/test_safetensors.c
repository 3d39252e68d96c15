/* SPDX-License-Identifier: Apache-2.0
 *
 * test_safetensors.c - the header parser against every kind of wrong header, and against the size of real models.
 *
 * Headers are written out here and parsed from memory that ends at an inaccessible page, so that reading one byte too
 * far is a crash. Each malformed case has words that its error must contain. test_safetensors_files.c opens files.
 */
#include "test_support.h"

#include <time.h>

#include "ckpt/safetensors/file_dtype.h"
#include "ckpt/safetensors/safetensors_header.h"
#include "ckpt/safetensors/tensors.h"

typedef struct image {
    unsigned char *data;
    size_t size;
} image;

static image make_image(const void *json, size_t n, size_t data_bytes)
{
    image file = { test_guarded(8 + n + data_bytes), 8 + n + data_bytes };
    memset(file.data, 0, 8);
    for (int i = 0; i < 8; i++)
        file.data[i] = (unsigned char)((uint64_t)n >> 8 * i);
    memcpy(file.data + 8, json, n);
    for (size_t i = 0; i < data_bytes; i++)
        file.data[8 + n + i] = (unsigned char)(i + 1);
    return file;
}

static moxie_status parse(image file, mox_tensor_list *list, moxie_error *error)
{
    *error = (moxie_error) { 0 };
    return mox_safetensors_header_parse(file.data, file.size, "dir/x.safetensors", 3, list, error);
}

/* Parses and expects an error with these words. */
static void reject_image(image file, const char *says)
{
    mox_tensor_list list = { 0 };
    moxie_error error;
    const moxie_status status = parse(file, &list, &error);
    if (status != MOXIE_ERR_FORMAT)
        fail_msg("status %d not a rejection that says \"%s\"", (int)status, says);
    if (!strstr(error.text, says))
        fail_msg("\"%s\" does not say \"%s\"", error.text, says);
    assert_string_equal(error.file, "dir/x.safetensors");
    assert_in_range(error.offset, 0, (int64_t)file.size);
    mox_tensor_list_free(&list);
    test_guarded_free(file.data, file.size);
}

static void reject_bytes(const void *json, size_t n, size_t data_bytes, const char *says)
{
    reject_image(make_image(json, n, data_bytes), says);
}

static void reject(const char *json, size_t data_bytes, const char *says)
{
    reject_bytes(json, strlen(json), data_bytes, says);
}

static void accept(const char *json, size_t data_bytes, int64_t tensors)
{
    const image file = make_image(json, strlen(json), data_bytes);
    mox_tensor_list list = { 0 };
    moxie_error error;
    assert_ok(parse(file, &list, &error), &error);
    assert_int_equal(list.count, tensors);
    mox_tensor_list_free(&list);
    test_guarded_free(file.data, file.size);
}

/* An entry without its name. */
#define ENTRY(dtype, shape, begin, end)                                                                                \
    "{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" #begin "," #end "]}"

/* ---- good files ------------------------------------------------------------------------------------- */

static void test_reads_all_fields(void **state)
{
    (void)state;
    static const char json[] =
        "{ \"__metadata__\" : {\"format\":\"pt\", \"x\":\"\"},\n"
        "\"b\\u00e9\\ud83d\\ude00\\n\":" ENTRY(
            "BF16", "2,1", 3,
            7) ",\t"
               "\"a\" : { \"data_offsets\" : [ 0 , 3 ] , \"shape\" : [ 3 ] , \"dtype\" : \"U8\" } }   ";
    const image file = make_image(json, strlen(json), 7);
    mox_tensor_list list = { 0 };
    moxie_error error;
    assert_ok(parse(file, &list, &error), &error);
    assert_int_equal(list.count, 2);
    const mox_file_tensor *b = &list.tensors[0], *a = &list.tensors[1];
    assert_string_equal(b->name, "b\303\251\360\237\230\200\n");
    assert_string_equal(a->name, "a");
    assert_int_equal(b->view.dtype, MOXIE_BF16);
    assert_int_equal(b->view.rank, 2);
    assert_int_equal(b->view.shape[0], 2);
    assert_int_equal(b->view.shape[1], 1);
    assert_int_equal(b->view.strides[0], 0);
    assert_int_equal(b->bytes, 4);
    assert_int_equal(b->file, 3);
    assert_int_equal(b->offset, 8 + strlen(json) + 3);
    assert_ptr_equal(b->view.data, file.data + 8 + strlen(json) + 3);
    assert_string_equal(b->file_dtype, "BF16");
    assert_memory_equal(a->view.data, "\1\2\3", 3);
    mox_tensor_list_free(&list);
    test_guarded_free(file.data, file.size);
}

static void test_legal_oddities(void **state)
{
    (void)state;
    accept("{}", 0, 0);
    accept("{}      ", 0, 0);
    accept("{\"__metadata__\":{}}", 0, 0);
    accept("{\"\":" ENTRY("F64", "", 0, 8) "}", 8, 1);
    accept("{\"a\":" ENTRY("F32", "0", 0, 0) "}", 0, 1);
    accept("{\"a\":" ENTRY("F32", "0,5", 4, 4) ",\"b\":" ENTRY("F32", "1", 0, 4) "}", 4, 2);
    accept("{\"a\":" ENTRY("F32", "1", 0, 4) ",\"z\":" ENTRY("F4", "7,0", 0, 0) ",\"y\":" ENTRY("U8", "0", 0, 0) "}", 4,
           3);
    accept("{\"a\":" ENTRY("F4", "2,3", 0, 3) "}", 3, 1);
    accept("{\"a\":" ENTRY("F6_E3M2", "4", 0, 3) "}", 3, 1);
    accept("{\"\\u0061\":" ENTRY("U8", "", 0, 1) ",\"\\u0041\":" ENTRY("U8", "", 1, 2) "}", 2, 2);
    accept("{\"a\":{\"\\u0064type\":\"\\u0055\\u0038\",\"shape\":[],\"data_offsets\":[0,1]}}", 1, 1);
    accept("{\"a\":{\"\\u0064\\u0061\\u0074\\u0061\\u005f\\u006f\\u0066\\u0066\\u0073\\u0065\\u0074\\u0073\":[0,1],"
           "\"shape\":[],\"dtype\":\"U8\"}}",
           1, 1);
}

/* The specification's dtype words with their sizes in bits; shape [8] fills whole bytes for all. */
static void test_dtypes(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        int bits;
        moxie_dtype dtype;
    } known[] = {
        { "BF16", 16, MOXIE_BF16 },
        { "BOOL", 8, MOXIE_BOOL },
        { "C64", 64, MOXIE_DTYPE_NONE },
        { "F16", 16, MOXIE_F16 },
        { "F32", 32, MOXIE_F32 },
        { "F4", 4, MOXIE_F4_E2M1 },
        { "F64", 64, MOXIE_F64 },
        { "F6_E2M3", 6, MOXIE_F6_E2M3 },
        { "F6_E3M2", 6, MOXIE_F6_E3M2 },
        { "F8_E4M3", 8, MOXIE_F8_E4M3 },
        { "F8_E4M3FNUZ", 8, MOXIE_DTYPE_NONE },
        { "F8_E5M2", 8, MOXIE_F8_E5M2 },
        { "F8_E5M2FNUZ", 8, MOXIE_DTYPE_NONE },
        { "F8_E8M0", 8, MOXIE_F8_E8M0 },
        { "I16", 16, MOXIE_I16 },
        { "I32", 32, MOXIE_I32 },
        { "I64", 64, MOXIE_I64 },
        { "I8", 8, MOXIE_I8 },
        { "U16", 16, MOXIE_U16 },
        { "U32", 32, MOXIE_U32 },
        { "U64", 64, MOXIE_U64 },
        { "U8", 8, MOXIE_U8 },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        char json[200];
        snprintf(json, sizeof json, "{\"a\":{\"dtype\":\"%s\",\"shape\":[8],\"data_offsets\":[0,%d]}}", known[i].word,
                 known[i].bits);
        const image file = make_image(json, strlen(json), (size_t)known[i].bits);
        mox_tensor_list list = { 0 };
        moxie_error error;
        assert_ok(parse(file, &list, &error), &error);
        assert_int_equal(list.tensors[0].view.dtype, known[i].dtype);
        assert_string_equal(list.tensors[0].file_dtype, known[i].word);
        assert_int_equal(list.tensors[0].unusable != NULL, known[i].dtype == MOXIE_DTYPE_NONE);
        mox_tensor_list_free(&list);
        test_guarded_free(file.data, file.size);
        assert_int_equal(mox_file_dtype_by_name(known[i].word)->dtype, known[i].dtype);
        if (known[i].dtype != MOXIE_DTYPE_NONE)
            assert_string_equal(mox_file_dtype_name(known[i].dtype), known[i].word);
    }
    assert_null(mox_file_dtype_name(MOXIE_DTYPE_NONE));
    assert_null(mox_file_dtype_name(MOXIE_U4B8));
    assert_null(mox_file_dtype_by_name("f32"));
}

/* A tensor with too many axes does not make the file invalid, but cannot be used. */
static void test_many_axes(void **state)
{
    (void)state;
    static const char json[] =
        "{\"v\":" ENTRY("U8", "1,2,1,3,1,2", 0, 12) ",\"w\":" ENTRY("U8", "1,1,1,1,2", 12, 14) "}";
    const image file = make_image(json, strlen(json), 14);
    mox_tensor_list list = { 0 };
    moxie_error error;
    assert_ok(parse(file, &list, &error), &error);
    assert_non_null(list.tensors[0].unusable);
    assert_int_equal(list.tensors[0].view.dtype, MOXIE_DTYPE_NONE);
    assert_int_equal(list.tensors[0].view.rank, MOXIE_MAX_RANK);
    assert_null(list.tensors[1].unusable);
    assert_int_equal(list.tensors[1].view.shape[4], 2);
    mox_tensor_list_free(&list);
    test_guarded_free(file.data, file.size);
}

/* ---- lies about the header's length ------------------------------------------------------------------- */

static void reject_raw(const char *bytes, size_t n, const char *says)
{
    image file = { test_guarded(n), n };
    memcpy(file.data, bytes, n);
    reject_image(file, says);
}

static void test_header_length(void **state)
{
    (void)state;
    reject_raw("", 0, "at least 8");
    reject_raw("\2\0\0\0\0\0\0", 7, "at least 8");
    reject_raw("\0\0\0\0\0\0\0\0", 8, "'{'");
    reject_raw("\0\0\0\0\0\0\0\0{}", 10, "'{'");
    reject_raw("\3\0\0\0\0\0\0\0{}", 10, "truncated");
    reject_raw("\377\377\377\377\377\377\377\377{}", 10, "the format allows 100000000");
    reject_raw("\1\341\365\5\0\0\0\0{}", 10, "the format allows 100000000"); /* 100,000,001 */
    reject_raw("\0\341\365\5\0\0\0\0{}", 10, "truncated");                   /* 100,000,000 */
    reject_raw("\370\377\377\377\377\377\377\377{}", 10, "the format allows");
}

/* Every truncation of a valid file is rejected. */
static void test_every_truncation(void **state)
{
    (void)state;
    static const char json[] = "{\"__metadata__\":{\"a\":\"b\"},\"x\":" ENTRY("F32", "2", 0, 8) "}";
    const image whole = make_image(json, strlen(json), 8);
    for (size_t n = 0; n < whole.size; n++) {
        image cut = { test_guarded(n), n };
        memcpy(cut.data, whole.data, n);
        reject_image(cut, "");
        if (n < 8 || n >= 8 + strlen(json))
            continue;
        reject_bytes(json, n - 8, 0, ""); /* the same with a correct N */
    }
    test_guarded_free(whole.data, whole.size);
}

/* ---- lies in the JSON --------------------------------------------------------------------------------- */

static void test_grammar(void **state)
{
    (void)state;
    reject(" {}", 0, "'{'");
    reject("\357\273\277{}", 0, "'{'");
    reject("[]", 0, "'{'");
    reject("{}x", 0, "only blanks");
    reject("{}\n", 0, "only blanks");
    reject_bytes("{}\0", 3, 0, "only blanks");
    reject("{},{}", 0, "only blanks");
    reject("{", 0, "expected '\"'");
    reject("{,}", 0, "expected '\"'");
    reject("{a:1}", 0, "expected '\"'");
    reject("{'a':1}", 0, "expected '\"'");
    reject("{\"a\"}", 0, "expected ':'");
    reject("{\"a\":1}", 0, "expected '{'");
    reject("{\"a\":null}", 0, "expected '{'");
    reject("{\"a\":[]}", 0, "expected '{'");
    reject("{\"a\":{}}", 0, "expected '\"'");
    reject("{\"a\":" ENTRY("U8", "", 0, 1) ",}", 1, "expected '\"'");
    reject("{\"a\":" ENTRY("U8", "", 0, 1), 1, "expected '}' behind the last tensor, found the end of the header");
    reject("{\"a\":" ENTRY("U8", "", 0, 1) "\"b\":" ENTRY("U8", "", 1, 2) "}", 2, "expected '}'");
    reject("{\"a\":" ENTRY("U8", "1,", 0, 1) "}", 1, "whole number");
    reject("{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1],}}", 1, "expected '\"'");
    reject("{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0]}}", 1, "expected ','");
    reject("{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1,2]}}", 1, "expected ']'");
    reject("{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[]}}", 1, "whole number");
    reject("{\"a\":{\"dtype\":8,\"shape\":[],\"data_offsets\":[0,1]}}", 1, "expected '\"'");
    reject("{\"a\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", 1, "expected '['");
    reject("{\"a\":{\"dtype\":\"U8\",\"shape\":[[1]],\"data_offsets\":[0,1]}}", 1, "whole number");
    reject("{\"a\":{\"dtype\":\"U8\",\"shape\":[\"1\"],\"data_offsets\":[0,1]}}", 1, "whole number");
    reject("{/*c*/}", 0, "expected '\"'");
}

static void test_fields(void **state)
{
    (void)state;
    reject("{\"a\":{\"shape\":[],\"data_offsets\":[0,1]}}", 1, "\"a\" has no field \"dtype\"");
    reject("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "no field \"shape\"");
    reject("{\"a\":{\"dtype\":\"U8\",\"shape\":[]}}", 1, "no field \"data_offsets\"");
    reject("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1,
           "two fields \"dtype\"");
    reject("{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"shape\":[],\"data_offsets\":[0,1]}}", 1, "two fields \"shape\"");
    reject("{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1],\"data\\u005foffsets\":[0,1]}}", 1,
           "two fields \"data_offsets\"");
    reject("{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1],\"x\":{}}}", 1, "unknown field \"x\"");
    reject("{\"a\":{\"dtypedtypedtypedtypedtypedtypedtype\":\"U8\"}}", 1, "unknown field \"dtypedtype");
    reject("{\"a\":" ENTRY("F7", "", 0, 1) "}", 1, "unknown dtype \"F7\"");
    reject("{\"a\":" ENTRY("", "", 0, 1) "}", 1, "unknown dtype \"\"");
    reject("{\"a\":" ENTRY("u8", "", 0, 1) "}", 1, "unknown dtype \"u8\"");
    reject("{\"a\":" ENTRY("\\u001b[2J", "", 0, 1) "}", 1, "unknown dtype \"\\x1b[2J\"");
    reject("{\"a\\u001b[2J\":" ENTRY("F7", "", 0, 1) "}", 1, "tensor \"a\\x1b[2J\"");
}

static void test_duplicates(void **state)
{
    (void)state;
    reject("{\"a\":" ENTRY("U8", "", 0, 1) ",\"a\":" ENTRY("U8", "", 1, 2) "}", 2, "tensor \"a\" occurs twice");
    reject("{\"a\":" ENTRY("U8", "", 0, 1) ",\"\\u0061\":" ENTRY("U8", "", 1, 2) "}", 2, "tensor \"a\" occurs twice");
    reject("{\"\303\251\":" ENTRY("U8", "", 0, 1) ",\"\\u00E9\":" ENTRY("U8", "", 1, 2) "}", 2, "occurs twice");
    reject("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "occurs twice");
    reject("{\"__metadata__\":{\"k\":\"1\",\"k\":\"1\"}}", 0, "key \"k\" occurs twice");
}

static void test_metadata(void **state)
{
    (void)state;
    reject("{\"__metadata__\":" ENTRY("U8", "", 0, 1) "}", 1, "expected '\"'");
    reject("{\"__metadata__\":{\"a\":1}}", 0, "expected '\"'");
    reject("{\"__metadata__\":{\"a\":null}}", 0, "expected '\"'");
    reject("{\"__metadata__\":{\"a\":{}}}", 0, "expected '\"'");
    reject("{\"__metadata__\":null}", 0, "expected '{'");
    reject("{\"__metadata__\":[]}", 0, "expected '{'");
    reject("{\"__metadata__\":{\"a\":\"\377\"}}", 0, "UTF-8");
    reject("{\"__metadata__\":{\"a\":\"b\",}}", 0, "expected '\"'");
}

static void test_strings(void **state)
{
    (void)state;
    static const char *const bad_utf8[] = {
        "\200",
        "\300\200",
        "\301\277",
        "\303",
        "\303x",
        "\340\200\200",
        "\340\237\277",
        "\355\240\200",
        "\355\277\277",
        "\360\200\200\200",
        "\360\217\277\277",
        "\364\220\200\200",
        "\365\200\200\200",
        "\370\210\200\200\200",
        "\376",
        "\377",
        "\342\202",
    };
    char json[64];
    for (size_t i = 0; i < sizeof bad_utf8 / sizeof bad_utf8[0]; i++) {
        snprintf(json, sizeof json, "{\"%s\":{}}", bad_utf8[i]);
        reject(json, 0, "UTF-8");
        snprintf(json, sizeof json, "{\"a%s", bad_utf8[i]);
        reject(json, 0, "UTF-8");
    }
    reject("{\"\\u0000\":{}}", 0, "NUL");
    reject_bytes("{\"\0\":{}}", 8, 0, "control character 0x00");
    reject("{\"a\nb\":{}}", 0, "control character 0x0a");
    reject("{\"\037\":{}}", 0, "control character 0x1f");
    reject("{\"\\ud800\":{}}", 0, "lone surrogate");
    reject("{\"\\ud800x\":{}}", 0, "lone surrogate");
    reject("{\"\\ud800\\n12345\":{}}", 0, "lone surrogate");
    reject("{\"\\udc00\":{}}", 0, "lone surrogate");
    reject("{\"\\ud800\\ud800\":{}}", 0, "lone surrogate");
    reject("{\"\\ud800\\u0041\":{}}", 0, "lone surrogate");
    reject("{\"\\ud800\\ue000\":{}}", 0, "lone surrogate");
    reject("{\"\\ud800", 0, "lone surrogate");
    reject("{\"\\u12\":{}}", 0, "hexadecimal");
    reject("{\"\\u12g4\":{}}", 0, "hexadecimal");
    reject("{\"\\u12", 0, "hexadecimal");
    reject("{\"\\x41\":{}}", 0, "unknown escape");
    reject("{\"\\", 0, "unknown escape");
    reject("{\"abc", 0, "closing quote");
}

/* Deep nesting cannot exhaust the stack: the grammar ends at the second level. */
static void test_deep_nesting(void **state)
{
    (void)state;
    const size_t n = 1000000;
    char *deep = malloc(n);
    memset(deep, '[', n);
    memcpy(deep, "{\"a\":{\"shape\":", 14);
    reject_bytes(deep, n, 0, "whole number");
    for (size_t i = 0; i + 5 <= n; i += 5)
        memcpy(deep + i, "{\"a\":", 5);
    reject_bytes(deep, n, 0, "unknown field");
    free(deep);
}

/* ---- lies about sizes --------------------------------------------------------------------------------- */

static void test_integers(void **state)
{
    (void)state;
    static const char *const bad[] = { "-1",  "-0",  "+1", "01",  "00",       "1.0",  "1.",
                                       "1e3", "1E0", ".5", "NaN", "Infinity", "true", "[" };
    char json[200];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(json, sizeof json, "{\"a\":{\"dtype\":\"U8\",\"shape\":[%s],\"data_offsets\":[0,1]}}", bad[i]);
        reject(json, 1, "whole number");
        snprintf(json, sizeof json, "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%s,1]}}", bad[i]);
        reject(json, 1, "whole number");
    }
    reject("{\"a\":" ENTRY("U8", "0x1", 0, 1) "}", 1, "expected ']'");
    reject("{\"a\":" ENTRY("U8", "281474976710656", 0, 1) "}", 1, "2^48 - 1");
    reject("{\"a\":" ENTRY("U8", "281474976710655", 0, 1) "}", 1,
           "281474976710655 bytes of U8, its data_offsets give 1");
    reject("{\"a\":" ENTRY("U8", "18446744073709551617", 0, 1) "}", 1, "2^48 - 1");
    reject("{\"a\":" ENTRY("U8", "1", 0, 99999999999999999999999) "}", 1, "2^48 - 1");
}

static void test_overflows(void **state)
{
    (void)state;
    reject("{\"a\":" ENTRY("U8", "2,18446744073709551614", 0, 4) "}", 4, "2^48 - 1");
    reject("{\"a\":" ENTRY("U8", "65536,281474976710655,2", 0, 4) "}", 4, "more than 64 bits");
    reject("{\"a\":" ENTRY("U8", "4294967296,4294967296", 0, 0) "}", 0, "more than 64 bits");
    reject("{\"a\":" ENTRY("U8", "4294967296,536870912", 0, 0) "}", 0, "more than 64 bits"); /* 2^61 * 8 */
    reject("{\"a\":" ENTRY("U8", "0,4294967296,4294967296", 0, 0) "}", 0, "more than 64 bits");
    reject("{\"a\":" ENTRY("U8", "4294967296,4294967296,0", 0, 0) "}", 0, "more than 64 bits");
    reject("{\"a\":" ENTRY("F4", "3", 0, 1) "}", 1, "whole bytes");
    reject("{\"a\":" ENTRY("F4", "3", 0, 2) "}", 2, "whole bytes");
    reject("{\"a\":" ENTRY("F6_E2M3", "2", 0, 2) "}", 2, "whole bytes");
}

static void test_offsets(void **state)
{
    (void)state;
    reject("{\"a\":" ENTRY("F32", "2", 0, 4) "}", 4, "needs 8 bytes of F32, its data_offsets give 4");
    reject("{\"a\":" ENTRY("F32", "1", 0, 8) "}", 8, "needs 4 bytes of F32, its data_offsets give 8");
    reject("{\"a\":" ENTRY("F32", "", 0, 0) "}", 0, "needs 4 bytes");
    reject("{\"a\":" ENTRY("F32", "0", 0, 4) "}", 4, "needs 0 bytes");
    reject("{\"a\":" ENTRY("U8", "4", 4, 0) "}", 4, "lies at [4, 0)");
    reject("{\"a\":" ENTRY("U8", "4", 0, 4) "}", 3, "the file has 3 bytes of data");
    reject("{\"a\":" ENTRY("U8", "4", 1, 5) "}", 5, "leave a hole");
    reject("{\"a\":" ENTRY("U8", "4", 0, 4) "}", 5, "end after 4 bytes of data, but the file has 5");
    reject("{}", 1, "end after 0 bytes of data, but the file has 1");
    reject("{\"a\":" ENTRY("U8", "2", 0, 2) ",\"b\":" ENTRY("U8", "2", 1, 3) "}", 3, "overlap");
    reject("{\"a\":" ENTRY("U8", "2", 0, 2) ",\"b\":" ENTRY("U8", "2", 0, 2) "}", 2, "overlap");
    reject("{\"b\":" ENTRY("U8", "2", 3, 5) ",\"a\":" ENTRY("U8", "2", 0, 2) "}", 5,
           "tensor \"b\" begins at byte 3 of "
           "the data, expected 2");
    reject("{\"a\":" ENTRY("U8", "4", 0, 4) ",\"z\":" ENTRY("U8", "0", 2, 2) "}", 4, "overlap");
    reject("{\"z\":" ENTRY("U8", "0", 5, 5) ",\"a\":" ENTRY("U8", "4", 0, 4) "}", 4, "lies at [5, 5)");
}

/* A small file that claims terabytes by assigning the same bytes to many tensors. */
static void test_amplification(void **state)
{
    (void)state;
    char *json = malloc(100000), *at = json;
    for (int i = 0; i < 1000; i++)
        at += sprintf(at, "%c\"t%d\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[0,16]}", i ? ',' : '{', i);
    *at++ = '}';
    reject_bytes(json, (size_t)(at - json), 16, "overlap");
    free(json);
}

/* The limit counts the tensors of all shards; a list that is full stands for the millions before. */
static void test_too_many(void **state)
{
    (void)state;
    static const char json[] = "{\"a\":" ENTRY("U8", "", 0, 1) "}";
    const image file = make_image(json, strlen(json), 1);
    mox_tensor_list list = { .count = MOX_MAX_TENSORS };
    moxie_error error;
    assert_int_equal(parse(file, &list, &error), MOXIE_ERR_FORMAT);
    assert_non_null(strstr(error.text, "more than 4000000 tensors"));
    mox_tensor_list_free(&list);
    test_guarded_free(file.data, file.size);
}

/* ---- size and chance ---------------------------------------------------------------------------------- */

/* CPU time of this process, since the machine may be busy. */
static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* As many tensors as the largest public models have, in shuffled order, in some tenths of a second; with sanitizers
 * in some seconds. Ten times as much is allowed: quadratic time would take minutes. */
static void test_200000_tensors(void **state)
{
    (void)state;
    const int count = 200000;
    char *json = malloc((size_t)count * 140), *at = json;
    for (int i = 0; i < count; i++) {
        const int place = (int)((int64_t)i * 77773 % count); /* 77773 is prime to 200000 */
        at += sprintf(at,
                      "%c\"model.layers.%d.mlp.experts.%d.down_proj.weight_scale\":{\"dtype\":\"F32\",\"shape\":[],"
                      "\"data_offsets\":[%d,%d]}",
                      i ? ',' : '{', place / 384, place % 384, 4 * place, 4 * place + 4);
    }
    *at++ = '}';
    const image file = make_image(json, (size_t)(at - json), 4 * (size_t)count);
    mox_tensor_list list = { 0 };
    moxie_error error;
    const double start = seconds_now();
    assert_ok(parse(file, &list, &error), &error);
    const double accepted = seconds_now() - start;
    assert_int_equal(list.count, count);
    const double most = test_sanitized() ? 40.0 : 10.0;
    if (accepted > most && !test_emulated())
        fail_msg("%d tensors took %.2f s of %.0f", count, accepted, most);
    mox_tensor_list_free(&list);
    test_guarded_free(file.data, file.size);
    free(json);
}

/* Random damage to a valid file: rejected or accepted, but no byte is read outside. Whatever is accepted tiles the
 * data. */
static void test_random_damage(void **state)
{
    (void)state;
    static const char json[] = "{\"__metadata__\":{\"k\":\"\\u00e9\"},\"a\":" ENTRY(
        "BF16", "3,2", 0, 12) ",\"b\":" ENTRY("F4", "4", 12, 14) ",\"c\":" ENTRY("U8", "0", 14, 14) "}  ";
    const uint64_t seed = test_seed(7);
    test_rng rng = { seed };
    const image good = make_image(json, strlen(json), 14);
    const image file = make_image(json, strlen(json), 14);
    for (int64_t round = 0; round < test_env("MOXIE_TEST_DAMAGE", 100000); round++) {
        memcpy(file.data, good.data, good.size);
        for (uint64_t k = test_below(&rng, 4) + 1; k > 0; k--) {
            static const char likely[] = "0123456789{}[]\",:\\ -e.";
            const uint64_t i = test_below(&rng, good.size);
            file.data[i] = test_below(&rng, 2) ? (unsigned char)likely[test_below(&rng, sizeof likely - 1)]
                                               : (unsigned char)test_u64(&rng);
        }
        mox_tensor_list list = { 0 };
        moxie_error error;
        uint64_t bytes = 0;
        const moxie_status status = parse(file, &list, &error);
        for (int64_t i = 0; status == MOXIE_OK && i < list.count; i++)
            bytes += list.tensors[i].bytes;
        if (status != MOXIE_ERR_FORMAT && (status != MOXIE_OK || bytes != 14))
            fail_msg("seed %llu, round %lld: status %d, %llu bytes", (unsigned long long)seed, (long long)round,
                     (int)status, (unsigned long long)bytes);
        mox_tensor_list_free(&list);
    }
    test_guarded_free(good.data, good.size);
    test_guarded_free(file.data, file.size);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_all_fields), cmocka_unit_test(test_legal_oddities),
        cmocka_unit_test(test_dtypes),           cmocka_unit_test(test_many_axes),
        cmocka_unit_test(test_header_length),    cmocka_unit_test(test_every_truncation),
        cmocka_unit_test(test_grammar),          cmocka_unit_test(test_fields),
        cmocka_unit_test(test_duplicates),       cmocka_unit_test(test_metadata),
        cmocka_unit_test(test_strings),          cmocka_unit_test(test_deep_nesting),
        cmocka_unit_test(test_integers),         cmocka_unit_test(test_overflows),
        cmocka_unit_test(test_offsets),          cmocka_unit_test(test_amplification),
        cmocka_unit_test(test_too_many),         cmocka_unit_test(test_200000_tensors),
        cmocka_unit_test(test_random_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
