/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_variants.h - the functions of kernel amx_bf16: one for each way to decode weights. amx_*_amx.c instantiate them,
 * expert_gemm_amx.c chooses one for a format. All are of type mox_panel_multiply_fn (panel_kernel.h).
 *
 *     mox_amx_times_<order or element>[_<scale in the weight>][_zeros]
 */
#ifndef MOX_CPU_AMX_FORMS_H
#define MOX_CPU_AMX_FORMS_H

#include "cpu/expert_gemm/panel_kernel.h"

void mox_amx_times_pairs(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                         const mox_panel_rows *a, float *c, void *scratch);
void mox_amx_times_zipped(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                          const mox_panel_rows *a, float *c, void *scratch);
void mox_amx_times_zipped_e8m0(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                               const mox_panel_rows *a, float *c, void *scratch);
void mox_amx_times_planes(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                          const mox_panel_rows *a, float *c, void *scratch);
void mox_amx_times_planes_e8m0(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                               const mox_panel_rows *a, float *c, void *scratch);
void mox_amx_times_nibbles(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                           const mox_panel_rows *a, float *c, void *scratch);
void mox_amx_times_nibbles_e8m0(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                                const mox_panel_rows *a, float *c, void *scratch);
void mox_amx_times_nibbles_e4m3(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                                const mox_panel_rows *a, float *c, void *scratch);
void mox_amx_times_i8(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                      const mox_panel_rows *a, float *c, void *scratch);
void mox_amx_times_i8_zeros(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                            const mox_panel_rows *a, float *c, void *scratch);
void mox_amx_times_u8b128(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                          const mox_panel_rows *a, float *c, void *scratch);
void mox_amx_times_u8b128_zeros(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                                const mox_panel_rows *a, float *c, void *scratch);
void mox_amx_times_i4_zeros(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                            const mox_panel_rows *a, float *c, void *scratch);
void mox_amx_times_u4b8_zeros(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
                              const mox_panel_rows *a, float *c, void *scratch);

#endif
