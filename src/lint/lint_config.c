/* SPDX-License-Identifier: Apache-2.0
 *
 * lint_config.c - the JSON files: Python's non-finite numbers, keys that nothing reads, quantization
 * settings that contradict the tensors.
 */
#include "ckpt/safetensors/file.h"
#include "lint/lint_state.h"

#define JSON_LIMIT ((uint64_t)128 << 20)

/* ---- non-finite numbers --------------------------------------------------------------------------- */

/* The strict reader rejects what the lenient one takes only for Infinity and NaN. */
static void check_json(mox_lint *lint, const char *name)
{
    const char *path = mox_arena_printf(&lint->arena, "%s/%s", lint->dir, name);
    json_t *lenient = NULL, *strict = NULL;
    moxie_error error = { 0 };
    lint->report->no_memory = lint->report->no_memory || !path;
    if (!path || !mox_file_exists(path))
        return;
    const mox_lint_where where = { .layer = -1, .file = path };
    moxie_status status = mox_json_load(path, JSON_LIMIT, true, &lenient, &error);
    if (status != MOXIE_OK)
        mox_lint_unreadable(lint->report, MOX_LINT_UNREADABLE, &error);
    else
        status = mox_json_load(path, JSON_LIMIT, false, &strict, &error);
    lint->report->no_memory = lint->report->no_memory || status == MOXIE_ERR_MEMORY;
    if (lenient && status == MOXIE_ERR_FORMAT)
        mox_lint_report(lint->report, MOX_LINT_JSON_NOT_FINITE, where, "a number that JSON does not have, at byte %lld",
                        (long long)error.offset);
    json_decref(lenient);
    json_decref(strict);
}

void mox_lint_json(mox_lint *lint)
{
    static const char *const names[] = { "config.json", "hf_quant_config.json", "quantize_config.json",
                                         "generation_config.json" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        check_json(lint, names[i]);
}

/* ---- quantization --------------------------------------------------------------------------------- */

void mox_lint_config(mox_lint *lint)
{
    const moxie_model *model = lint->model;
    for (int64_t i = 0; i < model->n_warnings; i++)
        mox_lint_report(lint->report, MOX_LINT_QUANT_CONFIG,
                        (mox_lint_where) { .layer = -1, .file = model->config_path }, "%s", model->warnings[i]);
    for (int64_t i = 0; i < model->n_unread_keys; i++) {
        char escaped[200];
        mox_lint_report(lint->report, MOX_LINT_UNREAD_KEY, (mox_lint_where) { .layer = -1, .file = model->config_path },
                        "%s", mox_escape(escaped, sizeof escaped, model->unread_keys[i]));
    }
}
