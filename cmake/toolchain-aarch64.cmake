# SPDX-License-Identifier: Apache-2.0
# Cross compilation for 64-bit ARM on Debian: the packaged cross compiler, libraries from the sysroot that
# scripts/sysroot-aarch64 unpacks, programs started in qemu's user mode. QEMU_CPU in the environment chooses a lesser
# processor than "max" at run time: cortex-a72 lacks dot products, neoverse-n1 lacks bf16.
get_filename_component(MOXIE_SYSROOT "${CMAKE_CURRENT_LIST_DIR}/../build/sysroot-aarch64" ABSOLUTE)
if(NOT EXISTS ${MOXIE_SYSROOT})
    message(FATAL_ERROR "${MOXIE_SYSROOT} not found: scripts/sysroot-aarch64 makes it")
endif()

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_SYSROOT ${MOXIE_SYSROOT})
# The emulator's own code leaves the upper halves of vector registers in use; on some processors the C library's fmaf()
# then costs 100 ns, and every lane of a multiply-add is one call. Its other one, without FMA, takes a third of that.
set(CMAKE_CROSSCOMPILING_EMULATOR "env;GLIBC_TUNABLES=glibc.cpu.hwcaps=-FMA;qemu-aarch64;-U;GLIBC_TUNABLES;-L;${MOXIE_SYSROOT}")

# Libraries and headers from the sysroot alone; a package may also lie where CMAKE_PREFIX_PATH says.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)
