/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c - the heap, with an allocation counter and failures on request for tests; the caller's allocator in its
 * place; blocks of whole pages; the arena.
 *
 * The caller's allocator needs a block's size to release it. So the size is stored before each of its blocks, also
 * before whole pages, whose alignment may be 2 MB:
 *
 *     memory:  [ padding to the alignment | bytes of all this, offset of the block ][ block ... ]
 *
 * A block of pages is a separate mapping, not malloc's: malloc reuses memory that other threads have touched, and the
 * request for huge pages would outlive the block. The page before the block holds the number of bytes to unmap:
 *
 *     mapping: [ bytes mapped | rest of a page ][ block, aligned to 2 MB when it is that large ... ]
 *
 * Arena: a list of blocks, newest first; objects are allocated from the newest one. Block sizes double from 4 KiB to
 * 1 MiB. An object that does not fit in the newest block starts another one.
 *
 *     block: [ next | capacity | used | pad ][ objects, each a multiple of 16 bytes ... ]
 */
#include "base/memory.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sizes.h"
#include "base/status.h"

static _Atomic uint64_t allocations, allocated_bytes;
static _Atomic uint64_t fuse; /* the allocation that fails, counted from now; 0: none */

/* Counts one allocation; false when it is the one that a test chose. */
static bool count_allocation(uint64_t size)
{
    uint64_t left = atomic_load_explicit(&fuse, memory_order_relaxed);

    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&allocated_bytes, size, memory_order_relaxed);
    while (left > 0 &&
           !atomic_compare_exchange_weak_explicit(&fuse, &left, left - 1, memory_order_relaxed, memory_order_relaxed))
        continue;
    return left != 1 && size <= (uint64_t)PTRDIFF_MAX;
}

/* Blocks that are allocated and not freed. NULL does not count. */
static _Atomic int64_t live_blocks;

static void *count_block(void *block)
{
    if (block)
        atomic_fetch_add_explicit(&live_blocks, 1, memory_order_relaxed);
    return block;
}

static void uncount_block(const void *block)
{
    if (block)
        atomic_fetch_sub_explicit(&live_blocks, 1, memory_order_relaxed);
}

/* ---- the caller's allocator -------------------------------------------------------------------------- */

static moxie_allocator hook; /* `allocate` NULL: there is none */

typedef struct hook_head {
    uint64_t bytes, offset;
} hook_head;

enum { HOOK_ALIGN = 16 };
_Static_assert(sizeof(hook_head) <= HOOK_ALIGN, "a head fits before every block");

static hook_head *head_of(const void *block)
{
    return (hook_head *)(uintptr_t)block - 1;
}

/* `size` bytes, zeroed when `zeroed`. */
static void *hook_alloc(uint64_t size, uint64_t align, bool zeroed)
{
    const uint64_t offset = align > HOOK_ALIGN ? align : HOOK_ALIGN;
    uint64_t bytes;
    if (!mox_add_u64(size ? size : 1, offset, &bytes))
        return NULL;
    unsigned char *memory = hook.allocate(hook.self, bytes, offset);
    if (!memory)
        return NULL;
    unsigned char *block = memory + offset;
    *head_of(block) = (hook_head) { bytes, offset };
    if (zeroed && !hook.zeroed)
        memset(block, 0, (size_t)size);
    return block;
}

static void hook_free(void *block)
{
    if (!block)
        return;
    const hook_head head = *head_of(block);
    hook.release(hook.self, (unsigned char *)block - head.offset, head.bytes);
}

static void *hook_realloc(void *block, uint64_t size)
{
    void *grown = hook_alloc(size, HOOK_ALIGN, false);
    if (!grown || !block)
        return grown;
    const uint64_t old = head_of(block)->bytes - head_of(block)->offset;
    memcpy(grown, block, (size_t)(old < size ? old : size));
    hook_free(block);
    return grown;
}

moxie_status mox_set_allocator(const moxie_allocator *allocator, moxie_error *error)
{
    const int64_t blocks = atomic_load_explicit(&live_blocks, memory_order_relaxed);
    MOX_FAIL_IF(allocator && (!allocator->allocate || !allocator->release), MOXIE_ERR_ARGUMENT, error,
                "an allocator needs both allocate and release, %s is NULL",
                allocator->allocate ? "release" : "allocate");
    MOX_FAIL_IF(blocks > 0, MOXIE_ERR_ARGUMENT, error,
                "the library holds %lld blocks of memory, which another allocator could not release: set it before "
                "anything is created, or after all of it was destroyed",
                (long long)blocks);
    hook = allocator ? *allocator : (moxie_allocator) { .allocate = NULL };
    return MOXIE_OK;
}

/* ---- the heap ------------------------------------------------------------------------------------------ */

void *mox_alloc(uint64_t size)
{
    if (!count_allocation(size))
        return NULL;
    return count_block(hook.allocate ? hook_alloc(size, HOOK_ALIGN, true) : calloc(1, size ? (size_t)size : 1));
}

void *mox_alloc_aligned(uint64_t size, uint64_t align)
{
    void *block = NULL;
    if (!count_allocation(size))
        return NULL;
    if (hook.allocate)
        return count_block(hook_alloc(size, align, true));
    if (posix_memalign(&block, (size_t)align, size ? (size_t)size : 1) != 0)
        return NULL;
    memset(block, 0, (size_t)size);
    return count_block(block);
}

void *mox_realloc(void *block, uint64_t size)
{
    if (!count_allocation(size))
        return NULL;
    void *grown = hook.allocate ? hook_realloc(block, size) : realloc(block, size ? (size_t)size : 1);
    return block ? grown : count_block(grown);
}

void *mox_calloc(uint64_t count, uint64_t size)
{
    uint64_t bytes;
    return mox_mul_u64(count, size, &bytes) ? mox_alloc(bytes) : NULL;
}

void mox_free(void *block)
{
    uncount_block(block);
    if (hook.allocate)
        hook_free(block);
    else
        free(block);
}

void mox_alloc_fail_at(uint64_t n)
{
    atomic_store_explicit(&fuse, n, memory_order_relaxed);
}

uint64_t mox_alloc_count(void)
{
    return atomic_load_explicit(&allocations, memory_order_relaxed);
}

uint64_t mox_alloc_bytes(void)
{
    return atomic_load_explicit(&allocated_bytes, memory_order_relaxed);
}

/* ---- whole pages ------------------------------------------------------------------------------------ */

#define HUGE_PAGE (UINT64_C(2) << 20)

static uint64_t page_size(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Unmaps what surrounds an aligned block. (mmap() aligns to pages only, so the mapping is larger by the alignment.) */
static unsigned char *cut(unsigned char *mapping, uint64_t mapped, uint64_t bytes, uint64_t align)
{
    const uint64_t page = page_size(), before = -((uintptr_t)mapping + page) & (align - 1);
    const uint64_t mine = page + bytes, behind = mapped - before - mine;
    if (before > 0)
        munmap(mapping, before);
    if (behind > 0)
        munmap(mapping + before + mine, behind);
    *(uint64_t *)(void *)(mapping + before) = mine;
    return mapping + before + page;
}

void *mox_alloc_pages(uint64_t size)
{
    const uint64_t page = page_size();
    uint64_t bytes, mapped;
    if (!count_allocation(size) || !mox_align_u64(size ? size : 1, page, &bytes))
        return NULL;
    const uint64_t align = bytes < HUGE_PAGE || page > HUGE_PAGE ? page : HUGE_PAGE;
    if (hook.allocate)
        return count_block(hook_alloc(bytes, align, true));
    if (!mox_add_u64(bytes, page + align, &mapped))
        return NULL;
    void *mapping = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED)
        return NULL;
    unsigned char *block = cut(mapping, mapped, bytes, align);
#ifdef MADV_HUGEPAGE
    /* For whole huge pages only, or the last few bytes would occupy 2 MB. A failure does no harm. */
    if (bytes >= HUGE_PAGE)
        madvise(block, bytes & ~(HUGE_PAGE - 1), MADV_HUGEPAGE);
#endif
    return count_block(block);
}

void mox_free_pages(void *block)
{
    uncount_block(block);
    if (hook.allocate)
        hook_free(block);
    if (hook.allocate || !block)
        return;
    unsigned char *mapping = (unsigned char *)block - page_size();
    munmap(mapping, *(const uint64_t *)(const void *)mapping);
}

void mox_drop_pages(const void *data, uint64_t bytes)
{
    const uint64_t page = page_size();
    const uintptr_t first = (uintptr_t)data & ~(uintptr_t)(page - 1);
    madvise((void *)first, (uintptr_t)data + bytes - first, MADV_DONTNEED);
}

/* ---- the arena -------------------------------------------------------------------------------------- */

enum { ARENA_ALIGN = 16, ARENA_FIRST = 4096, ARENA_LARGEST = 1 << 20 };

struct mox_arena_block {
    _Alignas(ARENA_ALIGN) struct mox_arena_block *next;
    uint64_t capacity, used; /* bytes behind this header */
};

static struct mox_arena_block *add_block(mox_arena *arena, uint64_t min_capacity)
{
    uint64_t capacity = arena->blocks ? 2 * arena->blocks->capacity : ARENA_FIRST;
    uint64_t bytes;

    if (capacity > ARENA_LARGEST)
        capacity = ARENA_LARGEST;
    if (capacity < min_capacity)
        capacity = min_capacity;
    if (!mox_add_u64(sizeof(struct mox_arena_block), capacity, &bytes))
        return NULL;
    struct mox_arena_block *block = mox_alloc(bytes);
    if (block) {
        block->capacity = capacity;
        block->next = arena->blocks;
        arena->blocks = block;
    }
    return block;
}

void *mox_arena_alloc(mox_arena *arena, uint64_t size)
{
    struct mox_arena_block *block = arena->blocks;
    uint64_t bytes;

    if (!mox_align_u64(size ? size : 1, ARENA_ALIGN, &bytes))
        return NULL;
    if (!block || block->capacity - block->used < bytes)
        block = add_block(arena, bytes);
    if (!block)
        return NULL;
    unsigned char *object = (unsigned char *)(block + 1) + block->used;
    block->used += bytes;
    return object;
}

void *mox_arena_calloc(mox_arena *arena, uint64_t count, uint64_t size)
{
    uint64_t bytes;
    return mox_mul_u64(count, size, &bytes) ? mox_arena_alloc(arena, bytes) : NULL;
}

char *mox_arena_strndup(mox_arena *arena, const char *text, uint64_t length)
{
    uint64_t bytes;
    char *copy = mox_add_u64(length, 1, &bytes) ? mox_arena_alloc(arena, bytes) : NULL;
    if (copy && length)
        memcpy(copy, text, (size_t)length);
    return copy;
}

char *mox_arena_printf(mox_arena *arena, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    const int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = length < 0 ? NULL : mox_arena_alloc(arena, (uint64_t)length + 1);
    if (!text)
        return NULL;
    va_start(arguments, format);
    vsnprintf(text, (size_t)length + 1, format, arguments);
    va_end(arguments);
    return text;
}

void mox_arena_free(mox_arena *arena)
{
    for (struct mox_arena_block *block = arena->blocks; block;) {
        struct mox_arena_block *next = block->next;
        mox_free(block);
        block = next;
    }
    arena->blocks = NULL;
}
