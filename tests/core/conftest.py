"""How hard Hypothesis tries: `FUTEBUS_EXAMPLES=5000` for a long night."""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

# Helpers that assert: so that they say as much as a test does.
pytest.register_assert_rewrite("tests.core.driver", "tests.core.model", "tests.core.polling", "tests.core.twins")

settings.register_profile(
    "futebus",
    max_examples=int(os.environ.get("FUTEBUS_EXAMPLES", "200")),
    stateful_step_count=50,
    # All but `explain`, which takes longer than the rest together on a long history of calls.
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink],
    # A busy machine is no failure.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("futebus")
