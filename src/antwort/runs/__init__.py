"""Where runs are executed, how their events reach readers, how they are cancelled and taken up again."""
