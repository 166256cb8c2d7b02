"""Import the layer cases for ``tests/reports/test_method_page.py``; use ``tests.cases`` elsewhere."""

from tests.cases import configurations as configurations
