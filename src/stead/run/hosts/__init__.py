"""Several hosts: an agent on each, shared memory inside them and gloo between them."""
