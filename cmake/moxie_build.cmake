# SPDX-License-Identifier: Apache-2.0
# How every target of moxie is compiled, and how its libraries are found.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release)
endif()

include(CheckPIESupported)
check_pie_supported(LANGUAGES C)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# Hardening: moxie reads files that others wrote. So an overrun of a stack or of a copy ends the program, and tables of
# function pointers are read-only once it runs. Sanitizer builds leave _FORTIFY_SOURCE out: they check more, and the two
# do not work together. Kernel files are not hardened (moxie_isa_flags), since their loops have no register to spare.
function(moxie_harden target)
    target_link_options(${target} PRIVATE -Wl,-z,relro,-z,now,-z,noexecstack)
    if(NOT MOXIE_SANITIZE)
        target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:-fstack-protector-strong>
            $<$<AND:$<COMPILE_LANGUAGE:C>,$<CONFIG:Release,RelWithDebInfo,MinSizeRel>>:-U_FORTIFY_SOURCE$<SEMICOLON>-D_FORTIFY_SOURCE=2>)
    endif()
endfunction()

# Warnings are errors. Contraction is off everywhere: the bits of a sum must not depend on whether the compiler fused a
# multiplication with an addition.
function(moxie_target target)
    moxie_harden(${target})
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include)
    if(target STREQUAL "moxie_objects")
        target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
    endif()
    target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
    target_compile_options(${target} PRIVATE -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes
                           -Wvla -Wpointer-arith -Wcast-qual -Wwrite-strings -Wundef -ffp-contract=off -fno-math-errno
                           -Wno-missing-field-initializers) # zero is the default of every table
    # gcc's "undefined" does not include conversions of a float to an integer that it does not fit in.
    if(MOXIE_SANITIZE STREQUAL "address")
        target_compile_options(${target} PRIVATE -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all
                               -fno-omit-frame-pointer)
        target_link_options(${target} PUBLIC -fsanitize=address,undefined,float-cast-overflow)
    elseif(MOXIE_SANITIZE STREQUAL "thread")
        target_compile_options(${target} PRIVATE -fsanitize=thread)
        target_link_options(${target} PUBLIC -fsanitize=thread)
    endif()
endfunction()

# A program that tests start by its path. In an emulated build the program goes to emulated/, and a script that starts it
# in the emulator takes its place, so that tests need not know.
function(moxie_program target name)
    set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name})
    if(CMAKE_CROSSCOMPILING_EMULATOR)
        set(program ${CMAKE_CURRENT_BINARY_DIR}/emulated/${name})
        set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/emulated)
        list(JOIN CMAKE_CROSSCOMPILING_EMULATOR " " emulator)
        file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${name} "#!/bin/sh\nexec ${emulator} '${program}' \"$@\"\n")
        file(CHMOD ${CMAKE_CURRENT_BINARY_DIR}/${name} FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
    endif()
endfunction()

# Where a program or library looks for its libraries: for libmoxie in the place beside bin/, for others in the folders
# outside the project that it was linked from. The same path serves the build tree, where libmoxie lies beside the program
# or one up from emulated/. A path of its own there would have to be overwritten at installation; CMake reserves room for
# that by an empty entry, and an empty entry means the working directory.
function(moxie_rpath target)
    set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "EXECUTABLE")
        file(RELATIVE_PATH libraries ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
        set(build "$ORIGIN")
        if(CMAKE_CROSSCOMPILING_EMULATOR)
            set(build "$ORIGIN/..")
        endif()
        set_target_properties(${target} PROPERTIES INSTALL_RPATH "${build};$ORIGIN/${libraries}")
    endif()
endfunction()

# The suffix of a file decides its ISA flags: _avx512_<name>.c gets those of the extension AVX512-<name>, _neon_<name>.c
# those of the extension <name> of 64-bit ARM; _neon.c needs no flag there. On other architectures such a file compiles to
# nothing.
function(moxie_isa_flags)
    moxie_isa_options(${ARGN})
    foreach(source ${ARGN})
        if(source MATCHES "_(avx2|avxvnni|avx512[a-z0-9_]*|amx|neon[a-z0-9_]*)\\.c$")
            set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -fno-stack-protector -U_FORTIFY_SOURCE)
        endif()
    endforeach()
endfunction()

# Which instructions of kernels the processor at hand lacks, where that is known and the program will run here. A sanitizer
# build does not instrument such kernels, which took two thirds of its time.
function(moxie_absent_isa out)
    set(absent "")
    if(EXISTS /proc/cpuinfo AND NOT CMAKE_CROSSCOMPILING)
        file(STRINGS /proc/cpuinfo flags REGEX "^flags" LIMIT_COUNT 1)
        foreach(flag avx_vnni avx512f avx512_bf16 amx_tile)
            if(flags AND NOT " ${flags} " MATCHES " ${flag} ")
                list(APPEND absent ${flag})
            endif()
        endforeach()
    endif()
    set(${out} "${absent}" PARENT_SCOPE)
endfunction()

function(moxie_isa_options)
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
        foreach(source ${ARGN})
            if(source MATCHES "_neon_i8mm\\.c$") # with dot products, which such processors have
                set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+dotprod+i8mm")
            elseif(source MATCHES "_neon_([a-z0-9]+)\\.c$")
                set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+${CMAKE_MATCH_1}")
            endif()
        endforeach()
    endif()
    if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
        return()
    endif()
    # Compilers need minutes for an instrumented kernel file at -O3. So sanitizer builds optimize kernels less, and fuzz
    # targets, which are about readers of files, do not instrument them.
    set(plain "")
    if(MOXIE_SANITIZE)
        set(plain -O1 -g0)
    endif()
    if(MOXIE_FUZZ)
        set(plain -O1 -g0 -fno-sanitize=all)
    endif()
    moxie_absent_isa(absent)
    # Generic tuning spills pointers into vector registers. Moving them back uses a port that decoding needs, which cost a
    # tenth of the AMX kernels' time.
    set(tune "-mtune=sapphirerapids")
    # Compilers use half of a register where they vectorize loops for AVX-512, unless told.
    set(avx512 "-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mprefer-vector-width=512")
    foreach(source ${ARGN})
        set(needs "") # of /proc/cpuinfo
        set(options "")
        if(source MATCHES "_avx2\\.c$")
            set(options "-mavx2;-mfma;-mf16c")
        elseif(source MATCHES "_avxvnni\\.c$")
            set(needs avx_vnni)
            set(options "-mavx2;-mfma;-mf16c;-mavxvnni")
        elseif(source MATCHES "_avx512\\.c$")
            set(needs avx512f)
            set(options "${avx512};${tune}")
        elseif(source MATCHES "_avx512_bf16\\.c$") # with VBMI, which such processors have
            set(needs avx512f)
            set(options "${avx512};-mavx512bf16;-mavx512vbmi;${tune}")
        elseif(source MATCHES "_avx512_([a-z0-9]+)\\.c$")
            set(needs avx512f)
            set(options "${avx512};-mavx512${CMAKE_MATCH_1};${tune}")
        elseif(source MATCHES "_amx\\.c$")
            set(needs amx_tile)
            set(options "${avx512};-mavx512vbmi;-mavx512vnni;-mavx512bf16;-mavx512fp16;-mamx-tile;-mamx-bf16;-mamx-int8;${tune}")
        endif()
        if(options AND NOT (MOXIE_ABSENT_ISA STREQUAL "leave-out" AND needs IN_LIST absent))
            if(MOXIE_SANITIZE AND needs IN_LIST absent)
                list(APPEND options -O1 -g0 -fno-sanitize=all)
            else()
                list(APPEND options ${plain})
            endif()
            set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${options}")
        endif()
    endforeach()
endfunction()

function(moxie_find_library prefix header name package)
    find_path(${prefix}_INCLUDE ${header})
    find_library(${prefix}_LIBRARY ${name})
    if(NOT ${prefix}_INCLUDE OR NOT ${prefix}_LIBRARY)
        message(FATAL_ERROR "${header} or lib${name} not found: install ${package} (scripts/setup does it)")
    endif()
    include_directories(SYSTEM ${${prefix}_INCLUDE})
endfunction()

function(moxie_find_header prefix header package)
    find_path(${prefix}_INCLUDE ${header})
    if(NOT ${prefix}_INCLUDE)
        message(FATAL_ERROR "${header} not found: install ${package} (scripts/setup does it)")
    endif()
    include_directories(SYSTEM ${${prefix}_INCLUDE})
endfunction()
