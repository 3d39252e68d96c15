/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_kernel.cuh - the Hopper kernel of family expert_gemm for one element type: a persistent, warp-specialized gemm
 * (mma_args.h says what it computes and how the work is cut).
 *
 *     warps 0-3, 4-7    consumers: rows 0-63 and 64-127 of a row tile, each warpgroup at its own pace
 *     warp 8            producer of weights, and of the queue of work units
 *     warp 9            producer of tokens
 *     warps 10, 11      idle: registers are reallocated to four warps at a time. Absent where two blocks share a
 *                       multiprocessor and every thread has 96 registers
 *
 * A token tile runs in the narrowest width of the element's list that holds it. Narrow token tiles have a kernel of
 * their own, a tenth as long: where weights stream, code that runs for the first time waits for DRAM.
 *
 * In the narrow kernel each width of a dequantizing product has its own code from end to end. Wide-tile code is sparse
 * when it runs narrow: instruction fetches miss, and each miss stalls (1.1 us at the end of a tile, 0.5 us this way).
 */
#ifndef MOX_CUDA_SM90_KERNEL_CUH
#define MOX_CUDA_SM90_KERNEL_CUH

#include "cuda/expert_gemm/sm90/sm90_dequant.cuh"
#include "cuda/expert_gemm/tensor_cores/mma_epilogue.cuh"
#include "cuda/expert_gemm/sm90/sm90_producers.cuh"

template <int... NS> struct mox_sm90_widths {
    static constexpr int at[] = { NS... }, count = sizeof...(NS);
    static constexpr int sums = at[count - 1] / 2; /* accumulators of a thread */
    static constexpr int max_columns = at[count - 1];
    static constexpr bool narrow = max_columns <= MOX_SM90_NARROW_COLUMNS_DEQUANT;
};

/* The first width of a list, and the other widths. */
template <class WIDTHS> struct mox_sm90_split;
template <int N, int... NS> struct mox_sm90_split<mox_sm90_widths<N, NS...>> {
    using first = mox_sm90_widths<N>;
    using rest = mox_sm90_widths<NS...>;
};

using mox_sm90_widths_narrow = mox_sm90_widths<MOX_SM90_WIDTHS_NARROW>;
using mox_sm90_widths_narrow_dequant = mox_sm90_widths<MOX_SM90_WIDTHS_NARROW_DEQUANT>;

/* An element's widths: the last column of mma_elements.def. */
template <int ELEMENT> struct mox_sm90_widths_for;
#define MOX_SM90_ELEMENT(name, file, bytes, size, scales, widths)                                                      \
    template <> struct mox_sm90_widths_for<MOX_SM90_##name> {                                                          \
        using type = mox_sm90_widths<MOX_SM90_WIDTHS_##widths>;                                                        \
    };
#define MOX_SM90_CODES MOX_SM90_ELEMENT
#include "cuda/expert_gemm/tensor_cores/mma_elements.def"
#undef MOX_SM90_CODES
#undef MOX_SM90_ELEMENT

/* The thread's place, computed anew for each part of a work unit. The asm hides it from the compiler, which would
 * otherwise compute everything that depends on it before the loop over work units and keep that in registers. For the
 * same reason the epilogue reads the kernel's arguments from shared memory. */
__device__ __forceinline__ mox_sm90_place mox_sm90_find_place()
{
    int thread = threadIdx.x;
    asm volatile("" : "+r"(thread));
    return { thread / 128, thread % 128, thread / 32 % 4, thread % 32 };
}

__device__ __forceinline__ mox_sm90_header *mox_sm90_find_header(uint8_t *shared)
{
    int nothing = 0;
    asm volatile("" : "+r"(nothing));
    return (mox_sm90_header *)(shared + nothing);
}

/* Multiplies `chunks` chunks in the narrowest width from place FIRST to LAST of the list that holds the unit's columns.
 * A bisection: the loops lie far apart in the code, and code that is only jumped over is fetched all the same. */
template <int ELEMENT, class WIDTHS, int CHUNKS, bool PAIRS, int FIRST, int LAST>
__device__ __forceinline__ void mox_sm90_dispatch_width(float (&sums)[WIDTHS::sums], mox_sm90_header *header,
                                                        const uint8_t *stages, const mox_sm90_args &args,
                                                        const mox_sm90_work_unit &unit, int chunks,
                                                        const mox_sm90_place &me, mox_sm90_consumer *c)
{
    if constexpr (FIRST == LAST) {
        mox_sm90_loop<ELEMENT, WIDTHS::at[FIRST], WIDTHS::sums, CHUNKS, PAIRS>(sums, header, stages, args, me, unit,
                                                                               chunks, c);
    } else {
        constexpr int MIDDLE = (FIRST + LAST) / 2, WIDTH = WIDTHS::at[MIDDLE];
        if (unit.columns <= WIDTH)
            mox_sm90_dispatch_width<ELEMENT, WIDTHS, CHUNKS, PAIRS, FIRST, MIDDLE>(sums, header, stages, args, unit,
                                                                                   chunks, me, c);
        else
            mox_sm90_dispatch_width<ELEMENT, WIDTHS, CHUNKS, PAIRS, MIDDLE + 1, LAST>(sums, header, stages, args, unit,
                                                                                      chunks, me, c);
    }
}

/* The same for all widths, where two chunks have one sum, and where they have not: separate code. */
template <int ELEMENT, class WIDTHS, int CHUNKS>
__device__ __forceinline__ void mox_sm90_dispatch_sums(float (&sums)[WIDTHS::sums], mox_sm90_header *header,
                                                       const uint8_t *stages, const mox_sm90_args &args,
                                                       const mox_sm90_work_unit &unit, int chunks,
                                                       const mox_sm90_place &me, mox_sm90_consumer *c)
{
    constexpr int LAST = WIDTHS::count - 1;
    if constexpr (MOX_SM90_SUMS_PAIRS(ELEMENT))
        if (args.sum_shift > 0) {
            mox_sm90_dispatch_width<ELEMENT, WIDTHS, CHUNKS, true, 0, LAST>(sums, header, stages, args, unit, chunks,
                                                                            me, c);
            return;
        }
    mox_sm90_dispatch_width<ELEMENT, WIDTHS, CHUNKS, false, 0, LAST>(sums, header, stages, args, unit, chunks, me, c);
}

/* The same with the number of chunks that a stage has: more where the token tile has few columns, and separate code.
 * MAX_COLUMNS: the kernel's widest tile. */
template <int ELEMENT, class WIDTHS, int MAX_COLUMNS>
__device__ __forceinline__ void mox_sm90_dispatch(float (&sums)[WIDTHS::sums], mox_sm90_header *header,
                                                  const uint8_t *stages, const mox_sm90_args &args,
                                                  const mox_sm90_work_unit &unit, int chunks, const mox_sm90_place &me,
                                                  mox_sm90_consumer *c)
{
    if constexpr (MAX_COLUMNS == MOX_SM90_NARROW_COLUMNS_DEQUANT && WIDTHS::max_columns <= MOX_SM90_NARROW_COLUMNS)
        if (unit.columns <= args.few_columns) {
            mox_sm90_dispatch_sums<ELEMENT, WIDTHS, mox_sm90_chunks_per_stage(ELEMENT, MOX_SM90_NARROW_COLUMNS)>(
                sums, header, stages, args, unit, chunks, me, c);
            return;
        }
    mox_sm90_dispatch_sums<ELEMENT, WIDTHS, mox_sm90_chunks_per_stage(ELEMENT, MAX_COLUMNS)>(sums, header, stages, args,
                                                                                             unit, chunks, me, c);
}

template <int ELEMENT, class WIDTHS, int MAX_COLUMNS>
__device__ __forceinline__ void mox_sm90_compute(const mox_sm90_args &args, uint8_t *shared,
                                                 const mox_sm90_work_unit &unit, mox_sm90_consumer *c)
{
    constexpr bool DECODES = MOX_SM90_DECODES(ELEMENT);
    float sums[WIDTHS::sums];
#pragma unroll
    for (int i = 0; i < WIDTHS::sums; i++)
        sums[i] = 0.0f;
    if (WIDTHS::narrow && unit.hand_off < 0)
        mox_sm90_fetch_row_constants(mox_sm90_find_header(shared), unit, mox_sm90_find_place());
    mox_sm90_column_factors<mox_sm90_has_factors(ELEMENT) != 0, WIDTHS::sums> columns;
    if constexpr (WIDTHS::narrow) /* registers suffice; at the end of the tile the loads would queue behind the stream
                                     of weights */
        columns.load(mox_sm90_find_header(shared)->args, unit, mox_sm90_find_place().lane);
    if (unit.resume >= 0)
        mox_sm90_resume(sums, mox_sm90_find_header(shared)->args, unit.resume, unit.columns, mox_sm90_find_place());
    const int chunks = unit.end - unit.begin;
    if (chunks > 0) /* always true; without the test the compiler runs out of registers and waits for each MMA */
        mox_sm90_dispatch<ELEMENT, WIDTHS, MAX_COLUMNS>(sums, (mox_sm90_header *)shared,
                                                        shared + mox_sm90_header_bytes(ELEMENT, MAX_COLUMNS), args,
                                                        unit, chunks, mox_sm90_find_place(), c);
    if (unit.hand_off >= 0) {
        mox_sm90_hand_off(sums, mox_sm90_find_header(shared)->args, unit.hand_off, unit.columns, mox_sm90_find_place());
    } else {
        const mox_sm90_row_constants rows =
            mox_sm90_load_row_constants<WIDTHS::narrow>(mox_sm90_find_header(shared), unit, mox_sm90_find_place());
        if constexpr (!WIDTHS::narrow)
            columns.load(mox_sm90_find_header(shared)->args, unit, mox_sm90_find_place().lane);
        if constexpr (ELEMENT == MOX_SM90_INT8)
            mox_sm90_int_to_float(sums, unit.columns);
        mox_sm90_epilogue<DECODES>(sums, mox_sm90_find_header(shared), unit, rows, columns, mox_sm90_find_place(),
                                   &c->rounds);
    }
}

/* Runs the code of the unit's own width, from end to end. */
template <int ELEMENT, class WIDTHS, int MAX_COLUMNS>
__device__ __forceinline__ void mox_sm90_compute_by_width(const mox_sm90_args &args, uint8_t *shared,
                                                          const mox_sm90_work_unit &unit, mox_sm90_consumer *c)
{
    if constexpr (WIDTHS::count == 1) {
        mox_sm90_compute<ELEMENT, WIDTHS, MAX_COLUMNS>(args, shared, unit, c);
    } else {
        using first = typename mox_sm90_split<WIDTHS>::first;
        if (unit.columns <= first::max_columns)
            mox_sm90_compute<ELEMENT, first, MAX_COLUMNS>(args, shared, unit, c);
        else
            mox_sm90_compute_by_width<ELEMENT, typename mox_sm90_split<WIDTHS>::rest, MAX_COLUMNS>(args, shared, unit,
                                                                                                   c);
    }
}

template <int ELEMENT, class WIDTHS>
__device__ __forceinline__ void mox_sm90_compute_any(const mox_sm90_args &args, uint8_t *shared,
                                                     const mox_sm90_work_unit &unit, mox_sm90_consumer *c)
{
    if constexpr (MOX_SM90_DECODES(ELEMENT) && WIDTHS::narrow)
        mox_sm90_compute_by_width<ELEMENT, WIDTHS, WIDTHS::max_columns>(args, shared, unit, c);
    else
        mox_sm90_compute<ELEMENT, WIDTHS, WIDTHS::max_columns>(args, shared, unit, c);
}

template <int ELEMENT, class WIDTHS>
__device__ __forceinline__ void mox_sm90_consume(const mox_sm90_args &args, uint8_t *shared)
{
    mox_sm90_header *header = (mox_sm90_header *)shared;
    mox_sm90_consumer c = { { 0, 0 }, 0 };
    mox_grid_wait();
    mox_grid_release(); /* not earlier: the next kernel reads the work list without waiting */
    for (int n = 0;; n++) {
        /* By reference: the accumulators need the registers. */
        const mox_sm90_work_unit &unit = mox_sm90_queue_peek(header, n);
        if (unit.begin == unit.end)
            break;
        mox_sm90_compute_any<ELEMENT, WIDTHS>(args, shared, unit, &c);
        mox_sm90_queue_pop(header, n, threadIdx.x % 32);
    }
}

/* Registers of a consumer thread and of a producer thread, which keeps more where weights have scales. At launch each
 * thread has 168; they are then reallocated. */
template <int ELEMENT, class WIDTHS>
constexpr int mox_sm90_consumer_registers = WIDTHS::narrow             ? 176
                                            : ELEMENT >= MOX_SM90_E4M3 ? 216
                                                                       : 224;
template <int ELEMENT, class WIDTHS>
constexpr int mox_sm90_producer_registers = 3 * 168 - 2 * mox_sm90_consumer_registers<ELEMENT, WIDTHS>;

/* Not where blocks share a multiprocessor. */
template <int ELEMENT, class WIDTHS>
constexpr bool mox_sm90_reallocates_registers = mox_sm90_blocks_per_sm(ELEMENT, WIDTHS::max_columns) == 1;

template <int ELEMENT, class WIDTHS>
__global__ void __launch_bounds__(mox_sm90_threads(ELEMENT, WIDTHS::max_columns),
                                  mox_sm90_blocks_per_sm(ELEMENT, WIDTHS::max_columns))
    mox_sm90_gemm(const __grid_constant__ mox_sm90_args args)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    mox_sm90_header *header = (mox_sm90_header *)shared;
    uint8_t *stages = shared + mox_sm90_header_bytes(ELEMENT, WIDTHS::max_columns);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp >= MOX_SM90_CONSUMER_WARPS) {
        if constexpr (mox_sm90_reallocates_registers<ELEMENT, WIDTHS>)
            mox_registers_decrease<mox_sm90_producer_registers<ELEMENT, WIDTHS>>();
        if (warp == MOX_SM90_CONSUMER_WARPS)
            mox_sm90_produce_weights<ELEMENT, WIDTHS::narrow>(args, header, stages, lane);
        else if (warp == MOX_SM90_CONSUMER_WARPS + 1)
            mox_sm90_produce_tokens<ELEMENT>(args, header, stages, lane);
        else
            mox_sm90_header_sync(args);
    } else {
        if constexpr (mox_sm90_reallocates_registers<ELEMENT, WIDTHS>)
            mox_registers_increase<mox_sm90_consumer_registers<ELEMENT, WIDTHS>>();
        mox_sm90_header_init<ELEMENT>(header, args);
        mox_sm90_header_sync(args);
        mox_sm90_consume<ELEMENT, WIDTHS>(args, shared);
    }
    __syncwarp();
    if (args.paired)
        mox_cluster_sync(); /* no block may end while the other still writes to its shared memory */
}

/* The kernel for token tiles of up to `max_columns` columns. */
template <int ELEMENT> mox_sm90_kernel mox_sm90_kernel_of(int32_t max_columns)
{
    using wide = typename mox_sm90_widths_for<ELEMENT>::type;
    using narrow = std::conditional_t<mox_sm90_narrow_columns(ELEMENT) == MOX_SM90_NARROW_COLUMNS_DEQUANT,
                                      mox_sm90_widths_narrow_dequant, mox_sm90_widths_narrow>;
    static_assert(wide::max_columns == mox_sm90_max_columns(ELEMENT), "mma_shape.h names another widest tile");
    return max_columns <= narrow::max_columns ? mox_sm90_gemm<ELEMENT, narrow> : mox_sm90_gemm<ELEMENT, wide>;
}

#endif
