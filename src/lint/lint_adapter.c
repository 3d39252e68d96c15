/* SPDX-License-Identifier: Apache-2.0
 *
 * lint_adapter.c - checks an adapter's configuration and its tensors one by one (lint_adapter.h).
 */
#include "lint/lint_adapter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/safetensors/file.h"
#include "format/format.h"

#define MAX_CONFIG_BYTES (UINT64_C(16) << 20)

/* ---- names ------------------------------------------------------------------------------------------ */

bool mox_lint_has_file(const char *dir, const char *name)
{
    char path[4096];
    const int length = snprintf(path, sizeof path, "%s/%s", dir, name);
    return length > 0 && (size_t)length < sizeof path && mox_file_exists(path);
}

bool mox_lint_is_adapter(const char *dir)
{
    return !mox_lint_has_file(dir, "config.json") &&
           (mox_lint_has_file(dir, "adapter_config.json") || mox_lint_has_file(dir, "adapter_model.safetensors"));
}

size_t mox_lint_module_length(const char *tensor)
{
    const char *a = strstr(tensor, ".lora_A"), *b = strstr(tensor, ".lora_B");
    return a != NULL ? (size_t)(a - tensor) : b != NULL ? (size_t)(b - tensor) : 0;
}

int64_t mox_lint_layer_of(const char *tensor)
{
    static const char key[] = "layers.";
    for (const char *at = strstr(tensor, key); at != NULL; at = strstr(at + 1, key)) {
        const char *digits = at + sizeof key - 1;
        char *end;
        if ((at != tensor && at[-1] != '.') || *digits < '0' || *digits > '9')
            continue;
        const long long layer = strtoll(digits, &end, 10);
        if (*end == '.')
            return (int64_t)layer;
    }
    return -1;
}

static mox_lint_where where(const mox_lint *lint, int64_t i)
{
    const char *name = lint->tensors[i].name;
    return (mox_lint_where) { mox_lint_layer_of(name), lint->shards[lint->files[i]].path, name };
}

/* The tensor of the other half, by its name; -1: there is none. */
static int64_t other_half(mox_lint *lint, const char *name, bool is_b)
{
    const size_t at = mox_lint_module_length(name);
    char *other = mox_arena_strndup(&lint->arena, name, strlen(name));
    if (other == NULL) {
        lint->report->no_memory = true;
        return -1;
    }
    other[at + sizeof ".lora_" - 1] = is_b ? 'A' : 'B';
    return mox_name_map_find(&lint->names, other);
}

/* ---- one factor ------------------------------------------------------------------------------------- */

/* The rank that a factor has. A tensor of two axes for all experts has it once for each of them. */
static bool has_rank(const moxie_tensor *t, const mox_adapter_name *name, int64_t rank, int64_t *found)
{
    const int axis = t->rank == 3 ? (name->is_b ? 2 : 1) : (name->is_b ? 1 : 0);
    *found = t->rank == 2 || t->rank == 3 ? t->shape[axis] : 0;
    return t->rank == 2 && name->expert < 0 ? *found > 0 && *found % rank == 0 : *found == rank;
}

static void check_rank(const mox_lint_adapter *a, int64_t i, const mox_adapter_name *name)
{
    int64_t found = 0;
    if (a->config.rank > 0 && !has_rank(&a->lint->tensors[i].tensor, name, a->config.rank, &found))
        mox_lint_report(a->lint->report, MOX_LINT_ADAPTER_RANK, where(a->lint, i),
                        "r is %lld in adapter_config.json, the tensor has rank %lld", (long long)a->config.rank,
                        (long long)found);
}

static void check_half(const mox_lint_adapter *a, int64_t i, const mox_adapter_name *name)
{
    const int64_t other = other_half(a->lint, a->lint->tensors[i].name, name->is_b);
    if (other < 0)
        mox_lint_report(a->lint->report, MOX_LINT_ADAPTER_HALF, where(a->lint, i), "its %s is missing",
                        name->is_b ? "A" : "B");
}

static bool is_float(const moxie_tensor *t)
{
    return t->dtype == MOXIE_F32 || t->dtype == MOXIE_F16 || t->dtype == MOXIE_BF16;
}

static void check_factor(const mox_lint_adapter *a, int64_t i, const mox_adapter_name *name)
{
    a->lint->read[i] = 1;
    if (!is_float(&a->lint->tensors[i].tensor))
        mox_lint_report(a->lint->report, MOX_LINT_SHAPE, where(a->lint, i), "factors are f32, f16 or bf16");
    check_half(a, i, name);
    check_rank(a, i, name);
}

/* Returns 1 for a factor of routed experts. */
static int64_t check_tensor(const mox_lint_adapter *a, int64_t i)
{
    moxie_lint *report = a->lint->report;
    const char *name = a->lint->tensors[i].name;
    mox_adapter_name parts;
    switch (mox_adapter_name_read(name, mox_lint_layer_of(name), &parts)) {
    case MOX_ADAPTER_FACTOR: check_factor(a, i, &parts); return 1;
    case MOX_ADAPTER_ROUTER:
        mox_lint_report(report, MOX_LINT_ADAPTER_REFUSED, where(a->lint, i), "it changes the router");
        return 0;
    case MOX_ADAPTER_SHARED_EXPERT:
        mox_lint_report(report, MOX_LINT_ADAPTER_REFUSED, where(a->lint, i), "it changes the shared expert");
        return 0;
    case MOX_ADAPTER_UNKNOWN:
        mox_lint_report(report, MOX_LINT_UNREAD, where(a->lint, i),
                        "it belongs to the experts, but is no factor under a name that moxie knows");
        return 0;
    default:
        mox_lint_report(report, MOX_LINT_ADAPTER_ELSEWHERE, where(a->lint, i), "it belongs to no routed expert");
        return 0;
    }
}

/* ---- numbers ---------------------------------------------------------------------------------------- */

static void check_numbers(const mox_lint *lint, int64_t i)
{
    const moxie_tensor *t = &lint->tensors[i].tensor;
    float buffer[256];
    int64_t count = 1, bad = 0, zeros = 0;
    for (int32_t axis = 0; axis < t->rank; axis++)
        count *= t->shape[axis];
    for (int64_t at = 0; at < count; at += 256) {
        const int64_t n = count - at < 256 ? count - at : 256;
        mox_widen(t->dtype, (const char *)t->data + at * mox_dtype_bytes(t->dtype), buffer, n);
        for (int64_t j = 0; j < n; j++) {
            bad += !isfinite(buffer[j]);
            zeros += buffer[j] == 0;
        }
    }
    if (bad > 0)
        mox_lint_report(lint->report, MOX_LINT_WEIGHT_NOT_FINITE, where(lint, i), "%lld numbers are NaN or infinite",
                        (long long)bad);
    if (count > 0 && zeros == count)
        mox_lint_report(lint->report, MOX_LINT_ADAPTER_ZERO, where(lint, i), "all %lld numbers are zero",
                        (long long)count);
}

/* ---- all of it -------------------------------------------------------------------------------------- */

/* What a run would refuse of the configuration. */
static void read_config(mox_lint_adapter *a)
{
    mox_lint *lint = a->lint;
    moxie_error error = { 0 };
    const mox_lint_where at = { -1, a->config_path, NULL };
    if (mox_json_load(a->config_path, MAX_CONFIG_BYTES, true, &a->json, &error) != MOXIE_OK) {
        mox_lint_unreadable(lint->report, MOX_LINT_ADAPTER_REFUSED, &error);
        return;
    }
    if (mox_adapter_config_read(lint->dir, &a->config, &error) == MOXIE_OK) {
        a->readable = true;
        return;
    }
    a->config.rank = 0;
    mox_lint_report(lint->report, MOX_LINT_ADAPTER_REFUSED, at, "%s", error.text);
}

static moxie_status check_tensors(const mox_lint_adapter *a, moxie_error *error)
{
    mox_lint *lint = a->lint;
    const moxie_lint_options *o = lint->options;
    int64_t wanted = 0, factors = 0;
    for (int64_t i = 0; i < lint->n_tensors; i++) {
        if (!mox_lint_wants(lint, mox_lint_layer_of(lint->tensors[i].name)))
            continue;
        wanted++;
        factors += check_tensor(a, i);
        if (o->deep && lint->read[i] && is_float(&lint->tensors[i].tensor) && mox_lint_still_there(lint))
            check_numbers(lint, i);
        MOX_FAIL_IF(o->progress && o->progress(o->progress_user, i + 1, lint->n_tensors) != 0, MOXIE_ERR_TIMEOUT, error,
                    "the caller stopped after tensor %lld", (long long)i);
    }
    if (factors == 0 && wanted > 0)
        mox_lint_report(lint->report, MOX_LINT_ADAPTER_TARGET, (mox_lint_where) { -1, lint->dir, NULL },
                        "none of %lld tensors is a factor of routed experts", (long long)wanted);
    return MOXIE_OK;
}

static moxie_status check(mox_lint_adapter *a, moxie_error *error)
{
    mox_lint *lint = a->lint;
    MOX_TRY(mox_lint_files(lint, error));
    a->config_path = mox_arena_printf(&lint->arena, "%s/adapter_config.json", lint->dir);
    MOX_FAIL_IF(a->config_path == NULL || lint->report->no_memory, MOXIE_ERR_MEMORY, error, "no memory to check %s",
                lint->dir);
    read_config(a);
    if (!mox_lint_has_file(lint->dir, "adapter_model.safetensors"))
        mox_lint_report(lint->report, MOX_LINT_ADAPTER_REFUSED, (mox_lint_where) { -1, lint->dir, NULL },
                        "there is no adapter_model.safetensors");
    if (a->json != NULL)
        mox_lint_targets(a);
    MOX_TRY(check_tensors(a, error));
    return lint->options->model != NULL ? mox_lint_beside_model(a, error) : MOXIE_OK;
}

moxie_status mox_lint_check_adapter(mox_lint *lint, moxie_error *error)
{
    mox_lint_adapter a = { .lint = lint };
    lint->report->info.family = "LoRA adapter";
    const moxie_status status = check(&a, error);
    json_decref(a.json);
    return status;
}
