# SPDX-License-Identifier: Apache-2.0
# The commit that a build is of, for moxie_version(). Every build asks git, and rewrites one header when the answer has
# changed; one small source file includes it. Sources that are no git checkout of their own (a tarball) have no commit.
if(CMAKE_SCRIPT_MODE_FILE)
    cmake_minimum_required(VERSION 3.25)
    set(git git -C ${SOURCE})
    execute_process(COMMAND ${git} rev-parse --show-toplevel OUTPUT_VARIABLE top RESULT_VARIABLE failed
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    set(commit "")
    if(NOT failed)
        file(REAL_PATH "${SOURCE}" source)
        file(REAL_PATH "${top}" top)
        if(source STREQUAL top)
            execute_process(COMMAND ${git} describe --always --dirty --abbrev=12 --exclude=* OUTPUT_VARIABLE commit
                            OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
        endif()
    endif()
    file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define MOX_COMMIT \"@commit@\"\n" @ONLY)
    return()
endif()

# Makes the header and puts it on the include path of `source`, a file of `target`.
function(moxie_commit target source)
    set(header ${CMAKE_CURRENT_BINARY_DIR}/commit/moxie_commit.h)
    add_custom_target(moxie_commit_header COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DHEADER=${header}
                      -P ${PROJECT_SOURCE_DIR}/cmake/moxie_version.cmake BYPRODUCTS ${header})
    add_dependencies(${target} moxie_commit_header)
    set_source_files_properties(${source} PROPERTIES INCLUDE_DIRECTORIES ${CMAKE_CURRENT_BINARY_DIR}/commit
                                                     OBJECT_DEPENDS ${header})
endfunction()
