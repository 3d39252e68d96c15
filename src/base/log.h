/* SPDX-License-Identifier: Apache-2.0
 *
 * log.h - messages to the callback that the application set with moxie_set_log(); dropped by default.
 */
#ifndef MOX_BASE_LOG_H
#define MOX_BASE_LOG_H

#include <moxie/moxie.h>

/* Body of moxie_set_log. */
void mox_set_log(moxie_log_fn fn, void *user, moxie_log_level level);

/* Texts longer than 1023 bytes are cut and end in "...". Thread-safe. */
void mox_log(moxie_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
