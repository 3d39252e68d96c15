/* SPDX-License-Identifier: Apache-2.0
 *
 * lint_groups.c - what formats and shapes alone say about quantization: groups that do not divide a matrix, experts
 * without a static activation scale, experts that are not quantized though the configuration says so.
 */
#include <string.h>

#include "ckpt/formats/hf_quant_config.h"
#include "lint/lint_layer.h"

/* Rows of one projection: gate and up of a fused tensor are each cut by groups on their own. */
static int64_t own_rows(const mox_lint_stored *s)
{
    return s->projection == MOX_LINT_GATE_UP ? s->wanted.n / 2 : s->wanted.n;
}

void mox_lint_groups(mox_lint_layer *l)
{
    for (int64_t i = 0; i < l->n_stored; i++) {
        const mox_lint_stored *s = &l->stored[i];
        const mox_file_tensor *scale = mox_lint_part(s, MOX_PART_SCALE);
        if (!scale || mox_quant_is_plain(&s->match.weight))
            continue;
        const int64_t rows = mox_group_rows(&s->match.weight, s->wanted.n), n = own_rows(s);
        const int64_t cols = mox_group_cols(&s->match.weight, s->wanted.k), k = s->wanted.k;
        const bool cut_rows = rows > 1 && rows < s->wanted.n && n % rows != 0, cut_cols = cols < k && k % cols != 0;
        if (cut_rows || cut_cols)
            mox_lint_report(l->lint->report, MOX_LINT_GROUP_PARTIAL, mox_lint_at(l->lint, l->layer, scale),
                            "%s %lld of the matrix [%lld, %lld] are no multiple of the %lld that share a scale",
                            cut_rows ? "rows" : "columns", (long long)(cut_rows ? n : k), (long long)n, (long long)k,
                            (long long)(cut_rows ? rows : cols));
    }
}

static bool has_input(const mox_lint_stored *s)
{
    return mox_lint_part(s, MOX_PART_INPUT_SCALE) != NULL;
}

/* Gate and up read the same activations: one of the two scales is enough. A matrix that could not be matched has a
 * finding of its own. */
static bool any_input(const mox_lint_layer *l, int64_t expert, bool second)
{
    bool any = false;
    mox_part_place place;
    mox_part_rows rows;
    for (mox_lint_projection p = second ? MOX_LINT_DOWN : MOX_LINT_GATE; p <= (second ? MOX_LINT_DOWN : MOX_LINT_UP);
         p++) {
        const mox_lint_stored *s = mox_lint_find_stored(l, (mox_lint_choice) { expert, p }, &place, &rows);
        any = any || (s ? has_input(s) : p != MOX_LINT_GATE);
    }
    return any;
}

static const char *tensor_name(const mox_lint_layer *l, int64_t expert, bool second)
{
    mox_part_place place;
    mox_part_rows rows;
    const mox_lint_choice choice = { expert, second ? MOX_LINT_DOWN : MOX_LINT_UP };
    const mox_lint_stored *s = mox_lint_find_stored(l, choice, &place, &rows);
    return s ? s->name : NULL;
}

void mox_lint_inputs_present(mox_lint_layer *l)
{
    const int64_t experts = l->reader.dims.experts;
    for (int second = 0; second < 2; second++) {
        int64_t without = 0, first = -1;
        for (int64_t e = 0; e < experts; e++)
            if (!any_input(l, e, second)) {
                first = first < 0 ? e : first;
                without++;
            }
        if (without > 0 && without < experts)
            mox_lint_report(
                l->lint->report, MOX_LINT_INPUT_ABSENT,
                (mox_lint_where) { .layer = l->layer, .tensor = tensor_name(l, first, second) },
                "%lld of %lld experts have no static scale for the activations of %s; expert %lld is the first",
                (long long)without, (long long)experts, second ? "down" : "gate and up", (long long)first);
    }
}

/* ---- a configuration of quantization, and none of it ---------------------------------------------- */

/* Lists of excluded modules have names, patterns and regular expressions; any that could mean experts counts. */
static bool may_exclude(const json_t *value)
{
    static const char *const words[] = { "expert", "mlp", "moe", "ffn", "feed_forward", "*", "re:" };
    const char *text = json_string_value(value);
    const char *key;
    json_t *item;
    size_t i;
    for (size_t w = 0; text && w < sizeof words / sizeof words[0]; w++)
        if (strstr(text, words[w]))
            return true;
    json_array_foreach(value, i, item)
    {
        if (may_exclude(item))
            return true;
    }
    json_object_foreach(mox_json_iterable(value), key, item)
    {
        if (may_exclude(item))
            return true;
    }
    return false;
}

void mox_lint_quantized(mox_lint_layer *l)
{
    const moxie_model *model = l->lint->model;
    const mox_lint_stored *s = l->n_stored > 0 ? &l->stored[0] : NULL;
    if (!s || !s->matched || !mox_quant_is_plain(&s->match.weight) || !model->quant_config ||
        may_exclude(model->quant_config))
        return;
    char method[60];
    mox_lint_report(
        l->lint->report, MOX_LINT_QUANT_CONFIG, mox_lint_at(l->lint, l->layer, mox_lint_part(s, MOX_PART_CODES)),
        "the configuration says that the model is quantized (\"%s\") and excludes no experts, but these are %s",
        mox_escape(method, sizeof method, mox_quant_config_method(model->quant_config)), s->match.format->id);
}
