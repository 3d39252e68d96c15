# SPDX-License-Identifier: Apache-2.0
# The machine's own compiler, but programs are started in qemu's user mode, as on the x86-64 processor that QEMU_CPU in
# the environment names (scripts/test-old-x86): an instruction that it lacks ends the program.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
# The emulator's own code leaves the upper halves of vector registers in use; on some processors the C library's fmaf()
# then costs 100 ns, and every lane of a multiply-add is one call. Its other one, without FMA, takes a third of that.
set(CMAKE_CROSSCOMPILING_EMULATOR "env;GLIBC_TUNABLES=glibc.cpu.hwcaps=-FMA;qemu-x86_64;-U;GLIBC_TUNABLES")
