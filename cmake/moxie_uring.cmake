# SPDX-License-Identifier: Apache-2.0
# libmoxie_uring: src/store/uring with liburing. libmoxie opens it at run time and links no liburing. Where liburing is not
# found, the module is left out, and records are read by pread().
find_path(URING_INCLUDE liburing.h)
find_library(URING_LIBRARY uring)
if(URING_INCLUDE AND URING_LIBRARY)
    add_library(moxie_uring MODULE src/store/uring/uring_module.c)
    moxie_target(moxie_uring)
    set_target_properties(moxie_uring PROPERTIES PREFIX lib)
    target_include_directories(moxie_uring PRIVATE src)
    target_include_directories(moxie_uring SYSTEM PRIVATE ${URING_INCLUDE})
    target_link_libraries(moxie_uring PRIVATE ${URING_LIBRARY})
    target_link_options(moxie_uring PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/libmoxie_uring.map)
    if(NOT MOXIE_SANITIZE)
        target_link_options(moxie_uring PRIVATE -Wl,--no-undefined)
    endif()
else()
    message(STATUS "libmoxie_uring is left out: liburing.h or liburing is not found (liburing-dev)")
endif()
