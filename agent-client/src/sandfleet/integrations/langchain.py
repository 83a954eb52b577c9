"""LangChain deepagents: `create_deep_agent(model=…, backend=SandfleetBackend(sandbox))`."""

from __future__ import annotations

from sandfleet import FileError, Sandbox
from sandfleet.errors import FileNotFound, FilePermission, InvalidPath, IsADirectory
from sandfleet.integrations._base import needed, not_lost

with needed("langchain", "deepagents"):
    from deepagents.backends.protocol import (
        ExecuteResponse,
        FileDownloadResponse,
        FileOperationError,
        FileUploadResponse,
    )
    from deepagents.backends.sandbox import BaseSandbox

ERRORS: dict[type[Exception], FileOperationError] = {
    FileNotFound: "file_not_found",
    FilePermission: "permission_denied",
    IsADirectory: "is_directory",
    InvalidPath: "invalid_path",
}


class SandfleetBackend(BaseSandbox):
    """Everything else (ls, grep, glob, edit) is the base class's, over these calls."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    @property
    def id(self) -> str:
        return self.sandbox.sandbox_id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a line of bash. Raises SandboxError where the platform fails."""
        run = not_lost(self.sandbox.commands.run(command, timeout=timeout, merge_output=True))
        return ExecuteResponse(run.stdout, run.exit_code, truncated=bool(run.gaps))

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [self._upload(path, content) for path, content in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return [self._download(path) for path in paths]

    def _upload(self, path: str, content: bytes) -> FileUploadResponse:
        if not path.startswith("/"):
            return FileUploadResponse(path, "invalid_path")
        try:
            self.sandbox.files.write(path, content)
        except FileError as error:
            return FileUploadResponse(path, ERRORS.get(type(error), str(error)))
        return FileUploadResponse(path)

    def _download(self, path: str) -> FileDownloadResponse:
        if not path.startswith("/"):
            return FileDownloadResponse(path, error="invalid_path")
        try:
            return FileDownloadResponse(path, self.sandbox.files.read(path, format="bytes"))
        except FileError as error:
            return FileDownloadResponse(path, error=ERRORS.get(type(error), str(error)))
