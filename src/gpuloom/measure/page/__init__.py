"""What was measured and what follows, as one page that needs nothing but a browser."""

from gpuloom.measure.page.page import measured_page

__all__ = ["measured_page"]
