/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_tool.h - the parts of `moxie trace`:
 *
 *     cmd_trace.c      options, and which action they belong to
 *     trace_record.c   the routers of a checkpoint on hidden states -> trace
 *     trace_table.c    tokens in memory <-> trace
 *     trace_forms.c    other programs' files: which form a file has; files of `moxie run`, counts
 *     trace_npy.c      vLLM's arrays          \
 *     trace_base64.c   SGLang's responses      >  <-> tokens in memory
 *     trace_csv.c      a line for each choice /
 *     trace_show.c     what the experts of a trace do -> numbers
 *     trace_show_print.c   -> table or JSON
 *     trace_policies.c hit rates of caches of experts
 */
#ifndef MOXIE_TRACE_TOOL_H
#define MOXIE_TRACE_TOOL_H

#include <moxie/moxie_trace.h>

#include "cli.h"

enum { TRACE_MAX_INPUTS = 256, TRACE_NOT_GIVEN = -1 };

typedef struct trace_arguments {
    const char *inputs[TRACE_MAX_INPUTS]; /* behind the action's name */
    int n_inputs;
    const char *output, *format, *name;
    const char *states_file;                /* --hidden-states */
    int64_t experts, zero_experts, top_k;   /* 0: not given */
    int64_t first_layer, last_layer, layer; /* TRACE_NOT_GIVEN */
    int64_t tokens, prefill, step_tokens;
    int64_t request; /* TRACE_NOT_GIVEN: all */
    uint64_t seed;
    int32_t states, threads;
    const char *policy, *census; /* NULL: all; none */
    cli_sizes slots;
    int64_t budget, expert_bytes, max_inserts, warm_steps;
    double half_life, read_gb_s;
    bool best, json;
} trace_arguments;

/* The actions. Each returns the exit code. */
int trace_record(const trace_arguments *args);
int trace_show(const trace_arguments *args);
int trace_import(const trace_arguments *args);
int trace_export(const trace_arguments *args);
int trace_policies(const trace_arguments *args);

/* ---- tokens in memory (trace_table.c) ------------------------------------------------------------ */

/* Tokens in the order of their steps; ids below 0 choose nothing. All zero is an empty table. */
typedef struct trace_table {
    int64_t tokens, room;
    int32_t layers, top_k, experts, zero_experts; /* experts 0: the file does not tell */
    int32_t *ids;                                 /* [tokens, layers, top_k] */
    float *weights;                               /* the same, or NULL */
    uint64_t *requests;                           /* [tokens] */
    int64_t *steps;                               /* [tokens], ascending */
    int32_t *phases;                              /* [tokens] of their steps */
    int32_t *layer_numbers;                       /* [layers], or NULL: not known */
    bool has_weights, has_requests;
    uint64_t n_requests; /* that trace_table_number() saw */
    char model[72];
    uint64_t fingerprint;
} trace_table;
void trace_table_free(trace_table *table);
/* Room for `tokens` more tokens behind the last one: ids -1, weights 0. layers and top_k are set before. */
moxie_status trace_table_grow(trace_table *table, int64_t tokens, const char *path, moxie_error *error);
/* Numbers the steps of the tokens from `first` on, which are a request of their own: a prefill step of args->prefill
 * tokens, then decode steps of args->step_tokens. */
void trace_table_number(trace_table *table, int64_t first, const trace_arguments *args);
/* Checks ids against the number of experts. */
moxie_status trace_table_check(const trace_table *table, const char *path, moxie_error *error);
moxie_status trace_table_write(const trace_table *table, const char *path, moxie_error *error);
/* request: only its tokens; TRACE_NOT_GIVEN: all. */
moxie_status trace_table_read(const char *path, int64_t request, trace_table *out, moxie_error *error);

/* Says what was made, or what went wrong, and frees the table. Returns the exit code (trace_forms.c). */
int trace_end(const char *what, const trace_arguments *args, trace_table *table, moxie_status status,
              const moxie_error *error);

/* ---- other programs' files (trace_forms.c) ------------------------------------------------------- */

enum { TRACE_MAX_BYTES = 1 << 30 };

typedef struct trace_form {
    const char *name, *ending, *about;
    /* Appends the tokens of a file to the table; NULL: cannot be read. */
    moxie_status (*read)(const char *path, const trace_arguments *args, trace_table *table, moxie_error *error);
    moxie_status (*write)(const char *path, const trace_table *table, moxie_error *error);
} trace_form;
extern const cli_names trace_form_names;
/* Sets the table's sizes, or checks them against those of the files before. */
moxie_status trace_set_sizes(trace_table *table, int64_t layers, int64_t top_k, const char *path, moxie_error *error);

moxie_status trace_npy_read(const char *path, const trace_arguments *args, trace_table *table, moxie_error *error);
moxie_status trace_npy_write(const char *path, const trace_table *table, moxie_error *error);
moxie_status trace_base64_read(const char *path, const trace_arguments *args, trace_table *table, moxie_error *error);
moxie_status trace_base64_write(const char *path, const trace_table *table, moxie_error *error);
moxie_status trace_csv_read(const char *path, const trace_arguments *args, trace_table *table, moxie_error *error);
moxie_status trace_csv_write(const char *path, const trace_table *table, moxie_error *error);

/* ---- what the experts do (trace_show.c) ---------------------------------------------------------- */

enum { TRACE_WINDOWS = 5 };
extern const int64_t trace_windows[TRACE_WINDOWS]; /* in tokens */

typedef struct trace_layer_view {
    int64_t choices, skipped, zero;    /* zero: of zero experts */
    int64_t used;                      /* experts that some token chose */
    int64_t largest;                   /* choices of the most popular expert */
    double entropy;                    /* of an expert's share, in bits */
    double again;                      /* share of a token's experts that the token before chose, too */
    double working_set[TRACE_WINDOWS]; /* different experts in so many tokens one after another, mean; 0: too few */
} trace_layer_view;

typedef struct trace_view {
    moxie_trace_info info;
    int64_t prefill_steps, decode_steps, prefill_tokens;
    trace_layer_view *layers; /* [layers] */
    int64_t *counts;          /* [layers, experts] */
} trace_view;
void trace_show_text(const trace_arguments *args, const trace_view *view);
void trace_show_json(const trace_arguments *args, const trace_view *view);

#endif
