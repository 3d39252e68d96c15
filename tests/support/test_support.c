/* SPDX-License-Identifier: Apache-2.0 */
#include "test_support.h"

#include <dirent.h>
#include <ftw.h>
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

uint64_t test_u64(test_rng *rng)
{
    uint64_t z = (rng->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t test_below(test_rng *rng, uint64_t bound)
{
    return test_u64(rng) % bound;
}

int64_t test_range(test_rng *rng, int64_t low, int64_t high)
{
    return low + (int64_t)test_below(rng, (uint64_t)(high - low + 1));
}

float test_uniform(test_rng *rng)
{
    return (float)((double)(test_u64(rng) >> 40) * 0x1p-23 - 1.0);
}

float test_normal(test_rng *rng)
{
    double sum = 0;
    for (int i = 0; i < 12; i++)
        sum += (double)(test_u64(rng) >> 11) * 0x1p-53;
    return (float)(sum - 6.0);
}

uint64_t test_seed(uint64_t fallback)
{
    const char *text = getenv("MOXIE_TEST_SEED");
    return text ? strtoull(text, NULL, 0) : fallback;
}

int64_t test_env(const char *name, int64_t fallback)
{
    const char *text = getenv(name);
    return text ? strtoll(text, NULL, 0) : fallback;
}

bool test_sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    return true;
#else
    return false;
#endif
#else
    return false;
#endif
}

bool test_emulated(void)
{
    return getenv("MOXIE_EMULATOR") != NULL;
}

bool test_quick(void)
{
    return test_env("MOXIE_TEST_QUICK", 0) != 0;
}

int64_t test_one_in(int64_t step, const char *what)
{
    if (!test_emulated() || test_env("MOXIE_TEST_WHOLE", 0) != 0)
        return 1;
    print_message("emulated: one in %lld %s\n", (long long)step, what);
    return step;
}

int64_t test_quick_one_in(int64_t step, const char *what)
{
    if (!test_quick())
        return test_one_in(step, what);
    print_message("quick: one in %lld %s\n", (long long)step, what);
    return step;
}

bool test_name_is_new(test_names *names, const char *name)
{
    for (int i = 0; i < names->count; i++)
        if (strcmp(names->name[i], name) == 0)
            return false;
    assert_true(names->count < (int)(sizeof names->name / sizeof names->name[0]));
    names->name[names->count++] = name;
    return true;
}

static size_t page_round(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

void *test_guarded(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), body = page_round(bytes);
    char *base = mmap(NULL, body + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(base != MAP_FAILED);
    assert_int_equal(mprotect(base + body, page, PROT_NONE), 0);
    return base + body - bytes;
}

void test_guarded_free(void *data, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), body = page_round(bytes);
    munmap((char *)data + bytes - body, body + page);
}

char *test_tmpdir(void)
{
    const char *root = getenv("TMPDIR");
    char *path = malloc(512);
    snprintf(path, 512, "%s/moxie-test-XXXXXX", root ? root : "/tmp");
    assert_non_null(mkdtemp(path));
    return path;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info, (void)type, (void)walk;
    return remove(path);
}

void test_rmdir(char *dir)
{
    nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(dir);
}

int test_entries_in(const char *dir)
{
    int count = -2; /* . and .. */
    DIR *stream = opendir(dir);
    assert_non_null(stream);
    while (readdir(stream))
        count++;
    closedir(stream);
    return count;
}

void test_close(double got, double want, double bound, const char *what, const char *file, int line)
{
    if (fabs(got - want) <= bound || (isnan(got) && isnan(want)) || got == want)
        return;
    print_error("%s:%d: %s = %.17g, want %.17g, off by %g, bound %g\n", file, line, what, got, want, fabs(got - want),
                bound);
    fail();
}
