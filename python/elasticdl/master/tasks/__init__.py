"""Tasks: the queue, the ledger and journal that outlive a master, the audit."""
