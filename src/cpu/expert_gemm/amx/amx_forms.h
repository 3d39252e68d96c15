/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_forms.h - the products of rows amx_bf16 and amx_folded, one for each form of decoding, spread over files that
 * compile side by side. All are what mox_panel_multiply_fn says (panel_kernel.h).
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
void mox_amx_times_ints_folded(const mox_panel_matrix *m, const moxie_quant *weight, int64_t panel, int panels,
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
