/* SPDX-License-Identifier: Apache-2.0
 *
 * api_scheme.c - the functions of moxie_scheme.h.
 *
 * Each checks its pointers and calls src/quant. A scheme may come from a program with an older or a newer header, so it
 * is read into this library's struct first.
 */
#include <moxie/moxie_scheme.h>

#include "api/api_need.h"
#include "base/cpu_features.h"
#include "layer/config/reserved.h"
#include "layer/config/struct_size.h"
#include "quant/quant.h"
#include "quant/scheme.h"

const char *moxie_scheme_constructor_at(int32_t i)
{
    return mox_scheme_constructor_at(i);
}

/* ---- schemes ------------------------------------------------------------------------------------- */

static moxie_status check_desc(const moxie_scheme_desc *desc, const char *where, moxie_error *error)
{
    MOX_RESERVED(moxie_scheme_desc, desc, where, error);
    return MOXIE_OK;
}

/* Reads a scheme that moxie_scheme_make filled, for a program with this header or an older one. */
static moxie_status read_scheme(const moxie_scheme *scheme, moxie_scheme *out, moxie_error *error)
{
    MOX_TRY(mox_struct_read(scheme, out, MOX_STRUCT(moxie_scheme), error));
    MOX_TRY(check_desc(&out->a1, "scheme.a1", error));
    MOX_TRY(check_desc(&out->a2, "scheme.a2", error));
    MOX_TRY(check_desc(&out->w1, "scheme.w1", error));
    MOX_TRY(check_desc(&out->w2, "scheme.w2", error));
    MOX_TRY(mox_reserved_quant(&out->a13, "scheme.a13", error));
    MOX_TRY(mox_reserved_quant(&out->act2, "scheme.act2", error));
    MOX_TRY(mox_reserved_quant(&out->w13, "scheme.w13", error));
    return mox_reserved_quant(&out->weight2, "scheme.weight2", error);
}

/* The same where a call has no error to fill; NULL fails too. */
static bool known_scheme(const moxie_scheme *scheme, moxie_scheme *out)
{
    return scheme != NULL && read_scheme(scheme, out, NULL) == MOXIE_OK;
}

moxie_status moxie_scheme_make(const char *constructor, const moxie_scheme_args *args, moxie_scheme *out,
                               moxie_error *error)
{
    moxie_scheme_args read;
    moxie_scheme made;
    NEED(constructor);
    NEED(args);
    NEED(out);
    MOX_TRY(mox_struct_check(out, MOX_STRUCT(moxie_scheme), error));
    MOX_TRY(mox_struct_read(args, &read, MOX_STRUCT(moxie_scheme_args), error));
    MOX_TRY(mox_scheme_make(constructor, &read, &made, error));
    mox_struct_write(&made, out, MOX_STRUCT(moxie_scheme));
    return MOXIE_OK;
}

moxie_status moxie_scheme_combine(const moxie_scheme *for_w13, const moxie_scheme *for_w2, moxie_scheme *out,
                                  moxie_error *error)
{
    moxie_scheme first, second, made;
    NEED(for_w13);
    NEED(for_w2);
    NEED(out);
    MOX_TRY(mox_struct_check(out, MOX_STRUCT(moxie_scheme), error));
    MOX_TRY(read_scheme(for_w13, &first, error));
    MOX_TRY(read_scheme(for_w2, &second, error));
    MOX_TRY(mox_scheme_combine(&first, &second, &made, error));
    mox_struct_write(&made, out, MOX_STRUCT(moxie_scheme));
    return MOXIE_OK;
}

moxie_status moxie_scheme_read_scale(const moxie_scheme *scheme, const char *tensor, moxie_scheme_scale kind,
                                     int *present, moxie_error *error)
{
    moxie_scheme known;
    NEED(scheme);
    NEED(tensor);
    NEED(present);
    MOX_TRY(read_scheme(scheme, &known, error));
    return mox_scheme_read_scale(&known, tensor, kind, present, error);
}

int moxie_scheme_predicate(const moxie_scheme *scheme, const char *name)
{
    moxie_scheme known;
    return name != NULL && known_scheme(scheme, &known) ? mox_scheme_predicate(&known, name) : -1;
}

int moxie_scheme_block_shape(const moxie_scheme *scheme, int32_t block[2])
{
    moxie_scheme known;
    return block != NULL && known_scheme(scheme, &known) ? mox_scheme_block_shape(&known, block) : 0;
}

const char *moxie_scheme_config_name(const moxie_scheme *scheme, moxie_dtype dtype)
{
    moxie_scheme known;
    return known_scheme(scheme, &known) ? mox_scheme_config_name(&known, dtype) : NULL;
}

const char *moxie_scheme_ocp_name(const moxie_scheme *scheme, int *unknown_pair)
{
    moxie_scheme known;
    return known_scheme(scheme, &known) ? mox_scheme_ocp_name(&known, unknown_pair) : NULL;
}

int moxie_scheme_scale_shape(const moxie_scheme *scheme, int64_t max_tokens, int64_t hidden, int64_t shape[2])
{
    moxie_scheme known;
    return shape != NULL && known_scheme(scheme, &known) ? mox_scheme_scale_shape(&known, max_tokens, hidden, shape)
                                                         : 0;
}

int moxie_scheme_batched_scale_shape(const moxie_scheme *scheme, int64_t experts, int64_t max_tokens, int64_t hidden,
                                     int64_t shape[3])
{
    moxie_scheme known;
    return shape != NULL && known_scheme(scheme, &known)
               ? mox_scheme_batched_scale_shape(&known, experts, max_tokens, hidden, shape)
               : 0;
}

/* ---- quantizers ---------------------------------------------------------------------------------- */

moxie_status moxie_quantize_activations(const moxie_quant *quant, const float *x, int64_t rows, int64_t cols,
                                        float static_scale, uint8_t *codes, float *scales, moxie_error *error)
{
    NEED(quant);
    MOX_TRY(mox_reserved_quant(quant, "quant", error));
    MOX_TRY(mox_cpu_check_cap(error));
    return mox_quantize_activations(quant, x, rows, cols, static_scale, codes, scales, error);
}
