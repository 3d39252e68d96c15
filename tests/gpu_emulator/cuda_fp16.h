/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_fp16.h - kernels include it and use nothing of it.
 */
