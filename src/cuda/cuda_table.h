/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_table.h - the launch table: all that libmoxie uses of a GPU, as C function pointers. libmoxie_cuda exports one
 * function, mox_cuda_table_get(), that returns it. libmoxie opens that library when the CUDA back end is first used
 * (cuda_loader.h), and does not link to CUDA. Tests put a recording table in its place.
 *
 *     backend/  ->  table->quant_act[kernel.launcher](&args, stream, error)  ->  <<<grid, block, shared, stream>>>
 *
 * It has one entry per kernel of each cuda_<family>.def, in list order. The table is private to two libraries of one
 * build: libmoxie rejects a table of another version or size.
 *
 * Rules of every launcher. It works on the stream's device, which is the current one (`use`). It only enqueues: it
 * neither allocates nor waits, and depends on no data. All device memory comes with its arguments. When a launch fails
 * it returns MOXIE_ERR_UNSUPPORTED or MOXIE_ERR_IO with the runtime's text. Thread-safe.
 * Its kernels may begin before the kernel ahead of them in the stream has ended, by the rules of device_launch.cuh.
 * Kernels of permute may not, since they begin a pass.
 */
#ifndef MOX_CUDA_CUDA_TABLE_H
#define MOX_CUDA_CUDA_TABLE_H

#include "cpu/combine/combine_args.h"
#include "cuda/cuda_features.h"
#include "cpu/dense/dense_args.h"
#include "cuda/copy_rows/cuda_copy_rows_args.h"
#include "cuda/expert_gemm/cuda_expert_gemm_args.h"
#include "cpu/glu/glu_args.h"
#include "cuda/limits/cuda_limits_args.h"
#include "cpu/lora/lora_args.h"
#include "cuda/pack/cuda_pack_args.h"
#include "cuda/place_rows/cuda_place_rows_args.h"
#include "cpu/permute/permute_args.h"
#include "cpu/quant_act/quant_act_args.h"
#include "cpu/row_norm/row_norm_args.h"
#include "cpu/topk/topk_args.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MOX_CUDA_TABLE_VERSION 1

typedef void *mox_cuda_stream; /* a cudaStream_t; NULL is the default stream */
typedef void *mox_cuda_event;  /* a cudaEvent_t without timing */

#define MOX_CUDA_LAUNCHER(family, args_type)                                                                           \
    typedef moxie_status mox_cuda_##family##_launch(const args_type *args, mox_cuda_stream stream, moxie_error *error);
#include "cuda/cuda_families.def"
MOX_CUDA_LAUNCHER(limits, mox_cuda_limits_args) /* probes are no family, but are launched in the same way */
MOX_CUDA_LAUNCHER(pack, mox_cuda_pack_args)     /* so are packers */
#undef MOX_CUDA_LAUNCHER

/* Positions in the table: MOX_CUDA_AT_<family>_<kernel>; how many there are: MOX_CUDA_ROWS_<family>. */
#define MOX_CUDA_ROW(family, id, ...) MOX_CUDA_AT_##family##_##id,
enum {
#include "cuda/row_norm/cuda_row_norm.def"
    MOX_CUDA_ROWS_row_norm
};
enum {
#include "cuda/dense/cuda_dense.def"
    MOX_CUDA_ROWS_dense
};
enum {
#include "cuda/topk/cuda_topk.def"
    MOX_CUDA_ROWS_topk
};
enum {
#include "cuda/permute/cuda_permute.def"
    MOX_CUDA_ROWS_permute
};
enum {
#include "cuda/quant_act/cuda_quant_act.def"
    MOX_CUDA_ROWS_quant_act
};
enum {
#include "cuda/expert_gemm/cuda_expert_gemm.def"
    MOX_CUDA_ROWS_expert_gemm
};
enum {
#include "cuda/lora/cuda_lora.def"
    MOX_CUDA_ROWS_lora
};
enum {
#include "cuda/glu/cuda_glu.def"
    MOX_CUDA_ROWS_glu
};
enum {
#include "cuda/combine/cuda_combine.def"
    MOX_CUDA_ROWS_combine
};
enum {
#include "cuda/limits/cuda_limits.def"
    MOX_CUDA_ROWS_limits
};
enum {
#include "cuda/pack/cuda_pack.def"
    MOX_CUDA_ROWS_pack
};
#undef MOX_CUDA_ROW

/* The sizes of all argument structs: two builds must agree on these, too, besides the table itself. */
#define MOX_CUDA_LAUNCHER(family, args_type) +sizeof(args_type)
enum {
    MOX_CUDA_ARGS_BYTES = sizeof(moxie_error) + sizeof(mox_cuda_features) + sizeof(mox_cuda_limits_args) +
                          sizeof(mox_cuda_copy_rows_args) + sizeof(mox_cuda_place_rows_args) +
                          sizeof(mox_cuda_order_rows_args) + sizeof(mox_cuda_pack_args)
#include "cuda/cuda_families.def"
};
#undef MOX_CUDA_LAUNCHER

typedef struct mox_cuda_table {
    uint32_t version, bytes;  /* MOX_CUDA_TABLE_VERSION, sizeof(mox_cuda_table) + MOX_CUDA_ARGS_BYTES */
    const char *built;        /* compiler and architectures, for `moxie info` */
    int32_t (*kernels)(void); /* how many kernels the library holds; each instance of a template counts */

    /* ---- devices -------------------------------------------------------------------------------- */
    /* How many there are. Without a driver it fails, and the error says so. */
    moxie_status (*count)(int32_t *out, moxie_error *error);
    moxie_status (*features)(int32_t device, mox_cuda_features *out, moxie_error *error);
    /* Makes `device` the current one of this thread. */
    moxie_status (*use)(int32_t device, moxie_error *error);

    /* ---- memory --------------------------------------------------------------------------------- */
    moxie_status (*allocate)(uint64_t bytes, void **out, moxie_error *error); /* device memory, 256-byte aligned */
    void (*release)(void *memory);                                            /* NULL is fine */
    moxie_status (*allocate_pinned)(uint64_t bytes, void **out, moxie_error *error);
    void (*release_pinned)(void *memory);
    /* Host to device or device to host. Returns once it is enqueued if the host memory is pinned. */
    moxie_status (*copy)(void *to, const void *from, uint64_t bytes, mox_cuda_stream stream, moxie_error *error);
    moxie_status (*fill)(void *to, int32_t byte, uint64_t bytes, mox_cuda_stream stream, moxie_error *error);

    /* ---- order ---------------------------------------------------------------------------------- */
    moxie_status (*stream_create)(mox_cuda_stream *out, moxie_error *error);
    void (*stream_destroy)(mox_cuda_stream stream);
    moxie_status (*stream_wait)(mox_cuda_stream stream, moxie_error *error); /* until all its work is done */
    moxie_status (*event_create)(mox_cuda_event *out, moxie_error *error);
    void (*event_destroy)(mox_cuda_event event);
    moxie_status (*event_record)(mox_cuda_event event, mox_cuda_stream stream, moxie_error *error);
    moxie_status (*event_wait)(mox_cuda_event event, moxie_error *error); /* the host waits */
    /* *done: whether what was recorded has ended. */
    moxie_status (*event_done)(mox_cuda_event event, int32_t *done, moxie_error *error);
    /* What comes next in the stream waits for what was recorded last; at once, when nothing was. The host does not. */
    moxie_status (*stream_follow)(mox_cuda_stream stream, mox_cuda_event event, moxie_error *error);

    /* ---- graphs and time ------------------------------------------------------------------------- */
    moxie_status (*capture_begin)(mox_cuda_stream stream, moxie_error *error);
    moxie_status (*capture_end)(mox_cuda_stream stream, void **graph, moxie_error *error); /* ready to launch */
    /* The same for a graph to be launched in place of calls on `like`: what is captured is enqueued on *apart, a stream
     * made for it with the priority of `like`, which end() destroys, whatever it returns. Captures of other streams,
     * also of other threads, are not disturbed. Both on one thread. */
    moxie_status (*capture_apart_begin)(mox_cuda_stream like, mox_cuda_stream *apart, moxie_error *error);
    moxie_status (*capture_apart_end)(mox_cuda_stream apart, void **graph, moxie_error *error);
    moxie_status (*graph_launch)(void *graph, mox_cuda_stream stream, moxie_error *error);
    void (*graph_destroy)(void *graph);
    /* *out: whether the stream is being captured. */
    moxie_status (*capturing)(mox_cuda_stream stream, int32_t *out, moxie_error *error);
    moxie_status (*timer_create)(void **out, moxie_error *error); /* two events with timing */
    void (*timer_destroy)(void *timer);
    moxie_status (*timer_start)(void *timer, mox_cuda_stream stream, moxie_error *error);
    /* Waits for everything before it; milliseconds since start. */
    moxie_status (*timer_stop)(void *timer, mox_cuda_stream stream, float *milliseconds, moxie_error *error);

    /* ---- rows for other ranks ------------------------------------------------------------------- */
    moxie_status (*copy_rows)(const mox_cuda_copy_rows_args *args, mox_cuda_stream stream, moxie_error *error);
    moxie_status (*place_rows)(const mox_cuda_place_rows_args *args, mox_cuda_stream stream, moxie_error *error);
    moxie_status (*order_rows)(const mox_cuda_order_rows_args *args, mox_cuda_stream stream, moxie_error *error);

    /* ---- launchers, one per kernel -------------------------------------------------------------- */
#define MOX_CUDA_LAUNCHER(family, args_type) mox_cuda_##family##_launch *family[MOX_CUDA_ROWS_##family];
#include "cuda/cuda_families.def"
    MOX_CUDA_LAUNCHER(limits, mox_cuda_limits_args)
    MOX_CUDA_LAUNCHER(pack, mox_cuda_pack_args)
#undef MOX_CUDA_LAUNCHER
} mox_cuda_table;

/* The only export of libmoxie_cuda. Never fails, even without a device. */
#define MOX_CUDA_TABLE_SYMBOL "mox_cuda_table_get"
typedef const mox_cuda_table *(*mox_cuda_table_fn)(void);

/* What libmoxie_cuda provides for each kernel of each list: mox_cuda_<family>_<kernel>_launch. */
#define MOX_CUDA_ROW(family, id, ...) mox_cuda_##family##_launch mox_cuda_##family##_##id##_launch;
#include "cuda/combine/cuda_combine.def"
#include "cuda/dense/cuda_dense.def"
#include "cuda/expert_gemm/cuda_expert_gemm.def"
#include "cuda/glu/cuda_glu.def"
#include "cuda/limits/cuda_limits.def"
#include "cuda/lora/cuda_lora.def"
#include "cuda/pack/cuda_pack.def"
#include "cuda/permute/cuda_permute.def"
#include "cuda/quant_act/cuda_quant_act.def"
#include "cuda/row_norm/cuda_row_norm.def"
#include "cuda/topk/cuda_topk.def"
#undef MOX_CUDA_ROW
moxie_status mox_cuda_copy_rows_launch(const mox_cuda_copy_rows_args *args, mox_cuda_stream stream, moxie_error *error);
moxie_status mox_cuda_place_rows_launch(const mox_cuda_place_rows_args *args, mox_cuda_stream stream,
                                        moxie_error *error);
moxie_status mox_cuda_order_rows_launch(const mox_cuda_order_rows_args *args, mox_cuda_stream stream,
                                        moxie_error *error);

#ifdef __cplusplus
}
#endif

#endif
