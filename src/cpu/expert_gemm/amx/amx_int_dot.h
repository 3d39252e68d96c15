/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_int_dot.h - kernel amx_bf16 for weights of 4 bits and up to MOX_AMX_INT_DOT_ROWS rows of activations. So few rows
 * do not pay for decoding weights to bf16 tiles. They are multiplied in vector registers instead, step by step:
 *
 *     in integers   where no sum can round: activations become two or three limbs, bytes of an integer
 *                   (int_dot_avx512.h)
 *     in floats     elsewhere: multiply-adds in the order of the tile unit
 *
 * Either way the bits are those of tiles. E8M0 scales multiply a step's sum, not the codes: a power of two that keeps
 * numbers normal commutes with rounding. The kind of each step and its limbs are found for the first pair of panels,
 * and stay in scratch for the others (mox_panel_rows.again).
 */
#ifndef MOX_CPU_AMX_DIGITS_H
#define MOX_CPU_AMX_DIGITS_H

#include "cpu/expert_gemm/amx/amx_job.h"

/* True when the product is done. False when tiles have to do it: too many steps are in floats, or scales or activations
 * are out of range. Subnormals are off. */
bool mox_amx_int_dot(mox_amx_variant variant, const mox_amx_job *j, const mox_panel_rows *a, const moxie_quant *weight);

#endif
