"""The analyses of the papers: why one vocabulary retrieves better than another. Arrays in, values out."""
