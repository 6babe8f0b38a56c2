"""What claims about performance are measured with; not part of the package that is installed."""
