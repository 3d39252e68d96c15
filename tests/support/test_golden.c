/* SPDX-License-Identifier: Apache-2.0
 *
 * test_golden.c - golden files: what is in them (test_golden.h).
 *
 *     metadata    layout, sizes, element types; everything that the tensors do not say themselves
 *     input.*     gate, up, down: codes as dense rows, scale, zero, global, bias
 *     output.*    the layout's tensors, as the second statement has them
 */
#include "test_golden.h"

#include <jansson.h>

#include "ckpt/safetensors/file_dtype.h"

enum { MAX_PAIRS = 32, MAX_TRIES = 64 };

static const char *const matrix_names[3] = { "gate", "up", "down" };
static const char *const grid_names[5] = { "codes", "scale", "zero", "global", "bias" };

static moxie_matrix *matrix_of(moxie_expert *expert, int which)
{
    return which == 0 ? &expert->gate : which == 1 ? &expert->up : &expert->down;
}

static moxie_grid *grid_of(moxie_matrix *matrix, int which)
{
    moxie_grid *const grids[5] = { &matrix->codes, &matrix->scale, &matrix->zero, &matrix->global, &matrix->bias };
    return grids[which];
}

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

/* ---- choosing weights ----------------------------------------------------------------------------- */

/* A layer of one expert that the layout accepts. */
typedef struct chosen {
    test_golden_kind kind;
    const test_weight_quant *quant;
    mox_record_shape shape;
    mox_vendor_use use;
    test_expert expert;
    mox_vendor_plan plan;
} chosen;

static bool is_taken(const mox_vendor_layout *layout, chosen *c)
{
    moxie_error error;
    const bool halved = c->kind == TEST_GOLDEN_HALVED;
    if (mox_vendor_plan_make(layout, &c->shape, &c->use, &c->expert.view, halved, &c->plan, &error) != MOXIE_OK ||
        halved != (c->plan.repeat > 1) ||
        (layout->surveys && mox_vendor_survey(&c->plan, &c->expert.view, &error) != MOXIE_OK))
        return false;
    void *tensors[TEST_GOLDEN_TENSORS + 1];
    for (int32_t i = 0; i < c->plan.count; i++)
        tensors[i] = malloc((size_t)c->plan.tensors[i].bytes);
    const moxie_status status = mox_vendor_pack(&c->plan, &c->expert.view, tensors, &mox_executor_serial, &error);
    for (int32_t i = 0; i < c->plan.count; i++)
        free(tensors[i]);
    return status == MOXIE_OK;
}

/* Tries random experts of one shape: layouts reject some for their values. */
static bool try_form(const mox_vendor_layout *layout, int64_t hidden, int64_t intermediate, chosen *c)
{
    const test_expert_spec spec = { .hidden = hidden,
                                    .intermediate = intermediate,
                                    .gated = true,
                                    .bias13 = layout->accepts.bias,
                                    .bias2 = layout->accepts.bias,
                                    .w13 = c->quant,
                                    .w2 = c->quant };
    c->shape = test_record_shape(&spec);
    for (uint64_t seed = 1; seed <= MAX_TRIES; seed++) {
        test_rng rng = { seed };
        c->use = test_vendor_use(&rng);
        test_expert_make(&c->expert, &rng, &spec);
        test_vendor_settle(&c->expert.view, layout, &c->shape, &rng);
        if (is_taken(layout, c))
            return true;
        test_expert_free(&c->expert);
    }
    return false;
}

/* At least 32, as groups need it. */
static int64_t smallest(const mox_vendor_layout *layout, mox_vendor_extent extent)
{
    const int64_t unit = test_vendor_unit(layout, extent);
    return (32 + unit - 1) / unit * unit;
}

static bool is_of_kind(const test_weight_quant *quant, test_golden_kind kind)
{
    return quant->act_order == (kind == TEST_GOLDEN_ACT_ORDER) && (kind != TEST_GOLDEN_HALVED || quant->quant.has_zero);
}

bool test_golden_has(const mox_vendor_layout *layout, test_golden_kind kind)
{
    return kind == TEST_GOLDEN_ACT_ORDER ? layout->act_order.order[0] != NULL
           : kind == TEST_GOLDEN_HALVED  ? layout->accepts.min_group > 0
                                         : true;
}

/* Tries small multiples, fewest elements first; formats in the order of their list. */
static void choose(const mox_vendor_layout *layout, chosen *c)
{
    const int64_t h = smallest(layout, MOX_VENDOR_HIDDEN), i = smallest(layout, MOX_VENDOR_INTERMEDIATE);
    for (int64_t size = 1; size <= 16; size++)
        for (int64_t m = 1; m <= size; m++)
            for (int q = 0; size % m == 0 && q < test_weight_quant_count; q++) {
                c->quant = &test_weight_quants[q];
                if (is_of_kind(c->quant, c->kind) && test_vendor_takes(layout, &c->quant->quant) &&
                    try_form(layout, m * h, size / m * i, c))
                    return;
            }
    die(layout->name, "takes no small weights of the tests' formats");
}

/* ---- writing -------------------------------------------------------------------------------------- */

/* A file that is being made. */
typedef struct making {
    moxie_named_tensor tensors[18 + 2 + TEST_GOLDEN_TENSORS];
    char names[18 + 2 + TEST_GOLDEN_TENSORS][80];
    int count;
    const char *pairs[2 * MAX_PAIRS];
    char values[MAX_PAIRS][64];
    int n_pairs;
} making;

static void say(making *m, const char *key, const char *value)
{
    snprintf(m->values[m->n_pairs], sizeof m->values[0], "%s", value);
    m->pairs[2 * m->n_pairs] = key;
    m->pairs[2 * m->n_pairs + 1] = m->values[m->n_pairs];
    m->n_pairs++;
}

static void say_number(making *m, const char *key, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.9g", value);
    say(m, key, text);
}

static void say_dtype(making *m, const char *key, moxie_dtype dtype)
{
    say(m, key, dtype != MOXIE_DTYPE_NONE ? moxie_dtype_name(dtype) : "none");
}

static moxie_tensor *add(making *m, const char *group, const char *first, const char *last, moxie_dtype dtype,
                         void *data)
{
    snprintf(m->names[m->count], sizeof m->names[0], "%s.%s%s%s", group, first, *last ? "." : "", last);
    m->tensors[m->count] = (moxie_named_tensor) { m->names[m->count], { .data = data, .dtype = dtype } };
    return &m->tensors[m->count++].tensor;
}

/* Stores a grid as dense rows: elements of whole bytes in their dtype if safetensors has it, others as u8. */
static void add_grid(making *m, const char *matrix, const char *name, const moxie_grid *grid)
{
    if (grid->data == NULL)
        return;
    size_t bytes;
    /* Rows of whole bytes. */
    test_array codes = test_pad(test_array_of(grid), 1, moxie_dtype_bits(grid->dtype) == 4 ? 2 : 1);
    void *data = test_array_bytes(&codes, moxie_dtype_bits(grid->dtype), &bytes);
    test_array_free(&codes);
    const bool named = moxie_dtype_bits(grid->dtype) >= 8 && mox_file_dtype_name(grid->dtype) != NULL;
    moxie_tensor *t = add(m, "input", matrix, name, named ? grid->dtype : MOXIE_U8, data);
    t->rank = 2;
    t->shape[0] = grid->rows;
    t->shape[1] = named ? grid->cols : (int64_t)bytes / grid->rows;
}

/* The group of each column, where they are in act order. */
static void add_columns(making *m, const char *matrix, const moxie_matrix *from)
{
    if (from->group_index == NULL)
        return;
    const size_t bytes = (size_t)from->codes.cols * sizeof *from->group_index;
    moxie_tensor *t =
        add(m, "input", matrix, "group_index", MOXIE_I32, memcpy(malloc(bytes), from->group_index, bytes));
    t->rank = 1;
    t->shape[0] = from->codes.cols;
}

static void add_inputs(making *m, moxie_expert *expert)
{
    for (int i = 0; i < 3; i++) {
        for (int g = 0; g < 5; g++)
            add_grid(m, matrix_names[i], grid_names[g], grid_of(matrix_of(expert, i), g));
        add_columns(m, matrix_names[i], matrix_of(expert, i));
    }
}

static const mox_vendor_tensor *planned(const mox_vendor_plan *plan, const char *name)
{
    for (int32_t i = 0; i < plan->count; i++)
        if (strcmp(plan->tensors[i].name, name) == 0)
            return &plan->tensors[i];
    die(name, "is stated, and the layout has no such tensor");
}

static void add_outputs(making *m, const chosen *c)
{
    test_stated stated[TEST_GOLDEN_TENSORS];
    const test_statement *statement = test_statement_of(c->plan.layout);
    if (statement->layout == NULL)
        die(c->plan.layout->name, "has no second statement");
    const int count = statement->state(&c->plan, &c->expert.view, stated);
    for (int s = 0; s < count; s++) {
        const mox_vendor_tensor *t = planned(&c->plan, stated[s].name);
        size_t bytes;
        void *data = test_array_bytes(&stated[s].array, stated[s].bits, &bytes);
        test_array_free(&stated[s].array);
        if (bytes != t->bytes)
            die(t->name, "is stated with other bytes than the layout's");
        moxie_tensor *out = add(m, "output", t->name, "", t->dtype, data);
        out->rank = t->rank;
        memcpy(out->shape, t->shape, sizeof out->shape);
    }
}

static void say_quant(making *m, const chosen *c)
{
    static const char *const globals[] = { "none", "multiply", "divide" };
    const moxie_quant *q = &c->quant->quant;
    const moxie_matrix *up = &c->expert.view.up, *down = &c->expert.view.down;
    say_dtype(m, "element", q->element);
    say_dtype(m, "scale", q->scale);
    say_number(m, "group_rows", q->group_rows);
    say_number(m, "group_cols", q->group_cols);
    say(m, "global", globals[q->global]);
    say_dtype(m, "zero", q->has_zero ? up->zero.dtype : MOXIE_DTYPE_NONE);
    say_number(m, "zero_add", up->zero_add);
    say_dtype(m, "bias13", up->bias.data != NULL ? up->bias.dtype : MOXIE_DTYPE_NONE);
    say_dtype(m, "bias2", down->bias.data != NULL ? down->bias.dtype : MOXIE_DTYPE_NONE);
}

static void say_all(making *m, const chosen *c)
{
    say(m, "layout", c->plan.layout->name);
    say(m, "release", mox_vendor_release(c->plan.layout));
    say(m, "caller", c->plan.layout->caller);
    say_number(m, "hidden", (double)c->shape.hidden);
    say_number(m, "intermediate", (double)c->shape.intermediate);
    say_quant(m, c);
    say_number(m, "a13_scale", c->expert.view.a13_scale);
    say_number(m, "a2_scale", c->expert.view.a2_scale);
    say_number(m, "alpha", c->use.activation.alpha);
    say_number(m, "beta", c->use.activation.beta);
    say_number(m, "gate_limit", c->use.activation.gate_limit);
    say_number(m, "up_limit", c->use.activation.up_limit);
}

static void path_of(const mox_vendor_layout *layout, test_golden_kind kind, const char *dir, char path[512])
{
    static const char *const of_kind[] = { "", "-act-order", "-halved" };
    char title[80];
    snprintf(path, 512, "%s/%s%s.safetensors", dir, test_vendor_title(layout, title), of_kind[kind]);
}

void test_golden_write(const mox_vendor_layout *layout, test_golden_kind kind, const char *dir)
{
    static making m;
    static chosen c;
    m = (making) { .count = 0 };
    c = (chosen) { .kind = kind };
    choose(layout, &c);
    say_all(&m, &c);
    add_inputs(&m, &c.expert.view);
    add_outputs(&m, &c);
    char path[512];
    moxie_error error;
    path_of(layout, kind, dir, path);
    if (moxie_tensor_file_write(path, m.tensors, m.count, m.pairs, m.n_pairs, &error) != MOXIE_OK)
        die(path, error.text);
    for (int i = 0; i < m.count; i++)
        free(m.tensors[i].tensor.data);
    test_expert_free(&c.expert);
}

/* ---- reading -------------------------------------------------------------------------------------- */

/* The metadata of a safetensors file; caller decrefs. */
static json_t *metadata_of(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        fail_msg("%s is missing: build golden_make and run it, and look at what it wrote", path);
    uint64_t size = 0;
    assert_int_equal(fread(&size, 1, sizeof size, file), sizeof size);
    assert_true(size < 1 << 20);
    char *text = malloc((size_t)size);
    assert_int_equal(fread(text, 1, (size_t)size, file), size);
    fclose(file);
    json_t *header = json_loadb(text, (size_t)size, 0, NULL);
    free(text);
    json_t *metadata = json_incref(json_object_get(header, "__metadata__"));
    json_decref(header);
    assert_non_null(metadata);
    return metadata;
}

static const char *text_in(const json_t *metadata, const char *key)
{
    const char *text = json_string_value(json_object_get(metadata, key));
    if (text == NULL)
        fail_msg("the metadata have no %s", key);
    return text;
}

static double number_in(const json_t *metadata, const char *key)
{
    return strtod(text_in(metadata, key), NULL);
}

static moxie_dtype dtype_in(const json_t *metadata, const char *key)
{
    return moxie_dtype_from_name(text_in(metadata, key));
}

static void read_shape(const json_t *metadata, test_golden *out)
{
    const char *global = text_in(metadata, "global");
    moxie_quant *q = &out->shape.w13;
    *q = (moxie_quant) { .element = dtype_in(metadata, "element"),
                         .scale = dtype_in(metadata, "scale"),
                         .group_rows = (int32_t)number_in(metadata, "group_rows"),
                         .group_cols = (int32_t)number_in(metadata, "group_cols"),
                         .has_zero = dtype_in(metadata, "zero") != MOXIE_DTYPE_NONE,
                         .global = global[0] == 'm'   ? MOXIE_GLOBAL_MULTIPLY
                                   : global[0] == 'd' ? MOXIE_GLOBAL_DIVIDE
                                                      : MOXIE_GLOBAL_NONE };
    out->shape.w2 = *q;
    out->shape.hidden = (int64_t)number_in(metadata, "hidden");
    out->shape.intermediate = (int64_t)number_in(metadata, "intermediate");
    out->shape.gated = true;
    out->shape.bias13 = dtype_in(metadata, "bias13") != MOXIE_DTYPE_NONE;
    out->shape.bias2 = dtype_in(metadata, "bias2") != MOXIE_DTYPE_NONE;
    out->expert.a13_scale = (float)number_in(metadata, "a13_scale");
    out->expert.a2_scale = (float)number_in(metadata, "a2_scale");
    out->use.activation = (moxie_activation) { .kind = MOXIE_ACT_SILU,
                                               .alpha = (float)number_in(metadata, "alpha"),
                                               .beta = (float)number_in(metadata, "beta"),
                                               .gate_limit = (float)number_in(metadata, "gate_limit"),
                                               .up_limit = (float)number_in(metadata, "up_limit") };
}

static void read_matrix(const json_t *metadata, int which, bool act_order, test_golden *out)
{
    const bool second = which == 2;
    const moxie_quant *q = &out->shape.w13;
    const int64_t rows = second ? out->shape.hidden : out->shape.intermediate;
    const int64_t cols = second ? out->shape.intermediate : out->shape.hidden;
    const int64_t scale_rows = mox_scale_rows(q, rows), scale_cols = mox_scale_cols(q, cols);
    const struct {
        moxie_dtype dtype;
        int64_t rows, cols;
    } grids[5] = { { q->element, rows, cols },
                   { q->scale, scale_rows, scale_cols },
                   { dtype_in(metadata, "zero"), scale_rows, scale_cols },
                   { q->global != MOXIE_GLOBAL_NONE ? MOXIE_F32 : MOXIE_DTYPE_NONE, 1, 1 },
                   { dtype_in(metadata, second ? "bias2" : "bias13"), rows, 1 } };
    moxie_matrix *matrix = matrix_of(&out->expert, which);
    matrix->zero_add = (float)number_in(metadata, "zero_add");
    char name[64];
    moxie_tensor tensor;
    moxie_error error = { 0 };
    for (int g = 0; g < 5; g++) {
        if (grids[g].dtype == MOXIE_DTYPE_NONE)
            continue;
        snprintf(name, sizeof name, "input.%s.%s", matrix_names[which], grid_names[g]);
        assert_ok(moxie_tensor_file_find(out->file, name, &tensor, &error), &error);
        *grid_of(matrix, g) = mox_grid_dense(tensor.data, grids[g].dtype, grids[g].rows, grids[g].cols);
    }
    if (!act_order)
        return;
    snprintf(name, sizeof name, "input.%s.group_index", matrix_names[which]);
    assert_ok(moxie_tensor_file_find(out->file, name, &tensor, &error), &error);
    assert_int_equal(tensor.shape[0], cols);
    matrix->group_index = tensor.data;
}

void test_golden_read(const mox_vendor_layout *layout, test_golden_kind kind, const char *dir, test_golden *out)
{
    char path[512];
    moxie_error error = { 0 };
    *out = (test_golden) { .layout = layout };
    path_of(layout, kind, dir, path);
    json_t *metadata = metadata_of(path);
    assert_string_equal(text_in(metadata, "layout"), layout->name);
    assert_string_equal(text_in(metadata, "release"), mox_vendor_release(layout));
    assert_ok(moxie_tensor_file_open(path, true, &out->file, &error), &error);
    read_shape(metadata, out);
    for (int which = 0; which < 3; which++)
        read_matrix(metadata, which, kind == TEST_GOLDEN_ACT_ORDER, out);
    for (int64_t i = 0; i < moxie_tensor_file_count(out->file); i++) {
        moxie_named_tensor *t = &out->outputs[out->count];
        assert_ok(moxie_tensor_file_at(out->file, i, &t->name, &t->tensor), &error);
        if (strncmp(t->name, "output.", 7) != 0)
            continue;
        t->name += 7;
        out->count++;
        assert_true(out->count < TEST_GOLDEN_TENSORS);
    }
    json_decref(metadata);
}

void test_golden_close(test_golden *golden)
{
    moxie_tensor_file_close(golden->file);
}
