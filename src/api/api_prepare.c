/* SPDX-License-Identifier: Apache-2.0
 *
 * api_prepare.c - the functions of moxie_prepare.h.
 *
 * Each checks its arguments, cuts this rank's share out of the whole expert, and calls src/vendor, which knows one
 * expert and one layout:
 *
 *     whole expert (views) -> share (views, tensor parallel) -> src/vendor: survey, pack, unpack -> tensors
 */
#include <moxie/moxie_prepare.h>

#include <stdio.h>

#include "base/cpu_features.h"
#include "base/memory.h"
#include "layer/config/config.h"
#include "layer/config/reserved.h"
#include "layer/config/struct_size.h"
#include "vendor/vendor_slice.h"
#include "route/route.h"

struct moxie_preparation {
    mox_record_shape whole;
    mox_vendor_slice share;
    mox_vendor_plan plan; /* of the share */
    int32_t n_experts;
    int32_t experts[MOXIE_MAX_EXPERTS];
};

/* ---- layouts -------------------------------------------------------------------------------------- */

static moxie_prepare_limit public_limit(const mox_vendor_limit *limit)
{
    return (moxie_prepare_limit) { .struct_size = sizeof(moxie_prepare_limit),
                                   .extent = limit->extent == MOX_VENDOR_HIDDEN ? "hidden" : "intermediate",
                                   .multiple = limit->multiple,
                                   .pads = limit->pads,
                                   .why = limit->why };
}

/* The array of limits ends with a multiple of 0, or with its last element. */
static int32_t count_limits(const mox_vendor_layout *layout)
{
    int32_t count = 0;
    while (count < MOX_VENDOR_LIMITS && layout->limits[count].multiple != 0)
        count++;
    return count;
}

int moxie_prepare_layout_at(int32_t i, moxie_prepare_layout *out)
{
    const mox_vendor_layout *layout = mox_vendor_at(i);
    if (!layout || !out || mox_struct_check(out, MOX_STRUCT(moxie_prepare_layout), NULL) != MOXIE_OK)
        return 0;
    moxie_prepare_layout known = MOXIE_PREPARE_LAYOUT_INIT;
    known.name = layout->name;
    known.summary = layout->summary;
    known.caller = layout->caller;
    known.surveys = layout->surveys;
    mox_vendor_describe(layout, known.accepts, sizeof known.accepts);
    known.n_limits = count_limits(layout);
    known.release = mox_vendor_release(layout);
    known.also = mox_vendor_also(layout);
    known.is_default = layout == mox_vendor_by_name(layout->name);
    mox_struct_write(&known, out, MOX_STRUCT(moxie_prepare_layout));
    return 1;
}

int moxie_prepare_limit_at(int32_t layout, int32_t i, moxie_prepare_limit *out)
{
    const mox_vendor_layout *of = mox_vendor_at(layout);
    if (!of || !out || i < 0 || i >= count_limits(of) ||
        mox_struct_check(out, MOX_STRUCT(moxie_prepare_limit), NULL) != MOXIE_OK)
        return 0;
    const moxie_prepare_limit known = public_limit(&of->limits[i]);
    mox_struct_write(&known, out, MOX_STRUCT(moxie_prepare_limit));
    return 1;
}

/* Length of a name's first word: 6 for "trtllm-mxint4". */
static size_t first_word(const char *name)
{
    return strcspn(name, "-");
}

static bool same_word(const char *a, const char *b)
{
    return first_word(a) == first_word(b) && !strncmp(a, b, first_word(a));
}

/* The names that begin with the same word as `name`; when there are none, the first words of all names. All names would
 * be too many for one text. */
static void list_names(const char *name, char *names, size_t size)
{
    bool any = false;
    for (int32_t i = 0; mox_vendor_at(i); i++)
        any = any || same_word(name, mox_vendor_at(i)->name);
    for (int32_t i = 0; mox_vendor_at(i); i++) {
        const char *next = mox_vendor_at(i)->name, *comma = names[0] ? ", " : "";
        const size_t at = strlen(names);
        bool known = false;
        for (int32_t before = 0; before < i; before++)
            known = known || same_word(next, mox_vendor_at(before)->name);
        if (i > 0 && !strcmp(next, mox_vendor_at(i - 1)->name)) /* another version */
            continue;
        if (any && same_word(name, next))
            snprintf(names + at, size - at, "%s%s", comma, next);
        else if (!any && !known)
            snprintf(names + at, size - at, "%s%.*s-...", comma, (int)first_word(next), next);
    }
}

/* The releases of all versions of a layout. */
static void list_releases(const char *name, char *releases, size_t size)
{
    for (int32_t i = 0; mox_vendor_at(i); i++) {
        const size_t at = strlen(releases);
        const mox_vendor_layout *layout = mox_vendor_at(i);
        if (!strcmp(layout->name, name))
            snprintf(releases + at, size - at, "%s%s%s%s", at > 0 ? " " : "", mox_vendor_release(layout),
                     *mox_vendor_also(layout) ? " " : "", mox_vendor_also(layout));
    }
}

static moxie_status find_layout(const char *name, const char *release, const mox_vendor_layout **out,
                                moxie_error *error)
{
    char names[400] = "", shown[80];
    const mox_vendor_layout *newest = name ? mox_vendor_by_name(name) : NULL;
    if (!newest)
        list_names(name ? name : "", names, sizeof names);
    MOX_FAIL_IF(!newest, MOXIE_ERR_ARGUMENT, error,
                "there is no layout \"%s\"; there are: %s (`moxie prepare --list` shows all)",
                mox_escape(shown, sizeof shown, name ? name : ""), names);
    *out = release && *release ? mox_vendor_find(name, release) : newest;
    if (!*out)
        list_releases(name, names, sizeof names);
    MOX_FAIL_IF(!*out, MOXIE_ERR_ARGUMENT, error,
                "layout %s has no version for \"%s\"; it has those for: %s; without a release it is the first", name,
                mox_escape(shown, sizeof shown, release), names);
    return MOXIE_OK;
}

/* ---- preparations --------------------------------------------------------------------------------- */

static moxie_status check_config(const moxie_layer_config *config, moxie_error *error)
{
    MOX_TRY(mox_reserved_config(config, error));
    MOX_FAIL_IF(config->hidden < 1 || config->intermediate < 1 || config->hidden > INT32_MAX ||
                    config->intermediate > INT32_MAX,
                MOXIE_ERR_ARGUMENT, error, "hidden size %lld and intermediate size %lld must be from 1 to 2^31 - 1",
                (long long)config->hidden, (long long)config->intermediate);
    MOX_TRY(mox_quant_check_weight(&config->w13, "w13", error));
    return mox_quant_check_weight(&config->w2, "w2", error);
}

/* Fills p->experts: the global index of the expert in each slot of this rank. */
static moxie_status find_local_experts(moxie_preparation *p, const moxie_layer_config *config, moxie_error *error)
{
    int32_t local[MOXIE_MAX_EXPERTS], count;
    MOX_FAIL_IF(config->experts < 1 || config->experts > MOXIE_MAX_EXPERTS, MOXIE_ERR_ARGUMENT, error,
                "%lld experts; it must be from 1 to %d", (long long)config->experts, MOXIE_MAX_EXPERTS);
    MOX_TRY(mox_expert_map((moxie_expert_map_kind)config->ep_map, (int32_t)config->experts,
                           config->ep_size > 0 ? config->ep_size : 1, config->ep_rank, local, &count, error));
    for (int32_t e = 0; e < config->experts; e++)
        if (local[e] >= 0)
            p->experts[local[e]] = e;
    p->n_experts = count;
    return MOXIE_OK;
}

/* This rank's share of an expert, as views. A bias that belongs to another rank is replaced by zeros in *spare, which
 * the caller frees. */
static moxie_status cut_expert(const moxie_preparation *p, const moxie_expert *expert, void **spare, moxie_expert *out,
                               moxie_error *error)
{
    MOX_TRY(mox_reserved_expert(expert, "expert", error));
    MOX_TRY(mox_vendor_check_views(&p->whole, expert, error));
    const uint64_t bytes = mox_vendor_slice_scratch(&p->whole, &p->share, expert);
    if (bytes > 0) {
        *spare = mox_alloc(bytes);
        MOX_FAIL_IF(!*spare, MOXIE_ERR_MEMORY, error, "no %llu bytes for a bias", (unsigned long long)bytes);
    }
    return mox_vendor_slice_expert(&p->whole, &p->share, expert, *spare, out, error);
}

static moxie_status make_plan(moxie_preparation *p, const mox_vendor_layout *layout, const moxie_layer_config *config,
                              const moxie_preparation_options *options, const moxie_expert *example, moxie_error *error)
{
    const mox_vendor_use use = {
        .activation = config->activation, .a13 = config->a13, .a2 = config->a2, .symmetric = options->symmetric != 0
    };
    moxie_expert share;
    void *spare = NULL;
    MOX_TRY(check_config(config, error));
    MOX_TRY(find_local_experts(p, config, error));
    p->whole = mox_config_routed_shape(config);
    MOX_TRY(mox_reserved_expert(example, "example", error));
    MOX_TRY(mox_vendor_check_views(&p->whole, example, error));
    MOX_TRY(mox_vendor_slice_make(layout, &p->whole, example, options->pad != 0, options->tp_rank,
                                  options->tp_size > 0 ? options->tp_size : 1, &p->share, error));
    const mox_record_shape shape = mox_vendor_slice_shape(&p->whole, &p->share);
    moxie_status status = cut_expert(p, example, &spare, &share, error);
    if (status == MOXIE_OK)
        status = mox_vendor_plan_make(layout, &shape, &use, &share, options->pad != 0, &p->plan, error);
    mox_free(spare);
    return status;
}

moxie_status moxie_preparation_create(const moxie_layer_config *config, const moxie_preparation_options *options,
                                      const moxie_expert *example, moxie_preparation **out, moxie_error *error)
{
    MOX_FAIL_IF(!config || !options || !example || !out, MOXIE_ERR_ARGUMENT, error,
                "moxie_preparation_create: config, options, example or out is NULL");
    moxie_preparation_options known = MOXIE_PREPARATION_OPTIONS_INIT;
    moxie_layer_config c = MOXIE_LAYER_CONFIG_INIT;
    const mox_vendor_layout *layout;
    MOX_TRY(mox_cpu_check_cap(error));
    MOX_TRY(mox_struct_read(options, &known, MOX_STRUCT(moxie_preparation_options), error));
    MOX_TRY(mox_struct_read(config, &c, MOX_STRUCT(moxie_layer_config), error));
    MOX_TRY(find_layout(known.layout, known.release, &layout, error));
    moxie_preparation *p = mox_alloc(sizeof *p);
    MOX_FAIL_IF(!p, MOXIE_ERR_MEMORY, error, "no memory for a preparation");
    const moxie_status status = make_plan(p, layout, &c, &known, example, error);
    if (status == MOXIE_OK)
        *out = p;
    else
        mox_free(p);
    return status;
}

void moxie_preparation_destroy(moxie_preparation *preparation)
{
    mox_free(preparation);
}

moxie_status moxie_preparation_get_info(const moxie_preparation *p, moxie_preparation_info *out, moxie_error *error)
{
    MOX_FAIL_IF(!p || !out, MOXIE_ERR_ARGUMENT, error, "moxie_preparation_get_info: preparation or out is NULL");
    MOX_TRY(mox_struct_check(out, MOX_STRUCT(moxie_preparation_info), error));
    moxie_preparation_info known = MOXIE_PREPARATION_INFO_INIT;
    known.layout = p->plan.layout->name;
    known.hidden = p->whole.hidden;
    known.intermediate = p->share.count;
    known.padded_hidden = p->plan.hidden;
    known.padded_intermediate = p->plan.intermediate;
    known.first_intermediate = p->share.first;
    known.whole_intermediate = p->whole.intermediate;
    known.surveys = p->plan.layout->surveys;
    known.n_tensors = p->plan.count;
    for (int32_t i = 0; i < p->plan.count; i++)
        known.expert_bytes += p->plan.tensors[i].bytes;
    known.n_experts = p->n_experts;
    known.experts = p->experts;
    known.repeat = p->plan.repeat;
    known.release = mox_vendor_release(p->plan.layout);
    mox_struct_write(&known, out, MOX_STRUCT(moxie_preparation_info));
    return MOXIE_OK;
}

int moxie_preparation_tensor_at(const moxie_preparation *p, int32_t i, moxie_prepared_tensor *out)
{
    if (!p || !out || i < 0 || i >= p->plan.count ||
        mox_struct_check(out, MOX_STRUCT(moxie_prepared_tensor), NULL) != MOXIE_OK)
        return 0;
    const mox_vendor_tensor *t = &p->plan.tensors[i];
    moxie_prepared_tensor known = { .name = t->name, .dtype = t->dtype, .rank = t->rank, .bytes = t->bytes };
    memcpy(known.shape, t->shape, sizeof known.shape);
    mox_struct_write(&known, out, MOX_STRUCT(moxie_prepared_tensor));
    return 1;
}

/* ---- one expert ----------------------------------------------------------------------------------- */

moxie_status moxie_preparation_survey(moxie_preparation *p, const moxie_expert *expert, moxie_error *error)
{
    MOX_FAIL_IF(!p || !expert, MOXIE_ERR_ARGUMENT, error, "moxie_preparation_survey: preparation or expert is NULL");
    if (!p->plan.layout->surveys)
        return MOXIE_OK;
    moxie_expert share;
    void *spare = NULL;
    moxie_status status = cut_expert(p, expert, &spare, &share, error);
    if (status == MOXIE_OK)
        status = mox_vendor_survey(&p->plan, &share, error);
    mox_free(spare);
    return status;
}

moxie_status moxie_preparation_get_facts(const moxie_preparation *p, moxie_preparation_facts *out, moxie_error *error)
{
    MOX_FAIL_IF(!p || !out, MOXIE_ERR_ARGUMENT, error, "moxie_preparation_get_facts: preparation or out is NULL");
    MOX_TRY(mox_struct_check(out, MOX_STRUCT(moxie_preparation_facts), error));
    const mox_vendor_facts *f = &p->plan.facts;
    moxie_preparation_facts known = MOXIE_PREPARATION_FACTS_INIT;
    memcpy(known.scale_max, f->scale_max, sizeof known.scale_max);
    memcpy(known.scale_min, f->scale_min, sizeof known.scale_min);
    known.a13_max = f->a13_max;
    known.a2_max = f->a2_max;
    mox_struct_write(&known, out, MOX_STRUCT(moxie_preparation_facts));
    return MOXIE_OK;
}

moxie_status moxie_preparation_set_facts(moxie_preparation *p, const moxie_preparation_facts *facts, moxie_error *error)
{
    MOX_FAIL_IF(!p || !facts, MOXIE_ERR_ARGUMENT, error, "moxie_preparation_set_facts: preparation or facts is NULL");
    moxie_preparation_facts known = MOXIE_PREPARATION_FACTS_INIT;
    MOX_TRY(mox_struct_read(facts, &known, MOX_STRUCT(moxie_preparation_facts), error));
    mox_vendor_facts f = { .a13_max = known.a13_max, .a2_max = known.a2_max };
    memcpy(f.scale_max, known.scale_max, sizeof f.scale_max);
    memcpy(f.scale_min, known.scale_min, sizeof f.scale_min);
    MOX_TRY(mox_vendor_check_facts(&f, MOXIE_ERR_ARGUMENT, error));
    p->plan.facts = f;
    return MOXIE_OK;
}

/* The caller gave memory for every tensor. */
static moxie_status check_tensors(const moxie_preparation *p, void *const *tensors, moxie_error *error)
{
    for (int32_t i = 0; i < p->plan.count; i++)
        MOX_FAIL_IF(!tensors[i], MOXIE_ERR_ARGUMENT, error, "no memory is given for tensor %s of %llu bytes",
                    p->plan.tensors[i].name, (unsigned long long)p->plan.tensors[i].bytes);
    return MOXIE_OK;
}

/* Replaces an executor that cannot run anything by the calling thread. */
static moxie_status check_executor(const moxie_executor **executor, moxie_error *error)
{
    if (*executor)
        MOX_RESERVED(moxie_executor, *executor, "executor", error);
    if (!*executor || !(*executor)->run || (*executor)->workers < 1)
        *executor = &mox_executor_serial;
    return MOXIE_OK;
}

moxie_status moxie_preparation_pack(const moxie_preparation *p, const moxie_expert *expert, void *const *tensors,
                                    const moxie_executor *executor, moxie_error *error)
{
    MOX_FAIL_IF(!p || !expert || !tensors, MOXIE_ERR_ARGUMENT, error,
                "moxie_preparation_pack: preparation, expert or tensors is NULL");
    MOX_TRY(check_tensors(p, tensors, error));
    MOX_TRY(check_executor(&executor, error));
    moxie_expert share;
    void *spare = NULL;
    moxie_status status = cut_expert(p, expert, &spare, &share, error);
    if (status == MOXIE_OK)
        status = mox_vendor_pack(&p->plan, &share, tensors, executor, error);
    mox_free(spare);
    return status;
}

moxie_status moxie_preparation_unpack(const moxie_preparation *p, void *const *tensors, moxie_expert *expert,
                                      const moxie_executor *executor, moxie_error *error)
{
    MOX_FAIL_IF(!p || !expert || !tensors, MOXIE_ERR_ARGUMENT, error,
                "moxie_preparation_unpack: preparation, expert or tensors is NULL");
    MOX_TRY(check_tensors(p, tensors, error));
    MOX_TRY(check_executor(&executor, error));
    moxie_expert share;
    void *spare = NULL;
    moxie_status status = cut_expert(p, expert, &spare, &share, error);
    if (status == MOXIE_OK)
        status = mox_vendor_unpack(&p->plan, tensors, &share, executor, error);
    if (status == MOXIE_OK) {
        expert->a13_scale = share.a13_scale;
        expert->a2_scale = share.a2_scale;
    }
    mox_free(spare);
    return status;
}
