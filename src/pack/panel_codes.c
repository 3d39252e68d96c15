/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_codes.c - the six orders of panel.h, code by code (panel_codes.h).
 */
#include "pack/panel_codes.h"

static const struct {
    int bits;
    uint64_t step_bytes;
} orders[] = {
    [MOX_PANEL_NONE] = { 0, 0 },     [MOX_PANEL_PAIRS] = { 16, 1024 }, [MOX_PANEL_HALVES] = { 16, 1024 },
    [MOX_PANEL_QUADS] = { 8, 512 },  [MOX_PANEL_ZIPPED] = { 8, 512 },  [MOX_PANEL_NIBBLES] = { 4, 256 },
    [MOX_PANEL_PLANES] = { 6, 384 },
};

uint64_t mox_panel_step_bytes(mox_panel_order order)
{
    return orders[order].step_bytes;
}

static uint32_t get_bits(const uint8_t *bytes, int64_t bit, int count)
{
    uint32_t value = 0;
    for (int i = 0; i < count; i++, bit++)
        value |= (uint32_t)(bytes[bit / 8] >> bit % 8 & 1) << i;
    return value;
}

static void put_bits(uint8_t *bytes, int64_t bit, int count, uint32_t value)
{
    for (int i = 0; i < count; i++, bit++)
        bytes[bit / 8] = (uint8_t)((bytes[bit / 8] & ~(1u << bit % 8)) | (value >> i & 1) << bit % 8);
}

/* First bit of the code of row n, column k of a step (PLANES: of its low 4 bits). */
static int64_t place(mox_panel_order order, int n, int k)
{
    switch (order) {
    case MOX_PANEL_PAIRS: return 8 * (64 * (k / 2) + 4 * n + 2 * (k % 2));
    case MOX_PANEL_HALVES: return 8 * (64 * (k / 2) + 32 * (k % 2) + 2 * n);
    case MOX_PANEL_QUADS: return 8 * (64 * (k / 4) + 4 * n + k % 4);
    case MOX_PANEL_ZIPPED: return 8 * (64 * (k / 4) + 16 * (n / 4) + 8 * (k % 4 / 2) + 2 * (n % 4) + k % 2);
    default: return 8 * (64 * (k / 8) + 4 * n + 2 * (k % 2)) + 4 * (k % 8 / 2);
    }
}

/* First of the two high bits of order PLANES. */
static int64_t high_place(int n, int k)
{
    return 8 * (256 + 64 * (k / 16) + 4 * n + 2 * (k % 2)) + 2 * (k % 16 / 2);
}

void mox_panel_codes_pack(mox_panel_order order, const uint8_t *rows, int64_t stride, int64_t steps, uint8_t *to)
{
    const int bits = orders[order].bits, low = order == MOX_PANEL_PLANES ? 4 : bits;
    for (int64_t s = 0; s < steps; s++, to += orders[order].step_bytes)
        for (int n = 0; n < MOX_PANEL_ROWS; n++)
            for (int k = 0; k < MOX_PANEL_STEP; k++) {
                const uint32_t code = get_bits(rows + n * stride, (s * MOX_PANEL_STEP + k) * bits, bits);
                put_bits(to, place(order, n, k), low, code);
                if (order == MOX_PANEL_PLANES)
                    put_bits(to, high_place(n, k), 2, code >> 4);
            }
}

void mox_panel_codes_unpack(mox_panel_order order, const uint8_t *from, int64_t steps, uint8_t *rows, int64_t stride)
{
    const int bits = orders[order].bits, low = order == MOX_PANEL_PLANES ? 4 : bits;
    for (int64_t s = 0; s < steps; s++, from += orders[order].step_bytes)
        for (int n = 0; n < MOX_PANEL_ROWS; n++)
            for (int k = 0; k < MOX_PANEL_STEP; k++) {
                uint32_t code = get_bits(from, place(order, n, k), low);
                if (order == MOX_PANEL_PLANES)
                    code |= get_bits(from, high_place(n, k), 2) << 4;
                put_bits(rows + n * stride, (s * MOX_PANEL_STEP + k) * bits, bits, code);
            }
}
