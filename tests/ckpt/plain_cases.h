/* SPDX-License-Identifier: Apache-2.0
 *
 * plain_cases.h - the table of families and namings (plain_cases.def, plain_quantized.def).
 */
#ifndef PLAIN_CASES_H
#define PLAIN_CASES_H

#include "plain_checkpoint.h"

/* Case i: those of plain_cases.def, then those of plain_quantized.def. False past the last. */
bool plain_case_at(int i, plain_case *out);

#endif
