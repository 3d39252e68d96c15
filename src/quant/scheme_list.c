/* SPDX-License-Identifier: Apache-2.0
 *
 * scheme_list.c - the list of constructors, and which arguments each accepts.
 *
 * A constructor has the arguments of vLLM's function of that name. Its make() checks names of types that are strings
 * and accepts every torch dtype; so does this. Whether moxie can compute the result is another question: scheme.c.
 * Source: vLLM model_executor/layers/fused_moe/config.py (0.33).
 */
#include "quant/scheme_list.h"

#include <stdio.h>
#include <string.h>

#include "quant/quant.h"

/* ---- the list ---------------------------------------------------------------------------------------- */

/* Initializers as macro arguments: they keep their commas. */
#define IS(...)                                                                                                        \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define ACT      IS
#define WEIGHT   IS
#define COMPUTES IS

#define MOX_SCHEME(...)
#define MOX_SCHEME_DTYPE(id, name, is_string, weight, act) { name, is_string, weight, act },
const mox_scheme_dtype mox_scheme_dtypes[DTYPES] = {
#include "quant/schemes.def"
};
#undef MOX_SCHEME_DTYPE
#undef MOX_SCHEME

#define MOX_SCHEME_DTYPE(...)
#define MOX_SCHEME(name, accepts, act, weight, computes) { #name, accepts, act, weight, computes },
static const mox_scheme_row schemes[] = {
#include "quant/schemes.def"
};
#undef MOX_SCHEME_DTYPE
#undef MOX_SCHEME
#define SCHEMES ((int32_t)(sizeof schemes / sizeof schemes[0]))

const mox_scheme_row *mox_scheme_row_at(int32_t i)
{
    return i >= 0 && i < SCHEMES ? &schemes[i] : NULL;
}

const mox_scheme_row *mox_scheme_row_by_name(const char *name, moxie_error *error)
{
    char names[512] = "", escaped[64];
    size_t used = 0;
    for (int32_t i = 0; i < SCHEMES; i++)
        if (strcmp(schemes[i].name, name) == 0)
            return &schemes[i];
    for (int32_t i = 0; i < SCHEMES && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", schemes[i].name);
    mox_fail(MOXIE_ERR_ARGUMENT, error, "scheme constructor \"%s\" is unknown; there are %s",
             mox_escape(escaped, sizeof escaped, name), names);
    return NULL;
}

/* ---- arguments ----------------------------------------------------------------------------------------- */

bool mox_scheme_has_block(const moxie_scheme_args *args)
{
    return args->block[0] != 0 || args->block[1] != 0;
}

static moxie_status check_accepted(const mox_scheme_row *row, const moxie_scheme_args *args, moxie_error *error)
{
    const struct {
        uint32_t bit;
        bool is_set;
        const char *name;
    } fields[] = {
        { TAKE_PER_TOKEN, args->per_act_token != 0, "per_act_token" },
        { TAKE_PER_OUT_CH, args->per_out_ch != 0, "per_out_ch" },
        { TAKE_BLOCK, mox_scheme_has_block(args), "block" },
        { TAKE_BITS, args->bits != 0, "bits" },
        { TAKE_GROUP, args->group_size != 0, "group_size" },
        { TAKE_TYPES, args->quant_dtype != NULL, "quant_dtype" },
        { TAKE_TYPES, args->weight_dtype != NULL, "weight_dtype" },
        { TAKE_ZERO, args->has_zero != 0, "has_zero" },
        { TAKE_BIAS, args->has_bias != 0, "has_bias" },
        { TAKE_A_SCALE, args->has_a_scale != 0, "has_a_scale" },
        { TAKE_GSCALE, args->has_gscale != 0, "has_gscale" },
        { TAKE_ALPHAS, args->has_alphas != 0, "has_alphas" },
        { TAKE_W_SCALE, args->has_w_scale != 0, "has_w_scale" },
        { TAKE_FORMAT, args->scale_format != 0, "scale_format" },
        { TAKE_LINEAR, args->scale_linear != 0, "scale_linear" },
        { TAKE_PRECISION, args->scale_precision != 0, "scale_precision" },
        { TAKE_TRANSPOSED, args->scale_transposed != 0, "scale_transposed" },
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        MOX_FAIL_IF(fields[i].is_set && !(row->accepts & fields[i].bit), MOXIE_ERR_ARGUMENT, error,
                    "%s takes no %s; leave it zero", row->name, fields[i].name);
    return MOXIE_OK;
}

static moxie_status check_sides(const mox_scheme_row *row, const moxie_scheme_args *args, moxie_error *error)
{
    const struct {
        int32_t sides;
        const char *name;
    } fields[] = {
        { args->has_zero, "has_zero" },     { args->has_bias, "has_bias" },     { args->has_a_scale, "has_a_scale" },
        { args->has_gscale, "has_gscale" }, { args->has_alphas, "has_alphas" }, { args->has_w_scale, "has_w_scale" },
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        MOX_FAIL_IF(fields[i].sides < MOXIE_SCHEME_SIDES_USUAL || fields[i].sides > MOXIE_SCHEME_SIDES_NONE,
                    MOXIE_ERR_ARGUMENT, error, "%s: %s is %d; it is 0 or a moxie_scheme_sides, 1 to %d", row->name,
                    fields[i].name, (int)fields[i].sides, MOXIE_SCHEME_SIDES_NONE);
    return MOXIE_OK;
}

moxie_status mox_scheme_check_args(const mox_scheme_row *row, const moxie_scheme_args *args, moxie_error *error)
{
    MOX_TRY(check_accepted(row, args, error));
    MOX_TRY(check_sides(row, args, error));
    MOX_FAIL_IF(args->block[0] < -1 || args->block[1] < -1, MOXIE_ERR_ARGUMENT, error,
                "%s: block [%d, %d]; an extent is positive, or -1 for all", row->name, (int)args->block[0],
                (int)args->block[1]);
    MOX_FAIL_IF((row->accepts & TAKE_BITS) && args->bits != 4 && args->bits != 8, MOXIE_ERR_ARGUMENT, error,
                "%s: %d bits; there are 4 and 8", row->name, (int)args->bits);
    MOX_FAIL_IF((row->accepts & TAKE_GROUP) && args->group_size != -1 && args->group_size < 1, MOXIE_ERR_ARGUMENT,
                error, "%s: group_size %d; it is positive, or -1 for one group per channel", row->name,
                (int)args->group_size);
    MOX_FAIL_IF(args->scale_format != MOXIE_DTYPE_NONE && !mox_quant_is_scale(args->scale_format), MOXIE_ERR_ARGUMENT,
                error, "%s: scales of dtype %d (%s); a scale is f32, f16, bf16, f8_e4m3 or f8_e8m0", row->name,
                (int)args->scale_format, mox_quant_dtype_name(args->scale_format));
    return MOXIE_OK;
}

/* ---- dtypes -------------------------------------------------------------------------------------------- */

/* The types that vLLM's ocp_mx() accepts; its make() then rejects all but the first three. */
static bool is_ocp_name(const char *name)
{
    static const char *const names[] = { "mxfp4", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp8_e4m3", "mxfp8_e5m2", "mxint8" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Whether vLLM's make() accepts a dtype: every torch dtype, and of the strings those that it lists. For weights: it has
 * a weight description. For activations: it could also be a weight's dtype; this excludes the string "fp8", which only
 * mxfp4_w4a8 uses. */
static bool is_accepted(mox_scheme_dtype_id id, bool weight)
{
    const mox_scheme_dtype *dtype = &mox_scheme_dtypes[id];
    const bool as_weight = !mox_quant_is_none(&dtype->weight), as_act = !mox_quant_is_none(&dtype->act);
    return !dtype->is_string || (as_weight && (weight || as_act));
}

static moxie_status dtype_by_name(const mox_scheme_row *row, const char *name, bool weight, mox_scheme_dtype_id *out,
                                  moxie_error *error)
{
    const char *what = weight ? "weight_dtype" : "quant_dtype";
    const bool ocp = (row->accepts & TAKE_OCP_ONLY) && !weight;
    mox_scheme_dtype_id id = D_NONE;
    while (id < DTYPES && strcmp(mox_scheme_dtypes[id].name, name) != 0)
        id++;
    MOX_FAIL_IF(ocp && !is_ocp_name(name), MOXIE_ERR_ARGUMENT, error,
                "%s: %s \"%s\" is no OCP MX type; use mxfp4, mxfp6_e3m2 or mxfp6_e2m3", row->name, what, name);
    MOX_FAIL_IF(id == DTYPES || !is_accepted(id, weight), MOXIE_ERR_ARGUMENT, error,
                "%s: %s \"%s\" is not admitted; use %s%s", row->name, what, name,
                ocp ? "mxfp4, mxfp6_e3m2 or mxfp6_e2m3"
                    : "float8_e4m3fn or another torch dtype, nvfp4, mxfp4, mxfp6_e3m2, mxfp6_e2m3, mxfp8",
                weight ? " or int4" : "");
    *out = id;
    return MOXIE_OK;
}

moxie_status mox_scheme_resolve_dtypes(const mox_scheme_row *row, const moxie_scheme_args *args,
                                       mox_scheme_dtype_id *act, mox_scheme_dtype_id *weight, moxie_error *error)
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
