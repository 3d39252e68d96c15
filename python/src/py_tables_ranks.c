/* SPDX-License-Identifier: Apache-2.0
 *
 * py_tables_ranks.c - the structs of moxie_comm.h and moxie_parallel.h, as py_tables.c has the others.
 */
#include "py_tables.h"

/* ---- choices -------------------------------------------------------------------------------- */

const mpy_choice mpy_token_layouts[] = { { "sharded", MOXIE_TOKENS_SHARDED },
                                         { "replicated", MOXIE_TOKENS_REPLICATED },
                                         { "scattered", MOXIE_TOKENS_SCATTERED },
                                         { NULL, 0 } };
const mpy_choice mpy_degraded[] = { { "none", MOXIE_DEGRADED_NONE },
                                    { "keep", MOXIE_DEGRADED_KEEP },
                                    { "renormalize", MOXIE_DEGRADED_RENORMALIZE },
                                    { NULL, 0 } };
static const mpy_choice exchanges[] = { { "local", MOXIE_EXCHANGE_LOCAL },
                                        { "sharded", MOXIE_EXCHANGE_SHARDED },
                                        { "capacity", MOXIE_EXCHANGE_CAPACITY },
                                        { "replicated", MOXIE_EXCHANGE_REPLICATED },
                                        { NULL, 0 } };
static const mpy_choice platforms[] = { { "cuda", MOXIE_VLLM_CUDA },
                                        { "rocm", MOXIE_VLLM_ROCM },
                                        { "xpu", MOXIE_VLLM_XPU },
                                        { "cpu", MOXIE_VLLM_CPU },
                                        { NULL, 0 } };

/* ---- comms and runs ------------------------------------------------------------------------- */

static const mpy_field transport_info_fields[] = { F(moxie_transport_info, usable, FLAG),
                                                   F(moxie_transport_info, name, TEXT),
                                                   F(moxie_transport_info, ranks, TEXT),
                                                   F(moxie_transport_info, missing, CHARS), END };
const mpy_record mpy_transport_info_record = { "TransportInfo", transport_info_fields };

static const mpy_field losses_fields[] = { F(moxie_losses, ranks, I32), F(moxie_losses, slots, I64),
                                           F(moxie_losses, tokens, I64), END };
const mpy_record mpy_losses_record = { "Losses", losses_fields };

static const mpy_field phase_fields[] = { F(moxie_plan_phase, name, TEXT), F(moxie_plan_phase, seconds, F64),
                                          F(moxie_plan_phase, sent_bytes, U64), END };
const mpy_record mpy_phase_record = { "PlanPhase", phase_fields };

static const mpy_field mover_report_fields[] = {
    F(moxie_mover_report, moves, I32),     F(moxie_mover_report, left, I32),       F(moxie_mover_report, bytes, U64),
    F(moxie_mover_report, own_bytes, U64), F(moxie_mover_report, generation, U64), END
};
const mpy_record mpy_mover_report_record = { "MoverReport", mover_report_fields };

/* ---- vLLM's parallel configs ---------------------------------------------------------------- */

static const mpy_field parallel_args_fields[] = { F(moxie_parallel_args, tp_size, I32),
                                                  F(moxie_parallel_args, pcp_size, I32),
                                                  F(moxie_parallel_args, dp_size, I32),
                                                  F(moxie_parallel_args, tp_rank, I32),
                                                  F(moxie_parallel_args, pcp_rank, I32),
                                                  F(moxie_parallel_args, dp_rank, I32),
                                                  F(moxie_parallel_args, sp_size, I32),
                                                  F(moxie_parallel_args, enable_expert_parallel, FLAG),
                                                  F(moxie_parallel_args, enable_eplb, FLAG),
                                                  F(moxie_parallel_args, all2all_backend, TEXT),
                                                  END };
const mpy_record mpy_parallel_args_record = { "ParallelArgs", parallel_args_fields };

static const mpy_field parallel_fields[] = { F(moxie_parallel, tp_size, I32),
                                             F(moxie_parallel, tp_rank, I32),
                                             F(moxie_parallel, pcp_size, I32),
                                             F(moxie_parallel, pcp_rank, I32),
                                             F(moxie_parallel, dp_size, I32),
                                             F(moxie_parallel, dp_rank, I32),
                                             F(moxie_parallel, ep_size, I32),
                                             F(moxie_parallel, ep_rank, I32),
                                             F(moxie_parallel, sp_size, I32),
                                             F(moxie_parallel, use_ep, FLAG),
                                             F(moxie_parallel, enable_eplb, FLAG),
                                             F(moxie_parallel, all2all_backend, TEXT),
                                             END };
const mpy_record mpy_parallel_record = { "Parallel", parallel_fields };

static const mpy_field fused_moe_args_fields[] = { F(moxie_fused_moe_args, num_logical_experts, I32),
                                                   F(moxie_fused_moe_args, num_redundant_experts, I32),
                                                   F(moxie_fused_moe_args, experts_per_token, I32),
                                                   F(moxie_fused_moe_args, hidden_dim, I32),
                                                   F(moxie_fused_moe_args, intermediate_size, I32),
                                                   F(moxie_fused_moe_args, num_expert_group, I32),
                                                   F(moxie_fused_moe_args, max_num_tokens, I32),
                                                   F(moxie_fused_moe_args, in_dtype, DTYPE),
                                                   F(moxie_fused_moe_args, router_logits_dtype, DTYPE),
                                                   F(moxie_fused_moe_args, hidden_dim_unpadded, I32),
                                                   F(moxie_fused_moe_args, intermediate_size_per_partition_unpadded,
                                                     I32),
                                                   FM(moxie_fused_moe_args, platform, CHOICE, platforms),
                                                   F(moxie_fused_moe_args, aiter_fmoe, FLAG),
                                                   F(moxie_fused_moe_args, aiter_shared_expert, FLAG),
                                                   F(moxie_fused_moe_args, defer_moe_finalize, FLAG),
                                                   F(moxie_fused_moe_args, activation, TEXT),
                                                   F(moxie_fused_moe_args, expert_placement_strategy, TEXT),
                                                   F(moxie_fused_moe_args, tp_in_ep, I32),
                                                   END };
const mpy_record mpy_fused_moe_args_record = { "FusedMoEArgs", fused_moe_args_fields };

static const mpy_field fused_moe_fields[] = { F(moxie_fused_moe, num_experts, I32),
                                              F(moxie_fused_moe, num_local_experts, I32),
                                              F(moxie_fused_moe, num_logical_experts, I32),
                                              F(moxie_fused_moe, intermediate_size_per_partition, I32),
                                              F(moxie_fused_moe, intermediate_size_per_partition_unpadded, I32),
                                              F(moxie_fused_moe, hidden_dim_unpadded, I32),
                                              F(moxie_fused_moe, is_act_and_mul, FLAG),
                                              F(moxie_fused_moe, w13_num_shards, I32),
                                              F(moxie_fused_moe, max_num_tokens, I32),
                                              F(moxie_fused_moe, router_logits_dtype, DTYPE),
                                              F(moxie_fused_moe, use_deferred_moe_finalize, FLAG),
                                              FM(moxie_fused_moe, placement, CHOICE, mpy_expert_maps),
                                              F(moxie_fused_moe, placement_reason, TEXT),
                                              END };
const mpy_record mpy_fused_moe_record = { "FusedMoE", fused_moe_fields };

static const mpy_field parallel_layer_fields[] = { F(moxie_parallel_layer, ranks, I32),
                                                   F(moxie_parallel_layer, rank, I32),
                                                   F(moxie_parallel_layer, ep_size, I32),
                                                   F(moxie_parallel_layer, ep_rank, I32),
                                                   F(moxie_parallel_layer, tp_size, I32),
                                                   F(moxie_parallel_layer, tp_rank, I32),
                                                   FM(moxie_parallel_layer, ep_map, CHOICE, mpy_expert_maps),
                                                   F(moxie_parallel_layer, slots, I32),
                                                   FM(moxie_parallel_layer, token_layout, CHOICE, mpy_token_layouts),
                                                   F(moxie_parallel_layer, token_parts, I32),
                                                   F(moxie_parallel_layer, token_part, I32),
                                                   FM(moxie_parallel_layer, exchange, CHOICE, exchanges),
                                                   F(moxie_parallel_layer, vllm_accepts, FLAG),
                                                   F(moxie_parallel_layer, differs, TEXT),
                                                   END };
const mpy_record mpy_parallel_layer_record = { "ParallelLayer", parallel_layer_fields };

static const mpy_field all2all_fields[] = { FM(moxie_all2all_backend, exchange, CHOICE, exchanges),
                                            F(moxie_all2all_backend, name, TEXT),
                                            F(moxie_all2all_backend, vllm_name, TEXT),
                                            F(moxie_all2all_backend, differs, TEXT), END };
const mpy_record mpy_all2all_record = { "All2AllBackend", all2all_fields };
