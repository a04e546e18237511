"""The accounting engine beside dp-accounting, Opacus, prv_accountant and autodp: `make bench-accounting`."""
