/* SPDX-License-Identifier: Apache-2.0
 *
 * cli.h - what the sub-commands of `moxie` share: exit codes, output as tables or one JSON object, progress,
 * opening a layer, inputs.
 *
 * Tables and JSON go to stdout, messages and progress to stderr. A command is a function of its own argc and
 * argv; it returns the exit code. Everything here stands on the public interface only.
 */
#ifndef MOXIE_CLI_H
#define MOXIE_CLI_H

#include <argp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

#include <moxie/moxie.h>
#include <moxie/moxie_ckpt.h>
#include <moxie/moxie_store.h>
#include <moxie/moxie_cuda.h>
#include <moxie/moxie_scheme.h>

enum {
    CLI_OK = 0,
    CLI_CHECK_FAILED = 1,
    CLI_USAGE = 2,
    CLI_BAD_INPUT = 3,
    CLI_UNSUPPORTED = 4,
    CLI_RESOURCES = 5 /* memory or time */
};

#define CLI_SCHEMA_VERSION 1

int cmd_info(int argc, char **argv);
int cmd_synth(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_lint(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_diff(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_prepare(int argc, char **argv);
int cmd_bake(int argc, char **argv);
int cmd_quantize(int argc, char **argv);
int cmd_balance(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_trace(int argc, char **argv);

/* ---- beginning, end, memory (cli_exit.c) --------------------------------------------------------- */

/* Call first in main(). From then on the end of the program checks that standard output was written. */
void cli_begin(void);
/* Call after output that may not fit into stdio's buffer: notes why it could not be written, if so. */
void cli_note_output(void);
/* Notes the exit code that a command chose, and returns it. */
int cli_note_code(int code);
/* For small blocks: these end the program instead of returning NULL. free() the result. */
void *cli_alloc(size_t bytes);
void *cli_realloc(void *block, size_t bytes);
char *cli_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *cli_vformat(const char *format, va_list arguments) __attribute__((format(printf, 1, 0)));

/* ---- text (cli_text.c) --------------------------------------------------------------------------- */

/* `text` with control characters and bytes that are no UTF-8 as \xNN: for whatever comes from arguments, files and
 * devices and goes to a terminal. Lives until the program ends. */
const char *cli_printable(const char *text);
/* `text` with bytes that are no UTF-8 as \xNN, for JSON. NULL stays NULL. Lives until the program ends. */
const char *cli_utf8(const char *text);
/* Two arguments for "%lld %s": 1, "token"; 2, "tokens". */
#define CLI_COUNT(count, one)             (long long)(count), ((count) == 1 ? (one) : one "s")
#define CLI_COUNT_OF(count, one, several) (long long)(count), ((count) == 1 ? (one) : (several))

/* ---- errors (cli_output.c) ----------------------------------------------------------------------- */

int cli_exit_code(moxie_status status);
/* Prints the error to stderr, and with `json` as an object to stdout. Returns the exit code. */
int cli_fail(const char *command, bool json, moxie_status status, const moxie_error *error);

/* ---- JSON (cli_json.c) --------------------------------------------------------------------------- */

/* Each of these ends the program with exit code 5 when there is no memory. A NULL among the values counts as that. */
json_t *cli_pack(const char *format, ...); /* as json_pack(); pass strings from outside through cli_utf8() first */
json_t *cli_json_string(const char *text); /* any bytes */
void cli_json_set(json_t *object, const char *key, json_t *value);
void cli_json_append(json_t *array, json_t *value);
void cli_json_merge(json_t *object, json_t *more);
/* A new object that begins with schema_version and command. */
json_t *cli_json_begin(const char *command);
/* Prints and frees it. */
void cli_json_end(json_t *object);

/* ---- tables (cli_output.c) ---------------------------------------------------------------------- */

#define CLI_MAX_COLUMNS 16

/* Rows of text, columns padded to the widest cell; a '>' before a heading aligns its column right. */
typedef struct cli_table {
    int columns, rows, capacity;
    const char *headings[CLI_MAX_COLUMNS];
    char **cells;
} cli_table;
void cli_table_begin(cli_table *table, int columns, const char *const *headings);
/* One cell after the other, row by row. */
void cli_table_add(cli_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cli_table_print(const cli_table *table);
void cli_table_free(cli_table *table);

/* "423.6 MB"; `buffer` has at least 16 bytes. Returns it. */
const char *cli_bytes(char *buffer, uint64_t bytes);
/* Peak resident memory of this process in bytes. */
uint64_t cli_peak_memory(void);
/* Four fifths of the memory that the system says is available; 0: it does not say. */
uint64_t cli_available_memory(void);
/* Seconds on a monotonic clock. */
double cli_seconds(void);

/* A bar on stderr, only when that is a terminal. */
typedef struct cli_progress {
    const char *what;
    double last;
    bool terminal, drawn;
} cli_progress;
void cli_progress_begin(cli_progress *progress, const char *what);
void cli_progress_show(cli_progress *progress, uint64_t done, uint64_t total);
void cli_progress_end(cli_progress *progress);
/* moxie_progress_fn with a cli_progress as its user. */
int cli_progress_experts(void *user, int64_t done, int64_t total);

/* ---- names (cli_names.c) ------------------------------------------------------------------------- */

/* All names of one kind. */
typedef struct cli_names {
    const char *kind;             /* "preset" */
    const char *const *fixed;     /* ended by NULL, or: */
    const char *(*at)(int32_t i); /* NULL past the last */
    const char *listed_by;        /* a command that lists them, or NULL */
} cli_names;
extern const cli_names cli_presets, cli_formats, cli_layouts, cli_schemes, cli_routings;
/* A name's place is its value of moxie_backend, moxie_mode, moxie_activations_choice. cli_isas has the instruction sets
 * of all architectures. */
extern const cli_names cli_backends, cli_modes, cli_activations, cli_isas;

/* The place of a name, or -1. */
int32_t cli_find_name(const cli_names *names, const char *given);
/* The most similar name, which was probably meant; NULL when none is similar. */
const char *cli_nearest(const cli_names *names, const char *given);
/* "there is no preset "gpt-oss": did you mean gpt-oss-20b? ...". Returns `text`. */
const char *cli_no_such_name(const cli_names *names, const char *given, char *text, size_t size);
/* The place of a name, or argp_error. */
int32_t cli_parse_name(struct argp_state *state, const cli_names *names, const char *given);
/* The policy of a cache of experts with this name, or argp_error. */
const char *cli_parse_policy(struct argp_state *state, const char *given);
/* Whether a format makes one file, a GGUF file, and no directory. */
bool cli_is_gguf_format(const char *format);
/* argp_error where OUT is named like a GGUF file, and the format makes a directory. */
void cli_check_output(struct argp_state *state, const char *format, const char *out);

/* ---- a command's arguments (cli_parse.c) --------------------------------------------------------- */

/* A sentence for every help text. */
extern const char cli_exit_codes[];
/* argp_parse() with better messages. Ends the program with exit code 2, and a suggestion, for an unknown option, an
 * empty value, or a MOXIE_MAX_ISA that is no instruction set. */
void cli_parse(const struct argp *parser, int argc, char **argv, void *input);
/* Stores the command's only operand; `what` names it in the error of a second one: "directory". */
void cli_parse_operand(struct argp_state *state, const char *what, const char *text, const char **out);

/* ---- option values (cli_args.c) ------------------------------------------------------------------ */

/* Whole numbers within [low, high], or argp_error. */
int64_t cli_parse_int(struct argp_state *state, const char *option, const char *text, int64_t low, int64_t high);
/* A finite number above 0, or with `zero` 0 or more; or argp_error. */
double cli_parse_real(struct argp_state *state, const char *option, const char *text, bool zero);
/* "24G": bytes, with K, M, G or T for powers of 1000. */
int64_t cli_parse_bytes(struct argp_state *state, const char *option, const char *text);
/* "1,8,64": sizes from 1 on. */
enum { CLI_MAX_SIZES = 64 };
typedef struct cli_sizes {
    int count;
    int64_t at[CLI_MAX_SIZES];
} cli_sizes;
void cli_parse_sizes(struct argp_state *state, const char *option, const char *text, cli_sizes *out);
/* 0 for an empty list. */
int64_t cli_largest_size(const cli_sizes *sizes);
/* The name of an output without slashes at its end: with them "OUT/" would become "OUT/.partial". */
const char *cli_parse_output(char *text);
/* "A-B" or "A": layers from 0 on. */
void cli_parse_layers(struct argp_state *state, const char *text, int64_t *first, int64_t *last);
moxie_backend cli_parse_backend(struct argp_state *state, const char *text);
/* A child parser for DIR, --layer, --isa, --threads, --mode, --activations and --json; its input is a
 * cli_layer_options. Whether DIR is needed is the parent's business. */
extern const struct argp cli_layer_argp;
/* A child parser for --tokens T, with the same input. */
extern const struct argp cli_tokens_argp;

/* Whether `isa` is an instruction set of this kind of processor; if not, fills `reason`. */
bool cli_isa_fits(const char *isa, char *reason, size_t size);
/* Its place among the instruction sets of this architecture, from "scalar" (0) up; -1: it is not one of them. */
int32_t cli_isa_rank(const char *isa);
/* The lower of `cap` (NULL: none) and what the machine allows. A cap of another architecture counts as none. */
const char *cli_isa_under(const moxie_machine *machine, const char *cap);

/* ---- one layer of a checkpoint, ready to run (cli_layer.c) -------------------------------------- */

enum { CLI_BACKEND_NOT_GIVEN = -1 };

/* How a disk is read: options of cli_disk.h. */
typedef struct cli_disk {
    const char *mirror, *engine; /* NULL: none; the best */
    int32_t depth;               /* 0: the library's defaults */
    uint64_t chunk_bytes;
} cli_disk;

typedef struct cli_layer_options {
    const char *command; /* "run": for messages */
    const char *dir;     /* NULL: not given */
    const char **shares; /* with --ranks: expert files of each rank, by its number; NULL: one directory has all */
    int32_t n_shares;
    bool takes_shares; /* the command may get these */
    int64_t layer;     /* -1: the first MoE layer */
    int32_t backend;   /* CLI_BACKEND_NOT_GIVEN: the command's own default */
    int32_t mode, activations, threads;
    cli_sizes thread_counts;  /* of bench; `threads` is the first of them */
    const char *numa;         /* NULL: auto */
    const char *isa, *device; /* the device, and behind a colon the set of kernels that it may run */
    const char *device_kernels;
    bool any_device; /* device_kernels came without a device, and `device` says 0 */
    int64_t tokens;
    moxie_dtype dtype;        /* of the hidden states; NONE: the checkpoint's */
    bool round_results;       /* of experts, to the type of the hidden states */
    bool json;                /* print one JSON object, no progress bar */
    bool allow_unread;        /* load a layer even if it has tensors that moxie does not know */
    bool plans_only;          /* the command runs nothing, so a device may be an architecture */
    int32_t max_adapter_rank; /* of a run's adapters; 0: it has none */
    int32_t access;           /* moxie_expert_access of expert files */
    cli_disk disk;
    /* Experts that are read when a run needs them (cli_store.h). */
    int64_t budget_ram; /* bytes; 0: all experts are in memory */
    int64_t budget_gpu; /* bytes; 0: the run is on the CPU */
    const char *where;  /* --cpu-experts: files for the CPU; NULL: the GPU computes all experts */
    const char *policy;
    int32_t max_inserts;
    int32_t warm; /* runs in which pinned and frozen learn */
} cli_layer_options;

/* The name of an option that was given and says how a layer runs; NULL: none. */
const char *cli_layer_how(const cli_layer_options *options);
/* Ends the program when an option was given that has no effect on the oracle. */
void cli_check_oracle(struct argp_state *state, const cli_layer_options *options);
/* The same of a layer that runs on a GPU, and of one that comes from no checkpoint. */
void cli_check_gpu(struct argp_state *state, const cli_layer_options *options);
void cli_check_checkpoint(struct argp_state *state, const cli_layer_options *options);

typedef struct cli_layer {
    moxie_model *model;
    moxie_model_layer *loaded;
    moxie_store *store;           /* of --budget-ram: the layer's experts come from it; else NULL */
    moxie_expert_file *file;      /* instead of both: the layer of a directory of expert files */
    moxie_layer_config config;    /* with the dtype of the options */
    const moxie_weights *weights; /* NULL: those of a file, before cli_layer_need_weights() */
    moxie_executor *executor;
    moxie_layer *layer;
    moxie_plan *plan;
    int64_t index; /* L */
    double prepare_seconds;
} cli_layer;

/* Opens the model and one layer's views; no kernel is chosen yet. cli_layer_close() in any case. */
moxie_status cli_layer_open(const cli_layer_options *options, cli_layer *out, moxie_error *error);
/* Unpacks the weights of a layer of an expert file: for checks, and to pack them for other kernels. */
moxie_status cli_layer_need_weights(cli_layer *layer, moxie_error *error);
/* The same of all experts: refuses the file of a share. */
moxie_status cli_layer_need_all_weights(cli_layer *layer, moxie_error *error);
/* The same, for a command that packs them whatever the file's layout; says so. */
moxie_status cli_layer_unpack(const char *command, cli_layer *layer, moxie_error *error);
/* Whether a model was read from a GGUF file. */
bool cli_is_gguf(const moxie_model *model);
/* Refuses such a model; `what` ends before "the model's release in safetensors". */
moxie_status cli_refuse_gguf(const moxie_model *model, const char *path, const char *what, moxie_error *error);
/* Prepares the records and the plan of an opened layer. */
moxie_status cli_layer_prepare(const cli_layer_options *options, cli_layer *layer, moxie_error *error);
void cli_layer_close(cli_layer *layer);
/* The plan's steps, with the kernel that runs in each. */
json_t *cli_steps_json(const moxie_plan *plan);

/* ---- directories of expert files (cli_experts.c) ------------------------------------------------- */

/* Whether `moxie prepare --layout moxie-...` made the directory. */
bool cli_has_experts(const char *dir);
/* As cli_layer_open(). */
moxie_status cli_experts_open(const cli_layer_options *options, cli_layer *out, moxie_error *error);
/* The file's configuration with what the options change. */
moxie_status cli_experts_config(const cli_layer_options *options, const moxie_expert_file *file,
                                moxie_layer_config *out, moxie_error *error);
/* Makes layer->layer. With kernels that read another layout: an error, or where the weights are unpacked they are
 * packed anew, and a note on stderr says so. */
moxie_status cli_experts_prepare(const cli_layer_options *options, cli_layer *layer, const moxie_options *plan_options,
                                 moxie_error *error);
/* `moxie inspect` of such a directory. Returns an exit code. */
int cli_experts_inspect(const char *dir, bool json);

/* ---- inputs of a run (cli_input.c) -------------------------------------------------------------- */

typedef struct cli_input {
    int64_t tokens;
    moxie_dtype dtype;
    void *hidden;        /* [T,H] */
    void *router_hidden; /* [T,router_width] or NULL when the widths agree */
    void *logits;        /* [T,E] or NULL, in logits_dtype */
    moxie_dtype logits_dtype;
    int32_t *ids;         /* [T,K] or NULL */
    float *weights;       /* [T,K] or NULL */
    int32_t *token_ids;   /* [T] or NULL */
    uint8_t *padding;     /* [T] or NULL */
    uint8_t *bias_choice; /* [T] or NULL */
} cli_input;

/* The kind of random hidden states. NORMAL: all channels alike. OUTLIERS: a few channels, the same for every token, are
 * far larger than the rest, as in language models. */
typedef enum cli_states { CLI_STATES_NORMAL, CLI_STATES_OUTLIERS } cli_states;
cli_states cli_parse_states(struct argp_state *state, const char *text);
#define CLI_STATES_HELP                                                                                                \
    "random hidden states: normal (default), or outliers: a channel in 512 is 20 to 100 times the rest"

/* Experts that a token chooses among, those without weights included: columns of router_logits. */
static inline int64_t cli_candidates(const moxie_layer_config *config)
{
    return config->experts + config->routing.zero_experts;
}

/* Makes random hidden states, of unit variance but for outliers; router input and token ids where the layer needs them.
 * A seed gives the same on every machine. */
moxie_status cli_input_random(const moxie_layer_config *config, int64_t tokens, uint64_t seed, cli_states states,
                              cli_input *out, moxie_error *error);
/* cli_input_load() reads hidden_states and the optional tensors from a safetensors file. cli_input_peek() reads only
 * their dtype and T, before the layer is known. */
moxie_status cli_input_peek(const char *path, int64_t *tokens, moxie_dtype *dtype, moxie_error *error);
moxie_status cli_input_load(const char *path, const moxie_layer_config *config, cli_input *out, moxie_error *error);
void cli_input_free(cli_input *input);
/* Points run arguments at the input. */
void cli_input_args(const cli_input *input, moxie_run_args *args);
/* Copies rows [first, first + count) of a tensor of rank 1 or 2 into aligned memory, which a file's tensors need not
 * have, and returns it. */
const void *cli_copy_rows(const moxie_tensor *tensor, int64_t first, int64_t count, void *out);

/* ---- files that are written (cli_outputs.c) ----------------------------------------------------- */

/* Refuses to replace a file that the same command reads: `input` itself, or a model's file in the directory `input`.
 * Either may be NULL. */
moxie_status cli_output_spares(const char *path, const char *input, moxie_error *error);
/* The same for `count` inputs; then moxie_file_check_output(). */
moxie_status cli_output_check(const char *path, const char *const *inputs, int32_t count, moxie_error *error);

/* ---- JSON files (cli_file.c) -------------------------------------------------------------------- */

/* Parses a JSON text; `path` is for messages. MOXIE_ERR_FORMAT says where it is wrong. json_decref(*out). */
moxie_status cli_json_parse(const char *text, size_t size, const char *path, json_t **out, moxie_error *error);
/* Reads and parses a regular file of at most `limit` bytes. */
moxie_status cli_json_read(const char *path, uint64_t limit, json_t **out, moxie_error *error);
/* The text of a value, with Jansson's flags; takes the reference. NULL when out of memory or when `value` is NULL.
 * free() it. */
char *cli_json_text(json_t *value, size_t flags);
/* Writes `value` as a whole file, with Jansson's flags; takes the reference. When `value` is NULL, as a failed call of
 * Jansson returns it, the result is MOXIE_ERR_MEMORY. */
moxie_status cli_json_write(const char *path, json_t *value, size_t flags, moxie_error *error);

/* ---- the end before the end (cli_end.c) --------------------------------------------------------- */

/* From now on a signal that ends the program first removes unfinished files. Jansson's functions end the program when
 * they have no memory. */
void cli_end_install(void);
/* Returns at once, unless a signal is ending the program on another thread: then never. What this thread would say or
 * return comes of files that were removed under its hands. */
void cli_end_wait(void);
/* Sets a function that both of these ends call besides; async-signal-safe. NULL: none. */
void cli_on_end(void (*clean)(void));
/* Prints a message, removes unfinished files, and ends the program with CLI_RESOURCES. */
void cli_no_memory(void) __attribute__((noreturn));

/* ---- the machine's limits (cli_limits.c) -------------------------------------------------------- */

typedef struct cli_limits {
    moxie_limits found; /* when they come from a file, strings point into `text` */
    char text[8][64];
    bool from_file;
} cli_limits;

/* What the limits are of: the threads of an executor on this processor, or a GPU. */
typedef struct cli_limits_of {
    const char *kind; /* "cpu" or "gpu" */
    char name[128], isa[64];
    int32_t workers; /* threads, at most one per processor; or multiprocessors */
    const moxie_executor *executor;
    const char *cap, *device; /* as in moxie_options */
} cli_limits_of;
/* Creates an executor of `threads` threads; 0: one per processor. Warns on stderr about more threads than processors.
 */
moxie_status cli_executor_create(const char *command, int32_t threads, moxie_executor **out, moxie_error *error);
/* The same with places, as moxie_executor_create_on(). */
moxie_status cli_executor_create_on(const char *command, int32_t threads, const char *numa, moxie_executor **out,
                                    moxie_error *error);
/* What --numa says; "auto" where it says nothing. */
const char *cli_numa(const cli_layer_options *options);
moxie_status cli_limits_of_cpu(const moxie_executor *executor, const char *cap, cli_limits_of *out, moxie_error *error);
moxie_status cli_limits_of_gpu(const char *device, cli_limits_of *out, moxie_error *error);
moxie_status cli_limits_measure(const cli_limits_of *of, moxie_limits *out, moxie_error *error);
/* Reads the limits from the file `path` when it holds those of `of`. Otherwise measures them and writes the file.
 * `path` NULL: only measures. A file that holds anything but limits is an error. */
moxie_status cli_limits_get(const char *path, const cli_limits_of *of, cli_limits *out, moxie_error *error);
/* Reads the limits of whatever machine the file is of. */
moxie_status cli_limits_read(const char *path, cli_limits *out, moxie_error *error);
/* Writes limits to the file. */
moxie_status cli_limits_put(const char *path, const cli_limits_of *of, const moxie_limits *limits, moxie_error *error);
json_t *cli_limits_json(const moxie_limits *limits);
void cli_limits_print(const moxie_limits *limits);

/* Fills `error` the way the library does. Returns `status`. */
moxie_status cli_error(moxie_status status, moxie_error *error, const char *file, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
