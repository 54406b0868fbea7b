"""Terminal, errors, interrupts, devices, and files that are written whole or not at all."""
