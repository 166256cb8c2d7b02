import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(min(2, before))
    yield
    torch.set_num_threads(before)
