"""Who belongs to the job: launched, heard of, ended, replaced."""
