"""Programs that go along with an export as they stand here, and run where vtkit is not installed."""
