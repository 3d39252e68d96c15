/* SPDX-License-Identifier: Apache-2.0
 *
 * moxie_quantize.h - writes a checkpoint with its routed experts in another number format.
 *
 *     DIR in any format that is read  ->  OUT in any format of moxie_checkpoint_format_at()
 *
 * One expert at a time is dequantized, quantized by the rule of the format, and compared with what it was. All other
 * tensors are copied unchanged (docs/quantize.md). DIR may be a GGUF file, and a GGUF format makes one. The rules of
 * moxie.h about calls, threads and structs hold here too.
 */
#ifndef MOXIE_QUANTIZE_H
#define MOXIE_QUANTIZE_H

#include <moxie/moxie.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How the scale of a group is chosen. */
typedef enum moxie_quantize_scales {
    MOXIE_SCALES_PLAIN = 0,        /* by the group's largest magnitude, as the format's own tools do */
    MOXIE_SCALES_MSE = 1,          /* of several scales the one with the least sum of squared errors */
    MOXIE_SCALES_FOUR_OVER_SIX = 2 /* NVFP4: the better of largest code 6 and largest code 4 */
} moxie_quantize_scales;

typedef enum moxie_projection {
    MOXIE_PROJECTION_GATE = 0,
    MOXIE_PROJECTION_UP = 1,
    MOXIE_PROJECTION_DOWN = 2
} moxie_projection;

/* What quantization did to one matrix of one expert; w is a weight of the source, q the same in the result. */
typedef struct moxie_quantize_error {
    int64_t layer;                  /* number in the checkpoint's names */
    int32_t expert, projection;     /* moxie_projection */
    double squares, weight_squares; /* sum (q - w)^2, sum w^2: their quotient's root is the relative rms error */
    double worst;                   /* largest |q - w|, at: */
    int64_t worst_row, worst_col;
    int32_t exact;        /* 1: every q is w, as real numbers */
    uint32_t reserved[7]; /* zero */
} moxie_quantize_error;

typedef struct moxie_quantize_options {
    uint32_t struct_size;
    const char *format;   /* a name of moxie_checkpoint_format_at() */
    int32_t scales;       /* moxie_quantize_scales */
    int32_t allow_unread; /* as in moxie_model_options */
    /* Largest magnitude of hidden states, and of W2's activations, for formats with static scales of activations. 0:
     * that of the source's own static scales; if it has none, such a format is refused. Formats without static scales
     * refuse them. */
    float input_amax13, input_amax2;
    const moxie_executor *executor; /* NULL: a pool of all processors */
    /* Called on the caller's thread, with bytes of the source. Non-zero stops: MOXIE_ERR_TIMEOUT. */
    int (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
    void *progress_user;
    /* Called for every matrix, by layer, expert and projection, on the caller's thread. */
    void (*error)(void *user, const moxie_quantize_error *error);
    void *error_user;
    int32_t allow_mixed; /* 1: go on when summary.other_quantized is not 0 */
    /* A file of llama.cpp's imatrix, old or GGUF. Its means of squares weight the errors, MSE's too, of each column
     * of each expert. NULL: all weigh the same. */
    const char *imatrix;
} moxie_quantize_options;
#define MOXIE_QUANTIZE_OPTIONS_INIT MOXIE_INIT(moxie_quantize_options)

typedef struct moxie_quantize_summary {
    uint32_t struct_size;
    int64_t layers, resumed_layers;      /* resumed: an earlier run had finished them */
    uint64_t source_bytes, expert_bytes; /* of the routed experts, before and after */
    uint64_t copied_bytes;               /* of all other tensors */
    /* Other modules of the source that are quantized and copied, and that the new quantization_config does not
     * describe. Engines cannot load such a directory, so it is refused without allow_mixed. 0 in most checkpoints. */
    int64_t other_quantized;
    /* Tensors of the source that are not written, since how the result would have them is not known: attention and
     * others, from directories to GGUF files and back. */
    int64_t left_out;
    /* From directories to GGUF files: entries of the vocabulary that is written; if 0, why there is none (static). */
    int64_t tokens;
    const char *no_tokenizer;
} moxie_quantize_summary;
#define MOXIE_QUANTIZE_SUMMARY_INIT MOXIE_INIT(moxie_quantize_summary)

/* Writes directory `out`, which must be absent or empty. Until it is complete it is called `out`.partial. If the call
 * fails or its process ends, layers that were finished stay there, and the same call goes on from them; the result has
 * the same bytes, whatever the number of threads. Memory: one expert in f32 a worker.
 * MOXIE_ERR_ARGUMENT when the source is in that format already, or the format has no place for what is asked;
 * MOXIE_ERR_UNSUPPORTED for other quantized modules (other_quantized). `summary`
 * was set by its INIT macro; it may be NULL. Thread-safe for different directories. */
MOXIE_API moxie_status moxie_quantize(const char *dir, const char *out, const moxie_quantize_options *options,
                                      moxie_quantize_summary *summary, moxie_error *error);

/* Refuses what moxie_quantize() would refuse of the format, the options, the source and `out`, before it reads an
 * importance matrix. options->imatrix is not opened: not NULL, it says that there will be one. Thread-safe. */
MOXIE_API moxie_status moxie_quantize_check(const char *dir, const char *out, const moxie_quantize_options *options,
                                            moxie_error *error);

/* Runs the plan, and adds the squares of what the products of each expert read, for the importances of columns:
 *     squares13 [E,H]    hidden states of the tokens that chose expert e, times their weights where those multiply the
 *                        input
 *     squares2  [E,I]    W2's activations, before they are rounded or quantized
 *     tokens    [E]      how many chose it
 * Sums are made token after token, so they depend neither on threads nor on batches. MOXIE_ERR_UNSUPPORTED for plans of
 * the cuda back end and for plans with options.comm. One-thread-at-a-time per plan. */
MOXIE_API moxie_status moxie_plan_squares(moxie_plan *plan, const moxie_run_args *args, double *squares13,
                                          double *squares2, int64_t *tokens, moxie_error *error);

/* Makes blocks of a GGUF type from finite weights [rows, cols], by plain scales: `out` gets `bytes` bytes, those of
 * moxie_dtype_block() for each block, row after row, and *grid views them. `grid` may be NULL. MOXIE_ERR_UNSUPPORTED
 * for types that are not written. Thread-safe. */
MOXIE_API moxie_status moxie_block_encode(moxie_dtype dtype, const float *weights, int64_t rows, int64_t cols,
                                          void *out, uint64_t bytes, moxie_grid *grid, moxie_error *error);

#ifdef __cplusplus
}
#endif

#endif /* MOXIE_QUANTIZE_H */
