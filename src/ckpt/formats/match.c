/* SPDX-License-Identifier: Apache-2.0
 *
 * match.c - finds the format of one matrix in hf_quant.def, and words the error when none fits.
 *
 *     for each format, in order: parts exist? dtypes accepted? shapes right? allowed by the configuration?
 *     the first that passes is the match; the one that came nearest words the error
 */
#include "ckpt/formats/match.h"

#include <stdio.h>
#include <string.h>

#include "base/sizes.h"
#include "ckpt/gguf/gguf_formats.h"
#include "ckpt/safetensors/file_dtype.h"

#define NAME_SIZE 320

moxie_status mox_matcher_create(const mox_tensor_set *set, const json_t *quant_config, const json_t *config,
                                mox_arena *arena, mox_matcher *out, moxie_error *error)
{
    mox_matcher matcher = { .set = set, .quant_config = quant_config, .config = config, .arena = arena };
    while (mox_hf_quant_at(matcher.n_formats))
        matcher.n_formats++;
    matcher.variants = mox_arena_calloc(arena, 1, sizeof *matcher.variants);
    MOX_FAIL_IF(!matcher.variants, MOXIE_ERR_MEMORY, error, "no memory to detect formats");
    MOX_TRY(mox_module_rules_create(quant_config, arena, &matcher.rules, error));
    *out = matcher;
    return MOXIE_OK;
}

static moxie_status make_variant(const mox_matcher *matcher, const mox_module_choice *choice, const mox_variant **out,
                                 moxie_error *error)
{
    const uint64_t count = (uint64_t)matcher->n_formats;
    mox_variant *made = mox_arena_calloc(matcher->arena, 1, sizeof *made);
    json_t *quant_config = made ? mox_module_rules_config(&matcher->rules, choice) : NULL;
    if (made) {
        made->formats = mox_arena_calloc(matcher->arena, count, sizeof *made->formats);
        made->allowed = mox_arena_calloc(matcher->arena, count, sizeof *made->allowed);
    }
    if (!quant_config || !made->formats || !made->allowed) {
        json_decref(quant_config);
        return mox_fail(MOXIE_ERR_MEMORY, error, "no memory to detect formats");
    }
    for (int32_t i = 0; i < matcher->n_formats; i++) {
        mox_hf_quant *format = &made->formats[i];
        *format = *mox_hf_quant_at(i);
        made->allowed[i] = !format->resolve || format->resolve(quant_config, matcher->config, format);
    }
    json_decref(quant_config);
    made->choice = *choice;
    made->next = *matcher->variants;
    *out = *matcher->variants = made;
    return MOXIE_OK;
}

/* Modules with equal rules share a variant. */
static bool same_choice(const mox_module_choice *a, const mox_module_choice *b)
{
    if (a->absent != b->absent || a->selected == b->selected)
        return a->absent == b->absent;
    return a->selected && b->selected &&
           json_equal(mox_json_iterable(a->selected), mox_json_iterable(b->selected)) == 1;
}

moxie_status mox_match_variant(const mox_matcher *matcher, const mox_wanted *wanted, const mox_variant **out,
                               moxie_error *error)
{
    mox_module_choice choice;
    MOX_TRY(mox_module_rules_choose(&matcher->rules, wanted->name, wanted->stacked > 0, &choice, error));
    for (const mox_variant *variant = *matcher->variants; variant; variant = variant->next)
        if (same_choice(&variant->choice, &choice)) {
            *out = variant;
            return MOXIE_OK;
        }
    return make_variant(matcher, &choice, out, error);
}

const mox_hf_quant *mox_match_other(const mox_matcher *matcher, const mox_match *match, const char *id)
{
    for (int32_t i = 0; i < matcher->n_formats; i++)
        if (strcmp(match->variant->formats[i].id, id) == 0)
            return &match->variant->formats[i];
    return NULL;
}

const char *mox_shape_text(const int64_t *shape, int32_t rank, char *buffer, size_t size)
{
    size_t used = (size_t)snprintf(buffer, size, "[");
    for (int32_t i = 0; i < rank && used < size; i++)
        used += (size_t)snprintf(buffer + used, size - used, "%s%lld", i ? ", " : "", (long long)shape[i]);
    if (used < size)
        snprintf(buffer + used, size - used, "]");
    return buffer;
}

static const mox_file_tensor *find(const mox_matcher *matcher, const char *name, const char *suffix)
{
    char full[NAME_SIZE];
    const int length = snprintf(full, sizeof full, "%s%s", name, suffix);
    return length > 0 && (size_t)length < sizeof full ? mox_tensor_set_find(matcher->set, full) : NULL;
}

/* Stacked tensors exist under both spellings. */
static const mox_file_tensor *find_part(const mox_matcher *matcher, const mox_part *part, const char *name,
                                        bool stacked)
{
    const mox_file_tensor *found = NULL;
    if (stacked && part->fused_suffix)
        found = find(matcher, name, part->fused_suffix);
    return found ? found : find(matcher, name, part->suffix);
}

bool mox_match_exists(const mox_matcher *matcher, const char *name, bool stacked)
{
    for (int32_t i = 0; i < matcher->n_formats; i++)
        for (int p = 0; p < MOX_MAX_PARTS && mox_hf_quant_at(i)->parts[p].role != MOX_PART_NONE; p++)
            if (find_part(matcher, &mox_hf_quant_at(i)->parts[p], name, stacked))
                return true;
    return false;
}

/* ---- one format ------------------------------------------------------------------------------- */

typedef enum miss_kind { MISS_ABSENT, MISS_DTYPE, MISS_SHAPE, MISS_RULED_OUT } miss_kind;

/* How near a format came: the number of parts that fitted, and what was wrong with the next. */
typedef struct near_miss {
    const mox_hf_quant *format;
    const mox_part *part;
    const mox_file_tensor *tensor;
    miss_kind kind;
    int32_t fitted;
    int32_t rank;
    int64_t want[MOXIE_MAX_RANK];
} near_miss;

static bool accepts(const mox_part *part, moxie_dtype dtype)
{
    for (int i = 0; i < MOX_MAX_PART_DTYPES && part->file[i] != MOXIE_DTYPE_NONE; i++)
        if (part->file[i] == dtype)
            return true;
    return false;
}

/* The group size that makes the scale grid `groups` columns wide: the configured size if it fits, else K / groups. 0:
 * there is none. */
static int32_t group_from(int64_t groups, int64_t k, int64_t hint)
{
    if (groups < 1 || groups > k)
        return 0;
    if (hint > 0 && mox_ceil_div(k, hint) == groups)
        return (int32_t)mox_min_i64(hint, k);
    return k % groups == 0 ? (int32_t)(k / groups) : 0;
}

/* Resolves group_cols -2 and the dtype of scales from the scale tensor. */
static void resolve_weight(const mox_hf_quant *format, const mox_part *part, const moxie_tensor *scale,
                           const mox_wanted *wanted, moxie_quant *weight)
{
    weight->scale = mox_part_value(part, scale->dtype);
    if (weight->group_cols != -2)
        return;
    const bool swapped = part->transposed || wanted->in_out;
    const int32_t axis = swapped ? scale->rank - 2 : scale->rank - 1;
    /* A scale per row is also stored as [N]. */
    const bool per_row = scale->rank == (wanted->stacked ? 2 : 1);
    const int64_t groups = per_row ? 1 : axis >= 0 ? scale->shape[axis] : 0;
    const int32_t group = group_from(groups, wanted->k, format->default_group);
    weight->group_cols = group > 0 ? group : (int32_t)mox_min_i64(format->default_group, wanted->k);
}

static bool part_fits(const mox_part *part, const mox_wanted *wanted, const moxie_quant *weight, near_miss *miss)
{
    const moxie_tensor *view = &miss->tensor->view;
    miss->kind = MISS_DTYPE;
    if (!accepts(part, view->dtype))
        return false;
    miss->kind = MISS_SHAPE;
    miss->rank = 0;
    if (mox_part_shape(part, weight, wanted->n, wanted->k, wanted->stacked, wanted->in_out, &miss->rank, miss->want,
                       NULL) != MOXIE_OK)
        return false;
    return mox_part_shape_fits(part, view, miss->rank, miss->want, wanted->stacked);
}

static const mox_part *scale_part(const mox_hf_quant *format, int *index)
{
    for (int p = 0; p < MOX_MAX_PARTS && format->parts[p].role != MOX_PART_NONE; p++)
        if (format->parts[p].role == MOX_PART_SCALE) {
            *index = p;
            return &format->parts[p];
        }
    return NULL;
}

static bool format_fits(const mox_matcher *matcher, const mox_variant *variant, const mox_hf_quant *format,
                        bool allowed, const mox_wanted *wanted, mox_match *out, near_miss *miss)
{
    mox_match match = { .variant = variant, .format = format, .weight = format->weight };
    *miss = (near_miss) { .format = format, .part = &format->parts[0], .kind = MISS_ABSENT };
    for (int p = 0; p < MOX_MAX_PARTS && format->parts[p].role != MOX_PART_NONE; p++) {
        match.parts[p] = find_part(matcher, &format->parts[p], wanted->name, wanted->stacked > 0);
        if (p == 0 && !match.parts[0])
            return false;
    }
    int scale_index = 0;
    const mox_part *scale = scale_part(format, &scale_index);
    if (scale && match.parts[scale_index])
        resolve_weight(format, scale, &match.parts[scale_index]->view, wanted, &match.weight);
    for (int p = 0; p < MOX_MAX_PARTS && format->parts[p].role != MOX_PART_NONE; p++) {
        miss->part = &format->parts[p];
        miss->tensor = match.parts[p];
        miss->kind = MISS_ABSENT;
        if (!match.parts[p] && format->parts[p].optional)
            continue;
        if (!match.parts[p] || !part_fits(&format->parts[p], wanted, &match.weight, miss))
            return false;
        miss->fitted++;
    }
    miss->kind = MISS_RULED_OUT;
    if (!allowed)
        return false;
    /* Blocks are always stored output by output. */
    if (wanted->in_out && format->parts[0].form == MOX_FORM_BLOCKS)
        return false;
    *out = match;
    return true;
}

/* True when a came nearer than b. Between equals the method of the configuration decides. */
static bool nearer(const mox_matcher *matcher, const near_miss *a, const near_miss *b)
{
    if (!b->format || a->fitted != b->fitted)
        return !b->format || a->fitted > b->fitted;
    if ((a->tensor != NULL) != (b->tensor != NULL) || a->kind != b->kind)
        return a->tensor != NULL && (b->tensor == NULL || a->kind > b->kind);
    if (a->format->unlikely != b->format->unlikely)
        return b->format->unlikely;
    const char *method = mox_quant_config_method(matcher->quant_config);
    return strcmp(a->format->method, method) == 0 && strcmp(b->format->method, method) != 0;
}

/* ---- errors ----------------------------------------------------------------------------------- */

typedef struct tensors_below {
    char text[320];
    int64_t count;
} tensors_below;

/* Lists the tensors below this name: "qweight I32 [4096, 512], ...". */
static void list_below(const mox_matcher *matcher, const mox_wanted *wanted, tensors_below *out)
{
    const size_t length = strlen(wanted->name);
    size_t used = 0;
    out->count = 0;
    snprintf(out->text, sizeof out->text, "nothing");
    for (int64_t i = 0; i < mox_tensor_set_count(matcher->set); i++) {
        const mox_file_tensor *tensor = mox_tensor_set_at(matcher->set, i);
        if (strncmp(tensor->name, wanted->name, length) != 0)
            continue;
        const char *rest = tensor->name + length;
        if (*rest != 0 && *rest != '.' && *rest != '_')
            continue;
        char suffix[48], shape[80];
        mox_escape(suffix, sizeof suffix, *rest ? rest : "(itself)");
        mox_shape_text(tensor->view.shape, tensor->view.rank, shape, sizeof shape);
        if (out->count++ < 6 && used < sizeof out->text)
            used += (size_t)snprintf(out->text + used, sizeof out->text - used, "%s%s %s %s", used ? ", " : "", suffix,
                                     tensor->file_dtype, shape);
    }
}

static const char *file_of(const mox_matcher *matcher, const mox_file_tensor *tensor)
{
    return tensor ? mox_tensor_set_file_name(matcher->set, tensor->file) : "";
}

static moxie_status fail_unsupported(const mox_matcher *matcher, const mox_wanted *wanted, moxie_error *error)
{
    char name[160];
    mox_escape(name, sizeof name, wanted->name);
    for (int32_t i = 0; mox_hf_unsupported_at(i); i++) {
        const mox_hf_marker *marker = mox_hf_unsupported_at(i);
        char suffix[48];
        snprintf(suffix, sizeof suffix, ".%s", marker->suffix);
        const mox_file_tensor *tensor = find(matcher, wanted->name, suffix);
        if (tensor)
            return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, file_of(matcher, tensor), (int64_t)tensor->offset,
                                 "%s%s belongs to %s, which is not supported; %s", name, suffix, marker->text,
                                 marker->remedy);
    }
    /* Quark's first MX files: one tensor with, per 32 weights, a scale byte and then 16 (fp4) or 24 (fp6) bytes. */
    const mox_file_tensor *inline_mx = find(matcher, wanted->name, ".weight");
    if (inline_mx && inline_mx->view.dtype == MOXIE_U8 && inline_mx->view.rank == 2 && wanted->k % 32 == 0 &&
        (inline_mx->view.shape[1] == wanted->k / 32 * 17 || inline_mx->view.shape[1] == wanted->k / 32 * 25))
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, file_of(matcher, inline_mx), (int64_t)inline_mx->offset,
                             "%s.weight has its scales inline (Quark's old data type mx), which is not supported; "
                             "export with Quark's fp4 or fp6 data types",
                             name);
    return MOXIE_OK;
}

static moxie_status fail_near(const mox_matcher *matcher, const mox_wanted *wanted, const near_miss *miss,
                              const tensors_below *seen, moxie_error *error)
{
    char name[160], found[80], want[80], settings[160];
    mox_escape(name, sizeof name, wanted->name);
    const char *suffix =
        wanted->stacked > 0 && miss->part->fused_suffix ? miss->part->fused_suffix : miss->part->suffix;
    const mox_file_tensor *tensor = miss->tensor;
    const int64_t offset = tensor ? (int64_t)tensor->offset : -1;
    if (tensor) {
        mox_escape(name, sizeof name, tensor->name);
        mox_shape_text(tensor->view.shape, tensor->view.rank, found, sizeof found);
    }
    switch (miss->kind) {
    case MISS_ABSENT:
        return mox_fail_file(MOXIE_ERR_FORMAT, error, "", -1,
                             "%s%s is absent, which the format %s needs for a [%lld, %lld] matrix; found below %s: %s",
                             name, suffix, miss->format->id, (long long)wanted->n, (long long)wanted->k, name,
                             seen->text);
    case MISS_DTYPE:
        return mox_fail_file(miss->fitted ? MOXIE_ERR_MISMATCH : MOXIE_ERR_UNSUPPORTED, error, file_of(matcher, tensor),
                             offset, "%s is %s %s; no format has that, the nearest (%s) has %s here. Found: %s", name,
                             tensor->file_dtype, found, miss->format->id, mox_dtype_name(miss->part->file[0]),
                             seen->text);
    case MISS_SHAPE:
        return mox_fail_file(MOXIE_ERR_MISMATCH, error, file_of(matcher, tensor), offset,
                             "%s is %s %s, expected %s for a [%lld, %lld] matrix in the format %s%s%s", name,
                             tensor->file_dtype, found,
                             miss->rank > 0 || miss->part->form == MOX_FORM_SCALAR
                                 ? mox_shape_text(miss->want, miss->rank, want, sizeof want)
                                 : "a multiple of the word",
                             (long long)wanted->n, (long long)wanted->k, miss->format->id,
                             miss->format->act_problem ? "; the quantization config does not help: " : "",
                             miss->format->act_problem ? miss->format->act_problem : "");
    default:
        return mox_fail_file(MOXIE_ERR_UNSUPPORTED, error, file_of(matcher, tensor), offset,
                             "%s has the tensors of the format %s, but the quantization config rules it out (%s)", name,
                             miss->format->id,
                             mox_quant_config_describe(matcher->quant_config, settings, sizeof settings));
    }
}

static moxie_status fail_match(const mox_matcher *matcher, const mox_wanted *wanted, const near_miss *miss,
                               moxie_error *error)
{
    tensors_below seen;
    MOX_TRY(fail_unsupported(matcher, wanted, error));
    list_below(matcher, wanted, &seen);
    if (miss->tensor || miss->fitted > 0)
        return fail_near(matcher, wanted, miss, &seen, error);
    char name[160];
    mox_escape(name, sizeof name, wanted->name);
    return mox_fail_file(seen.count ? MOXIE_ERR_UNSUPPORTED : MOXIE_ERR_FORMAT, error, "", -1,
                         "%s, a [%lld, %lld] matrix, has no tensor of a known format; found below it: %s", name,
                         (long long)wanted->n, (long long)wanted->k, seen.text);
}

/* ---- matching --------------------------------------------------------------------------------- */

static bool is_used(const mox_match *match, const mox_file_tensor *tensor)
{
    for (int p = 0; p < MOX_MAX_PARTS; p++)
        if (match->parts[p] == tensor)
            return true;
    return false;
}

/* Rejects tensors that would change the meaning of the weights and that the format does not read. */
static moxie_status check_companions(const mox_matcher *matcher, const mox_wanted *wanted, const mox_match *match,
                                     moxie_error *error)
{
    for (int32_t i = 0; mox_hf_companion_at(i); i++) {
        const mox_hf_marker *marker = mox_hf_companion_at(i);
        for (int stacked = 0; stacked <= (wanted->stacked > 0); stacked++) {
            char suffix[48], name[200];
            snprintf(suffix, sizeof suffix, "%c%s", stacked ? '_' : '.', marker->suffix);
            const mox_file_tensor *tensor = find(matcher, wanted->name, suffix);
            if (tensor && !is_used(match, tensor))
                return mox_fail_file(
                    MOXIE_ERR_UNSUPPORTED, error, file_of(matcher, tensor), (int64_t)tensor->offset,
                    "%s says that %s, which the format %s does not support; no supported format has both",
                    mox_escape(name, sizeof name, tensor->name), marker->text, match->format->id);
        }
    }
    return MOXIE_OK;
}

/* The format of a matrix in blocks; NULL when it is in none. */
static const mox_hf_quant *block_format(const mox_matcher *matcher, const char *name)
{
    const mox_file_tensor *codes = find(matcher, name, ".weight");
    return codes && mox_is_block(codes->view.dtype) ? mox_gguf_format(codes->view.dtype, find(matcher, name, ".scale"))
                                                    : NULL;
}

moxie_status mox_match_matrix(const mox_matcher *matcher, const mox_wanted *wanted, mox_match *out, moxie_error *error)
{
    near_miss best = { 0 };
    const mox_variant *variant = NULL;
    MOX_TRY(mox_match_variant(matcher, wanted, &variant, error));
    const mox_hf_quant *block = block_format(matcher, wanted->name);
    for (int32_t i = 0; i < (block ? 1 : matcher->n_formats); i++) {
        near_miss miss;
        mox_match match;
        if (format_fits(matcher, variant, block ? block : &variant->formats[i], block || variant->allowed[i], wanted,
                        &match, &miss)) {
            MOX_TRY(check_companions(matcher, wanted, &match, error));
            *out = match;
            return MOXIE_OK;
        }
        if (nearer(matcher, &miss, &best))
            best = miss;
    }
    return fail_match(matcher, wanted, &best, error);
}
