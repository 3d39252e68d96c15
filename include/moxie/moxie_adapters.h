/* SPDX-License-Identifier: Apache-2.0
 *
 * moxie_adapters.h - LoRA adapters of one layer's routed experts, whatever the format of its weights.
 *
 *     h += s B (A x)        W13's result: x is the row that W13 reads, before its quantization
 *     y += s B (A a)        W2's result:  a is the activation in fp32, before its quantization
 *
 * Order. The change of W13 is added after its bias and before the activation; that of W2 after its bias and before the
 * experts' norm (expert_norm) and the routing weight. So the result is that of a layer whose weights are W + s B A, up
 * to rounding. Where routing weights multiply the input (routing.on_input), x has been multiplied. The order is vLLM's,
 * with one exception: beside on_input vLLM takes x without its weight, and multiplies the change of W2 by that weight;
 * that is no change of the weights.
 *
 * Arithmetic. fp32, every sum in one fixed order (docs/lora.md). A token's bits depend on its own adapter only: not on
 * its neighbours' adapters, on T or on threads. A token without an adapter has the bits of a layer without any.
 *
 *     options.max_adapter_rank = 64 -> moxie_plan_create
 *     moxie_adapters_create(layer) -> moxie_adapters_set(adapters, 0, &lora)
 *     args.adapters, args.adapter_ids -> moxie_plan_run
 *
 * Adapters are set and removed between runs, without a new plan. The shared expert and the router have none.
 *
 * On a device, args.adapter_ids of moxie_cuda_plan_run is device memory; a number without an adapter counts as -1, and
 * every adapter that is there must have a rank within the plan's. A captured graph sees later changes of the table.
 * With options.comm all ranks set the same adapters; a back end on a device refuses that yet.
 * The rules of moxie.h about calls, threads and structs hold here too.
 */
#ifndef MOXIE_ADAPTERS_H
#define MOXIE_ADAPTERS_H

#include <moxie/moxie_ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The adapters of one layer, by number. */
typedef struct moxie_adapters moxie_adapters;

/* The largest rank of an adapter, and the largest number of adapters. */
#define MOXIE_MAX_ADAPTER_RANK 512
#define MOXIE_MAX_ADAPTERS     4096

/* One adapter: views of host memory in F32, F16 or BF16. For each projection with N rows and K columns
 *     a   [E, r, K], or [r, K]: all experts share it
 *     b   [E, N, r], or [N, r]: all experts share it
 * with any strides; an expert stride of zero is a shared factor, too. Both views are absent (data NULL) where the
 * adapter does not change the projection. Each projection has its own rank. Gate and up have N = I rows, down H:
 *     one B for [gate; up]           gate_b and up_b are views of its halves, or of every other row
 *     one A for both                 gate_a and up_a are the same view; it is computed once
 *     an ungated activation          up is the only first projection
 * A scale multiplies B A: alpha / r, or alpha / sqrt(r) for rank-stabilised adapters. 0 means 1: it is in B already. */
typedef struct moxie_lora {
    uint32_t struct_size;
    float gate_scale, up_scale, down_scale;
    moxie_tensor gate_a, gate_b;
    moxie_tensor up_a, up_b;
    moxie_tensor down_a, down_b;
} moxie_lora;
#define MOXIE_LORA_INIT MOXIE_INIT(moxie_lora)

/* Makes room for adapters 0 to count - 1 of a layer, which must outlive them. Thread-safe. */
MOXIE_API moxie_status moxie_adapters_create(const moxie_layer *layer, int32_t count, moxie_adapters **out,
                                             moxie_error *error);
/* One-thread-at-a-time, and no run may use them. */
MOXIE_API void moxie_adapters_destroy(moxie_adapters *adapters);

/* Adds adapter `number`, or replaces it, and enables it. Copies the factors of the layer's own experts. On failure the
 * old one stays. When a moxie_mover has moved experts, set it anew: until then runs that name it fail with
 * MOXIE_ERR_MISMATCH. On a device they return when the copies are done. One-thread-at-a-time, and no run may use the
 * adapters meanwhile; so the next two calls. */
MOXIE_API moxie_status moxie_adapters_set(moxie_adapters *adapters, int32_t number, const moxie_lora *lora,
                                          moxie_error *error);
/* Removes it, if it is there. */
MOXIE_API moxie_status moxie_adapters_remove(moxie_adapters *adapters, int32_t number, moxie_error *error);
/* 0: its tokens run without adapter until it is enabled again. */
MOXIE_API moxie_status moxie_adapters_enable(moxie_adapters *adapters, int32_t number, int32_t enabled,
                                             moxie_error *error);
/* The largest rank of adapter `number`'s projections; 0 if it is not there. Immutable. */
MOXIE_API int32_t moxie_adapters_rank(const moxie_adapters *adapters, int32_t number);
/* Bytes of all factors. Immutable. */
MOXIE_API uint64_t moxie_adapters_bytes(const moxie_adapters *adapters);

/* ------------------------------------------------------------------------------------------- */
/* Adapters in files                                                                           */
/* ------------------------------------------------------------------------------------------- */

/* A directory with adapter_config.json and adapter_model.safetensors, as PEFT writes it. */
typedef struct moxie_adapter_files moxie_adapter_files;

/* Opens it. MOXIE_ERR_UNSUPPORTED for what is no plain LoRA: DoRA, biases, other methods. Thread-safe. */
MOXIE_API moxie_status moxie_adapter_files_open(const char *dir, moxie_adapter_files **out, moxie_error *error);
/* After the last use of the views. One-thread-at-a-time. */
MOXIE_API void moxie_adapter_files_close(moxie_adapter_files *files);
/* Fills `lora` with layer `layer` of the model; `loaded` is that layer. Views are the files' and valid until they are
 * closed. It knows PEFT's names of 3-D parameters and of single experts, and vLLM's and SGLang's, with shared factors
 * (docs/lora.md). MOXIE_ERR_UNSUPPORTED where the adapter changes the layer's router or shared expert,
 * MOXIE_ERR_FORMAT for a tensor of the layer's experts that has no place, MOXIE_ERR_MISMATCH where it has none for the
 * layer or shapes differ. One-thread-at-a-time. */
MOXIE_API moxie_status moxie_adapter_files_load(moxie_adapter_files *files, const moxie_model *model,
                                                const moxie_model_layer *loaded, int64_t layer, moxie_lora *lora,
                                                moxie_error *error);

#ifdef __cplusplus
}
#endif

#endif /* MOXIE_ADAPTERS_H */
