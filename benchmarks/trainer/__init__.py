"""This benchmark compares our private training step with steps of plain torch SGD and of Opacus, in turns. Each side
has a process of its own."""
