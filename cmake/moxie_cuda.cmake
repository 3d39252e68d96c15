# SPDX-License-Identifier: Apache-2.0
# libmoxie_cuda: the launch table's host part (src/cuda/device) and all kernels (src/cuda/**/*.cu). libmoxie opens it at
# run time and links nothing of it.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(MOXIE_NVCC nvcc HINTS /usr/local/cuda/bin)
    if(NOT MOXIE_NVCC)
        message(FATAL_ERROR "MOXIE_CUDA is ON, but there is no nvcc on the PATH or in /usr/local/cuda/bin: install the CUDA "
                            "toolkit 12.8 or later (packages cuda-nvcc and cuda-cudart-dev), set CMAKE_CUDA_COMPILER, or "
                            "configure with -DMOXIE_CUDA=OFF")
    endif()
    set(CMAKE_CUDA_COMPILER ${MOXIE_NVCC})
endif()
# Machine code for some generations, or for all with -DMOXIE_CUDA_ARCHS=all. sm_86 and sm_89 also run that of sm_80; sm_100
# its PTX, and devices that come later that of sm_120. wgmma is sm_90a's alone.
set(MOXIE_CUDA_ARCHS "some" CACHE STRING "generations with machine code: some (sm_80, sm_90a, sm_120) or all")
set_property(CACHE MOXIE_CUDA_ARCHS PROPERTY STRINGS some all)
if(MOXIE_CUDA_ARCHS STREQUAL "all")
    set(archs "80;86-real;89-real;90a-real;100-real;120")
elseif(MOXIE_CUDA_ARCHS STREQUAL "some")
    set(archs "80;90a-real;120")
else()
    message(FATAL_ERROR "MOXIE_CUDA_ARCHS is ${MOXIE_CUDA_ARCHS}: choose some or all, or name them in MOXIE_CUDA_ARCHITECTURES")
endif()
set(MOXIE_CUDA_ARCHITECTURES "" CACHE STRING "of all kernels but those of one generation; empty: by MOXIE_CUDA_ARCHS")
if(MOXIE_CUDA_ARCHITECTURES)
    set(archs ${MOXIE_CUDA_ARCHITECTURES})
endif()
set(CMAKE_CUDA_ARCHITECTURES ${archs})
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
option(MOXIE_CUDA_LINEINFO "source lines in machine code, for ncu and compute-sanitizer: the library becomes some 4 times larger" OFF)
# A small library: one kernel file took 1.7 MB with lines and the usual compression, 0.08 MB without lines and with this one.
include(CheckCompilerFlag)
check_compiler_flag(CUDA --compress-mode=size MOXIE_NVCC_COMPRESS_MODE)
set(MOXIE_CUDA_OPTIONS $<$<BOOL:${MOXIE_NVCC_COMPRESS_MODE}>:--compress-mode=size> $<$<BOOL:${MOXIE_CUDA_LINEINFO}>:-lineinfo>)

# No contraction, as for C files, since bits are defined; kernels write out the fused operations that they want.
function(moxie_cuda_target target)
    moxie_harden(${target})
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src
                                                 ${CUDAToolkit_INCLUDE_DIRS})
    string(REPLACE ";" " " architectures "${CMAKE_CUDA_ARCHITECTURES}")
    target_compile_definitions(${target} PRIVATE _GNU_SOURCE "MOX_CUDA_ARCHITECTURES=\"sm ${architectures}\"")
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden
                                               CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden)
    target_compile_options(${target} PRIVATE
        $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false ${MOXIE_CUDA_OPTIONS} --expt-relaxed-constexpr -Xptxas=-warn-spills
        -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers>
        $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Werror -Wno-missing-field-initializers>)
endfunction()

file(GLOB_RECURSE MOXIE_CUDA_KERNELS CONFIGURE_DEPENDS src/cuda/*.cu)
file(GLOB MOXIE_CUDA_HOST CONFIGURE_DEPENDS src/cuda/device/*.c)
set(MOXIE_CUDA_SM90 ${MOXIE_CUDA_KERNELS})
list(FILTER MOXIE_CUDA_SM90 INCLUDE REGEX "_sm90[a-z0-9_]*\\.cu$")
list(FILTER MOXIE_CUDA_KERNELS EXCLUDE REGEX "_sm90[a-z0-9_]*\\.cu$")

add_library(moxie_cuda MODULE ${MOXIE_CUDA_HOST} ${MOXIE_CUDA_KERNELS} src/base/status.c
                       src/cuda/expert_gemm/sm90/sm90_plan.c src/cuda/expert_gemm/sm90/sm90_tiles.c)
moxie_cuda_target(moxie_cuda)
set_target_properties(moxie_cuda PROPERTIES PREFIX lib)
target_link_libraries(moxie_cuda PRIVATE CUDA::cudart_static)
target_link_options(moxie_cuda PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/libmoxie_cuda.map -Wl,--no-undefined
                    -Wl,--wrap=__cudaRegisterFunction) # src/cuda/device/device_count.c
if(MOXIE_CUDA_SM90)
    add_library(moxie_cuda_sm90 OBJECT ${MOXIE_CUDA_SM90})
    moxie_cuda_target(moxie_cuda_sm90)
    set_target_properties(moxie_cuda_sm90 PROPERTIES CUDA_ARCHITECTURES 90a-real)
    target_sources(moxie_cuda PRIVATE $<TARGET_OBJECTS:moxie_cuda_sm90>)
endif()
