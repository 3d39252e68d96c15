/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_expert_gemm_sm90.c - what the rows on the layouts of pack/hopper/hopper.h refuse, and their scratch (kernels:
 * sm90_kernel.cuh).
 *
 *     sm90_w16a16        bf16 by bf16, f16 by f16                 either product
 *     sm90_w8a8_fp8       e4m3 by e4m3, a scale for every 128 columns of the activations or for all
 *     sm90_w4a8_fp8         f4_e2m1 with exponents for scales, looked up as e4m3, by e4m3 with a scale a row
 *     sm90_w8a8_int8        8-bit integers by 8-bit integers, scales of rows on either side: sums are exact
 *     sm90_dequant       by bf16, decoded: f4_e2m1, f6 and f8 with exponents for scales, f8 and integers of 8 bits
 *                      with one scale a row
 *     sm90_dequant_int        integers of 4 bits, and of 8 with scales of groups, decoded and so rounded to 16 bits
 * once (class W16), by as many: bf16 where their scales are, f16 where those are
 *     ..._acts         the same by activations of 4, 6 and 8 bits, which become bf16 as they are gathered: each times
 *                      its group's scale, where bf16 holds that exactly; scales of rows and global ones are left to
 *                      the factors of tokens
 *     ..._glu          the same for W13, with the activation and the operand of W2: in the layer's 16-bit type; of
 *                      sm90_w16a16 and sm90_w8a8_fp8, or e4m3 with a scale for every 128 columns; of others, or codes
 * with a power of two for every 32, as a gather would make bf16 of them
 *     ..._act          what multiplies codes, for W13, with the activation, in f32 rows: for whatever else W2's
 *                      operand may be
 *
 * What weights may be scaled by, the layout says (layout_hopper.c). FP8 tensor cores keep about 13 bits of what one
 * instruction adds, where the contract has fp32: those rows are of class TOL.
 */
#include "cuda/expert_gemm/cuda_expert_gemm.h"
#include "cuda/expert_gemm/sm90/sm90_plan.h"
#include "pack/hopper/hopper.h"
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

static bool fits(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const mox_record_shape *shape = problem->shape;
    if (shape->hidden > MOX_SM90_MAX_SIZE || shape->intermediate > MOX_SM90_MAX_SIZE)
        return mox_reject(why, "split the expert over ranks", "takes sizes up to %lld, the expert has %lld x %lld",
                          (long long)MOX_SM90_MAX_SIZE, (long long)shape->intermediate, (long long)shape->hidden);
    return true;
}

static bool is_wide(moxie_dtype dtype)
{
    return dtype == MOXIE_BF16 || dtype == MOXIE_F16;
}

static bool admit_wide(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const moxie_dtype element = problem->weight->element;
    if (!is_wide(element))
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

static bool admit_bytes(const mox_expert_gemm_problem *problem, mox_rejection *why)
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
                          "takes a scale of activations for every 128 columns or for whole rows, those of %s are for "
                          "%lld",
                          name_of(problem), (long long)group);
    return fits(problem, why);
}

static bool admit_int8(const mox_expert_gemm_problem *problem, mox_rejection *why)
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
                          "adds up whole rows of integers: takes a scale a row, of %s and of its activations",
                          name_of(problem));
    if (cols > MOX_SM90_MAX_INT8_TERMS)
        return mox_reject(why, "split the expert over ranks",
                          "adds up to %d products in 31 bits, a row of %s has %lld columns", MOX_SM90_MAX_INT8_TERMS,
                          name_of(problem), (long long)cols);
    return fits(problem, why);
}

/* That its scales are near enough to each other, the layout sees when it takes an expert (hopper_scales.c). */
static bool admit_fp8(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    const moxie_quant *weight = problem->weight, *act = problem->act;
    const int64_t cols = cols_of(problem);
    char text[128];
    if (weight->element != MOXIE_F4_E2M1 || weight->scale != MOXIE_F8_E8M0)
        return mox_reject(why, "", "looks up weights of f4_e2m1 with scales of f8_e8m0, %s has %s", name_of(problem),
                          mox_quant_dtype_name(weight->element));
    if (act->element != MOXIE_F8_E4M3 || act->global != MOXIE_GLOBAL_NONE || mox_act_group_cols(act, cols) < cols)
        return mox_reject(why, "quantize them to f8_e4m3 with one scale a row",
                          "multiplies by activations of f8_e4m3 with a scale a row, those of %s are %s",
                          name_of(problem),
                          mox_quant_is_none(act) ? "unquantized" : mox_quant_describe(act, text, sizeof text));
    return fits(problem, why);
}

/* Integers of 8 bits are exact as bf16, and so are weights whose scales are left to the factors of rows. */
static bool decodes(const mox_expert_gemm_problem *problem, bool exactly)
{
    const moxie_quant *weight = problem->weight;
    const int64_t cols = cols_of(problem);
    const bool by_row = mox_group_cols(weight, cols) >= cols;
    switch (weight->element) {
    case MOXIE_F4_E2M1:
    case MOXIE_F6_E2M3:
    case MOXIE_F6_E3M2:
    case MOXIE_F8_E4M3:
    case MOXIE_F8_E5M2: return exactly;
    case MOXIE_I8:
    case MOXIE_U8B128: return by_row == exactly;
    case MOXIE_I4:
    case MOXIE_U4B8: return !exactly;
    default: return false;
    }
}

static bool admit_codes_of(const mox_expert_gemm_problem *problem, bool exactly, mox_rejection *why)
{
    char text[128];
    return decodes(problem, exactly) ||
           mox_reject(why, "", "decodes weights of %s, %s has %s",
                      exactly ? "f4_e2m1, f6 and f8, and 8-bit integers with one scale a row"
                              : "i4 and u4b8, and 8-bit integers with scales of groups",
                      name_of(problem), mox_quant_describe(problem->weight, text, sizeof text));
}

/* The 16-bit type that the weights become. */
static moxie_dtype decoded_dtype(const mox_expert_gemm_problem *problem, bool exactly)
{
    return mox_dtype_bits(problem->weight->element) == 4 && !exactly ? problem->weight->scale : MOXIE_BF16;
}

static bool admit_decoded(const mox_expert_gemm_problem *problem, bool exactly, mox_rejection *why)
{
    if (!admit_codes_of(problem, exactly, why))
        return false;
    if (!mox_quant_is_none(problem->act))
        return mox_reject(why, "leave them unquantized", "multiplies by 16-bit activations, those of %s are quantized",
                          name_of(problem));
    const moxie_dtype to = decoded_dtype(problem, exactly);
    if (problem->dtype != to)
        return mox_reject(why, "give the layer activations of the type that its weights become",
                          "decodes %s to %s, the activations are %s", name_of(problem), mox_quant_dtype_name(to),
                          mox_quant_dtype_name(problem->dtype));
    return fits(problem, why);
}

/* Codes have up to 8 significant bits, as many as bf16. Times a power of two it holds them too, and those of f4_e2m1,
 * which have two, times an E4M3. */
static bool admit_acts(const mox_expert_gemm_problem *problem, bool exactly, mox_rejection *why)
{
    const moxie_quant *act = problem->act;
    char text[128];
    if (!admit_codes_of(problem, exactly, why))
        return false;
    if (mox_quant_is_none(act))
        return mox_reject(why, "quantize them", "decodes activations, those of %s are unquantized", name_of(problem));
    const moxie_dtype to = decoded_dtype(problem, exactly);
    if (to != MOXIE_BF16)
        return mox_reject(why, "give the weights scales of bf16", "decodes activations to bf16, and %s to %s",
                          name_of(problem), mox_quant_dtype_name(to));
    const int64_t cols = cols_of(problem), group = mox_act_group_cols(act, cols);
    const bool held = act->scale == MOXIE_F8_E8M0 || act->scale == MOXIE_F8_E4M3 || act->rule == MOXIE_RULE_UE8M0;
    if (group < cols && (!held || group % 8 != 0))
        return mox_reject(why, "quantize them with one scale a row, or with powers of two for every 32 columns",
                          "decodes activations to bf16 exactly: scales of groups, of 8, 16, 24, ... columns, must be "
                          "powers of two or e4m3; those of %s are %s",
                          name_of(problem), mox_quant_describe(act, text, sizeof text));
    return fits(problem, why);
}

/* With a scale for every 128 columns. */
static bool is_fp8_chunks(const moxie_quant *act)
{
    return act->element == MOXIE_F8_E4M3 && mox_act_quant_rule(act) == MOX_ACT_FP8_GROUP &&
           act->group_cols == MOX_HOPPER_CHUNK_WIDTH && act->global == MOXIE_GLOBAL_NONE;
}

/* With a power of two for every 32. */
static bool is_mx(const moxie_quant *act)
{
    return mox_act_quant_rule(act) == MOX_ACT_MX_GROUP && act->group_cols == MX_GROUP;
}

static bool is_first(const mox_expert_gemm_problem *problem, mox_rejection *why)
{
    return (problem->projection == MOX_W13 && problem->next != NULL) ||
           mox_reject(why, "", "ends with the activation, which follows the first product");
}

/* What the epilogue of a fused row makes of its activations, of one that decodes or another. */
static bool admit_next(const mox_expert_gemm_problem *problem, bool decoded, mox_rejection *why)
{
    const moxie_quant *next = problem->next;
    if (!is_first(problem, why))
        return false;
    if (mox_quant_is_none(next))
        return is_wide(problem->dtype) || mox_reject(why, "choose activations of bf16 or f16",
                                                     "leaves w2's operand in 16 bits, the layer's activations are %s",
                                                     mox_quant_dtype_name(problem->dtype));
    if (decoded)
        return is_mx(next) ||
               mox_reject(why, "quantize them with powers of two for every 32 columns",
                          "leaves w2's operand in 16 bits, or codes with a power of two for every 32 columns");
    return is_fp8_chunks(next) ||
           mox_reject(why, "quantize them to f8_e4m3 in groups of 128",
                      "leaves w2's operand in 16 bits, or as f8_e4m3 with a scale for every 128 columns");
}

#define ADMIT(id, admits)                                                                                              \
    bool mox_cuda_expert_gemm_##id##_admit(const mox_expert_gemm_problem *problem, const mox_cuda_features *device,    \
                                           mox_rejection *why)                                                         \
    {                                                                                                                  \
        (void)device;                                                                                                  \
        return admits;                                                                                                 \
    }
ADMIT(sm90_w16a16, admit_wide(problem, why))
ADMIT(sm90_w8a8_fp8, admit_bytes(problem, why))
ADMIT(sm90_w8a8_fp8_act, admit_bytes(problem, why) && is_first(problem, why))
ADMIT(sm90_w4a8_fp8, admit_fp8(problem, why))
ADMIT(sm90_w4a8_fp8_act, admit_fp8(problem, why) && is_first(problem, why))
ADMIT(sm90_w8a8_int8, admit_int8(problem, why))
ADMIT(sm90_w8a8_int8_act, admit_int8(problem, why) && is_first(problem, why))
ADMIT(sm90_dequant, admit_decoded(problem, true, why))
ADMIT(sm90_dequant_int, admit_decoded(problem, false, why))
ADMIT(sm90_dequant_qact, admit_acts(problem, true, why))
ADMIT(sm90_dequant_int_qact, admit_acts(problem, false, why))
ADMIT(sm90_dequant_qact_act, admit_acts(problem, true, why) && is_first(problem, why))
ADMIT(sm90_dequant_int_qact_act, admit_acts(problem, false, why) && is_first(problem, why))
ADMIT(sm90_w16a16_glu, admit_wide(problem, why) && admit_next(problem, false, why))
ADMIT(sm90_w8a8_fp8_glu, admit_bytes(problem, why) && admit_next(problem, false, why))
ADMIT(sm90_dequant_glu, admit_decoded(problem, true, why) && admit_next(problem, true, why))
ADMIT(sm90_dequant_int_glu, admit_decoded(problem, false, why) && admit_next(problem, true, why))
ADMIT(sm90_dequant_qact_glu, admit_acts(problem, true, why) && admit_next(problem, true, why))
ADMIT(sm90_dequant_int_qact_glu, admit_acts(problem, false, why) && admit_next(problem, true, why))

/* One block of memory for both products, since the second reads what the first left there. More pairs, or row tiles
 * times token tiles, than are counted in 31 bits do not fit any memory. */
static uint64_t scratch_bytes(const mox_expert_gemm_problem *problem, const mox_cuda_features *device, int64_t slots,
                              int64_t max_pairs, bool to_bytes)
{
    const mox_sm90_element element = mox_sm90_element_of(problem->weight, to_bytes);
    const int64_t bytes = mox_sm90_token_bytes(element);
    const mox_record_shape *shape = problem->shape;
    const int64_t rows = shape->hidden > 2 * shape->intermediate ? shape->hidden : 2 * shape->intermediate,
                  columns = max_pairs / 16 + mox_sm90_min(max_pairs, slots); /* most of a token tile is 16 or more */
    if (max_pairs > INT32_MAX / 8 || columns > INT32_MAX / (rows / MOX_HOPPER_TILE_ROWS + 2))
        return UINT64_MAX;
    const mox_sm90_sizes sizes = { .slots = slots,
                                   .pairs = max_pairs,
                                   .multiprocessors = device->multiprocessors,
                                   .chunks = (int32_t)(mox_sm90_round_up(cols_of(problem) * bytes, 128) / 128),
                                   .scales = mox_sm90_token_scales(element) };
    return mox_sm90_lay_out(&sizes).end;
}

#define SCRATCH_BYTES(id, to_bytes)                                                                                    \
    uint64_t mox_cuda_expert_gemm_##id##_scratch_bytes(                                                                \
        const mox_expert_gemm_problem *problem, const mox_cuda_features *device, int64_t slots, int64_t max_pairs)     \
    {                                                                                                                  \
        return scratch_bytes(problem, device, slots, max_pairs, to_bytes);                                             \
    }
SCRATCH_BYTES(sm90_w16a16, false)
SCRATCH_BYTES(sm90_w8a8_fp8, true)
SCRATCH_BYTES(sm90_w8a8_fp8_act, true)
SCRATCH_BYTES(sm90_w4a8_fp8, true)
SCRATCH_BYTES(sm90_w4a8_fp8_act, true)
SCRATCH_BYTES(sm90_w8a8_int8, true)
SCRATCH_BYTES(sm90_w8a8_int8_act, true)
SCRATCH_BYTES(sm90_w16a16_glu, false)
SCRATCH_BYTES(sm90_w8a8_fp8_glu, true)
SCRATCH_BYTES(sm90_dequant, false)
SCRATCH_BYTES(sm90_dequant_glu, false)
SCRATCH_BYTES(sm90_dequant_qact, false)
SCRATCH_BYTES(sm90_dequant_qact_glu, false)
SCRATCH_BYTES(sm90_dequant_qact_act, false)
SCRATCH_BYTES(sm90_dequant_int, false)
SCRATCH_BYTES(sm90_dequant_int_glu, false)
SCRATCH_BYTES(sm90_dequant_int_qact, false)
SCRATCH_BYTES(sm90_dequant_int_qact_glu, false)
SCRATCH_BYTES(sm90_dequant_int_qact_act, false)
