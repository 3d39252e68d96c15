/* SPDX-License-Identifier: Apache-2.0
 *
 * golden_make.c - writes the golden files of vendor layouts (README.md): one for each layout, or for the named layouts.
 * A layout that accepts act order, or groups to be halved, has one more file for each.
 *
 *     golden_make DIR [layout ...]
 *
 * Built with the tests, run by hand after a layout is added. A file that changes for another reason means that a layout
 * or its restatement in the tests changed: find out why before you commit it.
 */
#include "test_golden.h"

static bool is_wanted(const char *layout, int count, char *const *names)
{
    bool wanted = count == 0;
    for (int i = 0; i < count; i++)
        wanted = wanted || strcmp(names[i], layout) == 0;
    return wanted;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: golden_make DIR [layout ...]\n");
        return 2;
    }
    for (int32_t i = 0; mox_vendor_at(i) != NULL; i++)
        for (test_golden_kind kind = 0; kind < TEST_GOLDEN_KINDS; kind++)
            if (is_wanted(mox_vendor_at(i)->name, argc - 2, argv + 2) && test_golden_has(mox_vendor_at(i), kind))
                test_golden_write(mox_vendor_at(i), kind, argv[1]);
    return 0;
}
