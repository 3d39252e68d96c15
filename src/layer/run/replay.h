/* SPDX-License-Identifier: Apache-2.0
 *
 * replay.h - calls of moxie_cuda_plan_run that equal the call before: what they enqueue is launched as one graph, which
 * takes the host less time than a launch for each kernel.
 *
 *     first call            enqueued kernel by kernel; its arguments are remembered
 *     an equal one          [captured: the same kernels] -> graph -> launch
 *     more equal ones       launch
 *     another call          the graph goes; as the first
 *
 * Calls are equal that have the same arguments and the same stream, on a layer that was not changed in between. The
 * graph reads what the buffers then hold. Whatever goes wrong with a graph, the call is enqueued kernel by kernel. So
 * is a call whose stream is being captured by the caller, and one with adapters, which may change from call to call.
 */
#ifndef MOX_LAYER_REPLAY_H
#define MOX_LAYER_REPLAY_H

#include "layer/run/run.h"

/* Body of moxie_cuda_plan_run. */
moxie_status mox_replay_run(moxie_plan *plan, const moxie_run_args *args, mox_cuda_stream stream, moxie_error *error);

#endif
