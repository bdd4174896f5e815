"""Make pairs for objects that no caption names (Bujimalla et al., 2021)."""
