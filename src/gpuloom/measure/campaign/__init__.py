"""Running what a plan asks for, one arrangement after the other, until enough is known; and keeping what came out."""
