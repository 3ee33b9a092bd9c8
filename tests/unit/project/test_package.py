# SPDX-License-Identifier: Apache-2.0
import ast
import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import numpy
import pytest
from setuptools import Distribution, Extension

import shmnd
from shmnd_tools.dev.extensions import BuildExtensions, forget_translations
from shmnd_tools.dev.in_place import find_by
from shmnd_tools.dev.index_page import with_whole_links

ROOT = Path(__file__).parents[3]
OURS = {"shmnd", "shmnd_bench", "shmnd_tools"}
NAMED = (
    "MANIFEST.in",
    "pyproject.toml",
    "LICENSE",
    "run",
    ".clang-format",
    ".pre-commit-config.yaml",
)
"""Files of the root folder that an sdist holds in addition to the pages."""


def test_every_exported_name_is_there() -> None:
    assert list(shmnd.__all__) == sorted(shmnd.__all__, key=lambda n: (n.islower(), n))
    for name in shmnd.__all__:
        assert getattr(shmnd, name) is not None
        assert name in dir(shmnd)


def test_tools_see_the_names_that_run() -> None:
    """The names under TYPE_CHECKING and the table for the running program are one list."""
    tree = ast.parse(Path(shmnd.__file__).read_text())
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: node.module
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == shmnd._HOME


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        shmnd.nonsense  # noqa: B018


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("shmnd", {"numpy", "shmnd.ring"}),
        ("shmnd.mpi.MPI", {"numpy", "shmnd.ring", "socket", "tempfile", "traceback"}),
        ("shmnd.mpi.launcher.job", {"numpy", "shmnd.ring.queues", "dataclasses", "shutil"}),
        ("shmnd_tools.main", {"numpy", "shmnd.ring", "shmnd.broker", "shmnd_tools.commands"}),
        ("shmnd.adapter, shmnd.ipc, shmnd.nd1", {"asyncio", "psutil"}),
    ],
)
def test_importing_loads_no_heavy_parts(module: str, heavy: set[str]) -> None:
    """The broker shall stay small, and ranks wait for the imports of their launcher."""
    code = f"import sys, {module}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def last_line_of_failing(code: str, **options: Any) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 1, done.stdout
    return done.stderr.strip().splitlines()[-1]


def test_version_1_is_there_without_an_import_of_its_own() -> None:
    program = "import shmnd; assert shmnd.nd1.Endpoint.__module__.startswith('shmnd.nd1')"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=50)


def test_a_missing_compiled_part_names_the_command_to_run(tmp_path: Path) -> None:
    def unbuilt(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if name.endswith(".so")]

    shutil.copytree(Path(shmnd.__file__).parent, tmp_path / "shmnd", ignore=unbuilt)
    last = last_line_of_failing("import shmnd", cwd=tmp_path)
    assert last.startswith("ImportError: the compiled part of shmnd (ring/")
    assert f"is missing in {tmp_path / 'shmnd'}; build it with 'pip install .'" in last


@pytest.mark.parametrize(
    "module", ["shmnd.ring.process.waiting", "shmnd.ring.queues.completion_queue"]
)
def test_a_compiled_part_that_does_not_load_names_the_command_to_run(module: str) -> None:
    code = f"import sys, shmnd; sys.modules['{module}'] = None; shmnd.open_adapter"
    last = last_line_of_failing(code)
    assert last.startswith("ImportError: the compiled part of shmnd cannot be loaded (import of ")
    assert "build it with 'pip install .'" in last


def test_an_interpreter_that_stays_without_the_lock_is_refused() -> None:
    code = "import sys, shmnd; sys._is_gil_enabled = lambda: False; shmnd.open_adapter"
    assert last_line_of_failing(code) == (
        "ImportError: shmnd requires the GIL, which is disabled in this interpreter; run it"
        " without PYTHON_GIL=0 and -X gil=0"
    )


IN_A_SUBINTERPRETER = """
import shmnd.status, sys
try:
    import shmnd.{name}
except ImportError as exc:
    print(exc, file=sys.stderr)
"""


@pytest.mark.parametrize("name", ["provider", "mpi.MPI", "ring"])
def test_a_subinterpreter_is_refused_and_leaves_shmnd_to_the_main_one(name: str) -> None:
    interpreters = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    inner = IN_A_SUBINTERPRETER.format(name=name)
    code = f"""
import {interpreters} as interpreters
made = interpreters.create()
interpreters.run_string(made, {inner!r})
interpreters.destroy(made)
import shmnd.{name}
raise SystemExit(1)
"""
    assert last_line_of_failing(code).startswith(
        "shmnd works in the main interpreter of a process only"
    )


def test_every_compiled_module_asks_for_the_lock() -> None:
    """An interpreter that can do without it switches it on for a module that does not object."""
    command = BuildExtensions(Distribution({"ext_modules": [Extension("thing", ["thing.pyx"])]}))
    command.ensure_finalized()
    assert command.cython_directives["freethreading_compatible"] is False
    sources = [*(ROOT / "shmnd").rglob("*.pyx")]
    assert sources
    assert not [path for path in sources if "freethreading_compatible" in path.read_text()]


def test_the_package_is_marked_as_typed() -> None:
    assert resources.files("shmnd").joinpath("py.typed").is_file()


def test_the_installed_version_is_this_one() -> None:
    assert metadata.version("shmnd") == shmnd.__version__


def test_every_compiled_source_is_declared() -> None:
    """pyproject.toml names the modules; a source that it lacks is in no sdist and no wheel."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    modules = settings["tool"]["setuptools"]["ext-modules"]
    named = {path for module in modules for path in module["sources"]}
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "shmnd").rglob("*.pyx")}
    assert there
    assert named == there
    for module in modules:
        stem = Path(module["sources"][0])
        assert module["name"] == ".".join(stem.with_suffix("").parts)
        assert (ROOT / stem.with_suffix(".pyi")).is_file(), f"{stem} has no stub"


def test_every_package_is_declared() -> None:
    """A folder that pyproject.toml does not name is in no wheel. tools/dev is never installed."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    declared = settings["tool"]["setuptools"]["packages"]
    called = {"shmnd": "shmnd", "tools": "shmnd_tools", "bench": "shmnd_bench"}
    there = {
        ".".join([name, *path.relative_to(ROOT / folder).parent.parts])
        for folder, name in called.items()
        for path in (ROOT / folder).rglob("*.py")
    }
    assert sorted(there - {"shmnd_tools.dev"}) == sorted(declared)


def test_packages_in_place_are_found_without_further_imports(tmp_path: Path) -> None:
    """Each start of an interpreter imports what finds them."""
    package = tmp_path / "of another name"
    package.mkdir()
    (package / "__init__.py").write_text("from named.part import value")
    (package / "part.py").write_text("value = 5")
    (tmp_path / "finder.py").write_text(find_by({"named": str(package)}))
    program = f"""
import sys
sys.path.append({str(tmp_path)!r})
there = {{*sys.modules}}
import finder
finder.install()
print(*({{*sys.modules}} - there & {{"contextlib", "pathlib", "re", "urllib"}}))
import named
print(named.value, named.__file__)
"""
    command = [sys.executable, "-I", "-S", "-c", program]
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert out.splitlines() == ["", f"5 {package / '__init__.py'}"]


def test_every_name_declared_of_the_headers_is_used() -> None:
    """c.pxd names what the compiled classes touch, and nothing else."""
    declared = (ROOT / "shmnd/ring/c.pxd").read_text()
    used = "\n".join(
        path.read_text() for path in (ROOT / "shmnd").rglob("*.p[yx][xd]") if path.stem != "c"
    )
    names = set(re.findall(r"\bSHMND_\w+|\bshmnd_\w+(?=\()", declared))
    assert names
    assert {name for name in names if not re.search(rf"\bc\.{name}\b", used)} == set()


def test_an_sdist_holds_every_source(tmp_path: Path) -> None:
    """What it lacks shows on another machine: sources, headers, stubs, and what builds them."""
    # In the folder of the project the build would leave its own remarks in the tree.
    tree = tmp_path / "tree"
    unbuilt = shutil.ignore_patterns("*.so", "*.c", "*.egg-info", "__pycache__")
    for folder in ("shmnd", "tools", "bench"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=unbuilt)
    for folder in ("docs", "tests", ".ci"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (*ROOT.glob("*.md"), *map(ROOT.joinpath, NAMED)):
        shutil.copy(path, tree)
    code = "from setuptools.build_meta import build_sdist; print(build_sdist('dist'))"
    subprocess.run(
        [sys.executable, "-c", code], cwd=tree, capture_output=True, text=True, check=True
    )
    (sdist,) = (tree / "dist").iterdir()
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    there = {
        str(path.relative_to(tree))
        for folder in ("shmnd", "tools", "bench", "docs", "tests", ".ci")
        for path in (tree / folder).rglob("*")
        if path.is_file() and not re.search("egg-info|__pycache__", str(path))
    }
    assert {
        "shmnd/ring/wire/atomics.h",
        "shmnd/ring/c.pxd",
        "shmnd/ring/queues/completion_queue.pyx",
    } <= there
    assert {"docs/hello.py", "tests/conftest.py", ".ci/run"} <= there
    assert held >= there | {*NAMED, "README.md", "CONTRIBUTING.md", "CHANGELOG.md"}


def test_a_changed_declaration_calls_for_new_translations(tmp_path: Path) -> None:
    times = {"old.c": 1, "new.c": 3, "some.pxd": 2, "other.pxd": 1, "old.pyx": 0, "new.pyx": 0}
    for name, when in times.items():
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (when, when))
    sources = [str(tmp_path / name) for name in ("old.pyx", "new.pyx", "none.pyx")]
    forget_translations(sources, [str(tmp_path / name) for name in ("some.pxd", "other.pxd")])
    assert {each.name for each in tmp_path.iterdir()} == {*times} - {"old.c"}


def test_translations_for_another_numpy_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "some.pxd").touch()
    for name, include in (("own", numpy.get_include()), ("other", "/x/numpy/_core/include")):
        depends = f'{{"depends": ["{include}/numpy/arrayobject.h", "shmnd/a.pxd"]}}'
        (tmp_path / f"{name}.c").write_text(f"/* BEGIN: Cython Metadata\n{depends}\n*/\n")
    sources = [str(tmp_path / f"{name}.pyx") for name in ("own", "other")]
    forget_translations(sources, [str(tmp_path / "some.pxd")])
    assert {each.name for each in tmp_path.iterdir()} == {"some.pxd", "own.c"}


def test_the_page_of_an_index_has_links_that_work_there() -> None:
    """Relative links lead nowhere on an index; each becomes one to a file that is there."""
    text = (ROOT / "README.md").read_text()
    page = with_whole_links(text, "https://example.org/it")
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert len(links) > 10
    for link in links:
        assert link.startswith(("https://", "#")), link
        if link.startswith("https://example.org/"):
            kind, path = link.removeprefix("https://example.org/it/").split("/main/")
            assert kind in ("blob", "raw")
            assert (ROOT / path.partition("#")[0]).is_file(), link
    some = "[a](b.md) [c](#d) [e](https://f) ![g](h.png) [i](j/)"
    assert with_whole_links(some, "S") == (
        "[a](S/blob/main/b.md) [c](#d) [e](https://f) ![g](S/raw/main/h.png) [i](S/tree/main/j/)"
    )


def test_the_metadata_has_urls_keywords_and_that_page(tmp_path: Path) -> None:
    unbuilt = shutil.ignore_patterns("*.so", "*.c", "__pycache__")
    for folder in ("shmnd", "tools", "bench"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=unbuilt)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "made").mkdir()
    code = (
        "from setuptools.build_meta import prepare_metadata_for_build_wheel as prepare;"
        "print(prepare('made'))"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=True)
    (written,) = tmp_path.glob("made/*/METADATA")
    told = email.message_from_string(written.read_text())
    urls = dict(line.split(", ") for line in told.get_all("Project-URL", []))
    assert {"Source", "Documentation", "Changelog", "Issues"} <= set(urls)
    assert "shared memory" in str(told["Keywords"])
    assert f"]({urls['Source']}/blob/main/docs/tutorial.md)" in str(told.get_payload())
    assert "](docs/" not in str(told.get_payload())


def imported_by(folder: str) -> set[str]:
    """Modules that the files of a folder import when they run."""
    found = set()
    for path in (ROOT / folder).rglob("*.py"):
        if "dev" in path.parts:
            continue
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                node.body = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(str(node.module).partition(".")[0])
    for path in (ROOT / folder).rglob("*.pyx"):
        found |= set(re.findall(r"(?m)^(?:import|from) (\w+)", path.read_text()))
    return found - set(sys.stdlib_module_names) - OURS - {"cpython", "libc"}


def test_imports_are_declared_where_they_are_used() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[^\w.-]", each)[0].lower() for each in requirements}

    library = names(settings["dependencies"])
    extras = {name: names(each) for name, each in settings["optional-dependencies"].items()}
    called = {"hdrh": "hdrhistogram", "zmq": "pyzmq"}
    used = {
        folder: {called.get(name, name).lower() for name in imported_by(folder)}
        for folder in ("shmnd", "tools", "bench")
    }
    # Not imported: Adapter.attach takes its segments, and an error names its call as the remedy.
    handed_in = {"posix_ipc"}
    assert used["shmnd"] | used["tools"] | handed_in == library
    assert used["bench"] <= library | extras["bench"] | extras["peers"]


def test_every_source_file_names_its_licence() -> None:
    sources = [
        path
        for folder in ("shmnd", "tools", "bench", "tests")
        for pattern in ("*.py", "*.pyi", "*.pyx", "*.pxd", "*.h", "*.c")
        for path in (ROOT / folder).rglob(pattern)
        if not (path.suffix == ".c" and path.with_suffix(".pyx").exists())
    ]
    assert sources
    bare = [p for p in sources if "SPDX-License-Identifier: Apache-2.0" not in p.read_text()[:200]]
    assert not bare
