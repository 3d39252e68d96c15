/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare.h - what the files of `moxie prepare` share.
 *
 *     DIR  --prepare_layer-->  OUT.partial/layer-00003.safetensors ...  --index, rename-->  OUT
 *     OUT  --prepare_undo-->   tensors of the checkpoint, byte for byte
 *     OUT  --prepare_verify--> every seal, every shape
 *
 * A directory under OUT's own name is whole. OUT.partial holds finished layers, each a sealed file; the next run of the
 * same command continues there.
 *
 *     OUT/moxie_prepare.json             how it was made (prepare_manifest.c); the first file. With --undo it is
 *                                        moxie_restore.json
 *     OUT/config.json ...                the checkpoint's, for the way back
 *     OUT/layer-00003.moxie              for our own kernels: an expert file (docs/expert-file.md), without an index;
 *                                        source tensors are described in its section x.source, kept ones in x.kept
 *     OUT/layer-00003.safetensors        prefix + parameter [E_local, ...], moxie.expert_xxh3, moxie.source/...
 *     OUT/model.safetensors.index.json   the last file
 *
 * A source tensor is *held* when the experts' grids cover every byte of it, in equal pieces, one for each expert: the
 * prepared tensors can restore it. All others are *kept* unchanged, under moxie.source/.
 */
#ifndef MOXIE_PREPARE_TOOL_H
#define MOXIE_PREPARE_TOOL_H

#include <limits.h>

#include <moxie/moxie_prepare.h>
#include <moxie/moxie_store.h>

#include "cli.h"

#define PREPARE_INDEX       "model.safetensors.index.json"
#define PREPARE_SOURCE      "moxie.source/"
#define PREPARE_EXPERT_HASH "moxie.expert_xxh3"
#define PREPARE_PARTIAL     ".partial"
/* Bytes that a file's name, or ".partial", adds to a directory's path at most. */
enum { PREPARE_LONGEST_NAME = 64 };
/* Bytes of a tensor's name in a prepared file, with its terminator. */
enum { PREPARE_NAME = 400 };

/* How weights are prepared: what the manifest records. */
typedef struct prepare_how {
    char layout[64], release[64]; /* release "": the newest version of the layout */
    int32_t pad, tp_rank, tp_size, ep_rank, ep_size, ep_map;
    int32_t symmetric; /* the configuration says that the zero points are the middle of the codes */
    int64_t *layers;   /* [n_layers] */
    int64_t n_layers;
} prepare_how;

typedef struct prepare_options {
    const char *dir, *layout, *release, *out;
    const char **more; /* directories of other ranks, for undo */
    int n_more;
    int64_t first_layer, last_layer; /* -1: all */
    prepare_how how;                 /* `layers` is not set */
    int32_t threads;
    bool json, allow_unread; /* allow_unread: as moxie_model_options */
} prepare_options;

/* What a command did, for tables and JSON. */
typedef struct prepare_report {
    int64_t made, kept; /* layers */
    uint64_t bytes;     /* of the files that were made or kept */
    uint64_t source_hash;
    uint64_t expert_bytes_in, expert_bytes_out; /* of the largest expert */
    moxie_preparation_info info;                /* of the last layer */
    double seconds;
} prepare_report;

/* ---- where a layer's weights lie in its tensors (prepare_source.c) ---------------------------------- */

typedef struct prepare_tensor {
    char *name;
    moxie_tensor view;
    uint64_t bytes;
    int64_t pieces; /* held: equal pieces, one for each expert that it holds; 0: kept */
} prepare_tensor;

typedef struct prepare_source {
    prepare_tensor *tensors; /* in the files' order */
    int64_t count;
    int64_t *by_address; /* indices, by view.data */
    bool gguf;           /* there are no tensors: spans are the experts' grids */
} prepare_source;

/* The piece of a held tensor that is one expert's. */
typedef struct prepare_span {
    int64_t tensor, piece;
    unsigned char *data;
    uint64_t bytes;
} prepare_span;
enum { PREPARE_SPANS = 12 };

moxie_status prepare_source_read(const moxie_model *model, int64_t layer, const moxie_weights *weights,
                                 prepare_source *out, moxie_error *error);
void prepare_source_free(prepare_source *source);
/* An expert's pieces, in the order of the tensors. Returns how many. */
int prepare_source_spans(const prepare_source *source, const moxie_expert *expert, prepare_span spans[PREPARE_SPANS]);
/* Bytes from a grid's first element to the end of its last; it has one at least. */
uint64_t prepare_grid_extent(const moxie_grid *grid);
/* XXH3-64 of the spans' bytes, in order. */
uint64_t prepare_span_hash(const prepare_span *spans, int count);
uint64_t prepare_source_expert_bytes(const prepare_source *source, const moxie_expert *expert);
/* The name under which a tensor is kept, "moxie.source/NAME"; false when it is too long. */
bool prepare_kept_name(const char *name, char buffer[PREPARE_NAME]);
/* "[[name, dtype, [shape], pieces], ...]", for a file's metadata; NULL when out of memory. free() it. */
char *prepare_source_text(const prepare_source *source);

/* ---- the same, read from a file's metadata (prepare_described.c) -------------------------------------- */

/* Tensors as a text describes them, without data. */
typedef struct prepare_described {
    moxie_named_tensor *tensors; /* [count] */
    int64_t *pieces;             /* [count]: as in prepare_tensor */
    uint64_t *bytes;             /* [count] */
    int64_t count;
    uint64_t room_bytes; /* of all tensors, each aligned to 64 */
} prepare_described;
/* The text is untrusted: MOXIE_ERR_FORMAT unless sizes and their sum are in range. Call prepare_described_free() in any
 * case. */
moxie_status prepare_described_parse(const char *text, const char *path, prepare_described *out, moxie_error *error);
void prepare_described_free(prepare_described *described);

/* ---- one expert's bytes to a file (prepare_put.c) --------------------------------------------------- */

typedef struct prepare_piece {
    int64_t tensor, piece; /* as moxie_sealed_writer_put takes them */
    const void *data;
} prepare_piece;
enum { PREPARE_PIECES = 128 };

/* Writes the pieces and hashes the spans, on the executor's threads. */
moxie_status prepare_put(moxie_sealed_writer *writer, const prepare_piece *pieces, int64_t count,
                         const prepare_span *spans, int n_spans, uint64_t *hash, const moxie_executor *executor,
                         moxie_error *error);

/* ---- one layer (prepare_layer.c) -------------------------------------------------------------------- */

/* "DIR/layer-00003.safetensors"; `buffer` has PATH_MAX bytes. */
const char *prepare_layer_path(const char *dir, int64_t layer, char *buffer);
/* Name, dtype and shape of tensor i of a prepared layer, stacked. */
bool prepare_stacked_tensor(const moxie_preparation *preparation, const char *prefix, int32_t i, char *name,
                            size_t name_size, moxie_sealed_tensor *out);
/* Plans the preparation of a loaded layer. */
moxie_status prepare_plan(const prepare_how *how, const moxie_model_layer *layer, moxie_preparation **out,
                          moxie_error *error);
/* Memory for one expert's tensors, 64-byte aligned, in one block. prepare_tensors_free() it. */
moxie_status prepare_tensors_alloc(const moxie_preparation *preparation, void ***out, moxie_error *error);
void prepare_tensors_free(void **tensors);
/* Makes the layer's file in `out`, or keeps the one that is there. */
moxie_status prepare_layer(const prepare_options *options, const moxie_model *model, int64_t layer, const char *out,
                           const moxie_executor *executor, cli_progress *progress, prepare_report *report,
                           moxie_error *error);

/* ---- expert files, for our own kernels (prepare_experts.c) -------------------------------------------- */

/* The layout's own name where it is one of our kernels' (moxie_expert_target_at), else NULL. Static. */
const char *prepare_expert_target(const char *layout);
/* "DIR/layer-00003.moxie"; `buffer` has PATH_MAX bytes. */
const char *prepare_experts_path(const char *dir, int64_t layer, char *buffer);
/* As prepare_layer(). */
moxie_status prepare_experts(const prepare_options *options, const moxie_model *model, int64_t layer, const char *out,
                             const moxie_executor *executor, cli_progress *progress, prepare_report *report,
                             moxie_error *error);
/* Checks every file of a directory, and adds it to the report. */
moxie_status prepare_experts_verify(const char *dir, const prepare_how *how, const moxie_executor *executor,
                                    cli_progress *progress, prepare_report *report, moxie_error *error);

/* ---- the layouts and their versions (prepare_list.c) ------------------------------------------------- */

/* Whether a version of a layout is for the release; NULL: whether it is the newest. */
bool prepare_is_for(const moxie_prepare_layout *layout, const char *release);
/* Sets options->how.layout and .release to what options->layout and ->release name. */
moxie_status prepare_choose(prepare_options *options, moxie_error *error);
/* Prints every layout; with options->dir, which of them accept the weights of its first layer. Returns an exit code. */
int prepare_list(const prepare_options *options);

/* ---- all layers (prepare_all.c) --------------------------------------------------------------------- */

moxie_status prepare_all(const prepare_options *options, const moxie_executor *executor, cli_progress *progress,
                         prepare_report *report, moxie_error *error);

/* ---- what a directory is (prepare_manifest.c) ------------------------------------------------------- */

typedef enum prepare_kind { PREPARE_PREPARED, PREPARE_RESTORED } prepare_kind;
const char *prepare_manifest_file(prepare_kind kind);
/* Checks that a directory's path leaves room for its files' names. */
moxie_status prepare_check_name(const char *dir, moxie_error *error);
/* "DIR/NAME"; `buffer` has PATH_MAX bytes. Returns it. */
const char *prepare_path(const char *dir, const char *name, char *buffer);
/* A JSON string of any bytes, such as a path. If they are not UTF-8, each byte that is not ASCII becomes '?'. */
json_t *prepare_json_string(const char *text);
moxie_status prepare_manifest_write(const char *dir, prepare_kind kind, const prepare_how *how, const char *source,
                                    moxie_error *error);
moxie_status prepare_manifest_read(const char *dir, prepare_kind kind, prepare_how *out, moxie_error *error);
/* `path` is for messages. */
moxie_status prepare_manifest_parse(const char *text, size_t size, const char *path, prepare_kind kind,
                                    prepare_how *out, moxie_error *error);
bool prepare_how_equal(const prepare_how *a, const prepare_how *b);
void prepare_how_free(prepare_how *how);

/* ---- configurations (prepare_configs.c) ------------------------------------------------------------- */

/* Names of the files that hold a checkpoint's configurations; NULL past the last. */
const char *prepare_config_name(int i);
/* Sets how->symmetric by what the checkpoint's quantization config says: GPTQ's "sym", AWQ's "zero_point". */
moxie_status prepare_configs_symmetric(const char *dir, prepare_how *how, moxie_error *error);
/* Copies configurations that `from` has and `to` does not have yet. */
moxie_status prepare_configs_copy(const char *from, const char *to, moxie_error *error);
/* Whether the configurations of `to` equal those of `from`: all of them, or with `all` false as many as `to` has. */
moxie_status prepare_configs_compare(const char *from, const char *to, bool all, bool *equal, moxie_error *error);

/* ---- the index (prepare_index.c) -------------------------------------------------------------------- */

/* Writes the index of all layer files in `dir`. `source_hash` NULL: the files are a restored checkpoint's. */
moxie_status prepare_index_write(const char *dir, const prepare_how *how, const uint64_t *source_hash,
                                 moxie_error *error);
/* Checks that the index has every tensor of the layers' files, and nothing else. */
moxie_status prepare_index_check(const char *dir, const prepare_how *how, moxie_error *error);

/* ---- OUT and OUT.partial (prepare_partial.c) -------------------------------------------------------- */

typedef struct prepare_partial {
    char path[PATH_MAX];
    prepare_kind kind;
    int fd;     /* of the directory, with its lock; -1: not locked */
    bool begun; /* this run began it, and no layer is finished yet */
} prepare_partial;

/* Checks that `out` is absent or an empty directory, and that its name can be created. */
moxie_status prepare_check_out(const char *out, moxie_error *error);
/* Creates OUT.partial with manifest and `source`'s configurations, or continues in one that the same command left.
 * Locks it. A directory of any other origin is rejected and left unchanged. */
moxie_status prepare_partial_open(const char *out, prepare_kind kind, const prepare_how *how, const char *source,
                                  prepare_partial *p, moxie_error *error);
/* From now on a failure leaves the directory for the next run. */
void prepare_partial_keep(prepare_partial *p);
/* Renames the directory to OUT. */
moxie_status prepare_partial_commit(prepare_partial *p, const char *out, moxie_error *error);
/* Call in any case. After a failure finished layers stay for the next run; without any, the directory is removed. */
void prepare_partial_leave(prepare_partial *p, int64_t finished);

/* ---- the way back ------------------------------------------------------------------------------------ */

/* A prepared layer opened to restore it: its file, and memory for the checkpoint's tensors, in which the kept ones are
 * filled in (prepare_back.c). */
typedef struct prepare_back {
    moxie_tensor_file *file;
    moxie_expert_file *experts;  /* instead, where the layout is for our own kernels */
    int32_t *held;               /* [info.n_experts] of such a file */
    prepare_described described; /* tensors, with their addresses in `room` */
    unsigned char *room;
    bool shared; /* `described` and `room` belong to another rank's object */
    moxie_model *model;
    moxie_model_layer *layer;
    moxie_preparation *preparation;
    moxie_preparation_info info;
    char prefix[300];
} prepare_back;
/* `first`: NULL, or the same layer of another rank, whose room is shared. Call prepare_back_close() in any case. */
moxie_status prepare_back_open(const char *dir, const prepare_how *how, int64_t layer, const prepare_back *first,
                               prepare_back *out, moxie_error *error);
void prepare_back_close(prepare_back *back);
/* Unpacks one slot's expert through the views. `tensors`: room for PREPARE_PIECES pointers. */
moxie_status prepare_back_unpack(const prepare_back *back, int32_t slot, void **tensors, moxie_expert *views,
                                 const moxie_executor *executor, moxie_error *error);
/* The hash that a slot's expert had in the checkpoint. */
uint64_t prepare_back_hash(const prepare_back *back, int32_t slot);

moxie_status prepare_undo(const prepare_options *options, const moxie_executor *executor, cli_progress *progress,
                          prepare_report *report, moxie_error *error);
moxie_status prepare_verify(const char *dir, const moxie_executor *executor, cli_progress *progress,
                            prepare_report *report, moxie_error *error);

#endif
