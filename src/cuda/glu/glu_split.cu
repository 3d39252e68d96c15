/* SPDX-License-Identifier: Apache-2.0
 *
 * glu_split.cu - the activation between the two products, with the bits of the products that fuse it: those of sm90 and
 * of sm80 have one epilogue. It is for plans that split these, because adapters change W13's result before the
 * activation (layer/plan/select.c).
 */
#include "cuda/device/device_error.h"
#include "cuda/expert_gemm/sm90/sm90_epilogue.cuh"
#include "cuda/glu/glu_rows.cuh"

static __device__ float activate(int32_t kind, const mox_glu_parameters &parameters, float gate, float up)
{
    return kind == MOXIE_ACT_SILU ? mox_sm90_silu(parameters, gate, up)
                                  : mox_sm90_activate_any(kind, parameters.alpha, parameters.beta,
                                                          parameters.gate_limit, parameters.up_limit, gate, up);
}

moxie_status mox_cuda_glu_split_launch(const mox_glu_args *args, mox_cuda_stream stream, moxie_error *error)
{
    return mox_cuda_status(mox_glu_launch<activate>(args, stream), "glu split", error);
}
