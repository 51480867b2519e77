# SPDX-License-Identifier: Apache-2.0
# What ulyx is built with. Required: expat, hwloc and libsodium; jansson for the
# tools; cmocka for the tests (tests/CMakeLists.txt). Optional: what
# ULYX_<NAME> = AUTO, ON or OFF says, where AUTO takes it when found and ON
# fails loudly. Each optional NAME leaves behind
#   ULYX_HAVE_<NAME>   in CMake, TRUE or FALSE
#   ULI_HAVE_<NAME>    in C, 1 or 0
find_package(PkgConfig)
if(NOT PKG_CONFIG_FOUND)
  message(FATAL_ERROR "pkg-config, which finds what ulyx needs, is not "
    "installed. Install pkg-config (scripts/packages.txt lists all).")
endif()

# pkg-config modules by the prefix that pkg_check_modules is given: what
# ulyx.pc requires of a layer that links with PkgConfig::<prefix>.
set(ULYX_MODULE_EXPAT expat)
set(ULYX_MODULE_HWLOC hwloc)
set(ULYX_MODULE_JANSSON jansson)
set(ULYX_MODULE_SODIUM libsodium)
set(ULYX_AT_LEAST_SODIUM ">=1.0.18") # ristretto255
set(ULYX_MODULE_UCX ucx)
set(ULYX_MODULE_PMIX pmix)

# ulyx_wanted(NAME out): false where the option says OFF: then nothing is
# looked for.
function(ulyx_wanted name out)
  string(TOUPPER "${ULYX_${name}}" value)
  if(NOT value MATCHES "^(AUTO|ON|OFF|TRUE|FALSE|YES|NO|1|0)$")
    message(FATAL_ERROR
      "ULYX_${name}=${ULYX_${name}}: expected AUTO, ON or OFF")
  endif()
  if(value MATCHES "^(OFF|FALSE|NO|0)$")
    set(${out} FALSE PARENT_SCOPE)
  else()
    set(${out} TRUE PARENT_SCOPE)
  endif()
endfunction()

# ulyx_optional(NAME found-variable what-to-install [why-not-looked-for])
function(ulyx_optional name found_variable what)
  string(TOUPPER "${ULYX_${name}}" value)
  ulyx_wanted(${name} wanted)
  set(have FALSE)
  if(wanted AND ${found_variable})
    set(have TRUE)
  elseif(wanted AND NOT value STREQUAL "AUTO")
    message(FATAL_ERROR "ULYX_${name}=${ULYX_${name}}, but ${name} was not "
      "found. Install ${what}, or configure with -DULYX_${name}=OFF.")
  endif()
  set(ULYX_HAVE_${name} ${have} PARENT_SCOPE)
  target_compile_definitions(ulyx_flags INTERFACE
    ULI_HAVE_${name}=$<BOOL:${have}>)
  if(have)
    set(text "yes")
  elseif(wanted AND ARGC GREATER 3)
    set(text "no (not looked for: ${ARGV3})")
  elseif(wanted)
    set(text "no (not found: ${what})")
  else()
    set(text "no (OFF)")
  endif()
  set(ULYX_SUMMARY ${ULYX_SUMMARY} "${name}: ${text}" CACHE INTERNAL "")
endfunction()

# ulyx_required(NAME package): PkgConfig::<NAME>, or the package to install is
# named.
function(ulyx_required name package)
  set(module ${ULYX_MODULE_${name}})
  pkg_check_modules(${name} IMPORTED_TARGET GLOBAL
    "${module}${ULYX_AT_LEAST_${name}}")
  if(NOT ${name}_FOUND)
    execute_process(COMMAND ${PKG_CONFIG_EXECUTABLE} --print-errors --exists
      "${module}${ULYX_AT_LEAST_${name}}" ERROR_VARIABLE reason)
    message(FATAL_ERROR "${module}${ULYX_AT_LEAST_${name}} was not found by "
      "pkg-config. Install "
      "${package} (scripts/packages.txt lists all that ulyx needs). "
      "pkg-config says: ${reason}")
  endif()
  set(ULYX_SUMMARY ${ULYX_SUMMARY} "${module}: ${${name}_VERSION}"
    CACHE INTERNAL "")
  set(ULYX_REQUIRED ${ULYX_REQUIRED} ${module} CACHE INTERNAL "")
  set(ULYX_PACKAGE_${name} ${package} CACHE INTERNAL "brings ${module}")
endfunction()

set(ULYX_SUMMARY "" CACHE INTERNAL "lines printed when configured")
set(ULYX_REQUIRED "" CACHE INTERNAL "pkg-config modules of ulyx_required")

ulyx_required(EXPAT libexpat1-dev)
ulyx_required(HWLOC libhwloc-dev)
ulyx_required(SODIUM libsodium-dev)
if(ULYX_TOOLS)
  ulyx_required(JANSSON libjansson-dev)
endif()

# Kernels are compiled for the oldest architecture that the design supports,
# also as PTX, which the driver compiles for later ones, and for Hopper's own
# instructions; no GPU is needed to build.
ulyx_wanted(CUDA wanted)
# Whoever links objects of CUDA needs the language: another project has to have
# enabled it itself.
get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
if(wanted AND NOT PROJECT_IS_TOP_LEVEL AND NOT CUDA IN_LIST languages)
  if(NOT ULYX_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "ULYX_CUDA=${ULYX_CUDA} in another project: it must "
      "call enable_language(CUDA) before it takes ulyx in.")
  endif()
  set(ULYX_CUDA OFF)
  set(wanted FALSE)
endif()
if(wanted)
  find_program(ULYX_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH
    PATHS /usr/local/cuda/bin)
  find_path(ULYX_CUDA_INCLUDE cuda.h HINTS ENV CUDA_HOME ENV CUDA_PATH
    PATHS /usr/local/cuda PATH_SUFFIXES include)
  if(ULYX_NVCC AND ULYX_CUDA_INCLUDE)
    set(ULYX_CUDA_FOUND TRUE)
  endif()
endif()
ulyx_optional(CUDA ULYX_CUDA_FOUND "the CUDA toolkit (nvcc)")
if(ULYX_HAVE_CUDA)
  # Another project's architectures are its own: of its compiler's default the
  # kernels are not.
  if(NOT CMAKE_CUDA_ARCHITECTURES OR NOT PROJECT_IS_TOP_LEVEL)
    set(CMAKE_CUDA_ARCHITECTURES 80 90a-real)
  endif()
  if(NOT CUDA IN_LIST languages)
    set(CMAKE_CUDA_COMPILER ${ULYX_NVCC})
  endif()
  set(CMAKE_CUDA_STANDARD 17)
  enable_language(CUDA)
  if(NOT TARGET CUDA::cudart_static)
    find_package(CUDAToolkit REQUIRED)
    foreach(target toolkit cudart_static cudart_static_deps)
      if(TARGET CUDA::${target})
        set_target_properties(CUDA::${target} PROPERTIES IMPORTED_GLOBAL TRUE)
      endif()
    endforeach()
  endif()
endif()

ulyx_wanted(UCX wanted)
if(wanted)
  pkg_check_modules(UCX IMPORTED_TARGET GLOBAL ${ULYX_MODULE_UCX})
endif()
ulyx_optional(UCX UCX_FOUND "libucx-dev")

# Matrix products of examples/train_bytes; the library itself needs none.
ulyx_wanted(OPENBLAS wanted)
set(not_looked)
if(NOT ULYX_EXAMPLES)
  set(not_looked "ULYX_EXAMPLES is OFF")
elseif(wanted)
  pkg_check_modules(OPENBLAS IMPORTED_TARGET GLOBAL openblas)
endif()
ulyx_optional(OPENBLAS OPENBLAS_FOUND "libopenblas-dev, for train_bytes"
  ${not_looked})

# libnccl is opened at run time and its few types are declared by us; where its
# header is found, a test compares.
set(ULYX_NCCL_FOUND TRUE)
ulyx_optional(NCCL ULYX_NCCL_FOUND "nothing")
if(ULYX_HAVE_NCCL)
  find_path(ULYX_NCCL_INCLUDE nccl.h
    HINTS ENV NCCL_HOME ${ULYX_CUDA_INCLUDE} PATH_SUFFIXES include)
endif()

ulyx_wanted(MPI wanted)
set(not_looked)
if(NOT ULYX_TOOLS)
  set(not_looked "ULYX_TOOLS is OFF")
elseif(wanted)
  find_package(MPI QUIET COMPONENTS C)
endif()
ulyx_optional(MPI MPI_C_FOUND "libopenmpi-dev and openmpi-bin"
  ${not_looked})

ulyx_wanted(PMIX wanted)
if(wanted)
  pkg_check_modules(PMIX IMPORTED_TARGET GLOBAL ${ULYX_MODULE_PMIX})
endif()
ulyx_optional(PMIX PMIX_FOUND "libpmix-dev")

# Manual pages and completion are made by scripts from the tables of programs,
# which must run here, and from the public headers.
ulyx_wanted(MAN wanted)
if(wanted AND NOT CMAKE_CROSSCOMPILING)
  find_package(Python3 QUIET COMPONENTS Interpreter)
endif()
set(ULYX_HAVE_MAN FALSE)
if(Python3_Interpreter_FOUND AND wanted AND NOT CMAKE_CROSSCOMPILING)
  set(ULYX_HAVE_MAN TRUE)
elseif(wanted AND NOT ULYX_MAN STREQUAL "AUTO")
  message(FATAL_ERROR "ULYX_MAN=${ULYX_MAN}, but Python 3 was not found, or "
    "the programs cannot be run here. Configure with -DULYX_MAN=OFF.")
endif()

# Another project's build type is its own, and may be none: attention without
# optimisation is many times slower, so the summary says it.
function(ulyx_print_summary)
  set(build_type "${CMAKE_BUILD_TYPE}")
  if(CMAKE_CONFIGURATION_TYPES)
    set(build_type "${CMAKE_CONFIGURATION_TYPES}")
  elseif(NOT build_type)
    set(build_type "no CMAKE_BUILD_TYPE (not optimised)")
  endif()
  message(STATUS "ulyx ${PROJECT_VERSION}, ${build_type}, "
    "${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}, "
    "${CMAKE_SYSTEM_PROCESSOR}")
  foreach(line IN LISTS ULYX_SUMMARY)
    message(STATUS "  ${line}")
  endforeach()
  if(ULYX_SANITIZE)
    message(STATUS "  sanitizer: ${ULYX_SANITIZE}")
  endif()
endfunction()
