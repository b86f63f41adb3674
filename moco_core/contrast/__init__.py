"""Contrastive learning with a dictionary of keys: the loss, the queue and one file a method."""
