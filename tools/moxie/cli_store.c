/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_store.c - the store of `moxie run|diff|bench DIR --budget-ram` (cli_store.h).
 */
#include "cli_store.h"

#include <limits.h>
#include <string.h>

#include "prepare.h"

enum { OPT_BUDGET_RAM = 1300, OPT_BUDGET_GPU, OPT_POLICY, OPT_MAX_INSERTS, OPT_WARM, OPT_WHERE };

static const struct argp_option options[] = {
    { "budget-ram", OPT_BUDGET_RAM, "BYTES", 0,
      "memory for experts, as 24000000000 or 24G: the others are read from DIR's expert files when a run needs them",
      0 },
    { "budget-gpu", OPT_BUDGET_GPU, "BYTES", 0,
      "with --budget-ram: memory of the GPU for experts; the others lie in pinned RAM and are copied when a run needs "
      "them",
      0 },
    { "cpu-experts", OPT_WHERE, "DIR2", 0,
      "with --budget-gpu: the CPU computes experts without a slot on the GPU, out of DIR2's files for it (moxie-cpu); "
      "bits then depend on which these are",
      0 },
    { "policy", OPT_POLICY, "NAME", 0,
      "which experts stay in memory (on the GPU, with one): lfru (default), lru, lfu, pinned or frozen", 0 },
    { "warm", OPT_WARM, "N", 0, "runs of a layer, or steps of the trace, in which pinned and frozen learn", 0 },
    { "max-inserts", OPT_MAX_INSERTS, "N", 0,
      "experts that take the place of others in one run of a layer (default: its top-k; -1: any number)", 0 },
    { 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    cli_layer_options *args = state->input;
    switch (key) {
    case OPT_BUDGET_RAM: args->budget_ram = cli_parse_bytes(state, "--budget-ram", arg); return 0;
    case OPT_BUDGET_GPU: args->budget_gpu = cli_parse_bytes(state, "--budget-gpu", arg); return 0;
    case OPT_WHERE: args->where = arg; return 0;
    case OPT_POLICY: args->policy = cli_parse_policy(state, arg); return 0;
    case OPT_WARM: args->warm = (int32_t)cli_parse_int(state, "--warm", arg, 1, INT32_MAX); return 0;
    case OPT_MAX_INSERTS:
        args->max_inserts = (int32_t)cli_parse_int(state, "--max-inserts", arg, -1, MOXIE_MAX_EXPERTS);
        if (args->max_inserts == 0)
            argp_error(state, "--max-inserts 0 would let no expert take another's place: --policy frozen does that, "
                              "once it has learned");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

const struct argp cli_store_argp = { options, parse, NULL, NULL, NULL, NULL, NULL };

/* The processor of a store. */
static void check_gpu(struct argp_state *state, cli_layer_options *args)
{
    if (args->budget_gpu && args->backend == MOXIE_BACKEND_REF)
        argp_error(state, "--budget-gpu is for a GPU, and the back end is ref: leave one of the two out");
    if (args->where && !args->budget_gpu)
        argp_error(state, "--cpu-experts goes with --budget-gpu: without it the CPU computes all experts");
    if (args->budget_gpu)
        args->backend = MOXIE_BACKEND_CUDA;
    if (!args->budget_gpu && args->backend == MOXIE_BACKEND_CUDA)
        argp_error(state,
                   "--budget-ram with --backend cuda needs --budget-gpu: experts that lie on the GPU; those in RAM "
                   "are copied there");
}

void cli_store_check_warm(struct argp_state *state, const cli_layer_options *args)
{
    const char *policy = args->policy ? args->policy : "lfru";
    if (args->warm && strcmp(policy, "pinned") != 0 && strcmp(policy, "frozen") != 0)
        argp_error(state, "--warm is for policies that learn, pinned and frozen, and %s does not: leave --warm out",
                   policy);
}

void cli_store_check(struct argp_state *state, cli_layer_options *args, const char *other)
{
    const char *only = args->budget_gpu    ? "--budget-gpu"
                       : args->where       ? "--cpu-experts"
                       : args->policy      ? "--policy"
                       : args->max_inserts ? "--max-inserts"
                       : args->warm        ? "--warm"
                                           : NULL;
    if (args->budget_ram == 0 && only)
        argp_error(state, "%s goes with --budget-ram", only);
    if (args->budget_ram == 0)
        return;
    if (other)
        argp_error(state, "--budget-ram does not go with %s: leave one of the two out", other);
    if (args->access != MOXIE_EXPERT_MAP)
        argp_error(state, "--load is for files that stay in memory, --budget-ram for those that do not: leave one out");
    if (!args->plans_only) /* a plan may count hits of a trace behind these steps */
        cli_store_check_warm(state, args);
    check_gpu(state, args);
}

static moxie_status read_options(const cli_layer_options *args, moxie_store_options *out, moxie_error *error)
{
    out->ram_bytes = (uint64_t)args->budget_ram;
    out->device_bytes = (uint64_t)args->budget_gpu;
    out->device = args->budget_gpu ? args->device : NULL;
    out->policy = args->policy;
    out->max_inserts = args->max_inserts;
    out->warm_runs = args->warm;
    out->reader = args->disk.engine;
    out->read_depth = args->disk.depth;
    out->read_chunk_bytes = args->disk.chunk_bytes;
    out->mirror = args->disk.mirror;
    out->compute_where_it_lies = args->where;
    if (cli_has_experts(args->dir))
        return MOXIE_OK;
    return cli_error(
        MOXIE_ERR_UNSUPPORTED, error, args->dir,
        "--budget-ram reads expert files, and these are none: `moxie prepare DIR --layout moxie-auto -o OUT` "
        "writes them, then give OUT");
}

moxie_status cli_store_open(const cli_layer_options *args, int64_t layer, moxie_store **out, moxie_error *error)
{
    char path[PATH_MAX];
    moxie_store_options store = MOXIE_STORE_OPTIONS_INIT;
    const moxie_status status = read_options(args, &store, error);
    if (status != MOXIE_OK)
        return status;
    char beside[PATH_MAX];
    if (args->where && layer >= 0)
        store.compute_where_it_lies = prepare_experts_path(args->where, layer, beside);
    const char *paths[] = { layer < 0 ? args->dir : prepare_experts_path(args->dir, layer, path) };
    return moxie_store_open(paths, 1, &store, out, error);
}

moxie_status cli_store_describe(const cli_layer_options *args, moxie_store_info *out, moxie_error *error)
{
    moxie_store_options store = MOXIE_STORE_OPTIONS_INIT;
    const moxie_status status = read_options(args, &store, error);
    return status == MOXIE_OK ? moxie_store_describe(&args->dir, 1, &store, out, error) : status;
}

/* ---- what it did ----------------------------------------------------------------------------------------- */

static double part(double of, double all)
{
    return all > 0 ? of / all : 0;
}

static void add_row(cli_table *table, moxie_store *store, int64_t layer)
{
    moxie_store_counters c = MOXIE_STORE_COUNTERS_INIT;
    char ram[16], file[16];
    (void)moxie_store_get_counters(store, layer, 0, &c, NULL);
    layer < 0 ? cli_table_add(table, "all") : cli_table_add(table, "%lld", (long long)layer);
    cli_table_add(table, "%lld", (long long)c.runs);
    cli_table_add(table, "%lld", (long long)c.uses);
    cli_table_add(table, "%.1f%%", 100 * part((double)c.hits, (double)c.uses));
    cli_table_add(table, "%lld", (long long)c.inserts);
    cli_table_add(table, "%s", cli_bytes(ram, c.ram_bytes));
    cli_table_add(table, "%s", cli_bytes(file, c.read_bytes));
    cli_table_add(table, "%.2f", 1e3 * c.wait_seconds);
    cli_table_add(table, "%lld", (long long)c.prefetches);
    cli_table_add(table, "%lld", (long long)c.prefetches_used);
    cli_table_add(table, "%lld", (long long)c.prefetches_wasted);
}

static void add_device_row(cli_table *table, moxie_store *store, int64_t layer)
{
    moxie_store_counters c = MOXIE_STORE_COUNTERS_INIT;
    char copied[16];
    (void)moxie_store_get_counters(store, layer, 0, &c, NULL);
    layer < 0 ? cli_table_add(table, "all") : cli_table_add(table, "%lld", (long long)layer);
    cli_table_add(table, "%lld", (long long)c.device_uses);
    cli_table_add(table, "%.1f%%", 100 * part((double)c.device_hits, (double)c.device_uses));
    cli_table_add(table, "%lld", (long long)c.device_inserts);
    cli_table_add(table, "%lld", (long long)c.copies);
    cli_table_add(table, "%s", cli_bytes(copied, c.copied_bytes));
    cli_table_add(table, "%lld", (long long)c.id_waits);
    cli_table_add(table, "%.2f", 1e3 * c.id_wait_seconds);
    cli_table_add(table, "%lld", (long long)c.copy_waits);
    cli_table_add(table, "%.2f", 1e3 * c.copy_wait_seconds);
}

static void print_host(moxie_store *store, const moxie_store_info *info)
{
    moxie_store_counters c = MOXIE_STORE_COUNTERS_INIT;
    char bytes[16];
    const uint64_t records = (uint64_t)info->layers * (uint64_t)info->host_slots + (uint64_t)info->host_read_buffers;
    (void)moxie_store_get_counters(store, -1, 0, &c, NULL);
    printf("CPU: %d %s a layer in RAM, %d buffers for reads, %s; computed %lld %s of %lld where they lie, in %.2f ms\n",
           (int)info->host_slots, info->host_slots == 1 ? "slot" : "slots", (int)info->host_read_buffers,
           cli_bytes(bytes, records * info->host_record_bytes), CLI_COUNT(c.host_uses, "expert"),
           (long long)c.device_uses, 1e3 * c.host_seconds);
}

static void print_device(moxie_store *store, const moxie_store_info *info)
{
    static const char *const headings[] = { ">layer",  ">GPU uses",      ">hits",    ">inserts",    ">copies",
                                            ">copied", ">waits for ids", ">wait ms", ">for copies", ">wait ms" };
    const uint64_t records = (uint64_t)info->layers * (uint64_t)info->device_slots + (uint64_t)info->device_buffers;
    char buffers[16], shared[16];
    cli_table table;
    printf("GPU: %d %s a layer, %d buffers for copies, %s; shared experts %s\n", (int)info->device_slots,
           info->device_slots == 1 ? "slot" : "slots", (int)info->device_buffers,
           cli_bytes(buffers, records * info->device_record_bytes), cli_bytes(shared, info->device_shared_bytes));
    cli_table_begin(&table, 10, headings);
    for (int32_t l = 0; l < info->layers; l++)
        add_device_row(&table, store, moxie_store_layer_number(store, l));
    if (info->layers > 1)
        add_device_row(&table, store, -1);
    cli_table_print(&table);
    cli_table_free(&table);
    if (info->host_read_buffers > 0)
        print_host(store, info);
}

void cli_store_print(moxie_store *store)
{
    static const char *const headings[] = { ">layer",      ">runs",        ">uses",      ">hits",
                                            ">inserts",    ">from memory", ">from file", ">wait ms",
                                            ">prefetched", ">used",        ">wasted" };
    moxie_store_info info = MOXIE_STORE_INFO_INIT;
    char buffers[16], shared[16], all[16];
    cli_table table;
    (void)moxie_store_get_info(store, &info, NULL);
    printf("store: %d %s a layer by %s, %d buffers for reads, %s; shared experts %s; of experts of %s, read by %s%s\n",
           (int)info.slots, info.slots == 1 ? "slot" : "slots", info.policy, (int)info.read_buffers,
           cli_bytes(buffers, info.buffer_bytes), cli_bytes(shared, info.shared_bytes), cli_bytes(all, info.file_bytes),
           info.reader, info.direct ? " past the page cache" : "");
    cli_table_begin(&table, 11, headings);
    for (int32_t l = 0; l < info.layers; l++)
        add_row(&table, store, moxie_store_layer_number(store, l));
    if (info.layers > 1)
        add_row(&table, store, -1);
    cli_table_print(&table);
    cli_table_free(&table);
    if (info.device_slots > 0)
        print_device(store, &info);
}

static json_t *device_json(const moxie_store_counters *c)
{
    return cli_pack("{s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:f, s:I, s:f}", "uses", (json_int_t)c->device_uses, "hits",
                    (json_int_t)c->device_hits, "hit_rate", part((double)c->device_hits, (double)c->device_uses),
                    "inserts", (json_int_t)c->device_inserts, "copies", (json_int_t)c->copies, "copied_bytes",
                    (json_int_t)c->copied_bytes, "id_waits", (json_int_t)c->id_waits, "id_wait_s", c->id_wait_seconds,
                    "copy_waits", (json_int_t)c->copy_waits, "copy_wait_s", c->copy_wait_seconds);
}

static json_t *counters_json(moxie_store *store, int64_t layer)
{
    moxie_store_counters c = MOXIE_STORE_COUNTERS_INIT;
    (void)moxie_store_get_counters(store, layer, 0, &c, NULL);
    return cli_pack("{s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:o, s:I, s:f}",
                    "layer", (json_int_t)layer, "runs", (json_int_t)c.runs, "uses", (json_int_t)c.uses, "hits",
                    (json_int_t)c.hits, "hit_rate", part((double)c.hits, (double)c.uses), "inserts",
                    (json_int_t)c.inserts, "reads", (json_int_t)c.reads, "read_bytes", (json_int_t)c.read_bytes,
                    "ram_bytes", (json_int_t)c.ram_bytes, "waits", (json_int_t)c.waits, "wait_s", c.wait_seconds,
                    "prefetches", (json_int_t)c.prefetches, "prefetches_used", (json_int_t)c.prefetches_used,
                    "prefetches_wasted", (json_int_t)c.prefetches_wasted, "failed_reads", (json_int_t)c.failed_reads,
                    "gpu", device_json(&c), "host_uses", (json_int_t)c.host_uses, "host_s", c.host_seconds);
}

json_t *cli_store_json(moxie_store *store)
{
    moxie_store_info i = MOXIE_STORE_INFO_INIT;
    json_t *layers = json_array();
    (void)moxie_store_get_info(store, &i, NULL);
    for (int32_t l = 0; l < i.layers; l++)
        cli_json_append(layers, counters_json(store, moxie_store_layer_number(store, l)));
    return cli_pack("{s:s, s:i, s:i, s:I, s:I, s:I, s:I, s:s, s:b, s:o, s:o, s:i, s:i, s:I, s:I, s:i, s:i, s:I}",
                    "policy", i.policy, "slots", (int)i.slots, "read_buffers", (int)i.read_buffers, "record_bytes",
                    (json_int_t)i.record_bytes, "buffer_bytes", (json_int_t)i.buffer_bytes, "shared_bytes",
                    (json_int_t)i.shared_bytes, "file_bytes", (json_int_t)i.file_bytes, "reader", i.reader, "direct",
                    (int)i.direct, "layers", layers, "all", counters_json(store, -1), "gpu_slots", (int)i.device_slots,
                    "gpu_buffers", (int)i.device_buffers, "gpu_record_bytes", (json_int_t)i.device_record_bytes,
                    "gpu_shared_bytes", (json_int_t)i.device_shared_bytes, "host_slots", (int)i.host_slots,
                    "host_read_buffers", (int)i.host_read_buffers, "host_record_bytes",
                    (json_int_t)i.host_record_bytes);
}
