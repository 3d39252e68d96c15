/* SPDX-License-Identifier: Apache-2.0
 *
 * fail_alloc.c - preloaded by test_cli_memory.sh: allocation number FAIL_ALLOC fails, with FAIL_ALL every later one
 * too. Counted from the program's own beginning. glibc only.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *block, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

static atomic_long calls;
static long failing; /* 0: none */
static int all;

__attribute__((constructor)) static void begin(void)
{
    const char *number = getenv("FAIL_ALLOC");
    all = getenv("FAIL_ALL") != NULL;
    atomic_store(&calls, 0);
    failing = number ? strtol(number, NULL, 10) : 0;
}

static int fails(void)
{
    const long call = failing ? atomic_fetch_add(&calls, 1) + 1 : 0;
    if (!failing || (all ? call < failing : call != failing))
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t bytes)
{
    return fails() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *block, size_t bytes)
{
    return fails() ? NULL : __libc_realloc(block, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return fails() ? NULL : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    void *block = fails() ? NULL : __libc_memalign(alignment, bytes);
    if (!block)
        return ENOMEM;
    *out = block;
    return 0;
}
