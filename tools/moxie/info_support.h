/* SPDX-License-Identifier: Apache-2.0
 *
 * info_support.h - `moxie info --support`: what moxie reads and runs, on which processors and GPUs.
 */
#ifndef MOXIE_INFO_SUPPORT_H
#define MOXIE_INFO_SUPPORT_H

#include "cli.h"

/* Prints the tables of info_support.c, or one JSON object. Returns the exit code. */
int info_support(bool json);

#endif
