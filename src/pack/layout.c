/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.c - the list of layouts, and the checking and sealing of records, whatever their layout.
 *
 *     check:   the layout holds the shape and the expert; the views have the right shapes
 *     pack:    part 0, part 1, ... by any threads; each part gives a sum
 *     seal:    header; checksum = XXH3-64( sum of part 0 | sum of part 1 | ... | header with checksum 0 )
 *     verify:  magic, layout, size, expert, checksum
 *
 * In the flow: checkpoint views -> [record] -> slot. The checksum covers bytes, so a record must be verified on a
 * machine of the byte order that sealed it. XXH3: https://github.com/Cyan4973/xxHash.
 */
#include "pack/layout.h"

#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/checksum.h"

#define MOX_LAYOUT(object) extern const mox_layout object;
#include "pack/layouts.def"
#undef MOX_LAYOUT

#define MOX_LAYOUT(object) &object,
static const mox_layout *const layouts[] = {
#include "pack/layouts.def"
    NULL
};
#undef MOX_LAYOUT

const mox_layout *mox_layout_at(int32_t i)
{
    const int32_t count = (int32_t)(sizeof layouts / sizeof layouts[0]) - 1;
    return i >= 0 && i < count ? layouts[i] : NULL;
}

const mox_layout *mox_layout_by_name(const char *name)
{
    for (int32_t i = 0; layouts[i] != NULL; i++)
        if (strcmp(layouts[i]->name, name) == 0)
            return layouts[i];
    return NULL;
}

bool mox_layout_is_read_by(const mox_layout *layout, const char *kernel)
{
    return strcmp((layout->base != NULL ? layout->base : layout)->name, kernel) == 0;
}

static moxie_status check_projection(const moxie_matrix *matrix, const moxie_quant *quant, int64_t rows, int64_t cols,
                                     bool bias, int64_t expert, const char *name, moxie_error *error)
{
    char what[64];
    snprintf(what, sizeof what, "expert %lld %s", (long long)expert, name);
    return mox_matrix_check(matrix, quant, rows, cols, bias, what, error);
}

static moxie_status check_expert(const mox_record_shape *shape, int64_t index, const moxie_expert *expert,
                                 moxie_error *error)
{
    const int64_t h = shape->hidden, i = shape->intermediate, rows13 = mox_shape_rows13(shape);
    MOX_FAIL_IF(!shape->gated && expert->gate.codes.data != NULL, MOXIE_ERR_MISMATCH, error,
                "expert %lld has a gate projection, but the activation is ungated and has one first matrix: give it "
                "as `up` alone, or choose a gated activation",
                (long long)index);
    if (shape->gated)
        MOX_TRY(check_projection(&expert->gate, &shape->w13, rows13, h, shape->bias13, index, "gate", error));
    MOX_TRY(check_projection(&expert->up, &shape->w13, rows13, h, shape->bias13, index, "up", error));
    return check_projection(&expert->down, &shape->w2, mox_shape_rows2(shape), i, shape->bias2, index, "down", error);
}

static moxie_status sized(const mox_layout *layout, const mox_record_shape *shape, uint64_t *bytes, moxie_error *error)
{
    MOX_FAIL_IF(!layout->record_bytes(shape, bytes), MOXIE_ERR_ARGUMENT, error,
                "a record of hidden size %lld and intermediate size %lld in layout %s does not fit in 64 bits",
                (long long)shape->hidden, (long long)shape->intermediate, layout->name);
    return MOXIE_OK;
}

moxie_status mox_record_check_views(const mox_layout *layout, const mox_record_shape *shape, int64_t expert_index,
                                    const moxie_expert *expert, moxie_error *error)
{
    char reason[256];
    const char *rejection = layout->reject(shape, reason, sizeof reason);
    MOX_FAIL_IF(rejection != NULL, MOXIE_ERR_UNSUPPORTED, error, "layout %s cannot hold expert %lld: %s", layout->name,
                (long long)expert_index, rejection);
    uint64_t bytes;
    MOX_TRY(sized(layout, shape, &bytes, error));
    return check_expert(shape, expert_index, expert, error);
}

moxie_status mox_record_check(const mox_layout *layout, const mox_record_shape *shape, int64_t expert_index,
                              const moxie_expert *expert, moxie_error *error)
{
    char reason[256];
    MOX_TRY(mox_record_check_views(layout, shape, expert_index, expert, error));
    MOX_FAIL_IF(layout->accepts != NULL && !layout->accepts(shape, expert, reason, sizeof reason),
                MOXIE_ERR_UNSUPPORTED, error, "layout %s cannot hold expert %lld: %s", layout->name,
                (long long)expert_index, reason);
    return MOXIE_OK;
}

/* ---- parts ---------------------------------------------------------------------------------------- */

/* The shape passed mox_record_check(), so its size fits. */
static uint64_t bytes_of(const mox_layout *layout, const mox_record_shape *shape)
{
    uint64_t bytes = 0;
    layout->record_bytes(shape, &bytes);
    return bytes;
}

int64_t mox_record_parts(const mox_layout *layout, const mox_record_shape *shape)
{
    return layout->pack_part != NULL ? layout->parts(shape) : 1;
}

uint64_t mox_record_part_at(const mox_layout *layout, const mox_record_shape *shape, int64_t part)
{
    if (layout->pack_part != NULL)
        return layout->part_at(shape, part);
    return part == 0 ? sizeof(mox_record_header) : bytes_of(layout, shape);
}

static uint64_t sum_part(const mox_layout *layout, const mox_record_shape *shape, int64_t part, const void *record)
{
    const uint64_t begin = mox_record_part_at(layout, shape, part), end = mox_record_part_at(layout, shape, part + 1);
    return mox_checksum((const uint8_t *)record + begin, end - begin);
}

moxie_status mox_record_pack_part(const mox_layout *layout, const mox_record_shape *shape, const moxie_expert *expert,
                                  int64_t part, void *record, uint64_t *sum, moxie_error *error)
{
    if (layout->pack_part != NULL) {
        if (part == 0)
            memset(record, 0, sizeof(mox_record_header));
        MOX_TRY(layout->pack_part(shape, expert, part, record, error));
    } else {
        memset(record, 0, bytes_of(layout, shape));
        MOX_TRY(layout->pack(shape, expert, record, error));
    }
    *sum = sum_part(layout, shape, part, record);
    return MOXIE_OK;
}

/* ---- the seal ------------------------------------------------------------------------------------- */

static void begin_checksum(XXH3_state_t *state)
{
    XXH3_INITSTATE(state);
    XXH3_64bits_reset(state);
}

/* The checksum. `state` has taken the sums of all parts. */
static uint64_t end_checksum(XXH3_state_t *state, mox_record_header header)
{
    header.checksum = 0;
    XXH3_64bits_update(state, &header, sizeof header);
    return XXH3_64bits_digest(state);
}

static void seal(const mox_layout *layout, const mox_record_shape *shape, int64_t expert_index,
                 const moxie_expert *expert, void *record, XXH3_state_t *state)
{
    mox_record_header header;
    memcpy(&header, record, sizeof header);
    header.magic = MOX_RECORD_MAGIC;
    header.layout = layout->number;
    header.expert = expert_index;
    header.bytes = bytes_of(layout, shape);
    header.a13_scale = expert->a13_scale;
    header.a2_scale = expert->a2_scale;
    header.checksum = end_checksum(state, header);
    memcpy(record, &header, sizeof header);
}

void mox_record_seal(const mox_layout *layout, const mox_record_shape *shape, int64_t expert_index,
                     const moxie_expert *expert, void *record, const uint64_t *sums)
{
    XXH3_state_t state;
    begin_checksum(&state);
    XXH3_64bits_update(&state, sums, (uint64_t)mox_record_parts(layout, shape) * sizeof *sums);
    seal(layout, shape, expert_index, expert, record, &state);
}

moxie_status mox_record_pack(const mox_layout *layout, const mox_record_shape *shape, int64_t expert_index,
                             const moxie_expert *expert, void *record, moxie_error *error)
{
    MOX_TRY(mox_record_check(layout, shape, expert_index, expert, error));
    XXH3_state_t state;
    begin_checksum(&state);
    for (int64_t part = 0; part < mox_record_parts(layout, shape); part++) {
        uint64_t sum;
        MOX_TRY(mox_record_pack_part(layout, shape, expert, part, record, &sum, error));
        XXH3_64bits_update(&state, &sum, sizeof sum);
    }
    seal(layout, shape, expert_index, expert, record, &state);
    return MOXIE_OK;
}

static uint64_t checksum_of(const mox_layout *layout, const mox_record_shape *shape, const void *record)
{
    XXH3_state_t state;
    mox_record_header header;
    begin_checksum(&state);
    for (int64_t part = 0; part < mox_record_parts(layout, shape); part++) {
        const uint64_t sum = sum_part(layout, shape, part, record);
        XXH3_64bits_update(&state, &sum, sizeof sum);
    }
    memcpy(&header, record, sizeof header);
    return end_checksum(&state, header);
}

moxie_status mox_record_verify(const mox_layout *layout, const mox_record_shape *shape, int64_t expert_index,
                               const void *record, moxie_error *error)
{
    mox_record_header header;
    memcpy(&header, record, sizeof header);
    uint64_t bytes = 0;
    MOX_TRY(sized(layout, shape, &bytes, error));
    MOX_FAIL_IF(header.magic != MOX_RECORD_MAGIC, MOXIE_ERR_MISMATCH, error,
                "the record of expert %lld begins with 0x%08x, a record begins with 0x%08x: prepare the expert again",
                (long long)expert_index, (unsigned)header.magic, MOX_RECORD_MAGIC);
    MOX_FAIL_IF(header.layout != layout->number, MOXIE_ERR_MISMATCH, error,
                "the record of expert %lld has layout %u, this layer reads layout %u (%s): prepare the expert again",
                (long long)expert_index, (unsigned)header.layout, (unsigned)layout->number, layout->name);
    MOX_FAIL_IF(header.bytes != bytes, MOXIE_ERR_MISMATCH, error,
                "the record of expert %lld has %llu bytes, this layer's shape needs %llu: prepare the expert again",
                (long long)expert_index, (unsigned long long)header.bytes, (unsigned long long)bytes);
    MOX_FAIL_IF(header.expert != expert_index, MOXIE_ERR_MISMATCH, error,
                "the record in the place of expert %lld belongs to expert %lld: the slot map and the records disagree",
                (long long)expert_index, (long long)header.expert);
    const uint64_t found = checksum_of(layout, shape, record);
    MOX_FAIL_IF(found != header.checksum, MOXIE_ERR_MISMATCH, error,
                "the record of expert %lld is damaged: its checksum is %016llx, its bytes give %016llx; prepare the "
                "expert again",
                (long long)expert_index, (unsigned long long)header.checksum, (unsigned long long)found);
    return MOXIE_OK;
}
