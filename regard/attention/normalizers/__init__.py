"""Normalizers: from scores to weights.

A normalizer is any function from scores (*batch, queries, keys), -inf for hidden keys, to weights of the same shape.
Those of this package give a hidden key weight 0, and a query without visible keys weights 0 and gradients 0. So does a
function decorated with `masked_normalizer` and a subclass of `Normalizer`.
"""
