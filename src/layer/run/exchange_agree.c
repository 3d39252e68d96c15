/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange_agree.c - ranks compare their calls, and learn how many rows come (exchange_agree.h).
 */
#include "layer/run/exchange_agree.h"

#include <string.h>

#include "base/sizes.h"
#include "layer/adapters/adapters.h"
#include "layer/plan/exchange_message.h"
#include "layer/run/ranks_device.h"
#include "layer/run/run_adapters.h"

static int64_t *message(int64_t *messages, int32_t rank)
{
    return messages + (int64_t)rank * MOX_MESSAGE_FIELDS;
}

/* A rank that is lost has sent nothing. */
static void forget_lost(const mox_ranks *x)
{
    for (int32_t r = 0; r < x->count; r++)
        if (mox_comm_is_lost(x->comm, r))
            memset(message(x->counts.recv, r), 0, MOX_MESSAGE_FIELDS * sizeof(int64_t));
}

/* `numbers`: those that only the device knows, or NULL. */
static moxie_status exchange(const mox_ranks *x, const mox_comm_numbers *numbers, moxie_error *error)
{
    mox_comm_request request;
    MOX_TRY(mox_comm_start_counts_of(x->comm, numbers, x->counts.send, x->counts.recv, MOX_MESSAGE_FIELDS, &request,
                                     error));
    MOX_TRY(mox_comm_wait(x->comm, request, error));
    forget_lost(x);
    return MOXIE_OK;
}

void mox_exchange_tell_failure(const moxie_plan *plan, moxie_status status)
{
    const mox_ranks *x = plan->ranks;
    for (int32_t r = 0; r < x->count; r++) {
        int64_t *m = message(x->counts.send, r);
        for (int64_t f = 0; f < MOX_MESSAGE_FIELDS; f++)
            m[f] = 0;
        m[MOX_MESSAGE_STATUS] = status;
    }
    exchange(x, NULL, NULL);
}

/* FNV-1a over the ids and adapters. Ranks that have the same tokens but not the same choices would take results for
 * others. */
static int64_t hash_of_choices(const mox_run *run)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (int64_t i = 0; i < run->args.tokens * run->plan->config.top_k; i++)
        h = (h ^ (uint32_t)run->ids[i]) * UINT64_C(0x100000001b3);
    for (int64_t t = 0; run->args.adapters != NULL && t < run->args.tokens; t++)
        h = (h ^ (uint32_t)mox_run_adapter_of_token(run, t)) * UINT64_C(0x100000001b3);
    return (int64_t)(h >> 11);
}

/* Which adapters the run has, enabled. */
static int64_t hash_of_adapters(const mox_run *run)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (int32_t i = 0; run->args.adapters != NULL && i < run->args.adapters->count; i++)
        if (mox_run_has_adapter(run, i))
            h = (h ^ (uint32_t)i) * UINT64_C(0x100000001b3);
    return (int64_t)(h >> 11);
}

static void fill(const mox_run *run, int64_t chunk)
{
    const mox_ranks *x = run->plan->ranks;
    const bool same = x->layout != MOXIE_TOKENS_SHARDED;
    const bool known = !x->places || x->staged; /* else the ids are on the device alone */
    const int64_t choices = same && known && chunk == 0 ? hash_of_choices(run) : 0;
    const int64_t adapters = x->adapted && !known ? hash_of_adapters(run) : 0;
    for (int32_t r = 0; r < x->count; r++) {
        int64_t *m = message(x->counts.send, r);
        m[MOX_MESSAGE_STATUS] = MOXIE_OK;
        m[MOX_MESSAGE_PLAN] = x->number;
        m[MOX_MESSAGE_CALL] = x->calls;
        m[MOX_MESSAGE_CHUNK] = chunk;
        m[MOX_MESSAGE_GENERATION] = x->generation;
        m[MOX_MESSAGE_TOKENS] = same ? run->args.tokens : 0;
        m[MOX_MESSAGE_CHOICES] = choices;
        m[MOX_MESSAGE_ADAPTERS] = adapters;
        m[MOX_MESSAGE_CHUNKS] = mox_exchange_chunks(run);
        m[MOX_MESSAGE_OWN] = mox_exchange_chunk(run, x->rank, chunk).tokens;
        m[MOX_MESSAGE_ROWS] = x->counts.rows[r];
        m[MOX_MESSAGE_PAIRS] = x->counts.pairs[r];
    }
}

/* Fields that must be equal everywhere. All ranks see all values, so all of them find a difference. */
static moxie_status compare(const mox_ranks *x, moxie_error *error)
{
    static const struct {
        int field;
        const char *name;
    } fields[] = { { MOX_MESSAGE_PLAN, "the number of the plan (the comm's operations before it)" },
                   { MOX_MESSAGE_CALL, "the number of runs with this plan" },
                   { MOX_MESSAGE_CHUNK, "the chunk of the batch" },
                   { MOX_MESSAGE_GENERATION, "the slot map's generation" },
                   { MOX_MESSAGE_TOKENS, "the number of tokens" },
                   { MOX_MESSAGE_CHOICES, "the tokens' choices of experts and adapters (a hash of them)" },
                   { MOX_MESSAGE_ADAPTERS,
                     "the adapters of the run, those that are enabled (a hash of their numbers)" } };
    for (int32_t r = 0; r < x->count; r++)
        MOX_FAIL_IF(message(x->counts.recv, r)[MOX_MESSAGE_STATUS] != MOXIE_OK, MOXIE_ERR_MISMATCH, error,
                    "rank %d refused its run (%s), so the others cannot run either: see the error of its call", (int)r,
                    mox_status_name((moxie_status)message(x->counts.recv, r)[MOX_MESSAGE_STATUS]));
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        for (int32_t r = 0; r < x->count; r++) {
            const int64_t theirs = message(x->counts.recv, r)[fields[i].field];
            const int64_t ours = message(x->counts.send, x->rank)[fields[i].field];
            MOX_FAIL_IF(
                theirs != ours && !mox_comm_is_lost(x->comm, r), MOXIE_ERR_MISMATCH, error,
                "%s is %lld on rank %d, but %lld on rank %d: all ranks must make the same calls in the same order",
                fields[i].name, (long long)theirs, (int)r, (long long)ours, (int)x->rank);
        }
    return MOXIE_OK;
}

/* The others will wait for rows that do not come: their calls end now instead of at the deadline. */
static moxie_status break_off(const mox_ranks *x, moxie_status status, const moxie_error *error)
{
    mox_comm_break(x->comm, error);
    return status;
}

/* Sharded tokens: what the others announce. */
static moxie_status accept(const mox_ranks *x, int64_t top_k, moxie_error *error)
{
    const mox_ranks_counts *n = &x->counts;
    int64_t rows = 0;
    for (int32_t r = 0; r < x->count; r++) {
        const int64_t *m = message(n->recv, r);
        n->from[r] = rows;
        n->from_rows[r] = m[MOX_MESSAGE_ROWS];
        n->from_pairs[r] = m[MOX_MESSAGE_PAIRS];
        MOX_FAIL_IF(
            n->from_rows[r] < 0 || n->from_rows[r] > x->chunk_tokens || n->from_pairs[r] < n->from_rows[r] ||
                n->from_pairs[r] > n->from_rows[r] * top_k || m[MOX_MESSAGE_OWN] < n->from_rows[r] ||
                m[MOX_MESSAGE_OWN] > x->chunk_tokens,
            MOXIE_ERR_MISMATCH, error,
            "rank %d announces %lld rows with %lld choices of %lld tokens; a chunk has at most %lld rows with %lld "
            "choices each",
            (int)r, (long long)n->from_rows[r], (long long)n->from_pairs[r], (long long)m[MOX_MESSAGE_OWN],
            (long long)x->chunk_tokens, (long long)top_k);
        rows += n->from_rows[r];
    }
    return MOXIE_OK;
}

/* Tokens that all ranks have: what the others expect. */
static moxie_status confirm(const mox_ranks *x, moxie_error *error)
{
    for (int32_t r = 0; r < x->count; r++) {
        const int64_t expected = message(x->counts.recv, r)[MOX_MESSAGE_PAIRS];
        MOX_FAIL_IF(expected != x->counts.from_pairs[r] && !mox_comm_is_lost(x->comm, r), MOXIE_ERR_MISMATCH, error,
                    "rank %d expects %lld results of rank %d, which finds %lld choices for its experts: all ranks must "
                    "have the same tokens and choices",
                    (int)r, (long long)expected, (int)x->rank, (long long)x->counts.from_pairs[r]);
    }
    return MOXIE_OK;
}

moxie_status mox_exchange_agree(const mox_run *run, int64_t chunk, int64_t *chunks, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    const bool of_device = x->places && x->capacity == 0 && mox_comm_takes_numbers(x->comm);
    const mox_comm_numbers numbers = mox_ranks_numbers(run->own);
    fill(run, chunk);
    MOX_TRY(exchange(x, of_device ? &numbers : NULL, error));
    if (of_device)
        mox_ranks_take_counts(run->own);
    MOX_TRY(compare(x, error));
    for (int32_t r = 0; r < x->count; r++)
        *chunks = mox_max_i64(*chunks, message(x->counts.recv, r)[MOX_MESSAGE_CHUNKS]);
    const bool sharded = x->layout == MOXIE_TOKENS_SHARDED;
    const moxie_status status = sharded ? accept(x, run->plan->config.top_k, error) : confirm(x, error);
    return status == MOXIE_OK ? MOXIE_OK : break_off(x, status, error);
}

void mox_exchange_share(const mox_run *run, int64_t number, int64_t *share)
{
    const mox_ranks *x = run->plan->ranks;
    for (int32_t r = 0; r < x->tp_size; r++) {
        const int32_t rank = x->group * x->tp_size + r;
        share[r] = x->layout != MOXIE_TOKENS_SHARDED ? mox_exchange_chunk(run, rank, number).tokens
                   : x->capacity > 0                 ? x->capacity
                                                     : message(x->counts.recv, rank)[MOX_MESSAGE_OWN];
    }
}

void mox_exchange_expect_fixed(const mox_run *run)
{
    const mox_ranks *x = run->plan->ranks;
    for (int32_t r = 0; r < x->count; r++) {
        x->counts.from[r] = r * x->capacity;
        x->counts.from_rows[r] = x->capacity;
        x->counts.from_pairs[r] = x->capacity * run->plan->config.top_k;
    }
}

moxie_status mox_exchange_announce(const mox_run *run, mox_comm_request *request, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    fill(run, 0);
    return mox_comm_start_counts(x->comm, x->counts.send, x->counts.recv, MOX_MESSAGE_FIELDS, request, error);
}

moxie_status mox_exchange_compare(const mox_run *run, moxie_error *error)
{
    forget_lost(run->plan->ranks);
    return compare(run->plan->ranks, error);
}

/* Of the rows that rank r sent. */
static moxie_status check_adapters(const mox_run *run, int32_t r, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    const int32_t *ids = (const int32_t *)(run->space + x->space.recv_adapters) + x->counts.from[r];
    for (int64_t i = 0; x->adapted && i < x->counts.from_rows[r]; i++)
        MOX_FAIL_IF(ids[i] != -1 && !mox_run_has_adapter(run, ids[i]), MOXIE_ERR_MISMATCH, error,
                    "rank %d sent a token with adapter %d, which rank %d does not have, has disabled, or set before "
                    "experts moved: pass the same adapters on all ranks",
                    (int)r, (int)ids[i], (int)x->rank);
    return MOXIE_OK;
}

static moxie_status check_rows(const mox_run *run, moxie_error *error)
{
    const mox_ranks *x = run->plan->ranks;
    const moxie_layer_config *c = &run->plan->config;
    const int32_t *ids = (const int32_t *)(run->space + x->space.recv_ids);
    for (int32_t r = 0; r < x->count; r++) {
        int64_t pairs = 0;
        for (int64_t i = x->counts.from[r] * c->top_k; i < (x->counts.from[r] + x->counts.from_rows[r]) * c->top_k;
             i++) {
            const bool here = ids[i] >= 0 && ids[i] < c->experts && run->plan->layer->slot_of[ids[i]] >= 0;
            MOX_FAIL_IF(
                ids[i] != -1 && !here, MOXIE_ERR_MISMATCH, error,
                "rank %d sent a row for expert %d, which rank %d does not have: all ranks must have the same slot "
                "map",
                (int)r, (int)ids[i], (int)x->rank);
            pairs += here;
        }
        MOX_FAIL_IF(x->capacity == 0 && pairs != x->counts.from_pairs[r], MOXIE_ERR_MISMATCH, error,
                    "rank %d announced %lld choices and sent %lld to rank %d", (int)r,
                    (long long)x->counts.from_pairs[r], (long long)pairs, (int)x->rank);
        MOX_TRY(check_adapters(run, r, error));
    }
    return MOXIE_OK;
}

moxie_status mox_exchange_check_rows(const mox_run *run, moxie_error *error)
{
    const moxie_status status = check_rows(run, error);
    return status == MOXIE_OK ? MOXIE_OK : break_off(run->plan->ranks, status, error);
}
