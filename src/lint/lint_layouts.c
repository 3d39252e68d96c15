/* SPDX-License-Identifier: Apache-2.0
 *
 * lint_layouts.c - loads a layer as moxie would, then asks each layout of `moxie prepare` that is made for its format
 * whether it takes these weights. Layouts for other formats are not mentioned: they refuse almost every checkpoint.
 *
 * A layout that refuses several layers is one finding, for the first of them.
 */
#include <string.h>

#include "layer/config/config.h"
#include "lint/lint_layer.h"
#include "vendor/vendor.h"

static bool lists(const moxie_dtype *list, int count, moxie_dtype dtype)
{
    for (int i = 0; i < count && list[i] != MOXIE_DTYPE_NONE; i++)
        if (list[i] == dtype)
            return true;
    return false;
}

/* `group` is listed; -1 stands for all of `extent`. `usual` counts where nothing is listed; 0: anything does. */
static bool has_group(const int32_t *list, int count, int64_t group, int64_t extent, int64_t usual)
{
    for (int i = 0; i < count && list[i] != 0; i++)
        if (list[i] == group || (list[i] == -1 && group == extent))
            return true;
    return list[0] == 0 && (usual == 0 || group == usual);
}

static bool is_made_for(const mox_vendor_layout *layout, const moxie_layer_config *config)
{
    const mox_vendor_accepts *a = &layout->accepts;
    const moxie_quant *w = &config->w13;
    const int64_t rows = config->intermediate, cols = config->hidden;
    const bool grouped = has_group(a->group_cols, 6, mox_group_cols(w, cols), cols, 0) &&
                         has_group(a->group_rows, 4, mox_group_rows(w, rows), rows, 1);
    const bool scaled = w->scale != MOXIE_DTYPE_NONE;
    return lists(a->elements, 4, w->element) &&
           (scaled ? lists(a->scales, 4, w->scale) && grouped : a->scales[0] == MOXIE_DTYPE_NONE) &&
           (w->has_zero ? a->zeros : !a->zeros || a->no_zeros) &&
           (w->global != MOXIE_GLOBAL_NONE) == (a->global != MOXIE_GLOBAL_NONE);
}

/* The reason without the layout's name, which most texts begin with. */
static const char *reason_in(const char *text, const char *layout)
{
    const size_t length = strlen(layout);
    const bool named = strncmp(text, "layout ", 7) == 0 && strncmp(text + 7, layout, length) == 0 &&
                       strncmp(text + 7 + length, ": ", 2) == 0;
    return named ? text + 7 + length + 2 : text;
}

static void ask_layout(mox_lint_layer *l, const moxie_model_layer *loaded, const mox_vendor_layout *layout)
{
    const moxie_layer_config *config = mox_model_layer_config(loaded);
    const moxie_expert *experts = mox_model_layer_weights(loaded)->experts;
    const mox_record_shape shape = mox_config_routed_shape(config);
    const mox_vendor_use use = { .activation = config->activation, .a13 = config->a13, .a2 = config->a2 };
    moxie_error error = { 0 };
    mox_vendor_plan *plan = mox_alloc(sizeof *plan);
    if (!plan) {
        l->lint->report->no_memory = true;
        return;
    }
    moxie_status status = mox_vendor_plan_make(layout, &shape, &use, &experts[0], false, plan, &error);
    for (int64_t e = 0; status == MOXIE_OK && l->lint->options->deep && e < config->experts; e++)
        status = mox_vendor_check(plan, &experts[e], &error);
    mox_free(plan);
    if (status == MOXIE_ERR_MEMORY)
        l->lint->report->no_memory = true;
    if (status == MOXIE_OK || status == MOXIE_ERR_MEMORY)
        return;
    mox_lint_report(l->lint->report, MOX_LINT_LAYOUT_REFUSES, (mox_lint_where) { .layer = l->layer }, "layout %s: %s",
                    layout->name, reason_in(error.text, layout->name));
}

static void report_unread(mox_lint_layer *l, const char *name)
{
    const mox_file_tensor *tensor = mox_tensor_set_find(l->lint->model->set, name);
    char shape[96];
    mox_lint_report(l->lint->report, MOX_LINT_UNREAD, mox_lint_at(l->lint, l->layer, tensor), "it is %s %s",
                    tensor->file_dtype, mox_shape_text(tensor->view.shape, tensor->view.rank, shape, sizeof shape));
}

void mox_lint_load(mox_lint_layer *l)
{
    moxie_model_layer *loaded = NULL;
    moxie_error error = { 0 };
    const moxie_status status = mox_model_load_layer(l->lint->model, l->layer, &loaded, &error);
    moxie_lint *report = l->lint->report;
    if (status == MOXIE_ERR_MEMORY)
        report->no_memory = true;
    if (status != MOXIE_OK) {
        if (status != MOXIE_ERR_MEMORY && mox_lint_errors_in(report, l->layer) == 0)
            mox_lint_report(report, MOX_LINT_LAYER_REFUSED, (mox_lint_where) { .layer = l->layer, .file = error.file },
                            "%s", error.text);
        return;
    }
    for (int64_t i = 0; i < loaded->info.n_unread; i++)
        report_unread(l, loaded->unread[i]);
    for (int32_t i = 0; mox_vendor_at(i); i++)
        if (is_made_for(mox_vendor_at(i), mox_model_layer_config(loaded)))
            ask_layout(l, loaded, mox_vendor_at(i));
    mox_model_layer_free(loaded);
}
