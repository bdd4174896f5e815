"""Make new captions by taking captions apart and recombining their parts."""
