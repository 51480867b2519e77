# SPDX-License-Identifier: Apache-2.0
# cpack in the build folder makes
#   libulyx0.2, libulyx-dev, ulyx-tools   .deb, the first named by the SONAME
#   ulyx-<version>-Linux.tar.gz           all of it
# Configured with -DCMAKE_INSTALL_PREFIX=/usr the libraries lie where Debian
# has those of an architecture.
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME ulyx)
set(CPACK_PACKAGE_VENDOR ulyx)
set(CPACK_PACKAGE_CONTACT "The ulyx authors <ulyx@packages.invalid>")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_COMPONENTS_ALL runtime development tools)
set(CPACK_PRE_BUILD_SCRIPTS
  ${PROJECT_SOURCE_DIR}/cmake/UlyxDebianDocs.cmake)

set(soname ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# train_bytes needs the library of a package that is made at the same time.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/src)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libulyx${soname})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
# What it opens at run time, where that is there.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS "libucx0, libpmix2")
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION
  "Moves tensors between the sequence-sharded and the head-sharded layout, and\n\
attends. This package has the shared library.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libulyx-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(depends "libulyx${soname} (= ${PROJECT_VERSION})")
foreach(needed ${ULYX_LAYER_LIBS})
  if(needed MATCHES "^PkgConfig::(.*)")
    list(APPEND depends ${ULYX_PACKAGE_${CMAKE_MATCH_1}})
  endif()
endforeach()
list(REMOVE_DUPLICATES depends)
list(JOIN depends ", " CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS)
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
  "Headers, static library, CMake and pkg-config files, manual pages of the API\n\
and examples of ulyx.")

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME ulyx-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS
  "libulyx${soname} (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_TOOLS_DESCRIPTION
  "ulyx_perf times the exchange, ulyx_info shows plans and machines, kernelcheck\n\
checks the attention kernels, train_bytes trains a small model on ranks.")
include(CPack)
