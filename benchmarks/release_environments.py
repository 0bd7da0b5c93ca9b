"""Make an environment for each older release of DeepSpeed: `python benchmarks/release_environments.py FOLDER`.

Each has that DeepSpeed alone; torch, transformers and what DeepSpeed needs are those of the interpreter that runs this.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from golden.releases import RELEASES  # noqa: E402

__all__ = ["make"]


def make(folder: Path, release: str) -> None:
    """An environment in folder/release, if it is not there yet."""
    home = folder / release
    packages = home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    if not (home / "bin" / "python").exists():
        venv.create(home, with_pip=False)
    if not (packages / "deepspeed").is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run([*pip, "--target", str(packages), f"deepspeed=={release}"], check=True)
    # Behind the environment's own packages, so that of two DeepSpeeds the older is imported; with its own .pth files,
    # of which setuptools' must come before `import distutils`: DeepSpeed cannot see libaio with the other.
    below = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    (packages / "below.pth").write_text(below, encoding="utf-8")


def main() -> None:
    """Make all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for release in RELEASES:
        make(folder, release)


if __name__ == "__main__":
    main()
