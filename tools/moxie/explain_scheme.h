/* SPDX-License-Identifier: Apache-2.0
 *
 * explain_scheme.h - the scheme of a layer that `moxie explain --scheme NAME --group G` describes by hand.
 */
#ifndef MOXIE_EXPLAIN_SCHEME_H
#define MOXIE_EXPLAIN_SCHEME_H

#include <stdint.h>

#include <moxie/moxie.h>
#include <moxie/moxie_scheme.h>

/* Groups or blocks of `group`, -1: a scale for each channel; 0: the constructor's usual ones. An error where the scheme
 * would be the same without it. */
moxie_status explain_scheme_make(const char *constructor, int64_t group, moxie_scheme *out, moxie_error *error);

#endif
