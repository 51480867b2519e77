# SPDX-License-Identifier: Apache-2.0
# What every folder's CMakeLists.txt is written with:
#   ulyx_layer(name SOURCES a.c ... [LIBS]) one object library a layer; .cu
#                                           sources where ULYX_HAVE_CUDA
#   ulyx_isa_source(file flags...)          a source with instruction-set flags
#   ulyx_program(name SOURCES ... [LIBS])   a program in build/bin
#   ulyx_test_nodes(name RANKS_PER_NODE draws [VARIABLE=value ...])
#   ulyx_test(name SOURCES ... [LIBS] [TIMEOUT s] [LABELS l ...] [WHOLE] [SERIAL])
include(CheckCCompilerFlag)
include(GNUInstallDirs)

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
  endif()
endif()

add_library(ulyx_flags INTERFACE)
target_include_directories(ulyx_flags INTERFACE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_compile_definitions(ulyx_flags INTERFACE _GNU_SOURCE)
# Options of the C and C++ compilers only: nvcc has its own words for these.
function(ulyx_host_options)
  foreach(option IN LISTS ARGN)
    target_compile_options(ulyx_flags INTERFACE
      $<$<COMPILE_LANGUAGE:C,CXX>:${option}>)
  endforeach()
endfunction()

ulyx_host_options(
  -Wall -Wextra -Wshadow -Wpointer-arith -Wno-missing-field-initializers)
target_compile_options(ulyx_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>
  $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes>)
if(ULYX_WERROR)
  ulyx_host_options(-Werror)
endif()
# A target with the property ULYX_PLAIN is linked with the sanitizers, but its
# own accesses are not looked at.
if(ULYX_SANITIZE)
  set(plain $<BOOL:$<TARGET_PROPERTY:ULYX_PLAIN>>)
  ulyx_host_options($<$<NOT:${plain}>:-fsanitize=${ULYX_SANITIZE}>
    -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(ulyx_flags INTERFACE -fsanitize=${ULYX_SANITIZE})
endif()
if(ULYX_FUZZ)
  if(NOT CMAKE_C_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "ULYX_FUZZ wants clang: CMAKE_C_COMPILER=clang")
  endif()
  ulyx_host_options(-fsanitize=fuzzer-no-link,address,undefined
    -fno-sanitize=alignment -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(ulyx_flags INTERFACE -fsanitize=address,undefined)
endif()
if(ULYX_COVERAGE)
  # Ranks are threads and processes: counters that are not atomic lose counts.
  ulyx_host_options(--coverage -O0 -fprofile-update=atomic)
  target_link_options(ulyx_flags INTERFACE --coverage)
endif()
# Whoever links the static library in another project's folder sees it, too.
if(NOT TARGET Threads::Threads)
  find_package(Threads REQUIRED)
  set_target_properties(Threads::Threads PROPERTIES IMPORTED_GLOBAL TRUE)
endif()
target_link_libraries(ulyx_flags INTERFACE Threads::Threads m)

set(ULYX_LAYERS "" CACHE INTERNAL "object libraries, lowest layer first")
set(ULYX_LAYER_LIBS "" CACHE INTERNAL "what the layers link with")
set(ULYX_HAS_KERNELS FALSE CACHE INTERNAL "a layer has .cu sources")

function(ulyx_layer name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
  add_library(ulyx_${name} OBJECT ${arg_SOURCES})
  target_link_libraries(ulyx_${name} PUBLIC ulyx_flags ${arg_LIBS})
  set(ULYX_LAYERS ${ULYX_LAYERS} ulyx_${name} CACHE INTERNAL "")
  set(ULYX_LAYER_LIBS ${ULYX_LAYER_LIBS} ${arg_LIBS} CACHE INTERNAL "")
endfunction()

function(ulyx_isa_source file)
  string(REPLACE ";" " " flags "${ARGN}")
  set_source_files_properties(${file} PROPERTIES COMPILE_FLAGS "${flags}")
endfunction()

# Programs of ours see the internal symbols through the static library.
function(ulyx_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ulyx_static ulyx_flags ${arg_LIBS})
endfunction()

# How long tests may take, in seconds of a plain build:
# ulyx_timeout(SECONDS name...)
function(ulyx_timeout seconds)
  if(ULYX_SANITIZE OR ULYX_COVERAGE)
    math(EXPR seconds "${seconds} * 5")
  endif()
  set_tests_properties(${ARGN} PROPERTIES TIMEOUT ${seconds})
endfunction()

# Each cmocka case becomes a test of its own, Suite.Case; with WHOLE the program
# is one test, under the program's name. SERIAL: nothing else runs meanwhile.
function(ulyx_test name)
  cmake_parse_arguments(arg "WHOLE;SERIAL" "TIMEOUT" "SOURCES;LIBS;LABELS"
    ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  ulyx_program(${name} SOURCES ${arg_SOURCES} LIBS ulyx_test_support ${arg_LIBS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  if(arg_WHOLE OR CMAKE_CROSSCOMPILING)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES
      SKIP_RETURN_CODE 77 LABELS "${arg_LABELS}" RUN_SERIAL ${arg_SERIAL})
    ulyx_timeout(${arg_TIMEOUT} ${name})
  else()
    if(ULYX_SANITIZE OR ULYX_COVERAGE)
      math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 5")
    endif()
    ulyx_discover_cases(${name} ${arg_TIMEOUT} "${arg_LABELS}" ${arg_SERIAL})
  endif()
endfunction()

# The program lists its cases after each link; ctest reads the list.
function(ulyx_discover_cases name timeout labels serial)
  set(list_file ${CMAKE_CURRENT_BINARY_DIR}/${name}.cases)
  set(include_file ${CMAKE_CURRENT_BINARY_DIR}/${name}.cases.cmake)
  set(cmake_dir ${PROJECT_SOURCE_DIR}/cmake)
  add_custom_command(TARGET ${name} POST_BUILD BYPRODUCTS ${list_file}
    COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:${name}>
      -DLIST=${list_file} -P ${cmake_dir}/UlyxListTests.cmake VERBATIM)
  file(WRITE ${include_file}
    "include(\"${cmake_dir}/UlyxDiscoverTests.cmake\")\n"
    "ulyx_add_cases(\"${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${name}\"\n"
    "  \"${list_file}\" ${timeout} \"${labels}\" ${serial})\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${include_file})
endfunction()

# Tests that a build with a sanitizer lacks, with the reason, for sanitize.sh:
# ulyx_leave_out(REASON name...)
function(ulyx_leave_out reason)
  foreach(name IN LISTS ARGN)
    set_property(GLOBAL APPEND_STRING PROPERTY ULYX_LEFT_OUT
      "${name}: ${reason}\n")
  endforeach()
endfunction()

# A test program again, as one test, over nodes that are made up of so many
# ranks and meet through a network; draws is the part of its draws. Named after
# the ranks, and after the schedule and the verb where ULYX_ALGO and
# ULYX_UCX_VERB are among the variables.
function(ulyx_test_nodes name ranks draws)
  if(NOT ULYX_HAVE_UCX)
    return()
  endif()
  set(test ${name}_by_${ranks})
  if("${ARGN}" MATCHES "ULYX_ALGO=([a-z0-9_]+)")
    string(APPEND test _${CMAKE_MATCH_1})
  endif()
  if("${ARGN}" MATCHES "ULYX_UCX_VERB=([A-Z]+)")
    string(APPEND test _${CMAKE_MATCH_1})
  endif()
  add_test(NAME ${test} COMMAND ${name})
  ulyx_timeout(60 ${test})
  set_tests_properties(${test} PROPERTIES SKIP_RETURN_CODE 77 LABELS nodes
    ENVIRONMENT
    "ULYX_RANKS_PER_NODE=${ranks};ULYX_TEST_DRAWS=${draws};${ARGN}")
endfunction()
