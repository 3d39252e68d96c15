/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_simple.cu - kernels simple_any and simple_int: any weight format times any activations, any shape and
 * group, from rowmajor records, with the bits of the CPU's scalar_any and scalar_int. The second oracle: slow, plain,
 * and always available.
 *
 *     block       64 rows of one matrix x 4 pairs of one slot, all of K, in chunks of 512 columns (visiting order)
 *     half-warp   4 rows x 4 pairs; lane l computes columns l, l + 16, ... of each segment
 *
 *     lane[l] = 0;  for each segment: part[l] = sum of (code - zero) a, from zero;  lane[l] += (part[l] * sa) * sw
 *     sum = tree(lane);  then scales of rows, global scales, bias
 *
 * sa, sw: scales of activations and weights. A segment is a run of columns in one weight group, one activation group
 * and one chunk. A bit mask in shared memory says where segments begin, so natural order and activation order share
 * their code. Groups of integers run across chunks: they are summed exactly in int32, across lanes too, before they
 * become a float.
 *
 * E2M1 in groups of 16 or 32 columns has separate kernels, which give the same bits in fewer steps: simple_short.cuh.
 *
 * A product of an 8-bit code and a 16-bit number is exact in f32, so a fused multiply-add gives the CPU's bits. All
 * other products are rounded before they are added (EXACT says which).
 */
#include "cuda/device/device_launch.cuh"
#include "cuda/device/device_error.h"
#include "cuda/device/device_format.cuh"
#include "cuda/expert_gemm/simple/simple_short.cuh"
#include "cuda/expert_gemm/simple/simple_tile.cuh"

using namespace mox_simple;

/* ---- arithmetic ------------------------------------------------------------------------------------- */

/* One lane's sums of 4 rows x 4 pairs. */
struct float_sums {
    float part[ROWS][PAIRS], total[ROWS][PAIRS];
};

template <Source SOURCE, bool EXACT, bool STAGED>
static __device__ void multiply(const tile &t, const chunk &c, const float *table, int first, int end, int lane,
                                const float *zero, float_sums *sums)
{
#pragma unroll 2
    for (int i = first + lane; i < end; i += LANES) {
        float w[ROWS], a[PAIRS];
        for (int r = 0; r < ROWS; r++)
            w[r] = weight<SOURCE, STAGED>(t, c, table, r, i) - zero[r];
        for (int p = 0; p < PAIRS; p++)
            a[p] = c.act[p][i];
        for (int r = 0; r < ROWS; r++)
            for (int p = 0; p < PAIRS; p++)
                sums->part[r][p] = EXACT ? __fmaf_rn(w[r], a[p], sums->part[r][p]) : sums->part[r][p] + w[r] * a[p];
    }
}

/* At the end of a segment the parts, scaled, are added to the lane's totals. */
static __device__ void close_segment(const mox_cuda_expert_gemm_args &args, const tile &t, const chunk &c, int first,
                                     float_sums *sums)
{
    for (int p = 0; p < PAIRS; p++) {
        const float sa = segment_act_scale(args, t, c, p, c.act_group[first]);
        for (int r = 0; r < ROWS; r++) {
            const float scaled = t.act_grouped ? sums->part[r][p] * sa : sums->part[r][p];
            sums->total[r][p] = sums->total[r][p] + scaled * t.scale[r];
            sums->part[r][p] = 0.0f;
        }
    }
}

/* Multiplies columns k .. k + 511, in any order and any groups. */
template <Source SOURCE, bool EXACT>
static __device__ void multiply_chunk(const mox_cuda_expert_gemm_args &args, tile *t, int64_t k, int lane, chunk *c,
                                      float_sums *sums)
{
    const int count = load_chunk(args, *t, k, true, c);
    for (int first = 0, end; first < count; first = end) {
        float zero[ROWS] = {};
        end = segment_end(*c, first, count);
        open_segment(args, t, *c, first, zero);
        if (has_table(SOURCE) && t->codes_staged)
            multiply<SOURCE, EXACT, true>(*t, *c, c->table, first, end, lane, zero, sums);
        else
            multiply<SOURCE, EXACT, false>(*t, *c, c->table, first, end, lane, zero, sums);
        close_segment(args, *t, *c, first, sums);
    }
}

/* The tree over the lanes of each sum, and the end of the tile. */
static __device__ void add_up(const mox_cuda_expert_gemm_args &args, const tile &t, int lane, const float_sums &sums,
                              chunk *c)
{
    __syncthreads(); /* all have read the last chunk; sums overwrite it */
    for (int r = 0; r < ROWS; r++)
        for (int p = 0; p < PAIRS; p++) {
            float sum = sums.total[r][p];
            for (int width = LANES / 2; width > 0; width /= 2)
                sum = sum + __shfl_down_sync(FULL_MASK, sum, width, LANES);
            if (lane == 0)
                c->act[p][t.first_row + r] = sum;
        }
    finish(args, t, c);
}

/* STEPS > 0: E2M1 in short groups. simple_short.cuh multiplies the chunks up to the first that it cannot. */
template <Source SOURCE, bool EXACT, int STEPS = 0>
static __global__ void __launch_bounds__(THREADS, STEPS > 0 ? 3 : 2)
    simple_any_kernel(const __grid_constant__ mox_cuda_expert_gemm_args args)
{
    extern __shared__ __align__(16) uint8_t shared[];
    chunk &c = *reinterpret_cast<chunk *>(shared);
    tile t;
    if (!open_tile(args, &t, &c))
        return;
    const int lane = threadIdx.x % LANES;
    const int64_t cols = t.matrix->cols;
    if (SOURCE == SOURCE_BLOCK)
        t.block = mox_device_block_of(args.weight.element);
    float_sums sums = {};
    int64_t k = 0;
    if constexpr (STEPS > 0) {
        const short_source source = open_short<STEPS>(args, t, &c);
        for (; k < cols && !t.ordered && load_short<STEPS>(source, static_cast<int32_t>(k), &c); k += CHUNK)
            multiply_short<STEPS>(c.short_groups, cols - k < CHUNK ? static_cast<int32_t>(cols - k) : CHUNK,
                                  sums.total);
    }
    for (; k < cols; k += CHUNK)
        multiply_chunk<SOURCE, EXACT>(args, &t, k, lane, &c, &sums);
    add_up(args, t, lane, sums, &c);
}

/* ---- integers --------------------------------------------------------------------------------------- */

struct int_sums {
    int32_t part[ROWS][PAIRS], acts[PAIRS];
    float total[ROWS][PAIRS];
};

template <Source SOURCE, bool STAGED>
static __device__ void multiply_int(const tile &t, const chunk &c, const float *table, int first, int end, int lane,
                                    int_sums *sums)
{
    for (int i = first + lane; i < end; i += LANES) {
        int32_t w[ROWS], a[PAIRS];
        for (int r = 0; r < ROWS; r++)
            w[r] = static_cast<int32_t>(weight<SOURCE, STAGED>(t, c, table, r, i));
        for (int p = 0; p < PAIRS; p++) {
            a[p] = static_cast<int32_t>(c.act[p][i]);
            sums->acts[p] += a[p];
        }
        for (int r = 0; r < ROWS; r++)
            for (int p = 0; p < PAIRS; p++)
                sums->part[r][p] += w[r] * a[p];
    }
}

static __device__ int32_t add_lanes(int32_t x)
{
    for (int width = LANES / 2; width > 0; width /= 2)
        x += __shfl_xor_sync(FULL_MASK, x, width, LANES);
    return x;
}

/* At the end of a group: the sums are exact so far, also in double; then they are rounded to float once. */
static __device__ void close_group(const mox_cuda_expert_gemm_args &args, const tile &t, const chunk &c, int act_group,
                                   const float *zero, int_sums *sums)
{
    for (int p = 0; p < PAIRS; p++) {
        const float sa = t.act_grouped ? act_scale(args, c, p, act_group) : 1.0f;
        const double acts = t.has_zero ? static_cast<double>(add_lanes(sums->acts[p])) : 0.0;
        for (int r = 0; r < ROWS; r++) {
            double part = add_lanes(sums->part[r][p]);
            if (t.has_zero)
                part -= static_cast<double>(zero[r]) * acts;
            float scaled = static_cast<float>(part);
            if (t.act_grouped)
                scaled *= sa;
            if (t.weight_grouped)
                scaled *= t.scale[r];
            sums->total[r][p] = sums->total[r][p] + scaled;
            sums->part[r][p] = 0;
        }
        sums->acts[p] = 0;
    }
}

template <Source SOURCE>
static __global__ void __launch_bounds__(THREADS, 2)
    simple_int_kernel(const __grid_constant__ mox_cuda_expert_gemm_args args)
{
    extern __shared__ __align__(16) uint8_t shared[];
    chunk &c = *reinterpret_cast<chunk *>(shared);
    const float *table = c.table;
    tile t;
    if (!open_tile(args, &t, &c))
        return;
    const int lane = threadIdx.x % LANES;
    int_sums sums = {};
    float zero[ROWS] = {};
    int act_group = 0;
    for (int64_t k = 0; k < t.matrix->cols; k += CHUNK) {
        const int count = load_chunk(args, t, k, false, &c);
        for (int first = 0, end; first < count; first = end) {
            end = segment_end(c, first, count);
            if (begins(c, first)) {
                if (k + first > 0)
                    close_group(args, t, c, act_group, zero, &sums);
                open_segment(args, &t, c, first, zero);
                act_group = c.act_group[first];
            }
            if (t.codes_staged)
                multiply_int<SOURCE, true>(t, c, table, first, end, lane, &sums);
            else
                multiply_int<SOURCE, false>(t, c, table, first, end, lane, &sums);
        }
    }
    if (t.matrix->cols > 0)
        close_group(args, t, c, act_group, zero, &sums);
    __syncthreads();
    if (lane == 0)
        for (int r = 0; r < ROWS; r++)
            for (int p = 0; p < PAIRS; p++)
                c.act[p][t.first_row + r] = sums.total[r][p];
    finish(args, t, &c);
}

/* ---- launchers -------------------------------------------------------------------------------------- */

typedef void (*kernel_fn)(const mox_cuda_expert_gemm_args args);

static moxie_status launch(kernel_fn kernel, const mox_cuda_expert_gemm_args *args, mox_cuda_stream stream,
                           const char *name, moxie_error *error)
{
    const int64_t blocks = max_tiles(*args);
    if (blocks == 0)
        return MOXIE_OK;
    MOX_FAIL_IF(blocks > INT32_MAX, MOXIE_ERR_UNSUPPORTED, error, "%s: %lld blocks in one launch: lower max_tokens",
                name, (long long)blocks);
    const cudaError_t fits = mox_device_allow_shared(reinterpret_cast<const void *>(kernel));
    MOX_TRY(mox_cuda_status(fits, name, error));
    kernel<<<static_cast<unsigned>(blocks), THREADS, sizeof(chunk), static_cast<cudaStream_t>(stream)>>>(*args);
    return mox_cuda_launched(name, error);
}

moxie_status mox_cuda_expert_gemm_simple_any_launch(const mox_cuda_expert_gemm_args *args, mox_cuda_stream stream,
                                                    moxie_error *error)
{
    /* Products with f32 activations or with fractional zero points are not exact, and those of two 16-bit numbers may
     * underflow. */
    const bool exact = (args->act.element != MOXIE_DTYPE_NONE || args->dtype != MOXIE_F32) && !args->weight.has_zero;
    kernel_fn kernel = exact ? simple_any_kernel<SOURCE_BITS, true> : simple_any_kernel<SOURCE_BITS, false>;
    const int steps = exact ? short_steps(*args) : 0;
    if (steps != 0)
        kernel = steps == 1 ? simple_any_kernel<SOURCE_BITS4, true, 1> : simple_any_kernel<SOURCE_BITS4, true, 2>;
    else if (args->element_bits == 4)
        kernel = exact ? simple_any_kernel<SOURCE_BITS4, true> : simple_any_kernel<SOURCE_BITS4, false>;
    else if (args->element_bits == 8)
        kernel = exact ? simple_any_kernel<SOURCE_BITS8, true> : simple_any_kernel<SOURCE_BITS8, false>;
    else if (args->weight.element == MOXIE_F32)
        kernel = simple_any_kernel<SOURCE_F32, false>;
    else if (args->weight.element == MOXIE_F16)
        kernel = simple_any_kernel<SOURCE_F16, false>;
    else if (args->weight.element == MOXIE_BF16)
        kernel = simple_any_kernel<SOURCE_BF16, false>;
    else if (args->weight.element >= MOX_BLOCK_DTYPE)
        kernel = simple_any_kernel<SOURCE_BLOCK, false>;
    return launch(kernel, args, stream, "expert_gemm simple_any", error);
}

moxie_status mox_cuda_expert_gemm_simple_int_launch(const mox_cuda_expert_gemm_args *args, mox_cuda_stream stream,
                                                    moxie_error *error)
{
    kernel_fn kernel = args->element_bits == 4 ? simple_int_kernel<SOURCE_BITS4> : simple_int_kernel<SOURCE_BITS8>;
    return launch(kernel, args, stream, "expert_gemm simple_int", error);
}
