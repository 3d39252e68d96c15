/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_report.h - the errors of `moxie quantize`, gathered and printed.
 */
#ifndef MOXIE_QUANTIZE_REPORT_H
#define MOXIE_QUANTIZE_REPORT_H

#include <moxie/moxie_quantize.h>

#include "cli.h"

/* The errors of all matrices, in the order of the calls. */
typedef struct quantize_errors {
    moxie_quantize_error *at;
    int64_t count, room;
} quantize_errors;

/* The callback of moxie_quantize_options. */
void quantize_errors_add(void *user, const moxie_quantize_error *error);
/* Relative root mean square error of all matrices together; and whether all are exact. */
double quantize_errors_rms(const quantize_errors *errors);
bool quantize_errors_exact(const quantize_errors *errors);
/* A table with a row for each layer. */
void quantize_errors_print(const quantize_errors *errors);
/* The same and every matrix, as "layers" of the object. */
void quantize_errors_json(const quantize_errors *errors, json_t *object);

#endif
