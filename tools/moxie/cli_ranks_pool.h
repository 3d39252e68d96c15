/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_ranks_pool.h - an executor that local ranks share, where there are fewer threads than ranks.
 */
#ifndef MOXIE_CLI_RANKS_POOL_H
#define MOXIE_CLI_RANKS_POOL_H

#include <moxie/moxie.h>

typedef struct cli_ranks_pool cli_ranks_pool;

/* Loops run on `inner`, one after the other, which must outlive the pool. */
moxie_status cli_ranks_pool_create(moxie_executor *inner, cli_ranks_pool **out, moxie_error *error);
/* Thread-safe: loops of several threads wait for each other. */
moxie_executor *cli_ranks_pool_executor(cli_ranks_pool *pool);
/* No loop may be running. NULL is fine. */
void cli_ranks_pool_destroy(cli_ranks_pool *pool);

#endif
