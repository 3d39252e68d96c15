/* SPDX-License-Identifier: Apache-2.0
 *
 * golden_make.c - writes the golden files of vendor layouts (README.md): one for each layout, or for those named, and
 * one each of weights in act order and in groups to be halved where the layout takes them.
 *
 *     golden_make DIR [layout ...]
 *
 * Built with the tests, run by hand after a layout is added. A file that changes for another reason says that a layout
 * or its statement changed: look before it is committed.
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
