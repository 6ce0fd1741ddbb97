"""What a client sends is checked by the engine's `plan`: whoever plans without it goes past the checks."""

from scripts.structure import ROOT

ENGINE = ROOT / "src" / "antwort" / "engine"


def test_only_the_engine_asks_the_planner_itself() -> None:
    modules = (ROOT / "src" / "antwort").rglob("*.py")
    past = [module for module in modules if ENGINE not in module.parents and "planner.plan(" in module.read_text()]
    assert past == [], "plan with `engine.plan`, which checks the input"
