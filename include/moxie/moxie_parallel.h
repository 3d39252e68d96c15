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

#ifdef __cplusplus
}
#endif

#endif
