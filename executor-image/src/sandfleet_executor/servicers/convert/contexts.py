"""Saved states ↔ the messages of the API."""

from sandfleet_api.executor.v1 import interpreter_pb2 as pb
from sandfleet_api.executor.v1 import session_pb2

from sandfleet_executor.core.contexts import states
from sandfleet_executor.core.contexts.states import Item, Manifest, Persistence
from sandfleet_executor.core.suspension.record import ContextReport
from sandfleet_executor.effects.contexts.state_transfer import Restored
from sandfleet_executor.effects.contexts.variables import Variables
from sandfleet_executor.servicers.convert import common as convert


def persistence(request: pb.CreateContextRequest | pb.ExecuteRequest, *, resume: bool) -> Persistence:
    """What is to outlive the interpreter of a context. Raises BadRequest."""
    if not request.HasField("autosave"):
        return Persistence()
    wish = request.autosave
    seconds = convert.seconds(wish, "timeout")
    seconds = states.AUTOSAVE_SECONDS if seconds is None else seconds
    return Persistence(states.check_bounds(wish.max_bytes or states.AUTOSAVE_BYTES, 0, seconds), resume)


def automatic(variables: Variables) -> pb.AutomaticSave | None:
    """How the automatic saves of a context stand."""
    if not variables.automatic:
        return None
    newest = state("", variables.newest) if variables.newest else None
    return pb.AutomaticSave(state=newest, problem=variables.problem)


def state(name: str, manifest: Manifest) -> pb.SavedState:
    return pb.SavedState(
        name=name,
        context_id=manifest.context_id,
        created=convert.timestamp(manifest.created),
        cell_number=manifest.cell,
        size_bytes=manifest.size,
        saved=len(manifest.saved) + manifest.saved_omitted,
        unsaved=len(manifest.unsaved) + manifest.unsaved_omitted,
    )


def saved(name: str, manifest: Manifest) -> pb.SaveStateResponse:
    return pb.SaveStateResponse(
        state=state(name, manifest),
        saved=items(manifest.saved, manifest.saved_omitted),
        unsaved=items(manifest.unsaved, manifest.unsaved_omitted),
        threads=manifest.threads,
    )


def restored(name: str, value: Restored) -> pb.RestoreStateResponse:
    manifest = value.manifest
    return pb.RestoreStateResponse(
        state=state(name, manifest),
        restored=items(value.restored, value.restored_omitted),
        unrestored=items(value.unrestored, value.unrestored_omitted),
        unsaved=items(manifest.unsaved, manifest.unsaved_omitted),
        lost=states.still_lost(value.missing, manifest.cell, manifest.cell),
    )


def report(value: ContextReport) -> session_pb2.KeptContext:
    """What became of a context in a suspension or in a snapshot."""
    return session_pb2.KeptContext(
        context_id=value.id,
        language=value.language,
        variables=value.variables,
        missing=items(value.missing, value.omitted),
        reason=value.reason,
        message=value.message,
    )


def items(found: tuple[Item, ...], omitted: int) -> pb.StateItems:
    return pb.StateItems(items=map(item, found), omitted=omitted)


def item(value: Item) -> pb.StateItem:
    return pb.StateItem(
        name=value.name,
        type=value.type,
        size_bytes=value.size,
        reason=value.reason,
        message=value.message,
        overwrote=value.overwrote,
    )
