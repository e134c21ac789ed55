"""What the broker runs on: time, answers that come later, work in slices, deadlines and memory."""
