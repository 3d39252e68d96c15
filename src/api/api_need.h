/* SPDX-License-Identifier: Apache-2.0
 *
 * api_need.h - what every file of src/api does first: it rejects pointers that may not be NULL.
 */
#ifndef MOX_API_NEED_H
#define MOX_API_NEED_H

#include "base/status.h"

/* In a public function with an `error`: fails with "moxie_layer_create: config is NULL". */
#define NEED(pointer) MOX_FAIL_IF((pointer) == NULL, MOXIE_ERR_ARGUMENT, error, "%s: %s is NULL", __func__, #pointer)

#endif
