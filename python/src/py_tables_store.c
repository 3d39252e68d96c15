/* SPDX-License-Identifier: Apache-2.0
 *
 * py_tables_store.c - the structs of moxie_store.h, field by field, in the order of their classes in moxie/store.py.
 */
#include "py_store.h"

#include "py_tables.h"

static const mpy_field target_fields[] = { F(moxie_expert_target, name, TEXT), F(moxie_expert_target, summary, TEXT),
                                           END };
const mpy_record mpy_expert_target_record = { "ExpertTarget", target_fields };

static const mpy_field file_info_fields[] = { F(moxie_expert_file_info, version, I32),
                                              F(moxie_expert_file_info, target, TEXT),
                                              F(moxie_expert_file_info, layout, TEXT),
                                              F(moxie_expert_file_info, shared_layout, TEXT),
                                              F(moxie_expert_file_info, layer, I64),
                                              F(moxie_expert_file_info, experts, I64),
                                              F(moxie_expert_file_info, held, I64),
                                              F(moxie_expert_file_info, record_bytes, U64),
                                              F(moxie_expert_file_info, shared_bytes, U64),
                                              F(moxie_expert_file_info, file_bytes, U64),
                                              F(moxie_expert_file_info, generation, U64),
                                              F(moxie_expert_file_info, source_xxh3, U64),
                                              F(moxie_expert_file_info, direct, FLAG),
                                              F(moxie_expert_file_info, unused_bytes, U64),
                                              F(moxie_expert_file_info, read_engine, TEXT),
                                              F(moxie_expert_file_info, read_why, TEXT),
                                              END };
const mpy_record mpy_expert_file_info_record = { "ExpertFileInfo", file_info_fields };

/* Its bytes, a view, come last. */
static const mpy_field record_fields[] = {
    F(moxie_expert_record, offset, U64),      F(moxie_expert_record, bytes, U64),
    F(moxie_expert_record, checksum, U64),    F(moxie_expert_record, generation, U64),
    F(moxie_expert_record, source_hash, U64), END
};
const mpy_record mpy_expert_record_record = { "ExpertRecord", record_fields };

static const mpy_field store_info_fields[] = { F(moxie_store_info, layers, I32),
                                               F(moxie_store_info, policy, TEXT),
                                               F(moxie_store_info, slots, I32),
                                               F(moxie_store_info, read_buffers, I32),
                                               F(moxie_store_info, record_bytes, U64),
                                               F(moxie_store_info, buffer_bytes, U64),
                                               F(moxie_store_info, shared_bytes, U64),
                                               F(moxie_store_info, file_bytes, U64),
                                               F(moxie_store_info, reader, TEXT),
                                               F(moxie_store_info, direct, FLAG),
                                               F(moxie_store_info, device_slots, I32),
                                               F(moxie_store_info, device_buffers, I32),
                                               F(moxie_store_info, device_record_bytes, U64),
                                               F(moxie_store_info, device_shared_bytes, U64),
                                               F(moxie_store_info, host_slots, I32),
                                               F(moxie_store_info, host_read_buffers, I32),
                                               F(moxie_store_info, host_record_bytes, U64),
                                               END };
const mpy_record mpy_store_info_record = { "StoreInfo", store_info_fields };

static const mpy_field counters_fields[] = { F(moxie_store_counters, runs, I64),
                                             F(moxie_store_counters, uses, I64),
                                             F(moxie_store_counters, hits, I64),
                                             F(moxie_store_counters, inserts, I64),
                                             F(moxie_store_counters, reads, I64),
                                             F(moxie_store_counters, read_bytes, U64),
                                             F(moxie_store_counters, ram_bytes, U64),
                                             F(moxie_store_counters, waits, I64),
                                             F(moxie_store_counters, wait_seconds, F64),
                                             F(moxie_store_counters, prefetches, I64),
                                             F(moxie_store_counters, prefetches_used, I64),
                                             F(moxie_store_counters, prefetches_wasted, I64),
                                             F(moxie_store_counters, failed_reads, I64),
                                             F(moxie_store_counters, device_uses, I64),
                                             F(moxie_store_counters, device_hits, I64),
                                             F(moxie_store_counters, device_inserts, I64),
                                             F(moxie_store_counters, copies, I64),
                                             F(moxie_store_counters, copied_bytes, U64),
                                             F(moxie_store_counters, id_waits, I64),
                                             F(moxie_store_counters, id_wait_seconds, F64),
                                             F(moxie_store_counters, copy_waits, I64),
                                             F(moxie_store_counters, copy_wait_seconds, F64),
                                             F(moxie_store_counters, host_uses, I64),
                                             F(moxie_store_counters, host_seconds, F64),
                                             END };
const mpy_record mpy_store_counters_record = { "StoreCounters", counters_fields };

static const mpy_field engine_fields[] = { F(moxie_read_engine, usable, FLAG), F(moxie_read_engine, name, TEXT),
                                           F(moxie_read_engine, about, TEXT), F(moxie_read_engine, missing, CHARS),
                                           END };
const mpy_record mpy_read_engine_record = { "ReadEngine", engine_fields };

static const mpy_field rate_fields[] = { F(moxie_disk_rate, gb_s, F64),    F(moxie_disk_rate, bytes, U64),
                                         F(moxie_disk_rate, records, U64), F(moxie_disk_rate, seconds, F64),
                                         F(moxie_disk_rate, engine, TEXT), F(moxie_disk_rate, depth, I32),
                                         F(moxie_disk_rate, threads, I32), F(moxie_disk_rate, drives, I32),
                                         F(moxie_disk_rate, direct, FLAG), F(moxie_disk_rate, chunk_bytes, U64),
                                         F(moxie_disk_rate, why, CHARS),   END };
const mpy_record mpy_disk_rate_record = { "DiskRate", rate_fields };
