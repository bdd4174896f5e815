"""Export suspected captions to annotation tools, and import the annotations."""
