/* SPDX-License-Identifier: Apache-2.0
 *
 * scheme.c - builds a moxie_scheme from a constructor's name and arguments.
 *
 *     row of schemes.def + arguments -> dtypes and group shapes -> vLLM's four descriptors
 *                                                              -> moxie's own moxie_quant of weights and activations
 *
 * schemes.def states what each dtype name of vLLM means as a moxie_quant. Where a name has several meanings, the
 * constructor's row overrides fields. vLLM builds configs that no kernel computes; so does this, and `computable`
 * tells them apart. mox_scheme_combine() combines two schemes.
 * Source: vLLM model_executor/layers/fused_moe/config.py (constructors, make, group shapes and their checks).
 */
#include "quant/scheme.h"

#include <stddef.h>
#include <string.h>

#include "quant/quant.h"
#include "quant/scheme_list.h"

/* ---- descriptors ------------------------------------------------------------------------------------------ */

static void set_shape(int32_t shape[2], int32_t rows, int32_t cols)
{
    shape[0] = rows;
    shape[1] = cols;
}

/* A block is the shape of both (vLLM's source remarks that the activation's should be (1, block[1])). A per-token flag
 * sets the activation's shape even when it has no dtype, and then means nothing. */
static void shape_by_flags(const moxie_scheme_args *args, moxie_scheme_desc *act, moxie_scheme_desc *weight)
{
    if (mox_scheme_has_block(args)) {
        set_shape(act->shape, args->block[0], args->block[1]);
        set_shape(weight->shape, args->block[0], args->block[1]);
        return;
    }
    if (act->dtype[0] != '\0')
        set_shape(act->shape, -1, -1);
    if (args->per_act_token)
        set_shape(act->shape, 1, -1);
    if (args->per_out_ch)
        set_shape(weight->shape, 1, -1);
}

static void shape_by_rule(mox_scheme_shape rule, const moxie_scheme_args *args, moxie_scheme_desc *desc)
{
    if (rule == BLOCK)
        set_shape(desc->shape, args->block[0], args->block[1]);
    else if (rule == GROUP && args->group_size != -1)
        set_shape(desc->shape, 1, args->group_size);
}

/* Whether W13 (`first`) or W2 has a tensor. */
static int32_t present(mox_scheme_presence rule, int32_t sides, bool first)
{
    if (rule == NO || rule == YES)
        return rule == YES;
    if (sides == MOXIE_SCHEME_SIDES_USUAL)
        return rule == USUAL;
    return sides == MOXIE_SCHEME_SIDES_BOTH || sides == (first ? MOXIE_SCHEME_SIDES_W13 : MOXIE_SCHEME_SIDES_W2);
}

static moxie_scheme_desc act_desc(const mox_scheme_row *row, const moxie_scheme_args *args,
                                  const mox_scheme_dtype *dtype, bool first)
{
    return (moxie_scheme_desc) {
        .dtype = dtype->name,
        .dtype_is_string = dtype->is_string,
        .has_scale =
            present(row->act.scale, args->has_a_scale, first) ? MOXIE_SCHEME_SCALE_TENSOR : MOXIE_SCHEME_SCALE_NONE,
        .has_gscale = present(row->act.gscale, args->has_gscale, first),
    };
}

static moxie_scheme_desc weight_desc(const mox_scheme_row *row, const moxie_scheme_args *args,
                                     const mox_scheme_dtype *dtype, bool first)
{
    const int32_t alphas = args->has_alphas != 0 ? args->has_alphas : args->has_gscale;
    /* Without a dtype there is usually nothing to scale; an explicit argument still counts. */
    const bool nothing = args->has_w_scale == MOXIE_SCHEME_SIDES_USUAL && dtype->name[0] == '\0' &&
                         row->computes.element == MOXIE_DTYPE_NONE;
    const bool scaled = !nothing && present(row->weight.scale, args->has_w_scale, first);
    return (moxie_scheme_desc) {
        .dtype = dtype->name,
        .dtype_is_string = dtype->is_string,
        .has_scale = !scaled                 ? MOXIE_SCHEME_SCALE_NONE
                     : args->scale_precision ? MOXIE_SCHEME_SCALE_PRECISION
                                             : MOXIE_SCHEME_SCALE_TENSOR,
        .has_gscale = present(row->weight.alphas, alphas, first),
        .has_zero = present(row->weight.zero, args->has_zero, first),
        .has_bias = present(row->weight.bias, args->has_bias, first),
    };
}

static void set_shapes(const mox_scheme_row *row, const moxie_scheme_args *args, moxie_scheme_desc *act,
                       moxie_scheme_desc *weight)
{
    if (row->act.shape == FLAGS) {
        moxie_scheme_desc ignored = *weight;
        shape_by_flags(args, act, row->weight.shape == FLAGS ? weight : &ignored);
    }
    shape_by_rule(row->act.shape, args, act);
    shape_by_rule(row->weight.shape, args, weight);
}

static void fill_descriptors(const mox_scheme_row *row, const moxie_scheme_args *args, mox_scheme_dtype_id act,
                             mox_scheme_dtype_id weight, moxie_scheme *out)
{
    out->a1 = act_desc(row, args, &mox_scheme_dtypes[act], true);
    out->a2 = act_desc(row, args, &mox_scheme_dtypes[act], false);
    out->w1 = weight_desc(row, args, &mox_scheme_dtypes[weight], true);
    out->w2 = weight_desc(row, args, &mox_scheme_dtypes[weight], false);
    set_shapes(row, args, &out->a1, &out->w1);
    set_shapes(row, args, &out->a2, &out->w2);
    out->scale_swizzled = !args->scale_linear;
    out->scale_transposed = args->scale_transposed != 0;
}

/* vLLM rejects a block together with flags, and then checks that the finished config has the requested values. */
static moxie_status check_flags(const mox_scheme_row *row, const moxie_scheme_args *args, const moxie_scheme *made,
                                moxie_error *error)
{
    if (row->act.shape != FLAGS)
        return MOXIE_OK;
    const int32_t *block = args->block;
    int32_t unused[2];
    MOX_FAIL_IF(mox_scheme_has_block(args) && args->per_act_token, MOXIE_ERR_ARGUMENT, error,
                "%s: illegal quantization, per_act_token together with the block [%d, %d]; choose one of the two",
                row->name, (int)block[0], (int)block[1]);
    MOX_FAIL_IF(mox_scheme_has_block(args) && args->per_out_ch, MOXIE_ERR_ARGUMENT, error,
                "%s: illegal quantization, per_out_ch together with the block [%d, %d]; choose one of the two",
                row->name, (int)block[0], (int)block[1]);
    MOX_FAIL_IF(mox_scheme_has_block(args) && !mox_scheme_block_shape(made, unused), MOXIE_ERR_ARGUMENT, error,
                "%s: the block [%d, %d] means %s and would not read back as a block; leave block zero and %s",
                row->name, (int)block[0], (int)block[1], block[0] == 1 ? "per token" : "per tensor",
                block[0] == 1 ? "set per_act_token" : "set no flag");
    return MOXIE_OK;
}

/* ---- moxie's own description ----------------------------------------------------------------------------- */

/* A descriptor's shape replaces groups of whole rows, but not groups that belong to the dtype. */
static void apply_shape(const moxie_scheme_desc *desc, moxie_quant *quant)
{
    if (quant->group_cols > 0 || mox_scheme_shape_is(desc, 0, 0))
        return;
    quant->group_rows = desc->shape[0];
    quant->group_cols = desc->shape[1] != 0 ? desc->shape[1] : -1;
}

/* 8-bit checkpoints of GPTQ and AWQ, and grouped ones of vLLM's wna16 kernels, store value + 128; the per-channel
 * weights of int8_w8a16 are signed. */
static bool has_offset(const mox_scheme_row *row, const moxie_scheme_args *args)
{
    return row->weight.dtype == BY_BITS || (row->weight.dtype == BY_BLOCK && mox_scheme_has_block(args));
}

static moxie_quant weight_quant(const mox_scheme_row *row, const moxie_scheme_args *args, mox_scheme_dtype_id dtype,
                                const moxie_scheme_desc *desc)
{
    moxie_quant q = mox_scheme_dtypes[dtype].weight;
    const moxie_quant *own = &row->computes;
    if (dtype == D_NONE && own->element == MOXIE_DTYPE_NONE)
        return (moxie_quant) { .scale = desc->has_scale ? MOXIE_F32 : MOXIE_DTYPE_NONE, .has_zero = desc->has_zero };
    if (q.element == MOXIE_I8 && has_offset(row, args)) {
        q.element = MOXIE_U8B128;
        q.scale = MOXIE_F16;
    }
    if (own->element != MOXIE_DTYPE_NONE)
        q.element = own->element;
    if (own->scale != MOXIE_DTYPE_NONE)
        q.scale = own->scale;
    if (own->group_cols != 0) {
        q.group_rows = own->group_rows;
        q.group_cols = own->group_cols;
    }
    if (own->global != MOXIE_GLOBAL_NONE)
        q.global = own->global;
    if (args->scale_format != MOXIE_DTYPE_NONE)
        q.scale = args->scale_format;
    q.has_zero = desc->has_zero;
    if (!desc->has_scale)
        q.scale = MOXIE_DTYPE_NONE;
    apply_shape(desc, &q);
    return q;
}

/* Only weights have blocks of several rows: activations are quantized row by row. */
static moxie_quant act_quant(mox_scheme_dtype_id dtype, const moxie_scheme_desc *desc)
{
    moxie_quant q = mox_scheme_dtypes[dtype].act;
    if (mox_quant_is_none(&q) || q.group_cols > 0)
        return q;
    apply_shape(desc, &q);
    const bool per_tensor = q.group_rows == -1 && q.group_cols == -1;
    if (!per_tensor)
        q.group_rows = 1;
    q.is_static = per_tensor && desc->has_scale;
    return q;
}

static bool is_valid_weight(const moxie_quant *quant)
{
    if (mox_quant_is_none(quant)) /* the model's dtype, which has neither */
        return quant->scale == MOXIE_DTYPE_NONE && !quant->has_zero;
    return mox_quant_check_weight(quant, "", NULL) == MOXIE_OK;
}

/* vLLM accepts more than a kernel can compute, zero points of floats for example. The descriptions then stay as they
 * are, and a layer with them is refused with the reason. */
static bool is_computable(const moxie_scheme *scheme)
{
    return is_valid_weight(&scheme->w13) && is_valid_weight(&scheme->weight2) &&
           mox_quant_check_act(&scheme->a13, "", NULL) == MOXIE_OK &&
           mox_quant_check_act(&scheme->act2, "", NULL) == MOXIE_OK;
}

static void fill_quants(const mox_scheme_row *row, const moxie_scheme_args *args, mox_scheme_dtype_id act,
                        mox_scheme_dtype_id weight, moxie_scheme *out)
{
    out->w13 = weight_quant(row, args, weight, &out->w1);
    out->weight2 = weight_quant(row, args, weight, &out->w2);
    out->a13 = act_quant(act, &out->a1);
    out->act2 = act_quant(act, &out->a2);
    out->computable = is_computable(out);
}

/* ---- constructors ------------------------------------------------------------------------------------------ */

const char *mox_scheme_constructor_at(int32_t i)
{
    const mox_scheme_row *row = mox_scheme_row_at(i);
    return row ? row->name : NULL;
}

moxie_status mox_scheme_make(const char *constructor, const moxie_scheme_args *args, moxie_scheme *out,
                             moxie_error *error)
{
    const mox_scheme_row *row = mox_scheme_row_by_name(constructor, error);
    mox_scheme_dtype_id act, weight;
    if (!row)
        return MOXIE_ERR_ARGUMENT;
    moxie_scheme made = { .constructor = row->name };
    MOX_TRY(mox_scheme_check_args(row, args, error));
    MOX_TRY(mox_scheme_resolve_dtypes(row, args, &act, &weight, error));
    fill_descriptors(row, args, act, weight, &made);
    MOX_TRY(check_flags(row, args, &made, error));
    fill_quants(row, args, act, weight, &made);
    *out = made;
    return MOXIE_OK;
}

static bool is_nvfp4(const moxie_scheme *scheme)
{
    return strcmp(scheme->a1.dtype, "nvfp4") == 0 || strcmp(scheme->w1.dtype, "nvfp4") == 0;
}

moxie_status mox_scheme_combine(const moxie_scheme *for_w13, const moxie_scheme *for_w2, moxie_scheme *out,
                                moxie_error *error)
{
    const bool both = is_nvfp4(for_w13) && is_nvfp4(for_w2);
    MOX_FAIL_IF(both && for_w13->scale_swizzled != for_w2->scale_swizzled, MOXIE_ERR_ARGUMENT, error,
                "the nvfp4 block scales of W13 are %s, those of W2 %s; a config has one flag for both",
                for_w13->scale_swizzled ? "swizzled" : "linear", for_w2->scale_swizzled ? "swizzled" : "linear");
    moxie_scheme made = *for_w13;
    if (strcmp(for_w13->constructor, for_w2->constructor) != 0)
        made.constructor = "combined";
    made.a2 = for_w2->a2;
    made.w2 = for_w2->w2;
    made.act2 = for_w2->act2;
    made.weight2 = for_w2->weight2;
    made.computable = for_w13->computable && for_w2->computable;
    if (is_nvfp4(for_w2))
        made.scale_swizzled = for_w2->scale_swizzled;
    *out = made;
    return MOXIE_OK;
}
