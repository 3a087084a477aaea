"""dpsql beside other libraries for differential privacy: the same star, the same questions, the same total budget."""
