/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_adapters.h - LoRA adapters on the command line: --adapter NAME=DIR, and a file that names each token's.
 *
 *     cli_adapters_open    directories -> factors of the layer, largest rank     before the plan
 *     cli_adapters_name    names -> numbers
 *     cli_adapters_create  factors -> moxie_adapters of a layer                  after it; of each rank
 */
#ifndef MOXIE_CLI_ADAPTERS_H
#define MOXIE_CLI_ADAPTERS_H

#include <argp.h>

#include <moxie/moxie_adapters.h>

#include "cli.h"

enum { CLI_MAX_ADAPTERS = 64 };

typedef struct cli_adapters {
    int32_t count;
    const char *ids_path; /* NULL: all tokens have the only adapter */
    struct {
        const char *name, *dir; /* name: name_length characters of the argument */
        int name_length;
        moxie_adapter_files *files;
        moxie_lora lora;
    } item[CLI_MAX_ADAPTERS];
    moxie_adapters *adapters; /* of one rank's layer, where there are no others */
    int32_t *ids;             /* [tokens] */
    int64_t adapted;          /* tokens with an adapter */
} cli_adapters;

/* Reads the argument of --adapter. */
void cli_adapters_parse(struct argp_state *state, const char *argument, cli_adapters *out);
/* Rules between options. */
void cli_adapters_check(struct argp_state *state, const cli_adapters *adapters);
/* The largest rank of all adapters' factors; only after cli_adapters_open(). */
int32_t cli_adapters_rank(const cli_adapters *adapters);
moxie_status cli_adapters_open(cli_adapters *adapters, const cli_layer *layer, moxie_error *error);
moxie_status cli_adapters_name(cli_adapters *adapters, int64_t tokens, moxie_error *error);
/* *out: NULL where none was given. */
moxie_status cli_adapters_create(const cli_adapters *adapters, const moxie_layer *layer, moxie_adapters **out,
                                 moxie_error *error);
void cli_adapters_free(cli_adapters *adapters);

#endif
