/* SPDX-License-Identifier: Apache-2.0
 *
 * hopper_tiles.h - what the three layouts of hopper.h share: products, tiles, row values, parts.
 *
 *     mox_layout (record)  ->  this file: products, tiles, parts  ->  mox_hopper_order: the bytes of one tile
 *
 * A layout is a mox_hopper_order and MOX_HOPPER_LAYOUT(order), which makes the functions of mox_layout from it.
 */
#ifndef MOX_PACK_HOPPER_TILES_H
#define MOX_PACK_HOPPER_TILES_H

#include "pack/hopper/hopper_codes.h"

/* The order of elements in a tile. `from[0]` is gate or the only matrix, `from[1]` is up. */
typedef struct mox_hopper_order {
    bool to_fp8;
    /* Sets the fields that depend on codes and scales: chunk_cols, chunk_row_bytes, scale_bytes, scale_shift. */
    void (*measure)(const mox_hopper_product *p, mox_hopper_matrix *m);
    bool (*has_row_factors)(const mox_hopper_product *p);
    /* As in mox_layout: `reject` for one product, `accepts` for one matrix. */
    const char *(*reject)(const mox_hopper_product *p, const char *name, char *buffer, size_t size);
    bool (*accepts)(const mox_hopper_product *p, const moxie_matrix *from, const char *name, char *reason, size_t size);
    /* Writes every byte of a tile: those of codes, at its beginning; and the blocks of scales with what is behind. */
    void (*pack_codes)(const mox_hopper_matrix *m, const mox_hopper_product *p, const moxie_matrix *const *from,
                       int64_t tile, uint8_t *to);
    void (*pack_scales)(const mox_hopper_matrix *m, const mox_hopper_product *p, const moxie_matrix *const *from,
                        int64_t tile, uint8_t *to);
    float (*row_factor)(const mox_hopper_product *p, const moxie_matrix *from, int64_t row);
    /* Reads codes and scales of one matrix back. */
    void (*unpack)(const mox_hopper_matrix *m, const mox_hopper_product *p, const uint8_t *record, int half,
                   const moxie_matrix *to);
} mox_hopper_order;

/* The functions of mox_layout for a given order. */
const char *mox_hopper_reject(const mox_hopper_order *order, const mox_record_shape *shape, char *buffer, size_t size);
bool mox_hopper_accepts(const mox_hopper_order *order, const mox_record_shape *shape, const moxie_expert *expert,
                        char *reason, size_t size);
bool mox_hopper_measure(const mox_hopper_order *order, const mox_record_shape *shape, mox_hopper_record *out);
int64_t mox_hopper_parts(const mox_hopper_order *order, const mox_record_shape *shape);
uint64_t mox_hopper_part_at(const mox_hopper_order *order, const mox_record_shape *shape, int64_t part);
void mox_hopper_pack_part(const mox_hopper_order *order, const mox_record_shape *shape, const moxie_expert *expert,
                          int64_t part, uint8_t *record);
/* What a part has besides codes, at its place in the rest (hopper_matrix.h). */
void mox_hopper_pack_rest(const mox_hopper_order *order, const mox_record_shape *shape, const moxie_expert *expert,
                          int64_t part, uint8_t *rest);
void mox_hopper_unpack(const mox_hopper_order *order, const mox_record_shape *shape, const uint8_t *record,
                       moxie_expert *out);

uint64_t mox_hopper_tile_bytes(const mox_hopper_matrix *m, int64_t rows);

/* Defines the functions of mox_layout for `order`; MOX_HOPPER_FUNCTIONS puts them into the struct. */
#define MOX_HOPPER_LAYOUT(order)                                                                                       \
    static const char *reject(const mox_record_shape *shape, char *buffer, size_t size)                                \
    {                                                                                                                  \
        return mox_hopper_reject(&(order), shape, buffer, size);                                                       \
    }                                                                                                                  \
    static bool accepts(const mox_record_shape *shape, const moxie_expert *expert, char *reason, size_t size)          \
    {                                                                                                                  \
        return mox_hopper_accepts(&(order), shape, expert, reason, size);                                              \
    }                                                                                                                  \
    static bool record_bytes(const mox_record_shape *shape, uint64_t *out)                                             \
    {                                                                                                                  \
        mox_hopper_record form;                                                                                        \
        const bool fits = mox_hopper_measure(&(order), shape, &form);                                                  \
        if (fits)                                                                                                      \
            *out = form.w2.end;                                                                                        \
        return fits;                                                                                                   \
    }                                                                                                                  \
    static int64_t parts(const mox_record_shape *shape)                                                                \
    {                                                                                                                  \
        return mox_hopper_parts(&(order), shape);                                                                      \
    }                                                                                                                  \
    static uint64_t part_at(const mox_record_shape *shape, int64_t part)                                               \
    {                                                                                                                  \
        return mox_hopper_part_at(&(order), shape, part);                                                              \
    }                                                                                                                  \
    static moxie_status pack_part(const mox_record_shape *shape, const moxie_expert *expert, int64_t part,             \
                                  void *record, moxie_error *error)                                                    \
    {                                                                                                                  \
        (void)error;                                                                                                   \
        mox_hopper_pack_part(&(order), shape, expert, part, (uint8_t *)record);                                        \
        return MOXIE_OK;                                                                                               \
    }                                                                                                                  \
    static uint64_t rest_bytes(const mox_record_shape *shape)                                                          \
    {                                                                                                                  \
        mox_hopper_record form;                                                                                        \
        (void)mox_hopper_measure(&(order), shape, &form);                                                              \
        return mox_hopper_rest_at(&form, form.w2.end);                                                                 \
    }                                                                                                                  \
    static void pack_rest(const mox_record_shape *shape, const moxie_expert *expert, int64_t part, void *rest)         \
    {                                                                                                                  \
        mox_hopper_pack_rest(&(order), shape, expert, part, (uint8_t *)rest);                                          \
    }                                                                                                                  \
    static moxie_status unpack(const mox_record_shape *shape, const void *record, moxie_expert *out,                   \
                               moxie_error *error)                                                                     \
    {                                                                                                                  \
        (void)error;                                                                                                   \
        mox_hopper_unpack(&(order), shape, (const uint8_t *)record, out);                                              \
        return MOXIE_OK;                                                                                               \
    }

#define MOX_HOPPER_FUNCTIONS                                                                                           \
    .reject = reject, .accepts = accepts, .record_bytes = record_bytes, .parts = parts, .part_at = part_at,            \
    .pack_part = pack_part, .rest_bytes = rest_bytes, .pack_rest = pack_rest, .unpack = unpack

extern const mox_hopper_order mox_hopper_swizzled, mox_hopper_fragments, mox_hopper_fragments_fp8;

#endif
