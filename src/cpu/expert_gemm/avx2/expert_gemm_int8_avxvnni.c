/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_gemm_int8_avxvnni.c - the products of kernel avx2_int8 on processors with AVX-VNNI (panel_int8_avx2.h).
 */
#include "cpu/expert_gemm/avx2/panel_int8_avx2.h"

#ifdef __AVXVNNI__

static void panels(const mox_int8_job *j)
{
    mox_int8_all(j);
}

const mox_int8_panels_fn mox_int8_panels_avxvnni = panels;

#else

const mox_int8_panels_fn mox_int8_panels_avxvnni = NULL;

#endif
