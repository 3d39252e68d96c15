/* SPDX-License-Identifier: Apache-2.0
 *
 * moxie_ckpt.h - checkpoints: open a model directory, get one layer's configuration and weights as views of the mapped
 * files; read and write safetensors and whole files; make synthetic checkpoints.
 *
 *     moxie_model_open            DIR/config.json and the headers of its shards -> a model
 *     moxie_model_describe_layer  which format and shapes its i-th MoE layer has
 *     moxie_model_load_layer      checkpoint layer L -> moxie_layer_config and moxie_weights, ready for moxie.h
 *
 * The rules of moxie.h about calls, threads and structs hold here too. Names that come from files are not trusted:
 * error texts show them escaped.
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
    MOXIE_ACTIVATIONS_16BIT = 1,      /* not quantized: they keep the dtype of the hidden states */
    MOXIE_ACTIVATIONS_GGML = 2        /* GGUF files: as llama.cpp on CPUs, see docs/gguf.md */
} moxie_activations_choice;

typedef struct moxie_named_tensor {
    const char *name;
    moxie_tensor tensor;  /* contiguous */
    uint32_t reserved[4]; /* zero */
} moxie_named_tensor;

typedef struct moxie_model_options {
    uint32_t struct_size;
    int32_t no_mmap;      /* read tensors into memory instead of mapping the files */
    int32_t activations;  /* moxie_activations_choice */
    int32_t experts_only; /* layers consist of their routed experts: no router, no routing arrays, no shared expert, and
                           * the files need not have them. For preparing weights; such layers cannot be run */
    /* If not NULL, the model consists of these [n_tensors] tensors, and only the configurations are read from the
     * directory. They are host memory that outlives the model. Views of a layer point into it, so weights can be
     * written through them. */
    const moxie_named_tensor *tensors;
    int64_t n_tensors;
    /* 1: load a layer even if its MoE block has tensors that moxie does not know (moxie_model_layer_unread). Results
     * can be wrong without them, so 0 refuses such a layer */
    int32_t allow_unread;
} moxie_model_options;
#define MOXIE_MODEL_OPTIONS_INIT MOXIE_INIT(moxie_model_options)

/* One MoE layer of a model. Strings live as long as the model. */
typedef struct moxie_model_layer_info {
    uint32_t struct_size;
    int64_t layer;             /* index L in the checkpoint's names */
    const char *format;        /* "mxfp4-gptoss", "fp8-block", ...: a name of moxie_checkpoint_format_at */
    const char *shared_format; /* of the shared expert; "" if there is none */
    const char *routing;       /* name for moxie_routing_by_name */
    int64_t experts, top_k, hidden, intermediate, shared_intermediate, router_width;
    uint64_t expert_bytes;   /* weights and companions of all routed experts */
    uint64_t total_bytes;    /* with router and shared expert */
    const char *format_note; /* what loading does with the numbers beyond viewing them; "" for nothing */
    /* Experts (the shared one counts) whose gate and up have different static activation scales. W13 gets that of the
     * larger range: the larger scale, or the smaller global where it divides. vLLM takes that, too, or for some kernels
     * that of the largest range of all experts. */
    int64_t merged_input_scales;
    /* What the model computes around the layer, and which states the layer then reads, where that is not plain: latent
     * projections, a router that reads other states than the experts. "": nothing of the kind. */
    const char *outside;
    int64_t n_unread; /* tensors of its MoE block that were not read: moxie_model_layer_unread */
} moxie_model_layer_info;
#define MOXIE_MODEL_LAYER_INFO_INIT MOXIE_INIT(moxie_model_layer_info)

/* A model as a whole. Strings live as long as the model. */
typedef struct moxie_model_info {
    uint32_t struct_size;
    const char *family;       /* the model family that its names and keys belong to */
    const char *model_type;   /* as config.json says */
    const char *quant_method; /* as quantization_config says; "" if it says nothing */
    int64_t n_layers;         /* MoE layers found in the tensors */
    int64_t n_tensors, n_files;
    uint64_t tensor_bytes;
    int64_t n_warnings;    /* contradictions in the files that were tolerated: moxie_model_warning */
    int64_t n_unread_keys; /* keys of config.json that moxie does not know: moxie_model_unread_key */
} moxie_model_info;
#define MOXIE_MODEL_INFO_INIT MOXIE_INIT(moxie_model_info)

/* Opens DIR/config.json and every shard that the index names; without an index, every *.safetensors of the directory.
 * `dir` may also be a GGUF file, which is opened with all its parts (docs/gguf.md).
 * Reads headers only. The model's calls below may be made from several threads at once. Thread-safe.
 *
 * Shards are mapped, unless `no_mmap` is set. When a layer is loaded their sizes are checked again: MOXIE_ERR_IO when a
 * file was cut off since. If a file is cut off after that, or its disk fails, touching its pages raises SIGBUS. Use
 * `no_mmap` where others may shorten the files. Replacing a file by rename(), or removing it, does no harm. */
MOXIE_API moxie_status moxie_model_open(const char *dir, const moxie_model_options *options, moxie_model **out,
                                        moxie_error *error);
/* After its layers. One-thread-at-a-time. */
MOXIE_API void moxie_model_close(moxie_model *model);
/* `info` was set by its INIT macro. Immutable. */
MOXIE_API moxie_status moxie_model_get_info(const moxie_model *model, moxie_model_info *info, moxie_error *error);
/* Warning `index` of n_warnings, NULL past the last; it lives as long as the model. Immutable. */
MOXIE_API const char *moxie_model_warning(const moxie_model *model, int64_t index);
/* Key `index` of the n_unread_keys keys of config.json that name experts, routers, gates, scales or activations, and
 * that moxie neither reads nor knows to be irrelevant. Dots descend: "ffn_config.moe_mystery". Results can be wrong if
 * such a key changes the layer. NULL past the last; it lives as long as the model. Immutable. */
MOXIE_API const char *moxie_model_unread_key(const moxie_model *model, int64_t index);
/* Describes the i-th MoE layer found, i in [0, n_layers): finds its format, and checks that every expert has the same
 * tensors with the right shapes. `info` was set by its INIT macro. Thread-safe. */
MOXIE_API moxie_status moxie_model_describe_layer(const moxie_model *model, int64_t i, moxie_model_layer_info *info,
                                                  moxie_error *error);
/* The configuration and weight views of checkpoint layer `layer`, which is the number in the tensors' names, not i. The
 * result borrows the model's files: free it before the model. MOXIE_ERR_UNSUPPORTED when a tensor of its experts, its
 * router or its shared expert is one that moxie does not know, unless the options said `allow_unread`. Thread-safe. */
MOXIE_API moxie_status moxie_model_load_layer(const moxie_model *model, int64_t layer, moxie_model_layer **out,
                                              moxie_error *error);
/* One-thread-at-a-time. */
MOXIE_API void moxie_model_layer_free(moxie_model_layer *layer);
/* NULL for a layer that is NULL, as one is that could not be loaded; so are the weights. Both live as long as `layer`.
 * Immutable. */
MOXIE_API const moxie_layer_config *moxie_model_layer_config(const moxie_model_layer *layer);
/* Name `index` of the n_unread tensors that belong to the layer's MoE block and were not read, in the files' order;
 * NULL past the last. There are some only in a model opened with `allow_unread`. It lives as long as the model.
 * Immutable. */
MOXIE_API const char *moxie_model_layer_unread(const moxie_model_layer *layer, int64_t index);
/* Views of the files. When moxie_layer_prepare is done with an expert, the pages of its views are dropped from this
 * process' memory; the views stay valid, and touching them reads the file again. */
MOXIE_API const moxie_weights *moxie_model_layer_weights(const moxie_model_layer *layer);

/* The configuration that DIR/config.json alone gives MoE layer `layer`; weights need not be there. How they are
 * quantized only tensors say for sure: here `format` does, a name of moxie_checkpoint_format_at(), NULL for weights of
 * the hidden states' type. Arrays of the routing (bias, table) are absent. `out` was set by its INIT macro.
 * Thread-safe. */
MOXIE_API moxie_status moxie_config_layer(const char *dir, int64_t layer, const char *format, moxie_layer_config *out,
                                          moxie_error *error);

/* Calls visit() for every tensor that holds routed experts of checkpoint layer `layer`, in the files' order, including
 * companions that no view needs. `tensor` views the file; `name` lives as long as the model. Non-zero from visit() ends
 * the call with MOXIE_ERR_TIMEOUT. A tensor that moxie_tensor cannot express is MOXIE_ERR_UNSUPPORTED. Thread-safe. */
typedef int (*moxie_tensor_fn)(void *user, const char *name, const moxie_tensor *tensor);
MOXIE_API moxie_status moxie_model_visit_experts(const moxie_model *model, int64_t layer, moxie_tensor_fn visit,
                                                 void *user, moxie_error *error);
/* Writes what the names of a layer's experts begin with into `buffer` of `size` bytes: "model.layers.3.mlp.experts.".
 * MOXIE_ERR_MEMORY when it is too small. Thread-safe. */
MOXIE_API moxie_status moxie_model_expert_prefix(const moxie_model *model, int64_t layer, char *buffer, size_t size,
                                                 moxie_error *error);

/* ------------------------------------------------------------------------------------------- */
/* safetensors                                                                                 */
/* ------------------------------------------------------------------------------------------- */

typedef struct moxie_tensor_file moxie_tensor_file;

/* Opens a safetensors file and checks every rule of the format. Its data is mapped, or read when `no_mmap` is set. What
 * moxie_model_open() says about mapped files holds here; moxie_tensor_file_find() and moxie_tensor_file_check_seal()
 * check the size again. Thread-safe. */
MOXIE_API moxie_status moxie_tensor_file_open(const char *path, int no_mmap, moxie_tensor_file **out,
                                              moxie_error *error);
/* One-thread-at-a-time. */
MOXIE_API void moxie_tensor_file_close(moxie_tensor_file *file);
/* Immutable. */
MOXIE_API int64_t moxie_tensor_file_count(const moxie_tensor_file *file);
/* Tensor i in the order of the header; MOXIE_ERR_ARGUMENT past the last. `name` and the data live as long as the file;
 * the data may be unaligned. Either result may be NULL. A tensor that moxie_tensor cannot express (dtype C64 or an FNUZ
 * float, more than MOXIE_MAX_RANK axes) has the dtype MOXIE_DTYPE_NONE. Immutable. */
MOXIE_API moxie_status moxie_tensor_file_at(const moxie_tensor_file *file, int64_t i, const char **name,
                                            moxie_tensor *out);
/* The tensor of that name. MOXIE_ERR_MISMATCH when there is none, MOXIE_ERR_UNSUPPORTED when moxie_tensor cannot
 * express it. Thread-safe. */
MOXIE_API moxie_status moxie_tensor_file_find(const moxie_tensor_file *file, const char *name, moxie_tensor *out,
                                              moxie_error *error);

/* Writes a safetensors file as moxie_file_write() does: the whole file or none. `metadata` holds n_metadata pairs, each
 * a key and then its value; it may be NULL when there are none. Thread-safe for different files. */
MOXIE_API moxie_status moxie_tensor_file_write(const char *path, const moxie_named_tensor *tensors, int64_t n_tensors,
                                               const char *const *metadata, int64_t n_metadata, moxie_error *error);

/* The value of a key of the file's metadata; NULL when there is no such key. It lives as long as the file. Immutable.
 */
MOXIE_API const char *moxie_tensor_file_metadata(const moxie_tensor_file *file, const char *key);
/* Drops the pages of a mapped file that hold these bytes from this process' memory. They stay valid: touching them
 * reads the file again. Thread-safe. */
MOXIE_API void moxie_tensor_file_release_pages(const moxie_tensor_file *file, const void *data, uint64_t bytes);

/* A sealed file is a safetensors file whose metadata holds a checksum of the whole file, "moxie.seal" (and
 * "moxie.pieces"). Its pieces can be written in any order. To other readers it is an ordinary safetensors file. */
typedef struct moxie_sealed_writer moxie_sealed_writer;
typedef struct moxie_sealed_tensor {
    const char *name;
    moxie_dtype dtype;
    int32_t rank;
    int64_t shape[MOXIE_MAX_RANK];
    int64_t pieces;       /* into how many equal parts its bytes are cut for moxie_sealed_writer_put(); at least 1 */
    uint32_t reserved[4]; /* zero */
} moxie_sealed_tensor;

/* Creates a temporary file beside `path`, as moxie_file_write() does, and reserves the disk space for all of it.
 * Tensors lie in the order given; `metadata` as for moxie_tensor_file_write. `tensors` and `metadata` are not used
 * after the call. Thread-safe for different files. */
MOXIE_API moxie_status moxie_sealed_writer_open(const char *path, const moxie_sealed_tensor *tensors, int64_t n_tensors,
                                                const char *const *metadata, int64_t n_metadata,
                                                moxie_sealed_writer **out, moxie_error *error);
/* Writes one piece and adds it to the checksum; `data` holds the tensor's bytes / pieces. Thread-safe for different
 * pieces. */
MOXIE_API moxie_status moxie_sealed_writer_put(moxie_sealed_writer *writer, int64_t tensor, int64_t piece,
                                               const void *data, moxie_error *error);
/* Checks that every piece was written, adds the seal, flushes to the disk and renames to `path`. Frees the writer in
 * any case; on failure no file is left. One-thread-at-a-time. */
MOXIE_API moxie_status moxie_sealed_writer_finish(moxie_sealed_writer *writer, moxie_error *error);
/* Removes the temporary file and frees the writer. NULL is fine. One-thread-at-a-time. */
MOXIE_API void moxie_sealed_writer_abandon(moxie_sealed_writer *writer);
/* Reads the whole file. MOXIE_ERR_MISMATCH when it has no seal, or differs from what was sealed. Thread-safe. */
MOXIE_API moxie_status moxie_tensor_file_check_seal(const moxie_tensor_file *file, moxie_error *error);

/* ------------------------------------------------------------------------------------------- */
/* Files                                                                                       */
/* ------------------------------------------------------------------------------------------- */

/* Reads a regular file of at most `limit` bytes. Directories, devices, pipes and larger files are rejected at once; the
 * call never waits for a writer. A zero byte follows the last byte. *data belongs to the caller: moxie_file_free().
 * MOXIE_ERR_IO, or MOXIE_ERR_FORMAT for a file that is too large. Thread-safe. */
MOXIE_API moxie_status moxie_file_read(const char *path, uint64_t limit, char **data, uint64_t *bytes,
                                       moxie_error *error);
/* NULL is fine. Thread-safe. */
MOXIE_API void moxie_file_free(char *data);
/* 1 when something has this name, even a symbolic link that leads nowhere or in a circle; else 0. Thread-safe. */
MOXIE_API int moxie_file_exists(const char *path);

/* Writes a file, whole or not at all: first as `path`.moxie.tmp, which is renamed when all of it is on the disk. A file
 * at `path` is replaced; a directory, device, pipe or symbolic link there is MOXIE_ERR_IO. The temporary file is locked
 * (flock). If its process has ended, the next writer of the same file removes it; if another process holds it, the call
 * waits for it for three seconds. Thread-safe for different files. */
MOXIE_API moxie_status moxie_file_write(const char *path, const void *data, uint64_t bytes, moxie_error *error);
/* Checks that moxie_file_write() could write `path` now: ask it before long work whose result goes there. Leaves
 * nothing behind. Thread-safe for different files. */
MOXIE_API moxie_status moxie_file_check_output(const char *path, moxie_error *error);
/* Opens the directory `path` and locks it against other processes (flock); close(*fd) unlocks it. Symbolic links are
 * not followed. `create`: makes the directory when it is absent; *created (may be NULL) says whether it did.
 * MOXIE_ERR_IO when `path` is something else, or another process holds the lock; the text names that process if it is
 * known. Thread-safe. */
MOXIE_API moxie_status moxie_directory_lock(const char *path, int create, int *fd, int *created, moxie_error *error);
/* Removes the temporary files and directories of everything that this process is writing. For a signal handler that
 * ends the process: async-signal-safe. Writes that are under way fail afterwards, and so does every later one. */
MOXIE_API void moxie_temporaries_remove(void);

/* ------------------------------------------------------------------------------------------- */
/* Synthetic checkpoints                                                                       */
/* ------------------------------------------------------------------------------------------- */

/* The sizes of a real model, for synthetic checkpoints and for planning. Strings are static. */
typedef struct moxie_preset_info {
    uint32_t struct_size;
    const char *name, *family;
    int64_t experts, top_k, hidden, intermediate, shared_intermediate, router_width, layers;
    const char *activation;
    int32_t n_formats; /* formats[0] is that of the main release */
    const char *const *formats;
    int32_t n_native;     /* the first n_native formats are those in which it was released */
    uint64_t layer_bytes; /* routed experts of one layer in formats[0] */
    /* general.architecture of its GGUF files, which the formats "gguf-..." make; NULL: llama.cpp has none. A model with
     * one may have what that architecture has no place for (step-3.7-flash): moxie_preset_config() says what. */
    const char *gguf_architecture;
} moxie_preset_info;
#define MOXIE_PRESET_INFO_INIT MOXIE_INIT(moxie_preset_info)

/* Preset i; returns 0 past the last, or when out->struct_size is wrong. Immutable. */
MOXIE_API int moxie_preset_at(int32_t i, moxie_preset_info *out);
/* A family of models whose checkpoints are read. Strings are static. */
typedef struct moxie_family_info {
    uint32_t struct_size;
    const char *name;               /* "deepseek-v3" */
    const char *const *model_types; /* those of config.json that it reads; n_model_types of them */
    int32_t n_model_types;
    const char *architecture; /* of the main release */
    const char *routing;      /* the name of its method, as in moxie_routing_by_name() */
    const char *activation;   /* as in moxie_activation_at(), unless config.json says otherwise */
} moxie_family_info;
#define MOXIE_FAMILY_INFO_INIT MOXIE_INIT(moxie_family_info)

/* Family i; returns 0 past the last, or when out->struct_size is wrong. Immutable. */
MOXIE_API int moxie_family_at(int32_t i, moxie_family_info *out);

/* How a checkpoint stores quantized matrices. Strings are static. */
typedef struct moxie_checkpoint_format_info {
    uint32_t struct_size;
    const char *name;         /* "mxfp4-gptoss" */
    const char *quant_method; /* of quantization_config; "" for none */
    const char *summary;      /* one line */
} moxie_checkpoint_format_info;
#define MOXIE_CHECKPOINT_FORMAT_INFO_INIT MOXIE_INIT(moxie_checkpoint_format_info)

/* How many numbers of a row share a block of `dtype`, a block type of GGUF files (moxie_dtype_name: "q4_k"), and the
 * bytes of the block, *bytes. 0 for other dtypes, and *bytes stays as it was; moxie_dtype_bits() has their size.
 * Immutable. */
MOXIE_API int32_t moxie_dtype_block(moxie_dtype dtype, int32_t *bytes);

/* Checkpoint format i; returns 0 past the last, or when out->struct_size is wrong. Immutable. */
MOXIE_API int moxie_checkpoint_format_info_at(int32_t i, moxie_checkpoint_format_info *out);
/* Name of checkpoint format i, for example "mxfp4-gptoss"; NULL past the last. Static. Any preset can be written in any
 * format; those named "gguf-..." make one GGUF file, and need an architecture of llama.cpp that computes what the
 * preset does, and rows of whole blocks. Immutable. */
MOXIE_API const char *moxie_checkpoint_format_at(int32_t i);

typedef struct moxie_synth_options {
    uint32_t struct_size;
    const char *format;           /* NULL: the preset's first */
    int64_t layers;               /* MoE layers to write; 0: all */
    int64_t experts;              /* 0: all; else at least top_k, and a multiple of the routing's groups */
    int64_t hidden, intermediate; /* 0: true sizes; for small tests only */
    uint64_t seed;
    uint64_t shard_bytes;                                                   /* 0: 5e9 */
    int (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes); /* non-zero cancels */
    void *progress_user;
} moxie_synth_options;
#define MOXIE_SYNTH_OPTIONS_INIT MOXIE_INIT(moxie_synth_options)

/* Writes a checkpoint with the real model's names, shapes, dtypes, config.json and quantization_config, and random
 * weights. `dir` must be absent or empty. Equal arguments give equal bytes on every machine. Until it is complete the
 * directory is called `dir`.moxie.tmp and locked: MOXIE_ERR_IO when another process is writing it; what an ended
 * process left is removed. On failure nothing is left behind. Thread-safe for different directories. */
MOXIE_API moxie_status moxie_synth_write(const char *preset, const char *dir, const moxie_synth_options *options,
                                         moxie_error *error);

/* The layer configuration of a preset in a format (NULL: its first), for planning without weights. The arrays that its
 * routing needs (bias, table) are absent. `out` was set by its INIT macro. Immutable. */
MOXIE_API moxie_status moxie_preset_config(const char *preset, const char *format, moxie_layer_config *out,
                                           moxie_error *error);

#ifdef __cplusplus
}
#endif

#endif /* MOXIE_CKPT_H */
