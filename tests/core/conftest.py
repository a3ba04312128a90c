"""Helpers of the core's tests that assert."""

import pytest

# So that they say as much as a test does.
pytest.register_assert_rewrite("tests.core.driver", "tests.core.model", "tests.core.polling", "tests.core.twins")
