/* SPDX-License-Identifier: Apache-2.0
 *
 * `moxie run --input`: marks of tokens in the input file. A layer with a second bias (tests/ckpt/plain_cases.def) is
 * compared with its model's formula:
 *
 *     bias_choice    these tokens choose by the second bias
 *     padding        no expert is chosen for these: their result is the shared expert's
 */
#include "test_support.h"

#include <math.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <moxie/moxie_ckpt.h>

#include "plain_cases.h"

static const char *build_dir;
static uint8_t padding[PLAIN_TOKENS] = { [4] = 1, [7] = 1, [9] = 255 };

/* What the file says besides the hidden states. */
typedef struct marks {
    uint8_t *images, *padding;
} marks;

static moxie_named_tensor tensor(const char *name, moxie_dtype dtype, void *data, int64_t columns)
{
    return (moxie_named_tensor) {
        .name = name,
        .tensor = { .dtype = dtype,
                    .rank = columns > 0 ? 2 : 1,
                    .shape = { PLAIN_TOKENS, columns > 0 ? columns : 0 },
                    .data = data },
    };
}

static void write_input(const char *path, const plain_case *c, const marks *m)
{
    static float hidden[PLAIN_TOKENS * PLAIN_MAX_H];
    const int h = plain_h(c);
    moxie_error error = { 0 };
    int64_t n = 1;
    for (int i = 0; i < PLAIN_TOKENS * h; i++)
        hidden[i] = (float)plain_hidden(i / h, i % h);
    moxie_named_tensor tensors[3] = { tensor("hidden_states", MOXIE_F32, hidden, h) };
    if (m->images)
        tensors[n++] = tensor("bias_choice", MOXIE_U8, m->images, 0);
    if (m->padding)
        tensors[n++] = tensor("padding", MOXIE_U8, m->padding, 0);
    assert_ok(moxie_tensor_file_write(path, tensors, n, NULL, 0, &error), &error);
}

static void run_tool(const char *dir, const char *model)
{
    char command[2000];
    snprintf(command, sizeof command, "%s/moxie run %s --layer %d --input %s/in --output %s/out >%s/log 2>&1",
             build_dir, model, PLAIN_LAYER, dir, dir, dir);
    const int status = system(command);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("status %d: %s", status, command);
}

/* Row t of `wanted` where `plain` [T, H] holds for tokens that are not marked, `shared` for padding. */
static void compare(const char *path, const plain_case *c, const double *plain, const double *shared, const marks *m)
{
    const int h = plain_h(c);
    moxie_error error = { 0 };
    moxie_tensor_file *file = NULL;
    moxie_tensor output = { 0 };
    assert_ok(moxie_tensor_file_open(path, 0, &file, &error), &error);
    assert_ok(moxie_tensor_file_find(file, "output", &output, &error), &error);
    assert_int_equal(output.dtype, MOXIE_F32);
    assert_int_equal(output.shape[0] * output.shape[1], PLAIN_TOKENS * h);
    for (int i = 0; i < PLAIN_TOKENS * h; i++) {
        const double want = m->padding && m->padding[i / h] ? shared[i] : plain[i];
        const double got = (double)((const float *)output.data)[i];
        if (!(fabs(got - want) <= 2e-5 * fmax(fabs(want), 1)))
            fail_msg("token %d, element %d is %g, expected %g", i / h, i % h, got, want);
    }
    moxie_tensor_file_close(file);
}

static plain_case case_named(const char *what)
{
    plain_case c;
    for (int i = 0; plain_case_at(i, &c); i++)
        if (strcmp(c.what, what) == 0)
            return c;
    fail_msg("no case %s", what);
    return c;
}

static void marks_of_tokens(void **state)
{
    static double with_images[PLAIN_TOKENS * PLAIN_MAX_H], without[PLAIN_TOKENS * PLAIN_MAX_H],
        shared[PLAIN_TOKENS * PLAIN_MAX_H];
    uint8_t images[PLAIN_TOKENS];
    char in[600], out[600], model[600];
    (void)state;
    char *dir = test_tmpdir();
    snprintf(in, sizeof in, "%s/in", dir);
    snprintf(out, sizeof out, "%s/out", dir);
    snprintf(model, sizeof model, "%s/model", dir);
    assert_int_equal(mkdir(model, 0700), 0);
    const plain_case c = case_named("deepseek_v41, a bias for images");
    plain_case text = c, nothing = c;
    text.names.correction_alt = NULL;
    nothing.rules.scale = 1e-30; /* of the routed experts: 0 means 1 */
    plain_write(&c, model);
    plain_output(&c, with_images);
    plain_output(&text, without);
    plain_output(&nothing, shared);
    for (int t = 0; t < PLAIN_TOKENS; t++)
        images[t] = plain_is_image(t);
    const marks tried[] = { { NULL, NULL }, { images, NULL }, { NULL, padding }, { images, padding } };
    for (size_t i = 0; i < sizeof tried / sizeof tried[0]; i++) {
        write_input(in, &c, &tried[i]);
        run_tool(dir, model);
        compare(out, &c, tried[i].images ? with_images : without, shared, &tried[i]);
    }
    test_rmdir(dir);
}

int main(void)
{
    build_dir = getenv("MOXIE_BUILD_DIR");
    char tool[600];
    snprintf(tool, sizeof tool, "%s/moxie", build_dir ? build_dir : "");
    if (!build_dir || access(tool, X_OK) != 0) {
        puts("skipped: MOXIE_BUILD_DIR has no moxie");
        return 77;
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(marks_of_tokens) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
