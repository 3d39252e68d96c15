/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_sm90_list.c - lists and gathers in plain C (test_cuda_sm90_list.h).
 */
#include "test_cuda_sm90_list.h"

#include <math.h>

#include "quant/quant.h"
#include "test_cuda_sm90.h"
#include "test_support.h"

/* ---- the work list ------------------------------------------------------------------------------------- */

static void write_octets(const mox_sm90_list_args *a)
{
    const mox_sm90_entry *entries = entries_of(a->list);
    memset(a->octets, 0, (size_t)a->octet_count * sizeof *a->octets);
    for (int32_t e = 0; e < a->list->count; e++)
        for (int32_t n = 0; n < entries[e].tiles; n++) {
            const token_tile t = tile_of(entries + e, n);
            for (int32_t i = 0; i < t.columns; i += 8)
                a->octets[(t.row + i) / 8] =
                    (mox_sm90_octet) { t.pair + i, t.columns - i < 8 ? t.columns - i : 8, t.row, t.rows };
        }
}

/* Columns [first, end) of every place that a kernel zeroes. */
typedef struct cleared {
    int32_t first, end;
} cleared;

static cleared cleared_by_list(const mox_sm90_list_args *a)
{
    return (cleared) { 0, a->clear.usual_columns };
}

static cleared cleared_by_gather(const mox_sm90_gather_args *a)
{
    if (a->inline_routing.ids != NULL)
        return (cleared) { 0, a->clear.max_columns };
    return (cleared) { a->clear.usual_columns, a->clear.places > 0 ? a->list->widest : 0 };
}

static void fill(const mox_sm90_clear *c, cleared columns, int byte)
{
    assert_true((uintptr_t)c->state % 16 == 0 && c->usual_columns % 8 == 0 && c->max_columns % 8 == 0);
    assert_true(c->usual_columns <= c->max_columns && columns.end <= c->max_columns);
    for (int64_t p = 0; p < c->places && columns.first < columns.end; p++)
        memset(c->state + (p * c->max_columns + columns.first) * 64, byte,
               (size_t)(columns.end - columns.first) * 64 * 8);
}

/* Columns of a token tile: the most where half of the slots with tokens have more than in even routing. */
static int32_t tile_columns(const mox_sm90_list_args *a)
{
    int64_t present = 0, more = 0;
    assert_true(a->even_columns % 8 == 0 && a->even_columns >= 8 && a->even_columns <= a->max_columns);
    for (int64_t s = 0; s < a->slots; s++) {
        const int64_t tokens = a->offsets[s + 1] - a->offsets[s];
        present += tokens > 0;
        more += tokens > a->even_columns;
    }
    return 2 * more >= present ? a->max_columns : a->even_columns;
}

/* Choices, where the list may be made from them, leave what permute has found. */
static void check_choices(const mox_sm90_list_args *a)
{
    for (int64_t s = 0; a->routing.ids != NULL && s < a->slots; s++) {
        int64_t tokens = 0;
        for (int32_t p = 0; p < a->routing.pairs; p++) {
            const int32_t id = a->routing.ids[p];
            tokens += id >= 0 && id < a->routing.experts && a->routing.slot_of[id] == s;
        }
        assert_int_equal(tokens, a->offsets[s + 1] - a->offsets[s]);
    }
}

static moxie_status list(void *context, const mox_sm90_list_args *a, bool dependent)
{
    (void)context, (void)dependent;
    check_choices(a);
    fill(&a->clear, cleared_by_list(a), 0);
    mox_sm90_entry *entries = (mox_sm90_entry *)(void *)(a->list + 1);
    int32_t n = 0, first = 0, row = 0, widest = 0;
    assert_true(a->max_columns % 8 == 0 && a->max_columns >= 8 && a->max_columns <= MOX_SM90_MAX_COLUMNS);
    const int32_t columns = tile_columns(a);
    for (int64_t s = 0; s < a->slots; s++) {
        const int32_t tokens = (int32_t)(a->offsets[s + 1] - a->offsets[s]);
        if (tokens == 0)
            continue;
        const int32_t tiles = (tokens + columns - 1) / columns;
        entries[n++] = (mox_sm90_entry) { (int32_t)s, (int32_t)a->offsets[s], tokens, first, row, tiles, 0, 0 };
        const int32_t rows = tile_of(entries + n - 1, 0).rows;
        widest = rows > widest ? rows : widest;
        first += tiles;
        row += (tokens + 7) / 8 * 8;
    }
    *a->list = (mox_sm90_list) { n, widest, first, { 0 } };
    assert_true(row / 8 <= a->octet_count);
    write_octets(a);
    return MOXIE_OK;
}

const mox_sm90_list *test_cuda_sm90_list_of_few(const mox_sm90_routing *few, int32_t most, own_list *own)
{
    int64_t offsets[MOXIE_MAX_EXPERTS + 1] = { 0 };
    assert_true(few->pairs <= MOX_SM90_INLINE_PAIRS);
    for (int32_t p = 0; p < few->pairs; p++) {
        const int32_t id = few->ids[p], slot = id >= 0 && id < few->experts ? few->slot_of[id] : -1;
        for (int64_t s = slot + 1; slot >= 0 && s <= MOXIE_MAX_EXPERTS; s++)
            offsets[s]++;
    }
    const mox_sm90_list_args args = { .offsets = offsets,
                                      .slots = MOXIE_MAX_EXPERTS,
                                      .even_columns = most,
                                      .max_columns = most,
                                      .list = &own->head,
                                      .octets = own->octets,
                                      .octet_count = MOX_SM90_INLINE_PAIRS };
    (void)list(NULL, &args, false);
    return &own->head;
}

/* ---- tokens -- ------------------------------------------------------------------------------------------ */

/* Code k of a row as bf16, and that nothing is lost: numbers with bits below bf16's least are as good as none. */
uint16_t test_cuda_sm90_act(const mox_sm90_gather_args *a, int64_t row, int64_t k)
{
    const mox_sm90_acts *acts = &a->acts;
    const uint32_t code = a->a[row * a->a_stride + k], sign = code >> (acts->bits - 1),
                   magnitude = code & ~(sign << (acts->bits - 1));
    const uint32_t bits = magnitude > acts->max_code ? 0x7f800000 | magnitude << acts->shift : magnitude << acts->shift;
    double x = (double)mox_load(MOXIE_F32, &bits) * (double)acts->rebias * (sign != 0 ? -1 : 1);
    uint16_t to;
    assert_true(code >> acts->bits == 0);
    if (acts->integer)
        x = (int8_t)code;
    else if (acts->group > 0)
        x *= (double)a->a_scale[row * a->a_scale_stride + k / acts->group] * (double)acts->scale_factor;
    const float narrow = (float)x;
    mox_narrow(MOXIE_BF16, &narrow, &to, 1);
    assert_true(isnan(x) || fabs(x) < 0x1p-129 || (double)mox_load(MOXIE_BF16, &to) == x);
    return to;
}

static float factor_of_row(const mox_sm90_gather_args *a, int64_t row)
{
    const mox_sm90_acts *acts = &a->acts;
    const float factor = acts->group > 0 ? acts->row_factor : a->a_scale[row * a->a_scale_stride];
    const float global = acts->global != NULL ? acts->global[row] : 1;
    return acts->global_divides ? factor / global : factor * global;
}

/* Row `row` as row `in` of a tile. */
static void gather_acts(const mox_sm90_gather_args *a, int64_t row, const token_tile *t, int64_t in)
{
    assert_true(a->acts.group % 8 == 0 && (a->scales == 0 || a->acts.group == 0));
    for (int64_t k = 0; k < a->chunks * 64; k++) {
        const uint16_t number = k < a->a_bytes / 2 ? test_cuda_sm90_act(a, row, k) : 0;
        memcpy(a->to + tiled_at(t, a->chunks, in, 2 * k), &number, 2);
    }
}

/* The byte of a row that lies at byte `at` of the tiled row; `row8`: its row among the tiled ones. */
static int64_t permuted_byte(const mox_sm90_gather_args *a, const own_list *own, int64_t row8, int64_t at)
{
    const mox_sm90_list *list = a->inline_routing.ids != NULL ? &own->head : a->list;
    if (a->order_flag == 0)
        return at;
    for (int32_t e = list->count; e-- > 0;) {
        const mox_sm90_entry *entry = entries_of(list) + e;
        const uint8_t *record = a->records + (uint64_t)entry->slot * a->record_bytes;
        uint32_t flags;
        memcpy(&flags, record + 40, sizeof flags);
        if (entry->row > row8)
            continue;
        const int32_t *order = (const int32_t *)(const void *)(record + a->order_at);
        return flags & a->order_flag ? 2 * (int64_t)order[at / 2] + at % 2 : at;
    }
    fail_msg("row %lld is no slot's", (long long)row8);
    return 0;
}

/* Sum `s` of 32 columns of row `in` of a tile, in the order of the kernel: four times eight columns, then pairs. */
static float sum_of_columns(const mox_sm90_gather_args *a, const token_tile *t, int64_t in, int64_t s)
{
    const uint8_t *tiles = a->a_tiled ? a->a : a->to;
    float part[4] = { 0, 0, 0, 0 };
    for (int64_t i = 0; i < 32; i++)
        part[i / 8] += 0x1p-5f * mox_load(MOXIE_BF16, tiles + tiled_at(t, a->chunks, in, (32 * s + i) * 2));
    return (part[0] + part[1]) + (part[2] + part[3]);
}

/* The parts of a sum are bf16 of what those before leave. */
static void gather_sums(const mox_sm90_gather_args *a, const token_tile *t, int64_t in)
{
    const int64_t blocks = a->chunks / 4;
    for (int64_t s = 0; s < 8 * blocks; s++) {
        uint16_t parts[4] = { 0, 0, 0, 0 };
        float rest = sum_of_columns(a, t, in, s);
        for (int i = 0; i < 3; i++) {
            mox_narrow(MOXIE_BF16, &rest, parts + i, 1);
            rest -= mox_load(MOXIE_BF16, parts + i);
        }
        memcpy(a->to_sums + (t->row * blocks + s / 8 * t->rows) * 64 + in / 8 * 512 + s % 8 / 4 * 256 +
                   s % 4 / 2 * 128 + in % 8 * 16 + s % 2 * 8,
               parts, sizeof parts);
    }
}

static moxie_status gather(void *context, const mox_sm90_gather_args *a, bool dependent)
{
    (void)context, (void)dependent;
    own_list own = { 0 };
    if (a->inline_routing.ids != NULL)
        (void)test_cuda_sm90_list_of_few(&a->inline_routing, a->max_columns, &own);
    assert_true(a->a_stride % 16 == 0 && (uintptr_t)a->a % 16 == 0 && (uintptr_t)a->to % 128 == 0);
    fill(&a->clear, cleared_by_gather(a), 0);
    for (int64_t o = 0; o < a->octet_count; o++) {
        const mox_sm90_octet *octet = a->inline_routing.ids == NULL ? a->octets + o : own.octets + o;
        const token_tile t = { .row = octet->row, .rows = octet->rows };
        for (int32_t i = 0; i < octet->columns; i++) {
            const int64_t row = a->a_row != NULL ? a->a_row[octet->pair + i] : octet->pair + i;
            const int64_t in = o * 8 - octet->row + i;
            if (a->to_factor != NULL)
                a->to_factor[t.row + in] = factor_of_row(a, row);
            if (a->acts.bits > 0)
                gather_acts(a, row, &t, in);
            for (int64_t at = 0; !a->a_tiled && a->acts.bits == 0 && at < a->chunks * 128; at++)
                a->to[tiled_at(&t, a->chunks, in, at)] =
                    at < a->a_bytes ? a->a[row * a->a_stride + permuted_byte(a, &own, o * 8, at)] : 0;
            for (int64_t k = 0; k < a->chunks * a->scales; k++)
                a->to_scale[scale_at(&t, a->chunks, in, k)] =
                    a->a_scale[row * a->a_scale_stride + (k >> a->scale_shift)];
            if (a->to_sums != NULL)
                gather_sums(a, &t, in);
        }
    }
    return MOXIE_OK;
}

#ifdef MOX_TEST_EMULATED

/* What a gather leaves: tokens, scales, factors, sums; 0xff where it leaves nothing. */
enum { GATHERED = 4 };
typedef struct gathered {
    void *at[GATHERED];
    size_t bytes[GATHERED];
} gathered;

static gathered gathered_by(const mox_sm90_gather_args *a)
{
    const size_t rows = (size_t)a->octet_count * 8, chunks = (size_t)a->chunks;
    return (gathered) { { a->to, a->to_scale, a->to_factor, a->to_sums },
                        { a->to != NULL ? rows * chunks * 128 : 0, rows * chunks * (size_t)a->scales * 4,
                          a->to_factor != NULL ? rows * 4 : 0, a->to_sums != NULL ? rows * chunks / 4 * 64 : 0 } };
}

static void check_cleared(const mox_sm90_clear *c, cleared columns)
{
    for (int64_t i = 0; i < (int64_t)c->places * c->max_columns * 64; i++) {
        const int64_t column = i / 64 % c->max_columns;
        if (column >= columns.first && column < columns.end)
            assert_int_equal(c->state[i], 0);
    }
}

/* The kernels leave the same bytes as the functions above. Blocks of a thousand threads take the emulator long: three
 * here. */
moxie_status test_cuda_sm90_list(void *context, const mox_sm90_list_args *a, bool dependent)
{
    mox_sm90_list_args smaller = *a;
    smaller.multiprocessors = 2;
    MOX_TRY(list(context, a, dependent));
    const size_t bytes = sizeof *a->list + (size_t)a->list->count * sizeof(mox_sm90_entry),
                 octets = (size_t)a->octet_count * sizeof *a->octets;
    void *want = malloc(bytes + octets);
    memcpy(want, a->list, bytes);
    memcpy((uint8_t *)want + bytes, a->octets, octets);
    memset(a->list, 0xff, bytes);
    memset(a->octets, 0xff, octets);
    fill(&a->clear, cleared_by_list(a), 0xff);
    MOX_TRY(test_emulated_list(context, &smaller, dependent));
    assert_memory_equal(a->list, want, bytes);
    assert_memory_equal(a->octets, (uint8_t *)want + bytes, octets);
    check_cleared(&a->clear, cleared_by_list(a));
    free(want);
    return MOXIE_OK;
}

moxie_status test_cuda_sm90_gather(void *context, const mox_sm90_gather_args *a, bool dependent)
{
    const gathered g = gathered_by(a);
    void *want[GATHERED] = { NULL };
    for (int i = 0; i < GATHERED; i++)
        if (g.bytes[i] > 0)
            memset(g.at[i], 0xff, g.bytes[i]);
    MOX_TRY(gather(context, a, dependent));
    for (int i = 0; i < GATHERED; i++)
        if (g.bytes[i] > 0) {
            want[i] = malloc(g.bytes[i]);
            memcpy(want[i], g.at[i], g.bytes[i]);
            memset(g.at[i], 0xff, g.bytes[i]);
        }
    fill(&a->clear, cleared_by_gather(a), 0xff);
    MOX_TRY(test_emulated_gather(context, a, dependent));
    check_cleared(&a->clear, cleared_by_gather(a));
    for (int i = 0; i < GATHERED; i++) {
        if (g.bytes[i] > 0)
            assert_memory_equal(g.at[i], want[i], g.bytes[i]);
        free(want[i]);
    }
    return MOXIE_OK;
}

#else

moxie_status test_cuda_sm90_list(void *context, const mox_sm90_list_args *a, bool dependent)
{
    return list(context, a, dependent);
}

moxie_status test_cuda_sm90_gather(void *context, const mox_sm90_gather_args *a, bool dependent)
{
    return gather(context, a, dependent);
}

#endif
