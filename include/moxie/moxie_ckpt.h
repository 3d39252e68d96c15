/* SPDX-License-Identifier: Apache-2.0
 *
 * moxie_ckpt.h - checkpoints: open a model directory, get one layer's configuration and weights as
 * views of the mapped files; read and write safetensors and whole files; make synthetic checkpoints.
 *
 * The rules of moxie.h hold here too. Names that come from files are untrusted: error texts carry
 * them escaped.
 */
#ifndef MOXIE_CKPT_H
#define MOXIE_CKPT_H

#include <moxie/moxie.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------- */
/* Model directories                                                                           */
/* ------------------------------------------------------------------------------------------- */

typedef struct moxie_model moxie_model;
typedef struct moxie_model_layer moxie_model_layer;

typedef enum moxie_activations_choice {
    MOXIE_ACTIVATIONS_CHECKPOINT = 0, /* quantized as the checkpoint's scheme says */
    MOXIE_ACTIVATIONS_16BIT = 1       /* never quantized: exact weights times the hidden dtype */
} moxie_activations_choice;

typedef struct moxie_named_tensor {
    const char *name;
    moxie_tensor tensor; /* contiguous */
} moxie_named_tensor;

typedef struct moxie_model_options {
    uint32_t struct_size;
    int32_t no_mmap;      /* read tensors into memory instead of mapping the files */
    int32_t activations;  /* moxie_activations_choice */
    int32_t experts_only; /* layers are their routed experts: no router, no routing arrays, no shared expert, and none
                           * of them need be there. For preparing weights; such layers cannot be run */
    /* Not NULL: these instead of the directory's files, of which only the configurations are read. Host memory, alive
     * as long as the model; views of a layer point into it, so weights can be written through them. */
    const moxie_named_tensor *tensors;
    int64_t n_tensors;
} moxie_model_options;
#define MOXIE_MODEL_OPTIONS_INIT MOXIE_INIT(moxie_model_options)

/* What one MoE layer of a model is. Strings live as long as the model. */
typedef struct moxie_model_layer_info {
    int64_t layer;             /* index L in the checkpoint's names */
    const char *format;        /* row of hf_quant.def: "mxfp4-gptoss", "fp8-block", ... */
    const char *shared_format; /* of the shared expert, "" if there is none */
    const char *routing;       /* name for moxie_routing_by_name */
    int64_t experts, top_k, hidden, intermediate, shared_intermediate, router_width;
    uint64_t expert_bytes; /* weights and companions of all routed experts */
    uint64_t total_bytes;  /* with router and shared expert */
} moxie_model_layer_info;

typedef struct moxie_model_info {
    const char *family;       /* row of families.def */
    const char *model_type;   /* as config.json says */
    const char *quant_method; /* as quantization_config says, "" if it says nothing */
    int64_t n_layers;         /* MoE layers found in the tensors */
    int64_t n_tensors, n_files;
    uint64_t tensor_bytes;
    int64_t n_warnings; /* contradictions that were tolerated, see moxie_model_warning */
} moxie_model_info;

/* Opens DIR/config.json and every shard that the index names (or all *.safetensors when there is no
 * index). Reads headers only. One-thread-at-a-time; the model is thread-safe for reads afterwards.
 *
 * Shards are mapped (unless `no_mmap`). Their sizes are checked again when a layer is loaded: MOXIE_ERR_IO when a file
 * was cut off since. A file that is cut off after that, or whose disk fails, ends whoever touches its pages with
 * SIGBUS; a file that is replaced by rename() or removed does no harm. Use `no_mmap` where others may shorten the
 * files. */
MOXIE_API moxie_status moxie_model_open(const char *dir, const moxie_model_options *options, moxie_model **out,
                                        moxie_error *error);
MOXIE_API void moxie_model_close(moxie_model *model);
MOXIE_API void moxie_model_get_info(const moxie_model *model, moxie_model_info *info);
MOXIE_API const char *moxie_model_warning(const moxie_model *model, int64_t index);
/* Describes the i-th MoE layer found, i in [0, n_layers): detects its format and checks that every
 * expert has the same tensors with the right shapes. */
MOXIE_API moxie_status moxie_model_describe_layer(const moxie_model *model, int64_t i, moxie_model_layer_info *info,
                                                  moxie_error *error);
/* The configuration and weight views of checkpoint layer L (the number in the names, not i). The
 * result borrows the model's files: close it before the model. Thread-safe. */
MOXIE_API moxie_status moxie_model_load_layer(const moxie_model *model, int64_t layer, moxie_model_layer **out,
                                              moxie_error *error);
MOXIE_API void moxie_model_layer_free(moxie_model_layer *layer);
MOXIE_API const moxie_layer_config *moxie_model_layer_config(const moxie_model_layer *layer);
/* Views of the files. Pages of experts that moxie_layer_prepare is done with stop counting as this process' memory;
 * their views stay valid and are read again when they are touched. */
MOXIE_API const moxie_weights *moxie_model_layer_weights(const moxie_model_layer *layer);

/* Calls visit() for every tensor that checkpoint layer L keeps its routed experts in, companions that no view needs
 * included, in the files' order; `tensor` views the file, and `name` lives as long as the model. Non-zero stops with
 * MOXIE_ERR_TIMEOUT. A tensor that moxie cannot express is MOXIE_ERR_UNSUPPORTED. Thread-safe. */
typedef int (*moxie_tensor_fn)(void *user, const char *name, const moxie_tensor *tensor);
MOXIE_API moxie_status moxie_model_visit_experts(const moxie_model *model, int64_t layer, moxie_tensor_fn visit,
                                                 void *user, moxie_error *error);
/* What the names of those tensors begin with: "model.layers.3.mlp.experts.". MOXIE_ERR_MEMORY when `size` bytes are too
 * few. Thread-safe. */
MOXIE_API moxie_status moxie_model_expert_prefix(const moxie_model *model, int64_t layer, char *buffer, size_t size,
                                                 moxie_error *error);

/* ------------------------------------------------------------------------------------------- */
/* safetensors                                                                                 */
/* ------------------------------------------------------------------------------------------- */

typedef struct moxie_tensor_file moxie_tensor_file;

/* Opens and checks one file whole-heartedly: every rule of the format, before any tensor is handed
 * out. Data is mapped, or read when `no_mmap`. One-thread-at-a-time; reads are thread-safe. Of mapped files holds what
 * moxie_model_open() says: moxie_tensor_file_find() and moxie_tensor_file_check_seal() check the size again. */
MOXIE_API moxie_status moxie_tensor_file_open(const char *path, int no_mmap, moxie_tensor_file **out,
                                              moxie_error *error);
MOXIE_API void moxie_tensor_file_close(moxie_tensor_file *file);
MOXIE_API int64_t moxie_tensor_file_count(const moxie_tensor_file *file);
/* Tensor i in the order of the header; `name` lives as long as the file. Data may be unaligned. A tensor
 * that moxie cannot express (dtype C64 or an FNUZ float, more than MOXIE_MAX_RANK axes) has the dtype
 * MOXIE_DTYPE_NONE; finding it by name is MOXIE_ERR_UNSUPPORTED. */
MOXIE_API moxie_status moxie_tensor_file_at(const moxie_tensor_file *file, int64_t i, const char **name,
                                            moxie_tensor *out);
/* MOXIE_ERR_MISMATCH when there is none of that name. */
MOXIE_API moxie_status moxie_tensor_file_find(const moxie_tensor_file *file, const char *name, moxie_tensor *out,
                                              moxie_error *error);

/* Writes a safetensors file as moxie_file_write() does: there is the whole file or none.
 * `metadata` is n_metadata pairs key, value; may be NULL. One-thread-at-a-time. */
MOXIE_API moxie_status moxie_tensor_file_write(const char *path, const moxie_named_tensor *tensors, int64_t n_tensors,
                                               const char *const *metadata, int64_t n_metadata, moxie_error *error);

/* A value of the file's metadata, as long as the file is open; NULL when it has no such key. Thread-safe. */
MOXIE_API const char *moxie_tensor_file_metadata(const moxie_tensor_file *file, const char *key);
/* Pages of a mapped file that hold these bytes stop counting as this process' memory; they are read again when they are
 * touched. Thread-safe. */
MOXIE_API void moxie_tensor_file_let_go(const moxie_tensor_file *file, const void *data, uint64_t bytes);

/* Sealed files: safetensors whose pieces are written in any order, and whose metadata holds a checksum of all of the
 * file, "moxie.seal" (with "moxie.pieces"). Other readers take them for what they are, safetensors. */
typedef struct moxie_sealed_writer moxie_sealed_writer;
typedef struct moxie_sealed_tensor {
    const char *name;
    moxie_dtype dtype;
    int32_t rank;
    int64_t shape[MOXIE_MAX_RANK];
    int64_t pieces; /* equal parts of its bytes that moxie_sealed_writer_put() writes; at least 1 */
} moxie_sealed_tensor;

/* Creates a file beside `path`, as moxie_file_write() does, and takes the room for all of it. Tensors lie in the order
 * given; `metadata` as for moxie_tensor_file_write. The declarations are read only until this returns.
 * One-thread-at-a-time. */
MOXIE_API moxie_status moxie_sealed_writer_open(const char *path, const moxie_sealed_tensor *tensors, int64_t n_tensors,
                                                const char *const *metadata, int64_t n_metadata,
                                                moxie_sealed_writer **out, moxie_error *error);
/* Writes and sums one piece: bytes of the tensor / pieces. Thread-safe for different pieces. */
MOXIE_API moxie_status moxie_sealed_writer_put(moxie_sealed_writer *writer, int64_t tensor, int64_t piece,
                                               const void *data, moxie_error *error);
/* Checks that every piece came, seals, flushes to the disk and renames to `path`. Frees the writer either way; on
 * failure nothing is left. One-thread-at-a-time. */
MOXIE_API moxie_status moxie_sealed_writer_finish(moxie_sealed_writer *writer, moxie_error *error);
/* Removes what was written and frees. NULL is fine. */
MOXIE_API void moxie_sealed_writer_abandon(moxie_sealed_writer *writer);
/* Reads all of the file. MOXIE_ERR_MISMATCH when it has no seal, or is not what was sealed. Thread-safe. */
MOXIE_API moxie_status moxie_tensor_file_check_seal(const moxie_tensor_file *file, moxie_error *error);

/* ------------------------------------------------------------------------------------------- */
/* Files                                                                                       */
/* ------------------------------------------------------------------------------------------- */

/* Reads all of a regular file of at most `limit` bytes. Directories, devices, pipes and larger files are refused at
 * once: nothing here waits. A zero byte follows the last one. *data is the caller's: moxie_file_free(). MOXIE_ERR_IO,
 * or MOXIE_ERR_FORMAT for a file that is too large. Thread-safe. */
MOXIE_API moxie_status moxie_file_read(const char *path, uint64_t limit, char **data, uint64_t *bytes,
                                       moxie_error *error);
/* NULL is fine. Thread-safe. */
MOXIE_API void moxie_file_free(char *data);
/* 1 when something has this name, also a symbolic link that leads nowhere or in a circle; 0 when it is absent.
 * Thread-safe. */
MOXIE_API int moxie_file_exists(const char *path);

/* Writes a file that is there whole or not at all: `path`.moxie.tmp first, then, when all of it is on the disk,
 * renamed. What stands at `path` is replaced; MOXIE_ERR_IO when that is a directory, a device, a pipe or a symbolic
 * link. Temporary files are locked (flock): one that a process left which has ended is removed by the next writer of
 * the same file; another process' is waited for, for three seconds. Thread-safe for different files. */
MOXIE_API moxie_status moxie_file_write(const char *path, const void *data, uint64_t bytes, moxie_error *error);
/* Whether a file could be written there now: to be asked before long work whose result goes to `path`. Leaves nothing.
 * Thread-safe for different files. */
MOXIE_API moxie_status moxie_file_check_output(const char *path, moxie_error *error);
/* Opens the directory `path` and holds it against other processes by a lock (flock), until *fd is closed. Symbolic
 * links are not followed. `create`: makes it when it is absent; *created (may be NULL) says whether it did.
 * MOXIE_ERR_IO when it is none, or another process holds it, whose number the text says where it is known. Thread-safe.
 */
MOXIE_API moxie_status moxie_directory_hold(const char *path, int create, int *fd, int *created, moxie_error *error);
/* Removes the temporary files and directories of all that this process is writing, for a signal handler that ends the
 * process: async-signal-safe. What is still under way fails afterwards, and so does everything that would be written
 * later. */
MOXIE_API void moxie_temporaries_remove(void);

/* ------------------------------------------------------------------------------------------- */
/* Synthetic checkpoints                                                                       */
/* ------------------------------------------------------------------------------------------- */

typedef struct moxie_preset_info {
    const char *name, *family;
    int64_t experts, top_k, hidden, intermediate, shared_intermediate, router_width, layers;
    const char *activation;
    int32_t n_formats; /* formats[0] is the primary release's */
    const char *const *formats;
    int32_t n_native;     /* the first n_native formats are those of public releases */
    uint64_t layer_bytes; /* routed experts of one layer in formats[0] */
} moxie_preset_info;

/* Preset i of presets.def; returns 0 past the last. Immutable. */
MOXIE_API int moxie_preset_at(int32_t i, moxie_preset_info *out);
/* Name of checkpoint format i, "mxfp4-gptoss"; NULL past the last. Any preset can be made in any format. Immutable. */
MOXIE_API const char *moxie_checkpoint_format_at(int32_t i);

typedef struct moxie_synth_options {
    uint32_t struct_size;
    const char *format;           /* NULL: the preset's first */
    int64_t layers;               /* MoE layers to write; 0: all */
    int64_t experts;              /* 0: all; else at least top_k and fitting the groups */
    int64_t hidden, intermediate; /* 0: true sizes; for small tests only */
    uint64_t seed;
    uint64_t shard_bytes;                                                   /* 0: 5e9 */
    int (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes); /* non-zero cancels */
    void *progress_user;
} moxie_synth_options;
#define MOXIE_SYNTH_OPTIONS_INIT MOXIE_INIT(moxie_synth_options)

/* Writes a checkpoint with the real model's names, shapes, dtypes, config.json and
 * quantization_config to the directory `dir` (created; must be empty or absent). Equal arguments
 * give equal bytes on every machine. Nothing is left behind on failure. Until it is whole it is `dir`.moxie.tmp, which
 * is locked: MOXIE_ERR_IO when another process is writing the same directory; what a process left that has ended is
 * removed. */
MOXIE_API moxie_status moxie_synth_write(const char *preset, const char *dir, const moxie_synth_options *options,
                                         moxie_error *error);

/* The layer configuration a preset has in a format, for planning without weights. The arrays that the
 * routing needs (bias, table) are absent. Immutable. */
MOXIE_API moxie_status moxie_preset_config(const char *preset, const char *format, moxie_layer_config *out,
                                           moxie_error *error);

#ifdef __cplusplus
}
#endif

#endif /* MOXIE_CKPT_H */
