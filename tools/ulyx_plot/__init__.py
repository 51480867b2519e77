# SPDX-License-Identifier: Apache-2.0
"""Pictures of sweeps, predictions, machines and plans, as SVG of our own.

cli.py parses arguments, sources.py reads files and asks ulyx_info; each kind of
picture is a module that turns what was read into a Canvas of svg.py.
"""
