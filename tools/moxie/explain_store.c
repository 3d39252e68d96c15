/* SPDX-License-Identifier: Apache-2.0
 *
 * explain_store.c - hits and times of a store before it runs (explain_store.h).
 */
#include "explain_store.h"

#include <math.h>
#include <string.h>

#include <moxie/moxie_cuda.h>
#include <moxie/moxie_trace.h>

#include "cli_disk.h"
#include "cli_store.h"

/* ---- options --------------------------------------------------------------------------------------- */

enum { OPT_TRACE = 1500, OPT_DISK_GB_S, OPT_MEMORY_GB_S, OPT_COPY_GB_S };

static const struct argp_option store_options[] = {
    { "trace", OPT_TRACE, "FILE", 0, "hits by replaying this routing trace (default: two stated distributions)", 0 },
    { "disk-gb-s", OPT_DISK_GB_S, "B", 0, "GB/s of the disk (default: measured on DIR)", 0 },
    { "memory-gb-s", OPT_MEMORY_GB_S, "B", 0,
      "GB/s of memory, with --budget-gpu of the GPU's (default: of --limits FILE, or measured)", 0 },
    { "copy-gb-s", OPT_COPY_GB_S, "B", 0,
      "with --budget-gpu: GB/s from pinned RAM to the GPU; with --cpu-experts from RAM to the CPU (default: "
      "measured)",
      0 },
    { 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    explain_store_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = options->layer;
        state->child_inputs[1] = &options->layer->disk;
        return 0;
    case OPT_TRACE: options->trace = arg; return 0;
    case OPT_DISK_GB_S: options->disk_gb_s = cli_parse_real(state, "--disk-gb-s", arg, false); return 0;
    case OPT_MEMORY_GB_S: options->memory_gb_s = cli_parse_real(state, "--memory-gb-s", arg, false); return 0;
    case OPT_COPY_GB_S: options->copy_gb_s = cli_parse_real(state, "--copy-gb-s", arg, false); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = { { &cli_store_argp, 0, NULL, 0 }, { &cli_disk_argp, 0, NULL, 0 }, { 0 } };

const struct argp explain_store_argp = { store_options, parse, NULL, NULL, children, NULL, NULL };

const char *explain_store_lone(const explain_store_options *options)
{
    return options->trace             ? "--trace"
           : options->disk_gb_s > 0   ? "--disk-gb-s"
           : options->memory_gb_s > 0 ? "--memory-gb-s"
           : options->copy_gb_s > 0   ? "--copy-gb-s"
                                      : NULL;
}

moxie_status explain_store_check_share(const cli_layer_options *options, const cli_layer *layer, moxie_error *error)
{
    moxie_expert_file_info info = MOXIE_EXPERT_FILE_INFO_INIT;
    const moxie_status status = layer->file ? moxie_expert_file_get_info(layer->file, &info, error) : MOXIE_OK;
    if (status != MOXIE_OK || info.held == info.experts)
        return status;
    return cli_error(MOXIE_ERR_UNSUPPORTED, error, options->dir,
                     "it has %lld of %lld experts, and --budget-ram counts choices of all: prepare files without --ep",
                     (long long)info.held, (long long)info.experts);
}

/* ---- rates ------------------------------------------------------------------------------------------ */

static moxie_status find_disk(explain_store *s, moxie_error *error)
{
    moxie_disk_rate rate = MOXIE_DISK_RATE_INIT;
    char chunk[16];
    s->disk_gb_s = s->own->disk_gb_s;
    snprintf(s->disk_how, sizeof s->disk_how, "given");
    if (s->disk_gb_s > 0)
        return MOXIE_OK;
    const moxie_status status =
        cli_disk_measure(s->options->dir, &s->options->disk, s->info.record_bytes, &rate, error);
    s->disk_gb_s = rate.gb_s;
    snprintf(s->disk_how, sizeof s->disk_how, "measured: %s, %d reads of %s in flight%s%s",
             rate.engine ? rate.engine : "", rate.depth, cli_bytes(chunk, rate.chunk_bytes),
             rate.drives > 1 ? " on each drive" : "",
             rate.direct ? "" : ", THROUGH THE PAGE CACHE, so this may be memory's rate");
    return status;
}

/* GB/s that a processor reads of its memory. */
static moxie_status measure_memory(const explain_store *s, bool gpu, double *gb_s, moxie_error *error)
{
    moxie_executor *executor = NULL;
    cli_limits_of of;
    cli_limits limits;
    moxie_status status = cli_executor_create("explain", s->options->threads, &executor, error);
    if (status == MOXIE_OK)
        status =
            gpu ? cli_limits_of_gpu(s->options->device, &of, error) : cli_limits_of_cpu(executor, NULL, &of, error);
    if (status == MOXIE_OK)
        status = cli_limits_get(NULL, &of, &limits, error);
    moxie_executor_destroy(executor);
    if (status == MOXIE_OK)
        *gb_s = limits.found.read_gb_s;
    return status;
}

static moxie_status find_memory(explain_store *s, moxie_error *error)
{
    cli_limits limits;
    const char *how = s->own->memory_gb_s > 0 ? "given" : s->own->limits ? "of --limits" : "measured";
    snprintf(s->memory_how, sizeof s->memory_how, "%s", how);
    s->memory_gb_s = s->own->memory_gb_s;
    if (s->memory_gb_s > 0)
        return MOXIE_OK;
    if (!s->own->limits)
        return measure_memory(s, s->options->budget_gpu > 0, &s->memory_gb_s, error);
    const moxie_status status = cli_limits_read(s->own->limits, &limits, error);
    s->memory_gb_s = status == MOXIE_OK ? limits.found.read_gb_s : 0;
    return status;
}

static moxie_status find_copies(explain_store *s, moxie_error *error)
{
    if (!s->options->budget_gpu)
        return MOXIE_OK;
    snprintf(s->copy_how, sizeof s->copy_how, "%s", s->own->copy_gb_s > 0 ? "given" : "measured");
    s->copy_gb_s = s->own->copy_gb_s;
    if (s->copy_gb_s <= 0 && s->options->where)
        return measure_memory(s, false, &s->copy_gb_s, error);
    return s->copy_gb_s > 0 ? MOXIE_OK : moxie_cuda_measure_copy(s->options->device, &s->copy_gb_s, error);
}

/* ---- hits ------------------------------------------------------------------------------------------- */

/* Slots of a layer for what a token finds without a copy or a read; and in both tiers, where there are two. */
static int64_t first_slots(const explain_store *s)
{
    return s->options->budget_gpu ? s->info.device_slots : s->info.slots;
}

static int64_t all_slots(const explain_store *s)
{
    const int64_t slots = (int64_t)s->info.device_slots + s->info.slots + s->info.host_slots;
    return slots < s->experts ? slots : s->experts;
}

/* Of an expert that has no slot on the GPU, or in RAM. */
static double missed_bytes(const explain_store *s)
{
    return (double)(s->options->where ? s->info.host_record_bytes : s->info.record_bytes);
}

static void add_row(explain_store *s, const char *choices, const char *policy, double uses, double misses, double reads)
{
    const double record = (double)s->info.record_bytes, missed = missed_bytes(s);
    const double shared = (double)(s->info.shared_bytes + s->info.device_shared_bytes);
    s->rows[s->n_rows++] =
        (explain_store_row) { .choices = choices,
                              .policy = policy,
                              .uses = uses,
                              .misses = misses,
                              .reads = reads,
                              .disk_s = reads * missed / (s->disk_gb_s * 1e9),
                              .copy_s = s->copy_gb_s > 0 ? misses * missed / (s->copy_gb_s * 1e9) : 0,
                              .memory_s = ((s->options->where ? uses - misses : uses) * record + shared) /
                                          (s->memory_gb_s * 1e9) };
}

/* The probability that a token uses the expert of rank i in a Zipf distribution: 1 - (1 - p)^m, where m makes the sum
 * over all experts top_k. Returns the sum over the experts from `first` on. */
static double zipf_sum(int64_t experts, double draws, int64_t first)
{
    double norm = 0, sum = 0;
    for (int64_t i = 0; i < experts; i++)
        norm += 1 / (double)(i + 1);
    for (int64_t i = first; i < experts; i++)
        sum += 1 - pow(1 - 1 / (norm * (double)(i + 1)), draws);
    return sum;
}

static double zipf_misses(int64_t experts, int64_t top_k, int64_t slots)
{
    double low = 0, high = 1;
    if (top_k >= experts)
        return (double)(experts - slots);
    while (zipf_sum(experts, high, 0) < (double)top_k)
        high *= 2;
    for (int i = 0; i < 60; i++) {
        const double middle = (low + high) / 2;
        if (zipf_sum(experts, middle, 0) < (double)top_k)
            low = middle;
        else
            high = middle;
    }
    return zipf_sum(experts, high, slots);
}

/* Without a trace: a token whose choices are even, and one whose choices are Zipf's with the most popular in memory. */
static void assume(explain_store *s)
{
    const double layers = (double)s->info.layers, uses = layers * (double)s->top_k, experts = (double)s->experts;
    const int64_t all = all_slots(s), first = first_slots(s) < all ? first_slots(s) : all;
    add_row(s, "uniform", "-", uses, uses * (experts - (double)first) / experts,
            uses * (experts - (double)all) / experts);
    add_row(s, "zipf 1", "-", uses, layers * zipf_misses(s->experts, s->top_k, first),
            layers * zipf_misses(s->experts, s->top_k, all));
}

/* Misses with so many slots; those of two tiers together stand for what is in neither. */
static moxie_status simulate(explain_store *s, moxie_trace *trace, int64_t slots, moxie_cache_hits *hits,
                             moxie_error *error)
{
    moxie_cache_config config = MOXIE_CACHE_CONFIG_INIT;
    const int32_t inserts = s->options->max_inserts;
    config.warm_steps = s->options->warm;
    config.slots = (int32_t)slots;
    config.policy = s->info.policy;
    config.max_inserts = inserts == 0 ? (int32_t)s->top_k : inserts < 0 ? 0 : inserts;
    return moxie_trace_simulate(trace, &config, hits, NULL, error);
}

/* Before anything is measured. `trace` stays NULL where none is named. */
static moxie_status open_trace(const explain_store *s, moxie_trace **trace, moxie_error *error)
{
    moxie_trace_info info = MOXIE_TRACE_INFO_INIT;
    if (!s->own->trace)
        return MOXIE_OK;
    moxie_status status = moxie_trace_open(s->own->trace, trace, error);
    if (status == MOXIE_OK)
        status = moxie_trace_get_info(*trace, &info, error);
    if (status == MOXIE_OK && (info.experts != s->experts || info.top_k != s->top_k || info.tokens == 0))
        status = cli_error(MOXIE_ERR_MISMATCH, error, s->own->trace,
                           "its %lld %s choose %d of %d experts, those of %s choose %lld of %lld",
                           CLI_COUNT(info.tokens, "token"), info.top_k, info.experts, cli_printable(s->options->dir),
                           (long long)s->top_k, (long long)s->experts);
    if (status == MOXIE_OK && info.steps <= s->options->warm)
        status = cli_error(MOXIE_ERR_ARGUMENT, error, s->own->trace,
                           "it has %lld steps, and with --warm %d none is left to count: give a smaller number",
                           (long long)info.steps, (int)s->options->warm);
    return status;
}

static moxie_status replay(explain_store *s, moxie_trace *trace, moxie_error *error)
{
    moxie_trace_info info = MOXIE_TRACE_INFO_INIT;
    moxie_cache_hits hits = MOXIE_CACHE_HITS_INIT, all = MOXIE_CACHE_HITS_INIT;
    moxie_status status = moxie_trace_get_info(trace, &info, error);
    if (status == MOXIE_OK)
        status = simulate(s, trace, first_slots(s), &hits, error);
    if (status == MOXIE_OK)
        status = simulate(s, trace, all_slots(s), &all, error);
    if (status != MOXIE_OK)
        return status;
    s->trace_layers = info.layers;
    const double share = (double)s->info.layers / (double)info.layers / (double)hits.tokens;
    add_row(s, "trace", s->info.policy, (double)hits.uses * share, (double)(hits.uses - hits.hits) * share,
            (double)(all.uses - all.hits) * share);
    return MOXIE_OK;
}

static moxie_status find_hits(explain_store *s, moxie_trace *trace, moxie_error *error)
{
    if (trace)
        return replay(s, trace, error);
    assume(s);
    return MOXIE_OK;
}

moxie_status explain_store_find(const cli_layer_options *options, const explain_store_options *own,
                                const moxie_layer_config *config, explain_store *out, moxie_error *error)
{
    *out = (explain_store) { .options = options,
                             .own = own,
                             .info = MOXIE_STORE_INFO_INIT,
                             .experts = config->experts,
                             .top_k = config->top_k };
    moxie_trace *trace = NULL;
    moxie_status status = cli_store_describe(options, &out->info, error);
    if (status == MOXIE_OK)
        status = open_trace(out, &trace, error);
    if (status == MOXIE_OK)
        status = find_disk(out, error);
    if (status == MOXIE_OK)
        status = find_memory(out, error);
    if (status == MOXIE_OK)
        status = find_copies(out, error);
    if (status == MOXIE_OK)
        status = find_hits(out, trace, error);
    moxie_trace_close(trace);
    return status;
}

/* ---- output ----------------------------------------------------------------------------------------- */

/* Tokens/s when reads and products take turns; when they overlap. */
static double in_turns(const explain_store_row *r)
{
    return 1 / (r->disk_s + r->copy_s + r->memory_s);
}

static double overlapped(const explain_store_row *r)
{
    return 1 / fmax(fmax(r->disk_s, r->copy_s), r->memory_s);
}

static void print_rows(const explain_store *s)
{
    const char *const headings[] = { "choices",       "policy",
                                     ">hits",         ">uses/token",
                                     ">misses/token", ">read/token",
                                     ">disk ms",      s->options->where ? ">CPU ms" : ">copy ms",
                                     ">memory ms",    ">tokens/s at most",
                                     ">overlapped" };
    cli_table table;
    char bytes[16];
    cli_table_begin(&table, 11, headings);
    for (int i = 0; i < s->n_rows; i++) {
        const explain_store_row *r = &s->rows[i];
        cli_table_add(&table, "%s", r->choices);
        cli_table_add(&table, "%s", r->policy);
        cli_table_add(&table, "%.1f%%", 100 * (1 - r->misses / r->uses));
        cli_table_add(&table, "%.2f", r->uses);
        cli_table_add(&table, "%.2f", r->misses);
        cli_table_add(&table, "%s", cli_bytes(bytes, (uint64_t)(r->reads * missed_bytes(s))));
        cli_table_add(&table, "%.2f", 1e3 * r->disk_s);
        cli_table_add(&table, "%.2f", 1e3 * r->copy_s);
        cli_table_add(&table, "%.2f", 1e3 * r->memory_s);
        cli_table_add(&table, "%.2f", in_turns(r));
        cli_table_add(&table, "%.2f", overlapped(r));
    }
    cli_table_print(&table);
    cli_table_free(&table);
}

void explain_store_print(const explain_store *s)
{
    char budget[16], all[16], record[16];
    printf("\na store with %s, of experts of %s in %d %s: %d of %lld experts of a layer have a slot of %s, %d read "
           "buffers\n",
           cli_bytes(budget, (uint64_t)s->options->budget_ram), cli_bytes(all, s->info.file_bytes), (int)s->info.layers,
           s->info.layers == 1 ? "layer" : "layers", (int)s->info.slots, (long long)s->experts,
           cli_bytes(record, s->info.record_bytes), (int)s->info.read_buffers);
    printf("disk   %.2f GB/s, %s\nmemory %.1f GB/s, %s\n", s->disk_gb_s, cli_printable(s->disk_how), s->memory_gb_s,
           s->memory_how);
    if (s->options->where)
        printf("GPU    %d of %lld experts of a layer have a slot there, %d buffers; hits are the GPU's\n"
               "CPU    computes the others: %d have a slot of %s in RAM, %d buffers; reads it at %.1f GB/s, %s\n",
               (int)s->info.device_slots, (long long)s->experts, (int)s->info.device_buffers, (int)s->info.host_slots,
               cli_bytes(record, s->info.host_record_bytes), (int)s->info.host_read_buffers, s->copy_gb_s, s->copy_how);
    else if (s->options->budget_gpu)
        printf("GPU    %d of %lld experts of a layer have a slot there, %d buffers; copies %.1f GB/s, %s; hits are the "
               "GPU's, reads are of experts\n       in neither, as if RAM and GPU were one cache\n",
               (int)s->info.device_slots, (long long)s->experts, (int)s->info.device_buffers, s->copy_gb_s,
               s->copy_how);
    print_rows(s);
    if (s->options->where)
        printf("CPU ms: records of misses at the rate of RAM, as if experts kept their slots; at most: the GPU and the "
               "CPU "
               "take turns\n");
    if (s->trace_layers && s->trace_layers != s->info.layers)
        printf("the trace has %d layers: its mean layer stands for each of %d\n", (int)s->trace_layers,
               (int)s->info.layers);
    if (!s->trace_layers)
        printf(
            "these are assumptions, for one token at a time; --trace FILE counts. uniform: all experts alike, which no "
            "policy can help;\nzipf 1: the n-th popular expert is chosen 1/n as often, and the most popular ones are "
            "always in memory\n");
    printf("an estimate, and an upper bound: experts only, of an idle machine. at most: reads and products take turns; "
           "overlapped: every guess\nof a prefetch is right\n");
}

json_t *explain_store_json(const explain_store *s)
{
    json_t *rows = json_array();
    for (int i = 0; i < s->n_rows; i++) {
        const explain_store_row *r = &s->rows[i];
        cli_json_append(rows,
                        cli_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "choices", r->choices,
                                 "policy", r->policy, "hit_rate", 1 - r->misses / r->uses, "uses_per_token", r->uses,
                                 "misses_per_token", r->misses, "read_bytes_per_token", r->reads * missed_bytes(s),
                                 "disk_ms", 1e3 * r->disk_s, "copy_ms", 1e3 * r->copy_s, "memory_ms", 1e3 * r->memory_s,
                                 "max_tokens_per_s", in_turns(r), "max_tokens_per_s_overlapped", overlapped(r)));
    }
    return cli_pack("{s:I, s:i, s:i, s:i, s:I, s:I, s:I, s:f, s:s, s:f, s:s, s:s, s:b, s:o, s:I, s:i, s:f, s:i}",
                    "budget_bytes", (json_int_t)s->options->budget_ram, "layers", (int)s->info.layers, "slots",
                    (int)s->info.slots, "read_buffers", (int)s->info.read_buffers, "record_bytes",
                    (json_int_t)s->info.record_bytes, "shared_bytes", (json_int_t)s->info.shared_bytes, "file_bytes",
                    (json_int_t)s->info.file_bytes, "disk_gb_s", s->disk_gb_s, "disk_how", cli_utf8(s->disk_how),
                    "memory_gb_s", s->memory_gb_s, "memory_how", s->memory_how, "policy", s->info.policy, "assumed",
                    s->trace_layers == 0, "rows", rows, "budget_gpu_bytes", (json_int_t)s->options->budget_gpu,
                    "gpu_slots", (int)s->info.device_slots, "copy_gb_s", s->copy_gb_s, "host_slots",
                    (int)s->info.host_slots);
}
