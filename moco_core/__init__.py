"""MoCo Lens: train momentum-contrast encoders and look inside their embedding spaces and queues."""

__version__ = "0.1.0"
