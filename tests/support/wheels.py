"""Distributions for tests to install, as bytes."""

import base64
import hashlib
import io
import tarfile
import zipfile


def wheel(name, version, *, value="here", needs=(), extra_files=None):
    """A distribution of one module that says `value`; `needs` are lines of Requires-Dist."""
    info = f"{name}-{version}.dist-info"
    required = "".join(f"Requires-Dist: {each}\n" for each in needs)
    files = {
        f"{name}.py": f"VALUE = {value!r}\n",
        **(extra_files or {}),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n{required}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digest = {
        path: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        for path, text in files.items()
    }
    record = "".join(f"{path},sha256={digest[path]},{len(text)}\n" for path, text in files.items())
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(path, text)
    return made.getvalue()


# A build backend of its own, in the source distribution: nothing has to be fetched to build it.
BACKEND = """
def get_requires_for_build_wheel(settings=None):
    return []

def prepare_metadata_for_build_wheel(folder, settings=None):
    {code}
    raise SystemExit("built nothing")

build_wheel = prepare_metadata_for_build_wheel
"""
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


# Another one, which builds: a wheel is an archive of the module and of what is said about it.
BUILDER = """
import pathlib, zipfile

def get_requires_for_build_wheel(settings=None):
    return []

def build_wheel(folder, settings=None, metadata=None):
    path = pathlib.Path(folder) / "{name}-{version}-py3-none-any.whl"
    info = "{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("{name}.py", pathlib.Path("{name}.py").read_text())
        archive.writestr(f"{{info}}/METADATA", "Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
        archive.writestr(f"{{info}}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr(f"{{info}}/RECORD", "")
    return path.name
"""


def hostile_sdist(name, version, code):
    """A source distribution that runs `code` (lines of Python) when pip asks what it is."""
    lines = code.strip("\n").replace("\n", "\n    ")
    return _sdist(name, version, {"backend.py": BACKEND.format(code=lines)})


def sdist(name, version, *, value):
    """A source distribution of one module that says `value`; pip builds a wheel of it."""
    builder = BUILDER.format(name=name, version=version)
    return _sdist(name, version, {"backend.py": builder, f"{name}.py": f"VALUE = {value!r}\n"})


def _sdist(name, version, more):
    files = {
        "pyproject.toml": PROJECT,
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        **more,
    }
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for path, text in files.items():
            member = tarfile.TarInfo(f"{name}-{version}/{path}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return made.getvalue()
