/* SPDX-License-Identifier: Apache-2.0
 *
 * explain_store.h - what a model in a store would do, for `moxie explain DIR --budget-ram BYTES`:
 *
 *     budget  -> slots of each layer                   as moxie_store_open() cuts it
 *     trace   -> hits: the store's policy, replayed    or, without one, two stated distributions
 *     misses  -> disk      bytes of missed records / the disk's rate
 *     misses on a GPU -> copies    the same / the rate of copies from pinned RAM; disk is for what is in neither
 *     uses    -> memory    bytes of used records and shared experts / the memory's rate, the GPU's where one runs
 *
 * A token takes the sum when reads, copies and products take turns, and the largest when guesses are always right.
 * Routers, attention and all else of a model are not counted. So both are upper bounds of tokens/s.
 */
#ifndef MOXIE_EXPLAIN_STORE_H
#define MOXIE_EXPLAIN_STORE_H

#include "cli.h"

typedef struct explain_store_options {
    const char *trace;
    double disk_gb_s, memory_gb_s, copy_gb_s; /* 0: measured */
    cli_layer_options *layer;
    const char *limits; /* a file of `moxie info --limits`, for the memory's rate; NULL: not given */
} explain_store_options;

/* A child parser for --trace, --disk-gb-s, --memory-gb-s and --copy-gb-s, with those of a store and of a disk for its
 * `layer`; its input is an explain_store_options. */
extern const struct argp explain_store_argp;
/* An option of these that was given, or NULL. */
const char *explain_store_lone(const explain_store_options *options);

/* Experts used, and missed, by a token; over all layers. */
typedef struct explain_store_row {
    const char *choices;             /* "trace", "uniform", ... */
    const char *policy;              /* "-": any */
    double uses, misses;             /* misses: of the slots, on a GPU where there are such */
    double reads;                    /* of these, experts that are not in RAM either */
    double disk_s, copy_s, memory_s; /* of a token */
} explain_store_row;

enum { EXPLAIN_STORE_ROWS = 2 };

typedef struct explain_store {
    const cli_layer_options *options;
    const explain_store_options *own;
    moxie_store_info info;
    int64_t experts, top_k;
    int32_t trace_layers;                     /* of the trace; 0: there is none */
    double disk_gb_s, memory_gb_s, copy_gb_s; /* copy: 0 without a GPU */
    char disk_how[400], memory_how[80], copy_how[80];
    explain_store_row rows[EXPLAIN_STORE_ROWS];
    int n_rows;
} explain_store;

/* Refuses a rank's share: neither a trace nor a distribution says which choices are its own. */
moxie_status explain_store_check_share(const cli_layer_options *options, const cli_layer *layer, moxie_error *error);
/* `config` is that of a layer of the directory. */
moxie_status explain_store_find(const cli_layer_options *options, const explain_store_options *own,
                                const moxie_layer_config *config, explain_store *out, moxie_error *error);
void explain_store_print(const explain_store *s);
json_t *explain_store_json(const explain_store *s);

#endif
