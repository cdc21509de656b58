"""Models in plain torch: one file per family, each with a function `build` whose arguments are the family's options.

Only this package imports torch when it is imported, and only functions of `stead.workloads` import it.
"""
