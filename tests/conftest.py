"""Fixtures of several folders."""

import pytest
from support.problems import Core, Reference


@pytest.fixture(scope="session", params=[Reference, Core], ids=["reference", "core"])
def library(request):
    """Return one of the two implementations of growth."""
    return request.param
