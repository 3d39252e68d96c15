# SPDX-License-Identifier: Apache-2.0
# Install rules: headers, both libraries, the tool, pkg-config and a CMake package.
include(CMakePackageConfigHelpers)

install(DIRECTORY include/moxie DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(TARGETS moxie EXPORT moxieTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET moxie_cuda)
    install(TARGETS moxie_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(TARGET moxie_cli)
    install(TARGETS moxie_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(EXPORT moxieTargets NAMESPACE moxie:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/moxie)
configure_package_config_file(cmake/moxieConfig.cmake.in ${CMAKE_BINARY_DIR}/moxieConfig.cmake
    INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/moxie)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/moxieConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_BINARY_DIR}/moxieConfig.cmake ${CMAKE_BINARY_DIR}/moxieConfigVersion.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/moxie)
configure_file(cmake/moxie.pc.in ${CMAKE_BINARY_DIR}/moxie.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/moxie.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
