/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.h - every heap allocation of the library goes through here, so that tests can make the n-th one fail and
 * callers can bring an allocator. And the arena, for objects that are freed together.
 */
#ifndef MOX_BASE_MEMORY_H
#define MOX_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <moxie/moxie.h>

/* Body of moxie_set_allocator; `allocator` is the library's own struct, or NULL. */
moxie_status mox_set_allocator(const moxie_allocator *allocator, moxie_error *error);

/* Zeroed heap memory; NULL when there is none, or when a test requested failure. Size 0 gives a unique pointer. */
void *mox_alloc(uint64_t size);
/* Zeroed and aligned to `align` (a power of two, at least 8). Free with mox_free. */
void *mox_alloc_aligned(uint64_t size, uint64_t align);
/* Large zeroed memory in whole pages, not yet touched: each page is placed near the thread that first writes to it.
 * From 2 MB on, it is aligned to 2 MB and huge pages are requested. Free with mox_free_pages. A caller's allocator only
 * gets the alignment; if its memory is not zeroed, this thread zeroes, and so touches, all of it. */
void *mox_alloc_pages(uint64_t size);
/* Grows or shrinks; new bytes are not zeroed. NULL leaves the old block alone. Not for aligned blocks. */
void *mox_realloc(void *block, uint64_t size);
/* Array of `count` elements of `size` bytes, zeroed; NULL also when the product overflows. */
void *mox_calloc(uint64_t count, uint64_t size);
void mox_free(void *block);
/* Gives the pages back to the system. NULL is fine. */
void mox_free_pages(void *block);
/* Removes the pages of these bytes from this process' memory; a later access reads them from the file again. Only for
 * read-only mappings of files: other memory would lose its contents. Thread-safe. */
void mox_drop_pages(const void *data, uint64_t bytes);

/* For tests: the n-th allocation from now on (1 = the next) fails, once. 0 turns it off. Process-wide. */
void mox_alloc_fail_at(uint64_t n);
/* The number of allocations since the process started. Tests use it to show that a run allocates nothing. */
uint64_t mox_alloc_count(void);
/* Their bytes. The difference of two calls bounds what was allocated at any time between them. */
uint64_t mox_alloc_bytes(void);

/* Many small objects that are freed together. All zero is a valid, empty arena. One-thread-at-a-time. */
typedef struct mox_arena {
    struct mox_arena_block *blocks;
} mox_arena;

/* Zeroed memory aligned to 16, alive until mox_arena_free; NULL when out of memory. */
void *mox_arena_alloc(mox_arena *arena, uint64_t size);
void *mox_arena_calloc(mox_arena *arena, uint64_t count, uint64_t size);
/* A terminated copy of the first `length` bytes of `text`. */
char *mox_arena_strndup(mox_arena *arena, const char *text, uint64_t length);
/* printf into the arena. */
char *mox_arena_printf(mox_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
void mox_arena_free(mox_arena *arena);

#endif
