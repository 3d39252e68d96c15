/* SPDX-License-Identifier: Apache-2.0
 *
 * test_prepare_shares.c - moxie_prepare.h: the share of a rank.
 *
 *     share of a rank      equals the tensors of an expert that was cut by copying, element by element
 *     all ranks' shares    unpacked into one expert, give that expert again
 */
#include "base/memory.h"
#include "prepare_problem.h"
#include "vendor/vendor_slice.h"

/* ---- cutting by copying ---- */

static void copy_matrix(const moxie_matrix *from, const moxie_quant *quant, int64_t row, int64_t col, moxie_matrix *to,
                        void *vectors[2])
{
    const int64_t n = from->codes.rows, k = from->codes.cols;
    const int64_t gr = mox_group_rows(quant, n), gc = mox_group_cols(quant, k);
    const int64_t down = gr >= n ? 0 : row / gr, across = gc >= k ? 0 : col / gc;
    const bool each = from->global.rows == n;
    copy_codes(&from->codes, row, col, &to->codes);
    copy_codes(&from->scale, down, across, &to->scale);
    copy_codes(&from->zero, down, across, &to->zero);
    to->global = copy_vector(&from->global, each ? row : 0, each ? to->codes.rows : 1, &vectors[0]);
    to->bias = copy_vector(&from->bias, row, to->codes.rows, &vectors[1]);
}

typedef struct cut_expert {
    test_expert expert;
    void *vectors[6];
} cut_expert;

/* A copy of rows and columns first .. first + count of `whole`, as an expert with memory of its own. */
static void cut_by_copying(const test_expert_spec *spec, const moxie_expert *whole, int64_t first, int64_t count,
                           bool first_rank, cut_expert *out)
{
    test_rng rng = { 3 };
    test_expert_spec small = *spec;
    small.intermediate = count;
    memset(out, 0, sizeof *out);
    test_expert_make(&out->expert, &rng, &small);
    moxie_expert *cut = &out->expert.view;
    copy_matrix(&whole->gate, &spec->w13->quant, first, 0, &cut->gate, out->vectors);
    copy_matrix(&whole->up, &spec->w13->quant, first, 0, &cut->up, out->vectors + 2);
    copy_matrix(&whole->down, &spec->w2->quant, 0, first, &cut->down, out->vectors + 4);
    for (int64_t r = 0; !first_rank && spec->bias2 && r < spec->hidden; r++)
        mox_grid_store(&cut->down.bias, r, 0, 0);
    cut->a13_scale = whole->a13_scale;
    cut->a2_scale = whole->a2_scale;
}

static void free_cut(cut_expert *cut)
{
    for (int i = 0; i < 6; i++)
        free(cut->vectors[i]);
    test_expert_free(&cut->expert);
}

/* Surveys and packs `expert` on rank `rank`. False when the layout cannot hold it; with `must` the test fails then. */
static bool pack_rank(const moxie_layer_config *config, const char *layout, int32_t rank, int32_t ranks, bool must,
                      const moxie_expert *expert, moxie_preparation **out, tensors *t)
{
    moxie_error error = { 0 };
    const moxie_preparation_options options = options_of(layout, rank, ranks);
    *out = NULL;
    t->count = 0;
    moxie_status status = moxie_preparation_create(config, &options, expert, out, &error);
    if (status == MOXIE_OK)
        status = moxie_preparation_survey(*out, expert, &error);
    if (status == MOXIE_OK) {
        make_tensors(*out, t);
        status = moxie_preparation_pack(*out, expert, t->data, pool, &error);
    }
    if (status == MOXIE_OK)
        return true;
    if (status != MOXIE_ERR_UNSUPPORTED || must)
        fail_msg("%s on rank %d of %d: %s", layout, (int)rank, (int)ranks, error.text);
    free_tensors(t);
    moxie_preparation_destroy(*out);
    return false;
}

/* Some layouts want one global per matrix, the same for gate and up, or one scale for both. */
static void share_numbers(moxie_expert *expert)
{
    moxie_matrix *const matrices[] = { &expert->gate, &expert->up, &expert->down };
    for (int i = 0; i < 3; i++)
        if (matrices[i]->global.data)
            matrices[i]->global.rows = 1;
    if (expert->gate.global.data)
        copy_codes(&expert->gate.global, 0, 0, &expert->up.global);
    if (expert->gate.scale.rows == 1 && expert->gate.scale.cols == 1)
        copy_codes(&expert->gate.scale, 0, 0, &expert->up.scale);
}

static bool ranks_case(const char *layout, const test_expert_spec *spec, int32_t ranks, test_rng *rng)
{
    const moxie_layer_config config = config_of(spec);
    test_expert expert, twin;
    test_expert_make(&expert, rng, spec);
    expert.view.a13_scale = 0.5f;
    expert.view.a2_scale = 0.25f;
    share_numbers(&expert.view);
    test_expert_twin(&twin, &expert);
    int64_t next = 0;
    for (int32_t rank = 0; rank < ranks; rank++) {
        moxie_error error = { 0 };
        moxie_preparation *mine = NULL, *alone = NULL;
        moxie_preparation_info info = MOXIE_PREPARATION_INFO_INIT;
        tensors t, want;
        if (!pack_rank(&config, layout, rank, ranks, rank > 0, &expert.view, &mine, &t))
            break;
        assert_ok(moxie_preparation_get_info(mine, &info, &error), &error);
        assert_int_equal(info.first_intermediate, next);
        next += info.intermediate;
        cut_expert cut;
        cut_by_copying(spec, &expert.view, info.first_intermediate, info.intermediate, rank == 0, &cut);
        moxie_layer_config small = config;
        small.intermediate = info.intermediate;
        pack_rank(&small, layout, 0, 1, true, &cut.expert.view, &alone, &want);
        assert_int_equal(t.count, want.count);
        for (int i = 0; i < t.count; i++) {
            assert_int_equal(t.bytes[i], want.bytes[i]);
            assert_memory_equal(t.data[i], want.data[i], t.bytes[i]);
        }
        moxie_preparation *elsewhere = NULL;
        moxie_preparation_facts facts = MOXIE_PREPARATION_FACTS_INIT;
        const moxie_preparation_options options = options_of(layout, rank, ranks);
        assert_ok(moxie_preparation_get_facts(mine, &facts, &error), &error);
        assert_ok(moxie_preparation_create(&config, &options, &twin.view, &elsewhere, &error), &error);
        assert_ok(moxie_preparation_set_facts(elsewhere, &facts, &error), &error);
        assert_ok(moxie_preparation_unpack(elsewhere, t.data, &twin.view, pool, &error), &error);
        moxie_preparation_destroy(elsewhere);
        free_tensors(&t);
        free_tensors(&want);
        moxie_preparation_destroy(mine);
        moxie_preparation_destroy(alone);
        free_cut(&cut);
    }
    const char *differs = "";
    if (next > 0 && !test_expert_equal(&expert.view, &twin.view, &differs))
        fail_msg("%s of %s over %d ranks: %s does not come back", layout, spec->w13->name, ranks, differs);
    assert_true(next == 0 || next == spec->intermediate);
    test_expert_free(&twin);
    test_expert_free(&expert);
    return next > 0;
}

/* Whether the layout accepts these elements and scales: others would be made only to be rejected. */
static bool takes_format(const char *name, const moxie_quant *quant, bool bias)
{
    const mox_vendor_accepts *takes = &mox_vendor_by_name(name)->accepts;
    bool element = false, scale = takes->scales[0] == quant->scale;
    for (int i = 0; i < 4; i++) {
        element = element || takes->elements[i] == quant->element;
        scale = scale || (quant->scale != MOXIE_DTYPE_NONE && takes->scales[i] == quant->scale);
    }
    return element && scale && (takes->bias || !bias);
}

static void shares_of_every_layout_are_the_cut_expert_s_tensors(void **state)
{
    (void)state;
    test_rng rng = { test_seed(42) };
    const int step = (int)test_quick_one_in(6, "formats and biases of each layout");
    moxie_prepare_layout layout = MOXIE_PREPARE_LAYOUT_INIT;
    for (int32_t i = 0; moxie_prepare_layout_at(i, &layout); i++) {
        int taken = 0, turn = 0;
        for (int q = 0; q < test_weight_quant_count; q++) {
            for (int bias = 0; bias < 2; bias++) {
                if (!takes_format(layout.name, &test_weight_quants[q].quant, bias))
                    continue;
                if (turn++ % step != 0)
                    continue;
                const test_expert_spec spec = { .hidden = 256,
                                                .intermediate = step > 1 ? 768 : 1280, /* 3 or 5 units of 256 */
                                                .gated = true,
                                                .bias13 = bias,
                                                .bias2 = bias,
                                                .w13 = &test_weight_quants[q],
                                                .w2 = &test_weight_quants[q] };
                /* Uneven over 2 ranks, and 5 units over 3. */
                taken += ranks_case(layout.name, &spec, step > 1 ? 2 : 2 + q % 2, &rng);
            }
        }
        if (taken == 0)
            print_message("%s took no cut weights\n", layout.name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(shares_of_every_layout_are_the_cut_expert_s_tensors) };
    return cmocka_run_group_tests(tests, make_pool, free_pool);
}
