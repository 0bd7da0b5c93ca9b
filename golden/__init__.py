"""The golden harness: committed configs, explanations and a matrix, compared byte for byte with those of now."""
