"""What happens inside of a model: attention, hidden states, and the tokens that an answer rests on."""
