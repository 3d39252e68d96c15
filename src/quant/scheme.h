/* SPDX-License-Identifier: Apache-2.0
 *
 * scheme.h - vLLM's quantization configs by name: what the moxie_scheme_* functions of moxie_scheme.h call.
 * Same signatures, same rules. scheme.c builds schemes, scheme_query.c answers questions about them.
 */
#ifndef MOX_QUANT_SCHEME_H
#define MOX_QUANT_SCHEME_H

#include <stdbool.h>

#include <moxie/moxie_scheme.h>

const char *mox_scheme_constructor_at(int32_t i);
moxie_status mox_scheme_make(const char *constructor, const moxie_scheme_args *args, moxie_scheme *out,
                             moxie_error *error);
moxie_status mox_scheme_combine(const moxie_scheme *for_w13, const moxie_scheme *for_w2, moxie_scheme *out,
                                moxie_error *error);
moxie_status mox_scheme_read_scale(const moxie_scheme *scheme, const char *operand, moxie_scheme_scale kind,
                                   int *present, moxie_error *error);
int mox_scheme_predicate(const moxie_scheme *scheme, const char *name);
int mox_scheme_block_shape(const moxie_scheme *scheme, int32_t block[2]);
const char *mox_scheme_config_name(const moxie_scheme *scheme, moxie_dtype dtype);
const char *mox_scheme_ocp_name(const moxie_scheme *scheme, int *unknown_pair);
int mox_scheme_scale_shape(const moxie_scheme *scheme, int64_t max_tokens, int64_t hidden, int64_t shape[2]);
int mox_scheme_batched_scale_shape(const moxie_scheme *scheme, int64_t experts, int64_t max_tokens, int64_t hidden,
                                   int64_t shape[3]);

/* True when a descriptor's group shape is (rows, cols). */
static inline bool mox_scheme_shape_is(const moxie_scheme_desc *desc, int32_t rows, int32_t cols)
{
    return desc->shape[0] == rows && desc->shape[1] == cols;
}

#endif
