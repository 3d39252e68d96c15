/* SPDX-License-Identifier: Apache-2.0
 *
 * moxie_version.h - the version of the headers that you compile against.
 *
 * The library's own version is moxie_version(); the two agree in MAJOR when the shared object
 * loads at all (the SONAME carries it).
 *
 *     #if MOXIE_VERSION_NUMBER >= 200      version 0.2.0 or later
 */
#ifndef MOXIE_VERSION_H
#define MOXIE_VERSION_H

#define MOXIE_VERSION_MAJOR  0
#define MOXIE_VERSION_MINOR  1
#define MOXIE_VERSION_PATCH  0
#define MOXIE_VERSION_STRING "0.1.0"
/* One number to compare: 10000 major + 100 minor + patch. */
#define MOXIE_VERSION_NUMBER (MOXIE_VERSION_MAJOR * 10000 + MOXIE_VERSION_MINOR * 100 + MOXIE_VERSION_PATCH)

#endif /* MOXIE_VERSION_H */
