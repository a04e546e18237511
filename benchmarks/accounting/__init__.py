"""`make bench-accounting` compares the accounting engine with dp-accounting, Opacus, prv_accountant and autodp."""
