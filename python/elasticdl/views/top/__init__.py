"""The full-screen view `top`."""
