# SPDX-License-Identifier: Apache-2.0
# install(): headers, both libraries, ulyx.pc, the package that
# find_package(ulyx CONFIG) reads; programs, manual pages, completion, documents
# and examples. Nothing installed names the prefix it was installed into, so the
# tree may be moved.
#   ulyx::ulyx          the shared library
#   ulyx::ulyx_static   the static one, whose needs ulyxConfig.cmake looks for
# Components: runtime (the shared library), development, tools; python, the
# library under its SONAME, which pyproject.toml puts into the package.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ulyx)

install(DIRECTORY include/ulyx DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  COMPONENT development FILES_MATCHING PATTERN "*.h")
install(TARGETS ulyx EXPORT ulyxTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
  NAMELINK_COMPONENT development)
install(TARGETS ulyx_static EXPORT ulyxStaticTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(EXPORT ulyxTargets NAMESPACE ulyx:: DESTINATION ${package_dir}
  COMPONENT development)
install(EXPORT ulyxStaticTargets NAMESPACE ulyx:: DESTINATION ${package_dir}
  COMPONENT development)

# What the static library needs: pkg-config modules by name, the rest by -l.
set(pc_requires "")
set(pc_libs "-lm -pthread")
set(config_modules "")
set(needs ${ULYX_LAYER_LIBS})
list(REMOVE_DUPLICATES needs)
foreach(needed ${needs})
  if(needed MATCHES "^PkgConfig::(.*)")
    set(prefix ${CMAKE_MATCH_1})
    string(REGEX REPLACE "^lib" "" library "${ULYX_MODULE_${prefix}}")
    string(APPEND pc_requires " ${ULYX_MODULE_${prefix}}")
    string(APPEND config_modules
      "ulyx_find_module(${prefix} ${ULYX_MODULE_${prefix}} ${library} "
      "${ULYX_PACKAGE_${prefix}})\n")
  elseif(NOT needed MATCHES "::|^-|/")
    string(APPEND pc_libs " -l${needed}")
  endif()
endforeach()
if(ULYX_HAS_KERNELS)
  # Where the toolkit lies is the machine's to say (LIBRARY_PATH).
  string(APPEND pc_libs " -lcudart_static -lrt -lstdc++")
  string(APPEND config_modules "ulyx_find_cuda()\n")
endif()
file(RELATIVE_PATH pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" pc_prefix "${pc_prefix}")

configure_file(cmake/ulyx.pc.in ulyx.pc @ONLY)
configure_package_config_file(cmake/ulyxConfig.cmake.in ulyxConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(ulyxConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ulyx.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
install(FILES ${PROJECT_BINARY_DIR}/ulyxConfig.cmake
  ${PROJECT_BINARY_DIR}/ulyxConfigVersion.cmake DESTINATION ${package_dir}
  COMPONENT development)

if(SKBUILD)
  install(FILES $<TARGET_FILE:ulyx> DESTINATION lib
    RENAME libulyx.so.${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    COMPONENT python)
endif()

# ---- programs, documents, examples ------------------------------------------
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
set(ULYX_INSTALLED_PROGRAMS "")
foreach(program ulyx_perf ulyx_perf_mpi ulyx_info kernelcheck train_bytes)
  if(TARGET ${program})
    list(APPEND ULYX_INSTALLED_PROGRAMS ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
      COMPONENT tools)
  endif()
endforeach()
if(TARGET train_bytes) # the one that links the shared library
  file(RELATIVE_PATH from_bin /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
  set_target_properties(train_bytes PROPERTIES
    INSTALL_RPATH "$ORIGIN/${from_bin}")
endif()
install(DIRECTORY examples/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples
  COMPONENT development FILES_MATCHING PATTERN "*.[ch]" PATTERN "*.py")
if(ULYX_TOOLS)
  # All documents, in the folders that they have here, so that their links to
  # each other hold; the script changes what else names a place of this tree.
  install(FILES README.md CHANGELOG.md SECURITY.md CONTRIBUTING.md
    DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT tools)
  install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT tools)
  install(FILES perf/PERFORMANCE.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/perf
    COMPONENT tools)
  file(RELATIVE_PATH to_include ${CMAKE_INSTALL_FULL_DOCDIR}
    ${CMAKE_INSTALL_FULL_INCLUDEDIR}/ulyx)
  file(RELATIVE_PATH to_schema ${CMAKE_INSTALL_FULL_DOCDIR}
    ${CMAKE_INSTALL_FULL_DATADIR}/ulyx/schema.json)
  install(CODE "set(docdir \"${CMAKE_INSTALL_DOCDIR}\")
set(to_include \"${to_include}\")
set(to_schema \"${to_schema}\")" COMPONENT tools)
  install(SCRIPT cmake/UlyxDocuments.cmake COMPONENT tools)
  install(FILES perf/schema.json examples/ulyx.tuning
    DESTINATION ${CMAKE_INSTALL_DATADIR}/ulyx COMPONENT tools)
endif()
if(ULYX_HAVE_MAN AND TARGET ulyx_info AND NOT ULYX_SANITIZE AND
    NOT ULYX_COVERAGE)
  include(UlyxManual)
endif()
if(PROJECT_IS_TOP_LEVEL)
  include(UlyxPackage)
endif()
