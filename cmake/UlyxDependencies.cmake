# SPDX-License-Identifier: Apache-2.0
# Each optional dependency: AUTO takes it when found, ON fails loudly.
find_package(PkgConfig REQUIRED)
