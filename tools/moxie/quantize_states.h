/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_states.h - importances of columns from hidden states, as a file of llama.cpp's importance matrix:
 *
 *     FILE: hidden_states.L [T,H] -> layer L: router, W13, activation (moxie_plan_squares) -> means of squares a column
 *          -> blk.L.ffn_gate_exps.weight, ffn_up_exps, ffn_down_exps: values of all experts
 */
#ifndef MOXIE_QUANTIZE_STATES_H
#define MOXIE_QUANTIZE_STATES_H

#include "cli.h"

/* Runs every MoE layer of checkpoint `dir` on its hidden states in safetensors file `states`, and writes the importance
 * matrix to `out`. */
moxie_status quantize_states_write(const char *dir, const char *states, bool allow_unread,
                                   const moxie_executor *executor, FILE *out, moxie_error *error);

#endif
