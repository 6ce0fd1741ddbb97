"""Pictures that models have made, by an image server of the operator's choice."""

from antwort.providers.image_generation.provider import ImageGeneration
from antwort.providers.image_generation.settings import ImageGenerationSettings

__all__ = ["ImageGeneration", "ImageGenerationSettings"]
