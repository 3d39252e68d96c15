/* SPDX-License-Identifier: Apache-2.0
 *
 * check_store.h - whether the layer's store gives a run what the checked records gave it.
 *
 * In the flow: check.c (a run through the mapped file, stage by stage) -> [check_store] -> report.
 */
#ifndef MOX_LAYER_CHECK_STORE_H
#define MOX_LAYER_CHECK_STORE_H

#include "layer/check/checker.h"

/* Runs the plan once more, with what the store keeps or reads, into the output that was checked: its bytes must stay.
 * Nothing to do for other layers. */
moxie_status mox_check_store(mox_checker *checker, const moxie_run_args *args, moxie_error *error);

#endif
