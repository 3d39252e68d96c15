/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_digits.h - row amx_bf16 for weights of 4 bits and up to MOX_AMX_DIGITS rows of activations, too few to pay for
 * decoding to bf16: in vector registers, step by step
 *
 *     in integers     where no sum can round (int_dot_avx512.h), in two digits or three
 *     in floats       else: multiply-adds in the order of the tile unit
 *
 * and so the bits are those of tiles. E8M0 scales multiply t, not the codes: powers of two that bring nothing out of
 * the normal numbers commute with rounding. What the rows' steps are is found once and stays in scratch while panel
 * after panel goes by (mox_panel_rows.again).
 */
#ifndef MOX_CPU_AMX_DIGITS_H
#define MOX_CPU_AMX_DIGITS_H

#include "cpu/expert_gemm/amx/amx_job.h"

/* True when the product is done; false when it is for tiles: the rows have too many steps in floats, or scales or
 * activations are out of range. Subnormals are off. */
bool mox_amx_times_digits(mox_amx_form form, const mox_amx_job *j, const mox_panel_rows *a, const moxie_quant *weight);

#endif
