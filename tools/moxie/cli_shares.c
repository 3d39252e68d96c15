/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_shares.c - ranks that read directories of expert files, each its own, as `moxie prepare --tp R/N --ep R/N` writes
 * them:
 *
 *     moxie run EX-0 EX-1 EX-2 EX-3 --ranks 4 --tp 2      rank r has tensor parallel rank r % 2, experts' rank r / 2
 *
 * Records are used as they lie. With --comm mpi a process opens the first directory, for the configuration, and its
 * own.
 */
#include <limits.h>
#include <string.h>

#include "cli_disk.h"
#include "cli_ranks.h"
#include "prepare.h"

moxie_status cli_shares_begin(const cli_layer_options *options, cli_layer *layer, moxie_error *error)
{
    if (!layer->file)
        return cli_error(MOXIE_ERR_ARGUMENT, error, options->dir,
                         "%d directories were given, so each is to have expert files of a rank's share, and it has "
                         "none: make them with `moxie prepare --layout moxie-cpu --tp R/N`, or give one directory",
                         options->n_shares);
    layer->config.ep_size = layer->config.ep_rank = 0;
    layer->config.tp_size = layer->config.tp_rank = 0;
    return MOXIE_OK;
}

static int32_t at_least_one(int32_t size)
{
    return size > 1 ? size : 1;
}

/* Whether the file's share is that of the rank. */
static moxie_status check_share(const cli_rank *rank, const char *dir, const moxie_layer_config *want,
                                moxie_error *error)
{
    const moxie_layer_config *has = moxie_expert_file_config(rank->file);
    const int32_t tp = at_least_one(has->tp_size), ep = at_least_one(has->ep_size);
    if (tp == at_least_one(want->tp_size) && ep == at_least_one(want->ep_size) &&
        (tp == 1 || has->tp_rank == want->tp_rank) && (ep == 1 || has->ep_rank == want->ep_rank))
        return MOXIE_OK;
    return cli_error(MOXIE_ERR_MISMATCH, error, dir,
                     "it was prepared with --tp %d/%d --ep %d/%d, and rank %d of these --ranks and --tp needs --tp "
                     "%d/%d --ep %d/%d: give the directories in the order of the ranks, tensor parallel ranks side by "
                     "side",
                     (int)has->tp_rank, (int)tp, (int)has->ep_rank, (int)ep, (int)rank->rank, (int)want->tp_rank,
                     (int)at_least_one(want->tp_size), (int)want->ep_rank, (int)at_least_one(want->ep_size));
}

static bool has_same_router(const moxie_expert_file *a, const moxie_expert_file *b)
{
    uint64_t bytes_a = 0, bytes_b = 0;
    const void *router_a = moxie_expert_file_section(a, "router", &bytes_a);
    const void *router_b = moxie_expert_file_section(b, "router", &bytes_b);
    return bytes_a == bytes_b && (bytes_a == 0 || memcmp(router_a, router_b, (size_t)bytes_a) == 0);
}

/* Whether the experts that both files have were packed of the same weights. */
static bool has_same_experts(const moxie_expert_file *a, const moxie_expert_file *b, int64_t experts)
{
    for (int64_t e = 0; e < experts; e++) {
        moxie_expert_record in_a = MOXIE_EXPERT_RECORD_INIT, in_b = MOXIE_EXPERT_RECORD_INIT;
        const bool both = moxie_expert_file_record(a, e, &in_a, NULL) == MOXIE_OK &&
                          moxie_expert_file_record(b, e, &in_b, NULL) == MOXIE_OK && in_a.data && in_b.data;
        if (both && in_a.source_hash != in_b.source_hash)
            return false;
    }
    return true;
}

/* Files of different checkpoints fit together, but what they compute is no model's. */
static moxie_status check_source(const cli_rank *rank, const char *dir, int64_t experts, moxie_error *error)
{
    const moxie_expert_file *first = rank->all->source->file;
    if (has_same_router(first, rank->file) && has_same_experts(first, rank->file, experts))
        return MOXIE_OK;
    return cli_error(MOXIE_ERR_MISMATCH, error, dir,
                     "it was prepared of other weights than the first directory: prepare the shares of all ranks of "
                     "one checkpoint");
}

moxie_status cli_shares_layer(cli_rank *rank, const moxie_layer_config *config, const moxie_options *options,
                              moxie_error *error)
{
    const cli_layer_options *given = rank->all->layer;
    char path[PATH_MAX], mirror[PATH_MAX];
    moxie_expert_file_options how = MOXIE_EXPERT_FILE_OPTIONS_INIT;
    if (rank->all->ranks != given->n_shares)
        return cli_error(MOXIE_ERR_ARGUMENT, error, "", "%d ranks and %d directories: give one for each rank",
                         (int)rank->all->ranks, (int)given->n_shares);
    const char *dir = given->shares[rank->rank];
    if (!cli_has_experts(dir))
        return cli_error(
            MOXIE_ERR_ARGUMENT, error, dir,
            "it is no directory of expert files: make it with `moxie prepare --layout moxie-cpu --tp R/N`");
    cli_disk_file_options(given, rank->all->source->index, mirror, &how);
    moxie_status status =
        moxie_expert_file_open(prepare_experts_path(dir, rank->all->source->index, path), &how, &rank->file, error);
    if (status == MOXIE_OK)
        status = check_share(rank, dir, config, error);
    if (status == MOXIE_OK)
        status = moxie_layer_open_file(rank->file, config, options, &rank->layer, error);
    return status == MOXIE_OK ? check_source(rank, dir, config->experts, error) : status;
}
