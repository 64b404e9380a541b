"""MISO (SoCC'22): as published, with the authors' Oracle, and ours."""
