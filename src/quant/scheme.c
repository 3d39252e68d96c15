/* SPDX-License-Identifier: Apache-2.0
 *
 * scheme.c - builds a moxie_scheme from a constructor's name and arguments.
 *
 *     row of schemes.def + arguments -> dtypes and group shapes -> vLLM's four descriptors
 *                                                              -> moxie's own moxie_quant of weights and activations
 *
 * schemes.def states what each dtype name of vLLM means as a moxie_quant. Where a name has several meanings, the
 * constructor's row overrides fields. W13 and W2 get the same scheme here; mox_scheme_combine() combines two schemes.
 * Source: vLLM model_executor/layers/fused_moe/config.py (constructors, make, group shapes and their checks).
 */
#include "quant/scheme.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "quant/quant.h"

/* ---- the list ---------------------------------------------------------------------------------------- */

#define MOX_SCHEME(...)
#define MOX_SCHEME_DTYPE(id, name, is_string, weight, act) id,
typedef enum dtype_id {
#include "quant/schemes.def"
    DTYPES,
    /* Not dtypes: how a constructor finds its dtype. */
    BY_ARGUMENT,
    BY_BITS,
    BY_BLOCK
} dtype_id;
#undef MOX_SCHEME_DTYPE

typedef struct dtype_row {
    const char *name;
    bool is_string;
    moxie_quant weight, act;
} dtype_row;

#define IS(...)                                                                                                        \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define MOX_SCHEME_DTYPE(id, name, is_string, weight, act) { name, is_string, weight, act },
static const dtype_row dtypes[DTYPES] = {
#include "quant/schemes.def"
};
#undef MOX_SCHEME_DTYPE
#undef MOX_SCHEME

typedef enum shape_rule { NO_SHAPE, FLAGS, BLOCK, GROUP } shape_rule;
typedef enum presence { NO, YES, ARG } presence;

enum {
    TAKE_PER_TOKEN = 1 << 0,
    TAKE_PER_OUT_CH = 1 << 1,
    TAKE_BLOCK = 1 << 2,
    TAKE_BITS = 1 << 3,
    TAKE_GROUP = 1 << 4,
    TAKE_TYPES = 1 << 5,
    TAKE_ZERO = 1 << 6,
    TAKE_BIAS = 1 << 7,
    TAKE_A_SCALE = 1 << 8,
    TAKE_GSCALE = 1 << 9,
    TAKE_FORMAT = 1 << 10,
    TAKE_LINEAR = 1 << 11,
    TAKE_PRECISION = 1 << 12,
    TAKE_OCP_ONLY = 1 << 13 /* not an argument: the types must be OCP MX ones */
};

typedef struct scheme_row {
    const char *name;
    uint32_t accepts;
    struct {
        dtype_id dtype;
        shape_rule shape;
        presence scale, gscale;
    } act;
    struct {
        dtype_id dtype;
        shape_rule shape;
        presence scale, alphas, zero, bias;
    } weight;
    moxie_quant computes;
} scheme_row;

#define ACT(...)                                                                                                       \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define WEIGHT(...)                                                                                                    \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define COMPUTES(...)                                                                                                  \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define MOX_SCHEME_DTYPE(...)
#define MOX_SCHEME(name, accepts, act, weight, computes) { #name, accepts, act, weight, computes },
static const scheme_row schemes[] = {
#include "quant/schemes.def"
};
#undef MOX_SCHEME_DTYPE
#undef MOX_SCHEME
#define SCHEMES ((int32_t)(sizeof schemes / sizeof schemes[0]))

const char *mox_scheme_constructor_at(int32_t i)
{
    return i >= 0 && i < SCHEMES ? schemes[i].name : NULL;
}

static const scheme_row *find_scheme(const char *name)
{
    for (int32_t i = 0; i < SCHEMES; i++)
        if (strcmp(schemes[i].name, name) == 0)
            return &schemes[i];
    return NULL;
}

static moxie_status fail_unknown(const char *name, moxie_error *error)
{
    char names[512] = "";
    size_t used = 0;
    for (int32_t i = 0; i < SCHEMES && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", schemes[i].name);
    char escaped[64];
    return mox_fail(MOXIE_ERR_ARGUMENT, error, "scheme constructor \"%s\" is unknown; there are %s",
                    mox_escape(escaped, sizeof escaped, name), names);
}

/* ---- arguments ----------------------------------------------------------------------------------------- */

static bool has_block(const moxie_scheme_args *args)
{
    return args->block[0] != 0 || args->block[1] != 0;
}

static moxie_status check_accepted(const scheme_row *row, const moxie_scheme_args *args, moxie_error *error)
{
    const struct {
        uint32_t bit;
        bool is_set;
        const char *name;
    } fields[] = {
        { TAKE_PER_TOKEN, args->per_act_token != 0, "per_act_token" },
        { TAKE_PER_OUT_CH, args->per_out_ch != 0, "per_out_ch" },
        { TAKE_BLOCK, has_block(args), "block" },
        { TAKE_BITS, args->bits != 0, "bits" },
        { TAKE_GROUP, args->group_size != 0, "group_size" },
        { TAKE_TYPES, args->quant_dtype != NULL, "quant_dtype" },
        { TAKE_TYPES, args->weight_dtype != NULL, "weight_dtype" },
        { TAKE_ZERO, args->has_zero != 0, "has_zero" },
        { TAKE_BIAS, args->has_bias != 0, "has_bias" },
        { TAKE_A_SCALE, args->has_a_scale != 0, "has_a_scale" },
        { TAKE_GSCALE, args->has_gscale != 0, "has_gscale" },
        { TAKE_FORMAT, args->scale_format != 0, "scale_format" },
        { TAKE_LINEAR, args->scale_linear != 0, "scale_linear" },
        { TAKE_PRECISION, args->scale_precision != 0, "scale_precision" },
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        MOX_FAIL_IF(fields[i].is_set && !(row->accepts & fields[i].bit), MOXIE_ERR_ARGUMENT, error,
                    "%s takes no %s; leave it zero", row->name, fields[i].name);
    return MOXIE_OK;
}

static moxie_status check_values(const scheme_row *row, const moxie_scheme_args *args, moxie_error *error)
{
    MOX_FAIL_IF(has_block(args) && (args->block[0] < -1 || args->block[1] < -1), MOXIE_ERR_ARGUMENT, error,
                "%s: block [%d, %d]; an extent is positive, or -1 for all", row->name, (int)args->block[0],
                (int)args->block[1]);
    MOX_FAIL_IF((row->accepts & TAKE_BITS) && args->bits != 4 && args->bits != 8, MOXIE_ERR_ARGUMENT, error,
                "%s: %d bits; there are 4 and 8", row->name, (int)args->bits);
    MOX_FAIL_IF((row->accepts & TAKE_GROUP) && args->group_size != -1 && args->group_size < 1, MOXIE_ERR_ARGUMENT,
                error, "%s: group_size %d; it is positive, or -1 for one group per channel", row->name,
                (int)args->group_size);
    return MOXIE_OK;
}

/* The types that vLLM's ocp_mx() accepts; its make() then rejects all but the first three. */
static bool is_ocp_name(const char *name)
{
    static const char *const names[] = { "mxfp4", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp8_e4m3", "mxfp8_e5m2", "mxint8" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Whether vLLM's make() accepts a dtype. For weights: it has a weight description. For activations: it could also be a
 * weight's dtype; this excludes the string "fp8", which only mxfp4_w4a8 uses. */
static bool is_accepted(dtype_id id, bool weight)
{
    const bool as_weight = !mox_quant_is_none(&dtypes[id].weight), as_act = !mox_quant_is_none(&dtypes[id].act);
    return id == D_NONE || (as_weight && (weight || as_act));
}

static moxie_status dtype_by_name(const scheme_row *row, const char *name, bool weight, dtype_id *out,
                                  moxie_error *error)
{
    const char *what = weight ? "weight_dtype" : "quant_dtype";
    dtype_id id = D_NONE;
    while (id < DTYPES && strcmp(dtypes[id].name, name) != 0)
        id++;
    MOX_FAIL_IF((row->accepts & TAKE_OCP_ONLY) && !is_ocp_name(name), MOXIE_ERR_ARGUMENT, error,
                "%s: %s \"%s\" is no OCP MX type; use mxfp4, mxfp6_e3m2 or mxfp6_e2m3", row->name, what, name);
    MOX_FAIL_IF(id == DTYPES || !is_accepted(id, weight), MOXIE_ERR_ARGUMENT, error,
                "%s: %s \"%s\" is not admitted; %s", row->name, what, name,
                row->accepts & TAKE_OCP_ONLY ? "use mxfp4, mxfp6_e3m2 or mxfp6_e2m3"
                : weight ? "use float8_e4m3fn, int8, nvfp4, mxfp4, mxfp6_e3m2, mxfp6_e2m3, mxfp8 or int4"
                         : "use float8_e4m3fn, int8, nvfp4, mxfp4, mxfp6_e3m2, mxfp6_e2m3 or mxfp8");
    *out = id;
    return MOXIE_OK;
}

static moxie_status resolve_dtypes(const scheme_row *row, const moxie_scheme_args *args, dtype_id *act,
                                   dtype_id *weight, moxie_error *error)
{
    *act = row->act.dtype;
    *weight = row->weight.dtype;
    if (*weight == BY_BITS)
        *weight = args->bits == 4 ? D_INT4 : D_INT8;
    if (*weight == BY_BLOCK)
        *weight = D_INT8;
    if (*act != BY_ARGUMENT)
        return MOXIE_OK;
    const char *quant_dtype = args->quant_dtype ? args->quant_dtype : "";
    MOX_TRY(dtype_by_name(row, quant_dtype, false, act, error));
    return dtype_by_name(row, args->weight_dtype ? args->weight_dtype : quant_dtype, true, weight, error);
}

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
    if (has_block(args)) {
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

static void shape_by_rule(shape_rule rule, const moxie_scheme_args *args, moxie_scheme_desc *desc)
{
    if (rule == BLOCK)
        set_shape(desc->shape, args->block[0], args->block[1]);
    else if (rule == GROUP && args->group_size != -1)
        set_shape(desc->shape, 1, args->group_size);
}

static int32_t present(presence rule, int32_t argument)
{
    return rule == YES || (rule == ARG && argument != 0);
}

static void fill_descriptors(const scheme_row *row, const moxie_scheme_args *args, dtype_id act, dtype_id weight,
                             moxie_scheme *out)
{
    /* Without a dtype, make() has nothing to scale. A row may still state what it computes. */
    const bool has_weight_scale =
        row->weight.scale == YES && (weight != D_NONE || row->computes.element != MOXIE_DTYPE_NONE);
    out->a1 = (moxie_scheme_desc) {
        .dtype = dtypes[act].name,
        .dtype_is_string = dtypes[act].is_string,
        .has_scale = present(row->act.scale, args->has_a_scale) ? MOXIE_SCHEME_SCALE_TENSOR : MOXIE_SCHEME_SCALE_NONE,
        .has_gscale = present(row->act.gscale, args->has_gscale),
    };
    out->w1 = (moxie_scheme_desc) {
        .dtype = dtypes[weight].name,
        .dtype_is_string = dtypes[weight].is_string,
        .has_scale = !has_weight_scale       ? MOXIE_SCHEME_SCALE_NONE
                     : args->scale_precision ? MOXIE_SCHEME_SCALE_PRECISION
                                             : MOXIE_SCHEME_SCALE_TENSOR,
        .has_gscale = present(row->weight.alphas, args->has_gscale),
        .has_zero = present(row->weight.zero, args->has_zero),
        .has_bias = present(row->weight.bias, args->has_bias),
    };
    if (row->act.shape == FLAGS) {
        moxie_scheme_desc ignored = out->w1;
        shape_by_flags(args, &out->a1, row->weight.shape == FLAGS ? &out->w1 : &ignored);
    }
    shape_by_rule(row->act.shape, args, &out->a1);
    shape_by_rule(row->weight.shape, args, &out->w1);
    out->a2 = out->a1;
    out->w2 = out->w1;
    out->scale_swizzled = !args->scale_linear;
}

/* vLLM rejects a block together with flags, and then checks that the finished config has the requested values. */
static moxie_status check_flags(const scheme_row *row, const moxie_scheme_args *args, const moxie_scheme *made,
                                moxie_error *error)
{
    if (row->act.shape != FLAGS)
        return MOXIE_OK;
    const int32_t *block = args->block;
    int32_t unused[2];
    MOX_FAIL_IF(has_block(args) && args->per_act_token, MOXIE_ERR_ARGUMENT, error,
                "%s: illegal quantization, per_act_token together with the block [%d, %d]; choose one of the two",
                row->name, (int)block[0], (int)block[1]);
    MOX_FAIL_IF(has_block(args) && args->per_out_ch, MOXIE_ERR_ARGUMENT, error,
                "%s: illegal quantization, per_out_ch together with the block [%d, %d]; choose one of the two",
                row->name, (int)block[0], (int)block[1]);
    MOX_FAIL_IF(has_block(args) && !mox_scheme_block_shape(made, unused), MOXIE_ERR_ARGUMENT, error,
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
static bool has_offset(const scheme_row *row, const moxie_scheme_args *args)
{
    return row->weight.dtype == BY_BITS || (row->weight.dtype == BY_BLOCK && has_block(args));
}

static moxie_quant weight_quant(const scheme_row *row, const moxie_scheme_args *args, dtype_id dtype,
                                const moxie_scheme_desc *desc)
{
    moxie_quant q = dtypes[dtype].weight;
    const moxie_quant *own = &row->computes;
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
    apply_shape(desc, &q);
    return q;
}

/* Only weights have blocks of several rows: activations are quantized row by row. */
static moxie_quant act_quant(dtype_id dtype, const moxie_scheme_desc *desc)
{
    moxie_quant q = dtypes[dtype].act;
    if (mox_quant_is_none(&q) || q.group_cols > 0)
        return q;
    apply_shape(desc, &q);
    const bool per_tensor = q.group_rows == -1 && q.group_cols == -1;
    if (!per_tensor)
        q.group_rows = 1;
    q.is_static = per_tensor && desc->has_scale;
    return q;
}

static moxie_status fill_quants(const scheme_row *row, const moxie_scheme_args *args, dtype_id act, dtype_id weight,
                                moxie_scheme *out, moxie_error *error)
{
    out->w13 = out->weight2 = weight_quant(row, args, weight, &out->w1);
    out->a13 = out->act2 = act_quant(act, &out->a1);
    if (mox_quant_is_none(&out->w13))
        out->w13 = out->weight2 = (moxie_quant) { 0 };
    else
        MOX_TRY(mox_quant_check_weight(&out->w13, row->name, error));
    return mox_quant_check_act(&out->a13, row->name, error);
}

/* ---- constructors ------------------------------------------------------------------------------------------ */

moxie_status mox_scheme_make(const char *constructor, const moxie_scheme_args *args, moxie_scheme *out,
                             moxie_error *error)
{
    const scheme_row *row = find_scheme(constructor);
    dtype_id act, weight;
    if (!row)
        return fail_unknown(constructor, error);
    moxie_scheme made = { .constructor = row->name };
    MOX_TRY(check_accepted(row, args, error));
    MOX_TRY(check_values(row, args, error));
    MOX_TRY(resolve_dtypes(row, args, &act, &weight, error));
    fill_descriptors(row, args, act, weight, &made);
    MOX_TRY(check_flags(row, args, &made, error));
    MOX_TRY(fill_quants(row, args, act, weight, &made, error));
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
    if (is_nvfp4(for_w2))
        made.scale_swizzled = for_w2->scale_swizzled;
    *out = made;
    return MOXIE_OK;
}
