/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_blocks_amx.c - kernel amx_blocks: block types times many rows of activations, on AMX tiles. The sum is
 * BF16_PIECES (panel_kernel.h).
 *
 *     w = high + middle + low          f32 of 24 bits, exactly three bf16 of 8 bits, all with the sign of w
 *
 *     block     STEPS steps: weights are decoded as avx512_fma decodes them, cut in pieces, and stored as B lines
 *     products  for every pair of row tiles: both panels, three pieces a step; C tiles from zero, then added to c
 *     ahead     the first pair of row tiles also decodes the next block, a step after each step of products
 *
 *     lines     [block parity][step][panel][piece][16 lines of 64 bytes]
 *
 * Pieces cost what decoding costs once more, whatever the number of rows. So the kernel is for 16 rows an expert or
 * more; the plan knows how many to expect.
 */
#include "cpu/expert_gemm/amx/amx_plan.h"

#if defined(__AMX_BF16__) && defined(__AVX512BW__)

#include "cpu/expert_gemm/amx/amx_tiles.h"
#include "cpu/expert_gemm/avx512/block_job_avx512.h"

enum {
    STEPS = MOX_AMX_PIECES_STEPS,
    STEP_BYTES = 2 * MOX_AMX_PIECES * MOX_AMX_STEP_LINES_BYTES, /* of both panels */
    TILE = 16                                                   /* rows */
};

typedef struct job {
    mox_block_job block;
    const uint8_t *a;
    int64_t rows, steps;
    uint8_t *lines;
    float *tiles; /* [4][16][16] */
    float *c;     /* [rows][2][16] */
} job;

/* ---- weights ----------------------------------------------------------------------------------------------- */

/* Takes the upper 8 bits of x away. Nothing is left of an infinity. */
MOX_KERNEL_INLINE __m512 rest_of(__m512 x, __mmask16 finite)
{
    const __m512 upper = _mm512_and_ps(x, _mm512_castsi512_ps(_mm512_set1_epi32((int)0xffff0000)));
    return _mm512_maskz_sub_ps(finite, x, upper);
}

MOX_KERNEL_INLINE __mmask16 finite_of(__m512 x)
{
    return _knot_mask16(_mm512_fpclass_ps_mask(x, 0x18));
}

/* The step in the slab, of panel p, to the lines of its pieces. */
MOX_KERNEL_INLINE void cut(const float *slab, int p, uint8_t *to)
{
    for (int line = 0; line < MOX_PANEL_STEP / 2; line++, to += MOX_AMX_LINE_BYTES) {
        __m512 even = _mm512_load_ps(slab + (4 * line + p) * MOX_PANEL_ROWS);
        __m512 odd = _mm512_load_ps(slab + (4 * line + 2 + p) * MOX_PANEL_ROWS);
        const __mmask16 finite[2] = { finite_of(even), finite_of(odd) };
        MOX_KERNEL_UNROLL
        for (int piece = 0; piece < MOX_AMX_PIECES; piece++) {
            const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(even), 16);
            _mm512_store_si512(to + piece * MOX_AMX_STEP_LINES_BYTES,
                               _mm512_mask_blend_epi16(0xaaaaaaaa, low, _mm512_castps_si512(odd)));
            even = rest_of(even, finite[0]);
            odd = rest_of(odd, finite[1]);
        }
    }
}

static void decode(const job *j, int64_t step, uint8_t *to)
{
    for (int p = 0; p < j->block.fma.iter.panels; p++) {
        mox_block_job_prefetch(&j->block, p, step);
        j->block.type->expand(&j->block, p, step, j->block.fma.slab);
        cut(j->block.fma.slab, p, to + p * MOX_AMX_PIECES * MOX_AMX_STEP_LINES_BYTES);
    }
}

static uint8_t *lines_of(const job *j, int64_t step)
{
    return j->lines + step % (2 * STEPS) * STEP_BYTES;
}

/* ---- products ---------------------------------------------------------------------------------------------- */

/* Piece lines of a panel by one tile of rows or two, to C tiles c0 and c1. */
#define PRODUCT(R, c0, c1, from)                                                                                       \
    do {                                                                                                               \
        _tile_loadd(5, from, 64);                                                                                      \
        _tile_dpbf16ps(c0, 4, 5);                                                                                      \
        if ((R) == 2)                                                                                                  \
            _tile_dpbf16ps(c1, 7, 5);                                                                                  \
        _tile_zero(5);                                                                                                 \
    } while (0)

/* Activations of row tile t at `step`. */
MOX_KERNEL_INLINE const uint8_t *acts_of(const job *j, int64_t t, int64_t step)
{
    const int64_t held = mox_min_i64(TILE, j->rows - TILE * t);
    return j->a + (TILE * t * j->steps + step * held) * MOX_AMX_LINE_BYTES;
}

/* One step of R row tiles from tile t on. */
MOX_KERNEL_INLINE void multiply_step(int R, const job *j, int64_t t, int64_t step)
{
    const uint8_t *from = lines_of(j, step), *second = from + MOX_AMX_PIECES * MOX_AMX_STEP_LINES_BYTES;
    MOX_FENCE();
    _tile_stream_loadd(4, acts_of(j, t, step), 64);
    if (R == 2)
        _tile_stream_loadd(7, acts_of(j, t + 1, step), 64);
    MOX_KERNEL_UNROLL
    for (int piece = 0; piece < MOX_AMX_PIECES; piece++) {
        PRODUCT(R, 0, 2, from + piece * MOX_AMX_STEP_LINES_BYTES);
        PRODUCT(R, 1, 3, second + piece * MOX_AMX_STEP_LINES_BYTES);
    }
    _tile_zero(4);
    if (R == 2)
        _tile_zero(7);
    MOX_FENCE();
}

/* Adds C tile `tile` of panel p and row tile t to c. */
static void add_tile(const job *j, bool first, const float *tile, int64_t t, int p)
{
    const int64_t rows = mox_min_i64(TILE, j->rows - TILE * t);
    float *c = j->c + TILE * t * 2 * MOX_PANEL_ROWS + p * MOX_PANEL_ROWS;
    for (int64_t r = 0; r < rows; r++, c += 2 * MOX_PANEL_ROWS, tile += MOX_PANEL_ROWS) {
        const __m512 sum = _mm512_load_ps(tile);
        _mm512_store_ps(c, first ? sum : _mm512_add_ps(_mm512_load_ps(c), sum));
    }
}

/* Steps [first, last), a block, by R row tiles from tile t on. `ahead`: also decodes the next block. */
MOX_KERNEL_INLINE void multiply_block(int R, const job *j, int64_t t, int64_t first, int64_t last, bool ahead)
{
    for (int64_t step = first; step < last; step++) {
        multiply_step(R, j, t, step);
        if (ahead && step + STEPS < j->steps)
            decode(j, step + STEPS, lines_of(j, step + STEPS));
    }
    MOX_FENCE();
    MOX_TILE_STORE(0, j->tiles);
    MOX_TILE_STORE(1, j->tiles + MOX_AMX_TILE_FLOATS);
    if (R == 2) {
        MOX_TILE_STORE(2, j->tiles + 2 * MOX_AMX_TILE_FLOATS);
        MOX_TILE_STORE(3, j->tiles + 3 * MOX_AMX_TILE_FLOATS);
    }
    MOX_FENCE();
    for (int i = 0; i < 2 * R; i++)
        add_tile(j, first == 0, j->tiles + i * MOX_AMX_TILE_FLOATS, t + i / 2, i % 2);
}

static void multiply_all(const job *j)
{
    const int64_t tiles = mox_ceil_div(j->rows, TILE);
    mox_amx_configure(TILE, TILE);
    for (int64_t step = 0; step < mox_min_i64(STEPS, j->steps); step++)
        decode(j, step, lines_of(j, step));
    for (int64_t first = 0; first < j->steps; first += STEPS) {
        const int64_t last = mox_min_i64(first + STEPS, j->steps);
        for (int64_t t = 0; t < tiles; t += 2) {
            if (t + 1 < tiles)
                multiply_block(2, j, t, first, last, t == 0);
            else
                multiply_block(1, j, t, first, last, t == 0);
        }
    }
    _tile_release();
}

/* ---- variants ---------------------------------------------------------------------------------------------- */

static void multiply(const mox_block_type *type, const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel,
                     int panels, const mox_panel_rows *a, float *c, void *scratch)
{
    mox_carver carver = mox_carver_of(scratch);
    mox_amx_blocks_scratch sc;
    mox_amx_blocks_lay_out(&carver, m->groups, &sc);
    job j = { .a = a->data, .rows = a->rows, .steps = m->steps, .lines = sc.lines, .tiles = sc.tiles, .c = c };
    mox_block_job_init(&j.block, type, m, weight, panel, panels, a, c, &sc.fma);
    const unsigned mxcsr = mox_segment_flush_subnormals();
    multiply_all(&j);
    _mm_setcsr(mxcsr);
}

#define TIMES(id)                                                                                                      \
    static void times_##id(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,            \
                           const mox_panel_rows *a, float *c, void *scratch)                                           \
    {                                                                                                                  \
        multiply(&mox_block_type_##id, m, weight, panel, panels, a, c, scratch);                                       \
    }
#define MOX_BLOCK_FIELDS(id, ...) TIMES(id)
#define MOX_BLOCK_LEVELS(id, ...) TIMES(id)
#include "format/block_fields.def"
#include "format/block_levels.def"
#undef MOX_BLOCK_FIELDS
#undef MOX_BLOCK_LEVELS

static const mox_panel_variant variants[] = {
#define MOX_BLOCK_FIELDS(id, type, ...) { MOX_BLOCK_DTYPE + type, false, times_##id, NULL },
#define MOX_BLOCK_LEVELS(id, type, ...) { MOX_BLOCK_DTYPE + type, false, times_##id, NULL },
#include "format/block_fields.def"
#include "format/block_levels.def"
#undef MOX_BLOCK_FIELDS
#undef MOX_BLOCK_LEVELS
};
const mox_panel_variants mox_amx_blocks_variants = { variants, sizeof variants / sizeof variants[0] };

#else

const mox_panel_variants mox_amx_blocks_variants = { NULL, 0 };

#endif
