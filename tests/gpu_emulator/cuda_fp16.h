/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_fp16.h - an empty stand-in: kernels include this header but use nothing from it.
 */
