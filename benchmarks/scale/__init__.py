"""What counting raw rows costs, against the plain GROUP BYs of the same views."""
