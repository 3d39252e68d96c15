/* SPDX-License-Identifier: Apache-2.0
 *
 * simple_short.cuh - E2M1 weights in groups of 16 (scales E4M3: NVFP4) or 32 columns (E8M0: MXFP4), where a general row
 * would spend most of its time at the ends of segments. The same bits with fewer roundings, none of which rounds:
 *
 *     16 columns    a lane has one product of a segment. ((w a) sa) sw has at most 2 + 11 + 4 + 4 bits, so it is exact
 *                   and lane = fma(w sw, a sa, lane)
 *     32 columns    two of them; scales are powers of two: part = fma(w, a sa, w a sa), lane = fma(part, sw, lane)
 *
 * That holds while nothing leaves the normal range of f32. A chunk where a scaled activation is not finite or outside
 * LEAST..MOST, or a power of two outside SCALE_LEAST..SCALE_MOST, goes the general way; both leave the same sums.
 *
 *     codes      a row's words 0 2 4 ... | 1 3 5 ..., so that one load of 16 bytes has a lane's nibbles (number l % 8
 * of a word) of columns l, l + 16, l + 32, l + 48 nibble     s eem -> bits 31 and 24..22: E2M1, subnormal or not, as an
 * f32 that is 2^126 times too small; to make up for it, scales of weights and scaled activations are kept 2^63 times
 * too large past K     activations are zero and scales finite, which adds +-0 to sums that are never -0
 */
#ifndef MOX_CUDA_EXPERT_GEMM_SIMPLE_SHORT_CUH
#define MOX_CUDA_EXPERT_GEMM_SIMPLE_SHORT_CUH

#include "cuda/expert_gemm/simple/simple_tile.cuh"

namespace mox_simple
{

enum { ODD = CHUNK / 16 + 4 }; /* where odd words of a line begin: in other banks than even ones */
static const float RAISED = 0x1p63f, LEAST = 0x1p-70f, MOST = 0x1p40f, SCALE_LEAST = 0x1p-60f, SCALE_MOST = 0x1p60f;

/* Products that a lane has of a segment, 0 for operands that go the general way. Products w a are known to be exact. */
static inline int short_steps(const mox_cuda_expert_gemm_args &args)
{
    const mox_cuda_matrix &m = args.matrix[0];
    const bool of_16 = m.group_cols == LANES && args.weight.scale == MOXIE_F8_E4M3;
    const bool of_32 = m.group_cols == 2 * LANES && args.weight.scale == MOXIE_F8_E8M0;
    if (args.weight.element != MOXIE_F4_E2M1 || !(of_16 || of_32) || m.scale == 0 || m.scale_cols < 2 ||
        m.row_bytes % 16 != 0 || args.scale_table == nullptr)
        return 0;
    if (args.a.scales != nullptr && args.a.scale_cols > 1) {
        const bool short_scales = args.act.scale == MOXIE_F8_E8M0 || (of_16 && args.act.scale == MOXIE_F8_E4M3);
        if (!short_scales || args.a.group_cols != m.group_cols)
            return 0;
    }
    return of_16 ? 1 : 2;
}

/* What a thread brings to every chunk: of row thread / 4 four times 16 bytes of codes, the first of them `codes`, and a
 * quarter of the scales; of pair thread % 4 every 64th column. */
struct short_source {
    const uint8_t *codes, *scales;
    const float *act, *act_scale;     /* act_scale: NULL when there is none within a row */
    int32_t code_bytes, groups, cols; /* that are left from there; cols 0 past the last pair */
    int32_t skip;                     /* `scales` is on 4 bytes, the first is so many behind it */
};

enum { QUARTERS = THREADS / TILE_ROWS, APART = THREADS / PAIRS, ACTS = CHUNK / APART };
static_assert(QUARTERS == PAIRS, "a thread has a quarter of a row and one pair");

template <int STEPS>
static __device__ inline short_source open_short(const mox_cuda_expert_gemm_args &args, const tile &t, chunk *c)
{
    const int thread = threadIdx.x, row = thread / QUARTERS, quarter = thread % QUARTERS, column = thread / PAIRS;
    const int scales = CHUNK / LANES / STEPS / QUARTERS;
    const int64_t n = t.tile_row + row, real = n < t.matrix->rows ? n : t.matrix->rows - 1;
    const int64_t pair = c->act_row[thread % PAIRS], at = pair >= 0 ? pair : 0;
    short_source s;
    s.codes = t.record + t.matrix->codes + real * t.matrix->row_bytes + quarter * 16;
    s.code_bytes = static_cast<int32_t>(t.matrix->row_bytes) - quarter * 16;
    const uint8_t *first = t.record + t.matrix->scale + c->scale_row[row] + quarter * scales;
    s.skip = static_cast<int32_t>(reinterpret_cast<uintptr_t>(first) % 4);
    s.scales = first - s.skip;
    s.groups = static_cast<int32_t>(t.matrix->scale_cols) - quarter * scales;
    s.act = static_cast<const float *>(args.a.data) + at * args.a.stride + column;
    s.act_scale = t.act_grouped ? args.a.scales + at * args.a.scale_cols + column / (LANES * STEPS) : nullptr;
    s.cols = pair >= 0 ? static_cast<int32_t>(t.matrix->cols) - column : 0;
    const float scale = args.scale_table[thread], size = fabsf(scale);
    c->scale_table[thread] =
        STEPS == 1 || (size >= SCALE_LEAST && size <= SCALE_MOST) ? scale * RAISED : mox_f32_decode(MOX_F32_NAN);
    __syncthreads();
    return s;
}

/* Four codes of scales, which may lie across two words. */
struct short_scales {
    uint32_t low, high;
};

static __device__ inline short_scales fetch_scales(const short_source &s, int32_t at)
{
    const uint32_t *words = reinterpret_cast<const uint32_t *>(s.scales + at);
    const bool two = s.skip > 0 && s.groups - at > 4 - s.skip;
    return { s.groups > at ? words[0] : 0, two ? words[1] : 0 };
}

/* Those past the last group become a number that is finite in both formats. */
static __device__ inline uint32_t join_scales(const short_source &s, int32_t at, const short_scales &scales)
{
    const int32_t left = s.groups - at;
    const uint32_t word = __funnelshift_r(scales.low, scales.high, s.skip * 8), absent = 0x70707070u;
    if (left >= 4)
        return word;
    return left <= 0 ? absent : (word & ~(ALL << left * 8)) | absent << left * 8;
}

/* Columns k .. k + 511 to c->brief; false, for the whole block, when they go the general way. */
template <int STEPS> static __device__ inline bool load_short(const short_source &s, int32_t k, chunk *c)
{
    const int words = CHUNK / LANES / STEPS / QUARTERS / 4, group_cols = LANES * STEPS;
    const int thread = threadIdx.x, row = thread / QUARTERS, quarter = thread % QUARTERS;
    uint4 codes[QUARTERS];
    short_scales scales[words];
    float act[ACTS], act_scale[ACTS];
    for (int j = 0; j < QUARTERS; j++) /* all loads are under way before the first is waited for */
        codes[j] =
            k / 2 + j * 64 < s.code_bytes ? *reinterpret_cast<const uint4 *>(s.codes + k / 2 + j * 64) : uint4 {};
    for (int j = 0; j < words; j++)
        scales[j] = fetch_scales(s, k / group_cols + 4 * j);
    for (int j = 0; j < ACTS; j++)
        act[j] = k + j * APART < s.cols ? s.act[k + j * APART] : 0.0f;
    if (s.act_scale != nullptr) {
        for (int j = 0; j < ACTS; j++)
            act_scale[j] = k + j * APART < s.cols ? s.act_scale[(k + j * APART) / group_cols] : 0.0f;
        for (int j = 0; j < ACTS; j++)
            act[j] *= act_scale[j];
    }
    bool fits = true;
    for (int j = 0; j < ACTS; j++) {
        const float size = fabsf(act[j]);
        fits &= (size == 0.0f) | ((size >= LEAST) & (size <= MOST));
    }
    __syncthreads(); /* the previous chunk is done with */
    for (int j = 0; j < QUARTERS; j++) {
        uint32_t *line = c->brief.codes[row] + (quarter + j * QUARTERS) * 2;
        line[0] = codes[j].x;
        line[1] = codes[j].z;
        line[ODD] = codes[j].y;
        line[ODD + 1] = codes[j].w;
    }
    for (int j = 0; j < words; j++) {
        const float *table = c->scale_table;
        const uint32_t word = join_scales(s, k / group_cols + 4 * j, scales[j]);
        const float4 four =
            make_float4(table[word & 255], table[word >> 8 & 255], table[word >> 16 & 255], table[word >> 24]);
        *reinterpret_cast<float4 *>(c->brief.scale[row] + (quarter * words + j) * 4) = four;
        if (STEPS > 1)
            fits &= !isnan(four.x) & !isnan(four.y) & !isnan(four.z) & !isnan(four.w);
    }
    float *acts = reinterpret_cast<float *>(c->brief.act) + thread;
    for (int j = 0; j < ACTS; j++)
        acts[j * THREADS] = act[j] * RAISED;
    return __syncthreads_and(fits) != 0;
}

/* The nibble whose lowest bit is bit 28 - shift, 2^126 times too small. */
static __device__ inline float short_weight(uint32_t word, int shift)
{
    return mox_f32_decode(static_cast<uint32_t>(static_cast<int32_t>(word << shift) >> 6) & 0x81c00000u);
}

static __device__ inline void short_products(float w, const float4 &a, const float (&part)[PAIRS], float (&sum)[PAIRS])
{
    sum[0] = __fmaf_rn(w, a.x, part[0]);
    sum[1] = __fmaf_rn(w, a.y, part[1]);
    sum[2] = __fmaf_rn(w, a.z, part[2]);
    sum[3] = __fmaf_rn(w, a.w, part[3]);
}

/* The chunk's products into the lane's totals, 64 columns a turn. */
template <int STEPS>
static __device__ inline void multiply_short(const short_chunk &c, int count, float (&total)[ROWS][PAIRS])
{
    const int lane = threadIdx.x % LANES, first_row = static_cast<int>(threadIdx.x) / LANES * ROWS;
    const int shift = 28 - lane % 8 * 4, code_line = sizeof c.codes[0] / 4, scale_line = sizeof c.scale[0] / 4;
    const uint32_t *code = c.codes[first_row] + lane / 8 * ODD;
    const float *from = c.scale[first_row];
    const float4 *act = c.act + lane;
#pragma unroll 1
    for (int left = count; left > 0; left -= 4 * LANES, code += 4, from += 4 / STEPS, act += 4 * LANES) {
        uint32_t codes[ROWS][4];
        float scale[ROWS][4];
        for (int r = 0; r < ROWS; r++) {
            const uint4 word = *reinterpret_cast<const uint4 *>(code + r * code_line);
            codes[r][0] = word.x, codes[r][1] = word.y, codes[r][2] = word.z, codes[r][3] = word.w;
            if (STEPS == 1) {
                const float4 s = *reinterpret_cast<const float4 *>(from + r * scale_line);
                scale[r][0] = s.x, scale[r][1] = s.y, scale[r][2] = s.z, scale[r][3] = s.w;
            } else {
                const float2 s = *reinterpret_cast<const float2 *>(from + r * scale_line);
                scale[r][0] = s.x, scale[r][1] = s.y;
            }
        }
        for (int j = 0; j < 4; j += STEPS) {
            float4 a[STEPS];
            for (int n = 0; n < STEPS; n++)
                a[n] = act[(j + n) * LANES];
            for (int r = 0; r < ROWS; r++) {
                const float w = short_weight(codes[r][j], shift), s = scale[r][j / STEPS];
                if (STEPS == 1) {
                    short_products(w * s, a[0], total[r], total[r]);
                } else {
                    float part[PAIRS] = { w * a[0].x, w * a[0].y, w * a[0].z, w * a[0].w };
                    short_products(short_weight(codes[r][j + STEPS - 1], shift), a[STEPS - 1], part, part);
                    short_products(s, make_float4(part[0], part[1], part[2], part[3]), total[r], total[r]);
                }
            }
        }
    }
}

} /* namespace mox_simple */

#endif
