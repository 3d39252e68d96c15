/* SPDX-License-Identifier: Apache-2.0
 *
 * bench.h - the parts of `moxie bench`:
 *
 *     bench_model.c      copies of the layer, prepared, with plans     -> model
 *     bench_fill.c       how fast their records came to a GPU
 *     bench_adapters.c   random adapters for the copies
 *     bench_routing.c    the experts of every token, drawn per run -> ids, weights
 *     bench_routing_file.c, bench_routing_trace.c   or read from a file
 *     bench_line.c       one batch size: runs, times, floor            -> line
 *     bench_on_cpu.c     the back ends: how a run is timed, which       -> seconds
 *     bench_on_cuda.c    memory and limits the machine has
 *     bench_plot.c       the lines under the machine's roof            -> picture
 *     bench_limits.c     the machine's limits around each line
 *     bench_phases.c     where the time of a line's runs went
 *     bench_scaling.c    the lines by number of threads
 *     bench_report.c     table or JSON
 *     bench_simulate.c   many ranks on paper (bench_simulate.h)
 *     bench_ranks.c      ranks beside one, and what it prints of
 *     bench_ranks_report.c   them (bench_ranks.h)
 *     bench_ranks_cuda.c steps of ranks on GPUs
 *     bench_store.c      a trace on layers of a store (bench_store.h)
 *     cmd_bench.c        options, order of events
 *
 * Weights must come from memory in every run, as they do in an engine, where the other layers run in between. A run
 * reads the experts that were read longest ago. There are enough copies of the layer that, between two reads of an
 * expert, other weights of at least twice the last-level cache are read. On a GPU one graph holds several runs, each
 * with its own routing, and is launched many times. The same holds there from one launch to the next.
 */
#ifndef MOXIE_BENCH_H
#define MOXIE_BENCH_H

#include <moxie/moxie_adapters.h>

#include "cli_ranks.h"
#include "made_weights.h"
#include "preset_layer.h"

/* ---- routing (bench_routing.c) ------------------------------------------------------------------- */

/* BENCH_FILE is last; bench_routing_names has the others in this order. */
typedef enum bench_routing_kind {
    BENCH_UNIFORM,
    BENCH_ZIPF,
    BENCH_ONE_HOT,
    BENCH_SKEWED,
    BENCH_FILE
} bench_routing_kind;

typedef struct bench_routing {
    bench_routing_kind kind;
    const char *name; /* "uniform", ..., or the file's */
    int64_t layer;    /* of a trace; below 0: its first one */
    int64_t experts, top_k;
    int64_t spread; /* uniform: over so many experts, all of them at first */
    bool skips;     /* uniform: every choice is skipped */
    uint64_t seed, draws;
    double *cumulative;     /* zipf: [experts] */
    int32_t *file_ids;      /* [file_tokens, top_k]; negative: skipped */
    float *file_weights;    /* or NULL */
    int64_t file_tokens;    /* 0: no file */
    int32_t *ids;           /* the draw: [tokens, top_k] */
    float *weights;         /* its weights, positive, sum 1 for each token */
    int32_t *used;          /* the experts in it, [touched] */
    int64_t touched, pairs; /* pairs: choices that are not skipped */
    int64_t fullest;        /* the largest number of tokens that one expert has */
    int32_t *label;         /* scratch, [experts] */
} bench_routing;

extern const cli_names bench_routing_names;
/* `name`: uniform, zipf, one-hot, skewed, or a file of ids: a trace, of which layer `layer` is taken; safetensors by
 * its ending; else text. bench_routing_free() in any case. */
moxie_status bench_routing_open(const char *name, const moxie_layer_config *config, int64_t layer, uint64_t seed,
                                bench_routing *out, moxie_error *error);
void bench_routing_free(bench_routing *routing);
/* Reads the ids of a file: fills file_ids, file_weights and file_tokens (bench_routing_file.c). */
moxie_status bench_routing_read(bench_routing *routing, moxie_error *error);
/* The same of a trace (bench_routing_trace.c). */
moxie_status bench_routing_read_trace(bench_routing *routing, moxie_error *error);
/* Room for so many tokens; an error when the file has fewer. */
moxie_status bench_routing_reserve(bench_routing *routing, int64_t tokens, moxie_error *error);
/* Draws one batch. The kind of routing decides which tokens share an expert. Age decides which experts those are: the
 * ones that were read longest ago, in random order. last_read [experts] says when each was read last (0: never). */
void bench_routing_draw(bench_routing *routing, int64_t tokens, const uint64_t *last_read);

/* Draws a pattern of ids alone: popular experts have low ids, and no expert is chosen for its age. A file's ids are
 * those of its tokens from number `first` on, and from the first again past the last. */
void bench_routing_pattern(bench_routing *routing, int64_t tokens, int64_t first);
/* Fills `used` with all experts in a random order that depends on the seed alone. */
void bench_routing_shuffle(bench_routing *routing);

/* ---- the layer (bench_model.c) ------------------------------------------------------------------- */

#define BENCH_MAX_COPIES 64

typedef struct bench_copy {
    moxie_layer *layer;
    moxie_plan *plan;
    moxie_adapters *adapters; /* NULL: none */
    uint64_t *last_read;      /* [experts] model->read_bytes when this expert was read last, 0: never */
} bench_copy;

typedef struct bench_model {
    moxie_layer_config config;
    const moxie_expert_file *file; /* copies are of its records as they lie; NULL: weights are packed */
    int32_t copies;
    bench_copy copy[BENCH_MAX_COPIES];
    uint64_t expert_bytes, shared_bytes; /* of one expert, of the shared one, as in the checkpoint */
    uint64_t record_bytes;               /* of one copy, packed */
    uint64_t read_bytes;                 /* by all runs so far */
    int32_t *adapter_ids;                /* [T] of each token; NULL: none */
    void *workspace;
    uint64_t workspace_bytes;
    double prepare_seconds;
    double load_seconds; /* of the copy whose experts were loaded and packed fastest */
} bench_model;

/* How many copies the batch sizes need so that weights come from memory. Fewer when they do not fit into `available`
 * bytes (0: unknown). */
moxie_status bench_model_copies(const bench_model *model, bench_routing *routing, const int64_t *tokens, int n_tokens,
                                uint64_t cache_bytes, uint64_t available, int32_t *copies, moxie_error *error);
/* Prepares `copies` copies of the weights, and plans; model->config is set before. `touch`: runs write the workspace,
 * so its pages are made now. Call bench_model_free() in any case. */
moxie_status bench_model_prepare(bench_model *model, int32_t copies, const moxie_weights *weights,
                                 const moxie_options *options, bool touch, bool json, moxie_error *error);
/* Gives every copy `count` adapters of one rank, and `tokens` tokens one of them each; 0: none (bench_adapters.c). */
moxie_status bench_model_adapt(bench_model *model, int32_t count, int32_t rank, int64_t tokens, moxie_error *error);
void bench_model_free(bench_model *model);
/* "kernel+kernel": the chosen kernels that read expert weights. Returns `buffer`. */
const char *bench_plan_name(const moxie_plan *plan, char *buffer, size_t size);

/* ---- records of a file that go to a GPU (bench_fill.c) --------------------------------------------- */

typedef struct bench_fill {
    int fills, threads; /* fills 0: the layer is packed, or on the host */
    uint64_t bytes, pinned_bytes;
    double seconds, first_seconds, allocate_seconds; /* the median fill, the first one; of device memory, the median */
    double pin_seconds;                              /* of all fills */
    double copy_gb_s;                                /* of copies from pinned memory */
} bench_fill;

/* Leaves `out` alone unless the model's copies are of a file's records, on a GPU. */
moxie_status bench_fill_measure(const bench_model *model, const moxie_options *options, bench_fill *out,
                                moxie_error *error);
void bench_fill_print(const bench_fill *fill);
json_t *bench_fill_json(const bench_fill *fill); /* null without fills */

/* ---- back ends (bench_on_cpu.c, bench_on_cuda.c) --------------------------------------------------- */

#define BENCH_MAX_RUNS 64

/* Runs that are timed together. Each has its own routing. */
typedef struct bench_batch {
    int32_t runs;
    moxie_plan *plan[BENCH_MAX_RUNS];
    moxie_run_args args[BENCH_MAX_RUNS];
    int32_t preempted; /* launches so far in which other work took a processor away */
} bench_batch;

/* What differs between back ends. */
typedef struct bench_backend {
    double line_seconds; /* how long a line takes, about */
    int32_t max_at_once; /* the largest number of runs in a batch */
    int32_t launches;    /* how often a batch is launched, about */
    bool on_host;        /* runs write the host's workspace */
    const char *units;   /* "threads" */
    moxie_status (*limits_of)(const cli_layer_options *options, const moxie_executor *executor, cli_limits_of *out,
                              moxie_error *error);
    /* Bytes that copies of the layer may use besides a workspace; 0: unknown. */
    uint64_t (*available)(const cli_layer_options *options, uint64_t workspace_bytes);
    /* seconds[i]: the time of launch i of the whole batch. A launch that only warms up may come first. */
    moxie_status (*time)(bench_batch *batch, int32_t launches, double *seconds, moxie_error *error);
    /* moxie_cuda_time_host() of the batch's first run; NULL on a processor. */
    moxie_status (*time_host)(const bench_batch *batch, int32_t calls, double *equal, double *kernels,
                              moxie_error *error);
} bench_backend;
extern const bench_backend bench_on_cpu, bench_on_cuda;

/* ---- phases (bench_phases.c) ---------------------------------------------------------------------- */

#define BENCH_MAX_PHASES 32

/* Seconds of a worker a run, over the workers. */
typedef struct bench_phase {
    const char *name;
    double median, min, max;
} bench_phase;

typedef struct bench_phases {
    int32_t count, workers; /* count 0: not asked for */
    bench_phase phase[BENCH_MAX_PHASES];
    double *before; /* [workers, BENCH_MAX_PHASES] the clocks when it began; NULL when it ended */
} bench_phases;

/* Begins and ends counting the phases of all runs of the model's plans; `runs`: how many there were in between. */
void bench_phases_begin(const bench_model *model, bench_phases *phases);
void bench_phases_end(const bench_model *model, double runs, bench_phases *phases);
/* {name: {median, min, max}}, in milliseconds. */
json_t *bench_phases_json(const bench_phases *phases);

/* ---- one line (bench_line.c) --------------------------------------------------------------------- */

typedef enum bench_by { BENCH_BY_MEMORY, BENCH_BY_BF16, BENCH_BY_FP8, BENCH_BY_INT8 } bench_by;
/* The limits that make floors, by bench_by: "memory", "bf16", "fp8", "int8"; the key and the unit of the figure. */
typedef struct bench_limit {
    const char *name, *key, *unit;
    size_t value, how; /* offsets of the fields in moxie_limits */
} bench_limit;
extern const bench_limit bench_limit_of[];
double bench_limit_value(const moxie_limits *limits, bench_by by);

typedef struct bench_line {
    int64_t tokens;
    int32_t repeats, preempted;     /* preempted: repeats in which other work took a processor away */
    int32_t at_once;                /* runs of a repeat */
    double median, min, max;        /* seconds, of all runs */
    double host_equal;              /* on a GPU: the host's seconds of a call that equals the one before, median */
    double host_kernels;            /* of one that launches its kernels one by one */
    double quiet_median;            /* of the runs that were not preempted; 0: there are none */
    double touched;                 /* routed experts that a run reads, mean */
    double fullest;                 /* the largest number of tokens of one expert, mean */
    double bytes, flop;             /* of weights and operations a run, mean */
    double floor, ratio;            /* seconds; median / floor, 0 without a floor */
    bench_by by;                    /* which limit makes the floor */
    double read_gb_s, bf16_tflop_s; /* the limits behind it */
    double fp8_tflop_s, int8_top_s; /* 0 where operations count by another limit */
    bench_by operations;            /* the limit by which operations count */
    uint64_t reuse;                 /* fewest bytes of other weights read between two reads of one expert */
    bool reused;                    /* false: no expert was read twice */
    double output_rms;              /* of the last run: not finite when an output was not */
    double cached;                  /* largest share of the weights that may have come from the caches */
    bench_phases phases;            /* where the time of the runs went */
} bench_line;

/* Whether other work disturbed more than a tenth of the runs. BENCH_FEW_CACHED: the share of weights from the caches up
 * to which nothing is said. */
bool bench_line_is_disturbed(const bench_line *line);
#define BENCH_FEW_CACHED 0.02

/* Times runs of `tokens` tokens, `repeats` times; 0: at least 5 times and as long as the back end says. */
moxie_status bench_line_time(const bench_backend *backend, bench_model *model, bench_routing *routing, int64_t tokens,
                             int32_t repeats, uint64_t seed, uint64_t cache_bytes, bench_line *out, moxie_error *error);
void bench_line_set_floor(bench_line *line, const moxie_layer_config *config, const moxie_limits *limits);

/* ---- the picture (bench_plot.c) ------------------------------------------------------------------ */

typedef struct bench_roof {
    const char *name; /* of the operations: "bf16", "fp8" or "int8" */
    double read_gb_s, tflop_s;
} bench_roof;
/* What is drawn. */
typedef struct bench_picture {
    const char *title, *subtitle, *warning; /* warning: "", or what makes the figures rough */
    const bench_line *lines;
    int n_lines;
    bench_roof roof;
} bench_picture;
/* .svg or .png by its ending. */
bool bench_plot_is_name(const char *path);
/* MOXIE_ERR_UNSUPPORTED when there is no gnuplot. Call it before the benchmark, which takes minutes. */
moxie_status bench_plot_find(moxie_error *error);
moxie_status bench_plot_write(const char *path, const bench_picture *picture, moxie_error *error);

/* ---- a benchmark (cmd_bench.c, bench_report.c) --------------------------------------------------- */

typedef struct bench_arguments {
    cli_layer_options layer;
    preset_choice preset; /* without a name: a directory's layer */
    const char *routing, *limits_file, *plot, *trace;
    cli_sizes ranks;           /* to simulate; none: the layer is timed here */
    double link_gb_s, link_us; /* below 0: not given */
    cli_ranks_options local;   /* that run here */
    cli_sizes tokens;          /* none: the usual ones */
    int32_t repeats;
    bool phases;
    int32_t adapters, adapter_rank; /* 0: tokens have none */
    bool lookahead;                 /* of a store (bench_store.h) */
    uint64_t seed;
} bench_arguments;

/* A limit that a line beat. */
typedef struct bench_raised {
    bench_by by;
    int64_t tokens; /* of the line */
    double before, now;
} bench_raised;

/* The lines of each number of threads of a list (bench_scaling.c): row i is of batch size i % lines. */
typedef struct bench_scaling_row {
    int32_t threads;
    int64_t tokens;
    double median, min, floor;  /* seconds */
    double ratio;               /* median over floor */
    double speedup, efficiency; /* over the first number of threads; by thread */
} bench_scaling_row;
typedef struct bench_scaling {
    bench_scaling_row *row; /* [count] */
    int count, lines;       /* count 0: no list */
} bench_scaling;

typedef struct bench {
    const bench_arguments *args;
    cli_layer source;     /* of a directory */
    made_weights made_up; /* of a preset */
    const moxie_weights *weights;
    char format[64];
    moxie_machine machine;
    moxie_executor *executor;
    const bench_backend *backend;
    cli_limits_of device; /* the processor or GPU that runs */
    bench_routing routing;
    bench_model model;
    bench_fill fill;
    cli_limits limits; /* the best of all measurements */
    bench_line lines[CLI_MAX_SIZES];
    int64_t tokens[CLI_MAX_SIZES];
    int n_lines;
    double noise; /* largest relative change of the read limit over one line */
    bench_raised raised[CLI_MAX_SIZES];
    int n_raised;
    char plan[256];
    cli_ranks ranks;       /* of --ranks */
    bench_scaling scaling; /* of --threads LIST */
} bench;

/* The options of the plan that runs: of b->tokens. */
moxie_options bench_options(const bench *b);
/* The layer whose choices a trace is asked for: the one that runs; of a preset that of --layer, -1: any. */
static inline int64_t bench_layer(const bench *b)
{
    return b->args->preset.name ? b->args->layer.layer : b->source.index;
}
/* --simulate-ranks: b's layer is opened; prints what it finds (bench_simulate.c). */
moxie_status bench_simulate(bench *b, moxie_error *error);
/* Times line i, then measures the limits again unless they come from a file. *before: the limits measured last
 * (bench_limits.c). */
moxie_status bench_time_line(bench *b, int i, moxie_limits *before, moxie_error *error);
/* Writes limits that a run has beaten to the file of limits. */
moxie_status bench_keep_limits(bench *b, moxie_error *error);
void bench_print_text(const bench *b);
void bench_print_phases(const bench *b);
/* Adds b's lines, of one number of threads. */
void bench_scaling_add(const bench *b, bench_scaling *scaling);
void bench_scaling_free(bench_scaling *scaling);
void bench_scaling_print(const bench_scaling *scaling);
json_t *bench_scaling_json(const bench_scaling *scaling);
void bench_print_json(const bench *b);
/* What was timed, and where; each buffer of `size` bytes. */
void bench_titles(const bench *b, char *title, char *subtitle, size_t size);
/* What makes all figures rough, or "". Returns `buffer`. */
const char *bench_warning(const bench *b, char *buffer, size_t size);
/* Milliseconds with at least three significant digits: "12.345", "0.0123". Returns `buffer`, of 32 bytes. */
const char *bench_ms(double seconds, char *buffer);

#endif
