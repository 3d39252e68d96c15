/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_info.c - `moxie info`: the processor and its features, the features that MOXIE_MAX_ISA excludes or the system
 * does not permit; back ends; the kernels of each family; with --measure or --limits FILE the machine's limits, with
 * --disk PATH a disk's.
 *
 *     found      what the processor has and the system saves        CPUID, XCR0
 *     permitted  tiles, which a process must ask the kernel for     arch_prctl
 *     capped     found, but above MOXIE_MAX_ISA
 */
#include "cli_disk.h"
#include "info_support.h"

#include <stdlib.h>
#include <string.h>

#include <moxie/moxie_comm.h>
#include <moxie/moxie_store.h>
#include <moxie/moxie_topology.h>

typedef struct arguments {
    bool json, measure, kernels, support;
    const char *limits_file;
    int32_t threads;
    const char *disk_path;
    cli_disk disk;
} arguments;

/* What was measured for this run; NULL: nobody asked. */
typedef struct measured {
    const moxie_limits *limits;
    const moxie_disk_rate *disk;
    const char *disk_path;
} measured;

enum { OPT_MEASURE = 256, OPT_LIMITS, OPT_THREADS, OPT_KERNELS, OPT_SUPPORT, OPT_DISK };

static const struct argp_option options[] = {
    { "measure", OPT_MEASURE, NULL, 0, "measure the machine's limits: memory, L2, arithmetic (some seconds)", 0 },
    { "limits", OPT_LIMITS, "FILE", 0, "take them from FILE, or measure them and write it", 0 },
    { "threads", OPT_THREADS, "N", 0, "that measure (default: one per processor)", 0 },
    { "disk", OPT_DISK, "PATH", 0,
      "measure how fast records are read from PATH: a large file, or a directory of them (some seconds)", 0 },
    { "kernels", OPT_KERNELS, NULL, 0, "only the kernels", 0 },
    { "support", OPT_SUPPORT, NULL, 0, "only what is supported: formats, routing, families, ... by device", 0 },
    { "json", 'j', NULL, 0, "print one JSON object, always of everything", 0 },
    { 0 },
};

static void check_combination(struct argp_state *state, const arguments *args)
{
    const bool limits = args->measure || args->limits_file;
    if (args->threads && !limits)
        argp_error(state, "--threads is for measuring: give --measure, or --limits FILE");
    if (cli_disk_asked(&args->disk) && !args->disk_path)
        argp_error(state, "--mirror, --read-engine, --read-depth and --read-chunk go with --disk PATH");
    if (args->disk_path && (args->support || args->kernels))
        argp_error(state, "--disk measures, and %s only lists: leave one of the two out",
                   args->support ? "--support" : "--kernels");
    if (args->support && (limits || args->kernels))
        argp_error(state, "--support prints only what is supported: leave it or the others out");
    if (args->measure && args->limits_file)
        argp_error(state, "--limits FILE measures only when FILE is not there, and --measure in any case: leave one of "
                          "the two out, or name a new FILE");
    if (args->kernels && limits)
        argp_error(state, "--kernels prints only the kernels, and %s is for limits: leave one of the two out",
                   args->measure ? "--measure" : "--limits");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    arguments *args = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &args->disk; return 0;
    case OPT_DISK: args->disk_path = arg; return 0;
    case OPT_MEASURE: args->measure = true; return 0;
    case OPT_KERNELS: args->kernels = true; return 0;
    case OPT_SUPPORT: args->support = true; return 0;
    case OPT_LIMITS: args->limits_file = arg; return 0;
    case OPT_THREADS: args->threads = (int32_t)cli_parse_int(state, "--threads", arg, 1, 4096); return 0;
    case 'j': args->json = true; return 0;
    case ARGP_KEY_ARG: argp_error(state, "info takes options only, and \"%s\" is none", cli_printable(arg)); return 0;
    case ARGP_KEY_END: check_combination(state, args); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ---- features and kernels ------------------------------------------------------------------------ */

/* The class that a feature belongs to, by its name. */
static const char *class_of(const char *feature)
{
    static const char *const arm[] = { "neon", "dotprod", "sve", "i8mm" };
    for (size_t i = 0; i < sizeof arm / sizeof arm[0]; i++)
        if (!strncmp(feature, arm[i], strlen(arm[i])))
            return "neon";
    return !strncmp(feature, "amx", 3) ? "amx" : !strncmp(feature, "avx512", 6) ? "avx512" : "avx2";
}

static bool is_capped(const moxie_machine *machine, const char *class)
{
    return cli_isa_rank(class) > cli_isa_rank(machine->isa_allowed);
}

/* The features that the cap allows, or with `capped` those it excludes, as a JSON array of names. */
static json_t *features(const moxie_machine *machine, bool capped)
{
    json_t *list = json_array();
    char text[sizeof machine->features], *rest = text;
    memcpy(text, machine->features, sizeof text);
    for (char *name; (name = strsep(&rest, " ")) != NULL;)
        if (*name && is_capped(machine, class_of(name)) == capped)
            cli_json_append(list, cli_json_string(name));
    return list;
}

static void print_names(const char *heading, json_t *list, const char *none)
{
    size_t i;
    json_t *name;
    printf("%s", heading);
    json_array_foreach(list, i, name) printf("%s%s", i ? " " : "", json_string_value(name));
    printf("%s\n", json_array_size(list) ? "" : none);
    json_decref(list);
}

/* Whether a kernel runs here: "yes"; "capped" when only MOXIE_MAX_ISA prevents it; "no". */
static const char *here(const moxie_machine *machine, const moxie_kernel_info *kernel)
{
    if (kernel->runnable)
        return "yes";
    const int32_t rank = cli_isa_rank(kernel->isa); /* -1: of another architecture */
    return rank >= 0 && rank <= cli_isa_rank(machine->isa_found) ? "capped" : "no";
}

typedef struct family {
    const char *name;
    int kernels, runnable, capped;
} family;

/* Counts the kernels of the family that begins at *index, and moves *index behind it; false past the last. */
static bool next_family(const moxie_machine *machine, int32_t *index, family *out)
{
    moxie_kernel_info row = MOXIE_KERNEL_INFO_INIT;
    *out = (family) { .name = NULL };
    for (; moxie_kernel_at(*index, &row) && (!out->name || !strcmp(out->name, row.family)); ++*index) {
        const bool capped = !strcmp(here(machine, &row), "capped");
        out->name = row.family;
        out->kernels++;
        out->runnable += row.runnable;
        out->capped += capped;
    }
    return out->name != NULL;
}

/* ---- output ---------------------------------------------------------------------------------------- */

static void print_families(const moxie_machine *machine)
{
    static const char *const headings[] = { "family", ">kernels", ">here", ">capped" };
    cli_table table;
    family f;
    cli_table_begin(&table, 4, headings);
    for (int32_t i = 0; next_family(machine, &i, &f);) {
        cli_table_add(&table, "%s", f.name);
        cli_table_add(&table, "%d", f.kernels);
        cli_table_add(&table, "%d", f.runnable);
        cli_table_add(&table, "%d", f.capped);
    }
    cli_table_print(&table);
    cli_table_free(&table);
}

static void print_kernels(const moxie_machine *machine)
{
    static const char *const headings[] = { "family", "kernel", "isa", "layout", "class", "here" };
    cli_table table;
    moxie_kernel_info row = MOXIE_KERNEL_INFO_INIT;
    cli_table_begin(&table, 6, headings);
    for (int i = 0; moxie_kernel_at(i, &row); i++) {
        cli_table_add(&table, "%s", row.family);
        cli_table_add(&table, "%s", row.name);
        cli_table_add(&table, "%s", row.isa);
        cli_table_add(&table, "%s", row.layout);
        cli_table_add(&table, "%s", row.exactness);
        cli_table_add(&table, "%s", here(machine, &row));
    }
    cli_table_print(&table);
    cli_table_free(&table);
}

/* ---- CUDA ------------------------------------------------------------------------------------------ */

static void print_devices(const moxie_cuda_info *cuda)
{
    moxie_cuda_device device = MOXIE_CUDA_DEVICE_INIT;
    char memory[16], l2[16];
    if (cuda->missing[0]) {
        printf("back ends    ref, cpu; not cuda: %s\n", cli_printable(cuda->missing));
        return;
    }
    printf("back ends    ref, cpu, cuda (%s: %s)\n", cli_printable(cuda->opened), cli_printable(cuda->built));
    for (int32_t i = 0; moxie_cuda_device_at(i, &device, NULL) == MOXIE_OK; i++)
        printf("device %d     %s, sm_%d, %d multiprocessors, %s, L2 %s: %s\n", i, cli_printable(device.name), device.sm,
               device.multiprocessors, cli_bytes(memory, device.memory_bytes), cli_bytes(l2, device.l2_bytes),
               device.usable ? device.features : "too old, moxie needs sm_80");
}

static void print_cuda_kernels(const moxie_cuda_info *cuda)
{
    static const char *const headings[] = { "family", "CUDA kernel", "needs", "layout", "class", "here" };
    cli_table table;
    moxie_kernel_info row = MOXIE_KERNEL_INFO_INIT;
    int rows = 0;
    cli_table_begin(&table, 6, headings);
    for (; moxie_cuda_kernel_at(rows, &row); rows++) {
        cli_table_add(&table, "%s", row.family);
        cli_table_add(&table, "%s", row.name);
        cli_table_add(&table, "%s", row.isa);
        cli_table_add(&table, "%s", row.layout);
        cli_table_add(&table, "%s", row.exactness);
        cli_table_add(&table, "%s", row.runnable ? "yes" : "no");
    }
    cli_table_print(&table);
    cli_table_free(&table);
    if (cuda->opened[0])
        printf("%d kernels for CUDA; %d kernel instances in %s\n", rows, cuda->kernels, cli_printable(cuda->opened));
    else
        printf("%d kernels for CUDA; their kernels are in libmoxie_cuda, which was not found\n", rows);
}

static json_t *json_devices(void)
{
    json_t *devices = json_array();
    moxie_cuda_device d = MOXIE_CUDA_DEVICE_INIT;
    for (int32_t i = 0; moxie_cuda_device_at(i, &d, NULL) == MOXIE_OK; i++)
        cli_json_append(devices,
                        cli_pack("{s:s, s:i, s:i, s:b, s:I, s:I, s:I, s:s}", "name", cli_utf8(d.name), "sm", (int)d.sm,
                                 "multiprocessors", (int)d.multiprocessors, "usable", d.usable, "shared_bytes",
                                 (json_int_t)d.shared_bytes, "l2_bytes", (json_int_t)d.l2_bytes, "memory_bytes",
                                 (json_int_t)d.memory_bytes, "features", d.features));
    return devices;
}

static json_t *json_cuda_kernels(void)
{
    json_t *kernels = json_array();
    moxie_kernel_info row = MOXIE_KERNEL_INFO_INIT;
    for (int i = 0; moxie_cuda_kernel_at(i, &row); i++)
        cli_json_append(kernels,
                        cli_pack("{s:s, s:s, s:s, s:s, s:s, s:b}", "family", row.family, "kernel", row.name, "needs",
                                 row.isa, "layout", row.layout, "class", row.exactness, "runnable", row.runnable));
    return kernels;
}

/* ---- transports ------------------------------------------------------------------------------------ */

static void print_transports(void)
{
    moxie_transport_info t = MOXIE_TRANSPORT_INFO_INIT;
    for (int32_t i = 0; moxie_transport_at(i, &t); i++)
        printf("%s %s, ranks are %s%s%s\n", i == 0 ? "transports  " : "            ", t.name, t.ranks,
               t.usable ? "" : "; not usable here: ", cli_printable(t.missing));
}

static json_t *json_transports(void)
{
    json_t *transports = json_array();
    moxie_transport_info t = MOXIE_TRANSPORT_INFO_INIT;
    for (int32_t i = 0; moxie_transport_at(i, &t); i++)
        cli_json_append(transports, cli_pack("{s:s, s:s, s:b, s:s}", "name", t.name, "ranks", t.ranks, "usable",
                                             t.usable, "missing", cli_utf8(t.missing)));
    return transports;
}

/* ---- engines that read records ---------------------------------------------------------------------- */

static void print_read_engines(void)
{
    moxie_read_engine e = MOXIE_READ_ENGINE_INIT;
    for (int32_t i = 0; moxie_read_engine_at(i, &e); i++)
        printf("%s %s, %s%s%s\n", i == 0 ? "disk reads  " : "            ", e.name, e.about,
               e.usable ? "" : "; not usable here: ", cli_printable(e.missing));
}

static json_t *json_read_engines(void)
{
    json_t *engines = json_array();
    moxie_read_engine e = MOXIE_READ_ENGINE_INIT;
    for (int32_t i = 0; moxie_read_engine_at(i, &e); i++)
        cli_json_append(engines, cli_pack("{s:s, s:s, s:b, s:s}", "name", e.name, "about", e.about, "usable", e.usable,
                                          "missing", cli_utf8(e.missing)));
    return engines;
}

/* ---- all of it ------------------------------------------------------------------------------------- */

static void print_all_kernels(const moxie_machine *machine, const moxie_cuda_info *cuda)
{
    print_families(machine);
    putchar('\n');
    print_kernels(machine);
    putchar('\n');
    print_cuda_kernels(cuda);
}

static moxie_topology topology(void)
{
    moxie_topology t = MOXIE_TOPOLOGY_INIT;
    moxie_topology_info(&t, NULL);
    return t;
}

/* "8 cores on 2 nodes of memory, 8 of them with several hyperthreads (hwloc); --threads 8 leaves those out" */
static void print_topology(void)
{
    const moxie_topology t = topology();
    if (!t.known) {
        printf("cores        not known: %s\n", t.found_by);
        return;
    }
    printf("cores        %lld %s on %lld %s of memory", CLI_COUNT(t.cores, "core"), CLI_COUNT(t.nodes, "node"));
    if (t.shared_cores > 0)
        printf(", %d of them with several hyperthreads", t.shared_cores);
    printf(" (%s)", t.found_by);
    if (t.shared_cores > 0)
        printf("; by default a thread each, --threads %d gives one a core", t.cores);
    printf("\n");
}

static json_t *json_topology(void)
{
    const moxie_topology t = topology();
    return cli_pack("{s:b, s:s, s:i, s:i, s:i, s:i}", "known", (int)t.known, "found_by", t.found_by, "processors",
                    (int)t.processors, "cores", (int)t.cores, "shared_cores", (int)t.shared_cores, "nodes",
                    (int)t.nodes);
}

static void print_text(const moxie_machine *machine, const moxie_cuda_info *cuda, const measured *m)
{
    const moxie_limits *limits = m->limits;
    const char *cap = getenv("MOXIE_MAX_ISA");
    printf("moxie        %s\n", moxie_version());
    printf("processor    %s, %d usable\n", cli_printable(machine->cpu), machine->processors);
    print_topology();
    printf("instructions %s found, %s allowed (MOXIE_MAX_ISA %s)\n", machine->isa_found, machine->isa_allowed,
           cap && *cap ? cli_printable(cap) : "is not set");
    printf("AMX tiles    %s\n", machine->amx);
    print_names("features     ", features(machine, false), "none");
    print_names("capped       ", features(machine, true), "none");
    print_devices(cuda);
    print_transports();
    print_read_engines();
    if (m->disk)
        cli_disk_print(m->disk_path, m->disk);
    putchar('\n');
    print_all_kernels(machine, cuda);
    putchar('\n');
    if (limits) {
        printf("limits of %lld %s, %s:\n", CLI_COUNT(limits->workers, "thread"), limits->isa);
        cli_limits_print(limits);
    } else {
        printf("`moxie info --measure` adds what this machine can do at most\n");
    }
}

static json_t *json_kernels(const moxie_machine *machine)
{
    json_t *kernels = json_array();
    moxie_kernel_info row = MOXIE_KERNEL_INFO_INIT;
    for (int i = 0; moxie_kernel_at(i, &row); i++)
        cli_json_append(kernels, cli_pack("{s:s, s:s, s:s, s:s, s:s, s:b, s:s}", "family", row.family, "kernel",
                                          row.name, "isa", row.isa, "layout", row.layout, "class", row.exactness,
                                          "runnable", row.runnable, "here", here(machine, &row)));
    return kernels;
}

static json_t *json_families(const moxie_machine *machine)
{
    json_t *families = json_array();
    family f;
    for (int32_t i = 0; next_family(machine, &i, &f);)
        cli_json_append(families, cli_pack("{s:s, s:i, s:i, s:i}", "family", f.name, "kernels", f.kernels, "runnable",
                                           f.runnable, "capped", f.capped));
    return families;
}

static void print_json(const moxie_machine *machine, const moxie_cuda_info *cuda, const measured *m)
{
    const char *cap = getenv("MOXIE_MAX_ISA");
    json_t *object = cli_json_begin("info");
    cli_json_set(object, "version", cli_json_string(moxie_version()));
    cli_json_set(object, "cpu", cli_json_string(machine->cpu));
    cli_json_set(object, "processors", json_integer(machine->processors));
    cli_json_set(object, "topology", json_topology());
    cli_json_set(object, "isa_found", cli_json_string(machine->isa_found));
    cli_json_set(object, "isa_allowed", cli_json_string(machine->isa_allowed));
    cli_json_set(object, "isa_cap", cap && *cap ? cli_json_string(cap) : json_null());
    cli_json_set(object, "amx", cli_json_string(machine->amx));
    cli_json_set(object, "features", cli_json_string(machine->features));
    cli_json_set(object, "features_allowed", features(machine, false));
    cli_json_set(object, "features_capped", features(machine, true));
    cli_json_set(object, "cuda", json_boolean(!cuda->missing[0]));
    cli_json_set(object, "cuda_library", cli_json_string(cuda->opened));
    cli_json_set(object, "cuda_missing", cli_json_string(cuda->missing));
    cli_json_set(object, "cuda_instances", json_integer(cuda->kernels));
    cli_json_set(object, "cuda_devices", json_devices());
    cli_json_set(object, "cuda_kernels", json_cuda_kernels());
    cli_json_set(object, "transports", json_transports());
    cli_json_set(object, "read_engines", json_read_engines());
    cli_json_set(object, "families", json_families(machine));
    cli_json_set(object, "kernels", json_kernels(machine));
    cli_json_set(object, "limits", m->limits ? cli_limits_json(m->limits) : json_null());
    cli_json_set(object, "disk", m->disk ? cli_disk_json(m->disk_path, m->disk) : json_null());
    cli_json_end(object);
}

static moxie_status find_limits(const arguments *args, cli_limits *limits, moxie_error *error)
{
    moxie_executor *executor = NULL;
    cli_limits_of of;
    moxie_status status = cli_executor_create("info", args->threads, &executor, error);
    if (status == MOXIE_OK)
        status = cli_limits_of_cpu(executor, NULL, &of, error);
    if (status == MOXIE_OK)
        status = cli_limits_get(args->limits_file, &of, limits, error);
    moxie_executor_destroy(executor);
    return status;
}

int cmd_info(int argc, char **argv)
{
    static const struct argp_child children[] = { { &cli_disk_argp, 0, "How --disk reads:", 1 }, { 0 } };
    static const struct argp parser = {
        options, parse, "", "What this machine and this build can run.", children, 0, 0
    };
    arguments args = { 0 };
    cli_parse(&parser, argc, argv, &args);

    if (args.support)
        return info_support(args.json);
    moxie_error error = { 0 };
    moxie_machine machine = MOXIE_MACHINE_INIT;
    moxie_cuda_info cuda = MOXIE_CUDA_INFO_INIT;
    cli_limits limits;
    moxie_disk_rate rate = MOXIE_DISK_RATE_INIT;
    const bool wanted = args.measure || args.limits_file;
    moxie_status status = moxie_machine_info(&machine, &error);
    if (status == MOXIE_OK)
        status = moxie_cuda_get_info(&cuda, &error);
    if (status == MOXIE_OK && wanted)
        status = find_limits(&args, &limits, &error);
    if (status == MOXIE_OK && args.disk_path)
        status = cli_disk_measure(args.disk_path, &args.disk, 0, &rate, &error);
    const measured found = { wanted ? &limits.found : NULL, args.disk_path ? &rate : NULL, args.disk_path };
    if (status != MOXIE_OK)
        return cli_fail("info", args.json, status, &error);
    if (args.json)
        print_json(&machine, &cuda, &found);
    else if (args.kernels)
        print_all_kernels(&machine, &cuda);
    else
        print_text(&machine, &cuda, &found);
    return CLI_OK;
}
