/* SPDX-License-Identifier: Apache-2.0
 *
 * moxie_cuda.h - layers on NVIDIA GPUs: what was found, device memory from the caller, runs on the caller's stream.
 *
 * libmoxie does not link CUDA. For MOXIE_BACKEND_CUDA it opens libmoxie_cuda.so: the file that the environment variable
 * MOXIE_CUDA_LIBRARY names, else the one beside libmoxie, else one on the loader's path. A set-user-ID program does not
 * read the variable. Without the file or a driver everything else works, and these functions say what is missing. GPUs
 * of compute capability 8.0 and later are used.
 *
 *     options.backend = MOXIE_BACKEND_CUDA   -> moxie_layer_create, moxie_layer_prepare: experts go to device memory
 *                                               one after the other through pinned buffers, and are packed there
 *                                            -> moxie_plan_create
 *     moxie_cuda_plan_run(plan, args, stream)   device pointers; enqueues and returns; a graph can capture it
 *     moxie_cuda_plan_capture(plans, args, n, &graph)   such a graph, ready to launch
 *     moxie_plan_run(plan, args)                host pointers; allocates device memory, copies in, runs, copies out,
 *                                               waits: for tools and tests
 *
 * `stream` is a cudaStream_t as a void pointer, so this header needs no CUDA header; NULL is the default stream. For a
 * layer on a GPU moxie_layer_record returns a device address.
 *
 * The rules of moxie.h about calls, threads and structs hold here too.
 */
#ifndef MOXIE_CUDA_H
#define MOXIE_CUDA_H

#include <moxie/moxie.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Replaces cudaMalloc() for a layer's device memory. Both functions are called on the thread that creates or destroys
 * the layer, with the layer's device current. moxie_layer_create copies the struct; `self` must outlive the layer. */
typedef struct moxie_cuda_allocator {
    void *self;                                    /* the first argument of both functions; the caller's */
    void *(*allocate)(void *self, uint64_t bytes); /* aligned to 256 bytes; NULL if it cannot */
    void (*release)(void *self, void *memory);
    uint32_t reserved[4]; /* zero */
} moxie_cuda_allocator;

/* What libmoxie_cuda and the driver are. */
typedef struct moxie_cuda_info {
    uint32_t struct_size;
    int32_t devices;   /* 0 without a library or a driver */
    char opened[256];  /* the file that was opened; "" without one */
    char built[96];    /* which compiler built it, for which architectures */
    char missing[512]; /* why there is no device; "" when there is one */
    int32_t kernels;   /* how many the file holds; each instance of a template counts */
} moxie_cuda_info;
#define MOXIE_CUDA_INFO_INIT MOXIE_INIT(moxie_cuda_info)
/* Fills `out`. It is no failure that something is missing. Thread-safe. */
MOXIE_API moxie_status moxie_cuda_get_info(moxie_cuda_info *out, moxie_error *error);

typedef struct moxie_cuda_device {
    uint32_t struct_size;
    int32_t sm; /* 10 * major + minor */
    int32_t multiprocessors;
    int32_t usable;                                /* 0: its compute capability is below 8.0 */
    uint64_t shared_bytes, l2_bytes, memory_bytes; /* shared memory of a block, L2, device memory */
    char name[64];                                 /* printable ASCII; '?' stands for any other byte */
    char features[96];                             /* names of features that kernels need, a space between two */
} moxie_cuda_device;
#define MOXIE_CUDA_DEVICE_INIT MOXIE_INIT(moxie_cuda_device)
/* Device `index`; MOXIE_ERR_UNSUPPORTED past the last, or when there is none. Thread-safe. */
MOXIE_API moxie_status moxie_cuda_device_at(int32_t index, moxie_cuda_device *out, moxie_error *error);

/* As moxie_plan_run, but every pointer of `args` is memory of the layer's device; `workspace` is aligned to 256 bytes,
 * `hidden` to 16. It enqueues on `stream` and returns; it neither allocates nor waits, but for the call that makes the
 * graph below. What it enqueues depends only on `args` and the plan, so a graph that captured it can be replayed with
 * other contents of the same buffers. It makes the layer's device the calling thread's current one.
 * One-thread-at-a-time per plan; plans of one layer may run on several streams at once, each with its own workspace.
 *
 * When `args` and `stream` are those of the call before, the plan makes a graph of the call's kernels, keeps it, and
 * launches it for this call and equal ones that follow: that takes the host less time than a launch for each kernel. It
 * reads what the buffers then hold, and the outputs are the same. Another call, or a change of the layer, ends it.
 * Within a capture of the caller, with adapters, with options.comm, and on layers of a store, kernels are launched one
 * by one, as always with options.call_graphs 2. Profilers show graphs whole unless told otherwise, and kernels of a
 * graph have all multiprocessors, even on a stream of a green context.
 *
 * With options.comm the call waits for the device, to learn which rows go where or how many, and for other ranks; and
 * no graph can capture it. With exchange_capacity and rows that go from device to device one can (docs/ranks.md). It
 * returns when the last operation is enqueued; use one stream for all runs of the plan. Pinned memory comes with the
 * plan. */
MOXIE_API moxie_status moxie_cuda_plan_run(moxie_plan *plan, const moxie_run_args *args, void *stream,
                                           moxie_error *error);

/* Waits until all that is enqueued on `stream` has ended: runs of the plan, and launches of graphs that hold such runs.
 * With options.comm it waits at most deadline_ms of the comm. Then it is MOXIE_ERR_TIMEOUT: a rank is dead or late. The
 * comm is broken; over NCCL the operations that waited leave the stream, with results that are of no use.
 * MOXIE_ERR_ARGUMENT while the stream is being captured. One-thread-at-a-time per plan. */
MOXIE_API moxie_status moxie_cuda_plan_wait(moxie_plan *plan, void *stream, moxie_error *error);
/* Makes one graph of runs, the way a chain of layers runs: run i is moxie_cuda_plan_run(plans[i], args[i]), i in
 * [0, count), one after the other. *graph is a cudaGraphExec_t that is ready to launch, with cudaGraphLaunch() or with
 * moxie_cuda_graph_launch(). A launch takes the host a few microseconds for the whole chain. It reads what the buffers
 * of `args` then hold: other hidden states, ids and logits give other routing. The number of tokens is that of `args`;
 * tokens that are not there get ids of -1. Buffers and plans must live as long as the graph is launched, and launches
 * of one graph must not overlap.
 *
 * First every run is made once, since the driver loads kernels at their first launch and cannot do that during a
 * capture: outputs and workspaces are written, ids must be valid. These runs are on another stream than the caller's:
 * nothing that uses the buffers may still be enqueued anywhere. It allocates and waits. All plans must be of one
 * device; plans with a comm as moxie_cuda_plan_run says, on all ranks together. On failure *graph is untouched.
 * One-thread-at-a-time per plan. */
MOXIE_API moxie_status moxie_cuda_plan_capture(moxie_plan *const *plans, const moxie_run_args *const *args,
                                               int32_t count, void **graph, moxie_error *error);
/* Enqueues a launch of such a graph on `stream` and returns. The graph's device must be the thread's current one, as it
 * is after the capture. */
MOXIE_API moxie_status moxie_cuda_graph_launch(void *graph, void *stream, moxie_error *error);
/* As cudaGraphExecDestroy(); NULL is fine. */
MOXIE_API void moxie_cuda_graph_destroy(void *graph);

/* How a fast matrix product of a plan for a GPU is launched for one batch size. The arithmetic is the same for every
 * launch. What changes is the tile: how many tokens of an expert a block multiplies at once, and how much shared memory
 * that leaves for the pipeline. */
#define MOXIE_CUDA_MAX_WIDTHS 32
typedef struct moxie_cuda_launch {
    uint32_t struct_size;
    int32_t tile_tokens; /* most tokens of an expert in a tile; how many there are is known only in the run */
    int32_t n_widths;
    int32_t widths[MOXIE_CUDA_MAX_WIDTHS]; /* of the instructions, ascending; a tile uses the first that holds it */
    int32_t warp_tokens; /* widths up to this are multiplied by single warps (mma.sync), others by warpgroups (wgmma) */
    int32_t blocks;      /* that a multiprocessor runs at a time */
    int32_t stages;      /* of the pipeline that brings weights and tokens into shared memory */
    int32_t chunks;      /* per stage, of usual tiles; a chunk is 128 bytes of each token */
    int32_t pairs;       /* 1: two blocks form a cluster and share the tokens that they fetch */
} moxie_cuda_launch;
#define MOXIE_CUDA_LAUNCH_INIT MOXIE_INIT(moxie_cuda_launch)
/* The launch of step `step` of a plan, made or explained, in runs of `tokens` tokens (1 or more; at most one pass
 * counts). Returns 0 and leaves `out` alone when the step is not such a product, or was not chosen, or when
 * out->struct_size is wrong. Immutable. */
MOXIE_API int moxie_cuda_plan_launch(const moxie_plan *plan, int32_t step, int64_t tokens, moxie_cuda_launch *out);

/* As moxie_measure_limits, for a GPU; `device` as in moxie_options, NULL: the first. It measures how fast memory is
 * read, and bf16 and FP8 products by every instruction for them; other figures are 0. `workers` is the number of
 * multiprocessors; both cache sizes are the L2's. It takes up to half a second, and eight times the L2 in device
 * memory. Without a device it fails as moxie_layer_create does. One-thread-at-a-time per device. */
MOXIE_API moxie_status moxie_cuda_measure_limits(const char *device, moxie_limits *out, moxie_error *error);

/* How fast the GPU copies from pinned memory of the host, in 10^9 bytes a second: the limit of a store's copies
 * (moxie_store.h). `device` as above. It takes some tenths of a second, and 32 MiB of either memory.
 * One-thread-at-a-time per device. */
MOXIE_API moxie_status moxie_cuda_measure_copy(const char *device, double *gb_s, moxie_error *error);

/* How the records of an expert file came to a GPU. Seconds are the host's clock's. */
typedef struct moxie_cuda_fill {
    uint32_t struct_size;
    int32_t workers;         /* that read the records */
    uint64_t bytes;          /* of records */
    uint64_t pinned_bytes;   /* of the ring of pinned memory that they went through */
    double allocate_seconds; /* for device memory */
    double pin_seconds;      /* for pinned memory; 0: the ring of an earlier layer was used */
    double fill_seconds;     /* from the first read to the end of the last copy */
} moxie_cuda_fill;
#define MOXIE_CUDA_FILL_INIT MOXIE_INIT(moxie_cuda_fill)
/* Of a layer of moxie_layer_open_file() on a GPU; of a layer of a store it is the shared expert's. Returns 0 and leaves
 * `out` alone for other layers, or when out->struct_size is wrong. Immutable. */
MOXIE_API int moxie_cuda_layer_fill(const moxie_layer *layer, moxie_cuda_fill *out);

/* A run to be timed. Pointers of `args` are host memory, as for moxie_plan_run; its workspace is not used. */
typedef struct moxie_cuda_timed_run {
    moxie_plan *plan;
    const moxie_run_args *args;
    uint32_t reserved[4]; /* zero */
} moxie_cuda_timed_run;

/* Times runs[count] the way an engine runs layers: one after the other in one graph. The graph is launched once to warm
 * up, then `repeats` times. seconds[i], i in [0, repeats), is the time of launch i, all runs together, between events
 * on the GPU. All plans must be of one device. Inputs are copied there first; a host pointer that several runs share
 * becomes one buffer. The outputs of the last launch are copied back. It allocates and waits.
 *
 * Plans with a comm: all ranks call it together, with the same numbers. A graph can hold their runs where
 * options.exchange_capacity is set and rows travel from device to device (moxie_comm_nccl_create). Else seconds[i] is
 * the time of the calls until the stream has ended, by the host's clock, after a barrier. Then run 0 is made a few
 * times more with a wait at the end of each phase, and moxie_plan_phase_at() tells the phases of such a run: together
 * they are longer than a run without waits.
 *
 * Plans of a layer of a store (moxie_store.h) need the host, too: seconds[i] is the time of the calls until the stream
 * has ended, and run 0 is made no additional time, since each run changes which experts are on the GPU.
 *
 * MOXIE_ERR_ARGUMENT when `count` or `repeats` is below 1; on failure `seconds` may be partly written.
 * One-thread-at-a-time per plan. */
MOXIE_API moxie_status moxie_cuda_time_runs(const moxie_cuda_timed_run *runs, int32_t count, int32_t repeats,
                                            double *seconds, moxie_error *error);

/* How long calls of moxie_cuda_plan_run take the host, by its clock, for i in [0, repeats): equal[i] of a call whose
 * arguments equal those of the call before, launched as options.call_graphs says; kernels[i] of a call that launches
 * its kernels one by one, as one with other arguments does. A few come before to warm up; after every eighth the host
 * waits. Copies and errors are as above. MOXIE_ERR_UNSUPPORTED for a plan with a comm. One-thread-at-a-time per
 * plan. */
MOXIE_API moxie_status moxie_cuda_time_host(const moxie_cuda_timed_run *run, int32_t repeats, double *equal,
                                            double *kernels, moxie_error *error);

/* CUDA kernel `index`; returns 0 past the last, or when out->struct_size is wrong. `isa` names the features that it
 * needs; `runnable` means on device 0. `out` may be NULL. Thread-safe. */
MOXIE_API int moxie_cuda_kernel_at(int32_t index, moxie_kernel_info *out);

#ifdef __cplusplus
}
#endif

#endif /* MOXIE_CUDA_H */
