# SPDX-License-Identifier: Apache-2.0
# install(): headers, both libraries, ulyx.pc, and the package that
# find_package(ulyx CONFIG) reads. Nothing installed names the prefix it was
# installed into, so the tree may be moved.
#   ulyx::ulyx          the shared library
#   ulyx::ulyx_static   the static one, where what it needs is found
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ulyx)

install(DIRECTORY include/ulyx DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")
install(TARGETS ulyx EXPORT ulyxTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS ulyx_static EXPORT ulyxStaticTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT ulyxTargets NAMESPACE ulyx:: DESTINATION ${package_dir})
install(EXPORT ulyxStaticTargets NAMESPACE ulyx:: DESTINATION ${package_dir})

# What the static library needs: pkg-config modules by name, the rest by -l.
set(pc_requires "")
set(pc_libs "-lm -pthread")
set(config_modules "")
foreach(needed ${ULYX_LAYER_LIBS})
  if(needed MATCHES "^PkgConfig::(.*)")
    set(prefix ${CMAKE_MATCH_1})
    string(APPEND pc_requires " ${ULYX_MODULE_${prefix}}")
    string(APPEND config_modules
      "ulyx_find_module(${prefix} ${ULYX_MODULE_${prefix}})\n")
  elseif(NOT needed MATCHES "::|^-|/")
    string(APPEND pc_libs " -l${needed}")
  endif()
endforeach()
if(ULYX_HAS_KERNELS)
  string(APPEND pc_libs
    " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt -lstdc++")
  string(APPEND config_modules "ulyx_find_cuda()\n")
endif()
file(RELATIVE_PATH pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" pc_prefix "${pc_prefix}")

configure_file(cmake/ulyx.pc.in ulyx.pc @ONLY)
configure_package_config_file(cmake/ulyxConfig.cmake.in ulyxConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(ulyxConfigVersion.cmake
  COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ulyx.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${PROJECT_BINARY_DIR}/ulyxConfig.cmake
  ${PROJECT_BINARY_DIR}/ulyxConfigVersion.cmake DESTINATION ${package_dir})
