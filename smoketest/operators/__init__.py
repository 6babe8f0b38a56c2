"""What a torch-neuronx release runs itself: operator profiles, and what is known of the ops it does not."""
