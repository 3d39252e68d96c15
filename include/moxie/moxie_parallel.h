/* SPDX-License-Identifier: Apache-2.0
 *
 * moxie_parallel.h - parallel plans on paper: how TP, DP, PCP and EP sizes become ranks of experts, as vLLM does it;
 * where experts lie (slot maps with replicas); how load is balanced (EPLB). Nothing here talks to another rank.
 *
 *     sizes, ranks, flags  -> moxie_parallel_make -> moxie_parallel (vLLM's FusedMoEParallelConfig)
 *     loads of experts     -> moxie_eplb_...      -> moxie_slot_map -> config.slot_map
 *
 * The rules of moxie.h about calls, threads and structs hold here too.
 */
#ifndef MOXIE_PARALLEL_H
#define MOXIE_PARALLEL_H

#include <moxie/moxie.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------- */
/* Parallel configs, by vLLM's names                                                           */
/* ------------------------------------------------------------------------------------------- */

/* ------------------------------------------------------------------------------------------- */
/* Slot maps and expert load balancing                                                         */
/* ------------------------------------------------------------------------------------------- */

/* ------------------------------------------------------------------------------------------- */
/* Tensor parallel slices                                                                      */
/* ------------------------------------------------------------------------------------------- */

/* The rows of every routed expert that rank `tp_rank` of `tp_size` holds: rows [w13[0], w13[1]) of gate and of up each,
 * of the I rows; rows [w2[0], w2[1]) of down, of the H rows; all columns of both. config.tp_size and tp_rank are not
 * read. The ranks' ranges lie end to end. They are as even as units allow: a unit is 16 rows, or with scales that
 * several rows share (blocks of 128 x 128) a common multiple of both. A rank may get no rows. This is moxie's cut,
 * which keeps the bytes of one rank (docs/ranks.md); another engine's is in moxie_prepare.h. Immutable. */
MOXIE_API moxie_status moxie_tp_slice(const moxie_layer_config *config, int32_t tp_size, int32_t tp_rank,
                                      int64_t w13[2], int64_t w2[2], moxie_error *error);

#ifdef __cplusplus
}
#endif

#endif
