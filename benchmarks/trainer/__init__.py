"""A private training step beside plain torch SGD and Opacus, in turns, each in a process of its own."""
