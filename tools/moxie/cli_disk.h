/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_disk.h - how expert files are read: --load and the options of the reader; and how fast a disk is.
 */
#ifndef MOXIE_CLI_DISK_H
#define MOXIE_CLI_DISK_H

#include "cli.h"

/* A child parser for --mirror, --read-engine, --read-depth and --read-chunk; its input is a cli_disk. */
extern const struct argp cli_disk_argp;
/* A child parser for --load, with cli_disk_argp for its `disk`; its input is a cli_layer_options. */
extern const struct argp cli_load_argp;

/* Whether any of these options was given. */
bool cli_disk_asked(const cli_disk *disk);
/* How moxie_expert_file_open() opens the file of that layer; `mirror` gets its path on the other drive, [PATH_MAX]. */
void cli_disk_file_options(const cli_layer_options *options, int64_t layer, char *mirror,
                           moxie_expert_file_options *out);
/* The error for --load with what is no directory of expert files. */
moxie_status cli_disk_refuse(const cli_layer_options *options, moxie_error *error);

/* Measures PATH, a file, or the larger files of a directory, and their mirrors. `record_bytes` 0: 4 MiB, or the largest
 * file where that is smaller. */
moxie_status cli_disk_measure(const char *path, const cli_disk *disk, uint64_t record_bytes, moxie_disk_rate *out,
                              moxie_error *error);
/* "disk         3.1 GB/s ...". */
void cli_disk_print(const char *path, const moxie_disk_rate *rate);
json_t *cli_disk_json(const char *path, const moxie_disk_rate *rate);

#endif
