/* SPDX-License-Identifier: Apache-2.0
 *
 * topology_hwloc.c - asks libhwloc for cores and nodes (topology.h).
 *
 * The library is opened at run time, so that a machine without it loses nothing else. Its header must be there when
 * moxie is built. A set-user-ID program does not ask it, since it takes paths from the environment.
 */
#include "base/topology.h"

#if defined(__has_include)
#if __has_include(<hwloc.h>)
#include <hwloc.h>
#endif
#endif

#if defined(HWLOC_API_VERSION) && HWLOC_API_VERSION >= 0x20100

#include <dlfcn.h>
#include <pthread.h>
#include <sys/auxv.h>

/* Its functions, by their names. */
#define FUNCTIONS(F)                                                                                                   \
    F(hwloc_topology_init)                                                                                             \
    F(hwloc_topology_set_components)                                                                                   \
    F(hwloc_topology_load)                                                                                             \
    F(hwloc_topology_destroy)                                                                                          \
    F(hwloc_topology_is_thissystem)                                                                                    \
    F(hwloc_get_type_depth)                                                                                            \
    F(hwloc_get_nbobjs_by_depth)                                                                                       \
    F(hwloc_get_obj_by_depth)                                                                                          \
    F(hwloc_bitmap_first)
typedef struct hwloc_functions {
#define F(name) __typeof__(name) *name;
    FUNCTIONS(F)
#undef F
} hwloc_functions;

static hwloc_functions library;
static bool library_found;
static pthread_once_t library_once = PTHREAD_ONCE_INIT;

static void open_library(void)
{
    /* Version 15 of the binary interface is that of all headers 2.x. */
    void *handle = HWLOC_API_VERSION >> 16 == 2 && getauxval(AT_SECURE) == 0
                       ? dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL)
                       : NULL;
    bool all = handle != NULL;
#define F(name) all = all && (*(void **)&library.name = dlsym(handle, #name)) != NULL;
    FUNCTIONS(F)
#undef F
    library_found = all;
}

/* The core's number; of a processor without a core, a negative one of its own. */
static int32_t core_of(const struct hwloc_obj *processor)
{
    for (const struct hwloc_obj *o = processor; o != NULL; o = o->parent)
        if (o->type == HWLOC_OBJ_CORE)
            return (int32_t)o->logical_index;
    return -1 - (int32_t)processor->logical_index;
}

static void read_places(hwloc_topology_t topology, const mox_processor_set *allowed, mox_topology *t)
{
    const int depth = library.hwloc_get_type_depth(topology, HWLOC_OBJ_PU);
    const unsigned count = library.hwloc_get_nbobjs_by_depth(topology, depth);
    for (unsigned i = 0; i < count; i++) {
        const struct hwloc_obj *p = library.hwloc_get_obj_by_depth(topology, depth, i);
        const int node = p->nodeset != NULL ? library.hwloc_bitmap_first(p->nodeset) : 0;
        if (mox_topology_allows(allowed, p->os_index) &&
            !mox_topology_add(t, (int32_t)p->os_index, core_of(p), node > 0 ? node : 0))
            return;
    }
    t->known = t->processors > 0;
    t->real = library.hwloc_topology_is_thissystem(topology) == 1;
}

void mox_topology_read_hwloc(const mox_processor_set *allowed, mox_topology *out)
{
    hwloc_topology_t topology;
    *out = (mox_topology) { .found_by = "libhwloc.so.15 was not found" };
    pthread_once(&library_once, open_library);
    if (!library_found || library.hwloc_topology_init(&topology) != 0)
        return;
    out->found_by = "hwloc";
    /* It would move this thread over all processors, for caches that nobody asks about here. */
    library.hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
    if (library.hwloc_topology_load(topology) == 0)
        read_places(topology, allowed, out);
    library.hwloc_topology_destroy(topology);
}

#else

void mox_topology_read_hwloc(const mox_processor_set *allowed, mox_topology *out)
{
    (void)allowed;
    *out = (mox_topology) { .found_by = "this build has no hwloc" };
}

#endif
