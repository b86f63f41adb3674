import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """The machine may be shared; one thread is also what makes tiny steps fast."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
