"""What tests stand on: makers of model files, fakes and a local hub."""
