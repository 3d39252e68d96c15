/* SPDX-License-Identifier: Apache-2.0
 *
 * plain_cases.h - the table of families and namings (plain_cases.def).
 */
#ifndef PLAIN_CASES_H
#define PLAIN_CASES_H

#include "plain_checkpoint.h"

/* Case i, NULL past the last. */
const plain_case *plain_case_at(int i);

#endif
