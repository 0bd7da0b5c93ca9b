"""The golden harness: committed configs, explanations and one matrix, compared byte for byte with what dsgen says now."""
