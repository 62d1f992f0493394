"""What is in the rack: every part by the server's controller (BMC) and by its own system, compared."""
