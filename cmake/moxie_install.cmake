# SPDX-License-Identifier: Apache-2.0
# Install rules: headers, both libraries, the tool, pkg-config, a CMake package, the licence. An installed tree may be
# moved: nothing in it names the prefix.
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/moxie)

install(DIRECTORY include/moxie DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(TARGETS moxie EXPORT moxieTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS moxie_static EXPORT moxieStaticTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(module moxie_cuda moxie_openmpi moxie_mpich moxie_uring)
    if(TARGET ${module})
        install(TARGETS ${module} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    endif()
endforeach()
if(TARGET moxie_cli)
    install(TARGETS moxie_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT moxieTargets NAMESPACE moxie:: DESTINATION ${package})
install(EXPORT moxieStaticTargets NAMESPACE moxie:: DESTINATION ${package})
configure_package_config_file(cmake/moxieConfig.cmake.in ${CMAKE_BINARY_DIR}/moxieConfig.cmake
    INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/moxieConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_BINARY_DIR}/moxieConfig.cmake ${CMAKE_BINARY_DIR}/moxieConfigVersion.cmake DESTINATION ${package})

# moxie.pc finds the rest from where it lies itself.
file(RELATIVE_PATH MOXIE_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" MOXIE_PC_PREFIX ${MOXIE_PC_PREFIX})
file(RELATIVE_PATH MOXIE_PC_LIBDIR ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH MOXIE_PC_INCLUDEDIR ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
configure_file(cmake/moxie.pc.in ${CMAKE_BINARY_DIR}/moxie.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/moxie.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
