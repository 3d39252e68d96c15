/* SPDX-License-Identifier: Apache-2.0
 *
 * test_vendor_flashinfer.c - packed weights read as FlashInfer's kernels read them: every weight of an expert from the
 * place that the published closed forms name, by the kernels' own decoding, is the checkpoint's weight exactly.
 *
 *     row of the matrix  -> row of the tensor       scatter forms; the library gathers
 *     column             -> bits of the code        rows, blocks of 128 bytes, or Hopper's words of eight codes
 *     group              -> scale                   atoms, folded lines, blocks, or a scalar of the constants
 */
#include <math.h>

#include "test_orders.h"

typedef enum row_rule { SHUFFLED, HALVES, SHUFFLED_16, RUNS } row_rule;
typedef enum code_rule { ROWS, BLOCKS, HOPPER_FP4, HOPPER_INT4, HOPPER_FP4_FP8 } code_rule;
typedef enum scale_rule { NO_SCALE, SCALAR, ATOMS, F32_BLOCKS, FOLDED, FOLDED_OFFSETS, LINES } scale_rule;

typedef struct reading {
    const char *layout, *quant, *weight, *scale; /* tensors' names without w13_ and w2_ */
    row_rule rows;
    code_rule codes;
    scale_rule scales;
    const char *scalars[3]; /* constants that hold gate's, up's and down's scalar; NULL: none */
} reading;

static const reading readings[] = {
    { "trtllm-mxint4", "mxint4", "weight_packed", "weight_scale", SHUFFLED, BLOCKS, ATOMS, { NULL } },
    { "trtllm-mxint4", "int4 words g32", "weight_packed", "weight_scale", SHUFFLED, BLOCKS, ATOMS, { NULL } },
    { "trtllm-mxfp4", "mxfp4 interleaved", "weight", "weight_scale", SHUFFLED, ROWS, ATOMS, { NULL } },
    { "trtllm-mxfp8", "mxfp8", "weight", "weight_scale", SHUFFLED, ROWS, ATOMS, { NULL } },
    { "trtllm-nvfp4",
      "nvfp4 multiply",
      "weight",
      "weight_scale",
      SHUFFLED,
      ROWS,
      ATOMS,
      { "g1_alphas", "g1_scale_c", "g2_alphas" } },
    { "trtllm-fp8-tensor",
      "fp8 per tensor",
      "weight",
      NULL,
      SHUFFLED,
      ROWS,
      SCALAR,
      { "output1_scales_gate_scalar", "output1_scales_scalar", "output2_scales_scalar" } },
    { "trtllm-fp8-block", "fp8 block 128x128", "weight", "weight_scale_inv", HALVES, ROWS, F32_BLOCKS, { NULL } },
    { "trtllm-fp8-block-shuffled",
      "fp8 block 128x128",
      "weight",
      "weight_scale_inv",
      SHUFFLED_16,
      BLOCKS,
      F32_BLOCKS,
      { NULL } },
    { "trtllm-bf16", "bf16 transposed", "weight", NULL, SHUFFLED, BLOCKS, NO_SCALE, { NULL } },
    { "flashinfer-cutlass-fp8",
      "fp8 per tensor",
      "weight",
      NULL,
      HALVES,
      ROWS,
      SCALAR,
      { "g1_alphas", "g1_alphas", "g2_alphas" } },
    { "flashinfer-cutlass-fp8-block",
      "fp8 block 128x128",
      "weight",
      "weight_scale_inv",
      HALVES,
      ROWS,
      F32_BLOCKS,
      { NULL } },
    { "flashinfer-cutlass-nvfp4",
      "nvfp4 multiply",
      "weight",
      "weight_scale",
      HALVES,
      ROWS,
      ATOMS,
      { "g1_alphas", "g1_alphas", "g2_alphas" } },
    { "flashinfer-cutedsl-nvfp4",
      "nvfp4 multiply",
      "weight",
      "weight_scale",
      RUNS,
      ROWS,
      ATOMS,
      { "g1_alphas", "g1_alphas", "g2_alphas" } },
    { "flashinfer-cutlass-mxfp4-mxfp8", "mxfp4", "weight", "weight_scale", HALVES, ROWS, ATOMS, { NULL } },
    { "flashinfer-sm90-mxfp4-bf16", "mxfp4", "weight", "weight_scale", HALVES, HOPPER_FP4, FOLDED, { NULL } },
    { "flashinfer-sm90-mxfp4-bf16-lines", "mxfp4", "weight", "weight_scale", HALVES, HOPPER_FP4, LINES, { NULL } },
    { "flashinfer-sm90-mxfp4-bf16-rows", "mxfp4", "weight", "weight_scale", HALVES, ROWS, LINES, { NULL } },
    { "flashinfer-sm90-mxfp4-fp8",
      "mxfp4",
      "weight",
      "weight_scale",
      HALVES,
      HOPPER_FP4_FP8,
      FOLDED_OFFSETS,
      { "w13_residual", "w13_residual", "w2_residual" } },
    { "flashinfer-sm90-int4-fp8", "int4 words g128", "weight", "weight_scale", HALVES, HOPPER_INT4, FOLDED, { NULL } },
    { "flashinfer-sm90-int4-fp8-lines",
      "int4 words g128",
      "weight",
      "weight_scale",
      HALVES,
      HOPPER_INT4,
      LINES,
      { NULL } },
};

enum { GATE, UP, DOWN };

/* One projection as its kernel sees it. */
typedef struct view {
    const reading *how;
    const uint8_t *codes, *scales;
    int64_t rows, half, cols; /* of the tensor; of gate; padded */
    int32_t bits, scale_bits;
    int64_t group_rows, group_cols;
    moxie_dtype element, scale;
    double scalar[3];
} view;

/* ---- where ---- */

/* Row n of gate, up or down in the tensor. */
static int64_t row_of(const view *v, int which, int64_t n)
{
    const bool single = which == DOWN;
    const int64_t q = single || which == UP ? n : v->half + n; /* of [w3; w1] */
    const int64_t pair = single ? n : q < v->half ? 2 * q : 2 * (q - v->half) + 1;
    switch (v->how->rows) {
    case SHUFFLED: return pair / 32 * 32 + 8 * (pair % 4) + pair % 32 / 4;
    case SHUFFLED_16: return q / 16 * 16 + 8 * (q % 2) + q % 16 / 2;
    case RUNS: return single ? n : n / 64 * 128 + n % 64 + (which == GATE ? 64 : 0);
    default: return q;
    }
}

/* The kernel's masks make bf16 pairs of a word, 2^-126 of each code's value; the code is found from the value. */
static uint32_t hopper_fp4(const view *v, int64_t row, int64_t k)
{
    const uint32_t mask = 0x81c081c0u;
    const int64_t byte = k / 2, p = byte / 32, mma = byte % 32 / 8, t = byte % 4, h = byte % 8 / 4;
    const int64_t to = row / 16 * 16 + row % 8 + 8 * (mma % 2), at = 8 * p + 4 * (mma / 2) + t;
    const int64_t slot = row % 16 / 8 + 2 * h;
    uint32_t word;
    memcpy(&word, v->codes + to * (v->cols / 2) + 4 * at, sizeof word);
    word = slot == 0   ? word & mask
           : slot == 1 ? word << 3 & mask
           : slot == 2 ? word << 6 & mask
                       : (word << 1 & 0x80008000u) | (word >> 3 & 0x01800180u) | (word >> 7 & 0x00400040u);
    const uint32_t half = k % 2 == 0 ? word & 0xffff : word >> 16;
    const float value = moxie_decode(MOXIE_BF16, half) * 0x1p126f;
    uint32_t code = half >> 15 << 3;
    while (moxie_decode(MOXIE_F4_E2M1, code) != value)
        code++;
    return code;
}

static uint32_t hopper_int4(const view *v, int64_t row, int64_t k)
{
    const int64_t u = k / 4, x = u % 16;
    const int64_t to = row / 16 * 16 + row % 8 + 8 * (x % 8 / 4);
    const int64_t at = u / 16 * 16 + 8 * (x / 8) + 2 * (x % 4) + row % 16 / 8;
    return v->codes[to * (v->cols / 2) + 2 * at + k % 4 / 2] >> (k % 2 * 4) & 15;
}

/* The places of int4; within a word the sign belongs to another nibble. */
static uint32_t hopper_fp4_fp8(const view *v, int64_t row, int64_t k)
{
    const int64_t u = k / 4, x = u % 16;
    const int64_t to = row / 16 * 16 + row % 8 + 8 * (x % 8 / 4);
    const int64_t at = u / 16 * 16 + 8 * (x / 8) + 2 * (x % 4) + row % 16 / 8;
    const int64_t nibble = at % 2 * 4 + k % 4;
    uint32_t word;
    memcpy(&word, v->codes + to * (v->cols / 2) + at / 2 * 4, sizeof word);
    const int64_t sign = nibble < 4 ? 8 * nibble + 7 : 8 * (nibble - 4) + 3;
    return (word >> (4 * nibble) & 7) | (word >> sign & 1) << 3;
}

static uint32_t code_of(const view *v, int64_t row, int64_t k)
{
    const int64_t row_bytes = v->cols * v->bits / 8, byte = k * v->bits / 8;
    switch (v->how->codes) {
    case HOPPER_FP4: return hopper_fp4(v, row, k);
    case HOPPER_INT4: return hopper_int4(v, row, k);
    case HOPPER_FP4_FP8: return hopper_fp4_fp8(v, row, k);
    default: break;
    }
    const uint8_t *at =
        v->codes + (v->how->codes == BLOCKS ? (byte / 128 * v->rows + row) * 128 + byte % 128 : row * row_bytes + byte);
    return v->bits == 16 ? (uint32_t)(at[0] | at[1] << 8) : v->bits == 8 ? *at : *at >> (k % 2 * 4) & 15;
}

/* Item of the scales' tensor for row `row` and group g. */
static int64_t scale_place(const view *v, int64_t row, int64_t g)
{
    const int64_t groups = (v->cols + v->group_cols - 1) / v->group_cols;
    const int64_t wide = (groups + 3) / 4 * 4, across = 128 / v->group_cols, folds = 16 * 8 / v->scale_bits / across;
    const int64_t lines = 64 / folds, f = groups % 4 == 0 ? 4 : groups % 2 == 0 ? 2 : 1;
    switch (v->how->scales) {
    case ATOMS: return (row / 128 * (wide / 4) + g / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 + g % 4;
    case FOLDED:
    case FOLDED_OFFSETS:
        return ((row / 64 * (groups / across) + g / across) * lines + row % 64 % lines) * (folds * across) +
               row % 64 / lines * across + g % across;
    case LINES: return g / f * v->rows * f + row * f + g % f;
    default: return row / 128 * groups + g;
    }
}

static double scale_of(const view *v, int64_t row, int which, int64_t n, int64_t k)
{
    if (v->how->scales == NO_SCALE || v->how->scales == SCALAR)
        return 1;
    /* Blocks of rows are in the order of [w3; w1], regardless of the order of rows within them. */
    const int64_t of = v->how->scales == F32_BLOCKS ? (which == GATE ? v->half : 0) + n : row;
    uint32_t bits = 0;
    const int64_t bytes = v->scale_bits / 8;
    memcpy(&bits, v->scales + scale_place(v, of, k / v->group_cols) * bytes, (size_t)bytes);
    /* The kernel adds the offset to the exponent of an e4m3 code. The bias of e4m3 is larger than that of e2m1; the
     * factor 2^6 of the caller makes up for it. */
    return v->how->scales == FOLDED_OFFSETS ? ldexp(1, (int)bits) : (double)moxie_decode(v->scale, bits);
}

/* ---- one expert ---- */

static double constant_of(const test_packed *packed, const char *name)
{
    float value;
    memcpy(&value, test_packed_named(packed, name, NULL), sizeof value);
    return (double)value;
}

/* Scalars of the weights: constants divided by the scales of activations, which are powers of two. */
static void read_scalars(const test_packed *packed, view *v, const moxie_expert *e)
{
    const char *const *names = v->how->scalars;
    v->scalar[GATE] = v->scalar[UP] = v->scalar[DOWN] = 1;
    if (names[0] == NULL)
        return;
    const bool acts = packed->plan.layout->accepts.static_acts;
    const double a1 = acts ? (double)e->a13_scale : 1, a2 = acts ? (double)e->a2_scale : 1;
    v->scalar[GATE] = constant_of(packed, names[0]) / a1;
    v->scalar[UP] = constant_of(packed, names[1]) / a1;
    if (strcmp(names[0], names[1]) != 0) /* the one of up quantizes the product as well */
        v->scalar[UP] *= a2;
    v->scalar[DOWN] = constant_of(packed, names[2]) / a2;
}

static view view_of(const test_packed *packed, const reading *how, bool second, const moxie_expert *e)
{
    const mox_vendor_plan *plan = &packed->plan;
    const moxie_quant *q = second ? &plan->shape.w2 : &plan->shape.w13;
    char name[64];
    view v = { .how = how, .group_cols = mox_group_cols(q, second ? plan->intermediate : plan->hidden) };
    v.half = second ? plan->hidden : plan->intermediate;
    v.rows = second ? v.half : 2 * v.half;
    v.cols = second ? plan->intermediate : plan->hidden;
    v.element = q->element == MOXIE_U4B8 ? MOXIE_I4 : q->element;
    v.bits = mox_dtype_bits(v.element);
    v.scale = how->scales == F32_BLOCKS ? MOXIE_F32 : q->scale;
    v.scale_bits = v.scale != MOXIE_DTYPE_NONE ? mox_dtype_bits(v.scale) : 0;
    snprintf(name, sizeof name, "%s_%s", second ? "w2" : "w13", how->weight);
    v.codes = test_packed_named(packed, name, NULL);
    if (how->scale != NULL) {
        snprintf(name, sizeof name, "%s_%s", second ? "w2" : "w13", how->scale);
        v.scales = test_packed_named(packed, name, NULL);
    }
    read_scalars(packed, &v, e);
    return v;
}

static void expect_matrix(const view *v, int which, const moxie_matrix *matrix, const moxie_quant *quant)
{
    for (int64_t n = 0; n < v->half; n++)
        for (int64_t k = 0; k < v->cols; k++) {
            const int64_t row = row_of(v, which, n);
            const double got =
                (double)moxie_decode(v->element, code_of(v, row, k)) * scale_of(v, row, which, n, k) * v->scalar[which];
            const bool pads = n >= matrix->codes.rows || k >= matrix->codes.cols;
            const double want = pads ? 0 : mox_matrix_weight(matrix, quant, n, k);
            if (got != want)
                fail_msg("%s of %s: weight (%d, %d) of matrix %d reads %.17g, the checkpoint's is %.17g",
                         v->how->layout, v->how->quant, (int)n, (int)k, which, got, want);
        }
}

static void read_expert(const reading *how, bool pad, test_rng *rng)
{
    const test_weight_quant *q = test_weight_quant_named(how->quant);
    const test_expert_spec spec = {
        .hidden = pad ? 160 : 256, .intermediate = pad ? 96 : 256, .gated = true, .w13 = q, .w2 = q
    };
    const mox_record_shape shape = test_record_shape(&spec);
    test_expert expert;
    test_expert_make(&expert, rng, &spec);
    moxie_expert *e = &expert.view;
    e->a13_scale = 0.5f;
    e->a2_scale = 0.25f;
    e->gate.global.rows = e->up.global.rows = e->down.global.rows = e->up.global.data != NULL;
    if (shape.w13.scale != MOXIE_F8_E8M0 && how->scalars[0] != NULL && !strcmp(how->scalars[0], how->scalars[1])) {
        const bool global = e->up.global.data != NULL;
        mox_grid_store(global ? &e->up.global : &e->up.scale, 0, 0,
                       mox_grid_code(global ? &e->gate.global : &e->gate.scale, 0, 0));
    }
    test_packed packed;
    test_packed_make(&packed, mox_vendor_by_name(how->layout), &shape, NULL, e, pad);
    view v = view_of(&packed, how, false, e);
    expect_matrix(&v, GATE, &e->gate, &shape.w13);
    expect_matrix(&v, UP, &e->up, &shape.w13);
    v = view_of(&packed, how, true, e);
    expect_matrix(&v, DOWN, &e->down, &shape.w2);
    test_packed_free(&packed);
    test_expert_free(&expert);
}

static void kernels_read_the_checkpoints_weights(void **state)
{
    (void)state;
    test_rng rng = { test_seed(6) };
    for (size_t i = 0; i < sizeof readings / sizeof readings[0]; i++)
        read_expert(&readings[i], false, &rng);
}

/* Padded rows and columns read as zeros, and everything before them is in its place. */
static void kernels_read_zeros_where_a_layout_pads(void **state)
{
    (void)state;
    test_rng rng = { test_seed(7) };
    for (size_t i = 0; i < sizeof readings / sizeof readings[0]; i++) {
        const mox_vendor_limit *l = mox_vendor_by_name(readings[i].layout)->limits;
        if (l[0].pads && l[1].pads)
            read_expert(&readings[i], true, &rng);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_read_the_checkpoints_weights),
        cmocka_unit_test(kernels_read_zeros_where_a_layout_pads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
