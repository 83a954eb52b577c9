"""Which claims a reviewed sandbox can serve."""

from sandfleet_api.fleet.v1 import fleet_pb2

from sandfleet_operator.api.reasons import ClaimReason


def check_reviewable(request: fleet_pb2.ClaimRequest) -> None:
    """Raises FleetError where the claim brings what no reviewer would see."""
    check_brings_nothing(envs=bool(request.envs), workspace=bool(request.workspace_id), doing="claim")


def check_brings_nothing(*, envs: bool, workspace: bool, doing: str) -> None:
    """Raises FleetError where a reviewed sandbox has an environment of its user's, or an earlier workspace."""
    brought = "environment variables" if envs else "an earlier workspace" if workspace else ""
    if brought:
        why = f"{brought} may bring code that no reviewer has seen"
        raise ClaimReason.CONTRACT_NOT_SUPPORTED.error(f"cannot {doing} with contract reviewed: {why}")
