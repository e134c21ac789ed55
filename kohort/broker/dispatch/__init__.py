"""From a frame to its handler and back: which api, which function, which bytes."""
