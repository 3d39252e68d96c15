/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare_all.c - every layer that was asked for, and the directory around them.
 *
 *     plan all layers -> OUT.partial: configurations, manifest -> a sealed file for each layer -> index -> OUT
 *
 * Refusals come before anything is written. What is interrupted is gone on with: layers whose files are whole and made
 * in the same way of the same tensors are kept.
 */
#include "prepare.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

moxie_status prepare_check_out(const char *out, moxie_error *error)
{
    struct stat info;
    if (lstat(out, &info) != 0)
        return errno == ENOENT ? MOXIE_OK : cli_error(MOXIE_ERR_IO, error, out, "%s", strerror(errno));
    DIR *listing = opendir(out);
    int entries = 0;
    while (listing && readdir(listing))
        entries++;
    if (listing)
        closedir(listing);
    if (listing && entries <= 2)
        return MOXIE_OK;
    return cli_error(MOXIE_ERR_IO, error, out,
                     "it exists already; name a new directory, or remove this one "
                     "(`moxie prepare --verify` says whether it is whole)");
}

/* The MoE layers of the model within the range, each planned once. */
static moxie_status plan_layers(const prepare_options *options, const moxie_model *model, prepare_how *how,
                                moxie_error *error)
{
    moxie_model_info info;
    moxie_model_get_info(model, &info);
    int64_t first = -1, last = -1;
    how->layers = calloc((size_t)info.n_layers + 1, sizeof *how->layers);
    moxie_status status = how->layers ? MOXIE_OK : cli_error(MOXIE_ERR_MEMORY, error, "", "no memory");
    for (int64_t i = 0; status == MOXIE_OK && i < info.n_layers; i++) {
        moxie_model_layer_info layer;
        status = moxie_model_describe_layer(model, i, &layer, error);
        if (status != MOXIE_OK)
            break;
        first = first < 0 ? layer.layer : first;
        last = layer.layer;
        if (options->first_layer < 0 || (layer.layer >= options->first_layer && layer.layer <= options->last_layer))
            how->layers[how->n_layers++] = layer.layer;
    }
    if (status == MOXIE_OK && (how->n_layers == 0 || (options->last_layer >= 0 && options->last_layer > last)))
        status = cli_error(MOXIE_ERR_ARGUMENT, error, options->dir,
                           "--layers %lld-%lld: its mixture-of-experts layers are %lld to %lld",
                           (long long)options->first_layer, (long long)options->last_layer, (long long)first,
                           (long long)last);
    for (int64_t i = 0; status == MOXIE_OK && i < how->n_layers; i++) {
        moxie_model_layer *loaded = NULL;
        moxie_preparation *preparation = NULL;
        status = moxie_model_load_layer(model, how->layers[i], &loaded, error);
        if (status == MOXIE_OK)
            status = prepare_plan(how, loaded, &preparation, error);
        moxie_preparation_destroy(preparation);
        moxie_model_layer_free(loaded);
    }
    return status;
}

/* OUT.partial, new, or one that this very preparation left. *fd holds it against a second run. */
static moxie_status open_partial(const prepare_options *options, const prepare_how *how, const char *partial, int *fd,
                                 moxie_error *error)
{
    prepare_how before = { 0 };
    moxie_error ignored;
    const bool found = access(partial, F_OK) == 0;
    const bool described = found && prepare_manifest_read(partial, &before, &ignored) == MOXIE_OK;
    const bool same = described && prepare_how_equal(&before, how) && prepare_configs_equal(options->dir, partial);
    prepare_how_free(&before);
    if (described && !same)
        return cli_error(MOXIE_ERR_IO, error, partial,
                         "it is what another preparation left when it was interrupted: run that again, or remove it");
    if (found && !described)
        prepare_directory_remove(partial); /* interrupted before its manifest was there */
    if (!described && mkdir(partial, 0777) != 0)
        return cli_error(MOXIE_ERR_IO, error, partial, "cannot be made: %s", strerror(errno));
    moxie_status status = prepare_directory_hold(partial, fd, error);
    if (status == MOXIE_OK && !described)
        status = prepare_configs_copy(options->dir, partial, error);
    if (status == MOXIE_OK && !described)
        status = prepare_manifest_write(partial, how, options->dir, error);
    return status;
}

static moxie_status make_layers(const prepare_options *options, const prepare_how *how, const moxie_model *model,
                                const char *partial, const moxie_executor *executor, cli_progress *progress,
                                prepare_report *report, moxie_error *error)
{
    prepare_options with = *options;
    with.how = *how;
    moxie_status status = MOXIE_OK;
    for (int64_t i = 0; status == MOXIE_OK && i < how->n_layers; i++) {
        char what[32];
        snprintf(what, sizeof what, "layer %lld", (long long)how->layers[i]);
        progress->what = what;
        status = prepare_layer(&with, model, how->layers[i], partial, executor, progress, report, error);
    }
    progress->what = "prepare";
    return status;
}

void prepare_leave(const char *partial, const prepare_report *report)
{
    if (report->made + report->kept == 0)
        prepare_directory_remove(partial);
    else
        fprintf(stderr, "moxie prepare: %lld finished layers stay in %s; run the same again to go on\n",
                (long long)(report->made + report->kept), partial);
}

moxie_status prepare_all(const prepare_options *options, const moxie_executor *executor, cli_progress *progress,
                         prepare_report *report, moxie_error *error)
{
    char partial[PATH_MAX];
    moxie_model *model = NULL;
    moxie_model_options model_options = MOXIE_MODEL_OPTIONS_INIT;
    prepare_how how = options->how;
    int fd = -1;
    model_options.experts_only = 1;
    snprintf(partial, sizeof partial, "%s%s", options->out, PREPARE_PARTIAL);
    moxie_status status = prepare_check_out(options->out, error);
    if (status == MOXIE_OK)
        status = moxie_model_open(options->dir, &model_options, &model, error);
    if (status == MOXIE_OK)
        status = plan_layers(options, model, &how, error);
    if (status == MOXIE_OK)
        status = open_partial(options, &how, partial, &fd, error);
    if (status == MOXIE_OK)
        status = make_layers(options, &how, model, partial, executor, progress, report, error);
    if (status == MOXIE_OK)
        status = prepare_index_write(partial, &how, &report->source_hash, error);
    if (status == MOXIE_OK && (fsync(fd) != 0 || rename(partial, options->out) != 0))
        status = cli_error(MOXIE_ERR_IO, error, options->out, "cannot be put in place: %s", strerror(errno));
    if (status != MOXIE_OK && fd >= 0)
        prepare_leave(partial, report);
    if (fd >= 0)
        close(fd);
    prepare_how_free(&how);
    moxie_model_close(model);
    return status;
}
