/* SPDX-License-Identifier: Apache-2.0
 *
 * moxie_cuda.h - layers on NVIDIA GPUs: what was found, device memory from the caller, runs on the caller's stream.
 *
 * libmoxie links nothing of CUDA. When options.backend is MOXIE_BACKEND_CUDA it opens libmoxie_cuda.so: the file that
 * MOXIE_CUDA_LIBRARY names, else the one beside libmoxie, else one on the loader's path; in a program that runs with
 * more rights than who starts it (set-user-ID) the variable is not read. Without the file, or without a driver,
 * everything else works and these functions say why. GPUs from compute capability 8.0 on are used.
 *
 *     options.backend = MOXIE_BACKEND_CUDA   -> moxie_layer_create, moxie_layer_prepare: records go to device memory,
 *                                               one expert after the other through pinned buffers
 *                                            -> moxie_plan_create
 *     moxie_cuda_plan_run(plan, args, stream)   device pointers; enqueues and returns; can be captured into a graph
 *     moxie_plan_run(plan, args)                host pointers; makes device memory for them, copies in, runs, copies
 *                                               out, waits: for tools and tests
 *
 * A stream is a cudaStream_t as a void pointer, so that this header needs none of CUDA's; NULL is the default stream.
 * moxie_layer_record gives a device address for such a layer.
 */
#ifndef MOXIE_CUDA_H
#define MOXIE_CUDA_H

#include <moxie/moxie.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where a layer's device memory comes from. Both are called with the layer's device current, on the thread that creates
 * or destroys the layer. Memory is aligned to 256 bytes. */
typedef struct moxie_cuda_allocator {
    void *self;
    void *(*allocate)(void *self, uint64_t bytes); /* NULL when there is none */
    void (*release)(void *self, void *memory);
} moxie_cuda_allocator;

/* What the back end stands on. */
typedef struct moxie_cuda_info {
    uint32_t struct_size;
    int32_t devices;   /* 0 without a library or a driver */
    char opened[256];  /* the file that was opened, "" without one */
    char built[96];    /* its compiler and architectures */
    char missing[512]; /* why there is no device; "" when there is one */
    int32_t kernels;   /* in the file, instances of templates each */
} moxie_cuda_info;
#define MOXIE_CUDA_INFO_INIT MOXIE_INIT(moxie_cuda_info)
/* Fills `out`; that something is missing is no failure. Thread-safe. */
MOXIE_API moxie_status moxie_cuda_get_info(moxie_cuda_info *out, moxie_error *error);

typedef struct moxie_cuda_device {
    uint32_t struct_size;
    int32_t sm; /* 10 * major + minor */
    int32_t multiprocessors;
    int32_t usable;                                /* 0: too old */
    uint64_t shared_bytes, l2_bytes, memory_bytes; /* shared memory of a block, L2, device memory */
    char name[64];                                 /* printable ASCII; other bytes of the driver's are '?' */
    char features[96];                             /* words that kernels ask for, space separated */
} moxie_cuda_device;
#define MOXIE_CUDA_DEVICE_INIT MOXIE_INIT(moxie_cuda_device)
/* MOXIE_ERR_UNSUPPORTED past the last, or when there is none. Thread-safe. */
MOXIE_API moxie_status moxie_cuda_device_at(int32_t index, moxie_cuda_device *out, moxie_error *error);

/* As moxie_plan_run, with every pointer of `args` in the memory of the layer's device, `workspace` aligned to 256
 * bytes, `hidden` to 16. Enqueues on `stream` and returns: it neither allocates nor waits, and what it enqueues depends
 * on `args` and the plan alone, so that it may be captured into a graph and replayed with other contents of the same
 * buffers. Makes the layer's device the calling thread's. Plans of one layer may run on several streams at once, each
 * with its own workspace. */
MOXIE_API moxie_status moxie_cuda_plan_run(moxie_plan *plan, const moxie_run_args *args, void *stream,
                                           moxie_error *error);

/* How a product of a plan for a Hopper GPU is launched for one batch size. Its arithmetic is the same for all of them:
 * what changes is how many tokens of an expert a block multiplies at once, and what that leaves room for. */
#define MOXIE_CUDA_MAX_WIDTHS 32
typedef struct moxie_cuda_launch {
    uint32_t struct_size;
    int32_t tile_tokens; /* of an expert, that a tile has at most; which it has, its tokens decide in the run */
    int32_t n_widths;
    int32_t widths[MOXIE_CUDA_MAX_WIDTHS]; /* of instructions, ascending: a tile runs in the first that holds it */
    int32_t warp_tokens; /* widths up to this are multiplied by single warps (mma.sync), others by warpgroups (wgmma) */
    int32_t blocks;      /* of a multiprocessor */
    int32_t stages;      /* of weights and tokens, on their way to a block: */
    int32_t chunks;      /* of so many chunks each, 128 bytes of a token */
    int32_t pairs;       /* 1: two blocks share what they fetch of tokens */
} moxie_cuda_launch;
#define MOXIE_CUDA_LAUNCH_INIT MOXIE_INIT(moxie_cuda_launch)
/* Step `step` of `plan`, made or explained, for runs of `tokens` tokens (1 or more; what a pass takes, if fewer).
 * Returns 0, and leaves `out` alone, for a step that is no product of such a GPU, or not chosen. Immutable. */
MOXIE_API int moxie_cuda_plan_launch(const moxie_plan *plan, int32_t step, int64_t tokens, moxie_cuda_launch *out);

/* As moxie_measure_limits, of a GPU: `device` as in moxie_options, NULL: the first. Reads its memory, and multiplies
 * bf16 and FP8 numbers, by every instruction that it has for that; other figures stay 0. `workers` are multiprocessors,
 * both caches the L2. Takes half a second or less, and device memory of eight times the L2 meanwhile. Fails as
 * moxie_layer_create does where there is no device. One-thread-at-a-time. */
MOXIE_API moxie_status moxie_cuda_measure_limits(const char *device, moxie_limits *out, moxie_error *error);

/* A run that is timed. Pointers of `args` are the host's, as for moxie_plan_run; nobody reads or writes its workspace.
 */
typedef struct moxie_cuda_timed_run {
    moxie_plan *plan;
    const moxie_run_args *args;
} moxie_cuda_timed_run;

/* Times `count` runs as an engine makes them: one after the other in one graph, which is launched once to warm up and
 * then `repeats` times. seconds[i] is launch i, all runs together, between events on the GPU. All plans are of one
 * device. What runs read is copied there before (a host pointer that several give is one buffer), and what the last
 * launch wrote is copied back. Allocates and waits. MOXIE_ERR_ARGUMENT for no run or no repeat; `seconds` may be
 * partly written on failure. One run at a time per plan. */
MOXIE_API moxie_status moxie_cuda_time_runs(const moxie_cuda_timed_run *runs, int32_t count, int32_t repeats,
                                            double *seconds, moxie_error *error);

/* Walks every CUDA kernel row; returns 0 past the last. `isa` names the features that it needs; `runnable`: on device
 * 0. Immutable. */
MOXIE_API int moxie_cuda_kernel_at(int32_t index, moxie_kernel_info *out);

#ifdef __cplusplus
}
#endif

#endif /* MOXIE_CUDA_H */
