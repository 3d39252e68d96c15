/* SPDX-License-Identifier: Apache-2.0
 *
 * moxie_store.h - expert files: one layer's experts on disk, exactly as kernels read them (docs/expert-file.md);
 * and stores, which run layers that are larger than memory (docs/store.md).
 *
 *     moxie_expert_writer_open    configuration, weights, a target -> a temporary file, with all but the experts
 *     moxie_expert_writer_put     one expert is packed and written
 *     moxie_expert_writer_finish  index and seal; the file gets its name
 *
 *     moxie_expert_file_open      the file is mapped, or read into memory
 *     moxie_layer_open_file       a layer whose slots are views of the file: no copy, no arithmetic
 *
 *     moxie_store_open            the files of many layers under one budget of memory
 *     moxie_store_layer           a layer whose experts are read when a run needs them
 *
 * The rules of moxie.h about calls, threads and structs hold here too. Names that come from files are not trusted:
 * error texts show them escaped.
 */
#ifndef MOXIE_STORE_H
#define MOXIE_STORE_H

#include <moxie/moxie.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------- */
/* Targets                                                                                     */
/* ------------------------------------------------------------------------------------------- */

/* Whose kernels read the records of a file. Strings are static. */
typedef struct moxie_expert_target {
    uint32_t struct_size;
    const char *name;    /* "moxie-cpu" */
    const char *summary; /* one line */
} moxie_expert_target;
#define MOXIE_EXPERT_TARGET_INIT MOXIE_INIT(moxie_expert_target)

/* Target i; returns 0 past the last, or when out->struct_size is wrong. Immutable. */
MOXIE_API int moxie_expert_target_at(int32_t i, moxie_expert_target *out);

/* ------------------------------------------------------------------------------------------- */
/* Writing                                                                                     */
/* ------------------------------------------------------------------------------------------- */

typedef struct moxie_expert_writer moxie_expert_writer;

/* Bytes that the file keeps for whoever wrote it, under a name of at most 23 bytes that begins with "x.". */
typedef struct moxie_expert_extra {
    const char *name;
    const void *data;
    uint64_t bytes;
    uint32_t reserved[4]; /* zero */
} moxie_expert_extra;

typedef struct moxie_expert_writer_options {
    uint32_t struct_size;
    const char *target;               /* its name; NULL: "moxie-auto" */
    int32_t mode;                     /* moxie_mode: whose kernels choose the layout */
    int64_t layer;                    /* the checkpoint's number of the layer */
    const moxie_executor *executor;   /* NULL: this thread alone */
    const moxie_expert_extra *extras; /* [n_extras] copied in the call */
    int64_t n_extras;
} moxie_expert_writer_options;
#define MOXIE_EXPERT_WRITER_OPTIONS_INIT MOXIE_INIT(moxie_expert_writer_options)

/* Chooses the layout of the records and creates a temporary file beside `path`. The file gets the experts of the
 * configuration's share (ep_size, ep_rank, ep_map, slot_map); with tp_size > 1 it gets the rows of tp_rank of each.
 * `weights` are of whole experts, and must live until the writer ends. A file for a GPU can be written without one.
 * MOXIE_ERR_UNSUPPORTED for a configuration that a file cannot hold: a routing by callback. Thread-safe for different
 * files. */
MOXIE_API moxie_status moxie_expert_writer_open(const char *path, const moxie_layer_config *config,
                                                const moxie_weights *weights,
                                                const moxie_expert_writer_options *options, moxie_expert_writer **out,
                                                moxie_error *error);
/* Packs and writes one expert of the file; `source_hash` is the caller's, and stays beside it in the index. Memory: one
 * record. One-thread-at-a-time. */
MOXIE_API moxie_status moxie_expert_writer_put(moxie_expert_writer *writer, int64_t expert, uint64_t source_hash,
                                               moxie_error *error);
/* Checks that every expert was written; adds index and seal, flushes to the disk and renames to the path. Frees the
 * writer in any case; on failure no file is left. One-thread-at-a-time. */
MOXIE_API moxie_status moxie_expert_writer_finish(moxie_expert_writer *writer, moxie_error *error);
/* Removes the temporary file and frees the writer. NULL is fine. One-thread-at-a-time. */
MOXIE_API void moxie_expert_writer_abandon(moxie_expert_writer *writer);

/* ------------------------------------------------------------------------------------------- */
/* Reading                                                                                     */
/* ------------------------------------------------------------------------------------------- */

typedef struct moxie_expert_file moxie_expert_file;

typedef enum moxie_expert_access {
    MOXIE_EXPERT_MAP = 0,  /* mapped: pages are read when a run first touches them, and the system may drop them */
    MOXIE_EXPERT_READ = 1, /* read into memory through the system's page cache */
    MOXIE_EXPERT_DIRECT =
        2 /* read into memory past the page cache (O_DIRECT); where the file system has none, as READ */
} moxie_expert_access;

typedef struct moxie_expert_file_options {
    uint32_t struct_size;
    int32_t access;                 /* moxie_expert_access */
    int32_t verify;                 /* 1: moxie_expert_file_verify() before the call returns */
    const moxie_executor *executor; /* its workers read side by side; NULL: this thread alone */
    /* Of MOXIE_EXPERT_DIRECT. */
    const char *read_engine;   /* a name of moxie_read_engine_at(); NULL: the best that is usable */
    int32_t read_depth;        /* reads in flight on a drive; 0: 32 */
    uint64_t read_chunk_bytes; /* of one read, a multiple of 4096, at most 1 GiB; 0: 256 KiB */
    const char *mirror; /* the path of a file of the same bytes on another drive, which shares the reads; or NULL */
} moxie_expert_file_options;
#define MOXIE_EXPERT_FILE_OPTIONS_INIT MOXIE_INIT(moxie_expert_file_options)

/* Opens an expert file and checks everything but the bytes of its records: header, seal, index, sections, sizes, that
 * nothing overlaps. `options` NULL: all defaults. MOXIE_ERR_FORMAT says what is wrong, and where. If a mapped file is
 * cut off later, or its disk fails, touching its pages raises SIGBUS. Replacing the file by rename(), or an expert by
 * moxie_expert_file_replace(), does no harm: the opened file keeps what it had. Thread-safe. */
MOXIE_API moxie_status moxie_expert_file_open(const char *path, const moxie_expert_file_options *options,
                                              moxie_expert_file **out, moxie_error *error);
/* After its layers. One-thread-at-a-time. */
MOXIE_API void moxie_expert_file_close(moxie_expert_file *file);

/* Strings live as long as the file. */
typedef struct moxie_expert_file_info {
    uint32_t struct_size;
    int32_t version;           /* of the file format */
    const char *target;        /* "moxie-cpu" */
    const char *layout;        /* of the routed experts' records */
    const char *shared_layout; /* of the shared expert's; "" without one */
    int64_t layer, experts;    /* its number in the checkpoint; E */
    int64_t held;              /* experts that the file has */
    uint64_t record_bytes, shared_bytes, file_bytes;
    uint64_t generation;     /* 1, and one more for each replaced expert */
    uint64_t source_xxh3;    /* fingerprint of the weights that it was made of */
    int32_t direct;          /* 1: it was read past the page cache */
    uint64_t unused_bytes;   /* of records that were replaced */
    const char *read_engine; /* that read it past the page cache; "" when none did */
    const char *read_why;    /* what was refused before that engine, or why the page cache was not passed; "" */
} moxie_expert_file_info;
#define MOXIE_EXPERT_FILE_INFO_INIT MOXIE_INIT(moxie_expert_file_info)
/* `out` was set by its INIT macro. Immutable. */
MOXIE_API moxie_status moxie_expert_file_get_info(const moxie_expert_file *file, moxie_expert_file_info *out,
                                                  moxie_error *error);
/* The configuration that the file was written with; it lives as long as the file. Immutable. */
MOXIE_API const moxie_layer_config *moxie_expert_file_config(const moxie_expert_file *file);

/* One record of a file. */
typedef struct moxie_expert_record {
    uint32_t struct_size;
    const void *data; /* lives as long as the file; NULL: the file does not have this expert */
    uint64_t offset, bytes, checksum, generation, source_hash;
} moxie_expert_record;
#define MOXIE_EXPERT_RECORD_INIT MOXIE_INIT(moxie_expert_record)
/* The record of an expert; -1: of the shared expert. MOXIE_ERR_ARGUMENT for an expert that the layer does not have.
 * `out` was set by its INIT macro. Immutable. */
MOXIE_API moxie_status moxie_expert_file_record(const moxie_expert_file *file, int64_t expert, moxie_expert_record *out,
                                                moxie_error *error);
/* A section by name: "router", "x.source", ...; NULL and 0 bytes when there is none. It lives as long as the file.
 * Immutable. */
MOXIE_API const void *moxie_expert_file_section(const moxie_expert_file *file, const char *name, uint64_t *bytes);

/* Reads every record and checks it: the index's checksum, and the record's own header and checksum. MOXIE_ERR_MISMATCH
 * names the first that is damaged or in another's place. `executor` NULL: this thread alone. Thread-safe. */
MOXIE_API moxie_status moxie_expert_file_verify(const moxie_expert_file *file, const moxie_executor *executor,
                                                moxie_error *error);

/* Unpacks one expert (-1: the shared one) into the views of `expert`: writable memory, shaped like the views that were
 * packed. The two static activation scales are set. A file of a tensor parallel share writes its own rows: the files of
 * all ranks together fill the whole expert. Immutable. */
MOXIE_API moxie_status moxie_expert_file_unpack(const moxie_expert_file *file, int64_t expert, moxie_expert *views,
                                                moxie_error *error);
/* The weights of the whole layer, unpacked into memory: for checks, and for kernels that read another layout. Experts
 * that the file does not have are absent. They live as long as the file; the first call unpacks. MOXIE_ERR_MEMORY names
 * the bytes that it needs. One-thread-at-a-time. */
MOXIE_API moxie_status moxie_expert_file_weights(moxie_expert_file *file, const moxie_executor *executor,
                                                 const moxie_weights **out, moxie_error *error);

/* A layer whose slots are the file's records. On the host nothing is copied but the small arrays; a layer on a GPU
 * gets copies of the records through a ring of pinned memory of at most 32 MiB. All layers of expert files on that GPU
 * share it, and the last one frees it (layers that are opened at the same time have a ring each). The executor's
 * workers make that GPU their current one. moxie_cuda_layer_fill() tells how long it took. `config` NULL: the file's
 * own; another one may differ from it in dtype, round_results, the routing's numbers, and in the share of experts,
 * which the file must have. MOXIE_ERR_UNSUPPORTED when the kernels of `options` do not read the file's layout: the
 * text says which file would do. The file must outlive the layer. moxie_layer_update_expert() of a layer on the host
 * copies that record first, so neither the file nor its other layers change.
 * options->spare_slots must be 0. Of a file with a tensor parallel share options->comm is needed, and tp_size and
 * tp_rank are the file's; its experts are cut by rows in both modes. Thread-safe. */
MOXIE_API moxie_status moxie_layer_open_file(const moxie_expert_file *file, const moxie_layer_config *config,
                                             const moxie_options *options, moxie_layer **out, moxie_error *error);
/* The plan that a layer of this file would get, as moxie_plan_explain(): kernels that read another layout are rejected
 * with that reason. `config` as for moxie_layer_open_file(). Thread-safe. */
MOXIE_API moxie_status moxie_expert_file_explain(const moxie_expert_file *file, const moxie_layer_config *config,
                                                 const moxie_options *options, moxie_plan **out, moxie_error *error);

/* Replaces one expert of the file at `path`, while others may have it open: the new record is written behind all
 * others, then the index with the next generation, then the seal, which names that index. A reader finds the old expert
 * or the new one. After a crash the old seal is valid still. `source_hash` as in moxie_expert_writer_put(). The room of
 * the old record stays unused until the file is written anew. MOXIE_ERR_IO when another process replaces one at the
 * same time. Thread-safe. */
MOXIE_API moxie_status moxie_expert_file_replace(const char *path, int64_t expert, const moxie_expert *weights,
                                                 uint64_t source_hash, const moxie_executor *executor,
                                                 moxie_error *error);

/* ------------------------------------------------------------------------------------------- */
/* Stores: the layers of a model in less memory than they need (docs/store.md)                 */
/* ------------------------------------------------------------------------------------------- */

typedef struct moxie_store moxie_store;

typedef struct moxie_store_options {
    uint32_t struct_size;
    /* Memory for records: shared experts, slots, and buffers for reads. Tables (some 300 bytes for
     * each expert of each layer, at most) and what layers keep besides (routers, norms) are not part of it. */
    uint64_t ram_bytes;
    /* Memory of a GPU for records: shared experts, slots, and buffers for copies; 0: layers run on the host. Then
     * `ram_bytes` are pinned, and hold experts that have no slot on the GPU. Routers, norms and workspaces are not
     * part of it. */
    uint64_t device_bytes;
    const char *policy; /* which experts keep a slot: a name of moxie_cache_policy_at(); NULL: the first one */
    /* Misses that get a slot in one run of a layer; 0: the layer's top_k; -1: any number. Slots that are still empty
     * are filled without this limit. */
    int32_t max_inserts;
    double half_life;     /* as in moxie_cache_config, in runs of the layer */
    int64_t warm_runs;    /* of each layer, in which `pinned` and `frozen` learn; 0 with a census */
    const double *census; /* [layers, census_experts] the uses of each expert; layers as moxie_store_layer_number() */
    int64_t census_experts;
    const int64_t *pinned; /* [n_pinned, 2] layer number, expert: they get a slot at once, and keep it */
    int64_t n_pinned;
    int32_t read_buffers;      /* buffers for reads besides the slots; 0: twice top_k, but at most a quarter of all */
    int32_t no_prefetch;       /* 1: moxie_store_prefetch() and _lookahead() do nothing */
    int32_t verify;            /* 1: the checksum of each record that was read */
    const char *reader;        /* a name of moxie_read_engine_at(); NULL: the best that is usable */
    int32_t read_depth;        /* reads in flight on a drive; 0: the reader's default */
    int32_t buffered;          /* 1: through the system's page cache */
    uint64_t read_chunk_bytes; /* of one read, a multiple of 4096; 0: the reader's default */
    const char *mirror;        /* a folder with the same files on another drive; NULL: none */
    const char *device;        /* of device_bytes, as in moxie_options; NULL: the first GPU */
    int32_t device_buffers;    /* buffers for copies besides its slots; 0: twice top_k, at most a quarter of all */
    /* With device_bytes: a folder with files of the same layers for the CPU (moxie-cpu). Experts without a slot on the
     * GPU are then computed where they lie: by CPU kernels, out of records of these files in ram_bytes, beside the
     * GPU's. Bits of results depend on which experts have a slot. NULL: the GPU computes all experts. */
    const char *compute_where_it_lies;
} moxie_store_options;
#define MOXIE_STORE_OPTIONS_INIT MOXIE_INIT(moxie_store_options)

/* Opens a store of expert files, one for each layer. paths [n_paths]: such files, or folders, whose files NAME.moxie
 * are taken. MOXIE_ERR_MEMORY when the budget is too small, with the bytes that would do. Thread-safe. */
MOXIE_API moxie_status moxie_store_open(const char *const *paths, int64_t n_paths, const moxie_store_options *options,
                                        moxie_store **out, moxie_error *error);
/* After its layers. NULL is fine. One-thread-at-a-time. */
MOXIE_API void moxie_store_close(moxie_store *store);

/* What a store made of its budget. Strings are static, or live as long as the store. */
typedef struct moxie_store_info {
    uint32_t struct_size;
    int32_t layers;
    const char *policy;
    int32_t slots;         /* of each layer; a layer with fewer experts has as many as these */
    int32_t read_buffers;  /* buffers for reads besides the slots */
    uint64_t record_bytes; /* of a slot or buffer: the largest record, padded to a page */
    uint64_t buffer_bytes; /* of all slots and buffers */
    uint64_t shared_bytes; /* of the shared experts, which stay in memory */
    uint64_t file_bytes;   /* of all routed experts' records */
    const char *reader;    /* "uring" */
    int32_t direct;        /* 1: past the page cache, all files */
    /* Of a tier on a GPU: slots of each layer; buffers for copies; bytes of either; bytes of all shared experts, which
     * are there then, and not in `shared_bytes`. */
    int32_t device_slots, device_buffers;
    uint64_t device_record_bytes, device_shared_bytes;
    /* With compute_where_it_lies: the same of records for the CPU. `slots` is 0 then, and ram_bytes hold these, besides
     * the buffers through which experts come to their slots on the GPU. */
    int32_t host_slots, host_read_buffers;
    uint64_t host_record_bytes;
} moxie_store_info;
#define MOXIE_STORE_INFO_INIT MOXIE_INIT(moxie_store_info)
/* `out` was set by its INIT macro. Thread-safe. */
MOXIE_API moxie_status moxie_store_get_info(const moxie_store *store, moxie_store_info *out, moxie_error *error);
/* What moxie_store_open() would make of the budget: slots, buffers, bytes. No record is read and no memory for one is
 * allocated; `reader` is "". `out` was set by its INIT macro. Thread-safe. */
MOXIE_API moxie_status moxie_store_describe(const char *const *paths, int64_t n_paths,
                                            const moxie_store_options *options, moxie_store_info *out,
                                            moxie_error *error);
/* The checkpoint's number of layer i, ascending; -1 past the last. Immutable. */
MOXIE_API int64_t moxie_store_layer_number(const moxie_store *store, int64_t i);
/* The file of a layer, which lives as long as the store; NULL when the store has no such layer. Immutable. */
MOXIE_API const moxie_expert_file *moxie_store_file(const moxie_store *store, int64_t layer);

/* A layer whose experts are read when a run needs them. Plans and runs are the ordinary ones, and the bytes of their
 * results are those of moxie_layer_open_file(). A run that needs more experts than there is room for goes through them
 * in waves: it computes some while the next are read. A run that cannot read a record fails with MOXIE_ERR_IO, or
 * MOXIE_ERR_FORMAT where the file was cut short; the store stays usable. `config` as for moxie_layer_open_file().
 * Plans may have adapters. They may have a comm: then each rank opens its own store, whose files have at least the
 * experts of that rank. moxie_plan_check() checks records through the mapped file, then a run through the store. The
 * store must outlive the layer. Thread-safe.
 * With device_bytes the options' back end is cuda, and a run has its experts on the GPU: those with a slot there, and
 * copies of the others, in waves. It waits on the host for the chosen experts, and for its copies; runs of several
 * threads take turns. moxie_plan_check() then needs device memory for all experts of the layer while it lasts.
 * MOXIE_ERR_UNSUPPORTED for plans with a comm, for activations with one scale for the batch, for a run in a graph.
 * With compute_where_it_lies plans also have CPU kernels, which run on the options' executor; their steps name both.
 * MOXIE_ERR_UNSUPPORTED then for adapters and moxie_plan_check(), too.
 * Every expert's result is within the bounds of its kernel. The same experts in slots give the same bytes, so a policy
 * that does not change them any more (frozen, pinned) repeats bit for bit. */
MOXIE_API moxie_status moxie_store_layer(moxie_store *store, int64_t layer, const moxie_layer_config *config,
                                         const moxie_options *options, moxie_layer **out, moxie_error *error);

/* Starts to read experts of a layer that its next run may use. ids [count] may repeat; ids of no expert of the
 * layer are skipped. Does not wait: what finds no free buffer is not read. Thread-safe. */
MOXIE_API moxie_status moxie_store_prefetch(moxie_store *store, int64_t layer, const int32_t *ids, int64_t count,
                                            moxie_error *error);
/* The same with the ids that the router of the plan's layer chooses for args->hidden, or args->logits, args->token_ids,
 * as moxie_plan_route() does: the input of the layer before is a good guess for this one's, and a layer that routes by
 * token ids needs no guess. It uses args->workspace as a run does. With a tier on a GPU arrays are the host's, as for
 * moxie_plan_run(), and the call waits for the router. MOXIE_ERR_ARGUMENT unless the plan's layer is one of a store.
 * One-thread-at-a-time per plan. */
MOXIE_API moxie_status moxie_store_lookahead(const moxie_plan *plan, const moxie_run_args *args, moxie_error *error);

/* What runs did. A use is an expert in one run of one layer. */
typedef struct moxie_store_counters {
    uint32_t struct_size;
    int64_t runs, uses, hits; /* hits: the expert had a slot; misses are uses - hits */
    int64_t inserts;          /* misses that got a slot */
    int64_t reads;            /* records that runs and prefetches read */
    uint64_t read_bytes;      /* of these, from files */
    uint64_t ram_bytes;       /* of hits' records, which were in memory */
    int64_t waits;            /* how often a run waited for a read */
    double wait_seconds;
    int64_t prefetches;      /* reads that a prefetch began */
    int64_t prefetches_used; /* misses that a prefetch had read, or was reading */
    int64_t prefetches_wasted;
    int64_t failed_reads;
    /* Of a tier on a GPU. Then uses, hits and inserts above are RAM's, which is used for experts that are not there. */
    int64_t device_uses, device_hits, device_inserts;
    int64_t copies;        /* records that runs copied to the GPU */
    uint64_t copied_bytes; /* of these */
    int64_t id_waits;      /* how often the host waited for the chosen experts: once a run */
    double id_wait_seconds;
    int64_t copy_waits; /* how often it waited for copies */
    double copy_wait_seconds;
    /* With compute_where_it_lies. Uses, hits, inserts and reads above are of records for either processor then. */
    int64_t host_uses;   /* experts that the CPU computed */
    double host_seconds; /* that it took */
} moxie_store_counters;
#define MOXIE_STORE_COUNTERS_INIT MOXIE_INIT(moxie_store_counters)
/* Of a layer; layer -1: the sum over all layers. last_run 1: only its last run that ended (of -1: the sum of these).
 * `out` was set by its INIT macro. Thread-safe. */
MOXIE_API moxie_status moxie_store_get_counters(moxie_store *store, int64_t layer, int32_t last_run,
                                                moxie_store_counters *out, moxie_error *error);

/* ------------------------------------------------------------------------------------------- */
/* Disks                                                                                       */
/* ------------------------------------------------------------------------------------------- */

/* What reads records past the page cache. Strings are static. */
typedef struct moxie_read_engine {
    uint32_t struct_size;
    int32_t usable;    /* 0: `missing` says why it is not, here and now */
    const char *name;  /* "uring", "pread" */
    const char *about; /* one line */
    char missing[512]; /* "" when it is usable */
} moxie_read_engine;
#define MOXIE_READ_ENGINE_INIT MOXIE_INIT(moxie_read_engine)
/* Fills `out` with engine i, best first: the first usable one reads. Returns 0 past the last, or when out->struct_size
 * is wrong. It may open the engine's library. Thread-safe. */
MOXIE_API int moxie_read_engine_at(int32_t i, moxie_read_engine *out);

typedef struct moxie_disk_options {
    uint32_t struct_size;
    const char *engine;         /* a name of moxie_read_engine_at(); NULL: the best that is usable */
    int32_t depth;              /* reads in flight on a drive; 0: 32 */
    uint64_t chunk_bytes;       /* of one read, a multiple of 4096, at most 1 GiB; 0: 256 KiB */
    uint64_t record_bytes;      /* of what lies side by side, a multiple of 4096, at most 1 GiB; 0: 4 MiB */
    int32_t milliseconds;       /* how long to read, at least; 0: 1000 */
    const char *const *mirrors; /* [n] paths of the same bytes on another drive, any of them NULL; or NULL */
} moxie_disk_options;
#define MOXIE_DISK_OPTIONS_INIT MOXIE_INIT(moxie_disk_options)

/* Strings are static. */
typedef struct moxie_disk_rate {
    uint32_t struct_size;
    double gb_s;             /* 10^9 bytes a second */
    uint64_t bytes, records; /* that were read */
    double seconds;
    const char *engine;
    int32_t depth, threads, drives;
    int32_t direct; /* 1: every file was read past the page cache; 0: the rate may be that of memory */
    uint64_t chunk_bytes;
    char why[256]; /* what was refused before the engine, or is missing */
} moxie_disk_rate;
#define MOXIE_DISK_RATE_INIT MOXIE_INIT(moxie_disk_rate)

/* Reads records of the files in a random order, some 64 MiB of them at a time, and counts. `options` may be NULL; `out`
 * was set by its INIT macro. The files need not be expert files. Thread-safe. */
MOXIE_API moxie_status moxie_disk_measure(const char *const *paths, int32_t n, const moxie_disk_options *options,
                                          moxie_disk_rate *out, moxie_error *error);

#ifdef __cplusplus
}
#endif

#endif /* MOXIE_STORE_H */
