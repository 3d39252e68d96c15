/* SPDX-License-Identifier: Apache-2.0
 *
 * prepare.h - what the files of `moxie prepare` share.
 *
 *     DIR  --prepare_layer-->  OUT.partial/layer-00003.safetensors ...  --index, rename-->  OUT
 *     OUT  --prepare_undo-->   tensors of the checkpoint, byte for byte
 *     OUT  --prepare_verify--> every seal, every shape
 *
 * A directory under OUT's own name is whole. OUT.partial holds finished layers, each a sealed file, and is gone on
 * with.
 *
 *     OUT/moxie_prepare.json             how it was made (prepare_manifest.c); the first file
 *     OUT/config.json ...                the checkpoint's, for the way back
 *     OUT/layer-00003.safetensors        prefix + parameter [E_local, ...], moxie.expert_xxh3, moxie.source/...
 *     OUT/model.safetensors.index.json   the last file
 *
 * Source tensors are *held* when the experts' grids cover every byte of them, in equal pieces, one for each expert:
 * those the prepared tensors bring back. All others are *kept* as they are, under moxie.source/.
 */
#ifndef MOXIE_PREPARE_TOOL_H
#define MOXIE_PREPARE_TOOL_H

#include <moxie/moxie_prepare.h>

#include "cli.h"

#define PREPARE_MANIFEST    "moxie_prepare.json"
#define PREPARE_INDEX       "model.safetensors.index.json"
#define PREPARE_SOURCE      "moxie.source/"
#define PREPARE_EXPERT_HASH "moxie.expert_xxh3"
#define PREPARE_PARTIAL     ".partial"

/* How weights are prepared: what the manifest records. */
typedef struct prepare_how {
    char layout[64];
    int32_t pad, tp_rank, tp_size, ep_rank, ep_size, ep_map;
    int64_t *layers; /* [n_layers] */
    int64_t n_layers;
} prepare_how;

typedef struct prepare_options {
    const char *dir, *layout, *out;
    const char **more; /* directories of other ranks, for undo */
    int n_more;
    int64_t first_layer, last_layer; /* -1: all */
    prepare_how how;                 /* without layers */
    int32_t threads;
    bool json;
} prepare_options;

/* What was done, for tables and JSON. */
typedef struct prepare_report {
    int64_t made, kept; /* layers */
    uint64_t bytes;     /* of the files made or kept */
    uint64_t source_hash;
    uint64_t expert_bytes_in, expert_bytes_out; /* of one expert, the largest */
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
/* XXH3-64 of those bytes, one after the other. */
uint64_t prepare_span_hash(const prepare_span *spans, int count);
uint64_t prepare_source_expert_bytes(const prepare_source *source, const moxie_expert *expert);
/* [[name, dtype, [shape], pieces], ...] as text, for a file's metadata; free() it. */
char *prepare_source_text(const prepare_source *source);

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
/* A preparation of a loaded layer. */
moxie_status prepare_plan(const prepare_how *how, const moxie_model_layer *layer, moxie_preparation **out,
                          moxie_error *error);
/* Memory of one expert's tensors, 64-byte aligned: pointers into one block; free(tensors[0]). */
moxie_status prepare_tensors_alloc(const moxie_preparation *preparation, void ***out, moxie_error *error);
void prepare_tensors_free(void **tensors);
/* Makes the layer's file in `out`, or keeps the one that is there. */
moxie_status prepare_layer(const prepare_options *options, const moxie_model *model, int64_t layer, const char *out,
                           const moxie_executor *executor, cli_progress *progress, prepare_report *report,
                           moxie_error *error);

/* ---- the layouts (prepare_list.c) ------------------------------------------------------------------- */

/* Prints every layout; with options->dir, which of them take the weights of its first layer. An exit code. */
int prepare_list(const prepare_options *options);

/* ---- all layers (prepare_all.c) --------------------------------------------------------------------- */

/* `out` is absent or an empty directory. */
moxie_status prepare_check_out(const char *out, moxie_error *error);
/* After a failure: what is finished stays, and is gone on with; a directory without it goes. */
void prepare_leave(const char *partial, const prepare_report *report);
moxie_status prepare_all(const prepare_options *options, const moxie_executor *executor, cli_progress *progress,
                         prepare_report *report, moxie_error *error);

/* ---- a prepared directory (prepare_manifest.c) ------------------------------------------------------ */

moxie_status prepare_manifest_read(const char *dir, prepare_how *out, moxie_error *error);
moxie_status prepare_manifest_write(const char *dir, const prepare_how *how, const char *source, moxie_error *error);
bool prepare_how_equal(const prepare_how *a, const prepare_how *b);
void prepare_how_free(prepare_how *how);
/* Copies config.json and the quantization configurations that there are; or compares them. */
moxie_status prepare_configs_copy(const char *from, const char *to, moxie_error *error);
bool prepare_configs_equal(const char *from, const char *to);
/* The index of all layer files in `dir`, in the Hugging Face manner. `source_hash` NULL: they are a checkpoint's again.
 */
moxie_status prepare_index_write(const char *dir, const prepare_how *how, const uint64_t *source_hash,
                                 moxie_error *error);
/* Every tensor of the layers' files is in the index, and nothing else. */
moxie_status prepare_index_check(const char *dir, const prepare_how *how, moxie_error *error);
/* Opens `dir` and holds it against a second run; removes what an interrupted run left under way. Close *fd. */
moxie_status prepare_directory_hold(const char *dir, int *fd, moxie_error *error);
/* Removes what this program writes into such a directory, and the directory if nothing else is in it. */
void prepare_directory_remove(const char *dir);
/* Writes `object` beside the path and renames it. Takes the reference. */
moxie_status prepare_json_write(const char *path, json_t *object, moxie_error *error);

/* ---- the way back ------------------------------------------------------------------------------------ */

/* A prepared layer opened for going back: its file, and room at the addresses of the checkpoint's tensors, kept ones
 * filled in (prepare_back.c). */
typedef struct prepare_back {
    moxie_tensor_file *file;
    moxie_named_tensor *tensors;
    int64_t *pieces;
    int64_t count;
    unsigned char *room;
    uint64_t room_bytes;
    moxie_model *model;
    moxie_model_layer *layer;
    moxie_preparation *preparation;
    char prefix[300];
} prepare_back;
/* `first` NULL, or another rank's same layer, whose room is shared. prepare_back_close() in any case. */
moxie_status prepare_back_open(const char *dir, const prepare_how *how, int64_t layer, const prepare_back *first,
                               prepare_back *out, moxie_error *error);
void prepare_back_close(prepare_back *back);
/* Pointers to one slot's tensors in the file. */
moxie_status prepare_back_slot(const prepare_back *back, int32_t slot, void **tensors, moxie_error *error);
/* The hash that the expert in a slot had. */
uint64_t prepare_back_hash(const prepare_back *back, int32_t slot);

moxie_status prepare_undo(const prepare_options *options, const moxie_executor *executor, cli_progress *progress,
                          prepare_report *report, moxie_error *error);
moxie_status prepare_verify(const char *dir, cli_progress *progress, prepare_report *report, moxie_error *error);

#endif
