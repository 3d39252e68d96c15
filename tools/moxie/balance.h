/* SPDX-License-Identifier: Apache-2.0
 *
 * balance.h - loads of experts and slot maps in files: what `moxie balance` reads and writes (docs/balance.md).
 */
#ifndef MOXIE_BALANCE_H
#define MOXIE_BALANCE_H

#include <moxie/moxie_comm.h>
#include <moxie/moxie_parallel.h>

#include "cli.h"

enum { BALANCE_MAX_LAYERS = 4096, BALANCE_MAX_BYTES = 1 << 28 };

/* ---- JSON arrays (balance_array.c) --------------------------------------------------------------- */

/* Numbers [rows, columns]. */
typedef struct balance_table {
    int64_t rows, columns;
    double *at;
} balance_table;
/* Reads [[..], ..], or [..] as one row, or [[[..], ..], ..], whose first dimension is summed over. `what` names the
 * array in messages. Numbers are finite. free() out->at. */
moxie_status balance_table_read(const json_t *value, const char *path, const char *what, balance_table *out,
                                moxie_error *error);
/* Refuses pickles of Python, with what to do instead. */
moxie_status balance_refuse_pickle(const char *path, const char *text, uint64_t size, moxie_error *error);

/* ---- loads (balance_counts.c) -------------------------------------------------------------------- */

/* Loads [layers, experts], from 0 to BALANCE_MAX_LOAD: so are sums of squares finite. */
#define BALANCE_MAX_LOAD 1e100
typedef struct balance_counts {
    int32_t layers, experts;
    double *at;
} balance_counts;
/* experts: of a file of ids, which does not tell; 0: as the file tells. zero_experts: how many have no weights, and so
 * no load; their ids follow. free() out->at. */
moxie_status balance_counts_read(const char *path, int64_t experts, int64_t zero_experts, balance_counts *out,
                                 moxie_error *error);

/* The same of a trace's choices (balance_trace.c). */
moxie_status balance_counts_of_trace(const char *path, balance_counts *out, moxie_error *error);

/* ---- maps (balance_map.c) ------------------------------------------------------------------------ */

/* Maps of `layers` layers; map l is row l of expert_of [layers, slots]. */
typedef struct balance_map {
    int32_t layers, experts, slots, ranks;
    int32_t *expert_of;  /* [layers, slots] */
    int32_t *first_slot; /* [ranks + 1] */
    uint64_t generation;
} balance_map;
/* Reads a MAP.json of moxie, SGLang's physical_to_logical_map, or vLLM's array. ranks, experts: what the file must be
 * of; 0: as it tells, where experts are the largest number in it and one more. Every map is checked.
 * balance_map_free() it. */
moxie_status balance_map_read(const char *path, int32_t ranks, int32_t experts, balance_map *out, moxie_error *error);
void balance_map_free(balance_map *map);
/* Room for maps of these sizes, slots shared out evenly, all of them empty. */
moxie_status balance_map_create(int32_t layers, int32_t experts, int32_t slots, int32_t ranks, const char *path,
                                balance_map *out, moxie_error *error);
/* Map l. */
moxie_slot_map balance_map_at(const balance_map *map, int32_t layer);
/* Whose file: a name's place in balance_styles. */
typedef enum balance_style { BALANCE_MOXIE, BALANCE_SGLANG, BALANCE_VLLM } balance_style;
extern const cli_names balance_styles;
moxie_status balance_map_write(const char *path, const balance_map *map, balance_style style, moxie_error *error);

#endif
