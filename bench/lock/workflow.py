"""The workflow of GitHub Actions that checks a lock and comments on pull requests: workflow.yml."""

from importlib.resources import files


def workflow() -> str:
    """Return the workflow with the address of this software."""
    return files(__package__).joinpath("workflow.yml").read_text("utf-8")
