"""Models behind an address: one client, and captioner and judge that use it."""
