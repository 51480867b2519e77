# SPDX-License-Identifier: Apache-2.0
"""The Python copy of the headers' declarations, and the library with which the
copy is compared."""
import ctypes
import ctypes.util
import os
import shutil
import subprocess
import sys

import pytest

import ulyx
from ulyx import _abi, _library, errors

# Where an installed package is tested, this file lies outside of the tree, which
# ULYX_TEST_TREE then names.
ROOT = os.environ.get("ULYX_TEST_TREE") or os.path.dirname(os.path.dirname(
    os.path.dirname(os.path.abspath(__file__))))
GENERATOR = os.path.join(ROOT, "scripts", "python_bindings.py")


def test_mirror_is_what_the_headers_give():
    done = subprocess.run([sys.executable, GENERATOR, "--check"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_generator_refuses_unknown_declarations(tmp_path):
    copy = tmp_path / "scripts"
    copy.mkdir()
    shutil.copy(GENERATOR, copy)
    shutil.copytree(os.path.join(ROOT, "include"), tmp_path / "include")
    with open(tmp_path / "include/ulyx/pool.h", "a") as header:
        header.write("union ulyx_strange { int a; };\n")
    (tmp_path / "python/ulyx").mkdir(parents=True)
    done = subprocess.run([sys.executable, str(copy / "python_bindings.py")],
                          capture_output=True, text=True)
    assert done.returncode != 0 and "union ulyx_strange" in done.stderr


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_structs_lie_as_the_compiler_lays_them(tmp_path):
    lines = []
    for struct in _abi.STRUCTS:
        name = struct.__name__
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        lines += [f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));'
                  for field, _ in struct._fields_]
    source = tmp_path / "layout.c"
    source.write_text("#include <stdio.h>\n#include <stddef.h>\n"
                      "#include \"ulyx/ulyx.h\"\nint main(void)\n{\n"
                      + "\n".join(lines) + "\nreturn 0;\n}\n")
    program = tmp_path / "layout"
    subprocess.run(["cc", "-I", os.path.join(ROOT, "include"), str(source),
                    "-o", str(program)], check=True)
    told = subprocess.run([str(program)], capture_output=True, text=True,
                          check=True).stdout
    mine = []
    for struct in _abi.STRUCTS:
        mine.append(f"{struct.__name__} {ctypes.sizeof(struct)}")
        mine += [f"{struct.__name__}.{field} {getattr(struct, field).offset}"
                 for field, _ in struct._fields_]
    assert told.split("\n")[:-1] == mine


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_defaults_are_those_of_the_macros(tmp_path):
    structs = [struct for struct in _abi.STRUCTS if struct._init_]
    source = tmp_path / "defaults.c"
    source.write_text(
        "#include <stdio.h>\n#include \"ulyx/ulyx.h\"\n"
        "static void put(const void *from, size_t n)\n{\n"
        "for (size_t i = 0; i < n; i++)\n"
        "printf(\"%02x\", ((const unsigned char *)from)[i]);\nputs(\"\");\n}\n"
        "int main(void)\n{\n" + "\n".join(
            f"static {s.__name__} a{i} = "
            f"{s.__name__[:-2].upper()}_INIT;\nput(&a{i}, sizeof(a{i}));"
            for i, s in enumerate(structs)) + "\nreturn 0;\n}\n")
    program = tmp_path / "defaults"
    subprocess.run(["cc", "-I", os.path.join(ROOT, "include"), str(source),
                    "-o", str(program)], check=True)
    told = subprocess.run([str(program)], capture_output=True, text=True,
                          check=True).stdout.split()
    assert told == [bytes(struct()).hex() for struct in structs]


def test_unknown_fields_of_structs_are_refused():
    with pytest.raises(TypeError, match="no field 'row'"):
        _abi.ulyx_part_t(row=3)


def test_version_is_the_library_s():
    assert ulyx.__version__.split(".")[:2] == [str(n) for n in _abi.VERSION[:2]]


def test_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(_abi, "VERSION", (0, 1, 0))
    with pytest.raises(ImportError, match=r"these bindings are of 0\.1"):
        _library._check_version()


def test_another_struct_size_is_refused(monkeypatch):
    class ulyx_part_t(ctypes.Structure):
        _fields_ = [("axis", ctypes.c_int32)]
    monkeypatch.setattr(_abi, "STRUCTS", (ulyx_part_t,))
    with pytest.raises(ImportError, match="ulyx_part_t has .* bytes in the"):
        _library._check_sizes()


@pytest.mark.parametrize("path, text", [
    ("/nowhere/libulyx.so", "/nowhere/libulyx.so cannot be loaded"),
    (ctypes.util.find_library("m") or "libm.so.6", "another version"),
])
def test_what_is_no_ulyx_library_is_refused(path, text):
    done = subprocess.run(
        [sys.executable, "-c", "import ulyx"], capture_output=True, text=True,
        env=dict(os.environ, ULYX_LIBRARY=path))
    assert done.returncode != 0 and text in done.stderr


def test_every_failure_has_a_class():
    failures = {status for status in _abi.STATUS if status < 0}
    assert set(errors.BY_STATUS) == failures
    assert len(set(errors.BY_STATUS.values())) == len(failures)
    for status, kind in errors.BY_STATUS.items():
        error = errors.of(status, "why")
        assert type(error) is kind and str(error) == "why"
        assert error.status == status and isinstance(error, ulyx.UlyxError)
    assert "timed out" in str(errors.of(_abi.ERR_TIMEOUT, ""))
    assert isinstance(errors.of(-99, "new"), ulyx.UlyxError)


@pytest.mark.parametrize("kind, builtin", [
    (ulyx.InvalidArgumentError, ValueError), (ulyx.TimeoutError, TimeoutError),
    (ulyx.UnsupportedError, NotImplementedError),
    (ulyx.OutOfMemoryError, MemoryError), (ulyx.SizeOverflowError,
                                           OverflowError),
])
def test_classes_are_python_s_own_where_there_is_one(kind, builtin):
    assert issubclass(kind, builtin)
