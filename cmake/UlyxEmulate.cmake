# SPDX-License-Identifier: Apache-2.0
# Kernels under the emulator (docs/EMULATOR.md):
#   ulyx_emulated_test(name SOURCES kernel.cu ... test.c ... [LIBS] [TIMEOUT s]
#                      [LABELS l ...] [WHOLE] [SERIAL])
# is ulyx_test, but .cu files are compiled as C++ over the stand-in headers of
# tests/emulate/include, instrumented, and linked with the emulator; .c and
# .cpp files see the stand-in cuda_runtime.h. No toolkit is needed.
#   ulyx_emulated_api_test(name [API library] ...)
# has the same options, and the whole library with all its kernels on emulated
# devices: it opens the emulated driver as it would open the real one.
# What is compiled for devices, by source path and by object path.
set(ULYX_DEVICE_FOLDERS "/cuda/|collectives/(.*/)?device/")
# Kernels call what ThreadSanitizer defines as well. Beside AddressSanitizer they
# and the emulator are as in a plain build: fibres have stacks of their own, and
# device memory has its own checks; host code around them is instrumented.
set(ULYX_EMULATED TRUE)
if(ULYX_SANITIZE MATCHES "thread")
  set(ULYX_EMULATED FALSE)
endif()
set(ULYX_EMULATE_DIR ${PROJECT_SOURCE_DIR}/tests/emulate)
set(ULYX_EMULATED_LIBCUDA ${PROJECT_BINARY_DIR}/tests/emulate/libcuda)

# -fsanitize=thread is for its calls before each load and store, which the
# emulator defines; no sanitizer is linked. Vector stores would hide bounds of
# single elements, hence no vectorizer.
set(ULYX_EMULATE_FLAGS -O2 -g1 -fsanitize=thread -fno-tree-vectorize
  -fno-exceptions -ffp-contract=off -Wall -Wextra -Wno-unknown-pragmas
  -Wno-unused-function -Wno-psabi -Wno-tsan)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  list(REMOVE_ITEM ULYX_EMULATE_FLAGS -Wno-tsan)
  list(APPEND ULYX_EMULATE_FLAGS -fno-vectorize -fno-slp-vectorize)
endif()

# Object files of kernels; other targets may link them as well.
function(ulyx_emulated_kernels target)
  add_library(${target} OBJECT ${ARGN})
  set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX)
  target_include_directories(${target} BEFORE PRIVATE
    ${ULYX_EMULATE_DIR}/include ${PROJECT_SOURCE_DIR}/src
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${target} PRIVATE ULI_EMULATE=1 _GNU_SOURCE)
  target_compile_options(${target} PRIVATE ${ULYX_EMULATE_FLAGS})
  if(ULYX_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()

function(ulyx_emulated_links name)
  target_include_directories(${name} BEFORE PRIVATE ${ULYX_EMULATE_DIR}/include)
  target_compile_definitions(${name} PRIVATE ULI_EMULATE=1)
  set_target_properties(${name} PROPERTIES ENABLE_EXPORTS ON
    LINKER_LANGUAGE CXX)
  target_link_options(${name} PRIVATE -Wl,--wrap=memcpy -Wl,--wrap=memset)
endfunction()

function(ulyx_emulated_test name)
  cmake_parse_arguments(arg "WHOLE;SERIAL" "TIMEOUT" "SOURCES;LIBS;LABELS"
    ${ARGN})
  set(kernels ${arg_SOURCES})
  list(FILTER kernels INCLUDE REGEX "\\.cu$")
  list(FILTER arg_SOURCES EXCLUDE REGEX "\\.cu$")
  if(kernels)
    ulyx_emulated_kernels(${name}_kernels ${kernels})
    list(APPEND arg_SOURCES $<TARGET_OBJECTS:${name}_kernels>)
  endif()
  set(options TIMEOUT ${arg_TIMEOUT})
  if(NOT arg_TIMEOUT)
    set(options TIMEOUT 60)
  endif()
  foreach(flag WHOLE SERIAL)
    if(arg_${flag})
      list(APPEND options ${flag})
    endif()
  endforeach()
  ulyx_test(${name} SOURCES ${arg_SOURCES}
    LIBS ${arg_LIBS} ulyx_emulator LABELS emulate ${arg_LABELS} ${options})
  ulyx_emulated_links(${name})
endfunction()

# The whole library, or what a library of its objects has, for a target that
# has the emulator: ulyx_emulated_library(name [library]).
function(ulyx_emulated_library name)
  set(api ulyx_emulated_api ${ARGN})
  list(GET api -1 api)
  target_sources(${name} PRIVATE $<TARGET_OBJECTS:ulyx_emulated_driver>)
  target_link_libraries(${name} PRIVATE ${api})
  add_dependencies(${name} ulyx_emulated_libcuda)
  # A run path of the old kind comes before LD_LIBRARY_PATH.
  set_target_properties(${name} PROPERTIES BUILD_RPATH ${ULYX_EMULATED_LIBCUDA})
  target_link_options(${name} PRIVATE -Wl,--disable-new-dtags)
endfunction()

function(ulyx_emulated_api_test name)
  cmake_parse_arguments(api "" "API" "" ${ARGN})
  ulyx_emulated_test(${name} ${api_UNPARSED_ARGUMENTS})
  ulyx_emulated_library(${name} ${api_API})
endfunction()

# A program of ours with kernels, for tests with arguments of their own.
function(ulyx_emulated_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
  set(kernels ${arg_SOURCES})
  list(FILTER kernels INCLUDE REGEX "\\.cu$")
  list(FILTER arg_SOURCES EXCLUDE REGEX "\\.cu$")
  ulyx_emulated_kernels(${name}_kernels ${kernels})
  ulyx_program(${name} SOURCES ${arg_SOURCES} $<TARGET_OBJECTS:${name}_kernels>
    LIBS ${arg_LIBS} ulyx_test_support ulyx_emulator)
  ulyx_emulated_links(${name})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
endfunction()
