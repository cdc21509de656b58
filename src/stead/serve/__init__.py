"""The local web app: jobs as child processes of the public commands, plans that can be looked at and moved."""
