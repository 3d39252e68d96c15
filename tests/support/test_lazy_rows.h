/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lazy_rows.h - all kernels of a launch table, one MOX_CUDA_ROW each. Included more than once.
 */
#include "cuda/combine/cuda_combine.def"
#include "cuda/dense/cuda_dense.def"
#include "cuda/expert_gemm/cuda_expert_gemm.def"
#include "cuda/glu/cuda_glu.def"
#include "cuda/limits/cuda_limits.def"
#include "cuda/lora/cuda_lora.def"
#include "cuda/pack/cuda_pack.def"
#include "cuda/permute/cuda_permute.def"
#include "cuda/quant_act/cuda_quant_act.def"
#include "cuda/row_norm/cuda_row_norm.def"
#include "cuda/topk/cuda_topk.def"
