"""From a roster to what is trained on: held-out classes, shares, added pairs, planted faults."""
