/* SPDX-License-Identifier: Apache-2.0
 *
 * glu_simple.cu - the activation between the two products, with the bits of cpu/glu.
 */
#include "cuda/device/device_error.h"
#include "cuda/glu/glu_rows.cuh"

static __device__ float activate(int32_t kind, const mox_glu_parameters &parameters, float gate, float up)
{
    return mox_device_activate(kind, parameters, gate, up);
}

moxie_status mox_cuda_glu_simple_launch(const mox_glu_args *args, mox_cuda_stream stream, moxie_error *error)
{
    return mox_cuda_status(mox_glu_launch<activate>(args, stream), "glu simple", error);
}
