/* SPDX-License-Identifier: Apache-2.0
 *
 * simple_tile.cuh - what the simple kernels of expert_gemm share: which tile a block computes, weights and activations
 * in shared memory chunk by chunk, where segments begin, how a code becomes a number, and the end of a sum.
 *
 *     tiles      slot 0: ceil(pairs / 4) tiles | slot 1: ... |      each for every 64 rows of every matrix; only the
 *                device knows how many: blocks past the last one return
 *     chunk      512 columns in visiting order: column[], act[4][512], act_group[], weight_group[], begin bits. In
 *                natural order also the tile's codes of up to 8 bits, and the scales and zero points of the chunk's
 *                groups, decoded: so memory is waited for, and a scale decoded, once a chunk
 */
#ifndef MOX_CUDA_EXPERT_GEMM_SIMPLE_TILE_CUH
#define MOX_CUDA_EXPERT_GEMM_SIMPLE_TILE_CUH

#include "cuda/device/device_block.cuh"
#include "cuda/device/device_format.cuh"
#include "cuda/expert_gemm/cuda_expert_gemm_args.h"

namespace mox_simple
{

enum {
    LANES = 16,
    THREADS = 256,
    ROWS = 4,
    PAIRS = 4,
    TILE_ROWS = THREADS / LANES * ROWS,
    CHUNK = 512, /* MOX_SEGMENT */
    WORDS = CHUNK / 32,
    CODE_LINE = CHUNK + 4, /* bytes; the odd word puts the rows of two half-warps in different banks */
    MIN_STAGED_GROUP = 16, /* narrower groups have their scales fetched one by one */
    GROUPS = CHUNK / MIN_STAGED_GROUP + 1,
    SCALE_LINE = TILE_ROWS + 4 /* floats; a multiple of four, so that four rows are one load */
};
static const unsigned FULL_MASK = 0xffffffffu;

/* How elements are stored and become numbers; up to 8 bits by table. A constant of every kernel: a branch for each
 * element would keep loads from overlapping. */
enum Source { SOURCE_BITS4, SOURCE_BITS8, SOURCE_BITS, SOURCE_F16, SOURCE_BF16, SOURCE_F32, SOURCE_BLOCK };

static constexpr __device__ bool has_table(Source source)
{
    return source <= SOURCE_BITS;
}

/* A chunk as simple_short.cuh stores it. */
struct __align__(16) short_chunk
{
    uint32_t codes[TILE_ROWS][CHUNK / 8 + 4]; /* the words that a warp reads at once lie in different banks */
    float scale[TILE_ROWS][CHUNK / LANES + 4];
    float4 act[CHUNK]; /* of the four pairs */
};

/* In shared memory. At the end `act` holds the finished sums. Scales, zero points and scales of activations belong to
 * the chunk's groups, counted from the first of them. */
struct __align__(16) chunk
{
    float scale[GROUPS][SCALE_LINE], zero[GROUPS][SCALE_LINE], act_scale[GROUPS][PAIRS];
    float table[256];
    float scale_table[256];        /* values of short groups' scales */
    uint32_t scale_row[TILE_ROWS]; /* index of a row's first scale and zero point */
    union {
        struct {
            uint32_t codes[TILE_ROWS][CODE_LINE / 4];
            float act[PAIRS][CHUNK];
        };
        short_chunk short_groups; /* in kernels of short groups, while they multiply the chunk */
    };
    int32_t first_weight_group, first_act_group;
    int32_t column[CHUNK], weight_group[CHUNK], act_group[CHUNK];
    uint32_t begins[WORDS];
    int64_t act_row[PAIRS]; /* -1 past the last pair */
    int64_t slot, pair;
    int32_t pairs;
};

/* A thread's view: its half-warp's rows. */
struct tile {
    const mox_cuda_matrix *matrix; /* in the arguments */
    const uint8_t *record;
    const uint8_t *codes[ROWS]; /* of row r; rows past the last repeat it */
    int64_t tile_row;           /* the block's first row in the matrix */
    int64_t column;             /* of out, for row tile_row */
    int32_t first_row;          /* this half-warp's first row in the block */
    int32_t bits;
    bool ordered, codes_staged, act_grouped, weight_grouped, has_zero;
    bool scales_staged, act_scales_staged; /* in shared memory */
    float scale[ROWS];                     /* of the current segment */
    mox_device_block block;                /* of SOURCE_BLOCK: the weights' type */
};

/* ---- which tile ------------------------------------------------------------------------------------- */

static inline int64_t row_tiles(const mox_cuda_expert_gemm_args &args)
{
    const int64_t rows = args.projection == 0 ? args.intermediate : args.hidden;
    return (args.projection == 0 && args.gated ? 2 : 1) * ((rows + TILE_ROWS - 1) / TILE_ROWS);
}

/* Blocks to launch: enough tiles of pairs for any routing. */
static inline int64_t max_tiles(const mox_cuda_expert_gemm_args &args)
{
    const int64_t full = args.max_pairs / PAIRS, slots = args.max_pairs < args.slots ? args.max_pairs : args.slots;
    return (full + slots) * row_tiles(args);
}

/* By the first warp: finds the slot of pair tile `wanted`; false past the last tile. */
static __device__ inline bool find_pairs(const mox_cuda_expert_gemm_args &args, int64_t wanted, chunk *c)
{
    const int lane = threadIdx.x;
    for (int64_t base = 0; base < args.slots; base += 32) {
        const int64_t slot = base + lane;
        const int64_t first = slot < args.slots ? args.offsets[slot] : 0;
        const int64_t pairs = slot < args.slots ? args.offsets[slot + 1] - first : 0;
        const int64_t mine = (pairs + PAIRS - 1) / PAIRS;
        int64_t before = mine; /* inclusive, below exclusive */
        for (int step = 1; step < 32; step *= 2) {
            const int64_t other = __shfl_up_sync(FULL_MASK, before, step);
            before += lane >= step ? other : 0;
        }
        const int64_t all = __shfl_sync(FULL_MASK, before, 31);
        before -= mine;
        if (wanted < all) {
            if (wanted >= before && wanted < before + mine) {
                const int64_t skip = (wanted - before) * PAIRS;
                c->slot = slot;
                c->pair = first + skip;
                c->pairs = static_cast<int32_t>(pairs - skip < PAIRS ? pairs - skip : PAIRS);
            }
            __syncwarp();
            return true;
        }
        wanted -= all;
    }
    return false;
}

/* Fills `t`, and the parts of `c` that hold for the whole tile. False for blocks without a tile. */
static __device__ inline bool open_tile(const mox_cuda_expert_gemm_args &args, tile *t, chunk *c)
{
    /* All of a launch's tiles are counted in 31 bits. */
    const uint32_t tiles = static_cast<uint32_t>((args.matrix[0].rows + TILE_ROWS - 1) / TILE_ROWS);
    const uint32_t per_pairs = (args.projection == 0 && args.gated ? 2 : 1) * tiles;
    const uint32_t wanted = blockIdx.x / per_pairs, place = blockIdx.x % per_pairs;
    __shared__ bool found;
    if (threadIdx.x < 32) {
        const bool here = find_pairs(args, wanted, c);
        if (threadIdx.x == 0)
            found = here;
    }
    if (args.table != nullptr)
        c->table[threadIdx.x] = args.table[threadIdx.x];
    __syncthreads();
    if (!found)
        return false;
    if (threadIdx.x < PAIRS) {
        const int64_t p = c->pair + threadIdx.x;
        const bool real = static_cast<int32_t>(threadIdx.x) < c->pairs;
        c->act_row[threadIdx.x] = !real ? -1 : args.act_row != nullptr ? args.act_row[p] : p;
    }
    t->matrix = &args.matrix[place / tiles];
    t->record = args.records + c->slot * args.record_bytes;
    t->tile_row = static_cast<int64_t>(place % tiles) * TILE_ROWS;
    t->column = place / tiles * t->matrix->rows + t->tile_row;
    t->first_row = static_cast<int32_t>(threadIdx.x / LANES) * ROWS;
    for (int r = 0; r < ROWS; r++) {
        const int64_t row = t->tile_row + t->first_row + r;
        const int64_t real = row < t->matrix->rows ? row : t->matrix->rows - 1;
        t->codes[r] = t->record + t->matrix->codes + real * t->matrix->row_bytes;
    }
    if (threadIdx.x < TILE_ROWS) {
        const int64_t row = t->tile_row + threadIdx.x, real = row < t->matrix->rows ? row : t->matrix->rows - 1;
        const int64_t band = t->matrix->group_rows == 1 ? real : real / t->matrix->group_rows;
        c->scale_row[threadIdx.x] = static_cast<uint32_t>(band * t->matrix->scale_cols);
    }
    const uint32_t flags = *reinterpret_cast<const uint32_t *>(t->record + MOX_CUDA_HEADER_FLAGS);
    t->ordered = (flags & t->matrix->order_flag) != 0;
    t->weight_grouped = t->matrix->scale != 0 && t->matrix->scale_cols > 1;
    t->act_grouped = args.a.scales != nullptr && args.a.scale_cols > 1;
    t->has_zero = t->matrix->zero != 0;
    t->bits = args.element_bits;
    t->codes_staged = !t->ordered && t->bits <= 8;
    t->scales_staged = (t->weight_grouped || t->has_zero) && !t->ordered && t->matrix->group_cols >= MIN_STAGED_GROUP;
    t->act_scales_staged = t->act_grouped && !t->ordered && args.a.group_cols >= MIN_STAGED_GROUP;
    __syncthreads();
    return true;
}

/* ---- a chunk ---------------------------------------------------------------------------------------- */

/* Loads this half-warp's rows of codes, columns k .. k + count - 1. Every load is in flight before the first is waited
 * for: 16 bytes each where rows are aligned to that, else byte by byte. */
static __device__ inline void load_codes(const tile &t, int64_t k, int count, chunk *c)
{
    const int lane = threadIdx.x % LANES, bytes = (count * t.bits + 7) / 8;
    const int64_t from = k * t.bits / 8; /* a multiple of 16, since a chunk is 512 columns */
    if (t.matrix->row_bytes % 16 == 0) {
        const int parts = CHUNK / 16 / LANES;
        uint4 loaded[ROWS][parts];
        for (int r = 0; r < ROWS; r++)
            for (int j = 0; j < parts; j++)
                if ((lane + j * LANES) * 16 < bytes)
                    loaded[r][j] = reinterpret_cast<const uint4 *>(t.codes[r] + from)[lane + j * LANES];
        for (int r = 0; r < ROWS; r++)
            for (int j = 0; j < parts; j++)
                if ((lane + j * LANES) * 16 < bytes) {
                    uint32_t *line = c->codes[t.first_row + r] + 4 * (lane + j * LANES);
                    line[0] = loaded[r][j].x;
                    line[1] = loaded[r][j].y;
                    line[2] = loaded[r][j].z;
                    line[3] = loaded[r][j].w;
                }
        return;
    }
    for (int r = 0; r < ROWS; r++)
#pragma unroll 8
        for (int i = lane; i < bytes; i += LANES)
            reinterpret_cast<uint8_t *>(c->codes[t.first_row + r])[i] = t.codes[r][from + i];
}

/* Loads the activations of the chunk's columns, two columns a thread, all loads in flight at once. */
static __device__ inline void load_acts(const mox_cuda_expert_gemm_args &args, int count, chunk *c)
{
    const int each = CHUNK / THREADS;
    const float *values = static_cast<const float *>(args.a.data);
    float loaded[PAIRS][each];
    for (int p = 0; p < PAIRS; p++)
        for (int j = 0; j < each; j++) {
            const int i = static_cast<int>(threadIdx.x) + j * THREADS;
            const bool real = i < count && c->act_row[p] >= 0;
            loaded[p][j] = real ? values[c->act_row[p] * args.a.stride + c->column[i]] : 0.0f;
        }
    for (int p = 0; p < PAIRS; p++)
        for (int j = 0; j < each; j++)
            c->act[p][threadIdx.x + j * THREADS] = loaded[p][j];
}

/* Scale `at` of the matrix; 8-bit scales by table, which is quicker than decoding them. */
static __device__ inline float scale_at(const mox_cuda_expert_gemm_args &args, const uint8_t *scales, uint32_t at)
{
    if (args.scale_table != nullptr)
        return args.scale_table[scales[at]];
    return mox_device_load(args.weight.scale, scales, at);
}

static __device__ inline float act_scale(const mox_cuda_expert_gemm_args &args, const chunk &c, int p, int group)
{
    return c.act_row[p] >= 0 ? args.a.scales[c.act_row[p] * args.a.scale_cols + group] : 0.0f;
}

/* Loads scales and zero points of the tile's rows for the groups of columns k .. k + count - 1; each is fetched and
 * decoded once. */
static __device__ inline void load_scales(const mox_cuda_expert_gemm_args &args, const tile &t, int64_t k, int count,
                                          chunk *c)
{
    const uint32_t cols = static_cast<uint32_t>(t.matrix->group_cols), from = static_cast<uint32_t>(k);
    const uint32_t first = from / cols, groups = (from + count - 1) / cols - first + 1;
    const float *zeros = reinterpret_cast<const float *>(t.record + t.matrix->zero);
    if (threadIdx.x == 0)
        c->first_weight_group = static_cast<int32_t>(first);
#pragma unroll 2
    for (uint32_t i = threadIdx.x; i < groups * TILE_ROWS; i += THREADS) {
        const uint32_t r = i / groups, g = i % groups, at = c->scale_row[r] + first + g;
        c->scale[g][r] = t.weight_grouped ? scale_at(args, t.record + t.matrix->scale, at) : 1.0f;
        if (t.has_zero)
            c->zero[g][r] = zeros[at];
    }
}

/* The same for the activations. */
static __device__ inline void load_act_scales(const mox_cuda_expert_gemm_args &args, int64_t k, int count, chunk *c)
{
    const uint32_t cols = static_cast<uint32_t>(args.a.group_cols), from = static_cast<uint32_t>(k);
    const uint32_t first = from / cols, groups = (from + count - 1) / cols - first + 1;
    if (threadIdx.x == 0)
        c->first_act_group = static_cast<int32_t>(first);
    for (uint32_t i = threadIdx.x; i < groups * PAIRS; i += THREADS)
        c->act_scale[i / PAIRS][i % PAIRS] = act_scale(args, *c, i % PAIRS, first + i / PAIRS);
}

/* Loads columns k .. k + 511 in visiting order; returns how many there are. `cuts`: a chunk begins a segment. */
static __device__ inline int load_chunk(const mox_cuda_expert_gemm_args &args, const tile &t, int64_t k, bool cuts,
                                        chunk *c)
{
    const int64_t left = t.matrix->cols - k;
    const int count = static_cast<int>(left < CHUNK ? left : CHUNK);
    const int32_t *visit = reinterpret_cast<const int32_t *>(t.record + t.matrix->visit);
    const int32_t *group = reinterpret_cast<const int32_t *>(t.record + t.matrix->group_index);
    const int32_t weight_cols = static_cast<int32_t>(t.matrix->group_cols);
    const int32_t act_cols = static_cast<int32_t>(args.a.group_cols);
    __syncthreads(); /* the previous chunk has been read */
    if (t.codes_staged)
        load_codes(t, k, count, c);
    if (t.scales_staged)
        load_scales(args, t, k, count, c);
    if (t.act_scales_staged)
        load_act_scales(args, k, count, c);
    for (int i = threadIdx.x; i < CHUNK; i += THREADS) {
        bool begins = false;
        if (i < count) {
            const int32_t at = static_cast<int32_t>(k) + i, column = t.ordered ? visit[at] : at;
            const int32_t wg = t.ordered ? group[column] : column / weight_cols, ag = column / act_cols;
            begins = at == 0 || (cuts && i == 0);
            if (!begins) {
                const int32_t last = t.ordered ? visit[at - 1] : at - 1;
                begins = (t.ordered ? group[last] : last / weight_cols) != wg || last / act_cols != ag;
            }
            c->column[i] = column;
            c->weight_group[i] = wg;
            c->act_group[i] = ag;
        }
        const uint32_t word = __ballot_sync(FULL_MASK, begins);
        if (threadIdx.x % 32 == 0)
            c->begins[i / 32] = word;
    }
    __syncthreads();
    load_acts(args, count, c);
    __syncthreads();
    return count;
}

static __device__ inline bool begins(const chunk &c, int i)
{
    return c.begins[i / 32] >> (i % 32) & 1;
}

/* Where the segment with column `first` ends: where the next one begins, or `count`. */
static __device__ inline int segment_end(const chunk &c, int first, int count)
{
    int word = (first + 1) / 32;
    if (word >= WORDS)
        return count;
    uint32_t bits = c.begins[word] & (FULL_MASK << ((first + 1) % 32));
    while (bits == 0 && ++word < WORDS)
        bits = c.begins[word];
    const int end = word < WORDS ? word * 32 + __ffs(static_cast<int>(bits)) - 1 : count;
    return end < count ? end : count;
}

/* Scales and zero points of this half-warp's rows in the segment's weight group. */
static __device__ inline void open_segment(const mox_cuda_expert_gemm_args &args, tile *t, const chunk &c, int first,
                                           float *zero)
{
    const int32_t g = c.weight_group[first];
    if (t->scales_staged) {
        const float4 scale = *reinterpret_cast<const float4 *>(&c.scale[g - c.first_weight_group][t->first_row]);
        t->scale[0] = scale.x, t->scale[1] = scale.y, t->scale[2] = scale.z, t->scale[3] = scale.w;
        if (!t->has_zero)
            return;
        const float4 zeros = *reinterpret_cast<const float4 *>(&c.zero[g - c.first_weight_group][t->first_row]);
        zero[0] = zeros.x, zero[1] = zeros.y, zero[2] = zeros.z, zero[3] = zeros.w;
        return;
    }
    const float *zeros = reinterpret_cast<const float *>(t->record + t->matrix->zero);
    for (int r = 0; r < ROWS; r++) {
        const uint32_t at = c.scale_row[t->first_row + r] + g;
        t->scale[r] = t->weight_grouped ? scale_at(args, t->record + t->matrix->scale, at) : 1.0f;
        zero[r] = t->has_zero ? zeros[at] : 0.0f;
    }
}

/* The scale of pair p's activations in group g, which has columns in the chunk. */
static __device__ inline float segment_act_scale(const mox_cuda_expert_gemm_args &args, const tile &t, const chunk &c,
                                                 int p, int g)
{
    if (!t.act_grouped)
        return 1.0f;
    return t.act_scales_staged ? c.act_scale[g - c.first_act_group][p] : act_scale(args, c, p, g);
}

/* ---- codes ------------------------------------------------------------------------------------------ */

/* Element i of a dense row; up to 8 bits by table. A code may lie across two bytes; only bytes with bits of it are
 * read. */
template <Source SOURCE>
static __device__ inline float fetch(const uint8_t *row, int32_t i, const float *table, int32_t bits)
{
    if (SOURCE == SOURCE_F32)
        return reinterpret_cast<const float *>(row)[i];
    if (SOURCE == SOURCE_F16 || SOURCE == SOURCE_BF16) {
        const uint32_t code = row[2 * i] | static_cast<uint32_t>(row[2 * i + 1]) << 8;
        return SOURCE == SOURCE_F16 ? mox_f16_decode(code) : mox_bf16_decode(code);
    }
    if (SOURCE == SOURCE_BITS8)
        return table[row[i]];
    if (SOURCE == SOURCE_BITS4)
        return table[row[i >> 1] >> (i & 1) * 4 & 15];
    const int64_t first = static_cast<int64_t>(i) * bits;
    const int shift = static_cast<int>(first & 7);
    uint32_t word = row[first >> 3];
    if (shift + bits > 8)
        word |= static_cast<uint32_t>(row[(first >> 3) + 1]) << 8;
    return table[word >> shift & ((1u << bits) - 1)];
}

/* The weight of row r in column i of the chunk. */
template <Source SOURCE, bool STAGED>
static __device__ inline float weight(const tile &t, const chunk &c, const float *table, int r, int i)
{
    if (SOURCE == SOURCE_BLOCK)
        return mox_device_block_weight(t.block, t.codes[r], c.column[i]);
    if (STAGED)
        return fetch<SOURCE>(reinterpret_cast<const uint8_t *>(c.codes[t.first_row + r]), i, table, t.bits);
    return fetch<SOURCE>(t.codes[r], c.column[i], table, t.bits);
}

/* ---- the end of a sum ------------------------------------------------------------------------------- */

static __device__ inline float with_global(float value, int32_t kind, float global)
{
    return kind == MOXIE_GLOBAL_MULTIPLY ? value * global : value / global;
}

/* Applies scales of rows, global scales and bias, in this order. Sums lie in c->act[pair][row of the block]. */
static __device__ inline void finish(const mox_cuda_expert_gemm_args &args, const tile &t, chunk *c)
{
    __syncthreads();
    const float *globals = reinterpret_cast<const float *>(t.record + t.matrix->global);
    const float *biases = reinterpret_cast<const float *>(t.record + t.matrix->bias);
    for (int i = threadIdx.x; i < c->pairs * TILE_ROWS; i += THREADS) {
        const int p = i / TILE_ROWS, r = i % TILE_ROWS;
        const int64_t n = t.tile_row + r, row = c->act_row[p];
        if (n >= t.matrix->rows)
            continue;
        float sum = c->act[p][r];
        if (args.a.scales != nullptr && !t.act_grouped)
            sum *= args.a.scales[row * args.a.scale_cols];
        if (t.matrix->scale != 0 && !t.weight_grouped)
            sum *= mox_device_load(args.weight.scale, t.record + t.matrix->scale,
                                   n / t.matrix->group_rows * t.matrix->scale_cols);
        if (args.a.global != nullptr)
            sum = with_global(sum, args.a.global_kind, args.a.global[row]);
        if (t.matrix->global != 0)
            sum = with_global(sum, args.weight.global, globals[n]);
        if (t.matrix->bias != 0)
            sum += biases[n];
        args.out[(c->pair + p) * args.n_out + t.column + r] = sum;
    }
}

} /* namespace mox_simple */

#endif
