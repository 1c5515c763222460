"""HASS: EAGLE-2 with a head trained on its own drafts. Source: Zhang et al. 2024, "Learning Harmonized
Representations for Speculative Sampling"; only the training differs."""

from __future__ import annotations

from pydantic import NonNegativeInt

from methods.drafters._eagle import DynamicDrafter, FeatureLevel


class Hass(FeatureLevel, DynamicDrafter):
    model_role = "hass"
    depth: NonNegativeInt = 5  # the authors' tree
