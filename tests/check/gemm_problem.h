/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_problem.h - one product of a few random experts, for the checks of family expert_gemm:
 *
 *     weight format x activation format x size -> experts -> records in every layout that holds them
 *                                              -> activations (family quant_act)
 *
 * Fills are random, zero, extreme or NaN; activations hold zeros, subnormals and now and then a NaN and an infinity.
 * Every buffer ends at an inaccessible page and begins as NaN.
 */
#ifndef GEMM_PROBLEM_H
#define GEMM_PROBLEM_H

#include "check_support.h"

#include "base/sizes.h"
#include "cpu/expert_gemm/expert_gemm.h"
#include "cpu/quant_act/quant_act.h"
#include "ref/ref.h"

/* Layouts count from 1. */
#define MOX_LAYOUT(object) +1
enum {
    GEMM_SLOTS = 4,
    GEMM_LAYOUTS = 1
#include "pack/layouts.def"
};
#undef MOX_LAYOUT

typedef struct gemm_size {
    int64_t rows, cols; /* of each matrix of the projection; cols are summed over */
    int64_t most;       /* the largest number of pairs of one expert; 0: all have few */
} gemm_size;

typedef struct gemm_problem {
    test_expert_spec spec;
    const test_weight_quant *weight;
    const test_act_quant *act;
    mox_record_shape shape;
    mox_expert_gemm_problem asked;
    test_expert experts[GEMM_SLOTS];
    const void *records[GEMM_LAYOUTS][GEMM_SLOTS]; /* by layout number; NULL where it cannot hold the experts */
    int64_t offsets[GEMM_SLOTS + 1];
    int64_t pairs, cols, n_out;
    int64_t *act_row; /* NULL: identity */
    mox_activations operand;
    check_buffers buffers;
} gemm_problem;

/* ---- experts --------------------------------------------------------------------------------------------- */

static inline void gemm_pack_records(gemm_problem *p, const mox_layout *layout)
{
    char reason[256];
    moxie_error error;
    uint64_t bytes = 0;
    assert_true(layout->number < GEMM_LAYOUTS);
    for (int s = 0; s < GEMM_SLOTS; s++)
        if (layout->reject(&p->shape, reason, sizeof reason) != NULL ||
            (layout->accepts != NULL && !layout->accepts(&p->shape, &p->experts[s].view, reason, sizeof reason)))
            return;
    assert_true(layout->record_bytes(&p->shape, &bytes));
    for (int s = 0; s < GEMM_SLOTS; s++) {
        void *record = check_buffer(&p->buffers, bytes);
        assert_ok(mox_record_pack(layout, &p->shape, s, &p->experts[s].view, record, &error), &error);
        p->records[layout->number][s] = record;
    }
}

static inline const void *const *gemm_records(const mox_expert_gemm_kernel *row, const gemm_problem *p)
{
    return p->records[mox_layout_by_name(row->base.layout)->number];
}

/* ---- activations ------------------------------------------------------------------------------------------ */

/* In the first product pairs of one token share its activations; in the second each pair has its own. */
static inline int64_t gemm_make_pairs(gemm_problem *p, test_rng *rng, int64_t most)
{
    static const int64_t counts[] = { 0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33 };
    const uint64_t few = most > 0 ? 7 : sizeof counts / sizeof counts[0], busy = test_below(rng, GEMM_SLOTS);
    for (uint64_t s = 0; s < GEMM_SLOTS; s++)
        p->offsets[s + 1] = p->offsets[s] + (most > 0 && s == busy ? most : counts[test_below(rng, few)]);
    p->pairs = p->offsets[GEMM_SLOTS];
    if (p->asked.projection == MOX_W2)
        return p->pairs;
    const int64_t tokens = mox_max_i64(1, p->pairs / 2);
    p->act_row = check_buffer(&p->buffers, (size_t)p->pairs * sizeof *p->act_row);
    for (int64_t i = 0; i < p->pairs; i++)
        p->act_row[i] = test_range(rng, 0, tokens - 1);
    return tokens;
}

/* Numbers of p->asked.dtype. Quantization rules do not define infinities, so only unquantized activations have some. */
static inline float *gemm_make_x(gemm_problem *p, test_rng *rng, int64_t rows)
{
    const bool plain = mox_quant_is_none(p->asked.act);
    const int64_t count = rows * p->cols;
    float *x = check_buffer(&p->buffers, (size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++) {
        const float small = plain && test_below(rng, 16) == 0 ? 0x1p-130f : 0.0f;
        x[i] = mox_round_to(p->asked.dtype, test_below(rng, 40) == 0 ? small * test_normal(rng) : test_normal(rng));
    }
    if (plain && count > 0 && test_below(rng, 6) == 0) {
        x[test_below(rng, (uint64_t)count)] = NAN;
        x[test_below(rng, (uint64_t)count)] = INFINITY;
    }
    return x;
}

static inline void gemm_make_operand(gemm_problem *p, test_rng *rng, int64_t rows)
{
    const moxie_quant *quant = p->asked.act;
    const float *x = gemm_make_x(p, rng, rows);
    float *given = check_buffer(&p->buffers, (size_t)rows * sizeof *given);
    for (int64_t r = 0; r < rows; r++)
        given[r] = test_act_given(quant);
    p->operand = mox_activations_f32(quant, rows, p->cols);
    p->operand.values = check_buffer(&p->buffers, (size_t)(rows * p->operand.stride) * sizeof(float));
    if (p->operand.scale_cols > 0)
        p->operand.scales = check_buffer(&p->buffers, (size_t)(rows * p->operand.scale_cols) * sizeof(float));
    if (p->operand.global_kind != MOXIE_GLOBAL_NONE)
        p->operand.global = check_buffer(&p->buffers, (size_t)rows * sizeof(float));
    const mox_quant_act_args args = {
        .quant = *quant,
        .x = x,
        .x_dtype = MOXIE_F32,
        .round_to = p->asked.dtype,
        .max_rows = rows,
        .cols = p->cols,
        .row_scale = given,
        .codes = check_buffer(&p->buffers, (size_t)p->cols),
        .row_scratch = check_buffer(&p->buffers, (size_t)p->cols * sizeof(float)),
        .out = p->operand,
    };
    mox_quant_act_at(0)->run(&args, &mox_executor_serial);
}

/* ---- the problem ------------------------------------------------------------------------------------------ */

/* Formats of weights: those of test_weight_quants, then block types; NULL past the last. */
static inline const test_weight_quant *gemm_weight_at(int i)
{
    if (i < test_weight_quant_count)
        return &test_weight_quants[i];
    return i - test_weight_quant_count < test_block_quant_count ? &test_block_quants[i - test_weight_quant_count]
                                                                : NULL;
}

/* Rows of a block type are whole blocks: two of 256 numbers, at most; and fewer rows, since these are longer. The other
 * projection, whose rows are not, is bf16. */
static inline gemm_size gemm_size_of_blocks(gemm_size size, int64_t weights)
{
    size.cols = mox_ceil_div(mox_min_i64(size.cols, 512), weights) * weights;
    size.rows = mox_min_i64(size.rows, 35);
    return size;
}

static inline void gemm_problem_make(gemm_problem *p, test_rng *rng, const test_weight_quant *weight,
                                     const test_act_quant *act, gemm_size size)
{
    static const moxie_dtype dtypes[] = { MOXIE_BF16, MOXIE_BF16, MOXIE_F16, MOXIE_F32 };
    const bool first = test_below(rng, 2) == 0;
    const mox_block *block = mox_quant_is_block(&weight->quant) ? mox_block_of(weight->quant.element) : NULL;
    const test_weight_quant *other = block != NULL ? test_weight_quant_named("bf16") : weight;
    if (block != NULL)
        size = gemm_size_of_blocks(size, block->weights);
    memset(p, 0, sizeof *p);
    p->weight = weight;
    p->act = act;
    p->spec = (test_expert_spec) { .hidden = first ? size.cols : size.rows,
                                   .intermediate = first ? size.rows : size.cols,
                                   .gated = test_below(rng, 2) == 0,
                                   .bias13 = test_below(rng, 2) == 0,
                                   .bias2 = test_below(rng, 2) == 0,
                                   .w13 = first ? weight : other,
                                   .w2 = first ? other : weight,
                                   .fill = (test_fill)test_below(rng, TEST_FILLS) };
    p->shape = test_record_shape(&p->spec);
    p->asked = (mox_expert_gemm_problem) { .shape = &p->shape,
                                           .projection = first ? MOX_W13 : MOX_W2,
                                           .weight = &weight->quant,
                                           .act = &act->quant,
                                           .dtype = dtypes[test_below(rng, 4)] };
    p->cols = size.cols;
    p->n_out = first && p->spec.gated ? 2 * size.rows : size.rows;
    for (int s = 0; s < GEMM_SLOTS; s++)
        test_expert_make(&p->experts[s], rng, &p->spec);
    for (int32_t i = 0; mox_layout_at(i) != NULL; i++)
        gemm_pack_records(p, mox_layout_at(i));
    gemm_make_operand(p, rng, gemm_make_pairs(p, rng, size.most));
}

static inline void gemm_problem_free(gemm_problem *p)
{
    for (int s = 0; s < GEMM_SLOTS; s++)
        test_expert_free(&p->experts[s]);
    check_buffers_free(&p->buffers);
}

/* The row of activations that a pair multiplies. */
static inline int64_t gemm_operand_row(const gemm_problem *p, int64_t pair)
{
    return p->act_row != NULL ? p->act_row[pair] : pair;
}

/* The matrices of the projection, and the first column of the product that each computes; returns how many. */
static inline int gemm_matrices(const gemm_problem *p, int slot, const moxie_matrix *matrix[2], int64_t column[2])
{
    const moxie_expert *expert = &p->experts[slot].view;
    column[0] = 0;
    column[1] = p->spec.intermediate;
    if (p->asked.projection == MOX_W2 || !p->spec.gated) {
        matrix[0] = p->asked.projection == MOX_W2 ? &expert->down : &expert->up;
        return 1;
    }
    matrix[0] = &expert->gate;
    matrix[1] = &expert->up;
    return 2;
}

static inline void gemm_describe(const gemm_problem *p, char *text, size_t size)
{
    snprintf(text, size, "%s x %s (%s), %s, hidden %lld, intermediate %lld, %s%s, %lld pairs", p->weight->name,
             p->act->name, mox_quant_dtype_name(p->asked.dtype), test_fill_names[p->spec.fill],
             (long long)p->spec.hidden, (long long)p->spec.intermediate,
             p->asked.projection == MOX_W2 ? "w2"
             : p->spec.gated               ? "gated w13"
                                           : "w13",
             p->asked.projection == MOX_W2 ? (p->spec.bias2 ? " + bias" : "") : (p->spec.bias13 ? " + bias" : ""),
             (long long)p->pairs);
}

/* ---- running a row ------------------------------------------------------------------------------------------ */

/* Whether the machine, the kernel and its layout accept the problem; a rejection must have a reason and a remedy. */
static inline bool gemm_admitted(const mox_expert_gemm_kernel *row, const gemm_problem *p)
{
    mox_rejection why = { .reason = "", .remedy = "" };
    const bool yes = check_admit(&row->base, &why) && mox_expert_gemm_admit(row, &p->asked, &why);
    if (!yes && (why.reason[0] == '\0' || why.remedy[0] == '\0'))
        fail_msg("%s refuses %s x %s without reason or remedy", row->base.name, p->weight->name, p->act->name);
    return yes && gemm_records(row, p)[0] != NULL;
}

/* The whole product: [pairs, n_out]. */
static inline float *gemm_run(const mox_expert_gemm_kernel *row, const gemm_problem *p, const moxie_executor *executor,
                              check_buffers *buffers)
{
    const uint64_t per_worker = mox_expert_gemm_scratch(row, &p->asked);
    assert_int_equal(per_worker % 64, 0);
    float *out = check_buffer(buffers, (size_t)(p->pairs * p->n_out) * sizeof *out);
    const mox_expert_gemm_args args = {
        .shape = &p->shape,
        .projection = p->asked.projection,
        .slots = GEMM_SLOTS,
        .records = gemm_records(row, p),
        .offsets = p->offsets,
        .act_row = p->act_row,
        .a = &p->operand,
        .act = p->asked.act,
        .dtype = p->asked.dtype,
        .out = out,
        .n_out = p->n_out,
        .scratch = check_buffer(buffers, (size_t)executor->workers * per_worker),
    };
    mox_expert_gemm_run(row, &args, executor);
    return out;
}

#endif
