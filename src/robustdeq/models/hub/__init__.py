"""Sharing: repositories of the Hugging Face Hub, and the cards of the models in them."""

from robustdeq.models.hub.card import Result, model_card
from robustdeq.models.hub.repository import PREFIX, HubError, fetch, is_on_hub

__all__ = ["PREFIX", "HubError", "Result", "fetch", "is_on_hub", "model_card"]
