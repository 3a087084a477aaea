"""Every one-axis mechanism by name: what ships, what the literature has, and what is not private at all."""

from __future__ import annotations

from benchmarks.baselines import dawa_variants, diffhr_as_published, grouped, linear, shipped, sorted_groups
from benchmarks.baselines.common import Publish

SHIPPED: dict[str, Publish] = {
    "auto": shipped.auto,
    "auto, unbiased": shipped.unbiased,
    "tents": shipped.tents,
    "tents, non-negative": shipped.with_nonnegative(shipped.tents),
    "LUE-DPTree": shipped.lue_dptree,
    "LUE-DPTree, non-negative": shipped.with_nonnegative(shipped.lue_dptree),
    "SC + BLUE": shipped.struct_construct,
    "SC + BLUE, non-negative": shipped.with_nonnegative(shipped.struct_construct),
    "HB": shipped.hb,
    "HB, non-negative": shipped.with_nonnegative(shipped.hb),
    "identity": shipped.identity,
    "identity, non-negative": shipped.with_nonnegative(shipped.identity),
    "DiffHR, private": shipped.diffhr,
}
LITERATURE: dict[str, Publish] = {
    "Dwork": linear.dwork,
    "flat": linear.flat,
    "Boost": linear.boost,
    "Boost-UN": linear.boost_un,
    "Privelet": linear.privelet,
    "HB as published": linear.hb,
    "NoiseFirst": grouped.noise_first,
    "StructureFirst": grouped.structure_first,
    "GS": sorted_groups.gs,
    "AHP": sorted_groups.ahp,
    "DAWA": dawa_variants.dawa_tapered,
    "DAWA, aligned buckets": dawa_variants.dawa_aligned,
    "DAWA, equal tree": dawa_variants.dawa_tree,
    "DAWA, cells": dawa_variants.dawa_cells,
}
NOT_PRIVATE: dict[str, Publish] = {
    "DAWA as copied (not private)": dawa_variants.dawa_copied,
    "DiffHR as published (not private)": diffhr_as_published.publish,
}
ALL = SHIPPED | LITERATURE | NOT_PRIVATE
