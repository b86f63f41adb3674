"""What pages are made of: cached loaders, figure builders, widgets."""
