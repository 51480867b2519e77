# SPDX-License-Identifier: Apache-2.0
"""Pictures of sweeps, predictions, machines and plans, written as SVG directly.

cli.py parses arguments; sources.py reads files and runs ulyx_info. Each kind of
picture is a module that draws the data on a Canvas of svg.py.
"""
