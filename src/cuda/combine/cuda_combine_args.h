/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_combine_args.h - what a launcher of family combine gets: what the host's rows get, with device pointers.
 */
#ifndef MOX_CUDA_CUDA_COMBINE_ARGS_H
#define MOX_CUDA_CUDA_COMBINE_ARGS_H

#include "cpu/combine/combine_args.h"

typedef mox_combine_args mox_cuda_combine_args;

#endif
