/* SPDX-License-Identifier: Apache-2.0
 *
 * moxie.h - quantized fused mixture-of-experts layers: executors, layers, plans, runs, checks. It includes
 * moxie_types.h (errors, formats, tensors, activations) and moxie_config.h (routing, configuration and weights).
 *
 * The other headers:
 *
 *     moxie_ckpt.h       checkpoints, safetensors        moxie_parallel.h   ranks: who has which experts
 *     moxie_quantize.h   checkpoints in another format   moxie_comm.h       ranks: how they talk
 *     moxie_lint.h       what is wrong in a checkpoint   moxie_adapters.h   LoRA
 *     moxie_prepare.h    weights for other engines       moxie_store.h      expert files, stores
 *     moxie_scheme.h     vLLM's quantization schemes     moxie_trace.h      routing traces
 *     moxie_cuda.h       NVIDIA GPUs                     moxie_topology.h   cores and nodes of memory
 *     moxie_version.h    version numbers
 *
 *     y[t] = sum_{j<K} w[t,j] * ( W2[e] . act( W13[e] . x[t] + b13[e] ) + b2[e] ),   e = ids[t,j]
 *
 * Letters: T tokens, E experts, K chosen experts per token, H hidden size, I intermediate size per expert, G
 * quantization group. W13 is gate stacked on up; the gate gets the non-linearity. Shapes are written [rows, columns],
 * rows are contiguous unless a stride says otherwise. Sizes count elements unless the name ends in `bytes`.
 *
 * From a checkpoint directory to an answer:
 *
 *     moxie_model_open -> moxie_model_load_layer -> moxie_layer_create -> moxie_layer_prepare
 *                      -> moxie_plan_create -> moxie_plan_run
 *
 * Calls. Every call that can fail returns moxie_status. Results come by out-parameter and are untouched on failure. A
 * `moxie_error *` may be NULL; it is filled on failure and untouched on success. Pointers must not be NULL unless the
 * declaration says so; most calls answer NULL with MOXIE_ERR_ARGUMENT. Destroy functions accept NULL. Nothing prints,
 * aborts or exits.
 *
 * Threads. Every declaration names its rule:
 *     immutable               changes nothing: call it from any thread at any time, as long as its arguments live
 *     thread-safe             changes something, and guards that itself
 *     one-thread-at-a-time    no other thread may use the object meanwhile; other objects do not matter
 *
 * Structs grow in three ways, so that a program built with an older header runs on a newer library:
 *   - A struct with `struct_size`, which you fill or which a call fills for you: set it by its MOXIE_..._INIT macro.
 *     Zero in any other field means its default. Fields are only appended. A size at which no field ends is
 *     MOXIE_ERR_ARGUMENT; so is a field behind the library's last one that is not zero.
 *   - A struct that lies inside another one or in an array keeps its size. Its `reserved` words turn into fields later.
 *     They must be zero until then, else MOXIE_ERR_ARGUMENT names the struct; in results they are zero.
 *   - A struct that an accessor returns by const pointer (moxie_plan_step_at, moxie_check_report_stage_at): fields are
 *     appended. Read it through the pointer; another one does not begin sizeof bytes behind it.
 */
#ifndef MOXIE_H
#define MOXIE_H

#include <moxie/moxie_config.h>
#include <moxie/moxie_version.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------- */
/* Executor                                                                                    */
/* ------------------------------------------------------------------------------------------- */

typedef void (*moxie_task_fn)(void *context, int64_t task, int32_t worker);

/* A parallel loop. run() calls fn(context, i, worker) once for each i in [0, tasks), with worker in [0, workers), and
 * returns when all calls have returned. No worker runs two tasks at a time. A host engine can pass its own executor;
 * `self` is the first argument of run() and the caller's.
 *
 * Plans, preparations and checks may share an executor. If several threads use them at the same time, they call run()
 * at the same time. The pool of moxie_executor_create() then runs one loop after the other. The caller's own executor
 * must allow this too, or its users take turns. A task may not start a loop on the executor that runs it. */
typedef struct moxie_executor {
    void *self;
    int32_t workers;
    void (*run)(void *self, int64_t tasks, moxie_task_fn fn, void *context);
    uint32_t reserved[6]; /* zero */
} moxie_executor;

/* Makes a thread pool of `threads` workers, the caller's thread included; 0 means one per processor that this
 * process may use, 1 starts no thread. MOXIE_ERR_ARGUMENT for more than 64 per processor, or 4096. MOXIE_ERR_MEMORY
 * says how many threads the system would start when they are too few. The call tries this first; if another process
 * uses up the limit in between, the call may wait for ever. A pool that is used in a forked child starts its threads
 * again there, in its first loop, which must be alone. If they do not start, its loops run on the calling thread.
 * Loops on the pool are thread-safe, one after the other. Thread-safe. */
MOXIE_API moxie_status moxie_executor_create(int32_t threads, moxie_executor **out, moxie_error *error);
/* No loop may be running on it. One-thread-at-a-time. */
MOXIE_API void moxie_executor_destroy(moxie_executor *executor);

/* ------------------------------------------------------------------------------------------- */
/* Layer: slots that hold prepared experts                                                     */
/* ------------------------------------------------------------------------------------------- */

typedef enum moxie_backend {
    MOXIE_BACKEND_AUTO = 0,
    MOXIE_BACKEND_REF = 1,
    MOXIE_BACKEND_CPU = 2,
    MOXIE_BACKEND_CUDA = 3
} moxie_backend;
/* Which kernels a plan may choose from.
 *     EXACT   those that round nothing beyond the numeric contract: classes EXACT and W16
 *     FAST    also class TOL, which round more, each within a stated bound (docs/accuracy.md), where they are faster
 * In both modes a token's output bits depend only on its own hidden state, ids and weights, and on the plan. They do
 * not depend on T, on other tokens, on threads or on placement. The plan names the two exceptions: a scheme that itself
 * takes one activation scale over the whole batch; experts of a store that the CPU computes beside a GPU
 * (compute_where_it_lies, moxie_store.h). A plan may use its max_tokens to choose kernels; a run chooses nothing. */
typedef enum moxie_mode { MOXIE_MODE_EXACT = 0, MOXIE_MODE_FAST = 1 } moxie_mode;

typedef struct moxie_layer moxie_layer;
typedef struct moxie_plan moxie_plan;

/* Called between experts while a layer is prepared, on the caller's thread; `done` of `total` experts are packed.
 * Non-zero cancels: the call returns MOXIE_ERR_TIMEOUT. */
typedef int (*moxie_progress_fn)(void *user, int64_t done, int64_t total);

/* Whose tokens a run with a comm has. Rank r of R.
 *     SHARDED      each rank has tokens of its own, as many as it likes; it gets their outputs
 *     REPLICATED   all ranks have the same T tokens, ids and weights; each gets all outputs
 *     SCATTERED    the same, but rank r gets only the outputs of tokens [r T / R, (r+1) T / R), at row 0 of `output`;
 *                  ids_out, weights_out and logits_out have all T rows */
typedef enum moxie_token_layout {
    MOXIE_TOKENS_SHARDED = 0,
    MOXIE_TOKENS_REPLICATED = 1,
    MOXIE_TOKENS_SCATTERED = 2
} moxie_token_layout;

/* What a run with a comm does when another rank is dead, has left, or is late past the deadline.
 *     NONE         it fails with MOXIE_ERR_TIMEOUT, and the comm is broken
 *     KEEP         it ends with MOXIE_OK without the results of that rank: a choice whose result is lost counts zero.
 *                  moxie_plan_losses (moxie_comm.h) counts these choices
 *     RENORMALIZE  the same, but in a token with lost choices the others' weights w become w s / k; s is the sum of
 *                  the weights of all its choices, k that of the others, both in slot order in fp32; w where k is 0
 * Every rank decides by what came before its deadline ended, so ranks may lose different choices. A rank
 * counts as lost from the chunk of the batch on in which it is missed, and in later runs too, until plans are made with
 * a new comm. Where tokens are SHARDED, experts with a replica on another rank are computed there. Tokens of a lost
 * rank are not computed; where tokens are REPLICATED, their outputs are zero. A scale of the whole batch covers the
 * tokens of the ranks that are left. A transport without mask() (moxie_comm.h) loses all other ranks at once.
 * All ranks must choose the same. */
typedef enum moxie_degraded {
    MOXIE_DEGRADED_NONE = 0,
    MOXIE_DEGRADED_KEEP = 1,
    MOXIE_DEGRADED_RENORMALIZE = 2
} moxie_degraded;

/* Wherever a function takes `moxie_options *`, NULL means all defaults. */
typedef struct moxie_options {
    uint32_t struct_size;
    int32_t backend; /* moxie_backend */
    int32_t mode;    /* moxie_mode */
    /* The largest instruction set to use; NULL: what this machine has. "scalar", "avx2", "avx512", "amx" on x86-64,
     * "scalar", "neon" on 64-bit ARM; any other name is MOXIE_ERR_ARGUMENT. */
    const char *isa;
    int64_t max_tokens; /* the largest T of a run; 0 means 4096 */
    /* NULL: this thread alone. A plan copies the struct; `self` must outlive the plan. */
    const moxie_executor *executor;
    moxie_progress_fn progress; /* NULL: none */
    void *progress_user;
    /* For the cuda back end (moxie_cuda.h). The device: "0" (the default), "1", ...; moxie_plan_explain also accepts
     * "sm_80", "sm_86", "sm_89", "sm_90", "sm_100" and "sm_120", which need no GPU, and for the cpu back end a name of
     * `isa`: the usual processor of that class, which this machine need not be. "0:sm80" runs the kernels of that
     * generation only. Then where device memory comes from; NULL: the CUDA runtime. */
    const char *device;
    const struct moxie_cuda_allocator *device_memory;
    /* The ep_size * tp_size ranks that compute a layer together (moxie_comm.h); it must outlive the plans. NULL: this
     * rank alone, whose output is its experts' share. moxie_plan_create and moxie_plan_run are collective: all ranks
     * make the same calls in the same order, with one max_tokens. Plans may share a comm; they run one at a time. */
    struct moxie_comm *comm;
    int32_t token_layout; /* moxie_token_layout; read with a comm */
    /* The largest rank of the LoRA adapters that runs may name (moxie_adapters.h), up to MOXIE_MAX_ADAPTER_RANK; 0:
     * runs have none. The workspace grows with it. */
    int32_t max_adapter_rank;
    /* With a comm: the most tokens that one rank owns in a run (of SHARDED tokens its own, else its part of them). Then
     * ranks exchange no counts: every message has room for so many, and there is one exchange each way. For few tokens.
     * A rank with more fails with MOXIE_ERR_ARGUMENT, the others with MOXIE_ERR_MISMATCH. The same on all ranks.
     * 0: counts, and batches of any size. With `degraded` the host takes part, and no graph can hold the run. */
    int64_t exchange_capacity;
    /* moxie_degraded; read with a comm. MOXIE_ERR_UNSUPPORTED with tp_size > 1, where a group of ranks cannot compute
     * without one of them, and RENORMALIZE with weights on the input (routing.on_input). */
    int32_t degraded;
    /* Read by moxie_layer_create: so many slots more than config.slot_map says, for experts that a moxie_mover brings
     * (moxie_comm.h). The same on all ranks. 0: the layer's experts stay. */
    int32_t spare_slots;
    /* With a comm and no exchange_capacity: the most tokens of one rank that are sent and computed at a time. Every
     * such chunk reads the experts' weights again, and the workspace has room for all choices of a chunk on one rank.
     * max_tokens are cut into as few as that allows, all alike. On the host the rows of one travel while another is
     * computed: over a slow network a smaller number may be faster. 0: what buffers of 256 MiB hold; over NCCL a 16th
     * of a GPU's memory, 1 to 4 GiB, beside what products need. The smallest of all ranks counts. A layer whose
     * activations have one scale for the whole batch is never cut. */
    int64_t exchange_chunk;
    /* With a comm over NCCL and backend cuda. 1: the exchanges of a run are on the caller's stream. 2: they are on a
     * stream of the plan, so that those of one chunk run beside the products of another, and the shared expert beside
     * the return; max_tokens are cut into at least two chunks of 256 tokens of a rank or more, unless exchange_chunk
     * says otherwise. A run begins after what is on the caller's stream, and ends on it; a graph that captures it has
     * both streams. The outputs are the same. MOXIE_ERR_UNSUPPORTED where rows do not travel from device to device,
     * with tp_size > 1, and where activations have one scale for the whole batch. 0: chosen; at present 1, which
     * was faster at 512 tokens a rank on four H100s and about as fast at 4096. */
    int64_t exchange_streams;
    /* Read by moxie_plan_create for a plan on a GPU: 1: calls of moxie_cuda_plan_run that equal the call before are
     * launched as one graph (moxie_cuda.h); 2: every call launches its kernels one by one. The outputs are the same.
     * 0: chosen; at present 1. */
    int64_t call_graphs;
} moxie_options;
#define MOXIE_OPTIONS_INIT MOXIE_INIT(moxie_options)

/* Makes a layer without weights: chooses the kernels, hence the weight layout, and allocates one slot per local expert.
 * Copies `config` and every array that it points to. Thread-safe. */
MOXIE_API moxie_status moxie_layer_create(const moxie_layer_config *config, const moxie_options *options,
                                          moxie_layer **out, moxie_error *error);
/* After its plans. One-thread-at-a-time. */
MOXIE_API void moxie_layer_destroy(moxie_layer *layer);

/* Packs every local expert into its slot, as many at a time as options->executor has workers; the workers are the first
 * to touch the slots' memory. On failure the layer holds no expert. `weights` may be freed afterwards. Of `options`
 * only executor and progress are used. One-thread-at-a-time. */
MOXIE_API moxie_status moxie_layer_prepare(moxie_layer *layer, const moxie_weights *weights,
                                           const moxie_options *options, moxie_error *error);

/* Replaces one local expert, with its static scales; `expert` is its global index. On failure the old one stays;
 * only where a copy to a device fails is its record undefined. Plans stay valid; none of them may be running.
 * One-thread-at-a-time. */
MOXIE_API moxie_status moxie_layer_update_expert(moxie_layer *layer, int64_t expert, const moxie_expert *weights,
                                                 moxie_error *error);

/* Computes the checksum of every record again; MOXIE_ERR_MISMATCH names the first damaged expert. Immutable. */
MOXIE_API moxie_status moxie_layer_verify(const moxie_layer *layer, moxie_error *error);

/* The record of an expert (global index), for example to send it elsewhere; *data is NULL and *bytes 0 if the expert is
 * not local. The record is the layer's and valid until the expert is replaced. Immutable. */
MOXIE_API moxie_status moxie_layer_record(const moxie_layer *layer, int64_t expert, const void **data, uint64_t *bytes,
                                          moxie_error *error);
/* Bytes of all records, router and shared expert included. Immutable. */
MOXIE_API uint64_t moxie_layer_bytes(const moxie_layer *layer);

/* ------------------------------------------------------------------------------------------- */
/* Plan and run                                                                                */
/* ------------------------------------------------------------------------------------------- */

/* Chooses a kernel for every step, one that reads the layout of the layer's records. `layer` must outlive the plan, and
 * be prepared before its first run. Plans of one layer may run at the same time, each with its own workspace; a plan
 * runs one-thread-at-a-time. This call: thread-safe. */
MOXIE_API moxie_status moxie_plan_create(const moxie_layer *layer, const moxie_options *options, moxie_plan **out,
                                         moxie_error *error);
/* One-thread-at-a-time. */
MOXIE_API void moxie_plan_destroy(moxie_plan *plan);

/* Bytes that a run needs at `workspace`: a multiple of 64, as aligned_alloc(64, bytes) wants it; a multiple of 256 for
 * a plan of the cuda back end. It depends on the plan only. Immutable. */
MOXIE_API uint64_t moxie_plan_workspace_bytes(const moxie_plan *plan);

/* One step of a plan, or one kernel that was rejected for the step that follows. The struct and its strings live as
 * long as the plan. */
typedef struct moxie_plan_step {
    const char *family; /* "topk", "expert_gemm", ... */
    const char *role;   /* "w13", "w2", "shared w13", "router" or "" */
    const char *kernel; /* its name */
    const char *isa;
    const char *layout;    /* layout of the weights that it reads, or "" */
    const char *exactness; /* its class: "EXACT", "W16", "TOL" */
    int32_t chosen;        /* 1: this kernel runs; 0: it was rejected */
    const char *reason;    /* rejected: the limit that failed; chosen: "" or a remark on its results */
    const char *remedy;    /* rejected: the smallest change with which it would be accepted, or "" */
} moxie_plan_step;

/* How many there are. Immutable. */
MOXIE_API int32_t moxie_plan_step_count(const moxie_plan *plan);
/* Step `index`, in the order they run; before each step come the better kernels that were rejected for it. NULL past
 * the last. Immutable. */
MOXIE_API const moxie_plan_step *moxie_plan_step_at(const moxie_plan *plan, int32_t index);

/* Where the time of a plan's runs went: seconds of one worker in one phase, over all runs that ended well since the
 * plan was made. The phases of a worker add up to the time of the runs. */
typedef struct moxie_plan_phase {
    uint32_t struct_size;
    const char *name; /* "route", "permute", "gather", "w13", "activation", "w2", "combine", "exchange", "wait", "idle",
                       * "dispatch", "return"; static */
    double seconds;
    uint64_t sent_bytes; /* "exchange" of worker 0: bytes to other ranks; else 0 */
} moxie_plan_phase;
#define MOXIE_PLAN_PHASE_INIT MOXIE_INIT(moxie_plan_phase)

/* Fills `out` with phase `index`, counted from 0, of worker `worker` of the plan's executor. Returns 0 behind the last
 * phase or worker, or when `plan` or `out` is NULL.
 *
 * Worker 0 also times the stages that are not fused, whoever works on them; the other workers are "idle" then. Where
 * both products are fused, "w13" includes the activation. "exchange" is work on rows for and from other ranks, "wait"
 * the time in which nothing came from them. On a device the times are of enqueueing; but after moxie_cuda_time_runs()
 * of a plan with a comm they are a run's, and "dispatch" and "return" are apart. A call that launches a graph is in
 * "route". Not while the plan runs. */
MOXIE_API int moxie_plan_phase_at(const moxie_plan *plan, int32_t worker, int32_t index, moxie_plan_phase *out);

/* The plan that a configuration would get. It needs no weights and no routing table, and cannot run. Thread-safe. */
MOXIE_API moxie_status moxie_plan_explain(const moxie_layer_config *config, const moxie_options *options,
                                          moxie_plan **out, moxie_error *error);

/* The same for a layer with these weights. Group indices are read: columns in act order may need other layouts and
 * kernels. Only for such columns are views checked, and scales and zero points read. Thread-safe. */
MOXIE_API moxie_status moxie_plan_explain_weights(const moxie_layer_config *config, const moxie_weights *weights,
                                                  const moxie_options *options, moxie_plan **out, moxie_error *error);

/* What a run reads and writes. Rows are contiguous. Pointers are host memory, for moxie_cuda_plan_run device memory.
 * The experts are given by `ids` and `weights`, else chosen from `logits`, else from the logits of the layer's own
 * router. */
typedef struct moxie_run_args {
    uint32_t struct_size;
    int64_t tokens;            /* T, 0 allowed */
    const void *hidden;        /* [T,H], config.dtype */
    const void *router_hidden; /* [T,router_width], config.dtype; NULL: hidden, when the widths agree */
    const void *logits;        /* [T,E] or NULL */
    moxie_dtype logits_dtype;  /* F32, BF16 or F16; 0 means F32 */
    const int32_t *token_ids;  /* [T] for table routing */
    const int32_t *ids;        /* [T,K] or NULL; an id below 0, or not below E (with zero experts E + Z), is skipped */
    const float *weights;      /* [T,K] */
    void *output;              /* [T,H], config.dtype; may not overlap an input */
    int32_t *ids_out;          /* [T,K] or NULL */
    float *weights_out;        /* [T,K] or NULL */
    float *logits_out;         /* [T,E] or NULL; written when the layer's router runs or logits are given */
    void *workspace;           /* of moxie_plan_workspace_bytes, aligned to 64 bytes; its content does not matter */
    uint64_t workspace_bytes;
    /* [T] or NULL: a token whose byte is not 0 is padding. No expert is chosen for it: its ids are -1, its weights 0,
     * so its output is the shared expert's alone, or 0. Its row of logits_out is computed. Other tokens get the bits
     * that they get without the mark, save where one activation scale covers the whole batch. With a callback the
     * marks take effect after it. Read where experts are chosen; beside `ids`, moxie_plan_run answers
     * MOXIE_ERR_ARGUMENT. */
    const uint8_t *padding;
    /* [T] or NULL: routing.bias_alt is the bias of a token whose byte is not 0, routing.bias that of the others. With
     * MOXIE_SELECT_TABLE such a token chooses the K largest keys, and its token id is not read. NULL: no such token.
     * Read where experts are chosen; an error without bias_alt, and beside `ids` as with `padding`. */
    const uint8_t *bias_choice;
    /* LoRA adapters of the plan's layer, and the adapter of each token, [T]; -1: none. A disabled adapter is none, too.
     * Both NULL: no token has one. Read where experts are computed; a plan needs max_adapter_rank. */
    const struct moxie_adapters *adapters;
    const int32_t *adapter_ids;
} moxie_run_args;
#define MOXIE_RUN_ARGS_INIT MOXIE_INIT(moxie_run_args)

/* Runs the whole layer: router, experts, combine. It allocates nothing, except for a plan of the cuda back end: there
 * this call and the next three allocate device and host memory in every run, for what they copy. moxie_cuda_plan_run
 * allocates nothing. One-thread-at-a-time per plan. */
MOXIE_API moxie_status moxie_plan_run(moxie_plan *plan, const moxie_run_args *args, moxie_error *error);

/* The same in three parts, for engines that move tokens between them. Each is one-thread-at-a-time per plan.
 *     route      logits (or the router's) -> ids_out, weights_out
 *     experts    hidden, ids, weights -> rows [T,K,H] f32: the result of each choice, normed (expert_norm) but not yet
 *                weighted; 0 if skipped, and for zero experts
 *     combine    rows [T,K,H] f32, ids, weights -> output, without the shared expert; with identity experts also
 *                hidden, and their part is in the output */
MOXIE_API moxie_status moxie_plan_route(moxie_plan *plan, const moxie_run_args *args, moxie_error *error);
MOXIE_API moxie_status moxie_plan_experts(moxie_plan *plan, const moxie_run_args *args, float *rows,
                                          moxie_error *error);
MOXIE_API moxie_status moxie_plan_combine(moxie_plan *plan, const moxie_run_args *args, const float *rows,
                                          moxie_error *error);

/* ------------------------------------------------------------------------------------------- */
/* Checking a plan against the oracle                                                          */
/* ------------------------------------------------------------------------------------------- */

/* One stage of a run beside the oracle. Its worst element is the one with the largest |got - want| / bound. The root
 * mean squares are taken over all finite elements. The struct lives as long as its report; `stage` is static. */
typedef struct moxie_stage_report {
    const char *stage;  /* "router norm", "router", "topk", "permute", "quant13", "gemm13", "glu", "quant2", "gemm2",
                         * "expert norm", "combine"; of the shared expert "shared quant13", ..., "shared gemm2",
                         * "shared gate"; of a layer of a store "store": a run through it has the same codes */
    int64_t elements;   /* compared */
    int64_t beyond;     /* of these, outside the bound */
    double worst_ratio; /* <= 1 passes; infinity where a wrong element has no distance (codes, ids) */
    double got, want, bound;                           /* of the worst element */
    int64_t token, slot, expert, column, column_block; /* where it is; -1 where meaningless; blocks of 32 columns */
    double rms_error, rms_want, rms_bound;             /* root mean square of got - want, of want, of bound */
} moxie_stage_report;

typedef struct moxie_check_report moxie_check_report;

/* Runs `plan` on `args` and compares every element of every stage with the oracle: double precision, from the inputs
 * that the stage's kernel had, straight from the checkpoint views in `weights` (never from packed records). MOXIE_OK
 * means that it ran; moxie_check_report_worst() says whether it is right. It is slow, and allocates room for every
 * stage. MOXIE_ERR_UNSUPPORTED for a plan with options.comm (docs/ranks.md says why). One-thread-at-a-time per plan. */
MOXIE_API moxie_status moxie_plan_check(moxie_plan *plan, const moxie_weights *weights, const moxie_run_args *args,
                                        moxie_check_report **out, moxie_error *error);
/* The largest worst_ratio of all stages: up to 1 every element is within its bound. Immutable. */
MOXIE_API double moxie_check_report_worst(const moxie_check_report *report);
/* How many stages were compared. Immutable. */
MOXIE_API int32_t moxie_check_report_stage_count(const moxie_check_report *report);
/* Stage `index`, in the order they ran; NULL past the last. Immutable. */
MOXIE_API const moxie_stage_report *moxie_check_report_stage_at(const moxie_check_report *report, int32_t index);
/* One-thread-at-a-time. */
MOXIE_API void moxie_check_report_destroy(moxie_check_report *report);

/* Where two sets of weights of one configuration first differ, and how often. Strings are static. */
typedef struct moxie_weights_difference {
    uint32_t struct_size;
    int64_t expert;         /* -1: equal, or with `projection` not empty a part outside the experts */
    const char *projection; /* "gate", "up", "down", "shared gate", ..., "shared expert gate", "router", "router norm",
                             * "expert norm"; "": equal */
    const char *part;       /* "codes", "scale", "zero", "global", "bias", "group index", "input scale" */
    int64_t row, column;    /* of the part: codes by element, scale and zero by group */
    int64_t row_block, column_block; /* in quantization groups */
    int64_t count;                   /* elements that differ, over all experts; 0: the weights are equal */
    int64_t experts;                 /* experts that differ */
} moxie_weights_difference;
#define MOXIE_WEIGHTS_DIFFERENCE_INIT MOXIE_INIT(moxie_weights_difference)
/* Compares values and codes; how they lie in memory does not matter. It compares all experts, whatever the rank.
 * Immutable. */
MOXIE_API moxie_status moxie_weights_compare(const moxie_layer_config *config, const moxie_weights *a,
                                             const moxie_weights *b, moxie_weights_difference *out, moxie_error *error);

/* ------------------------------------------------------------------------------------------- */
/* The machine                                                                                 */
/* ------------------------------------------------------------------------------------------- */

typedef struct moxie_machine {
    uint32_t struct_size;
    int32_t processors;      /* how many this process may use */
    char cpu[64];            /* brand string */
    const char *isa_found;   /* the largest instruction set of processor and system: "scalar", "neon", "avx2", "avx512",
                              * "amx". Static, as the other two */
    const char *isa_allowed; /* the same under MOXIE_MAX_ISA */
    char features[512];      /* names of the features found, with a space between two */
    const char *amx;         /* "absent"; "disabled": the system does not save tiles; "refused": the system denied this
                              * process the use of them; "permitted" */
} moxie_machine;
#define MOXIE_MACHINE_INIT MOXIE_INIT(moxie_machine)
/* The environment variable MOXIE_MAX_ISA is read once per process. When it names no instruction set of this
 * architecture, this call and every other one that chooses kernels fails with MOXIE_ERR_ARGUMENT. Thread-safe. */
MOXIE_API moxie_status moxie_machine_info(moxie_machine *out, moxie_error *error);

/* One kernel of the library. Strings are static; they mean what those of moxie_plan_step mean. */
typedef struct moxie_kernel_info {
    uint32_t struct_size;
    int32_t runnable; /* on this machine, under MOXIE_MAX_ISA */
    const char *family, *name, *isa, *layout, *exactness;
} moxie_kernel_info;
#define MOXIE_KERNEL_INFO_INIT MOXIE_INIT(moxie_kernel_info)
/* CPU kernel `index`; returns 0 past the last, or when out->struct_size is wrong. `out` may be NULL. Immutable. */
MOXIE_API int moxie_kernel_at(int32_t index, moxie_kernel_info *out);

/* ------------------------------------------------------------------------------------------- */
/* Limits                                                                                      */
/* ------------------------------------------------------------------------------------------- */

/* The measured limits of the machine, all workers of an executor together. GB and TFLOP are powers of ten. They give
 * the least time that a layer can take: max(weight bytes / read_gb_s, operations / bf16_tflop_s). The `how` strings
 * name the probe that was best; they are static. */
typedef struct moxie_limits {
    uint32_t struct_size;
    int32_t workers;
    const char *isa;      /* instruction set of the probes: the machine's, under MOXIE_MAX_ISA and `isa_cap` */
    double read_gb_s;     /* reading from memory, every byte once, pages of 2 MB */
    double copy_gb_s;     /* bytes copied from memory to memory */
    double l2_read_gb_s;  /* reading what fits in each core's L2 */
    double f32_tflop_s;   /* f32 multiply-adds, two operations each, registers only */
    double bf16_tflop_s;  /* bf16 products added in f32, likewise; f32_tflop_s where nothing is faster */
    double int8_top_s;    /* int8 products added in int32, likewise; 0 when there is no instruction for it */
    uint64_t l2_bytes;    /* of one core */
    uint64_t cache_bytes; /* of the last level, all its instances together, as the system reports them */
    const char *read_how, *copy_how, *l2_read_how, *f32_how, *bf16_how, *int8_how;
    int32_t disturbed;  /* how many figures are rough, because other work kept disturbing the workers */
    double fp8_tflop_s; /* FP8 products added in f32; 0 when there is no instruction for it */
    const char *fp8_how;
} moxie_limits;
#define MOXIE_LIMITS_INIT MOXIE_INIT(moxie_limits)

/* Measures the limits in about a second. Meanwhile it needs 1 GB of memory, or twice the caches if that is more;
 * without it the call fails with MOXIE_ERR_MEMORY. Other work on the machine lowers the figures, so measure right
 * before and after what you compare with them. `executor` NULL: one thread. `isa_cap`: as `isa` of moxie_options.
 * One-thread-at-a-time per executor. */
MOXIE_API moxie_status moxie_measure_limits(const moxie_executor *executor, const char *isa_cap, moxie_limits *out,
                                            moxie_error *error);

#ifdef __cplusplus
}
#endif

#endif /* MOXIE_H */
