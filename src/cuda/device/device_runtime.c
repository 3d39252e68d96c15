/* SPDX-License-Identifier: Apache-2.0
 *
 * device_runtime.c - the launch table, and its host functions: devices, memory, streams, events, graphs. Each is a thin
 * wrapper that turns errors of the CUDA runtime into text. Part of libmoxie_cuda.
 *
 * The runtime is linked statically and finds the driver itself. So this library loads on a machine without a driver,
 * and every call then fails with that reason.
 */
#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "cuda/device/device_count.h"
#include "cuda/device/device_error.h"
#include "cuda/device/device_timer.h"

/* ---- failures -------------------------------------------------------------------------------------- */

moxie_status mox_cuda_status(cudaError_t code, const char *what, moxie_error *error)
{
    if (code == cudaSuccess)
        return MOXIE_OK;
    cudaGetLastError(); /* else the next launch would report this error */
    const moxie_status status =
        code == cudaErrorMemoryAllocation ? MOXIE_ERR_MEMORY
        : code == cudaErrorNoDevice || code == cudaErrorInsufficientDriver || code == cudaErrorNoKernelImageForDevice
            ? MOXIE_ERR_UNSUPPORTED
            : MOXIE_ERR_IO;
    return mox_fail(status, error, "CUDA: %s: %s (%s)", what, cudaGetErrorString(code), cudaGetErrorName(code));
}

moxie_status mox_cuda_launched(const char *kernel, moxie_error *error)
{
    return mox_cuda_status(cudaGetLastError(), kernel, error);
}

/* ---- devices --------------------------------------------------------------------------------------- */

static moxie_status count(int32_t *out, moxie_error *error)
{
    int devices = 0;
    const cudaError_t code = cudaGetDeviceCount(&devices);
    MOX_FAIL_IF(code == cudaErrorInsufficientDriver, MOXIE_ERR_UNSUPPORTED, error,
                "CUDA: there is no NVIDIA driver here, or it is older than CUDA %d.%d", CUDART_VERSION / 1000,
                CUDART_VERSION % 1000 / 10);
    MOX_TRY(mox_cuda_status(code, "looking for devices", error));
    *out = devices;
    return MOXIE_OK;
}

static moxie_status attribute(enum cudaDeviceAttr which, int32_t device, int *out, moxie_error *error)
{
    return mox_cuda_status(cudaDeviceGetAttribute(out, which, device), "reading a device's attributes", error);
}

static moxie_status features(int32_t device, mox_cuda_features *out, moxie_error *error)
{
    struct cudaDeviceProp properties;
    int major, minor, multiprocessors, shared, l2;
    MOX_TRY(attribute(cudaDevAttrComputeCapabilityMajor, device, &major, error));
    MOX_TRY(attribute(cudaDevAttrComputeCapabilityMinor, device, &minor, error));
    MOX_TRY(attribute(cudaDevAttrMultiProcessorCount, device, &multiprocessors, error));
    MOX_TRY(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device, &shared, error));
    MOX_TRY(attribute(cudaDevAttrL2CacheSize, device, &l2, error));
    MOX_TRY(mox_cuda_status(cudaGetDeviceProperties(&properties, device), "reading a device's properties", error));
    mox_cuda_features f = { .sm = 10 * major + minor,
                            .multiprocessors = multiprocessors,
                            .shared_bytes = shared,
                            .l2_bytes = (uint64_t)l2,
                            .memory_bytes = properties.totalGlobalMem };
    snprintf(f.name, sizeof f.name, "%.63s", properties.name);
    *out = f;
    return MOXIE_OK;
}

static moxie_status use(int32_t device, moxie_error *error)
{
    return mox_cuda_status(cudaSetDevice(device), "choosing a device", error);
}

/* ---- memory ---------------------------------------------------------------------------------------- */

static moxie_status allocate(uint64_t bytes, void **out, moxie_error *error)
{
    void *memory = NULL;
    const cudaError_t code = cudaMalloc(&memory, bytes > 0 ? bytes : 1);
    if (code == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        size_t left = 0, all = 0;
        cudaMemGetInfo(&left, &all);
        return mox_fail(MOXIE_ERR_MEMORY, error,
                        "CUDA: %llu bytes of device memory were asked for, %llu of %llu are free",
                        (unsigned long long)bytes, (unsigned long long)left, (unsigned long long)all);
    }
    MOX_TRY(mox_cuda_status(code, "allocating device memory", error));
    *out = memory;
    return MOXIE_OK;
}

static void release(void *memory)
{
    cudaFree(memory);
}

static moxie_status allocate_pinned(uint64_t bytes, void **out, moxie_error *error)
{
    void *memory = NULL;
    MOX_TRY(mox_cuda_status(cudaMallocHost(&memory, bytes > 0 ? bytes : 1), "allocating pinned host memory", error));
    *out = memory;
    return MOXIE_OK;
}

static void release_pinned(void *memory)
{
    cudaFreeHost(memory);
}

static moxie_status copy(void *to, const void *from, uint64_t bytes, mox_cuda_stream stream, moxie_error *error)
{
    if (bytes == 0)
        return MOXIE_OK;
    return mox_cuda_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, (cudaStream_t)stream), "copying", error);
}

static moxie_status fill(void *to, int32_t byte, uint64_t bytes, mox_cuda_stream stream, moxie_error *error)
{
    if (bytes == 0)
        return MOXIE_OK;
    return mox_cuda_status(cudaMemsetAsync(to, byte, bytes, (cudaStream_t)stream), "filling memory", error);
}

/* ---- order ------------------------------------------------------------------------------------------ */

static moxie_status stream_create(mox_cuda_stream *out, moxie_error *error)
{
    cudaStream_t stream;
    MOX_TRY(mox_cuda_status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream", error));
    *out = stream;
    return MOXIE_OK;
}

static void stream_destroy(mox_cuda_stream stream)
{
    if (stream != NULL)
        cudaStreamDestroy((cudaStream_t)stream);
}

static moxie_status stream_wait(mox_cuda_stream stream, moxie_error *error)
{
    return mox_cuda_status(cudaStreamSynchronize((cudaStream_t)stream), "waiting for a stream", error);
}

static moxie_status event_create(mox_cuda_event *out, moxie_error *error)
{
    cudaEvent_t event;
    MOX_TRY(mox_cuda_status(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event", error));
    *out = event;
    return MOXIE_OK;
}

static void event_destroy(mox_cuda_event event)
{
    if (event != NULL)
        cudaEventDestroy((cudaEvent_t)event);
}

static moxie_status event_record(mox_cuda_event event, mox_cuda_stream stream, moxie_error *error)
{
    return mox_cuda_status(cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream), "recording an event", error);
}

static moxie_status event_wait(mox_cuda_event event, moxie_error *error)
{
    return mox_cuda_status(cudaEventSynchronize((cudaEvent_t)event), "waiting for an event", error);
}

static moxie_status event_done(mox_cuda_event event, int32_t *done, moxie_error *error)
{
    const cudaError_t code = cudaEventQuery((cudaEvent_t)event);
    if (code == cudaErrorNotReady) {
        cudaGetLastError(); /* else the next launch would report it */
        *done = 0;
        return MOXIE_OK;
    }
    MOX_TRY(mox_cuda_status(code, "looking at an event", error));
    *done = 1;
    return MOXIE_OK;
}

static moxie_status stream_follow(mox_cuda_stream stream, mox_cuda_event event, moxie_error *error)
{
    return mox_cuda_status(cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0),
                           "making a stream wait for an event", error);
}

/* ---- graphs ----------------------------------------------------------------------------------------- */

static moxie_status capture_begin(mox_cuda_stream stream, moxie_error *error)
{
    return mox_cuda_status(cudaStreamBeginCapture((cudaStream_t)stream, cudaStreamCaptureModeThreadLocal),
                           "beginning to capture a graph", error);
}

static moxie_status capture_end(mox_cuda_stream stream, void **graph, moxie_error *error)
{
    cudaGraph_t captured = NULL;
    cudaGraphExec_t ready = NULL;
    MOX_TRY(mox_cuda_status(cudaStreamEndCapture((cudaStream_t)stream, &captured), "capturing a graph", error));
    const cudaError_t code = cudaGraphInstantiate(&ready, captured, 0);
    cudaGraphDestroy(captured);
    MOX_TRY(mox_cuda_status(code, "making a graph ready", error));
    *graph = ready;
    return MOXIE_OK;
}

/* Exchanges how strictly the runtime treats calls of this thread while anything is captured. Strictly, a call that
 * allocates would fail during a capture that another thread began, and end that capture. */
static enum cudaStreamCaptureMode exchange_mode(enum cudaStreamCaptureMode mode)
{
    cudaThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

/* A graph that is on its way ends first; this does not wait for it. */
static void graph_destroy(void *graph)
{
    if (graph == NULL)
        return;
    const enum cudaStreamCaptureMode mode = exchange_mode(cudaStreamCaptureModeRelaxed);
    cudaGraphExecDestroy((cudaGraphExec_t)graph);
    exchange_mode(mode);
}

static _Thread_local enum cudaStreamCaptureMode mode_before; /* of a capture apart */

static cudaError_t begin_apart(cudaStream_t like, cudaStream_t *apart)
{
    int priority = 0;
    cudaError_t code = cudaStreamGetPriority(like, &priority);
    if (code == cudaSuccess)
        code = cudaStreamCreateWithPriority(apart, cudaStreamNonBlocking, priority);
    if (code == cudaSuccess)
        code = cudaStreamBeginCapture(*apart, cudaStreamCaptureModeRelaxed);
    return code;
}

static moxie_status capture_apart_begin(mox_cuda_stream like, mox_cuda_stream *apart, moxie_error *error)
{
    cudaStream_t stream = NULL;
    mode_before = exchange_mode(cudaStreamCaptureModeRelaxed);
    const cudaError_t code = begin_apart((cudaStream_t)like, &stream);
    if (code == cudaSuccess) {
        *apart = stream;
        return MOXIE_OK;
    }
    stream_destroy(stream);
    exchange_mode(mode_before);
    return mox_cuda_status(code, "beginning to capture a graph", error);
}

static moxie_status capture_apart_end(mox_cuda_stream apart, void **graph, moxie_error *error)
{
    const moxie_status status = capture_end(apart, graph, error);
    stream_destroy(apart);
    exchange_mode(mode_before);
    return status;
}

static moxie_status graph_launch(void *graph, mox_cuda_stream stream, moxie_error *error)
{
    return mox_cuda_status(cudaGraphLaunch((cudaGraphExec_t)graph, (cudaStream_t)stream), "launching a graph", error);
}

static moxie_status capturing(mox_cuda_stream stream, int32_t *out, moxie_error *error)
{
    enum cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
    MOX_TRY(mox_cuda_status(cudaStreamIsCapturing((cudaStream_t)stream, &state), "looking at a stream", error));
    *out = state == cudaStreamCaptureStatusActive;
    return MOXIE_OK;
}

/* ---- the table -------------------------------------------------------------------------------------- */

#define MOX_STRING(x)  MOX_STRING_(x)
#define MOX_STRING_(x) #x

#define MOX_CUDA_ROW(family, id, ...) [MOX_CUDA_AT_##family##_##id] = mox_cuda_##family##_##id##_launch,
static const mox_cuda_table table = {
    .version = MOX_CUDA_TABLE_VERSION,
    .bytes = sizeof(mox_cuda_table) + MOX_CUDA_ARGS_BYTES,
    .built = "CUDA " MOX_STRING(CUDART_VERSION) ", " MOX_CUDA_ARCHITECTURES,
    .kernels = mox_cuda_kernels,
    .count = count,
    .features = features,
    .use = use,
    .allocate = allocate,
    .release = release,
    .allocate_pinned = allocate_pinned,
    .release_pinned = release_pinned,
    .copy = copy,
    .fill = fill,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_wait = stream_wait,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_done = event_done,
    .stream_follow = stream_follow,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .capture_apart_begin = capture_apart_begin,
    .capture_apart_end = capture_apart_end,
    .graph_launch = graph_launch,
    .graph_destroy = graph_destroy,
    .capturing = capturing,
    .timer_create = mox_device_timer_create,
    .timer_destroy = mox_device_timer_destroy,
    .timer_start = mox_device_timer_start,
    .timer_stop = mox_device_timer_stop,
    .copy_rows = mox_cuda_copy_rows_launch,
    .place_rows = mox_cuda_place_rows_launch,
    .order_rows = mox_cuda_order_rows_launch,
    .row_norm = {
#include "cuda/row_norm/cuda_row_norm.def"
    },
    .dense = {
#include "cuda/dense/cuda_dense.def"
    },
    .topk = {
#include "cuda/topk/cuda_topk.def"
    },
    .permute = {
#include "cuda/permute/cuda_permute.def"
    },
    .quant_act = {
#include "cuda/quant_act/cuda_quant_act.def"
    },
    .expert_gemm = {
#include "cuda/expert_gemm/cuda_expert_gemm.def"
    },
    .lora = {
#include "cuda/lora/cuda_lora.def"
    },
    .glu = {
#include "cuda/glu/cuda_glu.def"
    },
    .combine = {
#include "cuda/combine/cuda_combine.def"
    },
    .limits = {
#include "cuda/limits/cuda_limits.def"
    },
    .pack = {
#include "cuda/pack/cuda_pack.def"
    },
};
#undef MOX_CUDA_ROW

__attribute__((visibility("default"))) const mox_cuda_table *mox_cuda_table_get(void)
{
    return &table;
}
