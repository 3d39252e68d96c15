/* SPDX-License-Identifier: Apache-2.0
 *
 * config_comm.c - does a comm fit a layer's configuration? Rank ep_rank * tp_size + tp_rank of ep_size * tp_size.
 */
#include "comm/comm.h"
#include "layer/config/config.h"

moxie_status mox_config_check_layout(const moxie_options *options, moxie_error *error)
{
    MOX_FAIL_IF(options->token_layout < MOXIE_TOKENS_SHARDED || options->token_layout > MOXIE_TOKENS_SCATTERED,
                MOXIE_ERR_ARGUMENT, error, "options.token_layout is %d, which is no layout of moxie_token_layout",
                (int)options->token_layout);
    return MOXIE_OK;
}

moxie_status mox_config_check_comm(const moxie_layer_config *config, const moxie_options *options, moxie_error *error)
{
    const int64_t ep = mox_config_ep_ranks(config), tp = mox_config_tp_ranks(config);
    const int64_t own = config->ep_rank * tp + config->tp_rank;
    if (options->comm == NULL)
        return MOXIE_OK;
    const int32_t ranks = mox_comm_ranks(options->comm), rank = mox_comm_rank(options->comm);
    MOX_FAIL_IF(ranks != ep * tp, MOXIE_ERR_MISMATCH, error,
                "options.comm has %d rank(s), but ep_size %d times tp_size %d is %lld: make the comm for as many ranks",
                (int)ranks, (int)ep, (int)tp, (long long)(ep * tp));
    MOX_FAIL_IF(
        rank != own, MOXIE_ERR_MISMATCH, error,
        "options.comm is rank %d, but ep_rank %d of tp_size %d with tp_rank %d is rank %lld: give each rank its own "
        "comm and configuration",
        (int)rank, (int)config->ep_rank, (int)tp, (int)config->tp_rank, (long long)own);
    MOX_TRY(mox_config_check_layout(options, error));
    MOX_FAIL_IF(options->exchange_capacity < 0, MOXIE_ERR_ARGUMENT, error,
                "options.exchange_capacity is %lld tokens; it must be 0 or more",
                (long long)options->exchange_capacity);
    MOX_FAIL_IF(options->exchange_chunk < 0, MOXIE_ERR_ARGUMENT, error,
                "options.exchange_chunk is %lld tokens; it must be 0 or more", (long long)options->exchange_chunk);
    MOX_FAIL_IF(options->exchange_streams < 0 || options->exchange_streams > 2, MOXIE_ERR_ARGUMENT, error,
                "options.exchange_streams is %lld; it must be 0 (the plan chooses), 1 or 2",
                (long long)options->exchange_streams);
    return MOXIE_OK;
}
