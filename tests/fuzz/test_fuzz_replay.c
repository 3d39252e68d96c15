/* SPDX-License-Identifier: Apache-2.0
 *
 * test_fuzz_replay.c - runs every fuzz target on its seeds, and on every prefix of each seed.
 *
 * The bytes end at an inaccessible page. A target ends the program when a promise is broken.
 */
#include "test_support.h"

#include <dirent.h>
#include <unistd.h>

#include "fuzz_targets.h"

typedef void (*target_fn)(const uint8_t *data, uint64_t size);

static void run_guarded(target_fn target, const unsigned char *bytes, size_t size)
{
    unsigned char *guarded = test_guarded(size);
    memcpy(guarded, bytes, size);
    target(guarded, size);
    test_guarded_free(guarded, size);
}

static void run_file(target_fn target, const char *path)
{
    enum { LARGEST = 1 << 20, CUTS = 500 };
    static unsigned char bytes[LARGEST];
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    const size_t size = fread(bytes, 1, LARGEST, stream);
    fclose(stream);
    assert_true(size < LARGEST);
    run_guarded(target, bytes, size);
    for (size_t cut = 0; cut < size; cut += 1 + size / CUTS)
        run_guarded(target, bytes, cut);
}

static void run_corpus(const char *name, target_fn target)
{
    char folder[256], path[600];
    int count = 0;
    snprintf(folder, sizeof folder, "fuzz/corpus/%s", name);
    DIR *stream = opendir(folder);
    if (!stream)
        fail_msg("%s: not found; run in the source folder", folder);
    for (const struct dirent *entry; (entry = readdir(stream));) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        run_file(target, path);
        count++;
    }
    closedir(stream);
    assert_true(count > 0);
}

#define MOX_FUZZ(name)                                                                                                 \
    static void replay_##name(void **state)                                                                            \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        run_corpus(#name, mox_fuzz_##name);                                                                            \
    }
#include "fuzz_targets.def"
#undef MOX_FUZZ

int main(void)
{
    const struct CMUnitTest tests[] = {
#define MOX_FUZZ(name) cmocka_unit_test(replay_##name),
#include "fuzz_targets.def"
#undef MOX_FUZZ
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
