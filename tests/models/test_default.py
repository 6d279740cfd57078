import pytest


@pytest.mark.model
def test_folder(default_model_dir):
    assert (default_model_dir / "config.json").exists()
