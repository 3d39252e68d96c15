/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.h - the library's only door to the heap, so that tests can make the n-th allocation fail, and
 * the arena for what is built once and freed together.
 */
#ifndef MOX_BASE_MEMORY_H
#define MOX_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <moxie/moxie.h>

/* Body of moxie_set_allocator; `allocator` is the library's own struct, or NULL. */
moxie_status mox_set_allocator(const moxie_allocator *allocator, moxie_error *error);

/* Heap memory; NULL when there is none (or a test asked for failure). Zeroed. size 0 gives a unique pointer. */
void *mox_alloc(uint64_t size);
/* Zeroed and aligned to `align` (a power of two, at least 8). Free with mox_free. */
void *mox_alloc_aligned(uint64_t size, uint64_t align);
/* Memory for what is large: zero, but touched by nobody yet, so that every page comes to be near the thread that first
 * writes to it. Whole pages of its own; from 2 MB on it begins on 2 MB and huge pages are asked for. Free with
 * mox_free_pages. The caller's allocator, if there is one, is only asked for the alignment; if its memory is not
 * zeroed, this thread touches all of it. */
void *mox_alloc_pages(uint64_t size);
/* Grows or shrinks; new bytes are not zeroed. NULL leaves the old block alone. Not for aligned blocks. */
void *mox_realloc(void *block, uint64_t size);
/* Array of `count` elements of `size` bytes, zeroed; NULL also when the product overflows. */
void *mox_calloc(uint64_t count, uint64_t size);
void mox_free(void *block);
/* Gives the pages back to the system. NULL is fine. */
void mox_free_pages(void *block);
/* Only for read-only mappings of files: the pages that hold these bytes no longer count as this process' memory; they
 * are there again when they are touched. Other memory would lose its contents. Thread-safe. */
void mox_drop_pages(const void *data, uint64_t bytes);

/* For tests: the n-th allocation from now on (1 = the next) fails, once. 0 turns it off. Process-wide. */
void mox_alloc_fail_at(uint64_t n);
/* How many allocations were asked for since the process started. Tests prove with it that a run makes none. */
uint64_t mox_alloc_count(void);
/* And how many bytes: an upper bound of what is held at any time between two calls. */
uint64_t mox_alloc_bytes(void);

/* Many small objects with one end of life. Zero-initialised is a valid, empty arena. One-thread-at-a-time. */
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
