/* SPDX-License-Identifier: Apache-2.0
 *
 * topology_sys.c - cores and nodes from the kernel's files (topology.h).
 *
 *     cpu/online                              0-7            processors
 *     cpu/cpuN/topology/thread_siblings_list  0,4            those of N's core: the first names the core
 *     node/online                             0-1            nodes of memory; missing: one
 *     node/nodeM/cpulist                      0-3            processors of node M
 */
#include "base/topology.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool read_line(char *line, int size, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Reads the first line of a file, without its end. False: there is none, or it is longer. */
static bool read_line(char *line, int size, const char *format, ...)
{
    char path[512];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(path, sizeof path, format, arguments);
    va_end(arguments);
    const int file = length > 0 && length < (int)sizeof path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t bytes = -1;
    if (file >= 0) {
        do
            bytes = read(file, line, (size_t)size);
        while (bytes < 0 && errno == EINTR);
        close(file);
    }
    if (bytes <= 0 || bytes == size)
        return false;
    line[bytes] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return true;
}

/* Sets the bits of a list such as "0-3,8". False: it is none. */
static bool parse_list(const char *text, mox_processor_set *set)
{
    const long limit = 8 * (long)sizeof set->bits;
    memset(set, 0, sizeof *set);
    while (*text != '\0') {
        char *end;
        const long first = strtol(text, &end, 10);
        long last = first;
        if (end != text && *end == '-')
            last = strtol(end + 1, &end, 10);
        if (end == text || first < 0 || last < first || last >= limit || (*end != '\0' && *end != ','))
            return false;
        for (long i = first; i <= last; i++)
            set->bits[i / 8] |= (unsigned char)(1u << i % 8);
        text = *end == ',' ? end + 1 : end;
    }
    return true;
}

/* node_of[i]: processor i's node. Without files of nodes, 0. */
static void read_nodes(const char *root, unsigned char *node_of, int64_t limit)
{
    char line[4096];
    mox_processor_set nodes, processors;
    if (!read_line(line, sizeof line, "%s/node/online", root) || !parse_list(line, &nodes))
        return;
    for (int node = 0; node < MOX_MAX_NODES; node++)
        if (mox_topology_allows(&nodes, node) && read_line(line, sizeof line, "%s/node/node%d/cpulist", root, node) &&
            parse_list(line, &processors))
            for (int64_t i = 0; i < limit; i++)
                if (mox_topology_allows(&processors, i))
                    node_of[i] = (unsigned char)node;
}

void mox_topology_read_sys(const char *root, const mox_processor_set *allowed, mox_topology *out)
{
    enum { LIMIT = 8 * sizeof(mox_processor_set) };
    char line[4096];
    mox_processor_set online;
    unsigned char node_of[LIMIT] = { 0 };
    *out = (mox_topology) { .found_by = "/sys/devices/system/cpu was not found" };
    if (!read_line(line, sizeof line, "%s/cpu/online", root) || !parse_list(line, &online))
        return;
    out->found_by = "/sys";
    out->real = true;
    read_nodes(root, node_of, LIMIT);
    for (int32_t i = 0; i < LIMIT; i++) {
        if (!mox_topology_allows(&online, i) || !mox_topology_allows(allowed, i))
            continue;
        int32_t core = i; /* without the file, a core of its own */
        if (read_line(line, sizeof line, "%s/cpu/cpu%d/topology/thread_siblings_list", root, i))
            core = (int32_t)strtol(line, NULL, 10);
        if (!mox_topology_add(out, i, core, node_of[i]))
            return;
    }
    out->known = out->processors > 0;
}
