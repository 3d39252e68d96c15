/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_limits.c - the machine's limits, measured now or read from a file of an earlier run:
 *
 *     { "schema_version": 1, "kind": "moxie limits", "cpu": brand, "threads": N, "isa": class,
 *       "limits": { "read_gb_s": ..., ..., "how": { "read_gb_s": "4 streams", ... } } }
 *
 * Of a GPU, "gpu" is its name and "threads" its multiprocessors. A file of another processor or GPU, thread count or
 * class is of no use: the limits are measured and the file replaced.
 * A file that is no such JSON may be something the user wants to keep: an error.
 */
#include "cli.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* One row per figure; files, JSON and tables are made from it. */
static const struct figure {
    const char *key, *what, *unit;
    size_t value, how; /* offsets of its fields in moxie_limits */
    bool of_cpu;       /* measured on every processor */
} figures[] = {
    { "read_gb_s", "read memory", "GB/s", offsetof(moxie_limits, read_gb_s), offsetof(moxie_limits, read_how), true },
    { "copy_gb_s", "copy memory", "GB/s", offsetof(moxie_limits, copy_gb_s), offsetof(moxie_limits, copy_how), true },
    { "l2_read_gb_s", "read L2", "GB/s", offsetof(moxie_limits, l2_read_gb_s), offsetof(moxie_limits, l2_read_how),
      true },
    { "f32_tflop_s", "f32", "TFLOP/s", offsetof(moxie_limits, f32_tflop_s), offsetof(moxie_limits, f32_how), true },
    { "bf16_tflop_s", "bf16", "TFLOP/s", offsetof(moxie_limits, bf16_tflop_s), offsetof(moxie_limits, bf16_how), true },
    { "fp8_tflop_s", "FP8", "TFLOP/s", offsetof(moxie_limits, fp8_tflop_s), offsetof(moxie_limits, fp8_how), false },
    { "int8_top_s", "int8", "TOP/s", offsetof(moxie_limits, int8_top_s), offsetof(moxie_limits, int8_how), false },
};
enum { N_FIGURES = sizeof figures / sizeof figures[0] };

static double value_of(const moxie_limits *limits, int i)
{
    double value;
    memcpy(&value, (const char *)limits + figures[i].value, sizeof value);
    return value;
}

static const char *how_of(const moxie_limits *limits, int i)
{
    const char *how;
    memcpy(&how, (const char *)limits + figures[i].how, sizeof how);
    return how ? how : "";
}

json_t *cli_limits_json(const moxie_limits *limits)
{
    json_t *object = json_object(), *how = json_object();
    for (int i = 0; i < N_FIGURES; i++) {
        cli_json_set(object, figures[i].key, json_real(value_of(limits, i)));
        cli_json_set(how, figures[i].key, cli_json_string(how_of(limits, i)));
    }
    cli_json_set(object, "l2_bytes", json_integer((json_int_t)limits->l2_bytes));
    cli_json_set(object, "cache_bytes", json_integer((json_int_t)limits->cache_bytes));
    cli_json_set(object, "disturbed", json_integer(limits->disturbed));
    cli_json_set(object, "threads", json_integer(limits->workers));
    cli_json_set(object, "isa", cli_json_string(limits->isa));
    cli_json_set(object, "how", how);
    return object;
}

void cli_limits_print(const moxie_limits *limits)
{
    static const char *const headings[] = { "limit", ">rate", "unit", "by" };
    cli_table table;
    cli_table_begin(&table, 4, headings);
    for (int i = 0; i < N_FIGURES; i++) {
        if (value_of(limits, i) <= 0)
            continue;
        cli_table_add(&table, "%s", figures[i].what);
        cli_table_add(&table, "%.4g", value_of(limits, i));
        cli_table_add(&table, "%s", figures[i].unit);
        cli_table_add(&table, "%s", how_of(limits, i));
    }
    cli_table_print(&table);
    cli_table_free(&table);
    if (limits->disturbed > 0)
        printf("%d of these %s rough: other work never left the processors alone\n", limits->disturbed,
               limits->disturbed == 1 ? "is" : "are");
}

/* ---- the file -------------------------------------------------------------------------------------- */

enum { MAX_BYTES = 1 << 20 };

static moxie_status not_limits(const char *path, const char *found, moxie_error *error)
{
    return cli_error(MOXIE_ERR_FORMAT, error, path,
                     "%s; a file that --limits wrote is expected: remove this one to measure anew, or name another",
                     found);
}

/* Reads figures and names of `object` into `out`; false when one is missing or not positive. A GPU need only have read
 * and bf16 limits. Other figures that the file does not have are 0. */
static bool take_figures(const json_t *object, bool of_cpu, cli_limits *out)
{
    moxie_limits found = out->found;
    const json_t *how = json_object_get(object, "how");
    for (int i = 0; i < N_FIGURES; i++) {
        const json_t *number = json_object_get(object, figures[i].key);
        const char *text = json_string_value(json_object_get(how, figures[i].key));
        const double value = json_number_value(number);
        const bool needed = of_cpu ? figures[i].of_cpu
                                   : !strcmp(figures[i].key, "read_gb_s") || !strcmp(figures[i].key, "bf16_tflop_s");
        if ((needed || number) && (!json_is_number(number) || value < 0 || (needed && !(value > 0))))
            return false;
        snprintf(out->text[i], sizeof out->text[i], "%s", text ? text : "");
        const char *kept = out->text[i];
        memcpy((char *)&found + figures[i].value, &value, sizeof value);
        memcpy((char *)&found + figures[i].how, &kept, sizeof kept);
    }
    const json_t *l2 = json_object_get(object, "l2_bytes"), *cache = json_object_get(object, "cache_bytes");
    found.l2_bytes = (uint64_t)json_integer_value(l2);
    found.cache_bytes = (uint64_t)json_integer_value(cache);
    found.disturbed = (int32_t)json_integer_value(json_object_get(object, "disturbed"));
    out->found = found;
    return json_is_integer(l2) && json_integer_value(l2) > 0 && json_is_integer(cache) && json_integer_value(cache) > 0;
}

/* Whether a file's limits are of what `of` describes; NULL: of anything. */
static bool is_of(const json_t *file, const cli_limits_of *of)
{
    if (!of)
        return true;
    const char *name = json_string_value(json_object_get(file, of->kind));
    const char *class = json_string_value(json_object_get(file, "isa"));
    return name && !strcmp(name, of->name) && !strcmp(class, of->isa) &&
           json_integer_value(json_object_get(file, "threads")) == of->workers;
}

/* Reads `path`. *fits: whether its limits are of what `of` describes. */
static moxie_status read_file(const char *path, const cli_limits_of *of, cli_limits *out, bool *fits,
                              moxie_error *error)
{
    json_t *file = NULL;
    const moxie_status read = cli_json_read(path, MAX_BYTES, &file, error);
    if (read == MOXIE_ERR_FORMAT) {
        const moxie_error why = *error;
        not_limits(path, why.text, error);
        error->offset = why.offset;
    }
    if (read != MOXIE_OK)
        return read;
    moxie_status status = MOXIE_OK;
    const char *kind = json_string_value(json_object_get(file, "kind"));
    const char *cpu = json_string_value(json_object_get(file, "cpu"));
    const char *gpu = json_string_value(json_object_get(file, "gpu"));
    const char *class = json_string_value(json_object_get(file, "isa"));
    const json_t *version = json_object_get(file, "schema_version");
    *fits = false;
    if (!kind || strcmp(kind, "moxie limits") || !(cpu || gpu) || !class) {
        status = not_limits(path, "it is JSON, but holds no limits", error);
    } else if (json_integer_value(version) == CLI_SCHEMA_VERSION && is_of(file, of)) {
        *fits = take_figures(json_object_get(file, "limits"), of ? !strcmp(of->kind, "cpu") : cpu != NULL, out);
        out->found.workers = (int32_t)json_integer_value(json_object_get(file, "threads"));
        snprintf(out->text[N_FIGURES], sizeof out->text[N_FIGURES], "%s", class);
        out->found.isa = out->text[N_FIGURES];
        if (!*fits)
            status = not_limits(path, "its limits are incomplete or not positive", error);
    }
    json_decref(file);
    return status;
}

moxie_status cli_limits_put(const char *path, const cli_limits_of *of, const moxie_limits *limits, moxie_error *error)
{
    json_t *file =
        cli_pack("{s:i, s:s, s:s, s:i, s:s, s:o}", "schema_version", CLI_SCHEMA_VERSION, "kind", "moxie limits",
                 of->kind, of->name, "threads", of->workers, "isa", of->isa, "limits", cli_limits_json(limits));
    return cli_json_write(path, file, JSON_INDENT(2) | JSON_REAL_PRECISION(9), error);
}

/* ---- whose ----------------------------------------------------------------------------------------- */

moxie_status cli_limits_of_cpu(const moxie_executor *executor, const char *cap, cli_limits_of *out, moxie_error *error)
{
    moxie_machine machine = MOXIE_MACHINE_INIT;
    const moxie_status status = moxie_machine_info(&machine, error);
    const int32_t max = machine.processors > 0 ? machine.processors : executor->workers;
    *out = (cli_limits_of) {
        .kind = "cpu", .workers = executor->workers < max ? executor->workers : max, .executor = executor, .cap = cap
    };
    snprintf(out->name, sizeof out->name, "%s", cli_printable(machine.cpu));
    snprintf(out->isa, sizeof out->isa, "%s", cli_isa_under(&machine, cap));
    return status;
}

moxie_status cli_limits_of_gpu(const char *device, cli_limits_of *out, moxie_error *error)
{
    moxie_cuda_device found = MOXIE_CUDA_DEVICE_INIT;
    const int32_t index = device ? (int32_t)strtol(device, NULL, 10) : 0;
    const moxie_status status = moxie_cuda_device_at(index, &found, error);
    *out = (cli_limits_of) { .kind = "gpu", .workers = found.multiprocessors, .device = device };
    const char *kernels = device ? strchr(device, ':') : NULL; /* with these the limits may be lower */
    snprintf(out->name, sizeof out->name, "%s%s%s", cli_printable(found.name), kernels ? ", kernels of " : "",
             kernels ? kernels + 1 : "");
    snprintf(out->isa, sizeof out->isa, "sm_%d", (int)found.sm);
    return status;
}

/* More threads than processors would only compete: one per processor measures. */
static moxie_status measure_on_fewer(const cli_limits_of *of, moxie_limits *out, moxie_error *error)
{
    moxie_executor *fewer = NULL;
    moxie_status status = moxie_executor_create(of->workers, &fewer, error);
    if (status == MOXIE_OK)
        status = moxie_measure_limits(fewer, of->cap, out, error);
    moxie_executor_destroy(fewer);
    return status;
}

moxie_status cli_limits_measure(const cli_limits_of *of, moxie_limits *out, moxie_error *error)
{
    if (!strcmp(of->kind, "gpu"))
        return moxie_cuda_measure_limits(of->device, out, error);
    if (of->executor->workers > of->workers)
        return measure_on_fewer(of, out, error);
    return moxie_measure_limits(of->executor, of->cap, out, error);
}

moxie_status cli_limits_read(const char *path, cli_limits *out, moxie_error *error)
{
    *out = (cli_limits) { .found = MOXIE_LIMITS_INIT };
    const moxie_status status = read_file(path, NULL, out, &out->from_file, error);
    if (status == MOXIE_OK && !out->from_file)
        return not_limits(path, "its limits are of another version of moxie", error);
    return status;
}

moxie_status cli_limits_get(const char *path, const cli_limits_of *of, cli_limits *out, moxie_error *error)
{
    const bool exists = path && moxie_file_exists(path);
    moxie_status status = MOXIE_OK;
    *out = (cli_limits) { .found = MOXIE_LIMITS_INIT };
    if (exists)
        status = read_file(path, of, out, &out->from_file, error);
    if (status != MOXIE_OK)
        return status;
    if (out->from_file)
        return MOXIE_OK;
    if (exists)
        fprintf(stderr, "moxie: %s is of another processor, thread count or instruction set: measured anew\n", path);
    if (path)
        status = moxie_file_check_output(path, error);
    if (status == MOXIE_OK)
        status = cli_limits_measure(of, &out->found, error);
    return status == MOXIE_OK && path ? cli_limits_put(path, of, &out->found, error) : status;
}
