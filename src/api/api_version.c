/* SPDX-License-Identifier: Apache-2.0
 *
 * api_version.c - moxie_version(): the library's version and the commit that it was built from.
 *
 * The build writes the commit into moxie_commit.h (cmake/moxie_version.cmake). The function is alone in this file,
 * because every new commit compiles the file again.
 */
#include <moxie/moxie.h>

#if defined(__has_include)
#if __has_include("moxie_commit.h")
#include "moxie_commit.h"
#endif
#endif
#ifndef MOX_COMMIT
#define MOX_COMMIT ""
#endif

const char *moxie_version(void)
{
    static const char plain[] = MOXIE_VERSION_STRING, with_commit[] = MOXIE_VERSION_STRING " (" MOX_COMMIT ")";
    return sizeof MOX_COMMIT > 1 ? with_commit : plain;
}
