"""Stand-ins for packages, tools and machines that cannot be had here.

They are written from what is publicly known of torch-neuronx and say so where they do; they are no evidence about
Trainium. A test that passes on them shows that smoketest does what it should *if* the real thing behaves like this.
"""
