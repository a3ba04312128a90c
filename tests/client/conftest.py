"""What tests of clients are given."""

from typing import Any

import pytest

from .libraries import Aio, Trio


@pytest.fixture(params=[Trio, Aio])
def library(request: pytest.FixtureRequest) -> Any:
    return request.param()
