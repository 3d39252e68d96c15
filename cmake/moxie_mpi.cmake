# SPDX-License-Identifier: Apache-2.0
# libmoxie_openmpi and libmoxie_mpich: src/comm/mpi, compiled with the headers of each MPI library that is here. libmoxie
# opens one of them at run time and links no MPI. Where a library is not found, its module is left out.
include(CheckCSourceCompiles)

# moxie_mpi_module(flavour macro): the flavour's own compiler wrapper says where its headers and library are; a plain
# mpicc serves where it is of this flavour, which its header's macro tells.
function(moxie_mpi_module flavour macro)
    find_program(MOXIE_MPICC_${flavour} NAMES mpicc.${flavour} mpicc)
    set(wrapper ${MOXIE_MPICC_${flavour}})
    if(NOT wrapper)
        message(STATUS "libmoxie_${flavour} is left out: neither mpicc.${flavour} nor mpicc is on the PATH")
        return()
    endif()
    execute_process(COMMAND ${wrapper} -show OUTPUT_VARIABLE line OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    separate_arguments(words UNIX_COMMAND "${line}")
    set(includes ${words})
    set(libraries ${words})
    list(FILTER includes INCLUDE REGEX "^-I")
    list(TRANSFORM includes REPLACE "^-I" "")
    list(FILTER libraries INCLUDE REGEX "^-[lL]")

    set(CMAKE_REQUIRED_INCLUDES ${includes})
    set(CMAKE_REQUIRED_LIBRARIES ${libraries})
    check_c_source_compiles("#include <mpi.h>\n#ifndef ${macro}\n#error another MPI\n#endif\nint main(void) { int f; return MPI_Initialized(&f); }"
        MOXIE_MPI_HAS_${flavour})
    if(NOT MOXIE_MPI_HAS_${flavour})
        message(STATUS "libmoxie_${flavour} is left out: ${wrapper} does not compile for this MPI library")
        return()
    endif()

    file(GLOB sources CONFIGURE_DEPENDS src/comm/mpi/*.c)
    add_library(moxie_${flavour} MODULE ${sources} src/base/status.c)
    moxie_target(moxie_${flavour})
    set_target_properties(moxie_${flavour} PROPERTIES PREFIX lib)
    target_include_directories(moxie_${flavour} PRIVATE src)
    target_include_directories(moxie_${flavour} SYSTEM PRIVATE ${includes})
    target_link_libraries(moxie_${flavour} PRIVATE ${libraries})
    target_link_options(moxie_${flavour} PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/libmoxie_mpi.map)
    if(NOT MOXIE_SANITIZE)
        target_link_options(moxie_${flavour} PRIVATE -Wl,--no-undefined)
    endif()
    # For programs of tests and examples that call this MPI library.
    add_library(moxie_with_${flavour} INTERFACE)
    target_include_directories(moxie_with_${flavour} SYSTEM INTERFACE ${includes})
    target_link_libraries(moxie_with_${flavour} INTERFACE ${libraries})
endfunction()

moxie_mpi_module(openmpi OPEN_MPI)
moxie_mpi_module(mpich MPICH_VERSION)
