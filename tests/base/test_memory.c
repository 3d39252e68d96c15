/* SPDX-License-Identifier: Apache-2.0
 *
 * test_memory.c - heap allocation (zeroing, alignment, sizes too large, failing on request), blocks of pages, the
 * arena.
 */
#include "test_support.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"

static bool all_zero(const unsigned char *bytes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (bytes[i])
            return false;
    }
    return true;
}

static void test_alloc(void **state)
{
    (void)state;
    for (int round = 0; round < 4; round++) {
        /* Filled and freed in each round, so that an allocation that is not cleared is found. */
        unsigned char *a = mox_alloc(1000), *b = mox_calloc(25, 40), *c = mox_alloc_aligned(1000, 256);
        assert_true(a && b && c);
        assert_true(all_zero(a, 1000) && all_zero(b, 1000) && all_zero(c, 1000));
        assert_int_equal((uintptr_t)c % 256, 0);
        memset(a, 0xff, 1000);
        memset(b, 0xff, 1000);
        memset(c, 0xff, 1000);
        mox_free(a);
        mox_free(b);
        mox_free(c);
    }
    void *empty = mox_alloc(0), *other = mox_alloc(0), *aligned = mox_alloc_aligned(0, 64);
    assert_true(empty && other && aligned && empty != other);
    mox_free(empty);
    mox_free(other);
    mox_free(aligned);
    mox_free(NULL);
}

static void test_alloc_rejects(void **state)
{
    (void)state;
    assert_null(mox_alloc(UINT64_MAX));
    assert_null(mox_alloc_aligned(UINT64_MAX - 7, 64));
    assert_null(mox_calloc(UINT64_C(1) << 32, UINT64_C(1) << 32)); /* 2^64: wraps to 0 */
    assert_null(mox_realloc(NULL, UINT64_MAX));
    assert_null(mox_alloc_pages(UINT64_MAX));
    assert_null(mox_alloc_pages((uint64_t)PTRDIFF_MAX)); /* the size with alignment would overflow */
}

static void test_resize(void **state)
{
    (void)state;
    char *block = mox_realloc(NULL, 6);
    memcpy(block, "words", 6);
    block = mox_realloc(block, 100000);
    assert_string_equal(block, "words");
    mox_alloc_fail_at(1);
    assert_null(mox_realloc(block, 200000));
    assert_string_equal(block, "words");
    mox_free(block);
}

static void *allocate(int kind)
{
    switch (kind) {
    case 0: return mox_alloc(8);
    case 1: return mox_alloc_aligned(8, 64);
    case 2: return mox_realloc(NULL, 8);
    case 3: return mox_calloc(2, 4);
    default: return mox_alloc_pages(8);
    }
}

static void test_fuse(void **state)
{
    (void)state;
    for (int kind = 0; kind < 5; kind++) {
        for (uint64_t n = 0; n <= 5; n++) {
            const uint64_t before = mox_alloc_count(), bytes = mox_alloc_bytes();
            mox_alloc_fail_at(n);
            for (uint64_t i = 1; i <= 6; i++) {
                void *block = allocate(kind);
                assert_int_equal(block == NULL, i == n);
                kind == 4 ? mox_free_pages(block) : mox_free(block);
            }
            assert_int_equal(mox_alloc_count() - before, 6);
            assert_int_equal(mox_alloc_bytes() - bytes, 6 * 8);
        }
    }
    mox_alloc_fail_at(1);
    mox_alloc_fail_at(0);
    void *block = mox_alloc(1);
    assert_non_null(block);
    mox_free(block);
}

/* ---- pages ----------------------------------------------------------------------------------------------- */

/* Pages of [data, data + bytes) that are in memory; `data` begins a page. */
static uint64_t resident_pages(const void *data, uint64_t bytes)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), count = (bytes + page - 1) / page;
    unsigned char *in = malloc(count);
    uint64_t found = 0;
    assert_int_equal(mincore((void *)(uintptr_t)data, bytes, in), 0);
    for (uint64_t i = 0; i < count; i++)
        found += in[i] & 1;
    free(in);
    return found;
}

static void test_pages(void **state)
{
    static const uint64_t sizes[] = { 0, 1, 4096, 100000, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, 7777777 };
    (void)state;
    for (int i = 0; i < 8; i++) {
        unsigned char *block = mox_alloc_pages(sizes[i]), *other = mox_alloc_pages(sizes[i]);
        assert_true(block && other);
        assert_int_equal((uintptr_t)block % (sizes[i] <= 100000 ? 4096 : 2 << 20), 0);
        assert_int_equal(resident_pages(block, sizes[i]), 0); /* not touched yet */
        assert_true(all_zero(block, sizes[i]));
        memset(block, 0xff, sizes[i]);
        assert_true(all_zero(other, sizes[i]));
        mox_free_pages(block);
        mox_free_pages(other);
        unsigned char page_state;
        assert_int_equal(mincore(block, 1, &page_state), -1); /* unmapped */
    }
    mox_free_pages(NULL);
}

/* True when smaps says that huge pages were asked for where `address` is. */
static bool is_advised(const void *address)
{
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[512];
    unsigned long first, last;
    bool inside = false, advised = false;
    while (maps && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx ", &first, &last) == 2)
            inside = first <= (uintptr_t)address && (uintptr_t)address < last;
        else if (inside && strncmp(line, "VmFlags:", 8) == 0)
            advised = strstr(line, " hg") != NULL;
    }
    if (maps)
        fclose(maps);
    return advised;
}

/* False on systems without huge pages, and in emulators, where smaps does not show the advice. */
static bool smaps_shows_advice(void)
{
    const size_t bytes = 4 << 20;
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(map != MAP_FAILED);
    madvise(map, bytes, MADV_HUGEPAGE);
    const bool seen = is_advised(map);
    munmap(map, bytes);
    return seen;
}

/* Huge pages are requested for the part of a block that fills them, not for the rest. */
static void test_huge_pages_are_requested(void **state)
{
    (void)state;
    if (!smaps_shows_advice()) {
        print_message("this system does not show advice on huge pages in /proc/self/smaps\n");
        skip();
    }
    const uint64_t huge = 2 << 20, size = 3 * huge + 4096;
    unsigned char *block = mox_alloc_pages(size), *small = mox_alloc_pages(huge - 65536);
    assert_true(block && small);
    for (uint64_t at = 0; at < size; at += huge)
        assert_int_equal(is_advised(block + at), at + huge <= size);
    assert_false(is_advised(small));
    mox_free_pages(block);
    mox_free_pages(small);
}

/* Resident bytes of this process' file mappings. */
static uint64_t file_memory(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    unsigned long file = 0, shared = 0;
    while (status && fgets(line, sizeof line, status)) {
        sscanf(line, "RssFile: %lu", &file);
        sscanf(line, "RssShmem: %lu", &shared); /* files in memory */
    }
    if (status)
        fclose(status);
    return (uint64_t)(file + shared) * 1024;
}

static void test_dropped_pages_are_read_again(void **state)
{
    (void)state;
    enum { SIZE = 8 << 20 };
    char *dir = test_tmpdir(), path[600];
    snprintf(path, sizeof path, "%s/file", dir);
    const int fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    unsigned char *content = malloc(SIZE);
    for (int i = 0; i < SIZE; i++)
        content[i] = (unsigned char)(i * 7 + i / 4096);
    assert_int_equal(write(fd, content, SIZE), SIZE);
    const unsigned char *map = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_true(map != MAP_FAILED);
    assert_memory_equal(map, content, SIZE);
    const uint64_t before = file_memory();
    mox_drop_pages(map + 100, SIZE - 200);
    const uint64_t after = file_memory();
    if (before >= SIZE) /* else the system does not report it */
        assert_true(after + SIZE <= before + 64 * 1024);
    assert_memory_equal(map, content, SIZE);
    munmap((void *)(uintptr_t)map, SIZE);
    close(fd);
    free(content);
    test_rmdir(dir);
}

/* ---- arena ----------------------------------------------------------------------------------------------- */

static void test_arena_objects(void **state)
{
    enum { OBJECTS = 2000 };
    static unsigned char *objects[OBJECTS];
    static uint64_t sizes[OBJECTS];
    test_rng rng = { test_seed(7) };
    mox_arena arena = { 0 };
    (void)state;
    for (int i = 0; i < OBJECTS; i++) {
        sizes[i] = test_below(&rng, i % 100 == 0 ? 100000 : 200);
        objects[i] = mox_arena_alloc(&arena, sizes[i]);
        assert_non_null(objects[i]);
        assert_int_equal((uintptr_t)objects[i] % 16, 0);
        assert_true(all_zero(objects[i], sizes[i]));
        memset(objects[i], i & 0xff, (size_t)sizes[i]);
    }
    for (int i = 0; i < OBJECTS; i++) {
        for (uint64_t b = 0; b < sizes[i]; b++)
            assert_int_equal(objects[i][b], i & 0xff); /* no other object overlaps it */
    }
    mox_arena_free(&arena);
    assert_null(arena.blocks);
    mox_arena_free(&arena);
}

static void test_arena_texts(void **state)
{
    mox_arena arena = { 0 };
    (void)state;
    assert_string_equal(mox_arena_strndup(&arena, "gate_up_proj", 7), "gate_up");
    assert_string_equal(mox_arena_strndup(&arena, NULL, 0), "");
    assert_string_equal(mox_arena_printf(&arena, "layers.%d.%s", 12, "mlp"), "layers.12.mlp");
    char *wide = mox_arena_printf(&arena, "%9000d", 1);
    assert_int_equal(strlen(wide), 9000);
    assert_int_equal(wide[8999], '1');
    mox_arena_free(&arena);
}

static void test_arena_out_of_memory(void **state)
{
    mox_arena arena = { 0 };
    (void)state;
    mox_alloc_fail_at(1);
    assert_null(mox_arena_alloc(&arena, 10));
    assert_non_null(mox_arena_alloc(&arena, 10));
    assert_null(mox_arena_alloc(&arena, UINT64_MAX));
    assert_null(mox_arena_alloc(&arena, UINT64_MAX - 40));
    assert_null(mox_arena_calloc(&arena, UINT64_C(1) << 60, 16));
    assert_null(mox_arena_strndup(&arena, "x", UINT64_MAX));
    mox_alloc_fail_at(1);
    assert_null(mox_arena_printf(&arena, "%100000d", 1));
    assert_string_equal(mox_arena_printf(&arena, "%d", 1), "1"); /* still usable */
    mox_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc),
        cmocka_unit_test(test_alloc_rejects),
        cmocka_unit_test(test_resize),
        cmocka_unit_test(test_fuse),
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_huge_pages_are_requested),
        cmocka_unit_test(test_dropped_pages_are_read_again),
        cmocka_unit_test(test_arena_objects),
        cmocka_unit_test(test_arena_texts),
        cmocka_unit_test(test_arena_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
