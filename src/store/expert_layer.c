/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_layer.c - a layer of an expert file, and its plan without one.
 *
 *     file -> layouts, records, numbers -> layer/weights/layer_given.h
 *
 * No number of a record is read here: kernels read the pages of the file when a run touches them, and a layer on a GPU
 * gets a copy.
 */
#include <stdio.h>
#include <string.h>

#include "activation/activation.h"
#include "backend/cuda/device.h"
#include "layer/plan/plan_create.h"
#include "layer/weights/layer_given.h"
#include "store/expert_file.h"

/* Another configuration than the file's may change what no record depends on. */
static moxie_status check_shapes(const moxie_expert_file *file, const moxie_layer_config *c, moxie_error *error)
{
    const moxie_layer_config *own = &file->config;
    const moxie_shared_config *s = &c->shared, *t = &own->shared;
    const bool same = c->experts == own->experts && c->hidden == own->hidden && c->intermediate == own->intermediate &&
                      memcmp(&c->w13, &own->w13, sizeof c->w13) == 0 && memcmp(&c->w2, &own->w2, sizeof c->w2) == 0 &&
                      !c->bias13 == !own->bias13 && !c->bias2 == !own->bias2 &&
                      mox_activation_is_gated(c->activation.kind) == mox_activation_is_gated(own->activation.kind) &&
                      s->intermediate == t->intermediate && memcmp(&s->w13, &t->w13, sizeof s->w13) == 0 &&
                      memcmp(&s->w2, &t->w2, sizeof s->w2) == 0 && !s->bias13 == !t->bias13 && !s->bias2 == !t->bias2;
    if (!same)
        return mox_fail_file(MOXIE_ERR_MISMATCH, error, file->path, -1,
                             "its records are of another shape or quantization than the configuration: begin with "
                             "moxie_expert_file_config() and change dtype, routing or the share of experts");
    const int32_t size = c->tp_size > 1 ? c->tp_size : 1, ours = own->tp_size > 1 ? own->tp_size : 1;
    if (size != ours || (size > 1 && c->tp_rank != own->tp_rank))
        return mox_fail_file(MOXIE_ERR_MISMATCH, error, file->path, -1,
                             "the configuration is of tensor parallel rank %d of %d, its records of rank %d of %d%s: "
                             "give each rank the file of its own share (`moxie prepare --tp R/N`, or tp_size and "
                             "tp_rank of the writer's configuration)",
                             size > 1 ? (int)c->tp_rank : 0, (int)size, ours > 1 ? (int)own->tp_rank : 0, (int)ours,
                             ours > 1 ? "" : ", which are whole experts");
    return MOXIE_OK;
}

/* The target whose kernels are those of the options. What moxie-cpu's do not read needs portable ones here: there is no
 * AVX2 or NEON, or the options ask for less. */
static const char *target_of(const moxie_expert_file *file, const moxie_options *options)
{
    const int32_t backend = options != NULL ? options->backend : MOXIE_BACKEND_AUTO;
    if (backend == MOXIE_BACKEND_CUDA)
        return "moxie-sm90 (Hopper) or moxie-sm80";
    return backend == MOXIE_BACKEND_REF || strcmp(file->header.target, "moxie-cpu") == 0 ? "moxie-rowmajor"
                                                                                         : "moxie-cpu";
}

/* What no file would do for is refused before its records are. */
static moxie_status check_options(const moxie_expert_file *file, const moxie_options *options, moxie_error *error)
{
    moxie_options read;
    mox_device device;
    MOX_TRY(mox_options_read(options, &read, error));
    if (read.spare_slots != 0)
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, file->path, -1,
                             "options.spare_slots is %d: a layer of an expert file has no memory for experts that come "
                             "from other ranks; prepare the layer from its checkpoint",
                             (int)read.spare_slots);
    return mox_device_find(&read, false, &device, error);
}

/* Says which file would do. */
static moxie_status refuse(const moxie_expert_file *file, const moxie_options *options, moxie_error *error)
{
    char why[sizeof error->text];
    snprintf(why, sizeof why, "%s", error != NULL ? error->text : "");
    return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, file->path, -1,
                         "its records are in layout %s, for %s, which the kernels of these options do not read: "
                         "`moxie prepare DIR --layout %s` of the checkpoint (or of what `moxie prepare --undo` makes "
                         "of this file) writes a file that they read. In detail: %.300s",
                         file->layouts[MOX_ROUTED]->name, file->header.target, target_of(file, options), why);
}

static moxie_status give_records(const moxie_expert_file *file, const moxie_layer_config *config,
                                 const void *routed[MOXIE_MAX_EXPERTS], moxie_expert scales[MOXIE_MAX_EXPERTS + 1],
                                 mox_given_records *out, moxie_error *error)
{
    const int64_t experts = file->header.experts;
    *out = (mox_given_records) { .layouts = { file->layouts[MOX_ROUTED], file->layouts[MOX_SHARED_EXPERT] },
                                 .bytes = { file->header.record_bytes, file->header.shared_bytes },
                                 .routed = routed,
                                 .mapping = file->mapped ? file->data : NULL,
                                 .fd = file->fd,
                                 .path = file->path,
                                 .weights = MOXIE_WEIGHTS_INIT };
    for (int64_t e = 0; e <= experts; e++) {
        const mox_expert_entry *entry = &file->index[e];
        const void *record = entry->range.bytes != 0 ? file->data + entry->range.offset : NULL;
        scales[e] = (moxie_expert) { .a13_scale = entry->a13_scale, .a2_scale = entry->a2_scale };
        if (e < experts)
            routed[e] = record;
        else
            out->shared = record;
    }
    out->weights.n_experts = experts;
    out->weights.experts = scales;
    out->weights.shared = &scales[experts];
    return mox_expert_take_matrices(file, config, &out->weights, error);
}

static moxie_status open_with(const moxie_expert_file *file, const moxie_layer_config *config,
                              const moxie_options *options, bool fetched, moxie_expert *scales, moxie_layer **out,
                              moxie_error *error)
{
    const void *routed[MOXIE_MAX_EXPERTS];
    mox_given_records given;
    MOX_TRY(give_records(file, config, routed, scales, &given, error));
    given.fetched = fetched;
    const moxie_status status = mox_layer_open_given(config, options, &given, out, error);
    return status == MOXIE_ERR_UNSUPPORTED ? refuse(file, options, error) : status;
}

static moxie_status open_layer(const moxie_expert_file *file, const moxie_layer_config *config,
                               const moxie_options *options, bool fetched, moxie_layer **out, moxie_error *error)
{
    moxie_layer_config checked;
    MOX_TRY(mox_config_read(config != NULL ? config : &file->config, &checked, error));
    MOX_TRY(check_shapes(file, &checked, error));
    MOX_TRY(check_options(file, options, error));
    if (checked.tp_size > 1 && mox_options_comm(options) == NULL)
        return mox_fail_file(
            MOXIE_ERR_ARGUMENT, error, file->path, -1,
            "its records are the rows of tensor parallel rank %d of %d, and options.comm is NULL: "
            "a run needs the other ranks' rows, so open it with their comm (moxie run: the directories of all "
            "ranks, --ranks and --tp)",
            (int)checked.tp_rank, (int)checked.tp_size);
    moxie_expert *scales = mox_calloc((uint64_t)file->header.experts + 1, sizeof *scales);
    MOX_FAIL_IF(scales == NULL, MOXIE_ERR_MEMORY, error, "no memory for the scales of a layer");
    const moxie_status status = open_with(file, &checked, options, fetched, scales, out, error);
    mox_free(scales);
    return status;
}

moxie_status mox_layer_open_file(const moxie_expert_file *file, const moxie_layer_config *config,
                                 const moxie_options *options, moxie_layer **out, moxie_error *error)
{
    return open_layer(file, config, options, false, out, error);
}

moxie_status mox_layer_open_fetched(const moxie_expert_file *file, const moxie_layer_config *config,
                                    const moxie_options *options, moxie_layer **out, moxie_error *error)
{
    return open_layer(file, config, options, true, out, error);
}

moxie_status mox_expert_file_explain(const moxie_expert_file *file, const moxie_layer_config *config,
                                     const moxie_options *options, moxie_plan **out, moxie_error *error)
{
    moxie_layer_config checked;
    const moxie_layer_config *c = config != NULL ? config : &file->config;
    MOX_TRY(mox_config_read(c, &checked, error));
    MOX_TRY(check_shapes(file, &checked, error));
    const moxie_status status = mox_plan_explain(c, file->layouts, true, options, out, error);
    return status == MOXIE_ERR_UNSUPPORTED ? refuse(file, options, error) : status;
}
