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

/* The maps of L layers share ranks, experts, slots and first_slot. They are one array expert_of [L, slots], layer after
 * layer: vLLM's and SGLang's physical_to_logical_map. Map l is a moxie_slot_map whose expert_of is row l.
 *
 * All calls here compute from their arguments alone, with the same result on every machine. Immutable, but for those of
 * a moxie_load_window. */

/* The most slots of one map. */
#define MOXIE_MAX_SLOTS 65536

/* The first slot of every rank when P slots are shared out evenly: P / ranks each, and one more on the first P % ranks.
 * first_slot [ranks + 1]. */
MOXIE_API moxie_status moxie_slot_map_first_slots(int32_t slots, int32_t ranks, int32_t *first_slot,
                                                  moxie_error *error);

/* The map to begin with, as vLLM's: slots, shared out evenly, hold experts 0 to E - 1 and again from 0 on.
 *     LINEAR        in the order of the slots                     E 4, P 6, 2 ranks: 0 1 2 | 3 0 1
 *     ROUND_ROBIN   one slot of every rank after the other                           0 2 0 | 1 3 1
 * expert_of [slots], first_slot [ranks + 1]. With P = E they are moxie_expert_map()'s. */
MOXIE_API moxie_status moxie_slot_map_default(moxie_expert_map_kind kind, int32_t experts, int32_t slots, int32_t ranks,
                                              int32_t *expert_of, int32_t *first_slot, moxie_error *error);

/* Whether a map keeps the rules of moxie.h; the text names the first slot, rank or expert that breaks one. */
MOXIE_API moxie_status moxie_slot_map_check(const moxie_slot_map *map, moxie_error *error);

/* The replicas of every expert: counts [E], and slots of [E, width] in ascending order, -1 behind the last (vLLM's
 * logical_to_physical_map). Either may be NULL. A width below the largest count is MOXIE_ERR_ARGUMENT. */
MOXIE_API moxie_status moxie_slot_map_replicas(const moxie_slot_map *map, int32_t width, int32_t *counts,
                                               int32_t *slots, moxie_error *error);

/* Which slot serves each choice of T tokens that rank `source` owns; -1 for ids outside [0, E). An expert on `source`
 * itself is served there. Else number (first_token + t + j) % n of the n ranks that have it, in ascending order, serves
 * choice j of token t. A rank with an expert twice counts once, and its lowest slot serves. first_token: the number of
 * token 0 in the whole batch. source -1: no rank is near. ids, slots [T,K]; they may be the same array. Bits of results
 * do not depend on it, loads do. */
MOXIE_API moxie_status moxie_slot_map_serve(const moxie_slot_map *map, int32_t source, int64_t first_token,
                                            const int32_t *ids, int64_t tokens, int64_t top_k, int32_t *slots,
                                            moxie_error *error);

/* Each rank's load when the replicas of an expert share its load equally: loads [E], rank_loads [ranks]. */
MOXIE_API moxie_status moxie_slot_map_loads(const moxie_slot_map *map, const double *loads, double *rank_loads,
                                            moxie_error *error);

/* mean / max of the ranks' loads (vLLM's balancedness): 1 is perfect, 1 / ranks the worst; 1 when all are zero. NaN for
 * ranks < 1 or NULL. */
MOXIE_API double moxie_balancedness(const double *rank_loads, int32_t ranks);

/* What is balanced. */
typedef struct moxie_eplb_config {
    uint32_t struct_size;
    int32_t layers, experts, slots, ranks; /* slots of all ranks, at least `experts`, shared out evenly */
    int32_t nodes;                         /* each of near ranks; the first nodes get one rank more; 0: 1 */
    int32_t groups;                        /* equal runs of experts whose tokens go together; 0: 1 */
    int32_t distinct; /* 1: a rank gets an expert twice only where no exchange avoids it; 0: as DeepSeek's */
} moxie_eplb_config;
#define MOXIE_EPLB_CONFIG_INIT MOXIE_INIT(moxie_eplb_config)

/* DeepSeek's EPLB, from the loads of experts, [layers, experts], each finite and not negative.
 *
 * With groups % nodes == 0 (hierarchical): groups are packed onto nodes, experts replicated within each node, replicas
 * packed onto its ranks. Else (global) the last two steps, over all ranks.
 *     replicate   one more replica for the expert with the largest load / replicas, until P
 *     pack        heaviest first, each onto the lightest rank with room
 * Of equals, the first one is taken. Computed in double precision.
 *
 * Where the original takes the sizes (experts % groups, ranks % nodes, slots % ranks are 0) and no two loads tie, the
 * maps are its own, unless `distinct` is set. Other sizes: the first groups, nodes and ranks get one more; a node's
 * load counts per rank; exchanges of two replicas follow while they lower the largest load of a rank; a slot stays
 * empty where any replica would raise it. Where groups do not fit the nodes' slots, the layer is global.
 *
 * expert_of [layers, slots]; first_slot [ranks + 1]; hierarchical [layers] or NULL gets 1 where a layer is. */
MOXIE_API moxie_status moxie_eplb_balance(const moxie_eplb_config *config, const double *loads, int32_t *expert_of,
                                          int32_t *first_slot, int32_t *hierarchical, moxie_error *error);

/* Changes the order within each rank's slots of `expert_of` so that an expert that stays on its rank keeps its slot;
 * others fill the free slots in their order (vLLM's preserve_intragpu_slots). old, expert_of [layers, slots]. */
MOXIE_API moxie_status moxie_eplb_keep_slots(int32_t layers, int32_t slots, int32_t ranks, const int32_t *first_slot,
                                             const int32_t *old, int32_t *expert_of, moxie_error *error);

typedef struct moxie_eplb_moves {
    uint32_t struct_size;
    int64_t moves;  /* slots that got another expert; a slot that became empty does not count */
    int64_t remote; /* of these: slots of ranks that did not have the expert; its record comes from another rank */
    int64_t left;   /* slots that still differ from the target */
} moxie_eplb_moves;
#define MOXIE_EPLB_MOVES_INIT MOXIE_INIT(moxie_eplb_moves)

/* One step of maps towards `target`, with at most max_moves moves over all layers; 0: all of them. expert_of and target
 * [layers, slots] are valid maps of `config`'s sizes and shares; expert_of is changed in place and stays valid.
 *
 * A move overwrites a replica that is not the expert's last, or two slots exchange experts, which is two moves; so
 * max_moves 1 is MOXIE_ERR_ARGUMENT. The move that lowers a layer's largest load of a rank most comes first; of equals,
 * the one that lowers the sum of squares of the ranks' loads most, then the lowest layer and slot. Repeated steps reach
 * the target. Where nothing differs, nothing moves. loads as above. `moves` may be NULL. */
MOXIE_API moxie_status moxie_eplb_step(const moxie_eplb_config *config, const double *loads, const int32_t *target,
                                       int64_t max_moves, int32_t *expert_of, moxie_eplb_moves *moves,
                                       moxie_error *error);

/* Counts the tokens of every expert over the last steps of this rank's own runs. Sums over ranks are the caller's: once
 * a rebalance, for example by moxie_comm_allreduce(). One-thread-at-a-time. */
typedef struct moxie_load_window moxie_load_window;

/* A window of the last `steps` ended steps and the current one. It takes 4 (steps + 1) layers experts bytes. */
MOXIE_API moxie_status moxie_load_window_create(int32_t layers, int32_t experts, int32_t steps, moxie_load_window **out,
                                                moxie_error *error);
MOXIE_API void moxie_load_window_destroy(moxie_load_window *window);
/* Counts ids [T,K] of a layer's run in the current step; ids outside [0, E) are skipped. Allocates nothing. A layer
 * takes up to 2^32 - 1 ids in a step: past that MOXIE_ERR_ARGUMENT, and nothing is counted. */
MOXIE_API moxie_status moxie_load_window_add(moxie_load_window *window, int32_t layer, const int32_t *ids,
                                             int64_t tokens, int64_t top_k, moxie_error *error);
/* Ends the step; the oldest leaves a full window. Runs that are no real work (warm-up, padding) need no step. */
MOXIE_API moxie_status moxie_load_window_end_step(moxie_load_window *window, moxie_error *error);
/* counts [layers, experts] over the whole window with the current step; *steps (may be NULL): ended steps in it. */
MOXIE_API moxie_status moxie_load_window_counts(const moxie_load_window *window, int64_t *counts, int32_t *steps,
                                                moxie_error *error);

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
