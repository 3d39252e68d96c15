/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_bf16.h - included by kernels, which use nothing of it.
 */
