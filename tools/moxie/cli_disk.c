/* SPDX-License-Identifier: Apache-2.0
 *
 * cli_disk.c - options of whoever reads expert files, and the rate of a disk (cli_disk.h).
 */
#include "cli_disk.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "prepare.h"

enum { OPT_LOAD = 1200, OPT_MIRROR, OPT_ENGINE, OPT_DEPTH, OPT_CHUNK };

/* ---- options ------------------------------------------------------------------------------------------ */

static const char *engine_at(int32_t i)
{
    moxie_read_engine engine = MOXIE_READ_ENGINE_INIT;
    return moxie_read_engine_at(i, &engine) ? engine.name : NULL;
}

static const cli_names engines = { .kind = "read engine", .at = engine_at };
static const char *const load_names[] = { "map", "read", "direct", NULL }; /* in the order of moxie_expert_access */
static const cli_names loads = { .kind = "way to load expert files", .fixed = load_names };

static const struct argp_option disk_options[] = {
    { "mirror", OPT_MIRROR, "DIR2", 0, "the same files on another drive, which shares the reads", 0 },
    { "read-engine", OPT_ENGINE, "NAME", 0, "uring or pread (default: the first that `moxie info` calls usable)", 0 },
    { "read-depth", OPT_DEPTH, "N", 0, "reads in flight on a drive (default 32)", 0 },
    { "read-chunk", OPT_CHUNK, "KIB", 0, "KiB of one read (default 256)", 0 },
    { 0 },
};

static error_t parse_disk(int key, char *arg, struct argp_state *state)
{
    cli_disk *disk = state->input;
    switch (key) {
    case OPT_MIRROR: disk->mirror = arg; return 0;
    case OPT_ENGINE: disk->engine = engine_at(cli_parse_name(state, &engines, arg)); return 0;
    case OPT_DEPTH: disk->depth = (int32_t)cli_parse_int(state, "--read-depth", arg, 1, 1024); return 0;
    case OPT_CHUNK:
        disk->chunk_bytes = (uint64_t)cli_parse_int(state, "--read-chunk", arg, 4, 1 << 20) << 10;
        if (disk->chunk_bytes % 4096 != 0)
            argp_error(state, "--read-chunk takes multiples of 4 KiB, not %s", cli_printable(arg));
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

const struct argp cli_disk_argp = { disk_options, parse_disk, NULL, NULL, NULL, NULL, NULL };

static const struct argp_option load_options[] = {
    { "load", OPT_LOAD, "NAME", 0, "expert files: map (default), read into memory, or direct: read past the page cache",
      0 },
    { 0 },
};

bool cli_disk_asked(const cli_disk *disk)
{
    return disk->mirror || disk->engine || disk->depth || disk->chunk_bytes;
}

static error_t parse_load(int key, char *arg, struct argp_state *state)
{
    cli_layer_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &options->disk; return 0;
    case OPT_LOAD: options->access = cli_parse_name(state, &loads, arg); return 0;
    case ARGP_KEY_END:
        if (cli_disk_asked(&options->disk) && options->access != MOXIE_EXPERT_DIRECT && !options->budget_ram)
            argp_error(state, "--mirror, --read-engine, --read-depth and --read-chunk go with --load direct or "
                              "--budget-ram");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child load_children[] = { { &cli_disk_argp, 0, NULL, 0 }, { 0 } };

const struct argp cli_load_argp = { load_options, parse_load, NULL, NULL, load_children, NULL, NULL };

void cli_disk_file_options(const cli_layer_options *options, int64_t layer, char *mirror,
                           moxie_expert_file_options *out)
{
    const cli_disk *disk = &options->disk;
    out->access = options->access;
    if (options->access != MOXIE_EXPERT_DIRECT) /* the options are for a store */
        return;
    out->read_engine = disk->engine;
    out->read_depth = disk->depth;
    out->read_chunk_bytes = disk->chunk_bytes;
    out->mirror = disk->mirror ? prepare_experts_path(disk->mirror, layer, mirror) : NULL;
}

moxie_status cli_disk_refuse(const cli_layer_options *options, moxie_error *error)
{
    return cli_error(MOXIE_ERR_ARGUMENT, error, options->dir,
                     "--load is for a directory of expert files: `moxie prepare --layout moxie-auto` makes one");
}

/* ---- measuring ---------------------------------------------------------------------------------------- */

typedef struct file_list {
    char **paths, **mirrors; /* [n] */
    int32_t n;
    uint64_t largest;
} file_list;

static void add_file(file_list *list, const char *folder, const char *name, const char *mirror)
{
    struct stat info;
    char path[PATH_MAX], other[PATH_MAX];
    if (snprintf(path, sizeof path, "%s%s%s", folder, *name ? "/" : "", name) >= (int)sizeof path ||
        snprintf(other, sizeof other, "%s%s%s", mirror ? mirror : "", *name ? "/" : "", name) >= (int)sizeof other ||
        stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return;
    list->paths = cli_realloc(list->paths, (size_t)(list->n + 1) * sizeof *list->paths);
    list->mirrors = cli_realloc(list->mirrors, (size_t)(list->n + 1) * sizeof *list->mirrors);
    list->paths[list->n] = strcpy(cli_realloc(NULL, strlen(path) + 1), path);
    list->mirrors[list->n++] = mirror ? strcpy(cli_realloc(NULL, strlen(other) + 1), other) : NULL;
    list->largest = (uint64_t)info.st_size > list->largest ? (uint64_t)info.st_size : list->largest;
}

static moxie_status list_files(const char *path, const char *mirror, file_list *list, moxie_error *error)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return cli_error(MOXIE_ERR_IO, error, path, "cannot open: %m");
    if (!S_ISDIR(info.st_mode)) {
        add_file(list, path, "", mirror);
        return MOXIE_OK;
    }
    DIR *folder = opendir(path);
    if (!folder)
        return cli_error(MOXIE_ERR_IO, error, path, "cannot open: %m");
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        add_file(list, path, entry->d_name, mirror);
    closedir(folder);
    return MOXIE_OK;
}

moxie_status cli_disk_measure(const char *path, const cli_disk *disk, uint64_t record_bytes, moxie_disk_rate *out,
                              moxie_error *error)
{
    file_list list = { 0 };
    moxie_disk_options options = MOXIE_DISK_OPTIONS_INIT;
    moxie_status status = list_files(path, disk->mirror, &list, error);
    const uint64_t usual = UINT64_C(4) << 20, whole = list.largest / 4096 * 4096;
    options.engine = disk->engine;
    options.depth = disk->depth;
    options.chunk_bytes = disk->chunk_bytes;
    options.record_bytes = record_bytes ? record_bytes : whole < usual ? whole : usual;
    options.mirrors = disk->mirror ? (const char *const *)list.mirrors : NULL;
    if (status == MOXIE_OK && whole == 0)
        status = cli_error(MOXIE_ERR_ARGUMENT, error, path,
                           "there is no file of 4 KiB or more to read: name a large file, or a directory of them");
    if (status == MOXIE_OK)
        status = moxie_disk_measure((const char *const *)list.paths, list.n, &options, out, error);
    for (int32_t i = 0; i < list.n; i++) {
        free(list.paths[i]);
        free(list.mirrors[i]);
    }
    free(list.paths);
    free(list.mirrors);
    return status;
}

void cli_disk_print(const char *path, const moxie_disk_rate *rate)
{
    char bytes[16];
    printf("disk         %.2f GB/s from %s: %s, %d reads of %s in flight on %s, %s%s%s\n", rate->gb_s,
           cli_printable(path), rate->engine, rate->depth, cli_bytes(bytes, rate->chunk_bytes),
           rate->drives == 1 ? "one drive" : "each of the drives",
           rate->direct ? "past the page cache" : "THROUGH THE PAGE CACHE, so this may be memory's rate",
           rate->why[0] ? "; " : "", cli_printable(rate->why));
}

json_t *cli_disk_json(const char *path, const moxie_disk_rate *rate)
{
    return cli_pack("{s:s, s:f, s:I, s:f, s:s, s:i, s:i, s:i, s:b, s:I, s:s}", "path", cli_utf8(path), "gb_s",
                    rate->gb_s, "bytes", (json_int_t)rate->bytes, "seconds", rate->seconds, "engine", rate->engine,
                    "depth", (int)rate->depth, "threads", (int)rate->threads, "drives", (int)rate->drives, "direct",
                    (int)rate->direct, "chunk_bytes", (json_int_t)rate->chunk_bytes, "why", cli_utf8(rate->why));
}
