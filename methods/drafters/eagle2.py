"""EAGLE-2: the head of EAGLE drafts a dynamic tree. Source: Li et al. 2024, "EAGLE-2"."""

from __future__ import annotations

from methods.drafters._eagle import DynamicDrafter, FeatureLevel


class Eagle2(FeatureLevel, DynamicDrafter):
    pass
