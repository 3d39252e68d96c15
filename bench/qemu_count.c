/* SPDX-License-Identifier: Apache-2.0
 *
 * qemu_count.c - a plugin of qemu's user mode that counts the instructions of a program and prints their number to
 * stderr when it ends. For scripts/count-aarch64; part of no library.
 *
 * The declarations are those of plugin interface 1 (qemu, docs/devel/tcg-plugins.rst), as Debian packages no header.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
enum { INLINE_ADD_U64 = 0 };
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, void (*fn)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *tb, int op, void *to, uint64_t add);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, void (*fn)(qemu_plugin_id_t, void *), void *data);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;
__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc,
                                                               char **argv);

static uint64_t count;

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(tb, INLINE_ADD_U64, &count, qemu_plugin_tb_n_insns(tb));
}

static void ended(qemu_plugin_id_t id, void *data)
{
    (void)id, (void)data;
    fprintf(stderr, "%" PRIu64 "\n", count);
}

int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv)
{
    (void)info, (void)argc, (void)argv;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
