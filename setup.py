"""The part of the build that cannot be declared: the C extensions, one with flags that pkg-config knows."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup


def missing_packages() -> list[str]:
    """Names the Debian packages without which neither this package nor pyfuse3 can be built."""
    missing = []
    if not shutil.which("cc") and not shutil.which("gcc"):
        missing.append("gcc")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        missing.append("python3-dev")
    if not shutil.which("pkg-config"):
        missing += ["pkg-config", "libfuse3-dev"]
    elif subprocess.run(["pkg-config", "--exists", "fuse3"], check=False).returncode:
        missing.append("libfuse3-dev")
    if not shutil.which("fusermount3"):
        missing.append("fuse3")
    return missing


def pkg_config(option: str) -> list[str]:
    """What pkg-config says of libfuse."""
    return subprocess.run(["pkg-config", option, "fuse3"], check=True, capture_output=True, text=True).stdout.split()


def manual_pages() -> list[tuple[str, list[str]]]:
    """Where manual pages go, and which: all that there are. The name of each ends in its section."""
    pages = sorted(Path("man").glob("*.[1-9]"))
    sections = sorted({page.suffix[1:] for page in pages})
    return [(f"share/man/man{section}", [str(page) for page in pages if page.suffix[1:] == section]) for section in sections]


if missing := missing_packages():
    sys.exit(f"futebus cannot be built without: {' '.join(missing)}\nOn Debian: apt install {' '.join(missing)}")

setup(
    ext_modules=[
        Extension("futebus.core._scan", sources=["futebus/core/scan.c"], extra_compile_args=["-O2", "-Wall", "-Wextra"]),
        Extension(
            "futebus.fuse._hooks",
            sources=["futebus/fuse/hooks.c"],
            extra_compile_args=[*pkg_config("--cflags"), "-O2", "-Wall", "-Wextra"],
            extra_link_args=pkg_config("--libs"),
        ),
    ],
    data_files=manual_pages(),
)
