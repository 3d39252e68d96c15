/* SPDX-License-Identifier: Apache-2.0
 *
 * moxie_version.h - the version of the headers that you compile against.
 *
 * The library's own version is moxie_version(); the two agree in MAJOR when the shared object
 * loads at all (the SONAME carries it).
 */
#ifndef MOXIE_VERSION_H
#define MOXIE_VERSION_H

#define MOXIE_VERSION_MAJOR  0
#define MOXIE_VERSION_MINOR  1
#define MOXIE_VERSION_PATCH  0
#define MOXIE_VERSION_STRING "0.1.0"

#endif /* MOXIE_VERSION_H */
