"""Which files changed: an index of the workspace's names, kept up to date by inotify's events, and marks on it.

Only what is no directory counts (files, symlinks, pipes …), by its name relative to the workspace: a directory that is
made or removed shows in the files below it. A mark remembers of each name that was touched since whether it was there
at first; with whether it is there now, that tells created, modified and deleted. So what comes and goes again is
nothing, a file that is replaced is modified, and several marks may lie over each other.
"""

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from sandfleet_executor.core.executions.events import Files
from sandfleet_executor.core.files.paths import PARTIAL_PREFIX

MODIFY = 0x2
ATTRIB = 0x4
CLOSE_WRITE = 0x8
MOVED_FROM = 0x40
MOVED_TO = 0x80
CREATE = 0x100
DELETE = 0x200
IS_DIRECTORY = 0x4000_0000

APPEARED = CREATE | MOVED_TO
VANISHED = DELETE | MOVED_FROM
TOUCHED = MODIFY | ATTRIB | CLOSE_WRITE

# Names in each of the three lists of one answer, and names that a mark remembers to make them from.
MAX_LISTED = 1000
MAX_TOUCHED = 50_000
MAX_MARKS = 256

PRIVATE_DIRECTORY = b".sandfleet"


class Folder:
    """A directory of the index. `watch` is the number of its inotify watch, None until it was looked into."""

    __slots__ = ("files", "folders", "name", "parent", "watch")

    def __init__(self, parent: "Folder | None", name: bytes) -> None:
        self.parent = parent
        self.name = name
        self.watch: int | None = None
        self.files: set[bytes] = set()
        self.folders: dict[bytes, Folder] = {}


def folders_of(top: Folder) -> Iterator[Folder]:
    """A folder and all below it."""
    pending = [top]
    while pending:
        folder = pending.pop()
        yield folder
        pending.extend(folder.folders.values())


def below(top: Folder) -> Iterator[tuple[Folder, bytes]]:
    """Every file of a folder and its subfolders: the folder it is in, and its name."""
    return ((folder, name) for folder in folders_of(top) for name in folder.files)


def place_of(folder: Folder, name: bytes) -> tuple[Folder, bytes]:
    """The topmost folder above, and the path from there."""
    names = [name]
    while folder.parent is not None:
        names.append(folder.name)
        folder = folder.parent
    return folder, b"/".join(reversed(names))


class Mark:
    """A moment. The index forgets it when its last reference is gone."""

    __slots__ = ("__weakref__", "complete", "touched")

    def __init__(self, *, complete: bool) -> None:
        self.complete = complete
        # Whether the name was there when it was touched first.
        self.touched: dict[bytes, bool] = {}


@dataclass(frozen=True, slots=True)
class Change:
    """A name appeared, vanished or was touched. The two halves of a rename have the same `cookie`, all else 0.

    `folder` stands for a directory; `was_there`: a file was replaced.
    """

    path: bytes
    appeared: bool = False
    vanished: bool = False
    was_there: bool = False
    cookie: int = 0
    folder: Folder | None = None


class Listener(Protocol):
    """Is told of each change as the index takes it in."""

    def tell(self, change: Change) -> None: ...
    def lose(self) -> None:
        """There may have been others: now, or since the last time that this was said."""


def is_hidden(folder: Folder, name: bytes) -> bool:
    """Sandfleet's own files, whose events are not reported."""
    return name.startswith(PARTIAL_PREFIX) or (name == PRIVATE_DIRECTORY and folder.parent is None)


class Index:
    """The names of the workspace, and the marks on it."""

    def __init__(self) -> None:
        self.root = Folder(None, b"")
        # Names in the index: files and directories.
        self.size = 0
        self._marks: list[weakref.ref[Mark]] = []
        self.listeners: list[Listener] = []
        # Directories between the two events of their rename, by its cookie; the bool is their second chance
        # (`moved_away`).
        self._moving: dict[int, tuple[Folder, bool]] = {}

    # Marks

    def mark(self, *, complete: bool) -> Mark:
        """A mark on now. With `complete` False its answer will say that it may lack something."""
        self._marks = [held for held in self._marks if held() is not None]
        mark = Mark(complete=complete and len(self._marks) < MAX_MARKS)
        if len(self._marks) < MAX_MARKS:
            self._marks.append(weakref.ref(mark))
        return mark

    def lose(self) -> None:
        """Events were lost: no mark that is held now can be complete."""
        for mark in self._held():
            mark.complete = False
        for listener in self.listeners:
            listener.lose()

    def since(self, mark: Mark) -> Files:
        """What changed since the mark: up to 1,000 names of each kind, sorted."""
        now = {path: self._has(path) for path in mark.touched}
        created = sorted(path for path, was_there in mark.touched.items() if now[path] and not was_there)
        modified = sorted(path for path, was_there in mark.touched.items() if now[path] and was_there)
        deleted = sorted(path for path, was_there in mark.touched.items() if not now[path] and was_there)
        return Files(
            created=tuple(created[:MAX_LISTED]),
            modified=tuple(modified[:MAX_LISTED]),
            deleted=tuple(deleted[:MAX_LISTED]),
            complete=mark.complete,
            omitted=sum(max(0, len(names) - MAX_LISTED) for names in (created, modified, deleted)),
        )

    def _held(self) -> Iterator[Mark]:
        return (mark for held in self._marks if (mark := held()) is not None)

    def _has(self, path: bytes) -> bool:
        *folders, name = path.split(b"/")
        folder: Folder | None = self.root
        for step in folders:
            folder = folder.folders.get(step) if folder else None
        return folder is not None and name in folder.files

    def _touch(self, folder: Folder, name: bytes, *, was_there: bool) -> None:
        if self._marks:
            top, path = place_of(folder, name)
            # Otherwise it is in a directory that left the index.
            if top is self.root:
                self._touch_path(path, was_there=was_there)

    def _touch_path(self, path: bytes, *, was_there: bool) -> None:
        for mark in self._held():
            if len(mark.touched) < MAX_TOUCHED:
                mark.touched.setdefault(path, was_there)
            elif path not in mark.touched:
                mark.complete = False

    def _tell(
        self,
        folder: Folder,
        name: bytes,
        *,
        appeared: bool = False,
        vanished: bool = False,
        was_there: bool = False,
        cookie: int = 0,
        child: Folder | None = None,
    ) -> None:
        if self.listeners:
            top, path = place_of(folder, name)
            if top is self.root:
                change = Change(path, appeared, vanished, was_there, cookie, child)
                for listener in self.listeners:
                    listener.tell(change)

    # Names

    def add_file(self, folder: Folder, name: bytes, cookie: int = 0) -> None:
        """A file exists there, perhaps since before. With a cookie, it was moved there."""
        was_there = name in folder.files
        if not was_there:
            folder.files.add(name)
            self.size += 1
        self._touch(folder, name, was_there=was_there)
        self._tell(folder, name, appeared=not was_there or cookie != 0, was_there=was_there, cookie=cookie)

    def add_folder(self, folder: Folder, name: bytes) -> Folder:
        """A directory exists there: its folder in the index, to be looked into."""
        child = folder.folders.get(name)
        if child is None:
            child = folder.folders[name] = Folder(folder, name)
            self.size += 1
            self._tell(folder, name, appeared=True, child=child)
        return child

    def clear(self, folder: Folder) -> None:
        """It turned out to be another directory than was thought."""
        for name in list(folder.files):
            self._remove_file(folder, name)
        for name in list(folder.folders):
            self._drop(folder, name)

    def event(self, folder: Folder, mask: int, cookie: int, name: bytes) -> list[Folder]:
        """Takes in one event of a folder. Gives the directories that are to be looked into.

        Events tell of the past, a look of the present: behind a name may be another directory by now, or none. So what
        was moved is looked at again, and the look compares the watch.
        """
        if is_hidden(folder, name):
            return []
        if mask & IS_DIRECTORY:
            return self._folder_event(folder, mask, cookie, name)
        if mask & (APPEARED | TOUCHED):
            # A touched file that is not known: it was made before its new directory was watched.
            self.add_file(folder, name, cookie)
        elif mask & VANISHED and name in folder.files:
            self._remove_file(folder, name, cookie)
        return []

    def is_here(self, folder: Folder) -> bool:
        """False for a folder that left the index."""
        return place_of(folder, b"")[0] is self.root

    def _remove_file(self, folder: Folder, name: bytes, cookie: int = 0) -> None:
        folder.files.remove(name)
        self.size -= 1
        self._touch(folder, name, was_there=True)
        self._tell(folder, name, vanished=True, cookie=cookie)

    def _folder_event(self, folder: Folder, mask: int, cookie: int, name: bytes) -> list[Folder]:
        if mask & MOVED_FROM:
            self._detach(folder, name, cookie)
        elif mask & MOVED_TO and cookie in self._moving:
            child = self._moving.pop(cookie)[0]
            self._attach(folder, name, child, cookie)
            return [child, *(inner for inner in folders_of(child) if inner.watch is None and inner is not child)]
        elif mask & APPEARED:
            return [self.add_folder(folder, name)]
        elif mask & DELETE:
            self._drop(folder, name)
        return []

    def _detach(self, folder: Folder, name: bytes, cookie: int) -> None:
        child = folder.folders.get(name)
        if child is not None:
            for where, file in below(child):
                self._touch(where, file, was_there=True)
            self._tell(folder, name, vanished=True, cookie=cookie, child=child)
            del folder.folders[name]
            child.parent = None
            self._moving[cookie] = (child, True)

    def _attach(self, folder: Folder, name: bytes, child: Folder, cookie: int) -> None:
        self._drop(folder, name)
        child.parent, child.name = folder, name
        folder.folders[name] = child
        for where, file in below(child):
            self._touch(where, file, was_there=False)
        self._tell(folder, name, appeared=True, cookie=cookie, child=child)

    def _drop(self, folder: Folder, name: bytes) -> None:
        child = folder.folders.get(name)
        if child is not None:
            for where, file in below(child):
                self._touch(where, file, was_there=True)
            self._tell(folder, name, vanished=True, child=child)
            del folder.folders[name]
            self._forget(child)

    def _forget(self, child: Folder) -> None:
        child.parent = None
        self.size -= sum(1 + len(folder.files) for folder in folders_of(child))

    def moved_away(self) -> list[Folder]:
        """Directories that went out of the workspace: none of their events is wanted. To be asked after all events.

        The second event of a rename may come a moment after the first: each one waits until it is asked for twice.
        """
        if not self._moving:
            return []
        gone = [child for child, fresh in self._moving.values() if not fresh]
        self._moving = {cookie: (child, False) for cookie, (child, fresh) in self._moving.items() if fresh}
        for child in gone:
            self._forget(child)
        return gone

    # After events were lost

    def adopt(self, fresh: "Index") -> None:
        """Takes the names of an index that was made anew; what differs counts as changed."""
        old, self.root, self.size = self.root, fresh.root, fresh.size
        self._moving.clear()
        if any(self._held()):
            before, after = ({place_of(folder, name)[1] for folder, name in below(root)} for root in (old, self.root))
            for path in before ^ after:
                self._touch_path(path, was_there=path in before)
        for listener in self.listeners:
            listener.lose()
