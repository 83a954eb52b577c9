"""Saves the variables of contexts for the next executor, or for a snapshot."""

import asyncio
from dataclasses import replace

from sandfleet_executor.core.contexts.states import MAX_STATE_BYTES, Bounds
from sandfleet_executor.core.suspension import record as records
from sandfleet_executor.core.suspension.record import ContextReport, KeptContext
from sandfleet_executor.effects.contexts.context import Context
from sandfleet_executor.effects.contexts.state_store import StateError
from sandfleet_executor.effects.namespace.children import NamespaceError
from sandfleet_executor.effects.session.session import Session

NOT_SUPPORTED, TOO_SLOW, BROKEN_OFF = "NotSupported", "TooSlow", "BrokenOff"


async def keep_context(
    session: Session, context: Context, kind: str, seconds: float
) -> tuple[KeptContext, ContextReport]:
    """How the context begins again, and what is saved of its variables within so many seconds, as a state of `kind`."""
    spec = context.spec
    report = await _save(context, kind, seconds)
    kept = KeptContext(
        id=spec.id,
        language=spec.language,
        cwd=spec.cwd,
        envs=records.own_envs(spec.envs, session.environment({})),
        autosave=spec.persistence.autosave,
        saved=not report.reason,
        reason=report.reason,
        message=report.message,
    )
    return kept, report


async def _save(context: Context, kind: str, seconds: float) -> ContextReport:
    report = ContextReport(context.id, context.spec.language)
    if not context.spec.can_be_kept:
        why = f"variables of {context.spec.language} cannot be saved"
        return replace(report, reason=NOT_SUPPORTED, message=why)
    try:
        async with asyncio.timeout(seconds):
            manifest = await context.save(context.id, Bounds(MAX_STATE_BYTES, MAX_STATE_BYTES, seconds), kind)
    except StateError as error:
        return replace(report, reason=error.reason, message=str(error))
    except NamespaceError as error:
        return replace(report, reason=BROKEN_OFF, message=str(error))
    except TimeoutError:
        return replace(report, reason=TOO_SLOW, message=f"it was not saved within {seconds:g} s")
    return replace(
        report,
        variables=len(manifest.saved) + manifest.saved_omitted,
        missing=manifest.unsaved,
        omitted=manifest.unsaved_omitted,
    )
