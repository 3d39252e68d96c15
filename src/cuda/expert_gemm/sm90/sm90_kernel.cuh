/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_kernel.cuh - the Hopper kernel of family expert_gemm, for one type of elements (sm90_args.h says what it
 * computes and how the work is cut).
 *
 *     warps 0-3, 4-7    consumers: rows 0-63 and 64-127 of a row tile, each on its own from stage to stage
 *     warp 8            weights and the queue of pieces
 *     warp 9            tokens
 *     warps 10, 11      none: registers are dealt to four warps at a time; not there where two blocks share a
 *                       multiprocessor and all threads have 96
 *
 * Widths of the MMA are a list per type of elements; a token tile runs in the narrowest that holds it. Narrow token
 * tiles have a kernel of their own, whose code is a tenth as long: where weights stream, all that runs for the first
 * time waits for DRAM. In it, where weights are decoded, each width has code of its own from end to end: of code that
 * is there for more columns few lines run, each far from the one before, and each is waited for (at the end of a
 * tile 1.1 us, 0.5 so).
 */
#ifndef MOX_CUDA_SM90_KERNEL_CUH
#define MOX_CUDA_SM90_KERNEL_CUH

#include "cuda/expert_gemm/sm90/sm90_dequant.cuh"
#include "cuda/expert_gemm/sm90/sm90_epilogue.cuh"
#include "cuda/expert_gemm/sm90/sm90_producers.cuh"

template <int... NS> struct mox_sm90_widths {
    static constexpr int at[] = { NS... }, count = sizeof...(NS);
    static constexpr int sums = at[count - 1] / 2; /* accumulators of a thread */
    static constexpr int max_columns = at[count - 1];
    static constexpr bool narrow = max_columns <= MOX_SM90_NARROW_COLUMNS_DEQUANT;
};

/* A list's first, and the others. */
template <class WIDTHS> struct mox_sm90_split;
template <int N, int... NS> struct mox_sm90_split<mox_sm90_widths<N, NS...>> {
    using first = mox_sm90_widths<N>;
    using rest = mox_sm90_widths<NS...>;
};

using mox_sm90_widths_narrow = mox_sm90_widths<MOX_SM90_WIDTHS_NARROW>;
using mox_sm90_widths_narrow_dequant = mox_sm90_widths<MOX_SM90_WIDTHS_NARROW_DEQUANT>;
using mox_sm90_widths_w16a16 = mox_sm90_widths<MOX_SM90_WIDTHS_W16A16>;
using mox_sm90_widths_dequant = mox_sm90_widths<MOX_SM90_WIDTHS_DEQUANT>;
using mox_sm90_widths_fp8 = mox_sm90_widths<MOX_SM90_WIDTHS_FP8>;
using mox_sm90_widths_mxfp4_fp8 = mox_sm90_widths<MOX_SM90_WIDTHS_MXFP4_FP8>;
using mox_sm90_widths_int8 = mox_sm90_widths<MOX_SM90_WIDTHS_INT8>;

/* What the parts of a piece depend on, found anew for each piece and hidden from the compiler's eye: it would else
 * compute what they need before the loop over pieces, and keep it all. So the epilogue reads the kernel's arguments
 * from shared memory. */
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

/* `chunks` stages in the narrowest width from place FIRST to LAST of the list that holds `columns`. Halves the list
 * again and again: the loops lie far apart, and code that is only jumped over is fetched all the same. */
template <int ELEMENT, class WIDTHS, int CHUNKS, int FIRST, int LAST>
__device__ __forceinline__ void
mox_sm90_choose(float (&sums)[WIDTHS::sums], mox_sm90_header *header, const uint8_t *stages, const mox_sm90_args &args,
                const mox_sm90_work_unit &unit, int chunks, const mox_sm90_place &me, mox_sm90_consumer *c)
{
    if constexpr (FIRST == LAST) {
        mox_sm90_loop<ELEMENT, WIDTHS::at[FIRST], WIDTHS::sums, CHUNKS>(sums, header, stages, args, me, unit, chunks,
                                                                        c);
    } else {
        constexpr int MIDDLE = (FIRST + LAST) / 2, WIDTH = WIDTHS::at[MIDDLE];
        if (unit.columns <= WIDTH)
            mox_sm90_choose<ELEMENT, WIDTHS, CHUNKS, FIRST, MIDDLE>(sums, header, stages, args, unit, chunks, me, c);
        else
            mox_sm90_choose<ELEMENT, WIDTHS, CHUNKS, MIDDLE + 1, LAST>(sums, header, stages, args, unit, chunks, me, c);
    }
}

/* Of all widths, by how many chunks a stage has: more where the launch's token tiles have up to
 * MOX_SM90_NARROW_COLUMNS, which are code of its own. MOST: the kernel's widest. */
template <int ELEMENT, class WIDTHS, int MAX_COLUMNS>
__device__ __forceinline__ void mox_sm90_choose_any(float (&sums)[WIDTHS::sums], mox_sm90_header *header,
                                                    const uint8_t *stages, const mox_sm90_args &args,
                                                    const mox_sm90_work_unit &unit, int chunks,
                                                    const mox_sm90_place &me, mox_sm90_consumer *c)
{
    constexpr int LAST = WIDTHS::count - 1;
    if constexpr (MAX_COLUMNS == MOX_SM90_NARROW_COLUMNS_DEQUANT && WIDTHS::max_columns <= MOX_SM90_NARROW_COLUMNS)
        if (args.max_columns <= MOX_SM90_NARROW_COLUMNS) {
            mox_sm90_choose<ELEMENT, WIDTHS, mox_sm90_chunks_per_stage(ELEMENT, MOX_SM90_NARROW_COLUMNS), 0, LAST>(
                sums, header, stages, args, unit, chunks, me, c);
            return;
        }
    mox_sm90_choose<ELEMENT, WIDTHS, mox_sm90_chunks_per_stage(ELEMENT, MAX_COLUMNS), 0, LAST>(
        sums, header, stages, args, unit, chunks, me, c);
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
    if constexpr (WIDTHS::narrow) /* there are registers for them, and at the end they would come behind the stream of
                                     weights */
        columns.load(mox_sm90_find_header(shared)->args, unit, mox_sm90_find_place().lane);
    if (unit.resume >= 0)
        mox_sm90_resume(sums, mox_sm90_find_header(shared)->args, unit.resume, unit.columns, mox_sm90_find_place());
    const int chunks = unit.end - unit.begin;
    if (chunks > 0) /* always; unsaid, the compiler runs out of registers and waits for each MMA */
        mox_sm90_choose_any<ELEMENT, WIDTHS, MAX_COLUMNS>(sums, (mox_sm90_header *)shared,
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
        mox_sm90_end<DECODES>(sums, mox_sm90_find_header(shared), unit, rows, columns, mox_sm90_find_place(),
                              &c->rounds);
    }
}

/* By code of the width's own, from end to end. */
template <int ELEMENT, class WIDTHS, int MAX_COLUMNS>
__device__ __forceinline__ void mox_sm90_compute_each(const mox_sm90_args &args, uint8_t *shared,
                                                      const mox_sm90_work_unit &unit, mox_sm90_consumer *c)
{
    if constexpr (WIDTHS::count == 1) {
        mox_sm90_compute<ELEMENT, WIDTHS, MAX_COLUMNS>(args, shared, unit, c);
    } else {
        using first = typename mox_sm90_split<WIDTHS>::first;
        if (unit.columns <= first::max_columns)
            mox_sm90_compute<ELEMENT, first, MAX_COLUMNS>(args, shared, unit, c);
        else
            mox_sm90_compute_each<ELEMENT, typename mox_sm90_split<WIDTHS>::rest, MAX_COLUMNS>(args, shared, unit, c);
    }
}

template <int ELEMENT, class WIDTHS>
__device__ __forceinline__ void mox_sm90_compute_any(const mox_sm90_args &args, uint8_t *shared,
                                                     const mox_sm90_work_unit &unit, mox_sm90_consumer *c)
{
    if constexpr (MOX_SM90_DECODES(ELEMENT) && WIDTHS::narrow)
        mox_sm90_compute_each<ELEMENT, WIDTHS, WIDTHS::max_columns>(args, shared, unit, c);
    else
        mox_sm90_compute<ELEMENT, WIDTHS, WIDTHS::max_columns>(args, shared, unit, c);
}

template <int ELEMENT, class WIDTHS>
__device__ __forceinline__ void mox_sm90_consume(const mox_sm90_args &args, uint8_t *shared)
{
    mox_sm90_header *header = (mox_sm90_header *)shared;
    mox_sm90_consumer c = { { 0, 0 }, 0 };
    mox_grid_wait();
    mox_grid_release(); /* not before: the next kernel reads the work list without waiting */
    for (int n = 0;; n++) {
        /* Left where it is: the accumulators need the registers. */
        const mox_sm90_work_unit &unit = mox_sm90_peek(header, n);
        if (unit.begin == unit.end)
            break;
        mox_sm90_compute_any<ELEMENT, WIDTHS>(args, shared, unit, &c);
        mox_sm90_drop(header, n, threadIdx.x % 32);
    }
}

/* Registers of a consumer's thread, and of a producer's, which with scales of weights has more to keep. At launch all
 * have 168, which are dealt out again. */
template <int ELEMENT, class WIDTHS>
constexpr int mox_sm90_consumer_registers = WIDTHS::narrow             ? 176
                                            : ELEMENT >= MOX_SM90_E4M3 ? 216
                                                                       : 224;
template <int ELEMENT, class WIDTHS>
constexpr int mox_sm90_producer_registers = 3 * 168 - 2 * mox_sm90_consumer_registers<ELEMENT, WIDTHS>;

/* Not where blocks share a multiprocessor. */
template <int ELEMENT, class WIDTHS> constexpr bool mox_sm90_deals = mox_sm90_blocks(ELEMENT, WIDTHS::max_columns) == 1;

template <int ELEMENT, class WIDTHS>
__global__ void __launch_bounds__(mox_sm90_threads(ELEMENT, WIDTHS::max_columns),
                                  mox_sm90_blocks(ELEMENT, WIDTHS::max_columns))
    mox_sm90_gemm(const __grid_constant__ mox_sm90_args args)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    mox_sm90_header *header = (mox_sm90_header *)shared;
    uint8_t *stages = shared + mox_sm90_header_bytes(ELEMENT, WIDTHS::max_columns);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp >= MOX_SM90_CONSUMER_WARPS) {
        if constexpr (mox_sm90_deals<ELEMENT, WIDTHS>)
            mox_registers_decrease<mox_sm90_producer_registers<ELEMENT, WIDTHS>>();
        if (warp == MOX_SM90_CONSUMER_WARPS)
            mox_sm90_produce_weights<ELEMENT, WIDTHS::narrow>(args, header, stages, lane);
        else if (warp == MOX_SM90_CONSUMER_WARPS + 1)
            mox_sm90_produce_tokens<ELEMENT>(args, header, stages, lane);
        else
            mox_sm90_header_sync(args);
    } else {
        if constexpr (mox_sm90_deals<ELEMENT, WIDTHS>)
            mox_registers_increase<mox_sm90_consumer_registers<ELEMENT, WIDTHS>>();
        mox_sm90_header_init<ELEMENT>(header, args);
        mox_sm90_header_sync(args);
        mox_sm90_consume<ELEMENT, WIDTHS>(args, shared);
    }
    __syncwarp();
    if (args.paired)
        mox_cluster_sync(); /* no block ends while the other still writes to its memory */
}

/* The kernel for token tiles of `most` columns. */
template <int ELEMENT, class WIDTHS> mox_sm90_kernel mox_sm90_kernel_of(int32_t max_columns)
{
    static_assert(WIDTHS::max_columns == mox_sm90_max_columns(ELEMENT), "sm90_shape.h names another list of widths");
    using narrow = std::conditional_t<mox_sm90_narrow_columns(ELEMENT) == MOX_SM90_NARROW_COLUMNS_DEQUANT,
                                      mox_sm90_widths_narrow_dequant, mox_sm90_widths_narrow>;
    return max_columns <= narrow::max_columns ? mox_sm90_gemm<ELEMENT, narrow> : mox_sm90_gemm<ELEMENT, WIDTHS>;
}

#endif
