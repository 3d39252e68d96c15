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

/* What vLLM's ParallelConfig says about a MoE layer, and this device's ranks in its groups. Source: vLLM 0.33,
 * config/parallel.py and fused_moe/config.py. */
typedef struct moxie_parallel_args {
    uint32_t struct_size;
    int32_t tp_size, pcp_size, dp_size; /* tensor, prefill context and data parallel; 0 counts as 1 */
    int32_t tp_rank, pcp_rank, dp_rank; /* below the sizes */
    int32_t sp_size;                    /* 0: as vLLM's use_sequence_parallel_moe says, tp_size or 1 */
    int32_t enable_expert_parallel, enable_eplb;
    const char *all2all_backend; /* NULL: "allgather_reducescatter" */
} moxie_parallel_args;
#define MOXIE_PARALLEL_ARGS_INIT MOXIE_INIT(moxie_parallel_args)

/* vLLM's FusedMoEParallelConfig. The string is static. */
typedef struct moxie_parallel {
    uint32_t struct_size;
    int32_t tp_size, tp_rank; /* devices that cut every expert: all of them without use_ep, else 1 */
    int32_t pcp_size, pcp_rank, dp_size, dp_rank;
    int32_t ep_size, ep_rank; /* devices that share out the experts: all of them with use_ep, else 1 */
    int32_t sp_size;
    int32_t use_ep, enable_eplb;
    const char *all2all_backend; /* as vLLM keeps it: "naive" and "pplx" became "allgather_reducescatter" */
} moxie_parallel;
#define MOXIE_PARALLEL_INIT MOXIE_INIT(moxie_parallel)

/* vLLM's make(). N = dp_size pcp_size tp_size devices; this one is (dp_rank pcp_size + pcp_rank) tp_size + tp_rank.
 * With enable_expert_parallel and N > 1 they become ep_size and ep_rank, else tp_size and tp_rank. MOXIE_ERR_ARGUMENT
 * for sizes below 0, ranks outside their sizes, more than MOXIE_MAX_RANKS devices, an unknown back end. Immutable. */
MOXIE_API moxie_status moxie_parallel_make(const moxie_parallel_args *args, moxie_parallel *out, moxie_error *error);
/* vLLM's make_no_parallel(). Immutable. */
MOXIE_API moxie_status moxie_parallel_make_no_parallel(moxie_parallel *out, moxie_error *error);

/* Every const moxie_parallel * was filled by a call above. */

/* vLLM's predicates by their names: is_sequence_parallel, use_all2all_kernels, use_deepep_ht_kernels, ... Older
 * releases have use_naive_all2all_kernels and use_fi_all2allv_kernels. Of ParallelConfig are use_all2all,
 * use_batched_dp_moe and use_sequence_parallel_moe. 0 or 1; -1 for an unknown name or a wrong struct. Immutable. */
MOXIE_API int moxie_parallel_predicate(const moxie_parallel *parallel, const char *name);
/* Name of predicate i; NULL past the last. Static. Immutable. */
MOXIE_API const char *moxie_parallel_predicate_at(int32_t i);

/* How tokens and results travel in moxie.
 *     LOCAL       not at all: there is one device
 *     SHARDED     a token's row goes to each rank that has one of its experts; each choice's result comes back
 *     CAPACITY    the same with fixed room instead of counts, for small batches: options.exchange_capacity. The results
 *                 are the same bytes
 *     REPLICATED  every rank has all rows; each choice's result goes to the token's owner, whose sums all ranks get */
typedef enum moxie_exchange {
    MOXIE_EXCHANGE_LOCAL = 0,
    MOXIE_EXCHANGE_SHARDED = 1,
    MOXIE_EXCHANGE_CAPACITY = 2,
    MOXIE_EXCHANGE_REPLICATED = 3
} moxie_exchange;

/* One of vLLM's all2all back ends. The strings are static. */
typedef struct moxie_all2all_backend {
    uint32_t struct_size;
    int32_t exchange; /* moxie_exchange that takes its place where tokens are sharded */
    const char *name;
    const char *vllm_name; /* what vLLM 0.33 makes of the name; NULL: it does not know the name */
    const char *differs;   /* a sentence: what vLLM computes or moves otherwise */
} moxie_all2all_backend;
#define MOXIE_ALL2ALL_BACKEND_INIT MOXIE_INIT(moxie_all2all_backend)

/* Back end i; MOXIE_ERR_ARGUMENT past the last. Immutable. */
MOXIE_API moxie_status moxie_all2all_backend_at(int32_t i, moxie_all2all_backend *out, moxie_error *error);

/* Where vLLM would run: some of its checks ask for it. */
typedef enum moxie_vllm_platform {
    MOXIE_VLLM_CUDA = 0,
    MOXIE_VLLM_ROCM = 1,
    MOXIE_VLLM_XPU = 2,
    MOXIE_VLLM_CPU = 3
} moxie_vllm_platform;

/* What vLLM's FusedMoEConfig is made from, as far as it checks or derives something; and one field of moxie's own. */
typedef struct moxie_fused_moe_args {
    uint32_t struct_size;
    int32_t num_logical_experts, num_redundant_experts, experts_per_token;
    int32_t hidden_dim, intermediate_size;
    int32_t num_expert_group;                         /* of the routing; 0: none */
    int32_t max_num_tokens;                           /* 0: not given, which is 256 */
    int32_t in_dtype, router_logits_dtype;            /* moxie_dtype; router_logits_dtype 0: in_dtype */
    int32_t hidden_dim_unpadded;                      /* 0: hidden_dim */
    int32_t intermediate_size_per_partition_unpadded; /* 0: intermediate_size_per_partition */
    int32_t platform;                                 /* moxie_vllm_platform */
    int32_t aiter_fmoe,
        aiter_shared_expert;               /* with ROCM: its AITER runs the experts; and the shared expert with them */
    int32_t defer_moe_finalize;            /* the layer's consumer asked for it */
    const char *activation;                /* vLLM's name; NULL: "silu" */
    const char *expert_placement_strategy; /* "linear" or "round_robin"; NULL: "linear" */
    /* moxie's own, for moxie_parallel_plan alone: with use_ep, so many ranks cut each expert; a divisor of ep_size. 0
     * and 1: each expert is whole on a rank, as in vLLM. */
    int32_t tp_in_ep;
} moxie_fused_moe_args;
#define MOXIE_FUSED_MOE_ARGS_INIT MOXIE_INIT(moxie_fused_moe_args)

/* What vLLM's FusedMoEConfig holds then. The string is static. */
typedef struct moxie_fused_moe {
    uint32_t struct_size;
    int32_t num_experts; /* with the redundant ones */
    int32_t num_local_experts, num_logical_experts;
    int32_t intermediate_size_per_partition, intermediate_size_per_partition_unpadded, hidden_dim_unpadded;
    int32_t is_act_and_mul, w13_num_shards; /* a gate and up, 2; or up alone, 1 */
    int32_t max_num_tokens, router_logits_dtype;
    int32_t use_deferred_moe_finalize;
    int32_t placement;            /* moxie_expert_map_kind that vLLM uses */
    const char *placement_reason; /* a sentence: why, when it is not what was asked for; else "" */
} moxie_fused_moe;
#define MOXIE_FUSED_MOE_INIT MOXIE_INIT(moxie_fused_moe)

/* The checks that vLLM does for this layer: those of ParallelConfig, FusedMoEConfig and of the layer around them that
 * read these fields. MOXIE_ERR_UNSUPPORTED where vLLM refuses: the text says its rule, and what moxie does instead.
 * MOXIE_ERR_ARGUMENT for what is no layer: sizes below 1, unknown names. Immutable. */
MOXIE_API moxie_status moxie_fused_moe_check(const moxie_parallel *parallel, const moxie_fused_moe_args *args,
                                             moxie_fused_moe *out, moxie_error *error);
/* placement and placement_reason alone, also where vLLM refuses the rest. Either may be NULL. Immutable. */
MOXIE_API moxie_status moxie_parallel_placement(const moxie_parallel *parallel, const moxie_fused_moe_args *args,
                                                int32_t *placement, const char **reason, moxie_error *error);

/* What moxie makes of it: fields of moxie_layer_config and moxie_options for this device. The strings are static. */
typedef struct moxie_parallel_layer {
    uint32_t struct_size;
    int32_t ranks, rank;                        /* of the comm */
    int32_t ep_size, ep_rank, tp_size, tp_rank; /* of moxie_layer_config; rank = ep_rank tp_size + tp_rank */
    int32_t ep_map;                             /* vLLM's placement; a layer of moxie's runs either one anywhere */
    int32_t slots;        /* of all ranks: logical and redundant experts. With redundant ones set config.slot_map too */
    int32_t token_layout; /* of moxie_options */
    int32_t token_parts, token_part; /* see moxie_parallel_plan */
    int32_t exchange;                /* moxie_exchange */
    int32_t vllm_accepts;            /* 0: vLLM refuses this layer (moxie_fused_moe_check says why) */
    const char *differs;             /* a sentence: what vLLM computes otherwise, or "" */
} moxie_parallel_layer;
#define MOXIE_PARALLEL_LAYER_INIT MOXIE_INIT(moxie_parallel_layer)

/* moxie takes more than vLLM: sizes that do not divide, EPLB with uneven shares, every number format, experts cut
 * inside an expert parallel group, any back end on any machine.
 *
 * token_parts: the ranks of one tensor parallel group have the same tokens, those of other groups have others. Such a
 * rank runs a part of its group's T tokens: [token_part T / token_parts, (token_part + 1) T / token_parts). Afterwards
 * the engine gathers the group's outputs, as it does with sequence parallel layers. 1: all tokens that the rank has.
 *
 * MOXIE_ERR_UNSUPPORTED for redundant experts that no map can hold (an expert has at most one slot on a rank), and
 * tp_in_ep that is no divisor. Immutable. */
MOXIE_API moxie_status moxie_parallel_plan(const moxie_parallel *parallel, const moxie_fused_moe_args *args,
                                           moxie_parallel_layer *out, moxie_error *error);

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

/* The map without the `count` ranks of `dead`, each named once: the others keep their order and their slots. Experts
 * that were on dead ranks alone go into empty slots, else they replace replicas, else their rank gets a new slot behind
 * its others; those with the largest loads first, each where it leaves its rank's load lowest. loads [E], or NULL: all
 * are equal. expert_of has room for map->slots, and *slots of them are used; first_slot [map->ranks + 1 - count].
 * Neither may be an array of `map`. Give the new map a new generation. MOXIE_ERR_ARGUMENT when no rank is left. */
MOXIE_API moxie_status moxie_slot_map_without(const moxie_slot_map *map, const int32_t *dead, int32_t count,
                                              const double *loads, int32_t *expert_of, int32_t *first_slot,
                                              int32_t *slots, moxie_error *error);

/* What is balanced. */
typedef struct moxie_eplb_config {
    uint32_t struct_size;
    int32_t layers, experts, slots, ranks; /* slots of all ranks, at least `experts`, shared out evenly */
    int32_t nodes;                         /* each of near ranks; the first nodes get one rank more; 0: 1 */
    int32_t groups;                        /* equal runs of experts whose tokens go together; 0: 1 */
    int32_t distinct; /* 1: a rank gets an expert twice only where no exchange avoids it; 0: as DeepSeek's */
} moxie_eplb_config;
#define MOXIE_EPLB_CONFIG_INIT MOXIE_INIT(moxie_eplb_config)

/* DeepSeek's EPLB, from the loads of experts, [layers, experts], each from 0 to 1e100.
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

/* The same in either mode, for ranks on the host. In fast mode a layer may be cut so that a rank holds all rows of
 * down, and of its columns those of the rank's rows of gate: then *columns becomes 1, and `w2` gets columns [w2[0],
 * w2[1]). Else *columns becomes 0. Immutable. */
MOXIE_API moxie_status moxie_tp_slice_in_mode(const moxie_layer_config *config, moxie_mode mode, int32_t tp_size,
                                              int32_t tp_rank, int64_t w13[2], int64_t w2[2], int32_t *columns,
                                              moxie_error *error);

/* The same of the shared expert, of ranks that exchange rows (options.comm): in both modes some rows of its matrices;
 * or all, where each rank computes it for its own tokens: because tp_size is 1, because one activation scale covers
 * the whole batch, or on a GPU (`on_device`) because there are fewer units of gate rows than ranks. bytes[0]: what this
 * rank has of it, bytes[1]: all of it, as records in layout rowmajor. Without a shared expert all are 0. Immutable. */
MOXIE_API moxie_status moxie_tp_slice_shared(const moxie_layer_config *config, int32_t on_device, int32_t tp_size,
                                             int32_t tp_rank, int64_t w13[2], int64_t w2[2], uint64_t bytes[2],
                                             moxie_error *error);

#ifdef __cplusplus
}
#endif

#endif
