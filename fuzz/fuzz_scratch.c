/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_scratch.c - the folder of fuzz_scratch.h: under /dev/shm where there is one, since fsync costs nothing there.
 */
#include "fuzz_scratch.h"

#include <ftw.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[256];

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info, (void)type, (void)walk;
    return remove(path);
}

static void remove_folder(void)
{
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

const char *fuzz_scratch(void)
{
    if (folder[0])
        return folder;
    const char *root = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/moxie-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm"
             : root                        ? root
                                           : "/tmp");
    FUZZ_CHECK(mkdtemp(folder));
    atexit(remove_folder);
    return folder;
}

const char *fuzz_path(const char *name)
{
    static char buffers[8][PATH_MAX];
    static unsigned turn;
    char *path = buffers[turn++ % 8];
    snprintf(path, sizeof buffers[0], "%s/%s", fuzz_scratch(), name);
    return path;
}

void fuzz_write(const char *name, const void *data, uint64_t size)
{
    FILE *file = fopen(fuzz_path(name), "wb");
    FUZZ_CHECK(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
}

void fuzz_remove(const char *name)
{
    nftw(fuzz_path(name), remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}
