/* SPDX-License-Identifier: Apache-2.0
 *
 * test_topology.c - cores and nodes of made-up machines (libhwloc's HWLOC_SYNTHETIC, folders like /sys), whole and
 * restricted; the order of workers; executors on nodes, and what they refuse.
 */
#include "test_executors.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cpu_features.h"
#include "base/executor.h"
#include "base/topology.h"

/* Reads a machine of which processors [first, last) may be used. */
static mox_topology read_machine(const char *machine, int first, int last)
{
    mox_processor_set allowed = { { 0 } };
    mox_topology t;
    for (int i = first; i < last; i++)
        allowed.bits[i / 8] |= (unsigned char)(1 << i % 8);
    setenv("HWLOC_SYNTHETIC", machine, 1);
    mox_topology_read(&allowed, &t);
    unsetenv("HWLOC_SYNTHETIC");
    return t;
}

static void check_order(const mox_topology *t)
{
    int32_t previous = 0, cores = 0;
    for (int32_t i = 0; i < t->processors; i++) {
        const mox_place *p = &t->places[i];
        assert_true(p->sibling >= previous); /* one processor of each core first */
        previous = p->sibling;
        cores += p->sibling == 0;
        assert_in_range(p->node, 0, t->nodes - 1);
        for (int32_t k = 0; k < i; k++)
            assert_int_not_equal(p->processor, t->places[k].processor);
    }
    assert_int_equal(cores, t->cores);
}

static bool has_library(void)
{
    mox_topology t = read_machine("core:1 pu:1", 0, 1);
    const bool known = t.known;
    return known;
}

static void test_machines(void **state)
{
    static const struct {
        const char *machine;
        int first, last, processors, cores, shared, nodes;
    } cases[] = {
        { "core:4 pu:1", 0, 64, 4, 4, 0, 1 },         { "core:4 pu:2", 0, 64, 8, 4, 4, 1 },
        { "numa:2 core:4 pu:2", 0, 64, 16, 8, 8, 2 }, { "numa:4 core:3 pu:1", 0, 64, 12, 12, 0, 4 },
        { "numa:2 core:4 pu:2", 0, 5, 5, 3, 2, 1 },   { "numa:2 core:4 pu:2", 7, 10, 3, 2, 1, 2 },
        { "numa:4 core:3 pu:1", 11, 12, 1, 1, 0, 1 },
    };
    (void)state;
    if (!has_library())
        skip();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mox_topology t = read_machine(cases[i].machine, cases[i].first, cases[i].last);
        assert_true(t.known && !t.real);
        assert_int_equal(t.processors, cases[i].processors);
        assert_int_equal(t.cores, cases[i].cores);
        assert_int_equal(t.shared_cores, cases[i].shared);
        assert_int_equal(t.nodes, cases[i].nodes);
        check_order(&t);
    }
}

/* Two nodes of two cores of two processors: cores first, the nodes in turn. */
static void test_workers_order(void **state)
{
    static const int32_t expected[] = { 0, 4, 2, 6, 1, 5, 3, 7 };
    mox_place places[8];
    (void)state;
    if (!has_library())
        skip();
    mox_topology t = read_machine("numa:2 core:2 pu:2", 0, 8);
    assert_int_equal(mox_topology_places(&t, -1, places), 8);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(places[i].processor, expected[i]);
        assert_int_equal(places[i].node, expected[i] >= 4);
    }
    assert_int_equal(mox_topology_places(&t, 1, places), 4);
    assert_int_equal(places[0].processor, 4);
    assert_int_equal(places[1].processor, 6);
    assert_int_equal(mox_topology_node(&t, 1), 1);
    assert_int_equal(mox_topology_node(&t, 2), -1);
    /* Only the second node is left: index 0, number 1. */
    t = read_machine("numa:2 core:2 pu:2", 4, 8);
    assert_int_equal(t.nodes, 1);
    assert_int_equal(mox_topology_node(&t, 1), 0);
}

/* ---- folders like /sys ------------------------------------------------------------------------------ */

static void put(const char *dir, const char *file, const char *text)
{
    char command[1024];
    snprintf(command, sizeof command, "mkdir -p $(dirname %s/%s) && echo '%s' > %s/%s", dir, file, text, dir, file);
    assert_int_equal(system(command), 0);
}

/* Two nodes; cores {0 4} {1 5} {2 6} {3 7}, of which node 2 has the last two; processor 8 is not online. */
static char *sys_folder(void)
{
    char *dir = test_tmpdir();
    put(dir, "cpu/online", "0-7");
    put(dir, "node/online", "0,2");
    put(dir, "node/node0/cpulist", "0-1,4-5");
    put(dir, "node/node2/cpulist", "2-3,6-7");
    for (int i = 0; i < 8; i++) {
        char file[64], text[16];
        snprintf(file, sizeof file, "cpu/cpu%d/topology/thread_siblings_list", i);
        snprintf(text, sizeof text, "%d,%d", i % 4, i % 4 + 4);
        put(dir, file, text);
    }
    return dir;
}

static void test_sys(void **state)
{
    mox_processor_set allowed = { { 0xed } }; /* 0 2 3 5 6 7 */
    mox_topology t;
    char *dir = sys_folder();
    (void)state;
    mox_topology_read_sys(dir, NULL, &t);
    assert_true(t.known && t.real);
    assert_int_equal(t.processors, 8);
    assert_int_equal(t.nodes, 2);
    assert_int_equal(t.node_number[1], 2);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(t.places[i].core, i % 4);
        assert_int_equal(t.places[i].node, i % 4 / 2);
    }
    mox_topology_read_sys(dir, &allowed, &t);
    assert_int_equal(t.processors, 6);
    assert_int_equal(t.places[1].processor, 2);
    put(dir, "cpu/online", "0-7,x");
    mox_topology_read_sys(dir, NULL, &t);
    assert_false(t.known);
    assert_non_null(strstr(t.found_by, "/sys"));
    test_rmdir(dir);
}

/* Both readers agree about this machine. */
static void test_readers_agree(void **state)
{
    mox_topology a, b;
    (void)state;
    if (!has_library() || access("/sys/devices/system/cpu/online", R_OK) != 0)
        skip();
    mox_topology_read_hwloc(NULL, &a);
    mox_topology_read_sys("/sys/devices/system", NULL, &b);
    for (int32_t i = 0; i < a.processors; i++) /* cpusets hide some from libhwloc */
        for (int32_t k = 0; k < b.processors; k++)
            if (a.places[i].processor == b.places[k].processor)
                assert_int_equal(a.node_number[a.places[i].node], b.node_number[b.places[k].node]);
    assert_true(a.processors <= b.processors);
}

/* ---- executors -------------------------------------------------------------------------------------- */

static bool creates(int32_t threads, const char *numa, moxie_status expected, int32_t workers, int32_t nodes,
                    int32_t memory)
{
    moxie_executor *executor = NULL;
    moxie_error error = { 0 };
    bool right = mox_executor_create_on(threads, numa, &executor, &error) == expected;
    if (executor != NULL) {
        right = right && executor->workers == workers && mox_executor_nodes(executor) == nodes &&
                mox_executor_memory(executor) == memory;
        for (int32_t w = 0; w < executor->workers; w++)
            right = right && mox_executor_node(executor, w) == w % nodes;
    }
    mox_executor_destroy(executor);
    if (!right)
        print_error("%d threads, numa %s: %s\n", (int)threads, numa, error.text);
    return right;
}

/* The process's own topology is found once, so a child has the made-up one. */
static bool child_creates(void)
{
    enum { ANY = MOX_MEMORY_ANYWHERE, EXPERT = MOX_MEMORY_BY_EXPERT };
    setenv("HWLOC_SYNTHETIC", "numa:2 core:2 pu:2", 1);
    return creates(4, "auto", MOXIE_OK, 4, 2, EXPERT) && creates(3, "off", MOXIE_OK, 3, 1, ANY) &&
           creates(2, NULL, MOXIE_OK, 2, 1, ANY) && creates(2, "node=1", MOXIE_OK, 2, 1, 1) &&
           creates(8, "interleave", MOXIE_OK, 8, 1, MOX_MEMORY_INTERLEAVED) &&
           creates(1, "auto", MOXIE_OK, 1, 1, ANY) && /* one thread reads from both nodes anyhow */
           creates(9, "auto", MOXIE_OK, 9, 1, ANY) && /* they would share processors */
           creates(9, "interleave", MOXIE_ERR_ARGUMENT, 0, 0, 0) && creates(5, "node=1", MOXIE_ERR_ARGUMENT, 0, 0, 0) &&
           creates(2, "node=2", MOXIE_ERR_ARGUMENT, 0, 0, 0);
}

static void test_executors(void **state)
{
    int status = -1;
    (void)state;
    if (!has_library())
        skip();
    const pid_t child = fork();
    if (child == 0)
        _exit(child_creates() ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Threads of an executor on a node of this machine run where they were pinned, the caller where it was. */
typedef struct seen {
    cpu_set_t mask[2];
    _Atomic int arrived;
} seen;

static void look(void *context, int64_t task, int32_t worker)
{
    seen *s = context;
    (void)worker;
    (void)task;
    const int i = s->arrived++;
    if (i < 2)
        sched_getaffinity(0, sizeof s->mask[i], &s->mask[i]);
    while (s->arrived < 2)
        sched_yield();
}

static void test_pinned(void **state)
{
    const mox_topology *t = mox_topology_here();
    moxie_executor *executor = NULL;
    moxie_error error = { 0 };
    seen s = { .arrived = 0 };
    char node[32];
    (void)state;
    mox_place places[8];
    if (!t->known || !t->real || t->processors < 2 || t->processors > 8 || mox_topology_places(t, 0, places) < 2)
        skip();
    snprintf(node, sizeof node, "node=%d", (int)t->node_number[0]);
    assert_ok(mox_executor_create_on(2, node, &executor, &error), &error);
    mox_parallel(executor, 2, look, &s);
    const int first = CPU_COUNT(&s.mask[0]), second = CPU_COUNT(&s.mask[1]);
    mox_executor_destroy(executor);
    assert_int_equal(first < second ? first : second, 1);
    assert_int_equal(first < second ? second : first, t->processors);
    assert_true(CPU_ISSET(places[1].processor, first < second ? &s.mask[0] : &s.mask[1]));
}

static void test_refusals(void **state)
{
    static const char *const wrong[] = { "both", "", "1", "node=", "node=-1", "node=1x" };
    moxie_executor *executor = NULL;
    moxie_error error = { 0 };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(mox_executor_create_on(1, wrong[i], &executor, &error), MOXIE_ERR_ARGUMENT);
    assert_int_equal(mox_executor_create_on(1, "both", &executor, &error), MOXIE_ERR_ARGUMENT);
    assert_non_null(strstr(error.text, "auto, off, interleave or node=NUMBER"));
    assert_null(executor);
}

/* What this process may use: nothing more. */
static void test_here(void **state)
{
    const mox_topology *t = mox_topology_here();
    static char pages[1 << 16];
    (void)state;
    assert_true(t->cores >= 1 && t->cores <= t->processors && t->nodes >= 1 && t->nodes <= t->processors);
    if (t->known)
        check_order(t);
    assert_false(mox_topology_bind(pages, sizeof pages, t->nodes));
    memset(pages, 'x', sizeof pages);
    mox_topology_bind(pages, sizeof pages, 0); /* a container may refuse; what is there stays */
    mox_topology_bind(pages, sizeof pages, -1);
    for (size_t i = 0; i < sizeof pages; i++)
        assert_int_equal(pages[i], 'x');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_executors), /* before this process's topology is found */
        cmocka_unit_test(test_machines),      cmocka_unit_test(test_workers_order), cmocka_unit_test(test_sys),
        cmocka_unit_test(test_readers_agree), cmocka_unit_test(test_pinned),        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
