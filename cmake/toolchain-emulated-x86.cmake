# SPDX-License-Identifier: Apache-2.0
# The machine's own compiler, but programs are started in qemu's user mode, as on the x86-64 processor that QEMU_CPU in
# the environment names (scripts/test-old-x86): an instruction that it lacks ends the program.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-x86_64)
