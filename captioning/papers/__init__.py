"""Tables and figures of reproduced papers, with published and measured values."""
