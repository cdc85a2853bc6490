"""Jobs of this machine: launched, found, asked, changed and stopped."""
