"""Tokens of single sims."""

from cascade_core.sim_tokens import sim_token


def test_a_token_is_the_same_in_every_process_and_for_every_version() -> None:
    # Running sims hold theirs over an upgrade.
    assert sim_token("the app's", "sim-1") == "sim1.27IpuGZz_2UAJqF8DRo3ihPBUrityhvh8KJKxQN4o6o"


def test_every_sim_and_every_app_token_has_another_one() -> None:
    assert len({sim_token(app, sim) for app in ("a", "b") for sim in ("sim-1", "sim-2", "sim-12")}) == 6


def test_an_app_without_a_token_needs_none() -> None:
    assert sim_token("", "sim-1") == ""
