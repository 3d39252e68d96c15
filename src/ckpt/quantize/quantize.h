/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize.h - a checkpoint with its routed experts in another format.
 *
 *     model -> for each layer: quantize_layer.c (which tensors), quantize_experts.c (one expert a task)
 *                              -> quantize_matrix.c (codes, scales) -> quantize_store.c (bytes)
 *           -> quantize_rest.c: tensors, configuration, other files
 *     all of it in quantize_dir.c's directory
 */
#ifndef MOX_CKPT_QUANTIZE_H
#define MOX_CKPT_QUANTIZE_H

#include <moxie/moxie_quantize.h>

#include "base/executor.h"

/* moxie_quantize_check() */
moxie_status mox_quantize_check(const char *dir, const char *out, const moxie_quantize_options *options,
                                moxie_error *error);
/* moxie_quantize() with the threads of `executor`. */
moxie_status mox_quantize(const char *dir, const char *out, const moxie_quantize_options *options,
                          const moxie_executor *executor, moxie_quantize_summary *summary, moxie_error *error);

#endif
