"""Files of region features, as other projects write them."""
