"""The book's schema, revision by revision. A released revision is never edited; expand first, contract later."""
