# SPDX-License-Identifier: Apache-2.0
# Cross build for aarch64 with Debian's gcc-aarch64-linux-gnu:
#     cmake -B build-aarch64 --toolchain cmake/toolchain-aarch64.cmake
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
