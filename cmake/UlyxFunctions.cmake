# SPDX-License-Identifier: Apache-2.0
# What every folder's CMakeLists.txt is written with:
#   ulyx_layer(name SOURCES a.c ...)        one object library a layer
#   ulyx_isa_source(file flags...)          a source with instruction-set flags
#   ulyx_program(name SOURCES ... [LIBS])   a program in build/bin
#   ulyx_test(name SOURCES ... [LIBS] [TIMEOUT s] [LABELS l ...])
include(CheckCCompilerFlag)
include(GNUInstallDirs)

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

add_library(ulyx_flags INTERFACE)
target_include_directories(ulyx_flags INTERFACE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_compile_definitions(ulyx_flags INTERFACE _GNU_SOURCE)
target_compile_options(ulyx_flags INTERFACE
  -Wall -Wextra -Wshadow -Wpointer-arith -Wno-missing-field-initializers
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes -Wmissing-prototypes>)
if(ULYX_WERROR)
  target_compile_options(ulyx_flags INTERFACE -Werror)
endif()
if(ULYX_SANITIZE)
  target_compile_options(ulyx_flags INTERFACE
    -fsanitize=${ULYX_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(ulyx_flags INTERFACE -fsanitize=${ULYX_SANITIZE})
endif()
if(ULYX_COVERAGE)
  target_compile_options(ulyx_flags INTERFACE --coverage -O0)
  target_link_options(ulyx_flags INTERFACE --coverage)
endif()
find_package(Threads REQUIRED)
target_link_libraries(ulyx_flags INTERFACE Threads::Threads m)

set(ULYX_LAYERS "" CACHE INTERNAL "object libraries, lowest layer first")
set(ULYX_LAYER_LIBS "" CACHE INTERNAL "what the layers link with")

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

function(ulyx_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  ulyx_program(${name} SOURCES ${arg_SOURCES} LIBS ulyx_test_support ${arg_LIBS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT}
    SKIP_RETURN_CODE 77 LABELS "${arg_LABELS}")
endfunction()
