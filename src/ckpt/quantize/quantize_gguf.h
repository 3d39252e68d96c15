/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_gguf.h - a checkpoint with its routed experts in block types, as one GGUF file.
 *
 *     directory   its MoE layers: experts, router, biases, shared expert. Nothing else is converted
 *     .gguf file  all of it: metadata and other tensors byte for byte
 *       -> OUT.partial: a sealed file for each layer -> OUT
 */
#ifndef MOX_CKPT_QUANTIZE_GGUF_H
#define MOX_CKPT_QUANTIZE_GGUF_H

#include <moxie/moxie_quantize.h>

#include "base/executor.h"
#include "ckpt/gguf/gguf_recipe.h"

/* What mox_quantize_gguf() refuses before it opens the importance matrix. */
moxie_status mox_quantize_gguf_check(const char *source, const char *out, const mox_gguf_recipe *recipe,
                                     const moxie_quantize_options *options, moxie_error *error);
moxie_status mox_quantize_gguf(const char *source, const char *out, const mox_gguf_recipe *recipe,
                               const moxie_quantize_options *options, const moxie_executor *executor,
                               moxie_quantize_summary *summary, moxie_error *error);

#endif
