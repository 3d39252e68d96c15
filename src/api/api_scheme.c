/* SPDX-License-Identifier: Apache-2.0
 *
 * api_scheme.c - the functions of moxie_scheme.h: each checks its pointers and calls down.
 */
#include <moxie/moxie_scheme.h>

#include "base/cpu_features.h"
#include "layer/config/struct_size.h"
#include "quant/quant.h"
#include "quant/scheme.h"

#define NEED(pointer) MOX_FAIL_IF((pointer) == NULL, MOXIE_ERR_ARGUMENT, error, "%s: %s is NULL", __func__, #pointer)

const char *moxie_scheme_constructor_at(int32_t i)
{
    return mox_scheme_constructor_at(i);
}

moxie_status moxie_scheme_make(const char *constructor, const moxie_scheme_args *args, moxie_scheme *out,
                               moxie_error *error)
{
    moxie_scheme_args read;
    NEED(constructor);
    NEED(args);
    NEED(out);
    MOX_TRY(mox_struct_read(args, &read, MOX_STRUCT(moxie_scheme_args), error));
    return mox_scheme_make(constructor, &read, out, error);
}

moxie_status moxie_scheme_combine(const moxie_scheme *for_w13, const moxie_scheme *for_w2, moxie_scheme *out,
                                  moxie_error *error)
{
    NEED(for_w13);
    NEED(for_w2);
    NEED(out);
    return mox_scheme_combine(for_w13, for_w2, out, error);
}

moxie_status moxie_scheme_read_scale(const moxie_scheme *scheme, const char *operand, moxie_scheme_scale kind,
                                     int *present, moxie_error *error)
{
    NEED(scheme);
    NEED(operand);
    NEED(present);
    return mox_scheme_read_scale(scheme, operand, kind, present, error);
}

int moxie_scheme_predicate(const moxie_scheme *scheme, const char *name)
{
    return scheme != NULL && name != NULL ? mox_scheme_predicate(scheme, name) : -1;
}

int moxie_scheme_block_shape(const moxie_scheme *scheme, int32_t block[2])
{
    return scheme != NULL && block != NULL ? mox_scheme_block_shape(scheme, block) : 0;
}

const char *moxie_scheme_config_name(const moxie_scheme *scheme, moxie_dtype dtype)
{
    return scheme != NULL ? mox_scheme_config_name(scheme, dtype) : NULL;
}

const char *moxie_scheme_ocp_name(const moxie_scheme *scheme, int *unknown_pair)
{
    return scheme != NULL ? mox_scheme_ocp_name(scheme, unknown_pair) : NULL;
}

int moxie_scheme_scale_shape(const moxie_scheme *scheme, int64_t max_tokens, int64_t hidden, int64_t shape[2])
{
    return scheme != NULL && shape != NULL ? mox_scheme_scale_shape(scheme, max_tokens, hidden, shape) : 0;
}

int moxie_scheme_batched_scale_shape(const moxie_scheme *scheme, int64_t experts, int64_t max_tokens, int64_t hidden,
                                     int64_t shape[3])
{
    return scheme != NULL && shape != NULL ? mox_scheme_batched_scale_shape(scheme, experts, max_tokens, hidden, shape)
                                           : 0;
}

moxie_status moxie_quantize_activations(const moxie_quant *quant, const float *x, int64_t rows, int64_t cols,
                                        float given, uint8_t *codes, float *scales, moxie_error *error)
{
    NEED(quant);
    MOX_TRY(mox_cpu_check_cap(error));
    return mox_quantize_activations(quant, x, rows, cols, given, codes, scales, error);
}
