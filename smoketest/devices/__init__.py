"""The seam to PyTorch backends: the real `neuron` device, the emulated one, and the CPU."""
