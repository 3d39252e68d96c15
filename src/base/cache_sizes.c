/* SPDX-License-Identifier: Apache-2.0
 *
 * cache_sizes.c - sizes of caches from /sys/devices/system/cpu/cpuC/cache/indexI/{level,type,size,shared_cpu_list}.
 *
 * A cache that several processors share is listed under each of them; it is counted for the first one only.
 * sysconf() would be shorter, but it reports one instance only, and only on x86.
 * Source: Linux Documentation/ABI/testing/sysfs-devices-system-cpu.
 */
#include "base/cache_sizes.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define GUESSED_L2   (UINT64_C(512) << 10)
#define GUESSED_LAST (UINT64_C(32) << 20)

/* Reads one line of a cache's description, without the newline; false when there is none. */
static bool read_line(int cpu, int index, const char *name, char *line, int size)
{
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/%s", cpu, index, name);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    const bool found = fgets(line, size, file) != NULL;
    fclose(file);
    if (found)
        line[strcspn(line, "\n")] = '\0';
    return found;
}

/* "2048K", "105M" in bytes. */
static uint64_t parse_size(const char *text)
{
    unsigned long long value = 0;
    char unit = '\0';
    if (sscanf(text, "%llu%c", &value, &unit) < 1)
        return 0;
    return (uint64_t)value << (unit == 'K' ? 10 : unit == 'M' ? 20 : unit == 'G' ? 30 : 0);
}

typedef struct cache {
    int level, first_cpu;
    uint64_t bytes;
} cache;

/* Cache `index` of a processor; false past the last. Instruction caches get 0 bytes. */
static bool read_cache(int cpu, int index, cache *out)
{
    char line[256];
    *out = (cache) { .first_cpu = cpu };
    if (!read_line(cpu, index, "level", line, sizeof line) || sscanf(line, "%d", &out->level) != 1)
        return false;
    if (read_line(cpu, index, "type", line, sizeof line) && strcmp(line, "Instruction") == 0)
        return true;
    if (read_line(cpu, index, "size", line, sizeof line))
        out->bytes = parse_size(line);
    if (read_line(cpu, index, "shared_cpu_list", line, sizeof line))
        sscanf(line, "%d", &out->first_cpu);
    return true;
}

mox_cache_sizes mox_cache_sizes_find(void)
{
    enum { LEVELS = 8, MAX_CPUS = 65536 };
    uint64_t total[LEVELS] = { 0 }, l2 = 0;
    cache c;
    for (int cpu = 0; cpu < MAX_CPUS && read_cache(cpu, 0, &c); cpu++)
        for (int index = 0; read_cache(cpu, index, &c); index++) {
            if (c.level == 2 && c.bytes > 0)
                l2 = c.bytes;
            if (c.level > 0 && c.level < LEVELS && c.first_cpu == cpu)
                total[c.level] += c.bytes;
        }
    mox_cache_sizes sizes = { .l2 = l2 > 0 ? l2 : GUESSED_L2, .last = GUESSED_LAST };
    for (int level = 2; level < LEVELS; level++)
        if (total[level] > 0)
            sizes.last = total[level];
    return sizes;
}
