/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_pack.c - the packers of a device, and how an expert's bytes are staged for them (cuda_pack.h).
 */
#include "cuda/pack/cuda_pack.h"

#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/sizes.h"
#include "pack/hopper/hopper.h"

enum { GATE, UP, DOWN, PROJECTIONS };
enum { MAX_SPREAD = 4 }; /* staged bytes a byte of codes: more is left to the CPU */

#define MOX_CUDA_ROW(family, id, layout_) [MOX_CUDA_AT_pack_##id] = &layout_,
static const mox_layout *const layouts[MOX_CUDA_ROWS_pack] = {
#include "cuda/pack/cuda_pack.def"
};
#undef MOX_CUDA_ROW

int32_t mox_cuda_pack_find(const mox_layout *layout, const mox_record_shape *shape, char *reason, size_t size)
{
    int32_t at = 0;
    while (at < MOX_CUDA_ROWS_pack && layouts[at] != layout)
        at++;
    if (at == MOX_CUDA_ROWS_pack) {
        snprintf(reason, size, "layout %s has no packer on a device", layout->name);
        return -1;
    }
    for (int64_t part = 0; part < mox_record_parts(layout, shape); part++)
        if (mox_record_part_at(layout, shape, part + 1) <
            mox_record_part_at(layout, shape, part) + MOX_CUDA_PACK_MIN_PART) {
            snprintf(reason, size, "part %lld of a record has fewer than %d bytes", (long long)part,
                     MOX_CUDA_PACK_MIN_PART);
            return -1;
        }
    return at;
}

/* ---- staging ---------------------------------------------------------------------------------------------------- */

static const moxie_grid *codes_of(const moxie_expert *expert, int projection)
{
    return projection == GATE ? &expert->gate.codes : projection == UP ? &expert->up.codes : &expert->down.codes;
}

/* The bytes from the grid's first code to its last; 0 when it has none, or its packing is one that only hosts read. */
static uint64_t extent_of(const moxie_grid *grid)
{
    const moxie_packing p = grid->packing;
    if (grid->rows == 0 || grid->cols == 0 || (p.order > MOXIE_ORDER_AWQ && !mox_is_halves(&p)))
        return 0;
    const int64_t down = p.along_rows ? mox_ceil_div(grid->rows, p.per_word) : grid->rows;
    const int64_t across = p.along_rows ? grid->cols : mox_ceil_div(grid->cols, p.per_word);
    return (uint64_t)((down - 1) * grid->row_stride + (across - 1) * grid->col_stride + p.word_bytes);
}

/* Adds the bytes of a projection: to a run that they overlap, else as a run of their own. Returns the run. */
static int32_t add_run(mox_cuda_pack_stage *stage, const uint8_t *from, uint64_t bytes)
{
    for (int32_t i = 0; i < stage->runs; i++) {
        mox_cuda_pack_run *run = &stage->run[i];
        if (from >= run->from + run->bytes || run->from >= from + bytes)
            continue;
        const uint8_t *end = from + bytes > run->from + run->bytes ? from + bytes : run->from + run->bytes;
        run->from = from < run->from ? from : run->from;
        run->bytes = (uint64_t)(end - run->from);
        return i;
    }
    stage->run[stage->runs] = (mox_cuda_pack_run) { .from = from, .bytes = bytes };
    return stage->runs++;
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + MOX_CUDA_PACK_ALIGN - 1) / MOX_CUDA_PACK_ALIGN * MOX_CUDA_PACK_ALIGN;
}

bool mox_cuda_pack_stage_make(const mox_layout *layout, const mox_record_shape *shape, const moxie_expert *expert,
                              mox_cuda_pack_stage *out, char *reason, size_t size)
{
    uint64_t codes = 0, staged = 0;
    *out = (mox_cuda_pack_stage) { .run_of = { -1, -1, -1 } };
    for (int i = shape->gated ? GATE : UP; i < PROJECTIONS; i++) {
        const moxie_grid *grid = codes_of(expert, i);
        const uint64_t bytes = extent_of(grid);
        if (bytes == 0 && grid->rows > 0) {
            snprintf(reason, size, "the codes are packed in an order that only the CPU reads");
            return false;
        }
        codes += mox_dense_bytes(grid->dtype, grid->rows, grid->cols);
        if (bytes > 0)
            out->run_of[i] = add_run(out, (const uint8_t *)grid->data, bytes);
    }
    out->rest_at = aligned((uint64_t)(mox_record_parts(layout, shape) + 1) * sizeof(uint64_t));
    out->bytes = aligned(out->rest_at + layout->rest_bytes(shape));
    for (int32_t i = 0; i < out->runs; i++) {
        out->run[i].at = out->bytes;
        out->bytes = aligned(out->bytes + out->run[i].bytes);
        staged += out->run[i].bytes;
    }
    if (staged / MAX_SPREAD > codes + MOX_CUDA_PACK_ALIGN) {
        snprintf(reason, size, "%llu bytes of codes lie in %llu bytes", (unsigned long long)codes,
                 (unsigned long long)staged);
        return false;
    }
    return true;
}

void mox_cuda_pack_put_parts(const mox_layout *layout, const mox_record_shape *shape, void *staged)
{
    uint64_t *at = staged;
    for (int64_t part = 0; part <= mox_record_parts(layout, shape); part++)
        at[part] = mox_record_part_at(layout, shape, part);
}

/* ---- a launch --------------------------------------------------------------------------------------------------- */

/* The projection's grid with its address on the device. */
static moxie_grid grid_on_device(const mox_cuda_pack_stage *stage, int projection, const moxie_grid *grid,
                                 const uint8_t *staged)
{
    moxie_grid there = *grid;
    const int32_t i = stage->run_of[projection];
    if (i >= 0)
        there.data = staged + stage->run[i].at + ((const uint8_t *)grid->data - stage->run[i].from);
    return there;
}

void mox_cuda_pack_args_make(const mox_layout *layout, const mox_record_shape *shape, const moxie_expert *expert,
                             const mox_cuda_pack_stage *stage, const void *staged, void *record, uint64_t *sums,
                             mox_cuda_pack_args *out)
{
    const uint8_t *base = staged;
    *out = (mox_cuda_pack_args) {
        .bits = { mox_dtype_bits(shape->w13.element), mox_dtype_bits(shape->w2.element) },
        .element = { (int32_t)shape->w13.element, (int32_t)shape->w2.element },
        .rest = base + stage->rest_at,
        .record = record,
        .parts = mox_record_parts(layout, shape),
        .part_at = staged,
        .sums = sums,
    };
    (void)mox_hopper_form(layout, shape, &out->form);
    for (int i = 0; i < PROJECTIONS; i++) {
        const int from = i == GATE && !shape->gated ? UP : i;
        out->codes[i] = grid_on_device(stage, from, codes_of(expert, from), base);
    }
    _Static_assert(sizeof XXH3_kSecret == sizeof out->secret, "XXH3's secret has 192 bytes");
    memcpy(out->secret, XXH3_kSecret, sizeof out->secret);
}
