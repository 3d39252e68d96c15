/* SPDX-License-Identifier: Apache-2.0
 *
 * test_record_parts.c - records packed part by part: every layout of layouts.def, and one made here with small parts.
 * The record has the same bytes whatever the order of the parts and whatever the memory held before; packing a part
 * writes only that part; the seal covers every byte.
 */
#include "test_problem.h"

#include "base/sizes.h"

/* ---- a layout of small parts: the weights of `up` as f32, three rows a part --------------------------------- */

enum { ROWS_PER_PART = 3, FLAGS = 5 };

static const char *accepts_all(const mox_record_shape *shape, char *buffer, size_t size)
{
    (void)shape, (void)buffer, (void)size;
    return NULL;
}

static uint64_t row_bytes(const mox_record_shape *shape)
{
    return (uint64_t)shape->hidden * sizeof(float);
}

static bool small_bytes(const mox_record_shape *shape, uint64_t *out)
{
    return mox_align_u64(sizeof(mox_record_header) + (uint64_t)shape->intermediate * row_bytes(shape), MOX_RECORD_ALIGN,
                         out);
}

static int64_t small_parts(const mox_record_shape *shape)
{
    return mox_ceil_div(shape->intermediate, ROWS_PER_PART);
}

static uint64_t small_at(const mox_record_shape *shape, int64_t part)
{
    uint64_t end = 0;
    if (part < small_parts(shape))
        return sizeof(mox_record_header) + (uint64_t)part * ROWS_PER_PART * row_bytes(shape);
    small_bytes(shape, &end);
    return end;
}

static moxie_status small_pack_part(const mox_record_shape *shape, const moxie_expert *expert, int64_t part,
                                    void *record, moxie_error *error)
{
    (void)error;
    uint8_t *to = (uint8_t *)record + small_at(shape, part);
    memset(to, 0, small_at(shape, part + 1) - small_at(shape, part)); /* padding */
    for (int64_t n = part * ROWS_PER_PART; n < shape->intermediate && n < (part + 1) * ROWS_PER_PART; n++)
        for (int64_t k = 0; k < shape->hidden; k++, to += sizeof(float)) {
            const float weight = (float)mox_matrix_weight(&expert->up, &shape->w13, n, k);
            memcpy(to, &weight, sizeof weight);
        }
    const uint32_t flags = FLAGS;
    if (part == 0)
        memcpy((uint8_t *)record + offsetof(mox_record_header, flags), &flags, sizeof flags);
    return MOXIE_OK;
}

static moxie_status fail_at_part_1(const mox_record_shape *shape, const moxie_expert *expert, int64_t part,
                                   void *record, moxie_error *error)
{
    return part == 1 ? mox_fail(MOXIE_ERR_UNSUPPORTED, error, "part 1 is broken")
                     : small_pack_part(shape, expert, part, record, error);
}

static const mox_layout small = {
    .number = 1000,
    .name = "small",
    .reject = accepts_all,
    .record_bytes = small_bytes,
    .parts = small_parts,
    .part_at = small_at,
    .pack_part = small_pack_part,
};

/* ---- helpers ------------------------------------------------------------------------------------------------ */

/* The layouts of the list, then the one made here, then NULL. */
static const mox_layout *layout_at(int32_t i)
{
    const mox_layout *listed = mox_layout_at(i);
    return listed != NULL ? listed : i > 0 && mox_layout_at(i - 1) != NULL ? &small : NULL;
}

typedef struct sample {
    test_expert expert;
    mox_record_shape shape;
    uint64_t bytes;
    int64_t parts;
    const mox_layout *layout;
} sample;

/* False when the layout rejects the shape or the expert. */
static bool make_sample_of(sample *out, test_rng *rng, const mox_layout *layout, int64_t hidden, int64_t intermediate)
{
    const test_expert_spec spec = {
        .hidden = hidden,
        .intermediate = intermediate,
        .gated = test_below(rng, 2) == 0,
        .bias13 = test_below(rng, 2) == 0,
        .bias2 = test_below(rng, 2) == 0,
        .w13 = &test_weight_quants[test_below(rng, (uint64_t)test_weight_quant_count)],
        .w2 = &test_weight_quants[test_below(rng, (uint64_t)test_weight_quant_count)],
        .a13 = &test_act_quants[1],
    };
    char reason[256];
    *out = (sample) { .shape = test_record_shape(&spec), .layout = layout };
    if (layout->reject(&out->shape, reason, sizeof reason) != NULL)
        return false;
    test_expert_make(&out->expert, rng, &spec);
    if (layout->accepts != NULL && !layout->accepts(&out->shape, &out->expert.view, reason, sizeof reason)) {
        test_expert_free(&out->expert);
        return false;
    }
    assert_true(layout->record_bytes(&out->shape, &out->bytes));
    out->parts = mox_record_parts(layout, &out->shape);
    return true;
}

static bool make_sample(sample *out, test_rng *rng, const mox_layout *layout)
{
    const int64_t hidden = test_range(rng, 1, 200);
    return make_sample_of(out, rng, layout, hidden, test_range(rng, 1, 200));
}

static void *dirty(const sample *s, int value)
{
    void *record = test_guarded(s->bytes);
    memset(record, value, s->bytes);
    return record;
}

static uint64_t begin_of(const sample *s, int64_t part)
{
    return s->layout->pack_part != NULL ? s->layout->part_at(&s->shape, part)
           : part == 0                  ? sizeof(mox_record_header)
                                        : s->bytes;
}

/* ---- tests -------------------------------------------------------------------------------------------------- */

static void pack_shuffled(const sample *s, test_rng *rng, void *record)
{
    moxie_error error;
    int64_t *order = calloc((size_t)s->parts, sizeof *order);
    uint64_t *sums = calloc((size_t)s->parts, sizeof *sums);
    assert_ok(mox_record_check(s->layout, &s->shape, 9, &s->expert.view, &error), &error);
    for (int64_t i = 0; i < s->parts; i++) {
        const int64_t at = test_range(rng, 0, i);
        order[i] = order[at];
        order[at] = i;
    }
    for (int64_t i = 0; i < s->parts; i++)
        assert_ok(
            mox_record_pack_part(s->layout, &s->shape, &s->expert.view, order[i], record, &sums[order[i]], &error),
            &error);
    mox_record_seal(s->layout, &s->shape, 9, &s->expert.view, record, sums);
    free(order);
    free(sums);
}

static void any_order_makes_the_same_record(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(31);
    test_rng rng = { seed };
    for (int32_t l = 0; layout_at(l) != NULL; l++)
        for (int round = 0, made = 0; round < 400 && made < 40; round++) {
            sample s;
            moxie_error error;
            if (!make_sample(&s, &rng, layout_at(l)))
                continue;
            made++;
            void *whole = dirty(&s, 0x55), *shuffled = dirty(&s, 0xaa);
            assert_ok(mox_record_pack(s.layout, &s.shape, 9, &s.expert.view, whole, &error), &error);
            pack_shuffled(&s, &rng, shuffled);
            if (memcmp(whole, shuffled, s.bytes) != 0)
                fail_msg("layout %s, hidden %lld, intermediate %lld, %lld parts, seed %llu: the records differ",
                         s.layout->name, (long long)s.shape.hidden, (long long)s.shape.intermediate, (long long)s.parts,
                         (unsigned long long)seed);
            assert_ok(mox_record_verify(s.layout, &s.shape, 9, shuffled, &error), &error);
            test_guarded_free(whole, s.bytes);
            test_guarded_free(shuffled, s.bytes);
            test_expert_free(&s.expert);
        }
}

/* Part i is [part_at(i), part_at(i + 1)), and its packing leaves the rest of the record alone. */
static void parts_tile_and_keep_to_themselves(void **state)
{
    (void)state;
    test_rng rng = { test_seed(32) };
    for (int32_t l = 0; layout_at(l) != NULL; l++)
        for (int round = 0; round < 60; round++) {
            sample s;
            moxie_error error;
            uint64_t sum;
            if (!make_sample(&s, &rng, layout_at(l)))
                continue;
            assert_int_equal(begin_of(&s, 0), sizeof(mox_record_header));
            assert_int_equal(begin_of(&s, s.parts), s.bytes);
            uint8_t *record = dirty(&s, 0x77);
            const int64_t part = test_range(&rng, 0, s.parts - 1);
            const uint64_t begin = begin_of(&s, part), end = begin_of(&s, part + 1);
            assert_true(begin < end && end <= s.bytes);
            assert_ok(mox_record_pack_part(s.layout, &s.shape, &s.expert.view, part, record, &sum, &error), &error);
            for (uint64_t i = part == 0 ? sizeof(mox_record_header) : 0; i < s.bytes; i++)
                if ((i < begin || i >= end) && record[i] != 0x77)
                    fail_msg("layout %s: packing part %lld wrote byte %llu, its own are %llu to %llu", s.layout->name,
                             (long long)part, (unsigned long long)i, (unsigned long long)begin,
                             (unsigned long long)end);
            test_guarded_free(record, s.bytes);
            test_expert_free(&s.expert);
        }
}

static void the_seal_covers_every_byte(void **state)
{
    (void)state;
    test_rng rng = { test_seed(33) };
    sample s;
    moxie_error error;
    do
        assert_true(make_sample(&s, &rng, &small));
    while (s.parts < 3 || s.bytes > 20000);
    uint8_t *record = dirty(&s, 0);
    assert_ok(mox_record_pack(&small, &s.shape, 9, &s.expert.view, record, &error), &error);
    mox_record_header header;
    memcpy(&header, record, sizeof header);
    assert_int_equal(header.flags, FLAGS);
    assert_int_equal(header.bytes, s.bytes);
    for (uint64_t i = 0; i < s.bytes; i++) {
        record[i] ^= 0x10;
        assert_int_equal(mox_record_verify(&small, &s.shape, 9, record, &error), MOXIE_ERR_MISMATCH);
        record[i] ^= 0x10;
    }
    assert_ok(mox_record_verify(&small, &s.shape, 9, record, &error), &error);
    test_guarded_free(record, s.bytes);
    test_expert_free(&s.expert);
}

/* ---- strides that lead nowhere ------------------------------------------------------------------------------ */

/* With a single word the stride is never used, so any number is valid: tensors of one row come with odd ones. */
static void stretch(moxie_grid *grid)
{
    const moxie_packing p = grid->packing;
    if (grid->data == NULL)
        return;
    if (mox_ceil_div(grid->rows, p.along_rows ? p.per_word : 1) == 1)
        grid->row_stride = INT64_MAX;
    if (mox_ceil_div(grid->cols, p.along_rows ? 1 : p.per_word) == 1)
        grid->col_stride = INT64_MAX;
}

static void stretch_matrix(moxie_matrix *m)
{
    stretch(&m->codes);
    stretch(&m->scale);
    stretch(&m->zero);
    stretch(&m->global);
    stretch(&m->bias);
}

static void the_stride_of_a_single_row_does_not_matter(void **state)
{
    (void)state;
    test_rng rng = { test_seed(35) };
    int64_t made = 0;
    for (int32_t l = 0; layout_at(l) != NULL; l++)
        for (int round = 0; round < 200; round++) {
            sample s;
            moxie_error error;
            const int64_t hidden = test_below(&rng, 2) == 0 ? 1 : test_range(&rng, 1, 40);
            if (!make_sample_of(&s, &rng, layout_at(l), hidden, hidden == 1 ? test_range(&rng, 1, 40) : 1))
                continue;
            void *want = dirty(&s, 0x11), *got = dirty(&s, 0x22);
            assert_ok(mox_record_pack(s.layout, &s.shape, 3, &s.expert.view, want, &error), &error);
            moxie_expert far = s.expert.view;
            stretch_matrix(&far.gate);
            stretch_matrix(&far.up);
            stretch_matrix(&far.down);
            assert_ok(mox_record_pack(s.layout, &s.shape, 3, &far, got, &error), &error);
            assert_memory_equal(got, want, s.bytes);
            test_guarded_free(want, s.bytes);
            test_guarded_free(got, s.bytes);
            test_expert_free(&s.expert);
            made++;
        }
    assert_true(made > 200);
}

static void a_part_may_fail(void **state)
{
    (void)state;
    test_rng rng = { test_seed(34) };
    mox_layout broken = small;
    broken.pack_part = fail_at_part_1;
    sample s;
    moxie_error error;
    do
        assert_true(make_sample(&s, &rng, &broken));
    while (s.parts < 3);
    void *record = dirty(&s, 0);
    assert_int_equal(mox_record_pack(&broken, &s.shape, 0, &s.expert.view, record, &error), MOXIE_ERR_UNSUPPORTED);
    assert_string_equal(error.text, "part 1 is broken");
    test_guarded_free(record, s.bytes);
    test_expert_free(&s.expert);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_makes_the_same_record),
        cmocka_unit_test(parts_tile_and_keep_to_themselves),
        cmocka_unit_test(the_seal_covers_every_byte),
        cmocka_unit_test(the_stride_of_a_single_row_does_not_matter),
        cmocka_unit_test(a_part_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
