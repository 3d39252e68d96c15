/* SPDX-License-Identifier: Apache-2.0
 *
 * log.h - messages to the callback that the application set with moxie_set_log(); dropped by default.
 */
#ifndef MOX_BASE_LOG_H
#define MOX_BASE_LOG_H

#include <moxie/moxie.h>

void mox_log(moxie_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
