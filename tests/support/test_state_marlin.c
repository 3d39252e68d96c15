/* SPDX-License-Identifier: Apache-2.0
 *
 * test_state_marlin.c - Marlin's and moe_wna16's layouts by reshape and permute. Source: what vLLM's preparation
 * functions do to tensors, step by step; of the repack kernels, which word and nibble each thread writes.
 */
#include <math.h>

#include "quant/quant.h"
#include "test_statements.h"

/* ---- the permutations ---- */

/* k = (tile, half of the tile, q, odd), n = (tile, warp, half, lane / 4): words [lane / 4][q][warp]. */
static test_array tiles_4(test_array w)
{
    w = TEST_RESHAPE(w, w.shape[0] / 64, 4, 2, 8, w.shape[1] / 16, 2, 4, 2);
    return TEST_PERMUTE(w, 4, 0, 3, 6, 1, 7, 2, 5);
}

static test_array tiles_8(test_array w)
{
    w = TEST_RESHAPE(w, w.shape[0] / 64, 4, 2, 8, w.shape[1] / 16, 2, 4, 2);
    return TEST_PERMUTE(w, 4, 0, 3, 6, 1, 2, 7, 5);
}

/* k = (tile, half of the tile, q, i), n = (tile, warp, lane / 4). */
static test_array tiles_a8_4(test_array w)
{
    return TEST_PERMUTE(TEST_RESHAPE(w, w.shape[0] / 32, 4, 8, w.shape[1] / 32, 2, 4, 4), 3, 0, 2, 5, 1, 6, 4);
}

static test_array tiles_a8_8(test_array w)
{
    return TEST_PERMUTE(TEST_RESHAPE(w, w.shape[0] / 32, 4, 8, w.shape[1] / 32, 2, 4, 4), 3, 0, 2, 5, 1, 4, 6);
}

/* [N][G] to [G][N]. */
static test_array turn(test_array s)
{
    return TEST_PERMUTE(s, 1, 0);
}

static test_array grouped(test_array s)
{
    return TEST_PERMUTE(TEST_RESHAPE(s, -1, 8, 8), 0, 2, 1);
}

static test_array single(test_array s)
{
    return TEST_PERMUTE(TEST_RESHAPE(s, -1, 4, 4, 2), 0, 2, 1, 3);
}

static test_array swap_mid(test_array s)
{
    return TEST_PERMUTE(TEST_RESHAPE(s, -1, 2, 2), 0, 2, 1);
}

static test_array even_first(test_array s)
{
    return TEST_PERMUTE(TEST_RESHAPE(s, -1, 4, 2), 0, 2, 1);
}

static test_array permute_scales(test_array s)
{
    return s.shape[1] > 1 ? grouped(turn(s)) : single(turn(s));
}

/* ---- the grids of an expert, stacked and padded ---- */

static const moxie_grid *part_of(const moxie_matrix *m, int of)
{
    const moxie_grid *const parts[] = { &m->codes, &m->scale, &m->zero, &m->bias };
    return parts[of];
}

/* [rows, cols] of W13 or W2, padded to the plan's extents; columns in groups of `group`. */
static test_array stacked(const mox_vendor_plan *plan, const moxie_expert *e, int second, int of, int64_t group)
{
    const moxie_grid none = { 0 };
    const int64_t rows = second ? plan->hidden : plan->intermediate, cols = second ? plan->intermediate : plan->hidden;
    const moxie_matrix *only = second ? &e->down : &e->up;
    test_array a = test_stack(second || !plan->shape.gated ? &none : part_of(&e->gate, of), part_of(only, of), rows);
    return of == MOX_VENDOR_BIAS ? a : test_pad(a, 1, (cols + group - 1) / group);
}

static int64_t group_of(const mox_vendor_plan *plan, int second)
{
    return second ? mox_group_cols(&plan->shape.w2, plan->intermediate)
                  : mox_group_cols(&plan->shape.w13, plan->hidden);
}

static moxie_dtype element_of(const mox_vendor_plan *plan, int second)
{
    return second ? plan->shape.w2.element : plan->shape.w13.element;
}

/* [gate; up] as gate0 up0 gate1 ..., where the checkpoint has it so. */
static test_array as_stored(const mox_vendor_plan *plan, int second, test_array a)
{
    const int64_t rows = a.shape[0], cols = a.shape[1];
    return plan->pairs && !second ? TEST_RESHAPE(TEST_PERMUTE(TEST_RESHAPE(a, 2, rows / 2, cols), 1, 0, 2), rows, cols)
                                  : a;
}

static test_array codes(const mox_vendor_plan *plan, const moxie_expert *e, int second)
{
    return stacked(plan, e, second, MOX_VENDOR_CODES, 1);
}

static test_array scales(const mox_vendor_plan *plan, const moxie_expert *e, int second)
{
    return stacked(plan, e, second, MOX_VENDOR_SCALES, group_of(plan, second));
}

/* ---- act order ---- */

/* Columns by their group; in a group, as they come. */
static int64_t column_at(const mox_vendor_plan *plan, const moxie_expert *e, int second, int64_t place)
{
    const int32_t *index = second ? e->down.group_index : e->up.group_index;
    const int64_t cols = second ? plan->intermediate : plan->hidden;
    for (int32_t g = 0;; g++)
        for (int64_t k = 0; k < cols; k++)
            if (index[k] == g && place-- == 0)
                return k;
}

static test_array sorted_columns(const mox_vendor_plan *plan, const moxie_expert *e, int second)
{
    const int64_t cols = second ? plan->intermediate : plan->hidden;
    test_array order = test_array_new(1, &cols);
    for (int64_t k = 0; k < cols; k++)
        order.data[k] = (uint32_t)column_at(plan, e, second, k);
    return order;
}

static test_array by_group(const mox_vendor_plan *plan, const moxie_expert *e, int second, test_array w)
{
    if (!plan->act_order)
        return w;
    test_array order = sorted_columns(plan, e, second), out = test_array_new(2, w.shape);
    const int64_t cols = w.shape[1];
    for (int64_t i = 0; i < test_array_count(&w); i++)
        out.data[i] = w.data[i / cols * cols + order.data[i % cols]];
    test_array_free(&order);
    test_array_free(&w);
    return out;
}

/* names: sorted groups and which columns they are, of W13 and of W2. */
static int state_act_order(const mox_vendor_plan *plan, const moxie_expert *e, const char *const names[4],
                           test_stated out[])
{
    for (int i = 0; plan->act_order && i < 2; i++) {
        const int32_t *index = i ? e->down.group_index : e->up.group_index;
        test_array groups = sorted_columns(plan, e, i);
        for (int64_t k = 0; k < test_array_count(&groups); k++)
            groups.data[k] = (uint32_t)index[groups.data[k]];
        out[2 * i] = (test_stated) { names[2 * i], groups, 32 };
        out[2 * i + 1] = (test_stated) { names[2 * i + 1], sorted_columns(plan, e, i), 32 };
    }
    return plan->act_order ? 4 : 0;
}

static uint32_t turn_top_bit(uint32_t code)
{
    return code ^ 8;
}

static test_array unsigned_codes(const mox_vendor_plan *plan, const moxie_expert *e, int second)
{
    test_array w = codes(plan, e, second);
    return element_of(plan, second) == MOXIE_I4 ? test_map(w, turn_top_bit) : w;
}

static int bits_of(const mox_vendor_plan *plan, int second)
{
    return moxie_dtype_bits(element_of(plan, second));
}

static int state_bias(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    int n = 0;
    if (plan->shape.bias13)
        out[n++] =
            (test_stated) { "w13_bias", single(as_stored(plan, 0, stacked(plan, e, 0, MOX_VENDOR_BIAS, 1))), 16 };
    if (plan->shape.bias2)
        out[n++] = (test_stated) { "w2_bias", single(stacked(plan, e, 1, MOX_VENDOR_BIAS, 1)), 16 };
    return n;
}

/* What only undo reads: a part as the checkpoint has it, rows from whole bytes. */
static test_stated kept(const mox_vendor_plan *plan, const moxie_expert *e, int second, int of, const char *name)
{
    const int bits = moxie_dtype_bits(part_of(second ? &e->down : &e->up, of)->dtype);
    const moxie_grid none = { 0 };
    const moxie_matrix *only = second ? &e->down : &e->up;
    test_array a = test_stack(second || !plan->shape.gated ? &none : part_of(&e->gate, of), part_of(only, of), 0);
    return (test_stated) { name, test_pad(a, 1, bits == 4 ? 2 : 1), bits };
}

static int state_symmetric_zeros(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    int n = 0;
    if (plan->shape.w13.has_zero)
        out[n++] = kept(plan, e, 0, MOX_VENDOR_ZEROS, "moxie.w13_qzeros");
    if (plan->shape.w2.has_zero)
        out[n++] = kept(plan, e, 1, MOX_VENDOR_ZEROS, "moxie.w2_qzeros");
    return n;
}

/* ---- integers ---- */

static test_array tiles_of(test_array w, int bits)
{
    return bits == 4 ? tiles_4(w) : tiles_8(w);
}

static int state_a16(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    for (int i = 0; i < 2; i++) {
        const int bits = bits_of(plan, i);
        out[2 * i] = (test_stated) { i ? "w2_qweight" : "w13_qweight",
                                     tiles_of(by_group(plan, e, i, unsigned_codes(plan, e, i)), bits), bits };
        out[2 * i + 1] = (test_stated) { i ? "w2_scales" : "w13_scales", permute_scales(scales(plan, e, i)), 16 };
    }
    return 4 + state_bias(plan, e, out + 4);
}

int test_state_marlin_gptq(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    static const char *const names[] = { "w13_g_idx", "w13_g_idx_sort_indices", "w2_g_idx", "w2_g_idx_sort_indices" };
    int n = state_a16(plan, e, out);
    n += state_symmetric_zeros(plan, e, out + n);
    return n + state_act_order(plan, e, names, out + n);
}

int test_state_marlin_ct(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    static const char *const names[] = { "w13_weight_packed", "w13_weight_scale", "w2_weight_packed",
                                         "w2_weight_scale" };
    static const char *const columns[] = { "w13_weight_g_idx", "w13_g_idx_sort_indices", "w2_weight_g_idx",
                                           "w2_g_idx_sort_indices" };
    state_a16(plan, e, out);
    for (int i = 0; i < 4; i++)
        out[i].name = names[i];
    return 4 + state_act_order(plan, e, columns, out + 4);
}

/* The versions of vLLM 0.18, which read act order. */
int test_state_marlin_gptq_act_order(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    return test_state_marlin_gptq(plan, e, out);
}

int test_state_marlin_ct_act_order(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    return test_state_marlin_ct(plan, e, out);
}

/* As unsigned codes, with what their reader adds. */
static test_array zeros(const mox_vendor_plan *plan, const moxie_expert *e, int second)
{
    test_array z = stacked(plan, e, second, MOX_VENDOR_ZEROS, group_of(plan, second));
    const uint32_t turn = element_of(plan, second) == MOXIE_I4 ? 8 : 0;
    for (int64_t i = 0; i < test_array_count(&z); i++)
        z.data[i] = (z.data[i] ^ turn) + (uint32_t)(second ? e->down.zero_add : e->up.zero_add);
    return z;
}

int test_state_marlin_awq(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    const int n = state_a16(plan, e, out);
    for (int i = 0; i < 2; i++)
        out[n + i] = (test_stated) { i ? "w2_qzeros" : "w13_qzeros", even_first(grouped(turn(zeros(plan, e, i)))), 4 };
    return n + 2;
}

/* Sign and magnitude less one for numbers below zero: vLLM's table 15 14 .. 8, 0 1 .. 7. */
static uint32_t for_fp8(uint32_t code)
{
    static const uint8_t table[] = { 15, 14, 13, 12, 11, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7 };
    return table[code];
}

static test_array times(test_array s, moxie_dtype from, moxie_dtype to, float factor)
{
    for (int64_t i = 0; i < test_array_count(&s); i++) {
        const uint32_t rounded = moxie_encode(to, moxie_decode(from, s.data[i]));
        s.data[i] = moxie_encode(to, moxie_decode(to, rounded) * factor);
    }
    return s;
}

int test_state_marlin_gptq_fp8(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    for (int i = 0; i < 2; i++) {
        const moxie_dtype dtype = i ? plan->shape.w2.scale : plan->shape.w13.scale;
        out[2 * i] =
            (test_stated) { i ? "w2_qweight" : "w13_qweight", tiles_a8_4(test_map(codes(plan, e, i), for_fp8)), 4 };
        out[2 * i + 1] = (test_stated) { i ? "w2_scales" : "w13_scales",
                                         single(turn(times(scales(plan, e, i), dtype, dtype, 512))), 16 };
    }
    const int n = 4 + state_bias(plan, e, out + 4);
    return n + state_symmetric_zeros(plan, e, out + n);
}

int test_state_marlin_gptq_int8_channel(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    for (int i = 0; i < 2; i++) {
        out[2 * i] = (test_stated) { i ? "w2_qweight" : "w13_qweight", tiles_a8_4(unsigned_codes(plan, e, i)), 4 };
        out[2 * i + 1] = (test_stated) { i ? "w2_scales" : "w13_scales", single(turn(scales(plan, e, i))), 16 };
    }
    const int n = 4 + state_bias(plan, e, out + 4);
    return n + state_symmetric_zeros(plan, e, out + n);
}

static uint32_t round_even(float value)
{
    return (uint32_t)(int32_t)lrintf(value) & 0xffff;
}

int test_state_marlin_gptq_int8(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    const int n = test_state_marlin_gptq_int8_channel(plan, e, out);
    for (int i = 0; i < 2; i++) {
        const moxie_dtype dtype = i ? plan->shape.w2.scale : plan->shape.w13.scale;
        test_array *s = &out[2 * i + 1].array;
        float most = 0; /* one expert is the layer */
        for (int64_t j = 0; j < test_array_count(s); j++)
            most = fmaxf(most, moxie_decode(dtype, s->data[j]));
        for (int64_t j = 0; j < test_array_count(s); j++) {
            const float share = moxie_decode(dtype, moxie_encode(dtype, moxie_decode(dtype, s->data[j]) / most));
            s->data[j] = round_even(moxie_decode(dtype, moxie_encode(dtype, share * 4096)));
        }
        out[n + i] =
            (test_stated) { i ? "w2_input_global_scale" : "w13_input_global_scale", test_float(most / 4096), 32 };
    }
    out[n + 2] = kept(plan, e, 0, MOX_VENDOR_SCALES, "moxie.w13_scales");
    out[n + 3] = kept(plan, e, 1, MOX_VENDOR_SCALES, "moxie.w2_scales");
    return n + 4;
}

/* GPTQ's tensors under compressed-tensors' names, which has neither biases nor zero points. */
static int rename_ct(test_stated out[], int count)
{
    static const char *const names[][2] = { { "qweight", "weight_packed" }, { "scales", "weight_scale" } };
    static const char *const whole[2][2][2] = {
        { { "w13_weight_packed", "w2_weight_packed" }, { "w13_weight_scale", "w2_weight_scale" } },
        { { NULL, NULL }, { "moxie.w13_weight_scale", "moxie.w2_weight_scale" } },
    };
    for (int i = 0; i < count; i++)
        for (int n = 0; n < 2; n++)
            if (strstr(out[i].name, names[n][0]) != NULL)
                out[i].name = whole[out[i].name[0] == 'm'][n][strstr(out[i].name, "w2_") != NULL];
    return count;
}

int test_state_marlin_ct_fp8(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    return rename_ct(out, test_state_marlin_gptq_fp8(plan, e, out));
}

int test_state_marlin_ct_int8(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    return rename_ct(out, test_state_marlin_gptq_int8(plan, e, out));
}

int test_state_marlin_awq_int8(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    int n = 0;
    for (int i = test_state_marlin_gptq_int8(plan, e, out), j = 0; j < i; j++) {
        if (strstr(out[j].name, "qzeros") != NULL) /* kept by GPTQ, here the kernel's */
            test_array_free(&out[j].array);
        else
            out[n++] = out[j];
    }
    for (int i = 0; i < 2; i++)
        out[n++] = (test_stated) { i ? "w2_qzeros" : "w13_qzeros", grouped(turn(zeros(plan, e, i))), 4 };
    return n;
}

/* What each code is above its group's zero point; those below it: 15 less the code. */
static test_array less_zeros(const mox_vendor_plan *plan, const moxie_expert *e, int second)
{
    test_array w = unsigned_codes(plan, e, second), z = zeros(plan, e, second);
    const int64_t cols = w.shape[1], group = group_of(plan, second);
    for (int64_t i = 0; i < test_array_count(&w); i++) {
        const uint32_t zero = z.data[i / cols * z.shape[1] + i % cols / group];
        w.data[i] = w.data[i] < zero ? 15 - w.data[i] : w.data[i] - zero;
    }
    test_array_free(&z);
    return w;
}

int test_state_marlin_awq_fp8(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    for (int i = 0; i < 2; i++) {
        const moxie_dtype dtype = i ? plan->shape.w2.scale : plan->shape.w13.scale;
        out[3 * i] = (test_stated) { i ? "w2_qweight" : "w13_qweight", tiles_a8_4(less_zeros(plan, e, i)), 4 };
        out[3 * i + 1] = (test_stated) { i ? "w2_scales" : "w13_scales",
                                         single(turn(times(scales(plan, e, i), dtype, dtype, 512))), 16 };
        out[3 * i + 2] = (test_stated) { i ? "w2_qzeros" : "w13_qzeros", grouped(turn(zeros(plan, e, i))), 4 };
    }
    return 6 + state_bias(plan, e, out + 6);
}

/* repeat_interleave along columns, by as much as the group is too wide for both extents. */
static test_array for_halved_groups(const mox_vendor_plan *plan, int second, test_array s)
{
    const int64_t whole = (second ? plan->shape.w2 : plan->shape.w13).group_cols;
    const int64_t cols = second ? plan->intermediate : plan->hidden;
    int64_t group = whole;
    while (plan->hidden % group != 0 || plan->intermediate % group != 0)
        group /= 2;
    const int64_t times = whole / group, groups = (cols + group - 1) / group; /* of vLLM's parameter */
    test_array out = test_array_new(2, (const int64_t[]) { s.shape[0], groups });
    for (int64_t i = 0; i < s.shape[0] * groups; i++)
        out.data[i] = s.data[i / groups * s.shape[1] + i % groups / times];
    test_array_free(&s);
    return out;
}

int test_state_moe_wna16(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    int n = 0;
    for (int i = 0; i < 2; i++) {
        const int bits = bits_of(plan, i);
        out[n++] = (test_stated) { i ? "w2_qweight" : "w13_qweight", unsigned_codes(plan, e, i), bits };
        out[n++] = (test_stated) { i ? "w2_scales" : "w13_scales", for_halved_groups(plan, i, scales(plan, e, i)), 16 };
        if (!(i ? plan->shape.w2 : plan->shape.w13).has_zero || plan->use.symmetric)
            continue;
        test_array z = for_halved_groups(plan, i, zeros(plan, e, i));
        if (bits == 4)
            z = TEST_PERMUTE(TEST_RESHAPE(z, z.shape[0] / 2, 2, z.shape[1]), 0, 2, 1);
        out[n++] = (test_stated) { i ? "w2_qzeros" : "w13_qzeros", z, bits };
    }
    return n + (plan->use.symmetric ? state_symmetric_zeros(plan, e, out + n) : 0);
}

/* ---- FP8 ---- */

/* [N][G]: the scale of each row, whatever rows share it. */
static test_array spread(const mox_vendor_plan *plan, const moxie_expert *e, int second)
{
    const moxie_quant *q = second ? &plan->shape.w2 : &plan->shape.w13;
    const int halves = !second && plan->shape.gated ? 2 : 1;
    const int64_t rows = second ? plan->hidden : plan->intermediate;
    const moxie_matrix *const m[] = { second ? &e->down : halves == 2 ? &e->gate : &e->up, &e->up };
    const int64_t cols = m[0]->scale.cols, together = mox_group_rows(q, rows);
    test_array out = test_array_new(2, (const int64_t[]) { halves * rows, cols });
    for (int64_t r = 0; r < halves * rows; r++)
        for (int64_t c = 0; c < cols; c++)
            out.data[r * cols + c] = mox_grid_code(&m[r / rows]->scale, r % rows / together, c);
    return out;
}

static int state_fp8(const mox_vendor_plan *plan, const moxie_expert *e, moxie_dtype to, float factor, bool a8,
                     test_stated out[])
{
    for (int i = 0; i < 2; i++) {
        const moxie_dtype from = i ? plan->shape.w2.scale : plan->shape.w13.scale;
        test_array s = times(spread(plan, e, i), from, to, factor);
        out[2 * i] = (test_stated) { i ? "w2_weight" : "w13_weight",
                                     a8 ? tiles_a8_8(codes(plan, e, i)) : tiles_8(codes(plan, e, i)), 8 };
        out[2 * i + 1] =
            (test_stated) { i ? "w2_weight_scale" : "w13_weight_scale", a8 ? single(turn(s)) : permute_scales(s), 16 };
    }
    out[4] = kept(plan, e, 0, MOX_VENDOR_SCALES, "moxie.w13_weight_scale");
    out[5] = kept(plan, e, 1, MOX_VENDOR_SCALES, "moxie.w2_weight_scale");
    return 6 + state_bias(plan, e, out + 6);
}

int test_state_marlin_fp8_bf16(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    return state_fp8(plan, e, MOXIE_BF16, 0x1p120f, false, out);
}

int test_state_marlin_fp8_f16(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    return state_fp8(plan, e, MOXIE_F16, 256, false, out);
}

int test_state_marlin_fp8_fp8(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    return state_fp8(plan, e, MOXIE_BF16, 1, true, out);
}

/* ---- FP4 ---- */

int test_state_marlin_mxfp4(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    for (int i = 0; i < 2; i++) {
        out[2 * i] =
            (test_stated) { i ? "w2_weight" : "w13_weight", tiles_4(as_stored(plan, i, codes(plan, e, i))), 4 };
        out[2 * i + 1] = (test_stated) { i ? "w2_weight_scale" : "w13_weight_scale",
                                         swap_mid(grouped(turn(as_stored(plan, i, scales(plan, e, i))))), 8 };
    }
    return 4 + state_bias(plan, e, out + 4);
}

int test_state_marlin_mxfp4_fp8(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    for (int i = 0; i < 2; i++) {
        test_array s = as_stored(plan, i, scales(plan, e, i));
        for (int64_t j = 0; j < test_array_count(&s); j++) /* padding too: it is there before */
            s.data[j] += 6;
        out[2 * i] =
            (test_stated) { i ? "w2_weight" : "w13_weight", tiles_a8_4(as_stored(plan, i, codes(plan, e, i))), 4 };
        out[2 * i + 1] = (test_stated) { i ? "w2_weight_scale" : "w13_weight_scale", single(turn(s)), 8 };
    }
    return 4 + state_bias(plan, e, out + 4);
}

/* f by its definition: the largest power of two under which the largest scale stays within e4m3. */
static float nvfp4_factor(const test_array *s)
{
    float most = 0, f = 1;
    for (int64_t i = 0; i < test_array_count(s); i++)
        most = fmaxf(most, moxie_decode(MOXIE_F8_E4M3, s->data[i]));
    while (most > 0 && most * f * 2 <= 448)
        f *= 2;
    return f;
}

static int state_nvfp4(const mox_vendor_plan *plan, const moxie_expert *e, moxie_dtype reader, test_stated out[])
{
    for (int i = 0; i < 2; i++) {
        test_array s = scales(plan, e, i);
        const moxie_matrix *m = i ? &e->down : &e->up;
        const bool divides = (i ? plan->shape.w2 : plan->shape.w13).global == MOXIE_GLOBAL_DIVIDE;
        const float f = reader == MOXIE_BF16 ? nvfp4_factor(&s) : 1;
        test_array small = stacked(plan, e, i, MOX_VENDOR_SCALES, 16);
        for (int64_t j = 0; j < test_array_count(&s); j++) {
            const float product = moxie_decode(MOXIE_F8_E4M3, s.data[j]) * f * 128;
            small.data[j] = product < 2 ? s.data[j] : 0;
            s.data[j] = product < 2 ? 0 : moxie_encode(MOXIE_F16, product) << 1 >> 8 & 0xff;
        }
        const float stored = (float)mox_grid_value(&m->global, 0, 0), g = divides ? 1 / stored : stored;
        out[6 + i] = (test_stated) { i ? "moxie.w2_small_scales" : "moxie.w13_small_scales", small, 4 };
        out[3 * i] = (test_stated) { i ? "w2_weight" : "w13_weight", tiles_4(codes(plan, e, i)), 4 };
        out[3 * i + 1] = (test_stated) { i ? "w2_weight_scale" : "w13_weight_scale", swap_mid(grouped(turn(s))), 8 };
        out[3 * i + 2] = (test_stated) { i ? "w2_weight_scale_2" : "w13_weight_scale_2",
                                         test_float(g * (reader == MOXIE_BF16 ? 0x1p119f : 0x1p7f) / f), 32 };
    }
    return 8;
}

int test_state_marlin_nvfp4_bf16(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    return state_nvfp4(plan, e, MOXIE_BF16, out);
}

int test_state_marlin_nvfp4_f16(const mox_vendor_plan *plan, const moxie_expert *e, test_stated out[])
{
    return state_nvfp4(plan, e, MOXIE_F16, out);
}
