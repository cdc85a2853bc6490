"""The pages for people, and the code that makes parts of them (`docs.generate`)."""
