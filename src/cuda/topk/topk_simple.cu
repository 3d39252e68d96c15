/* SPDX-License-Identifier: Apache-2.0
 *
 * topk_simple.cu - every routing method except a callback, one warp per token. It uses the host's arithmetic
 * (route_rules.h), so ids and weights have the host's bits.
 *
 *     logits -> scores (in parallel, but a softmax sums in index order) -> keys -> groups
 *            -> K times the best key left (per lane, then across the warp) -> weights (one lane)
 *
 * What few layers have (a soft cap, choices per group, padding, a second bias) is in a second instance, MORE.
 *
 * Shared memory per warp: | logits [E] | scores [E] | keys [E] | scores of groups [E] | order of groups [E] |
 */
#include "cuda/device/device_error.h"
#include "cuda/device/device_format.cuh"
#include "cuda/device/device_launch.cuh"
#include "route/route_rules.h"
#include "route/simulate_rules.h"

enum { WARPS = 2, ARRAYS = 5, LANES = 32 };
static const unsigned ALL = 0xffffffffu;

struct arrays {
    float *logits, *scores, *keys, *groups;
    int32_t *order;
};

/* ---- scores ----------------------------------------------------------------------------------------- */

static __device__ float warp_max(float x)
{
    for (int step = LANES / 2; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(ALL, x, step);
        x = other > x ? other : x;
    }
    return x;
}

static __device__ void softmax(float *x, int64_t n, int lane)
{
    float largest = -INFINITY, sum = 0;
    for (int64_t i = lane; i < n; i += LANES)
        if (x[i] > largest)
            largest = x[i];
    largest = warp_max(largest);
    for (int64_t i = lane; i < n; i += LANES)
        x[i] = mox_route_exp_below(x[i], largest);
    __syncwarp();
    for (int64_t i = 0; i < n; i++) /* all lanes compute the same sum: a broadcast costs no more than one lane's load */
        if (!isnan(x[i]))
            sum += x[i];
    __syncwarp();
    for (int64_t i = lane; i < n; i += LANES)
        x[i] /= sum;
    __syncwarp();
}

template <bool MORE>
static __device__ void load_logits(const mox_topk_args &args, int64_t token, const arrays &a, int lane)
{
    for (int64_t e = lane; e < args.experts; e += LANES) {
        const float x = mox_device_load(args.logits_dtype, args.logits, token * args.experts + e);
        if constexpr (MORE)
            a.logits[e] = mox_route_logit(&args.routing, x);
        else
            a.logits[e] = args.routing.round_logits_bf16 ? mox_route_round_bf16(x) : x;
    }
    __syncwarp();
}

static __device__ void score(const mox_topk_args &args, const arrays &a, int lane)
{
    for (int64_t e = lane; e < args.experts; e += LANES)
        a.scores[e] = mox_route_score(args.routing.score, a.logits[e]);
    __syncwarp();
    if (args.routing.score == MOXIE_SCORE_SOFTMAX)
        softmax(a.scores, args.experts, lane);
    for (int64_t e = lane; e < args.experts; e += LANES)
        a.keys[e] = a.scores[e];
    __syncwarp();
}

/* ---- selection -------------------------------------------------------------------------------------- */

/* Replaces the keys outside the best groups. */
static __device__ void drop_groups(const moxie_routing &routing, int64_t experts, const arrays &a, int lane)
{
    const int64_t groups = routing.n_group, size = experts / groups;
    for (int64_t g = lane; g < groups; g += LANES)
        a.groups[g] = mox_route_group_score(routing.group_score, a.keys + g * size, size);
    __syncwarp();
    if (lane == 0)
        mox_route_select_best(a.groups, groups, routing.topk_group, a.order);
    __syncwarp();
    for (int64_t e = lane; e < experts; e += LANES) {
        bool stays = false;
        for (int64_t i = 0; i < routing.topk_group; i++)
            stays = stays || a.order[i] == e / size;
        if (!stays)
            mox_route_drop(&routing, &a.keys[e], &a.scores[e]);
    }
    __syncwarp();
}

/* Keys order descending, NaN last, ties by lower index; an index < 0 comes after everything. */
static __device__ bool goes_before(float key, int32_t index, float other_key, int32_t other)
{
    if (index < 0 || other < 0)
        return other < 0 && index >= 0;
    return mox_route_ranks_before(key, other_key) || (!mox_route_ranks_before(other_key, key) && index < other);
}

/* A lane searches experts lane, lane + 32, ...; `chosen` has one bit for each of them. */
static __device__ void select_best(const float *keys, int64_t experts, int64_t top_k, int32_t *ids, int lane)
{
    uint32_t chosen = 0;
    for (int64_t j = 0; j < top_k; j++) {
        float key = 0;
        int32_t best = -1;
        for (int32_t e = lane, bit = 0; e < experts; e += LANES, bit++)
            if (!(chosen >> bit & 1) && goes_before(keys[e], e, key, best)) {
                key = keys[e];
                best = e;
            }
        for (int step = LANES / 2; step > 0; step /= 2) {
            const float other_key = __shfl_xor_sync(ALL, key, step);
            const int32_t other = __shfl_xor_sync(ALL, best, step);
            if (goes_before(other_key, other, key, best)) {
                key = other_key;
                best = other;
            }
        }
        if (best % LANES == lane)
            chosen |= 1u << (best / LANES);
        if (lane == 0)
            ids[j] = best;
    }
}

/* The best of each group, group after group: a lane searches a group. */
static __device__ void select_per_group(const moxie_routing &routing, int64_t experts, const float *keys, int32_t *ids,
                                        int lane)
{
    const int64_t size = experts / routing.n_group, count = routing.topk_per_group;
    for (int64_t g = lane; g < routing.n_group; g += LANES) {
        mox_route_select_best(keys + g * size, size, count, ids + g * count);
        for (int64_t j = 0; j < count; j++)
            ids[g * count + j] += static_cast<int32_t>(g * size);
    }
}

template <bool MORE>
static __device__ void choose(const mox_topk_args &args, int64_t token, const arrays &a, int32_t *ids, int lane)
{
    const moxie_routing &routing = args.routing;
    const bool alt = MORE && args.bias_choice != nullptr && args.bias_choice[token] != 0;
    const float *bias = alt ? routing.bias_alt : routing.bias;
    if (routing.select == MOXIE_SELECT_TABLE && !alt) {
        const int32_t id = args.token_ids != nullptr ? args.token_ids[token] : 0;
        for (int64_t j = lane; j < args.top_k; j += LANES)
            ids[j] = id >= 0 && id < routing.table_rows ? routing.table[id * args.top_k + j] : -1;
        return;
    }
    for (int64_t e = lane; bias != nullptr && e < args.experts; e += LANES)
        a.keys[e] += bias[e];
    __syncwarp();
    if (MORE && routing.topk_per_group > 0) {
        select_per_group(routing, args.experts, a.keys, ids, lane);
        return;
    }
    if (routing.n_group > 1)
        drop_groups(routing, args.experts, a, lane);
    select_best(a.keys, args.experts, args.top_k, ids, lane);
}

/* ---- one token -------------------------------------------------------------------------------------- */

static __device__ void sparsemixer(const mox_topk_args &args, const arrays &a, int32_t *ids, float *weights, int lane)
{
    const float jitter = args.routing.jitter != 0 ? args.routing.jitter : 0.01f;
    select_best(a.logits, args.experts, 2, ids, lane);
    __syncwarp();
    if (lane < 2)
        weights[lane] =
            mox_route_sparsemixer_weight(a.logits, args.experts, jitter, ids[lane], lane == 0 ? -1 : ids[0]);
}

template <bool MORE> static __global__ void topk_kernel(mox_topk_args args)
{
    extern __shared__ float memory[];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const int64_t token = static_cast<int64_t>(blockIdx.x) * WARPS + warp, experts = args.experts;
    if (token >= args.tokens)
        return;
    float *mine = memory + warp * ARRAYS * experts;
    const arrays a = { mine, mine + experts, mine + 2 * experts, mine + 3 * experts,
                       reinterpret_cast<int32_t *>(mine + 4 * experts) };
    int32_t *ids = args.ids + token * args.top_k;
    float *weights = args.weights + token * args.top_k;
    if (MORE && args.padding != nullptr && args.padding[token] != 0) {
        if (lane == 0)
            mox_route_nothing(args.top_k, ids, weights);
        return;
    }
    const int32_t select = args.routing.select;
    const bool simulated = select == MOXIE_SELECT_SIM_UNIFORM || select == MOXIE_SELECT_SIM_NORMAL;
    if (!simulated)
        load_logits<MORE>(args, token, a, lane);
    if (simulated) {
        if (lane == 0)
            mox_route_simulate_choice(&args.routing, experts, args.top_k, token, ids, weights);
    } else if (select == MOXIE_SELECT_SPARSEMIXER) {
        sparsemixer(args, a, ids, weights, lane);
    } else {
        score(args, a, lane);
        choose<MORE>(args, token, a, ids, lane);
        __syncwarp();
        if (lane == 0)
            mox_route_weigh(&args.routing, experts, args.top_k, a.logits, a.scores, a.keys, ids, weights);
    }
    __syncwarp();
    if (lane == 0)
        mox_route_finish(&args.routing, experts, args.top_k, ids, weights);
}

moxie_status mox_cuda_topk_simple_launch(const mox_topk_args *args, mox_cuda_stream stream, moxie_error *error)
{
    if (args->tokens == 0)
        return MOXIE_OK;
    const unsigned blocks = static_cast<unsigned>((args->tokens + WARPS - 1) / WARPS);
    const size_t shared = static_cast<size_t>(WARPS * ARRAYS * args->experts) * sizeof(float);
    const bool more = args->routing.softcap != 0 || args->routing.topk_per_group > 0 || args->padding != nullptr ||
                      args->bias_choice != nullptr;
    const auto kernel = more ? topk_kernel<true> : topk_kernel<false>;
    return mox_cuda_status(mox_device_launch(kernel, blocks, WARPS * LANES, shared, stream, false, *args),
                           "topk simple", error);
}
