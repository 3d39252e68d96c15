/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_limits.c - the machine's limits, measured now or kept from before in a file:
 *
 *     { "schema_version": 1, "kind": "moxie limits", "cpu": brand, "threads": N, "isa": class,
 *       "limits": { "read_gb_s": ..., ..., "how": { "read_gb_s": "4 streams", ... } } }
 *
 * A file of another processor, thread count or class is of no use: the limits are measured and the file replaced.
 * A file that is no such JSON may be something the user wants to keep: an error.
 */
#include "cli.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

/* One row per figure; files, JSON and tables are made from it. */
static const struct figure {
    const char *key, *what, *unit;
    size_t value, how; /* offsets in moxie_limits */
} figures[] = {
    { "read_gb_s", "read memory", "GB/s", offsetof(moxie_limits, read_gb_s), offsetof(moxie_limits, read_how) },
    { "copy_gb_s", "copy memory", "GB/s", offsetof(moxie_limits, copy_gb_s), offsetof(moxie_limits, copy_how) },
    { "l2_read_gb_s", "read L2", "GB/s", offsetof(moxie_limits, l2_read_gb_s), offsetof(moxie_limits, l2_read_how) },
    { "f32_tflop_s", "f32", "TFLOP/s", offsetof(moxie_limits, f32_tflop_s), offsetof(moxie_limits, f32_how) },
    { "bf16_tflop_s", "bf16", "TFLOP/s", offsetof(moxie_limits, bf16_tflop_s), offsetof(moxie_limits, bf16_how) },
    { "int8_top_s", "int8", "TOP/s", offsetof(moxie_limits, int8_top_s), offsetof(moxie_limits, int8_how) },
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
        json_object_set_new(object, figures[i].key, json_real(value_of(limits, i)));
        json_object_set_new(how, figures[i].key, json_string(how_of(limits, i)));
    }
    json_object_set_new(object, "l2_bytes", json_integer((json_int_t)limits->l2_bytes));
    json_object_set_new(object, "cache_bytes", json_integer((json_int_t)limits->cache_bytes));
    json_object_set_new(object, "disturbed", json_integer(limits->disturbed));
    json_object_set_new(object, "threads", json_integer(limits->workers));
    json_object_set_new(object, "isa", json_string(limits->isa));
    json_object_set_new(object, "how", how);
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
        printf("%d of these are rough: other work never left the processors alone\n", limits->disturbed);
}

/* ---- the file -------------------------------------------------------------------------------------- */

static moxie_status not_limits(const char *path, const char *found, moxie_error *error)
{
    return cli_error(MOXIE_ERR_FORMAT, error, path,
                     "%s; a file that --limits wrote is expected: remove this one to measure anew, or name another",
                     found);
}

/* Figures and names of `object` into `out`; false when one is missing or no positive number. */
static bool take_figures(const json_t *object, cli_limits *out)
{
    moxie_limits found = out->found;
    const json_t *how = json_object_get(object, "how");
    for (int i = 0; i < N_FIGURES; i++) {
        const json_t *number = json_object_get(object, figures[i].key);
        const char *text = json_string_value(json_object_get(how, figures[i].key));
        const double value = json_number_value(number);
        const bool may_be_zero = !strcmp(figures[i].key, "int8_top_s");
        if (!json_is_number(number) || !(value > 0 || (may_be_zero && value == 0)))
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

/* What `path` holds: *fits says whether it is for this processor, so many threads and this class. */
static moxie_status read_file(const char *path, const moxie_machine *machine, int32_t threads, const char *isa,
                              cli_limits *out, bool *fits, moxie_error *error)
{
    json_error_t where;
    json_t *file = json_load_file(path, JSON_REJECT_DUPLICATES, &where);
    if (!file) {
        const moxie_status status = not_limits(path, where.text, error);
        error->offset = where.position;
        return status;
    }
    const char *kind = json_string_value(json_object_get(file, "kind"));
    const char *cpu = json_string_value(json_object_get(file, "cpu"));
    const char *class = json_string_value(json_object_get(file, "isa"));
    const json_t *version = json_object_get(file, "schema_version");
    moxie_status status = MOXIE_OK;
    *fits = false;
    if (!kind || strcmp(kind, "moxie limits") || !cpu || !class) {
        status = not_limits(path, "it is JSON, but holds no limits", error);
    } else if (json_integer_value(version) == CLI_SCHEMA_VERSION && !strcmp(cpu, machine->cpu) && !strcmp(class, isa) &&
               json_integer_value(json_object_get(file, "threads")) == threads) {
        *fits = take_figures(json_object_get(file, "limits"), out);
        if (!*fits)
            status = not_limits(path, "its limits are incomplete or not positive", error);
    }
    json_decref(file);
    return status;
}

static moxie_status write_file(const char *path, const moxie_machine *machine, const moxie_limits *limits,
                               moxie_error *error)
{
    cli_beside beside;
    moxie_status status = cli_beside_open(path, &beside, error);
    if (status != MOXIE_OK)
        return status;
    json_t *file =
        json_pack("{s:i, s:s, s:s, s:i, s:s, s:o}", "schema_version", CLI_SCHEMA_VERSION, "kind", "moxie limits", "cpu",
                  machine->cpu, "threads", limits->workers, "isa", limits->isa, "limits", cli_limits_json(limits));
    const bool written = file && json_dumpfd(file, beside.fd, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0;
    json_decref(file);
    if (written)
        return cli_beside_commit(&beside, error);
    cli_beside_discard(&beside);
    return cli_error(MOXIE_ERR_IO, error, path, "the limits could not be written: is the disk full?");
}

moxie_status cli_limits_get(const char *path, const moxie_executor *executor, const char *isa, cli_limits *out,
                            moxie_error *error)
{
    moxie_machine machine = MOXIE_MACHINE_INIT;
    const bool exists = path && access(path, F_OK) == 0;
    moxie_status status = moxie_machine_info(&machine, error);
    *out = (cli_limits) { .found = MOXIE_LIMITS_INIT };
    const char *class = cli_isa_under(&machine, isa);
    if (status == MOXIE_OK && exists)
        status = read_file(path, &machine, executor->workers, class, out, &out->from_file, error);
    if (status != MOXIE_OK)
        return status;
    if (out->from_file) {
        out->found.workers = executor->workers;
        snprintf(out->text[N_FIGURES], sizeof out->text[N_FIGURES], "%s", class);
        out->found.isa = out->text[N_FIGURES];
        return MOXIE_OK;
    }
    if (exists)
        fprintf(stderr, "moxie: %s is of another processor, thread count or instruction set: measured anew\n", path);
    status = moxie_measure_limits(executor, isa, &out->found, error);
    return status == MOXIE_OK && path ? write_file(path, &machine, &out->found, error) : status;
}
