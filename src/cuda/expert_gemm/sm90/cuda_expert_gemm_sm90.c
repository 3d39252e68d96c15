/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_expert_gemm_sm90.c - which problems Hopper's kernels accept, and the scratch memory that they need. The products
 * are listed in sm90_products.def, what they fuse in cuda_fusions.h, the kernels are in sm90_kernel.cuh.
 *
 *     product                weights                                    activations
 *     sm90_w16a16            bf16, f16                                  of the same type
 *     sm90_w8a8_fp8          e4m3                                       e4m3, a scale for 128 columns or for a row
 *     sm90_w8a8_int8         8-bit integers, a scale a row              8-bit integers, a scale a row: sums are exact
 *     sm90_w4a8_fp8          as e4m3: f4_e2m1 with e8m0 scales; 4-bit   e4m3, a scale a row; by f4_e2m1 also a scale
 *                            integers with bf16 scales of 128, 256, ... for 128 columns
 *                            columns
 *     sm90_dequant           f4_e2m1; f6 and f8 with e8m0 scales;       bf16
 *                            f8 and 8-bit integers with a scale a row
 *     sm90_dequant_int       4-bit integers, and 8-bit integers with    the type of the weights' scales, bf16 or f16
 *                            scales of groups: rounded to 16 bits once
 *                            (class W16)
 *     ..._qact               the same two, with bf16                    4, 6 or 8 bits, dequantized by the gather
 *     sm90_dequant_int_blocks  integers in groups, with f16 scales or   bf16
 *                            with zero points; 4-bit ones by row, too;
 *                            block types q4_k, q5_k, q6_k, iq4_xs
 *     ..._int_blocks_qact    the same                                   8-bit integers, a scale a row
 *     sm90_dequant_blocks    f8 with scales of blocks                   bf16
 *     ..._blocks_qact        the same                                   as above, and with f32 scales of groups
 *
 * Weights of the dequant products become 16-bit numbers in registers. Quantized activations become bf16 times their
 * group's scale where bf16 holds that exactly; scales of rows and global scales go to a factor of each token instead.
 *
 * A kernel ..._glu leaves the activations of W2 in the layer's 16-bit type, or quantized: sm90_w16a16 and sm90_w8a8_fp8
 * as e4m3 with a scale for 128 columns; the dequant products as codes with a power of two for 32 columns, already
 * dequantized to bf16 as a gather would do it.
 *
 * The layouts check the scales of weights (pack/hopper). FP8 tensor cores keep about 13 bits of what one instruction
 * adds, and the numeric contract asks for fp32: FP8 products are of class TOL.
 */
#include "cuda/expert_gemm/cuda_expert_gemm.h"

#include "base/sizes.h"
#include "cuda/expert_gemm/sm90/sm90_plan.h"
#include "pack/hopper/hopper.h"
#include "pack/hopper/hopper_blocks.h"
#include "quant/act_rules.h"

enum { MX_GROUP = 32 };

static const char *name_of(const mox_expert_gemm_problem *problem)
{
    return problem->projection == MOX_W13 ? "w13" : "w2";
}

static int64_t cols_of(const mox_expert_gemm_problem *problem)
{
    return problem->projection == MOX_W13 ? problem->shape->hidden : problem->shape->intermediate;
}

/* Scales of a row of activations. */
static int64_t act_groups(const mox_expert_gemm_problem *problem)
{
    const int64_t cols = cols_of(problem);
    return mox_ceil_div(cols, mox_act_group_cols(problem->act, cols));
}

static bool fits(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const mox_record_shape *shape = problem->shape;
    if (shape->hidden > MOX_SM90_MAX_SIZE || shape->intermediate > MOX_SM90_MAX_SIZE)
        return mox_reject(why, "split the expert over ranks", "accepts sizes up to %lld, the expert has %lld x %lld",
                          (long long)MOX_SM90_MAX_SIZE, (long long)shape->intermediate, (long long)shape->hidden);
    return true;
}

static bool is_16bit(moxie_dtype dtype)
{
    return dtype == MOXIE_BF16 || dtype == MOXIE_F16;
}

static bool admit_w16a16(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const moxie_dtype element = problem->weight->element;
    if (!is_16bit(element))
        return mox_reject(why, "", "multiplies weights of bf16 and f16, %s has %s", name_of(problem),
                          mox_quant_dtype_name(element));
    if (!mox_quant_is_none(problem->act))
        return mox_reject(why, "leave them unquantized", "multiplies by 16-bit activations, those of %s are quantized",
                          name_of(problem));
    if (problem->dtype != element)
        return mox_reject(why, "give the layer the type of its weights",
                          "multiplies numbers of one type: %s has %s, the activations are %s", name_of(problem),
                          mox_quant_dtype_name(element), mox_quant_dtype_name(problem->dtype));
    return fits(problem, why);
}

static bool admit_w8a8_fp8(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const moxie_quant *weight = problem->weight, *act = problem->act;
    if (weight->element != MOXIE_F8_E4M3)
        return mox_reject(why, "", "multiplies weights of f8_e4m3, %s has %s", name_of(problem),
                          mox_quant_dtype_name(weight->element));
    if (act->element != MOXIE_F8_E4M3 || act->global != MOXIE_GLOBAL_NONE)
        return mox_reject(why, "quantize them to f8_e4m3", "multiplies by activations of f8_e4m3, those of %s are %s%s",
                          name_of(problem), mox_quant_is_none(act) ? "unquantized" : mox_quant_dtype_name(act->element),
                          act->global != MOXIE_GLOBAL_NONE ? " with a global scale" : "");
    const int64_t cols = cols_of(problem), group = mox_act_group_cols(act, cols);
    if (group != MOX_HOPPER_CHUNK_WIDTH && group < cols)
        return mox_reject(why, "quantize them in groups of 128",
                          "accepts a scale of activations for every 128 columns or for whole rows, those of %s are for "
                          "%lld",
                          name_of(problem), (long long)group);
    return fits(problem, why);
}

static bool admit_w8a8_int8(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const moxie_quant *weight = problem->weight, *act = problem->act;
    const int64_t cols = cols_of(problem);
    if (weight->element != MOXIE_I8)
        return mox_reject(why, "", "multiplies weights of i8, %s has %s", name_of(problem),
                          mox_quant_dtype_name(weight->element));
    if (act->element != MOXIE_I8)
        return mox_reject(why, "quantize them to i8", "multiplies by activations of i8, those of %s are %s",
                          name_of(problem),
                          mox_quant_is_none(act) ? "unquantized" : mox_quant_dtype_name(act->element));
    if (mox_group_cols(weight, cols) < cols || mox_act_group_cols(act, cols) < cols)
        return mox_reject(why, "quantize rows with one scale each",
                          "adds up whole rows of integers: accepts a scale a row, of %s and of its activations",
                          name_of(problem));
    if (cols > MOX_SM90_MAX_INT8_TERMS)
        return mox_reject(why, "split the expert over ranks",
                          "adds up to %d products in 31 bits, a row of %s has %lld columns", MOX_SM90_MAX_INT8_TERMS,
                          name_of(problem), (long long)cols);
    return fits(problem, why);
}

/* The layout checks the range of the scales expert by expert (hopper_scales.c). */
static bool admit_w4a8_fp8(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const moxie_quant *weight = problem->weight, *act = problem->act;
    const int64_t cols = cols_of(problem), group = mox_act_group_cols(act, cols);
    const bool integers = mox_sm90_element_of(weight, 1) == MOX_SM90_INT4_FP8;
    char text[128];
    if (!integers && (weight->element != MOXIE_F4_E2M1 || weight->scale != MOXIE_F8_E8M0))
        return mox_reject(why, "",
                          "looks up weights of f4_e2m1 with scales of f8_e8m0, and 4-bit integers with scales of bf16, "
                          "%s has %s",
                          name_of(problem), mox_quant_describe(weight, text, sizeof text));
    if (act->element != MOXIE_F8_E4M3 || act->global != MOXIE_GLOBAL_NONE ||
        (group < cols && (integers || group != MOX_HOPPER_CHUNK_WIDTH)))
        return mox_reject(why, "quantize them to f8_e4m3 with one scale a row",
                          "multiplies by activations of f8_e4m3 with a scale a row%s, those of %s are %s",
                          integers ? "" : " or for every 128 columns", name_of(problem),
                          mox_quant_is_none(act) ? "unquantized" : mox_quant_describe(act, text, sizeof text));
    return fits(problem, why);
}

/* Does a product that dequantizes weights to 16 bits accept these? `exactly`: none of them is rounded. */
static bool dequantizes(const mox_expert_gemm_problem *problem, bool exactly)
{
    const int64_t cols = cols_of(problem);
    if (mox_hopper_has_block_scales(problem->weight, cols) || mox_hopper_has_words(problem->weight, cols))
        return false;
    switch (mox_sm90_weight_of(problem->weight)->dequant) {
    case MOX_SM90_DEQUANT_EXACT: return exactly;
    case MOX_SM90_DEQUANT_EXACT_BY_ROW: return (mox_group_cols(problem->weight, cols) >= cols) == exactly;
    case MOX_SM90_DEQUANT_ROUNDED: return !exactly;
    default: return false;
    }
}

static bool admit_codes_of(const mox_expert_gemm_problem *problem, bool exactly, mox_rejection *why)
{
    char text[128];
    return dequantizes(problem, exactly) ||
           mox_reject(why, "",
                      exactly ? "dequantizes weights that are exact in 16 bits, %s has %s"
                              : "dequantizes integer weights that 16 bits round once (class W16), %s has %s",
                      name_of(problem), mox_quant_describe(problem->weight, text, sizeof text));
}

/* The 16-bit type that the weights become. */
static moxie_dtype dequantized_dtype(const mox_expert_gemm_problem *problem)
{
    return mox_sm90_weight_of(problem->weight)->to_scale_type ? problem->weight->scale : MOXIE_BF16;
}

static bool admit_weights(const mox_expert_gemm_problem *problem, bool exactly, mox_rejection *why)
{
    if (!admit_codes_of(problem, exactly, why))
        return false;
    if (!mox_quant_is_none(problem->act))
        return mox_reject(why, "leave them unquantized", "multiplies by 16-bit activations, those of %s are quantized",
                          name_of(problem));
    const moxie_dtype to = dequantized_dtype(problem);
    if (problem->dtype != to)
        return mox_reject(why, "give the layer activations of the type that its weights become",
                          "dequantizes %s to %s, the activations are %s", name_of(problem), mox_quant_dtype_name(to),
                          mox_quant_dtype_name(problem->dtype));
    return fits(problem, why);
}

/* bf16 has 8 significant bits. So it holds every code exactly, also times a power of two; and a code of f4_e2m1, which
 * has two bits, times an e4m3 scale. */
static bool admit_qact(const mox_expert_gemm_problem *problem, bool exactly, mox_rejection *why)
{
    const moxie_quant *act = problem->act;
    char text[128];
    if (!admit_codes_of(problem, exactly, why))
        return false;
    if (mox_quant_is_none(act))
        return mox_reject(why, "quantize them", "dequantizes activations, those of %s are unquantized",
                          name_of(problem));
    const moxie_dtype to = dequantized_dtype(problem);
    if (to != MOXIE_BF16)
        return mox_reject(why, "give the weights scales of bf16", "dequantizes activations to bf16, and %s to %s",
                          name_of(problem), mox_quant_dtype_name(to));
    const int64_t cols = cols_of(problem), group = mox_act_group_cols(act, cols);
    const bool exact = act->scale == MOXIE_F8_E8M0 || act->scale == MOXIE_F8_E4M3 || act->rule == MOXIE_RULE_UE8M0;
    if (group < cols && (!exact || group % 8 != 0))
        return mox_reject(why, "quantize them with one scale a row, or with powers of two for every 32 columns",
                          "dequantizes activations exactly: scales of groups, of 8, 16, 24, ... columns, must be "
                          "powers of two or e4m3; those of %s are %s",
                          name_of(problem), mox_quant_describe(act, text, sizeof text));
    return fits(problem, why);
}

/* Quantized to e4m3 with a scale for every 128 columns. */
static bool is_fp8_chunks(const moxie_quant *act)
{
    return act->element == MOXIE_F8_E4M3 && mox_act_quant_rule(act) == MOX_ACT_FP8_GROUP &&
           act->group_cols == MOX_HOPPER_CHUNK_WIDTH && act->global == MOXIE_GLOBAL_NONE;
}

static bool is_fp8_next(const mox_expert_gemm_problem *problem)
{
    return problem->next != NULL && is_fp8_chunks(problem->next);
}

/* Quantized with a power of two for every 32 columns. */
static bool is_mx(const moxie_quant *act)
{
    const int32_t rule = mox_act_quant_rule(act);
    return act->group_cols == MX_GROUP &&
           (rule == MOX_ACT_MX_GROUP || (rule == MOX_ACT_FP8_GROUP && act->rule == MOXIE_RULE_UE8M0));
}

static bool is_first(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    return (problem->projection == MOX_W13 && problem->next != NULL) ||
           mox_reject(why, "", "ends with the activation, which follows the first product");
}

/* Can the epilogue make the activations of W2? `dequant`: the kernels dequantize, and so read 16-bit activations. */
static bool admit_next(const mox_expert_gemm_problem *problem, bool dequant, mox_rejection *why)
{
    const moxie_quant *next = problem->next;
    if (!is_first(problem, why))
        return false;
    if (mox_quant_is_none(next))
        return is_16bit(problem->dtype) ||
               mox_reject(why, "choose activations of bf16 or f16",
                          "leaves w2's activations in 16 bits, the layer's activations are %s",
                          mox_quant_dtype_name(problem->dtype));
    if (dequant)
        return is_mx(next) ||
               mox_reject(why, "quantize them with powers of two for every 32 columns",
                          "leaves w2's activations in 16 bits, or codes with a power of two for every 32 columns");
    return is_fp8_chunks(next) ||
           mox_reject(why, "quantize them to f8_e4m3 in groups of 128",
                      "leaves w2's activations in 16 bits, or as f8_e4m3 with a scale for every 128 columns");
}

/* ---- scales of blocks ---------------------------------------------------------------------------------- */

/* Integers less their zero points, which bf16 holds, are multiplied by tokens of bf16; scales multiply the sums. */
static bool has_int_sums(const moxie_quant *weight, int64_t cols)
{
    if (mox_hopper_block_of(weight->element).bits > 0)
        return true;
    const bool of_f16 = mox_sm90_weight_of(weight)->to_scale_type && weight->scale == MOXIE_F16;
    return of_f16 || mox_hopper_has_words(weight, cols);
}

bool mox_sm90_scales_sums(const moxie_quant *weight, int64_t cols, moxie_dtype dtype)
{
    return mox_hopper_has_block_scales(weight, cols) || (dtype == MOXIE_BF16 && has_int_sums(weight, cols));
}

static bool admit_int_sums(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    char text[128];
    return has_int_sums(problem->weight, cols_of(problem)) ||
           mox_reject(why, "",
                      "multiplies sums of integers by scales that have zero points, are f16 or belong to q4_k, q5_k, "
                      "q6_k or iq4_xs, "
                      "%s has %s",
                      name_of(problem), mox_quant_describe(problem->weight, text, sizeof text));
}

static bool is_bf16_layer(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    return problem->dtype == MOXIE_BF16 || mox_reject(why, "give the layer activations of bf16",
                                                      "multiplies integers that bf16 holds, the activations are %s",
                                                      mox_quant_dtype_name(problem->dtype));
}

/* bf16 holds an 8-bit integer; the scale of its row becomes the token's factor. */
static bool admit_dequant_int_blocks_qact(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const moxie_quant *act = problem->act;
    char text[128];
    if (!admit_int_sums(problem, why))
        return false;
    if (act->element != MOXIE_I8 || act_groups(problem) > 1)
        return mox_reject(why, "quantize them to i8 with one scale a row",
                          "multiplies by activations of i8 with a scale a row, those of %s are %s", name_of(problem),
                          mox_quant_is_none(act) ? "unquantized" : mox_quant_describe(act, text, sizeof text));
    return is_bf16_layer(problem, why) && fits(problem, why);
}

static bool admit_dequant_int_blocks(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    if (!admit_int_sums(problem, why))
        return false;
    if (!mox_quant_is_none(problem->act))
        return mox_reject(why, "leave them unquantized", "multiplies by 16-bit activations, those of %s are quantized",
                          name_of(problem));
    return is_bf16_layer(problem, why) && fits(problem, why);
}

static bool admit_blocks_of(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    char text[128];
    if (!mox_hopper_has_block_scales(problem->weight, cols_of(problem)))
        return mox_reject(why, "", "dequantizes f8 with scales of blocks of 64, 128, ... columns, %s has %s",
                          name_of(problem), mox_quant_describe(problem->weight, text, sizeof text));
    if (problem->dtype != MOXIE_BF16 && mox_quant_is_none(problem->act))
        return mox_reject(why, "give the layer activations of bf16",
                          "dequantizes weights to bf16, the activations are %s", mox_quant_dtype_name(problem->dtype));
    return fits(problem, why);
}

static bool admit_dequant_blocks(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    if (!admit_blocks_of(problem, why))
        return false;
    return mox_quant_is_none(problem->act) ||
           mox_reject(why, "leave them unquantized", "multiplies by 16-bit activations, those of %s are quantized",
                      name_of(problem));
}

/* Scales of groups are powers of two, or f32 numbers of whole chunks. */
static bool admit_dequant_blocks_qact(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const moxie_quant *act = problem->act;
    const int64_t cols = cols_of(problem), group = mox_act_group_cols(act, cols);
    char text[128];
    if (!admit_blocks_of(problem, why))
        return false;
    if (mox_quant_is_none(act))
        return mox_reject(why, "quantize them", "dequantizes activations, those of %s are unquantized",
                          name_of(problem));
    const bool token_scales = mox_sm90_has_token_scales(act, act_groups(problem));
    const bool whole = group % MOX_HOPPER_CODE_COLS == 0 && (group & (group - 1)) == 0;
    if (group < cols && (token_scales ? !whole || act->global != MOXIE_GLOBAL_NONE : group % 8 != 0))
        return mox_reject(why, "quantize them with one scale a row, or in groups of 128",
                          "accepts f32 scales of groups of 64, 128, ... columns, those of %s are %s", name_of(problem),
                          mox_quant_describe(act, text, sizeof text));
    return true;
}

static bool admit_dequant(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    return admit_weights(problem, true, why);
}

static bool admit_dequant_int(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    return admit_weights(problem, false, why);
}

static bool admit_dequant_qact(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    return admit_qact(problem, true, why);
}

static bool admit_dequant_int_qact(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    return admit_qact(problem, false, why);
}

/* The kernel's element: tokens have 16 bits where the tensor cores add products of 16 bits, else 8. */
static mox_sm90_element element_of(const mox_expert_gemm_problem *problem, mox_sum sum)
{
    if (mox_sum_traits_of(sum)->chunks)
        return mox_sm90_blocks_element(problem->weight, problem->act, act_groups(problem));
    return mox_sm90_element_of(problem->weight, sum != MOX_SUM_TENSOR_16_BITS ? act_groups(problem) : 0);
}

/* The kernels for every card take what shared memory the device has, from two stages on; wgmma comes with more. */
static bool has_room(const mox_cuda_features *device, uint32_t needs, mox_rejection *why)
{
    if ((needs & MOX_CUDA_WGMMA) == 0 && device->shared_bytes < MOX_SM80_MIN_SHARED_BYTES)
        return mox_reject(why, "run on a device that has it", "needs %d bytes of shared memory a block, %.60s has %lld",
                          MOX_SM80_MIN_SHARED_BYTES, device->name, (long long)device->shared_bytes);
    return true;
}

/* Can a kernel that accepts the product also fuse what follows? */
static bool admit_fusion(const mox_expert_gemm_problem *problem, uint32_t needs, uint32_t fuses, mox_sum sum,
                         mox_rejection *why)
{
    if (fuses == MOX_FUSES_GLU && (needs & MOX_CUDA_WGMMA) == 0 && is_fp8_next(problem))
        return mox_reject(why, "leave them unquantized", "leaves no activations of f8_e4m3 for w2");
    if (fuses == MOX_FUSES_GLU && mox_sum_traits_of(sum)->chunks && problem->next != NULL &&
        !mox_quant_is_none(problem->next))
        return mox_reject(why, "leave them unquantized", "leaves w2's activations in 16 bits");
    if (fuses == MOX_FUSES_GLU)
        return admit_next(problem, MOX_SM90_DECODES(element_of(problem, sum)), why);
    return fuses == 0 || is_first(problem, why);
}

/* One block of memory for both products, since the second reads what the first left there. Pairs, and row tiles times
 * token tiles, are counted in 31 bits; larger problems do not fit any memory. */
static uint64_t scratch_bytes(const mox_expert_gemm_problem *problem, const mox_cuda_features *device, int64_t slots,
                              int64_t max_pairs, uint32_t needs, mox_sum sum)
{
    const mox_sm90_element element = element_of(problem, sum);
    const int64_t bytes = mox_sm90_token_bytes(element);
    const mox_record_shape *shape = problem->shape;
    const int64_t rows = shape->hidden > 2 * shape->intermediate ? shape->hidden : 2 * shape->intermediate;
    /* Token tiles have 16 columns or more, but for the last one of a slot. */
    const int64_t token_tiles = max_pairs / 16 + mox_sm90_min(max_pairs, slots);
    if (max_pairs > INT32_MAX / 8 || token_tiles > INT32_MAX / (rows / MOX_HOPPER_TILE_ROWS + 2))
        return UINT64_MAX;
    const mox_sm90_sizes sizes = { .slots = slots,
                                   .pairs = max_pairs,
                                   .multiprocessors = device->multiprocessors,
                                   .chunks = (int32_t)(mox_sm90_round_up(cols_of(problem) * bytes, 128) / 128),
                                   .scales = mox_sm90_token_scales(element),
                                   .sum_bytes = needs & MOX_CUDA_WGMMA ? mox_sm90_token_sum_bytes(element) : 0 };
    return mox_sm90_lay_out(&sizes).end;
}

#define MOX_CUDA_ROW(family, id, product, fuses, needs, exactness, layout, sum, activations)                           \
    bool mox_cuda_expert_gemm_##id##_admit(const mox_expert_gemm_problem *problem, const mox_cuda_features *device,    \
                                           mox_rejection *why)                                                         \
    {                                                                                                                  \
        return has_room(device, needs, why) && admit_##product(problem, why) &&                                        \
               admit_fusion(problem, needs, fuses, sum, why);                                                          \
    }                                                                                                                  \
    uint64_t mox_cuda_expert_gemm_##id##_scratch_bytes(                                                                \
        const mox_expert_gemm_problem *problem, const mox_cuda_features *device, int64_t slots, int64_t max_pairs)     \
    {                                                                                                                  \
        return scratch_bytes(problem, device, slots, max_pairs, needs, sum);                                           \
    }
#include "cuda/expert_gemm/sm90/sm90_products.def"
#include "cuda/expert_gemm/sm80/sm80_products.def"
#undef MOX_CUDA_ROW
