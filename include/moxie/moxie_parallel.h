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

/* vLLM's predicates by their names: is_sequence_parallel, use_all2all_kernels, use_deepep_ht_kernels, ... Some names
 * are of older releases (use_naive_all2all_kernels, use_fi_all2allv_kernels), some of ParallelConfig (use_all2all,
 * use_batched_dp_moe, use_sequence_parallel_moe). 0 or 1; -1 for an unknown name or a wrong struct. Immutable. */
MOXIE_API int moxie_parallel_predicate(const moxie_parallel *parallel, const char *name);
/* Name of predicate i; NULL past the last. Static. Immutable. */
MOXIE_API const char *moxie_parallel_predicate_at(int32_t i);

/* How tokens and results travel in moxie.
 *     LOCAL       not at all: there is one device
 *     SHARDED     a token's row goes to each rank that has one of its experts; each choice's result comes back
 *     CAPACITY    the same with fixed room instead of counts, for small batches; until a plan has it, SHARDED runs: the
 *                 results are the same bytes
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

#ifdef __cplusplus
}
#endif

#endif
