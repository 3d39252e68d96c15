/* SPDX-License-Identifier: Apache-2.0
 *
 * simple_short.cuh - E2M1 weights in groups of 16 columns (scales E4M3: NVFP4) or of 32 (E8M0: MXFP4), where the
 * general kernel would spend most of its time at the ends of segments. These kernels give the same bits in fewer
 * operations, because the products are exact:
 *
 *     16 columns    A lane has one product of a segment. ((w a) sa) sw has at most 2 + 11 + 4 + 4 bits, so it is exact:
 *                   lane = fma(w sw, a sa, lane)
 *     32 columns    A lane has two; scales are powers of two: part = fma(w, a sa, w a sa), lane = fma(part, sw, lane)
 *
 * That holds while nothing leaves the normal range of f32. Otherwise the general code multiplies the chunk: where
 * a scaled activation is not finite or outside MIN_ACT..MAX_ACT, or a power of two is outside MIN_SCALE..MAX_SCALE.
 * Both give the same sums.
 *
 *     codes     of a row: words 0 2 4 ... | 1 3 5 ..., so that one load of 16 bytes has a lane's nibbles of columns l,
 *               l + 16, l + 32, l + 48 (nibble l % 8 of each word)
 *     nibble    s eem -> bits 31 and 24..22: E2M1, subnormal or not, as an f32 that is 2^126 times too small; to make
 *               up for it, scales of weights and scaled activations are prescaled by 2^63 each
 *     past K    activations are zero and scales finite: +-0 is added to sums that are never -0
 */
#ifndef MOX_CUDA_EXPERT_GEMM_SIMPLE_SHORT_CUH
#define MOX_CUDA_EXPERT_GEMM_SIMPLE_SHORT_CUH

#include "cuda/expert_gemm/simple/simple_tile.cuh"

namespace mox_simple
{

enum { ODD = CHUNK / 16 + 4 }; /* where the odd words of a line begin: in other banks than the even ones */
static const float PRESCALE = 0x1p63f, MIN_ACT = 0x1p-70f, MAX_ACT = 0x1p40f, MIN_SCALE = 0x1p-60f, MAX_SCALE = 0x1p60f;

/* How many products a lane has of a segment; 0: the general kernel. Products w a must be exact. */
static inline int short_steps(const mox_cuda_expert_gemm_args &args)
{
    const mox_cuda_matrix &m = args.matrix[0];
    const bool groups_of_16 = m.group_cols == LANES && args.weight.scale == MOXIE_F8_E4M3;
    const bool groups_of_32 = m.group_cols == 2 * LANES && args.weight.scale == MOXIE_F8_E8M0;
    if (args.weight.element != MOXIE_F4_E2M1 || !(groups_of_16 || groups_of_32) || m.scale == 0 || m.scale_cols < 2 ||
        m.row_bytes % 16 != 0 || args.scale_table == nullptr)
        return 0;
    if (args.a.scales != nullptr && args.a.scale_cols > 1) {
        const bool short_scales = args.act.scale == MOXIE_F8_E8M0 || (groups_of_16 && args.act.scale == MOXIE_F8_E4M3);
        if (!short_scales || args.a.group_cols != m.group_cols)
            return 0;
    }
    return groups_of_16 ? 1 : 2;
}

/* What a thread loads for every chunk: of row thread / 4 four times 16 bytes of codes, beginning at `codes`, and a
 * quarter of the scales; of pair thread % 4 every 64th column. */
struct short_source {
    const uint8_t *codes, *scales;
    const float *act, *act_scale;     /* act_scale: NULL where a row has only one */
    int32_t code_bytes, groups, cols; /* left from there on; cols: 0 past the last pair */
    int32_t skip;                     /* `scales` is 4-byte aligned; bytes from there to the first scale */
};

enum { QUARTERS = THREADS / TILE_ROWS, APART = THREADS / PAIRS, ACTS = CHUNK / APART };
static_assert(int(QUARTERS) == int(PAIRS), "a thread has a quarter of a row and one pair");

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
        STEPS == 1 || (size >= MIN_SCALE && size <= MAX_SCALE) ? scale * PRESCALE : mox_f32_decode(MOX_F32_NAN);
    __syncthreads();
    return s;
}

/* Four codes of scales, in one or two words. */
struct short_scales {
    uint32_t low, high;
};

static __device__ inline short_scales fetch_scales(const short_source &s, int32_t at)
{
    const uint32_t *words = reinterpret_cast<const uint32_t *>(s.scales + at);
    const bool two = s.skip > 0 && s.groups - at > 4 - s.skip;
    return { s.groups > at ? words[0] : 0, two ? words[1] : 0 };
}

/* Scales past the last group become a number that is finite in both formats. */
static __device__ inline uint32_t join_scales(const short_source &s, int32_t at, const short_scales &scales)
{
    const int32_t left = s.groups - at;
    const uint32_t word = __funnelshift_r(scales.low, scales.high, s.skip * 8), absent = 0x70707070u;
    if (left >= 4)
        return word;
    return left <= 0 ? absent : (word & ~(FULL_MASK << left * 8)) | absent << left * 8;
}

/* Loads columns k .. k + 511 to c->short_groups; false, for the whole block, where the general code must multiply them.
 */
template <int STEPS> static __device__ inline bool load_short(const short_source &s, int32_t k, chunk *c)
{
    const int words = CHUNK / LANES / STEPS / QUARTERS / 4, group_cols = LANES * STEPS;
    const int thread = threadIdx.x, row = thread / QUARTERS, quarter = thread % QUARTERS;
    uint4 codes[QUARTERS];
    short_scales scales[words];
    float act[ACTS], act_scale[ACTS];
    for (int j = 0; j < QUARTERS; j++) /* all loads are in flight before the first is waited for */
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
        fits &= (size == 0.0f) | ((size >= MIN_ACT) & (size <= MAX_ACT));
    }
    __syncthreads(); /* the previous chunk has been read */
    for (int j = 0; j < QUARTERS; j++) {
        uint32_t *line = c->short_groups.codes[row] + (quarter + j * QUARTERS) * 2;
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
        *reinterpret_cast<float4 *>(c->short_groups.scale[row] + (quarter * words + j) * 4) = four;
        if (STEPS > 1)
            fits &= !isnan(four.x) & !isnan(four.y) & !isnan(four.z) & !isnan(four.w);
    }
    float *acts = reinterpret_cast<float *>(c->short_groups.act) + thread;
    for (int j = 0; j < ACTS; j++)
        acts[j * THREADS] = act[j] * PRESCALE;
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

/* Adds the chunk's products to the lane's totals, 64 columns a turn. */
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
