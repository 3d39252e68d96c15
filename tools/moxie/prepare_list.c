/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare_list.c - `moxie prepare --list`: every layout, what it accepts, its limits. With a checkpoint's directory,
 * which layouts accept the weights of its first layer of experts:
 *
 *     as they are  |  with --pad  |  not, and why
 *
 * A layout has a version for each way in which releases of its engine read weights; the newest is the default. With a
 * directory one version of each is tried: that for `--for`, or else the newest.
 * Weights are not read: an expert whose values a layout cannot hold is rejected when it is prepared.
 */
#include <string.h>

#include "prepare.h"

/* ---- versions ------------------------------------------------------------------------------------------ */

bool prepare_is_for(const moxie_prepare_layout *layout, const char *release)
{
    if (!release)
        return layout->is_default;
    bool found = !strcmp(layout->release, release);
    for (const char *word = layout->also; !found && *word;) {
        const size_t length = strcspn(word, " ");
        found = length == strlen(release) && !strncmp(word, release, length);
        word += length + strspn(word + length, " ");
    }
    return found;
}

/* Version for the release, else the newest, of the layout of entry i; true when entry i is that one. */
static bool is_chosen(const char *release, int32_t i)
{
    moxie_prepare_layout layout = MOXIE_PREPARE_LAYOUT_INIT, other = MOXIE_PREPARE_LAYOUT_INIT;
    moxie_prepare_layout_at(i, &layout);
    if (!release || prepare_is_for(&layout, release))
        return prepare_is_for(&layout, release);
    bool another = false;
    for (int32_t o = 0; moxie_prepare_layout_at(o, &other); o++)
        another = another || (!strcmp(other.name, layout.name) && prepare_is_for(&other, release));
    return !another && layout.is_default;
}

moxie_status prepare_choose(prepare_options *options, moxie_error *error)
{
    moxie_prepare_layout layout = MOXIE_PREPARE_LAYOUT_INIT;
    char all[256] = "";
    if (prepare_expert_target(options->layout) && !options->release) {
        snprintf(options->how.layout, sizeof options->how.layout, "%s", options->layout);
        return MOXIE_OK;
    }
    for (int32_t i = 0; moxie_prepare_layout_at(i, &layout); i++) {
        const size_t used = strlen(all);
        if (strcmp(layout.name, options->layout) != 0)
            continue;
        if (prepare_is_for(&layout, options->release)) {
            snprintf(options->how.layout, sizeof options->how.layout, "%s", layout.name);
            snprintf(options->how.release, sizeof options->how.release, "%s", layout.release);
            return MOXIE_OK;
        }
        snprintf(all + used, sizeof all - used, "%s%s%s%s", used ? ", " : "", layout.release, *layout.also ? ", " : "",
                 layout.also);
    }
    return cli_error(MOXIE_ERR_ARGUMENT, error, "",
                     "layout %s has no version for \"%s\": it has those for %s; without --for it is the first",
                     options->layout, cli_printable(options->release), all);
}

/* ---- our own kernels ------------------------------------------------------------------------------------ */

static void print_targets(void)
{
    moxie_expert_target target = MOXIE_EXPERT_TARGET_INIT;
    for (int32_t i = 0; moxie_expert_target_at(i, &target); i++)
        printf("\n%s: expert files for moxie's own kernels: %s\n    accepts       every checkpoint in safetensors that "
               "moxie runs\n",
               target.name, target.summary);
}

static json_t *json_targets(void)
{
    json_t *targets = json_array();
    moxie_expert_target target = MOXIE_EXPERT_TARGET_INIT;
    for (int32_t i = 0; moxie_expert_target_at(i, &target); i++)
        cli_json_append(targets, cli_pack("{s:s, s:s}", "name", target.name, "summary", target.summary));
    return targets;
}

/* ---- which accept the weights -------------------------------------------------------------------------- */

typedef enum fit { FITS, FITS_PADDED, REJECTED, FITS_COUNT } fit;

/* The checkpoint whose weights are tried. */
typedef struct subject {
    const prepare_options *options;
    prepare_how how;
    moxie_model *model;
    moxie_model_layer *loaded;
    int64_t layer;
} subject;

static moxie_status open_subject(const prepare_options *options, subject *s, moxie_error *error)
{
    moxie_model_options model_options = MOXIE_MODEL_OPTIONS_INIT;
    moxie_model_layer_info info = MOXIE_MODEL_LAYER_INFO_INIT;
    model_options.experts_only = 1;
    model_options.allow_unread = options->allow_unread;
    *s = (subject) { .options = options, .how = options->how };
    moxie_status status = moxie_model_open(options->dir, &model_options, &s->model, error);
    if (status == MOXIE_OK)
        status = cli_refuse_gguf(s->model, options->dir, "GGUF files are run, not prepared for other engines: prepare",
                                 error);
    if (status == MOXIE_OK)
        status = prepare_configs_symmetric(options->dir, &s->how, error);
    if (status == MOXIE_OK)
        status = moxie_model_describe_layer(s->model, 0, &info, error);
    if (status != MOXIE_OK)
        return status;
    s->layer = info.layer;
    return moxie_model_load_layer(s->model, s->layer, &s->loaded, error);
}

static void close_subject(subject *s)
{
    moxie_model_layer_free(s->loaded);
    moxie_model_close(s->model);
}

/* `why`: the rejection, of weights without padding. */
static fit fit_of(const subject *s, const moxie_prepare_layout *layout, moxie_error *why)
{
    prepare_how how = s->how;
    moxie_error padded;
    for (how.pad = s->options->how.pad; how.pad < 2; how.pad++) {
        moxie_preparation *preparation = NULL;
        snprintf(how.layout, sizeof how.layout, "%s", layout->name);
        snprintf(how.release, sizeof how.release, "%s", layout->release);
        const moxie_status status = prepare_plan(&how, s->loaded, &preparation, how.pad ? &padded : why);
        moxie_preparation_destroy(preparation);
        if (status == MOXIE_OK)
            return how.pad ? FITS_PADDED : FITS;
        if (status == MOXIE_ERR_MEMORY) /* says nothing about the layout */
            cli_no_memory();
    }
    if (s->options->how.pad)
        *why = padded;
    return REJECTED;
}

/* The reason without the layout's name, which is printed before it. */
static const char *reason_in(const moxie_error *why, const char *layout)
{
    const size_t length = strlen(layout);
    const bool named = !strncmp(why->text, "layout ", 7) && !strncmp(why->text + 7, layout, length) &&
                       !strncmp(why->text + 7 + length, ": ", 2);
    return named ? why->text + 7 + length + 2 : why->text;
}

static void print_fits(const subject *s)
{
    static const char *const headings[] = { "accept them", "accept them with --pad", "reject them" };
    printf("layouts for the experts of %s, by its layer %lld:\n", cli_printable(s->options->dir), (long long)s->layer);
    for (int f = 0; f < FITS_COUNT; f++) {
        moxie_prepare_layout layout = MOXIE_PREPARE_LAYOUT_INIT;
        bool any = false;
        for (int32_t i = 0; moxie_prepare_layout_at(i, &layout); i++) {
            moxie_error why = { 0 };
            if (!is_chosen(s->options->release, i) || fit_of(s, &layout, &why) != (fit)f)
                continue;
            if (!any)
                printf("\n%s\n", headings[f]);
            any = true;
            printf("    %-32s  %s\n", layout.name, f == REJECTED ? reason_in(&why, layout.name) : layout.summary);
        }
    }
    print_targets();
}

/* ---- all of them -------------------------------------------------------------------------------------- */

static void print_layouts(void)
{
    moxie_prepare_layout layout = MOXIE_PREPARE_LAYOUT_INIT;
    for (int32_t i = 0; moxie_prepare_layout_at(i, &layout); i++) {
        printf("%s%s%s%s: %s\n    for           %s\n    version       %s%s%s%s\n    accepts       %s\n", i ? "\n" : "",
               layout.name, layout.is_default ? "" : " --for ", layout.is_default ? "" : layout.release, layout.summary,
               layout.caller, layout.release, *layout.also ? " " : "", layout.also,
               layout.is_default ? ", the default" : "", layout.accepts);
        moxie_prepare_limit limit = MOXIE_PREPARE_LIMIT_INIT;
        for (int32_t l = 0; moxie_prepare_limit_at(i, l, &limit); l++)
            printf("    %-12s  a multiple of %d: %s%s\n", limit.extent, limit.multiple, limit.why,
                   limit.pads ? " (--pad fills up)" : "");
    }
    print_targets();
}

static json_t *json_of(int32_t index, const moxie_prepare_layout *layout)
{
    json_t *limits = json_array();
    moxie_prepare_limit limit = MOXIE_PREPARE_LIMIT_INIT;
    for (int32_t l = 0; moxie_prepare_limit_at(index, l, &limit); l++)
        cli_json_append(limits, cli_pack("{s:s, s:i, s:b, s:s}", "extent", limit.extent, "multiple", limit.multiple,
                                         "pads", limit.pads, "why", limit.why));
    return cli_pack("{s:s, s:s, s:s, s:b, s:s, s:s, s:s, s:o}", "name", layout->name, "release", layout->release,
                    "also", layout->also, "default", layout->is_default, "summary", layout->summary, "caller",
                    layout->caller, "takes", layout->accepts, "limits", limits);
}

/* `s` NULL: no checkpoint was given. */
static void print_json(const subject *s)
{
    static const char *const fits[] = { "yes", "padded", "no" };
    json_t *object = cli_json_begin("prepare"), *layouts = json_array();
    moxie_prepare_layout layout = MOXIE_PREPARE_LAYOUT_INIT;
    for (int32_t i = 0; moxie_prepare_layout_at(i, &layout); i++) {
        json_t *one = json_of(i, &layout);
        moxie_error why = { 0 };
        const fit f = s ? fit_of(s, &layout, &why) : FITS;
        if (s)
            cli_json_set(one, "fits", cli_json_string(fits[f]));
        if (f == REJECTED)
            cli_json_set(one, "refusal", cli_json_string(reason_in(&why, layout.name)));
        cli_json_append(layouts, one);
    }
    cli_json_set(object, "layouts", layouts);
    cli_json_set(object, "expert_targets", json_targets());
    cli_json_end(object);
}

int prepare_list(const prepare_options *options)
{
    moxie_error error = { 0 };
    subject s;
    if (!options->dir) {
        if (options->json)
            print_json(NULL);
        else
            print_layouts();
        return CLI_OK;
    }
    const moxie_status status = open_subject(options, &s, &error);
    if (status == MOXIE_OK && options->json)
        print_json(&s);
    else if (status == MOXIE_OK)
        print_fits(&s);
    close_subject(&s);
    return status == MOXIE_OK ? CLI_OK : cli_fail("prepare", options->json, status, &error);
}
