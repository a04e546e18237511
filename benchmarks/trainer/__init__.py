"""This benchmark compares a private training step with plain torch SGD and Opacus, in turns, each in a process of its
own."""
