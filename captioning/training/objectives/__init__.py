"""What training minimises: the likelihood, or rewards of captions that the model draws."""
