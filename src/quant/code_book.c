/* SPDX-License-Identifier: Apache-2.0
 *
 * code_book.c - lists of the entries nearest to each point of the lattice (code_book.h), by the distance in levels.
 */
#include "quant/code_book.h"

#include <pthread.h>
#include <stddef.h>

#include "format/block_grids.h"

enum { HALF = 256 };

uint16_t mox_book_base3[256];

static mox_code_book books[MOX_BOOKS] = {
    [MOX_BOOK_IQ2_XXS] = { .grid = mox_grid_iq2xxs, .entries = 256, .bits = 2 },
    [MOX_BOOK_IQ2_XS] = { .grid = mox_grid_iq2xs, .entries = 512, .bits = 2 },
    [MOX_BOOK_IQ2_S] = { .grid = mox_grid_iq2s, .entries = 1024, .bits = 2 },
    [MOX_BOOK_IQ3_XXS] = { .grid = mox_grid_iq3xxs, .entries = 256, .bits = 3 },
    [MOX_BOOK_IQ3_S] = { .grid = mox_grid_iq3s, .entries = 512, .bits = 3 },
    [MOX_BOOK_IQ1] = { .grid = mox_grid_iq1, .entries = 2048, .bits = 2 },
};

/* The word of a point: numbers to base 3, or eight numbers of 3 bits, which are their word. */
static uint32_t word_of(const mox_code_book *book, uint32_t point)
{
    uint32_t word = 0;
    if (book->bits == 3)
        return point;
    for (int32_t i = 0; i < 8; i++, point /= 3)
        word |= point % 3 << 2 * i;
    return word;
}

/* out[b] = the squared distance of byte b of an entry to byte `byte` of a word of numbers of 2 bits. */
static void two_bit_distances(uint32_t byte, uint8_t out[HALF])
{
    for (uint32_t b = 0; b < HALF; b++) {
        int32_t sum = 0;
        for (int32_t i = 0; i < 8; i += 2) {
            const int32_t off = (int32_t)(b >> i & 3) - (int32_t)(byte >> i & 3);
            sum += off * off;
        }
        out[b] = (uint8_t)sum;
    }
}

/* The same for six bits of words of numbers of 3 bits. */
static void three_bit_distances(uint32_t six, uint8_t out[HALF])
{
    for (uint32_t b = 0; b < 64; b++) {
        const int32_t low = (int32_t)(b & 7) - (int32_t)(six & 7), high = (int32_t)(b >> 3) - (int32_t)(six >> 3);
        out[b] = (uint8_t)(low * low + high * high);
    }
}

/* Puts the entries nearest to a word into its list, the first of equals first. */
static void fill_list(const mox_code_book *book, uint32_t word, uint32_t *list)
{
    const uint32_t split = book->bits == 2 ? 8 : 6, mask = (1u << split) - 1;
    uint8_t half[2][HALF];
    int32_t distance[MOX_BOOK_NEAR], count = 0;
    for (int32_t h = 0; h < 2; h++)
        (book->bits == 2 ? two_bit_distances : three_bit_distances)(word >> split * (uint32_t)h & mask, half[h]);
    for (int32_t e = 0; e < book->entries; e++) {
        const uint32_t entry = book->grid[e];
        const int32_t far = half[0][entry & mask] + half[1][entry >> split];
        if (count == MOX_BOOK_NEAR && far >= distance[count - 1])
            continue;
        int32_t at = count < MOX_BOOK_NEAR ? count++ : count - 1;
        for (; at > 0 && distance[at - 1] > far; at--) {
            distance[at] = distance[at - 1];
            list[at] = list[at - 1];
        }
        distance[at] = far;
        list[at] = entry | (uint32_t)e << 16;
    }
}

static void fill(mox_code_book *book)
{
    const uint32_t points = book->bits == 2 ? MOX_BOOK_POINTS : 4096;
    for (uint32_t point = 0; point < points; point++)
        fill_list(book, word_of(book, point), book->near[point]);
}

static void fill_base3(void)
{
    for (uint32_t mask = 0; mask < 256; mask++) {
        uint32_t sum = 0;
        for (uint32_t i = 0, power = 1; i < 8; i++, power *= 3)
            sum += (mask >> i & 1) * power;
        mox_book_base3[mask] = (uint16_t)sum;
    }
}

#define FILLER(kind)                                                                                                   \
    static void fill_##kind(void)                                                                                      \
    {                                                                                                                  \
        fill(&books[kind]);                                                                                            \
    }
FILLER(MOX_BOOK_IQ2_XXS)
FILLER(MOX_BOOK_IQ2_XS)
FILLER(MOX_BOOK_IQ2_S)
FILLER(MOX_BOOK_IQ3_XXS)
FILLER(MOX_BOOK_IQ3_S)
FILLER(MOX_BOOK_IQ1)

const mox_code_book *mox_code_book_of(mox_book_kind kind)
{
    static pthread_once_t base3 = PTHREAD_ONCE_INIT;
    static pthread_once_t once[MOX_BOOKS] = { PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT,
                                              PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT, PTHREAD_ONCE_INIT };
    static void (*const fillers[MOX_BOOKS])(void) = { fill_MOX_BOOK_IQ2_XXS, fill_MOX_BOOK_IQ2_XS, fill_MOX_BOOK_IQ2_S,
                                                      fill_MOX_BOOK_IQ3_XXS, fill_MOX_BOOK_IQ3_S,  fill_MOX_BOOK_IQ1 };
    pthread_once(&base3, fill_base3);
    pthread_once(&once[kind], fillers[kind]);
    return &books[kind];
}
