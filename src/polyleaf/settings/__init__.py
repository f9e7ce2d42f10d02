"""What can be set: each parameter declared once, and the frozen parts that a training is handed."""
