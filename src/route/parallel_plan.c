/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel_plan.c - from vLLM's parallel config to the fields of moxie_layer_config and moxie_options.
 *
 *     tokens        dp or pcp or sequence parallel: SHARDED, each rank has its own         else: REPLICATED
 *     experts       use_ep: shared out over ep_size ranks, or over ep_size / tp_in_ep groups of ranks that cut them
 *                   else: all ranks cut every expert
 *     rank          vLLM's flattened one; neighbours cut the same expert, so rank = ep_rank tp_size + tp_rank
 *
 * Where ranks of one engine have the same tokens and other engines have others, neither layout fits. Such a rank runs a
 * part of its engine's tokens, as sequence parallel layers do.
 */
#include "route/parallel.h"

static const char whole_rows[] = "vLLM cuts W2 along its columns and adds the ranks' partial sums in the model's type; "
                                 "moxie cuts its rows, so every "
                                 "dot product is whole on one rank";
static const char rank_sums[] =
    "vLLM adds one partial sum a rank, in the model's type, by an all-reduce; moxie adds a token's choices in fp32 in "
    "their order, and rounds once";

static const char *what_differs(const moxie_parallel *p, bool sharded)
{
    if (mox_parallel_ranks(p) == 1)
        return "";
    if (!p->use_ep)
        return whole_rows;
    return sharded ? mox_all2all_find(p->all2all_backend)->differs : rank_sums;
}

static int32_t exchange_of(const moxie_parallel *p, bool sharded)
{
    if (mox_parallel_ranks(p) == 1)
        return MOXIE_EXCHANGE_LOCAL;
    if (!sharded)
        return MOXIE_EXCHANGE_REPLICATED;
    return p->use_ep ? mox_all2all_find(p->all2all_backend)->exchange : MOXIE_EXCHANGE_SHARDED;
}

static moxie_status split_ranks(const moxie_parallel *p, const moxie_fused_moe_args *args, moxie_parallel_layer *out,
                                moxie_error *error)
{
    const int32_t cut = args->tp_in_ep > 1 ? args->tp_in_ep : 1;
    MOX_FAIL_IF(cut > 1 && !p->use_ep, MOXIE_ERR_UNSUPPORTED, error,
                "tp_in_ep is %d without expert parallelism, where all %d ranks cut each expert; leave it 0, or enable "
                "expert parallelism",
                (int)cut, (int)mox_parallel_ranks(p));
    MOX_FAIL_IF(p->ep_size % cut != 0, MOXIE_ERR_UNSUPPORTED, error,
                "tp_in_ep is %d, which does not divide %d ranks; give a divisor", (int)cut, (int)p->ep_size);
    out->ranks = mox_parallel_ranks(p);
    out->rank = mox_parallel_rank(p);
    out->tp_size = p->use_ep ? cut : out->ranks;
    out->tp_rank = out->rank % out->tp_size;
    out->ep_size = out->ranks / out->tp_size;
    out->ep_rank = out->rank / out->tp_size;
    return MOXIE_OK;
}

static moxie_status place_experts(const moxie_parallel *p, const moxie_fused_moe_args *args, moxie_parallel_layer *out,
                                  moxie_error *error)
{
    const int64_t slots = (int64_t)args->num_logical_experts + args->num_redundant_experts;
    const char *reason;
    MOX_FAIL_IF(slots > (int64_t)args->num_logical_experts * out->ep_size, MOXIE_ERR_UNSUPPORTED, error,
                "%d redundant experts: %d experts on %d expert parallel ranks have room for %lld, as an expert has at "
                "most one slot on a rank",
                (int)args->num_redundant_experts, (int)args->num_logical_experts, (int)out->ep_size,
                (long long)args->num_logical_experts * (out->ep_size - 1));
    MOX_FAIL_IF(slots > MOXIE_MAX_SLOTS, MOXIE_ERR_UNSUPPORTED, error,
                "%d experts and %d redundant ones need %lld slots; a slot map has at most %d: ask for fewer redundant "
                "experts",
                (int)args->num_logical_experts, (int)args->num_redundant_experts, (long long)slots, MOXIE_MAX_SLOTS);
    out->slots = (int32_t)slots;
    return mox_parallel_placement(p, args, &out->ep_map, &reason, error);
}

moxie_status mox_parallel_plan(const moxie_parallel *p, const moxie_fused_moe_args *args, moxie_parallel_layer *out,
                               moxie_error *error)
{
    const bool sequence = p->sp_size > 1;
    const bool sharded = p->dp_size > 1 || p->pcp_size > 1 || sequence;
    moxie_parallel_layer made = { .struct_size = sizeof made, .token_parts = 1 };
    moxie_fused_moe vllm;
    MOX_TRY(mox_fused_moe_read(p, args, error));
    MOX_TRY(split_ranks(p, args, &made, error));
    MOX_TRY(place_experts(p, args, &made, error));
    made.token_layout = sharded || made.ranks == 1 ? MOXIE_TOKENS_SHARDED : MOXIE_TOKENS_REPLICATED;
    if (sharded && !sequence) {
        made.token_parts = mox_parallel_engine_tp(p);
        made.token_part = made.rank % made.token_parts;
    }
    made.exchange = exchange_of(p, sharded);
    made.differs = what_differs(p, sharded);
    made.vllm_accepts = mox_fused_moe_check(p, args, &vllm, NULL) == MOXIE_OK;
    *out = made;
    return MOXIE_OK;
}
