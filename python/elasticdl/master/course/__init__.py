"""What the master does: the loop, and the stages from data to end."""
