"""What an entry says, as bytes; and the register, whose entries say what decides a charge besides reservations."""
